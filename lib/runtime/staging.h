/* SPDX-License-Identifier: Apache-2.0 */
/* Pinned memory on the way to a device with memory of its own. A copy into pinned memory and a
 * transfer from there leave the caller's thread free while the transfer runs, and small transfers
 * start sooner; large ones from pageable memory are left to the driver, which stages them itself.
 */
#ifndef KILN_RUNTIME_STAGING_H
#define KILN_RUNTIME_STAGING_H

#include <stddef.h>

#include "device/opencl.h"

struct kiln__staging; /* safe to use from many threads */

/* Pinned memory is allocated at the first upload. NULL without memory. */
struct kiln__staging *kiln__staging_create(cl_context context, cl_command_queue queue);
void kiln__staging_destroy(struct kiln__staging *staging);

/* Enqueue a transfer of `bytes` bytes from `data` to byte `offset` of `memory`. `data` must stay as
 * it is until the queue is past it. Errors: DEVICE_ERROR and its kind. */
kiln_status kiln__staging_upload(struct kiln__staging *staging, cl_mem memory, size_t offset,
                                 const void *data, size_t bytes, cl_event *event,
                                 struct kiln__error *error);

#endif
