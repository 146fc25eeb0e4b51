/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Random numbers that are the same on every device: element i of a tensor is computed from i and a
 *  key alone, by Philox4x32-10 (J. Salmon and others, "Parallel random numbers: as easy as 1, 2,
 *  3", SC 2011), so that they need no memory and fuse into what uses them.
 *
 *  A key is a tensor of two i32. One key gives one sequence of uniform numbers and one of normal
 *  ones, however often it is used: for several independent tensors split it. A key from
 *  kiln_random_key() is a constant of the batch, and each run draws the same numbers; one from
 *  kiln_random_next() is another in each run.
 *
 *  For all of them: the result belongs to the batch; one thread at a time; errors are sticky:
 *  INVALID_HANDLE, INVALID_ARGUMENT, SHAPE_MISMATCH and TYPE_MISMATCH (the key is no i32[2]),
 *  TOO_LARGE (more than INT32_MAX elements), OUT_OF_HOST_MEMORY. After an error the result is
 *  the empty tensor. */
#ifndef KILN_RANDOM_H
#define KILN_RANDOM_H

#include <kiln/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The key of a seed: its lower 32 bits, its upper ones. */
KILN_API kiln_tensor kiln_random_key(kiln_batch *batch, uint64_t seed);

/** Another key, independent of `key` and of those for other numbers, which are below 2^30 - 1.
 *  Errors: INVALID_ARGUMENT for a larger number. */
KILN_API kiln_tensor kiln_random_split(kiln_batch *batch, kiln_tensor key, uint32_t number);

/** The key in an i32[2] buffer, in which each run leaves the next one: its second number grows by
 *  1, in place. Write a seed there once; seeds of less than 32 bits do not meet. In a batch
 *  it is called once for a buffer; split the key for what else needs one.
 *  Owner: the batch holds the buffer.
 *  Errors: INVALID_ARGUMENT (NULL, a buffer of another context, a second call), TYPE_MISMATCH (its
 *  type is not i32 itself). */
KILN_API kiln_tensor kiln_random_next(kiln_batch *batch, kiln_buffer *state);

/** f32 from [0, 1): multiples of 2^-24, each as likely as the others. The same bits everywhere. */
KILN_API kiln_tensor kiln_random_uniform(kiln_batch *batch, size_t rank, const size_t *dims,
                                         kiln_tensor key);

/** f32 of mean 0 and variance 1, by the transform of G. Box and M. Muller (Ann. Math. Stat. 29,
 *  1958) from two of 24 bits: none is beyond 5.77. */
KILN_API kiln_tensor kiln_random_normal(kiln_batch *batch, size_t rank, const size_t *dims,
                                        kiln_tensor key);

/** x with each element replaced by 0 with this probability, from 0 to 1, and the others divided by
 *  1 - probability (N. Srivastava and others, JMLR 15, 2014). x is f32. For training only: to
 *  evaluate, leave it out. */
KILN_API kiln_tensor kiln_dropout(kiln_batch *batch, kiln_tensor x, double probability,
                                  kiln_tensor key);

#ifdef __cplusplus
}
#endif

#endif
