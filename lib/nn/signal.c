/* SPDX-License-Identifier: Apache-2.0 */
/* Spectra: short ones as products with tables that the host computes in double precision. */
#include <kiln/elementwise.h>
#include <kiln/movement.h>
#include <kiln/operations.h>
#include <kiln/product.h>
#include <kiln/signal.h>

#include <math.h>
#include <stdlib.h>

#include "nn/fft.h"
#include "record/batch.h"
#include "record/call.h"

#define MOST_PRODUCT 64         /* numbers that are transformed by a product with a matrix */
#define MOST_PRODUCT_PRIME 256  /* the same of lengths with a large prime factor */
#define MOST_ENTRIES (1 << 26)  /* of a matrix */
#define MOST_ELEMENTS (1 << 22) /* of a window */
#define PI 3.14159265358979323846

/* One transform: `taps` numbers of `in` parts become `bins` of `out` parts. */
struct transform {
    kiln_batch *batch;
    const char *name;
    kiln_dft_kind kind;
    size_t length, taps, bins, in, out;
};

static bool signal_fits(const struct transform *t)
{
    double entries = (double)t->taps * (double)t->in * (double)t->bins * (double)t->out;
    if (entries <= MOST_ENTRIES)
        return true;
    kiln__fail(
        &t->batch->error, KILN_TOO_LARGE,
        "%s: a transform of %zu numbers takes a matrix of %g elements, and 2^26 are the most",
        t->name, t->length, entries);
    return false;
}

/* The cosine and sine of 2 pi i / length for each i. */
static double *turns_of(const struct transform *t)
{
    double *turns = malloc((2 * t->length + 1) * sizeof *turns);
    for (size_t i = 0; turns && i < t->length; i++) {
        turns[2 * i] = cos(2 * PI * (double)i / (double)t->length);
        turns[2 * i + 1] = sin(2 * PI * (double)i / (double)t->length);
    }
    if (!turns)
        kiln__fail(&t->batch->error, KILN_OUT_OF_HOST_MEMORY, "%s: no memory to record", t->name);
    return turns;
}

/* What number `tap` adds to number `bin`: a complex factor. Of half a spectrum each number stands
 * for its mirror image too. */
static void signal_factor(const struct transform *t, const double *turns, size_t tap, size_t bin,
                          double *re, double *im)
{
    bool back = t->kind == KILN_DFT_INVERSE || t->kind == KILN_DFT_REAL;
    const double *turn = turns + 2 * (tap * bin % t->length);
    double scale = back ? 1 / (double)t->length : 1;
    if (t->kind == KILN_DFT_REAL && tap && 2 * tap != t->length)
        scale *= 2;
    *re = scale * turn[0];
    *im = scale * (back ? turn[1] : -turn[1]);
}

/* One tap's row of the matrix. */
static void fill_row(const struct transform *t, const double *turns, size_t tap, float *row)
{
    for (size_t bin = 0; bin < t->bins; bin++) {
        double re, im;
        float *real = row + bin * t->out, *imaginary = real + t->bins * t->out;
        signal_factor(t, turns, tap, bin, &re, &im);
        real[0] = (float)re;
        if (t->out == 2)
            real[1] = (float)im;
        if (t->in == 2)
            imaginary[0] = (float)-im;
        if (t->in == 2 && t->out == 2)
            imaginary[1] = (float)re;
    }
}

/* [taps, in * bins * out] */
static kiln_tensor record_matrix(const struct transform *t)
{
    const size_t dims[] = {t->taps, t->in * t->bins * t->out};
    float *table = signal_fits(t)
                       ? kiln__batch_alloc(t->batch, dims[0] * dims[1], sizeof *table, t->name)
                       : NULL;
    double *turns = table ? turns_of(t) : NULL;
    for (size_t tap = 0; turns && tap < t->taps; tap++)
        fill_row(t, turns, tap, table + tap * dims[1]);
    free(turns);
    return t->batch->error.status ? kiln__none : kiln_upload(t->batch, KILN_F32, 2, dims, table);
}

static struct kiln__shape shape_of(const struct transform *t, kiln_tensor x)
{
    const struct kiln__shape nothing = {0};
    return t->batch->error.status ? nothing : kiln__tensor_node(t->batch, x)->shape;
}

