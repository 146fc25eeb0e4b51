/* SPDX-License-Identifier: Apache-2.0 */
/* The monotonic clock, and conditions that wait by it. */
#include "util/clock.h"

#include <time.h>

#define SECOND INT64_C(1000000000)

static struct timespec timespec_of(int64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / SECOND), .tv_nsec = (long)(ns % SECOND)};
}

static int64_t time_by(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * SECOND + time.tv_nsec;
}

int64_t kiln__now(void)
{
    return time_by(CLOCK_MONOTONIC);
}

int64_t kiln__process_time(void)
{
    return time_by(CLOCK_PROCESS_CPUTIME_ID);
}

void kiln__sleep(int64_t ns)
{
    const struct timespec time = timespec_of(ns);
    nanosleep(&time, NULL);
}

int64_t kiln__poll_sleep(void)
{
    const int64_t start = kiln__now(), most = 4 * KILN__MS;
    kiln__sleep(KILN__MS);
    const int64_t took = kiln__now() - start;
    return took < most ? took : most;
}

bool kiln__cond_create(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes))
        return false;
    bool done = !pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) &&
                !pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
    return done;
}

int kiln__cond_wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t until)
{
    if (until == KILN__NEVER)
        return pthread_cond_wait(condition, lock);
    const struct timespec time = timespec_of(until);
    return pthread_cond_timedwait(condition, lock, &time);
}
