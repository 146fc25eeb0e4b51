/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One pass of a fast Fourier transform (Stockham's, which needs no order of bits): signals of
 * columns * RADIX complex numbers, of which an item takes LANES sets of RADIX through a small
 * transform each, and turns what comes out.
 *
 *     args    x, turns, y: each memory and offset; columns, apart, x_row, y_row, first, roots,
 * length, scale global  ceil(columns / LANES) up to whole groups, signals, 1           local  any,
 * 1, 1
 *
 * Set t reads numbers t + k * columns of a signal and writes q + apart * (RADIX * p + k), where p
 * is t / apart and q is t % apart, for k below RADIX. What number k becomes is turned by
 * turns[first + (k - 1) * (columns / apart) + p], unless it is the LAST pass; turns[roots + k] are
 * the RADIX roots of 1 where no butterfly is written for them.
 *
 * A signal has x_row numbers in x, of X_PARTS floats, and zeros behind them; the first y_row
 * numbers are written, of Y_PARTS floats. X_SWAPPED and Y_SWAPPED exchange real and imaginary
 * parts, as inverse transforms have it in their first and last pass. X_DOUBLED and Y_DOUBLED:
 * numbers stand for their mirror images, too, but the first and the one in the middle of `length`.
 *
 * LANES sets follow each other, and with ROWS they have one p. A number has the same bits in
 * whichever lane it is.
 */
#ifndef RADIX
#define RADIX 8
#define LANES 4
#define X_PARTS 2
#define Y_PARTS 1
#define X_SWAPPED
#define X_DOUBLED
#endif
#include "helpers.h"

#if LANES == 1
typedef float lanes;
#else
typedef PASTE(float, LANES) lanes;
typedef PASTE(float, LANES) __attribute__((aligned(4))) loose;
#endif
#define EACH_LANE for (int l = 0; l < LANES; l++)

/* Two vectors of pairs to one of first and one of second parts, and back. */
#if LANES == 16
#define FIRSTS(a, b)                                                                               \
    __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define SECONDS(a, b)                                                                              \
    __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)
#define PAIRS_LOW(a, b)                                                                            \
    __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define PAIRS_HIGH(a, b)                                                                           \
    __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif LANES == 8
#define FIRSTS(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14)
#define SECONDS(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15)
#define PAIRS_LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define PAIRS_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#elif LANES == 4
#define FIRSTS(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6)
#define SECONDS(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7)
#define PAIRS_LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define PAIRS_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#endif

/* Complex numbers at + l of `parts` floats, below `end`. */
INLINE void read_run(__global const float *x, long at, long end, const int parts, lanes *first,
                     lanes *second)
{
#if LANES == 1
    *first = at < end ? x[at * parts] : 0;
    *second = at < end && parts == 2 ? x[at * parts + 1] : 0;
#else
    if (at + LANES <= end) {
        __global const loose *whole = (__global const loose *)(x + at * parts);
        const lanes low = whole[0];
        *first = low;
        *second = 0;
        if (parts == 2) {
            const lanes high = whole[1];
            *first = FIRSTS(low, high);
            *second = SECONDS(low, high);
        }
        return;
    }
    float one[LANES], other[LANES];
    EACH_LANE
    {
        one[l] = at + l < end ? x[(at + l) * parts] : 0;
        other[l] = at + l < end && parts == 2 ? x[(at + l) * parts + 1] : 0;
    }
    *first = *(const lanes *)one;
    *second = *(const lanes *)other;
#endif
}

/* One complex number. */
INLINE void write_one(__global float *y, long at, long end, float re, float im)
{
    if (at >= end)
        return;
    y[at * Y_PARTS] = re;
#if Y_PARTS == 2
    y[at * Y_PARTS + 1] = im;
#endif
}

#if LANES > 1
INLINE void write_run(__global float *y, long at, long end, lanes re, lanes im)
{
    __global loose *whole = (__global loose *)(y + at * Y_PARTS);
    if (at + LANES > end) {
        EACH_LANE write_one(y, at + l, end, ((const float *)&re)[l], ((const float *)&im)[l]);
        return;
    }
#if Y_PARTS == 2
    whole[0] = PAIRS_LOW(re, im);
    whole[1] = PAIRS_HIGH(re, im);
#else
    whole[0] = re;
#endif
}
#endif

/* How many numbers one stands for. */
INLINE float images(long at, long apart, long length)
{
    const long place = at / apart;
    return place == 0 || 2 * place == length ? 1 : 2;
}

