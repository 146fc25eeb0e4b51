/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the gradient of attention is made of (attention_backward.h), of operands of 16 bits on the
 * tensor cores of NVIDIA's Hopper. No matrix of scores is in memory (Dao et al. 2022, appendix
 * B.2).
 *
 * Text behind "//!" is edited as in matmul_wgmma.cl, whose head says how and why.
 *
 *     args    those of attention_backward.cl, and maps, maps_offset after out_row, and then, of BOTH,
 *             for which PAIR is 1, other, other_offset, other_row; each run has a stride of other
 *     global  384 * product of the leading sizes, ceil(m / 128), 1       local  384, 1, 1
 *     local memory  LOCAL: 1024 bytes, and DEPTH * 256 for each of a and c, STAGES * WALKED * 8,
 *             and STAGES * WALKED * DEPTH * 2 for each of b and g, as far as FORM has them
 * Layouts, d, e, scale, TYPE, RESULT and ALIGNED as in attention_wgmma.cl, WALKED: 64 or 128 rows
 * at a time. stats start at multiples of 16 bytes. maps: 512 bytes for each work-group, from maps_offset (in 16 bytes) on, at a multiple of 128. MARKS: how often "//!" is
 * there, which depends on FORM.
 *
 * A work-group owns 128 rows. The first items of its first four warps have the copy engine fetch an
 * operand each; the others, two warpgroups of 64 rows each, compute a block's products while the
 * tensor cores still add up those of the block before.
 */
//edit $MARKS "//!" ""
//edit 1 ".target sm_90," ".target sm_90a,"
//edit 1 "[1024]" "[$LOCAL]"

#ifndef FORM
#define FORM 3
#endif
#ifndef DEPTH
#define DEPTH 64
#endif
#ifndef WALKED
#define WALKED 64
#endif
#ifndef STAGES
#define STAGES 3
#endif
#ifndef TYPE
#define TYPE f16
#endif
#ifndef RESULT
#define RESULT f32
#endif
#ifndef ALIGNED
#define ALIGNED 0
#endif
#ifndef RUNS
#define RUNS 1
#endif
#ifndef PAIR
#define PAIR 0
#endif

#pragma OPENCL FP_CONTRACT OFF

#include "helpers.h"
#include "attention_backward.h"

#define BYTES 2
#define ELEMENT ushort
#define MOVED "1"
#include "wgmma.h"

#define ROWS 128
#define LOADERS 128
#define ITEMS (3 * LOADERS)
#define OWN_BOX (ROWS * 128)  /* bytes of 64 columns */
#define BOX (WALKED * 128)
#define BLOCK (DEPTH / 64 * BOX)
#define SCORES (WALKED / 2) /* of an item: of two rows every fourth pair */
#define SUMS (DEPTH / 2)
#include "attention_wgmma.h"

/* ---- products ---- */

/* A B' of 64 rows: DEPTH / 16 steps of 16 columns; the first one overwrites. The places of both
 * follow the sums. */
#define SCORE(names, a, b, adds)                                                                   \
    "wgmma.mma_async.sync.aligned.m64n" TEXT(WALKED) "k16.f32." TEXT(TYPE) "." TEXT(TYPE) " {"     \
    names "}, %" #a ", %" #b ", " adds ", 1, 1, 0, 0; "
#if WALKED == 64
#define BOUND_SCORES(x) BOUND_32(x, 0)
#define SCORE_64                                                                                   \
    SCORE(NAMES_32, 32, 33, "0") SCORE(NAMES_32, 34, 35, "1") SCORE(NAMES_32, 36, 37, "1")         \
    SCORE(NAMES_32, 38, 39, "1")
#define SCORE_128                                                                                  \
    SCORE(NAMES_32, 40, 41, "1") SCORE(NAMES_32, 42, 43, "1") SCORE(NAMES_32, 44, 45, "1")         \
    SCORE(NAMES_32, 46, 47, "1")
