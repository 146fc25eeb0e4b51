/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scaled dot-product attention in float for GPUs, without the matrix of scores.
 *
 * A work-group owns ROWS rows of queries, packed in local memory as [d][ROWS], and walks the keys
 * KEYS at a time. An item owns ITEM_ROWS rows, which LANES neighbouring items share: of a block's
 * scores it computes every LANES-th key, of the results every LANES-th column, in registers. The
 * keys' tile makes room for the values' as soon as the scores are made. Sums so far are scaled down
 * when a block has a larger score (Milakov and Gimelshein 2018; Dao et al. 2022); scores are in
 * units of log 2, so that weights are powers of two.
 *
 *     args    those of attention_cpu.cl; behind out_row PARTED 1: parts, parts_offset, part_keys
 *     global  ceil(m / ROWS) * ITEMS, product of the leading sizes, parts   local  ITEMS, 1, 1
 *     ITEMS = ROWS / ITEM_ROWS * LANES
 * PARTED 0: one part. Else a work-group has part_keys of the keys, and attention_join.cl puts parts
 * together.
 * Offsets and strides count elements; integer arguments are long. Any strides are right; fast is a
 * column stride of 1, which out has. Rows are float8, not loops: llvmpipe unrolls none, and ends a
 * kernel's loops after 65,535 rounds in all. DEPTH and WIDTH are powers of two, at least d and e; KEYS and
 * WIDTH are multiples of LANES. NO_FMA: fma() is slow. Local memory, in floats:
 * DEPTH * (ROWS + 4) + max(DEPTH * (KEYS + 1), KEYS * WIDTH) + (KEYS + LANES) * ROWS.
 *
 *     DEPTH, WIDTH  ROWS  KEYS  LANES  ITEMS  local
 *     32            64    32    8      64     23 KiB
 *     64            64    32    16     128    38 KiB
 *     64            32    32    8      32     23 KiB
 *     128           32    32    16     64     41 KiB
 *     128           16    16    16     32     21 KiB
 *     256           16    16    16     32     39 KiB
 *     256           8     8     8      8      22 KiB
 *     512           8     8     8      8      43 KiB
 *     64            8     64    64     64     23 KiB
 *     128           8     64    64     64     42 KiB
 */
#ifndef ROWS
#define ROWS 64
#endif
#ifndef KEYS
#define KEYS 32
#endif
#ifndef LANES
#define LANES 8
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

#define ITEM_ROWS 8
#define ITEM_KEYS (KEYS / LANES)
#define ITEM_COLUMNS (WIDTH / LANES)
#define ITEMS (ROWS / ITEM_ROWS * LANES)
/* Distance of two lines of a tile: a column of it meets no bank twice; queries go by fours. */
#define QUERY_LINE (ROWS + 4)
#define KEY_LINE (KEYS + 1)
#define TILE (DEPTH * KEY_LINE > KEYS * WIDTH ? DEPTH * KEY_LINE : KEYS * WIDTH)

#include "helpers.h"
#include "attention.h"
#ifdef NO_FMA
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#else
#define MULTIPLY_ADD(a, b, c) fma(a, b, c)
#endif

#include "narrow_result.h"
#include "attention_parts.h"

/* Eight values of neighbouring rows. */
INLINE float8 load_rows(__local const float *from)
{
    return (float8)(*(__local const float4 *)from, *(__local const float4 *)(from + 4));
}

INLINE void store_rows(float8 rows, __local float *to)
{
    *(__local float4 *)to = rows.lo;
    *(__local float4 *)(to + 4) = rows.hi;
}

/* Queries as [d][ROWS], scaled; zeros past the last row and column. */
INLINE void pack_queries(__global const OPERAND_A_TYPE *q, long row, long column, int d, int rows,
                         float scale, int item, __local float *packed)
{
#pragma unroll 8
    for (int step = 0; step < ROWS * DEPTH / ITEMS; step++) {
        const int i = step * ITEMS + item, c = i % DEPTH, r = i / DEPTH;
        packed[c * QUERY_LINE + r] = r < rows && c < d ? READ_Q(q + r * row + c * column) * scale : 0.0f;
    }
}

