/* SPDX-License-Identifier: Apache-2.0 */
/*
 * result[l][p] = the position in line l of the element of values[l] that is number p in order, the
 * first `kept` of them, BLOCK at most: the smallest first, or with DESCENDING the largest (sort.h);
 * equal ones stay in their order. A work-group takes a line, or with `parts` above 1 a part of one,
 * of which result[l][part] gets the first. With `listed` above 0 a line consists of so many of its
 * elements alone, those at the positions `from`.
 *
 * While more than BLOCK keys are left, those that agree in all leading digits with the last one that
 * is kept are counted by their next digit, of 11 bits or less. Positions are part of the keys, so
 * that no two are equal. The keys that are left go to local memory and are put in order there.
 *     args    values, offset, from, offset, result, offset, extent (of a line), kept, parts, listed
 *     global  WG * parts, lines
 *     local   WG, 1
 * Integer arguments are long.
 */
#ifndef WG
#define WG 64
#endif
#ifndef BLOCK
#define BLOCK 1024
#endif

#include "sort_gpu.h"

#define WIDTH 11
#define COUNTS (1 << WIDTH)

/* Keys have so many bits, 32 of them of the position. Leading bits are those from `shift` on,
 * which is less. */
#ifdef WIDE
#define BITS 96

static inline uint digit_of(key own, int shift, int width)
{
    const ulong bits = shift < 32 ? own.y >> shift : own.x >> (shift - 32);
    return (uint)bits & ((1u << width) - 1);
}

static inline key with_digit(key own, int shift, uint digit)
{
    return shift < 32 ? (key)(own.x, own.y | (ulong)digit << shift)
                      : (key)(own.x | (ulong)digit << (shift - 32), own.y);
}

static inline key last_that_leads(key own, int shift)
{
    return shift < 32 ? (key)(own.x, own.y | ((1UL << shift) - 1))
                      : (key)(own.x | ((1UL << (shift - 32)) - 1), ULONG_MAX);
}
#else
#define BITS 64

static inline uint digit_of(key own, int shift, int width)
{
    return (uint)(own >> shift) & ((1u << width) - 1);
}

static inline key with_digit(key own, int shift, uint digit)
{
    return own | (ulong)digit << shift;
}

static inline key last_that_leads(key own, int shift)
{
    return own | ((1UL << shift) - 1);
}
#endif

kernel __attribute__((reqd_work_group_size(WG, 1, 1)))
void sort_first(global const OPERAND_A_TYPE *values, const long values_offset,
                global const int *from, const long from_offset, global int *result,
                const long result_offset, const long extent, const long kept, const long parts,
                const long listed)
{
    local key held[BLOCK];
    local uint counts[COUNTS], sums[SUMS], found[2]; /* found: a digit, the keys before it */
    local int taken;
    const int item = get_local_id(0), run = COUNTS / WG;
    const long line = get_group_id(1), part = get_group_id(0);
    const long start = listed ? line * listed : extent * part / parts;
    const long count = listed ? listed : extent * (part + 1) / parts - start;
    from += from_offset;
    values += values_offset + line * extent;
    result += result_offset + (line * parts + part) * kept;

#define AT(i) (listed ? from[start + (i)] : (int)(start + (i)))
    key first = LAST_KEY ^ LAST_KEY, last = LAST_KEY; /* those that agree in leading digits */
    uint missing = (uint)kept;
    long left = count;
    for (int shift = BITS; left > BLOCK;) {
        const int above = shift;
        shift = max(above - WIDTH, above > 32 ? 32 : 0);
        for (int d = item; d < COUNTS; d += WG)
            counts[d] = 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (long i = item; i < count; i += WG) {
            const int at = AT(i);
            const key own = key_of(VALUE(values, at), (uint)at);
            if (!is_behind(first, own) && !is_behind(own, last))
                atomic_inc(&counts[digit_of(own, shift, above - shift)]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        uint own = 0;
        for (int d = 0; d < run; d++)
            own += counts[item * run + d];
        uint before = sum_before(sums, own);
        if (before < missing && missing <= before + own) {
            int d = item * run;
            for (; before + counts[d] < missing; d++)
                before += counts[d];
            found[0] = (uint)d;
            found[1] = before;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        missing -= found[1];
        left = kept - missing + counts[found[0]];
        first = with_digit(first, shift, found[0]);
        last = last_that_leads(first, shift);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (item == 0)
        taken = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (long i = item; i < count; i += WG) {
        const int at = AT(i);
        const key own = key_of(VALUE(values, at), (uint)at);
        if (!is_behind(own, last))
            held[atomic_inc(&taken)] = own;
    }
    int size = 2;
    while (size < left)
        size *= 2;
    for (int e = (int)left + item; e < size; e += WG)
        held[e] = LAST_KEY;
    order_held(held, size, size);
    for (int p = item; p < kept; p += WG)
        result[p] = POSITION(held[p]);
}
