/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scaled dot-product attention of few queries in float for CPUs, such as a decoder's, as
 * attention_cpu.cl; but vectors run along the columns of keys and values.
 *
 * An item owns all ROWS queries of a matrix, or with PARTED 1 a part of its keys: kernels/
 * attention_join.cl puts the parts together. Scores of VECTOR keys are sums of each key's products,
 * which a transposition brings side by side.
 *
 *     args    those of attention_cpu.cl, m called rows; behind out_row PARTED 1: parts,
 *             parts_offset, part_keys
 *     global  parts, product of the leading sizes, 1                        local  1, 1, 1
 * Columns of k and v lie next to each other; d and e are multiples of VECTOR, at most DEPTH and
 * WIDTH, and e of COLUMNS * VECTOR. ROWS is `rows`. A part starts every part_keys keys.
 */
#ifndef VECTOR
#define VECTOR 16
#endif
#ifndef ROWS
#define ROWS 4
#endif
#ifndef COLUMNS
#define COLUMNS 2
#endif
#ifndef DEPTH
#define DEPTH 64
#endif
#ifndef WIDTH
#define WIDTH 64
#endif
#ifndef MASK
#define MASK 0
#endif
#ifndef RUNS
#define RUNS 1
#endif
#ifndef PARTED
#define PARTED 0
#endif

#define BLOCK_KEYS 64
#define TILE_KEYS 4
#include "cpu_vector.h"
#include "attention.h"
#include "attention_cpu.h"
#include "attention_parts.h"

#ifdef OPERAND_B
#define KEYS_VECTOR(at) READ_K_VECTOR(at)
#else
#define KEYS_VECTOR(at) LOAD(0, __global, at)
#endif
#ifdef OPERAND_C
#define VALUES_VECTOR(at) READ_V_VECTOR(at)
#else
#define VALUES_VECTOR(at) LOAD(0, __global, at)
#endif

INLINE void pack_queries(__global const OPERAND_A_TYPE *q, long row, long column, int d,
                         float scale, float *queries)
{
    PLAIN_LOOP
    for (int r = 0; r < ROWS; r++) {
        PLAIN_LOOP
        for (int c = 0; c < d; c++)
            queries[r * DEPTH + c] = READ_Q(q + r * row + c * column) * scale;
    }
}

/* Of TILE_KEYS keys, at `start`, and each query: what is to be added up, [ROWS][VECTOR] vectors. */
INLINE void multiply_keys(const float *queries, __global const OPERAND_B_TYPE *k,
                          const long start[TILE_KEYS], int d, float *products)
{
    vector sums[ROWS][TILE_KEYS];
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int i = 0; i < TILE_KEYS; i++)
            sums[r][i] = (vector)(0.0f);
    PLAIN_LOOP
    for (int c = 0; c < d; c += VECTOR) {
        vector key[TILE_KEYS];
#pragma unroll
        for (int i = 0; i < TILE_KEYS; i++)
            key[i] = KEYS_VECTOR(k + start[i] + c);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const vector query = LOAD(0, __private, queries + r * DEPTH + c);
#pragma unroll
            for (int i = 0; i < TILE_KEYS; i++)
                sums[r][i] = fma(query, key[i], sums[r][i]);
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int i = 0; i < TILE_KEYS; i++)
            STORE(sums[r][i], r * VECTOR + i, __private, products);
}

/* Scores [ROWS][BLOCK_KEYS] of VECTOR keys; past the last it reads that one again. */
INLINE void score_keys(const float *queries, __global const OPERAND_B_TYPE *k, long row, int d,
                       int keys, float *scores)
{
    float products[ROWS * VECTOR * VECTOR];
    PLAIN_LOOP
    for (int j = 0; j < VECTOR; j += TILE_KEYS) {
        long start[TILE_KEYS];
#pragma unroll
        for (int i = 0; i < TILE_KEYS; i++)
            start[i] = min(j + i, keys - 1) * row;
        multiply_keys(queries, k, start, d, products + j * VECTOR);
    }
    PLAIN_LOOP
    for (int r = 0; r < ROWS; r++) {
        vector square[VECTOR];
#pragma unroll
        for (int i = 0; i < VECTOR; i++)
            square[i] = LOAD(r * VECTOR + i, __private, products);
        transpose_square(square);
#pragma unroll
        for (int apart = VECTOR / 2; apart > 0; apart /= 2)
#pragma unroll
            for (int i = 0; i < apart; i++)
                square[i] += square[i + apart];
        STORE(square[0], 0, __private, scores + r * BLOCK_KEYS);
    }
}

