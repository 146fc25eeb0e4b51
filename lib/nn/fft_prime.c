/* SPDX-License-Identifier: Apache-2.0 */
/* Transforms of lengths with large prime factors (Bluestein's): as j k is (j j + k k - (k - j)^2) /
 * 2, a transform is a convolution with exp(pi i j j / n), between two products with its inverse;
 * and the convolution goes through transforms of a power of 2. */
#include <kiln/elementwise.h>
#include <kiln/movement.h>

#include <math.h>

#include "nn/fft.h"
#include "record/call.h"
#include "record/operations.h"

#define MOST_LENGTH ((size_t)1 << 26)
#define PI 3.14159265358979323846

struct work {
    kiln_batch *batch;
    const char *name;
    const struct kiln__fft *fft;
    size_t length; /* a power of 2, of 2 n - 1 numbers or more */
};

/* exp(-pi i j j / n), times a factor, and that times i. Of inverse transforms the conjugate. */
static void chirp(const struct kiln__fft *fft, size_t j, double factor, float *to, float *turned)
{
    const double angle = -PI * (double)(j * j % (2 * fft->length)) / (double)fft->length;
    const double re = factor * cos(angle), im = factor * (fft->inverse ? -sin(angle) : sin(angle));
    to[0] = turned[1] = (float)re;
    to[1] = (float)im;
    turned[0] = (float)-im;
}

static double images(const struct kiln__fft *fft, size_t j)
{
    return fft->x_doubled && j && 2 * j != fft->length ? 2 : 1;
}

/* [2, extent, 1, 2] */
static kiln_tensor upload(const struct work *work, size_t extent, float *table)
{
    const size_t dims[] = {2, extent, 1, 2};
    return table ? kiln_upload(work->batch, KILN_F32, 4, dims, table) : kiln__none;
}

static float *keep(const struct work *work, size_t extent)
{
    return work->batch->error.status
               ? NULL
               : kiln__batch_alloc(work->batch, extent, 4 * sizeof(float), work->name);
}

/* What the first `extent` numbers are multiplied with, before (or after) the convolution. */
static kiln_tensor record_chirps(const struct work *work, size_t extent, bool before)
{
    float *table = keep(work, extent);
    for (size_t j = 0; table && j < extent; j++)
        chirp(work->fft, j, before ? images(work->fft, j) : work->fft->scale, table + 2 * j,
              table + 2 * (extent + j));
    return upload(work, extent, table);
}

/* The transform of what is convolved with. */
static kiln_tensor record_response(const struct work *work, kiln_tensor table)
{
    const struct kiln__fft whole = {.length = work->length,
                                    .x_extent = work->length,
                                    .y_extent = work->length,
                                    .x_parts = 2,
                                    .y_parts = 2,
                                    .scale = 1};
    struct kiln__fft back = *work->fft;
    float *response = keep(work, work->length);
    back.inverse = !back.inverse;
    for (size_t i = 0; response && i < 4 * work->length; i++)
        response[i] = 0;
    for (size_t j = 0; response && j < back.length; j++) {
        chirp(&back, j, 1, response + 2 * j, response + 2 * (work->length + j));
        const size_t mirror = j ? work->length - j : 0;
        chirp(&back, j, 1, response + 2 * mirror, response + 2 * (work->length + mirror));
    }
    return kiln__fft_record(work->batch, work->name, &whole, upload(work, work->length, response),
                            table);
}

/* x [signals, extent, inner, parts] times complex numbers, which stand with their multiples by i in
 * [2, extent, 1, 2]; the first `parts_out` parts of it. */
static kiln_tensor multiply(const struct work *work, kiln_tensor x, size_t parts, kiln_tensor by,
                            size_t parts_out)
{
    kiln_batch *batch = work->batch;
    by = kiln__record_part(batch, by, 3, 0, parts_out);
    kiln_tensor re = parts == 2 ? kiln__record_part(batch, x, 3, 0, 1) : x;
    re = kiln_mul(batch, re, kiln__record_part(batch, by, 0, 0, 1));
    if (parts == 1)
        return re;
    return kiln_add(batch, re,
                    kiln_mul(batch, kiln__record_part(batch, x, 3, 1, 1),
                             kiln__record_part(batch, by, 0, 1, 1)));
}

/* Of x [signals, extent, inner, parts]. */
static kiln_tensor convolve(const struct work *work, kiln_tensor x)
{
    const struct kiln__fft *fft = work->fft;
    struct kiln__fft to = {.length = work->length,
                           .x_extent = fft->x_extent,
                           .y_extent = work->length,
                           .x_parts = 2,
                           .y_parts = 2,
                           .scale = 1};
    struct kiln__fft from = to;
    from.inverse = true;
    from.x_extent = work->length;
    from.y_extent = fft->y_extent;
    from.scale = 1 / (double)work->length;
    kiln_tensor table = kiln__fft_table(work->batch, work->name, work->length);
    x = multiply(work, x, fft->x_parts, record_chirps(work, fft->x_extent, true), 2);
    x = kiln__fft_record(work->batch, work->name, &to, x, table);
    x = multiply(work, x, 2, record_response(work, table), 2);
    x = kiln__fft_record(work->batch, work->name, &from, x, table);
    return multiply(work, x, 2, record_chirps(work, fft->y_extent, false), fft->y_parts);
}

static kiln_tensor record_any(const struct work *work, kiln_tensor x)
{
    if (!kiln__fft_supports(&work->batch->limits, work->fft->length))
        return convolve(work, x);
    kiln_tensor table = kiln__fft_table(work->batch, work->name, work->fft->length);
    return kiln__fft_record(work->batch, work->name, work->fft, x, table);
}

kiln_tensor kiln__fft_any_length(kiln_batch *batch, const char *name, const struct kiln__fft *fft,
                                 kiln_tensor x, uint32_t axis)
{
    struct work work = {.batch = batch, .name = name, .fft = fft, .length = 1};
    while (work.length < 2 * fft->length - 1)
        work.length *= 2;
    if (!kiln__fft_supports(&batch->limits, fft->length) && work.length > MOST_LENGTH)
        kiln__fail(
            &batch->error, KILN_TOO_LARGE,
            "%s: a transform of %zu numbers, which has a large prime factor, and 2^25 are the "
            "most",
            name, fft->length);
    if (batch->error.status)
        return kiln__none;
    struct kiln__shape shape = kiln__tensor_node(batch, x)->shape;
    size_t dims[] = {1, shape.dims[axis], 1, fft->x_parts};
    for (uint32_t d = 0; d + 1 < shape.rank; d++)
        if (d != axis)
            dims[d < axis ? 0 : 2] *= shape.dims[d];
    x = record_any(&work, kiln_reshape(batch, x, 4, dims));
    shape.dims[axis] = fft->y_extent;
    shape.dims[shape.rank - 1] = fft->y_parts;
    return batch->error.status ? kiln__none : kiln_reshape(batch, x, shape.rank, shape.dims);
}
