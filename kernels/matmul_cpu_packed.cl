/* SPDX-License-Identifier: Apache-2.0 */
/*
 * C[b] = A[b] B[b] in float for CPUs, with B packed: the large sizes.
 *
 * Launch 1, matmul_pack_b, copies B to scratch as [batch][panel][k][TILE_COLUMNS], zero padded.
 *     args    b, packed, packed_offset, n, k, b_offset, b_row, b_column, b_batch
 *     global  panels, ceil(k / PACK_DEPTH), batch (1 if b_batch is 0)      local  1, 1, 1
 * Launch 2, matmul_packed: each item walks its rows of A, read where they are or, if LINES is not 0,
 * copied to local memory, LINES at a time, and for each tile its panels, a block of BLOCK_DEPTH of k
 * and NEAR_PANELS of them at a time.
 *     args    a, packed, c, m, n, k, a_offset, a_row, a_column, a_batch, packed_offset,
 *             packed_batch, c_offset, c_row, c_batch, item_rows, item_panels
 *     global  ceil(panels / item_panels), ceil(m / item_rows), batch       local  1, 1, 1
 *     panels = ceil(n / TILE_COLUMNS); packed_batch = panels * k * TILE_COLUMNS, or 0 if b_batch
 * is; item_rows is best a multiple of TILE_ROWS. Scratch: batch (1 if b_batch is 0) * panels * k * TILE_COLUMNS * 4 bytes. Local memory:
 * LINES * (BLOCK_DEPTH + 16) * 4 bytes. LINES is a multiple of TILE_ROWS; an A of which more is made
 * than to read it (operands.h) has to have some. Offsets and strides count elements; integer
 * arguments are long. Any strides are right for A and B; fast is a row or a column stride of 1, a
 * row stride with LINES. k of 0 (then no launch 1) writes zeros.
 *
 * Or, for few rows, launch 2 is matmul_few: an item takes a vector of columns after the other, with
 * VECTOR rows in registers, so that each line of B comes from memory once.
 *     args    a, packed, c, m, n, k, a_offset, a_row, a_column, a_batch, packed_offset,
 *             packed_batch, c_offset, c_row, c_batch, item_vectors
 *     global  ceil(ceil(n / VECTOR) / item_vectors), 1, batch              local  1, 1, 1
 *     m is at most FEW_TILES * VECTOR. Local memory: FEW_TILES * VECTOR * BLOCK_DEPTH * 4 bytes.
 *
 *     VECTOR  TILE_ROWS  TILE_VECTORS   for
 *     16      6          4              AVX-512
 *     8       6          2              AVX2
 *     4       4          2              SSE, unknown
 */
