/* SPDX-License-Identifier: Apache-2.0 */
/* The event count on a futex where there is one (Linux), else on a mutex and a condition variable.
 * */
#include "executor/event_count.h"

#include "util/clock.h"

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

bool kiln__event_count_create(struct kiln__event_count *event_count)
{
    atomic_init(&event_count->count, 0);
    return true;
}

void kiln__event_count_destroy(struct kiln__event_count *event_count)
{
    (void)event_count;
}

/* The moment is one of the monotonic clock. */
bool kiln__event_count_wait(struct kiln__event_count *event_count, unsigned count, int64_t until)
{
    const struct timespec time = {(time_t)(until / 1000000000), (long)(until % 1000000000)};
    return !call(&event_count->count, FUTEX_WAIT_BITSET, count,
                 until == KILN__NEVER ? NULL : &time) ||
           errno != ETIMEDOUT;
}

void kiln__event_count_notify(struct kiln__event_count *event_count)
{
    atomic_fetch_add(&event_count->count, 1);
    call(&event_count->count, FUTEX_WAKE, INT_MAX, NULL);
}

#else

bool kiln__event_count_create(struct kiln__event_count *event_count)
{
    atomic_init(&event_count->count, 0);
    return !pthread_mutex_init(&event_count->lock, NULL) && kiln__cond_create(&event_count->rung);
}

void kiln__event_count_destroy(struct kiln__event_count *event_count)
{
    pthread_cond_destroy(&event_count->rung);
    pthread_mutex_destroy(&event_count->lock);
}

bool kiln__event_count_wait(struct kiln__event_count *event_count, unsigned count, int64_t until)
{
    int late = 0;
    pthread_mutex_lock(&event_count->lock);
    while (atomic_load(&event_count->count) == count && !late)
        late = kiln__cond_wait_until(&event_count->rung, &event_count->lock, until);
    pthread_mutex_unlock(&event_count->lock);
    return !late;
}

void kiln__event_count_notify(struct kiln__event_count *event_count)
{
    pthread_mutex_lock(&event_count->lock);
    atomic_fetch_add(&event_count->count, 1);
    pthread_mutex_unlock(&event_count->lock);
    pthread_cond_broadcast(&event_count->rung);
}

#endif
