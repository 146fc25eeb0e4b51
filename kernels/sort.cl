/* SPDX-License-Identifier: Apache-2.0 */
/*
 * result[l][p] = the position in line l of the element of values[l] that is number p in order: the
 * smallest first, or with DESCENDING the largest; NaN counts as the largest of all, equal ones stay
 * in their order. K. E. Batcher's bitonic network with the merges' first step turned around, so
 * that all comparisons put the smaller one in front: what is beyond a line's end stays there, and
 * so any length will do.
 *
 * sort_blocks does all steps within segments of a power of two of elements, at most BLOCK, held in
 * local memory with their positions: a work-group has BLOCK / segment of them. With `merges` 0 it
 * sorts them, else it does the last steps of a merge of longer ones over what `result` has.
 *     args    values, offset, result, offset, lines, extent (of a line), segment, merges
 *     global  WG for each work-group
 *     local   WG
 * sort_pass does one step of a merge between elements that are farther apart: `apart` of them, or,
 * with `turned` not 0, mirrored in pieces of twice that.
 *     args    values, offset, result, offset, extent, padded (the extent, up to a power of two),
 *             apart, turned
 *     global  padded / 2 / SPAN for each line; WG * SPAN divides padded / 2
 *     local   WG
 * Integer arguments are long.
 */
#ifndef TYPE
#define TYPE float
#endif
#ifndef ORDER
#define ORDER order_float
#endif
#ifndef WG
#define WG 64
#endif
#ifndef BLOCK
#define BLOCK 1024
#endif
#ifndef SPAN
#define SPAN 1
#endif

/* A text before the file may say how elements of what is stored otherwise are read (operands.h). */
#ifdef OPERAND_A
#define VALUE(i) OPERAND_A(values + (i), 0, 0, 0)
#else
#define OPERAND_A_TYPE TYPE
#define VALUE(i) values[i]
#endif

/* Unsigned integers in the order of the values; -0 is 0. An element is compared by that and then by
 * its position. */
static inline uint order_float(float x)
{
    const uint bits = as_uint(x == 0.0f ? 0.0f : x);
    return x != x ? 0xffffffffu : bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static inline uint order_int(int x)
{
    return (uint)x ^ 0x80000000u;
}

static inline uint order_uchar(uchar x)
{
    return x;
}

static inline uint order_char(char x)
{
    return (uchar)(x ^ 0x80);
}

static inline ulong order_long(long x)
{
    return (ulong)x ^ 0x8000000000000000UL;
}

#ifdef WIDE /* elements of 64 bits */
typedef ulong2 key;
#define LAST_KEY ((key)(0xffffffffffffffffUL))
#define POSITION(key) (int)(uint)(key).y

static inline key key_of(TYPE x, uint position)
{
#ifdef DESCENDING
    return (key)(~ORDER(x), position);
#else
    return (key)(ORDER(x), position);
#endif
}

static inline bool is_behind(key a, key b)
{
    return a.x > b.x || (a.x == b.x && a.y > b.y);
}

static inline void put_in_order(local key *first, local key *second)
{
    const key a = *first, b = *second;
    const bool turn = is_behind(a, b);
    *first = turn ? b : a;
    *second = turn ? a : b;
}
#else
typedef ulong key;
#define LAST_KEY 0xffffffffffffffffUL
#define POSITION(key) (int)(uint)(key)

static inline key key_of(TYPE x, uint position)
{
#ifdef DESCENDING
    return ((ulong)~ORDER(x) << 32) | position;
#else
    return ((ulong)ORDER(x) << 32) | position;
#endif
}

static inline bool is_behind(key a, key b)
{
    return a > b;
}

static inline void put_in_order(local key *first, local key *second)
{
    const key a = *first, b = *second;
    *first = min(a, b);
    *second = max(a, b);
}
#endif

kernel __attribute__((reqd_work_group_size(WG, 1, 1)))
void sort_blocks(global const OPERAND_A_TYPE *restrict values, const long values_offset,
                 global int *result, const long result_offset, const long lines, const long extent,
                 const long segment, const long merges)
{
    local key held[BLOCK];
    const int item = get_local_id(0), size = (int)segment;
    const long pieces = (extent + segment - 1) / segment;
    const long first = get_group_id(0) * (BLOCK / segment);
    values += values_offset;
    result += result_offset;
    for (int e = item; e < BLOCK; e += WG) {
        const long piece = first + e / size, line = piece / pieces;
        const long place = piece % pieces * segment + e % size;
        key own = LAST_KEY;
        if (line < lines && place < extent) {
            const uint at = merges ? (uint)result[line * extent + place] : (uint)place;
            own = key_of(VALUE(line * extent + at), at);
        }
        held[e] = own;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const int longest = merges ? 2 * size : size;
    for (int length = merges ? longest : 2; length <= longest; length *= 2) {
        for (int p = item; !merges && p < BLOCK / 2; p += WG) {
            const int start = p / (length / 2) * length, from = p % (length / 2);
            put_in_order(&held[start + from], &held[start + length - 1 - from]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int apart = length / 4; apart > 0; apart /= 2) {
            for (int p = item; p < BLOCK / 2; p += WG) {
                const int from = p / apart * (2 * apart) + p % apart;
                put_in_order(&held[from], &held[from + apart]);
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
    }
    for (int e = item; e < BLOCK; e += WG) {
        const long piece = first + e / size, line = piece / pieces;
        const long place = piece % pieces * segment + e % size;
        if (line < lines && place < extent)
            result[line * extent + place] = POSITION(held[e]);
    }
}

kernel __attribute__((reqd_work_group_size(WG, 1, 1)))
void sort_pass(global const OPERAND_A_TYPE *restrict values, const long values_offset,
               global int *result, const long result_offset, const long extent, const long padded,
               const long apart, const long turned)
{
    const long first = get_global_id(0) * SPAN, line = first / (padded / 2);
    values += values_offset + line * extent;
    result += result_offset + line * extent;
    for (int k = 0; k < SPAN; k++) {
        const long p = first % (padded / 2) + k;
        const long start = p / apart * (2 * apart), from = p % apart;
        const long a = start + from, b = start + (turned ? 2 * apart - 1 - from : from + apart);
        if (b >= extent)
            continue;
        const int x = result[a], y = result[b];
        if (is_behind(key_of(VALUE(x), (uint)x), key_of(VALUE(y), (uint)y))) {
            result[a] = y;
            result[b] = x;
        }
    }
}
