/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scaled dot-product attention of operands of 16 bits on the tensor cores of NVIDIA's Hopper, by
 * its instruction wgmma: scores and sums in float, weights rounded to the operands' type.
 *
 * Text behind "//!" is edited as in matmul_wgmma.cl, whose head says how and why.
 *
 *     args    those of attention_gpu.cl, and maps, maps_offset after out_row
 *     global  384 * product of the leading sizes, ceil(m / 128), 1       local  384, 1, 1
 *     local memory  LOCAL: DEPTH * 256 + STAGES * DEPTH * 512 + 1024 bytes
 * Rows of q, k and v lie next to each other in memory, at multiples of 16 bytes, and so do all
 * offsets and steps of leading dimensions; the scale is above 0. d and e are multiples of 8, at
 * most DEPTH: 64 or 128. TYPE: f16 or bf16. maps: 384 bytes for each work-group, from maps_offset
 * (in 16 bytes) on, at a multiple of 128. RESULT: f32, or TYPE. ALIGNED: rows of the result start
 * at even elements. MASK: as in attention.h, or 3: f16, 4: bf16. PAIRS: the mask's keys lie next to
 * each other, and its rows start at even ones; n is even. LOG_SUM_EXP: log_sums, log_sums_offset
 * follow maps_offset: a float for each row of each matrix, dense.
 *
 * A work-group owns 128 rows of queries. Three items of its first 128 have the copy engine fetch them,
 * blocks of 128 keys, and their values. The other items, two warpgroups of 64 rows each, compute a
 * block's scores while the tensor cores still add up what the block before weighs: scores, weights
 * and sums stay in registers, and the scores' layout there is that of the other product's operand.
 * Sums so far are scaled down when a block has a larger score, as in attention_gpu.cl. Of a mask an
 * item reads what belongs to its scores.
 */
//edit 31 "//!" ""
//edit 1 ".target sm_90," ".target sm_90a,"
//edit 1 "[1024]" "[$LOCAL]"

#ifndef DEPTH
#define DEPTH 64
#endif
#ifndef STAGES
#define STAGES 2
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
#ifndef MASK
#define MASK 0
#endif
#ifndef PAIRS
#define PAIRS 0
#endif
#ifndef LOG_SUM_EXP
#define LOG_SUM_EXP 0
#endif

#pragma OPENCL FP_CONTRACT OFF /* a difference of equal products is 0 */

#include "helpers.h"
#include "attention.h"

#define BYTES 2
#define ELEMENT ushort
#define MOVED "1"
#include "wgmma.h"

#define ROWS 128
#define KEYS 128
#define LOADERS 128
#define ITEMS (3 * LOADERS)
#define BOX (KEYS * 128)            /* bytes of 64 columns of a block */
#define BLOCK (DEPTH / 64 * BOX)    /* of all */
#define SCORES (KEYS / 2)           /* of an item: of two rows every fourth pair */
#define SUMS (DEPTH / 2)
#include "attention_wgmma.h"

/* ---- products ---- */

/* S = Q K': DEPTH / 16 steps of 16 columns; the first one overwrites. %64 on: pairs of places. */
#define SCORE(q, k, adds)                                                                          \
    "wgmma.mma_async.sync.aligned.m64n128k16.f32." TEXT(TYPE) "." TEXT(TYPE) " {" NAMES_64         \
    "}, %" #q ", %" #k ", " adds ", 1, 1, 0, 0; "
#define SCORE_64 SCORE(64, 65, "0") SCORE(66, 67, "1") SCORE(68, 69, "1") SCORE(70, 71, "1")
#define PLACES(step) "l"(of_q + NEXT_Q(step)), "l"(of_k + NEXT_K(step))
#define PLACES_64 PLACES(0), PLACES(1), PLACES(2), PLACES(3)
/* 16 bytes from the start; boxes of 64 columns follow each other. */
#define NEXT_Q(step) ((step) / 4 * (ROWS * 8) + (step) % 4 * 2)
#define NEXT_K(step) ((step) / 4 * (KEYS * 8) + (step) % 4 * 2)
#if DEPTH == 64
#define SCORE_ALL SCORE_64
#define PLACES_ALL PLACES_64
#else
#define SCORE_ALL                                                                                  \
    SCORE_64 SCORE(72, 73, "1") SCORE(74, 75, "1") SCORE(76, 77, "1") SCORE(78, 79, "1")
#define PLACES_ALL PLACES_64, PLACES(4), PLACES(5), PLACES(6), PLACES(7)
#endif

