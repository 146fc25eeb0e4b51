/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory that is used again and again. Sizes are rounded up to bins of a quarter of a power
 * of two (as PyOpenCL's pool), so that at most a fifth is wasted and neighbours fit. The queue is
 * in-order: memory given back may be handed out while commands that use it are still queued. */
#ifndef KILN_RUNTIME_POOL_H
#define KILN_RUNTIME_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "device/opencl.h"

struct kiln__pool; /* safe to use from many threads */

/* `device_memory`: bytes that the device has; an eighth of them may lie idle.
 * Errors: NULL without memory. */
struct kiln__pool *kiln__pool_create(cl_context context, cl_command_queue queue,
                                     uint64_t device_memory);
void kiln__pool_destroy(struct kiln__pool *pool);

/* Memory of at least `bytes` bytes. When the device has no more, idle memory is released and the
 * queue is finished before giving up.
 * Errors: OUT_OF_DEVICE_MEMORY, DEVICE_ERROR. */
kiln_status kiln__pool_take(struct kiln__pool *pool, size_t bytes, cl_mem *memory,
                            struct kiln__error *error);

/* Give memory back, after the last command that uses it was enqueued. NULL does nothing. */
void kiln__pool_give(struct kiln__pool *pool, cl_mem memory);

/* Release idle memory. */
void kiln__pool_trim(struct kiln__pool *pool);

/* Bytes in use and idle. */
uint64_t kiln__pool_bytes(struct kiln__pool *pool);

#endif
