/* SPDX-License-Identifier: Apache-2.0 */
/*
 * C[b] = A[b] B[b] in float for GPUs where A has a few rows at most, or B a few columns: the larger
 * operand, `many`, is read once, as fast as memory gives it; the smaller one, `few`, by each
 * work-group.
 *
 *     args    few, many, c, few_count, many_count, k, few_offset, few_lead, few_batch, many_offset,
 *             many_lead, many_batch, c_offset, c_few, c_many, c_batch, depth, splits, c_split,
 *             few_are_columns
 * few: few_count lines, at most FEW, k contiguous, few_lead apart. Lines of many are columns of B,
 * or, with few_are_columns 1, rows of A; c_few and c_many are the result's strides along both.
 *
 *   ALONG 0, matmul_gpu_across: many's lines lie beside each other, k is many_lead apart.
 *     ITEMS / LANES parts of a work-group take k by turns, LANES items of each 4 lines each.
 *     many_count is 4 at least. Items of a part read a line of few each and tell the others: LANES
 *     is FEW at least, and a divisor of 32. WARPS 1: 32 items that run together wait for each other
 *     by NVIDIA's instruction; 0: all of a work-group do.
 *     global  ceil(many_count / (4 * LANES)) * ITEMS, splits, batch           local  ITEMS, 1, 1
 *   ALONG 1, matmul_gpu_along: k is contiguous and all items share it; LINES lines a work-group.
 *     global  ceil(many_count / LINES) * ITEMS, splits, batch                 local  ITEMS, 1, 1
 *
 * Each of `splits` adds up `depth` of k, a multiple of 4 or all, and writes its sums c_split apart,
 * for matmul_gpu_sum.cl. ALIGNED 1: k, offsets, few_lead, many_lead and batch strides are multiples
 * of 4 elements, and memory starts at a multiple of 16 bytes. Integer arguments are long.
 */
#ifndef FEW
#define FEW 8
#endif
#ifndef ITEMS
#define ITEMS 256
#endif
#ifndef LANES
#define LANES 8
#endif
#ifndef LINES
#define LINES 4
#endif
#ifndef ALONG
#define ALONG 1
#endif
#ifndef WARPS
#define WARPS 0
#endif
#ifndef ALIGNED
#define ALIGNED 0
#endif

#include "behind.h"
#include "epilogue.h"
#include "helpers.h"

#if ALIGNED
#define LOAD_QUAD(from) (*(__global const float4 *)(from))
#else
#define LOAD_QUAD(from) vload4(0, from)
#endif
#define LOAD(i, space, p) LOAD_QUAD(p)
#define VECTOR 4
#include "operands.h"

#define SLICES (ITEMS / LANES)
#define SUMMED ((SLICES + 7) / 8) /* slices that are left after the first of two rounds of adding */
#ifndef ROUNDS
#define ROUNDS 1 /* turns whose reads are on their way at once */
#endif
#define TURN (SLICES * STEP) /* of k, which all slices take */
#define STEP 4               /* of k, which a slice or an item takes at once */
#define VALUES (FEW * LINES)
#define CHUNKS (ITEMS / VALUES) /* into which the items' sums are cut to be added up */
#define PITCH (ITEMS + 1)       /* of the items' sums, so that chunks meet in no bank */

/* Four k of a line of few, or what is there of them and zeros. */
INLINE float4 read_few(__global const OPERAND_A_TYPE *from, int valid PLACE_A)
{
    if (ALIGNED || valid >= STEP)
        return READ_A_VECTOR(0, from, 0, 0);
    float4 quad = (float4)(0.0f);
    if (valid > 0)
        quad.x = READ_A(from, 0, 0, 0);
    if (valid > 1)
        quad.y = READ_A(from, 1, 0, 1);
    if (valid > 2)
        quad.z = READ_A(from, 2, 0, 2);
    return quad;
}

INLINE void store(float sum, bool valid, __global float *c, long c_many, long batch, long few,
                  long many, long few_are_columns EPILOGUE_PARAMETERS)
{
    const long row = few_are_columns ? many : few, column = few_are_columns ? few : many;
    if (valid)
        c[many * c_many] = EPILOGUE(sum, batch, row, column);
}

#if ALONG
/* Four k of a line of many, or what is there of them and zeros. */
INLINE float4 read_along(__global const OPERAND_B_TYPE *from, int valid PLACE_B)
{
    if (ALIGNED || valid >= STEP)
        return READ_B_VECTOR(0, from, 0, 0);
    float4 quad = (float4)(0.0f);
    if (valid > 0)
        quad.x = READ_B(from, 0, 0, 0);
    if (valid > 1)
        quad.y = READ_B(from, 1, 0, 1);
    if (valid > 2)
        quad.z = READ_B(from, 2, 0, 2);
    return quad;
}

