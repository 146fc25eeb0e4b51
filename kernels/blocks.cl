/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements of a type of blocks (lib/ops/types.def) as floats, to the bit as ops/blocks.c has them:
 * integers, by a scale, and, of some types, plus what an integer of 0 stands for.
 *
 *     #define BLOCK q4_0         its name, and
 *     #define BLOCK_q4_0
 *     #define BLOCK_BYTES 18     of a block, of
 *     #define BLOCK_ELEMENTS 32  elements
 *     #define BLOCK_LOW 1        if something is added, else 0
 *     #define BLOCK_LANES 1, then perhaps 2, 4, 8 or 16
 *     ... this text ...
 *
 * defines, for 8 lanes, kiln_q4_0_load8(x, at), elements from number `at` of the memory x on,
 * kiln_q4_0_inside8(block, i), elements from i on, a multiple of 8, of a block, and
 * kiln_q4_0_whole8(block, i), their integers; one lane puts nothing behind the names. Of all 16
 * elements from i on, a multiple of 16, kiln_q4_0_scale(block, i) and kiln_q4_0_low(block, i) are
 * the scale and what is added. Integer arithmetic but for exact conversions, a product and a sum.
 * After a type idx.
 *
 * For kernels that take block after block kiln_q4_0_made8(block, i, ready) is what
 * kiln_q4_0_inside8(block, i) is, and `ready`, a struct kiln_q4_0_scales8, is
 * kiln_q4_0_ready8(block, j) of any element j with the same scale. Where four bits choose one of 16
 * lanes it has these elements: no product and sum for each.
 */
#ifndef BLOCK
#define BLOCK q4_0
#define BLOCK_q4_0
#define BLOCK_BYTES 18
#define BLOCK_ELEMENTS 32
#define BLOCK_LOW 0
#define BLOCK_LANES 1
typedef int idx;
#endif

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#if BLOCK_LANES == 1
#define WIDE(word) word
#define BYTES(from) ((uint)(from)[0])
#define NUMBERS 0
#else
#define WIDE(word) PASTE(word, BLOCK_LANES)
#define BYTES(from) WIDE(convert_uint)(WIDE(vload)(0, from))
#if BLOCK_LANES == 2
#define NUMBERS (uint2)(0, 1)
#elif BLOCK_LANES == 4
#define NUMBERS (uint4)(0, 1, 2, 3)
#elif BLOCK_LANES == 8
#define NUMBERS (uint8)(0, 1, 2, 3, 4, 5, 6, 7)
#else
#define NUMBERS (uint16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
#endif
#endif
#define NAME(verb) WIDE(PASTE(PASTE(kiln_, BLOCK), verb))
#define F WIDE(float)
#define U WIDE(uint)
#define AS_I WIDE(as_int)
#define TO_F WIDE(convert_float)

#ifndef KILN_BLOCK_NUMBERS
#define KILN_BLOCK_NUMBERS
/* An f16 as a float: all of them are, those without a leading one too. */
static inline float kiln_block_half(global const uchar *from)
{
#ifdef __F16C__ /* PoCL on x86 has an instruction for eight */
    return __builtin_ia32_vcvtph2ps((short8)(*(global const short *)from, 0, 0, 0, 0, 0, 0, 0))[0];
#else
    const uint bits = from[0] | (uint)from[1] << 8, magnitude = bits & 0x7fff;
    const uint wide = (magnitude << 13) + (magnitude < 0x7c00 ? 112u << 23 : 224u << 23);
    const uint small = as_uint((float)magnitude * 0x1p-24f);
    return as_float((magnitude < 0x400 ? small : wide) | (bits & 0x8000) << 16);
#endif
}

static inline uint kiln_block_word(global const uchar *from)
{
    return from[0] | (uint)from[1] << 8 | (uint)from[2] << 16 | (uint)from[3] << 24;
}

/* Of 12 bytes the scale, or, 4 bytes on, the minimum of part j of 8, 6 bits each. */
static inline float kiln_block_sixth(global const uchar *from, const int j, const int minimum)
{
    const int first = 4 * minimum;
    const uint bits = j < 4 ? from[j + first] & 63
                            : (from[j + 4] >> first & 15) | (from[j - 4 + first] >> 6) << 4;
    return (float)bits;
}
#endif

