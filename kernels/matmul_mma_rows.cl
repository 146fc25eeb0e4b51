/* SPDX-License-Identifier: Apache-2.0 */
/*
 * C[b] = A[b] B[b] on the tensor cores of NVIDIA's GPUs from Ampere on, where A has a few rows, or
 * B a few columns: operands of 16 bits, sums in float. As in matmul_gpu_rows.cl the larger operand,
 * `many`, is read once, as fast as memory gives it, and k is contiguous in both.
 *
 *     args    few, many, c, few_count, many_count, k, few_offset, few_lead, few_batch, many_offset,
 *             many_lead, many_batch, c_offset, c_few, c_many, c_batch, few_are_columns
 *     global  ceil(many_count / 16) * 32 * WARPS, 1, batch           local  32 * WARPS
 * few: few_count lines, at most 8 * EIGHTS, of at most 4 EIGHTS. Lines of many are columns of B, or, with
 * few_are_columns 1, rows of A; c_few and c_many are the result's strides along both. k, offsets,
 * leads and batch strides of operands are multiples of 8 elements, and memory starts at a multiple
 * of 16 bytes. Integer arguments are long.
 *
 * A work-group has 16 lines of many; its warps take k by turns, ROUNDS times 32 at once.
 * The instruction multiplies 16 lines by 8 over 16 of k, of which each lane holds pairs. Which k
 * these are is the same to a sum: so a lane reads 8 neighbours of a line, which are its pairs of
 * two instructions. */
#ifndef TYPE
#define TYPE bf16
#endif
#ifndef EIGHTS
#define EIGHTS 1
#endif
#ifndef WARPS
#define WARPS 16
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif

#include "behind.h"
#include "epilogue.h"
#include "helpers.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define LINES 16
#define FEW (8 * EIGHTS)
#define ITEMS (32 * WARPS)
#define DEPTH 32 /* of k, that a warp reads in a round */

/* Eight neighbours. Such loads are asked for in this order, before what needs the first of them. */
INLINE uint4 read_eight(__global const ushort *from)
{
    uint4 read;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(read.x), "=r"(read.y), "=r"(read.z), "=r"(read.w)
                 : "l"(from));
    return read;
}

/* Sums of lines l / 4 and l / 4 + 8 with lines l % 4 * 2 and l % 4 * 2 + 1 of few. */
INLINE void multiply(float sums[4], uint4 low, uint4 high, uint4 few)
{
    const uint lows[4] = {low.x, low.y, low.z, low.w};
    const uint highs[4] = {high.x, high.y, high.z, high.w};
    const uint fews[4] = {few.x, few.y, few.z, few.w};
#pragma unroll
    for (int i = 0; i < 4; i += 2)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." TEXT(TYPE) "." TEXT(TYPE) ".f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                     : "r"(lows[i]), "r"(highs[i]), "r"(lows[i + 1]), "r"(highs[i + 1]),
                       "r"(fews[i]), "r"(fews[i + 1]));
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void
matmul_mma_rows(__global const ushort *few, __global const ushort *many, __global float *c,
                long few_count, long many_count, long k, long few_offset, long few_lead,
                long few_batch, long many_offset, long many_lead, long many_batch, long c_offset,
                long c_few, long c_many, long c_batch, long few_are_columns EPILOGUE_PARAMETERS
                BEHIND_PARAMETERS)
{
    BEHIND_MEMORY
    __local float shared[WARPS][FEW][LINES + 4];
    const int item = get_local_id(0), lane = item & 31, warp = item >> 5;
    const int eighth = lane >> 2, quarter = lane & 3;
    const long batch = get_group_id(2), line0 = (long)get_group_id(0) * LINES;
    __global const ushort *lines[2], *rows[EIGHTS];
    float sums[EIGHTS][4];
#pragma unroll
    for (int t = 0; t < 2; t++)
        lines[t] = many + many_offset + batch * many_batch +
                   min(line0 + t * 8 + eighth, many_count - 1) * many_lead;
#pragma unroll
    for (int e = 0; e < EIGHTS; e++) {
        rows[e] = few + few_offset + batch * few_batch +
                  min((long)(e * 8 + eighth), few_count - 1) * few_lead;
#pragma unroll
        for (int i = 0; i < 4; i++)
            sums[e][i] = 0.0f;
    }

#pragma unroll 1
    for (long at = warp * (ROUNDS * DEPTH); at < k; at += WARPS * ROUNDS * DEPTH) {
        uint4 read[ROUNDS][2], x[ROUNDS][EIGHTS];
        /* Beyond the line's end the last elements are read, for which there are zeros. */
#pragma unroll
        for (int r = 0; r < ROUNDS; r++) {
            const long here = min(at + r * DEPTH + quarter * 8, k - 8);
#pragma unroll
            for (int t = 0; t < 2; t++)
                read[r][t] = read_eight(lines[t] + here);
#pragma unroll
            for (int e = 0; e < EIGHTS; e++)
                x[r][e] = read_eight(rows[e] + here);
        }
        if (at + ROUNDS * DEPTH > k) {
#pragma unroll
            for (int r = 0; r < ROUNDS; r++) {
                const uint4 kept = (uint4)(at + r * DEPTH + quarter * 8 < k ? ~0u : 0u);
#pragma unroll
                for (int t = 0; t < 2; t++)
                    read[r][t] &= kept;
#pragma unroll
                for (int e = 0; e < EIGHTS; e++)
                    x[r][e] &= kept;
            }
        }
#pragma unroll
        for (int r = 0; r < ROUNDS; r++) {
#pragma unroll
            for (int e = 0; e < EIGHTS; e++)
                multiply(sums[e], read[r][0], read[r][1], x[r][e]);
        }
    }

#pragma unroll
    for (int e = 0; e < EIGHTS; e++) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            shared[warp][e * 8 + quarter * 2 + i % 2][i / 2 * 8 + eighth] = sums[e][i];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    c += c_offset + batch * c_batch;
    for (int value = item; value < FEW * LINES; value += ITEMS) {
        const int f = value / LINES, l = value % LINES;
        const long line = line0 + l;
        float sum = 0.0f;
        if (f >= few_count || line >= many_count)
            continue;
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            sum += shared[w][f][l];
        const long row = few_are_columns ? line : f, column = few_are_columns ? f : line;
        c[f * c_few + line * c_many] = EPILOGUE(sum, batch, row, column);
    }
    BEHIND
}
