/* SPDX-License-Identifier: Apache-2.0 */
/* Fast transforms: the device beside the host, and both beside sums in double precision that know
 * nothing of passes; gradients; the same bits alone and in company; numbers that are none. */
#include <complex.h>
#include <criterion/criterion.h>
#include <kiln/gradient.h>
#include <kiln/operations.h>
#include <kiln/signal.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../support/gradient.h"
#include "nn/fft.h"

#define PI 3.14159265358979323846
#define CLOSE 4e-7 /* relative to all numbers together */

/* x [signals, extent, inner, parts], transformed along dimension 1. */
struct sample {
    size_t signals, extent, inner, parts, length;
    kiln_dft_kind kind;
};

static size_t bins_of(const struct sample *s)
{
    return s->kind == KILN_DFT_HALF ? s->length / 2 + 1 : s->length;
}

static size_t parts_of(const struct sample *s)
{
    return s->kind == KILN_DFT_REAL ? 1 : 2;
}

static bool goes_back(const struct sample *s)
{
    return s->kind == KILN_DFT_INVERSE || s->kind == KILN_DFT_REAL;
}

/* What number j is multiplied with in bin k. */
static double complex factor(const struct sample *s, size_t j, size_t k)
{
    const double turn = 2 * PI * (double)(j * k % s->length) / (double)s->length;
    const double twice = s->kind == KILN_DFT_REAL && j && 2 * j != s->length ? 2 : 1;
    return cexp((goes_back(s) ? I : -I) * turn) * (goes_back(s) ? twice / (double)s->length : 1);
}

static size_t taken(const struct sample *s)
{
    const size_t most = s->kind == KILN_DFT_REAL ? s->length / 2 + 1 : s->length;
    return s->extent < most ? s->extent : most;
}

static double complex number_at(const float *x, size_t at, size_t parts)
{
    return parts == 2 ? x[2 * at] + I * (double)x[2 * at + 1] : x[at];
}

static void add_number(double *y, size_t at, size_t parts, double complex value)
{
    y[at * parts] += creal(value);
    if (parts == 2)
        y[at * parts + 1] += cimag(value);
}

/* Forwards y from x; backwards what flows from y's gradient to x, by the matrix' conjugate. */
static double *sums(const struct sample *s, const float *from, bool backwards)
{
    const size_t ins = s->signals * s->extent * s->inner * s->parts;
    const size_t outs = s->signals * bins_of(s) * s->inner * parts_of(s);
    double *to = calloc(backwards ? ins : outs, sizeof *to);
    double complex *factors = malloc(s->length * sizeof *factors);
    for (size_t k = 0; k < bins_of(s); k++) {
        for (size_t j = 0; j < taken(s); j++)
            factors[j] = factor(s, j, k);
        for (size_t i = 0; i < s->signals * s->inner; i++)
            for (size_t j = 0; j < taken(s); j++) {
                const size_t signal = i / s->inner, q = i % s->inner;
                const size_t at_x = (signal * s->extent + j) * s->inner + q;
                const size_t at_y = (signal * bins_of(s) + k) * s->inner + q;
                if (backwards)
                    add_number(to, at_x, s->parts,
                               number_at(from, at_y, parts_of(s)) * conj(factors[j]));
                else
                    add_number(to, at_y, parts_of(s), number_at(from, at_x, s->parts) * factors[j]);
            }
    }
    free(factors);
    return to;
}

static void expect_close(const struct sample *s, const float *found, const double *wanted,
                         size_t count, const char *what)
{
    double off = 0, all = 0;
    for (size_t i = 0; i < count; i++) {
        off += (found[i] - wanted[i]) * (found[i] - wanted[i]);
        all += wanted[i] * wanted[i];
    }
    cr_expect(off <= CLOSE * CLOSE * all, "%s: kind %d of %zu: off by %g", what, (int)s->kind,
              s->length, sqrt(off / all));
}

static float *numbers(size_t count)
{
    float *data = malloc((count + 1) * sizeof *data);
    for (size_t i = 0; i < count; i++)
        data[i] = (float)check_random(2001) / 1000 - 1;
    return data;
}

/* The transform, and what flows back from numbers. */
static void expect_transform(const struct sample *s)
{
    const size_t ins = s->signals * s->extent * s->inner * s->parts;
    const size_t outs = s->signals * bins_of(s) * s->inner * parts_of(s);
    float *given = numbers(ins), *flows = numbers(outs);
    kiln_batch *b = check_begin();
    kiln_tensor x =
        check_given(b, KILN_F32, DIMS(s->signals, s->extent, s->inner, s->parts), given);
    kiln_tensor w =
        check_given(b, KILN_F32, DIMS(s->signals, bins_of(s), s->inner, parts_of(s)), flows);
    kiln_tensor y = kiln_dft(b, x, 1, s->length, s->kind), g;
    kiln_tensor loss = kiln_sum(b, kiln_mul(b, y, w), 0, NULL, 0);
    cr_assert(!kiln_grad(b, loss, &x, 1, &g), "%s", kiln_batch_error(b));
    const float *found = check_read(b, y), *back = check_read(b, g);
    double *wanted = sums(s, given, false), *wanted_back = sums(s, flows, true);
    if (check_run(b)) {
        expect_close(s, found, wanted, outs, "transform");
        expect_close(s, back, wanted_back, ins, "gradient");
    }
    check_end(b);
    free(wanted);
    free(wanted_back);
    free(given);
    free(flows);
}

