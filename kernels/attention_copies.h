/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scaled dot-product attention in float, without the matrix of scores, for NVIDIA's devices from
 * compute capability 8.0 on, which copy to local memory in the background (cp.async). The files
 * that include this say how much local memory it takes; what they are launched with is the same,
 * and so are their results, to the bit.
 *
 * A work-group owns ROWS rows of queries and walks the keys KEYS at a time. An item owns ITEM_ROWS
 * rows, which LANES neighbouring items share: of a block's scores it computes every LANES-th key in
 * registers, from queries and keys that come to local memory DEPTH columns at a time; of the
 * results it owns ITEM_COLUMNS columns. Where these take fewer than LANES items, groups of lanes,
 * as many as PARTS, each add up a share of the keys. There are two stages of local memory: one is
 * filled while the other is worked on. With RESIDENT the queries stay there from the start. Sums so
 * far are scaled down when a block has a larger score, as in attention_gpu.cl; what the lanes of a
 * row have found goes from one to the other by shuffles.
 *
 *     args    those of attention_cpu.cl
 *     global  product of the leading sizes * 128, ceil(m / 64), 1       local  128, 1, 1
 * Offsets and strides count elements; integer arguments are long. Rows of q, k and v are floats
 * that lie next to each other in memory, and all their other strides and offsets are multiples of
 * 4; those of out and of a mask are any. d is above 0 and below 2^30, WIDTH 32, 64 or 128 and at
 * least e. Files that include this say, if their callers do not:
 *
 *     DEPTH         8, 16 or 32
 *     RESIDENT      0 or 1
 *     LOCAL_FLOATS  the length of the local array
 *
 * Local memory: 4 (8704 + 256 DEPTH) bytes, and 512 DEPTH for queries; with RESIDENT 256 for each
 * column of queries instead, up to a multiple of DEPTH.
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
#define ITEM_ROWS 8
#define ITEM_KEYS (KEYS / LANES)
#define ITEM_COLUMNS 8
#define PARTS (LANES * ITEM_COLUMNS / WIDTH)
#define PART_LANES (LANES / PARTS)
#define PART_KEYS (KEYS / PARTS)
#define ITEMS (ROWS / ITEM_ROWS * LANES)
#define CHUNKS (DEPTH / 4) /* of a stage's line: four columns, which an item copies at once */
#define COPIED_LINES (ITEMS / CHUNKS) /* lines that all items copy at once */
#define STAGE_KEYS (DEPTH * KEYS)
#define STAGE (RESIDENT ? STAGE_KEYS : STAGE_KEYS + DEPTH * ROWS)
#define VALUES (STAGE_KEYS / (PARTS * WIDTH)) /* keys in a stage, of each part */
#define COPIED_VALUES (ITEMS * 4 / (PARTS * WIDTH)) /* of which all items copy so many at once */
#define TURN 8 /* keys whose values are added in a row */
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

/* ---- filling a stage ---- */

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

/* Where a stage has a chunk of a line: that chunk of neighbouring keys is in other banks, and so is
 * that of queries eight apart, which are all that a warp reads at once. Lines that COPIED_LINES are
 * apart have their chunks in the same order. */
INLINE int order_of_key(int line)
{
    return (line / (8 / CHUNKS) ^ (line >> 3 & 1)) % CHUNKS;
}

INLINE int order_of_query(int line)
{
    return line >> 3 & 1;
}

/* An item's chunk of every COPIED_LINES-th line of `lines`, from its `line` on; from the first
 * `end` lines and `left` columns of it on there are zeros. `to`: where the first one goes. */
INLINE void fetch_lines(__global const float *from, long row, int line, int lines, int end,
                        int left, __local float *to)
{
#pragma unroll
    for (int i = 0; i < lines; i += COPIED_LINES)
        copy(to + i * DEPTH, from + i * row, line + i < end ? left : 0);
}

