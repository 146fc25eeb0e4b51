/* SPDX-License-Identifier: Apache-2.0 */
/* A product of numbers that the host has and weights in a buffer. */
#pragma once

#include <kiln/kiln.h>

struct product_size {
    size_t m, k, n;
};

/* y[m, n] = a[m, k] b[k, n], by plain loops. */
void multiply_plainly(const struct product_size *size, const float *a, const float *b, float *y);

/* The same recorded, b in a buffer, read to y; the caller's to release. */
kiln_batch *record_product(kiln_context *context, const struct product_size *size, const float *a,
                           kiln_buffer *b, float *y);
