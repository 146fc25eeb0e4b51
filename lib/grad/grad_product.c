/* SPDX-License-Identifier: Apache-2.0 */
/* The adjoint of matrix products. */
#include <kiln/movement.h>
#include <kiln/product.h>

#include "grad/gradient.h"

/* If node `index` only repeats one matrix over leading dimensions: that matrix's node. */
static bool repeats_matrix(const struct kiln__gradient *walk, uint32_t index, uint32_t *matrix)
{
    const struct kiln__node *node = kiln__gradient_at(walk, index);
    if (node->kind != KILN__VIEW || kiln__gradient_asked(walk, index))
        return false;
    const struct kiln__node *input = kiln__gradient_at(walk, node->input[0]);
    uint32_t leading = node->shape.rank - 2;
    if (input->shape.rank != 2 || node->shape.rank <= 2)
        return false;
    for (uint32_t d = 0; d < leading; d++)
        if (node->view.source[d] >= 0)
            return false;
    for (uint32_t d = 0; d < 2; d++)
        if (node->view.source[leading + d] != (int)d || node->view.step[leading + d] != 1 ||
            node->shape.dims[leading + d] != input->shape.dims[d])
            return false;
    *matrix = node->input[0];
    return true;
}

/* All but the last dimension as one. */
static kiln_tensor as_matrix(struct kiln__gradient *walk, kiln_tensor x)
{
    struct kiln__shape shape = kiln__gradient_shape(walk, x);
    size_t rows = 1;
    for (uint32_t d = 0; d + 1 < shape.rank; d++)
        rows *= shape.dims[d];
    size_t dims[2] = {rows, shape.rank ? shape.dims[shape.rank - 1] : 1};
    return kiln_reshape(walk->batch, x, 2, dims);
}

/* y = a b: a' = g b^T, b' = a^T g (M. Giles, "An extended collection of matrix derivative results",
 * 2008). Where b is one matrix for all leading dimensions, they are rows of one tall product, which
 * sums over them. */
static void grad_product_give(struct kiln__gradient *walk, const struct kiln__node *node,
                              kiln_tensor g)
{
    kiln_tensor a = kiln__gradient_operand(walk, node, 0),
                b = kiln__gradient_operand(walk, node, 1);
    kiln_batch *batch = walk->batch;
    uint32_t matrix = node->input[1];
    const bool one = repeats_matrix(walk, node->input[1], &matrix);
    if (kiln__gradient_wants(walk, node->input[0]) &&
        !kiln__gradient_convolution(walk, node->input[0], kiln__batch_tensor(batch, matrix), g))
        kiln__gradient_accumulate(walk, node->input[0], kiln_matmul_transposed(batch, g, 0, b, 1));
    if (!kiln__gradient_wants(walk, node->input[1]))
        return;
    if (one)
        kiln__gradient_accumulate(
            walk, matrix,
            kiln_matmul_transposed(batch, as_matrix(walk, a), 1, as_matrix(walk, g), 0));
    else
        kiln__gradient_accumulate(walk, node->input[1], kiln_matmul_transposed(batch, a, 1, g, 0));
}

/* The products of a gradient are as precise as the one that it is of. */
void kiln__adjoint_matmul(struct kiln__gradient *walk, const struct kiln__node *node, kiln_tensor y,
                          kiln_tensor g)
{
    const uint8_t usual = walk->batch->product;
    (void)y;
    walk->batch->product = node->op;
    grad_product_give(walk, node, g);
    walk->batch->product = usual;
}
