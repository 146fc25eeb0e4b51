/* SPDX-License-Identifier: Apache-2.0 */
/* Pinned memory on the way to and from a device with memory of its own. What the caller has in
 * pageable memory goes through it piece by piece: small uploads, so that the caller's thread is
 * free while they travel; and what is so large that several threads copy, each the next piece while
 * another travels. Pinned memory of the program's (runtime/pinned.h) travels as it is, and the rest
 * is the driver's to stage. */
#pragma once

#include <stddef.h>

#include "runtime/pinned.h"
#include "runtime/run.h"

struct kiln__staging; /* safe to use from many threads */

struct kiln__staging_options {
    cl_context context;
    cl_device_id device;
    cl_command_queue queue;
    struct kiln__pins *pins; /* the program's pinned memory */
    bool separate;    /* the device has memory of its own: else only small uploads are staged */
    unsigned threads; /* that copy a large transfer, the caller's among them; 1: the driver does */
};

/* Pinned memory is allocated at the first transfer that goes through it. NULL without memory. */
struct kiln__staging *kiln__staging_create(const struct kiln__staging_options *options);
void kiln__staging_destroy(struct kiln__staging *staging);

struct kiln__transfer {
    cl_mem memory;
    size_t offset;
    char *host;
    size_t bytes; /* not 0 */
};

/* Enqueue a transfer to the device. Pinned memory must stay as it is until the queue is past it;
 * other memory too, since it may be left to the driver. The events of all commands, the last one's
 * last, are added to `events`, also of those before an error; they are the caller's.
 * Errors: DEVICE_ERROR and its kind, OUT_OF_HOST_MEMORY. */
kiln_status kiln__staging_upload(struct kiln__staging *staging,
                                 const struct kiln__transfer *transfer, struct kiln__events *events,
                                 struct kiln__error *error);

/* The same from the device. `now`: wait for it, which is faster where much goes to pageable
 * memory; whether the commands failed is for the events to say. */
kiln_status kiln__staging_download(struct kiln__staging *staging,
                                   const struct kiln__transfer *transfer, bool now,
                                   struct kiln__events *events, struct kiln__error *error);
