/* SPDX-License-Identifier: Apache-2.0 */
/* Windows over the spatial dimensions of images, which convolutions and pools share. */
#pragma once

#include <kiln/convolution.h>

#include "record/batch.h"

/* Windows of more dimensions would leave no room for samples and channels. */
#define KILN__SPATIAL 3

/* One call, with its options read. Everything behind kiln__sliding_begin() has channels last. */
struct kiln__sliding {
    kiln_batch *batch;
    const char *name;
    kiln_layout layout;       /* of the caller's tensors */
    uint32_t n;               /* spatial dimensions */
    struct kiln__shape image; /* [N, spatial ..., C] */
    size_t window[KILN__SPATIAL], stride[KILN__SPATIAL], dilation[KILN__SPATIAL];
    size_t before[KILN__SPATIAL], after[KILN__SPATIAL];
    size_t groups;
};

/* What options of either kind have in common: `n` entries of each array, or NULL for none. */
struct kiln__sliding_given {
    const size_t *stride, *dilation, *before, *after;
};

/* Read the shape of x and bring its channels last; `n` spatial dimensions, 0: as many as it has.
 * False with the error recorded. */
bool kiln__sliding_begin(struct kiln__sliding *call, kiln_tensor *x, uint32_t n);

/* Take the given numbers; a stride of 0 is `stride` or, if that is NULL, 1. */
void kiln__sliding_read(struct kiln__sliding *call, const struct kiln__sliding_given *given,
                        const size_t *stride);

/* Whether the padding leaves room for sums of extents, and a window fits the padded image. */
bool kiln__sliding_check(struct kiln__sliding *call);

/* Windows along dimension `i` of an image that is checked. */
size_t kiln__sliding_count(const struct kiln__sliding *call, uint32_t i);

/* [N, windows ..., within a window ..., C] of x, padded by this value. */
kiln_tensor kiln__sliding_windows(const struct kiln__sliding *call, kiln_tensor x, double padding);

/* A tensor [N, spatial ..., C] in the caller's layout. */
kiln_tensor kiln__sliding_result(const struct kiln__sliding *call, kiln_tensor y);

/* The shape of a tensor of the batch, which has not failed. */
struct kiln__shape kiln__sliding_shape(const struct kiln__sliding *call, kiln_tensor x);

/* The image's shape as the caller gave it: "[1,3,8,5]", with channels where his layout has them. */
struct kiln__shape_text kiln__sliding_image_text(const struct kiln__sliding *call);
