/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scaled dot-product attention in float for CPUs, without the matrix of scores.
 *
 * An item owns ROWS rows of queries, one in each lane of ROW_VECTORS vectors. Queries are packed
 * once as [d][ROWS]. Keys come BLOCK_KEYS at a time: their scores [key][ROWS] become weights in
 * place, without a sum across lanes, and weights times values are added to results [e][ROWS]. Keys
 * and values are read where they are. Sums so far are scaled down when a block has a larger score
 * (Milakov and Gimelshein 2018); scores are in units of log 2, so that weights are powers of two.
 *
 *     args    q, k, v, out, m, n, d, e, scale (times log2(e), float), diagonal, q_offset, q_row,
 *             q_column, k_offset, k_row, k_column, v_offset, v_row, v_column, out_offset,
 *             out_row
 *             MASK 1 (u8), 2 (f32): mask, mask_offset, mask_row, mask_column
 *             LENGTHS 1 (i32), 2 (i64), 3 (i8): lengths, lengths_offset
 *             WINDOW 1 (causal), 2: earliest, the first key that row 0 sees (attention.h)
 *             for each of the RUNS leading dimensions, innermost first: its size, and its stride in
 *             q, k, v, out and, if there are some, the mask and the lengths
 *     global  ceil(m / ROWS), product of the leading sizes, 1               local  1, 1, 1
 *     ROWS = ROW_VECTORS * VECTOR. Row i sees keys 0 to i + diagonal; n if all: every one. Lengths,
 *     an element for each matrix, stand in for n, and are added to the diagonal.
 * Offsets and strides count elements; integer arguments are long. Any strides are right; fast is a
 * column stride of 1, which out has. DEPTH and WIDTH are at least d and e, WIDTH a multiple of
 * TILE_VALUES and VECTOR, BLOCK_KEYS of TILE_KEYS. Local memory: (DEPTH + BLOCK_KEYS + WIDTH) * ROWS * 4
 * bytes.
 */
#ifndef VECTOR
#define VECTOR 16
#endif
#ifndef ROW_VECTORS
#define ROW_VECTORS 4
#endif
#ifndef TILE_KEYS
#define TILE_KEYS 4
#endif
#ifndef TILE_VALUES
#define TILE_VALUES 4
#endif
#ifndef BLOCK_KEYS
#define BLOCK_KEYS 64
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

#define ROWS (ROW_VECTORS * VECTOR)
#include "cpu_vector.h"
#include "attention.h"
#include "attention_cpu.h"

/* Queries as [d][ROWS], scaled; past the last row that one again. */
INLINE void pack_queries(__global const OPERAND_A_TYPE *q, long row, long column, int d, int rows,
                         float scale, __local float *packed)
{
    int c = 0;
    for (; column == 1 && c + VECTOR <= d; c += VECTOR) {
        PLAIN_LOOP
        for (int v = 0; v < ROW_VECTORS; v++) {
            vector square[VECTOR];
#pragma unroll
            for (int i = 0; i < VECTOR; i++)
                square[i] = READ_Q_VECTOR(q + min(v * VECTOR + i, rows - 1) * row + c) * scale;
            transpose_square(square);
#pragma unroll
            for (int i = 0; i < VECTOR; i++)
                STORE(square[i], v, __local, packed + (c + i) * ROWS);
        }
    }
    PLAIN_LOOP
    for (; c < d; c++) {
        PLAIN_LOOP
        for (int i = 0; i < ROWS; i++)
            packed[c * ROWS + i] = READ_Q(q + min(i, rows - 1) * row + c * column) * scale;
    }
}

/* What is read again for each vector of rows is converted once: elements of TILE_KEYS keys ... */
#ifdef OPERAND_B
INLINE void convert_keys(__global const OPERAND_B_TYPE *k, const long start[TILE_KEYS], long column,
                         int columns, float *converted)
{
    PLAIN_LOOP
    for (int i = 0; i < TILE_KEYS; i++) {
        if (column == 1 && columns >= VECTOR) {
            STORE(READ_K_VECTOR(k + start[i]), i, __private, converted);
            continue;
        }
        PLAIN_LOOP
        for (int c = 0; c < min(columns, VECTOR); c++)
            converted[i * VECTOR + c] = READ_K(k + start[i] + c * column);
    }
}
#define KEY(i, c) converted[(i) * VECTOR + (c) % VECTOR]
#else
#define KEY(i, c) k[start[i] + (c) * column]
#endif

