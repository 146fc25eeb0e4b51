/* SPDX-License-Identifier: Apache-2.0 */
/*
 * C[b] = A[b] B[b] on the tensor cores of NVIDIA's Hopper, by its instruction wgmma: operands of 16
 * bits or floats, sums in float; or operands of i8, sums in int, each of which becomes a float.
 *
 * The compiler for OpenCL C builds for sm_90, which lacks that instruction and others. It keeps
 * comments of inline assembly and puts registers into them, so that the instructions stand here
 * behind "//!"; the program's binary, which is PTX, is edited (lib/programs/edit.h): "//!" goes, the
 * target becomes sm_90a, and the local array, [1024] here, gets the size that it needs, which is
 * more than OpenCL C lets a kernel have.
 *
 *     args    a, b, maps, maps_offset, m, n, k, batches, splits, a_offset, a_lead, a_batch,
 *             b_offset, b_lead, b_batch; with RESULT 1 also c, c_offset, c_lead, c_batch
 *     global  384 for each core, or for each tile of the result if those are fewer    local  384
 *     local memory  LOCAL: STAGES * PARTS * (128 + TILE_N) * 128 + 33280 bytes, with
 *                   HANDS_OVER STAGES * (128 + TILE_N) * 64 + TILE_N * 512 + 512
 * A is row-major with rows a_lead apart, or with TRANSPOSE_A column-major with columns a_lead
 * apart; B alike. Offsets, leads and batch strides of A and B are multiples of 16 bytes and their
 * memory starts at one; with ALIGNED 1 those of C are multiples of 4. maps: 256 bytes for each
 * work-group, from maps_offset (in 16 bytes) on, at a multiple of 128. With RESULT 0 the caller
 * stores all. k is at least 1. Integers are long. Where k is split, c gets the sums of each split,
 * [batch][split][m][n], to be added up by matmul_gpu_sum.cl; not those of i8.
 *
 *     TYPE       BYTES  PARTS  TILE_N  STAGES  HANDS_OVER  MARKS
 *     bf16, f16  2      1      256     4       0           44     at least a tile for each core
 *                              256     4       1           42     several, and much follows the sums
 *                              128     5       0           44     otherwise
 *                              64      7       0           44     if even those are few
 *     s8         1      1      the same; A not transposed, B transposed
 *     tf32       4      1      the same: floats, rounded as they are loaded
 *     tf32       4      2      128     3       0           68     floats in two parts; the same layout
 *
 * Two parts: an operand is two matrices one behind the other, of what is left of its elements in
 * tf32 and of the rest (matmul_gpu_pack.cl); if it has a batch, its matrices are such pairs. c is
 * the sum of what the parts give but for both rests, for each 32 of k from zero: tensor cores cut off
 * what does not fit into a sum, so that long sums are made of short ones in float.
 *
 * A work-group takes one tile after the other. An item of its first 128 has the copy engine fetch
 * boxes of the operands, which it describes to it in `maps`; what lies beyond an operand's end
 * arrives as zeros. The other items, two warpgroups, multiply half a tile each. Stages of local
 * memory go round between them, each with LINE bytes along k of both operands, by two barriers for
 * each: `full` and `empty`.
 *
 * Each warp finishes its own sums, and multiplies nothing meanwhile. With HANDS_OVER lines are half
 * as long, which leaves room for all sums of a tile: they are handed over to the three warps that do
 * not load, which finish the tile while the others multiply the next one, by two more barriers,
 * `handed` and `taken`. Both make the same bits.
 *
 * Operands whose k is contiguous have a line in local memory for each row or column of the tile;
 * others have boxes of 64 rows or columns, with a line of 128 bytes for each k. */
//edit $MARKS "//!" ""
//edit 1 ".target sm_90," ".target sm_90a,"
//edit 1 "[1024]" "[$LOCAL]"

#ifndef TILE_N
#define TILE_N 128
#endif
#ifndef STAGES
#define STAGES 5
#endif
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
#ifndef PARTS
#define PARTS 1
#endif
#ifndef HANDS_OVER
#define HANDS_OVER 0
#endif
#ifndef RESULT
#define RESULT 1
#endif
#ifndef ALIGNED
#define ALIGNED 0
#endif
#include "helpers.h"

