/* SPDX-License-Identifier: Apache-2.0 */
/* Peak read and copy bandwidth and peak additions of the host in OpenMP loops. */
#include "peer_limit.h"

#include <string.h>

#include "peer_chain.h"

#define PARALLEL 20000
#define LANES 16
#define CHAINS 12

typedef float lanes __attribute__((vector_size(4 * LANES)));

static volatile float sink;

void peer_limit_read(size_t n, const float *x)
{
    float sum = 0;
#pragma omp parallel for simd reduction(+ : sum) if (parallel : n > PARALLEL)
    for (size_t i = 0; i < n; i++)
        sum += x[i];
    sink = sum;
}

/* The triad with one operand for both moves the same bytes as a copy. */
void peer_limit_copy(size_t n, const float *x, float *y)
{
    peer_triad_stream(n, x, x, y);
}

static float chain(float start)
{
    lanes a[CHAINS], factor = {0}, sum = {0};
    factor += start;
    for (int i = 0; i < CHAINS; i++)
        a[i] = factor + (float)i;
    for (int step = 0; step < PEER_LIMIT_STEPS; step++)
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++)
            a[i] = a[i] * factor + factor;
    for (int i = 0; i < CHAINS; i++)
        sum += a[i];
    return sum[0] + sum[LANES - 1];
}

void peer_limit_adds(size_t items)
{
    float sum = 0;
#pragma omp parallel for reduction(+ : sum)
    for (size_t i = 0; i < items; i++)
        sum += chain((float)i * 1e-9f);
    sink = sum;
}
