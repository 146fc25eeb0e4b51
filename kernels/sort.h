/* SPDX-License-Identifier: Apache-2.0 */
/* Keys, by which kernels put the elements of lines in order: unsigned integers in the order of the
 * values, turned around with DESCENDING, and behind them the elements' positions. NaN is the
 * largest value, -0 is 0. Bits of the integers below LOW are alike in all; those from there on are
 * PASSES digits of 8 bits or less. */
#ifndef TYPE
#define TYPE float
#endif
#ifndef ORDER
#define ORDER order_float
#endif
#ifndef LOW
#define LOW 0
#endif
#ifndef PASSES
#define PASSES 4
#endif

/* A text before the file may say how elements of what is stored otherwise are read (operands.h). */
#ifdef OPERAND_A
#define VALUE(from, i) OPERAND_A((from) + (i), 0, 0, 0)
#else
#define OPERAND_A_TYPE TYPE
#define VALUE(from, i) (from)[i]
#endif

#ifdef DESCENDING
#define TURNED ~
#else
#define TURNED
#endif

static inline uint order_float(float x)
{
    const uint bits = as_uint(x == 0.0f ? 0.0f : x);
    return x != x ? 0xffffffffu : bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static inline uint order_int(int x)
{
    return (uint)x ^ 0x80000000u;
}

static inline uint order_uchar(uchar x)
{
    return (uint)x << 24;
}

static inline uint order_char(char x)
{
    return (uint)(uchar)(x ^ 0x80) << 24;
}

static inline ulong order_long(long x)
{
    return (ulong)x ^ 0x8000000000000000UL;
}

/* LAST_KEY is behind all others. INTEGER is that of a key, POSITION its position. */
#ifdef WIDE /* elements of 64 bits */
typedef ulong2 key;
#define LAST_KEY ((key)(0xffffffffffffffffUL))
#define INTEGER(key) (key).x
#define POSITION(key) (int)(uint)(key).y

static inline key key_of(TYPE x, uint position)
{
    return (key)(TURNED ORDER(x), position);
}

static inline bool is_behind(key a, key b)
{
    return a.x > b.x || (a.x == b.x && a.y > b.y);
}
#else
typedef ulong key;
#define LAST_KEY 0xffffffffffffffffUL
#define INTEGER(key) (uint)((key) >> 32)
#define POSITION(key) (int)(uint)(key)

static inline key key_of(TYPE x, uint position)
{
    return ((ulong)(uint)TURNED ORDER(x) << 32) | position;
}

static inline bool is_behind(key a, key b)
{
    return a > b;
}
#endif

#define DIGIT(key, shift) (int)((INTEGER(key) >> (shift)) & 255)