#else
#define BOUND_SCORES(x) BOUND_64(x, 0)
#define SCORE_64                                                                                   \
    SCORE(NAMES_64, 64, 65, "0") SCORE(NAMES_64, 66, 67, "1") SCORE(NAMES_64, 68, 69, "1")         \
    SCORE(NAMES_64, 70, 71, "1")
#define SCORE_128                                                                                  \
    SCORE(NAMES_64, 72, 73, "1") SCORE(NAMES_64, 74, 75, "1") SCORE(NAMES_64, 76, 77, "1")         \
    SCORE(NAMES_64, 78, 79, "1")
#endif
/* 16 bytes from the start; boxes of 64 columns follow each other. */
#define PLACES(step)                                                                               \
    "l"(of_a + (step) / 4 * (OWN_BOX / 16) + (step) % 4 * 2),                                      \
        "l"(of_b + (step) / 4 * (BOX / 16) + (step) % 4 * 2)
#define PLACES_64 PLACES(0), PLACES(1), PLACES(2), PLACES(3)
#if DEPTH == 64
#define SCORE_ALL SCORE_64
#define PLACES_ALL PLACES_64
#else
#define SCORE_ALL SCORE_64 SCORE_128
#define PLACES_ALL PLACES_64, PLACES(4), PLACES(5), PLACES(6), PLACES(7)
#endif

INLINE void begin_scores(ulong of_a, ulong of_b, float scores[SCORES])
{
    asm volatile("//!" SCORE_ALL : BOUND_SCORES(scores) : PLACES_ALL : "memory");
}

/* sums += W X: WALKED / 16 steps of 16 rows, four words of W each. */
#define ADD_(names, w0, w1, w2, w3, x)                                                             \
    "wgmma.mma_async.sync.aligned.m64n" TEXT(DEPTH) "k16.f32." TEXT(TYPE) "." TEXT(TYPE) " {"      \
    names "}, {%" #w0 ", %" #w1 ", %" #w2 ", %" #w3 "}, %" #x ", 1, 1, 1, 1; "
#if DEPTH == 64
#define BOUND_SUMS(sums) BOUND_32(sums, 0)
#define ADD(w0, w1, w2, w3, x) ADD_(NAMES_32, w0, w1, w2, w3, x)
#if WALKED == 64
#define ADD_ALL                                                                                    \
    ADD(32, 33, 34, 35, 48) ADD(36, 37, 38, 39, 49) ADD(40, 41, 42, 43, 50) ADD(44, 45, 46, 47, 51)
#else
#define ADD_ALL                                                                                    \
    ADD(32, 33, 34, 35, 64) ADD(36, 37, 38, 39, 65) ADD(40, 41, 42, 43, 66)                        \
    ADD(44, 45, 46, 47, 67) ADD(48, 49, 50, 51, 68) ADD(52, 53, 54, 55, 69)                        \
    ADD(56, 57, 58, 59, 70) ADD(60, 61, 62, 63, 71)
#endif
#else
#define BOUND_SUMS(sums) BOUND_64(sums, 0)
#define ADD(w0, w1, w2, w3, x) ADD_(NAMES_64, w0, w1, w2, w3, x)
#if WALKED == 64
#define ADD_ALL                                                                                    \
    ADD(64, 65, 66, 67, 80) ADD(68, 69, 70, 71, 81) ADD(72, 73, 74, 75, 82) ADD(76, 77, 78, 79, 83)
#else
#define ADD_ALL                                                                                    \
    ADD(64, 65, 66, 67, 96) ADD(68, 69, 70, 71, 97) ADD(72, 73, 74, 75, 98)                        \
    ADD(76, 77, 78, 79, 99) ADD(80, 81, 82, 83, 100) ADD(84, 85, 86, 87, 101)                      \
    ADD(88, 89, 90, 91, 102) ADD(92, 93, 94, 95, 103)
