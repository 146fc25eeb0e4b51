/* SPDX-License-Identifier: Apache-2.0 */
/* What a pass of kernels/fft.cl computes, by the host in float64 from the sums alone. */
#include <complex.h>
#include <math.h>
#include <string.h>

#include "nn/fft.h"

#define PI 3.14159265358979323846

/* Not every compiler has CMPLX, and infinities times I are NaN. */
static double complex complex_of(double re, double im)
{
    /* A complex number's two parts lie in a row: C11, 6.2.5. */
    const double parts[2] = {re, im};
    double complex made = 0;
    memcpy(&made, parts, sizeof made);
    return made;
}

/* A number and what it counts for; beyond the end 0. */
struct side {
    float *data;
    size_t row, parts;
    bool swapped, doubled;
};

static double images(const struct kiln__fft_pass *pass, const struct side *side, size_t at)
{
    const size_t place = at / pass->inner;
    return side->doubled && place && 2 * place != pass->fft.length ? 2 : 1;
}

static double complex read_number(const struct kiln__fft_pass *pass, const struct side *side,
                                  size_t at)
{
    if (at >= side->row)
        return 0;
    const float *number = side->data + at * side->parts;
    const double re = number[0], im = side->parts == 2 ? number[1] : 0;
    return images(pass, side, at) * (side->swapped ? complex_of(im, re) : complex_of(re, im));
}

static void write_number(const struct kiln__fft_pass *pass, const struct side *side, size_t at,
                         double complex value)
{
    if (at >= side->row)
        return;
    value *= images(pass, side, at);
    side->data[at * side->parts] = (float)(side->swapped ? cimag(value) : creal(value));
    if (side->parts == 2)
        side->data[at * side->parts + 1] = (float)(side->swapped ? creal(value) : cimag(value));
}

/* exp(-2 pi i k / n) */
static double complex turn(size_t k, size_t n)
{
    const double angle = -2 * PI * (double)(k % n) / (double)n;
    return complex_of(cos(angle), sin(angle));
}

static double complex magnitude(double complex value)
{
    const double sum = fabs(creal(value)) + fabs(cimag(value));
    return complex_of(sum, sum);
}

static void take_set(const struct kiln__fft_pass *pass, const struct side *x, const struct side *y,
                     size_t t, bool spreads)
{
    const size_t p = t / pass->apart, sets = pass->columns / pass->apart;
    const size_t to = t % pass->apart + pass->apart * pass->radix * p;
    double complex in[KILN__FFT_MOST_RADIX], roots[KILN__FFT_MOST_RADIX];
    for (size_t j = 0; j < pass->radix; j++) {
        in[j] = read_number(pass, x, t + j * pass->columns);
        roots[j] = turn(j, pass->radix);
    }
    for (size_t k = 0; k < pass->radix; k++) {
        double complex sum = 0;
        for (size_t j = 0; j < pass->radix; j++)
            sum += spreads ? magnitude(in[j]) : in[j] * roots[j * k % pass->radix];
        if (!spreads)
            sum *= turn(p * k, sets * pass->radix);
        write_number(pass, y, to + k * pass->apart, (pass->is_last ? pass->fft.scale : 1) * sum);
    }
}

static void take_pass(const kiln_array *inputs, const kiln_array *outputs, const double *scalars,
                      bool spreads)
{
    struct kiln__fft_pass pass;
    kiln__fft_read(scalars, &pass);
    const struct kiln__fft *fft = &pass.fft;
    struct side x = {.data = inputs[0].data,
                     .row = inputs[0].dims[1] * pass.inner,
                     .parts = inputs[0].dims[3],
                     .swapped = pass.is_first && fft->inverse,
                     .doubled = pass.is_first && fft->x_doubled};
    struct side y = {.data = outputs[0].data,
                     .row = outputs[0].dims[1] * pass.inner,
                     .parts = outputs[0].dims[3],
                     .swapped = pass.is_last && fft->inverse,
                     .doubled = pass.is_last && fft->y_doubled};
    for (size_t i = 0; i < outputs[0].dims[0]; i++) {
        for (size_t t = 0; t < pass.columns; t++)
            take_set(&pass, &x, &y, t, spreads);
        x.data += x.row * x.parts;
        y.data += y.row * y.parts;
    }
}

void kiln__fft_host(const kiln_array *inputs, const kiln_array *outputs, const double *scalars,
                    void *user)
{
    (void)user;
    take_pass(inputs, outputs, scalars, false);
}

void kiln__fft_spread(const kiln_array *inputs, const kiln_array *outputs, const double *scalars,
                      void *user)
{
    (void)user;
    take_pass(inputs, outputs, scalars, true);
}
