/* SPDX-License-Identifier: Apache-2.0 */
/* Start and end of a context's device state, and the choice of a stream for a run or a transfer.
 *
 * Independent batches, and large transfers of buffers on a device with memory of its own, take the
 * stream with the fewest runs, of three at most; all else runs in the first one.
 */
#include "runtime/runtime.h"

#include "runtime/clblast.h"

kiln_status kiln__runtime_side_queue(struct kiln__runtime *runtime, cl_command_queue *queue,
                                     struct kiln__error *error)
{
    cl_int code = CL_SUCCESS;
    pthread_mutex_lock(&runtime->making);
    if (!runtime->aside)
        runtime->aside = clCreateCommandQueue(runtime->context, runtime->device.id, 0, &code);
    *queue = runtime->aside;
    pthread_mutex_unlock(&runtime->making);
    return code ? kiln__cl_fail(error, "clCreateCommandQueue", code) : KILN_OK;
}

kiln_status kiln__runtime_begin(struct kiln__runtime *runtime,
                                const struct kiln__runtime_options *options,
                                struct kiln__error *error)
{
    kiln__budget_begin(&runtime->memory, runtime->context, runtime->device.info.memory,
                       options->memory_limit);
    kiln__pins_begin(&runtime->pins);
    pthread_mutex_init(&runtime->making, NULL);
    atomic_init(&runtime->shown, options->queue != NULL);
    runtime->memory.pages = runtime->device.traits->live_host_pointers;
    /* An object over the program's memory must not outlive it. */
    runtime->memory.idle_release =
        runtime->device.traits->idle_release && runtime->host_mode == KILN__HOST_SEPARATE;
    runtime->ends_on_demand = runtime->device.traits->dear_events;
    runtime->starts_unflushed = runtime->device.traits->starts_unflushed;
    if (options->profile) {
        runtime->trace = kiln__trace_create(options->trace, runtime->device.info.name);
        if (!runtime->trace)
            return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory for spans");
    }
    kiln_status status = kiln__programs_create(runtime->context, &runtime->device,
                                               &options->programs, &runtime->programs, error);
    if (!status)
        status = kiln__stream_create(runtime, options->queue, &runtime->compute, error);
    if (!status && runtime->device.traits->lazy_memory)
        status = kiln__runtime_side_queue(runtime, &runtime->memory.touches, error);
    return status;
}

void kiln__runtime_end(struct kiln__runtime *runtime)
{
    kiln__programs_destroy(runtime->programs);
    kiln__trace_destroy(runtime->trace, NULL);
    for (struct kiln__stream *stream = runtime->streams, *next; stream; stream = next) {
        next = stream->next;
        kiln__stream_destroy(stream);
    }
    if (runtime->aside)
        clReleaseCommandQueue(runtime->aside);
    pthread_mutex_destroy(&runtime->making);
    kiln__budget_end(&runtime->memory);
    kiln__pins_end(&runtime->pins);
    if (runtime->uses_clblast)
        kiln__clblast_end();
    if (runtime->context)
        clReleaseContext(runtime->context);
}

kiln_status kiln__runtime_check_process(const struct kiln__runtime *runtime,
                                        struct kiln__error *error)
{
    if (runtime->forks == kiln__forks())
        return KILN_OK;
    return kiln__fail(error, KILN_FORKED,
                      "kiln: the context was made before a fork, and OpenCL does not work in the "
                      "child; fork before the first call, or let the child exec");
}

/* ---- all streams ---- */

/* The one with the fewest runs; of equals the one that was made first. */
static struct kiln__stream *find_least_busy(struct kiln__runtime *runtime)
{
    struct kiln__stream *found = NULL, *stream = runtime->streams;
    for (; stream; stream = stream->next)
        if (!found || atomic_load(&stream->busy) <= atomic_load(&found->busy))
            found = stream;
    return found;
}

static struct kiln__stream *find_idle(struct kiln__runtime *runtime)
{
    struct kiln__stream *found = find_least_busy(runtime), *made;
    if (!atomic_load(&found->busy))
        return found;
    pthread_mutex_lock(&runtime->making);
    bool more = atomic_load(&runtime->streams)->number + 1 < KILN__MOST_STREAMS;
    if (more && !kiln__stream_create(runtime, NULL, &made, NULL))
        found = made;
    pthread_mutex_unlock(&runtime->making);
    return found;
}

struct kiln__stream *kiln__runtime_choose(struct kiln__runtime *runtime,
                                          const struct kiln__run *last)
{
    if (runtime->host_mode != KILN__HOST_SEPARATE || atomic_load(&runtime->shown))
        return runtime->compute;
    return last && !kiln__run_is_over(last) ? kiln__run_stream(last) : find_idle(runtime);
}

cl_int kiln__runtime_finish(struct kiln__runtime *runtime)
{
    cl_int first = CL_SUCCESS;
    for (struct kiln__stream *stream = runtime->streams; stream; stream = stream->next) {
        kiln__runs_end_open(stream->runs);
        cl_int code = kiln__stream_finish(stream);
        first = first ? first : code;
    }
    return first;
}

kiln_status kiln__runtime_report_failure(struct kiln__runtime *runtime, const char *call,
                                         struct kiln__error *error)
{
    kiln_status status = KILN_OK;
    for (struct kiln__stream *stream = runtime->streams; stream && !status; stream = stream->next)
        status = kiln__runs_report_failure(stream->runs, call, error);
    return status;
}
