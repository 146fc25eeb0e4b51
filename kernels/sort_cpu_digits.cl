/* SPDX-License-Identifier: Apache-2.0 */
/*
 * result[l][p] = the position in line l of the element of values[l] that is number p in order, the
 * first `kept` of them: the smallest first, or with DESCENDING the largest (sort.h); equal ones stay
 * in their order. For each digit of the keys, the last one first, a launch of sort_count and one of
 * sort_place put them in the order of that digit: of `values` for the first, of what
 * the one before made of them for others; into `result` for the last. A line has `parts` parts, an
 * item for each.
 *
 * sort_count counts the keys of each part by their digit.
 *     args    values, offset, from, offset, counts (256 for each part of each line), offset,
 *             extent (of a line), parts, shift (of the digit), first (1: it is the first digit)
 * sort_place puts keys behind those of lower digits, and of the same that come before.
 *     args    values, offset, from, offset, to, offset, counts, offset, result, offset, extent,
 *             kept, parts, shift, first, last (1: it is the last digit)
 *     global  parts, lines
 *     local   1, 1
 * Integer arguments are long.
 */
#include "sort.h"

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void sort_count(global const OPERAND_A_TYPE *values, const long values_offset,
                global const key *from, const long from_offset, global uint *counts,
                const long counts_offset, const long extent, const long parts, const long shift,
                const long first)
{
    const long line = get_global_id(1), part = get_global_id(0);
    const long start = extent * part / parts, end = extent * (part + 1) / parts;
    uint own[256];
    for (int d = 0; d < 256; d++)
        own[d] = 0;
    values += values_offset + line * extent;
    from += from_offset + line * extent;
    for (long i = start; first && i < end; i++)
        own[DIGIT(key_of(VALUE(values, i), 0), shift)]++;
    for (long i = start; !first && i < end; i++)
        own[DIGIT(from[i], shift)]++;
    for (int d = 0; d < 256; d++)
        counts[counts_offset + (line * parts + part) * 256 + d] = own[d];
}

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void sort_place(global const OPERAND_A_TYPE *values, const long values_offset,
                global const key *from, const long from_offset, global key *to,
                const long to_offset, global const uint *counts, const long counts_offset,
                global int *result, const long result_offset, const long extent, const long kept,
                const long parts, const long shift, const long first, const long last)
{
    const long line = get_global_id(1), part = get_global_id(0);
    const long start = extent * part / parts, end = extent * (part + 1) / parts;
    uint at[256], sum = 0;
    counts += counts_offset + line * parts * 256;
    for (int d = 0; d < 256; d++)
        for (long p = 0; p < parts; p++) {
            if (p == part)
                at[d] = sum;
            sum += counts[p * 256 + d];
        }
    values += values_offset + line * extent;
    result += result_offset + line * kept;
    from += from_offset + line * extent;
    to += to_offset + line * extent;
    for (long i = start; i < end; i++) {
        const key own = first ? key_of(VALUE(values, i), (uint)i) : from[i];
        const uint place = at[DIGIT(own, shift)]++;
        if (!last)
            to[place] = own;
        else if (place < kept)
            result[place] = POSITION(own);
    }
}
