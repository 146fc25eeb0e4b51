/* SPDX-License-Identifier: Apache-2.0 */
/* How matmul_gpu.cl reads an operand, which it names OF(name): quad number i of a tile with `lines`
 * lines, zeros where the operand has no elements. ACROSS_K: the lines' neighbours are contiguous, or
 * else k is. */
INLINE float4 OF(fetch)(__global const TYPE *from, long lead, int i, int lines, long valid_lines,
                        long valid_k PLACE)
{
#if ACROSS_K
    const int line = i % (lines / 4) * 4, k = i / (lines / 4);
    const long valid = k < valid_k ? valid_lines - line : 0;
    from += k * lead + line;
#define ELEMENT(e) READ(from, e, line + e, k)
#else
    const int line = i % lines, k = i / lines * 4;
    const long valid = line < valid_lines ? valid_k - k : 0;
    from += line * lead + k;
#define ELEMENT(e) READ(from, e, line, k + e)
#endif
    if (valid >= 4)
        return READ_VECTOR(0, from, line, k);
    float4 quad = (float4)(0.0f);
    if (valid > 0)
        quad.x = ELEMENT(0);
    if (valid > 1)
        quad.y = ELEMENT(1);
    if (valid > 2)
        quad.z = ELEMENT(2);
    return quad;
}
#undef ACROSS_K
#undef OF
#undef TYPE
#undef PLACE
#undef READ
#undef READ_VECTOR
#undef ELEMENT
