/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Convolution and pooling of images, recorded as windows, products and reductions. Each returns
 *  the result's tensor, the empty tensor after an error.
 *
 *  Images are f32 of shape [N,H,W,C], channels last. Windows of `size` elements that are `dilation`
 *  apart begin every `stride` elements of an image that has been padded by `before` and `after`:
 *  (extent + before + after - (size - 1) * dilation - 1) / stride + 1 of them, at least one. In
 *  each pair of options rows come first, then columns.
 *
 *  For all of them: `options` may be NULL. The result belongs to the batch; one thread at a time;
 *  errors are sticky: INVALID_HANDLE, INVALID_ARGUMENT (options, windows that do not fit),
 *  SHAPE_MISMATCH, TYPE_MISMATCH, TOO_LARGE, OUT_OF_HOST_MEMORY. */
#ifndef KILN_CONVOLUTION_H
#define KILN_CONVOLUTION_H

#include <kiln/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Where windows lie. Start from KILN_WINDOW_OPTIONS_INIT; zero in a field is its default. */
typedef struct kiln_window_options {
    size_t size;        /**< sizeof(kiln_window_options), set by the initialiser */
    size_t stride[2];   /**< 0: 1 of a convolution, the window's own size of a pool */
    size_t dilation[2]; /**< 0: 1 */
    size_t before[2];   /**< padding above and on the left */
    size_t after[2];    /**< padding below and on the right */
    size_t groups;      /**< of a convolution: parts of the channels, each by itself; 0: 1 */
} kiln_window_options;

/** Options with every default. */
#define KILN_WINDOW_OPTIONS_INIT                                                                   \
    {                                                                                              \
        sizeof(kiln_window_options), {0, 0}, {0, 0}, {0, 0}, {0, 0}, 0                             \
    }

/** x [N,H,W,C] and weights w [KH,KW,C/groups,O] give [N,OH,OW,O]: element (n,i,j,o) is the sum over
 *  u, v, c of x[n, i*stride + u*dilation - before, j*stride + v*dilation - before, c] * w[u,v,c,o],
 *  zeros around x (a cross-correlation, as networks have it; PyTorch's Conv2d with its dimensions
 *  in another order). Output channels come in as many groups as input channels, and each group sees
 *  its own. A bias or an activation recorded on the result runs in the product's kernel. */
KILN_API kiln_tensor kiln_conv2d(kiln_batch *batch, kiln_tensor x, kiln_tensor w,
                                 const kiln_window_options *options);

/** The largest element of each window of window[0] by window[1], of each channel: [N,OH,OW,C].
 *  Padding is -infinity, which loses against every element. NaN if there is one in the window. Of
 *  options, groups must be 0 or 1. */
KILN_API kiln_tensor kiln_max_pool2d(kiln_batch *batch, kiln_tensor x, const size_t window[2],
                                     const kiln_window_options *options);

/** The mean of each window, as kiln_max_pool2d() has them; padding is zeros and counts (PyTorch's
 *  count_include_pad). */
KILN_API kiln_tensor kiln_avg_pool2d(kiln_batch *batch, kiln_tensor x, const size_t window[2],
                                     const kiln_window_options *options);

#ifdef __cplusplus
}
#endif

#endif
