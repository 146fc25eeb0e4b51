/* SPDX-License-Identifier: Apache-2.0 */
/*
 * C[b] = A[b] B[b] in float for GPUs: tiles of both operands in local memory, two of each so that
 * the next arrive while these are multiplied, and ITEM_M by ITEM_N sums in registers.
 *
 *     args    a, b, c, m, n, k, a_offset, a_lead, a_batch, b_offset, b_lead, b_batch, c_offset,
 *             c_lead, c_batch
 *     global  ceil(n / TILE_N) * ITEMS, ceil(m / TILE_M), batch            local  ITEMS, 1, 1
 *     ITEMS = (TILE_M / ITEM_M) * (TILE_N / ITEM_N)
 *     local memory  2 * (TILE_M + TILE_N) * TILE_K * 4 bytes
 * A is row-major with rows a_lead apart, or with TRANSPOSE_A column-major with columns a_lead
 * apart; B alike. ALIGNED 1: the three buffers' offsets, leads and batch strides are multiples of
 * 4 elements and the memory starts at a multiple of 16 bytes, so that four elements load as one.
 * Offsets and strides count elements; integer arguments are long. k of 0 writes zeros.
 *
 *     TILE_M  TILE_N  TILE_K  ITEM_M  ITEM_N   ITEMS  local    for
 *     128     128     16      8       8        256    32 KiB   at least a tile for each core
 *     64      64      16      4       4        256    16 KiB   otherwise
 *     32      32      16      4       4        64     8 KiB    at most 64 items in a work-group
 */
#ifndef TILE_M
#define TILE_M 128
#endif
#ifndef TILE_N
#define TILE_N 128
#endif
#ifndef TILE_K
#define TILE_K 16
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
/* What the caller does to a finished element, and to four elements of a row from a column on; by
 * default nothing. The expressions may use the parameters of EPILOGUE_PARAMETERS, which starts with
 * a comma as EPILOGUE_ARGUMENTS does. */
#ifndef EPILOGUE
#define EPILOGUE(value, batch, row, column) (value)
#define EPILOGUE_VECTOR(values, batch, row, column) (values)
#endif
#ifndef EPILOGUE_PARAMETERS
#define EPILOGUE_PARAMETERS
#define EPILOGUE_ARGUMENTS
#endif

#include "helpers.h"

#define ITEMS_M (TILE_M / ITEM_M)
#define ITEMS_N (TILE_N / ITEM_N)
#define ITEMS (ITEMS_M * ITEMS_N)
#define QUADS_A (TILE_M * TILE_K / 4 / ITEMS)
#define QUADS_B (TILE_N * TILE_K / 4 / ITEMS)

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

/* Local tiles are [k][line], and the lines of four k in a row are swapped about, so that the items
 * that store a transposed operand meet in no bank. */
INLINE int place(int k, int line)
{
    return line ^ (k / 4 % 4 * 8);
}

/* Put quad number i of a tile with `lines` lines there, from an operand whose k is contiguous, and
 * from one whose lines' neighbours are. */
INLINE void stage_along_k(float4 quad, __local float *tile, int i, int lines)
{
    const int line = i % lines, k = i / lines * 4;
    tile[k * lines + place(k, line)] = quad.x;
    tile[(k + 1) * lines + place(k, line)] = quad.y;
    tile[(k + 2) * lines + place(k, line)] = quad.z;
    tile[(k + 3) * lines + place(k, line)] = quad.w;
}

INLINE void stage_across_k(float4 quad, __local float *tile, int i, int lines)
{
    const int line = i % (lines / 4) * 4, k = i / (lines / 4);
    *(__local float4 *)(tile + k * lines + place(k, line)) = quad;
}

#define ACROSS_K TRANSPOSE_A
#define OF(name) name##_a
#define TYPE OPERAND_A_TYPE
#define PLACE PLACE_A
#define READ READ_A
#define READ_VECTOR READ_A_VECTOR
#include "matmul_gpu_fetch.h"
#define ACROSS_K (!TRANSPOSE_B)
#define OF(name) name##_b
#define TYPE OPERAND_B_TYPE
#define PLACE PLACE_B
#define READ READ_B
#define READ_VECTOR READ_B_VECTOR
#include "matmul_gpu_fetch.h"

#if TRANSPOSE_A
#define STAGE_A stage_across_k
#define STEP_A a_lead
#else
#define STAGE_A stage_along_k
#define STEP_A 1
#endif
#if TRANSPOSE_B
#define STAGE_B stage_along_k
#define STEP_B 1
#else
#define STAGE_B stage_across_k
#define STEP_B b_lead
#endif