INLINE void begin_scores(ulong of_q, ulong of_k, float scores[SCORES])
{
    asm volatile("//!wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("//!" SCORE_ALL "wgmma.commit_group.sync.aligned;"
                 : BOUND_64(scores, 0)
                 : PLACES_ALL
                 : "memory");
}

/* O += P V: KEYS / 16 steps of 16 keys, four words of P each. */
#if DEPTH == 64
#define BOUND_SUMS BOUND_32(sums, 0)
#define ADD(w0, w1, w2, w3, v) ADD_(NAMES_32, w0, w1, w2, w3, v)
#define ADD_ALL                                                                                    \
    ADD(32, 33, 34, 35, 64) ADD(36, 37, 38, 39, 65) ADD(40, 41, 42, 43, 66)                        \
    ADD(44, 45, 46, 47, 67) ADD(48, 49, 50, 51, 68) ADD(52, 53, 54, 55, 69)                        \
    ADD(56, 57, 58, 59, 70) ADD(60, 61, 62, 63, 71)
#else
#define BOUND_SUMS BOUND_64(sums, 0)
#define ADD(w0, w1, w2, w3, v) ADD_(NAMES_64, w0, w1, w2, w3, v)
#define ADD_ALL                                                                                    \
    ADD(64, 65, 66, 67, 96) ADD(68, 69, 70, 71, 97) ADD(72, 73, 74, 75, 98)                        \
    ADD(76, 77, 78, 79, 99) ADD(80, 81, 82, 83, 100) ADD(84, 85, 86, 87, 101)                      \
    ADD(88, 89, 90, 91, 102) ADD(92, 93, 94, 95, 103)
#endif
#define ADD_(names, w0, w1, w2, w3, v)                                                             \
    "wgmma.mma_async.sync.aligned.m64n" TEXT(DEPTH) "k16.f32." TEXT(TYPE) "." TEXT(TYPE) " {"      \
    names "}, {%" #w0 ", %" #w1 ", %" #w2 ", %" #w3 "}, %" #v ", 1, 1, 1, 1; "
#define WORDS_4(i)                                                                                 \
    "r"(weights[i]), "r"(weights[i + 1]), "r"(weights[i + 2]), "r"(weights[i + 3])
#define WORDS_16(i) WORDS_4(i), WORDS_4(i + 4), WORDS_4(i + 8), WORDS_4(i + 12)
#define VALUES(step) "l"(of_v + (step) * 128)

INLINE void begin_adding(const uint weights[SCORES / 2], ulong of_v, float sums[SUMS])
{
    asm volatile("//!wgmma.fence.sync.aligned;" : BOUND_SUMS::"memory");
    asm volatile("//!" ADD_ALL "wgmma.commit_group.sync.aligned;"
                 : BOUND_SUMS
                 : WORDS_16(0), WORDS_16(16), VALUES(0), VALUES(1), VALUES(2), VALUES(3),
                   VALUES(4), VALUES(5), VALUES(6), VALUES(7)
                 : "memory");
}

/* ---- weights ---- */

/* Score i of an item: key i / 4 * 8 + lane % 4 * 2 + i % 2 of row lane / 4 + i / 2 % 2 * 8. */
INLINE void hide(float scores[SCORES], long keys, long reach, uint lane)
{
    if (keys >= KEYS && reach >= KEYS - 1)
        return;
    const int first = (lane & 3) * 2, own = (int)clamp(reach, -1024L, 1024L) + (int)(lane >> 2);
    const int most = (int)min(keys, (long)KEYS);
    const int low = min(most, own + 1) - first, high = min(most, own + 9) - first;
#pragma unroll
    for (int i = 0; i < SCORES; i++)
        if (i / 4 * 8 + i % 2 >= (i & 2 ? high : low))
            scores[i] = -INFINITY;
}

#if WINDOW
/* Keys before each row's window. earliest: the first key of the block that the item's warp's first
 * row sees. */
INLINE void hide_earlier(float scores[SCORES], long earliest, uint lane)
{
    if (earliest <= (WINDOW == 1 ? -15 : 0))
        return;
    const int own = (int)clamp(earliest, -1024L, 1024L) - (int)(lane & 3) * 2;
    const int low = own + (WINDOW == 1 ? (int)(lane >> 2) : 0), high = low + (WINDOW == 1 ? 8 : 0);
#pragma unroll
    for (int i = 0; i < SCORES; i++)
        if (i / 4 * 8 + i % 2 < (i & 2 ? high : low))
            scores[i] = -INFINITY;
}
#define HIDE_EARLIER(key) hide_earlier(scores, EARLIEST(row0 + own_row) - (key), lane);
#else
#define HIDE_EARLIER(key)
#endif

