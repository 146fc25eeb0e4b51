/* SPDX-License-Identifier: Apache-2.0 */
/* Eviction and refill of buffers with a source: when memory is given up, and the read that fills it
 * again. */
#include "runtime/backing_store.h"

#include <stdlib.h>

#include "runtime/buffer.h"
#include "runtime/runtime.h"
#include "util/log.h"

/* Runs that go without it before its memory does; each fetch doubles them. */
#define FIRST_PATIENCE 2
#define MOST_PATIENCE (1u << 20)

/* Bytes that are read at a time. */
#define PIECE ((size_t)1 << 20)

static struct kiln__budget *budget_of(const kiln_buffer *buffer)
{
    return &buffer->stream->runtime->memory;
}

void kiln__backing_begin(kiln_buffer *buffer, kiln_buffer_reader read, void (*end)(void *user),
                         void *user)
{
    struct kiln__backing_store *source = &buffer->source;
    pthread_mutex_init(&source->fetching, NULL);
    source->patience = FIRST_PATIENCE;
    source->end = end;
    source->user = user;
    source->read = read;
    atomic_store(&source->is_content, true);
}

void kiln__backing_end(kiln_buffer *buffer)
{
    struct kiln__backing_store *source = &buffer->source;
    if (!source->read)
        return;
    if (!buffer->memory)
        atomic_fetch_sub(&buffer->stream->runtime->counters.evicted_bytes, buffer->bytes);
    if (source->end)
        source->end(source->user);
    pthread_mutex_destroy(&source->fetching);
}

/* ---- getting it back ---- */

/* In a queue of its own: what is enqueued elsewhere may wait for what comes after this. */
static kiln_status backing_store_fill(kiln_buffer *buffer, cl_mem memory, void *piece,
                                      struct kiln__error *error)
{
    const struct kiln__backing_store *source = &buffer->source;
    cl_command_queue queue;
    kiln_status status = kiln__runtime_side_queue(buffer->stream->runtime, &queue, error);
    for (size_t offset = 0, n; offset < buffer->bytes && !status; offset += n) {
        n = buffer->bytes - offset < PIECE ? buffer->bytes - offset : PIECE;
        status = source->read(source->user, offset, piece, n);
        if (status)
            return kiln__fail(error, status,
                              "kiln: a buffer of %zu bytes cannot be read again from its source, "
                              "at byte %zu: %s",
                              buffer->bytes, offset, kiln_status_text(status));
        cl_int code = clEnqueueWriteBuffer(queue, memory, CL_TRUE, offset, n, piece, 0, NULL, NULL);
        if (code)
            status = kiln__cl_fail(error, "clEnqueueWriteBuffer", code);
    }
    return status;
}

static kiln_status backing_store_make(kiln_buffer *buffer, cl_mem *memory,
                                      struct kiln__error *error)
{
    struct kiln__budget *budget = budget_of(buffer);
    void *piece = malloc(buffer->bytes < PIECE ? buffer->bytes : PIECE);
    if (!piece)
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to read a buffer again");
    kiln_status status =
        kiln__budget_create(budget, false, buffer->bytes, buffer->bytes, memory, error);
    if (!status) {
        status = backing_store_fill(buffer, *memory, piece, error);
        if (status) {
            kiln__budget_release(budget, false, *memory, buffer->bytes);
            *memory = NULL;
        }
    }
    free(piece);
    return status;
}

/* Its memory if it is there, which stays then. */
static cl_mem backing_store_use(kiln_buffer *buffer)
{
    struct kiln__backing_store *source = &buffer->source;
    pthread_mutex_lock(&buffer->lock);
    cl_mem memory = buffer->memory;
    source->users += memory != NULL;
    source->idle_runs = 0;
    pthread_mutex_unlock(&buffer->lock);
    return memory;
}

static kiln_status backing_store_fetch(kiln_buffer *buffer, cl_mem *memory,
                                       struct kiln__error *error)
{
    struct kiln__backing_store *source = &buffer->source;
    struct kiln__counters *counters = &buffer->stream->runtime->counters;
    kiln_status status = backing_store_make(buffer, memory, error);
    if (status)
        return status;
    KILN__LOG(KILN__LOG_INFO, "a buffer of %zu bytes was read again from its source",
              buffer->bytes);
    pthread_mutex_lock(&buffer->lock);
    buffer->memory = *memory;
    source->users++;
    source->patience *= source->patience < MOST_PATIENCE ? 2 : 1;
    pthread_mutex_unlock(&buffer->lock);
    atomic_fetch_sub(&counters->evicted_bytes, buffer->bytes);
    atomic_fetch_add(&counters->uploads, 1);
    atomic_fetch_add(&counters->upload_bytes, buffer->bytes);
    return KILN_OK;
}

kiln_status kiln__backing_hold(kiln_buffer *buffer, cl_mem *memory, struct kiln__error *error)
{
    struct kiln__backing_store *source = &buffer->source;
    *memory = source->read ? backing_store_use(buffer) : buffer->memory;
    if (*memory || !source->read || !buffer->bytes)
        return KILN_OK;
    kiln_status status = KILN_OK;
    pthread_mutex_lock(&source->fetching);
    *memory = backing_store_use(buffer); /* another thread may have been faster */
    if (!*memory)
        status = backing_store_fetch(buffer, memory, error);
    pthread_mutex_unlock(&source->fetching);
    return status;
}

void kiln__backing_release(kiln_buffer *buffer)
{
    if (!buffer->source.read || !buffer->bytes)
        return;
    pthread_mutex_lock(&buffer->lock);
    buffer->source.users--;
    pthread_mutex_unlock(&buffer->lock);
}

kiln_status kiln__backing_hold_unbudgeted(kiln_buffer *buffer, cl_mem *memory,
                                          struct kiln__error *error)
{
    struct kiln__budget *budget = budget_of(buffer);
    struct kiln__error first = {0};
    if (!buffer->source.read)
        return kiln__backing_hold(buffer, memory, error);
    kiln__budget_enter(budget, false);
    kiln_status status = kiln__backing_hold(buffer, memory, &first);
    kiln__budget_leave(budget);
    if (status != KILN_OUT_OF_DEVICE_MEMORY)
        return status ? kiln__fail(error, status, "%s", first.text) : KILN_OK;
    kiln__budget_enter(budget, true);
    kiln__budget_make_room(budget, true);
    status = kiln__backing_hold(buffer, memory, error);
    kiln__budget_leave(budget);
    return status;
}

/* ---- giving it up ---- */

/* Commands that are enqueued keep the memory until they have ended. */
void kiln__backing_was_unread(kiln_buffer *buffer)
{
    struct kiln__backing_store *source = &buffer->source;
    cl_mem memory = NULL;
    pthread_mutex_lock(&buffer->lock);
    bool may_go = buffer->memory && !buffer->lent && !buffer->wraps && !source->users &&
                  atomic_load(&source->is_content) && !buffer->stream->runtime->looks_at_buffers;
    if (may_go && ++source->idle_runs >= source->patience) {
        memory = buffer->memory;
        buffer->memory = NULL;
    }
    pthread_mutex_unlock(&buffer->lock);
    if (!memory)
        return;
    atomic_fetch_add(&buffer->stream->runtime->counters.evicted_bytes, buffer->bytes);
    kiln__budget_release(budget_of(buffer), false, memory, buffer->bytes);
}