/* An item's rows and columns come in quads, as far apart as all items' quads together. */
INLINE void multiply_tiles(__local const float *a, __local const float *b, int item_m, int item_n,
                           float4 sums[ITEM_M][ITEM_N / 4])
{
#pragma unroll
    for (int k = 0; k < TILE_K; k++) {
        float4 rows[ITEM_M / 4], columns[ITEM_N / 4];
#pragma unroll
        for (int q = 0; q < ITEM_M / 4; q++)
            rows[q] =
                *(__local const float4 *)(a + k * TILE_M + place(k, (q * ITEMS_M + item_m) * 4));
#pragma unroll
        for (int q = 0; q < ITEM_N / 4; q++)
            columns[q] =
                *(__local const float4 *)(b + k * TILE_N + place(k, (q * ITEMS_N + item_n) * 4));
#pragma unroll
        for (int q = 0; q < ITEM_M / 4; q++) {
#pragma unroll
            for (int p = 0; p < ITEM_N / 4; p++) {
                sums[q * 4][p] = fma((float4)(rows[q].x), columns[p], sums[q * 4][p]);
                sums[q * 4 + 1][p] = fma((float4)(rows[q].y), columns[p], sums[q * 4 + 1][p]);
                sums[q * 4 + 2][p] = fma((float4)(rows[q].z), columns[p], sums[q * 4 + 2][p]);
                sums[q * 4 + 3][p] = fma((float4)(rows[q].w), columns[p], sums[q * 4 + 3][p]);
            }
        }
    }
}

/* Write four sums, or as many as the row still has. */
INLINE void store_quad(float4 value, __global float *c, long valid, long batch, long row,
                       long column EPILOGUE_PARAMETERS)
{
    if (valid >= 4) {
        STORE_QUAD(EPILOGUE_VECTOR(value, batch, row, column), c);
        return;
    }
    if (valid > 0)
        c[0] = EPILOGUE(value.x, batch, row, column);
    if (valid > 1)
        c[1] = EPILOGUE(value.y, batch, row, column + 1);
    if (valid > 2)
        c[2] = EPILOGUE(value.z, batch, row, column + 2);
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void
matmul_gpu(__global const OPERAND_A_TYPE *restrict a, __global const OPERAND_B_TYPE *restrict b,
           __global float *c, long m, long n, long k, long a_offset, long a_lead,
           long a_batch, long b_offset, long b_lead, long b_batch, long c_offset, long c_lead,
           long c_batch OPERAND_A_PARAMETERS OPERAND_B_PARAMETERS EPILOGUE_PARAMETERS)
{
    __local float tile_a[2][TILE_K * TILE_M] __attribute__((aligned(16)));
    __local float tile_b[2][TILE_K * TILE_N] __attribute__((aligned(16)));
    const int item = get_local_id(0), item_n = item % ITEMS_N, item_m = item / ITEMS_N;
    const long batch = get_group_id(2);
    const long row0 = (long)get_group_id(1) * TILE_M, column0 = (long)get_group_id(0) * TILE_N;
    float4 sums[ITEM_M][ITEM_N / 4], quads_a[QUADS_A], quads_b[QUADS_B];

    a += a_offset + batch * a_batch + row0 * (TRANSPOSE_A ? 1 : a_lead);
    b += b_offset + batch * b_batch + column0 * (TRANSPOSE_B ? b_lead : 1);
    c += c_offset + batch * c_batch + row0 * c_lead + column0;
#pragma unroll
    for (int i = 0; i < ITEM_M; i++) {
#pragma unroll
        for (int j = 0; j < ITEM_N / 4; j++)
            sums[i][j] = (float4)(0.0f);
    }

    /* Round t fetches tile t, multiplies tile t - 1, then puts tile t into the local memory that
     * the round before last has left. */
    const long rounds = (k + TILE_K - 1) / TILE_K;
    for (long round = 0; round <= rounds; round++) {
        const long k0 = round * TILE_K;
        const int here = round % 2;
        if (round < rounds) {
#pragma unroll
            for (int i = 0; i < QUADS_A; i++)
                quads_a[i] =
                    fetch_a(a + k0 * STEP_A, a_lead, item + i * ITEMS, TILE_M, m - row0,
                            k - k0 AT_A(batch, row0, m, k0));
#pragma unroll
            for (int i = 0; i < QUADS_B; i++)
                quads_b[i] =
                    fetch_b(b + k0 * STEP_B, b_lead, item + i * ITEMS, TILE_N, n - column0,
                            k - k0 AT_B(batch, column0, n, k0));
        }
        if (round > 0)
            multiply_tiles(tile_a[1 - here], tile_b[1 - here], item_m, item_n, sums);
        if (round < rounds) {
#pragma unroll
            for (int i = 0; i < QUADS_A; i++)
                STAGE_A(quads_a[i], tile_a[here], item + i * ITEMS, TILE_M);
#pragma unroll
            for (int i = 0; i < QUADS_B; i++)
                STAGE_B(quads_b[i], tile_b[here], item + i * ITEMS, TILE_N);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }

#pragma unroll
    for (int i = 0; i < ITEM_M; i++) {
        const int line = (i / 4 * ITEMS_M + item_m) * 4 + i % 4;
#pragma unroll
        for (int j = 0; j < ITEM_N / 4; j++) {
            const int column = (j * ITEMS_N + item_n) * 4;
            if (row0 + line < m)
                store_quad(sums[i][j], c + line * c_lead + column, n - column0 - column, batch,
                           row0 + line, column0 + column EPILOGUE_ARGUMENTS);
        }
    }
}
