/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of sums, TILE_ROWS by TILE_COLUMNS, on their way from registers to memory. After
 * cpu_vector.h. */

/* What the caller does to a finished element, and to VECTOR elements of a row from a column on, if
 * anything. The expressions may use the parameters of EPILOGUE_PARAMETERS, which starts with a comma
 * as EPILOGUE_ARGUMENTS does. */
#ifndef EPILOGUE
#define EPILOGUE_PARAMETERS
#define EPILOGUE_ARGUMENTS
#endif

/* Have a tile of C come near while its sums are computed. The number stands for a pointer since the
 * compiler knows this for the host's own address space alone. */
INLINE void expect_tile(const __global float *c, long c_row, int rows)
{
    PLAIN_LOOP
    for (int i = 0; i < min(rows, TILE_ROWS); i++) {
#pragma unroll
        for (int v = 0; v < TILE_VECTORS; v++)
            __builtin_prefetch((const void *)(size_t)(c + i * c_row + v * VECTOR), 1);
    }
}

/* Write a vector of sums, or as many as the row still has, added to what is there already unless
 * it is the first block of k. */
INLINE void write_sums(const float *sums, __global float *c, int count, bool first)
{
    if (count < VECTOR) {
        PLAIN_LOOP
        for (int j = 0; j < count; j++)
            c[j] = first ? sums[j] : sums[j] + c[j];
        return;
    }
    vector sum = LOAD(0, __private, sums);
    if (!first)
        sum += LOAD(0, __global, c);
    STORE(sum, 0, __global, c);
}

/* A tile that the last row or the last column cuts. */
INLINE void write_part(vector sums[TILE_ROWS][TILE_VECTORS], __global float *c, long c_row,
                       int rows, int columns, bool first)
{
    float tile[TILE_ROWS * TILE_COLUMNS];
#pragma unroll
    for (int i = 0; i < TILE_ROWS; i++) {
#pragma unroll
        for (int v = 0; v < TILE_VECTORS; v++)
            STORE(sums[i][v], i * TILE_VECTORS + v, __private, tile);
    }
    PLAIN_LOOP
    for (int i = 0; i < min(rows, TILE_ROWS); i++) {
        PLAIN_LOOP
        for (int j = 0; j < columns; j += VECTOR)
            write_sums(tile + i * TILE_COLUMNS + j, c + i * c_row + j, columns - j, first);
    }
}

INLINE void write_tile(vector sums[TILE_ROWS][TILE_VECTORS], __global float *c, long c_row,
                       int rows, int columns, bool first)
{
    if (rows < TILE_ROWS || columns < TILE_COLUMNS) {
        write_part(sums, c, c_row, rows, columns, first);
        return;
    }
    if (first) {
#pragma unroll
        for (int i = 0; i < TILE_ROWS; i++) {
#pragma unroll
            for (int v = 0; v < TILE_VECTORS; v++)
                STORE(sums[i][v], v, __global, c + i * c_row);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < TILE_ROWS; i++) {
#pragma unroll
        for (int v = 0; v < TILE_VECTORS; v++)
            STORE(sums[i][v] + LOAD(v, __global, c + i * c_row), v, __global, c + i * c_row);
    }
}

#ifdef EPILOGUE
/* All that an item has added up, in a loop of its own: within those of the product the epilogue's
 * constants would take the sums' registers, and halve its speed. */
INLINE void finish(__global float *c, long c_row, int rows, int columns, long batch, long row,
                   long column EPILOGUE_PARAMETERS)
{
    for (int i = 0; i < rows; i++) {
        __global float *line = c + i * c_row;
        int j = 0;
        for (; j + VECTOR <= columns; j += VECTOR)
            STORE(EPILOGUE_VECTOR(LOAD(0, __global, line + j), batch, row + i, column + j), 0,
                  __global, line + j);
        PLAIN_LOOP
        for (; j < columns; j++)
            line[j] = EPILOGUE(line[j], batch, row + i, column + j);
    }
}
#endif