/* Keys as [d][KEYS]. */
INLINE void load_keys(__global const OPERAND_B_TYPE *k, long row, long column, int d, int keys, int item,
                      __local float *tile)
{
#pragma unroll 8
    for (int step = 0; step < KEYS * DEPTH / ITEMS; step++) {
        const int i = step * ITEMS + item, c = i % DEPTH, j = i / DEPTH;
        tile[c * KEY_LINE + j] = j < keys && c < d ? READ_K(k + j * row + c * column) : 0.0f;
    }
}

/* Values as [key][WIDTH]. */
INLINE void load_values(__global const OPERAND_C_TYPE *v, long row, long column, int e, int keys, int item,
                        __local float *tile)
{
#pragma unroll 8
    for (int step = 0; step < KEYS * WIDTH / ITEMS; step++) {
        const int i = step * ITEMS + item, c = i % WIDTH, j = i / WIDTH;
        tile[i] = j < keys && c < e ? READ_V(v + j * row + c * column) : 0.0f;
    }
}

INLINE void score(__local const float *queries, __local const float *tile, int d, int lane,
                  float8 scores[ITEM_KEYS])
{
#pragma unroll
    for (int j = 0; j < ITEM_KEYS; j++)
        scores[j] = (float8)(0.0f);
#pragma unroll 8
    for (int c = 0; c < d; c++) {
        const float8 rows = load_rows(queries + c * QUERY_LINE);
#pragma unroll
        for (int j = 0; j < ITEM_KEYS; j++)
            scores[j] = MULTIPLY_ADD(rows, (float8)(tile[c * KEY_LINE + j * LANES + lane]),
                                     scores[j]);
    }
}

/* The largest score of each row in the whole block, or so far if that is larger. */
INLINE float8 find_peaks(const float8 scores[ITEM_KEYS], float8 peak, int first_row, int lane,
                         __local float *shared)
{
    float8 own = peak;
#pragma unroll
    for (int j = 0; j < ITEM_KEYS; j++)
        own = scores[j] > own ? scores[j] : own;
    store_rows(own, shared + lane * ROWS + first_row);
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (int l = 0; l < LANES; l++) {
        const float8 other = load_rows(shared + l * ROWS + first_row);
        peak = other > peak ? other : peak;
    }
    return peak;
}

/* Scores to weights in local memory; what was added up before is scaled down. */
INLINE void weigh(const float8 scores[ITEM_KEYS], float8 old, float8 peak, int first_row, int lane,
                  float8 *total, float8 sums[ITEM_COLUMNS], __local float *weights)
{
    const float8 base = peak == -INFINITY ? (float8)(0.0f) : peak;
    const float8 correction = exp2(old - base);
    *total *= correction;
#pragma unroll
    for (int j = 0; j < ITEM_KEYS; j++) {
        const float8 weight = exp2(scores[j] - base);
        *total += weight;
        store_rows(weight, weights + (j * LANES + lane) * ROWS + first_row);
    }
#pragma unroll
    for (int c = 0; c < ITEM_COLUMNS; c++)
        sums[c] *= correction;
}

INLINE void add_values(__local const float *weights, __local const float *tile, int keys, int lane,
                       float8 sums[ITEM_COLUMNS])
{
#pragma unroll 8
    for (int j = 0; j < keys; j++) {
        const float8 rows = load_rows(weights + j * ROWS);
#pragma unroll
        for (int c = 0; c < ITEM_COLUMNS; c++)
            sums[c] = MULTIPLY_ADD(rows, (float8)(tile[j * WIDTH + c * LANES + lane]), sums[c]);
    }
}

/* Each row's total of all lanes. */
INLINE float8 sum_of_lanes(float8 total, int first_row, int lane, __local float *shared)
{
    float8 whole = (float8)(0.0f);
    store_rows(total, shared + lane * ROWS + first_row);
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (int l = 0; l < LANES; l++)
        whole += load_rows(shared + l * ROWS + first_row);
    return whole;
}

