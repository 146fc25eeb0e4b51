/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/buffer.h"

#include <stdlib.h>

#include "runtime/runtime.h"

/* ---- who uses it ---- */

static void replace(struct kiln__run **place, struct kiln__run *run)
{
    kiln__run_retain(run);
    kiln__run_release(*place);
    *place = run;
}

/* Where the last reader of a stream stands; NULL without memory. The lock is held. */
static struct kiln__run **find_reader(kiln_buffer *buffer, const struct kiln__stream *stream)
{
    struct kiln__run **place = buffer->readers.items;
    for (size_t i = 0; i < buffer->readers.count; i++, place++)
        if (kiln__run_stream(*place) == stream)
            return place;
    place = kiln__vector_push(&buffer->readers);
    if (place)
        *place = NULL;
    return place;
}

/* What writes comes after all that read before. The lock is held. */
static void drop_readers(kiln_buffer *buffer)
{
    for (size_t i = 0; i < buffer->readers.count; i++)
        kiln__run_release(buffer->readers.items[i]);
    buffer->readers.count = 0;
}

void kiln__buffer_note(kiln_buffer *buffer, struct kiln__run *run, bool writes)
{
    pthread_mutex_lock(&buffer->lock);
    struct kiln__run **place =
        writes ? &buffer->writer : find_reader(buffer, kiln__run_stream(run));
    if (place)
        replace(place, run);
    if (writes)
        drop_readers(buffer);
    pthread_mutex_unlock(&buffer->lock);
    if (!place)
        kiln__cl_finish(kiln__run_stream(run)->queue);
}

static kiln_status wait_for(const struct kiln__run *run, const struct kiln__stream *stream,
                            struct kiln__events *events, struct kiln__error *error)
{
    return run && kiln__run_stream(run) != stream ? kiln__events_add(events, run, error) : KILN_OK;
}

kiln_status kiln__buffer_waits(kiln_buffer *buffer, const struct kiln__stream *stream, bool writes,
                               struct kiln__events *events, struct kiln__error *error)
{
    pthread_mutex_lock(&buffer->lock);
    kiln_status status = wait_for(buffer->writer, stream, events, error);
    for (size_t i = 0; i < buffer->readers.count && writes && !status; i++)
        status = wait_for(buffer->readers.items[i], stream, events, error);
    pthread_mutex_unlock(&buffer->lock);
    return status;
}

void kiln__buffer_drop(kiln_buffer *buffer)
{
    kiln__run_release(buffer->writer);
    drop_readers(buffer);
    kiln__vector_free(&buffer->readers);
    if (buffer->memory)
        clReleaseMemObject(buffer->memory);
}

/* ---- content ---- */

/* The events are released. */
static kiln_status begin(kiln_buffer *buffer, bool writes)
{
    struct kiln__events events = {0};
    struct kiln__error error = {0};
    kiln_status status = kiln__buffer_waits(buffer, buffer->stream, writes, &events, &error);
    if (!status)
        return kiln__stream_wait(buffer->stream, &events, NULL);
    kiln__events_free(&events);
    return kiln__fail(NULL, status, "%s", error.text);
}

static kiln_status answer(const char *call, const char *function, cl_int code)
{
    return code ? kiln__fail(NULL, kiln__cl_status(code), "%s: %s answered %s (%d)", call, function,
                             kiln__cl_name(code), (int)code)
                : KILN_OK;
}

kiln_status kiln__buffer_write(kiln_buffer *buffer, size_t offset, const void *data, size_t bytes,
                               const char *call)
{
    struct kiln__counters *counters = &buffer->stream->runtime->counters;
    kiln_status status = begin(buffer, true);
    if (status)
        return status;
    status = answer(call, "clEnqueueWriteBuffer",
                    clEnqueueWriteBuffer(buffer->stream->queue, buffer->memory, CL_TRUE, offset,
                                         bytes, data, 0, NULL, NULL));
    atomic_fetch_add(&counters->uploads, !status);
    atomic_fetch_add(&counters->upload_bytes, status ? 0 : bytes);
    return status;
}

kiln_status kiln__buffer_read(kiln_buffer *buffer, size_t offset, void *data, size_t bytes,
                              const char *call)
{
    struct kiln__counters *counters = &buffer->stream->runtime->counters;
    kiln_status status = begin(buffer, false);
    if (status)
        return status;
    status = answer(call, "clEnqueueReadBuffer",
                    clEnqueueReadBuffer(buffer->stream->queue, buffer->memory, CL_TRUE, offset,
                                        bytes, data, 0, NULL, NULL));
    atomic_fetch_add(&counters->downloads, !status);
    atomic_fetch_add(&counters->download_bytes, status ? 0 : bytes);
    return status;
}

/* A command that belongs to no batch: a run of its own. The event becomes the run's. */
static kiln_status note_command(kiln_buffer *buffer, const char *name, cl_event event)
{
    struct kiln__run *run = kiln__run_create(buffer->stream);
    kiln_status status = run ? kiln__run_keep(run, name, buffer->bytes, event, NULL)
                             : kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory");
    if (!run)
        clReleaseEvent(event);
    if (status) {
        kiln__cl_finish(buffer->stream->queue);
    } else {
        kiln__buffer_note(buffer, run, true);
        kiln__runs_add(run);
    }
    kiln__run_release(run);
    return status;
}

kiln_status kiln__buffer_clear(kiln_buffer *buffer)
{
    const cl_ulong zero = 0; /* as wide as the widest type */
    cl_event event = NULL;
    if (!buffer->bytes)
        return KILN_OK;
    kiln_status status = begin(buffer, true);
    if (status)
        return status;
    cl_int code =
        clEnqueueFillBuffer(buffer->stream->queue, buffer->memory, &zero,
                            kiln_type_size(buffer->type), 0, buffer->bytes, 0, NULL, &event);
    return code ? kiln__cl_fail(NULL, "clEnqueueFillBuffer", code)
                : note_command(buffer, "fill of a buffer", event);
}

kiln_status kiln__buffer_map(kiln_buffer *buffer, const char *call)
{
    cl_int code;
    kiln_status status = begin(buffer, true);
    if (status)
        return status;
    buffer->mapping =
        clEnqueueMapBuffer(buffer->stream->queue, buffer->memory, CL_TRUE,
                           CL_MAP_READ | CL_MAP_WRITE, 0, buffer->bytes, 0, NULL, NULL, &code);
    return answer(call, "clEnqueueMapBuffer", code);
}

kiln_status kiln__buffer_unmap(kiln_buffer *buffer, const char *call)
{
    cl_event event = NULL;
    cl_int code = clEnqueueUnmapMemObject(buffer->stream->queue, buffer->memory, buffer->mapping, 0,
                                          NULL, &event);
    return code ? answer(call, "clEnqueueUnmapMemObject", code)
                : note_command(buffer, "unmap of a buffer", event);
}
