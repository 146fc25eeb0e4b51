/* SPDX-License-Identifier: Apache-2.0 */
/* An event count, where many threads wait for the same: one system call wakes them all, and none
 * has to take a lock then. Whoever waits reads how often it has rung, looks whether what he waits
 * for has come, and waits for the next time. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct kiln__event_count {
    _Alignas(64) atomic_uint count; /* from 0 on */
};

/* Until it has rung more often, or it is so late (KILN__NEVER: never): then false. It may return
 * earlier. */
bool kiln__event_count_wait(struct kiln__event_count *event_count, unsigned count, int64_t until);
void kiln__event_count_notify(struct kiln__event_count *event_count);
