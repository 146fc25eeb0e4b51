/* SPDX-License-Identifier: Apache-2.0 */
/* What one writes in C with OpenMP instead: rows of x to rows of y. */
#pragma once

#include <stddef.h>

/* scale and shift, of one element per column, are used by layer_norm alone. */
typedef void peer_of_rows(size_t rows, size_t columns, const float *x, const float *scale,
                          const float *shift, float *y);

peer_of_rows peer_softmax, peer_log_softmax, peer_layer_norm, peer_rms_norm;
