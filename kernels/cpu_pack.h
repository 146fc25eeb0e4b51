/* SPDX-License-Identifier: Apache-2.0 */
/* Panels of a matrix B, TILE_COLUMNS wide, as [depth][TILE_COLUMNS] in memory of PACK_SPACE. After
 * operands.h. */
/* A whole panel of a B whose rows are contiguous. */
INLINE void pack_rows(__global const OPERAND_B_TYPE *b, long row, long depth,
                      PACK_SPACE float *packed PLACE_B)
{
    for (long k = 0; k < depth; k++) {
#pragma unroll
        for (int v = 0; v < TILE_VECTORS; v++)
            STORE(READ_B_VECTOR(v, b + k * row, v * VECTOR, k), v, PACK_SPACE,
                  packed + k * TILE_COLUMNS);
    }
}

/* Any panel: elements one by one, zeros past the last column. */
INLINE void pack_elements(__global const OPERAND_B_TYPE *b, long row, long column, long depth,
                          int columns, PACK_SPACE float *packed PLACE_B)
{
    PLAIN_LOOP
    for (long k = 0; k < depth; k++) {
        PLAIN_LOOP
        for (int j = 0; j < TILE_COLUMNS; j++)
            packed[k * TILE_COLUMNS + j] =
                j < columns ? READ_B(b, k * row + j * column, j, k) : 0.0f;
    }
}

/* A whole panel of a B whose columns are contiguous, square by square. */
INLINE void pack_columns(__global const OPERAND_B_TYPE *b, long column, long depth,
                         PACK_SPACE float *packed PLACE_B)
{
    long k = 0;
    for (; k + VECTOR <= depth; k += VECTOR) {
        PLAIN_LOOP
        for (int v = 0; v < TILE_VECTORS; v++) {
            vector square[VECTOR];
#pragma unroll
            for (int j = 0; j < VECTOR; j++)
                square[j] =
                    READ_B_VECTOR(0, b + (v * VECTOR + j) * column + k, v * VECTOR + j, k);
            transpose_square(square);
#pragma unroll
            for (int j = 0; j < VECTOR; j++)
                STORE(square[j], v, PACK_SPACE, packed + (k + j) * TILE_COLUMNS);
        }
    }
    pack_elements(b + k, 1, column, depth - k, TILE_COLUMNS,
                  packed + k * TILE_COLUMNS AT_B(b_in, b_line, b_lines, b_k + k));
}
