/* SPDX-License-Identifier: Apache-2.0 */
/*
 * C[b] = A[b] B[b] in float for CPUs, with few rows: one pass over the large operand, read where
 * it is. ROWS is 1, 2, 4 or 8, the smallest that holds the few.
 *
 * Rows of B contiguous (b_column is 1), m at most ROWS, n at least VECTOR:
 *   matmul_skinny: an item adds up STRIP columns or fewer over item_depth of k.
 *     args    a, b, out, m, n, k, a_offset, a_row, a_column, a_batch, b_offset, b_row, b_batch,
 *             out_offset, out_row, out_split, out_batch, item_columns, item_depth, swapped
 *     global  ceil(n / item_columns), splits = max(1, ceil(k / item_depth)), batch  local 1, 1, 1
 *     item_columns is a multiple of VECTOR, at most STRIP. Any strides for A.
 *     One split: out is C, its strides C's, out_split anything. More: out is scratch, dense
 *     [batch][split][m][n], and there follows
 *   matmul_skinny_sum: adds the splits up, in order.
 *     args    partial, c, m, n, splits, partial_offset, c_offset, c_row, c_batch, item_columns,
 *             swapped
 *     global  ceil(n / item_columns), m, batch                              local  1, 1, 1
 *   Scratch: batch * splits * m * n * 4 bytes. Local memory: ROWS * STRIP * 4 bytes; the longer the
 *   strip the better.
 *   For n of 1, a transposed A and a contiguous C hand over the operands swapped, C' = B' A';
 *   `swapped` is then 1, else 0, and only says what the epilogue's row and column are.
 *
 * Both operands contiguous along k (x W', nearest neighbours, matrix times vector):
 *   matmul_dots: an item computes few * item_many dot products.
 *     args    few, many, c, few_count, many_count, k, few_offset, few_stride, few_batch,
 *             many_offset, many_stride, many_batch, c_offset, c_few, c_many, c_batch, item_many,
 *             few_are_columns
 *     global  ceil(many_count / item_many), batch, 1                        local  1, 1, 1
 *     m at most ROWS: few are the rows of A, many those of B', c_few = c_row, c_many = 1, and
 *     few_are_columns = 0. n at most ROWS: the other way round.
 *
 * Offsets and strides count elements; integer arguments are long. The order of additions depends
 * on the arguments alone. VECTOR: 16 for AVX-512, 8 for AVX2, 4 for SSE and the unknown.
 */
#ifndef VECTOR
#define VECTOR 16
#endif
#ifndef ROWS
#define ROWS 8
#endif
#ifndef STRIP
#define STRIP 4096
#endif
/* Lines of B that an item adds at once. */
#ifndef LINES
#define LINES 8
#endif
/* Rows of the many that are in flight at once; ROWS * TILE_MANY sums stay in registers. */
#ifndef TILE_MANY
#define TILE_MANY (ROWS >= 8 ? 2 : ROWS >= 4 ? 4 : 8)
#endif
#ifdef EPILOGUE
#define EPILOGUE_LATE
#endif
#include "epilogue.h"
/* An epilogue where the operands may be swapped. */
#define EPILOGUE_OF(value, batch, row, column)                                                     \
    EPILOGUE(value, batch, swapped ? (column) : (row), swapped ? (row) : (column))

#include "cpu_vector.h"
#include "cpu_dots.h"
#include "operands.h"

/* Add `lines` lines of B, each times its element of each row of A, to the sums [vector][row].
 * The last vector of a row of B starts early enough to end with the row. */