#endif
#endif
#define WORDS_4(i)                                                                                 \
    "r"(weights[i]), "r"(weights[i + 1]), "r"(weights[i + 2]), "r"(weights[i + 3])
#define WORDS_16(i) WORDS_4(i), WORDS_4(i + 4), WORDS_4(i + 8), WORDS_4(i + 12)
#define LINES(step) "l"(of_x + (step) * 128)
#define LINES_64 LINES(0), LINES(1), LINES(2), LINES(3)
#if WALKED == 64
#define OPERANDS_ALL WORDS_16(0), LINES_64
#else
#define OPERANDS_ALL                                                                               \
    WORDS_16(0), WORDS_16(16), LINES_64, LINES(4), LINES(5), LINES(6), LINES(7)
#endif

INLINE void begin_adding(const uint weights[SCORES / 2], ulong of_x, float sums[SUMS])
{
    asm volatile("//!wgmma.fence.sync.aligned;" : BOUND_SUMS(sums)::"memory");
    asm volatile("//!" ADD_ALL "wgmma.commit_group.sync.aligned;"
                 : BOUND_SUMS(sums)
                 : OPERANDS_ALL
                 : "memory");
}

/* ---- weights ---- */

/* Score i of an item: column i / 4 * 8 + lane % 4 * 2 + i % 2 of row lane / 4 + i / 2 % 2 * 8. Of
 * a row that is `place` rows behind the item's first are seen: of keys those before `columns` and
 * up to last + place; of queries those from last + place on. */
INLINE void hide(float scores[SCORES], long columns, long last, uint lane)
{
    const int first = (lane & 3) * 2, own = (int)clamp(last, -1024L, 1024L) + (int)(lane >> 2);
#if BY_COLUMN
    if (last + 15 <= 0)
        return;
#pragma unroll
    for (int i = 0; i < SCORES; i++)
        if (i / 4 * 8 + i % 2 + first < own + (i & 2) * 4)
            scores[i] = -INFINITY;
#else
    if (columns >= WALKED && last >= WALKED - 1)
        return;
    const int most = (int)min(columns, (long)WALKED);
    const int low = min(most, own + 1) - first, high = min(most, own + 9) - first;
#pragma unroll
    for (int i = 0; i < SCORES; i++)
        if (i / 4 * 8 + i % 2 >= (i & 2 ? high : low))
            scores[i] = -INFINITY;
#endif
}

#if FORM == SCALES
/* What is kept of an item's two rows. */
struct rows {
    float peak[2], total[2]; /* scores not yet scaled; the item's own share */
};

INLINE void add_up(const float scores[SCORES], struct rows *rows, float scale)
{
    float base[2], total[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float peak = rows->peak[r];
#pragma unroll
        for (int i = 0; i < SCORES; i += 4)
            peak = fmax(peak, fmax(scores[i + 2 * r], scores[i + 2 * r + 1]));
        base[r] = peak == -INFINITY ? 0.0f : peak * scale;
        rows->total[r] *= power_of_two(rows->peak[r] * scale - base[r]);
        rows->peak[r] = peak;
    }
#pragma unroll
    for (int i = 0; i < SCORES; i++)
        total[i & 3] += power_of_two(fma(scores[i], scale, -base[i >> 1 & 1]));
    rows->total[0] += total[0] + total[1];
    rows->total[1] += total[2] + total[3];
}

/* All shares of a row together; INFINITY without a key: whatever its scores, no weight. */
INLINE float scale_of(float peak, float total, float scale)
{
    float most = fmax(peak, swap_lanes(peak, 1));
    most = fmax(most, swap_lanes(most, 2));
    if (most == -INFINITY)
        return INFINITY;
    total *= power_of_two((peak - most) * scale);
    total += swap_lanes(total, 1);
    total += swap_lanes(total, 2);
    return fma(most, scale, log2(total));
}
#else
/* Scores to weights, or with slopes of weights to those of scores. row: of the item's two rows;
 * columns: where those of what is walked lie. */
