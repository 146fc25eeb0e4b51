/* SPDX-License-Identifier: Apache-2.0 */
/* Inverse trigonometric, hyperbolic and inverse hyperbolic functions: follows math_special.cl, and
 * math.cl's head says how. All are odd or even and computed of |x|. */

/* y with x's sign. */
#define SIGNED(y, x) AS_F(AS_I(y) | (AS_I(x) & (int)0x80000000))

/* ---- inverse sine, cosine and tangent ---- */

#if (defined(KILN_NEED_ACOS) || defined(KILN_NEED_ASIN)) && !defined(KILN_NATIVE_MATH)
/* asin(a) to 1/2, beyond half of pi/2 - asin(a) = 2 asin(sqrt((1 - a) / 2)); asin(r) = r +
 * r^3 P(r^2), a fit of degree 11, 0.08 ulp. */
static inline F FN(arc)(F a, I end)
{
    F s = end != 0 ? FMA(C(-0.5f), a, C(0.5f)) : a * a;
    F r = end != 0 ? sqrt(s) : a;
    F p = FMA(C(0.042157013f), s, C(0.0241855029f));
    p = FMA(p, s, C(0.0454690196f));
    p = FMA(p, s, C(0.0749531016f));
    p = FMA(p, s, C(0.166667521f));
    return FMA(r * s, p, r);
}
#endif

#if defined(KILN_NEED_ACOS) && !defined(KILN_NATIVE_MATH)
static inline F FN(acos)(F x)
{
    F a = fabs(x);
    I end = a > 0.5f;
    F p = FN(arc)(a, end);
    F right = 2.0f * p, left = 3.14159274f - (right + 8.742278e-8f);
    F near = 1.57079637f - ((x < 0.0f ? -p : p) + 4.371139e-8f);
    return end != 0 ? (x < 0.0f ? left : right) : near;
}
#endif

#if defined(KILN_NEED_ASIN) && !defined(KILN_NATIVE_MATH)
static inline F FN(asin)(F x)
{
    F a = fabs(x);
    I end = a > 0.5f;
    F p = FN(arc)(a, end);
    F y = end != 0 ? 1.57079637f - (2.0f * p + 4.371139e-8f) : p;
    return SIGNED(y, x);
}
#endif

#if (defined(KILN_NEED_ATAN) || defined(KILN_NEED_ATAN2)) && !defined(KILN_NATIVE_MATH)
/* atan(a) for a from 0 to 1: a + a^3 P(a^2), a fit of degree 19, 0.05 ulp. */
static inline F FN(atan_near)(F a)
{
    F s = a * a;
    F p = FMA(C(-0.00179040583f), s, C(0.0108996965f));
    p = FMA(p, s, C(-0.0311489366f));
    p = FMA(p, s, C(0.0579272285f));
    p = FMA(p, s, C(-0.0840158165f));
    p = FMA(p, s, C(0.109515063f));
    p = FMA(p, s, C(-0.142641023f));
    p = FMA(p, s, C(0.19998534f));
    p = FMA(p, s, C(-0.333332986f));
    return FMA(a * s, p, a);
}
#endif

#if defined(KILN_NEED_ATAN) && !defined(KILN_NATIVE_MATH)
static inline F FN(atan)(F x)
{
    F a = fabs(x);
    I far = a > 1.0f;
    F p = FN(atan_near)(far != 0 ? 1.0f / a : a);
    F y = far != 0 ? 1.57079637f - (p + 4.371139e-8f) : p;
    return SIGNED(y, x);
}
#endif

#if defined(KILN_NEED_ATAN2) && !defined(KILN_NATIVE_MATH)
/* The angle in the first eighth, turned into the eighth of (x, y): from 0, pi/2 or pi on, there or
 * back. */
static inline F FN(atan2)(F y, F x)
{
    F a = fabs(x), b = fabs(y);
    I steep = b > a, left = AS_I(x) < 0;
    F low = steep != 0 ? a : b, high = steep != 0 ? b : a;
    F r = low == high ? C(1.0f) : low / high; /* infinities too */
    F p = FN(atan_near)(high == 0.0f ? C(0.0f) : r);
    F turns = steep != 0 ? C(1.0f) : left != 0 ? C(2.0f) : C(0.0f);
    p = (steep != 0) != (left != 0) ? -p : p;
    F angle = turns * 1.57079637f + (p - turns * 4.371139e-8f);
    return ((x != x) | (y != y)) ? x + y : SIGNED(angle, y);
}
#endif

