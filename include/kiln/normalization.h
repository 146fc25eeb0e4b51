/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Normalisation and what statistics are made of: several reductions and maps over the same
 *  elements, recorded as plain operations that run as one kernel where the shapes allow it.
 *
 *  For all of them: x is f32 unless a call says otherwise; `axes` names the n_axes dimensions that
 *  belong together, negative ones count from the end; NULL with n_axes 0 is all of them. Of the
 *  others, each element stands for itself. A NaN makes everything NaN that it belongs to. The
 *  result belongs to the batch; one thread at a time; errors are sticky: INVALID_HANDLE,
 *  INVALID_ARGUMENT (an axis that x has not, an axis named twice, a parameter out of range),
 *  SHAPE_MISMATCH, TYPE_MISMATCH, TOO_LARGE, OUT_OF_HOST_MEMORY. */
#ifndef KILN_NORMALIZATION_H
#define KILN_NORMALIZATION_H

#include <kiln/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** exp(x) / sum(exp(x)), of x's shape; computed from x - max(x), so that large values do not
 *  overflow. NaN where all are -inf or one is +inf, as in PyTorch and scipy. */
KILN_API kiln_tensor kiln_softmax(kiln_batch *batch, kiln_tensor x, size_t n_axes, const int *axes);

/** log(softmax(x)), of x's shape, without computing the softmax: x - max(x) - log(sum(exp(x -
 *  max(x)))). NaN where softmax is, -inf where x is -inf. */
KILN_API kiln_tensor kiln_log_softmax(kiln_batch *batch, kiln_tensor x, size_t n_axes,
                                      const int *axes);

/** log(sum(exp(x))), without overflow. With keep_dims nonzero a reduced dimension stays as 1, else
 *  it is dropped. -inf where all are -inf and of no elements, +inf where one is +inf. */
KILN_API kiln_tensor kiln_logsumexp(kiln_batch *batch, kiln_tensor x, size_t n_axes,
                                    const int *axes, int keep_dims);

/** sum((x - mean(x))^2) / max(n - correction, 0) of n elements each: correction 0 is the
 *  population's variance, 1 the sample's (Bessel). In two passes over differences from the first
 *  element, so that a large mean costs no accuracy and that of equal elements is 0. inf or NaN
 *  where n is at most the correction; keep_dims as for kiln_logsumexp().
 *  Errors: INVALID_ARGUMENT also for a negative or not finite correction. */
KILN_API kiln_tensor kiln_variance(kiln_batch *batch, kiln_tensor x, size_t n_axes, const int *axes,
                                   double correction, int keep_dims);

/** The 2-norm sqrt(sum(x^2)); 0 of no elements; keep_dims as for kiln_logsumexp(). Large and small
 *  elements are scaled before they are squared, so that only a norm beyond f32 is inf. Its gradient
 *  at 0 is 0. */
KILN_API kiln_tensor kiln_norm(kiln_batch *batch, kiln_tensor x, size_t n_axes, const int *axes,
                               int keep_dims);

/** (x - mean(x)) / sqrt(variance(x) + epsilon) * scale + shift, of x's shape, with the population's
 *  variance (Ba, Kiros and Hinton 2016). scale and shift broadcast to x; each may be {0}: none.
 *  Errors: INVALID_ARGUMENT also for a negative or not finite epsilon. */
KILN_API kiln_tensor kiln_layer_norm(kiln_batch *batch, kiln_tensor x, kiln_tensor scale,
                                     kiln_tensor shift, size_t n_axes, const int *axes,
                                     double epsilon);

/** x / sqrt(mean(x^2) + epsilon) * scale, of x's shape (Zhang and Sennrich 2019). scale broadcasts
 *  to x; it may be {0}: none. Errors: INVALID_ARGUMENT also for a negative or not finite epsilon.
 */