/* Keys past the last, and those that a row does not see. reach: how many of the block row 0 sees. */
INLINE void hide_keys(float *scores, int keys, long reach)
{
    const int end = (keys + VECTOR - 1) / VECTOR * VECTOR;
    PLAIN_LOOP
    for (int r = 0; r < ROWS; r++) {
        PLAIN_LOOP
        for (int j = (int)clamp(reach + r, 0L, (long)keys); j < end; j++)
            scores[r * BLOCK_KEYS + j] = -INFINITY;
    }
}

#if WINDOW
/* Keys before each row's window. earliest: the first that row 0 sees, in the block. */
INLINE void hide_earlier_keys(float *scores, int keys, long earliest)
{
    PLAIN_LOOP
    for (int r = 0; r < ROWS; r++) {
        const int end = (int)clamp(EARLIEST(r), 0L, (long)keys);
        PLAIN_LOOP
        for (int j = 0; j < end; j++)
            scores[r * BLOCK_KEYS + j] = -INFINITY;
    }
}
#endif

#if MASK
INLINE void add_mask(float *scores, __global const OPERAND_D_TYPE *mask, long row, long column,
                     int keys)
{
    PLAIN_LOOP
    for (int r = 0; r < ROWS; r++) {
        PLAIN_LOOP
        for (int j = 0; j < keys; j++) {
            const float bias = BIAS(READ_MASK(mask + r * row + j * column));
            const float score = scores[r * BLOCK_KEYS + j];
            scores[r * BLOCK_KEYS + j] = bias == -INFINITY ? bias : score + bias;
        }
    }
}
#endif

/* A row's scores to weights, relative to the largest score so far; what sums so far are to be
 * multiplied by. */
INLINE float weigh(float *scores, int keys, float *peak, float *total)
{
    vector most = (vector)(*peak), sum = (vector)(0.0f);
    PLAIN_LOOP
    for (int j = 0; j < keys; j += VECTOR) {
        const vector score = LOAD(0, __private, scores + j);
        most = score > most ? score : most;
    }
    float lanes[VECTOR], top = *peak;
    STORE(most, 0, __private, lanes);
#pragma unroll
    for (int i = 0; i < VECTOR; i++)
        top = lanes[i] > top ? lanes[i] : top;
    const float base = top == -INFINITY ? 0.0f : top;
    PLAIN_LOOP
    for (int j = 0; j < keys; j += VECTOR) {
        const vector weight = power_of_two(LOAD(0, __private, scores + j) - base);
        sum += weight;
        STORE(weight, 0, __private, scores + j);
    }
    STORE(sum, 0, __private, lanes);
#pragma unroll
    for (int apart = VECTOR / 2; apart > 0; apart /= 2)
#pragma unroll
        for (int i = 0; i < apart; i++)
            lanes[i] += lanes[i + apart];
    const float correction = ((vector)power_of_two((vector)(*peak - base))).s0;
    *total = *total * correction + lanes[0];
    *peak = top;
    return correction;
}

