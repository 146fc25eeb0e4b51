/* SPDX-License-Identifier: Apache-2.0 */
/* What launches make of a buffer's content alone, such as a weight's packed panels, kept until the
 * buffer is written: runs that find it leave out those launches. A thing is kept when it is made
 * for the second time from the same content, and found once its run has ended well. Its memory
 * counts among that of the pools, is a quarter of it at most, and is the first to go. */
#ifndef KILN_RUNTIME_KEPT_H
#define KILN_RUNTIME_KEPT_H

#include "runtime/buffer.h"
#include "util/hash.h"

enum kiln__kept_state {
    KILN__KEPT_NOT,  /* the run makes it in memory of its pool */
    KILN__KEPT_NEW,  /* the run makes it, in this memory */
    KILN__KEPT_READY /* it is there */
};

/* One run's use of what is named `key`. */
struct kiln__kept_use {
    enum kiln__kept_state state;
    kiln_buffer *buffer;
    struct kiln__hash128 key;
    size_t bytes;
    cl_mem memory;    /* retained; NULL: NOT */
    uint64_t version; /* of the buffer's content */
};

/* Look for it; without memory it is NOT. */
void kiln__kept_take(kiln_buffer *buffer, const struct kiln__hash128 *key, size_t bytes,
                     struct kiln__kept_use *use);

/* In the buffer's order: whether what was found still is of the buffer's content. */
bool kiln__kept_holds(const struct kiln__kept_use *use);

/* In the buffer's order: the run was enqueued, `end` is its last event. */
void kiln__kept_offer(struct kiln__kept_use *use, cl_event end);

/* After the run was enqueued, or not. */
void kiln__kept_give(struct kiln__kept_use *use);

/* Nobody uses the buffer any more. */
void kiln__kept_drop(kiln_buffer *buffer);

#endif
