/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes: up to eight dimensions, row-major. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kiln/types.h>

struct kiln__shape {
    uint32_t rank;
    size_t dims[KILN_MAX_RANK]; /* beyond rank: 0, so that equal shapes have equal bytes */
};

/* False if the rank is too large or the element count, times 8 bytes, does not fit an int64 or a
 * size_t. */
bool kiln__shape_make(size_t rank, const size_t *dims, struct kiln__shape *shape);

size_t kiln__shape_count(const struct kiln__shape *shape);
bool kiln__shape_equal(const struct kiln__shape *a, const struct kiln__shape *b);

/* Whether rows, along the last dimension, are of whole blocks of the type. */
bool kiln__shape_has_blocks(const struct kiln__shape *shape, kiln_type type);

/* numpy's rule: aligned at the last dimension, 1 repeats. */
bool kiln__shape_matches(const struct kiln__shape *a, const struct kiln__shape *b);

/* The shape of both together. False if they do not match, or the result has too many elements. */
bool kiln__shape_broadcast(const struct kiln__shape *a, const struct kiln__shape *b,
                           struct kiln__shape *result);

/* The shape of `data` with dimension `axis` replaced by all of `indices`. False if it has too many
 * dimensions or elements. */
bool kiln__shape_gathered(const struct kiln__shape *data, const struct kiln__shape *indices,
                          uint32_t axis, struct kiln__shape *result);

/* "[4,8]"; the text is cut, never overrun. */
struct kiln__shape_text {
    char text[96];
};
struct kiln__shape_text kiln__shape_text(const struct kiln__shape *shape);

/* "[1,3]": the indices of element `number`. */
struct kiln__shape_text kiln__shape_position(const struct kiln__shape *shape, size_t number);

/* Strides, in elements, of a row-major tensor. */
void kiln__shape_strides(const struct kiln__shape *shape, int64_t strides[KILN_MAX_RANK]);

/* The indices of element `number`. */
void kiln__shape_indices(const struct kiln__shape *shape, size_t number, size_t *index);

/* The number of an operand's element at `index` of a result of `rank` dimensions, by broadcasting.
 */
size_t kiln__shape_number(const struct kiln__shape *operand, const size_t *index, uint32_t rank);

/* Strides that read elements laid out as (from, strides) under another shape of equal count, as
 * numpy's reshape without a copy. False if no strides can say it. */
bool kiln__shape_restride(const struct kiln__shape *from, const int64_t *strides,
                          const struct kiln__shape *to, int64_t *result);

/* The one stride of all leading dimensions but the last `inner`; false if no single one does. */
bool kiln__shape_batch_stride(const int64_t *stride, const struct kiln__shape *shape,
                              uint32_t inner, int64_t *result);

/* Whether a matrix product can read what lies so in place: one of the last two dimensions is
 * contiguous and the leading ones are one run. */
bool kiln__shape_suits_matmul(const struct kiln__shape *shape, const int64_t *stride);
