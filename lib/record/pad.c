/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors padded with their own elements: slices that are put together, dimension by dimension. */
#include <kiln/movement.h>

#include "record/batch.h"
#include "record/call.h"

/* More would be a slice each time that x is repeated or mirrored. */
#define MOST_REPEATS 16

/* ---- pieces ---- */

/* Elements start, start + step, ...: as many as `count`. */
struct piece {
    int64_t start, step, count;
};

static int64_t remainder_of(int64_t j, int64_t period)
{
    return ((j % period) + period) % period;
}

static struct piece edge_piece(int64_t j, int64_t extent)
{
    return j < 0        ? (struct piece){0, 0, -j}
           : j < extent ? (struct piece){j, 1, extent - j}
                        : (struct piece){extent - 1, 0, INT64_MAX};
}

static struct piece reflect_piece(int64_t j, int64_t extent)
{
    int64_t period = 2 * (extent - 1), at = extent > 1 ? remainder_of(j, period) : 0;
    return extent == 1   ? (struct piece){0, 0, INT64_MAX}
           : at < extent ? (struct piece){at, 1, extent - at}
                         : (struct piece){period - at, -1, period - at};
}

static struct piece symmetric_piece(int64_t j, int64_t extent)
{
    int64_t at = remainder_of(j, 2 * extent);
    return extent == 1   ? (struct piece){0, 0, INT64_MAX}
           : at < extent ? (struct piece){at, 1, extent - at}
                         : (struct piece){2 * extent - 1 - at, -1, 2 * extent - at};
}

static struct piece wrap_piece(int64_t j, int64_t extent)
{
    int64_t at = remainder_of(j, extent);
    return extent == 1 ? (struct piece){0, 0, INT64_MAX} : (struct piece){at, 1, extent - at};
}

/* What stands from place j on, which may be beyond both ends of the elements 0 to extent - 1. */
static struct piece (*const piece_at[])(int64_t j, int64_t extent) = {
    [KILN_PAD_EDGE] = edge_piece,
    [KILN_PAD_REFLECT] = reflect_piece,
    [KILN_PAD_SYMMETRIC] = symmetric_piece,
    [KILN_PAD_WRAP] = wrap_piece,
};
#define PADDINGS (sizeof piece_at / sizeof *piece_at)

static kiln_tensor take_piece(kiln_batch *batch, kiln_tensor x, const struct kiln__shape *shape,
                              uint32_t d, const struct piece *piece)
{
    int64_t start[KILN_MAX_RANK] = {0}, stop[KILN_MAX_RANK], step[KILN_MAX_RANK];
    struct kiln__shape repeated = *shape;
    for (uint32_t i = 0; i < shape->rank; i++) {
        stop[i] = (int64_t)shape->dims[i];
        step[i] = 1;
    }
    start[d] = piece->start;
    step[d] = piece->step ? piece->step : 1;
    stop[d] = piece->start + (piece->step ? piece->count * piece->step : 1);
    x = kiln_slice(batch, x, start, stop, step);
    repeated.dims[d] = (size_t)piece->count;
    return piece->step ? x : kiln_broadcast(batch, x, repeated.rank, repeated.dims);
}

static kiln_tensor pad_dimension(kiln_batch *batch, kiln_tensor x, uint32_t d, size_t low,
                                 size_t high, kiln_padding padding)
{
    const struct kiln__shape shape = kiln__tensor_node(batch, x)->shape;
    KILN__VECTOR(kiln_tensor) parts = {0};
    int64_t extent = (int64_t)shape.dims[d], end = extent + (int64_t)high;
    for (int64_t j = -(int64_t)low; j < end && !batch->error.status;) {
        struct piece piece = piece_at[padding](j, extent);
        piece.count = piece.count < end - j ? piece.count : end - j;
        if (!kiln__vector_add(&parts, take_piece(batch, x, &shape, d, &piece)))
            kiln__fail(&batch->error, KILN_OUT_OF_HOST_MEMORY, "kiln_pad_by: no memory to record");
        j += piece.count;
    }
    kiln_tensor whole =
        batch->error.status ? kiln__none : kiln_concat(batch, parts.count, parts.items, (int)d);
    kiln__vector_free(&parts);
    return whole;
}

/* ---- the call ---- */

static bool check_extent(kiln_batch *batch, const struct kiln__shape *shape, uint32_t d, size_t low,
                         size_t high, kiln_padding padding)
{
    size_t extent = shape->dims[d], larger = low > high ? low : high;
    if (extent == 0 && larger)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                   "kiln_pad_by: dimension %u of shape %s has no elements to pad with", d,
                   kiln__shape_text(shape).text);
    else if (larger > SIZE_MAX / 8)
        kiln__fail(&batch->error, KILN_TOO_LARGE,
                   "kiln_pad_by: shape %s is padded to too many elements",
                   kiln__shape_text(shape).text);
    else if (padding != KILN_PAD_EDGE && larger && extent > 1 &&
             (larger - 1) / MOST_REPEATS >= extent)
        kiln__fail(
            &batch->error, KILN_INVALID_ARGUMENT,
            "kiln_pad_by: %zu and %zu elements beside dimension %u of shape %s are more than "
            "%d times as many as it has",
            low, high, d, kiln__shape_text(shape).text, MOST_REPEATS);
    return !batch->error.status;
}

kiln_tensor kiln_pad_by(kiln_batch *batch, kiln_tensor x, const size_t *low, const size_t *high,
                        kiln_padding padding)
{
    KILN__CALL(batch);
    const struct kiln__node *node = kiln__batch_node(batch, x, __func__, "x");
    if (!node)
        return kiln__none;
    const struct kiln__shape from = node->shape;
    struct kiln__shape to = from, checked;
    if (from.rank && (!low || !high))
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: %s is NULL", __func__,
                   low ? "high" : "low");
    else if ((size_t)padding >= PADDINGS)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: %d is no way to pad", __func__,
                   (int)padding);
    for (uint32_t d = 0; d < from.rank && !batch->error.status; d++)
        if (check_extent(batch, &from, d, low[d], high[d], padding))
            to.dims[d] += low[d] + high[d];
    if (batch->error.status || !kiln__check_dims(batch, __func__, to.rank, to.dims, &checked))
        return kiln__none;
    for (uint32_t d = from.rank; d-- > 0 && !batch->error.status;)
        if (low[d] || high[d])
            x = pad_dimension(batch, x, d, low[d], high[d], padding);
    return batch->error.status ? kiln__none : x;
}
