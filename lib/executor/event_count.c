/* SPDX-License-Identifier: Apache-2.0 */
/* The event count on a futex. */
#include "executor/event_count.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "util/clock.h"

static long call(atomic_uint *word, int what, unsigned value, const struct timespec *until)
{
    return syscall(SYS_futex, word, what | FUTEX_PRIVATE_FLAG, value, until, NULL,
                   FUTEX_BITSET_MATCH_ANY);
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
