/* SPDX-License-Identifier: Apache-2.0 */
/* A tile of rows of a matrix A times a packed panel in PACK_SPACE. Rows are read where they are,
 * which is quickest if they are contiguous; else LINES of them at a time are copied to local memory
 * before. After cpu_vector.h, and operands.h if there is an operand to read. */

/* Lines do not start a power of two apart: loads of them would meet in the cache. */
#define TILE_LINE (BLOCK_DEPTH + 16)

#if defined READ_A && LINES
/* `rows` of A, of which those that a last tile lacks are zeros: what is made of them goes nowhere,
 * but must not be slow. */
INLINE void copy_lines(__global const OPERAND_A_TYPE *a, long row, long column, int rows, int depth,
                       __local float *lines PLACE_A)
{
    int i = 0;
#ifndef OPERAND_A
    /* Columns that are contiguous, square by square. */
    PLAIN_LOOP
    for (; row == 1 && column != 1 && i + VECTOR <= rows; i += VECTOR) {
        int k = 0;
        PLAIN_LOOP
        for (; k + VECTOR <= depth; k += VECTOR) {
            vector square[VECTOR];
#pragma unroll
            for (int j = 0; j < VECTOR; j++)
                square[j] = LOAD(0, __global, a + i + (k + j) * column);
            transpose_square(square);
#pragma unroll
            for (int j = 0; j < VECTOR; j++)
                STORE(square[j], 0, __local, lines + (i + j) * TILE_LINE + k);
        }
        PLAIN_LOOP
        for (; k < depth; k++) {
            PLAIN_LOOP
            for (int j = 0; j < VECTOR; j++)
                lines[(i + j) * TILE_LINE + k] = a[i + j + k * column];
        }
    }
#endif
    for (; i < rows; i++) {
        __local float *line = lines + i * TILE_LINE;
        int k = 0;
        for (; column == 1 && k + VECTOR <= depth; k += VECTOR)
            STORE(READ_A_VECTOR(0, a + i * row + k, i, k), 0, __local, line + k);
        PLAIN_LOOP
        for (; k < depth; k++)
            line[k] = READ_A(a, i * row + k * column, i, k);
    }
    for (; i % TILE_ROWS; i++) {
        for (int k = 0; k < depth; k += VECTOR)
            STORE((vector)(0.0f), 0, __local, lines + i * TILE_LINE + k);
    }
}
#endif

INLINE void clear_sums(vector sums[TILE_ROWS][TILE_VECTORS])
{
#pragma unroll
    for (int i = 0; i < TILE_ROWS; i++) {
#pragma unroll
        for (int v = 0; v < TILE_VECTORS; v++)
            sums[i][v] = (vector)(0.0f);
    }
}

/* sums += FACTOR, of row i and the line k, times a packed panel, all in registers. */
#define ADD_PRODUCTS(FACTOR, b, depth, sums)                                                       \
    for (int k = 0; k < (depth); k++) {                                                            \
        vector line[TILE_VECTORS];                                                                 \
        _Pragma("unroll") for (int v = 0; v < TILE_VECTORS; v++) line[v] =                         \
            LOAD(v, PACK_SPACE, (b) + k * TILE_COLUMNS);                                           \
        _Pragma("unroll") for (int i = 0; i < TILE_ROWS; i++)                                      \
        {                                                                                          \
            const vector factor = (vector)(FACTOR);                                                \
            _Pragma("unroll") for (int v = 0; v < TILE_VECTORS; v++) sums[i][v] =                  \
                fma(factor, line[v], sums[i][v]);                                                  \
        }                                                                                          \
    }

/* Rows of A where they are. */
INLINE void add_rows(__global const float *const *rows, long column, PACK_SPACE const float *b,
                     int depth, vector sums[TILE_ROWS][TILE_VECTORS])
{
    ADD_PRODUCTS(rows[i][k * column], b, depth, sums)
}

INLINE void add_lines(__local const float *lines, PACK_SPACE const float *b, int depth,
                      vector sums[TILE_ROWS][TILE_VECTORS])
{
    ADD_PRODUCTS(lines[i * TILE_LINE + k], b, depth, sums)
}

#ifdef READ_A
/* sums = a tile of A times a packed panel: of lines if there are any, else of rows where they are.
 * Past the last row that is read again. */
INLINE void multiply_tile(__global const OPERAND_A_TYPE *a, long row, long column, int rows,
                          __local const float *lines, PACK_SPACE const float *b, int depth,
                          vector sums[TILE_ROWS][TILE_VECTORS])
{
    clear_sums(sums);
#if LINES
    add_lines(lines, b, depth, sums);
#else
    __global const float *start[TILE_ROWS];
#pragma unroll
    for (int i = 0; i < TILE_ROWS; i++)
        start[i] = a + min(i, rows - 1) * row;
    add_rows(start, column, b, depth, sums);
#endif
}
#endif
