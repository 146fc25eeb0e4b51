/* SPDX-License-Identifier: Apache-2.0 */
/* Where many threads wait for the same: one call of the system wakes them all, and none has to get
 * a lock then. Whoever waits reads how often it has rung, looks whether what he waits for has come,
 * and waits for the next time. */
#ifndef KILN_EXECUTOR_EVENT_COUNT_H
#define KILN_EXECUTOR_EVENT_COUNT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct kiln__bell {
    _Alignas(64) atomic_uint rings;
#ifndef __linux__
    pthread_mutex_t lock;
    pthread_cond_t rung;
#endif
};

bool kiln__bell_create(struct kiln__bell *bell);
void kiln__bell_destroy(struct kiln__bell *bell);

/* Until it has rung more often, or it is so late (KILN__NEVER: never): then false. It may return
 * earlier. */
bool kiln__bell_wait(struct kiln__bell *bell, unsigned rings, int64_t until);
void kiln__bell_ring(struct kiln__bell *bell);

#endif
