/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Of products on tensor cores: which tile a work-group takes, and what becomes of its sums. Files
 * that include this say, after helpers.h:
 *
 *     TILE_M, TILE_N    a tile's rows and columns
 *     BAND              rows of tiles whose neighbours share what the caches hold
 *     BYTES             of an operand's element; of 1 sums are int, else float
 *     RESULT, ALIGNED   whether they write to c, and whether to multiples of four
 *
 * and have EPILOGUE, EPILOGUE_VECTOR, EPILOGUE_PARAMETERS and EPILOGUE_ARGUMENTS from their callers,
 * as epilogue.h has. A warp's sums are those of the instructions wgmma and mma: sum i of lane l
 * lies in row l / 4 + 8 * (i / 2 % 2) of 16, column 8 * (i / 4) + l % 4 * 2 + i % 2. */
#ifdef EPILOGUE
#define AT_ONCE 4 /* quads: their loads overlap, their text is there as often */
#else
#define AT_ONCE 8
#endif
#include "epilogue.h"

#if BYTES == 1
#define SUM int
#define REGISTER "+r"
#define READ "r"
#else
#define SUM float
#define REGISTER "+f"
#define READ "f"
#endif

/* ---- tiles ---- */

/* What there is to do, and part number `id` of it. */
struct work {
    uint rows, columns, rounds, splits; /* tiles, and steps along k */
};
struct place {
    int row0, column0;
    uint matrix, split, from, until; /* rounds */
};
INLINE struct place place_of(uint id, struct work work)
{
    const uint tiles = work.rows * work.columns, part = id / tiles, inside = id - part * tiles;
    const uint band = inside / (BAND * work.columns);
    const uint high = min((uint)BAND, work.rows - band * BAND);
    const uint left = inside - band * BAND * work.columns;
    const uint deep = (work.rounds + work.splits - 1) / work.splits;
    struct place place;
    place.row0 = (int)(band * BAND + left % high) * TILE_M;
    place.column0 = (int)(left / high) * TILE_N;
    place.matrix = part / work.splits;
    place.split = part - place.matrix * work.splits;
    place.from = place.split * deep;
    place.until = min(work.rounds, place.from + deep);
    return place;
}

/* ---- sums ---- */

#if ALIGNED
#define STORE_QUAD(value, to) (*(__global float4 *)(to) = (value))
#else
#define STORE_QUAD(value, to) vstore4(value, 0, to)
#endif

/* The 32 sums of 16 rows and 64 columns go through 4 KiB of local memory, so that whole lines are
 * stored: chunk c of row r is at c ^ r % 4 * 2. */
INLINE void write_slice(uint slot, const SUM *sums, uint lane)
{
    const uint write = slot + (lane >> 2) * 256 + ((lane & 1) << 3), mix = (lane >> 2 & 3) << 1;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const uint place = write + (((2 * j + ((lane & 3) >> 1)) ^ mix) << 4);
        asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(place), READ(sums[4 * j]),
                     READ(sums[4 * j + 1])
                     : "memory");
        asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(place + 2048),
                     READ(sums[4 * j + 2]), READ(sums[4 * j + 3])
                     : "memory");
    }
    asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
}

/* Chunk `chunk` of row `row` of a warp's 16. */
INLINE float4 read_quad(uint from, uint row, uint chunk)
{
    uint4 quad;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(quad.x), "=r"(quad.y), "=r"(quad.z), "=r"(quad.w)
                 : "r"(from + row * 256 + ((chunk ^ ((row & 3) << 1)) << 4)));
    return BYTES == 1 ? convert_float4(as_int4(quad)) : as_float4(quad);
}

/* Four sums, or as many as the row still has. */
INLINE void store_quad(float4 value, __global float *c, long valid, long batch, long row,
                       long column EPILOGUE_PARAMETERS)
{
    if (valid >= 4) {
        const float4 made = EPILOGUE_VECTOR(value, batch, row, column);
        if (RESULT)
            STORE_QUAD(made, c);
        return;
    }
    const float values[3] = {value.x, value.y, value.z};
#pragma unroll
    for (int i = 0; i < 3; i++) {
        if (i < valid) {
            const float made = EPILOGUE(values[i], batch, row, column + i);
            if (RESULT)
                c[i] = made;
        }
    }
}

#if RESULT
#define C_PARAMETERS , __global float *c, long c_offset, long c_lead, long c_batch
#define C_ARGUMENTS , c, c_offset, c_lead, c_batch
#else
#define C_PARAMETERS
#define C_ARGUMENTS
#endif

/* What follows the sums of AT_ONCE pairs of rows of a warp's 16, from `first` on: those in `slot`, 64
 * columns from `shift` of the tile on. */
INLINE void finish(uint slot, int first, struct place at, int shift, uint group_row, uint lane,
                   long m, long n, long splits C_PARAMETERS EPILOGUE_PARAMETERS)
{
    const uint high = lane >> 4;
    const long row = at.row0 + group_row + high, column = at.column0 + shift + (lane & 15) * 4;
    const long left = n - column;
#if RESULT
    __global float *to =
        c + c_offset + (at.matrix * splits + at.split) * c_batch + row * c_lead + column;
#else
    __global float *to = 0;
    const long c_lead = 0;
#endif
    if (row + 2 * (first + AT_ONCE - 1) >= m || left < 4) {
#pragma unroll 1
        for (int i = first; i < first + AT_ONCE; i++)
            if (row + 2 * i < m)
                store_quad(read_quad(slot, high + 2 * i, lane & 15), to + 2 * i * c_lead, left,
                           at.matrix, row + 2 * i, column EPILOGUE_ARGUMENTS);
        return;
    }
    float4 quads[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++)
        quads[i] = read_quad(slot, high + 2 * (first + i), lane & 15);
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++)
        quads[i] = EPILOGUE_VECTOR(quads[i], at.matrix, row + 2 * (first + i), column);
#if RESULT
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++)
        STORE_QUAD(quads[i], to + 2 * (first + i) * c_lead);
#endif
}
