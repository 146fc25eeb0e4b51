/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of VECTOR floats as wide as a CPU's registers, for files of kernels that include this. */
#include "helpers.h"

/* For loops that are rare or short: vectorised and unrolled they only take time to compile. */
#define PLAIN_LOOP _Pragma("clang loop vectorize(disable) unroll(disable)")
typedef PASTE(float, VECTOR) vector;
/* The same with the alignment of a float. Through its pointer a vector is one load or store in what
 * the compiler sees; PoCL's vload16 is eight, and takes longer to compile. */
typedef PASTE(float, VECTOR) __attribute__((aligned(4))) loose;
#define LOAD(i, space, p) (((space const loose *)(p))[i])
#define STORE(value, i, space, p) (((space loose *)(p))[i] = (value))

/* The lower and the upper halves of two vectors, shuffled together. */
#if VECTOR == 16
#define ZIP_LOW(a, b)                                                                              \
    __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define ZIP_HIGH(a, b)                                                                             \
    __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif VECTOR == 8
#define ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#endif

/* Transpose a square of VECTOR vectors: log2(VECTOR) perfect shuffles of the rows. */
INLINE void transpose_square(vector *square)
{
#pragma unroll
    for (int stage = 1; stage < VECTOR; stage *= 2) {
        vector mixed[VECTOR];
#pragma unroll
        for (int i = 0; i < VECTOR / 2; i++) {
            mixed[2 * i] = ZIP_LOW(square[i], square[i + VECTOR / 2]);
            mixed[2 * i + 1] = ZIP_HIGH(square[i], square[i + VECTOR / 2]);
        }
#pragma unroll
        for (int i = 0; i < VECTOR; i++)
            square[i] = mixed[i];
    }
}

INLINE float sum_of(vector x)
{
#if VECTOR == 16
    const float8 eight = x.lo + x.hi;
    const float4 four = eight.lo + eight.hi;
#elif VECTOR == 8
    const float4 four = x.lo + x.hi;
#else
    const float4 four = x;
#endif
    const float2 two = four.lo + four.hi;
    return two.x + two.y;
}
