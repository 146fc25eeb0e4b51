/* SPDX-License-Identifier: Apache-2.0 */
/*
 * C[b] = A[b] B[b] in float for GPUs: tiles of both operands in local memory, two of each so that
 * the next arrive while these are multiplied, and ITEM_M by ITEM_N sums in registers.
 *
 *     args    a, b, c, m, n, k, a_offset, a_lead, a_batch, b_offset, b_lead, b_batch, c_offset,
 *             c_lead, c_batch, depth, splits, c_split; with TOGETHER partial, partial_offset, counters
 *     global  ceil(n / TILE_N) * ITEMS, ceil(m / TILE_M), batch * splits      local  ITEMS, 1, 1
 *     ITEMS = (TILE_M / ITEM_M) * (TILE_N / ITEM_N)
 *     local memory  2 * (TILE_M + TILE_N + 8) * TILE_K * 4 bytes at most
 * A is row-major with rows a_lead apart, or with TRANSPOSE_A column-major with columns a_lead
 * apart; B alike. ALIGNED 1: the three buffers' offsets, leads and batch strides are multiples of
 * 4 elements and the memory starts at a multiple of 16 bytes, so that four elements load as one, and
 * none of m, n and k that is contiguous somewhere ends in between.
 * Offsets and strides count elements; integer arguments are long. k of 0 writes zeros.
 *
 * PATCHES not 0: A's rows are patches of an image (matmul_gpu_im2col.h), and further arguments say
 * where: rows_1, rows_2, row_0 to row_2, taps, run, tap_0, tap_1, of which counts are followed by
 * what divides by them. Row i begins at a_offset + batch * a_batch + i / rows_2 / rows_1 * row_0 +
 * i / rows_2 % rows_1 * row_1 + i % rows_2 * row_2, its element l lies at l / run / taps * tap_0 +
 * l / run % taps * tap_1 + l % run from there. No count of rows or elements and no place in the image
 * is above 2^31 - 2^10. a_lead does not matter, and ALIGNED is about all strides.
 *
 * Long sums in few tiles: each of `splits` work-groups adds up `depth` of k (a multiple of TILE_K;
 * else k) and writes its sums c_split apart, for matmul_gpu_sum.cl; or, with TOGETHER, to `partial`,
 * and the last of them to come adds up what all have left, in their order. `counters` has a 0 for each
 * tile, before and after. TOGETHER 1: OpenCL's fences order memory for the whole device (as on CPUs);
 * 2: NVIDIA's instruction does.
 *
 * Which tiles there are, and for what: lib/lower/matmul_gpu.c.
 */
#ifndef TILE_M
#define TILE_M 128
#endif
#ifndef TILE_N
#define TILE_N 128
#endif
#ifndef TILE_K
#define TILE_K 8
#endif
#ifndef ITEM_M
#define ITEM_M 8
#endif
#ifndef ITEM_N
#define ITEM_N 8
#endif
#ifndef TRANSPOSE_A
#define TRANSPOSE_A 0
#endif
#ifndef TRANSPOSE_B
#define TRANSPOSE_B 0
#endif
#ifndef ALIGNED
#define ALIGNED 0
#endif
#ifndef PATCHES
#define PATCHES 0
#endif
/* The epilogue takes many instructions: it stands here once. Else whole tiles have a text of their
 * own, without branches, so that what it reads for several rows comes at once. */
#ifndef COSTLY
#define COSTLY 0
#endif
#ifndef TOGETHER
#define TOGETHER 0
#endif

#include "epilogue.h"
#include "helpers.h"

#define ITEMS_M (TILE_M / ITEM_M)
#define ITEMS_N (TILE_N / ITEM_N)
#define ITEMS (ITEMS_M * ITEMS_N)
/* Work-items that run together are a block of the tile: they read fewer lines than a row of it. */
#define BLOCK_N (ITEMS_N < 8 ? ITEMS_N : 8)
#define BLOCK_M (32 / BLOCK_N)

#if ALIGNED
#define LOAD_QUAD(from) (*(__global const float4 *)(from))
#define STORE_QUAD(value, to) (*(__global float4 *)(to) = (value))
#else
#define LOAD_QUAD(from) vload4(0, from)
#define STORE_QUAD(value, to) vstore4(value, 0, to)
#endif

#define LOAD(i, space, p) LOAD_QUAD(p)
#define VECTOR 4
#include "operands.h"

