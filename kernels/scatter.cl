/* SPDX-License-Identifier: Apache-2.0 */
/*
 * result[o][indices[j]][i] becomes COMBINE(itself, values[o][j][i]) for all o, j and i, in the
 * order of j, so that sums have the same bits in every run and the last of several wins; an index
 * that is negative or too large changes nothing.
 *
 * An item owns a strip of neighbouring i of the rows whose number is its class modulo `classes`, and
 * walks all indices.
 *     args    values, offset, indices, offset, result, offset, count (of j), extent (rows of the
 *             result), inner (columns of both), classes (a power of two)
 *     global  strips of COLUMNS that make up inner, classes, outer
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
#ifndef COLUMNS
#define COLUMNS 256
#endif

#include "scatter.h"

kernel void scatter(global const OPERAND_A_TYPE *restrict values, const long values_offset,
                        global const OPERAND_B_TYPE *restrict indices, const long indices_offset,
                        global TYPE *restrict result, const long result_offset, const long count,
                        const long extent, const long inner, const long classes)
{
    const long first = get_global_id(0) * COLUMNS, last = min(first + COLUMNS, inner);
    const uint own = get_global_id(1), mask = (uint)classes - 1;
    const uint rows = (uint)min(extent, (long)INT_MAX);
    const long outer = get_global_id(2);
    values += values_offset + outer * count * inner;
    indices += indices_offset;
    result += result_offset + outer * extent * inner;
    for (long j = 0; j < count; j++) {
        const uint row = ROW(j); /* a negative one is too large */
        if (row >= rows || (row & mask) != own)
            continue;
        for (long i = first; i < last; i++)
            result[row * inner + i] = COMBINE(result[row * inner + i], VALUE(j * inner + i));
    }
}
