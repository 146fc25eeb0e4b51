/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the gradient of attention is made of (attention_backward.h), in float on any device. It is
 * for where tensor cores turn out not to be what was believed of them: an item finds a row of the
 * result, one product after the other.
 *
 *     args    a, b, c, g, stats, out, m, n, d, e, scale (times log2 of e), diagonal, a_offset,
 *             a_row, a_column, those of b, c and g, stats_offset, out_offset, out_row; then for
 *             each of RUNS leading dimensions, innermost first, its size and the strides of a, b,
 *             c, g, stats, out
 *     global  m, product of the leading sizes, 1
 * Query i sees keys up to i + diagonal. Offsets and strides count elements. A query's stats lie
 * next to each other, and so do a row's results; DEPTH: at least d and e. FORM is not BOTH.
 */
#ifndef FORM
#define FORM 3
#endif
#ifndef DEPTH
#define DEPTH 64
#endif
#ifndef RUNS
#define RUNS 1
#endif

#include "helpers.h"
#include "attention_backward.h"
#include "narrow_result.h"

#ifdef OPERAND_A
#define READ_A(at) OPERAND_A(at, 0, 0, 0)
#else
#define OPERAND_A_TYPE float
#define READ_A(at) (*(at))
#endif
#ifdef OPERAND_B
#define READ_B(at) OPERAND_B(at, 0, 0, 0)
#else
#define OPERAND_B_TYPE float
#define READ_B(at) (*(at))
#endif
#ifdef OPERAND_C
#define READ_C(at) OPERAND_C(at, 0, 0, 0)
#else
#define OPERAND_C_TYPE float
#define READ_C(at) (*(at))
#endif
#ifdef OPERAND_D
#define READ_G(at) OPERAND_D(at, 0, 0, 0)
#else
#define OPERAND_D_TYPE float
#define READ_G(at) (*(at))
#endif

/* The arguments of a leading dimension, and the step into it. */
#define RUN(i) , long size_##i, long a_##i, long b_##i, long c_##i, long g_##i, long s_##i, long r_##i
#define ENTER(i)                                                                                   \
    {                                                                                              \
        const long at = rest % size_##i;                                                           \
        rest /= size_##i;                                                                          \
        a += at * a_##i;                                                                           \
        b += at * b_##i;                                                                           \
        c += at * c_##i;                                                                           \
        g += at * g_##i;                                                                           \
        stats += at * s_##i;                                                                       \
        out += at * r_##i;                                                                         \
    }

__kernel void attention_backward(
    __global const OPERAND_A_TYPE *restrict a, __global const OPERAND_B_TYPE *restrict b,
    __global const OPERAND_C_TYPE *restrict c, __global const OPERAND_D_TYPE *restrict g,
    __global const float *restrict stats, __global result_type *restrict out, long m, long n,
    long d, long e, float scale, long diagonal, long a_offset, long a_row, long a_column, long b_offset,
    long b_row, long b_column, long c_offset, long c_row, long c_column, long g_offset, long g_row,
    long g_column, long stats_offset, long out_offset, long out_row PASTE(TO_, RUNS)(RUN))
{
    const long row = get_global_id(0);
    const long first = BY_COLUMN ? max(0L, row - diagonal) : 0;
    const long end = BY_COLUMN ? n : min(n, row + diagonal + 1);
    const int columns = FORM == VALUES ? e : d;
    long rest = get_global_id(1);
    float sums[DEPTH], peak = -INFINITY, total = 0.0f;

    a += a_offset + row * a_row;
    b += b_offset;
    c += c_offset + row * c_row;
    g += g_offset;
    stats += stats_offset;
    out += out_offset + row * out_row;
    PASTE(TO_, RUNS)(ENTER)
    for (int i = 0; i < DEPTH; i++)
        sums[i] = 0.0f;
    for (long j = first; j < end; j++) {
        float score = 0.0f, slope = 0.0f;
        for (int i = 0; i < d; i++)
            score += READ_A(a + i * a_column) * READ_B(b + j * b_row + i * b_column);
        score *= scale;
        if (FORM == SCALES) {
            const float most = fmax(peak, score);
            if (most != -INFINITY)
                total = total * exp2(peak - most) + exp2(score - most);
            peak = most;
            continue;
        }
        __global const float *of = stats + (BY_COLUMN ? j : row) * STATS;
        float weight = exp2(score - of[0]);
        if (SLOPES) {
            for (int i = 0; i < e; i++)
                slope += READ_C(c + i * c_column) * READ_G(g + j * g_row + i * g_column);
            weight *= slope - of[1];
        }
        for (int i = 0; i < columns; i++)
            sums[i] += weight * (FORM == VALUES ? READ_G(g + j * g_row + i * g_column)
                                                : READ_B(b + j * b_row + i * b_column));
    }
    if (FORM == SCALES)
        out[0] = TO_RESULT(peak == -INFINITY ? INFINITY : peak + log2(total));
    else
        for (int i = 0; i < columns; i++)
            out[i] = TO_RESULT(sums[i] * stats[FORM == VALUES ? VALUE_FACTOR : SLOPE_FACTOR]);
}
