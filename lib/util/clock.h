/* SPDX-License-Identifier: Apache-2.0 */
/* The monotonic clock, in nanoseconds, and waiting by it. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define KILN__NEVER INT64_MAX /* a time that does not come */
#define KILN__MS INT64_C(1000000)

int64_t kiln__now(void);

/* How long processors have worked for this process. */
int64_t kiln__process_time(void);

void kiln__sleep(int64_t ns);

/* Sleep for a millisecond; answers how much a limit on waiting may count of it: some milliseconds
 * at most, however long the process was stopped, or had no processor. */
int64_t kiln__poll_sleep(void);

/* A condition whose waits end by this clock. False: it is not made. */
bool kiln__cond_create(pthread_cond_t *condition);

/* 0, ETIMEDOUT at `until`, or another error. */
int kiln__cond_wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t until);
