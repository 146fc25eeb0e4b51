/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scaled dot-product attention in float, without the matrix of scores, for NVIDIA's devices from
 * compute capability 8.0 on, which copy to local memory in the background (cp.async).
 *
 * A work-group owns ROWS rows of queries and walks the keys KEYS at a time. An item owns ITEM_ROWS
 * rows, which LANES neighbouring items share: of a block's scores it computes every LANES-th key in
 * registers, from queries and keys that come to local memory DEPTH columns at a time; of the results
 * it owns ITEM_COLUMNS columns. Where these take fewer than LANES items, groups of lanes, as many as
 * PARTS, each add up a share of the keys. There are two stages of local memory: one is filled while
 * the other is worked on. Sums so far are scaled down when a block has a larger score, as in
 * attention_gpu.cl; what the lanes of a row have found goes from one to the other by shuffles.
 *
 *     args    those of attention_cpu.cl
 *     global  product of the leading sizes * 128, ceil(m / 64), 1       local  128, 1, 1
 * Offsets and strides count elements; integer arguments are long. Rows of q, k and v are floats that
 * lie next to each other in memory, and all their other strides and offsets are multiples of 4; those
 * of out and of a mask are any. d is above 0 and below 2^30, WIDTH 32, 64 or 128 and at least e. Local
 * memory: 46 KiB.
 */
#ifndef WIDTH
#define WIDTH 64
#endif
#ifndef MASK
#define MASK 0
#endif
#ifndef RUNS
#define RUNS 1
#endif

#define ROWS 64
#define KEYS 128
#define LANES 16
#define DEPTH 8 /* columns of queries and keys in a stage */
#define ITEM_ROWS 8
#define ITEM_KEYS (KEYS / LANES)
#define ITEM_COLUMNS 8
#define PARTS (LANES * ITEM_COLUMNS / WIDTH)
#define PART_LANES (LANES / PARTS)
#define PART_KEYS (KEYS / PARTS)
#define ITEMS (ROWS / ITEM_ROWS * LANES)
#define VALUES (1024 / (PARTS * WIDTH)) /* keys in a stage, of each part */
#define STAGE (DEPTH * (ROWS + KEYS) > 1024 ? DEPTH * (ROWS + KEYS) : 1024)
#define LINE (ROWS + 4) /* from key to key of weights: neighbours start in other banks */

#include "helpers.h"
#include "attention.h"
#include "attention_ptx.h"

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

/* ---- filling a stage, four columns at once ---- */

/* Zeros for all but the first `left`; it goes on in the background until arrive(). */
INLINE void copy(__local float *to, __global const float *from, int left)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"((uint)(size_t)to), "l"(from),
                 "r"(clamp(left, 0, 4) * 4)
                 : "memory");
}

