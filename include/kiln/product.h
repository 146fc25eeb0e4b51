/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Matrix products. Each records one or more operations and returns the result's tensor, the empty
 *  tensor after an error.
 *
 *  Elementwise operations on a product, with operands that broadcast to its shape, run in its
 *  kernel: a layer is kiln_gelu(batch, kiln_add(batch, kiln_matmul(batch, x, w), bias)), and
 *  neither the product nor the sum is in memory unless something else uses it. So do cheap
 *  operations on inputs before the product: quantised operands are read as they lie in memory, as
 *  narrow ones are that anything has stored (<kiln/types.h>). What else is computed on the way to
 * an operand is a kernel of its own.
 *
 *  For all of them: the result belongs to the batch; one thread at a time; errors are sticky:
 *  INVALID_HANDLE, INVALID_ARGUMENT, SHAPE_MISMATCH, TYPE_MISMATCH, TOO_LARGE,
 *  OUT_OF_HOST_MEMORY. */
#ifndef KILN_PRODUCT_H
#define KILN_PRODUCT_H

#include <kiln/status.h>
#include <kiln/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Matrix product of f32 tensors [..., m, k] and [..., k, n], row-major; leading dimensions
 *  broadcast. A 1-dimensional operand is a row (left) or a column (right), and its dimension of
 *  1 is dropped from the result, as numpy's matmul does. Accumulates in f32. Operands that lie as
 *  f16 or bf16 may be multiplied by tensor cores (NVIDIA's Hopper): the products are exact, and
 *  what is added up is cut off where f32 ends instead of rounded (doc/accuracy.md). */
KILN_API kiln_tensor kiln_matmul(kiln_batch *batch, kiln_tensor a, kiln_tensor b);

/** As kiln_matmul(), with the last two dimensions of an operand swapped first where its flag is
 *  nonzero; such an operand has 2 dimensions or more. Nothing is copied for that. */
KILN_API kiln_tensor kiln_matmul_transposed(kiln_batch *batch, kiln_tensor a, int transpose_a,
                                            kiln_tensor b, int transpose_b);

/** Einstein's sum of n operands, 1 to 16 of one type, as numpy's einsum(): "bij,bjk->bik" names the
 *  dimensions of each operand and of the result by letters. What the result has not is added up; a
 *  letter that an operand has twice takes the diagonal; "..." stands for any further dimensions,
 *  which broadcast. Without an arrow the result has the letters that occur once, in the alphabet's
 *  order. Dimensions of one letter agree, or are 1 and repeat. Operands are multiplied from the
 *  left, two at a time, by kiln_matmul() where something floating is added up over both; sums of
 *  integers are i64. */
KILN_API kiln_tensor kiln_einsum(kiln_batch *batch, const char *equation, size_t n,
                                 const kiln_tensor *operands);

/** Inner product of two vectors of equal length and type: a scalar. */
KILN_API kiln_tensor kiln_dot(kiln_batch *batch, kiln_tensor a, kiln_tensor b);

/** x in i8, and the f32 scale of each slice over the n_axes dimensions `axes` (negative ones count
 *  from the end; NULL with n_axes 0 is all of them): scale = max(|x|) / 127 over the slice, with
 *  the reduced dimensions as 1, so that q, cast to f32, times scale is near x; q = x / scale,
 *  rounded to nearest, of two as near to the even one: -127 to 127. Of a matrix of weights [k, n],
 *  axis 0 gives a scale for each column of a product; of its left operand, axis 1 one for each row.
 *
 *  Where all of a slice is 0, or so small that its scale would be below 2^-126 (|x| below
 *  1.5e-36), q is 0 and the scale 1; of no elements it is 1, too. A slice with an infinity or NaN
 *  has that for its scale, and q is 0 in its place, so that a product with it is NaN.
 *
 *  No gradient flows through q or the scale, as if of kiln_detach(x). A straight-through estimate
 *  is x plus kiln_detach() of what q times scale has more. x is of a floating type; *scale receives
 *  the scales, and the empty tensor after an error. */
KILN_API kiln_tensor kiln_quantize(kiln_batch *batch, kiln_tensor x, size_t n_axes, const int *axes,
                                   kiln_tensor *scale);

/** a * a_scale times b * b_scale, of what kiln_quantize() makes: the product's sums are multiplied
 *  by a_scale, then by b_scale. a and b are i8 or of a floating type and have 2 dimensions or more;
 *  a nonzero transpose_b swaps the last two of b, and of b_scale where it has them.
 *
 *  Of two i8 operands the sums are exact integers, rounded once to f32; where k is beyond 1024 they
 *  come from parts of the product, a kernel for each, but on tensor cores (NVIDIA's Hopper), which
 *  add up integers. If one operand is of a floating type, the
 *  other is read as f32 and the sums are those of kiln_matmul(). Operands of i8 are read as they
 *  lie in memory, but for products of 2048 rows and columns or more, which read a copy in f32.
 *
 *  Scales are of a floating type, broadcast to the product's shape and do not vary along k: a last
 *  dimension of 1 (a), a last but one of 1 (b, unless it has fewer). The empty tensor is a scale
 *  of 1. Gradients flow to operands of floating types and to scales.
 *
 *  Errors: TOO_LARGE also for two i8 operands and k beyond 131071, whose sums i32 may not hold. */
KILN_API kiln_tensor kiln_matmul_quantized(kiln_batch *batch, kiln_tensor a, kiln_tensor a_scale,
                                           kiln_tensor b, int transpose_b, kiln_tensor b_scale);

/** Blocks of `type`, q8_0 or q4_0, of `count` floats, a multiple of 32: to the bit as the Python
 *  package gguf makes them. `blocks` has room for `bytes` bytes, which are count / 32 times
 *  kiln_type_size(type). On the host; nothing is kept.
 *  Threads: any. Errors: INVALID_ARGUMENT, also for another type, other bytes, and floats that are not
 *  finite or whose block has a scale beyond f16; the blocks before those are written. */
KILN_API kiln_status kiln_quantize_blocks(kiln_type type, size_t count, const float *values,
                                          void *blocks, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