INLINE void weigh(float scores[SCORES], const float slopes[SCORES], float scale,
                  const float2 row[2], uint columns, float others[SCORES])
{
#pragma unroll
    for (int i = 0; i < SCORES; i += 4) {
#if BY_COLUMN
        float4 of;
        asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(of.x), "=f"(of.y), "=f"(of.z), "=f"(of.w)
                     : "r"(columns + i * 16));
        const float2 pair[4] = {of.lo, of.hi, of.lo, of.hi};
#else
        const float2 pair[4] = {row[0], row[0], row[1], row[1]};
#endif
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float weight = power_of_two(fma(scores[i + j], scale, -pair[j].x));
            scores[i + j] = SLOPES ? weight * (slopes[i + j] - pair[j].y) : weight;
            if (FORM == BOTH)
                others[i + j] = weight;
        }
    }
}
#endif

/* ---- results ---- */

/* out: of the warpgroup's first row. */
INLINE void write_results(const float sums[SUMS], float factor, long left, long columns,
                          __global result_type *out, long out_row)
{
    const uint item = get_local_id(0) % 128, lane = item % 32;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const long row = item / 32 * 16 + lane / 4 + 8 * r;
        __global result_type *to = out + row * out_row + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < SUMS; i += 4)
            if (row < left && i * 2 < columns) {
                STORE(to + i * 2, sums[i + 2 * r] * factor, sums[i + 2 * r + 1] * factor);
            }
    }
}

/* ---- loading ---- */

#define STAGE_OF(block) ((block) % STAGES)
#define PHASE_OF(block) ((block) / STAGES & 1)

/* An operand's rows from `first` on, DEPTH / 64 boxes. */
INLINE void copy_rows(uint to, uint box, __global const uint4 *map, long first, uint full)
{
    barrier_expect(full, DEPTH / 64 * box);
#pragma unroll
    for (int i = 0; i < DEPTH / 64; i++)
        copy_box(to + i * box, map, i * 64, (int)first, 0, full);
}

/* Two queries' stats for each item of a warp; those past the last weigh nothing. */
INLINE void copy_stats(uint to, __global const float4 *stats, long first, long queries, uint lane)
{
#pragma unroll
    for (int i = 0; i < WALKED / 64; i++) {
        const long query = first + i * 64 + lane * 2;
        const float2 nothing = (float2)(INFINITY, 0.0f);
        const float2 low = query < queries ? stats[query].lo : nothing;
        const float2 high = query + 1 < queries ? stats[query + 1].lo : nothing;
        asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to + i * 512 + lane * 16),
                     "f"(low.x), "f"(low.y), "f"(high.x), "f"(high.y)
                     : "memory");
    }
}

/* ---- the kernel ---- */

