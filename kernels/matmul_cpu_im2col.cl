/* SPDX-License-Identifier: Apache-2.0 */
/*
 * C = A B in float for CPUs, where the rows of A are patches of an image: a convolution, computed
 * from the image as it lies. A row of A is given by up to three indices, of which each has a stride
 * in the image, and so is an element of the row; the last of these is contiguous, in runs.
 *
 * Launch 1 is matmul_pack_b (matmul_cpu_packed.cl), with the same options. Launch 2, matmul_im2col:
 * each item takes a tile of its rows after the other, a block of BLOCK_DEPTH of k at a time, and
 * walks its panels. LINES, not 0, has the tile copied next to each other into local memory before:
 * for tiles of more rows than there are registers that hold where they are.
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
#ifndef LINES
#define LINES 0
#endif

#define TILE_COLUMNS (TILE_VECTORS * VECTOR)
#define PACK_SPACE __global
#include "cpu_vector.h"
#include "cpu_lines.h"
#include "cpu_tile.h"

/* Where rows, and their elements, lie in the image. */
struct patches {
    int rows_1, rows_2, taps, run;
    long row_0, row_1, row_2, tap_0, tap_1;
};

/* Where the rows of a tile begin; past the last one that again. */
INLINE void find_rows(const struct patches *patches, long row, int rows, long start[TILE_ROWS])
{
#pragma unroll
    for (int i = 0; i < TILE_ROWS; i++) {
        const uint at = row + min(i, rows - 1), line = at / (uint)patches->rows_2;
        start[i] = line / (uint)patches->rows_1 * patches->row_0 +
                   line % (uint)patches->rows_1 * patches->row_1 +
                   at % (uint)patches->rows_2 * patches->row_2;
    }
}

/* From element l of a row on, where it lies and how many lie behind it, up to `end`. */
INLINE long find_run(const struct patches *patches, int l, int end, int *count)
{
    const uint tap = (uint)l / (uint)patches->run, within = (uint)l % (uint)patches->run;
    *count = min(patches->run - (int)within, end - l);
    return tap / (uint)patches->taps * patches->tap_0 +
           tap % (uint)patches->taps * patches->tap_1 + within;
}

/* Elements `from` to `end` of a tile of rows, as lines next to each other. */
INLINE void copy_patches(__global const float *a, const struct patches *patches,
                         const long start[TILE_ROWS], int from, int end, __local float *tile)
{
    int count;
    PLAIN_LOOP
    for (int l = from; l < end; l += count) {
        __global const float *place = a + find_run(patches, l, end, &count);
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
    }
}

/* sums += elements `from` to `end` of a tile of rows, read where they are, times a packed panel. */
INLINE void add_patches(__global const float *a, const struct patches *patches,
                        const long start[TILE_ROWS], int from, int end, __global const float *b,
                        vector sums[TILE_ROWS][TILE_VECTORS])
{
    int count;
    PLAIN_LOOP
    for (int l = from; l < end; l += count, b += count * TILE_COLUMNS) {
        __global const float *place = a + find_run(patches, l, end, &count), *rows[TILE_ROWS];
#pragma unroll
        for (int i = 0; i < TILE_ROWS; i++)
            rows[i] = place + start[i];
        add_rows(rows, 1, b, count, sums);
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
matmul_im2col(__global const float *restrict a, __global const float *restrict packed,
               __global float *c, long m, long n, long k, long a_offset, long rows_1, long rows_2,
               long row_0, long row_1, long row_2, long taps, long run, long tap_0, long tap_1,
               long packed_offset, long c_offset, long c_row, long item_rows,
               long item_panels EPILOGUE_PARAMETERS)
{
#if LINES
    __local float tile[TILE_ROWS * TILE_LINE];
#else
    __local float *const tile = 0; /* an array that nobody uses makes PoCL 6 abort */
#endif
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
            long start[TILE_ROWS];
            find_rows(&patches, row0 + i, rows - i, start);
            if (LINES)
                copy_patches(a, &patches, start, k0, k0 + depth, tile);
            for (long panel = panel0; panel < panel1; panel++) {
                __global const float *panel_at = packed + (panel * k + k0) * TILE_COLUMNS;
                const long column = panel * TILE_COLUMNS;
                const int columns = min((long)TILE_COLUMNS, n - column);
                vector sums[TILE_ROWS][TILE_VECTORS];
                expect_tile(c + i * c_row + column, c_row, rows - i);
                clear_sums(sums);
                if (LINES)
                    add_lines(tile, panel_at, depth, sums);
                else
                    add_patches(a, &patches, start, k0, k0 + depth, panel_at, sums);
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
