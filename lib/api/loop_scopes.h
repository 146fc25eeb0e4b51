/* SPDX-License-Identifier: Apache-2.0 */
/* A batch with loops of which one step is recorded (record/replayed.h), cut into graphs that run
 * one after the other, with the loops between them. So is the step of such a loop.
 *
 * scope = part+    part = graph loop*
 *
 * Values that a later graph or a loop needs are results of the graph that computes them. */
#pragma once

#include "record/batch.h"
#include "record/replayed.h"

/* Nodes are numbers of the batch's. */
struct kiln__loop_part {
    struct kiln__graph graph;      /* of no results: there is nothing for it to do */
    KILN__VECTOR(uint32_t) of;     /* per node of it: the node that it stands for */
    KILN__VECTOR(uint32_t) inputs; /* per input: the node that has the value */
    KILN__VECTOR(uint32_t)
    values;                     /* per result: the node that it is the value of; the last part's
                                   are followed by what the scope is for, in its order */
    struct kiln__labels labels; /* of the graph's nodes: the batch's but for `nodes` */
    struct kiln__lease lease;
    size_t steps;                                 /* of a loop, that a run of it takes */
    KILN__VECTOR(struct kiln__loop_inside) loops; /* behind it */
};

struct kiln__loop_scope {
    KILN__VECTOR(struct kiln__loop_part) parts;
};

struct kiln__loop_inside {
    const struct kiln__replayed *loop;
    struct kiln__loop_scope step;    /* for the next states, and what is left */
    struct kiln__loop_scope stretch; /* the same of as many steps as loop->stretch has; or none */
    struct kiln__loop_scope ended;   /* for whether the loop has ended; or of no parts */
};

/* Cut what the batch is asked for. False without memory; to be freed then, too. */
bool kiln__loop_scope_make(const kiln_batch *batch, struct kiln__loop_scope *scope);

/* Its leases have been given back. */
void kiln__loop_scope_free(struct kiln__loop_scope *scope);

/* Whether the value is there before a part of the batch itself runs: a buffer. */
static inline bool kiln__node_is_buffer(const struct kiln__node *node)
{
    return node->kind == KILN__IMPORT && !node->n_inputs;
}