#define TILE_M 128
#define LINE (HANDS_OVER ? 64 : 128) /* bytes along k in a stage */
#define TILE_K (LINE / BYTES)
#define BAND 16 /* rows of tiles whose neighbours share what the caches hold */
#define LOADERS 128
#define ITEMS (3 * LOADERS)
#define FINISHERS 3 /* warps, if sums are handed over */
#define MULTIPLIERS 8
#define PART_A (TILE_M * LINE)
#define PART_B (TILE_N * LINE)
#define BYTES_A (PARTS * PART_A)
#define STAGE (BYTES_A + PARTS * PART_B)
#define SUMS (TILE_N / 2)
#define SLICES (TILE_N / 64) /* that go through a warp's own memory, 4 KiB each */
/* Registers of an item; all together have 168 times ITEMS. */
#if HANDS_OVER
#define LOADERS_REGISTERS "104"
#define MULTIPLIERS_REGISTERS "200"
#else
#define LOADERS_REGISTERS "40"
#define MULTIPLIERS_REGISTERS "232"
#endif
/* From matrix to matrix, of which parts are each one. */
#define MATRIX(batch, part) (PARTS > 1 ? (part) : (batch) ? (batch) : 16 / BYTES)
/* The column of the operand whose lines are contiguous: B's is that where it is not transposed. */
#define ACROSS_A TRANSPOSE_A
#define ACROSS_B (1 - TRANSPOSE_B)

#if BYTES == 1
#define ELEMENT char
#define MOVED "0"
#define SHAPE "k32.s32.s8.s8"
#define SCALES ";\n"
#elif BYTES == 2
#define ELEMENT ushort
#define MOVED "1"
#define SHAPE "k16.f32." TEXT(TYPE) "." TEXT(TYPE)
#define SCALES ", 1, 1, " TEXT(TRANSPOSE_A) ", " ACROSS_B_DIGIT ";\n"
#else
#define ELEMENT float
#if PARTS == 1
#define MOVED "11"
#else
#define MOVED "2"
#endif
#define SHAPE "k8.f32.tf32.tf32"
#define SCALES ", 1, 1;\n"
#endif
#if TRANSPOSE_B
#define ACROSS_B_DIGIT "0"
#else
#define ACROSS_B_DIGIT "1"
#endif

#include "wgmma.h"
#include "tensor_tile.h"

/* ---- loading ---- */

/* A tile of each part; matrix `batch` of the parts is the first. */
INLINE void copy_tile(uint to, __global const uint4 *map, const int lines, const int across,
                      int line, int k, int batch, uint full)
{
    if (across) {
#pragma unroll
        for (int box = 0; box < lines / 64; box++)
            copy_box(to + box * (TILE_K * 128), map, line + box * 64, k, batch, full);
        return;
    }
#pragma unroll
    for (int part = 0; part < PARTS; part++)
        copy_box(to + part * lines * LINE, map, k, line, batch * PARTS + part, full);
}

/* ---- multiplying ---- */

#define BOUND_4(of, i)                                                                             \
    REGISTER(of[i]), REGISTER(of[i + 1]), REGISTER(of[i + 2]), REGISTER(of[i + 3])
#define BOUND_16(of, i) BOUND_4(of, i), BOUND_4(of, i + 4), BOUND_4(of, i + 8), BOUND_4(of, i + 12)
#define BOUND_64(of, i)                                                                            \
    BOUND_16(of, i), BOUND_16(of, i + 16), BOUND_16(of, i + 32), BOUND_16(of, i + 48)