/* All kinds, of signals as long as the transform, shorter and longer. */
static void expect_length(size_t length, size_t signals, size_t inner)
{
    const size_t half = length / 2 + 1;
    const struct sample samples[] = {{signals, length, inner, 1, length, KILN_DFT_HALF},
                                     {signals, half, inner, 2, length, KILN_DFT_REAL},
                                     {signals, length - 7, inner, 2, length, KILN_DFT},
                                     {signals, length + 3, inner, 2, length, KILN_DFT_INVERSE}};
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
        expect_transform(&samples[i]);
}

Test(fft, lengths_with_small_factors)
{
    check_cheaply();
    expect_length(72, 3, 1); /* 8 x 3 x 3 */
    check_close();
}

Test(fft, lengths_with_large_factors)
{
    check_cheaply();
    expect_length(263, 2, 1);
    check_close();
}

Test(fft, slow_further_lengths)
{
    expect_length(65, 2, 1);   /* 5 x 13: no vector has one turn */
    expect_length(96, 2, 3);   /* 16 x 2 x 3, and numbers that are three apart */
    expect_length(128, 1, 16); /* whole vectors from the first pass on */
    expect_length(250, 2, 1);
    expect_length(961, 1, 1); /* the largest radix */
    expect_length(1009, 1, 2);
    expect_length(2048, 2, 1);
    check_close();
}

Test(fft, nothing_and_zeros)
{
    kiln_batch *b = check_begin();
    kiln_tensor none = kiln_dft(b, check_plain(b, DIMS(0, 72, 2)), 1, 0, KILN_DFT);
    kiln_tensor zeros = kiln_dft(b, check_plain(b, DIMS(2, 0, 1)), 1, 72, KILN_DFT);
    check_read(b, none);
    const float *found = check_read(b, zeros);
    cr_assert(check_run(b));
    for (size_t i = 0; i < 288; i++)
        cr_expect_eq(found[i], 0);
    check_end(b);
    check_close();
}

/* A signal has the same bits as first of five and alone, and neighbours that are no numbers leave
 * it as it is; where a signal has one, all bins have none. */
Test(fft, has_the_same_bits_in_company)
{
    const float bad[] = {NAN, INFINITY, -INFINITY};
    float *given = numbers(5 * 72);
    kiln_batch *b = check_begin();
    for (unsigned i = 0; i < 3; i++)
        given[(2 + i) * 72 + 5 + i] = bad[i];
    kiln_tensor many = check_given(b, KILN_F32, DIMS(5, 72, 1), given);
    kiln_tensor one = check_given(b, KILN_F32, DIMS(1, 72, 1), given + 72);
    const float *in_company = check_read(b, kiln_dft(b, many, 1, 0, KILN_DFT));
    const float *alone = check_read(b, kiln_dft(b, one, 1, 0, KILN_DFT));
    cr_assert(!kiln_batch_execute(b), "%s", kiln_batch_error(b));
    cr_expect_eq(memcmp(in_company + 144, alone, 144 * sizeof(float)), 0);
    for (size_t i = 2 * 144; i < 5 * 144; i += 2)
        cr_expect(!isfinite(in_company[i]) || !isfinite(in_company[i + 1]), "number %zu", i);
    check_end(b);
    free(given);
    check_close();
}

Test(fft, passes_multiply_to_the_length)
{
    const struct kiln__record_limits cpu = {.vector = 8}, gpu = {0};
    for (size_t length = 2; length < 3000; length++) {
        const struct kiln__fft fft = {.length = length};
        struct kiln__fft_pass pass;
        size_t product = 1, at = 0;
        for (unsigned i = 0; kiln__fft_supports(&cpu, length) && kiln__fft_pass(&fft, 1, i, &pass);
             i++) {
            cr_assert_eq(pass.first, at);
            cr_assert_eq(pass.apart, product);
            cr_assert_eq(pass.is_first, i == 0);
            product *= pass.radix;
            cr_assert_eq(pass.is_last, product == length);
            cr_assert_eq(pass.columns, length / pass.radix);
            at = pass.roots + (pass.radix & (pass.radix - 1) ? pass.radix : 0);
        }
        cr_assert(!kiln__fft_supports(&cpu, length) || product == length);
    }
    cr_expect(!kiln__fft_supports(&cpu, 37) && !kiln__fft_supports(&cpu, 74) &&
              !kiln__fft_supports(&cpu, 0));
    cr_expect(kiln__fft_supports(&cpu, 17 * 16) && !kiln__fft_supports(&gpu, 17 * 16) &&
              kiln__fft_supports(&gpu, 13 * 16));
}
