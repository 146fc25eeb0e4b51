/* SPDX-License-Identifier: Apache-2.0 */
/*
 * C[b] = A[b] B[b] on the tensor cores of NVIDIA's GPUs from Ampere on, by their instruction mma:
 * operands of 16 bits or floats, sums in float; or operands of i8, sums in int, each of which
 * becomes a float.
 *
 *     args    a, b, m, n, k, batches, splits, a_offset, a_lead, a_batch, b_offset, b_lead, b_batch;
 *             with RESULT 1 also c, c_offset, c_lead, c_batch
 *     global  128 for each tile of 128 x 128 of the result, of each split and matrix    local  128
 * A is row-major with rows a_lead apart, or with TRANSPOSE_A column-major with columns a_lead
 * apart; B alike. Offsets, leads and batch strides of A and B are multiples of 16 bytes and their
 * memory starts at one; with ALIGNED 1 those of C are multiples of 4. With RESULT 0 the caller
 * stores all. k is at least 1. Integers are long. Where k is split, c gets the sums of each split,
 * [batch][split][m][n], to be added up by matmul_gpu_sum.cl; not those of i8.
 *
 *     TYPE       BYTES
 *     bf16, f16  2
 *     s8         1      A not transposed, B transposed
 *     tf32       4      the same layout: floats, rounded as they are used
 *
 * Stages of local memory, each with 64 bytes along k of both operands, are filled by copies that
 * run while others are multiplied. Each of four warps has a quarter of the tile. Operands whose k
 * is contiguous have a line of 64 bytes for each row or column of the tile, with chunk c of 16
 * bytes of line l at c ^ l / 2 % 4; others one of 256 bytes for each k, with chunk c at c ^ k % 8. */
#ifndef TRANSPOSE_A
#define TRANSPOSE_A 0
#endif
#ifndef TRANSPOSE_B
#define TRANSPOSE_B 0
#endif
#ifndef TYPE
#define TYPE bf16
#endif
#ifndef BYTES
#define BYTES 2
#endif
#ifndef RESULT
#define RESULT 1
#endif
#ifndef ALIGNED
#define ALIGNED 0
#endif

#include "helpers.h"

#define TILE_M 128
#define TILE_N 128
#define LINE 64
#define TILE_K (LINE / BYTES)
#define BAND 16
#define ITEMS 128
#define STAGES 3
#define TILE_BYTES (128 * LINE)
#define STAGE (2 * TILE_BYTES)
#define EDGE 64 /* of a warp's part */
/* The column of the operand whose lines are contiguous: B's is that where it is not transposed. */
#define ACROSS_A TRANSPOSE_A
#define ACROSS_B (1 - TRANSPOSE_B)

#include "tensor_tile.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#if BYTES == 1
#define ELEMENT char
#define SHAPE "m16n8k32.row.col.s32.s8.s8.s32"
#elif BYTES == 2
#define ELEMENT ushort
#define SHAPE "m16n8k16.row.col.f32." TEXT(TYPE) "." TEXT(TYPE) ".f32"
#else
#define ELEMENT float
#define SHAPE "m16n8k8.row.col.f32.tf32.tf32.f32"
#endif

/* ---- loading ---- */

/* Four chunks of an operand's tile that an item copies, and where they go in a stage. */
struct share {
    __global const uchar *from;
    long apart, next; /* bytes from chunk to chunk, and from stage to stage */
    int first, step;  /* of the lines, or of k where lines are across it */
    int fixed;        /* the chunk's first k, or line, in bytes */
    uint to;
};

INLINE struct share share_of(__global const ELEMENT *from, long lead, const int across, int line0,
                             int k0, int item)
{
    struct share share;
    const int chunk = across ? item & 15 : item & 3, slow = across ? item >> 4 : item >> 2;
    const long place = across ? (k0 + slow) * lead + line0 : (line0 + slow) * lead + k0;
    share.step = across ? 8 : 32;
    share.first = slow;
    share.fixed = chunk * 16;
    share.from = (__global const uchar *)(from + place) + chunk * 16;
    share.apart = share.step * lead * BYTES;
    share.next = across ? TILE_K * lead * BYTES : LINE;
    share.to = across ? slow * 256 + ((chunk ^ (slow & 7)) << 4)
                      : slow * LINE + ((chunk ^ (slow >> 1 & 3)) << 4);
    return share;
}

/* What lies beyond the operand's end arrives as zeros. */
INLINE void fetch(uint stage, struct share *share, const int across, int lines, int depth)
{
    const int bytes = (across ? lines : depth) * BYTES - share->fixed;
    const int limit = across ? depth : lines;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int there = share->first + i * share->step < limit ? clamp(bytes, 0, 16) : 0;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(stage + share->to +
                                                                           i * 2048),
                     "l"(there ? share->from + i * share->apart : share->from), "r"(there)
                     : "memory");
    }
    share->from += share->next;
}

/* ---- multiplying ---- */

/* Four squares of 8 lines of 16 bytes: lane l says where line l % 8 of square l / 8 is. */
#define LOAD_SQUARES(form, r0, r1, r2, r3, at)                                                     \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" form ".shared.b16 {%0, %1, %2, %3}, [%4];"        \
                 : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3)                                          \
                 : "r"(at)                                                                         \
                 : "memory")

INLINE uint place_along(uint tile, uint line, uint chunk)
{
    return tile + line * LINE + ((chunk ^ (line >> 1 & 3)) << 4);
}

