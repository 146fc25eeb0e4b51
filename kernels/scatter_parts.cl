/* SPDX-License-Identifier: Apache-2.0 */
/*
 * result[indices[j]] becomes itself + values[j] for all j, of integers, whose sums are the same in
 * any order. An index that is negative or too large changes nothing.
 *
 * scatter_part has `parts` items with sums of their own, which walk a part of the indices each.
 *     args    values, offset, indices, offset, sums (extent for each part), offset, count (of j),
 *             extent
 *     global  parts
 * scatter_join adds these sums up; an item takes ROWS of them.
 *     args    sums, offset, result, offset, extent, parts
 *     global  ceil(extent / ROWS)
 * Integer arguments are long.
 */
#ifndef TYPE
#define TYPE int
#endif
#ifndef INDEX
#define INDEX int
#endif
#ifndef ROWS
#define ROWS 64
#endif

#include "scatter.h"

kernel void scatter_part(global const OPERAND_A_TYPE *restrict values, const long values_offset,
                         global const OPERAND_B_TYPE *restrict indices, const long indices_offset,
                         global TYPE *restrict sums, const long sums_offset, const long count,
                         const long extent)
{
    const long part = get_global_id(0), parts = get_global_size(0);
    const long from = count * part / parts, to = count * (part + 1) / parts;
    values += values_offset;
    indices += indices_offset;
    sums += sums_offset + part * extent;
    for (long d = 0; d < extent; d++)
        sums[d] = 0;
    for (long j = from; j < to; j++) {
        const ulong row = ROW_OF(j);
        if (row < (ulong)extent)
            sums[row] += VALUE(j);
    }
}

kernel void scatter_join(global const TYPE *restrict sums, const long sums_offset,
                         global TYPE *restrict result, const long result_offset, const long extent,
                         const long parts)
{
    const long first = get_global_id(0) * ROWS, last = min(first + ROWS, extent);
    sums += sums_offset;
    result += result_offset;
    for (long p = 0; p < parts; p++)
        for (long d = first; d < last; d++)
            result[d] += sums[p * extent + d];
}
