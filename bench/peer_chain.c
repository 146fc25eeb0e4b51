/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise chains and the STREAM triad as single OpenMP loops. */
#include "peer_chain.h"

#include <math.h>
#if defined __AVX512F__ || defined __AVX__
#include <immintrin.h>
#endif

/* Below this a second thread costs more than it brings. */
#define PARALLEL 32768

static inline float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

static inline float gelu(float x)
{
    return 0.5f * x * (1 + erff(x * 0.70710678f));
}

void peer_chain_1(size_t n, const float *restrict x, const float *other, float *restrict y)
{
    (void)other;
#pragma omp parallel for simd if (parallel : n > PARALLEL)
    for (size_t i = 0; i < n; i++)
        y[i] = fmaxf(x[i], 0);
}

void peer_chain_3(size_t n, const float *restrict x, const float *restrict other, float *restrict y)
{
#pragma omp parallel for simd if (parallel : n > PARALLEL)
    for (size_t i = 0; i < n; i++)
        y[i] = 1.5f * fmaxf(x[i], 0) + other[i];
}

void peer_chain_8(size_t n, const float *restrict x, const float *restrict other, float *restrict y)
{
#pragma omp parallel for simd if (parallel : n > PARALLEL)
    for (size_t i = 0; i < n; i++) {
        float v = fmaxf(1.5f * x[i] + other[i], 0) * other[i];
        y[i] = gelu(tanhf(sigmoid(v))) - other[i];
    }
}

void peer_triad(size_t n, const float *restrict x, const float *restrict other, float *restrict y)
{
#pragma omp parallel for simd if (parallel : n > PARALLEL)
    for (size_t i = 0; i < n; i++)
        y[i] = 1.5f * x[i] + other[i];
}

#if defined __AVX512F__

bool peer_can_stream(void)
{
    return true;
}

/* n is a multiple of 16 and y starts at a cache line. */
void peer_triad_stream(size_t n, const float *x, const float *other, float *y)
{
    const __m512 factor = _mm512_set1_ps(1.5f);
#pragma omp parallel for if (parallel : n > PARALLEL)
    for (size_t i = 0; i < n; i += 16) {
        __m512 sum = _mm512_fmadd_ps(factor, _mm512_loadu_ps(x + i), _mm512_loadu_ps(other + i));
        _mm512_stream_ps(y + i, sum);
    }
}

#elif defined __AVX__

bool peer_can_stream(void)
{
    return true;
}

/* n is a multiple of 8 and y starts at a cache line. */
void peer_triad_stream(size_t n, const float *x, const float *other, float *y)
{
    const __m256 factor = _mm256_set1_ps(1.5f);
#pragma omp parallel for if (parallel : n > PARALLEL)
    for (size_t i = 0; i < n; i += 8) {
        __m256 product = _mm256_mul_ps(factor, _mm256_loadu_ps(x + i));
        _mm256_stream_ps(y + i, _mm256_add_ps(product, _mm256_loadu_ps(other + i)));
    }
}

#else

bool peer_can_stream(void)
{
    return false;
}

void peer_triad_stream(size_t n, const float *x, const float *other, float *y)
{
    peer_triad(n, x, other, y);
}

#endif
