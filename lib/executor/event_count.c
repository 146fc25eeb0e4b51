/* SPDX-License-Identifier: Apache-2.0 */
/* The event count on a futex where there is one (Linux), else on a mutex and a condition variable.
 * */
#include "executor/event_count.h"

#include "executor/executor.h"

#ifdef __linux__

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long call(atomic_uint *word, int what, unsigned value, const struct timespec *until)
{
    return syscall(SYS_futex, word, what | FUTEX_PRIVATE_FLAG, value, until, NULL,
                   FUTEX_BITSET_MATCH_ANY);
}

bool kiln__bell_create(struct kiln__bell *bell)
{
    atomic_init(&bell->rings, 0);
    return true;
}

void kiln__bell_destroy(struct kiln__bell *bell)
{
    (void)bell;
}

/* The moment is one of the monotonic clock. */
bool kiln__bell_wait(struct kiln__bell *bell, unsigned rings, int64_t until)
{
    const struct timespec time = {(time_t)(until / 1000000000), (long)(until % 1000000000)};
    return !call(&bell->rings, FUTEX_WAIT_BITSET, rings, until == KILN__NEVER ? NULL : &time) ||
           errno != ETIMEDOUT;
}

void kiln__bell_ring(struct kiln__bell *bell)
{
    atomic_fetch_add(&bell->rings, 1);
    call(&bell->rings, FUTEX_WAKE, INT_MAX, NULL);
}

#else

bool kiln__bell_create(struct kiln__bell *bell)
{
    atomic_init(&bell->rings, 0);
    return !pthread_mutex_init(&bell->lock, NULL) && kiln__cond_create(&bell->rung);
}

void kiln__bell_destroy(struct kiln__bell *bell)
{
    pthread_cond_destroy(&bell->rung);
    pthread_mutex_destroy(&bell->lock);
}

bool kiln__bell_wait(struct kiln__bell *bell, unsigned rings, int64_t until)
{
    int late = 0;
    pthread_mutex_lock(&bell->lock);
    while (atomic_load(&bell->rings) == rings && !late)
        late = kiln__cond_wait_until(&bell->rung, &bell->lock, until);
    pthread_mutex_unlock(&bell->lock);
    return !late;
}

void kiln__bell_ring(struct kiln__bell *bell)
{
    pthread_mutex_lock(&bell->lock);
    atomic_fetch_add(&bell->rings, 1);
    pthread_mutex_unlock(&bell->lock);
    pthread_cond_broadcast(&bell->rung);
}

#endif
