/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Values between two tensors, recorded as plain operations that fuse with their neighbours.
 *
 *  For all of them: operands are f32; for one weight everywhere pass a kiln_constant(). Weights
 *  below 0 and above 1 extrapolate. The result belongs to the batch; one thread at a time; errors
 *  are sticky: INVALID_HANDLE, INVALID_ARGUMENT, SHAPE_MISMATCH, TYPE_MISMATCH, TOO_LARGE,
 *  OUT_OF_HOST_MEMORY. */
#ifndef KILN_INTERPOLATION_H
#define KILN_INTERPOLATION_H

#include <kiln/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** a + weight * (b - a), for finite a and b exactly a at weight 0 and exactly b at weight 1. Shapes
 *  broadcast by numpy's rule. */
KILN_API kiln_tensor kiln_lerp(kiln_batch *batch, kiln_tensor a, kiln_tensor b, kiln_tensor weight);

/** From a to b along an arc, of vectors that lie along the last dimension (K. Shoemake, "Animating
 *  rotation with quaternion curves", SIGGRAPH 1985): with t the weight and phi the angle between a
 *  and b,
 *
 *      sin((1 - t) * phi) / sin(phi) * a + sin(t * phi) / sin(phi) * b
 *
 *  which keeps the length of unit vectors. Others are taken as they are: their lengths do not
 *  change the angle, and the result's length goes from a's to b's. Where there is no arc, or none
 *  that f32 can tell, the result is (1 - t) * a + t * b: where the cosine of phi is within 1e-6 of
 *  1 or of -1 (opposite vectors have no shortest arc), or one vector is zero. Squared lengths
 *  should lie within the range of f32.
 *
 *  a and b have equal shapes of at least one dimension. The weight broadcasts against them by
 *  numpy's rule; one per vector has 1 as its last dimension. The shorter of the two arcs between
 *  rotations (q and -q are the same one) is the caller's choice.
 *  Errors: INVALID_ARGUMENT where a is a scalar. */
KILN_API kiln_tensor kiln_slerp(kiln_batch *batch, kiln_tensor a, kiln_tensor b,
                                kiln_tensor weight);

#ifdef __cplusplus
}
#endif

#endif
