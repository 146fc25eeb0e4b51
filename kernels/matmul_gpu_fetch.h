/* SPDX-License-Identifier: Apache-2.0 */
/* How matmul_gpu.cl brings an operand into local memory, which it names OF(name), in tiles of LINES
 * lines of which an item takes QUADS runs of four elements. ACROSS_K: the lines' neighbours are
 * contiguous, or else k is. Items beside each other read what lies beside each other. */
#if ACROSS_K
#define LINE_OF(i) ((i) % (LINES / 4) * 4)
#define K_OF(i) ((i) / (LINES / 4))
#define LINES_OF_QUAD 4
#define PITCH LINES
#define ELEMENT(e) READ(from, e, line + e, k)
#else
#define LINE_OF(i) ((i) / (TILE_K / 4))
#define K_OF(i) ((i) % (TILE_K / 4) * 4)
#define LINES_OF_QUAD 1
#define PITCH (LINES + 4) /* items that store one column each meet in no bank */
#define ELEMENT(e) READ(from, e, line, k + e)
#endif
#ifndef START
#define START(line, k) (ACROSS_K ? (k) * lead + (line) : (line) * lead + (k))
#endif
/* Lines beyond the last one are it again: nobody looks at what becomes of them. */
INLINE int OF(line)(int i, int valid_lines)
{
    return ALIGNED || !ACROSS_K ? min(LINE_OF(i), valid_lines - LINES_OF_QUAD) : LINE_OF(i);
}

/* Where each quad of the first tile is. */
INLINE void OF(start)(__global const TYPE **from, __global const TYPE *first, long lead, int item,
                      int valid_lines PLACE)
{
#pragma unroll
    for (int q = 0; q < QUADS; q++) {
        const int i = item + q * ITEMS, line = OF(line)(i, valid_lines);
        from[q] = first + START(line, K_OF(i));
    }
}

/* What is there of a quad, and zeros. */
INLINE float4 OF(fetch_quad)(__global const TYPE *from, int line, int k, int valid_lines,
                             int valid_k PLACE)
{
#if ALIGNED
    return k < valid_k ? READ_VECTOR(0, from, line, k) : (float4)(0.0f);
#else
    const int valid = ACROSS_K ? (k < valid_k ? valid_lines - line : 0) : valid_k - k;
    float4 quad = (float4)(0.0f);
    if (valid >= 4)
        return READ_VECTOR(0, from, line, k);
    if (valid > 0)
        quad.x = ELEMENT(0);
    if (valid > 1)
        quad.y = ELEMENT(1);
    if (valid > 2)
        quad.z = ELEMENT(2);
    return quad;
#endif
}

/* Read the quads of a tile and go on to the next one. That there are two ways also keeps a compiler
 * from putting the reading off until the tile is stored. */
INLINE void OF(fetch)(float4 *quads, __global const TYPE **from, long step, int item,
                      int valid_lines, int valid_k PLACE)
{
    if ((ALIGNED || !ACROSS_K) && valid_k >= TILE_K) {
#pragma unroll
        for (int q = 0; q < QUADS; q++) {
            const int i = item + q * ITEMS;
            quads[q] = READ_VECTOR(0, from[q], OF(line)(i, valid_lines), K_OF(i));
        }
    } else {
#pragma unroll
        for (int q = 0; q < QUADS; q++) {
            const int i = item + q * ITEMS;
            quads[q] = OF(fetch_quad)(from[q], OF(line)(i, valid_lines), K_OF(i), valid_lines,
                                      valid_k ARGUMENTS);
        }
    }
#pragma unroll
    for (int q = 0; q < QUADS; q++)
        from[q] += step;
}

/* Put them into local memory, [k][line]. */
INLINE void OF(stage)(const float4 *quads, __local float *tile, int item)
{
#pragma unroll
    for (int q = 0; q < QUADS; q++) {
        const int i = item + q * ITEMS;
        __local float *to = tile + K_OF(i) * PITCH + LINE_OF(i);
#if ACROSS_K
        *(__local float4 *)to = quads[q];
#else
        to[0] = quads[q].x;
        to[PITCH] = quads[q].y;
        to[2 * PITCH] = quads[q].z;
        to[3 * PITCH] = quads[q].w;
#endif
    }
}
#undef LINE_OF
#undef K_OF
#undef LINES_OF_QUAD
#undef PITCH
#undef ELEMENT
#undef START
#undef OF
#undef ACROSS_K
#undef LINES
#undef QUADS
#undef TYPE
#undef PLACE
#undef ARGUMENTS
#undef READ
#undef READ_VECTOR
