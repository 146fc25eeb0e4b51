/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory that is used again and again. Sizes are rounded up to bins of an eighth of a power
 * of two, so that at most an eighth is added and neighbours fit; where there is no room for that
 * they are taken as they are. What is large and idle serves smaller requests, too, and goes where a
 * larger one comes, so that runs of many shapes share one piece. The queue is in-order: memory
 * given back may be handed out while commands that use it are still queued. */
#pragma once

#include "runtime/budget.h"

struct kiln__pool; /* safe to use from many threads */

/* A pool of `budget`, for one queue; an eighth of the device's memory may lie idle in it.
 * Errors: NULL without memory. */
struct kiln__pool *kiln__pool_create(cl_command_queue queue, struct kiln__budget *budget);
void kiln__pool_destroy(struct kiln__pool *pool);

/* Memory of at least `bytes` bytes. When the device or the budget has no more, all queues of the
 * budget's pools are finished and their idle memory is released before giving up.
 * Errors: OUT_OF_DEVICE_MEMORY, DEVICE_ERROR. */
kiln_status kiln__pool_take(struct kiln__pool *pool, size_t bytes, cl_mem *memory,
                            struct kiln__error *error);

/* The same, by who has no memory of the pool yet. Of much of it one has its turn at a time, until
 * that is given back: two threads' runs, which follow each other in the queue, share it. Nobody may
 * wait for who calls this while he has what was taken so. */
kiln_status kiln__pool_take_turn(struct kiln__pool *pool, size_t bytes, cl_mem *memory,
                                 struct kiln__error *error);

/* Idle memory of at least *bytes bytes, which the pool forgets: it goes on counting among that of
 * the pools, *bytes of it, for whoever asked. NULL: there is none. Queued commands may still use
 * it.
 */
cl_mem kiln__pool_part_with(struct kiln__pool *pool, size_t *bytes);

/* What that takes of the budget, where there is room for it. */
size_t kiln__pool_rounded(size_t bytes);

/* Give memory back, after the last command that uses it was enqueued. NULL does nothing. */
void kiln__pool_give(struct kiln__pool *pool, cl_mem memory);

/* For the budget: the one made before it; its queue is finished; its idle memory is released. */
struct kiln__pool *kiln__pool_next(const struct kiln__pool *pool);
void kiln__pool_finish(struct kiln__pool *pool);
void kiln__pool_trim(struct kiln__pool *pool);
