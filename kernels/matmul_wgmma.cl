/* SPDX-License-Identifier: Apache-2.0 */
/*
 * C[b] = A[b] B[b] on the tensor cores of NVIDIA's Hopper, by its instruction wgmma: operands of 16
 * bits, sums in float.
 *
 * The compiler for OpenCL C builds for sm_90, which lacks that instruction and others. It keeps
 * comments of inline assembly and puts registers into them, so that the instructions stand here
 * behind "//!"; the program's binary, which is PTX, is edited (lib/cache/edit.h): "//!" goes, the
 * target becomes sm_90a, and the local array, [1024] here, gets the size that it needs, which is
 * more than OpenCL C lets a kernel have.
 *
 *     args    a, b, maps, maps_offset, m, n, k, batches, splits, a_offset, a_lead, a_batch,
 *             b_offset, b_lead, b_batch; with RESULT 1 also c, c_offset, c_lead, c_batch
 *     global  384 for each core, or for each tile of the result if those are fewer    local  384
 *     local memory  LOCAL: STAGES * (128 + TILE_N) * 128 + 33280 bytes
 * A is row-major with rows a_lead apart, or with TRANSPOSE_A column-major with columns a_lead
 * apart; B alike. TYPE: f16 or bf16. Offsets, leads and batch strides of A and B are multiples of
 * 16 bytes and their memory starts at one; with ALIGNED 1 those of C are multiples of 4. maps: 256
 * bytes for each work-group, from maps_offset (in 16 bytes) on, at a multiple of 128. With RESULT 0
 * the caller stores all. k is at least 1. Integers are long. Where k is split, c gets the sums of
 * each split, [batch][split][m][n], to be added up by matmul_gpu_sum.cl.
 *
 *     TILE_N  STAGES   for
 *     256     4        at least a tile for each core
 *     128     5        otherwise
 *
 * A work-group takes one tile after the other. An item of its first 128 has the copy engine fetch
 * boxes of the operands, which it describes to it in `maps`; what lies beyond an operand's end
 * arrives as zeros. The other items, two warpgroups, multiply half a tile each. Stages of local
 * memory go round between them, each with 128 bytes along k of both operands, by two barriers for
 * each: `full` and `empty`.
 *
 * In local memory a line of 128 bytes has chunk c of 16 bytes at c ^ line % 8. Operands whose k is
 * contiguous have a line for each row or column of the tile; others have boxes of 64 rows or
 * columns, with a line for each k. */
//edit 44 "//!" ""
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
#ifndef RESULT
#define RESULT 1
#endif
#ifndef ALIGNED
#define ALIGNED 0
#endif
/* What the caller does to finished elements: as in matmul_gpu.cl. */
#ifdef EPILOGUE
#define AT_ONCE 4 /* quads: their loads overlap, their text is there as often */
#else
#define AT_ONCE 8
#define EPILOGUE(value, batch, row, column) (value)
#define EPILOGUE_VECTOR(values, batch, row, column) (values)
#endif
#ifndef EPILOGUE_PARAMETERS
#define EPILOGUE_PARAMETERS
#define EPILOGUE_ARGUMENTS
#endif

#include "helpers.h"

#define TILE_M 128
#define TILE_K 64
#define BAND 16 /* rows of tiles whose neighbours share what the caches hold */
#define LOADERS 128
#define ITEMS (3 * LOADERS)
#define BYTES_A (TILE_M * 128)
#define STAGE (BYTES_A + TILE_N * 128)
#define SUMS (TILE_N / 2)
/* The column of the operand whose lines are contiguous: B's is that where it is not transposed. */
#define ACROSS_A TRANSPOSE_A
#define ACROSS_B (1 - TRANSPOSE_B)

/* ---- barriers ---- */

INLINE void barrier_make(uint at, uint arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals) : "memory");
}

