/* SPDX-License-Identifier: Apache-2.0 */
/* What attention's kernels for Hopper have in common, for files that include this after wgmma.h:
 * how an item's registers are named to an instruction, weights, how results are stored. Before it
 * they say SCORES, an item's of a block, and TYPE, RESULT and ALIGNED as options do. */
#include "attention_ptx.h"

#define BOUND_4(x, i) "+f"(x[i]), "+f"(x[i + 1]), "+f"(x[i + 2]), "+f"(x[i + 3])
#define BOUND_16(x, i) BOUND_4(x, i), BOUND_4(x, i + 4), BOUND_4(x, i + 8), BOUND_4(x, i + 12)
#define BOUND_32(x, i) BOUND_16(x, i), BOUND_16(x, i + 16)
#define BOUND_64(x, i) BOUND_32(x, i), BOUND_32(x, i + 32)

/* ---- weights ---- */

/* Two neighbours' weights, the first one in the low half. */
INLINE uint pack(float low, float high)
{
    uint word;
    asm("cvt.rn." TEXT(TYPE) "x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

INLINE void pack_weights(const float scores[SCORES], uint weights[SCORES / 2])
{
#pragma unroll
    for (int i = 0; i < SCORES / 2; i++)
        weights[i] = pack(scores[2 * i], scores[2 * i + 1]);
}

/* ---- results ---- */

#define IS_f32 1
#define IS_f16 0
#define IS_bf16 0
#if PASTE(IS_, RESULT)
typedef float result_type;
#define STORE(to, first, second)                                                                   \
    if (ALIGNED)                                                                                   \
        *(__global float2 *)(to) = (float2)(first, second);                                        \
    else                                                                                           \
        (to)[0] = first, (to)[1] = second
#else
typedef ushort result_type;
#define STORE(to, first, second)                                                                   \
    const uint word = pack(first, second);                                                         \
    if (ALIGNED)                                                                                   \
        *(__global uint *)(to) = word;                                                             \
    else                                                                                           \
        (to)[0] = word & 0xffff, (to)[1] = word >> 16
#endif
