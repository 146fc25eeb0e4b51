/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A floating type that is only stored: its bits to floats and back, and floats rounded to it where
 * they stay in registers. Integer arithmetic but for two exact multiplications and one sum, so that
 * a device needs no arithmetic of that type and all give the same bits.
 *
 *     #define NARROW f16     its name
 *     #define BITS 16        of an element, as DIGITS and LEAST are of a row of lib/ops/types.def
 *     #define STORED ushort  the unsigned integer that holds it
 *     #define LEVEL_80 1     if PTX's instructions of that level are to round
 *     #define NARROW_LANES 1 or 4, 8, 16, one after the other
 *     ... this text ...
 *
 * defines, for 8 lanes, kiln_f16_load8(ushort8), kiln_f16_store8(float8) of numbers that are f16's
 * already, kiln_f16_round8(float8), to nearest, of two as near to the even one, and
 * kiln_f16_whole8(int8), which rounds integers that are no floats, too, once; one lane puts nothing
 * behind the names.
 */
#ifndef NARROW
#define NARROW f16
#define BITS 16
#define DIGITS 11
#define LEAST -14
#define STORED ushort
#define NARROW_LANES 1
#endif

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#if NARROW_LANES == 1
#define WIDE(word) word
#else
#define WIDE(word) PASTE(word, NARROW_LANES)
#endif
#define HALF_STORE PASTE(WIDE(vstore_half), _rte)
#define NAME(verb) WIDE(PASTE(PASTE(kiln_, NARROW), verb))
#define F WIDE(float)
#define I WIDE(int)
#define U WIDE(uint)
#define AS_F WIDE(as_float)
#define AS_U WIDE(as_uint)
#define TO_F WIDE(convert_float)
#define TO_U WIDE(convert_uint)

#define SIGN (1u << (BITS - 1))
#define DROPPED (24 - DIGITS)                /* bits of a float's mantissa */
#define OFFSET ((uint)(LEAST + 126) << 23)   /* between the exponents' biases */
#define ENDLESS (SIGN - (1u << (DIGITS - 1))) /* infinity; above it NaN */

/* NVIDIA's compiler has an instruction for each; any NaN may come out of one. */
#if DIGITS == 11 && defined __NV_CL_C_VERSION
static inline F NAME(_load)(WIDE(STORED) stored)
{
    return WIDE(vload_half)(0, (const half *)&stored);
}

static inline WIDE(STORED) NAME(_store)(F value)
{
    WIDE(STORED) stored;
    HALF_STORE(value, 0, (half *)&stored);
    return stored;
}

static inline F NAME(_round)(F value)
{
    return NAME(_load)(NAME(_store)(value));
}
#else
static inline F NAME(_load)(WIDE(STORED) stored)
{
    U bits = TO_U(stored), magnitude = bits & (SIGN - 1);
    U wide = (magnitude << DROPPED) + OFFSET;
    wide = magnitude >= ENDLESS ? wide + OFFSET : wide;
#if LEAST != -126 /* what has no leading one is a float that has */
    F small = TO_F(magnitude) * (F)(1.0f / (1u << (DIGITS - 1 - (LEAST))));
    wide = magnitude < (1u << (DIGITS - 1)) ? AS_U(small) : wide;
#endif
    return AS_F(wide | (bits & SIGN) << (32 - BITS));
}

static inline WIDE(STORED) NAME(_store)(F value)
{
    U bits = AS_U(value), magnitude = bits & 0x7fffffffu;
    U narrow = (magnitude - OFFSET) >> DROPPED;
    narrow = magnitude >= 0x7f800000u ? (magnitude - 2 * OFFSET) >> DROPPED : narrow;
#if LEAST != -126
    U small = TO_U(AS_F(min(magnitude, (U)(OFFSET + (1u << 23)))) *
                   (F)(float)(1u << (DIGITS - 1 - (LEAST))));
    narrow = magnitude < OFFSET + (1u << 23) ? small : narrow;
#endif
    return WIDE(PASTE(convert_, STORED))(narrow | (bits >> (32 - BITS) & SIGN));
}

#if DIGITS == 8 && defined LEVEL_80 && (NARROW_LANES == 1 || NARROW_LANES == 4)
#ifndef KILN_ROUND_PAIR
#define KILN_ROUND_PAIR
/* Both as bf16, the first one's bits above the other's. */
static inline uint kiln_round_pair(float upper, float lower)
{
    uint bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(upper), "f"(lower));
    return bits;
}
#endif
static inline F NAME(_round)(F value)
{
#if NARROW_LANES == 1
    return as_float(kiln_round_pair(value, 0.0f));
#else
    uint2 pairs = (uint2)(kiln_round_pair(value.y, value.x), kiln_round_pair(value.w, value.z));
    return as_float4((uint4)(pairs.x << 16, pairs.x & 0xffff0000u, pairs.y << 16,
                             pairs.y & 0xffff0000u));
#endif
}
#else
static inline F NAME(_round)(F value)
{
    U bits = AS_U(value), magnitude = bits & 0x7fffffffu;
    U even = magnitude >> DROPPED & 1u;
    U rounded = (magnitude + ((1u << (DROPPED - 1)) - 1) + even) >> DROPPED << DROPPED;
    rounded = rounded >= (ENDLESS << DROPPED) + OFFSET ? (U)(0x7f800000u) : rounded;
#if LEAST != -126 /* below, a sum's last place is the type's smallest number */
    F step = (F)(8388608.0f / (1u << (DIGITS - 1 - (LEAST))));
    U small = AS_U((AS_F(min(magnitude, (U)(OFFSET + (1u << 23)))) + step) - step);
    rounded = magnitude < OFFSET + (1u << 23) ? small : rounded;
#endif
    rounded = magnitude > 0x7f800000u ? (U)(0x7fc00000u) : rounded;
    return AS_F(rounded | (bits & 0x80000000u));
}
#endif
#endif

/* What a float cannot hold is made odd in its last place: that decides what is half way, and only
 * that. */
static inline F NAME(_whole)(I value)
{
    I odd = (value & ~127) | (((value & 127) + 127) & 128);
    I large = (value >= (1 << 24)) | (value <= -(1 << 24));
    return NAME(_round)(TO_F(large ? odd : value));
}

#undef PASTE_
#undef PASTE
#undef WIDE
#undef HALF_STORE
#undef NAME
#undef F
#undef I
#undef U
#undef AS_F
#undef AS_U
#undef TO_F
#undef TO_U
#undef SIGN
#undef DROPPED
#undef OFFSET
#undef ENDLESS