/* The arguments of a leading dimension, and the step into it. */
#define RUN(i) , long size_##i, long a_##i, long b_##i, long c_##i, long g_##i, long s_##i, long r_##i, long o_##i
#define ENTER(i)                                                                                   \
    {                                                                                              \
        const long at = rest % size_##i;                                                           \
        rest /= size_##i;                                                                          \
        a += at * a_##i;                                                                           \
        b += at * b_##i;                                                                           \
        c += at * c_##i;                                                                           \
        g += at * g_##i;                                                                           \
        stats += at * s_##i;                                                                       \
        out += at * r_##i;                                                                         \
        if (FORM == BOTH)                                                                          \
            other += at * o_##i;                                                                   \
    }

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void
attention_backward_wgmma(__global const ushort *restrict a, __global const ushort *restrict b,
                       __global const ushort *restrict c, __global const ushort *restrict g,
                       __global const float *restrict stats, __global result_type *restrict out,
                       long m, long n, long d, long e, float scale, long diagonal, long a_offset,
                       long a_row, long a_column, long b_offset, long b_row, long b_column,
                       long c_offset, long c_row, long c_column, long g_offset, long g_row,
                       long g_column, long stats_offset, long out_offset, long out_row,
                       __global uint4 *maps, long maps_offset
#if PAIR
                       ,
                       __global result_type *restrict other, long other_offset, long other_row
#endif
                       PASTE(TO_, RUNS)(RUN))
{
    __local uchar memory[1024] __attribute__((aligned(1024)));
    const uint own = (uint)(size_t)memory, own_c = own + DEPTH / 64 * OWN_BOX,
               walked = own_c + SLOPES * (DEPTH / 64) * OWN_BOX, walked_g = walked + STAGES * BLOCK,
               columns = walked_g + (FORM != SCALES) * STAGES * BLOCK,
               full_own = columns + STAGES * WALKED * 8,
               full = full_own + 8, empty = full + 8 * STAGES;
    const uint item = get_local_id(0);
    const long tile = BY_COLUMN ? get_group_id(1) : get_num_groups(1) - 1 - get_group_id(1);
    const long row0 = tile * ROWS;
    /* What rows see, in blocks: of a causal matrix, keys from the first on, queries to the last. */
    const long first = BY_COLUMN ? max(0L, row0 - diagonal) / WALKED * WALKED : 0;
    const long seen = BY_COLUMN ? n : min(n, min(m, row0 + ROWS) + diagonal);
    const int blocks = seen > first ? (int)((seen - first + WALKED - 1) / WALKED) : 0;
    /* Two at a time, for SCALES; what is past the last row is 0, and hidden. */
    const int copied = FORM == SCALES ? (blocks + 1) / 2 * 2 : blocks;
    long rest = get_group_id(0);

    out += out_offset + row0 * out_row;
#if PAIR
    other += other_offset + row0 * other_row;
#else
    __global result_type *other = out;
#endif
    a += a_offset;
    b += b_offset;
    c += c_offset;
    g += g_offset;
    stats += stats_offset;
    PASTE(TO_, RUNS)(ENTER)
    if (item == 0) {
        barrier_make(full_own, SLOPES ? 2 : 1);
        for (uint i = 0; i < STAGES; i++) {
            barrier_make(full + 8 * i, 1 + (FORM != SCALES) + (BY_COLUMN ? 32 : 0));
            barrier_make(empty + 8 * i, 2);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    if (item < LOADERS) {
        asm volatile("//!setmaxnreg.dec.sync.aligned.u32 40;");
        const uint part = item / 32, lane = item % 32; /* a, c, b, g */
        const bool needed = part == 0 || part == 2 || (part == 1 ? SLOPES : FORM != SCALES);
        if (lane == 0 && needed && blocks > 0) {
            __global uint4 *map = maps + maps_offset +
                                  (get_group_id(1) * get_num_groups(0) + get_group_id(0)) * 32 +
                                  8 * part;
            describe_operand(map, part == 0 ? a : part == 1 ? c : part == 2 ? b : g,
                             part % 2 ? e : d, part < 2 ? m : n, 1,
                             max(8L, part == 0   ? a_row
                                     : part == 1 ? c_row
                                     : part == 2 ? b_row
                                                 : g_row),
                             8, part < 2 ? ROWS : WALKED, 128);
            if (part < 2)
                copy_rows(part == 0 ? own : own_c, OWN_BOX, map, row0, full_own);
#pragma unroll 1
            for (int block = 0; part >= 2 && block < copied; block++) {
                const uint stage = STAGE_OF(block);
                barrier_wait(empty + 8 * stage, PHASE_OF(block) ^ 1);
                copy_rows((part == 2 ? walked : walked_g) + stage * BLOCK, BOX, map,
                          first + (long)block * WALKED, full + 8 * stage);
            }
        }
#if BY_COLUMN
#pragma unroll 1
        for (int block = 0; part == 0 && block < blocks; block++) {
            const uint stage = STAGE_OF(block);
            barrier_wait(empty + 8 * stage, PHASE_OF(block) ^ 1);
            copy_stats(columns + stage * WALKED * 8,
                       (__global const float4 *)stats,
                       first + (long)block * WALKED, n, lane);
            barrier_arrive(full + 8 * stage);
        }
#endif
        return;
    }
    asm volatile("//!setmaxnreg.inc.sync.aligned.u32 232;");

    const uint group = item / 128 - 1, lane = item % 32;
    const long warp_row = row0 + group * 64 + item % 128 / 32 * 16;
    /* By its position the warp's first row sees the last key, or the first query, of what is
     * walked. */
    const long reach = BY_COLUMN ? warp_row - diagonal - first : warp_row + diagonal;
    const ulong of_a = describe(own + group * 8192, 1), of_c = describe(own_c + group * 8192, 1),
                of_b = describe(walked, 1), of_g = describe(walked_g, 1),
                of_x = describe(FORM == VALUES ? walked_g : walked, BOX / 16),
                of_y = describe(walked_g, BOX / 16);
    float scores[SCORES];
#pragma unroll
    for (int i = 0; i < SCORES; i++)
        scores[i] = 0.0f;
#if FORM == SCALES
    /* Two blocks at a time: the second one is multiplied while the first one's are added up. */
    struct rows rows = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}};
    float others[SCORES];
#pragma unroll
    for (int i = 0; i < SCORES; i++)
        others[i] = 0.0f;
#define BEGIN(block, scores)                                                                       \
    begin_scores(of_a, of_b + STAGE_OF(block) * (BLOCK / 16), scores);                             \
    asm volatile("//!wgmma.commit_group.sync.aligned;" ::: "memory")
#define END(block, scores, left)                                                                   \
    asm volatile("//!wgmma.wait_group.sync.aligned " left ";" : BOUND_SCORES(scores)::"memory");   \
    if (item % 128 == 0)                                                                           \
        barrier_arrive(empty + 8 * STAGE_OF(block));                                               \
    hide(scores, n - (long)(block) * WALKED, reach - (long)(block) * WALKED, lane);                \
    add_up(scores, &rows, scale)
    if (blocks > 0)
        barrier_wait(full_own, 0);
#pragma unroll 1
    for (int block = 0; block < blocks; block += 2) {
        barrier_wait(full + 8 * STAGE_OF(block), PHASE_OF(block));
        barrier_wait(full + 8 * STAGE_OF(block + 1), PHASE_OF(block + 1));
        asm volatile("//!wgmma.fence.sync.aligned;" ::: "memory");
        BEGIN(block, scores);
        BEGIN(block + 1, others);
        END(block, scores, "1");
        END(block + 1, others, "0");
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float result = scale_of(rows.peak[r], rows.total[r], scale);
        const long row = warp_row + lane / 4 + 8 * r;
        if (lane % 4 == 0 && row < m)
            out[(row - row0) * out_row] = result;
    }
#else
    float sums[SUMS], slopes[SCORES];
    uint weights[SCORES / 2];
#if FORM == BOTH
    float other_sums[SUMS];
    uint other_weights[SCORES / 2];
#pragma unroll
    for (int i = 0; i < SUMS; i++)
        other_sums[i] = 0.0f;
#endif
    float2 own_stats[2] = {(float2)(0.0f), (float2)(0.0f)};
#if !BY_COLUMN
#pragma unroll
    for (int r = 0; r < 2; r++)
        own_stats[r] = ((__global const float4 *)stats)[min(m - 1, warp_row + lane / 4 + 8 * r)].lo;
#endif
#pragma unroll
    for (int i = 0; i < SUMS; i++)
        sums[i] = 0.0f;
#pragma unroll
    for (int i = 0; i < SCORES; i++)
        slopes[i] = 0.0f;
#if SLOPES
#define BEGIN(stage)                                                                               \
    asm volatile("//!wgmma.fence.sync.aligned;" ::: "memory");                                     \
    begin_scores(of_a, of_b + (stage) * (BLOCK / 16), scores);                                     \
    begin_scores(of_c, of_g + (stage) * (BLOCK / 16), slopes);                                     \
    asm volatile("//!wgmma.commit_group.sync.aligned;" ::: "memory")
#define WAIT(left)                                                                                 \
    asm volatile("//!wgmma.wait_group.sync.aligned " left ";" : BOUND_SCORES(scores)::"memory");   \
    asm volatile("" : BOUND_SCORES(slopes)::"memory")
#else
#define BEGIN(stage)                                                                               \
    asm volatile("//!wgmma.fence.sync.aligned;" ::: "memory");                                     \
    begin_scores(of_a, of_b + (stage) * (BLOCK / 16), scores);                                     \
    asm volatile("//!wgmma.commit_group.sync.aligned;" ::: "memory")
#define WAIT(left)                                                                                 \
    asm volatile("//!wgmma.wait_group.sync.aligned " left ";" : BOUND_SCORES(scores)::"memory")
#endif
#define WEIGH(block, stage)                                                                        \
    hide(scores, n - (long)(block) * WALKED, reach - (long)(block) * WALKED, lane);                \
    weigh(scores, slopes, scale, own_stats, columns + (stage) * WALKED * 8 + (lane & 3) * 16,      \
          slopes)

#if FORM == BOTH
    /* Sums of two products leave no registers for a block's scores beside the words of the one
     * before: the other warpgroup's products go on meanwhile. */
    if (blocks > 0)
        barrier_wait(full_own, 0);
#pragma unroll 1
    for (int block = 0; block < blocks; block++) {
        const uint stage = STAGE_OF(block);
        barrier_wait(full + 8 * stage, PHASE_OF(block));
        BEGIN(stage);
        WAIT("0");
        WEIGH(block, stage);
        pack_weights(scores, weights);
        pack_weights(slopes, other_weights);
        begin_adding(weights, of_x + stage * (BLOCK / 16), sums);
        begin_adding(other_weights, of_y + stage * (BLOCK / 16), other_sums);
        asm volatile("//!wgmma.wait_group.sync.aligned 0;" : BOUND_SUMS(sums)::"memory");
        asm volatile("" : BOUND_SUMS(other_sums)::"memory");
        if (item % 128 == 0)
            barrier_arrive(empty + 8 * stage);
    }
    write_results(other_sums, stats[VALUE_FACTOR], m - row0 - group * 64, e,
                  other + group * 64 * other_row, other_row);
#else
    if (blocks > 0) {
        barrier_wait(full_own, 0);
        barrier_wait(full, 0);
        BEGIN(0);
        WAIT("0");
        WEIGH(0, 0);
        pack_weights(scores, weights);
    }
#pragma unroll 1
    for (int block = 1; block < blocks; block++) {
        const uint stage = STAGE_OF(block), before = STAGE_OF(block - 1);
        barrier_wait(full + 8 * stage, PHASE_OF(block));
        BEGIN(stage);
        begin_adding(weights, of_x + before * (BLOCK / 16), sums);
        WAIT("1");
        WEIGH(block, stage);
        asm volatile("//!wgmma.wait_group.sync.aligned 0;" : BOUND_SUMS(sums)::"memory");
        if (item % 128 == 0)
            barrier_arrive(empty + 8 * before);
        pack_weights(scores, weights);
    }
    if (blocks > 0) {
        begin_adding(weights, of_x + STAGE_OF(blocks - 1) * (BLOCK / 16), sums);
        asm volatile("//!wgmma.wait_group.sync.aligned 0;" : BOUND_SUMS(sums)::"memory");
    }
#endif
    write_results(sums, stats[FORM == VALUES ? VALUE_FACTOR : SLOPE_FACTOR],
                  m - row0 - group * 64, FORM == VALUES ? e : d,
                  out + group * 64 * out_row, out_row);
#endif
}
