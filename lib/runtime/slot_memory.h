/* SPDX-License-Identifier: Apache-2.0 */
/* Where the slots of a plan lie in one run: in the arena, in the caller's memory or buffers, in
 * what is kept of buffers, or in memory of the pool between kernels and one of these. */
#pragma once

#include "runtime/bindings.h"
#include "runtime/executable.h"
#include "runtime/prepacked.h"
#include "runtime/stream.h"
#include "util/vector.h"

struct kiln__slot_memory {
    struct kiln__executable *executable;
    struct kiln__stream *stream;
    struct kiln__bindings *bindings;
    cl_mem arena;
    KILN__VECTOR(struct kiln__bounce {
        cl_mem memory;
        struct kiln__binding *binding;
        uint32_t slot;
        bool is_input;
    })
    bounces; /* pool memory between kernels and bindings that need it */
    KILN__VECTOR(struct kiln__wrapper {
        cl_mem memory;
        size_t result_bytes; /* 0 of an input */
    })
    wrappers;                         /* around host memory, for this run only */
    size_t maps_back;                 /* those of results */
    KILN__VECTOR(kiln_buffer *) held; /* whose memory stays until the run is enqueued */
    KILN__VECTOR(struct kiln__prepacked_use) prepacked;
    bool prepacks_nothing;
};

/* Memory for every slot, into executable->run.memory, and which launches have nothing to do. What
 * other runs took may have been given back, but for those that are being enqueued: without room
 * this one waits for their end and is alone. Errors: OUT_OF_HOST_MEMORY, OUT_OF_DEVICE_MEMORY,
 * DEVICE_ERROR.
 */
kiln_status kiln__slot_memory_take(struct kiln__slot_memory *slots, struct kiln__error *error);

/* All that was taken, also after an error. */
void kiln__slot_memory_give_back(struct kiln__slot_memory *slots);

/* The run was enqueued: tell buffers that have a source if it did without them. */
void kiln__slot_memory_mark_unread(const struct kiln__slot_memory *slots);

/* The result that a step delivers; or NULL. */
struct kiln__binding *kiln__slot_memory_result(const struct kiln__slot_memory *slots,
                                               const struct kiln__plan_step *step);
