/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax and norms of rows as OpenMP loops. */
#include "peer_rows.h"

#include <float.h>
#include <math.h>

static float max_of(size_t n, const float *x)
{
    float most = -FLT_MAX;
#pragma omp simd reduction(max : most)
    for (size_t i = 0; i < n; i++)
        most = x[i] > most ? x[i] : most;
    return most;
}

void peer_softmax(size_t rows, size_t columns, const float *x, const float *scale,
                  const float *shift, float *y)
{
    (void)scale, (void)shift;
#pragma omp parallel for
    for (size_t row = 0; row < rows; row++) {
        const float *from = x + row * columns;
        float *to = y + row * columns, most = max_of(columns, from), sum = 0;
#pragma omp simd reduction(+ : sum)
        for (size_t i = 0; i < columns; i++)
            sum += to[i] = expf(from[i] - most);
        for (size_t i = 0; i < columns; i++)
            to[i] *= 1 / sum;
    }
}

void peer_log_softmax(size_t rows, size_t columns, const float *x, const float *scale,
                      const float *shift, float *y)
{
    (void)scale, (void)shift;
#pragma omp parallel for
    for (size_t row = 0; row < rows; row++) {
        const float *from = x + row * columns;
        float *to = y + row * columns, most = max_of(columns, from), sum = 0;
#pragma omp simd reduction(+ : sum)
        for (size_t i = 0; i < columns; i++)
            sum += expf(from[i] - most);
        float top = most + logf(sum);
        for (size_t i = 0; i < columns; i++)
            to[i] = from[i] - top;
    }
}

void peer_layer_norm(size_t rows, size_t columns, const float *x, const float *scale,
                     const float *shift, float *y)
{
#pragma omp parallel for
    for (size_t row = 0; row < rows; row++) {
        const float *from = x + row * columns;
        float *to = y + row * columns, sum = 0, square = 0;
#pragma omp simd reduction(+ : sum)
        for (size_t i = 0; i < columns; i++)
            sum += from[i];
        float mean = sum / (float)columns;
#pragma omp simd reduction(+ : square)
        for (size_t i = 0; i < columns; i++)
            square += (from[i] - mean) * (from[i] - mean);
        float by = 1 / sqrtf(square / (float)columns + 1e-5f);
        for (size_t i = 0; i < columns; i++)
            to[i] = (from[i] - mean) * by * scale[i] + shift[i];
    }
}

void peer_rms_norm(size_t rows, size_t columns, const float *x, const float *scale,
                   const float *shift, float *y)
{
    (void)scale, (void)shift;
#pragma omp parallel for
    for (size_t row = 0; row < rows; row++) {
        const float *from = x + row * columns;
        float *to = y + row * columns, square = 0;
#pragma omp simd reduction(+ : square)
        for (size_t i = 0; i < columns; i++)
            square += from[i] * from[i];
        float by = 1 / sqrtf(square / (float)columns + 1e-5f);
        for (size_t i = 0; i < columns; i++)
            to[i] = from[i] * by;
    }
}
