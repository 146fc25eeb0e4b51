/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Models for executors, ready-made: interpolation between rows, and the gradient of another model.
 *
 *  @code
 *  kiln_model_create_slerp(1, (size_t[]){4}, &model);
 *  kiln_executor_create(&context, 1, model, NULL, &executor);
 *  kiln_free(model);
 *  @endcode
 *
 *  For all of them: the model is needed until kiln_executor_create() has returned, then the caller
 *  frees it with kiln_free() (kiln/batch.h). Threads: any. */
#ifndef KILN_MODELS_H
#define KILN_MODELS_H

#include <kiln/executor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** kiln_lerp() of rows of any dimensions. Inputs, all f32: a, b, and a weight for each row, which is
 *  one number. Output: the row between them.
 *  Errors: INVALID_ARGUMENT (NULL, more dimensions than a row has), OUT_OF_HOST_MEMORY; *model is
 *  NULL. */
KILN_API KILN_MUST_CHECK kiln_status kiln_model_create_lerp(size_t rank, const size_t *dims,
                                                            kiln_model **model);

/** kiln_slerp() of rows of vectors, which lie along the last dimension; a quaternion is {4}. Inputs
 *  and output as kiln_model_create_lerp() has them.
 *  Errors: as kiln_model_create_lerp(); INVALID_ARGUMENT where a row is one number. */
KILN_API KILN_MUST_CHECK kiln_status kiln_model_create_slerp(size_t rank, const size_t *dims,
                                                             kiln_model **model);

/** What `of` computes, and its gradients: each row has a loss, the sum of its numbers in output 0 of
 *  `of`, and each of n inputs of `of` gets a row's gradient of that row's loss, by kiln_grad(). The
 *  inputs are those of `of`, the outputs those of `of` and then the n gradients, in their order.
 *  Rows of `of` must not depend on each other, as ever. `of` is copied, but not what its `user`
 *  points to. That output 0 and the n inputs have to be f32 is found by kiln_executor_create().
 *  Errors: INVALID_ARGUMENT (NULL, an `of` that is no model, n that is 0, no input of that number,
 *  more outputs than a model has), OUT_OF_HOST_MEMORY; *model is NULL. */
KILN_API KILN_MUST_CHECK kiln_status kiln_model_create_gradient(const kiln_model *of, size_t n,
                                                                const size_t *inputs,
                                                                kiln_model **model);

#ifdef __cplusplus
}
#endif

#endif
