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

#include <kiln/status.h>
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

/** The same as numpy's x[start:stop:step] has it: a negative start or stop counts from the end, and
 *  what is beyond the ends is clipped, so that INT64_MIN and INT64_MAX say "all that there is"
 *  (downwards: INT64_MAX to INT64_MIN). Only a step of 0 is an error. */
KILN_API kiln_tensor kiln_slice_clipped(kiln_batch *batch, kiln_tensor x, const int64_t *start,
                                        const int64_t *stop, const int64_t *step);

/** x repeated to a larger shape by numpy's rule: aligned at the last dimension, 1 repeats. */
KILN_API kiln_tensor kiln_broadcast(kiln_batch *batch, kiln_tensor x, size_t rank,
                                    const size_t *dims);

/** Windows that slide over the n dimensions of x from `axis` on, in place of these: first how many
 *  there are along each, then their sizes: windows of two dimensions over [N,H,W,C] from axis 1 on
 *  have the shape [N,OH,OW,KH,KW,C]. Neighbouring windows begin step[i] elements apart, the
 *  elements of one are dilation[i] apart; both may be NULL: all 1. Along each dimension there are
 *  (extent - (size - 1) * dilation - 1) / step + 1 windows, at least one. No element is copied. */
KILN_API kiln_tensor kiln_windows(kiln_batch *batch, kiln_tensor x, size_t axis, size_t n,
                                  const size_t *size, const size_t *step, const size_t *dilation);

/** x with some of its elements replaced by those of `part`, of x's type and rank: in dimension i
 *  the elements start[i], start[i] + step[i], ... as many as part has there. step may be NULL: all
 *  1; it may be negative. Bounds are checked, not clipped. x itself stays as it is. */
KILN_API kiln_tensor kiln_insert_slice(kiln_batch *batch, kiln_tensor x, kiln_tensor part,
                                       const int64_t *start, const int64_t *step);

/** A part of x whose place is a tensor: `count` elements along an axis from `start` on, all of the
 *  other dimensions. `start` (integers) is one position, or has by broadcasting one for each element
 *  of x's dimensions before the axis, as [B,1] with x of [B,H,T,D] and axis 2. A negative axis
 *  counts from the end. Where start + i is negative (in Python one counts from the end) or too
 *  large there is what kiln_gather() picks there. Errors: TOO_LARGE also with several positions
 *  beyond INT32_MAX elements of x. */
KILN_API kiln_tensor kiln_slice_at(kiln_batch *batch, kiln_tensor x, kiln_tensor start,
                                   size_t count, int axis);

/** x with the elements of `part` put where kiln_slice_at() would find them; what goes beyond x is
 *  left out. `part` is of x's type and has its dimensions but for the axis, where its extent is how
 *  many elements are replaced. x itself stays as it is; but where x is a buffer that is imported and
 *  the result is exported to that buffer, no other element is touched, as long as nothing that
 *  needs the old content has to run later: a key cache takes one launch for each token, as large as
 *  the token. */
KILN_API kiln_tensor kiln_update_slice(kiln_batch *batch, kiln_tensor x, kiln_tensor part,
                                       kiln_tensor start, int axis);

/** x with `low[i]` elements before and `high[i]` behind it in dimension i, all of this value, which
 *  x's type must be able to hold. */
KILN_API kiln_tensor kiln_pad(kiln_batch *batch, kiln_tensor x, const size_t *low,
                              const size_t *high, double value);

/** What kiln_pad_by() puts beside the elements a b c d, as numpy's pad() calls it. */
typedef enum kiln_padding {
    KILN_PAD_EDGE,      /**< a a | a b c d | d d, the nearest one */
    KILN_PAD_REFLECT,   /**< c b | a b c d | c b, mirrored at the outermost one */
    KILN_PAD_SYMMETRIC, /**< b a | a b c d | d c, mirrored with the outermost one */
    KILN_PAD_WRAP       /**< c d | a b c d | a b, from the other end */
} kiln_padding;

