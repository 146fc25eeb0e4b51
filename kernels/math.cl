/* SPDX-License-Identifier: Apache-2.0 */
/* Functions for generated kernels: elementary ones, accurate to a few ulp, of which only sin, cos
 * and tan branch, and random words.
 *
 * This text is put before a kernel once for each type that the kernel computes with:
 *     #define KILN_LANES 16      or 4 or 8: defines kiln_exp_vec(float16) and so on
 *     ... this text, math_special.cl, math_inverse.cl, math_random.cl, math_end.cl ...
 *     #undef KILN_LANES
 *     #define KILN_LANES 1       defines kiln_exp_float(float) and so on
 *     ... the five again ...
 * Both give the same bits for the same input: conditions are values for `?:`, which picks lane by
 * lane, and every multiplication that is to fuse with an addition is written FMA().
 *
 * KILN_NEED_<NAME>  one for each function that the kernel calls: the others cost compile time
 * KILN_NATIVE_MATH  where the device's own functions are as good: those are called instead
 * KILN_NO_FMA       where fma() is software (no CL_FP_FMA): two roundings; sin, cos, tan, pow
 *                   native
 *
 * "Fit" below: a minimax polynomial of our own, weighted by the relative error of the whole
 * function (Remez' exchange; Lawson's reweighting for log and pow), its coefficients rounded to
 * float one by one from the lowest up, the others fitted again after each. Its error is in units of
 * 2^-24. */
#pragma OPENCL FP_CONTRACT OFF

#ifndef KILN_LANES
#define KILN_LANES 1
#endif

#define KILN_PASTE_(a, b) a##b
#define KILN_PASTE(a, b) KILN_PASTE_(a, b)
#if KILN_LANES == 1
#define F float
#define I int
#define KIND _float
#define AS_F as_float
#define AS_I as_int
#define U uint
#define AS_U as_uint
#define TO_F convert_float
#define LOAD(from) (*(from))
#define STORE(value, to) (*(to) = (value))
#else
#define F KILN_PASTE(float, KILN_LANES)
#define I KILN_PASTE(int, KILN_LANES)
#define KIND _vec
#define AS_F KILN_PASTE(as_float, KILN_LANES)
#define AS_I KILN_PASTE(as_int, KILN_LANES)
#define U KILN_PASTE(uint, KILN_LANES)
#define AS_U KILN_PASTE(as_uint, KILN_LANES)
#define TO_F KILN_PASTE(convert_float, KILN_LANES)
#define LOAD(from) KILN_PASTE(vload, KILN_LANES)(0, from)
#define STORE(value, to) KILN_PASTE(vstore, KILN_LANES)(value, 0, to)
#endif
#define C(number) ((F)(number)) /* the number in every lane */
#define FN(name) KILN_PASTE(kiln_##name, KIND)

#if defined(KILN_NEED_SIGMOID) || defined(KILN_NEED_SOFTPLUS)
#define KILN_NEED_EXP
#endif

