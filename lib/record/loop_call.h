/* SPDX-License-Identifier: Apache-2.0 */
/* A loop that is being recorded: the step as nodes of the batch. */
#pragma once

#include <kiln/loop.h>

#include "record/batch.h"

struct kiln__loop_call {
    kiln_batch *batch;
    const char *call; /* for sentences */
    kiln_loop_options options;
    const kiln_tensor *rows; /* of a stretch (replayed.h): what each element is a row of; states
                                begin with themselves. NULL: it is none */
    size_t count;            /* nodes before the loop itself */
    bool *varies; /* per node: it depends on the state or the number of the step, or an element */
    bool *needed; /* and what the step gives is made of it */
};

/* As kiln__fail(), behind the call; false. */
#define KILN__LOOP_REFUSE(loop, status, format, ...)                                               \
    (kiln__fail(&(loop)->batch->error, status, "%s: " format, (loop)->call, __VA_ARGS__), false)

static inline const struct kiln__node *kiln__loop_node(const struct kiln__loop_call *loop,
                                                       kiln_tensor tensor)
{
    return kiln__tensor_node(loop->batch, tensor);
}

/* A node of its own that shows its input from row `start` on, or all of it. */
kiln_tensor kiln__loop_view(kiln_batch *batch, uint32_t input, bool row, int64_t start,
                            const char *call);

/* Find what varies and what is needed among the batch's first `count` nodes. False without memory.
 */
bool kiln__loop_find_nodes(struct kiln__loop_call *loop);

/* Record it step by step; or for a replay of one step (replayed.h), which long loops get, and those
 * with such a loop inside. */
void kiln__loop_unroll(struct kiln__loop_call *loop, kiln_tensor *last, kiln_tensor *stacked);
void kiln__loop_replay(struct kiln__loop_call *loop, kiln_tensor *last, kiln_tensor *stacked);
bool kiln__loop_is_long(const struct kiln__loop_call *loop);

/* A mask of one element, whatever its rank, as a scalar: a state keeps its own shape. {0} stays.
 * And a state behind a step: what it was where the mask says so; {0}: nowhere. */
kiln_tensor kiln__loop_end_mask(const struct kiln__loop_call *loop, kiln_tensor until);
kiln_tensor kiln__loop_keep_where_ended(const struct kiln__loop_call *loop, kiln_tensor until,
                                        kiln_tensor state, kiln_tensor next);

/* Whether the node is a state, an element or the number of a step. */
bool kiln__loop_is_placeholder(const struct kiln__loop_call *loop, uint32_t index);

/* Record it as one kernel. False if it cannot be, and nothing is recorded then. */
bool kiln__loop_in_kernel(struct kiln__loop_call *loop, kiln_tensor *last, kiln_tensor *stacked);

/* The node of a placeholder's own input, and the shape of output `k` of all steps. */
uint32_t kiln__loop_initial(const struct kiln__loop_call *loop, size_t k);
bool kiln__loop_stacked(const struct kiln__loop_call *loop, size_t k, struct kiln__shape *shape);
