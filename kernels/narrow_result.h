/* SPDX-License-Identifier: Apache-2.0 */
/* For files that include this after helpers.h. Results may be stored as f16 or bf16, rounded to
 * nearest, of two as near to the even one. */
#if defined RESULT_F16 || defined RESULT_BF16
typedef ushort result_type;
INLINE ushort TO_RESULT(float x)
{
    const uint bits = as_uint(x), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
#ifdef RESULT_BF16
    return size > 0x7f800000 ? bits >> 16 | 64 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
#else
    const uint kept = size - 0x38000000;               /* with the exponent of an f16 */
    const uint small = as_uint(as_float(size) + 0.5f); /* sums up to units of 2^-24 */
    return sign | (size > 0x7f800000    ? 0x7e00
                   : size >= 0x477ff000 ? 0x7c00
                   : size < 0x38800000  ? small - 0x3f000000
                                        : (kept + 0xfff + (kept >> 13 & 1)) >> 13);
#endif
}
#else
typedef float result_type;
#define TO_RESULT(x) (x)
#endif
