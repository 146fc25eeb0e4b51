/* SPDX-License-Identifier: Apache-2.0 */
/* A dense layer with bias and GELU, and im2col, around OpenBLAS products. */
#include "peer_layer.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

void peer_bias_gelu(size_t rows, size_t n, const float *restrict bias, float *restrict y)
{
#pragma omp parallel for
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < n; j++) {
            float v = y[i * n + j] + bias[j];
            y[i * n + j] = 0.5f * v * (1 + erff(v * 0.70710678f));
        }
    }
}

/* One row of a window: the pixels from `column` on, of which some lie outside. */
static void copy_line(size_t edge, size_t channels, size_t size, const float *image, int64_t row,
                      int64_t column, float *line)
{
    for (size_t v = 0; v < size; v++) {
        int64_t at = column + (int64_t)v;
        bool inside = row >= 0 && row < (int64_t)edge && at >= 0 && at < (int64_t)edge;
        if (inside)
            memcpy(line + v * channels, image + ((size_t)row * edge + (size_t)at) * channels,
                   channels * sizeof *line);
        else
            memset(line + v * channels, 0, channels * sizeof *line);
    }
}

void peer_windows(size_t count, size_t edge, size_t channels, size_t size, const float *restrict x,
                  float *restrict rows)
{
    size_t line = size * channels;
    int64_t half = (int64_t)size / 2;
#pragma omp parallel for
    for (size_t p = 0; p < count * edge * edge; p++) {
        const float *image = x + p / (edge * edge) * edge * edge * channels;
        int64_t i = (int64_t)(p / edge % edge), j = (int64_t)(p % edge);
        for (size_t u = 0; u < size; u++)
            copy_line(edge, channels, size, image, i + (int64_t)u - half, j - half,
                      rows + p * size * line + u * line);
    }
}