KILN_API kiln_tensor kiln_rms_norm(kiln_batch *batch, kiln_tensor x, kiln_tensor scale,
                                   size_t n_axes, const int *axes, double epsilon);

/** (x - mean) / sqrt(variance + epsilon) * scale + shift, of x's shape, with statistics that are
 *  given (Ioffe and Szegedy 2015): each operand has an element for each channel, that is, for each
 *  position along the axis; scale and shift may be {0}: none. Errors: INVALID_ARGUMENT also for a
 *  negative or not finite epsilon. */
KILN_API kiln_tensor kiln_batch_norm(kiln_batch *batch, kiln_tensor x, kiln_tensor scale,
                                     kiln_tensor shift, kiln_tensor mean, kiln_tensor variance,
                                     int axis, double epsilon);

/** The same with the mean and the population's variance of x itself, over all dimensions but the
 *  axis, through which gradients flow. `mean` and `variance`, each unless NULL, get these (the
 * empty tensor after an error), of which a program keeps running averages for kiln_batch_norm(). */
KILN_API kiln_tensor kiln_batch_norm_train(kiln_batch *batch, kiln_tensor x, kiln_tensor scale,
                                           kiln_tensor shift, int axis, double epsilon,
                                           kiln_tensor *mean, kiln_tensor *variance);

/** Each element of the first dimension, and of it each of so many groups of neighbouring channels,
 *  normalised by its own mean and population's variance (Wu and He 2018); then times scale and plus
 *  shift, an element for each channel, each of which may be {0}: none. Errors: INVALID_ARGUMENT
 * also for channels that do not make up groups, in dimension 0, or an epsilon as above. */
KILN_API kiln_tensor kiln_group_norm(kiln_batch *batch, kiln_tensor x, kiln_tensor scale,
                                     kiln_tensor shift, size_t groups, int axis, double epsilon);

/** The same of groups of one channel (Ulyanov, Vedaldi and Lempitsky 2016). */
KILN_API kiln_tensor kiln_instance_norm(kiln_batch *batch, kiln_tensor x, kiln_tensor scale,
                                        kiln_tensor shift, int axis, double epsilon);

/** x / (bias + alpha / size * s)^beta, s the sum of x^2 over `size` channels around, of them
 *  (size - 1) / 2 before; beyond the ends there are zeros (Krizhevsky, Sutskever and Hinton 2012).
 *  Errors: INVALID_ARGUMENT also for a size of 0 and for a negative or not finite number. */
KILN_API kiln_tensor kiln_local_response_norm(kiln_batch *batch, kiln_tensor x, int axis,
                                              size_t size, double alpha, double beta, double bias);

/** x with pairs (a, b) of its last dimension turned by angles, to (a cos - b sin, b cos + a sin)
 *  (Su et al. 2021). The last dimension of cosine and sine, r at most half of x's, says how many
 *  pairs there are; their others broadcast to x's. Pairs are elements i and i + r, or with
 *  `interleaved` nonzero 2 i and 2 i + 1; what is behind the first 2 r stays. */
KILN_API kiln_tensor kiln_rotary(kiln_batch *batch, kiln_tensor x, kiln_tensor cosine,
                                 kiln_tensor sine, int interleaved);

/** Running sums of x along one axis: element i of the result is the sum of elements 0 to i, or,
 *  with `reverse` nonzero, of i to the last. x has any type; integers are summed as i64, which
 *  wraps around. Errors: INVALID_ARGUMENT for an axis that x has not. */
KILN_API kiln_tensor kiln_cumsum(kiln_batch *batch, kiln_tensor x, int axis, int reverse);

/** As kiln_cumsum() without the element itself: the sum of elements 0 to i - 1, or with `reverse`
 * of i + 1 to the last; 0 where there is none. */
KILN_API kiln_tensor kiln_cumsum_exclusive(kiln_batch *batch, kiln_tensor x, int axis, int reverse);

#ifdef __cplusplus
}
#endif

#endif
