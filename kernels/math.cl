/* SPDX-License-Identifier: Apache-2.0 */
/* Functions for generated kernels: elementary ones, accurate to a few ulp, of which only sin and cos
 * branch, and random words.
 *
 * This text is put before a kernel once for each type that the kernel computes with:
 *     #define KILN_LANES 16      or 4 or 8: defines kiln_exp_vec(float16) and so on
 *     ... this text ...
 *     #undef KILN_LANES
 *     #define KILN_LANES 1       defines kiln_exp_float(float) and so on
 *     ... this text ...
 * Both give the same bits for the same input: conditions are values for `?:`, which picks lane by
 * lane, and every multiplication that is to fuse with an addition is written FMA().
 *
 * KILN_NEED_<NAME>  one for each function that the kernel calls: the others cost compile time
 * KILN_NATIVE_MATH  where the device's own functions are as good: those are called instead
 * KILN_NO_FMA       where fma() is software (no CL_FP_FMA): two roundings; sin, cos, pow native
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
#endif
#if defined(KILN_NATIVE_MATH) || defined(KILN_NO_FMA)
#define KILN_NATIVE_LONG
NATIVE(sin)
NATIVE(cos)
static inline F FN(pow)(F x, F y)
{
    return pow(x, y);
}
#endif
#undef NATIVE

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

#if defined(KILN_NEED_SWISH) || defined(KILN_NEED_GELU) || defined(KILN_NEED_GELU_TANH) ||         \
    !defined(KILN_NATIVE_MATH)
/* exp(x + low) as p * *half1 * *half2, p in 0.7 to 1.42 and the halves powers of two. Multiplied in
 * that order the product overflows to infinity and underflows gradually, and a factor can come in
 * between while nothing has been lost. low: a correction far below x's last place, or 0.
 * 2^n e^r by Cody & Waite; p is a fit of degree 6, 0.05 ulp. Adding 1.5 * 2^23 rounds to an
 * integer, and 254 more makes the low bits of the sum the two biased exponents' total. */
static inline F FN(exp_parts)(F x, F low, F *half1, F *half2)
{
    x = x > 89.0f ? C(89.0f) : x;
    x = x < -112.0f ? C(-112.0f) : x;
    F shifted = FMA(x, C(1.44269504f), C(12583166.0f));
    F n = shifted - 12583166.0f;
    F r = FMA(n, C(-0.693145752f), x);
    r = FMA(n, C(-1.42860677e-6f), r) + low;
    F p = FMA(C(0.00138364348f), r, C(0.00836913101f));
    p = FMA(p, r, C(0.0416681059f));
    p = FMA(p, r, C(0.166665167f));
    p = FMA(p, r, C(0.49999994f));
    I total = AS_I(shifted);
    I first = total >> 1;
    *half1 = AS_F(first << 23);
    *half2 = AS_F((total - first) << 23);
    return 1.0f + FMA(r * r, p, r);
}
#endif

#if defined(KILN_NEED_EXP) && !defined(KILN_NATIVE_MATH)
static inline F FN(exp)(F x)
{
    F half1, half2;
    F p = FN(exp_parts)(x, C(0.0f), &half1, &half2);
    return p * half1 * half2;
}
#endif

#if defined(KILN_NEED_EXP2) && !defined(KILN_NATIVE_MATH)
/* As exp_parts(), without a reduction: a fit of degree 6, 0.2 ulp. */
static inline F FN(exp2)(F x)
{
    x = x > 129.0f ? C(129.0f) : x;
    x = x < -160.0f ? C(-160.0f) : x;
    F shifted = x + 12583166.0f;
    F r = x - (shifted - 12583166.0f);
    F p = FMA(C(0.000133355206f), r, C(0.00133878971f));
    p = FMA(p, r, C(0.0096254386f));
    p = FMA(p, r, C(0.0555036627f));
    p = FMA(p, r, C(0.240225941f));
    p = FMA(p, r, C(0.693147182f));
    I total = AS_I(shifted);
    I first = total >> 1;
    return FMA(p, r, C(1.0f)) * AS_F(first << 23) * AS_F((total - first) << 23);
}
#endif

#if (defined(KILN_NEED_EXPM1) || defined(KILN_NEED_TANH)) && !defined(KILN_NATIVE_MATH)
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
    return (x < 0.0f ? e : C(1.0f)) / (1.0f + e);
}
#endif

