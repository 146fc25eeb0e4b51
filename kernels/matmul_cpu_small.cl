/* SPDX-License-Identifier: Apache-2.0 */
/*
 * C[b] = A[b] B[b] in float for CPUs, in one launch and without scratch: the small sizes, and large
 * ones whose B is new in each run.
 *
 * Each item packs PANELS panels of B after the others into local memory and multiplies its rows of
 * A with them, read where they are or, if LINES is not 0, copied to local memory, LINES at a time.
 *     args    a, b, c, m, n, k, a_offset, a_row, a_column, a_batch, b_offset, b_row, b_column,
 *             b_batch, c_offset, c_row, c_batch, item_rows, item_panels
 *     global  ceil(panels / item_panels), ceil(m / item_rows), batch       local  1, 1, 1
 *     panels = ceil(n / TILE_COLUMNS); item_rows is best a multiple of TILE_ROWS.
 * Offsets and strides count elements; integer arguments are long. Any strides are right for A and
 * B; fast is a row or a column stride of 1. k of 0 writes zeros. Local memory: PANELS *
 * BLOCK_DEPTH * TILE_COLUMNS * 4 bytes, and LINES * (BLOCK_DEPTH + 16) * 4. LINES is a multiple of
 * TILE_ROWS; an A of which more is made than to read it (operands.h) has to have some.
 *
 *     VECTOR  TILE_ROWS  TILE_VECTORS   for
 *     16      8          2              AVX-512
 *     8       6          2              AVX2
 *     4       4          2              SSE, unknown
 *     as matmul_cpu_packed.cl, LINES    larger ones
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
#ifndef PANELS
#define PANELS 1
#endif
#ifndef LINES
#define LINES 0
#endif
#define TILE_COLUMNS (TILE_VECTORS * VECTOR)
#define PACK_SPACE __local
#include "cpu_vector.h"
#include "operands.h"
#include "cpu_lines.h"
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

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
matmul_small(__global const OPERAND_A_TYPE *restrict a, __global const OPERAND_B_TYPE *restrict b,
             __global float *c, long m, long n, long k, long a_offset, long a_row,
             long a_column, long a_batch, long b_offset, long b_row, long b_column, long b_batch,
             long c_offset, long c_row, long c_batch, long item_rows,
             long item_panels OPERAND_A_PARAMETERS OPERAND_B_PARAMETERS EPILOGUE_PARAMETERS)
{
    __local float block[PANELS * BLOCK_DEPTH * TILE_COLUMNS];
#if LINES
    __local float lines[LINES * TILE_LINE];
#else
    __local float *const lines = 0; /* an array that nobody uses makes PoCL 6 abort */
#endif
    const long batch = get_group_id(2);
    const long row0 = (long)get_group_id(1) * item_rows;
    const int rows = min(item_rows, m - row0);
    const long column0 = (long)get_group_id(0) * item_panels * TILE_COLUMNS;
    const long column1 = min(column0 + item_panels * TILE_COLUMNS, n);

    a += a_offset + batch * a_batch + row0 * a_row;
    b += b_offset + batch * b_batch;
    c += c_offset + batch * c_batch + row0 * c_row;
    for (long first = column0; first < column1; first += PANELS * TILE_COLUMNS) {
        const long end = min(first + PANELS * TILE_COLUMNS, column1);
        for (long k0 = 0; k0 == 0 || k0 < k; k0 += BLOCK_DEPTH) {
            const int depth = min((long)BLOCK_DEPTH, k - k0);
            for (long column = first; column < end; column += TILE_COLUMNS)
                pack_panel(b + k0 * b_row + column * b_column, b_row, b_column, depth,
                           min((long)TILE_COLUMNS, n - column),
                           block + (column - first) * BLOCK_DEPTH AT_B(batch, column, n, k0));
            for (int i = 0; i < rows; i += TILE_ROWS) {
#if LINES
                if (i % LINES == 0)
                    copy_lines(a + i * a_row + k0 * a_column, a_row, a_column, min(LINES, rows - i),
                               depth, lines AT_A(batch, row0 + i, m, k0));
#endif
                for (long column = first; column < end; column += TILE_COLUMNS) {
                    __local const float *panel = block + (column - first) * BLOCK_DEPTH;
                    vector sums[TILE_ROWS][TILE_VECTORS];
                    expect_tile(c + i * c_row + column, c_row, rows - i);
                    multiply_tile(a + i * a_row + k0 * a_column, a_row, a_column, rows - i,
                                  lines + (LINES ? i % LINES * TILE_LINE : 0), panel, depth, sums);
                    write_tile(sums, c + i * c_row + column, c_row, rows - i,
                               min((long)TILE_COLUMNS, n - column), k0 == 0);
                }
            }
        }
    }
#ifdef EPILOGUE
    finish(c + column0, c_row, rows, column1 - column0, batch, row0, column0 EPILOGUE_ARGUMENTS);
#endif
}
