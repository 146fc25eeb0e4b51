/* SPDX-License-Identifier: Apache-2.0 */
/*
 * C[b] = A[b] B[b] in float for CPUs, in one launch and without scratch: the small sizes.
 *
 * Each item packs one panel of B after the other into local memory and multiplies its rows of A,
 * read where they are, with it.
 *     args    a, b, c, m, n, k, a_offset, a_row, a_column, a_batch, b_offset, b_row, b_column,
 *             b_batch, c_offset, c_row, c_batch, item_rows, item_panels
 *     global  ceil(panels / item_panels), ceil(m / item_rows), batch       local  1, 1, 1
 *     panels = ceil(n / TILE_COLUMNS); item_rows is best a multiple of TILE_ROWS.
 * Offsets and strides count elements; integer arguments are long. Any strides are right for A and
 * B; fast is a row or a column stride of 1. k of 0 writes zeros. Local memory: BLOCK_DEPTH *
 * TILE_COLUMNS * 4 bytes.
 *
 *     VECTOR  TILE_ROWS  TILE_VECTORS   for
 *     16      8          2              AVX-512
 *     8       6          2              AVX2
 *     4       4          2              SSE, unknown
 *     any     12 (16), 8 1              n at most VECTOR; 12 rows for 16
 */
#ifndef VECTOR
#define VECTOR 16
#endif
#ifndef TILE_ROWS
#define TILE_ROWS 8
#endif
#ifndef TILE_VECTORS
#define TILE_VECTORS 2
#endif
#ifndef BLOCK_DEPTH
#define BLOCK_DEPTH 256
#endif
#define TILE_COLUMNS (TILE_VECTORS * VECTOR)
#define PACK_SPACE __local
#include "cpu_vector.h"
#include "operands.h"
#include "cpu_pack.h"
#include "cpu_tile.h"

INLINE void pack_panel(__global const OPERAND_B_TYPE *b, long row, long column, int depth,
                       int columns, __local float *packed PLACE_B)
{
    if (columns == TILE_COLUMNS && column == 1)
        pack_rows(b, row, depth, packed AT_B(b_in, b_line, b_lines, b_k));
    else if (columns == TILE_COLUMNS && row == 1)
        pack_columns(b, column, depth, packed AT_B(b_in, b_line, b_lines, b_k));
    else
        pack_elements(b, row, column, depth, columns,
                      packed AT_B(b_in, b_line, b_lines, b_k));
}

/* An A of which more is to be made than to read it: a tile of rows is made once for a panel, next to
 * each other. */
#ifdef OPERAND_A
#define A_SPACE __local
INLINE void make_rows(__global const OPERAND_A_TYPE *a, long row, long column, int rows, int depth,
                      __local float *made PLACE_A)
{
    for (int i = 0; i < rows; i++) {
        int k = 0;
        for (; column == 1 && k + VECTOR <= depth; k += VECTOR)
            STORE(READ_A_VECTOR(0, a + i * row + k, i, k), 0, __local, made + i * BLOCK_DEPTH + k);
        PLAIN_LOOP
        for (; k < depth; k++)
            made[i * BLOCK_DEPTH + k] = READ_A(a, i * row + k * column, i, k);
    }
}
#else
#define A_SPACE __global
#endif

/* sums = TILE_ROWS rows of A times a panel. Past the last row it reads that row again. */
INLINE void multiply_tile(A_SPACE const float *a, long row, long column, int rows,
                          __local const float *panel, int depth,
                          vector sums[TILE_ROWS][TILE_VECTORS])
{
    long start[TILE_ROWS];
#pragma unroll
    for (int i = 0; i < TILE_ROWS; i++) {
        start[i] = min(i, rows - 1) * row;
#pragma unroll
        for (int v = 0; v < TILE_VECTORS; v++)
            sums[i][v] = (vector)(0.0f);
    }
#pragma unroll 2
    for (int k = 0; k < depth; k++) {
        vector line[TILE_VECTORS];
#pragma unroll
        for (int v = 0; v < TILE_VECTORS; v++)
            line[v] = LOAD(v, __local, panel + k * TILE_COLUMNS);
#pragma unroll
        for (int i = 0; i < TILE_ROWS; i++) {
            const vector factor = (vector)(a[start[i] + k * column]);
#pragma unroll
            for (int v = 0; v < TILE_VECTORS; v++)
                sums[i][v] = fma(factor, line[v], sums[i][v]);
        }
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
matmul_small(__global const OPERAND_A_TYPE *restrict a, __global const OPERAND_B_TYPE *restrict b,
             __global float *c, long m, long n, long k, long a_offset, long a_row,
             long a_column, long a_batch, long b_offset, long b_row, long b_column, long b_batch,
             long c_offset, long c_row, long c_batch, long item_rows,
             long item_panels OPERAND_A_PARAMETERS OPERAND_B_PARAMETERS EPILOGUE_PARAMETERS)
{
    __local float block[BLOCK_DEPTH * TILE_COLUMNS];
#ifdef OPERAND_A
    __local float made[TILE_ROWS * BLOCK_DEPTH];
#endif
    const long batch = get_group_id(2);
    const long row0 = (long)get_group_id(1) * item_rows;
    const int rows = min(item_rows, m - row0);
    const long column0 = (long)get_group_id(0) * item_panels * TILE_COLUMNS;
    const long column1 = min(column0 + item_panels * TILE_COLUMNS, n);

    a += a_offset + batch * a_batch + row0 * a_row;
    b += b_offset + batch * b_batch;
    c += c_offset + batch * c_batch + row0 * c_row;
    for (long column = column0; column < column1; column += TILE_COLUMNS) {
        const int columns = min((long)TILE_COLUMNS, n - column);
        for (long k0 = 0; k0 == 0 || k0 < k; k0 += BLOCK_DEPTH) {
            const int depth = min((long)BLOCK_DEPTH, k - k0);
            pack_panel(b + k0 * b_row + column * b_column, b_row, b_column, depth, columns,
                       block AT_B(batch, column, n, k0));
            for (int i = 0; i < rows; i += TILE_ROWS) {
                vector sums[TILE_ROWS][TILE_VECTORS];
#ifdef OPERAND_A
                make_rows(a + i * a_row + k0 * a_column, a_row, a_column, min(TILE_ROWS, rows - i),
                          depth, made AT_A(batch, row0 + i, m, k0));
                multiply_tile(made, BLOCK_DEPTH, 1, rows - i, block, depth, sums);
#else
                multiply_tile(a + i * a_row + k0 * a_column, a_row, a_column, rows - i, block,
                              depth, sums);
#endif
                write_tile(sums, c + i * c_row + column, c_row, rows - i, columns, k0 == 0);
            }
        }
    }
#ifdef EPILOGUE
    finish(c + column0, c_row, rows, column1 - column0, batch, row0, column0 EPILOGUE_ARGUMENTS);
#endif
}