INLINE void barrier_wait(uint at, uint phase)
{
    asm volatile("{\n.reg .pred done;\nAGAIN:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra.uni READY;\nbra.uni AGAIN;\nREADY:\n}" ::"r"(at),
                 "r"(phase)
                 : "memory");
}

INLINE void barrier_arrive(uint at)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}

INLINE void barrier_expect(uint at, uint bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes)
                 : "memory");
}

/* ---- loading ---- */

/* What the copy engine is told of an operand stands in 128 bytes of global memory, whose layout is
 * its own: it is zeroed, and each part is set by an instruction. Dimensions: what is contiguous,
 * the lines, the batch. */
#define SET_WORD(part, value)                                                                      \
    asm volatile("//!tensormap.replace.tile." part ".global.b1024.b32 [%0], " value ";" ::"l"(map) \
                 : "memory")
#define SET_INT(part, number, value)                                                               \
    asm volatile("//!tensormap.replace.tile." part ".global.b1024.b32 [%0], " number ", %1;" ::    \
                     "l"(map),                                                                     \
                 "r"((uint)(value))                                                                \
                 : "memory")
#define SET_LONG(part, number, value)                                                              \
    asm volatile("//!tensormap.replace.tile." part ".global.b1024.b64 [%0], " number "%1;" ::"l"(  \
                     map),                                                                         \
                 "l"(value)                                                                        \
                 : "memory")

INLINE void describe_operand(__global uint4 *map, __global const ushort *from, long contiguous,
                             long lines, long batches, long lead, long batch, const int box)
{
    for (int i = 0; i < 8; i++)
        map[i] = (uint4)(0);
    SET_LONG("global_address", "", from);
    SET_WORD("rank", "2"); /* less one */
    SET_WORD("elemtype", "1"); /* two bytes: they are only moved */
    SET_WORD("interleave_layout", "0");
    SET_WORD("swizzle_mode", "3"); /* 128 bytes */
    SET_WORD("fill_mode", "0");
    SET_INT("box_dim", "0", 64);
    SET_INT("box_dim", "1", box);
    SET_INT("box_dim", "2", 1);
    SET_INT("global_dim", "0", contiguous);
    SET_INT("global_dim", "1", lines);
    SET_INT("global_dim", "2", batches);
    SET_LONG("global_stride", "0, ", lead * 2);
    SET_LONG("global_stride", "1, ", batch * 2);
    SET_INT("element_stride", "0", 1);
    SET_INT("element_stride", "1", 1);
    SET_INT("element_stride", "2", 1);
    asm volatile("fence.proxy.tensormap::generic.release.gpu;\n"
                 "fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map)
                 : "memory");
}

/* From element x of line y of matrix z on. */
INLINE void copy_box(uint to, __global const uint4 *map, int x, int y, int z, uint full)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier"
                 "::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
                 "l"(map), "r"(x), "r"(y), "r"(z), "r"(full)
                 : "memory");
}

INLINE void copy_tile(uint to, __global const uint4 *map, const int lines, const int across,
                      int line, int k, int batch, uint full)
{
    if (across) {
#pragma unroll
        for (int box = 0; box < lines / 64; box++)
            copy_box(to + box * 8192, map, line + box * 64, k, batch, full);
    } else
        copy_box(to, map, k, line, batch, full);
}

/* ---- multiplying ---- */

/* What wgmma is told of an operand in local memory; `boxes`: 16 bytes from box to box. */
INLINE ulong describe(uint at, uint boxes)
{
    return (ulong)((at & 0x3ffff) >> 4) | (ulong)boxes << 16 | (ulong)64 << 32 | (ulong)1 << 62;
}

#define NAMES_64                                                                                   \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                       \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "             \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "             \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_128                                                                                  \
    NAMES_64                                                                                       \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "           \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, "       \
    "%111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, "   \
    "%126, %127"
