/* SPDX-License-Identifier: Apache-2.0 */
/* Creation and end of streams: queue, pool, staging rings, counters. */
#include "runtime/stream.h"

#include <stdlib.h>
#include <unistd.h>

#include "plan/plan.h"
#include "programs/compiler_guard.h"
#include "programs/fetch_interlock.h"
#include "runtime/runtime.h"

static kiln_status take_queue(struct kiln__stream *stream, cl_command_queue queue,
                              struct kiln__error *error)
{
    const struct kiln__runtime *runtime = stream->runtime;
    cl_int code = queue ? clRetainCommandQueue(queue) : CL_SUCCESS;
    if (code)
        return kiln__cl_fail(error, "clRetainCommandQueue", code);
    stream->queue = queue;
    if (!queue)
        stream->queue = clCreateCommandQueue(runtime->context, runtime->device.id,
                                             runtime->trace ? CL_QUEUE_PROFILING_ENABLE : 0, &code);
    if (!code)
        return KILN_OK;
    stream->queue = NULL;
    return kiln__cl_fail(error, "clCreateCommandQueue", code);
}

/* The other half has something else to do. */
static unsigned copying_threads(void)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 4 ? 1 : (unsigned)cores / 2;
}

static bool make_parts(struct kiln__stream *stream)
{
    const struct kiln__runtime *runtime = stream->runtime;
    bool late = runtime->device.traits->late_binary;
    stream->gated = late && kiln__interlock_add_queue(stream->queue);
    const struct kiln__staging_options staging = {.context = runtime->context,
                                                  .device = runtime->device.id,
                                                  .queue = stream->queue,
                                                  .pins = &stream->runtime->pins,
                                                  .separate =
                                                      runtime->host_mode == KILN__HOST_SEPARATE,
                                                  .threads = copying_threads()};
    stream->staging = kiln__staging_create(&staging);
    stream->runs = kiln__runs_create();
    if (stream->gated != late || !stream->staging || !stream->runs)
        return false;
    /* Last: the budget keeps it, so that nothing may fail afterwards. */
    stream->pool = kiln__pool_create(stream->queue, &stream->runtime->memory);
    return stream->pool;
}

kiln_status kiln__stream_create(struct kiln__runtime *runtime, cl_command_queue queue,
                                struct kiln__stream **made, struct kiln__error *error)
{
    struct kiln__stream *stream = calloc(1, sizeof *stream);
    *made = NULL;
    if (!stream)
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory for a queue");
    stream->runtime = runtime;
    kiln_status status = take_queue(stream, queue, error);
    if (!status && !make_parts(stream))
        status = kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory for a queue");
    if (status) {
        kiln__stream_destroy(stream);
        return status;
    }
    stream->next = atomic_load(&runtime->streams);
    stream->number = stream->next ? stream->next->number + 1 : 0;
    atomic_store(&runtime->streams, *made = stream);
    return KILN_OK;
}

void kiln__stream_destroy(struct kiln__stream *stream)
{
    if (!stream)
        return;
    if (stream->gated) {
        kiln__interlock_remove_queue(stream->queue);
        kiln__compiler_forget(stream->queue);
    }
    kiln__runs_destroy(stream->runs);
    kiln__run_destroy_spare(stream);
    kiln__staging_destroy(stream->staging);
    kiln__pool_destroy(stream->pool);
    if (stream->counters)
        clReleaseMemObject(stream->counters);
    if (stream->queue)
        clReleaseCommandQueue(stream->queue);
    free(stream);
}

kiln_status kiln__stream_counters(struct kiln__stream *stream, cl_mem *memory,
                                  struct kiln__error *error)
{
    static int32_t zeros[KILN__COUNTERS];
    cl_int code = CL_SUCCESS;
    pthread_mutex_lock(&stream->runtime->making);
    if (!stream->counters)
        stream->counters =
            clCreateBuffer(stream->runtime->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                           sizeof zeros, zeros, &code);
    *memory = stream->counters;
    pthread_mutex_unlock(&stream->runtime->making);
    return code ? kiln__cl_fail(error, "clCreateBuffer", code) : KILN_OK;
}

void kiln__stream_enter(struct kiln__stream *stream)
{
    if (stream->gated)
        kiln__interlock_enter();
}

void kiln__stream_leave(struct kiln__stream *stream)
{
    if (stream->gated)
        kiln__interlock_leave();
}

cl_int kiln__stream_finish(struct kiln__stream *stream)
{
    cl_int code = kiln__cl_finish(stream->queue);
    if (code)
        atomic_store(&stream->runtime->lost, true);
    return code;
}

kiln_status kiln__stream_mark(struct kiln__stream *stream, struct kiln__events *events,
                              struct kiln__error *error)
{
    cl_event *place = kiln__vector_push(events);
    if (!place)
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to wait for a stream");
    kiln_status status = kiln__cl_mark(stream->queue, place, error);
    if (status) {
        events->count--;
        return status;
    }
    cl_int code = clFlush(stream->queue);
    return code ? kiln__cl_fail(error, "clFlush", code) : KILN_OK;
}

kiln_status kiln__stream_wait(struct kiln__stream *stream, struct kiln__events *events,
                              struct kiln__error *error)
{
    cl_int code = CL_SUCCESS;
    if (events->count)
        code = clEnqueueBarrierWithWaitList(stream->queue, (cl_uint)events->count, events->items,
                                            NULL);
    kiln__events_free(events);
    return code ? kiln__cl_fail(error, "clEnqueueBarrierWithWaitList", code) : KILN_OK;
}
