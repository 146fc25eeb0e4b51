/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Gradients: the operations that compute a loss's derivatives join the batch that computes the
 *  loss, so that forward, backward and update run as one. */
#ifndef KILN_GRADIENT_H
#define KILN_GRADIENT_H

#include <kiln/status.h>
#include <kiln/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Record the gradient of `loss` by each of n inputs: out[i] is f32 and has the shape of inputs[i],
 *  and each of its elements says how much the loss grows when that element of inputs[i] grows
 *  (reverse accumulation; S. Linnainmaa, BIT 16, 1976). An input may be any f32 tensor of the
 *  batch, a computed one too; one that the loss does not depend on gets zeros. Only f32 carries a
 *  gradient: none flows through integers, comparisons and positions. Where a derivative does not
 *  exist it is 0 (abs and relu at 0, rounding), and equal candidates of a largest or smallest
 *  element share it evenly. Where that is NaN it flows to what is NaN, evenly, and of kiln_maximum()
 *  and kiln_minimum() to both operands.
 *  What kiln_where() does not choose has no effect on a gradient, either: elementwise operations
 *  that lead there without broadcasting may have infinite or NaN derivatives at such an element.
 *  Through other operations (reductions, products, movements) 0 times these is NaN.
 *  Derivatives of elementwise operations hold for floats of every size, and infinities have the
 *  limit. Powers that leave f32 are infinite or 0 in a gradient, as in the result: squares of
 *  kiln_variance() and the like beyond 1.8e19 and below 1e-19, the product of kiln_product(),
 *  a^(b - 1) of kiln_pow(), also in kiln_local_response_norm(). kiln_atan2() has none (NaN) where
 *  both operands are 0 or infinite.
 *  The results are ordinary tensors: gradients of them may be taken in turn.
 *  `loss` is f32 with one element, of any rank. out may be inputs; after an error it holds empty
 *  tensors. Owner: the results belong to the batch. Threads: one at a time.
 *  Errors (sticky): INVALID_ARGUMENT (inputs or out NULL with n above 0), INVALID_HANDLE,
 *  TYPE_MISMATCH (loss or an input is not f32), SHAPE_MISMATCH (loss has not one element),
 *  UNSUPPORTED (an operation between an input and the loss has no derivative; the sentence names
 *  it), TOO_LARGE, OUT_OF_HOST_MEMORY. */
KILN_API kiln_status kiln_grad(kiln_batch *batch, kiln_tensor loss, const kiln_tensor *inputs,
                               size_t n, kiln_tensor *out);

/** x itself, which kiln_grad() takes for a constant: no gradient flows through it to what x is
 *  computed from. Costs nothing when the batch runs. Owner: the result belongs to the batch.
 *  Threads: one at a time. Errors (sticky): INVALID_HANDLE, OUT_OF_HOST_MEMORY. */
KILN_API kiln_tensor kiln_detach(kiln_batch *batch, kiln_tensor x);

#ifdef __cplusplus
}
#endif

#endif