#define BOUND_4(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define BOUND_16(i) BOUND_4(i), BOUND_4(i + 4), BOUND_4(i + 8), BOUND_4(i + 12)
#define BOUND_64(i) BOUND_16(i), BOUND_16(i + 16), BOUND_16(i + 32), BOUND_16(i + 48)
#if TILE_N == 256
#define NAMES NAMES_128
#define BOUND BOUND_64(0), BOUND_64(64)
#define PLACES(at) PASTE(PLACES_256_, at)
#else
#define NAMES NAMES_64
#define BOUND BOUND_64(0)
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
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define MULTIPLY(step)                                                                             \
    "//!wgmma.mma_async.sync.aligned.m64n" TEXT(TILE_N) "k16.f32." TYPES " {" NAMES "}, "          \
    PLACES(step) ", 1, 1, 1, " TEXT(TRANSPOSE_A) ", " ACROSS_B_DIGIT ";\n"
#define TYPES TEXT(TYPE) "." TEXT(TYPE)
#if TRANSPOSE_B
#define ACROSS_B_DIGIT "0"
#else
#define ACROSS_B_DIGIT "1"
#endif
/* 16 bytes from one 16 of k to the next. */
#define NEXT_A (ACROSS_A ? 128 : 2)
#define NEXT_B (ACROSS_B ? 128 : 2)

/* ---- storing ---- */

#if ALIGNED
#define STORE_QUAD(value, to) (*(__global float4 *)(to) = (value))
#else
#define STORE_QUAD(value, to) vstore4(value, 0, to)
#endif

/* Chunk `chunk` of row `row` of a warp's 16. */
INLINE float4 read_quad(uint from, uint row, uint chunk)
{
    float4 quad;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(quad.x), "=f"(quad.y), "=f"(quad.z), "=f"(quad.w)
                 : "r"(from + row * 256 + ((chunk ^ ((row & 3) << 1)) << 4)));
    return quad;
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