INLINE uint place_across(uint tile, uint k, uint chunk)
{
    return tile + k * 256 + ((chunk ^ (k & 7)) << 4);
}

INLINE void round_to_tf32(uint *values, const int count)
{
#if BYTES == 4
#pragma unroll
    for (int i = 0; i < count; i++)
        asm volatile("cvt.rna.tf32.f32 %0, %1;" : "=r"(values[i]) : "f"(as_float(values[i])));
#endif
}

/* 32 bytes of k, the step-th of a stage. */
INLINE void multiply_step(SUM sums[4][32], uint tile_a, uint tile_b, uint line_a, uint line_b,
                          uint step, uint lane)
{
    const uint low = lane & 15, high = lane >> 4;
    const uint other = (lane & 7) + (high << 3), middle = lane >> 3 & 1;
    uint a[4][4], b[8][2];
#pragma unroll
    for (int i = 0; i < 4; i++) {
#if ACROSS_A
        LOAD_SQUARES(".trans", a[i][0], a[i][1], a[i][2], a[i][3],
                     place_across(tile_a, step * 16 + other, line_a / 8 + i * 2 + middle));
#else
        LOAD_SQUARES("", a[i][0], a[i][1], a[i][2], a[i][3],
                     place_along(tile_a, line_a + i * 16 + low, step * 2 + high));
#endif
        round_to_tf32(a[i], 4);
    }
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
#if ACROSS_B
        LOAD_SQUARES(".trans", b[j][0], b[j][1], b[j + 1][0], b[j + 1][1],
                     place_across(tile_b, step * 16 + low, line_b / 8 + j + high));
#else
        LOAD_SQUARES("", b[j][0], b[j][1], b[j + 1][0], b[j + 1][1],
                     place_along(tile_b, line_b + j * 8 + other, step * 2 + middle));
#endif
        round_to_tf32(b[j], 2);
        round_to_tf32(b[j + 1], 2);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int j = 0; j < 8; j++)
            asm volatile("mma.sync.aligned." SHAPE " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                         "{%0, %1, %2, %3};"
                         : REGISTER(sums[i][4 * j]), REGISTER(sums[i][4 * j + 1]),
                           REGISTER(sums[i][4 * j + 2]), REGISTER(sums[i][4 * j + 3])
                         : "r"(a[i][0]), "r"(a[i][1]), "r"(a[i][2]), "r"(a[i][3]), "r"(b[j][0]),
                           "r"(b[j][1]));
    }
}

/* ---- the kernel ---- */

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void
matmul_mma(__global const ELEMENT *restrict a, __global const ELEMENT *restrict b, long m, long n,
           long k, long batches, long splits, long a_offset, long a_lead, long a_batch,
           long b_offset, long b_lead, long b_batch
#if RESULT
           , __global float *c, long c_offset, long c_lead, long c_batch
#endif
           EPILOGUE_PARAMETERS)
{
    __local uint4 memory[STAGES * STAGE / 16];
    const uint stages = (uint)(size_t)memory, item = get_local_id(0);
    const uint lane = item & 31, warp = item >> 5;
    const struct work work = {(uint)((m + TILE_M - 1) / TILE_M), (uint)((n + TILE_N - 1) / TILE_N),
                              (uint)((k + TILE_K - 1) / TILE_K), (uint)splits};
    const struct place at = place_of(get_group_id(0), work);
    const int k0 = at.from * TILE_K, lines_a = (int)m - at.row0, lines_b = (int)n - at.column0;
    struct share of_a = share_of(a + a_offset + at.matrix * a_batch, a_lead, ACROSS_A, at.row0, k0,
                                 item);
    struct share of_b = share_of(b + b_offset + at.matrix * b_batch, b_lead, ACROSS_B, at.column0,
                                 k0, item);
    SUM sums[4][32];
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int j = 0; j < 32; j++)
            sums[i][j] = 0;
    }
    int left = (int)k - k0; /* of k, that is not asked for yet */
    uint asked = at.from;
#define FETCH(stage)                                                                               \
    if (asked < at.until) {                                                                        \
        fetch(stage, &of_a, ACROSS_A, lines_a, left);                                              \
        fetch((stage) + TILE_BYTES, &of_b, ACROSS_B, lines_b, left);                               \
        left -= TILE_K;                                                                            \
        asked++;                                                                                   \
    }                                                                                              \
    asm volatile("cp.async.commit_group;" ::: "memory")
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) {
        FETCH(stages + i * STAGE);
    }
    uint here = 0, next = STAGES - 1;
#pragma unroll 1
    for (uint round = at.from; round < at.until; round++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        barrier(CLK_LOCAL_MEM_FENCE);
        FETCH(stages + next * STAGE);
        const uint tile = stages + here * STAGE;
#pragma unroll
        for (uint step = 0; step < 2; step++)
            multiply_step(sums, tile, tile + TILE_BYTES, (warp >> 1) * EDGE, (warp & 1) * EDGE,
                          step, lane);
        here = here + 1 == STAGES ? 0 : here + 1;
        next = next + 1 == STAGES ? 0 : next + 1;
    }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    barrier(CLK_LOCAL_MEM_FENCE);

    const uint slot = stages + warp * 4096;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        write_slice(slot, sums[i], lane);
#pragma unroll 1
        for (int first = 0; first < 8; first += AT_ONCE)
            finish(slot, first, at, (warp & 1) * EDGE, (warp >> 1) * EDGE + i * 16, lane, m, n,
                   splits C_ARGUMENTS EPILOGUE_ARGUMENTS);
        asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
    }
}