#if defined BLOCK_q8_0
static inline F NAME(_whole)(global const uchar *block, const int i)
{
    return TO_F(AS_I(BYTES(block + 2 + i) ^ 128) - 128);
}
#elif defined BLOCK_q4_0
#define FOURS(block, i) (BYTES((block) + 2 + (15 & (i))) >> ((i) >> 4) * 4)
#define FOURS_LEAST -8
#elif defined BLOCK_q4_z
#define FOURS(block, i) (BYTES((block) + 8 + (15 & (i))) >> ((i) >> 4) * 4)
#define FOURS_LEAST (-as_float(kiln_block_word(block + 4)))
#elif defined BLOCK_q8_z
static inline F NAME(_whole)(global const uchar *block, const int i)
{
    return TO_F(BYTES(block + 8 + i)) - as_float(kiln_block_word(block + 4));
}
#elif defined BLOCK_q4_1
#define FOURS(block, i) (BYTES((block) + 4 + (15 & (i))) >> ((i) >> 4) * 4)
#define FOURS_LEAST 0
#elif defined BLOCK_q5_0
static inline F NAME(_whole)(global const uchar *block, const int i)
{
    const U fifth = ((U)(kiln_block_word(block + 2) >> i) >> NUMBERS & 1) << 4;
    return TO_F(AS_I((BYTES(block + 6 + (i & 15)) >> (i >> 4) * 4 & 15) | fifth) - 16);
}
#elif defined BLOCK_q5_1
static inline F NAME(_whole)(global const uchar *block, const int i)
{
    const U fifth = ((U)(kiln_block_word(block + 4) >> i) >> NUMBERS & 1) << 4;
    return TO_F(AS_I((BYTES(block + 8 + (i & 15)) >> (i >> 4) * 4 & 15) | fifth));
}
#elif defined BLOCK_q4_k
#define FOURS(block, i) (BYTES((block) + 16 + ((i) >> 6) * 32 + (31 & (i))) >> ((i) >> 5 & 1) * 4)
#define FOURS_LEAST 0
#elif defined BLOCK_q5_k
static inline F NAME(_whole)(global const uchar *block, const int i)
{
    const U fifth = (BYTES(block + 16 + (i & 31)) >> (i >> 5) & 1) << 4;
    return TO_F(
        AS_I((BYTES(block + 48 + (i >> 6) * 32 + (i & 31)) >> (i >> 5 & 1) * 4 & 15) | fifth));
}
#elif defined BLOCK_q6_k
static inline F NAME(_whole)(global const uchar *block, const int i)
{
    const U low = BYTES(block + (i >> 7) * 64 + (i & 63)) >> (i >> 6 & 1) * 4 & 15;
    const U high = BYTES(block + 128 + (i >> 7) * 32 + (i & 31)) >> (i >> 5 & 3) * 2 & 3;
    return TO_F(AS_I(low | high << 4) - 32);
}
#endif

/* Types of four bits: FOURS(block, i) has them lowest, and others above. */
#ifdef FOURS
static inline F NAME(_whole)(global const uchar *block, const int i)
{
    return TO_F(AS_I(FOURS(block, i) & 15)) + FOURS_LEAST;
}
#endif

#if BLOCK_LANES == 1
#if defined BLOCK_q4_k || defined BLOCK_q5_k
static inline float NAME(_scale)(global const uchar *block, const int i)
{
    return kiln_block_half(block) * kiln_block_sixth(block + 4, i >> 5, 0);
}

static inline float NAME(_low)(global const uchar *block, const int i)
{
    return -(kiln_block_half(block + 2) * kiln_block_sixth(block + 4, i >> 5, 1));
}
#elif defined BLOCK_q6_k
static inline float NAME(_scale)(global const uchar *block, const int i)
{
    return kiln_block_half(block + 208) * (float)((int)(block[192 + (i >> 4)] ^ 128) - 128);
}
#elif defined BLOCK_q4_z || defined BLOCK_q8_z
static inline float NAME(_scale)(global const uchar *block, const int i)
{
    return as_float(kiln_block_word(block));
}
#else
static inline float NAME(_scale)(global const uchar *block, const int i)
{
    return kiln_block_half(block);
}

