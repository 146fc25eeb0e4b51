/* SPDX-License-Identifier: Apache-2.0 */
/* Order of runs on one buffer: its last writer and readers per stream, the events that others wait
 * for, versions.
 *
 * A run holds the orders of all its buffers (shared where it only reads) from the search for their
 * events until it is noted itself. So the runs of two threads follow each other as a whole, also in
 * one stream. Where two threads read a buffer at once, a writer waits for a marker in their stream.
 */
#include "runtime/buffer.h"

#include "runtime/prepacked.h"
#include "runtime/runtime.h"

/* ---- who uses it ---- */

/* No two contents have the same, in whatever buffer: 0 is none's. */
static uint64_t next_version(void)
{
    static atomic_uint_fast64_t last;
    return atomic_fetch_add(&last, 1) + 1;
}

void kiln__buffer_begin(kiln_buffer *buffer)
{
    atomic_store(&buffer->version, next_version());
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
#ifdef __GLIBC__ /* else readers that keep coming would keep a writer out */
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
#endif
    pthread_rwlock_init(&buffer->order, &attributes);
    pthread_rwlockattr_destroy(&attributes);
    pthread_mutex_init(&buffer->lock, NULL);
}

/* That of memory which may come and go is the buffer's own. */
uintptr_t kiln__buffer_identity(const kiln_buffer *buffer)
{
    bool alone = buffer->source.read && !buffer->lent && buffer->bytes;
    return alone ? (uintptr_t)buffer : (uintptr_t)buffer->memory;
}

/* What writes comes after all that read before. */
static void drop_readers(kiln_buffer *buffer)
{
    for (size_t i = 0; i < KILN__MOST_STREAMS; i++)
        if (atomic_load_explicit(&buffer->readers[i], memory_order_relaxed))
            kiln__run_release(atomic_exchange(&buffer->readers[i], NULL));
    atomic_store(&buffer->crossed, false);
}

static kiln_status wait_for(struct kiln__run *run, const struct kiln__stream *stream,
                            struct kiln__events *events, struct kiln__error *error)
{
    return run && kiln__run_stream(run) != stream ? kiln__events_add(events, run, error) : KILN_OK;
}

/* Those in one of the streams. */
static kiln_status wait_for_readers(kiln_buffer *buffer, size_t number,
                                    const struct kiln__stream *stream, struct kiln__events *events,
                                    struct kiln__error *error)
{
    struct kiln__run *last = atomic_load_explicit(&buffer->readers[number], memory_order_relaxed);
    struct kiln__stream *theirs = last ? kiln__run_stream(last) : NULL;
    if (!theirs || theirs == stream)
        return KILN_OK;
    return atomic_load(&buffer->crossed) ? kiln__stream_mark(theirs, events, error)
                                         : kiln__events_add(events, last, error);
}

kiln_status kiln__buffer_enter(kiln_buffer *buffer, const struct kiln__stream *stream, bool writes,
                               struct kiln__events *events, struct kiln__error *error)
{
    if (!writes) {
        pthread_rwlock_rdlock(&buffer->order);
        if (atomic_fetch_add(&buffer->reading, 1))
            atomic_store(&buffer->crossed, true);
        return wait_for(buffer->writer, stream, events, error);
    }
    pthread_rwlock_wrlock(&buffer->order);
    atomic_store(&buffer->version, next_version());
    if (atomic_load(&buffer->source.is_content))
        atomic_store(&buffer->source.is_content, false);
    kiln_status status = wait_for(buffer->writer, stream, events, error);
    for (size_t i = 0; i < KILN__MOST_STREAMS && !status; i++)
        status = wait_for_readers(buffer, i, stream, events, error);
    return status;
}

void kiln__buffer_leave(kiln_buffer *buffer, struct kiln__run *run, bool writes)
{
    if (run)
        kiln__run_retain(run);
    if (run && writes) {
        drop_readers(buffer);
        kiln__run_release(buffer->writer);
        buffer->writer = run;
    } else if (run) {
        kiln__run_release(atomic_exchange(&buffer->readers[kiln__run_stream(run)->number], run));
    }
    if (!writes)
        atomic_fetch_sub(&buffer->reading, 1);
    pthread_rwlock_unlock(&buffer->order);
}

