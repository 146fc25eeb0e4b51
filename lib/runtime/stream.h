/* SPDX-License-Identifier: Apache-2.0 */
/* A stream: where commands are submitted. Its queue is in-order, and everything in it relies on
 * that: memory of the pool is handed out again while commands that use it are still queued, and
 * pieces of pinned memory come free one after the other. What is used in two streams waits for the
 * events of the other one (runtime/buffer.h). */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "runtime/memory_pool.h"
#include "runtime/run.h"
#include "runtime/staging.h"

/* Of a context: one that uploads, one that computes, one that is read. */
enum { KILN__MOST_STREAMS = 3 };

struct kiln__stream { /* safe to submit to from many threads */
    struct kiln__runtime *runtime;
    struct kiln__stream *next; /* of the same runtime */
    unsigned number;           /* among those, from 0 */
    atomic_uint busy;          /* runs of whose end nobody has heard */
    cl_command_queue queue;
    bool gated; /* it passes the gate between launches and fetched binaries */
    struct kiln__pool *pool;
    struct kiln__staging *staging;
    struct kiln__runs *runs;           /* whose failures are still to be told */
    _Atomic(struct kiln__run *) spare; /* that nobody refers to; NULL: none */
    cl_mem counters; /* NULL until somebody needs them; under the runtime's `making` */
};

/* One more stream of `runtime`, by one thread at a time; `queue`: the caller's, which is retained;
 * NULL: a new one. What was made goes with the runtime. Errors: OUT_OF_HOST_MEMORY, DEVICE_ERROR.
 */
kiln_status kiln__stream_create(struct kiln__runtime *runtime, cl_command_queue queue,
                                struct kiln__stream **made, struct kiln__error *error);

/* Nothing may be queued any more. NULL does nothing. */
void kiln__stream_destroy(struct kiln__stream *stream);

/* Memory for KILN__STORAGE_COUNTERS, the stream's. */
kiln_status kiln__stream_counters(struct kiln__stream *stream, cl_mem *memory,
                                  struct kiln__error *error);

/* Around enqueuing kernels. */
void kiln__stream_enter(struct kiln__stream *stream);
void kiln__stream_leave(struct kiln__stream *stream);

/* Wait for all that was submitted. Where that fails the runtime remembers that commands may still
 * be under way. */
cl_int kiln__stream_finish(struct kiln__stream *stream);

/* Add the end of all that was submitted so far, for another stream to wait for.
 * Errors: OUT_OF_HOST_MEMORY, DEVICE_ERROR. */
kiln_status kiln__stream_mark(struct kiln__stream *stream, struct kiln__events *events,
                              struct kiln__error *error);

/* Have what is enqueued from now on wait for these events, which are released. */
kiln_status kiln__stream_wait(struct kiln__stream *stream, struct kiln__events *events,
                              struct kiln__error *error);