#if MASK
INLINE float from_f16(ushort bits)
{
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}

#if MASK == 2
typedef float2 mask_pair;
#elif MASK == 1
typedef uchar2 mask_pair;
#else
typedef ushort2 mask_pair;
#endif

/* Of the item's two rows, from its first key on. */
struct mask {
    __global const mask_type *row[2];
    long column;
};

INLINE struct mask mask_of(__global const mask_type *mask, long m, long mask_row, long column,
                           long row, uint lane)
{
    struct mask of;
    of.row[0] = mask + min(row, m - 1) * mask_row + (lane & 3) * 2 * column;
    of.row[1] = mask + min(row + 8, m - 1) * mask_row + (lane & 3) * 2 * column;
    of.column = column;
    return of;
}

/* Pair i of the item's: of row i % 2 in eight i / 2 of a block's keys. Those past the last are
 * hidden, whatever is read. */
INLINE void read_mask(mask_pair pairs[SCORES / 2], const struct mask *mask, long key, long keys,
                      uint lane)
{
    if (PAIRS && keys >= KEYS) {
#pragma unroll
        for (int i = 0; i < SCORES / 2; i++)
            pairs[i] = *(__global const mask_pair *)(mask->row[i & 1] + key + i / 2 * 8);
        return;
    }
    const int last = (int)min(keys, (long)KEYS) - 1 - (int)(lane & 3) * 2;
#pragma unroll
    for (int i = 0; i < SCORES / 2; i++) {
        __global const mask_type *from = mask->row[i & 1] + key * mask->column;
        pairs[i].x = from[min(i / 2 * 8, last) * mask->column];
        pairs[i].y = from[min(i / 2 * 8 + 1, last) * mask->column];
    }
}

/* A score in units of log 2. */
INLINE float masked(float score, float scale, mask_type mask)
{
#if MASK == 1
    return mask ? score * scale : -INFINITY;
#else
    const float bias = BIAS(mask);
    return bias == -INFINITY ? bias : fma(score, scale, bias);
#endif
}

/* Of `keys` keys from `key` on. */
INLINE void add_mask(float scores[SCORES], const struct mask *mask, long key, long keys,
                     float scale, uint lane)
{
    mask_pair pairs[SCORES / 2];
    read_mask(pairs, mask, key, keys, lane);
#pragma unroll
    for (int i = 0; i < SCORES / 2; i++) {
        scores[2 * i] = masked(scores[2 * i], scale, pairs[i].x);
        scores[2 * i + 1] = masked(scores[2 * i + 1], scale, pairs[i].y);
    }
}
#endif

/* What is kept of an item's two rows. */
struct rows {
    float peak[2], total[2]; /* scores not yet scaled; the item's own share */
};

/* Scores to weights; `faded`: what sums so far are multiplied by. */
INLINE void weigh(float scores[SCORES], struct rows *rows, float scale, float faded[2])
{
    float base[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float peak = rows->peak[r];
#pragma unroll
        for (int i = 0; i < SCORES; i += 4)
            peak = fmax(peak, fmax(scores[i + 2 * r], scores[i + 2 * r + 1]));
        peak = fmax(peak, swap_lanes(peak, 1));
        peak = fmax(peak, swap_lanes(peak, 2));
        base[r] = peak == -INFINITY ? 0.0f : peak * scale;
        faded[r] = power_of_two(rows->peak[r] * scale - base[r]); /* 1 if that is still the peak */
        rows->peak[r] = peak;
    }
    float total[4] = {0.0f, 0.0f, 0.0f, 0.0f}; /* two for each row: sums wait for each other */
#pragma unroll
    for (int i = 0; i < SCORES; i++) {
        const int r = i >> 1 & 1;
        scores[i] = power_of_two(fma(scores[i], scale, -base[r]));
        total[i & 3] += scores[i];
    }
    rows->total[0] = fma(rows->total[0], faded[0], total[0] + total[1]);
    rows->total[1] = fma(rows->total[1], faded[1], total[2] + total[3]);
}

INLINE void fade(float sums[SUMS], const float faded[2])
{
#pragma unroll
    for (int i = 0; i < SUMS; i++)
        sums[i] *= faded[i >> 1 & 1];
}

/* ---- results ---- */

/* A row without a key is 0. out: of the warpgroup's first row. */
INLINE void write_results(const float sums[SUMS], const struct rows *rows, long left, long e,
                          __global result_type *out, long out_row)
{
    const uint item = get_local_id(0) % 128, lane = item % 32;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const long row = item / 32 * 16 + lane / 4 + 8 * r;
        float total = rows->total[r];
        total += swap_lanes(total, 1);
        total += swap_lanes(total, 2);
        const float whole = total == 0.0f ? 0.0f : 1.0f / total;
        __global result_type *to = out + row * out_row + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < SUMS; i += 4)
            if (row < left && i * 2 < e) {
                STORE(to + i * 2, sums[i + 2 * r] * whole, sums[i + 2 * r + 1] * whole);
            }
    }
}

