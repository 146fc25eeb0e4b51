/* SPDX-License-Identifier: Apache-2.0 */
/* The error function, gelu, sine, cosine, tangent and pow: follows math.cl, whose head says how. */

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
    p = FN(exp_parts)(g * a, C(-0.0f), &half1, &half2);
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
    F shifted, square = a * a;
    F p = FN(exp_fraction)(-square, -FN(product_rest)(a, a, square), &shifted);
    F tail = FN(scale)(p * (r * t), shifted);
    return x < 0.0f ? 2.0f - tail : tail;
}
#endif

#ifdef KILN_NEED_GELU
/* x Phi(x), Phi the normal distribution's integral, which is relu(x) - a Phi(-a), a = |x|. Its tail
 * is computed in x itself, as in erfc(): exp(-a^2 / 2) R(q) / (a + 3), a fit of degree 8, 1 ulp.
 * Dividing x by sqrt(2) first would cost hundreds of ulp far left. Of the device's own functions
 * the power is halved, that is, squared in the end, so that it is no denormal on the way; with 27
 * operations an element instead of some 60 memory is what an H200 waits for. */
static inline F FN(gelu)(F x)
{
#ifdef KILN_NATIVE_MATH
    F a = fmin(fabs(x), C(14.5f));
    F d = a + 3.0f, near = native_recip(d);
    F t = FMA(near, FMA(-d, near, C(1.0f)), near);
#else
    F a = fabs(x);
    a = a > 19.0f ? C(19.0f) : a;
    F t = 1.0f / (a + 3.0f);
#endif
    F q = FMA(C(-6.0f), t, C(1.0f));
    F r = FMA(C(-0.000273637648f), q, C(-0.000904797227f));
    r = FMA(r, q, C(0.00108678173f));
    r = FMA(r, q, C(0.00692545669f));
    r = FMA(r, q, C(-0.010484796f));
    r = FMA(r, q, C(-0.0472562984f));
    r = FMA(r, q, C(0.230020002f));
    r = FMA(r, q, C(-0.509332299f));
    r = FMA(r, q, C(0.729083657f));
#ifdef KILN_NATIVE_MATH
    F square = a * a, k = C(-0.36067376f); /* -log2(e) / 4 */
    F y = square * k, rest = FMA(square, k, -y);
    rest = FMA(FMA(a, a, -square), k, rest);
    rest = FMA(square, C(-4.8149075e-9f), rest);
    F half2 = native_exp2(y), tail = r * t;
    tail = FMA(tail, rest * 1.38629436f, tail) * half2; /* 2 log(2) */
    return FMA(-a * tail, half2, x < 0.0f ? C(0.0f) : x); /* what underflows keeps its sign */
#else
    F half1, half2;
    F square = a * a;
    F p = FN(exp_parts)(-0.5f * square, -0.5f * FN(product_rest)(a, a, square), &half1, &half2);
    F tail = p * (r * t) * half1;
    F left = -a * tail * half2; /* a first: the tail alone may be denormal */
    F right = x * FMA(-tail, half2, C(1.0f));
    return x < 0.0f ? left : right;
#endif
}
#endif

#ifdef KILN_NEED_GELU_TANH
/* x / (1 + exp(-u)), u = x (k + l x^2), which is x (1 + tanh(u / 2)) / 2. Far left exp() multiplies
 * the relative error of u by u, hence u and all that leads to it come with what rounding lost. Of
 * the device's own functions the power of 2 is halved, as in gelu(); k is a multiple of 2^-20, so
 * that k - t is exact. */
static inline F FN(gelu_tanh)(F x)
{
#ifdef KILN_NATIVE_MATH
    F a = fmin(fabs(x), C(11.0f)); /* 0, not NaN, at -infinity */
    F square = a * a, k = C(-1.15110397f), l = C(-0.0514716208f); /* log2(e) / 2 times those */
    F t = FMA(l, square, k), t_rest = FMA(l, square, k - t);
    t_rest = FMA(l, FMA(a, a, -square), t_rest);
    t_rest += FMA(C(1.00809927e-9f), square, C(-1.25683485e-7f));
    F y = a * t, y_rest = FMA(a, t_rest, FMA(a, t, -y));
    F half2 = native_exp2(y), power = FMA(half2, y_rest * 1.38629436f, half2); /* 2 log(2) */
    F tail = a * power * native_recip(FMA(power, half2, C(1.0f)));
    return FMA(-tail, half2, x < 0.0f ? C(0.0f) : x); /* as in gelu() */
#else
    F a = fabs(x);
    a = a > 14.0f ? C(14.0f) : a;
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
    F y = QUOTIENT(x < 0.0f ? left * p * half1 : x, FMA(p * half1, half2, C(1.0f)));
    return x < 0.0f ? y * half2 : y;
#endif
}
#endif

/* ---- sine, cosine and tangent ---- */

#if (defined(KILN_NEED_SIN) || defined(KILN_NEED_COS) || defined(KILN_NEED_TAN)) &&                 \
    !defined(KILN_NATIVE_LONG)
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

/* sin(r) and cos(r), |r| <= pi/4: fits of degree 7 and 8, 0.07 and 0.01 ulp. */
static inline F FN(sin_near)(F r, F *cosine)
{
    F s = r * r;
    F p = FMA(C(-0.000195178975f), s, C(0.00833218731f));
    p = FMA(p, s, C(-0.166666552f));
    F c = FMA(C(2.44323273e-05f), s, C(-0.00138873095f));
    c = FMA(c, s, C(0.0416666456f));
    *cosine = FMA(s * s, c, FMA(C(-0.5f), s, C(1.0f)));
    return r * FMA(p, s, C(1.0f)); /* in this form -0 stays -0 */
}

/* sin(r + quadrant * pi/2) */
static inline F FN(sin_quadrant)(F r, I quadrant)
{
    F cosine, sine = FN(sin_near)(r, &cosine);
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

#if defined(KILN_NEED_TAN) && !defined(KILN_NATIVE_LONG)
static inline F FN(tan)(F x)
{
    I quadrant = (I)(0);
    F r = FN(reduce_angle)(x, &quadrant);
    F cosine, sine = FN(sin_near)(r, &cosine);
    I odd = quadrant & 1;
    return (odd != 0 ? -cosine : sine) / (odd != 0 ? sine : cosine);
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
    F shifted, p = FN(exp_fraction)(product, low, &shifted);
    F power = FN(scale)(p, shifted);
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