INLINE lanes images_run(long at, long apart, long length)
{
#if LANES == 1
    return images(at, apart, length);
#else
    float each[LANES];
    EACH_LANE each[l] = images(at + l, apart, length);
    return *(const lanes *)each;
#endif
}

/* ---- small transforms, in place ---- */

#define TURN(a, b, re, im)                                                                         \
    {                                                                                              \
        const lanes was = a;                                                                       \
        a = ADD_PRODUCT(was, (lanes)(re), -(b * (im)));                                            \
        b = ADD_PRODUCT(was, (lanes)(im), b * (re));                                               \
    }

INLINE void transform_2(lanes *re, lanes *im, const int i, const int j)
{
    const lanes a = re[i], b = im[i];
    re[i] = a + re[j];
    im[i] = b + im[j];
    re[j] = a - re[j];
    im[j] = b - im[j];
}

/* Numbers i, i + by, ...; they leave in order. */
INLINE void transform_4(lanes *re, lanes *im, const int i, const int by)
{
    transform_2(re, im, i, i + 2 * by);
    transform_2(re, im, i + by, i + 3 * by);
    transform_2(re, im, i, i + by);
    const lanes a = re[i + 2 * by], b = im[i + 2 * by];
    const lanes c = re[i + 3 * by], d = im[i + 3 * by];
    const lanes middle_re = re[i + by], middle_im = im[i + by];
    re[i + by] = a + d;
    im[i + by] = b - c;
    re[i + 2 * by] = middle_re;
    im[i + 2 * by] = middle_im;
    re[i + 3 * by] = a - d;
    im[i + 3 * by] = b + c;
}

#define COS_8 0.70710678118654752f
#define COS_16 0.92387953251128674f
#define SIN_16 0.38268343236508977f

INLINE void transform(lanes *re, lanes *im, __global const float *roots)
{
#if RADIX == 2
    transform_2(re, im, 0, 1);
#elif RADIX == 4
    transform_4(re, im, 0, 1);
#elif RADIX == 8
    lanes to_re[8], to_im[8];
    transform_4(re, im, 0, 2);
    transform_4(re, im, 1, 2);
    TURN(re[3], im[3], COS_8, -COS_8)
    TURN(re[5], im[5], 0.0f, -1.0f)
    TURN(re[7], im[7], -COS_8, -COS_8)
#pragma unroll
    for (int k = 0; k < 4; k++) {
        transform_2(re, im, 2 * k, 2 * k + 1);
        to_re[k] = re[2 * k];
        to_im[k] = im[2 * k];
        to_re[k + 4] = re[2 * k + 1];
        to_im[k + 4] = im[2 * k + 1];
    }
#pragma unroll
    for (int k = 0; k < 8; k++) {
        re[k] = to_re[k];
        im[k] = to_im[k];
    }
#elif RADIX == 16
    lanes to_re[16], to_im[16];
#pragma unroll
    for (int i = 0; i < 4; i++)
        transform_4(re, im, i, 4);
    TURN(re[5], im[5], COS_16, -SIN_16)
    TURN(re[6], im[6], COS_8, -COS_8)
    TURN(re[7], im[7], SIN_16, -COS_16)
    TURN(re[9], im[9], COS_8, -COS_8)
    TURN(re[10], im[10], 0.0f, -1.0f)
    TURN(re[11], im[11], -COS_8, -COS_8)
    TURN(re[13], im[13], SIN_16, -COS_16)
    TURN(re[14], im[14], -COS_8, -COS_8)
    TURN(re[15], im[15], -COS_16, SIN_16)
#pragma unroll
    for (int k = 0; k < 4; k++)
        transform_4(re, im, 4 * k, 1);
#pragma unroll
    for (int k = 0; k < 16; k++) {
        to_re[k] = re[k % 4 * 4 + k / 4];
        to_im[k] = im[k % 4 * 4 + k / 4];
    }
#pragma unroll
    for (int k = 0; k < 16; k++) {
        re[k] = to_re[k];
        im[k] = to_im[k];
    }
#else
    lanes to_re[RADIX], to_im[RADIX];
    for (int k = 0; k < RADIX; k++) {
        lanes sum_re = re[0], sum_im = im[0];
        for (int j = 1, root = k; j < RADIX; j++, root = (root + k) % RADIX) {
            const lanes c = (lanes)(roots[2 * root]), s = (lanes)(roots[2 * root + 1]);
            sum_re = ADD_PRODUCT(re[j], c, ADD_PRODUCT(-im[j], s, sum_re));
            sum_im = ADD_PRODUCT(re[j], s, ADD_PRODUCT(im[j], c, sum_im));
        }
        to_re[k] = sum_re;
        to_im[k] = sum_im;
    }
    for (int k = 0; k < RADIX; k++) {
        re[k] = to_re[k];
        im[k] = to_im[k];
    }
#endif
}