/* Weights times COLUMNS vectors of values, added to results [ROWS][WIDTH]. */
INLINE void add_values(const float *weights, __global const OPERAND_C_TYPE *values, long row,
                       int keys, const float correction[ROWS], float *results)
{
    vector sums[ROWS][COLUMNS];
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
            sums[r][c] = LOAD(c, __private, results + r * WIDTH) * correction[r];
    PLAIN_LOOP
    for (int j = 0; j < keys; j++) {
        vector value[COLUMNS];
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
            value[c] = VALUES_VECTOR(values + j * row + c * VECTOR);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int c = 0; c < COLUMNS; c++)
                sums[r][c] = fma((vector)(weights[r * BLOCK_KEYS + j]), value[c], sums[r][c]);
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
            STORE(sums[r][c], c, __private, results + r * WIDTH);
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
attention_cpu_few(__global const OPERAND_A_TYPE *restrict q,
                  __global const OPERAND_B_TYPE *restrict k,
                  __global const OPERAND_C_TYPE *restrict v, __global float *restrict out, long rows,
                  long n, long d, long e, float scale, long diagonal, long q_offset, long q_row,
                  long q_column, long k_offset, long k_row, long k_column, long v_offset,
                  long v_row, long v_column, long out_offset, long out_row
#if PARTED
                  ,
                  __global float *restrict parts, long parts_offset, long part_keys
#endif
#if MASK
                  ,
                  __global const OPERAND_D_TYPE *restrict mask, long mask_offset, long mask_row,
                  long mask_column
#endif
#if LENGTHS
                  ,
                  __global const length_type *restrict lengths, long lengths_offset
#endif
#if WINDOW
                  ,
                  long earliest
#endif
                  PASTE(TO_, RUNS)(RUN))
{
    float queries[ROWS * DEPTH], scores[ROWS * BLOCK_KEYS], results[ROWS * WIDTH];
    float peak[ROWS], total[ROWS], correction[ROWS];
    long rest = get_group_id(1), first_mask = 0, first_length = 0;

    out += out_offset;
    q += q_offset;
    k += k_offset;
    v += v_offset;
    PASTE(TO_, RUNS)(ENTER)
    COUNT_KEYS
#if MASK
    mask += mask_offset + first_mask;
#endif
#if PARTED
    const long first = get_group_id(0) * part_keys;
    const long seen = min(min(n, ROWS + diagonal), first + part_keys);
    parts += parts_offset +
             (get_group_id(1) * get_num_groups(0) + get_group_id(0)) * ROWS * PART_COLUMNS(e);
#else
    const long first = 0, seen = min(n, ROWS + diagonal);
#endif
#if WINDOW
    const long from = max(first, EARLIEST(0) - max(EARLIEST(0), 0L) % BLOCK_KEYS);
#else
    const long from = first;
#endif
    pack_queries(q, q_row, q_column, d, scale, queries);
    PLAIN_LOOP
    for (int r = 0; r < ROWS; r++) {
        peak[r] = -INFINITY;
        total[r] = 0.0f;
        PLAIN_LOOP
        for (int c = 0; c < WIDTH; c++)
            results[r * WIDTH + c] = 0.0f;
    }

    for (long key0 = from; key0 < seen; key0 += BLOCK_KEYS) {
        const int keys = min((long)BLOCK_KEYS, seen - key0);
        PLAIN_LOOP
        for (int j = 0; j < keys; j += VECTOR)
            score_keys(queries, k + (key0 + j) * k_row, k_row, d, keys - j, scores + j);
#if MASK
        add_mask(scores, mask + key0 * mask_column, mask_row, mask_column, keys);
#endif
        hide_keys(scores, keys, diagonal + 1 - key0);
#if WINDOW
        hide_earlier_keys(scores, keys, earliest - key0);
#endif
        PLAIN_LOOP
        for (int r = 0; r < ROWS; r++)
            correction[r] = weigh(scores + r * BLOCK_KEYS, keys, &peak[r], &total[r]);
        PLAIN_LOOP
        for (int c = 0; c < e; c += COLUMNS * VECTOR)
            add_values(scores, v + key0 * v_row + c, v_row, keys, correction, results + c);
    }
    PLAIN_LOOP
    for (int r = 0; r < ROWS; r++) {
#if PARTED
        __global float *to = parts + r * PART_COLUMNS(e);
        const float factor = 1.0f;
        to[PART_PEAK(e)] = peak[r];
        to[PART_TOTAL(e)] = total[r];
#else
        __global float *to = out + r * out_row;
        const float factor = total[r] == 0.0f ? 0.0f : 1.0f / total[r];
#endif
        PLAIN_LOOP
        for (int c = 0; c < e; c += VECTOR)
            STORE(LOAD(0, __private, results + r * WIDTH + c) * factor, 0, __global, to + c);
    }
}