#ifndef VECTOR
#define VECTOR 16
#endif
#ifndef TILE_ROWS
#define TILE_ROWS 6
#endif
#ifndef TILE_VECTORS
#define TILE_VECTORS 4
#endif
#ifndef BLOCK_DEPTH
#define BLOCK_DEPTH 256
#endif
#ifndef LINES
#define LINES 0
#endif
#ifndef FEW_TILES
#define FEW_TILES 2
#endif
#ifndef PACK_DEPTH
#define PACK_DEPTH 256
#endif
/* A block of that many panels stays in the second cache, beside a tile of A in the first. */
#define NEAR_PANELS 4
#define TILE_COLUMNS (TILE_VECTORS * VECTOR)
#define PACK_SPACE __global
#include "cpu_vector.h"
#include "operands.h"
#include "cpu_lines.h"
#include "cpu_pack.h"
#include "cpu_tile.h"

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
matmul_pack_b(__global const OPERAND_B_TYPE *restrict b, __global float *restrict packed,
              long packed_offset, long n, long k, long b_offset, long b_row, long b_column,
              long b_batch OPERAND_B_PARAMETERS)
{
    const long panel = get_group_id(0), batch = get_group_id(2);
    const long panels = (n + TILE_COLUMNS - 1) / TILE_COLUMNS;
    const long first_k = (long)get_group_id(1) * PACK_DEPTH;
    const long depth = min((long)PACK_DEPTH, k - first_k);
    const int columns = min((long)TILE_COLUMNS, n - panel * TILE_COLUMNS);

    b += b_offset + batch * b_batch + first_k * b_row + panel * TILE_COLUMNS * b_column;
    packed += packed_offset + ((batch * panels + panel) * k + first_k) * TILE_COLUMNS;
    if (columns == TILE_COLUMNS && b_column == 1)
        pack_rows(b, b_row, depth, packed AT_B(batch, panel * TILE_COLUMNS, n, first_k));
    else if (columns == TILE_COLUMNS && b_row == 1)
        pack_columns(b, b_column, depth, packed AT_B(batch, panel * TILE_COLUMNS, n, first_k));
    else
        pack_elements(b, b_row, b_column, depth, columns,
                      packed AT_B(batch, panel * TILE_COLUMNS, n, first_k));
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
matmul_packed(__global const OPERAND_A_TYPE *restrict a, __global const float *restrict packed,
              __global float *c, long m, long n, long k, long a_offset, long a_row,
              long a_column, long a_batch, long packed_offset, long packed_batch, long c_offset,
              long c_row, long c_batch, long item_rows,
              long item_panels OPERAND_A_PARAMETERS EPILOGUE_PARAMETERS)
{
#if LINES
    __local float lines[LINES * TILE_LINE];
#else
    __local float *const lines = 0; /* an array that nobody uses makes PoCL 6 abort */
#endif
    const long batch = get_group_id(2);
    const long row0 = (long)get_group_id(1) * item_rows;
    const int rows = min(item_rows, m - row0);
    const long panels = (n + TILE_COLUMNS - 1) / TILE_COLUMNS;
    const long panel0 = (long)get_group_id(0) * item_panels;
    const long panel1 = min(panel0 + item_panels, panels);

    a += a_offset + batch * a_batch + row0 * a_row;
    packed += packed_offset + batch * packed_batch;
    c += c_offset + batch * c_batch + row0 * c_row;
    for (long k0 = 0; k0 == 0 || k0 < k; k0 += BLOCK_DEPTH) {
        const int depth = min((long)BLOCK_DEPTH, k - k0);
        for (long first = panel0; first < panel1; first += NEAR_PANELS) {
            const long end = min(first + NEAR_PANELS, panel1);
            for (int i = 0; i < rows; i += TILE_ROWS) {
#if LINES
                if (i % LINES == 0)
                    copy_lines(a + i * a_row + k0 * a_column, a_row, a_column, min(LINES, rows - i),
                               depth, lines AT_A(batch, row0 + i, m, k0));
#endif
                for (long panel = first; panel < end; panel++) {
                    const long column = panel * TILE_COLUMNS;
                    vector sums[TILE_ROWS][TILE_VECTORS];
                    expect_tile(c + i * c_row + column, c_row, rows - i);
                    multiply_tile(a + i * a_row + k0 * a_column, a_row, a_column, rows - i,
                                  lines + (LINES ? i % LINES * TILE_LINE : 0),
                                  packed + (panel * k + k0) * TILE_COLUMNS, depth, sums);
                    write_tile(sums, c + i * c_row + column, c_row, rows - i,
                               min((long)TILE_COLUMNS, n - column), k0 == 0);
                }
            }
        }
    }
#ifdef EPILOGUE
    const long column = panel0 * TILE_COLUMNS;
    finish(c + column, c_row, rows, min(panel1 * TILE_COLUMNS, n) - column, batch, row0,
           column EPILOGUE_ARGUMENTS);
#endif
}

/* Up to VECTOR rows of A as [k][VECTOR]; past the last row that one again. */
INLINE void pack_a_lines(__global const OPERAND_A_TYPE *a, long row, long column, int depth,
                         int rows, __local float *packed PLACE_A)
{
    int k = 0;
    for (; column == 1 && k + VECTOR <= depth; k += VECTOR) {
        vector square[VECTOR];
#pragma unroll
        for (int i = 0; i < VECTOR; i++)
            square[i] = READ_A_VECTOR(0, a + min(i, rows - 1) * row + k, i, k);
        transpose_square(square);
#pragma unroll
        for (int i = 0; i < VECTOR; i++)
            STORE(square[i], k + i, __local, packed);
    }
    PLAIN_LOOP
    for (; k < depth; k++) {
        PLAIN_LOOP
        for (int i = 0; i < VECTOR; i++)
            packed[k * VECTOR + i] = READ_A(a, min(i, rows - 1) * row + k * column, i, k);
    }
}

/* Lines of a panel that come near before they are used: no more than the nearest memory holds of
 * them, which lie a panel apart. */
#define AHEAD 128
/* VECTOR rows of A times a vector of columns of a packed panel, added to C. What comes, `next` behind
 * it, is fetched ahead: the device sees no pattern in lines a panel apart. */
INLINE void multiply_column(__local const float *a, __global const float *b,
                            __global const float *next, int depth, __global float *c, long c_row,
                            int rows, int columns, bool first)
{
    vector sums[VECTOR];
#pragma unroll
    for (int i = 0; i < VECTOR; i++)
        sums[i] = (vector)(0.0f);
    const int rest = max(0, depth - AHEAD);
    __global const float *ahead = b + AHEAD * TILE_COLUMNS;
    for (int k = 0, end = rest; k < depth; end = depth, ahead = next - rest * TILE_COLUMNS) {
        for (; k < end; k++) {
            const vector line = LOAD(0, __global, b + k * TILE_COLUMNS);
            __builtin_prefetch((const void *)(size_t)(ahead + k * TILE_COLUMNS));
#pragma unroll
            for (int i = 0; i < VECTOR; i++)
                sums[i] = fma((vector)(a[k * VECTOR + i]), line, sums[i]);
        }
    }
    if (rows == VECTOR && columns == VECTOR && first) {
#pragma unroll
        for (int i = 0; i < VECTOR; i++)
            STORE(sums[i], 0, __global, c + i * c_row);
        return;
    }
    float tile[VECTOR * VECTOR];
#pragma unroll
    for (int i = 0; i < VECTOR; i++)
        STORE(sums[i], i, __private, tile);
    PLAIN_LOOP
    for (int i = 0; i < rows; i++)
        write_sums(tile + i * VECTOR, c + i * c_row, columns, first);
}

/* Where a vector of columns lies in packed panels. */
INLINE long column_at(int v, long k, long k0)
{
    return (v / TILE_VECTORS * k + k0) * TILE_COLUMNS + v % TILE_VECTORS * VECTOR;
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
matmul_few(__global const OPERAND_A_TYPE *restrict a, __global const float *restrict packed,
           __global float *c, long m, long n, long k, long a_offset, long a_row, long a_column,
           long a_batch, long packed_offset, long packed_batch, long c_offset, long c_row,
           long c_batch, long item_vectors OPERAND_A_PARAMETERS EPILOGUE_PARAMETERS)
{
    __local float block[FEW_TILES * VECTOR * BLOCK_DEPTH];
    const long batch = get_group_id(2);
    const int first = (long)get_group_id(0) * item_vectors;
    const int end = min((long)first + item_vectors, (n + VECTOR - 1) / VECTOR);
    const int rows = m;

    a += a_offset + batch * a_batch;
    packed += packed_offset + batch * packed_batch;
    c += c_offset + batch * c_batch;
    for (long k0 = 0; k0 == 0 || k0 < k; k0 += BLOCK_DEPTH) {
        const int depth = min((long)BLOCK_DEPTH, k - k0);
        for (int i = 0; i < rows; i += VECTOR)
            pack_a_lines(a + i * a_row + k0 * a_column, a_row, a_column, depth,
                         min(VECTOR, rows - i), block + i * depth AT_A(batch, i, m, k0));
        for (int v = first; v < end; v++) {
            __global const float *b = packed + column_at(v, k, k0);
            __global const float *next = packed + (v + 1 < end ? column_at(v + 1, k, k0)
                                                               : column_at(first, k, k0 + depth));
            for (int i = 0; i < rows; i += VECTOR)
                multiply_column(block + i * depth, b, next, depth, c + i * c_row + v * VECTOR, c_row,
                                min(VECTOR, rows - i), min((long)VECTOR, n - v * VECTOR), k0 == 0);
        }
    }
#ifdef EPILOGUE
    const long column = first * VECTOR;
    finish(c + column, c_row, rows, min((long)end * VECTOR, n) - column, batch, 0,
           column EPILOGUE_ARGUMENTS);
#endif
}