/* ... and VECTOR columns of a block's values. */
#ifdef OPERAND_C
INLINE void convert_values(__global const OPERAND_C_TYPE *values, long row, long column,
                           int columns, int keys, float *converted)
{
    PLAIN_LOOP
    for (int j = 0; j < keys; j++) {
        if (column == 1 && columns >= VECTOR) {
            STORE(READ_V_VECTOR(values + j * row), j, __private, converted);
            continue;
        }
        PLAIN_LOOP
        for (int c = 0; c < min(columns, VECTOR); c++)
            converted[j * VECTOR + c] = READ_V(values + j * row + c * column);
    }
}
#define VALUE_SPACE __private
#else
#define VALUE_SPACE __global
#endif

/* Scores [key][ROWS] of TILE_KEYS keys; past the last it reads that one again. */
INLINE void score_tile(__local const float *queries, __global const OPERAND_B_TYPE *k, long row,
                       long column, int d, int keys, __local float *scores)
{
    vector sums[TILE_KEYS][ROW_VECTORS];
    long start[TILE_KEYS];
#pragma unroll
    for (int i = 0; i < TILE_KEYS; i++) {
        start[i] = min(i, keys - 1) * row;
#pragma unroll
        for (int v = 0; v < ROW_VECTORS; v++)
            sums[i][v] = (vector)(0.0f);
    }
#ifdef OPERAND_B
    float converted[TILE_KEYS * VECTOR];
#endif
#pragma unroll 2
    for (int c = 0; c < d; c++) {
#ifdef OPERAND_B
        if (c % VECTOR == 0)
            convert_keys(k + c * column, start, column, d - c, converted);
#endif
        vector line[ROW_VECTORS];
#pragma unroll
        for (int v = 0; v < ROW_VECTORS; v++)
            line[v] = LOAD(v, __local, queries + c * ROWS);
#pragma unroll
        for (int i = 0; i < TILE_KEYS; i++) {
            const vector factor = (vector)(KEY(i, c));
#pragma unroll
            for (int v = 0; v < ROW_VECTORS; v++)
                sums[i][v] = fma(factor, line[v], sums[i][v]);
        }
    }
#pragma unroll
    for (int i = 0; i < TILE_KEYS; i++) {
#pragma unroll
        for (int v = 0; v < ROW_VECTORS; v++)
            STORE(sums[i][v], v, __local, scores + i * ROWS);
    }
}

/* Rows that do not see a key get -INFINITY. first_row: of those that see the block's first key, as
 * a lane's number. */
INLINE void hide_later_keys(__local float *scores, int keys, long first_row)
{
    integers lane;
#pragma unroll
    for (int i = 0; i < VECTOR; i++)
        ((int *)&lane)[i] = i;
    PLAIN_LOOP
    for (int j = 0; j < keys; j++) {
        const int first = clamp(first_row + j, 0L, (long)ROWS);
#pragma unroll
        for (int v = 0; v < ROW_VECTORS; v++) {
            const vector score = LOAD(v, __local, scores + j * ROWS);
            STORE(lane + v * VECTOR < first ? (vector)(-INFINITY) : score, v, __local,
                  scores + j * ROWS);
        }
    }
}

#if WINDOW
/* Rows whose window begins behind a key get -INFINITY. earliest: the first that lane 0 sees, in the
 * block. */
INLINE void hide_earlier_keys(__local float *scores, int keys, long earliest)
{
    for (int j = 0; j < keys; j++) {
        PLAIN_LOOP
        for (int r = 0; r < ROWS; r++)
            if (j < EARLIEST(r))
                scores[j * ROWS + r] = -INFINITY;
    }
}
#endif