#ifdef KILN_NEED_SWISH
/* x * sigmoid(x). Far left exp(x) is denormal where the product is not, so x comes in first. */
static inline F FN(swish)(F x)
{
    F half1, half2;
    F p = FN(exp_parts)(-fabs(x), C(0.0f), &half1, &half2);
    F left = x < -112.0f ? C(-112.0f) : x; /* 0, not NaN, at -infinity */
    F y = (x < 0.0f ? left * p * half1 : x) / FMA(p * half1, half2, C(1.0f));
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

/* ---- the error function and gelu ---- */

#if defined(KILN_NEED_ERFC) || defined(KILN_NEED_GELU) || defined(KILN_NEED_GELU_TANH)
/* What a * b lost by rounding to product. */
static inline F FN(product_rest)(F a, F b, F product)
{
#ifdef KILN_NO_FMA
    F ah = AS_F(AS_I(a) & (int)0xfffff000), al = a - ah; /* T. J. Dekker */
    F bh = AS_F(AS_I(b) & (int)0xfffff000), bl = b - bh;
    return (((ah * bh - product) + ah * bl) + al * bh) + al * bl;
#else
    return fma(a, b, -product);
#endif
}
#endif

#if defined(KILN_NEED_ERF) && !defined(KILN_NATIVE_MATH)
/* Below 0.9: x + x P(x^2), a fit, 0.24 ulp. Above: 1 - exp(a P(a)), a fit of log(erfc(a)) / a by
 * its effect on erf, 0.02 ulp (the split into these two forms is N. Juffa's). */
static inline F FN(erf)(F x)
{
    F s = x * x;
    F p = FMA(C(-0.000602079963f), s, C(0.00499895914f));
    p = FMA(p, s, C(-0.026770493f));
    p = FMA(p, s, C(0.112819217f));
    p = FMA(p, s, C(-0.376125038f));
    p = FMA(p, s, C(0.128379151f));
    F near = FMA(x, p, x);
    F a = fabs(x);
    a = a > 3.93f ? C(3.93f) : a;
    F g = FMA(C(-1.04280034e-05f), a, C(0.000314835634f));
    g = FMA(g, a, C(-0.00361028989f));
    g = FMA(g, a, C(0.0236944836f));
    g = FMA(g, a, C(-0.106158979f));
    g = FMA(g, a, C(-0.635198057f));
    g = FMA(g, a, C(-1.12863708f));
    F half1, half2;
    p = FN(exp_parts)(g * a, C(0.0f), &half1, &half2);
    F far = FMA(-p * half1, half2, C(1.0f));
    far = AS_F(AS_I(far) | (AS_I(x) & (int)0x80000000));
    return a < 0.9f ? near : far;
}
#endif

#if defined(KILN_NEED_ERFC) && !defined(KILN_NATIVE_MATH)
/* exp(-a^2) R(q) / (a + 3), q = (a - 3) / (a + 3), a = |x|: R is a fit of degree 9, 0.5 ulp. The
 * rounding error of a^2 is known exactly and goes into the exponent. */
static inline F FN(erfc)(F x)
{
    F a = fabs(x);
    a = a > 10.1f ? C(10.1f) : a;
    F t = 1.0f / (a + 3.0f);
    F q = FMA(C(-6.0f), t, C(1.0f));
    F r = FMA(C(-0.00029592216f), q, C(-0.000434833462f));
    r = FMA(r, q, C(0.00307842065f));
    r = FMA(r, q, C(-0.00125880435f));
    r = FMA(r, q, C(-0.0268456936f));
    r = FMA(r, q, C(0.119536459f));
    r = FMA(r, q, C(-0.31046471f));
    r = FMA(r, q, C(0.590227723f));
    r = FMA(r, q, C(-0.883394539f));
    r = FMA(r, q, C(1.07400692f));
    F half1, half2;
    F square = a * a;
    F p = FN(exp_parts)(-square, -FN(product_rest)(a, a, square), &half1, &half2);
    F tail = p * (r * t) * half1 * half2;
    return x < 0.0f ? 2.0f - tail : tail;
}
#endif

#ifdef KILN_NEED_GELU
/* x Phi(x), Phi the normal distribution's integral. Its tail is computed in x itself, as in erfc():
 * exp(-a^2 / 2) R(q) / (a + 3), a fit of degree 8, 1 ulp. Dividing x by sqrt(2) first would cost
 * hundreds of ulp far left. */
static inline F FN(gelu)(F x)
{
    F a = fabs(x);
    a = a > 14.5f ? C(14.5f) : a;
    F t = 1.0f / (a + 3.0f);
    F q = FMA(C(-6.0f), t, C(1.0f));
    F r = FMA(C(-0.000273637648f), q, C(-0.000904797227f));
    r = FMA(r, q, C(0.00108678173f));
    r = FMA(r, q, C(0.00692545669f));
    r = FMA(r, q, C(-0.010484796f));
    r = FMA(r, q, C(-0.0472562984f));
    r = FMA(r, q, C(0.230020002f));
    r = FMA(r, q, C(-0.509332299f));
    r = FMA(r, q, C(0.729083657f));
    F half1, half2;
    F square = a * a;
    F p = FN(exp_parts)(-0.5f * square, -0.5f * FN(product_rest)(a, a, square), &half1, &half2);
    F tail = p * (r * t) * half1;
    F left = -a * tail * half2; /* a first: the tail alone may be denormal */
    F right = x * FMA(-tail, half2, C(1.0f));
    return x < 0.0f ? left : right;
}
#endif

#ifdef KILN_NEED_GELU_TANH
/* x / (1 + exp(-u)), u = x (k + l x^2), which is x (1 + tanh(u / 2)) / 2. Far left exp() multiplies
 * the relative error of u by u, hence u and all that leads to it come with what rounding lost. */
static inline F FN(gelu_tanh)(F x)
{
    F a = fabs(x);
    a = a > 11.0f ? C(11.0f) : a;
    F square = a * a, k = C(1.59576917f), l = C(0.0713548139f);
    F p = l * square;
    F p_rest = FN(product_rest)(l, square, p);
    p_rest += l * FN(product_rest)(a, a, square) + 2.3988324e-09f * square;
    F t = k + p, back = t - k; /* D. E. Knuth's sum */
    F t_rest = ((k - (t - back)) + (p - back)) + (p_rest + -4.53406804e-08f);
    F u = a * t;
    F u_rest = FN(product_rest)(a, t, u) + a * t_rest;
    F half1, half2;
    p = FN(exp_parts)(-u, -u_rest, &half1, &half2);
    F left = x < -11.0f ? C(-11.0f) : x; /* 0, not NaN, at -infinity */
    F y = (x < 0.0f ? left * p * half1 : x) / FMA(p * half1, half2, C(1.0f));
    return x < 0.0f ? y * half2 : y;
}
#endif

/* ---- sine and cosine, arc cosine ---- */

#if (defined(KILN_NEED_SIN) || defined(KILN_NEED_COS)) && !defined(KILN_NATIVE_LONG)
#ifndef KILN_TWO_OVER_PI
#define KILN_TWO_OVER_PI
/* The digits of 2/pi, with a word of zeros in front. */
__constant uint kiln_two_over_pi[] = {0,          0xa2f9836e, 0x4e441529, 0xfc2757d1,
                                      0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab};

/* Payne & Hanek for |x| > 2^16: |x| * 2/pi modulo 4 from the 96 digits of 2/pi that matter at x's
 * exponent. Returns the rest from -pi/4 to pi/4. Not out of line: a call would spill
 * every vector register of the loop around it. */
static inline float kiln_reduce_large(float x, int *quadrant)
{
    int start = ((as_int(x) >> 23) & 0xff) - 120;
    __constant const uint *word = kiln_two_over_pi + (start >> 5);
    int left = start & 31;
    ulong high = ((ulong)word[0] << 32) | word[1], low = ((ulong)word[2] << 32) | word[3];
    high = (high << left) | ((low >> 1) >> (63 - left));
    low = (low << left) >> 32;
    ulong mantissa = (as_uint(x) & 0x7fffffu) | 0x800000u;
    ulong product = mantissa * high + ((mantissa * low) >> 32); /* 2 bits, then the fraction */
    int turns = (int)(product >> 62) + (int)((product >> 61) & 1);
    float fraction = (float)(long)(product << 2);
    float rest = fma(fraction, 8.51530395e-20f, fraction * -2.36959e-27f); /* pi/2 * 2^-64 */
    *quadrant = x < 0.0f ? -turns : turns;
    return x < 0.0f ? -rest : rest;
}
#endif

/* x less a multiple of pi/2, from -pi/4 to pi/4; adds the multiple to *quadrant. Cody & Waite in
 * three parts (N. Juffa's constants), good to 2^16; the rare angles above go one by one. */
static inline F FN(reduce_angle)(F x, I *quadrant)
{
    F shifted = FMA(x, C(0.636619772f), C(12582912.0f));
    F n = shifted - 12582912.0f;
    F r = FMA(n, C(-1.57079601f), x);
    r = FMA(n, C(-3.13916473e-07f), r);
    r = FMA(n, C(-5.39030253e-15f), r);
    I turns = AS_I(shifted);
    F a = fabs(x);
    if (any(AS_I(65536.0f - a))) { /* any() asks for sign bits */
        float angle[KILN_LANES], rest[KILN_LANES];
        int turn[KILN_LANES];
        STORE(x, angle);
        STORE(r, rest);
        STORE(turns, turn);
        for (int lane = 0; lane < KILN_LANES; lane++) {
            if (fabs(angle[lane]) > 65536.0f && fabs(angle[lane]) < INFINITY)
                rest[lane] = kiln_reduce_large(angle[lane], &turn[lane]);
        }
        r = LOAD(rest);
        turns = LOAD(turn);
    }
    *quadrant += turns;
    return a < INFINITY ? r : x - x;
}

/* sin(r + quadrant * pi/2), |r| <= pi/4: fits of degree 7 and 8, 0.07 and 0.01 ulp. */
static inline F FN(sin_quadrant)(F r, I quadrant)
{
    F s = r * r;
    F p = FMA(C(-0.000195178975f), s, C(0.00833218731f));
    p = FMA(p, s, C(-0.166666552f));
    F sine = r * FMA(p, s, C(1.0f)); /* in this form -0 stays -0 */
    F c = FMA(C(2.44323273e-05f), s, C(-0.00138873095f));
    c = FMA(c, s, C(0.0416666456f));
    F cosine = FMA(s * s, c, FMA(C(-0.5f), s, C(1.0f)));
    F y = (quadrant & 1) != 0 ? cosine : sine;
    return AS_F(AS_I(y) ^ ((quadrant & 2) << 30));
}
#endif

#if defined(KILN_NEED_SIN) && !defined(KILN_NATIVE_LONG)
static inline F FN(sin)(F x)
{
    I quadrant = (I)(0);
    F r = FN(reduce_angle)(x, &quadrant);
    return FN(sin_quadrant)(r, quadrant);
}
#endif

#if defined(KILN_NEED_COS) && !defined(KILN_NATIVE_LONG)
static inline F FN(cos)(F x)
{
    I quadrant = (I)(1);
    F r = FN(reduce_angle)(x, &quadrant);
    return FN(sin_quadrant)(r, quadrant);
}
#endif

#if defined(KILN_NEED_ACOS) && !defined(KILN_NATIVE_MATH)
/* pi/2 - asin(x) in the middle, 2 asin(sqrt((1 - |x|) / 2)) at the right end, pi less that at the
 * left one; asin(r) = r + r^3 P(r^2) to 1/2, a fit of degree 11, 0.08 ulp. */
static inline F FN(acos)(F x)
{
    F a = fabs(x);
    I end = a > 0.5f;
    F s = end != 0 ? FMA(C(-0.5f), a, C(0.5f)) : a * a;
    F r = end != 0 ? sqrt(s) : a;
    F p = FMA(C(0.042157013f), s, C(0.0241855029f));
    p = FMA(p, s, C(0.0454690196f));
    p = FMA(p, s, C(0.0749531016f));
    p = FMA(p, s, C(0.166667521f));
    p = FMA(r * s, p, r);
    F right = 2.0f * p, left = 3.14159274f - (right + 8.742278e-8f);
    F near = 1.57079637f - ((x < 0.0f ? -p : p) + 4.371139e-8f);
    return end != 0 ? (x < 0.0f ? left : right) : near;
}
#endif

/* ---- pow ---- */

#if defined(KILN_NEED_POW) && !defined(KILN_NATIVE_LONG)
/* log(x) as high + *low with about 30 good bits, for finite x > 0: n ln 2 + 2 atanh(q),
 * q = (m - 1) / (m + 1) with the division's rest beside it; the tail of the series is a fit. */
static inline F FN(log_long)(F x, F *low)
{
    I denormal = x < 1.17549435e-38f;
    I up = AS_I(denormal ? x * 8388608.0f : x);
    I e = (up - 0x3f3504f3) & (int)0xff800000; /* sqrt(1/2) */
    F n = TO_F(denormal ? e - (23 << 23) : e) * 1.1920929e-7f;
    F m = AS_F(up - e) - 1.0f;
    F inverse = 1.0f / (m + 2.0f);
    F q = m * inverse;
    F rest = FMA(-q, m, FMA(C(-2.0f), q, m)) * inverse;
    F s = q * q;
    F p = FMA(C(0.298708051f), s, C(0.399775833f));
    p = FMA(p, s, C(0.666667759f));
    F whole = n * 0.693145752f;
    F high = FMA(C(2.0f), q, whole);
    F small = FMA(C(2.0f), q, whole - high);
    small += FMA(s * q, p, FMA(n, C(1.42860677e-6f), 2.0f * rest));
    F sum = high + small;
    *low = small - (sum - high);
    return sum;
}

/* |x|^y by exp(y log|x|), then IEEE 754's table of special cases. */
static inline F FN(pow)(F x, F y)
{
    F a = fabs(x), b = fabs(y);
    F low;
    F high = FN(log_long)(a, &low);
    high = a == 0.0f ? C(-INFINITY) : high;
    high = a == INFINITY ? a : high;
    F product = y * high;
    low = fabs(product) < 1000.0f ? FMA(y, low, FMA(y, high, -product)) : C(0.0f);
    F half1, half2;
    F p = FN(exp_parts)(product, low, &half1, &half2);
    F power = p * half1 * half2;
    /* Adding and taking away 2^23 leaves whole numbers below 2^23 alone and no others. (Conditions
     * are not negated: Oclgrind 21.10 gets that wrong for vectors.) */
    F half_b = 0.5f * b, rounded = (b + 8388608.0f) - 8388608.0f;
    I broken = (b < 8388608.0f) & (rounded != b);
    I odd = ((b >= 8388608.0f) | (rounded == b)) & (b < 16777216.0f);
    odd &= (half_b + 8388608.0f) - 8388608.0f != half_b;
    I sign = odd != 0 ? AS_I(x) & (int)0x80000000 : (I)(0);
    power = a == 1.0f ? C(1.0f) : power;
    power = ((x < 0.0f) & (a < INFINITY) & broken) ? C(NAN) : power;
    power = AS_F(AS_I(power) | sign);
    power = ((x != x) | (y != y)) ? x + y : power;
    return ((x == 1.0f) | (y == 0.0f)) ? C(1.0f) : power;
}
#endif

/* ---- random words ---- */

#if defined(KILN_NEED_PHILOX) || defined(KILN_NEED_PHILOX_SECOND)
/* Philox4x32-10 (J. Salmon and others, SC 2011) of the counter (counter, 0, 0, 0): words 0 and 1.
 * Where a kernel wants both, the compiler sees that the rounds are the same. */
static inline U FN(philox_rounds)(U counter, U key0, U key1, int word)
{
    U c0 = counter, c1 = (U)(0), c2 = (U)(0), c3 = (U)(0);
    for (int round = 0; round < 10; round++) {
        U high0 = mul_hi(c0, (U)(0xD2511F53u)), low0 = c0 * 0xD2511F53u;
        U high1 = mul_hi(c2, (U)(0xCD9E8D57u)), low1 = c2 * 0xCD9E8D57u;
        c0 = high1 ^ c1 ^ key0;
        c1 = low1;
        c2 = high0 ^ c3 ^ key1;
        c3 = low0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return word ? c1 : c0;
}

static inline I FN(philox)(I counter, I key0, I key1)
{
    return AS_I(FN(philox_rounds)(AS_U(counter), AS_U(key0), AS_U(key1), 0));
}

static inline I FN(philox_second)(I counter, I key0, I key1)
{
    return AS_I(FN(philox_rounds)(AS_U(counter), AS_U(key0), AS_U(key1), 1));
}
#endif

#undef F
#undef I
#undef KIND
#undef FN
#undef AS_F
#undef AS_I
#undef U
#undef AS_U
#undef TO_F
#undef LOAD
#undef STORE
#undef FMA
#undef C