#if BLOCK_LOW
static inline float NAME(_low)(global const uchar *block, const int i)
{
    return kiln_block_half(block + 2);
}
#endif
#endif
#endif

static inline F NAME(_inside)(global const uchar *block, const int i)
{
    const F scaled = (F)(PASTE(PASTE(kiln_, BLOCK), _scale)(block, i)) * NAME(_whole)(block, i);
#if BLOCK_LOW
    return scaled + (F)(PASTE(PASTE(kiln_, BLOCK), _low)(block, i));
#else
    return scaled;
#endif
}

static inline F NAME(_load)(global const uchar *x, const idx at)
{
#if BLOCK_LANES > 1
    if (at % BLOCK_LANES != 0) {
        float each[BLOCK_LANES];
#pragma unroll 1
        for (int lane = 0; lane < BLOCK_LANES; lane++)
            each[lane] = PASTE(PASTE(kiln_, BLOCK), _load)(x, at + lane);
        return WIDE(vload)(0, each);
    }
#endif
    return NAME(_inside)(x + at / BLOCK_ELEMENTS * BLOCK_BYTES, (int)(at % BLOCK_ELEMENTS));
}

#define SCALES NAME(_scales)
struct SCALES {
    F scale, low; /* or, of four bits, all elements */
};

static inline struct SCALES NAME(_apart)(global const uchar *block, const int i)
{
    struct SCALES apart = {0};
#if BLOCK_LANES == 16 && defined __AVX512F__ && !defined BLOCK_q4_k && !defined BLOCK_q5_k &&      \
    !defined BLOCK_q6_k && !defined BLOCK_q4_z && !defined BLOCK_q8_z
    /* All lanes at once from memory, of two numbers scales in even ones. Not a byte more: what is
     * loaded twice the compiler would put together from parts. */
#if BLOCK_LOW
    typedef uint __attribute__((aligned(1))) word;
    const float16 pairs = __builtin_ia32_vcvtph2ps512_mask(
        as_short16((uint8)(*(global const word *)block)), (float16)(0.0f), -1, 4);
    apart.scale = pairs.s0022446688aaccee;
    apart.low = pairs.s1133557799bbddff;
#else
    typedef short __attribute__((aligned(1))) half_word;
    apart.scale = __builtin_ia32_vcvtph2ps512_mask((short16)(*(global const half_word *)block),
                                                   (float16)(0.0f), -1, 4);
#endif
#else
    apart.scale = (F)(PASTE(PASTE(kiln_, BLOCK), _scale)(block, i));
#if BLOCK_LOW
    apart.low = (F)(PASTE(PASTE(kiln_, BLOCK), _low)(block, i));
#endif
#endif
    return apart;
}

#if defined FOURS && BLOCK_LANES == 16 && defined __AVX512F__
static inline struct SCALES NAME(_ready)(global const uchar *block, const int i)
{
    const float16 wholes =
        (float16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15) + FOURS_LEAST;
    struct SCALES ready = NAME(_apart)(block, i);
    ready.scale = fma(ready.scale, wholes, ready.low); /* the product is exact */
    return ready;
}

static inline F NAME(_made)(global const uchar *block, const int i, const struct SCALES ready)
{
    return __builtin_ia32_permvarsf512(ready.scale, as_int16(FOURS(block, i)));
}
#else
static inline struct SCALES NAME(_ready)(global const uchar *block, const int i)
{
    return NAME(_apart)(block, i);
}

static inline F NAME(_made)(global const uchar *block, const int i, const struct SCALES ready)
{
#if BLOCK_LOW
    return ready.scale * NAME(_whole)(block, i) + ready.low;
#else
    return ready.scale * NAME(_whole)(block, i);
#endif
}
#endif

#undef PASTE_
#undef PASTE
#undef SCALES
#undef FOURS
#undef FOURS_LEAST
#undef WIDE
#undef BYTES
#undef NUMBERS
#undef NAME
#undef F
#undef U
#undef AS_I
#undef TO_F