#if MASK
INLINE void add_mask(__local float *scores, __global const OPERAND_D_TYPE *mask, long row, long column,
                     int rows, int keys)
{
    PLAIN_LOOP
    for (int j = 0; j < keys; j++) {
        if (row == 0) { /* one for all rows */
            const vector bias = (vector)(BIAS(READ_MASK(mask + j * column)));
#pragma unroll
            for (int v = 0; v < ROW_VECTORS; v++) {
                const vector score = LOAD(v, __local, scores + j * ROWS);
                STORE(bias == -INFINITY ? bias : score + bias, v, __local, scores + j * ROWS);
            }
            continue;
        }
        PLAIN_LOOP
        for (int i = 0; i < rows; i++) {
            const float bias = BIAS(READ_MASK(mask + i * row + j * column));
            const float score = scores[j * ROWS + i];
            scores[j * ROWS + i] = bias == -INFINITY ? bias : score + bias;
        }
    }
}
#endif

/* Scores to weights, relative to the largest score so far; what has been added up before is to be
 * multiplied by `correction`. */
INLINE void weigh(__local float *scores, int keys, vector peak[ROW_VECTORS],
                  vector total[ROW_VECTORS], vector correction[ROW_VECTORS])
{
    vector base[ROW_VECTORS];
#pragma unroll
    for (int v = 0; v < ROW_VECTORS; v++)
        base[v] = peak[v];
    for (int j = 0; j < keys; j++) {
#pragma unroll
        for (int v = 0; v < ROW_VECTORS; v++) {
            const vector score = LOAD(v, __local, scores + j * ROWS);
            base[v] = score > base[v] ? score : base[v];
        }
    }
#pragma unroll
    for (int v = 0; v < ROW_VECTORS; v++) {
        const vector old = peak[v];
        peak[v] = base[v];
        base[v] = base[v] == -INFINITY ? (vector)(0.0f) : base[v];
        correction[v] = power_of_two(old - base[v]);
        total[v] *= correction[v];
    }
    for (int j = 0; j < keys; j++) {
#pragma unroll
        for (int v = 0; v < ROW_VECTORS; v++) {
            const vector weight = power_of_two(LOAD(v, __local, scores + j * ROWS) - base[v]);
            total[v] += weight;
            STORE(weight, v, __local, scores + j * ROWS);
        }
    }
}

/* Weights times TILE_VALUES columns of values, added to [e][ROWS]. */
INLINE void add_values_tile(__local const float *weights, VALUE_SPACE const float *values,
                            long row, long column, int columns, int keys, vector correction[ROW_VECTORS],
                            __local float *results)
{
    vector sums[TILE_VALUES][ROW_VECTORS];
    long start[TILE_VALUES];
#pragma unroll
    for (int i = 0; i < TILE_VALUES; i++) {
        start[i] = min(i, columns - 1) * column;
#pragma unroll
        for (int v = 0; v < ROW_VECTORS; v++)
            sums[i][v] = LOAD(v, __local, results + i * ROWS) * correction[v];
    }
#pragma unroll 2
    for (int j = 0; j < keys; j++) {
        vector line[ROW_VECTORS];
#pragma unroll
        for (int v = 0; v < ROW_VECTORS; v++)
            line[v] = LOAD(v, __local, weights + j * ROWS);
#pragma unroll
        for (int i = 0; i < TILE_VALUES; i++) {
            const vector factor = (vector)(values[j * row + start[i]]);
#pragma unroll
            for (int v = 0; v < ROW_VECTORS; v++)
                sums[i][v] = fma(factor, line[v], sums[i][v]);
        }
    }
#pragma unroll
    for (int i = 0; i < TILE_VALUES; i++) {
#pragma unroll
        for (int v = 0; v < ROW_VECTORS; v++)
            STORE(sums[i][v], v, __local, results + i * ROWS);
    }
}