/** x with `low[i]` elements before and `high[i]` behind it in dimension i, taken from x. What is
 *  wider than x goes on mirroring or repeating, up to 16 times. A dimension without elements cannot
 *  be padded. */
KILN_API kiln_tensor kiln_pad_by(kiln_batch *batch, kiln_tensor x, const size_t *low,
                                 const size_t *high, kiln_padding padding);

/** The n tensors, at least one, one after the other along an axis; a negative axis counts from the
 *  end. They are of one type and differ in no other dimension. */
KILN_API kiln_tensor kiln_concat(kiln_batch *batch, size_t n, const kiln_tensor *parts, int axis);

/** The n tensors, at least one, of one type and shape, along a new dimension, which is number
 *  `axis` of the result; a negative axis counts from the result's end. */
KILN_API kiln_tensor kiln_stack(kiln_batch *batch, size_t n, const kiln_tensor *parts, int axis);

/** Cut x along an axis into n parts, at least one, of sizes[i] elements each, together as many as x
 *  has; sizes may be NULL: n equal parts. The tensors go to parts[0 .. n-1], empty ones after an
 *  error. Returns the batch's status. A negative axis counts from the end. No element is copied. */
KILN_API kiln_status kiln_split(kiln_batch *batch, kiln_tensor x, int axis, size_t n,
                                const size_t *sizes, kiln_tensor *parts);

/** Elements of x picked along an axis, as numpy's take() with indices that count from the start
 *  alone (in Python negative ones count from the end): the result has the shape of x with the
 *  axis replaced by all dimensions of `indices` (integers), and is x where the index is on the
 *  axis. A negative axis counts from the end. An index that is negative or too large picks NaN, of
 *  an integer type 0; no memory is touched. */
KILN_API kiln_tensor kiln_gather(kiln_batch *batch, kiln_tensor x, kiln_tensor indices, int axis);

/** What a scatter makes of an element and a value that comes to it: the value, the sum, the
 * product, the smaller or the larger of both (NaN if either is NaN). */
typedef enum kiln_scatter_mode {
    KILN_SCATTER_SET = 0,
    KILN_SCATTER_ADD = 1,
    KILN_SCATTER_MUL = 2,
    KILN_SCATTER_MIN = 3,
    KILN_SCATTER_MAX = 4
} kiln_scatter_mode;

/** x with values put to the elements that kiln_gather() would pick, or added to them, ...:
 * `values`, of x's type, has the shape of such a result. Where an index occurs several times, its
 * values come in their order: of set ones the last stays, and f32 sums have the same bits in every
 * run. A value whose index is negative (in Python those count from the end) or too large is left
 * out. x itself stays as it is. Integers
 * wrap around. Gradients of minima and maxima are shared evenly by those that are equal. */
KILN_API kiln_tensor kiln_scatter(kiln_batch *batch, kiln_tensor x, kiln_tensor indices,
                                  kiln_tensor values, int axis, kiln_scatter_mode mode);

/** kiln_scatter() with KILN_SCATTER_ADD. */
KILN_API kiln_tensor kiln_scatter_add(kiln_batch *batch, kiln_tensor x, kiln_tensor indices,
                                      kiln_tensor values, int axis);

/** One element of x for each of `indices` (integers, of x's rank, in no other dimension than the
 *  axis larger than x): the one at its own position but for the axis, where the index is: numpy's
 *  take_along_axis(), of indices' shape. An index that is negative (in Python those count from the
 *  end) or too large picks as with kiln_gather(). Errors: TOO_LARGE also beyond INT32_MAX elements
 *  of x. */
KILN_API kiln_tensor kiln_gather_elements(kiln_batch *batch, kiln_tensor x, kiln_tensor indices,
                                          int axis);

/** x with values, of x's type and of indices' shape, put to the elements that
 *  kiln_gather_elements() would pick, or added to them, ...; the rest as with kiln_scatter(). */
