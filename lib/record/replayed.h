/* SPDX-License-Identifier: Apache-2.0 */
/* A loop whose step stands once among a batch's nodes, and is run again for each step
 * (api/loop_runs.h). What it leaves are nodes without a way to compute them: imports that have
 * inputs. The first ones have all that the loop is made of for inputs, each the one before it,
 * too; the last of these is the input of the others, which stand for the results. */
#pragma once

#include <kiln/loop.h>

#include "record/batch.h"

/* Nodes are numbers of the batch's. */
struct kiln__replayed {
    kiln_loop_options options;    /* as it was recorded, with arrays of its own */
    uint32_t first, results, end; /* its nodes: those with inputs, then the last states, in order,
                                     and what outputs leave */
    /* With the number of the step, where that is asked for, as a state behind the others; and with
     * an end that is looked at. */
    uint32_t n_states, n_shared;
    uint32_t *states, *initial, *next;
    uint32_t ended; /* 1 where no further step changes a state: an i32, of the states; 0: not asked.
                     */
    uint32_t *shared; /* else needed, and the same in all steps: computed before them */
    /* Some steps, of numbers that follow each other, as one: with the number of the step among its
     * states, elements that are rows for all of them, and outputs likewise. It shares `states`, and
     * has no results. NULL: a step takes longer than what it costs to run it. */
    struct kiln__replayed *stretch;
};

void kiln__replayed_free(struct kiln__replayed *loop);

/* A kernel that takes all steps of something, which can be recorded step by step in its place: its
 * nodes, from the first one to that before `end`, are its outputs. */
struct kiln__stepwise {
    uint32_t first, end;
    /* Record the steps of what the operands are by now; results[k]: what output k then is. */
    void (*record)(kiln_batch *batch, const struct kiln__stepwise *kernel, kiln_tensor *results);
    size_t n_operands;
    kiln_tensor operands[8]; /* {0}: none */
    size_t size;             /* of what begins with this: one piece of memory */
};

/* The batch keeps it from now on; false without memory, and it is freed. */
bool kiln__stepwise_keep(kiln_batch *batch, struct kiln__stepwise *kernel);

/* Have steps recorded one by one of loops, and of such kernels, that `of`, asked of as made of the
 * inputs, goes through; what it is then, which also later calls mean by it, and by all between.
 * Errors (the batch's): TOO_LARGE, OUT_OF_HOST_MEMORY. */
kiln_tensor kiln__loops_unroll(kiln_batch *batch, const char *call, kiln_tensor of,
                               const kiln_tensor *inputs, size_t n);

/* What a loop has left, or gathers: a node that no kernel computes. */
static inline bool kiln__node_is_replayed(const struct kiln__node *node)
{
    return node->kind == KILN__IMPORT && node->n_inputs;
}

/* The loop that such a node belongs to: its binding. */
static inline size_t kiln__replayed_number(const struct kiln__node *node)
{
    return (size_t)node->binding;
}

static inline const struct kiln__replayed *kiln__replayed_of(const kiln_batch *batch,
                                                             const struct kiln__node *node)
{
    return batch->loops.items[kiln__replayed_number(node)];
}

/* What is behind movements. */
static inline uint32_t kiln__node_after_movements(const struct kiln__graph *graph, uint32_t index)
{
    while (kiln__node_is_movement(&graph->nodes.items[index]))
        index = graph->nodes.items[index].input[0];
    return index;
}

/* What each graph that needs it has for itself. */
static inline bool kiln__node_is_free(const struct kiln__node *node)
{
    return node->kind == KILN__CONSTANT || node->kind == KILN__IOTA;
}