/* ---- the kernel ---- */

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

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void
matmul_wgmma(__global const ushort *restrict a, __global const ushort *restrict b,
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
               empty = full + 8 * STAGES;
    const uint item = get_local_id(0);
    const struct work work = {(uint)((m + TILE_M - 1) / TILE_M), (uint)((n + TILE_N - 1) / TILE_N),
                              (uint)((k + TILE_K - 1) / TILE_K), (uint)splits};
    const uint tiles = work.rows * work.columns * (uint)(batches * splits);
    uint stage = 0, phase = 0;

    if (item == 0) {
        for (uint i = 0; i < STAGES; i++) {
            barrier_make(full + 8 * i, 1);
            barrier_make(empty + 8 * i, 2);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    if (item < LOADERS) {
        asm volatile("//!setmaxnreg.dec.sync.aligned.u32 40;");
        if (item == 0) {
            __global uint4 *map_a = maps + maps_offset + get_group_id(0) * 16, *map_b = map_a + 8;
            describe_operand(map_a, a + a_offset, ACROSS_A ? m : k, ACROSS_A ? k : m,
                             a_batch ? batches : 1, a_lead, a_batch ? a_batch : 8,
                             ACROSS_A ? TILE_K : TILE_M);
            describe_operand(map_b, b + b_offset, ACROSS_B ? n : k, ACROSS_B ? k : n,
                             b_batch ? batches : 1, b_lead, b_batch ? b_batch : 8,
                             ACROSS_B ? TILE_K : TILE_N);
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
        return;
    }
    asm volatile("//!setmaxnreg.inc.sync.aligned.u32 232;");

    const uint group = item / 128 - 1, lane = item % 32, warp = item / 32 - 4;
    for (uint id = get_group_id(0); id < tiles; id += get_num_groups(0)) {
        const struct place at = place_of(id, work);
        float sums[SUMS];
        uint before = 0; /* the stage that is read still */
#pragma unroll
        for (int i = 0; i < SUMS; i++)
            sums[i] = 0.0f;
#pragma unroll 1
        for (uint round = at.from; round < at.until; round++) {
            const uint here = stages + stage * STAGE;
            barrier_wait(full + 8 * stage, phase);
            const ulong of_a = describe(here + group * 8192, 1);
            const ulong of_b = describe(here + BYTES_A, ACROSS_B ? 512 : 1);
            asm volatile("//!wgmma.fence.sync.aligned;" ::: "memory");
            asm volatile(MULTIPLY(0) MULTIPLY(1) MULTIPLY(2) MULTIPLY(3)
                         : BOUND
                         : "l"(of_a), "l"(of_b), "l"(of_a + NEXT_A), "l"(of_b + NEXT_B),
                           "l"(of_a + 2 * NEXT_A), "l"(of_b + 2 * NEXT_B), "l"(of_a + 3 * NEXT_A),
                           "l"(of_b + 3 * NEXT_B)
                         : "memory");
            asm volatile("//!wgmma.commit_group.sync.aligned;" ::: "memory");
            asm volatile("//!wgmma.wait_group.sync.aligned 1;" ::: "memory");
            if (before && item % 128 == 0)
                barrier_arrive(before);
            before = empty + 8 * stage;
            if (++stage == STAGES) {
                stage = 0;
                phase ^= 1;
            }
        }
        asm volatile("//!wgmma.wait_group.sync.aligned 0;" : BOUND::"memory");
        if (item % 128 == 0)
            barrier_arrive(before);

        /* Sum i of lane l lies in row l / 4 + 8 * (i / 2 % 2) of its warp's 16, column
         * 8 * (i / 4) + l % 4 * 2 + i % 2. 64 columns at a time go through the warp's own 4 KiB, so
         * that whole lines are stored: chunk c of row r is at c ^ r % 4 * 2. */
        const uint turn = empty + 8 * STAGES + 64 + warp * 4096;
        const uint write = turn + (lane >> 2) * 256 + ((lane & 1) << 3), mix = (lane >> 2 & 3) << 1;
        const uint high = lane >> 4;
        const long row = at.row0 + group * 64 + (warp & 3) * 16 + high;
        const long column = at.column0 + (lane & 15) * 4;
#if RESULT
        __global float *to =
            c + c_offset + (at.matrix * splits + at.split) * c_batch + row * c_lead + column;
#else
        __global float *to = 0;
        const long c_lead = 0;
#endif
#pragma unroll
        for (int part = 0; part < SUMS / 32; part++) {
#pragma unroll
            for (int j = 0; j < 8; j++) {
                const uint place = write + (((2 * j + ((lane & 3) >> 1)) ^ mix) << 4);
                const int i = part * 32 + 4 * j;
                asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(place), "f"(sums[i]),
                             "f"(sums[i + 1])
                             : "memory");
                asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(place + 2048),
                             "f"(sums[i + 2]), "f"(sums[i + 3])
                             : "memory");
            }
            asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
#pragma unroll 1
            for (int first = 0; first < 8; first += AT_ONCE) {
                const long left = n - column - part * 64;
                if (row + 2 * (first + AT_ONCE - 1) >= m || left < 4) {
#pragma unroll 1
                    for (int i = first; i < first + AT_ONCE; i++)
                        if (row + 2 * i < m)
                            store_quad(read_quad(turn, high + 2 * i, lane & 15),
                                       to + 2 * i * c_lead + part * 64, left, at.matrix,
                                       row + 2 * i, column + part * 64 EPILOGUE_ARGUMENTS);
                    continue;
                }
                float4 quads[AT_ONCE];
#pragma unroll
                for (int i = 0; i < AT_ONCE; i++)
                    quads[i] = read_quad(turn, high + 2 * (first + i), lane & 15);
#pragma unroll
                for (int i = 0; i < AT_ONCE; i++)
                    quads[i] = EPILOGUE_VECTOR(quads[i], at.matrix, row + 2 * (first + i),
                                               column + part * 64);
#if RESULT
#pragma unroll
                for (int i = 0; i < AT_ONCE; i++)
                    STORE_QUAD(quads[i], to + 2 * (first + i) * c_lead + part * 64);
#endif
            }
            asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
        }
    }
}