#if PARTED
/* As attention_join.cl takes it. */
INLINE void write_part(const float8 sums[ITEM_COLUMNS], float8 peak, float8 total, int first_row,
                       int lane, int rows, int e, __local float *shared, __global float *part)
{
    float result[ITEM_ROWS], peaks[ITEM_ROWS], totals[ITEM_ROWS];
    vstore8(peak, 0, peaks);
    vstore8(sum_of_lanes(total, first_row, lane, shared), 0, totals);
    part += first_row * PART_COLUMNS(e);
    for (int i = 0; i < min(rows - first_row, ITEM_ROWS) && lane == 0; i++) {
        part[i * PART_COLUMNS(e) + PART_PEAK(e)] = peaks[i];
        part[i * PART_COLUMNS(e) + PART_TOTAL(e)] = totals[i];
    }
    for (int c = 0; c < ITEM_COLUMNS; c++) {
        vstore8(sums[c], 0, result);
        for (int i = 0; i < min(rows - first_row, ITEM_ROWS); i++)
            if (c * LANES + lane < e)
                part[i * PART_COLUMNS(e) + c * LANES + lane] = result[i];
    }
}
#endif

/* A row without a key is 0. */
INLINE void write_results(const float8 sums[ITEM_COLUMNS], float8 total, int first_row, int lane,
                          int rows, int e, __local float *shared, __global result_type *out, long out_row)
{
    float8 whole = sum_of_lanes(total, first_row, lane, shared);
    whole = whole == 0.0f ? (float8)(0.0f) : 1.0f / whole;
    for (int c = 0; c < ITEM_COLUMNS; c++) {
        float result[ITEM_ROWS];
        vstore8(sums[c] * whole, 0, result);
        for (int i = 0; i < min(rows - first_row, ITEM_ROWS); i++)
            if (c * LANES + lane < e)
                out[(first_row + i) * out_row + c * LANES + lane] = TO_RESULT(result[i]);
    }
}

/* Keys past the last, and those that a row does not see. first: which of the item's rows are the
 * first to see the block's first key. */
INLINE void hide_keys(float8 scores[ITEM_KEYS], int keys, long first, int lane)
{
#pragma unroll
    for (int j = 0; j < ITEM_KEYS; j++) {
        const int key = j * LANES + lane;
        const int row = key < keys ? clamp(first + key, 0L, (long)ITEM_ROWS) : ITEM_ROWS;
        scores[j] = (int8)(0, 1, 2, 3, 4, 5, 6, 7) < row ? (float8)(-INFINITY) : scores[j];
    }
}

#if WINDOW
/* Keys before each row's window. earliest: the first key of the block that the item's first row
 * sees. */
INLINE void hide_earlier_keys(float8 scores[ITEM_KEYS], long earliest, int lane)
{
#pragma unroll
    for (int j = 0; j < ITEM_KEYS; j++) {
        const long past = j * LANES + lane - earliest;
        const int last = WINDOW == 1 ? clamp(past, -1L, (long)ITEM_ROWS) : past < 0 ? -1 : ITEM_ROWS;
        scores[j] = (int8)(0, 1, 2, 3, 4, 5, 6, 7) > last ? (float8)(-INFINITY) : scores[j];
    }
}
#endif

