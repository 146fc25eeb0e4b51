/* SPDX-License-Identifier: Apache-2.0 */
/* Sums, means, maxima and variances over rows, columns and everything, as OpenMP loops. */
#include "peer_reduce.h"

#include <float.h>
#include <stdint.h>
#include <string.h>

enum { STRIP = 512 }; /* columns whose sums stay in the first cache */

static float sum_of(size_t n, const float *x)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

static float max_of(size_t n, const float *x)
{
    float most = -FLT_MAX;
#pragma omp simd reduction(max : most)
    for (size_t i = 0; i < n; i++)
        most = x[i] > most ? x[i] : most;
    return most;
}

/* Two passes vectorise where one does not: the value, then where it is. */
static int32_t argmax_of(size_t n, const float *x)
{
    enum { BLOCK = 1024 };
    float most = -FLT_MAX;
    size_t where = 0;
    for (size_t from = 0; from < n; from += BLOCK) {
        size_t count = n - from < BLOCK ? n - from : BLOCK;
        float here = max_of(count, x + from);
        if (here > most) {
            most = here;
            where = from;
        }
    }
    while (x[where] != most)
        where++;
    return (int32_t)where;
}

void peer_sum(const size_t *dims, const float *x, void *y)
{
    float sum = 0;
#pragma omp parallel for simd reduction(+ : sum)
    for (size_t i = 0; i < dims[0]; i++)
        sum += x[i];
    *(float *)y = sum;
}

void peer_mean(const size_t *dims, const float *x, void *y)
{
    peer_sum(dims, x, y);
    *(float *)y /= (float)dims[0];
}

void peer_max(const size_t *dims, const float *x, void *y)
{
    float most = -FLT_MAX;
#pragma omp parallel for simd reduction(max : most)
    for (size_t i = 0; i < dims[0]; i++)
        most = x[i] > most ? x[i] : most;
    *(float *)y = most;
}

void peer_argmax(const size_t *dims, const float *x, void *y)
{
    enum { PARTS = 16 };
    int32_t where[PARTS];
    size_t part = (dims[0] + PARTS - 1) / PARTS, best = 0;
#pragma omp parallel for
    for (size_t p = 0; p < PARTS; p++)
        where[p] = (int32_t)(p * part) +
                   argmax_of(p + 1 < PARTS ? part : dims[0] - p * part, x + p * part);
    for (size_t p = 1; p < PARTS; p++)
        best = x[where[p]] > x[where[best]] ? p : best;
    *(int32_t *)y = where[best];
}

void peer_sum_rows(const size_t *dims, const float *x, void *y)
{
#pragma omp parallel for
    for (size_t row = 0; row < dims[0]; row++)
        ((float *)y)[row] = sum_of(dims[1], x + row * dims[1]);
}

/* Each thread owns a strip of columns and walks it row by row. */
static void sum_wide_columns(size_t rows, size_t columns, const float *x, float *y)
{
#pragma omp parallel for
    for (size_t from = 0; from < columns; from += STRIP) {
        size_t count = columns - from < STRIP ? columns - from : STRIP;
        float sums[STRIP] = {0};
        for (size_t row = 0; row < rows; row++)
            for (size_t i = 0; i < count; i++)
                sums[i] += x[row * columns + from + i];
        memcpy(y + from, sums, count * sizeof *sums);
    }
}

/* Each thread owns a part of the rows. */
static void sum_narrow_columns(size_t rows, size_t columns, const float *x, float *y)
{
    float sums[STRIP] = {0};
#pragma omp parallel for reduction(+ : sums[:columns])
    for (size_t row = 0; row < rows; row++)
        for (size_t i = 0; i < columns; i++)
            sums[i] += x[row * columns + i];
    memcpy(y, sums, columns * sizeof *sums);
}

void peer_sum_columns(const size_t *dims, const float *x, void *y)
{
    (dims[1] > STRIP ? sum_wide_columns : sum_narrow_columns)(dims[0], dims[1], x, y);
}

void peer_max_rows(const size_t *dims, const float *x, void *y)
{
#pragma omp parallel for
    for (size_t row = 0; row < dims[0]; row++)
        ((float *)y)[row] = max_of(dims[1], x + row * dims[1]);
}

void peer_argmax_rows(const size_t *dims, const float *x, void *y)
{
#pragma omp parallel for
    for (size_t row = 0; row < dims[0]; row++)
        ((int32_t *)y)[row] = argmax_of(dims[1], x + row * dims[1]);
}

void peer_mean_outer_inner(const size_t *dims, const float *x, void *y)
{
    float scale = 1 / (float)(dims[0] * dims[2]);
#pragma omp parallel for
    for (size_t row = 0; row < dims[1]; row++) {
        float sum = 0;
        for (size_t outer = 0; outer < dims[0]; outer++)
            sum += sum_of(dims[2], x + (outer * dims[1] + row) * dims[2]);
        ((float *)y)[row] = sum * scale;
    }
}
