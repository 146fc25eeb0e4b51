/* SPDX-License-Identifier: Apache-2.0 */
/*
 * C = A B in float for CPUs, where the rows of A are patches of an image: a convolution, computed
 * from the image as it lies. A row of A is given by up to three indices, of which each has a stride
 * in the image, and so is an element of the row; the last of these is contiguous, in runs.
 *
 * Launch 1 is matmul_pack_b (matmul_cpu_packed.cl), with the same options. Launch 2, matmul_patches:
 * each item copies a tile of its rows, a block of BLOCK_DEPTH of k at a time, next to each other into
 * local memory, and walks its panels.
 *     args    a, packed, c, m, n, k, a_offset, rows_1, rows_2, row_0, row_1, row_2, taps, run,
 *             tap_0, tap_1, packed_offset, c_offset, c_row, item_rows, item_panels
 *     global  ceil(panels / item_panels), ceil(m / item_rows), 1            local  1, 1, 1
 *     Row i begins at a_offset + i / rows_2 / rows_1 * row_0 + i / rows_2 % rows_1 * row_1 +
 * i % rows_2 * row_2, its element l lies at l / run / taps * tap_0 + l / run % taps * tap_1 +
 * l % run from there. item_rows is best a multiple of TILE_ROWS. Offsets and strides count
 * elements; integer arguments are long.
 *
 * VECTOR, TILE_ROWS, TILE_VECTORS: as matmul_cpu_packed.cl has them. An element adds up in the same
 * order as there.
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

#define TILE_COLUMNS (TILE_VECTORS * VECTOR)
#include "cpu_vector.h"
#include "cpu_tile.h"

/* Lines of a tile do not start a power of two apart: loads of them would meet in the cache. */
#define TILE_LINE (BLOCK_DEPTH + 16)

/* Where rows, and their elements, lie in the image. */
struct patches {
    int rows_1, rows_2, taps, run;
    long row_0, row_1, row_2, tap_0, tap_1;
};

/* Elements `from` to `end` of a tile of rows, as lines next to each other. */
INLINE void copy_patches(__global const float *a, const struct patches *patches, long row,
                         int rows, int from, int end, __local float *tile)
{
    long start[TILE_ROWS];
    PLAIN_LOOP
    for (int i = 0; i < TILE_ROWS; i++) {
        const uint at = row + min(i, rows - 1), line = at / (uint)patches->rows_2;
        start[i] = line / (uint)patches->rows_1 * patches->row_0 +
                   line % (uint)patches->rows_1 * patches->row_1 +
                   at % (uint)patches->rows_2 * patches->row_2;
    }
    PLAIN_LOOP
    for (int l = from; l < end;) {
        const uint tap = (uint)l / (uint)patches->run, within = (uint)l % (uint)patches->run;
        const int count = min(patches->run - (int)within, end - l);
        __global const float *place = a + tap / (uint)patches->taps * patches->tap_0 +
                                      tap % (uint)patches->taps * patches->tap_1 + within;
        PLAIN_LOOP
        for (int i = 0; i < TILE_ROWS; i++) {
            __local float *line = tile + i * TILE_LINE + l - from;
            int k = 0;
            PLAIN_LOOP
            for (; k + VECTOR <= count; k += VECTOR)
                STORE(LOAD(0, __global, place + start[i] + k), 0, __local, line + k);
            PLAIN_LOOP
            for (; k < count; k++)
                line[k] = place[start[i] + k];
        }
        l += count;
    }
}

/* sums = a tile of rows times a packed panel. */
INLINE void multiply_tile(__local const float *a, __global const float *b, int depth,
                          vector sums[TILE_ROWS][TILE_VECTORS])
{
#pragma unroll
    for (int i = 0; i < TILE_ROWS; i++) {
#pragma unroll
        for (int v = 0; v < TILE_VECTORS; v++)
            sums[i][v] = (vector)(0.0f);
    }
    for (int k = 0; k < depth; k++) {
        vector line[TILE_VECTORS];
#pragma unroll
        for (int v = 0; v < TILE_VECTORS; v++)
            line[v] = LOAD(v, __global, b + k * TILE_COLUMNS);
#pragma unroll
        for (int i = 0; i < TILE_ROWS; i++) {
            const vector factor = (vector)(a[i * TILE_LINE + k]);
#pragma unroll
            for (int v = 0; v < TILE_VECTORS; v++)
                sums[i][v] = fma(factor, line[v], sums[i][v]);
        }
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
matmul_patches(__global const float *restrict a, __global const float *restrict packed,
               __global float *c, long m, long n, long k, long a_offset, long rows_1, long rows_2,
               long row_0, long row_1, long row_2, long taps, long run, long tap_0, long tap_1,
               long packed_offset, long c_offset, long c_row, long item_rows,
               long item_panels EPILOGUE_PARAMETERS)
{
    __local float tile[TILE_ROWS * TILE_LINE];
    const struct patches patches = {rows_1, rows_2, taps, run, row_0, row_1, row_2, tap_0, tap_1};
    const long row0 = (long)get_group_id(1) * item_rows;
    const int rows = min(item_rows, m - row0);
    const long panels = (n + TILE_COLUMNS - 1) / TILE_COLUMNS;
    const long panel0 = (long)get_group_id(0) * item_panels;
    const long panel1 = min(panel0 + item_panels, panels);

    a += a_offset;
    packed += packed_offset;
    c += c_offset + row0 * c_row;
    for (int k0 = 0; k0 < k; k0 += BLOCK_DEPTH) {
        const int depth = min((long)BLOCK_DEPTH, k - k0);
        for (int i = 0; i < rows; i += TILE_ROWS) {
            copy_patches(a, &patches, row0 + i, rows - i, k0, k0 + depth, tile);
            for (long panel = panel0; panel < panel1; panel++) {
                const long column = panel * TILE_COLUMNS;
                const int columns = min((long)TILE_COLUMNS, n - column);
                vector sums[TILE_ROWS][TILE_VECTORS];
                expect_tile(c + i * c_row + column, c_row, rows - i);
                multiply_tile(tile, packed + (panel * k + k0) * TILE_COLUMNS, depth, sums);
                write_tile(sums, c + i * c_row + column, c_row, rows - i, columns, k0 == 0);
            }
        }
    }
#ifdef EPILOGUE
    const long column = panel0 * TILE_COLUMNS;
    finish(c + column, c_row, rows, min(panel1 * TILE_COLUMNS, n) - column, 0, row0,
           column EPILOGUE_ARGUMENTS);
#endif
}
