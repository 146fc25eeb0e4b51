/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  The eager way: upload, one operation, read back, wait. Each call is a batch of its own, so a
 *  chain of them moves every intermediate through the host; record a batch where that matters.
 *
 *  For all of them: f32, row-major, host memory; the output must not overlap an input unless it is
 *  the same array; any thread; errors: INVALID_ARGUMENT, TOO_LARGE and those of
 *  kiln_batch_execute(), with the sentence in kiln_last_error(). */
#ifndef KILN_NOW_H
#define KILN_NOW_H

#include <kiln/status.h>
#include <kiln/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** y[i] = max(x[i], 0) for n elements. */
KILN_API KILN_MUST_CHECK kiln_status kiln_now_relu(kiln_context *context, size_t n, const float *x,
                                                   float *y);
/** y[i] = factor * x[i]. */
KILN_API KILN_MUST_CHECK kiln_status kiln_now_scale(kiln_context *context, size_t n, const float *x,
                                                    double factor, float *y);
/** y[i] = a[i] + b[i]. */
KILN_API KILN_MUST_CHECK kiln_status kiln_now_add(kiln_context *context, size_t n, const float *a,
                                                  const float *b, float *y);
/** y[i] = a[i] - b[i]. */
KILN_API KILN_MUST_CHECK kiln_status kiln_now_sub(kiln_context *context, size_t n, const float *a,
                                                  const float *b, float *y);
/** y[i] = a[i] * b[i]. */
KILN_API KILN_MUST_CHECK kiln_status kiln_now_mul(kiln_context *context, size_t n, const float *a,
                                                  const float *b, float *y);
/** y[i] = a[i] / b[i]. */
KILN_API KILN_MUST_CHECK kiln_status kiln_now_div(kiln_context *context, size_t n, const float *a,
                                                  const float *b, float *y);
/** *y = sum of a[i] * b[i]. */
KILN_API KILN_MUST_CHECK kiln_status kiln_now_dot(kiln_context *context, size_t n, const float *a,
                                                  const float *b, float *y);
/** y[i] = 1 / (1 + exp(-x[i])). */
KILN_API KILN_MUST_CHECK kiln_status kiln_now_sigmoid(kiln_context *context, size_t n,
                                                      const float *x, float *y);
/** y[i] = tanh(x[i]). */
KILN_API KILN_MUST_CHECK kiln_status kiln_now_tanh(kiln_context *context, size_t n, const float *x,
                                                   float *y);
/** y[i] = x[i] * sigmoid(x[i]). */
KILN_API KILN_MUST_CHECK kiln_status kiln_now_swish(kiln_context *context, size_t n, const float *x,
                                                    float *y);
/** y[i] = x[i] * Phi(x[i]), Phi the normal distribution function. */
KILN_API KILN_MUST_CHECK kiln_status kiln_now_gelu(kiln_context *context, size_t n, const float *x,
                                                   float *y);
/** c[m][n] = a[m][k] * b[k][n], all row-major. */
KILN_API KILN_MUST_CHECK kiln_status kiln_now_matmul(kiln_context *context, size_t m, size_t n,
                                                     size_t k, const float *a, const float *b,
                                                     float *c);

#ifdef __cplusplus
}
#endif

#endif
