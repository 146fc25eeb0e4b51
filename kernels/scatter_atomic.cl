/* SPDX-License-Identifier: Apache-2.0 */
/*
 * result[indices[j]] becomes itself + values[j] for all j, of integers of WORDS words of 32 bits, the
 * low one first: their sums are the same in any order, so that items may add as they come. An index
 * that is negative or too large changes nothing. With ATOMIC atomic_min or atomic_max, WORD int and
 * NEUTRAL what loses to all values, it becomes the smaller or the larger one.
 *
 * A result of at most ROWS rows has sums in each work-group's local memory, which are added to it at
 * the end; with ROWS 0 items add to the result itself.
 *     args    values, offset, indices, offset, result, offset, count (of j), extent
 *     global  a multiple of WG
 *     local   WG, 1, 1
 * Integer arguments are long.
 */
#ifndef TYPE
#define TYPE int
#define WORDS 1
#endif
#ifndef INDEX
#define INDEX int
#endif
#ifndef WG
#define WG 64
#define ROWS 32
#endif
#ifndef ATOMIC
#define ATOMIC atomic_add
#define WORD uint
#define NEUTRAL 0
#endif

#include "scatter.h"

/* To the sum at `row`; what leaves the low word is carried. */
#define DEFINE_ADD(name, space)                                                                    \
    static inline void name(volatile space WORD *sums, ulong row, ulong value)                     \
    {                                                                                              \
        const WORD low = (WORD)value;                                                              \
        if (WORDS == 1) {                                                                          \
            ATOMIC(sums + row, low);                                                               \
            return;                                                                                \
        }                                                                                          \
        const uint was = low ? atomic_add(sums + 2 * row, low) : 0;                                \
        const uint high = (uint)(value >> 32) + (was + low < low);                                 \
        if (high)                                                                                  \
            atomic_add(sums + 2 * row + 1, high);                                                  \
    }

DEFINE_ADD(add_result, global)
#if ROWS
DEFINE_ADD(add_local, local)
#endif

kernel __attribute__((reqd_work_group_size(WG, 1, 1)))
void scatter_atomic(global const OPERAND_A_TYPE *restrict values, const long values_offset,
                    global const OPERAND_B_TYPE *restrict indices, const long indices_offset,
                    global TYPE *restrict result, const long result_offset, const long count,
                    const long extent)
{
    volatile global WORD *to = (volatile global WORD *)(result + result_offset);
    values += values_offset;
    indices += indices_offset;
#if ROWS
    local WORD sums[ROWS * WORDS];
    for (long d = get_local_id(0); d < extent * WORDS; d += WG)
        sums[d] = NEUTRAL;
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    for (long j = get_global_id(0); j < count; j += get_global_size(0)) {
        const ulong row = ROW_OF(j);
        if (row >= (ulong)extent)
            continue;
#if ROWS
        add_local(sums, row, (ulong)(long)VALUE(j));
#else
        add_result(to, row, (ulong)(long)VALUE(j));
#endif
    }
#if ROWS
    barrier(CLK_LOCAL_MEM_FENCE);
    for (long d = get_local_id(0); d < extent; d += WG) {
        ulong sum = (ulong)sums[d * WORDS];
        if (WORDS == 2)
            sum |= (ulong)sums[d * WORDS + WORDS - 1] << 32;
        if (sum != (ulong)NEUTRAL)
            add_result(to, d, sum);
    }
#endif
}
