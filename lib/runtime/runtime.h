/* SPDX-License-Identifier: Apache-2.0 */
/* What all batches of a context share: device, queue, programs, memory, counters. */
#ifndef KILN_RUNTIME_RUNTIME_H
#define KILN_RUNTIME_RUNTIME_H

#include <stdatomic.h>
#include <sys/types.h>

#include "cache/program.h"
#include "device/device.h"
#include "runtime/pool.h"
#include "runtime/run.h"
#include "runtime/staging.h"
#include "runtime/trace.h"

/* How the caller's memory meets the device. */
enum kiln__host_mode {
    KILN__HOST_SEPARATE, /* transfers */
    KILN__HOST_LIVE,     /* kernels work on the caller's memory; wrappers may be kept */
    KILN__HOST_MAPPED    /* the same, but with a new wrapper for each run, and a map after it */
};

struct kiln__counters {
    atomic_uint_fast64_t uploads, upload_bytes, downloads, download_bytes, launches, batches,
        plans_made, plans_reused, buffers_live, buffer_bytes;
};

struct kiln__runtime {
    struct kiln__device device;
    cl_context context;
    cl_command_queue queue; /* in-order; safe to enqueue to from many threads */
    bool gated;             /* the queue passes the gate between launches and fetched binaries */
    enum kiln__host_mode host_mode;
    struct kiln__programs *programs;
    struct kiln__pool *pool;
    struct kiln__staging *staging;
    struct kiln__trace *trace; /* NULL: nobody asked for spans */
    struct kiln__runs *runs;   /* whose failures are still to be told */
    struct kiln__counters counters;
    atomic_bool uses_clblast;
    pid_t process; /* that made it: a forked child must not touch the driver */
};

/* Errors: FORKED in a child of the process that made the runtime. */
kiln_status kiln__runtime_check_process(const struct kiln__runtime *runtime,
                                        struct kiln__error *error);

#endif
