/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Operations that move elements without changing them. Each records one operation and returns the
 *  result's tensor, the empty tensor after an error.
 *
 *  For all of them: the result belongs to the batch; one thread at a time; errors are sticky:
 *  INVALID_HANDLE, INVALID_ARGUMENT, SHAPE_MISMATCH, TYPE_MISMATCH, TOO_LARGE,
 *  OUT_OF_HOST_MEMORY. */
#ifndef KILN_MOVEMENT_H
#define KILN_MOVEMENT_H

#include <kiln/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The same elements in row-major order under another shape of equal element count. */
KILN_API kiln_tensor kiln_reshape(kiln_batch *batch, kiln_tensor x, size_t rank,
                                  const size_t *dims);

/** Dimensions in another order: dimension i of the result is dimension axes[i] of x. axes may be
 *  NULL: the last two are swapped. */
KILN_API kiln_tensor kiln_transpose(kiln_batch *batch, kiln_tensor x, const size_t *axes);

/** A part of x: in dimension i the elements start[i], start[i] + step[i], ... before stop[i] (with
 *  a negative step: above stop[i], and stop[i] may be -1). start, stop and step have one entry per
 *  dimension; step may be NULL: all 1. Bounds are checked, not clipped. */
KILN_API kiln_tensor kiln_slice(kiln_batch *batch, kiln_tensor x, const int64_t *start,
                                const int64_t *stop, const int64_t *step);

/** x repeated to a larger shape by numpy's rule: aligned at the last dimension, 1 repeats. */
KILN_API kiln_tensor kiln_broadcast(kiln_batch *batch, kiln_tensor x, size_t rank,
                                    const size_t *dims);

#ifdef __cplusplus
}
#endif

#endif
