/* SPDX-License-Identifier: Apache-2.0 */
/* Attention in C: blocked with an online softmax, and as two OpenBLAS products with a softmax
 * between. */
#include "peer_attention.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { ROWS = 64, KEYS = 64, LANES = 16, TILE = 4, MOST_DEPTH = 256 };
typedef float vector __attribute__((vector_size(LANES * 4), aligned(4)));

/* c[TILE][64] += a[TILE][depth] b[depth][64], in registers. */
static void multiply_tile(size_t depth, const float *a, size_t a_row, const float *b, size_t b_row,
                          float *c, size_t c_row)
{
    vector sums[TILE][4];
    for (int i = 0; i < TILE; i++)
        for (int v = 0; v < 4; v++)
            sums[i][v] = *(const vector *)(c + (size_t)i * c_row + v * LANES);
    for (size_t l = 0; l < depth; l++)
        for (int v = 0; v < 4; v++) {
            vector line = *(const vector *)(b + l * b_row + v * LANES);
            for (int i = 0; i < TILE; i++)
                sums[i][v] += a[(size_t)i * a_row + l] * line;
        }
    for (int i = 0; i < TILE; i++)
        for (int v = 0; v < 4; v++)
            *(vector *)(c + (size_t)i * c_row + v * LANES) = sums[i][v];
}

/* What a block of rows carries from block to block of keys. */
struct block {
    float keys[MOST_DEPTH * KEYS], weights[ROWS * KEYS], sums[ROWS * MOST_DEPTH];
    float peak[ROWS], total[ROWS];
};

/* One row's scores to weights; its sums so far are scaled down. */
static void weigh(struct block *block, size_t row, size_t d, size_t seen, float scale)
{
    float *weights = block->weights + row * KEYS, *sums = block->sums + row * d;
    float peak = block->peak[row], total = 0;
    for (size_t j = seen; j < KEYS; j++)
        weights[j] = -FLT_MAX;
    for (size_t j = 0; j < KEYS; j++) {
        weights[j] *= scale;
        peak = weights[j] > peak ? weights[j] : peak;
    }
    for (size_t j = 0; j < KEYS; j++) {
        weights[j] = expf(weights[j] - peak);
        total += weights[j];
    }
    float correction = expf(block->peak[row] - peak);
    block->peak[row] = peak;
    block->total[row] = block->total[row] * correction + total;
    for (size_t c = 0; c < d; c++)
        sums[c] *= correction;
}

static void attend_block(const struct peer_attention *attention, const float *q, const float *k,
                         const float *v, size_t row0, float *out, struct block *block)
{
    size_t d = attention->d, n = attention->causal ? row0 + ROWS : attention->n;
    memset(block->sums, 0, ROWS * d * sizeof(float));
    for (size_t i = 0; i < ROWS; i++)
        block->peak[i] = -FLT_MAX, block->total[i] = 0;
    for (size_t key0 = 0; key0 < n && key0 < attention->n; key0 += KEYS) {
        for (size_t j = 0; j < KEYS; j++)
            for (size_t c = 0; c < d; c++)
                block->keys[c * KEYS + j] = k[(key0 + j) * d + c];
        memset(block->weights, 0, sizeof block->weights);
        for (size_t i = 0; i < ROWS; i += TILE)
            multiply_tile(d, q + i * d, d, block->keys, KEYS, block->weights + i * KEYS, KEYS);
        for (size_t i = 0; i < ROWS; i++) {
            size_t seen = attention->causal && row0 + i < key0 + KEYS ? row0 + i - key0 + 1 : KEYS;
            weigh(block, i, d, seen, 1 / sqrtf((float)d));
        }
        for (size_t c = 0; c < d; c += 64)
            for (size_t i = 0; i < ROWS; i += TILE)
                multiply_tile(KEYS, block->weights + i * KEYS, KEYS, v + key0 * d + c, d,
                              block->sums + i * d + c, d);
    }
    for (size_t i = 0; i < ROWS; i++)
        for (size_t c = 0; c < d; c++)
            out[i * d + c] = block->sums[i * d + c] / block->total[i];
}

void peer_attention_blocked(const struct peer_attention *attention, const float *q, const float *k,
                            const float *v, float *out)
{
    size_t d = attention->d, blocks = attention->m / ROWS;
#pragma omp parallel for schedule(dynamic)
    for (size_t i = 0; i < attention->heads * blocks; i++) {
        struct block block;
        size_t head = i / blocks, row0 = (blocks - 1 - i % blocks) * ROWS;
        const float *keys = k + head * attention->n * d, *values = v + head * attention->n * d;
        size_t line = (head * attention->m + row0) * d;
        attend_block(attention, q + line, keys, values, row0, out + line, &block);
    }
}

#ifdef HAVE_OPENBLAS

#include <cblas.h>

bool peer_has_attention_products(void)
{
    return true;
}

static void softmax_row(float *row, size_t seen, size_t n)
{
    float peak = -FLT_MAX, total = 0;
    for (size_t j = 0; j < seen; j++)
        peak = row[j] > peak ? row[j] : peak;
    for (size_t j = 0; j < seen; j++) {
        row[j] = expf(row[j] - peak);
        total += row[j];
    }
    float factor = 1 / total;
    for (size_t j = 0; j < seen; j++)
        row[j] *= factor;
    for (size_t j = seen; j < n; j++)
        row[j] = 0;
}

void peer_attention_products(const struct peer_attention *attention, const float *q, const float *k,
                             const float *v, float *scores, float *out)
{
    size_t m = attention->m, n = attention->n, d = attention->d;
    for (size_t head = 0; head < attention->heads; head++) {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)m, (int)n, (int)d,
                    1 / sqrtf((float)d), q + head * m * d, (int)d, k + head * n * d, (int)d, 0,
                    scores, (int)n);
#pragma omp parallel for
        for (size_t i = 0; i < m; i++)
            softmax_row(scores + i * n, attention->causal ? i + 1 : n, n);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)m, (int)d, (int)n, 1, scores,
                    (int)n, v + head * n * d, (int)d, 0, out + head * m * d, (int)d);
    }
}

#else

bool peer_has_attention_products(void)
{
    return false;
}

void peer_attention_products(const struct peer_attention *attention, const float *q, const float *k,
                             const float *v, float *scores, float *out)
{
    (void)attention, (void)q, (void)k, (void)v, (void)scores, (void)out;
}

#endif