/* A row without a key is 0. */
INLINE void write_results(__local const float *results, const vector total[ROW_VECTORS],
                          __global float *out, long out_row, int rows, int e)
{
    PLAIN_LOOP
    for (int first = 0; first < rows; first += VECTOR) {
        float lines[VECTOR * VECTOR], factor[ROWS];
#pragma unroll
        for (int v = 0; v < ROW_VECTORS; v++)
            STORE(total[v] == 0.0f ? (vector)(0.0f) : 1.0f / total[v], v, __private, factor);
        PLAIN_LOOP
        for (int c = 0; c < e; c += VECTOR) {
            vector square[VECTOR];
#pragma unroll
            for (int j = 0; j < VECTOR; j++)
                square[j] = LOAD(0, __local, results + (c + j) * ROWS + first) *
                            LOAD(0, __private, factor + first);
            transpose_square(square);
#pragma unroll
            for (int i = 0; i < VECTOR; i++)
                STORE(square[i], i, __private, lines);
            PLAIN_LOOP
            for (int i = 0; i < min(rows - first, VECTOR); i++) {
                __global float *to = out + (first + i) * out_row + c;
                if (c + VECTOR <= e) {
                    STORE(LOAD(i, __private, lines), 0, __global, to);
                    continue;
                }
                PLAIN_LOOP
                for (int j = 0; j < e - c; j++)
                    to[j] = lines[i * VECTOR + j];
            }
        }
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
attention_cpu(__global const OPERAND_A_TYPE *restrict q,
              __global const OPERAND_B_TYPE *restrict k,
              __global const OPERAND_C_TYPE *restrict v, __global float *restrict out, long m, long n,
              long d, long e, float scale, long diagonal, long q_offset, long q_row, long q_column,
              long k_offset, long k_row, long k_column, long v_offset, long v_row, long v_column,
              long out_offset, long out_row
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
    __local float queries[DEPTH * ROWS], weights[BLOCK_KEYS * ROWS], results[WIDTH * ROWS];
    vector peak[ROW_VECTORS], total[ROW_VECTORS], correction[ROW_VECTORS];
    /* Of a causal matrix the last rows see most keys: they come first. */
    const long row0 = (long)(get_num_groups(0) - 1 - get_group_id(0)) * ROWS;
    const int rows = min((long)ROWS, m - row0);
    long rest = get_group_id(1), first_mask = 0, first_length = 0;

    out += out_offset + row0 * out_row;
    q += q_offset + row0 * q_row;
    k += k_offset;
    v += v_offset;
    PASTE(TO_, RUNS)(ENTER)
    COUNT_KEYS
    const long seen = min(n, row0 + rows + diagonal);
#if MASK
    mask += mask_offset + first_mask + row0 * mask_row;
#endif
    pack_queries(q, q_row, q_column, d, rows, scale, queries);
#pragma unroll
    for (int i = 0; i < ROW_VECTORS; i++) {
        peak[i] = (vector)(-INFINITY);
        total[i] = (vector)(0.0f);
    }
    for (int c = 0; c < WIDTH * ROW_VECTORS; c++)
        STORE((vector)(0.0f), c, __local, results);

#if WINDOW
    earliest = EARLIEST(row0);
    const long first = max(0L, earliest - max(earliest, 0L) % BLOCK_KEYS);
#else
    const long first = 0;
#endif
    for (long key0 = first; key0 < seen; key0 += BLOCK_KEYS) {
        const int keys = min((long)BLOCK_KEYS, seen - key0);
        for (int j = 0; j < keys; j += TILE_KEYS)
            score_tile(queries, k + (key0 + j) * k_row, k_row, k_column, d, keys - j,
                       weights + j * ROWS);
#if MASK
        add_mask(weights, mask + key0 * mask_column, mask_row, mask_column, rows, keys);
#endif
        if (key0 + keys - 1 > row0 + diagonal)
            hide_later_keys(weights, keys, key0 - diagonal - row0);
#if WINDOW
        if (key0 < EARLIEST(ROWS - 1))
            hide_earlier_keys(weights, keys, earliest - key0);
#endif
        weigh(weights, keys, peak, total, correction);
#ifdef OPERAND_C
        float converted[BLOCK_KEYS * VECTOR];
        for (int c = 0; c < e; c += TILE_VALUES) {
            if (c % VECTOR == 0)
                convert_values(v + key0 * v_row + c * v_column, v_row, v_column, e - c, keys,
                               converted);
            add_values_tile(weights, converted + c % VECTOR, VECTOR, 1, e - c, keys, correction,
                            results + c * ROWS);
        }
#else
        for (int c = 0; c < e; c += TILE_VALUES)
            add_values_tile(weights, v + key0 * v_row + c * v_column, v_row, v_column, e - c, keys,
                            correction, results + c * ROWS);
#endif
    }
    write_results(results, total, out, out_row, rows, e);
}