#if TILE_N == 256
#define NAMES NAMES_128
#define BOUND(of) BOUND_64(of, 0), BOUND_64(of, 64)
#define PLACES(at) PASTE(PLACES_256_, at)
#elif TILE_N == 64
#define NAMES NAMES_32
#define BOUND(of) BOUND_16(of, 0), BOUND_16(of, 16)
#define PLACES(at) PASTE(PLACES_64_, at)
#else
#define NAMES NAMES_64
#define BOUND(of) BOUND_64(of, 0)
#define PLACES(at) PASTE(PLACES_128_, at)
#endif
#define PLACES_256_0 "%128, %129"
#define PLACES_256_1 "%130, %131"
#define PLACES_256_2 "%132, %133"
#define PLACES_256_3 "%134, %135"
#define PLACES_128_0 "%64, %65"
#define PLACES_128_1 "%66, %67"
#define PLACES_128_2 "%68, %69"
#define PLACES_128_3 "%70, %71"
#define PLACES_64_0 "%32, %33"
#define PLACES_64_1 "%34, %35"
#define PLACES_64_2 "%36, %37"
#define PLACES_64_3 "%38, %39"
/* `keep`: what was in the sums stays in them. */
#define MULTIPLY_PLACES(places, keep)                                                              \
    "//!wgmma.mma_async.sync.aligned.m64n" TEXT(TILE_N) SHAPE " {" NAMES "}, " places ", " keep      \
    SCALES
#define MULTIPLY(step) MULTIPLY_PLACES(PLACES(step), "1")
#define FENCE asm volatile("//!wgmma.fence.sync.aligned;" ::: "memory")
#define COMMIT asm volatile("//!wgmma.commit_group.sync.aligned;" ::: "memory")
#define AWAIT(left, sums)                                                                          \
    asm volatile("//!wgmma.wait_group.sync.aligned " left ";" : BOUND(sums)::"memory")
/* 16 bytes from what one instruction takes of k to the next. */
#define NEXT_A (ACROSS_A ? 128 : 2)
#define NEXT_B (ACROSS_B ? 128 : 2)

/* A tile's lines of k, or boxes across k. */
INLINE ulong describe_tile(uint at, const int across)
{
    if (across)
        return describe(at, 4 * LINE);
    return HANDS_OVER ? describe_short(at) : describe(at, 1);
}

#if PARTS == 2
/* The four places of a step: what is left of A and the rest of it, and so of B. The small ones come
 * first. */
#define MULTIPLY_PARTS(a, rest_a, b, rest_b, keep)                                                 \
    MULTIPLY_PLACES(rest_a ", " b, keep)                                                           \
    MULTIPLY_PLACES(a ", " rest_b, "1") MULTIPLY_PLACES(a ", " b, "1")

/* Begin the sums of a stage, which nothing else may touch before they are waited for. */
INLINE void multiply_parts(float sums[SUMS], ulong of_a, ulong of_b)
{
    const ulong rest_a = of_a + PART_A / 16, rest_b = of_b + PART_B / 16;
    FENCE;
    asm volatile(
        MULTIPLY_PARTS("%64", "%65", "%66", "%67", "0")
        MULTIPLY_PARTS("%68", "%69", "%70", "%71", "1")
        MULTIPLY_PARTS("%72", "%73", "%74", "%75", "1")
        MULTIPLY_PARTS("%76", "%77", "%78", "%79", "1")
        : BOUND(sums)
        : "l"(of_a), "l"(rest_a), "l"(of_b), "l"(rest_b), "l"(of_a + 2), "l"(rest_a + 2),
          "l"(of_b + 2), "l"(rest_b + 2), "l"(of_a + 4), "l"(rest_a + 4), "l"(of_b + 4),
          "l"(rest_b + 4), "l"(of_a + 6), "l"(rest_a + 6), "l"(of_b + 6), "l"(rest_b + 6)
        : "memory");
    COMMIT;
}

INLINE void add_sums(float to[SUMS], const float sums[SUMS])
{
#pragma unroll
    for (int i = 0; i < SUMS; i++)
        to[i] += sums[i];
}
#endif

