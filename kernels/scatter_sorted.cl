/* SPDX-License-Identifier: Apache-2.0 */
/*
 * result[o][indices[j]][i] becomes COMBINE(itself, values[o][j][i]) for all o, j and i, in the
 * order of j, so that sums have the same bits in every run and the last of several wins; an index
 * that is negative or too large changes nothing.
 *
 * scatter_keys makes a key of each index: the row in its upper half, `extent` where there is none,
 * and j in the lower one. They are put in order (sort_gpu_digits.cl) before scatter_fold.
 *     args    indices, offset, keys, offset, count (of j), extent (rows of the result)
 *     global  a multiple of WG
 *     local   WG, 1, 1
 * scatter_fold has a work-group for TILE keys and LANES columns, whose values it brings to local
 * memory. An item walks those of a row that begins there; one that goes on behind the tile is
 * followed to its end, tile by tile.
 *     args    values, offset, keys, offset, result, offset, count, extent, inner (columns of both)
 *     global  columns in multiples of LANES, WG / LANES for each tile, outer
 *     local   LANES, WG / LANES, 1
 * Integer arguments are long.
 */
#ifndef TYPE
#define TYPE float
#endif
#ifndef COMBINE
#define COMBINE scatter_add
#endif
#ifndef INDEX
#define INDEX int
#endif
#ifndef WG
#define WG 64
#define LANES 32
#define HELD 2048 /* values in local memory */
#endif

#include "scatter.h"

#define TILE (HELD / LANES)
#define SLOTS (WG / LANES)
#define NO_ROW 0xffffffffu
#define AT_ONCE 8 /* values that are read before the first of them is added */

kernel __attribute__((reqd_work_group_size(WG, 1, 1)))
void scatter_keys(global const OPERAND_B_TYPE *restrict indices, const long indices_offset,
                  global ulong *restrict keys, const long keys_offset, const long count,
                  const long extent)
{
    indices += indices_offset;
    keys += keys_offset;
    for (long j = get_global_id(0); j < count; j += get_global_size(0)) {
        const ulong row = ROW_OF(j);
        keys[j] = min(row, (ulong)extent) << 32 | (ulong)j;
    }
}

/* Behind the last of `here` keys in order that is of the row of key `p`: by steps that double, and
 * then by half of each. Key p has its row at rows[p + 1]. */
static inline int end_of_run(local const uint *rows, int p, int here)
{
    const uint row = rows[p + 1];
    int step = 1;
    for (; p + step < here && rows[p + step + 1] == row; step *= 2)
        p += step;
    while (step > 1) {
        step /= 2;
        if (p + step < here && rows[p + step + 1] == row)
            p += step;
    }
    return p + 1;
}

/* `sum` and a column's values of the keys p to behind - 1. */
static inline TYPE fold_run(local const TYPE *held, int p, int behind, TYPE sum)
{
    for (; p + AT_ONCE <= behind; p += AT_ONCE) {
        TYPE own[AT_ONCE];
        for (int e = 0; e < AT_ONCE; e++)
            own[e] = held[(p + e) * LANES];
        for (int e = 0; e < AT_ONCE; e++)
            sum = COMBINE(sum, own[e]);
    }
    for (; p < behind; p++)
        sum = COMBINE(sum, held[p * LANES]);
    return sum;
}

kernel __attribute__((reqd_work_group_size(LANES, SLOTS, 1)))
void scatter_fold(global const OPERAND_A_TYPE *restrict values, const long values_offset,
                  global const ulong *restrict keys, const long keys_offset,
                  global TYPE *restrict result, const long result_offset, const long count,
                  const long extent, const long inner)
{
    local TYPE held[HELD];
    local uint rows[TILE + 2]; /* of the keys, of the one before them and the one behind */
    const int lane = get_local_id(0), slot = get_local_id(1);
    const uint end = (uint)extent;
    const long i = get_global_id(0), outer = get_global_id(2);
    const bool is_there = i < inner;
    uint open = NO_ROW; /* the row that goes on from the tile before, */
    bool mine = false;  /* and whether this item has its sum */
    TYPE sum = 0;
    values += values_offset + outer * count * inner;
    keys += keys_offset;
    result += result_offset + outer * extent * inner;
    for (long start = (long)get_group_id(1) * TILE;; start += TILE) {
        const int here = (int)min(count - start, (long)TILE);
        for (int p = slot * LANES + lane; p < here + 2; p += WG) {
            const long at = start + p - 1;
            rows[p] = at < 0 || at >= count ? NO_ROW : (uint)(keys[at] >> 32);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        const uint last = rows[here], next = rows[here + 1];
        if (open == NO_ROW && (last == rows[0] || rows[1] >= end))
            break; /* no row begins here */
        for (int p = slot; p < here; p += SLOTS)
            if (is_there)
                held[p * LANES + lane] = VALUE((long)(uint)keys[start + p] * inner + i);
        barrier(CLK_LOCAL_MEM_FENCE);
        const int first = open == NO_ROW ? slot : mine ? 0 : here;
        for (int p = first; is_there && p < here; p += open == NO_ROW ? SLOTS : TILE) {
            const uint row = rows[p + 1];
            const long to = (long)row * inner + i;
            if (open == NO_ROW) {
                if (row >= end || row == rows[p])
                    continue;
                sum = result[to];
            }
            const int behind = end_of_run(rows, p, here);
            sum = fold_run(held + lane, p, behind, sum);
            mine = behind == here && next == row;
            if (!mine)
                result[to] = sum;
        }
        if (last >= end || last != next || (open != NO_ROW && open != last))
            break;
        open = last;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
