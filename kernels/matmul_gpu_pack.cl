/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An operand for matmul_wgmma.cl or matmul_mma_rows.cl, from wherever its elements lie and whatever
 * is made of them: lines with k contiguous, `lead` elements apart, [batch][part][lines][lead].
 *
 *     args    a, packed, packed_offset, lines, k, lead, a_offset, a_row, a_column, a_batch
 *     global  256 * ceil(k / 64), ceil(lines / 64), batch        local  256, 1, 1
 *
 * Element k of a line is a_column from the next and a_row from that of the next line. lead is a
 * multiple of 4, at least k; what lies between line's ends is left as it is. packed starts at a
 * multiple of 16 bytes. ALIGNED 1: so do quads of elements along whichever is contiguous, which are
 * all there. Integers are long.
 *
 *     BYTES  PARTS  packed has
 *     1      1      i8, of whole numbers
 *     2      1      elements of 16 bits, as they are
 *     4      1      floats
 *     4      2      floats in tf32, and then what is left of them, in tf32 as well */
#ifndef BYTES
#define BYTES 4
#endif
#ifndef PARTS
#define PARTS 1
#endif

#ifndef ALIGNED
#define ALIGNED 0
#endif

#include "helpers.h"

#if BYTES == 2
#define VALUE ushort
#define VALUES ushort4
#else
#define VALUE float
#define VALUES float4
#endif
#if BYTES == 1
#define ELEMENT char
#else
#define ELEMENT VALUE
#endif

#define LOAD(i, space, p) (*(space const VALUES *)(p))
#define VECTOR 4
#include "operands.h"
#if BYTES == 2
#undef OPERAND_A_TYPE
#define OPERAND_A_TYPE VALUE
#endif

#define EDGE 64
#define ITEMS 256
#define QUADS (EDGE / 4)

/* Four neighbours along k, to a multiple of as much. */
INLINE void store_quad(VALUES value, __global ELEMENT *to)
{
#if BYTES == 1
    *(__global char4 *)to = convert_char4(value);
#else
    *(__global VALUES *)to = value;
#endif
}

#if PARTS == 2
/* The nearest number of tf32, which has the upper 10 bits of a float's fraction; of the largest
 * floats the one below. */
INLINE float4 round_to_tf32(float4 value)
{
    const uint4 cut = as_uint4(value) & 0xffffe000u, near = (as_uint4(value) + 0x1000u) & 0xffffe000u;
    return as_float4(select(near, cut, (near & 0x7f800000u) == 0x7f800000u));
}
#endif

/* A square of local memory, by k; reading goes along whichever is contiguous. */
#if ALIGNED
INLINE void read_square(__local VALUE square[EDGE][EDGE + 1],
                        __global const OPERAND_A_TYPE *restrict a, long row, long column, int lines,
                        int depth, int item PLACE_A)
{
    const int along = column == 1;
#pragma unroll
    for (int i = item; i < EDGE * QUADS; i += ITEMS) {
        const int slow = i / QUADS, fast = i % QUADS * 4;
        const int line = along ? slow : fast, k = along ? fast : slow;
        if (line >= lines || k >= depth)
            continue;
        __global const OPERAND_A_TYPE *from = a + line * row + k * column;
        const VALUES quad = READ_A_VECTOR(0, from, line, k);
        square[k][line] = quad.x;
        square[k + along][line + !along] = quad.y;
        square[k + 2 * along][line + 2 * !along] = quad.z;
        square[k + 3 * along][line + 3 * !along] = quad.w;
    }
}
#else
INLINE void read_square(__local VALUE square[EDGE][EDGE + 1],
                        __global const OPERAND_A_TYPE *restrict a, long row, long column, int lines,
                        int depth, int item PLACE_A)
{
    const int fast = item % EDGE, slow = item / EDGE;
#pragma unroll
    for (int i = 0; i < EDGE; i += ITEMS / EDGE) {
        const int line = column == 1 ? slow + i : fast, k = column == 1 ? fast : slow + i;
        if (line < lines && k < depth)
            square[k][line] = READ_A(a, line * row + k * column, line, k);
    }
}
#endif

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void
matmul_gpu_pack(__global const OPERAND_A_TYPE *restrict a, __global ELEMENT *restrict packed,
                long packed_offset, long lines, long k, long lead, long a_offset, long a_row,
                long a_column, long a_batch OPERAND_A_PARAMETERS)
{
    __local VALUE square[EDGE][EDGE + 1];
    const int item = get_local_id(0);
    const long batch = get_group_id(2);
    const long first_k = (long)get_group_id(0) * EDGE, first = (long)get_group_id(1) * EDGE;
    const int depth = (int)min((long)EDGE, k - first_k), high = (int)min((long)EDGE, lines - first);

    a += a_offset + batch * a_batch + first * a_row + first_k * a_column;
    read_square(square, a, a_row, a_column, high, depth, item AT_A(batch, first, lines, first_k));
    barrier(CLK_LOCAL_MEM_FENCE);

    packed += packed_offset + (batch * PARTS * lines + first) * lead + first_k;
#pragma unroll
    for (int i = 0; i < EDGE * QUADS / ITEMS; i++) {
        const int line = item / QUADS + i * (ITEMS / QUADS), at = item % QUADS * 4;
        if (line >= high || at >= depth)
            continue;
        VALUES quad;
        quad.x = square[at][line];
        quad.y = at + 1 < depth ? square[at + 1][line] : (VALUE)0;
        quad.z = at + 2 < depth ? square[at + 2][line] : (VALUE)0;
        quad.w = at + 3 < depth ? square[at + 3][line] : (VALUE)0;
#if PARTS == 2
        const float4 near = round_to_tf32(quad);
        store_quad(near, packed + line * lead + at);
        store_quad(round_to_tf32(quad - near), packed + (lines + line) * lead + at);
#else
        store_quad(quad, packed + line * lead + at);
#endif
    }
}
