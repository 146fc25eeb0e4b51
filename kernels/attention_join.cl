/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of an attention whose keys were divided into parts (attention_gpu.cl,
 * attention_cpu_few.cl): parts in their order, each by its largest score.
 *
 *     args    parts, parts_offset, count, out, out_offset, out_row, rows, e; for each of the RUNS
 *             leading dimensions, innermost first: its size, and its stride in out
 *     global  GROUP * rows, product of the leading sizes, 1                 local  GROUP, 1, 1
 * Parts lie [matrix][part][rows][e + 2]: sums of weighted values, the largest score in units of
 * log 2, the sum of weights. A part without a key has weights of 0, and nothing else of it is read.
 * A work-item has TOGETHER columns at a time, of which e is a multiple.
 */
#ifndef GROUP
#define GROUP 64
#endif
#ifndef TOGETHER
#define TOGETHER 1
#endif
#ifndef RUNS
#define RUNS 1
#endif

#include "helpers.h"
#include "attention_parts.h"
#include "narrow_result.h"

#define RUN(i) , long size_##i, long out_##i
#define ENTER(i)                                                                                   \
    {                                                                                              \
        out += rest % size_##i * out_##i;                                                          \
        rest /= size_##i;                                                                          \
    }
#include "runs.h"

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
attention_join(__global const float *restrict parts, long parts_offset, long count,
               __global result_type *restrict out, long out_offset, long out_row, long rows,
               long e PASTE(TO_, RUNS)(RUN))
{
    const long row = get_group_id(0), columns = PART_COLUMNS(e), step = rows * columns;
    long rest = get_group_id(1);
    float peak = -INFINITY, total = 0.0f;

    parts += parts_offset + rest * count * step + row * columns;
    out += out_offset + row * out_row;
    PASTE(TO_, RUNS)(ENTER)
    for (long p = 0; p < count; p++)
        if (parts[p * step + PART_TOTAL(e)] != 0.0f)
            peak = fmax(peak, parts[p * step + PART_PEAK(e)]);
    peak = peak == -INFINITY ? 0.0f : peak;
    for (long p = 0; p < count; p++) {
        const float own = parts[p * step + PART_TOTAL(e)];
        total += own != 0.0f ? own * exp2(parts[p * step + PART_PEAK(e)] - peak) : 0.0f;
    }
    const float whole = total == 0.0f ? 0.0f : 1.0f / total;
    for (long c = get_local_id(0) * TOGETHER; c < e; c += GROUP * TOGETHER) {
        float sum[TOGETHER];
#pragma unroll
        for (int i = 0; i < TOGETHER; i++)
            sum[i] = 0.0f;
        for (long p = 0; p < count; p++) {
            if (parts[p * step + PART_TOTAL(e)] == 0.0f)
                continue;
            const float weight = exp2(parts[p * step + PART_PEAK(e)] - peak);
#pragma unroll
            for (int i = 0; i < TOGETHER; i++)
                sum[i] += parts[p * step + c + i] * weight;
        }
#pragma unroll
        for (int i = 0; i < TOGETHER; i++)
            out[c + i] = TO_RESULT(sum[i] * whole);
    }
}
