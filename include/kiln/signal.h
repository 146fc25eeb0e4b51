/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Spectra of signals. Complex numbers are pairs, real part first, along the last dimension.
 *
 *  For all of them: the result belongs to the batch; one thread at a time; errors are sticky:
 *  INVALID_HANDLE, INVALID_ARGUMENT, SHAPE_MISMATCH, TYPE_MISMATCH, TOO_LARGE
 *  (kiln_stft(): a matrix of more than 2^26 elements), OUT_OF_HOST_MEMORY. */
#ifndef KILN_SIGNAL_H
#define KILN_SIGNAL_H

#include <kiln/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Which transform. */
typedef enum kiln_dft_kind {
    KILN_DFT,         /**< n numbers to n complex ones: sums of x[j] * exp(-2 pi i j k / n) */
    KILN_DFT_HALF,    /**< the first n / 2 + 1 of them, which are all of a real signal */
    KILN_DFT_INVERSE, /**< n complex numbers back to n complex ones, with factor 1 / n */
    KILN_DFT_REAL     /**< n / 2 + 1 complex numbers back to n real ones, with factor 1 / n */
} kiln_dft_kind;

/** The transform of f32 x [..., 1] (real) or [..., 2] (complex) along an axis, not the last one; a
 *  negative axis counts from the end. `length` is n, to which x is cut or filled with zeros; 0: as
 *  many elements as x has there (KILN_DFT_REAL: 2 * (elements - 1)). The result's last dimension is
 *  2, of KILN_DFT_REAL 1. Lengths are 2^26 at most, and 2^25 (else TOO_LARGE) with a prime factor
 *  above 31. Up to 64 it is a product with a matrix of cosines (up to 256 with such a factor).
 *  Longer ones are fast transforms (Stockham's), a kernel for each factor of up to 16 or prime;
 *  with a prime factor above 31 they are convolutions (Bluestein's). These kernels are not cut into
 *  micro-batches. Inner axes cost no transposition. A NaN or an infinity in a signal reaches all of
 *  its numbers. */
KILN_API kiln_tensor kiln_dft(kiln_batch *batch, kiln_tensor x, int axis, size_t length,
                              kiln_dft_kind kind);

/** Short-time transforms, as products with a matrix, of f32 x [..., t, 1] (real) or [..., t, 2]
 *  (complex): each of the (t - length) / step + 1 frames of `length` elements, which begin `step`
 *  apart, times `window` ([length], or {0}: ones), by KILN_DFT or KILN_DFT_HALF. Gives
 *  [..., frames, bins, 2]. Frames and the windowed signal are not in memory beside it where a
 * product can read them (CPUs, f32). */
KILN_API kiln_tensor kiln_stft(kiln_batch *batch, kiln_tensor x, kiln_tensor window, size_t length,
                               size_t step, kiln_dft_kind kind);

/** Windows to weigh a frame with. */
typedef enum kiln_taper {
    KILN_TAPER_HANN,    /**< 1/2 - 1/2 cos */
    KILN_TAPER_HAMMING, /**< 25/46 - 21/46 cos */
    KILN_TAPER_BLACKMAN /**< 0.42 - 0.5 cos + 0.08 cos of twice the angle */
} kiln_taper;

/** f32 [n]: the window, which is symmetric, or with `periodic` nonzero one period of n elements. */
KILN_API kiln_tensor kiln_window(kiln_batch *batch, kiln_taper taper, size_t n, int periodic);

/** f32 [length / 2 + 1, bins]: triangular weights that bring spectra of a signal with this sampling
 *  rate to `bins` bands of equal width in mel between two frequencies, as ONNX' MelWeightMatrix has
 *  them. */
KILN_API kiln_tensor kiln_mel_weights(kiln_batch *batch, size_t bins, size_t length, double rate,
                                      double low, double high);

#ifdef __cplusplus
}
#endif

#endif
