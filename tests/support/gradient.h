/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients against finite differences, both evaluated by the reference in double precision: no
 * device. Batches may be imagined ones. */
#pragma once

#include "check.h"

/* Record the loss sum(y * w), w fixed numbers around 1, and its gradient by each of n uploads;
 * expect each element within `tolerance` (relative to the largest of that gradient, at least 1) of
 * a five-point difference. The uploads' content is first moved to the middles of a grid of 2^-8,
 * so that no difference crosses a kink at a multiple of it. `out` (may be NULL) receives the
 * gradients. Returns the loss. */
kiln_tensor check_gradient(kiln_batch *batch, kiln_tensor y, size_t n, const kiln_tensor *inputs,
                           double tolerance, kiln_tensor *out);

#define GRADIENT_TOLERANCE 1e-6

/* The same with this tolerance. Ends the batch. */
void expect_gradient(kiln_batch *batch, kiln_tensor y, size_t n, const kiln_tensor *inputs);

/* A gradient of `count` zeros. */
void expect_zeros(kiln_batch *batch, kiln_tensor gradient, size_t count);

/* The elements of any tensor of the batch, by the reference; freed with free(). */
double *check_values(const kiln_batch *batch, kiln_tensor tensor);

/* The sum of its elements i, each times i * 3 % 17 + 1: one number that tells them apart. */
double check_sum(const kiln_batch *batch, kiln_tensor tensor);