/* What has been copied is there for all, and what is in the other stage has been used. */
INLINE void arrive(void)
{
    asm volatile("cp.async.wait_all;" ::: "memory");
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* Where a stage has a line's columns 0 to 3 or 4 to 7: neighbouring lines, and those eight apart, are
 * in other banks. */
INLINE int place_of(int line, int upper)
{
    return line * DEPTH + (upper ^ ((line >> 2 ^ line >> 3) & 1)) * 4;
}

/* An item's half of a line of queries, and of two lines of keys, KEYS / 2 apart. */
INLINE void fetch_lines(__global const float *query, int left, __global const float *key,
                        __global const float *far_key, int key_left, int far_key_left,
                        __local float *to)
{
    copy(to, query, left);
    copy(to + DEPTH * ROWS, key, key_left);
    copy(to + DEPTH * (ROWS + KEYS / 2), far_key, far_key_left);
}

/* An item's columns of two keys' values, VALUES / 2 apart: [key][part][WIDTH]. */
INLINE void fetch_values(__global const float *value, long row, int key, int keys, int left,
                         __local float *to)
{
    copy(to, value, key < keys ? left : 0);
    copy(to + 512, value + VALUES / 2 * row, key + VALUES / 2 < keys ? left : 0);
}

/* ---- what lanes of a row tell each other ---- */

#define EACH(f, x)                                                                                 \
    (float8)(f((x).s0), f((x).s1), f((x).s2), f((x).s3), f((x).s4), f((x).s5), f((x).s6), f((x).s7))

#define ACROSS(x) swap_lanes(x, distance)

INLINE float8 largest_of_lanes(float8 rows)
{
#pragma unroll
    for (int distance = 1; distance < LANES; distance *= 2)
        rows = fmax(EACH(ACROSS, rows), rows);
    return rows;
}

INLINE float8 sum_of_lanes(float8 rows)
{
#pragma unroll
    for (int distance = 1; distance < LANES; distance *= 2)
        rows += EACH(ACROSS, rows);
    return rows;
}

/* ---- scores ---- */

/* The item's key j of a block, and its column c of a result. */
#define KEY_OF(j, lane) ((j)*LANES + (lane))
#define COLUMN_OF(c, lane) ((c) / 4 * (4 * PART_LANES) + (lane) % PART_LANES * 4 + (c) % 4)

#define COLUMN(x)                                                                                  \
    (float8)(rows[0].x, rows[1].x, rows[2].x, rows[3].x, rows[4].x, rows[5].x, rows[6].x, rows[7].x)

/* Where the item's first line of queries, and of keys, has its columns 0 to 3 ([0]) and 4 to 7: in
 * each fourth line of an item's eight it is the other way round, in none of its keys. */
INLINE void score(__local const float *const queries[2], __local const float *const keys[2],
                  float8 scores[ITEM_KEYS])
{
#pragma unroll
    for (int upper = 0; upper < 2; upper++) {
        float4 rows[ITEM_ROWS];
#pragma unroll
        for (int i = 0; i < ITEM_ROWS; i++)
            rows[i] = *(__local const float4 *)(queries[upper ^ i / 4] + i * DEPTH);
        const float8 column0 = COLUMN(x), column1 = COLUMN(y), column2 = COLUMN(z),
                     column3 = COLUMN(w);
#pragma unroll
        for (int j = 0; j < ITEM_KEYS; j++) {
            const float4 key = *(__local const float4 *)(keys[upper] + KEY_OF(j, 0) * DEPTH);
            float8 sum = fma(column0, (float8)(key.x), scores[j]);
            sum = fma(column1, (float8)(key.y), sum);
            sum = fma(column2, (float8)(key.z), sum);
            scores[j] = fma(column3, (float8)(key.w), sum);
        }
    }
}

/* The largest score of each row in the whole block, or so far if that is larger. */
INLINE float8 find_peaks(const float8 scores[ITEM_KEYS], float8 peak)
{
#pragma unroll
    for (int j = 0; j < ITEM_KEYS; j++)
        peak = fmax(scores[j], peak);
    return largest_of_lanes(peak);
}

/* Scores to weights in local memory; what was added up before is scaled down. */
INLINE void weigh(const float8 scores[ITEM_KEYS], float8 old, float8 peak, int first_row, int lane,
                  float8 *total, float8 sums[ITEM_COLUMNS], __local float *weights)
{
    const float8 base = peak == -INFINITY ? (float8)(0.0f) : peak;
    const float8 apart = old - base, correction = EACH(power_of_two, apart);
    *total *= correction;
#pragma unroll
    for (int j = 0; j < ITEM_KEYS; j++) {
        const float8 below = scores[j] - base, weight = EACH(power_of_two, below);
        *total += weight;
        store_rows(weight, weights + KEY_OF(j, lane) * LINE + first_row);
    }
#pragma unroll
    for (int c = 0; c < ITEM_COLUMNS; c++)
        sums[c] *= correction;
}

/* `weights` and `values`: of the lane's part. */
INLINE void add_values(__local const float *weights, __local const float *values, int lane,
                       float8 sums[ITEM_COLUMNS])
{
#pragma unroll
    for (int j = 0; j < VALUES; j++) {
        const float8 rows = load_rows(weights + j * LINE);
#pragma unroll
        for (int c = 0; c < ITEM_COLUMNS; c += 4) {
            const float4 four =
                *(__local const float4 *)(values + j * (PARTS * WIDTH) + COLUMN_OF(c, lane));
            sums[c] = fma(rows, (float8)(four.x), sums[c]);
            sums[c + 1] = fma(rows, (float8)(four.y), sums[c + 1]);
            sums[c + 2] = fma(rows, (float8)(four.z), sums[c + 2]);
            sums[c + 3] = fma(rows, (float8)(four.w), sums[c + 3]);
        }
    }
}

/* ---- results ---- */

/* What the parts have of a column; the first one gets all. */
INLINE float8 add_parts(float8 sum, int first_row, int lane, __local float *shared)
{
    barrier(CLK_LOCAL_MEM_FENCE);
    store_rows(sum, shared + lane * ROWS + first_row);
    barrier(CLK_LOCAL_MEM_FENCE);
    float8 all = (float8)(0.0f);
#pragma unroll
    for (int part = 0; part < PARTS; part++)
        all += load_rows(shared + (part * PART_LANES + lane % PART_LANES) * ROWS + first_row);
    return all;
}

/* Each row's total of all lanes, then results; a row without a key is 0. */
INLINE void write_results(const float8 sums[ITEM_COLUMNS], float8 total, int first_row, int lane,
                          int rows, int e, __local float *shared, __global float *out, long out_row)
{
    float8 whole = sum_of_lanes(total);
    whole = whole == 0.0f ? (float8)(0.0f) : 1.0f / whole;
#pragma unroll
    for (int c = 0; c < ITEM_COLUMNS; c++) {
        const float8 all = PARTS > 1 ? add_parts(sums[c], first_row, lane, shared) : sums[c];
        float result[ITEM_ROWS];
        vstore8(all * whole, 0, result);
#pragma unroll
        for (int i = 0; i < ITEM_ROWS; i++)
            if (i < rows - first_row && lane < PART_LANES && COLUMN_OF(c, lane) < e)
                out[(first_row + i) * out_row + COLUMN_OF(c, lane)] = result[i];
    }
}

/* Keys past the last, and those that a row does not see. first: which of the item's rows are the
 * first to see the block's first key. */
INLINE void hide_keys(float8 scores[ITEM_KEYS], int keys, long first, int lane)
{
#pragma unroll
    for (int j = 0; j < ITEM_KEYS; j++) {
        const int key = KEY_OF(j, lane);
        const int row = key < keys ? clamp(first + key, 0L, (long)ITEM_ROWS) : ITEM_ROWS;
        scores[j] = (int8)(0, 1, 2, 3, 4, 5, 6, 7) < row ? (float8)(-INFINITY) : scores[j];
    }
}

#if MASK
INLINE void add_mask(float8 scores[ITEM_KEYS], __global const OPERAND_D_TYPE *mask, long row,
                     long column, int rows, int keys, int lane)
{
#pragma unroll
    for (int j = 0; j < ITEM_KEYS; j++) {
        const int key = KEY_OF(j, lane);
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
attention_copies(__global const float *restrict q, __global const float *restrict k,
                 __global const float *restrict v, __global float *restrict out, long m, long n,
              long d, long e, float scale, long diagonal, long q_offset, long q_row, long q_column,
              long k_offset, long k_row, long k_column, long v_offset, long v_row, long v_column,
              long out_offset, long out_row
#if MASK
              ,
              __global const OPERAND_D_TYPE *restrict mask, long mask_offset, long mask_row,
              long mask_column
#endif
              PASTE(TO_, RUNS)(RUN))
{
    __local float weights[KEYS * LINE] __attribute__((aligned(16)));
    __local float stages[2 * STAGE] __attribute__((aligned(16)));
    const int item = get_local_id(0), lane = item % LANES, first_row = item / LANES * ITEM_ROWS;
    const int part = lane / PART_LANES;
    /* Of a causal matrix the last rows see most keys: they come first. */
    const long row0 = (long)(get_num_groups(1) - 1 - get_group_id(1)) * ROWS;
    const int rows = min((long)ROWS, m - row0);
    const long seen = min(n, row0 + rows + diagonal);
    float8 peak = (float8)(-INFINITY), total = (float8)(0.0f), sums[ITEM_COLUMNS];
    long rest = get_group_id(0), first_mask = 0;

    out += out_offset + row0 * out_row;
    q += q_offset + row0 * q_row;
    k += k_offset;
    v += v_offset;
    PASTE(TO_, RUNS)(ENTER)
#if MASK
    mask += mask_offset + first_mask + row0 * mask_row;
#endif
#pragma unroll
    for (int c = 0; c < ITEM_COLUMNS; c++)
        sums[c] = (float8)(0.0f);
    /* What the item copies: its four columns of a line, and as many of a key's values. */
    const int line = item / 2, columns = (int)d - item % 2 * 4;
    const int query_left = line < rows ? columns : 0;
    __global const float *query = q + line * q_row + item % 2 * 4;
    __global const float *key = k + line * k_row + item % 2 * 4;
    __global const float *far_key = key + KEYS / 2 * k_row;
    const int copied = item * 4 / WIDTH, value_left = (int)e - item * 4 % WIDTH;
    const int value_key = copied % PARTS * PART_KEYS + copied / PARTS;
    __global const float *value = v + value_key * v_row + item * 4 % WIDTH;
    __local float *const lines = stages + place_of(line, item % 2);
    __local float *const values = stages + item * 4;
    int now = 0; /* the stage that is worked on: 0 or STAGE */
    if (seen > 0)
        fetch_lines(query, query_left, key, far_key, line < seen ? columns : 0,
                    line + KEYS / 2 < seen ? columns : 0, lines);

    for (long key0 = 0; key0 < seen; key0 += KEYS) {
        const int keys = min((long)KEYS, seen - key0);
        const int key_left = line < keys ? columns : 0;
        const int far_key_left = line + KEYS / 2 < keys ? columns : 0;
        float8 scores[ITEM_KEYS];
#pragma unroll
        for (int j = 0; j < ITEM_KEYS; j++)
            scores[j] = (float8)(0.0f);
#pragma unroll 1
        for (int c = DEPTH;; c += DEPTH) {
            const bool last = c >= d;
            arrive();
            if (last)
                fetch_values(value, v_row, value_key, keys, value_left, values + (STAGE - now));
            else
                fetch_lines(query + c, query_left - c, key + c, far_key + c, key_left - c,
                            far_key_left - c, lines + (STAGE - now));
            const __local float *queries_at[2] = {stages + now + place_of(first_row, 0),
                                                  stages + now + place_of(first_row, 1)};
            const __local float *keys_at[2] = {stages + now + DEPTH * ROWS + place_of(lane, 0),
                                               stages + now + DEPTH * ROWS + place_of(lane, 1)};
            score(queries_at, keys_at, scores);
            now = STAGE - now;
            if (last)
                break;
        }
        key += KEYS * k_row;
        far_key += KEYS * k_row;
#pragma unroll
        for (int j = 0; j < ITEM_KEYS; j++)
            scores[j] *= scale;
#if MASK
        add_mask(scores, mask + first_row * mask_row + key0 * mask_column, mask_row, mask_column,
                 rows - first_row, keys, lane);
#endif
        if (keys < KEYS || key0 + KEYS - 1 > row0 + diagonal)
            hide_keys(scores, keys, key0 - diagonal - row0 - first_row, lane);
        const float8 old = peak;
        peak = find_peaks(scores, peak);
        weigh(scores, old, peak, first_row, lane, &total, sums, weights);
#pragma unroll 1
        for (int first = 0; first < PART_KEYS && first < keys; first += VALUES) {
            arrive();
            value += VALUES * v_row;
            if (first + VALUES < PART_KEYS && first + VALUES < keys)
                fetch_values(value, v_row, value_key + first + VALUES, keys, value_left,
                             values + (STAGE - now));
            else if (key0 + KEYS < seen)
                fetch_lines(query, query_left, key, far_key,
                            line < seen - key0 - KEYS ? columns : 0,
                            line + KEYS / 2 < seen - key0 - KEYS ? columns : 0,
                            lines + (STAGE - now));
            add_values(weights + (part * PART_KEYS + first) * LINE + first_row,
                       stages + now + part * WIDTH, lane, sums);
            now = STAGE - now;
        }
        value += (PARTS - 1) * PART_KEYS * v_row;
    }
    write_results(sums, total, first_row, lane, rows, e, stages, out, out_row);
}
