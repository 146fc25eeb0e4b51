/* SPDX-License-Identifier: Apache-2.0 */
/*
 * result[o][indices[j]][i] += values[o][j][i] for all o, j and i, in the order of j, so that sums
 * have the same bits in every run; an index that is negative or too large adds nowhere.
 *
 * An item owns `columns` neighbouring i of the rows whose number is its class modulo `classes`, and
 * walks all indices.
 *     args    values, offset, indices, offset, result, offset, count (of j), extent (rows of the
 *             result), inner (columns of both), columns, classes (a power of two)
 *     global  ceil(inner / columns), classes, outer
 * Integer arguments are long.
 */
#ifndef TYPE
#define TYPE float
#endif
#ifndef INDEX
#define INDEX int
#endif

kernel void scatter_add(global const TYPE *restrict values, const long values_offset,
                        global const INDEX *restrict indices, const long indices_offset,
                        global TYPE *restrict result, const long result_offset, const long count,
                        const long extent, const long inner, const long columns,
                        const long classes)
{
    const long first = get_global_id(0) * columns, last = min(first + columns, inner);
    const long own = get_global_id(1), outer = get_global_id(2);
    values += values_offset + outer * count * inner;
    indices += indices_offset;
    result += result_offset + outer * extent * inner;
    for (long j = 0; j < count; j++) {
        const long row = indices[j];
        if ((row & (classes - 1)) != own || row < 0 || row >= extent)
            continue;
        for (long i = first; i < last; i++)
            result[row * inner + i] += values[j * inner + i];
    }
}
