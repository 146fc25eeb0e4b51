/* SPDX-License-Identifier: Apache-2.0 */
/* Adjoints of gathers and scatters: each is the other's. */
#include <kiln/batch.h>
#include <kiln/elementwise.h>
#include <kiln/movement.h>
#include <kiln/operations.h>

#include "grad/gradient.h"

/* Elements that were picked several times get the sum. */
void kiln__adjoint_gather(struct kiln__gradient *walk, const struct kiln__node *node, kiln_tensor y,
                          kiln_tensor g)
{
    kiln_tensor indices = kiln__gradient_operand(walk, node, 1);
    struct kiln__shape shape = kiln__gradient_shape(walk, kiln__gradient_operand(walk, node, 0));
    (void)y;
    if (!kiln__gradient_wants(walk, node->input[0]))
        return;
    kiln_tensor zeros = kiln_fill(walk->batch, KILN_F32, shape.rank, shape.dims, 0);
    kiln__gradient_give(walk, node->input[0],
                        kiln_scatter_add(walk->batch, zeros, indices, g, (int)node->axis));
}

/* `indices` with dimensions of 1 for those of the values that stand around them. */
static kiln_tensor surround(struct kiln__gradient *walk, kiln_tensor indices, uint32_t before,
                            uint32_t rank)
{
    struct kiln__shape shape = kiln__gradient_shape(walk, indices);
    size_t dims[KILN_MAX_RANK];
    for (uint32_t d = 0; d < rank; d++)
        dims[d] = d >= before && d - before < shape.rank ? shape.dims[d - before] : 1;
    return kiln_reshape(walk->batch, indices, rank, dims);
}

/* A value that was left out gets 0, where the gather says NaN. */
void kiln__adjoint_scatter(struct kiln__gradient *walk, const struct kiln__node *node,
                           kiln_tensor y, kiln_tensor g)
{
    kiln_batch *batch = walk->batch;
    kiln_tensor values = kiln__gradient_operand(walk, node, KILN__SCATTER_VALUES);
    kiln_tensor indices = kiln__gradient_operand(walk, node, KILN__SCATTER_INDICES);
    (void)y;
    kiln__gradient_give(walk, node->input[KILN__SCATTER_BASE], g);
    if (!kiln__gradient_wants(walk, node->input[KILN__SCATTER_VALUES]))
        return;
    uint32_t rank = kiln__gradient_shape(walk, values).rank;
    kiln_tensor at =
        kiln_cast(batch, surround(walk, indices, (uint32_t)node->axis, rank), KILN_I32);
    kiln_tensor extent = kiln_constant(batch, KILN_I32, (double)node->shape.dims[node->axis]);
    kiln_tensor inside =
        kiln_logical_and(batch, kiln_greater_equal(batch, at, kiln_constant(batch, KILN_I32, 0)),
                         kiln_less(batch, at, extent));
    kiln__gradient_give(walk, node->input[KILN__SCATTER_VALUES],
                        kiln_where(batch, inside, kiln_gather(batch, g, indices, (int)node->axis),
                                   kiln_constant(batch, KILN_F32, 0)));
}
