/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a buffer: its bytes on the device of its stream, and which runs use them, so that
 * another stream can wait for exactly those. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include <kiln/buffer.h>

#include "graph/shape.h"
#include "runtime/backing_store.h"
#include "runtime/stream.h"

struct kiln_buffer {
    atomic_int references;
    kiln_context *context;
    kiln_type type;
    struct kiln__shape shape;
    size_t bytes;
    struct kiln__stream *stream; /* of the calls that clear and map it, and of small transfers */
    cl_mem memory;     /* NULL if it has no elements, or has given it up (backing_store.h) */
    bool lent;         /* by the program, which may use it in the stream's queue */
    bool wraps;        /* memory of the host's, which is none of the device's budget */
    atomic_bool shown; /* its cl_mem, to the program, which may write it unseen from then on */
    atomic_bool mapped;
    void *mapping;
    pthread_rwlock_t order; /* held while a command that uses the buffer is enqueued, and until that
                               is noted; of several buffers that of the lowest address first */
    struct kiln__run *writer; /* the last that was enqueued, retained; NULL: none; and since then */
    struct kiln__run *_Atomic readers[KILN__MOST_STREAMS]; /* the last of each stream: both under
                                                              the order, where who only reads puts
                                                              himself among the readers */
    atomic_uint
        reading; /* threads between enter and leave that read; where two ever were at once */
    atomic_bool crossed; /* since the last writer, the reader noted need not be the last one */
    atomic_uint_fast64_t version; /* of the content: a new one, no other buffer's either,
                                     whenever somebody may write it */
    struct kiln__prepacked
        *prepacked;       /* what was made of the content (prepacked.h), under the budget's lock */
    pthread_mutex_t lock; /* guards what follows; nothing waits under it */
    struct kiln__backing_store source;
};

/* A buffer without memory that nobody has used. */
void kiln__buffer_begin(kiln_buffer *buffer);

/* What tells its memory from others': the same of two buffers over one cl_mem; 0 without memory. */
uintptr_t kiln__buffer_identity(const kiln_buffer *buffer);

/* Around enqueuing what uses the buffer on `stream`. Commands of two threads then follow each other
 * as a whole, in one stream or in two: neither overlooks the other, and no command of the one comes
 * between two of the other. Threads that only read do not exclude each other.
 *
 * Adds what the commands have to wait for: the last writer in another stream, and, if they write,
 * readers there: the last one, or all that is in its stream so far where readers overlapped and
 * nobody knows which of them was the last. Who enters has to leave after an error, too.
 * Errors: OUT_OF_HOST_MEMORY, DEVICE_ERROR. */
kiln_status kiln__buffer_enter(kiln_buffer *buffer, const struct kiln__stream *stream, bool writes,
                               struct kiln__events *events, struct kiln__error *error);

/* `run`: was enqueued, and uses the buffer; NULL: none was. */
void kiln__buffer_leave(kiln_buffer *buffer, struct kiln__run *run, bool writes);

/* Memory and runs, of a buffer that nobody uses any more. */
void kiln__buffer_drop(kiln_buffer *buffer);

/* ---- content: `call` is for the sentence ---- */

/* To the buffer, or from it; `host` is only read in the former case. Returns when it is done.
 * Errors: DEVICE_ERROR and its kind. */
kiln_status kiln__buffer_transfer(kiln_buffer *buffer, bool writes, size_t offset, void *host,
                                  size_t bytes, const char *call);

/* Zero its content. Nobody waits for it, nor for the end of an unmap: a failure is told by the next
 * call that waits. Errors: DEVICE_ERROR. */
kiln_status kiln__buffer_clear(kiln_buffer *buffer, const char *call);

/* The mapping is in buffer->mapping. */
kiln_status kiln__buffer_map(kiln_buffer *buffer, const char *call);
kiln_status kiln__buffer_unmap(kiln_buffer *buffer, const char *call);
