/* SPDX-License-Identifier: Apache-2.0 */
/* Layers of networks as one would write them with OpenBLAS: the product, then a loop over its
 * elements; a convolution as a product of its windows. */
#pragma once

#include <stddef.h>

/* y = gelu(x + bias), in place, bias along rows of n. */
void peer_bias_gelu(size_t rows, size_t n, const float *bias, float *y);

/* The windows of `size` by `size` of images [count][edge][edge][channels] with zeros around them,
 * as rows of size * size * channels, one for each pixel. */
void peer_windows(size_t count, size_t edge, size_t channels, size_t size, const float *x,
                  float *rows);