#if LOG_SUM_EXP
/* Of each row log2 of the sum of its scores' exponentials, which the gradient goes by
 * (attention_backward.h); INFINITY without a key. log_sums: of the warpgroup's first row. */
INLINE void write_log_sums(const struct rows *rows, float scale, long left,
                           __global float *log_sums)
{
    const uint item = get_local_id(0) % 128, lane = item % 32;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const long row = item / 32 * 16 + lane / 4 + 8 * r;
        float total = rows->total[r];
        total += swap_lanes(total, 1);
        total += swap_lanes(total, 2);
        if (lane % 4 == 0 && row < left)
            log_sums[row] = total == 0.0f ? INFINITY : fma(rows->peak[r], scale, log2(total));
    }
}
#endif

/* ---- the kernel ---- */

#define STAGE_OF(block) ((block) % STAGES)
#define PHASE_OF(block) ((block) / STAGES & 1)

INLINE void copy_block(uint to, __global const uint4 *map, long first, uint full)
{
    barrier_expect(full, BLOCK);
#pragma unroll
    for (int box = 0; box < DEPTH / 64; box++)
        copy_box(to + box * BOX, map, box * 64, (int)first, 0, full);
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void
attention_wgmma(__global const ushort *restrict q, __global const ushort *restrict k,
                __global const ushort *restrict v, __global result_type *restrict out, long m,
                long n, long d, long e, float scale, long diagonal, long q_offset, long q_row,
                long q_column, long k_offset, long k_row, long k_column, long v_offset, long v_row,
                long v_column, long out_offset, long out_row, __global uint4 *maps,
                long maps_offset
#if LOG_SUM_EXP
                ,
                __global float *restrict log_sums, long log_sums_offset
#endif
#if MASK
                ,
                __global const mask_type *restrict mask, long mask_offset, long mask_row,
                long mask_column
#endif
#if LENGTHS
                ,
                __global const length_type *restrict lengths, long lengths_offset
#endif
#if WINDOW
                ,
                long earliest
#endif
                PASTE(TO_, RUNS)(RUN))
{
    __local uchar memory[1024] __attribute__((aligned(1024)));
    const uint queries = (uint)(size_t)memory, keys = queries + DEPTH / 64 * ROWS * 128,
               values = keys + STAGES * BLOCK, full_q = values + STAGES * BLOCK,
               full_k = full_q + 8, full_v = full_k + 8 * STAGES, empty_k = full_v + 8 * STAGES,
               empty_v = empty_k + 8 * STAGES;
    const uint item = get_local_id(0);
    /* Of a causal matrix the last rows see most keys: they come first. */
    const long row0 = (long)(get_num_groups(1) - 1 - get_group_id(1)) * ROWS;
    long rest = get_group_id(0), first_mask = 0, first_length = 0;

    out += out_offset + row0 * out_row;
    q += q_offset;
    k += k_offset;
    v += v_offset;
    PASTE(TO_, RUNS)(ENTER)
    COUNT_KEYS
#if WINDOW /* as if there were no blocks before the window's first */
    const long skipped = max(EARLIEST(row0), 0L) / KEYS * KEYS;
    k += skipped * k_row;
    v += skipped * v_row;
    n -= skipped;
    diagonal -= skipped;
    earliest -= skipped;
#if MASK
    mask += skipped * mask_column;
#endif
#endif
    const long seen = min(n, min(m, row0 + ROWS) + diagonal);
    const int blocks = seen > 0 ? (int)((seen + KEYS - 1) / KEYS) : 0;
    if (item == 0) {
        barrier_make(full_q, 1);
        for (uint i = 0; i < STAGES; i++) {
            barrier_make(full_k + 8 * i, 1);
            barrier_make(full_v + 8 * i, 1);
            barrier_make(empty_k + 8 * i, 2);
            barrier_make(empty_v + 8 * i, 2);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    if (item < LOADERS) {
        asm volatile("//!setmaxnreg.dec.sync.aligned.u32 40;");
        const int part = item / 32; /* queries, keys, values */
        if (item % 32 == 0 && part < 3 && blocks > 0) {
            __global uint4 *map = maps + maps_offset +
                                  (get_group_id(1) * get_num_groups(0) + get_group_id(0)) * 24 +
                                  8 * part;
            const uint full = part == 1 ? full_k : full_v, empty = part == 1 ? empty_k : empty_v,
                       first = part == 1 ? keys : values;
            describe_operand(map, part == 0 ? q : part == 1 ? k : v, part == 2 ? e : d,
                             part == 0 ? m : n, 1,
                             max(8L, part == 0 ? q_row : part == 1 ? k_row : v_row), 8, 128, 128);
            if (part == 0)
                copy_block(queries, map, row0, full_q);
#pragma unroll 1
            for (int block = 0; part > 0 && block < blocks; block++) {
                const uint stage = STAGE_OF(block);
                barrier_wait(empty + 8 * stage, PHASE_OF(block) ^ 1);
                copy_block(first + stage * BLOCK, map, (long)block * KEYS, full + 8 * stage);
            }
        }
        return;
    }
    asm volatile("//!setmaxnreg.inc.sync.aligned.u32 232;");

    const uint group = item / 128 - 1, lane = item % 32;
    const long own_row = group * 64 + item % 128 / 32 * 16; /* the first of the item's warp */
    /* The last key that it sees, by its position. */
    const long reach = row0 + own_row + diagonal;
    const ulong of_q = describe(queries + group * 8192, 1), of_k = describe(keys, 1),
                of_v = describe(values, BOX / 16);
    float sums[SUMS], scores[SCORES], faded[2];
#if MASK
    const struct mask of_mask = mask_of(mask + mask_offset + first_mask, m, mask_row, mask_column,
                                        row0 + own_row + lane / 4, lane);
#define ADD_MASK(key) add_mask(scores, &of_mask, key, n - (key), scale, lane)
#define UNIT 1.0f /* scores are scaled */
#else
#define ADD_MASK(key)
#define UNIT scale
#endif
    uint weights[SCORES / 2];
    struct rows rows = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}};
#pragma unroll
    for (int i = 0; i < SUMS; i++)
        sums[i] = 0.0f;
#pragma unroll
    for (int i = 0; i < SCORES; i++)
        scores[i] = 0.0f;
#pragma unroll
    for (int i = 0; i < SCORES / 2; i++)
        weights[i] = 0;

    if (blocks > 0) {
        barrier_wait(full_q, 0);
        barrier_wait(full_k, 0);
        begin_scores(of_q, of_k, scores);
        asm volatile("//!wgmma.wait_group.sync.aligned 0;" : BOUND_64(scores, 0)::"memory");
        if (item % 128 == 0)
            barrier_arrive(empty_k);
        ADD_MASK(0L);
        hide(scores, n, reach, lane);
        HIDE_EARLIER(0L)
        weigh(scores, &rows, UNIT, faded);
        pack_weights(scores, weights);
    }
#pragma unroll 1
    for (int block = 1; block < blocks; block++) {
        const uint stage = STAGE_OF(block), before = STAGE_OF(block - 1);
        barrier_wait(full_k + 8 * stage, PHASE_OF(block));
        begin_scores(of_q, of_k + stage * (BLOCK / 16), scores);
        barrier_wait(full_v + 8 * before, PHASE_OF(block - 1));
        begin_adding(weights, of_v + before * (BLOCK / 16), sums);
        asm volatile("//!wgmma.wait_group.sync.aligned 1;" : BOUND_64(scores, 0)::"memory");
        if (item % 128 == 0)
            barrier_arrive(empty_k + 8 * stage);
        ADD_MASK((long)block * KEYS);
        hide(scores, n - (long)block * KEYS, reach - (long)block * KEYS, lane);
        HIDE_EARLIER((long)block * KEYS)
        weigh(scores, &rows, UNIT, faded);
        asm volatile("//!wgmma.wait_group.sync.aligned 0;" : BOUND_SUMS::"memory");
        if (item % 128 == 0)
            barrier_arrive(empty_v + 8 * before);
        fade(sums, faded);
        pack_weights(scores, weights);
    }
    if (blocks > 0) {
        const uint last = STAGE_OF(blocks - 1);
        barrier_wait(full_v + 8 * last, PHASE_OF(blocks - 1));
        begin_adding(weights, of_v + last * (BLOCK / 16), sums);
        asm volatile("//!wgmma.wait_group.sync.aligned 0;" : BOUND_SUMS::"memory");
    }
    write_results(sums, &rows, m - row0 - group * 64, e, out + group * 64 * out_row, out_row);
#if LOG_SUM_EXP
    write_log_sums(&rows, UNIT, m - row0 - group * 64,
                 log_sums + log_sums_offset + get_group_id(0) * m + row0 + group * 64);
#endif
}
