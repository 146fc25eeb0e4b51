/* SPDX-License-Identifier: Apache-2.0 */
/* Fast Fourier transforms as passes of kernels/fft.cl, each a call of a kernel: lengths whose
 * factors are small have as many passes as factors, of up to 16 (or a prime) each. */
#pragma once

#include <kiln/custom.h>

#include "record/batch.h"

#define KILN__FFT_MOST_RADIX 31
#define KILN__FFT_MOST_RADIX_GPU 13 /* NVIDIA's compiler does not come to an end over 31 */
#define KILN__FFT_MOST_PASSES 32

/* Numbers along an axis of f32 [..., x_extent, ..., x_parts] to [..., y_extent, ..., y_parts].
 * Beyond x_extent, up to `length`, x is zeros; of the result the first y_extent numbers are asked
 * for. */
struct kiln__fft {
    size_t length, x_extent, y_extent;
    uint32_t x_parts, y_parts;
    bool inverse; /* exp(+2 pi i j k / n) */
    /* Numbers but the first and the middle one count twice, for their mirror images. */
    bool x_doubled, y_doubled;
    double scale; /* what results are multiplied with */
};

/* One of its passes: `columns` sets of `radix` numbers of each signal, which are `apart` in the
 * result. `first` and `roots` are places in the table. */
struct kiln__fft_pass {
    struct kiln__fft fft;
    size_t inner; /* numbers behind each other along the axis are so far apart */
    size_t radix, columns, apart, first, roots;
    unsigned number;
    bool is_first, is_last;
};

/* Whether a length has no factor that is too large for a pass where the batch runs. */
bool kiln__fft_supports(const struct kiln__record_limits *limits, size_t length);

/* Of any length; longer ones than the most are TOO_LARGE. */
kiln_tensor kiln__fft_any_length(kiln_batch *batch, const char *name, const struct kiln__fft *fft,
                                 kiln_tensor x, uint32_t axis);

/* [.., 2], f32: what numbers are turned by between passes; every transform of this length takes
 * it. And a transform of a length without large factors, of x [signals, x_extent, inner, x_parts].
 */
kiln_tensor kiln__fft_table(kiln_batch *batch, const char *name, size_t length);
kiln_tensor kiln__fft_record(kiln_batch *batch, const char *name, const struct kiln__fft *fft,
                             kiln_tensor x, kiln_tensor table);

/* Pass `number`; beyond the last one false. */
bool kiln__fft_pass(const struct kiln__fft *fft, size_t inner, unsigned number,
                    struct kiln__fft_pass *pass);
/* And as a call's numbers have it. */
void kiln__fft_write(const struct kiln__fft_pass *pass, double *scalars);
void kiln__fft_read(const double *scalars, struct kiln__fft_pass *pass);

/* A pass in float64 (kiln_custom_host), and what it makes of errors at most. */
void kiln__fft_host(const kiln_array *inputs, const kiln_array *outputs, const double *scalars,
                    void *user);
void kiln__fft_spread(const kiln_array *inputs, const kiln_array *outputs, const double *scalars,
                      void *user);