/* A spectrum is no layer of a network: its operands are not rounded to a narrow type. */
static kiln_tensor multiply(kiln_batch *batch, kiln_tensor x, kiln_tensor matrix)
{
    const uint8_t usual = batch->product;
    if (kiln__product_narrow(usual))
        batch->product = KILN__PRODUCT_EXACT;
    x = kiln_matmul(batch, x, matrix);
    batch->product = usual;
    return x;
}

/* x [..., taps, in], times a window [taps] or none, to [..., bins, out]. */
static kiln_tensor signal_apply(const struct transform *t, kiln_tensor x, kiln_tensor window)
{
    kiln_batch *batch = t->batch;
    kiln_tensor matrix = record_matrix(t);
    if (window.id)
        matrix = kiln_mul(batch, matrix, kiln_reshape(batch, window, 2, (size_t[]){t->taps, 1}));
    matrix = kiln_reshape(batch, matrix, 2, (size_t[]){t->taps * t->in, t->bins * t->out});
    struct kiln__shape shape = shape_of(t, x);
    if (batch->error.status)
        return kiln__none;
    shape.rank--;
    shape.dims[shape.rank - 1] = t->taps * t->in;
    x = multiply(batch, kiln_reshape(batch, x, shape.rank, shape.dims), matrix);
    shape.dims[shape.rank - 1] = t->bins;
    shape.dims[shape.rank++] = t->out;
    x = batch->error.status ? kiln__none : kiln_reshape(batch, x, shape.rank, shape.dims);
    return batch->error.status ? kiln__none : x;
}

/* ---- operands ---- */

static bool read_signal(struct transform *t, kiln_tensor x, size_t least, struct kiln__shape *shape)
{
    const struct kiln__node *node = kiln__batch_floating(t->batch, x, t->name, "x");
    if (!node)
        return false;
    *shape = node->shape;
    t->in = shape->rank ? shape->dims[shape->rank - 1] : 0;
    if (shape->rank < least || (t->in != 1 && t->in != 2))
        kiln__fail(&t->batch->error, KILN_SHAPE_MISMATCH,
                   "%s: operand x of shape %s is no signal: its last dimension must be 1 or 2",
                   t->name, kiln__shape_text(shape).text);
    else if ((unsigned)t->kind > KILN_DFT_REAL)
        kiln__fail(&t->batch->error, KILN_INVALID_ARGUMENT, "%s: %d is no transform", t->name,
                   (int)t->kind);
    return !t->batch->error.status;
}

/* Sizes of a transform with `count` numbers to take. */
static bool read_sizes(struct transform *t, size_t count)
{
    bool real = t->kind == KILN_DFT_REAL;
    if (!t->length)
        t->length = real && count ? 2 * (count - 1) : count;
    if (t->length == 0 || t->length > MOST_ENTRIES || (real && t->in != 2)) {
        kiln__fail(&t->batch->error, KILN_INVALID_ARGUMENT,
                   "%s: no transform number %d of %zu numbers, of %zu parts each", t->name,
                   (int)t->kind, t->length, t->in);
        return false;
    }
    t->taps = real ? t->length / 2 + 1 : t->length;
    t->bins = t->kind == KILN_DFT_HALF ? t->length / 2 + 1 : t->length;
    t->out = real ? 1 : 2;
    return true;
}

/* Dimension `at` cut or, if asked for, filled up to what is taken. */
static kiln_tensor signal_fit(const struct transform *t, kiln_tensor x, uint32_t at, bool fill)
{
    struct kiln__shape shape = shape_of(t, x);
    size_t low[KILN_MAX_RANK] = {0}, high[KILN_MAX_RANK] = {0};
    int64_t start[KILN_MAX_RANK] = {0}, stop[KILN_MAX_RANK];
    size_t extent = shape.rank > 1 ? shape.dims[at] : t->taps;
    if (t->batch->error.status || extent == t->taps || (extent < t->taps && !fill))
        return x;
    for (uint32_t d = 0; d < shape.rank; d++)
        stop[d] = (int64_t)shape.dims[d];
    stop[at] = (int64_t)t->taps;
    high[at] = extent < t->taps ? t->taps - extent : 0;
    return extent < t->taps ? kiln_pad(t->batch, x, low, high, 0)
                            : kiln_slice(t->batch, x, start, stop, NULL);
}

