/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Convolution and pooling of signals, images and volumes, recorded as windows, products and
 *  reductions. Each returns the result's tensor, the empty tensor after an error.
 *
 *  x is f32 with 1 to 3 spatial dimensions, in one of two layouts: [N, spatial ..., C], channels
 *  last, or [N, C, spatial ...], as PyTorch and ONNX have it. Windows of `size` elements that are
 *  `dilation` apart begin every `stride` elements of an image that has been padded by `before` and
 *  `after`: (extent + before + after - (size - 1) * dilation - 1) / stride + 1 of them, at least
 *  one. Arrays of options have an entry for each spatial dimension, in order.
 *
 *  All computes with channels last. Of channels first x is turned once, as it is padded or by a
 * copy, the weights are brought into order, and the result is a view; a chain of such calls, with
 *  elementwise operations between them, turns nothing in between.
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

/** Where a tensor's channels are. */
typedef enum kiln_layout {
    KILN_CHANNELS_LAST, /**< [N, spatial ..., C]; weights [window ..., C/groups, O] */
    KILN_CHANNELS_FIRST /**< [N, C, spatial ...]; weights [O, C/groups, window ...] */
} kiln_layout;

/** Where windows of a convolution lie. Start from KILN_CONV_OPTIONS_INIT; zero in a field is its
 *  default. */
typedef struct kiln_conv_options {
    size_t size;              /**< sizeof(kiln_conv_options), set by the initialiser */
    kiln_layout layout;       /**< of x, the weights and the result */
    size_t groups;            /**< parts of the channels, each by itself; 0: 1 */
    size_t stride[3];         /**< 0: 1 */
    size_t dilation[3];       /**< 0: 1 */
    size_t before[3];         /**< padding before the first element */
    size_t after[3];          /**< padding behind the last one */
    size_t output_padding[3]; /**< of a transposed one: elements more at the result's end */
} kiln_conv_options;

/** Options with every default. */
#define KILN_CONV_OPTIONS_INIT                                                                     \
    {                                                                                              \
        sizeof(kiln_conv_options), KILN_CHANNELS_LAST, 0, {0}, {0}, {0}, {0},                      \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

/** Fill a structure as KILN_CONV_OPTIONS_INIT does. NULL does nothing. Threads: any.
 *  Errors: none. */
KILN_API void kiln_conv_options_init(kiln_conv_options *options, size_t size);
#define kiln_conv_options_init(...) kiln_conv_options_init(__VA_ARGS__, sizeof(kiln_conv_options))

/** x with C channels and weights w give O channels. Of channels last and two dimensions, x
 * [N,H,W,C] and w [KH,KW,C/groups,O] give [N,OH,OW,O]: element (n,i,j,o) is the sum over u, v, c of
 *  x[n, i*stride + u*dilation - before, j*stride + v*dilation - before, c] * w[u,v,c,o], zeros
 *  around x (a cross-correlation, as networks have it; PyTorch's Conv1d, Conv2d and Conv3d). Output
 *  channels come in as many groups as input channels, and each group sees its own. Groups of one
 *  input channel (depthwise) are sums of windows. A bias or an activation recorded on the result
 *  runs in the product's kernel. */
KILN_API kiln_tensor kiln_conv(kiln_batch *batch, kiln_tensor x, kiln_tensor w,
                               const kiln_conv_options *options);

/** The transpose of kiln_conv() with the same weights and options: x of its result's shape gives
 * one of its x (PyTorch's ConvTranspose). Weights are [window ..., O/groups, C] or, channels first,
 *  [C, O/groups, window ...] for x with C channels. Padding is left out of the result, which has
 *  (extent - 1) * stride + (size - 1) * dilation + 1 - before - after + output_padding elements
 *  along a dimension, at least one. No product is with the zeros between x's elements, unless
 * stride and dilation are both above 1. */
KILN_API kiln_tensor kiln_conv_transposed(kiln_batch *batch, kiln_tensor x, kiln_tensor w,
                                          const kiln_conv_options *options);

/** Where windows of a pool lie. Start from KILN_POOL_OPTIONS_INIT; zero in a field is its default.
 */
typedef struct kiln_pool_options {
    size_t size;        /**< sizeof(kiln_pool_options), set by the initialiser */
    kiln_layout layout; /**< of x and the result */
    size_t stride[3];   /**< 0: the window's own size */
    size_t dilation[3]; /**< 0: 1 */
    size_t before[3];   /**< padding before the first element */
    size_t after[3];    /**< padding behind the last one */
    int ceil;           /**< nonzero: what the last window leaves gets one more, partly beyond the
                             end, if that begins within x or the padding before it */
    int count_padding;  /**< nonzero: an average counts padding as zeros; else it leaves it out */
} kiln_pool_options;

/** Options with every default. */
#define KILN_POOL_OPTIONS_INIT                                                                     \
    {                                                                                              \
        sizeof(kiln_pool_options), KILN_CHANNELS_LAST, {0}, {0}, {0}, {0}, 0, 0                    \
    }

/** Fill a structure as KILN_POOL_OPTIONS_INIT does. NULL does nothing. Threads: any.
 *  Errors: none. */
KILN_API void kiln_pool_options_init(kiln_pool_options *options, size_t size);
#define kiln_pool_options_init(...) kiln_pool_options_init(__VA_ARGS__, sizeof(kiln_pool_options))

/** The largest element of each window, of each channel; `window` has an entry for each spatial
 *  dimension. x may be of any type; the result is of what that is computed in. Padding loses
 *  against every element. NaN if there is one in the window. Where `indices` is not NULL it
 * receives i32 positions: each one's row-major number among the elements of its own channel, of
 * equals the first one's. Over a whole image pools are reductions: kiln_max() and kiln_mean() over
 * the spatial axes. */
KILN_API kiln_tensor kiln_max_pool(kiln_batch *batch, kiln_tensor x, const size_t *window,
                                   const kiln_pool_options *options, kiln_tensor *indices);

/** The mean of each window, as kiln_max_pool() has them; x is of a floating type. A window of
 *  nothing that counts gives NaN. */
KILN_API kiln_tensor kiln_avg_pool(kiln_batch *batch, kiln_tensor x, const size_t *window,
                                   const kiln_pool_options *options);

/** sum(|x|^p)^(1/p) of each window, as kiln_max_pool() has them; x is of a floating type and p
 *  positive. The gradient of a window of zeros is 0. */
KILN_API kiln_tensor kiln_lp_pool(kiln_batch *batch, kiln_tensor x, const size_t *window, double p,
                                  const kiln_pool_options *options);

/** Where windows lie, of two dimensions. Start from KILN_WINDOW_OPTIONS_INIT; zero in a field is
 * its default. */
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

/** Fill a structure as KILN_WINDOW_OPTIONS_INIT does. NULL does nothing. Threads: any.
 *  Errors: none. */
KILN_API void kiln_window_options_init(kiln_window_options *options, size_t size);
#define kiln_window_options_init(...)                                                              \
    kiln_window_options_init(__VA_ARGS__, sizeof(kiln_window_options))

/** kiln_conv() of images with channels last: x [N,H,W,C] and weights w [KH,KW,C/groups,O] give
 *  [N,OH,OW,O]. */
KILN_API kiln_tensor kiln_conv2d(kiln_batch *batch, kiln_tensor x, kiln_tensor w,
                                 const kiln_window_options *options);

/** kiln_max_pool() of images with channels last, x of a floating type: [N,OH,OW,C]. Of options,
 *  groups must be 0 or 1. */
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