INLINE float dot_onto(float sum, float4 x, float4 y)
{
    return fma(x.w, y.w, fma(x.z, y.z, fma(x.y, y.y, fma(x.x, y.x, sum))));
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void
matmul_gpu_along(__global const OPERAND_A_TYPE *restrict few,
                 __global const OPERAND_B_TYPE *restrict many, __global float *c, long few_count,
                 long many_count, long k, long few_offset, long few_lead, long few_batch,
                 long many_offset, long many_lead, long many_batch, long c_offset, long c_few,
                 long c_many, long c_batch, long depth, long splits, long c_split,
                 long few_are_columns OPERAND_A_PARAMETERS OPERAND_B_PARAMETERS
                 EPILOGUE_PARAMETERS BEHIND_PARAMETERS)
{
    BEHIND_MEMORY
    __local float shared[VALUES * PITCH];
    const int item = get_local_id(0);
    const long batch = get_group_id(2), split = get_group_id(1);
    const long line0 = (long)get_group_id(0) * LINES;
    const long first = split * depth, last = min(k, first + depth);
    float sums[FEW][LINES];
    few += few_offset + batch * few_batch + first + item * STEP;
    many += many_offset + batch * many_batch + first + item * STEP;
    c += c_offset + batch * c_batch + split * c_split;
#pragma unroll
    for (int f = 0; f < FEW; f++) {
#pragma unroll
        for (int l = 0; l < LINES; l++)
            sums[f][l] = 0.0f;
    }

    for (long at = first + item * STEP; at < last; at += ITEMS * STEP) {
        const int valid = (int)min(last - at, (long)STEP);
        float4 quads[LINES];
#pragma unroll
        for (int l = 0; l < LINES; l++) {
            const long line = min(line0 + l, many_count - 1);
            quads[l] = read_along(many + line * many_lead,
                                  valid AT_B(batch, line, many_count, at));
        }
#pragma unroll
        for (int f = 0; f < FEW; f++) {
            const long row = min((long)f, few_count - 1);
            const float4 x =
                read_few(few + row * few_lead, valid AT_A(batch, row, few_count, at));
#pragma unroll
            for (int l = 0; l < LINES; l++)
                sums[f][l] = dot_onto(sums[f][l], x, quads[l]);
        }
        few += ITEMS * STEP;
        many += ITEMS * STEP;
    }

#pragma unroll
    for (int v = 0; v < VALUES; v++)
        shared[v * PITCH + item] = sums[v / LINES][v % LINES];
    barrier(CLK_LOCAL_MEM_FENCE);
    /* An item adds up a chunk of one value's sums, and one item then the chunks. */
    const int value = item % VALUES, chunk = item / VALUES;
    float sum = 0.0f;
    for (int i = 0; i < ITEMS / CHUNKS; i++)
        sum += shared[value * PITCH + chunk * (ITEMS / CHUNKS) + i];
    barrier(CLK_LOCAL_MEM_FENCE);
    shared[item] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    const long f = value / LINES, line = line0 + value % LINES;
    if (chunk == 0 && f < few_count && line < many_count) {
        for (int i = 1; i < CHUNKS; i++)
            sum += shared[i * VALUES + value];
        store(sum, true, c + f * c_few, c_many, batch, f, line, few_are_columns EPILOGUE_ARGUMENTS);
    }
    BEHIND
}
#else
#if WARPS
#define AWAIT_SLICES asm volatile("bar.warp.sync 0xffffffff;" ::: "memory")
#else
#define AWAIT_SLICES barrier(CLK_LOCAL_MEM_FENCE)
#endif

/* Four lines of one k, or zeros. */
INLINE float4 read_across(__global const OPERAND_B_TYPE *from, bool valid PLACE_B)
{
    return valid ? READ_B_VECTOR(0, from, 0, 0) : (float4)(0.0f);
}

/* Operands are not restrict: their loads would be of memory that nothing writes, which NVIDIA's
 * assembler puts off until they are used, so that few are on their way. */
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void
matmul_gpu_across(__global const OPERAND_A_TYPE *few,
                  __global const OPERAND_B_TYPE *many, __global float *c, long few_count,
                  long many_count, long k, long few_offset, long few_lead, long few_batch,
                  long many_offset, long many_lead, long many_batch, long c_offset, long c_few,
                  long c_many, long c_batch, long depth, long splits, long c_split,
                  long few_are_columns OPERAND_A_PARAMETERS OPERAND_B_PARAMETERS
                  EPILOGUE_PARAMETERS BEHIND_PARAMETERS)
{
    BEHIND_MEMORY
    __local float4 shared[ITEMS], told[2][ROUNDS][SLICES][FEW];
    const int item = get_local_id(0), lane = item % LANES, slice = item / LANES;
    const long batch = get_group_id(2), split = get_group_id(1);
    const long own = ((long)get_group_id(0) * LANES + lane) * 4;
    const long line = min(own, many_count - 4); /* the last quad ends with the last line */
    const long first = split * depth, last = min(k, first + depth);
    float4 sums[FEW];
    few += few_offset + batch * few_batch + first + slice * STEP;
    many += many_offset + batch * many_batch + (first + slice * STEP) * many_lead + line;
    c += c_offset + batch * c_batch + split * c_split;
#pragma unroll
    for (int f = 0; f < FEW; f++)
        sums[f] = (float4)(0.0f);

    /* What a slice needs of few is in no cache before: an item reads a line of it as it reads its
     * own of many, and all take it from local memory, of which there are two in turns. */
    const long own_few = min((long)(lane % FEW), few_count - 1);
    int turn = 0;
    few += own_few * few_lead;
    for (long at = first + slice * STEP; at - slice * STEP < last; at += ROUNDS * TURN) {
        float4 quads[ROUNDS][STEP], few_quad[ROUNDS];
#pragma unroll
        for (int r = 0; r < ROUNDS; r++) {
            const long here = at + r * TURN;
            const int valid = (int)clamp(last - here, 0L, (long)STEP);
            few_quad[r] =
                valid > 0 ? read_few(few + r * TURN, valid AT_A(batch, own_few, few_count, here))
                          : (float4)(0.0f);
#pragma unroll
            for (int s = 0; s < STEP; s++)
                quads[r][s] = read_across(many + (r * TURN + s) * many_lead,
                                          s < valid AT_B(batch, line, many_count, here + s));
        }
        few += ROUNDS * TURN;
        many += ROUNDS * TURN * many_lead;
        if (lane < FEW) {
#pragma unroll
            for (int r = 0; r < ROUNDS; r++)
                told[turn][r][slice][lane] = few_quad[r];
        }
        AWAIT_SLICES;
#pragma unroll
        for (int r = 0; r < ROUNDS; r++) {
#pragma unroll
            for (int f = 0; f < FEW; f++) {
                const float4 x = told[turn][r][slice][f];
                sums[f] = fma((float4)(x.x), quads[r][0], sums[f]);
                sums[f] = fma((float4)(x.y), quads[r][1], sums[f]);
                sums[f] = fma((float4)(x.z), quads[r][2], sums[f]);
                sums[f] = fma((float4)(x.w), quads[r][3], sums[f]);
            }
        }
        turn = 1 - turn;
    }

#pragma unroll
    for (int f = 0; f < FEW; f++) {
        shared[item] = sums[f];
        barrier(CLK_LOCAL_MEM_FENCE);
        if (slice < SUMMED) {
            for (int s = slice + SUMMED; s < SLICES; s += SUMMED)
                sums[f] += shared[s * LANES + lane];
            shared[item] = sums[f];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (slice == 0) {
            for (int s = 1; s < SUMMED; s++)
                sums[f] += shared[s * LANES + lane];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    /* The last quad's first lines may be another item's. */
#pragma unroll 1
    for (int f = 0; f < FEW && f < few_count && slice == 0; f++) {
        const float4 sum = sums[0];
        store(sum.x, own <= line, c + f * c_few, c_many, batch, f, line,
              few_are_columns EPILOGUE_ARGUMENTS);
        store(sum.y, own <= line + 1, c + f * c_few, c_many, batch, f, line + 1,
              few_are_columns EPILOGUE_ARGUMENTS);
        store(sum.z, own <= line + 2, c + f * c_few, c_many, batch, f, line + 2,
              few_are_columns EPILOGUE_ARGUMENTS);
        store(sum.w, own <= line + 3, c + f * c_few, c_many, batch, f, line + 3,
              few_are_columns EPILOGUE_ARGUMENTS);
#pragma unroll
        for (int i = 0; i < FEW - 1; i++)
            sums[i] = sums[i + 1];
    }
    BEHIND
}
#endif