INLINE void add_lines(__global const OPERAND_A_TYPE *a, const long *start, long a_column,
                      __global const OPERAND_B_TYPE *b, long b_row, int lines, long column0,
                      int vectors, long last_start, __local float *sums PLACE_A PLACE_B)
{
    float factor[ROWS][LINES];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
#pragma unroll
        for (int line = 0; line < lines; line++)
            factor[r][line] = READ_A(a, start[r] + line * a_column, r, line);
    }
    for (int v = 0; v < vectors; v++) {
        const long column = min(column0 + v * VECTOR, last_start);
        vector loaded[LINES];
#pragma unroll
        for (int line = 0; line < lines; line++)
            loaded[line] = READ_B_VECTOR(0, b + line * b_row + column, column, line);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            vector sum = LOAD(v * ROWS + r, __local, sums);
#pragma unroll
            for (int line = 0; line < lines; line++)
                sum = fma((vector)(factor[r][line]), loaded[line], sum);
            STORE(sum, v * ROWS + r, __local, sums);
        }
    }
}

/* Write a vector of sums. Swapped, they are neighbours in a column. */
INLINE void store_vector(vector sum, __global float *c, long batch, long row, long column,
                         long swapped EPILOGUE_PARAMETERS)
{
    if (!swapped) {
        STORE(EPILOGUE_VECTOR(sum, batch, row, column), 0, __global, c);
        return;
    }
    float line[VECTOR];
    STORE(sum, 0, __private, line);
    for (int j = 0; j < VECTOR; j++)
        c[j] = EPILOGUE(line[j], batch, column + j, row);
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
matmul_skinny(__global const OPERAND_A_TYPE *restrict a, __global const OPERAND_B_TYPE *restrict b,
              __global float *out, long m, long n, long k, long a_offset, long a_row,
              long a_column, long a_batch, long b_offset, long b_row, long b_batch, long out_offset,
              long out_row, long out_split, long out_batch, long item_columns, long item_depth,
              long swapped OPERAND_A_PARAMETERS OPERAND_B_PARAMETERS EPILOGUE_PARAMETERS)
{
    __local float sums[ROWS * STRIP];
    const long batch = get_group_id(2), split = get_group_id(1);
    const long column0 = (long)get_group_id(0) * item_columns;
    const int columns = min(item_columns, n - column0);
    const int vectors = (columns + VECTOR - 1) / VECTOR;
    const long last_start = n - VECTOR;
    const long end = min((split + 1) * item_depth, k);
    long step = split * item_depth, start[ROWS];

#pragma unroll
    for (int r = 0; r < ROWS; r++)
        start[r] = min((long)r, m - 1) * a_row;
    a += a_offset + batch * a_batch;
    b += b_offset + batch * b_batch;
    out += out_offset + batch * out_batch + split * out_split;
    for (int v = 0; v < vectors * ROWS; v++)
        STORE((vector)(0.0f), v, __local, sums);
    for (; step + LINES <= end; step += LINES)
        add_lines(a + step * a_column, start, a_column, b + step * b_row, b_row, LINES, column0,
                  vectors, last_start, sums AT_A(batch, 0, m, step) AT_B(batch, 0, n, step));
    for (; step < end; step++)
        add_lines(a + step * a_column, start, a_column, b + step * b_row, b_row, 1, column0,
                  vectors, last_start, sums AT_A(batch, 0, m, step) AT_B(batch, 0, n, step));
    /* Several splits come to here without an epilogue. */
    const int whole = columns / VECTOR;
    for (int r = 0; r < m; r++) {
        for (int v = 0; v < whole; v++)
            store_vector(LOAD(v * ROWS + r, __local, sums), out + r * out_row + column0 + v * VECTOR,
                         batch, (long)r, column0 + v * VECTOR, swapped EPILOGUE_ARGUMENTS);
        for (int j = whole * VECTOR; j < columns; j++) {
            const int v = j / VECTOR;
            const long column = min(column0 + v * VECTOR, last_start);
            const float value = sums[(v * ROWS + r) * VECTOR + column0 + j - column];
            out[r * out_row + column0 + j] = EPILOGUE_OF(value, batch, (long)r, column0 + j);
        }
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
matmul_skinny_sum(__global const float *restrict partial, __global float *c, long m,
                  long n, long splits, long partial_offset, long c_offset, long c_row, long c_batch,
                  long item_columns, long swapped EPILOGUE_PARAMETERS)
{
    const long batch = get_group_id(2), row = get_group_id(1);
    const long end = min((long)(get_group_id(0) + 1) * item_columns, n);
    long column = (long)get_group_id(0) * item_columns;

    partial += partial_offset + (batch * splits * m + row) * n;
    c += c_offset + batch * c_batch + row * c_row;
    for (; column + VECTOR <= end; column += VECTOR) {
        vector sum = LOAD(0, __global, partial + column);
        for (long split = 1; split < splits; split++)
            sum += LOAD(0, __global, partial + split * m * n + column);
        store_vector(sum, c + column, batch, row, column, swapped EPILOGUE_ARGUMENTS);
    }
    for (; column < end; column++) {
        float sum = partial[column];
        for (long split = 1; split < splits; split++)
            sum += partial[split * m * n + column];
        c[column] = EPILOGUE_OF(sum, batch, row, column);
    }
}

/* dots[f][i] = few[f] . many[i] for a tile of rows that start where the arrays say. */
INLINE void dot_tile(__global const OPERAND_A_TYPE *few, const long *few_start,
                     __global const OPERAND_B_TYPE *many, const long *many_start, long k,
                     float dots[ROWS][TILE_MANY] PLACE_A PLACE_B)
{
    vector sums[ROWS][TILE_MANY];
    long step = 0;

#pragma unroll
    for (int f = 0; f < ROWS; f++) {
#pragma unroll
        for (int i = 0; i < TILE_MANY; i++)
            sums[f][i] = (vector)(0.0f);
    }
    for (; step + VECTOR <= k; step += VECTOR) {
        vector loaded[TILE_MANY];
#pragma unroll
        for (int i = 0; i < TILE_MANY; i++)
            loaded[i] = READ_B_VECTOR(0, many + many_start[i] + step, i, step);
#pragma unroll
        for (int f = 0; f < ROWS; f++) {
            const vector factor = READ_A_VECTOR(0, few + few_start[f] + step, f, step);
#pragma unroll
            for (int i = 0; i < TILE_MANY; i++)
                sums[f][i] = fma(factor, loaded[i], sums[f][i]);
        }
    }
    add_up(sums, dots);
    for (; step < k; step++) {
#pragma unroll
        for (int f = 0; f < ROWS; f++) {
#pragma unroll
            for (int i = 0; i < TILE_MANY; i++)
                dots[f][i] = fma(READ_A(few, few_start[f] + step, f, step),
                                 READ_B(many, many_start[i] + step, i, step), dots[f][i]);
        }
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
matmul_dots(__global const OPERAND_A_TYPE *restrict few, __global const OPERAND_B_TYPE *restrict many,
            __global float *c, long few_count, long many_count, long k, long few_offset,
            long few_stride, long few_batch, long many_offset, long many_stride, long many_batch,
            long c_offset, long c_few, long c_many, long c_batch, long item_many,
            long few_are_columns OPERAND_A_PARAMETERS OPERAND_B_PARAMETERS EPILOGUE_PARAMETERS)
{
    const long batch = get_group_id(1);
    const long first = (long)get_group_id(0) * item_many;
    const long end = min(first + item_many, many_count);
    long few_start[ROWS], many_start[TILE_MANY];

    few += few_offset + batch * few_batch;
    many += many_offset + batch * many_batch;
    c += c_offset + batch * c_batch;
#pragma unroll
    for (int f = 0; f < ROWS; f++)
        few_start[f] = min((long)f, few_count - 1) * few_stride;
    for (long row = first; row < end; row += TILE_MANY) {
        float dots[ROWS][TILE_MANY];
#pragma unroll
        for (int i = 0; i < TILE_MANY; i++)
            many_start[i] = min(row + i, end - 1) * many_stride;
        dot_tile(few, few_start, many, many_start, k,
                 dots AT_A(batch, 0, few_count, 0) AT_B(batch, row, end, 0));
        store_dots(dots, c, few_count, row, end, c_few, c_many);
    }
    finish_dots(c, batch, 0, few_count, first, end, c_few, c_many, few_are_columns EPILOGUE_ARGUMENTS);
}
