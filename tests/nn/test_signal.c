/* SPDX-License-Identifier: Apache-2.0 */
/* Spectra against numpy's and PyTorch's, as weighted sums; windows and bands against ONNX'
 * reference; derivatives; what is refused. Most of it is computed by the reference, without a
 * device. */
#include <criterion/criterion.h>
#include <kiln/signal.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../support/gradient.h"

static kiln_tensor generated(kiln_batch *b, size_t rank, const size_t *dims)
{
    float data[64];
    for (int i = 0; i < 64; i++)
        data[i] = (float)((i * 7 + 3) % 11 - 5);
    return check_given(b, KILN_F32, rank, dims, data);
}

/* The sum of element i times i * 3 % 17 + 1. */
static void expect_sum(kiln_batch *b, kiln_tensor x, double wanted, const char *what)
{
    cr_assert(!kiln_batch_status(b), "%s", kiln_batch_error(b));
    double sum = check_sum(b, x);
    cr_expect_float_eq(sum, wanted, 1e-4, "%s: %.9g, not %.9g", what, sum, wanted);
}

Test(signal, spectra)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = generated(b, DIMS(2, 6, 1)), c = generated(b, DIMS(2, 6, 2));
    expect_sum(b, kiln_dft(b, x, 1, 0, KILN_DFT), -380.6987298107781, "real");
    expect_sum(b, kiln_dft(b, c, -2, 6, KILN_DFT), 643.0910346561913, "complex");
    expect_sum(b, kiln_dft(b, x, 1, 8, KILN_DFT_HALF), -516.7817459305202, "longer");
    expect_sum(b, kiln_dft(b, x, 1, 5, KILN_DFT_HALF), -199.49384446695035, "shorter, odd");
    expect_sum(b, kiln_dft(b, c, 1, 0, KILN_DFT_INVERSE), 118.15149422396811, "back");
    expect_sum(b, kiln_dft(b, c, 1, 0, KILN_DFT_REAL), 40.528267871774126, "back to real");
    expect_sum(b, kiln_dft(b, c, 1, 11, KILN_DFT_REAL), -20.553036359354184, "back to odd");
    expect_sum(b, kiln_dft(b, c, 0, 0, KILN_DFT), 7, "along the first axis");
    check_end(b);
    check_close();
}

static kiln_tensor short_time(kiln_batch *b, kiln_tensor *x)
{
    *x = generated(b, DIMS(2, 20, 1));
    return kiln_stft(b, *x, kiln_window(b, KILN_TAPER_HANN, 6, 1), 6, 4, KILN_DFT_HALF);
}

Test(signal, short_times)
{
    kiln_tensor x;
    kiln_batch *b = check_begin();
    kiln_tensor y = short_time(b, &x);
    expect_sum(b, y, 203.12658773652743, "frames");
    check_read(b, y);
    check_run(b);
    check_end(b);
    check_close();
}

Test(signal, has_derivatives)
{
    kiln_tensor x;
    kiln_batch *b = check_begin();
    kiln_tensor y = short_time(b, &x);
    expect_gradient(b, y, 1, &x);
    check_close();
}

static void expect_elements(kiln_taper taper, int periodic, const double *wanted)
{
    kiln_batch *b = check_begin();
    double *found = check_values(b, kiln_window(b, taper, 5, periodic));
    for (int i = 0; i < 5; i++)
        cr_expect_float_eq(found[i], wanted[i], 1e-7, "%d %d: %.9g", (int)taper, i, found[i]);
    free(found);
    check_end(b);
}

Test(signal, windows)
{
    expect_elements(KILN_TAPER_HANN, 1,
                    (double[]){0, 0.3454915028, 0.9045084972, 0.9045084972, 0.3454915028});
    expect_elements(KILN_TAPER_HANN, 0, (double[]){0, 0.5, 1, 0.5, 0});
    expect_elements(KILN_TAPER_HAMMING, 0, (double[]){4.0 / 46, 25.0 / 46, 1, 25.0 / 46, 4.0 / 46});
    expect_elements(KILN_TAPER_BLACKMAN, 1,
                    (double[]){0, 0.2007701433, 0.8492298567, 0.8492298567, 0.2007701433});
    kiln_batch *b = check_begin();
    double *one = check_values(b, kiln_window(b, KILN_TAPER_HANN, 1, 0));
    cr_expect_eq(one[0], 1);
    free(one);
    expect_sum(b, kiln_mel_weights(b, 8, 16, 8192, 0, 4096), 68, "bands");
    check_end(b);
    check_close();
}

#define X(...) check_plain(b, DIMS(__VA_ARGS__))

Test(signal, operands_are_checked)
{
    const kiln_tensor none = {0};
    CHECK_REFUSED(kiln_dft(b, X(4), 0, 0, KILN_DFT), KILN_SHAPE_MISMATCH, "shape [4] is no signal");
    CHECK_REFUSED(kiln_dft(b, X(4, 3), 0, 0, KILN_DFT), KILN_SHAPE_MISMATCH, "must be 1 or 2");
    CHECK_REFUSED(kiln_dft(b, X(4, 2), 1, 0, KILN_DFT), KILN_INVALID_ARGUMENT,
                  "axis 1 has the parts");
    CHECK_REFUSED(kiln_dft(b, X(4, 2), 0, 0, (kiln_dft_kind)4), KILN_INVALID_ARGUMENT,
                  "no transform");
    CHECK_REFUSED(kiln_dft(b, X(4, 1), 0, 0, KILN_DFT_REAL), KILN_INVALID_ARGUMENT,
                  "of 1 parts each");
    CHECK_REFUSED(kiln_dft(b, X(0, 1), 0, 0, KILN_DFT), KILN_INVALID_ARGUMENT, "of 0 numbers");
    CHECK_REFUSED(kiln_dft(b, X(4, 2), 0, 33554467, KILN_DFT), KILN_TOO_LARGE,
                  "33554467 numbers, which has a large prime factor");
    CHECK_REFUSED(kiln_dft(b, X(4, 2), 0, 67108865, KILN_DFT), KILN_INVALID_ARGUMENT,
                  "of 67108865 numbers");
    CHECK_REFUSED(kiln_stft(b, X(5000, 2), none, 5000, 1, KILN_DFT), KILN_TOO_LARGE,
                  "takes a matrix of 1e+08");
    CHECK_REFUSED(kiln_stft(b, X(4, 1), none, 5, 1, KILN_DFT), KILN_INVALID_ARGUMENT,
                  "frames of 5");
    CHECK_REFUSED(kiln_stft(b, X(9, 1), X(4), 5, 1, KILN_DFT), KILN_SHAPE_MISMATCH,
                  "kiln_stft: a window of shape [4] for frames of 5 elements");
    CHECK_REFUSED(kiln_window(b, (kiln_taper)3, 5, 0), KILN_INVALID_ARGUMENT, "3 is no window");
    CHECK_REFUSED(kiln_window(b, KILN_TAPER_HANN, SIZE_MAX, 0), KILN_TOO_LARGE, "2^22");
    CHECK_REFUSED(kiln_mel_weights(b, 8, 16, 0, 0, 1), KILN_INVALID_ARGUMENT,
                  "no bands from 0 to 1 Hz");
    CHECK_REFUSED(kiln_mel_weights(b, SIZE_MAX, 16, 1, 0, 1), KILN_TOO_LARGE, "2^26 weights");
    check_close();
}