/* Dimension `axis` moved before the last one, or back. */
static kiln_tensor signal_turn(const struct transform *t, kiln_tensor x, uint32_t axis, bool back)
{
    const uint32_t rank = shape_of(t, x).rank, to = rank - 2;
    size_t order[KILN_MAX_RANK];
    if (t->batch->error.status || axis == to)
        return x;
    for (uint32_t d = 0; d < rank; d++) {
        uint32_t plain = d < axis || d > to ? d : d < to ? d + 1 : axis;
        if (back)
            order[plain] = d;
        else
            order[d] = plain;
    }
    return kiln_transpose(t->batch, x, order);
}

/* By a fast transform, which fills up what is too short by itself. */
static kiln_tensor signal_fast(const struct transform *t, kiln_tensor x, uint32_t at)
{
    const bool back = t->kind == KILN_DFT_INVERSE || t->kind == KILN_DFT_REAL;
    x = signal_fit(t, kiln_cast(t->batch, x, KILN_F32), at, shape_of(t, x).dims[at] == 0);
    const struct kiln__fft fft = {.length = t->length,
                                  .x_extent = shape_of(t, x).dims[at],
                                  .y_extent = t->bins,
                                  .x_parts = (uint32_t)t->in,
                                  .y_parts = (uint32_t)t->out,
                                  .inverse = back,
                                  .x_doubled = t->kind == KILN_DFT_REAL,
                                  .scale = back ? 1 / (double)t->length : 1};
    return kiln__fft_any_length(t->batch, t->name, &fft, x, at);
}

/* ---- the calls ---- */

kiln_tensor kiln_dft(kiln_batch *batch, kiln_tensor x, int axis, size_t length, kiln_dft_kind kind)
{
    KILN__CALL(batch);
    struct transform t = {.batch = batch, .name = __func__, .kind = kind, .length = length};
    struct kiln__shape shape;
    uint32_t at;
    if (!read_signal(&t, x, 2, &shape) || !kiln__find_axis(batch, __func__, axis, shape.rank, &at))
        return kiln__none;
    if (at == shape.rank - 1)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                   "%s: axis %d has the parts of complex numbers", __func__, axis);
    if (batch->error.status || !read_sizes(&t, shape.dims[at]))
        return kiln__none;
    const bool in_passes = kiln__fft_supports(&batch->limits, t.length);
    if (t.length > (in_passes ? MOST_PRODUCT : MOST_PRODUCT_PRIME))
        return signal_fast(&t, x, at);
    x = signal_turn(&t, x, at, false);
    x = signal_apply(&t, signal_fit(&t, x, shape.rank - 2, true), kiln__none);
    return signal_turn(&t, x, at, true);
}

/* The window has an element for each of a frame. */
static bool check_window(const struct transform *t, kiln_tensor window)
{
    const struct kiln__node *node =
        window.id ? kiln__batch_floating(t->batch, window, t->name, "window") : NULL;
    if (window.id && node && (node->shape.rank != 1 || node->shape.dims[0] != t->taps))
        kiln__fail(&t->batch->error, KILN_SHAPE_MISMATCH,
                   "%s: a window of shape %s for frames of %zu elements", t->name,
                   kiln__shape_text(&node->shape).text, t->taps);
    return !t->batch->error.status;
}

kiln_tensor kiln_stft(kiln_batch *batch, kiln_tensor x, kiln_tensor window, size_t length,
                      size_t step, kiln_dft_kind kind)
{
    KILN__CALL(batch);
    struct transform t = {.batch = batch, .name = __func__, .kind = kind, .length = length};
    struct kiln__shape shape;
    if (!read_signal(&t, x, 2, &shape))
        return kiln__none;
    size_t extent = shape.dims[shape.rank - 2];
    if (length == 0 || step == 0 || length > extent || kind > KILN_DFT_HALF)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                   "%s: no transforms number %d of frames of %zu elements, %zu apart, of %zu",
                   __func__, (int)kind, length, step, extent);
    if (batch->error.status || !read_sizes(&t, length) || !check_window(&t, window))
        return kiln__none;
    x = kiln_windows(batch, x, shape.rank - 2, 1, &length, &step, NULL);
    return signal_apply(&t, x, window);
}

