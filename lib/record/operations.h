/* SPDX-License-Identifier: Apache-2.0 */
/* Table rows recorded on behalf of another call, whose name the sentences of errors carry. */
#pragma once

#include <kiln/operations.h>

#include "record/batch.h"

/* As kiln_<row>() of kiln/elementwise.h; as many operands as the row has. */
kiln_tensor kiln__record_elementwise(kiln_batch *batch, enum kiln__elementwise op, const char *call,
                                     const kiln_tensor *operands);

/* As kiln_<row>() of kiln/reductions.h. */
kiln_tensor kiln__record_reduction(kiln_batch *batch, enum kiln__reduction op, const char *call,
                                   kiln_tensor x, size_t n_axes, const int *axes, int keep_dims);

/* As kiln_matmul_transposed(). */
kiln_tensor kiln__record_matmul(kiln_batch *batch, const char *call, kiln_tensor a,
                                bool transpose_a, kiln_tensor b, bool transpose_b);

/* As kiln_scatter(). */
kiln_tensor kiln__record_scatter(kiln_batch *batch, const char *call, kiln_tensor x,
                                 kiln_tensor indices, kiln_tensor values, int axis,
                                 kiln_scatter_mode mode);

/* The same of KILN_SCATTER_SET where no two indices are the same, in x's own type, which the values
 * have. */
kiln_tensor kiln__record_scatter_distinct(kiln_batch *batch, const char *call, kiln_tensor x,
                                          kiln_tensor indices, kiln_tensor values, int axis);

/* Whether a parameter is finite and not negative; false with the error recorded. */
bool kiln__check_number(kiln_batch *batch, const char *call, const char *what, double value);

/* As kiln_slice() of `count` elements from this one on along an axis; `axis` may be -1, the last.
 */
kiln_tensor kiln__record_part(kiln_batch *batch, kiln_tensor x, int axis, size_t from,
                              size_t count);

/* Whether indices are integers, and a mode is one; false with the error recorded. */
bool kiln__check_indices(kiln_batch *batch, const char *call, const struct kiln__node *indices);

/* Them as a gather's node takes them: as i32 or u8, and nowhere where i32 has no such position. */
kiln_tensor kiln__record_indices(kiln_batch *batch, kiln_tensor indices, const char *call);
bool kiln__check_scatter_mode(kiln_batch *batch, const char *call, kiln_scatter_mode mode);

/* The axes as a mask; false, with the error recorded, if one is out of range or named twice. */
bool kiln__read_axes(kiln_batch *batch, const char *call, const struct kiln__shape *shape,
                     size_t n_axes, const int *axes, uint64_t *mask);

/* The mean over these axes as kiln_variance() and kiln_layer_norm() find it, which compute it once
 * with this one. */
kiln_tensor kiln__record_mean(kiln_batch *batch, const char *name, kiln_tensor x, size_t n_axes,
                              const int *axes);

/* A power of two by which numbers of at most this size are multiplied so that their squares, and
 * gradients of roots of these, stay in f32; *back undoes it. No gradient goes through either. */
kiln_tensor kiln__record_square_scale(kiln_batch *batch, const char *name, kiln_tensor top,
                                      kiln_tensor *back);
