/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory that is used again and again. Sizes are rounded up to bins of a quarter of a power
 * of two (as PyOpenCL's pool), so that at most a fifth is wasted and neighbours fit. The queue is
 * in-order: memory given back may be handed out while commands that use it are still queued. */
#ifndef KILN_RUNTIME_POOL_H
#define KILN_RUNTIME_POOL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/opencl.h"

struct kiln__pool; /* safe to use from many threads */

/* What the pools of a context may have together. */
struct kiln__budget {
    uint64_t device_memory, limit; /* the device's bytes; those that the pools may have of them */
    atomic_uint_fast64_t bytes;    /* that they have, in use and idle */
    struct kiln__pool *_Atomic pools; /* all, from the last made on */
    pthread_rwlock_t turns;           /* shared by those that take and have not given back yet */
    pthread_mutex_t
        keeping; /* guards what follows; no OpenCL call that can wait is made under it */
    struct kiln__kept *kept; /* all that has memory (kept.h), from the last on, */
    uint64_t kept_bytes;     /* so much, of `bytes` */
};

/* `limit`: 0 is the device's. */
void kiln__budget_begin(struct kiln__budget *budget, uint64_t device_memory, uint64_t limit);
void kiln__budget_end(struct kiln__budget *budget);

/* Around taking, enqueuing and giving back. `alone`: while nobody else does, for who found no room
 * and has given back what it had: others may have had the rest for a moment. */
void kiln__budget_enter(struct kiln__budget *budget, bool alone);
void kiln__budget_leave(struct kiln__budget *budget);

/* A pool of `budget`, for one queue; an eighth of the device's memory may lie idle in it.
 * Errors: NULL without memory. */
struct kiln__pool *kiln__pool_create(cl_context context, cl_command_queue queue,
                                     struct kiln__budget *budget);
void kiln__pool_destroy(struct kiln__pool *pool);

/* Memory of at least `bytes` bytes. When the device or the budget has no more, all queues of the
 * budget's pools are finished and their idle memory is released before giving up.
 * Errors: OUT_OF_DEVICE_MEMORY, DEVICE_ERROR. */
kiln_status kiln__pool_take(struct kiln__pool *pool, size_t bytes, cl_mem *memory,
                            struct kiln__error *error);

/* Give memory back, after the last command that uses it was enqueued. NULL does nothing. */
void kiln__pool_give(struct kiln__pool *pool, cl_mem memory);

/* Release the idle memory of all pools, and what is kept of buffers. */
void kiln__budget_trim(struct kiln__budget *budget);

/* The latter alone (kept.c). */
void kiln__kept_trim(struct kiln__budget *budget);

#endif
