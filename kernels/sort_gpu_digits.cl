/* SPDX-License-Identifier: Apache-2.0 */
/*
 * result[l][p] = the position in line l of the element of values[l] that is number p in order, the
 * first `kept` of them: the smallest first, or with DESCENDING the largest (sort.h); equal ones stay
 * in their order. For each digit of the keys, the last one first, three launches put them in the
 * order of that digit: of `values` for the first, of what the launches before made of them for
 * others; into `result` for the last. A line is cut into tiles of WG * EACH keys, `tiles` of them.
 *
 * sort_count counts the keys of each tile by their digit.
 *     args    values, offset, from, offset, counts (tiles + 1 for each digit of each line), offset,
 *             length (of a line), tiles, shift (of the digit), first (1: it is the first digit)
 *     global  WG * tiles, lines
 * sort_sum makes of each count the sum of those of the same digit and earlier tiles, and puts the
 * whole sum behind them. A work-group has a digit of a line, or with `alone` not 0 each item has one.
 *     args    counts, offset, tiles, alone
 *     global  WG * 256, or with `alone` 256, lines
 * sort_place puts the keys of a tile in order in local memory, by four bits and then the other four
 * unless they are alike in all, and each where those of lower digits, and of the same that come
 * before, end.
 *     args    values, offset, from, offset, to, offset, counts, offset, result, offset, length,
 *             kept, tiles, shift, first, last (1: it is the last digit)
 *     global  WG * tiles, lines
 * All have local size WG. Integer arguments are long.
 */
#ifndef WG
#define WG 64
#endif
#ifndef EACH
#define EACH 4
#endif

#include "sort_gpu.h"

#define TILE (WG * EACH)
#define HALVES 16                   /* values of half a digit */
#define PLACE(i) ((i) + (i) / EACH) /* so that neighbouring items use different banks */

kernel __attribute__((reqd_work_group_size(WG, 1, 1)))
void sort_count(global const OPERAND_A_TYPE *values, const long values_offset,
                global const key *from, const long from_offset, global uint *counts,
                const long counts_offset, const long length, const long tiles, const long shift,
                const long first)
{
    local uint own[256];
    const int item = get_local_id(0);
    const long line = get_group_id(1), tile = get_group_id(0);
    const long end = min(length, (long)(tile + 1) * TILE);
    values += values_offset + line * length;
    from += from_offset + line * length;
    for (int d = item; d < 256; d += WG)
        own[d] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (long i = tile * TILE + item; i < end; i += WG)
        atomic_inc(&own[first ? DIGIT(key_of(VALUE(values, i), 0), shift) : DIGIT(from[i], shift)]);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int d = item; d < 256; d += WG)
        counts[counts_offset + (line * 256 + d) * (tiles + 1) + tile] = own[d];
}

kernel __attribute__((reqd_work_group_size(WG, 1, 1)))
void sort_sum(global uint *counts, const long counts_offset, const long tiles,
              const long alone)
{
    local uint sums[SUMS];
    const long digit = alone ? get_global_id(0) : get_group_id(0);
    const long items = alone ? 1 : WG, item = alone ? 0 : get_local_id(0);
    const long run = (tiles + items - 1) / items;
    const long start = min(tiles, item * run), end = min(tiles, start + run);
    uint own = 0;
    counts += counts_offset + (get_group_id(1) * 256 + digit) * (tiles + 1);
    for (long t = start; t < end; t++)
        own += counts[t];
    uint before = alone ? 0 : sum_before(sums, own);
    for (long t = start; t < end; t++) {
        const uint count = counts[t];
        counts[t] = before;
        before += count;
    }
    if (item == items - 1)
        counts[tiles] = before;
}

/* Put the keys of a tile in the order of half a digit: of its bits from `low` on. */
static void order_by_half(local key *held, local ushort *counts, local uint *sums, long shift,
                          int low)
{
    const int item = get_local_id(0);
    key own[EACH];
    ushort rank[EACH];
    for (int h = 0; h < HALVES; h++)
        counts[h * WG + item] = 0;
    for (int e = 0; e < EACH; e++) {
        own[e] = held[PLACE(item * EACH + e)];
        rank[e] = counts[(DIGIT(own[e], shift) >> low) % HALVES * WG + item]++;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    uint sum = 0;
    for (int c = 0; c < HALVES; c++)
        sum += counts[item * HALVES + c];
    sum = sum_before(sums, sum);
    for (int c = 0; c < HALVES; c++) {
        const ushort count = counts[item * HALVES + c];
        counts[item * HALVES + c] = (ushort)sum;
        sum += count;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int e = 0; e < EACH; e++)
        held[PLACE(counts[(DIGIT(own[e], shift) >> low) % HALVES * WG + item] + rank[e])] = own[e];
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* A bit for each half of a digit, the lower one first. */
static inline uint bits_of(int digit)
{
    return 1u << digit % HALVES | 0x10000u << digit / HALVES;
}

kernel __attribute__((reqd_work_group_size(WG, 1, 1)))
void sort_place(global const OPERAND_A_TYPE *values, const long values_offset,
                global const key *from, const long from_offset, global key *to,
                const long to_offset, global const uint *counts, const long counts_offset,
                global int *result, const long result_offset, const long length, const long kept,
                const long tiles, const long shift, const long first, const long last)
{
    local key held[PLACE(TILE)];
    local ushort halves[HALVES * WG];
    local uint sums[SUMS], goes[256]; /* goes: where a digit's first key goes, less where it is */
    local uint there; /* bits of the tile's digits */
    const int item = get_local_id(0);
    const long line = get_group_id(1), tile = get_group_id(0), start = tile * TILE;
    const int count = (int)min(length - start, (long)TILE);
    values += values_offset + line * length;
    result += result_offset + line * kept;
    from += from_offset + line * length;
    to += to_offset + line * length;
    counts += counts_offset + line * 256 * (tiles + 1);
    for (int i = item; i < TILE; i += WG) {
        const long at = start + i;
        held[PLACE(i)] = i >= count ? LAST_KEY
                         : first    ? key_of(VALUE(values, at), (uint)at)
                                    : from[at];
    }
    if (item == 0)
        there = 0;
    /* Each item has a run of digits, of which some items have none if there are more of them. */
    const int run = (256 + WG - 1) / WG;
    uint own = 0;
    for (int d = item * run; d < min(256, (item + 1) * run); d++)
        own += counts[d * (tiles + 1) + tiles];
    uint before = sum_before(sums, own);
    for (int d = item * run; d < min(256, (item + 1) * run); d++) {
        const uint earlier = counts[d * (tiles + 1) + tile];
        if (counts[d * (tiles + 1) + tile + 1] > earlier)
            atomic_or(&there, bits_of(d));
        goes[d] = before + earlier;
        before += counts[d * (tiles + 1) + tiles];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    /* By one key: a test for one bit becomes a count of bits, which not every OpenCL has. */
    const uint others = there & ~bits_of(DIGIT(held[0], shift));
    if (others & 0xffff)
        order_by_half(held, halves, sums, shift, 0);
    if (others >> 16)
        order_by_half(held, halves, sums, shift, 4);
    for (int i = item; i < count; i += WG) {
        const int digit = DIGIT(held[PLACE(i)], shift);
        if (i == 0 || DIGIT(held[PLACE(i - 1)], shift) != digit)
            goes[digit] -= (uint)i;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = item; i < count; i += WG) {
        const key own_key = held[PLACE(i)];
        const uint place = goes[DIGIT(own_key, shift)] + (uint)i;
        if (!last)
            to[place] = own_key;
        else if (place < kept)
            result[place] = POSITION(own_key);
    }
}
