/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Tensors of other extents: interpolation along dimensions, and blocks of pixels that become
 *  channels.
 *
 *  For all of them: `options` may be NULL. The result belongs to the batch; one thread at a time;
 *  errors are sticky: INVALID_HANDLE, INVALID_ARGUMENT, SHAPE_MISMATCH, TYPE_MISMATCH, TOO_LARGE,
 *  OUT_OF_HOST_MEMORY. */
#ifndef KILN_RESIZE_H
#define KILN_RESIZE_H

#include <kiln/convolution.h>
#include <kiln/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How elements come about. */
typedef enum kiln_resize_method {
    KILN_RESIZE_NEAREST, /**< the nearest one */
    KILN_RESIZE_LINEAR,  /**< of the two around, by distance; bilinear of two dimensions */
    KILN_RESIZE_CUBIC    /**< of four, by a cubic */
} kiln_resize_method;

/** Where element i of n, along a dimension that is s times as long as x's of m, lies in x. ONNX'
 *  Resize has them by these names. */
typedef enum kiln_coordinates {
    KILN_HALF_PIXEL,           /**< (i + 1/2) / s - 1/2, as PyTorch and OpenCV */
    KILN_HALF_PIXEL_SYMMETRIC, /**< the same, with both centres one where n is rounded */
    KILN_PYTORCH_HALF_PIXEL,   /**< the same; -1/2 where s * m is 1 */
    KILN_ALIGN_CORNERS,        /**< i * (m - 1) / (s * m - 1) */
    KILN_ASYMMETRIC,           /**< i / s */
    KILN_TF_HALF_PIXEL,        /**< (i + 1/2) / s */
    KILN_CROP_AND_RESIZE       /**< within a part of x; beyond x `extrapolation` stands */
} kiln_coordinates;

/** Which element is nearest. */
typedef enum kiln_nearest {
    KILN_NEAREST_FLOOR,        /**< the one below */
    KILN_NEAREST_CEIL,         /**< the one above */
    KILN_NEAREST_PREFER_FLOOR, /**< the nearest, of two as near the one below */
    KILN_NEAREST_PREFER_CEIL   /**< the nearest, of two as near the one above */
} kiln_nearest;

/** How kiln_resize() works. Start from KILN_RESIZE_OPTIONS_INIT. */
typedef struct kiln_resize_options {
    size_t size;                  /**< sizeof(kiln_resize_options), set by the initialiser */
    kiln_resize_method method;    /**< what is between elements */
    kiln_coordinates coordinates; /**< where a result's element lies in x */
    kiln_nearest nearest;         /**< of KILN_RESIZE_NEAREST */
    double cubic;         /**< the cubic's coefficient: -0.75 as PyTorch, -0.5 as TensorFlow */
    int exclude_outside;  /**< nonzero: no weight falls on what is beyond x's ends, whose outermost
                               elements go on otherwise */
    int antialias;        /**< nonzero: what becomes smaller is averaged (not the nearest) */
    const double *scales; /**< an entry for each dimension; NULL: quotients of the extents */
    const double
        *start;        /**< of KILN_CROP_AND_RESIZE: where the part begins, 0 to 1, per dimension */
    const double *end; /**< and where it ends */
    double extrapolation; /**< of KILN_CROP_AND_RESIZE */
} kiln_resize_options;

/** Options with the defaults: the nearest element, asymmetric, the one below: as PyTorch's nearest.
 */
#define KILN_RESIZE_OPTIONS_INIT                                                                   \
    {                                                                                              \
        sizeof(kiln_resize_options), KILN_RESIZE_NEAREST, KILN_ASYMMETRIC, KILN_NEAREST_FLOOR,     \
            -0.75, 0, 0, 0, 0, 0, 0                                                                \
    }

/** Fill a structure as KILN_RESIZE_OPTIONS_INIT does. NULL does nothing. Threads: any.
 *  Errors: none. */
KILN_API void kiln_resize_options_init(kiln_resize_options *options, size_t size);
#define kiln_resize_options_init(...)                                                              \
    kiln_resize_options_init(__VA_ARGS__, sizeof(kiln_resize_options))

/** x with another extent in each dimension, `dims`, as many as it has. Dimensions are interpolated
 *  one after the other, each by a sum of a few elements; those that stay cost nothing. x may be of
 *  any type for the nearest element, else of a floating type. A dimension of x that changes has
 *  elements. At most 7 dimensions unless it is the nearest. */
KILN_API kiln_tensor kiln_resize(kiln_batch *batch, kiln_tensor x, const size_t *dims,
                                 const kiln_resize_options *options);

/** Which channels become a block of pixels: of C = block * block * c channels number ... */
typedef enum kiln_block_order {
    KILN_BLOCK_FIRST,  /**< (row * block + column) * c + channel: ONNX' DCR, TensorFlow */
    KILN_CHANNEL_FIRST /**< (channel * block + row) * block + column: ONNX' CRD, pixel shuffle */
} kiln_block_order;

/** An image [N,H,W,C] or [N,C,H,W] with `block` times the rows and columns, from channels. Nothing
 *  but the result is written. */
KILN_API kiln_tensor kiln_depth_to_space(kiln_batch *batch, kiln_tensor x, size_t block,
                                         kiln_block_order order, kiln_layout layout);

/** The reverse: block * block times the channels. */
KILN_API kiln_tensor kiln_space_to_depth(kiln_batch *batch, kiln_tensor x, size_t block,
                                         kiln_block_order order, kiln_layout layout);

#ifdef __cplusplus
}
#endif

#endif
