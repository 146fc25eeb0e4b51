/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Matrix products. Each records one or more operations and returns the result's tensor, the empty
 *  tensor after an error.
 *
 *  Elementwise operations on a product, with operands that broadcast to its shape, run in its
 *  kernel: a layer is kiln_gelu(batch, kiln_add(batch, kiln_matmul(batch, x, w), bias)), and
 *  neither the product nor the sum is in memory unless something else uses it. So do cheap
 *  operations on inputs before the product: narrow or quantised operands are read as they lie in
 *  memory. What else is computed on the way to an operand is a kernel of its own.
 *
 *  For all of them: the result belongs to the batch; one thread at a time; errors are sticky:
 *  INVALID_HANDLE, INVALID_ARGUMENT, SHAPE_MISMATCH, TYPE_MISMATCH, TOO_LARGE,
 *  OUT_OF_HOST_MEMORY. */
#ifndef KILN_PRODUCT_H
#define KILN_PRODUCT_H

#include <kiln/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Matrix product of f32 tensors [..., m, k] and [..., k, n], row-major; leading dimensions
 *  broadcast. A 1-dimensional operand is a row (left) or a column (right), and its dimension of
 *  1 is dropped from the result, as numpy's matmul does. Accumulates in f32. */
KILN_API kiln_tensor kiln_matmul(kiln_batch *batch, kiln_tensor a, kiln_tensor b);

/** As kiln_matmul(), with the last two dimensions of an operand swapped first where its flag is
 *  nonzero; such an operand has 2 dimensions or more. Nothing is copied for that. */
KILN_API kiln_tensor kiln_matmul_transposed(kiln_batch *batch, kiln_tensor a, int transpose_a,
                                            kiln_tensor b, int transpose_b);

/** Inner product of two vectors of equal length and type: a scalar. */
KILN_API kiln_tensor kiln_dot(kiln_batch *batch, kiln_tensor a, kiln_tensor b);

#ifdef __cplusplus
}
#endif

#endif
