/* SPDX-License-Identifier: Apache-2.0 */
/* The walk from a loss back to its inputs, and the adjoints: how each kind of node hands the
 * gradient of its result on to its operands. */
#pragma once

#include "record/batch.h"

/* What the walk knows of a node. */
struct kiln__flow {
    bool asked;           /* it is one of `inputs` */
    bool wanted;          /* it is an input, or computed from one in f32 all the way */
    kiln_tensor gradient; /* what has flowed to it so far; empty: nothing */
    kiln_tensor chosen;   /* a mask, where kiln_where() chose it; 0 has flowed elsewhere. Empty:
                             everywhere */
};

struct kiln__gradient {
    kiln_batch *batch;
    const char *call; /* for sentences */
    const kiln_tensor *inputs;
    size_t n_inputs;
    size_t count; /* nodes that were recorded before the walk */
    struct kiln__flow *flows;
};

static inline const struct kiln__node *kiln__gradient_at(const struct kiln__gradient *walk,
                                                         uint32_t index)
{
    return &walk->batch->graph.nodes.items[index];
}

/* Record what flows on to the operands of `node`, whose result is y, when g flows to y. g has y's
 * shape. Called when all of g is there; errors are the batch's. `node` is a copy. */
typedef void kiln__adjoint(struct kiln__gradient *walk, const struct kiln__node *node,
                           kiln_tensor y, kiln_tensor g);

/* One per kind that has operands. */
kiln__adjoint kiln__adjoint_elementwise, kiln__adjoint_cast, kiln__adjoint_reduce;
kiln__adjoint kiln__adjoint_view, kiln__adjoint_reshape, kiln__adjoint_matmul;
kiln__adjoint kiln__adjoint_insert_slice, kiln__adjoint_attention, kiln__adjoint_attention_backward;
kiln__adjoint kiln__adjoint_scan;

kiln__adjoint kiln__adjoint_gather, kiln__adjoint_scatter, kiln__adjoint_custom;

/* Whether a gradient for node number `to` would be used: what is not wanted need not be recorded.
 */
bool kiln__gradient_wants(const struct kiln__gradient *walk, uint32_t to);

/* Whether the caller asked for the gradient of this very node: it must not be bypassed. */
bool kiln__gradient_asked(const struct kiln__gradient *walk, uint32_t node);

/* Let `part` flow to node number `to`, in addition to what has flowed there. Where `part` has that
 * node's shape repeated, it is summed; where it is repeated in that shape, it is repeated. The
 * empty tensor, and what is not wanted, does nothing. */
void kiln__gradient_accumulate(struct kiln__gradient *walk, uint32_t to, kiln_tensor part);

/* The same of a part that is 0 where the mask `chosen` is 0 (empty: none is known). */
void kiln__gradient_accumulate_where(struct kiln__gradient *walk, uint32_t to, kiln_tensor part,
                                     kiln_tensor chosen);

/* Where query i, from `first` on, sees key j by its position: [queries, keys]. */
kiln_tensor kiln__gradient_visible_keys(kiln_batch *batch, const struct kiln__attention *attention,
                                        size_t first, size_t queries, size_t keys);

/* Where node number `operand`, times one matrix of weights, is the windows of an image as rows: let
 * what flows to the image when g flows to that product flow there at once. Else false
 * (grad_convolution.c). */
bool kiln__gradient_convolution(struct kiln__gradient *walk, uint32_t operand, kiln_tensor weights,
                                kiln_tensor g);

/* The tensor of operand k. */
kiln_tensor kiln__gradient_operand(const struct kiln__gradient *walk, const struct kiln__node *node,
                                   unsigned k);

/* Of a kernel with a loop inside, once for all its outputs: what flows to its inputs, or {0}, when
 * flowed[k] flows to output k (grad_loop.c). */
void kiln__adjoint_loop(struct kiln__gradient *gradient, const struct kiln__node *node,
                        const kiln_tensor *inputs, const kiln_tensor *flowed,
                        kiln_tensor *gradients);

/* The shape of a tensor of the batch; of the empty tensor, which errors leave: rank 0. */
struct kiln__shape kiln__gradient_shape(const struct kiln__gradient *walk, kiln_tensor tensor);