#define NATIVE(name)                                                                               \
    static inline F KILN_PASTE(kiln_##name, KIND)(F x)                                             \
    {                                                                                              \
        return name(x);                                                                            \
    }
#ifdef KILN_NATIVE_MATH
NATIVE(exp)
NATIVE(exp2)
NATIVE(expm1)
NATIVE(log)
NATIVE(log2)
NATIVE(log1p)
NATIVE(tanh)
NATIVE(erf)
NATIVE(erfc)
NATIVE(acos)
NATIVE(asin)
NATIVE(atan)
NATIVE(sinh)
NATIVE(cosh)
NATIVE(asinh)
NATIVE(acosh)
NATIVE(atanh)
static inline F FN(atan2)(F y, F x)
{
    return atan2(y, x);
}
#endif
#if defined(KILN_NATIVE_MATH) || defined(KILN_NO_FMA)
#define KILN_NATIVE_LONG
NATIVE(sin)
NATIVE(cos)
NATIVE(tan)
static inline F FN(pow)(F x, F y)
{
    return pow(x, y);
}
#endif
#undef NATIVE

/* A quotient that keeps its last place. NVIDIA's compiler divides by a multiplication that it may
 * join with a sum behind it, or not, by what else the kernel holds; a product of ours it may not,
 * here with a 1 that no compiler knows. */
#ifdef KILN_NATIVE_MATH
#define QUOTIENT(a, b) ((a) / (b) * as_float(0x3f800000 + (int)get_global_offset(0)))
#else
#define QUOTIENT(a, b) ((a) / (b))
#endif

#ifdef KILN_NO_FMA
#define FMA(a, b, c) ((a) * (b) + (c))
#else
#define FMA fma
#endif

#ifdef KILN_NEED_FMA
static inline F FN(fma)(F a, F b, F c)
{
    return FMA(a, b, c);
}
#endif

/* ---- exp and its relatives ---- */

#if defined(__AVX512F__) && defined(__has_builtin)
#if __has_builtin(__builtin_ia32_scalefps512_mask)
#define KILN_HAS_VSCALEFPS
#endif
#endif

#if defined(KILN_NEED_SWISH) || !defined(KILN_NATIVE_MATH)
/* exp(x + low) as p * 2^n, p in 0.7 to 1.42. low: a correction far below x's last place, or -0,
 * which costs no addition. 2^n e^r by Cody & Waite; p is a fit of degree 6, 0.05 ulp. Adding
 * 1.5 * 2^23 rounds to an integer; 254 more makes the low bits of the sum, `shifted`, the total of
 * two biased exponents. */
static inline F FN(exp_fraction)(F x, F low, F *shifted)
{
    x = x > 89.0f ? C(89.0f) : x;
    x = x < -176.06f ? C(-176.06f) : x;
    *shifted = FMA(x, C(1.44269504f), C(12583166.0f));
    F n = *shifted - 12583166.0f;
    F r = FMA(n, C(-0.693145752f), x);
    r = FMA(n, C(-1.42860677e-6f), r) + low;
    F p = FMA(C(0.00138364348f), r, C(0.00836913101f));
    p = FMA(p, r, C(0.0416681059f));
    p = FMA(p, r, C(0.166665167f));
    p = FMA(p, r, C(0.49999994f));
    return 1.0f + FMA(r * r, p, r);
}

/* 2^n as two powers of two: a product with both, one after the other, overflows to infinity and
 * underflows gradually, and a factor can come in between while nothing has been lost. Of x far
 * left, as masks have it, the total is 0 and so are both halves: a product that underflows instead
 * takes some processors 70 cycles. */
static inline void FN(halves)(F shifted, F *half1, F *half2)
{
    I total = AS_I(shifted);
    I first = total >> 1;
    *half1 = AS_F(first << 23);
    *half2 = AS_F((total - first) << 23);
}

/* p * 2^n. VSCALEFPS (Intel's manual) rounds once, as the halves' product does: the same bits. */
static inline F FN(scale)(F p, F shifted)
{
#if KILN_LANES == 16 && defined(KILN_HAS_VSCALEFPS)
    return __builtin_ia32_scalefps512_mask(p, shifted - 12583166.0f, p, (ushort)0xffff, 4);
#else
    F half1, half2;
    FN(halves)(shifted, &half1, &half2);
    return p * half1 * half2;
#endif
}

static inline F FN(exp_parts)(F x, F low, F *half1, F *half2)
{
    F shifted, p = FN(exp_fraction)(x, low, &shifted);
    FN(halves)(shifted, half1, half2);
    return p;
}
#endif

#if defined(KILN_NEED_EXP) && !defined(KILN_NATIVE_MATH)
static inline F FN(exp)(F x)
{
    F shifted, p = FN(exp_fraction)(x, C(-0.0f), &shifted);
    return FN(scale)(p, shifted);
}
#endif

#if defined(KILN_NEED_EXP2) && !defined(KILN_NATIVE_MATH)
/* As exp_fraction(), without a reduction: a fit of degree 6, 0.2 ulp. */
static inline F FN(exp2)(F x)
{
    x = x > 129.0f ? C(129.0f) : x;
    x = x < -254.0f ? C(-254.0f) : x;
    F shifted = x + 12583166.0f;
    F r = x - (shifted - 12583166.0f);
    F p = FMA(C(0.000133355206f), r, C(0.00133878971f));
    p = FMA(p, r, C(0.0096254386f));
    p = FMA(p, r, C(0.0555036627f));
    p = FMA(p, r, C(0.240225941f));
    p = FMA(p, r, C(0.693147182f));
    return FN(scale)(FMA(p, r, C(1.0f)), shifted);
}
#endif

#if (defined(KILN_NEED_EXPM1) || defined(KILN_NEED_TANH) || defined(KILN_NEED_SINH)) &&             \
    !defined(KILN_NATIVE_MATH)
/* (exp(x) - 1) / 2, for x from -18 to 89; the half keeps 2^128 out of it. A fit of degree 6 whose
 * weight is relative to exp(r) - 1, 0.24 ulp. */
static inline F FN(half_expm1)(F x)
{
    F shifted = FMA(x, C(1.44269504f), C(12583038.0f));
    F n = shifted - 12583038.0f;
    F r = FMA(n, C(-0.693145752f), x);
    r = FMA(n, C(-1.42860677e-6f), r);
    F p = FMA(C(0.00138390437f), r, C(0.00836706907f));
    p = FMA(p, r, C(0.0416677445f));
    p = FMA(p, r, C(0.16666539f));
    p = FMA(p, r, C(0.49999997f));
    F scale = AS_F(AS_I(shifted) << 23);
    return FMA(scale, FMA(r * r, p, r), scale - 0.5f);
}
#endif

#if defined(KILN_NEED_EXPM1) && !defined(KILN_NATIVE_MATH)
static inline F FN(expm1)(F x)
{
    F bounded = x > 89.0f ? C(89.0f) : x;
    bounded = bounded < -18.0f ? C(-18.0f) : bounded;
    F y = 2.0f * FN(half_expm1)(bounded);
    return fabs(x) < 5.96046448e-8f ? x : y; /* below 2^-24: keeps -0 and every bit of a denormal */
}
#endif

#if defined(KILN_NEED_TANH) && !defined(KILN_NATIVE_MATH)
/* (exp(2a) - 1) / (exp(2a) + 1) for a = |x|: right in every bit that matters at both ends. */
static inline F FN(tanh)(F x)
{
    F a = fabs(x);
    a = a > 10.0f ? C(10.0f) : a;
    F h = FN(half_expm1)(a + a);
    F y = a < 0.000244140625f ? a : h / (h + 1.0f); /* below 2^-12 tanh(x) rounds to x */
    return AS_F(AS_I(y) | (AS_I(x) & (int)0x80000000));
}
#endif

#ifdef KILN_NEED_SIGMOID
/* 1 / (1 + exp(-x)) on the right, exp(x) / (1 + exp(x)) on the left: full accuracy in the tail. */
static inline F FN(sigmoid)(F x)
{
    F e = FN(exp)(-fabs(x));
    return QUOTIENT(x < 0.0f ? e : C(1.0f), 1.0f + e);
}
#endif

#ifdef KILN_NEED_SWISH
/* x * sigmoid(x). Far left exp(x) is denormal where the product is not, so x comes in first. */
static inline F FN(swish)(F x)
{
    F half1, half2;
    F p = FN(exp_parts)(-fabs(x), C(-0.0f), &half1, &half2);
    F left = x < -112.0f ? C(-112.0f) : x; /* 0, not NaN, at -infinity */
    F y = QUOTIENT(x < 0.0f ? left * p * half1 : x, FMA(p * half1, half2, C(1.0f)));
    return x < 0.0f ? y * half2 : y;
}
#endif

/* ---- log and its relatives ---- */

#if defined(KILN_NEED_SOFTPLUS) || !defined(KILN_NATIVE_MATH)
/* log(1 + m) for m from -1/3 to 1/3: m - m^2/2 + m^3 P(m), a fit of degree 10, 0.08 ulp. */
static inline F FN(log1p_near)(F m)
{
    F p = FMA(C(-0.128737614f), m, C(0.139865026f));
    p = FMA(p, m, C(-0.121884629f));
    p = FMA(p, m, C(0.140053764f));
    p = FMA(p, m, C(-0.166801766f));
    p = FMA(p, m, C(0.20010443f));
    p = FMA(p, m, C(-0.249998048f));
    p = FMA(p, m, C(0.333332151f));
    p = FMA(p, m, C(-0.5f));
    return FMA(m * m, p, m);
}

/* log(1 + x) for finite x > -1. 2^n is what brings 1 + x near 1; x and 1 are scaled apart so that
 * no bit of x is lost (N. Juffa's arrangement). 0x3f2aaaab is 2/3. */
static inline F FN(log1p_finite)(F x)
{
    I n = (AS_I(1.0f + x) - 0x3f2aaaab) & (int)0xff800000;
    F scale = AS_F(0x40800000 - n); /* 4 * 2^-n, which is never denormal */
    F m = AS_F(AS_I(x) - n) + FMA(C(0.25f), scale, C(-1.0f));
    return FMA(TO_F(n), C(8.26295832e-8f), FN(log1p_near)(m)); /* ln 2 * 2^-23 */
}
#endif

#if (defined(KILN_NEED_LOG) || defined(KILN_NEED_LOG2)) && !defined(KILN_NATIVE_MATH)
/* m + 1 from 2/3 to 4/3 and n with x = 2^n (m + 1), for finite x > 0; n in units of 2^-23. */
static inline F FN(log_reduce)(F x, F *n)
{
    I denormal = x < 1.17549435e-38f;
    I up = AS_I(denormal ? x * 8388608.0f : x);
    I e = (up - 0x3f2aaaab) & (int)0xff800000;
    *n = TO_F(denormal ? e - (23 << 23) : e);
    return AS_F(up - e) - 1.0f;
}

/* y, but what a logarithm has at x = 0, below, at infinity and at NaN. */
static inline F FN(log_ends)(F x, F y)
{
    F end = x < 0.0f ? C(NAN) : x;
    end = x == 0.0f ? C(-INFINITY) : end;
    return ((x > 0.0f) & (x < INFINITY)) ? y : end;
}
#endif

#if defined(KILN_NEED_LOG) && !defined(KILN_NATIVE_MATH)
static inline F FN(log)(F x)
{
    F n;
    F m = FN(log_reduce)(x, &n);
    return FN(log_ends)(x, FMA(n, C(8.26295832e-8f), FN(log1p_near)(m)));
}
#endif

#if defined(KILN_NEED_LOG2) && !defined(KILN_NATIVE_MATH)
static inline F FN(log2)(F x)
{
    F n;
    F m = FN(log_reduce)(x, &n);
    F y = FN(log1p_near)(m);
    return FN(log_ends)(x, FMA(y, C(1.44269504f), n * 1.1920929e-7f));
}
#endif

#if defined(KILN_NEED_LOG1P) && !defined(KILN_NATIVE_MATH)
static inline F FN(log1p)(F x)
{
    F end = x < -1.0f ? C(NAN) : x;
    end = x == -1.0f ? C(-INFINITY) : end;
    F y = AS_F(AS_I(FN(log1p_finite)(x)) | (AS_I(x) & (int)0x80000000)); /* -0 stays -0 */
    return ((x > -1.0f) & (x < INFINITY)) ? y : end;
}
#endif

#ifdef KILN_NEED_SOFTPLUS
/* log(1 + exp(x)) */
static inline F FN(softplus)(F x)
{
    F y = FN(log1p_finite)(FN(exp)(-fabs(x)));
    return (x < 0.0f ? C(0.0f) : x) + y; /* a NaN gets here through x alone */
}
#endif
