/* SPDX-License-Identifier: Apache-2.0 */
/* Blocked transposes and copies as OpenMP loops. */
#include "peer_transpose.h"

#include <string.h>

/* The blocked loop that one would write: reads run along rows, and the rows that are written stay
 * in the first cache for a block. */
enum { BLOCK = 32 };

static void transpose_block(size_t rows, size_t columns, size_t row, size_t column,
                            const float *restrict x, float *restrict y)
{
    size_t row_end = row + BLOCK < rows ? row + BLOCK : rows;
    size_t column_end = column + BLOCK < columns ? column + BLOCK : columns;
    for (size_t c = column; c < column_end; c++)
        for (size_t r = row; r < row_end; r++)
            y[c * rows + r] = x[r * columns + c];
}

void peer_transpose(size_t batch, size_t rows, size_t columns, const float *x, float *y)
{
#pragma omp parallel for collapse(2)
    for (size_t b = 0; b < batch; b++)
        for (size_t column = 0; column < columns; column += BLOCK)
            for (size_t row = 0; row < rows; row += BLOCK)
                transpose_block(rows, columns, row, column, x + b * rows * columns,
                                y + b * rows * columns);
}

void peer_swap_outer(size_t batch, size_t rows, size_t columns, const float *x, float *y)
{
#pragma omp parallel for
    for (size_t row = 0; row < rows; row++)
        for (size_t b = 0; b < batch; b++)
            memcpy(y + (row * batch + b) * columns, x + (b * rows + row) * columns,
                   columns * sizeof *x);
}

void peer_copy(size_t count, const float *x, float *y)
{
    enum { PARTS = 16 };
    size_t part = (count + PARTS - 1) / PARTS;
#pragma omp parallel for
    for (size_t p = 0; p < PARTS; p++)
        memcpy(y + p * part, x + p * part, (p + 1 < PARTS ? part : count - p * part) * sizeof *x);
}