#if PATCHES
#include "matmul_gpu_im2col.h"
#define START START_A
#endif
#define OF(name) name##_a
#define ACROSS_K TRANSPOSE_A
#define LINES TILE_M
#define QUADS (TILE_M * TILE_K / 4 / ITEMS)
#define TYPE OPERAND_A_TYPE
#define PLACE PLACE_A
#define ARGUMENTS PLACED_A
#define READ READ_A
#define READ_VECTOR READ_A_VECTOR
#include "matmul_gpu_fetch.h"
#define OF(name) name##_b
#define ACROSS_K (!TRANSPOSE_B)
#define LINES TILE_N
#define QUADS (TILE_N * TILE_K / 4 / ITEMS)
#define TYPE OPERAND_B_TYPE
#define PLACE PLACE_B
#define ARGUMENTS PLACED_B
#define READ READ_B
#define READ_VECTOR READ_B_VECTOR
#include "matmul_gpu_fetch.h"

#define PITCH_A (TRANSPOSE_A ? TILE_M : TILE_M + 4)
#define PITCH_B (TRANSPOSE_B ? TILE_N + 4 : TILE_N)
#define QUADS_A (TILE_M * TILE_K / 4 / ITEMS)
#define QUADS_B (TILE_N * TILE_K / 4 / ITEMS)
#define STAGE_B (TILE_K * PITCH_A)         /* where B's tile starts behind A's, */
#define STAGE (STAGE_B + TILE_K * PITCH_B) /* and both end */

/* An item's rows and columns come in quads, as far apart as all items' quads together. */
struct fragment {
    float4 rows[ITEM_M / 4], columns[ITEM_N / 4];
};

INLINE void read_fragment(struct fragment *f, __local const float *a, __local const float *b, int k)
{
#pragma unroll
    for (int q = 0; q < ITEM_M / 4; q++)
        f->rows[q] = *(__local const float4 *)(a + k * PITCH_A + q * ITEMS_M * 4);
#pragma unroll
    for (int q = 0; q < ITEM_N / 4; q++)
        f->columns[q] = *(__local const float4 *)(b + k * PITCH_B + q * ITEMS_N * 4);
}

/* In which order an item's sums grow is the same to each of them, but not to the device, which has at
 * hand what a multiply-add shares with the one before it. Row by row, there and back, products of
 * transposed operands took an H100 0.95 of the time that they take by squares of four (4096, and
 * 2048 x 2048 x 4096), those of plain ones with 16 rows an item 1.04. */
#if ITEM_M < 16 || TRANSPOSE_A || TRANSPOSE_B
INLINE void multiply_row(float row, const float4 columns[ITEM_N / 4], float4 sums[ITEM_N / 4],
                         const bool back)
{
#define ADD(p, e) sums[p].e = fma(row, columns[p].e, sums[p].e)
#pragma unroll
    for (int p = 0; p < ITEM_N / 4; p++) {
        const int last = ITEM_N / 4 - 1 - p;
        if (back) {
            ADD(last, w), ADD(last, z), ADD(last, y), ADD(last, x);
        } else {
            ADD(p, x), ADD(p, y), ADD(p, z), ADD(p, w);
        }
    }
}

INLINE void multiply_quad(float4 rows, const float4 columns[ITEM_N / 4], float4 sums[4][ITEM_N / 4])
{
    multiply_row(rows.x, columns, sums[0], false);
    multiply_row(rows.y, columns, sums[1], true);
    multiply_row(rows.z, columns, sums[2], false);
    multiply_row(rows.w, columns, sums[3], true);
}
#else
INLINE void multiply_quad(float4 rows, const float4 columns[ITEM_N / 4], float4 sums[4][ITEM_N / 4])
{
#pragma unroll
    for (int p = 0; p < ITEM_N / 4; p++) {
        sums[0][p] = fma((float4)(rows.x), columns[p], sums[0][p]);
        sums[1][p] = fma((float4)(rows.y), columns[p], sums[1][p]);
        sums[2][p] = fma((float4)(rows.z), columns[p], sums[2][p]);
        sums[3][p] = fma((float4)(rows.w), columns[p], sums[3][p]);
    }
}
#endif

INLINE void multiply(const struct fragment *f, float4 sums[ITEM_M][ITEM_N / 4])
{
#pragma unroll
    for (int q = 0; q < ITEM_M / 4; q++)
        multiply_quad(f->rows[q], f->columns, sums + q * 4);
}

/* Write four sums, or as many as the row still has. */
INLINE void store_quad(float4 value, __global float *c, int valid, long batch, long row,
                       long column EPILOGUE_PARAMETERS)
{
#if ALIGNED
    if (valid > 0)
        STORE_QUAD(EPILOGUE_VECTOR(value, batch, row, column), c);
#else
    if (valid >= 4) {
        STORE_QUAD(EPILOGUE_VECTOR(value, batch, row, column), c);
        return;
    }
#pragma unroll 1
    for (int e = 0; e < valid; e++) {
        const float sum = e == 0 ? value.x : e == 1 ? value.y : value.z;
        c[e] = EPILOGUE(sum, batch, row, column + e);
    }
#endif
}

