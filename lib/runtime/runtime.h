/* SPDX-License-Identifier: Apache-2.0 */
/* What all batches of a context share on its device: streams, programs, counters. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "device/device.h"
#include "programs/program.h"
#include "runtime/stream.h"
#include "runtime/trace.h"
#include "util/forks.h"

/* How the caller's memory meets the device. */
enum kiln__host_mode {
    KILN__HOST_SEPARATE, /* transfers */
    KILN__HOST_LIVE,     /* kernels work on the caller's memory; wrappers may be kept */
    KILN__HOST_MAPPED    /* the same, but with a new wrapper for each run, and a map after it */
};

struct kiln__counters {
    atomic_uint_fast64_t uploads, upload_bytes, downloads, download_bytes, launches, batches,
        plans_made, plans_reused, buffers_live, buffer_bytes, evicted_bytes;
};

struct kiln__runtime {
    struct kiln__device device;
    cl_context context;
    enum kiln__host_mode host_mode;
    struct kiln__programs *programs;
    struct kiln__stream *compute; /* where everything runs that is not said to be independent */
    struct kiln__stream *_Atomic streams; /* all of them, from the last made on */
    pthread_mutex_t making;               /* held while a further one is made */
    atomic_bool shown; /* the program has the first one's queue, and may rely on its order */
    struct kiln__trace *trace;  /* NULL: nobody asked for spans */
    struct kiln__budget memory; /* of the streams' pools */
    cl_command_queue aside;     /* kiln__runtime_side_queue(); NULL until then; under `making` */
    bool looks_at_buffers;      /* beside its runs, to compare or to judge what is in them */
    struct kiln__pins pins;     /* the program's pinned memory */
    atomic_bool lost;           /* the end of some commands could not be awaited */
    bool ends_on_demand;   /* runs that are left get the event of their end when it is asked for */
    bool starts_unflushed; /* such runs are flushed by who asks for it */
    struct kiln__counters counters;
    atomic_bool uses_clblast;
    unsigned forks; /* when it was made: a forked child must not touch the driver */
};

struct kiln__runtime_options {
    cl_command_queue queue; /* the caller's, or NULL */
    bool profile;           /* keep spans, */
    const char *trace;      /* and write them there at the end, if not NULL */
    uint64_t memory_limit;  /* of the pools; 0: the device's */
    struct kiln__programs_options programs;
};

/* Make everything but device and context, which are there. What was made when an error comes is for
 * kiln__runtime_end(). Errors: OUT_OF_HOST_MEMORY, DEVICE_ERROR. */
kiln_status kiln__runtime_begin(struct kiln__runtime *runtime,
                                const struct kiln__runtime_options *options,
                                struct kiln__error *error);

/* After kiln__runtime_finish(): release everything, device context included. */
void kiln__runtime_end(struct kiln__runtime *runtime);

/* Errors: FORKED in a child of the process that made the runtime. */
kiln_status kiln__runtime_check_process(const struct kiln__runtime *runtime,
                                        struct kiln__error *error);

/* A queue that never has anything else to do than what is waited for. Owner: the runtime.
 * Errors: DEVICE_ERROR. */
kiln_status kiln__runtime_side_queue(struct kiln__runtime *runtime, cl_command_queue *queue,
                                     struct kiln__error *error);

/* ---- all streams ---- */

/* Where to submit what need not follow everything before it: so that one uploads while another
 * computes and a third is read. `last`: what it has to follow even so, or NULL. The first stream
 * where memory is the host's, since nothing is copied then, and where the program has its queue. */
struct kiln__stream *kiln__runtime_choose(struct kiln__runtime *runtime,
                                          const struct kiln__run *last);

/* Wait for all that was submitted. */
cl_int kiln__runtime_finish(struct kiln__runtime *runtime);

/* Whether a run that nobody waited for has failed; each failure is told once, for `call`.
 * Errors: DEVICE_ERROR. */
kiln_status kiln__runtime_report_failure(struct kiln__runtime *runtime, const char *call,
                                         struct kiln__error *error);
