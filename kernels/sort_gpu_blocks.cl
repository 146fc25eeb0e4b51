/* SPDX-License-Identifier: Apache-2.0 */
/*
 * result[l][p] = the position in line l of the element of values[l] that is number p in order, the
 * first `kept` of them: the smallest first, or with DESCENDING the largest (sort.h); equal ones stay
 * in their order. A work-group has BLOCK / segment lines in local memory; a line has `segment`
 * elements at most, a power of two up to BLOCK.
 *     args    values, offset, result, offset, lines, extent (of a line), kept, segment
 *     global  WG for each work-group
 *     local   WG
 * Integer arguments are long.
 */
#ifndef WG
#define WG 64
#endif
#ifndef BLOCK
#define BLOCK 1024
#endif

#include "sort_gpu.h"

kernel __attribute__((reqd_work_group_size(WG, 1, 1)))
void sort_blocks(global const OPERAND_A_TYPE *restrict values, const long values_offset,
                 global int *result, const long result_offset, const long lines, const long extent,
                 const long kept, const long segment)
{
    local key held[BLOCK];
    const int item = get_local_id(0), size = (int)segment;
    const long first = get_group_id(0) * (BLOCK / segment);
    values += values_offset;
    result += result_offset;
    for (int e = item; e < BLOCK; e += WG) {
        const long line = first + e / size, place = e % size;
        const bool is_there = line < lines && place < extent;
        held[e] = is_there ? key_of(VALUE(values, line * extent + place), (uint)place) : LAST_KEY;
    }
    order_held(held, BLOCK, size);
    for (int e = item; e < BLOCK; e += WG) {
        const long line = first + e / size, place = e % size;
        if (line < lines && place < kept)
            result[line * kept + place] = POSITION(held[e]);
    }
}