/* ---- tables ---- */

static const struct {
    double constant, once, twice;
} tapers[] = {
    [KILN_TAPER_HANN] = {0.5, -0.5, 0},
    [KILN_TAPER_HAMMING] = {25.0 / 46, -21.0 / 46, 0},
    [KILN_TAPER_BLACKMAN] = {0.42, -0.5, 0.08},
};
#define TAPERS (sizeof tapers / sizeof *tapers)

kiln_tensor kiln_window(kiln_batch *batch, kiln_taper taper, size_t n, int periodic)
{
    KILN__CALL(batch);
    if (!kiln__batch_is_open(batch, __func__))
        return kiln__none;
    if ((size_t)taper >= TAPERS)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: %d is no window", __func__,
                   (int)taper);
    else if (n > MOST_ELEMENTS)
        kiln__fail(&batch->error, KILN_TOO_LARGE, "%s: %zu elements, and 2^22 are the most",
                   __func__, n);
    float *table = kiln__batch_alloc(batch, n, sizeof *table, __func__);
    double period = periodic ? (double)n : (double)n - 1;
    for (size_t i = 0; table && i < n; i++) {
        double angle = n > 1 ? 2 * PI * (double)i / period : PI;
        table[i] = (float)(tapers[taper].constant + tapers[taper].once * cos(angle) +
                           tapers[taper].twice * cos(2 * angle));
    }
    return table ? kiln_upload(batch, KILN_F32, 1, &n, table) : kiln__none;
}

static double mel_of(double frequency)
{
    return 2595 * log10(1 + frequency / 700);
}

/* The spectrum's element in which edge number `i` of the bands lies. */
static double edge(size_t i, size_t bins, size_t length, double rate, double low, double high)
{
    double step = (mel_of(high) - mel_of(low)) / ((double)bins + 2);
    double frequency = 700 * (pow(10, ((double)i * step + mel_of(low)) / 2595) - 1);
    const size_t highest = length / 2;
    double at = floor(((double)length + 1) * frequency / rate);
    return fmin(fmax(at, 0), (double)highest);
}

/* A band rises from one edge to the next and falls to the one after it. */
static void fill_band(float *table, size_t bins, size_t i, const size_t *edges)
{
    size_t low = edges[0], middle = edges[1], high = edges[2];
    if (low == middle)
        table[middle * bins + i] = 1;
    for (size_t j = low; low < middle && j <= middle; j++)
        table[j * bins + i] = (float)((double)(j - low) / (double)(middle - low));
    for (size_t j = middle; j < high; j++)
        table[j * bins + i] = (float)((double)(high - j) / (double)(high - middle));
}

kiln_tensor kiln_mel_weights(kiln_batch *batch, size_t bins, size_t length, double rate, double low,
                             double high)
{
    KILN__CALL(batch);
    const size_t dims[] = {length / 2 + 1, bins};
    if (!kiln__batch_is_open(batch, __func__))
        return kiln__none;
    if (!(rate > 0) || !(low >= 0) || !(high > low) || !isfinite(high) || !isfinite(rate))
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                   "%s: no bands from %g to %g Hz at a rate of %g", __func__, low, high, rate);
    else if (length > MOST_ENTRIES || bins > MOST_ENTRIES ||
             (double)dims[0] * (double)bins > MOST_ENTRIES)
        kiln__fail(&batch->error, KILN_TOO_LARGE,
                   "%s: %zu bands of %zu elements are more than 2^26 weights", __func__, bins,
                   dims[0]);
    float *table = batch->error.status
                       ? NULL
                       : kiln__batch_alloc(batch, dims[0] * bins, sizeof *table, __func__);
    for (size_t i = 0; table && i < bins; i++) {
        size_t edges[3];
        for (size_t k = 0; k < 3; k++)
            edges[k] = (size_t)edge(i + k, bins, length, rate, low, high);
        fill_band(table, bins, i, edges);
    }
    return table ? kiln_upload(batch, KILN_F32, 2, dims, table) : kiln__none;
}
