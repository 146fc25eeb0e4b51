/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of weights, for kernels/attention_cpu*.cl. */
typedef PASTE(int, VECTOR) integers;
#define AS_VECTOR PASTE(as_float, VECTOR)
#define AS_INTEGERS PASTE(as_int, VECTOR)

/* 2^x for x of 0 and below; 0 below 2^-126, and NaN stays NaN. The polynomial is that of exp2 in
 * math.cl: a fit of degree 6, 0.2 ulp. Adding 1.5 * 2^23 rounds to an integer. */
INLINE vector power_of_two(vector x)
{
    const vector least = (vector)(-127.0f); /* whose power has no bits */
    x = x < least ? least : x;
    const vector shifted = x + 12582912.0f;
    const vector r = x - (shifted - 12582912.0f);
    vector p = fma((vector)(0.000133355206f), r, (vector)(0.00133878971f));
    p = fma(p, r, (vector)(0.0096254386f));
    p = fma(p, r, (vector)(0.0555036627f));
    p = fma(p, r, (vector)(0.240225941f));
    p = fma(p, r, (vector)(0.693147182f));
    p = fma(p, r, (vector)(1.0f));
    return p * AS_VECTOR((AS_INTEGERS(shifted) << 23) + 0x3f800000);
}
