/* SPDX-License-Identifier: Apache-2.0 */
/*
 * C[b] = A[b] B[b] in float for CPUs where the lines along k of one operand are whole blocks (x W' of
 * quantised weights W): an item has `item_many` of those lines and ROWS of the other operand's, and
 * makes each weight once for all of these.
 *
 *   matmul_blocks
 *     args    few, many, c, few_count, many_count, k, few_offset, few_stride, few_column, few_batch,
 *             c_offset, c_few, c_many, c_batch, item_many, few_are_columns
 *     global  ceil(many_count / item_many), batch, ceil(few_count / ROWS)   local  1, 1, 1
 *     many are rows of blocks: columns of B, c_few = c_row, c_many = 1, few_are_columns = 0; or rows
 *     of A, the other way round. few has any strides; STRIDED has to be 1 where few_column is not 1.
 *
 * A text before says how the blocks are read: OPERAND_B_BLOCK(batch, line) is the first one of a
 * line, of OPERAND_B_BYTES, and of OPERAND_B_ELEMENTS, of which OPERAND_B_SHARED neighbours share a
 * scale. OPERAND_B_MADE(block, i, ready) is a vector of weights from element i on, of what
 * OPERAND_B_READY(block, i), a struct OPERAND_B_SCALES, says of those that share it.
 *
 * Offsets and strides count elements; integer arguments are long. The order of additions is that of
 * k alone: VECTOR sums, added up at the end. It does not depend on how many lines there are.
 */
#ifndef VECTOR
#define VECTOR 16
#endif
#ifndef ROWS
#define ROWS 8
#endif
#ifndef STRIDED
#define STRIDED 0
#endif
/* Lines of blocks that are in flight at once; ROWS * TILE_MANY sums stay in registers. */
#ifndef TILE_MANY
#define TILE_MANY (ROWS >= 8 ? 2 : ROWS >= 4 ? 4 : 8)
#endif
#ifdef EPILOGUE
#define EPILOGUE_LATE
#endif
#include "epilogue.h"
#include "cpu_vector.h"
#include "cpu_dots.h"
#include "operands.h"

/* By itself this file takes the many as f32, "blocks" of a vector. */
#ifndef OPERAND_B_BLOCK
struct plain {
    int none;
};
#define OPERAND_B_SCALES struct plain
#define OPERAND_B_BLOCK(batch, line) (many + (line) * k)
#define OPERAND_B_BYTES VECTOR
#define OPERAND_B_ELEMENTS VECTOR
#define OPERAND_B_SHARED VECTOR
#define OPERAND_B_READY(block, i) ((struct plain){0})
#define OPERAND_B_MADE(block, i, ready) LOAD(0, __global, (block) + (i))
#define BLOCK_POINTER __global const float *
#else
#define BLOCK_POINTER __global const uchar *
#endif

/* VECTOR elements of line f of the few, from element `at` of k on. */
INLINE vector read_few(__global const OPERAND_A_TYPE *few, long start, long column, int f,
                       long at PLACE_A)
{
#if STRIDED
    float line[VECTOR];
    PLAIN_LOOP
    for (int v = 0; v < VECTOR; v++)
        line[v] = READ_A(few, start + (at + v) * column, f, at + v);
    return LOAD(0, __private, line);
#else
    return READ_A_VECTOR(0, few + start + at, f, at);
#endif
}

/* dots[f][i] = few[f] . many[i], block by block. Of the lines of the next tile what lies as far along
 * comes near meanwhile: short ones end before the device sees a pattern in them. */
INLINE void dot_tile(__global const OPERAND_A_TYPE *few, const long *few_start, long few_column,
                     BLOCK_POINTER block[TILE_MANY], long k, float dots[ROWS][TILE_MANY] PLACE_A)
{
    vector sums[ROWS][TILE_MANY];

#pragma unroll
    for (int f = 0; f < ROWS; f++) {
#pragma unroll
        for (int i = 0; i < TILE_MANY; i++)
            sums[f][i] = (vector)(0.0f);
    }
    const long ahead = k / OPERAND_B_ELEMENTS * OPERAND_B_BYTES * TILE_MANY;
    for (long start = 0; start < k; start += OPERAND_B_ELEMENTS) {
#pragma unroll
        for (int i = 0; i < TILE_MANY; i++)
            __builtin_prefetch((const void *)(size_t)(block[i] + ahead));
        for (int part = 0; part < OPERAND_B_ELEMENTS; part += OPERAND_B_SHARED) {
            OPERAND_B_SCALES ready[TILE_MANY];
#pragma unroll
            for (int i = 0; i < TILE_MANY; i++)
                ready[i] = OPERAND_B_READY(block[i], part);
#pragma unroll
            for (int j = 0; j < OPERAND_B_SHARED; j += VECTOR) {
                vector made[TILE_MANY];
#pragma unroll
                for (int i = 0; i < TILE_MANY; i++)
                    made[i] = OPERAND_B_MADE(block[i], part + j, ready[i]);
#pragma unroll
                for (int f = 0; f < ROWS; f++) {
                    const vector factor =
                        read_few(few, few_start[f], few_column, f, start + part + j PLACED_A);
#pragma unroll
                    for (int i = 0; i < TILE_MANY; i++)
                        sums[f][i] = fma(factor, made[i], sums[f][i]);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < TILE_MANY; i++)
            block[i] += OPERAND_B_BYTES;
    }
    add_up(sums, dots);
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
matmul_blocks(__global const OPERAND_A_TYPE *restrict few,
              __global const OPERAND_B_TYPE *restrict many, __global float *c, long few_count,
              long many_count, long k, long few_offset, long few_stride, long few_column,
              long few_batch, long c_offset, long c_few, long c_many, long c_batch, long item_many,
              long few_are_columns OPERAND_A_PARAMETERS OPERAND_B_PARAMETERS EPILOGUE_PARAMETERS)
{
    const long batch = get_group_id(1), few0 = (long)get_group_id(2) * ROWS;
    const int count = min((long)ROWS, few_count - few0);
    const long first = (long)get_group_id(0) * item_many;
    const long end = min(first + item_many, many_count);
    long few_start[ROWS];

    few += few_offset + batch * few_batch + few0 * few_stride;
    c += c_offset + batch * c_batch + few0 * c_few;
#pragma unroll
    for (int f = 0; f < ROWS; f++)
        few_start[f] = min(f, count - 1) * few_stride;
    for (long row = first; row < end; row += TILE_MANY) {
        float dots[ROWS][TILE_MANY];
        BLOCK_POINTER block[TILE_MANY];
#pragma unroll
        for (int i = 0; i < TILE_MANY; i++)
            block[i] = OPERAND_B_BLOCK(batch, min(row + i, end - 1));
        dot_tile(few, few_start, few_column, block, k, dots AT_A(batch, few0, few_count, 0));
        store_dots(dots, c, count, row, end, c_few, c_many);
    }
    finish_dots(c, batch, few0, count, first, end, c_few, c_many, few_are_columns EPILOGUE_ARGUMENTS);
}