KILN_API kiln_tensor kiln_scatter_elements(kiln_batch *batch, kiln_tensor x, kiln_tensor indices,
                                           kiln_tensor values, int axis, kiln_scatter_mode mode);

/** Parts of x: the last dimension of `indices` (integers) has positions in as many dimensions of x,
 *  from number `batch_dims` on, in its place the part that is there: the result has all but the
 * last dimension of indices, then those of x that no index is for. The first batch_dims dimensions
 * of both are the same ones, each with indices of its own. A position that is negative (in Python
 * those count from the end) or too large picks NaN, of an integer type 0. Errors: TOO_LARGE also
 * beyond INT32_MAX parts. */
KILN_API kiln_tensor kiln_gather_nd(kiln_batch *batch, kiln_tensor x, kiln_tensor indices,
                                    size_t batch_dims);

/** x with values put to the parts that kiln_gather_nd() of batch_dims 0 would pick, or added to
 *  them, ...; the rest as with kiln_scatter(). */
KILN_API kiln_tensor kiln_scatter_nd(kiln_batch *batch, kiln_tensor x, kiln_tensor indices,
                                     kiln_tensor values, kiln_scatter_mode mode);

/** i32: the positions along an axis of x's elements in order: the smallest first, or with
 *  `descending` nonzero the largest. Equal ones stay in their order; NaN counts as the largest.
 * Work grows with the bytes along the axis; long ones take some 8 bytes of memory for each element,
 * twice, 16 for an i64. TOO_LARGE beyond INT32_MAX elements along the axis. */
KILN_API kiln_tensor kiln_argsort(kiln_batch *batch, kiln_tensor x, int axis, int descending);

/** The elements themselves in that order; gradients go where they came from. Errors: TOO_LARGE also
 *  beyond INT32_MAX elements of x. */
KILN_API kiln_tensor kiln_sort(kiln_batch *batch, kiln_tensor x, int axis, int descending);

/** The first k of kiln_sort(): the largest, the largest first, or with `smallest` nonzero the
 *  smallest. Of equal ones those come that are first in x. `positions`, unless NULL, gets their i32
 *  positions along the axis (the empty tensor after an error). Few of a long axis cost little more
 *  than to read it. Errors: INVALID_ARGUMENT also for k
 *  beyond what x has along the axis. */
KILN_API kiln_tensor kiln_topk(kiln_batch *batch, kiln_tensor x, size_t k, int axis, int smallest,
                               kiln_tensor *positions);

/** x with 0 in place of what, in its last two dimensions, is below (`upper` nonzero) or else above
 *  a diagonal: 0 is the main one, numbers above 0 those above it. numpy's triu() and tril(). */
KILN_API kiln_tensor kiln_triangle(kiln_batch *batch, kiln_tensor x, int upper, int64_t diagonal);

/** i32: the index that each element of a tensor of this shape has along an axis; a negative one
 *  counts from the end. No memory is read or filled for it. TOO_LARGE beyond INT32_MAX elements
 *  along the axis. */
KILN_API kiln_tensor kiln_iota(kiln_batch *batch, size_t rank, const size_t *dims, int axis);

/** start, start + step, ... before stop (with a negative step: above it), as numpy's arange():
 *  ceil((stop - start) / step) elements, none if that is negative. Of f32 each is i * step + start,
 *  rounded twice; integer types take whole numbers that they can hold. TOO_LARGE beyond INT32_MAX
 *  elements. */
KILN_API kiln_tensor kiln_arange(kiln_batch *batch, kiln_type type, double start, double stop,
                                 double step);

/** Of the type 1 where the index (integers) is the position along a new last dimension of `depth`,
 *  else 0; only 0 for an index that is negative or too large. */
KILN_API kiln_tensor kiln_one_hot(kiln_batch *batch, kiln_tensor indices, size_t depth,
                                  kiln_type type);

#ifdef __cplusplus
}
#endif

#endif