/* ---- hyperbolic functions ---- */

#if (defined(KILN_NEED_SINH) || defined(KILN_NEED_COSH)) && !defined(KILN_NATIVE_MATH)
/* exp(a) / 2, which overflows where sinh and cosh do and not before: exp(a - log(2)). */
static inline F FN(half_exp)(F a)
{
    F shifted, p = FN(exp_fraction)(a - 0.693145752f, C(-1.42860677e-6f), &shifted);
    return FN(scale)(p, shifted);
}
#endif

#if defined(KILN_NEED_SINH) && !defined(KILN_NATIVE_MATH)
/* From 1 on the difference of both powers, below it by exp(a) - 1, which loses nothing. */
static inline F FN(sinh)(F x)
{
    F a = fabs(x);
    F h = FN(half_expm1)(a > 1.0f ? C(1.0f) : a);
    F e = FN(half_exp)(a);
    F y = a < 1.0f ? h + h / FMA(C(2.0f), h, C(1.0f)) : e - 0.25f / e;
    y = a < 0.000244140625f ? a : y; /* below 2^-12 sinh(x) rounds to x */
    return SIGNED(y, x);
}
#endif

#if defined(KILN_NEED_COSH) && !defined(KILN_NATIVE_MATH)
static inline F FN(cosh)(F x)
{
    F e = FN(half_exp)(fabs(x));
    return e + 0.25f / e;
}
#endif

#if (defined(KILN_NEED_ASINH) || defined(KILN_NEED_ACOSH)) && !defined(KILN_NATIVE_MATH)
/* log(1 + y); of 2 y where y is so large that 1 does not matter. */
static inline F FN(log_of_large)(F y, I large)
{
    return FN(log1p_finite)(y) + (large != 0 ? C(0.693147182f) : C(0.0f));
}
#endif

#if defined(KILN_NEED_ASINH) && !defined(KILN_NATIVE_MATH)
/* log(a + sqrt(a^2 + 1)), with what the logarithm is of less 1 written so that it does not cancel:
 * a + a^2 / (1 + sqrt(a^2 + 1)). */
static inline F FN(asinh)(F x)
{
    F a = fabs(x);
    I large = a > 1073741824.0f;
    F bounded = large != 0 ? C(1.0f) : a;
    F square = bounded * bounded;
    F y = bounded + square / (1.0f + sqrt(square + 1.0f));
    y = FN(log_of_large)(large != 0 ? a : y, large);
    y = a < 0.000244140625f ? a : y;
    return a < INFINITY ? SIGNED(y, x) : x;
}
#endif

#if defined(KILN_NEED_ACOSH) && !defined(KILN_NATIVE_MATH)
/* log(x + sqrt(x^2 - 1)), all by t = x - 1. */
static inline F FN(acosh)(F x)
{
    F t = x - 1.0f;
    I large = t > 1073741824.0f;
    F bounded = large != 0 ? C(1.0f) : t;
    F y = bounded + sqrt(FMA(bounded, bounded, 2.0f * bounded));
    y = FN(log_of_large)(large != 0 ? t : y, large);
    F end = x < 1.0f ? C(NAN) : x;
    return ((x >= 1.0f) & (x < INFINITY)) ? y : end;
}
#endif

#if defined(KILN_NEED_ATANH) && !defined(KILN_NATIVE_MATH)
/* log((1 + a) / (1 - a)) / 2 */
static inline F FN(atanh)(F x)
{
    F a = fabs(x);
    F y = 0.5f * FN(log1p_finite)(2.0f * a / (1.0f - a));
    y = a < 0.000244140625f ? a : y;
    F end = a == 1.0f ? C(INFINITY) : C(NAN);
    return SIGNED(a < 1.0f ? y : end, x);
}
#endif

#undef SIGNED
