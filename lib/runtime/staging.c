/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/staging.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Two megabytes in eight pieces: more than that takes longer to copy than to hand to the driver. */
#define PIECES 8
#define PIECE_BYTES ((size_t)256 << 10)

struct piece {
    cl_event busy; /* the transfer that still reads it, or NULL */
};

struct kiln__staging {
    cl_context context;
    cl_command_queue queue;
    pthread_mutex_t lock; /* guards what follows; held while a piece is awaited and filled, so that
                             pieces are used in the order in which they become free */
    bool tried;
    cl_mem pinned;
    char *mapped; /* NULL: the driver gave none, transfers go straight from the caller's memory */
    struct piece pieces[PIECES];
    unsigned next;
};

struct kiln__staging *kiln__staging_create(cl_context context, cl_command_queue queue)
{
    struct kiln__staging *staging = calloc(1, sizeof *staging);
    if (!staging)
        return NULL;
    staging->context = context;
    staging->queue = queue;
    pthread_mutex_init(&staging->lock, NULL);
    return staging;
}

void kiln__staging_destroy(struct kiln__staging *staging)
{
    if (!staging)
        return;
    for (unsigned i = 0; i < PIECES; i++)
        if (staging->pieces[i].busy)
            clReleaseEvent(staging->pieces[i].busy);
    if (staging->mapped) {
        clEnqueueUnmapMemObject(staging->queue, staging->pinned, staging->mapped, 0, NULL, NULL);
        kiln__cl_finish(staging->queue);
    }
    if (staging->pinned)
        clReleaseMemObject(staging->pinned);
    pthread_mutex_destroy(&staging->lock);
    free(staging);
}

/* Once: a driver that refuses is not asked again. */
static void allocate(struct kiln__staging *staging)
{
    cl_int code;
    staging->tried = true;
    staging->pinned =
        clCreateBuffer(staging->context, CL_MEM_ALLOC_HOST_PTR, PIECES * PIECE_BYTES, NULL, &code);
    if (code) {
        staging->pinned = NULL;
        return;
    }
    staging->mapped =
        clEnqueueMapBuffer(staging->queue, staging->pinned, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0,
                           PIECES * PIECE_BYTES, 0, NULL, NULL, &code);
    if (code)
        staging->mapped = NULL;
}

/* Until nothing reads the piece any more: its transfer has completed, or failed; which of the two
 * is for its own run to say. */
static cl_int await(struct piece *piece)
{
    cl_int code = piece->busy ? clWaitForEvents(1, &piece->busy) : CL_SUCCESS;
    if (code && code != CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)
        return code;
    if (piece->busy)
        clReleaseEvent(piece->busy);
    piece->busy = NULL;
    return CL_SUCCESS;
}

/* Copy through the next piece; it is free when the transfer that read it last has completed. */
static cl_int stage(struct kiln__staging *staging, cl_mem memory, size_t offset, const void *data,
                    size_t bytes, cl_event *event)
{
    unsigned i = staging->next++ % PIECES;
    struct piece *piece = &staging->pieces[i];
    cl_int code = await(piece);
    if (code)
        return code;
    char *pinned = staging->mapped + i * PIECE_BYTES;
    memcpy(pinned, data, bytes);
    code = clEnqueueWriteBuffer(staging->queue, memory, CL_FALSE, offset, bytes, pinned, 0, NULL,
                                &piece->busy);
    if (code)
        piece->busy = NULL;
    else if (!(code = clRetainEvent(piece->busy)))
        *event = piece->busy;
    return code;
}

kiln_status kiln__staging_upload(struct kiln__staging *staging, cl_mem memory, size_t offset,
                                 const void *data, size_t bytes, cl_event *event,
                                 struct kiln__error *error)
{
    cl_int code;
    pthread_mutex_lock(&staging->lock);
    if (!staging->tried && bytes <= PIECE_BYTES)
        allocate(staging);
    bool pinned = staging->mapped && bytes <= PIECE_BYTES;
    if (pinned)
        code = stage(staging, memory, offset, data, bytes, event);
    pthread_mutex_unlock(&staging->lock);
    if (!pinned)
        code = clEnqueueWriteBuffer(staging->queue, memory, CL_FALSE, offset, bytes, data, 0, NULL,
                                    event);
    return code ? kiln__cl_fail(error, "clEnqueueWriteBuffer", code) : KILN_OK;
}