/* ---- the pass ---- */

/* Number k of the sets from t on, which begin with p's. */
INLINE void turn(lanes *re, lanes *im, int k, long t, long apart, long columns,
                 __global const float *turns)
{
    const long of_k = (k - 1) * (columns / apart);
#if LANES == 1 || defined ROWS
    const long p = of_k + t / apart;
    const lanes c = (lanes)(turns[2 * p]), s = (lanes)(turns[2 * p + 1]);
#else
    lanes c, s;
    if (apart == 1) {
        read_run(turns, of_k + t, of_k + columns, 2, &c, &s);
    } else {
        float each_c[LANES], each_s[LANES];
        EACH_LANE
        {
            const long p = of_k + (t + l < columns ? (uint)(t + l) / (uint)apart : 0);
            each_c[l] = turns[2 * p];
            each_s[l] = turns[2 * p + 1];
        }
        c = *(const lanes *)each_c;
        s = *(const lanes *)each_s;
    }
#endif
    TURN(*re, *im, c, s)
}

#ifdef Y_SWAPPED
#define FIRST_OF(re, im) im
#define SECOND_OF(re, im) re
#else
#define FIRST_OF(re, im) re
#define SECOND_OF(re, im) im
#endif

__kernel void kiln_fft(__global const float *x, const long x_offset, __global const float *turns,
                       const long turns_offset, __global float *y, const long y_offset,
                       const long columns, const long apart, const long x_row, const long y_row,
                       const long first, const long roots, const long length, const float scale)
{
    const long t = (long)get_global_id(0) * LANES, signal = get_global_id(1);
    lanes re[RADIX], im[RADIX];
    if (t >= columns)
        return;
    x += x_offset + signal * x_row * X_PARTS;
    y += y_offset + signal * y_row * Y_PARTS;
    turns += turns_offset;
#pragma unroll
    for (int k = 0; k < RADIX; k++) {
#ifdef X_SWAPPED
        read_run(x, t + k * columns, x_row, X_PARTS, &im[k], &re[k]);
#else
        read_run(x, t + k * columns, x_row, X_PARTS, &re[k], &im[k]);
#endif
#ifdef X_DOUBLED
        const lanes times = images_run(t + k * columns, apart, length);
        re[k] *= times;
        im[k] *= times;
#endif
    }
    transform(re, im, turns + 2 * roots);
#pragma unroll
    for (int k = 0; k < RADIX; k++) {
#ifndef LAST
        if (k)
            turn(&re[k], &im[k], k, t, apart, columns, turns + 2 * first);
#endif
        re[k] *= scale;
        im[k] *= scale;
    }
#if LANES == 1 || defined ROWS
    const long p = t / apart, at = t % apart + apart * RADIX * p;
#pragma unroll
    for (int k = 0; k < RADIX; k++) {
#ifdef Y_DOUBLED
        const lanes times = images_run(at + k * apart, apart / (length / RADIX), length);
        re[k] *= times;
        im[k] *= times;
#endif
#if LANES == 1
        write_one(y, at + k * apart, y_row, FIRST_OF(re[k], im[k]), SECOND_OF(re[k], im[k]));
#else
        write_run(y, at + k * apart, y_row, FIRST_OF(re[k], im[k]), SECOND_OF(re[k], im[k]));
#endif
    }
#else
    for (int l = 0; l < LANES && t + l < columns; l++) {
        const long p = (uint)(t + l) / (uint)apart, at = t + l - p * apart + apart * RADIX * p;
#pragma unroll
        for (int k = 0; k < RADIX; k++) {
            float one = ((const float *)&re[k])[l], other = ((const float *)&im[k])[l];
#ifdef Y_DOUBLED
            const float times = images(at + k * apart, apart / (length / RADIX), length);
            one *= times;
            other *= times;
#endif
            write_one(y, at + k * apart, y_row, FIRST_OF(one, other), SECOND_OF(one, other));
        }
    }
#endif
}
