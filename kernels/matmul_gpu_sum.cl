/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of products whose k was split (matmul_gpu.cl, matmul_gpu_rows.cl): adds the sums of all
 * splits, in order.
 *
 *     args    partial, c, m, n, splits, partial_offset, c_offset, c_lead, c_batch
 *     global  a quad of a row each: ceil(n / 4), m, batch, rounded up     local  GROUP_X, GROUP_Y, 1
 * Sums lie [batch][split][m][n]. ALIGNED 1: n, offsets, c_lead and c_batch are multiples of 4 and
 * the memory starts at a multiple of 16 bytes.
 */
#ifndef GROUP_X
#define GROUP_X 16
#endif
#ifndef GROUP_Y
#define GROUP_Y 4
#endif
#ifndef ALIGNED
#define ALIGNED 0
#endif

#include "epilogue.h"

#if ALIGNED
#define LOAD_QUAD(from) (*(__global const float4 *)(from))
#define STORE_QUAD(value, to) (*(__global float4 *)(to) = (value))
#else
#define LOAD_QUAD(from) vload4(0, from)
#define STORE_QUAD(value, to) vstore4(value, 0, to)
#endif

__kernel __attribute__((reqd_work_group_size(GROUP_X, GROUP_Y, 1))) void
matmul_gpu_sum(__global const float *restrict partial, __global float *c, long m, long n,
               long splits, long partial_offset, long c_offset, long c_lead,
               long c_batch EPILOGUE_PARAMETERS)
{
    const long column = (long)get_global_id(0) * 4, row = get_global_id(1);
    const long batch = get_global_id(2);
    if (row >= m || column >= n)
        return;
    partial += partial_offset + (batch * splits * m + row) * n + column;
    c += c_offset + batch * c_batch + row * c_lead + column;
    if (n - column >= 4) {
        float4 sum = LOAD_QUAD(partial);
        for (long s = 1; s < splits; s++)
            sum += LOAD_QUAD(partial + s * m * n);
        STORE_QUAD(EPILOGUE_VECTOR(sum, batch, row, column), c);
        return;
    }
    for (int e = 0; e < n - column; e++) {
        float sum = partial[e];
        for (long s = 1; s < splits; s++)
            sum += partial[e + s * m * n];
        c[e] = EPILOGUE(sum, batch, row, column + e);
    }
}
