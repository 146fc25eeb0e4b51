/* SPDX-License-Identifier: Apache-2.0 */
/* What bench/libraries checks every way against: the operations in double precision, from their
 * definitions. Inputs and results lie one after the other, row-major, in the order of the row. */
#pragma once

#include "process.h"

typedef void reference(const struct process_shape *shapes, const float *const *in, double *out);

reference reference_chain, reference_sum, reference_row_sums, reference_column_sums,
    reference_transpose, reference_softmax, reference_layer_norm, reference_linear_gelu,
    reference_conv, reference_attention, reference_matmul, reference_training_step;
