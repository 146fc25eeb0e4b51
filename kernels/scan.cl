/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running sums y of x along n, both dense [outer][n][inner]; `lines` is outer * inner. With
 * REVERSED from the end. IN and OUT are the types of an element and of a sum.
 *
 *   scan_lines: an item owns `chunk` lines, one after the other.
 *     args    x, y, lines, n, inner, x_offset, y_offset, chunk
 *     global  ceil(lines / chunk)                                           local  1
 *   scan_columns: an item owns a line; neighbours are neighbours in memory where inner is not 1.
 *     args    the same without chunk
 *     global  lines, rounded up                                             local  WG
 *   scan_rows: a work-group owns a line of neighbours, inner is 1; SHARE elements for each item at a
 *   time.
 *     args    the same
 *     global  lines * WG                                                    local  WG
 *
 * Integer arguments are long. The order of additions depends on n alone.
 */
#ifndef IN
#define IN float
#endif
#ifndef OUT
#define OUT float
#endif
#ifndef WG
#define WG 64
#endif
#ifndef SHARE
#define SHARE 4
#endif
#ifdef REVERSED
#define AT(i) (n - 1 - (i))
#else
#define AT(i) (i)
#endif

static void scan_line(global const IN *from, global OUT *to, const long n, const long inner)
{
    OUT sum = 0;
    for (long i = 0; i < n; i++) {
        sum += (OUT)from[AT(i) * inner];
        to[AT(i) * inner] = sum;
    }
}

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void scan_lines(global const IN *restrict x, global OUT *restrict y, const long lines, const long n,
    const long inner, const long x_offset, const long y_offset, const long chunk)
{
    const long first = get_global_id(0) * chunk, last = min(first + chunk, lines);
    for (long line = first; line < last; line++) {
        const long start = line / inner * n * inner + line % inner;
        scan_line(x + x_offset + start, y + y_offset + start, n, inner);
    }
}

kernel __attribute__((reqd_work_group_size(WG, 1, 1)))
void scan_columns(global const IN *restrict x, global OUT *restrict y, const long lines,
    const long n, const long inner, const long x_offset, const long y_offset)
{
    const long line = get_global_id(0), start = line / inner * n * inner + line % inner;
    if (line < lines)
        scan_line(x + x_offset + start, y + y_offset + start, n, inner);
}

kernel __attribute__((reqd_work_group_size(WG, 1, 1)))
void scan_rows(global const IN *restrict x, global OUT *restrict y, const long lines, const long n,
    const long inner, const long x_offset, const long y_offset)
{
    local OUT totals[WG];
    const int item = get_local_id(0);
    global const IN *from = x + x_offset + get_group_id(0) * n;
    global OUT *to = y + y_offset + get_group_id(0) * n;
    OUT before = 0;
    for (long tile = 0; tile < n; tile += WG * SHARE) {
        OUT sums[SHARE], sum = 0;
        const long first = tile + item * SHARE;
        for (int k = 0; k < SHARE; k++) {
            sum += first + k < n ? (OUT)from[AT(first + k)] : (OUT)0;
            sums[k] = sum;
        }
        totals[item] = sum;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int back = 1; back < WG; back *= 2) {
            const OUT other = item >= back ? totals[item - back] : (OUT)0;
            barrier(CLK_LOCAL_MEM_FENCE);
            totals[item] += other;
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        const OUT start = before + (item ? totals[item - 1] : (OUT)0);
        for (int k = 0; k < SHARE; k++)
            if (first + k < n)
                to[AT(first + k)] = start + sums[k];
        before += totals[WG - 1];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