/* Registers have no numbers: the rows that come next move to the front. */
INLINE void move_up(float4 sums[ITEM_M][ITEM_N / 4], const int count)
{
#pragma unroll
    for (int i = 0; i < ITEM_M; i++) {
#pragma unroll
        for (int j = 0; j < ITEM_N / 4; j++)
            if (i + count < ITEM_M)
                sums[i][j] = sums[i + count][j];
    }
}

#if TOGETHER == 2
#define FENCE() asm volatile("membar.gl;" : : : "memory")
#else
#define FENCE() mem_fence(CLK_GLOBAL_MEM_FENCE)
#endif
#define AT_ONCE (ITEM_M < 8 ? ITEM_M : 8)
#define PART (TILE_M * TILE_N / 4) /* of `partial`, in quads: what a work-group leaves */

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void
matmul_gpu(__global const OPERAND_A_TYPE *restrict a, __global const OPERAND_B_TYPE *restrict b,
           __global float *c, long m, long n, long k, long a_offset, long a_lead,
           long a_batch, long b_offset, long b_lead, long b_batch, long c_offset, long c_lead,
           long c_batch, long depth, long splits, long c_split
#if PATCHES
           , long rows_1, long rows_1_inverse, long rows_1_shift, long rows_2, long rows_2_inverse,
           long rows_2_shift, long row_0, long row_1, long row_2, long taps, long taps_inverse,
           long taps_shift, long run, long run_inverse, long run_shift, long tap_0, long tap_1
#endif
#if TOGETHER
           , __global float *partial, long partial_offset, volatile __global int *counters
#endif
           OPERAND_A_PARAMETERS OPERAND_B_PARAMETERS EPILOGUE_PARAMETERS)
{
#if TOGETHER
    __local int came_before;
#endif
    __local float tiles[2 * STAGE] __attribute__((aligned(16)));
    const int item = get_local_id(0);
    const int block = item / (BLOCK_M * BLOCK_N), of_block = item % (BLOCK_M * BLOCK_N);
    const int item_n = block % (ITEMS_N / BLOCK_N) * BLOCK_N + of_block % BLOCK_N;
    const int item_m = block / (ITEMS_N / BLOCK_N) * BLOCK_M + of_block / BLOCK_N;
    const long batch = get_group_id(2) / splits, split = get_group_id(2) % splits;
    const long row0 = (long)get_group_id(1) * TILE_M, column0 = (long)get_group_id(0) * TILE_N;
    const int valid_m = min(m - row0, (long)TILE_M), valid_n = min(n - column0, (long)TILE_N);
    const long first = split * depth, last = min(k, first + depth);
#if PATCHES
    const struct patches patches = {{{rows_1, rows_1_inverse, rows_1_shift},
                                     {rows_2, rows_2_inverse, rows_2_shift},
                                     {row_0, row_1, row_2}},
                                    {{taps, taps_inverse, taps_shift},
                                     {run, run_inverse, run_shift},
                                     {tap_0, tap_1, 1}}};
    const long first_a = 0, step_a = 0;
#else
    const long step_a = TRANSPOSE_A ? TILE_K * a_lead : TILE_K;
    const long first_a = row0 * (TRANSPOSE_A ? 1 : a_lead) + first / TILE_K * step_a;
#endif
    const long step_b = TRANSPOSE_B ? TILE_K : TILE_K * b_lead;
    __global const OPERAND_A_TYPE *from_a[QUADS_A];
    __global const OPERAND_B_TYPE *from_b[QUADS_B];
    float4 sums[ITEM_M][ITEM_N / 4], quads_a[QUADS_A], quads_b[QUADS_B];

    a += a_offset + batch * a_batch + first_a;
    b += b_offset + batch * b_batch + column0 * (TRANSPOSE_B ? b_lead : 1) +
         first / TILE_K * step_b;
    c += c_offset + batch * c_batch + (TOGETHER ? 0 : split * c_split) + row0 * c_lead + column0;
    start_a(from_a, a, a_lead, item, valid_m AT_A(batch, row0, m, first));
    start_b(from_b, b, b_lead, item, valid_n AT_B(batch, column0, n, first));
#pragma unroll
    for (int i = 0; i < ITEM_M; i++) {
#pragma unroll
        for (int j = 0; j < ITEM_N / 4; j++)
            sums[i][j] = (float4)(0.0f);
    }

    /* A fragment is read while the one before it is multiplied, and a tile of memory arrives while
     * the one before it is: the last fragment of that hides the wait for all others. */
#define FETCH(round)                                                                               \
    fetch_a(quads_a, from_a, step_a, item, valid_m,                                                \
            (round) < whole ? TILE_K : rest AT_A(batch, row0, m, first + (round) * (long)TILE_K)); \
    fetch_b(quads_b, from_b, step_b, item, valid_n,                                                \
            (round) < whole ? TILE_K : rest                                                        \
                AT_B(batch, column0, n, first + (round) * (long)TILE_K))
    const int whole = (int)((last - first) / TILE_K), rest = (int)((last - first) % TILE_K);
    const int rounds = whole + (rest > 0);
    const int at_a = item_m * 4, at_b = STAGE_B + item_n * 4;
    struct fragment fragments[2];
    if (rounds > 0) {
        FETCH(0);
        stage_a(quads_a, tiles, item);
        stage_b(quads_b, tiles + STAGE_B, item);
        barrier(CLK_LOCAL_MEM_FENCE);
        read_fragment(&fragments[0], tiles + at_a, tiles + at_b, 0);
    }
    for (int round = 0; round < rounds; round++) {
        __local float *here = tiles + round % 2 * STAGE, *there = tiles + (1 - round % 2) * STAGE;
        const bool more = round + 1 < rounds;
        if (more) {
            FETCH(round + 1);
        }
#pragma unroll
        for (int f = 0; f < TILE_K; f++) {
            if (f < TILE_K - 1) {
                read_fragment(&fragments[(f + 1) % 2], here + at_a, here + at_b, f + 1);
            } else {
                if (more) {
                    stage_a(quads_a, there, item);
                    stage_b(quads_b, there + STAGE_B, item);
                }
                barrier(CLK_LOCAL_MEM_FENCE);
                read_fragment(&fragments[(f + 1) % 2], there + at_a, there + at_b, 0);
            }
            multiply(&fragments[f % 2], sums);
        }
    }

#if TOGETHER
    const long tile = (batch * get_num_groups(1) + get_group_id(1)) * get_num_groups(0) +
                      get_group_id(0);
    __global float4 *parts =
        (__global float4 *)(partial + partial_offset) + tile * splits * PART + item;
    __global float4 *part = parts + split * PART;
#pragma unroll
    for (int i = 0; i < ITEM_M; i++) {
#pragma unroll
        for (int j = 0; j < ITEM_N / 4; j++)
            part[(i * (ITEM_N / 4) + j) * ITEMS] = sums[i][j];
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (item == 0) {
        FENCE();
        came_before = atomic_inc(&counters[tile]);
        if (came_before == splits - 1)
            counters[tile] = 0;
        FENCE();
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (came_before < splits - 1)
        return;
#pragma unroll
    for (int i = 0; i < ITEM_M; i++) {
#pragma unroll
        for (int j = 0; j < ITEM_N / 4; j++)
            sums[i][j] = parts[(i * (ITEM_N / 4) + j) * ITEMS];
    }
#pragma unroll 1
    for (long s = 1; s < splits; s++) {
        parts += PART;
#pragma unroll
        for (int from = 0; from < ITEM_M; from += AT_ONCE) {
            float4 more[AT_ONCE][ITEM_N / 4];
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
#pragma unroll
                for (int j = 0; j < ITEM_N / 4; j++)
                    more[i][j] = parts[((from + i) * (ITEM_N / 4) + j) * ITEMS];
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
#pragma unroll
                for (int j = 0; j < ITEM_N / 4; j++)
                    sums[from + i][j] += more[i][j];
            }
        }
    }
#endif
/* Compilers take long over the text of an epilogue: it stands here for a few rows. */
#if !COSTLY
    if (valid_m == TILE_M && valid_n == TILE_N) {
#pragma unroll 1
        for (int first = 0; first < ITEM_M; first += 4) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int line = (first / 4 * ITEMS_M + item_m) * 4 + i;
#pragma unroll
                for (int j = 0; j < ITEM_N / 4; j++) {
                    const int column = (j * ITEMS_N + item_n) * 4;
                    STORE_QUAD(EPILOGUE_VECTOR(sums[i][j], batch, row0 + line, column0 + column),
                               c + line * c_lead + column);
                }
            }
            move_up(sums, 4);
        }
        return;
    }
#endif
#define ROWS (COSTLY ? 4 : 1)
#pragma unroll 1
    for (int first = 0; first < ITEM_M; first += ROWS) {
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const int line = (first / 4 * ITEMS_M + item_m) * 4 + first % 4 + i;
#pragma unroll
            for (int j = 0; j < ITEM_N / 4; j++) {
                const int column = (j * ITEMS_N + item_n) * 4;
                if (line < valid_m)
                    store_quad(sums[i][j], c + line * c_lead + column, valid_n - column, batch,
                               row0 + line, column0 + column EPILOGUE_ARGUMENTS);
            }
        }
        move_up(sums, ROWS);
    }
}