#if MASK
INLINE void add_mask(float8 scores[ITEM_KEYS], __global const OPERAND_D_TYPE *mask, long row,
                     long column, int rows, int keys, int lane)
{
#pragma unroll
    for (int j = 0; j < ITEM_KEYS; j++) {
        const int key = j * LANES + lane;
        float bias[ITEM_ROWS];
#pragma unroll
        for (int i = 0; i < ITEM_ROWS; i++)
            bias[i] = i < rows && key < keys ? BIAS(READ_MASK(mask + i * row + key * column)) : 0.0f;
        const float8 all = vload8(0, bias);
        scores[j] = all == -INFINITY ? all : scores[j] + all;
    }
}
#endif

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void
attention_gpu(__global const OPERAND_A_TYPE *restrict q,
              __global const OPERAND_B_TYPE *restrict k,
              __global const OPERAND_C_TYPE *restrict v, __global result_type *restrict out, long m,
              long n, long d, long e, float scale, long diagonal, long q_offset, long q_row, long q_column,
              long k_offset, long k_row, long k_column, long v_offset, long v_row, long v_column,
              long out_offset, long out_row
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
    __local float queries[DEPTH * QUERY_LINE] __attribute__((aligned(16)));
    __local float weights[KEYS * ROWS] __attribute__((aligned(16)));
    __local float shared[LANES * ROWS] __attribute__((aligned(16)));
    __local float tile[TILE];
    const int item = get_local_id(0), lane = item % LANES, first_row = item / LANES * ITEM_ROWS;
    /* Of a causal matrix the last rows see most keys: they come first. */
    const long row0 = (long)(get_num_groups(0) - 1 - get_group_id(0)) * ROWS;
    const int rows = min((long)ROWS, m - row0);
    float8 peak = (float8)(-INFINITY), total = (float8)(0.0f), sums[ITEM_COLUMNS];
    long rest = get_group_id(1), first_mask = 0, first_length = 0;

    out += out_offset + row0 * out_row;
    q += q_offset + row0 * q_row;
    k += k_offset;
    v += v_offset;
    PASTE(TO_, RUNS)(ENTER)
    COUNT_KEYS
#if PARTED
    const long first = get_group_id(2) * part_keys;
    const long seen = min(min(n, row0 + rows + diagonal), first + part_keys);
#else
    const long first = 0, seen = min(n, row0 + rows + diagonal);
#endif
#if WINDOW
    earliest = EARLIEST(row0);
    const long from = max(first, earliest - max(earliest, 0L) % KEYS);
#else
    const long from = first;
#endif
#if MASK
    mask += mask_offset + first_mask + row0 * mask_row;
#endif
    pack_queries(q, q_row, q_column, d, rows, scale, item, queries);
#pragma unroll
    for (int c = 0; c < ITEM_COLUMNS; c++)
        sums[c] = (float8)(0.0f);

    for (long key0 = from; key0 < seen; key0 += KEYS) {
        const int keys = min((long)KEYS, seen - key0);
        float8 scores[ITEM_KEYS];
        barrier(CLK_LOCAL_MEM_FENCE); /* the values before have been used */
        load_keys(k + key0 * k_row, k_row, k_column, d, keys, item, tile);
        barrier(CLK_LOCAL_MEM_FENCE);
        score(queries + first_row, tile, d, lane, scores);
#if MASK
        add_mask(scores, mask + first_row * mask_row + key0 * mask_column, mask_row, mask_column,
                 rows - first_row, keys, lane);
#endif
        if (keys < KEYS || key0 + KEYS - 1 > row0 + diagonal)
            hide_keys(scores, keys, key0 - diagonal - row0 - first_row, lane);
#if WINDOW
        if (key0 < EARLIEST(rows - 1))
            hide_earlier_keys(scores, EARLIEST(first_row) - key0, lane);
#endif
        const float8 old = peak;
        peak = find_peaks(scores, peak, first_row, lane, shared); /* the keys are done with */
        load_values(v + key0 * v_row, v_row, v_column, e, keys, item, tile);
        weigh(scores, old, peak, first_row, lane, &total, sums, weights);
        barrier(CLK_LOCAL_MEM_FENCE);
        add_values(weights + first_row, tile, keys, lane, sums);
    }
#if PARTED
    write_part(sums, peak, total, first_row, lane, rows, e, shared,
               parts + parts_offset +
                   ((get_group_id(1) * get_num_groups(2) + get_group_id(2)) * m + row0) *
                       PART_COLUMNS(e));
#else
    write_results(sums, total, first_row, lane, rows, e, shared, out, out_row);
#endif
}
