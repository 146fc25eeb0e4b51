/* SPDX-License-Identifier: Apache-2.0 */
/*
 * result[l][p] = the position in line l of the element of values[l] that is number p in order, the
 * first `kept` of them: the smallest first, or with DESCENDING the largest (sort.h); equal ones stay
 * in their order. An item takes one line after the other, or with `parts` above 1 one part of a line
 * after the other, of which result[l][part] gets the first. With `listed` above 0 a line consists of
 * so many of its elements alone, those at the positions `from`.
 *
 * Where fewer are kept than there are, digits of 11 bits, the leading one first, narrow down which:
 * elements are counted by their digit, and those of later digits than the last that is kept go. What
 * is left is put in order by insertion, if it is little, else by all digits, the last one first.
 *     args    values, offset, from, offset, result, offset, room (twice the elements of a part or
 *             line for each item), offset, lines, extent (of a line), kept, parts, listed
 *     global  any
 *     local   1
 * Integer arguments are long.
 */
#include "sort.h"

/* As few are put in order by insertion. */
#ifndef FEW
#define FEW 48
#endif

/* More than so many have to go, or the elements are not narrowed down. */
#ifndef SPARE
#define SPARE 256
#endif

#define WIDTH 11 /* bits of a digit that narrows */
#define TOP (LOW + 8 * PASSES)

/* Elements of which some are taken: all of a part of a line, or those that are listed. */
struct source {
    global const OPERAND_A_TYPE *values;
    global const int *from; /* NULL: all */
    long first, count;
};

static inline key source_key(const struct source *source, long i)
{
    const long at = source->from ? source->from[i] : source->first + i;
    return key_of(VALUE(source->values, at), (uint)at);
}

/* The first digit up to which there are `kept` elements; these become fewer by those before it. */
static inline int last_digit(const uint *counts, long *kept)
{
    int digit = 0;
    while ((long)counts[digit] < *kept)
        *kept -= counts[digit++];
    return digit;
}

/* Put what may be among the first `kept` of the source into `room`, in its order; how many. */
static long narrow(const struct source *source, long kept, global key *room)
{
    uint counts[1 << WIDTH];
    long held = source->count, missing = kept;
    ulong last = 0; /* leading digits of the last one that is kept */
    bool fresh = true;
    for (int above = TOP; held > kept + SPARE && above > LOW;) {
        const int shift = max(above - WIDTH, LOW), width = above - shift;
        for (int d = 0; d < 1 << WIDTH; d++)
            counts[d] = 0;
        for (long i = 0; i < held; i++) {
            const ulong integer = INTEGER(fresh ? source_key(source, i) : room[i]);
            const ulong leading = integer >> shift;
            if (fresh || leading >> width == last)
                counts[leading & ((1 << width) - 1)]++;
        }
        last = last << width | (ulong)last_digit(counts, &missing);
        /* Of those that are alike in all digits the first ones stay. */
        long alike = shift > LOW ? held : missing, next = 0;
        for (long i = 0; i < held; i++) {
            const key own = fresh ? source_key(source, i) : room[i];
            const ulong leading = (ulong)INTEGER(own) >> shift;
            if (leading < last || (leading == last && alike-- > 0))
                room[next++] = own;
        }
        held = next;
        above = shift;
        fresh = false;
    }
    for (long i = 0; fresh && i < held; i++)
        room[i] = source_key(source, i);
    return held;
}

static void insert(global key *room, long count)
{
    for (long i = 1; i < count; i++) {
        const key own = room[i];
        long at = i;
        for (; at > 0 && is_behind(room[at - 1], own); at--)
            room[at] = room[at - 1];
        room[at] = own;
    }
}

/* Put them in order; where they are then, there or in `other`. */
static global key *order_by_digits(global key *room, global key *other, long count)
{
    uint counts[PASSES][256];
    for (int d = 0; d < PASSES * 256; d++)
        counts[d / 256][d % 256] = 0;
    for (long i = 0; i < count; i++)
        for (int d = 0; d < PASSES; d++)
            counts[d][DIGIT(room[i], LOW + 8 * d)]++;
    for (int d = 0; d < PASSES; d++) {
        const int shift = LOW + 8 * d;
        uint sum = 0;
        if (counts[d][DIGIT(room[0], shift)] == count)
            continue; /* one digit for all */
        for (int k = 0; k < 256; k++) {
            const uint own = counts[d][k];
            counts[d][k] = sum;
            sum += own;
        }
        for (long i = 0; i < count; i++)
            other[counts[d][DIGIT(room[i], shift)]++] = room[i];
        global key *turn = room;
        room = other;
        other = turn;
    }
    return room;
}

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void sort_lines(global const OPERAND_A_TYPE *values, const long values_offset,
                global const int *from, const long from_offset, global int *result,
                const long result_offset, global key *room, const long room_offset,
                const long lines, const long extent, const long kept, const long parts,
                const long listed)
{
    const long longest = listed ? listed : (extent + parts - 1) / parts;
    global key *own = room + room_offset + get_global_id(0) * 2 * longest, *other = own + longest;
    result += result_offset;
    for (long task = get_global_id(0); task < lines * parts; task += get_global_size(0)) {
        const long line = task / parts, part = task % parts;
        struct source source = {values + values_offset + line * extent, 0, 0, listed};
        if (listed)
            source.from = from + from_offset + line * listed;
        else {
            source.first = extent * part / parts;
            source.count = extent * (part + 1) / parts - source.first;
        }
        const long count = narrow(&source, kept, own);
        global key *ordered = own;
        if (count <= FEW)
            insert(own, count);
        else
            ordered = order_by_digits(own, other, count);
        for (long p = 0; p < kept; p++)
            result[task * kept + p] = POSITION(ordered[p]);
    }
}
