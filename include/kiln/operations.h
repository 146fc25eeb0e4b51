/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Operations that are not one row of a table: movement, matrix products, and short cuts.
 *  Each records one or more operations and returns the result's tensor, the empty tensor after an
 *  error. Elementwise operations are in kiln/elementwise.h, reductions in kiln/reductions.h.
 *
 *  For all of them: the result belongs to the batch; one thread at a time; errors are sticky:
 *  INVALID_HANDLE, INVALID_ARGUMENT, SHAPE_MISMATCH, TYPE_MISMATCH, TOO_LARGE,
 *  OUT_OF_HOST_MEMORY. */
#ifndef KILN_OPERATIONS_H
#define KILN_OPERATIONS_H

#include <kiln/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** factor * x, of x's type and shape. */
KILN_API kiln_tensor kiln_scale(kiln_batch *batch, kiln_tensor x, double factor);

/** The elements of x as another type: to an integer type as C does, towards zero, with values
 *  beyond its range saturated and NaN as 0. */
KILN_API kiln_tensor kiln_cast(kiln_batch *batch, kiln_tensor x, kiln_type type);

/** The same elements in row-major order under another shape of equal element count. */
KILN_API kiln_tensor kiln_reshape(kiln_batch *batch, kiln_tensor x, size_t rank,
                                  const size_t *dims);

/** Dimensions in another order: dimension i of the result is dimension axes[i] of x. axes may be
 *  NULL: the last two are swapped. */
KILN_API kiln_tensor kiln_transpose(kiln_batch *batch, kiln_tensor x, const size_t *axes);

/** A part of x: in dimension i the elements start[i], start[i] + step[i], ... before stop[i] (with
 *  a negative step: above stop[i], and stop[i] may be -1). start, stop and step have one entry per
 *  dimension; step may be NULL: all 1. Bounds are checked, not clipped. */
KILN_API kiln_tensor kiln_slice(kiln_batch *batch, kiln_tensor x, const int64_t *start,
                                const int64_t *stop, const int64_t *step);

/** x repeated to a larger shape by numpy's rule: aligned at the last dimension, 1 repeats. */
KILN_API kiln_tensor kiln_broadcast(kiln_batch *batch, kiln_tensor x, size_t rank,
                                    const size_t *dims);

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
