/* SPDX-License-Identifier: Apache-2.0 */
/*
 * result[o][indices[j]][i] becomes COMBINE(itself, values[o][j][i]) for all o, j and i, in the
 * order of j, so that sums have the same bits in every run and the last of several wins; an index
 * that is negative or too large changes nothing.
 *
 * A work-group owns the rows whose number is its class modulo `classes`. Its items mark those of the
 * indices, BLOCK of them at most, that lead there, each some of them: a bit for an index, and one for
 * each word of bits that is not empty. Then each item walks the marks in their order for columns of
 * its own.
 *     args    values, offset, indices, offset, result, offset, count (of j), extent (rows of the
 *             result), inner (columns of both), classes (a power of two)
 *     global  a multiple of WG up to inner, classes, outer
 *     local   WG, 1, 1
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
#endif
#ifndef BLOCK
#define BLOCK 32768
#endif

#include "scatter.h"

static inline int lowest(uint bits)
{
    return 31 - (int)clz(bits & -bits);
}

kernel __attribute__((reqd_work_group_size(WG, 1, 1)))
void scatter(global const OPERAND_A_TYPE *restrict values, const long values_offset,
                 global const OPERAND_B_TYPE *restrict indices, const long indices_offset,
                 global TYPE *restrict result, const long result_offset, const long count,
                 const long extent, const long inner, const long classes)
{
    local uint marked[BLOCK / 32], filled[BLOCK / 1024];
    const int item = get_local_id(0), here = (int)count;
    const uint own = get_group_id(1), mask = (uint)classes - 1;
    const uint rows = (uint)min(extent, (long)INT_MAX);
    const long outer = get_global_id(2);
    values += values_offset + outer * count * inner;
    indices += indices_offset;
    result += result_offset + outer * extent * inner;
    for (int i = item; i < BLOCK / 32; i += WG)
        marked[i] = 0;
    for (int i = item; i < BLOCK / 1024; i += WG)
        filled[i] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int j = item; j < here; j += WG) {
        const uint row = ROW(j); /* a negative one is too large */
        if (row >= rows || (row & mask) != own)
            continue;
        atomic_or(&marked[j / 32], 1u << j % 32);
        atomic_or(&filled[j / 1024], 1u << j / 32 % 32);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const long i = get_global_id(0);
    if (i >= inner)
        return;
    for (int f = 0; f < BLOCK / 1024; f++)
        for (uint words = filled[f]; words; words &= words - 1) {
            const int first = (f * 32 + lowest(words)) * 32;
            for (uint bits = marked[first / 32]; bits; bits &= bits - 1) {
                const int j = first + lowest(bits);
                result[ROW(j) * inner + i] = COMBINE(result[ROW(j) * inner + i], VALUE(j * inner + i));
            }
        }
}