/* An item's columns of the values of every COPIED_VALUES-th key: [key][part][WIDTH]. */
INLINE void fetch_values(__global const float *value, long row, int key, int keys, int left,
                         __local float *to)
{
#pragma unroll
    for (int i = 0; i < VALUES; i += COPIED_VALUES)
        copy(to + i * (PARTS * WIDTH), value + i * row, key + i < keys ? left : 0);
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

/* Of a stage's columns. queries: where the item's first line has its chunks 0 and 1; keys: where
 * the first of its keys begins, whose chunks are in this order, as those of all others are. */
INLINE void score(__local const float *const queries[2], __local const float *keys, int order,
                  float8 scores[ITEM_KEYS])
{
#pragma unroll 1
    for (int chunk = 0; chunk < CHUNKS; chunk += 2) {
#pragma unroll
        for (int odd = 0; odd < 2; odd++) {
            float4 rows[ITEM_ROWS];
#pragma unroll
            for (int i = 0; i < ITEM_ROWS; i++)
                rows[i] = *(__local const float4 *)(queries[odd] + chunk * 4 + i * DEPTH);
            const float8 column0 = COLUMN(x), column1 = COLUMN(y), column2 = COLUMN(z),
                         column3 = COLUMN(w);
            __local const float *const at = keys + ((chunk + odd) ^ order) * 4;
#pragma unroll
            for (int j = 0; j < ITEM_KEYS; j++) {
                const float4 key = *(__local const float4 *)(at + KEY_OF(j, 0) * DEPTH);
                float8 sum = fma(column0, (float8)(key.x), scores[j]);
                sum = fma(column1, (float8)(key.y), sum);
                sum = fma(column2, (float8)(key.z), sum);
                scores[j] = fma(column3, (float8)(key.w), sum);
            }
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
#pragma unroll 1
    for (int turn = 0; turn < VALUES; turn += TURN) {
#pragma unroll
        for (int j = 0; j < TURN; j++) {
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
        weights += TURN * LINE;
        values += TURN * PARTS * WIDTH;
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
            bias[i] =
                i < rows && key < keys ? BIAS(READ_MASK(mask + i * row + key * column)) : 0.0f;
        const float8 all = vload8(0, bias);
        scores[j] = all == -INFINITY ? all : scores[j] + all;
    }
}
#endif

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void
attention_copies(__global const float *restrict q, __global const float *restrict k,
                 __global const float *restrict v, __global float *restrict out, long m, long n,
                 long d, long e, float scale, long diagonal, long q_offset, long q_row,
                 long q_column, long k_offset, long k_row, long k_column, long v_offset, long v_row,
                 long v_column, long out_offset, long out_row
#if MASK
                 ,
                 __global const OPERAND_D_TYPE *restrict mask, long mask_offset, long mask_row,
                 long mask_column
#endif
#if LENGTHS
                 ,
                 __global const length_type *restrict lengths, long lengths_offset
#endif
                 PASTE(TO_, RUNS)(RUN))
{
    __local float local_floats[LOCAL_FLOATS] __attribute__((aligned(16)));
    /* By a number, for the compiler may take it that nobody reads behind an array's end. */
    size_t floats = (size_t)local_floats;
    asm volatile("" : "+l"(floats));
    __local float *const weights = (__local float *)floats, *const stages = weights + KEYS * LINE;
    const int item = get_local_id(0), lane = item % LANES, first_row = item / LANES * ITEM_ROWS;
    const int part = lane / PART_LANES;
    /* Of a causal matrix the last rows see most keys: they come first. */
    const long row0 = (long)(get_num_groups(1) - 1 - get_group_id(1)) * ROWS;
    const int rows = min((long)ROWS, m - row0);
    float8 peak = (float8)(-INFINITY), total = (float8)(0.0f), sums[ITEM_COLUMNS];
    long rest = get_group_id(0), first_mask = 0, first_length = 0;

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
#pragma unroll
    for (int c = 0; c < ITEM_COLUMNS; c++)
        sums[c] = (float8)(0.0f);
    /* What the item copies: its chunk of some lines, and as many of a key's values. */
    const int line = item / CHUNKS, chunk = item % CHUNKS, columns = (int)d - chunk * 4;
    __global const float *query = q + line * q_row + chunk * 4;
    __global const float *key = k + line * k_row + chunk * 4;
    const int copied = item * 4 / WIDTH, value_left = (int)e - item * 4 % WIDTH;
    const int value_key = copied % PARTS * PART_KEYS + copied / PARTS;
    __global const float *value = v + value_key * v_row + item * 4 % WIDTH;
    __local float *const key_lines = stages + line * DEPTH + (chunk ^ order_of_key(line)) * 4;
    __local float *const query_lines = stages + (RESIDENT ? 2 * STAGE : STAGE_KEYS) + line * DEPTH +
                                       (chunk ^ order_of_query(line)) * 4;
    __local float *const values = stages + item * 4;
    /* What it reads: these rows, and every LANES-th key. */
    __local const float *const first_query =
        stages + (RESIDENT ? 2 * STAGE : STAGE_KEYS) + first_row * DEPTH;
    const int swap = order_of_query(first_row) * 4;
    int now = 0; /* the stage that is worked on: 0 or STAGE */
    if (seen > 0) {
        fetch_lines(key, k_row, line, KEYS, min((long)KEYS, seen), columns, key_lines);
        for (int c = 0; c < (RESIDENT ? d : 1); c += DEPTH)
            fetch_lines(query + c, q_row, line, ROWS, rows, columns - c, query_lines + c * ROWS);
    }

    for (long key0 = 0; key0 < seen; key0 += KEYS) {
        const int keys = min((long)KEYS, seen - key0);
        const int next_keys = min((long)KEYS, seen - key0 - KEYS);
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
            else {
                fetch_lines(key + c, k_row, line, KEYS, keys, columns - c,
                            key_lines + (STAGE - now));
                if (!RESIDENT)
                    fetch_lines(query + c, q_row, line, ROWS, rows, columns - c,
                                query_lines + (STAGE - now));
            }
            __local const float *const at = first_query + (RESIDENT ? (c - DEPTH) * ROWS : now);
            __local const float *const queries[2] = {at + swap, at + (4 - swap)};
            score(queries, stages + now + lane * DEPTH, order_of_key(lane), scores);
            now = STAGE - now;
            if (last)
                break;
        }
        key += KEYS * k_row;
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
            else if (next_keys > 0) {
                fetch_lines(key, k_row, line, KEYS, next_keys, columns, key_lines + (STAGE - now));
                if (!RESIDENT)
                    fetch_lines(query, q_row, line, ROWS, rows, columns,
                                query_lines + (STAGE - now));
            }
            add_values(weights + (part * PART_KEYS + first) * LINE + first_row,
                       stages + now + part * WIDTH, lane, sums);
            now = STAGE - now;
        }
        value += (PARTS - 1) * PART_KEYS * v_row;
    }
    write_results(sums, total, first_row, lane, rows, e, stages, out, out_row);
}
