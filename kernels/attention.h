/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels/attention_*.cl have in common: masks, lengths, and the leading dimensions. */
#if MASK > 1
/* What is added to a score, in units of log(2): finite numbers stay finite, so that keys of the
 * lowest ones count, alike, where a row has no others. */
INLINE float in_bits(float bias)
{
    const float scaled = bias * 1.44269504f;
    return fabs(scaled) > FLT_MAX && fabs(bias) <= FLT_MAX ? copysign(FLT_MAX, bias) : scaled;
}
#endif
#if MASK == 1
typedef uchar mask_type;
#define BIAS(value) ((value) ? 0.0f : -INFINITY)
#elif MASK == 2
typedef float mask_type;
#define BIAS(value) in_bits(value)
#elif MASK == 3
typedef ushort mask_type;
#define BIAS(value) in_bits(from_f16(value))
#elif MASK == 4
typedef ushort mask_type;
#define BIAS(value) in_bits(as_float((uint)(value) << 16))
#endif

/* A text before the file may say how elements of what is stored otherwise are read (operands.h): A
 * is the queries, B the keys, C the values, D the mask. */
#ifdef OPERAND_A
#define READ_Q(at) OPERAND_A(at, 0, 0, 0)
#define READ_Q_VECTOR(at) OPERAND_A_VECTOR(at, 0, 0, 0)
#else
#define OPERAND_A_TYPE float
#define READ_Q(at) (*(at))
#define READ_Q_VECTOR(at) LOAD(0, __global, at)
#endif
#ifdef OPERAND_B
#define READ_K(at) OPERAND_B(at, 0, 0, 0)
#define READ_K_VECTOR(at) OPERAND_B_VECTOR(at, 0, 0, 0)
#else
#define OPERAND_B_TYPE float
#define READ_K(at) (*(at))
#endif
#ifdef OPERAND_C
#define READ_V(at) OPERAND_C(at, 0, 0, 0)
#define READ_V_VECTOR(at) OPERAND_C_VECTOR(at, 0, 0, 0)
#else
#define OPERAND_C_TYPE float
#define READ_V(at) (*(at))
#endif
#ifdef OPERAND_D
#define READ_MASK(at) OPERAND_D(at, 0, 0, 0)
#else
#define OPERAND_D_TYPE mask_type
#define READ_MASK(at) (*(at))
#endif

#ifndef LENGTHS
#define LENGTHS 0
#endif
#if LENGTHS == 2
typedef long length_type;
#elif LENGTHS == 3
typedef char length_type;
#else
typedef int length_type;
#endif

/* 1: row r sees no keys before earliest + r, which lengths shift; 2: no row any before earliest. */
#ifndef WINDOW
#define WINDOW 0
#endif
#define EARLIEST(row) (earliest + (WINDOW == 1 ? (row) : 0))
#if WINDOW
#define SHIFT_WINDOW earliest += n;
#else
#define SHIFT_WINDOW
#endif

/* The arguments of a leading dimension, and the step into it. */
#define RUN(i) , long size_##i, long q_##i, long k_##i, long v_##i, long out_##i IF_MASK(long mask_##i) IF_LENGTHS(long length_##i)
#if MASK
#define IF_MASK(parameter) , parameter
#else
#define IF_MASK(parameter)
#define mask_0 0
#define mask_1 0
#define mask_2 0
#define mask_3 0
#define mask_4 0
#define mask_5 0
#endif
#if LENGTHS
#define IF_LENGTHS(parameter) , parameter
#else
#define IF_LENGTHS(parameter)
#define length_0 0
#define length_1 0
#define length_2 0
#define length_3 0
#define length_4 0
#define length_5 0
#endif
#define ENTER(i)                                                                                   \
    {                                                                                              \
        const long at = rest % size_##i;                                                           \
        rest /= size_##i;                                                                          \
        q += at * q_##i;                                                                           \
        k += at * k_##i;                                                                           \
        v += at * v_##i;                                                                           \
        out += at * out_##i;                                                                       \
        first_mask += at * mask_##i;                                                               \
        first_length += at * length_##i;                                                           \
    }
#include "runs.h"

/* Of lengths: so many keys are there, and the last query's own is the last of them. */
#if LENGTHS
#define COUNT_KEYS                                                                                 \
    {                                                                                              \
        n = clamp((long)lengths[lengths_offset + first_length], 0L, n);                            \
        diagonal += n;                                                                             \
        SHIFT_WINDOW                                                                               \
    }
#else
#define COUNT_KEYS
#endif
