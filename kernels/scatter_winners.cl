/* SPDX-License-Identifier: Apache-2.0 */
/*
 * result[o][indices[j]][i] becomes values[o][j][i] for all o, j and i, where of several j the last
 * one wins; an index that is negative or too large changes nothing. Three launches:
 *
 * scatter_clear forgets which index has won each row, or those alone that an index leads to.
 *     args    indices, offset, winners (extent of them), offset, count (of j), extent (rows of the
 *             result)
 *     global  a multiple of WG
 *     local   WG, 1, 1
 * scatter_claim lets the largest j win. Of neighbours that lead to one row only the last one tries,
 * and items begin with the last ones, so that most of those that lose see it before they try; one
 * that sees an earlier winner tries for nothing.
 *     args    as before
 *     global  a multiple of WG
 *     local   WG, 1, 1
 * scatter_write has each winner written: by rows, or with more rows than indices by these.
 *     args    values, offset, indices, offset, winners, offset, result, offset, count, extent, inner
 *     global  COLUMNS, extent or count in multiples of WG / COLUMNS, outer
 *     local   COLUMNS, WG / COLUMNS, 1
 * With BY_ROWS launches go over rows. Integer arguments are long.
 */
#ifndef TYPE
#define TYPE float
#endif
#ifndef INDEX
#define INDEX int
#endif
#ifndef WG
#define WG 64
#define COLUMNS 64
#endif

#include "scatter.h"

#ifdef BY_ROWS
#define VISITS extent
#define VISITED(n) (ulong)(n)
#define HAS_WON(j, n) ((j) >= 0)
#else
#define VISITS count
#define VISITED(n) ROW_OF(n)
#define HAS_WON(j, n) ((j) == (n))
#endif

kernel __attribute__((reqd_work_group_size(WG, 1, 1)))
void scatter_clear(global const OPERAND_B_TYPE *restrict indices, const long indices_offset,
                   global int *restrict winners, const long winners_offset, const long count,
                   const long extent)
{
    winners += winners_offset;
    indices += indices_offset;
    for (long n = get_global_id(0); n < VISITS; n += get_global_size(0)) {
        const ulong row = VISITED(n);
        if (row < (ulong)extent)
            winners[row] = -1;
    }
}

kernel __attribute__((reqd_work_group_size(WG, 1, 1)))
void scatter_claim(global const OPERAND_B_TYPE *restrict indices, const long indices_offset,
                   global int *winners, const long winners_offset, const long count,
                   const long extent)
{
    volatile global int *won = winners + winners_offset;
    indices += indices_offset;
    for (long n = get_global_id(0); n < count; n += get_global_size(0)) {
        const long j = count - 1 - n;
        const ulong row = ROW_OF(j);
        if (row < (ulong)extent && !(n > 0 && ROW_OF(j + 1) == row) && won[row] < (int)j)
            atomic_max(won + row, (int)j);
    }
}

kernel __attribute__((reqd_work_group_size(COLUMNS, WG / COLUMNS, 1)))
void scatter_write(global const OPERAND_A_TYPE *restrict values, const long values_offset,
                   global const OPERAND_B_TYPE *restrict indices, const long indices_offset,
                   global const int *restrict winners, const long winners_offset,
                   global TYPE *restrict result, const long result_offset, const long count,
                   const long extent, const long inner)
{
    const long n = get_global_id(1), outer = get_global_id(2);
    values += values_offset + outer * count * inner;
    indices += indices_offset;
    winners += winners_offset;
    result += result_offset + outer * extent * inner;
    if (n >= VISITS)
        return;
    const ulong row = VISITED(n);
    if (row >= (ulong)extent)
        return;
    const int j = winners[row]; /* of a long one Mesa's llvmpipe does not see that it is negative */
    if (!HAS_WON(j, n))
        return;
    for (long i = get_local_id(0); i < inner; i += COLUMNS)
        result[row * inner + i] = VALUE(j * inner + i);
}
