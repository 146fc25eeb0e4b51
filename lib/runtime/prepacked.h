/* SPDX-License-Identifier: Apache-2.0 */
/* Prepacked weights: what launches make of the content of buffers alone, such as a weight's panels,
 * kept until one of them is written: runs that find it leave out those launches. A thing is kept
 * when it is made for the second time from the same content, and found once its run has ended well.
 * Its memory counts among that of the pools, is a quarter of it at most, and is the first to go. */
#pragma once

#include "plan/plan.h"
#include "runtime/buffer.h"
#include "util/hash.h"

enum kiln__prepacked_state {
    KILN__PREPACKED_NOT,  /* the run makes it in memory of its pool */
    KILN__PREPACKED_NEW,  /* the run makes it, in this memory */
    KILN__PREPACKED_READY /* it is there */
};

/* One run's use of what is named `key`. */
struct kiln__prepacked_use {
    enum kiln__prepacked_state state;
    kiln_buffer *buffers[KILN__MOST_SOURCES]; /* that it is made of; the first has it */
    size_t n_buffers;
    struct kiln__hash128 key;
    size_t bytes;
    cl_mem memory;                /* retained; of NOT the run's own: NULL, or the pool's */
    struct kiln__hash128 version; /* of the buffers' content */
};

/* Look for it, by `buffers`, `key` and `bytes`, which may become more; without memory it is NOT.
 * `pool`: of the stream that the run is in, whose idle memory it may be made in. */
void kiln__prepacked_take(struct kiln__prepacked_use *use, struct kiln__pool *pool);

/* In the buffers' order: whether what was found still is of the buffers' content. */
bool kiln__prepacked_holds(const struct kiln__prepacked_use *use);

/* In the buffers' order: the run was enqueued, `end` is its last event. */
void kiln__prepacked_offer(struct kiln__prepacked_use *use, cl_event end);

/* After the run was enqueued, or not. */
void kiln__prepacked_give(struct kiln__prepacked_use *use);

/* Nobody uses the buffer any more. */
void kiln__prepacked_drop(kiln_buffer *buffer);