void kiln__buffer_drop(kiln_buffer *buffer)
{
    kiln__prepacked_drop(buffer);
    kiln__run_release(buffer->writer);
    drop_readers(buffer);
    pthread_mutex_destroy(&buffer->lock);
    pthread_rwlock_destroy(&buffer->order);
    struct kiln__budget *budget = &buffer->stream->runtime->memory;
    if (!buffer->lent && !buffer->wraps)
        return kiln__budget_release(budget, false, buffer->memory, buffer->bytes);
    kiln__budget_count_release(budget);
    kiln__budget_release_object(budget, buffer->memory, buffer->bytes);
}

/* ---- content ---- */

/* Commands that belong to no batch are runs of their own. */
struct action {
    kiln_buffer *buffer;
    cl_mem memory;    /* the buffer's, from begin() to finish() */
    const char *call; /* for sentences */
    const char *name; /* of the command */
    bool writes, has_begun;
    struct kiln__stream *stream;
    struct kiln__events events; /* of the commands, once they are enqueued */
    struct kiln__run *run;      /* that has them then */
};

/* Transfers of so much go while batches run that do not use the buffer. */
#define LARGE ((size_t)1 << 18)

static struct kiln__stream *stream_for(const kiln_buffer *buffer, size_t bytes)
{
    return bytes < LARGE || buffer->lent ? buffer->stream
                                         : kiln__runtime_choose(buffer->stream->runtime, NULL);
}

/* Others that use the buffer wait outside from here to finish(). */
static kiln_status buffer_begin(struct action *action)
{
    kiln_buffer *buffer = action->buffer;
    struct kiln__events events = {0};
    struct kiln__error error = {0};
    kiln_status status = kiln__backing_hold_unbudgeted(buffer, &action->memory, &error);
    if (status)
        return kiln__fail(NULL, status, "%s: %s", action->call, error.text);
    action->has_begun = true;
    status = kiln__buffer_enter(buffer, action->stream, action->writes, &events, &error);
    if (!status)
        return kiln__stream_wait(action->stream, &events, NULL);
    kiln__events_free(&events);
    return kiln__fail(NULL, status, "%s", error.text);
}

/* A command that `function` has enqueued, if it has. */
static kiln_status took(struct action *action, const char *function, cl_int code, cl_event event)
{
    if (code)
        return kiln__fail(NULL, kiln__cl_status(code), "%s: %s answered %s (%d)", action->call,
                          function, kiln__cl_name(code), (int)code);
    cl_event *place = kiln__vector_push(&action->events);
    if (place)
        *place = event;
    else
        clReleaseEvent(event);
    return place ? KILN_OK
                 : kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "%s: no memory", action->call);
}

/* `status` of what came before, or everything is enqueued. After an error nothing is under way. */
static kiln_status buffer_finish(struct action *action, kiln_status status, size_t bytes)
{
    kiln_buffer *buffer = action->buffer;
    if (!action->has_begun)
        return status;
    struct kiln__run *run = status ? NULL : kiln__run_create(action->stream);
    if (!status && !run)
        status = kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "%s: no memory", action->call);
    if (!status)
        status = kiln__run_note_all(run, action->name, bytes, &action->events, NULL);
    kiln__events_free(&action->events);
    if (status)
        kiln__stream_finish(action->stream);
    action->run = run;
    kiln__buffer_leave(buffer, status ? NULL : run, action->writes);
    kiln__backing_release(buffer);
    return status;
}

static kiln_status buffer_await(struct action *action, kiln_status status)
{
    if (!status)
        status = kiln__run_await(action->run, action->call, NULL);
    kiln__run_release(action->run);
    return status;
}

/* A failure is told by a later call that waits. */
static kiln_status leave_be(struct action *action, kiln_status status)
{
    if (!status)
        kiln__runs_add(action->run);
    kiln__run_release(action->run);
    return status;
}

