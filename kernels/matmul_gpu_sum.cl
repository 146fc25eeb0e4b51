/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of products whose k was split (matmul_gpu.cl, matmul_gpu_rows.cl): adds the sums of all
 * splits: LANES work-items each those that are LANES apart, in order, and one of them all lanes'.
 *
 *     args    partial, c, m, n, splits, partial_offset, c_offset, c_lead, c_batch
 *     global  a quad of a row each: ceil(n / 4), m, batch * LANES, rounded up
 *     local   GROUP_X, GROUP_Y, LANES
 * Sums lie [batch][split][m][n]. ALIGNED 1: n, offsets, c_lead and c_batch are multiples of 4 and
 * the memory starts at a multiple of 16 bytes.
 */
#ifndef GROUP_X
#define GROUP_X 16
#endif
#ifndef GROUP_Y
#define GROUP_Y 4
#endif
#ifndef LANES
#define LANES 1
#endif
#ifndef ALIGNED
#define ALIGNED 0
#endif

#include "epilogue.h"
#include "helpers.h"

#if ALIGNED
#define LOAD_QUAD(from) (*(__global const float4 *)(from))
#define STORE_QUAD(value, to) (*(__global float4 *)(to) = (value))
#else
#define LOAD_QUAD(from) vload4(0, from)
#define STORE_QUAD(value, to) vstore4(value, 0, to)
#endif

/* Of four neighbours, or of as many as the row still has. */
INLINE float4 add_splits(__global const float *partial, long first, long splits, long apart,
                         long valid)
{
    float4 sum = (float4)(0.0f);
    partial += first * apart;
    for (long s = first; s < splits; s += LANES) {
        if (valid >= 4) {
            sum += LOAD_QUAD(partial);
        } else {
            sum.x += partial[0];
            sum.y += valid > 1 ? partial[1] : 0.0f;
            sum.z += valid > 2 ? partial[2] : 0.0f;
        }
        partial += LANES * apart;
    }
    return sum;
}

__kernel __attribute__((reqd_work_group_size(GROUP_X, GROUP_Y, LANES))) void
matmul_gpu_sum(__global const float *restrict partial, __global float *c, long m, long n,
               long splits, long partial_offset, long c_offset, long c_lead,
               long c_batch EPILOGUE_PARAMETERS)
{
    const long column = (long)get_global_id(0) * 4, row = get_global_id(1);
    const long batch = get_group_id(2), lane = get_local_id(2);
    const bool inside = row < m && column < n;
    float4 sum = (float4)(0.0f);
    partial += partial_offset + (batch * splits * m + row) * n + column;
    if (inside)
        sum = add_splits(partial, lane, splits, m * n, n - column);
#if LANES > 1
    __local float4 sums[LANES][GROUP_Y][GROUP_X];
    const int x = get_local_id(0), y = get_local_id(1);
    sums[lane][y][x] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane > 0)
        return;
#pragma unroll
    for (int other = 1; other < LANES; other++)
        sum += sums[other][y][x];
#endif
    if (!inside)
        return;
    c += c_offset + batch * c_batch + row * c_lead + column;
    if (n - column >= 4) {
        STORE_QUAD(EPILOGUE_VECTOR(sum, batch, row, column), c);
        return;
    }
    const float rest[3] = {sum.x, sum.y, sum.z};
    for (int e = 0; e < n - column; e++)
        c[e] = EPILOGUE(rest[e], batch, row, column + e);
}