/* ---- the kernel ---- */

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void
matmul_wgmma(__global const ELEMENT *restrict a, __global const ELEMENT *restrict b,
             __global uint4 *maps, long maps_offset, long m, long n, long k, long batches,
             long splits, long a_offset, long a_lead, long a_batch, long b_offset,
             long b_lead, long b_batch
#if RESULT
             , __global float *c, long c_offset, long c_lead, long c_batch
#endif
             EPILOGUE_PARAMETERS)
{
    __local uchar memory[1024] __attribute__((aligned(1024)));
    const uint stages = (uint)(size_t)memory, full = stages + STAGES * STAGE,
               empty = full + 8 * STAGES, handed = empty + 8 * STAGES, taken = handed + 8;
    const uint slots = full + 512; /* of sums, 4 KiB each */
    const uint item = get_local_id(0), lane = item % 32;
    const struct work work = {(uint)((m + TILE_M - 1) / TILE_M), (uint)((n + TILE_N - 1) / TILE_N),
                              (uint)((k + TILE_K - 1) / TILE_K), (uint)splits};
    const uint tiles = work.rows * work.columns * (uint)(batches * splits);
    uint stage = 0, phase = 0;

    if (item == 0) {
        for (uint i = 0; i < STAGES; i++) {
            barrier_make(full + 8 * i, 1);
            barrier_make(empty + 8 * i, 2);
        }
#if HANDS_OVER
        barrier_make(handed, MULTIPLIERS);
        barrier_make(taken, FINISHERS);
#endif
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    if (item < LOADERS) {
        asm volatile("//!setmaxnreg.dec.sync.aligned.u32 " LOADERS_REGISTERS ";");
        if (item == 0) {
            __global uint4 *map_a = maps + maps_offset + get_group_id(0) * 16, *map_b = map_a + 8;
            describe_operand(map_a, a + a_offset, ACROSS_A ? m : k, ACROSS_A ? k : m,
                             (a_batch ? batches : 1) * PARTS, a_lead, MATRIX(a_batch, m * a_lead),
                             ACROSS_A ? TILE_K : TILE_M, ACROSS_A ? 128 : LINE);
            describe_operand(map_b, b + b_offset, ACROSS_B ? n : k, ACROSS_B ? k : n,
                             (b_batch ? batches : 1) * PARTS, b_lead, MATRIX(b_batch, n * b_lead),
                             ACROSS_B ? TILE_K : TILE_N, ACROSS_B ? 128 : LINE);
            for (uint id = get_group_id(0); id < tiles; id += get_num_groups(0)) {
                const struct place at = place_of(id, work);
                const int of_a = a_batch ? (int)at.matrix : 0, of_b = b_batch ? (int)at.matrix : 0;
#pragma unroll 1
                for (uint round = at.from; round < at.until; round++) {
                    const uint to = stages + stage * STAGE, ready = full + 8 * stage;
                    barrier_wait(empty + 8 * stage, phase ^ 1);
                    barrier_expect(ready, STAGE);
                    copy_tile(to, map_a, TILE_M, ACROSS_A, at.row0, round * TILE_K, of_a, ready);
                    copy_tile(to + BYTES_A, map_b, TILE_N, ACROSS_B, at.column0, round * TILE_K,
                              of_b, ready);
                    if (++stage == STAGES) {
                        stage = 0;
                        phase ^= 1;
                    }
                }
            }
        }
#if HANDS_OVER
        uint tile = 0;
        for (uint id = get_group_id(0); item >= 32 && id < tiles; id += get_num_groups(0), tile++) {
            const struct place at = place_of(id, work);
            barrier_wait(handed, tile & 1);
#pragma unroll 1
            for (uint slot = item / 32 - 1; slot < MULTIPLIERS * SLICES; slot += FINISHERS)
#pragma unroll 1
                for (int first = 0; first < 8; first += AT_ONCE)
                    finish(slots + slot * 4096, first, at, slot % SLICES * 64, slot / SLICES * 16,
                           lane, m, n, splits C_ARGUMENTS EPILOGUE_ARGUMENTS);
            asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
            if (lane == 0)
                barrier_arrive(taken);
        }
#endif
        return;
    }
    asm volatile("//!setmaxnreg.inc.sync.aligned.u32 " MULTIPLIERS_REGISTERS ";");

    const uint group = item / 128 - 1, warp = item / 32 - 4;
    const uint own = slots + warp * 4096 * (HANDS_OVER ? SLICES : 1);
    uint tile = 0;
    for (uint id = get_group_id(0); id < tiles; id += get_num_groups(0), tile++) {
        const struct place at = place_of(id, work);
        SUM sums[SUMS];
        uint before = 0; /* the stage that is read still */
#pragma unroll
        for (int i = 0; i < SUMS; i++)
            sums[i] = 0;
#if PARTS == 2
        float even[SUMS], odd[SUMS]; /* of a stage, in turns */
#pragma unroll
        for (int i = 0; i < SUMS; i++)
            even[i] = odd[i] = 0;
#endif
#define DESCRIBE_STAGE                                                                             \
    const uint here = stages + stage * STAGE;                                                      \
    barrier_wait(full + 8 * stage, phase);                                                         \
    const ulong of_a = describe_tile(here + group * (PART_A / 2), ACROSS_A);                       \
    const ulong of_b = describe_tile(here + BYTES_A, ACROSS_B)
#define NEXT_STAGE                                                                                 \
    if (before && item % 128 == 0)                                                                 \
        barrier_arrive(before);                                                                    \
    before = empty + 8 * stage;                                                                    \
    if (++stage == STAGES) {                                                                       \
        stage = 0;                                                                                 \
        phase ^= 1;                                                                                \
    }
#if PARTS == 2
#define ADD_STAGE(sums_of_it, others)                                                              \
    {                                                                                              \
        DESCRIBE_STAGE;                                                                            \
        multiply_parts(sums_of_it, of_a, of_b);                                                    \
        AWAIT("1", others);                                                                        \
        NEXT_STAGE                                                                                 \
        add_sums(sums, others);                                                                    \
    }
        /* Each stage's sums are added while the next one is multiplied. */
#pragma unroll 1
        for (uint round = at.from; round < at.until; round += 2) {
            ADD_STAGE(even, odd)
            if (round + 1 < at.until)
                ADD_STAGE(odd, even)
            else
                break;
        }
        if ((at.until - at.from) % 2) {
            AWAIT("0", even);
            add_sums(sums, even);
        } else {
            AWAIT("0", odd);
            add_sums(sums, odd);
        }
#else
#pragma unroll 1
        for (uint round = at.from; round < at.until; round++) {
            DESCRIBE_STAGE;
            FENCE;
#if HANDS_OVER
            asm volatile(MULTIPLY(0) MULTIPLY(1)
                         : BOUND(sums)
                         : "l"(of_a), "l"(of_b), "l"(of_a + NEXT_A), "l"(of_b + NEXT_B)
                         : "memory");
#else
            asm volatile(MULTIPLY(0) MULTIPLY(1) MULTIPLY(2) MULTIPLY(3)
                         : BOUND(sums)
                         : "l"(of_a), "l"(of_b), "l"(of_a + NEXT_A), "l"(of_b + NEXT_B),
                           "l"(of_a + 2 * NEXT_A), "l"(of_b + 2 * NEXT_B), "l"(of_a + 3 * NEXT_A),
                           "l"(of_b + 3 * NEXT_B)
                         : "memory");
#endif
            COMMIT;
            asm volatile("//!wgmma.wait_group.sync.aligned 1;" ::: "memory");
            NEXT_STAGE
        }
        AWAIT("0", sums);
#endif
        if (item % 128 == 0)
            barrier_arrive(before);

#if HANDS_OVER
        barrier_wait(taken, (tile & 1) ^ 1);
#pragma unroll
        for (int slice = 0; slice < SLICES; slice++)
            write_slice(own + slice * 4096, sums + slice * 32, lane);
        if (lane == 0)
            barrier_arrive(handed);
#else
#pragma unroll
        for (int slice = 0; slice < SLICES; slice++) {
            write_slice(own, sums + slice * 32, lane);
#pragma unroll 1
            for (int first = 0; first < 8; first += AT_ONCE)
                finish(own, first, at, slice * 64, warp * 16, lane, m, n,
                       splits C_ARGUMENTS EPILOGUE_ARGUMENTS);
            asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
        }
#endif
    }
}