static kiln_status buffer_enqueue(struct action *action, size_t offset, void *host, size_t bytes)
{
    struct kiln__staging *staging = action->stream->staging;
    const struct kiln__transfer transfer = {action->memory, offset, host, bytes};
    struct kiln__error error = {0};
    kiln_status status =
        action->writes ? kiln__staging_upload(staging, &transfer, &action->events, &error)
                       : kiln__staging_download(staging, &transfer, true, &action->events, &error);
    return status ? kiln__fail(NULL, status, "%s: %s", action->call, error.text) : KILN_OK;
}

kiln_status kiln__buffer_transfer(kiln_buffer *buffer, bool writes, size_t offset, void *host,
                                  size_t bytes, const char *call)
{
    struct kiln__counters *counters = &buffer->stream->runtime->counters;
    struct action action = {.buffer = buffer,
                            .call = call,
                            .name = writes ? "write of a buffer" : "read of a buffer",
                            .writes = writes,
                            .stream = stream_for(buffer, bytes)};
    kiln_status status = buffer_begin(&action);
    if (!status)
        status = buffer_enqueue(&action, offset, host, bytes);
    status = buffer_await(&action, buffer_finish(&action, status, bytes));
    if (status)
        return status;
    atomic_fetch_add(writes ? &counters->uploads : &counters->downloads, 1);
    atomic_fetch_add(writes ? &counters->upload_bytes : &counters->download_bytes, bytes);
    return KILN_OK;
}

kiln_status kiln__buffer_clear(kiln_buffer *buffer, const char *call)
{
    const cl_ulong zero = 0; /* as wide as the widest type */
    struct action action = {.buffer = buffer,
                            .call = call,
                            .name = "fill of a buffer",
                            .writes = true,
                            .stream = buffer->stream};
    cl_event event = NULL;
    if (!buffer->bytes)
        return KILN_OK;
    kiln_status status = buffer_begin(&action);
    if (!status) {
        cl_int code = clEnqueueFillBuffer(buffer->stream->queue, action.memory, &zero,
                                          kiln__type_alignment(buffer->type), 0, buffer->bytes, 0,
                                          NULL, &event);
        status = took(&action, "clEnqueueFillBuffer", code, event);
    }
    return leave_be(&action, buffer_finish(&action, status, buffer->bytes));
}

kiln_status kiln__buffer_map(kiln_buffer *buffer, const char *call)
{
    struct action action = {.buffer = buffer,
                            .call = call,
                            .name = "map of a buffer",
                            .writes = true,
                            .stream = buffer->stream};
    cl_event event = NULL;
    cl_int code = CL_SUCCESS;
    bool mapped = false;
    kiln_status status = buffer_begin(&action);
    if (!status) {
        buffer->mapping = clEnqueueMapBuffer(buffer->stream->queue, action.memory, CL_FALSE,
                                             CL_MAP_READ | CL_MAP_WRITE, 0, buffer->bytes, 0, NULL,
                                             &event, &code);
        mapped = !code;
        status = took(&action, "clEnqueueMapBuffer", code, event);
    }
    status = buffer_await(&action, buffer_finish(&action, status, buffer->bytes));
    if (status && mapped)
        clEnqueueUnmapMemObject(buffer->stream->queue, buffer->memory, buffer->mapping, 0, NULL,
                                NULL);
    return status;
}

kiln_status kiln__buffer_unmap(kiln_buffer *buffer, const char *call)
{
    struct action action = {.buffer = buffer,
                            .call = call,
                            .name = "unmap of a buffer",
                            .writes = true,
                            .stream = buffer->stream};
    cl_event event = NULL;
    kiln_status status = buffer_begin(&action);
    if (!status) {
        cl_int code = clEnqueueUnmapMemObject(buffer->stream->queue, action.memory, buffer->mapping,
                                              0, NULL, &event);
        status = took(&action, "clEnqueueUnmapMemObject", code, event);
    }
    return leave_be(&action, buffer_finish(&action, status, buffer->bytes));
}
