/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that move elements. */
#include <kiln/movement.h>

#include "record/batch.h"
#include "record/call.h"
#include "record/operations.h"

/* A node over one input, of its type, with the shape left to fill in. */
static bool movement_start(kiln_batch *batch, kiln_tensor x, const char *call, enum kiln__kind kind,
                           unsigned op, struct kiln__node *node)
{
    const struct kiln__node *input = kiln__batch_node(batch, x, call, "x");
    if (!input)
        return false;
    *node =
        (struct kiln__node){.kind = kind, .op = (uint8_t)op, .type = input->type, .n_inputs = 1};
    node->input[0] = kiln__tensor_index(x);
    node->shape = input->shape;
    return true;
}

kiln_tensor kiln_reshape(kiln_batch *batch, kiln_tensor x, size_t rank, const size_t *dims)
{
    KILN__CALL(batch);
    struct kiln__node node;
    struct kiln__shape shape;
    if (!movement_start(batch, x, __func__, KILN__RESHAPE, 0, &node) ||
        !kiln__check_dims(batch, __func__, rank, dims, &shape))
        return kiln__none;
    if (kiln__shape_count(&shape) != kiln__shape_count(&node.shape)) {
        kiln__fail(&batch->error, KILN_SHAPE_MISMATCH,
                   "%s: shape %s has %zu elements and shape %s has %zu", __func__,
                   kiln__shape_text(&node.shape).text, kiln__shape_count(&node.shape),
                   kiln__shape_text(&shape).text, kiln__shape_count(&shape));
        return kiln__none;
    }
    node.shape = shape;
    return kiln__batch_record(batch, &node, __func__);
}

/* The default order: the last two dimensions swapped. */
static bool read_order(kiln_batch *batch, const struct kiln__shape *shape, const size_t *axes,
                       size_t order[KILN_MAX_RANK])
{
    uint32_t seen = 0;
    if (!axes && shape->rank < 2)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                   "kiln_transpose: shape %s has no two dimensions to swap",
                   kiln__shape_text(shape).text);
    for (uint32_t d = 0; d < shape->rank && !batch->error.status; d++) {
        order[d] = axes ? axes[d] : d + 2 < shape->rank ? d : 2 * shape->rank - 3 - d;
        if (order[d] >= shape->rank || seen >> order[d] & 1)
            kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                       "kiln_transpose: axes are no order of the %u dimensions of shape %s",
                       shape->rank, kiln__shape_text(shape).text);
        else
            seen |= 1u << order[d];
    }
    return !batch->error.status;
}

kiln_tensor kiln_transpose(kiln_batch *batch, kiln_tensor x, const size_t *axes)
{
    KILN__CALL(batch);
    struct kiln__node node;
    size_t order[KILN_MAX_RANK];
    if (!movement_start(batch, x, __func__, KILN__VIEW, KILN__TRANSPOSE, &node))
        return kiln__none;
    struct kiln__shape from = node.shape;
    if (!read_order(batch, &from, axes, order))
        return kiln__none;
    for (uint32_t d = 0; d < from.rank; d++) {
        node.shape.dims[d] = from.dims[order[d]];
        node.view.source[d] = (int8_t)order[d];
        node.view.step[d] = 1;
    }
    return kiln__batch_record(batch, &node, __func__);
}

/* How many elements start, start + step, ... before stop there are; -1 if one is out of range. The
 * bounds come first: beyond them differences overflow. */
static int64_t count_slice(int64_t start_at, int64_t stop, int64_t step, size_t extent)
{
    if (step == 0)
        return -1;
    if (start_at < 0 || start_at > (int64_t)extent || stop < -1 || stop > (int64_t)extent)
        return -1;
    int64_t span = step > 0 ? stop - start_at : start_at - stop;
    if (span <= 0)
        return 0;
    if (start_at == (int64_t)extent)
        return -1;
    uint64_t size = step > 0 ? (uint64_t)step : -(uint64_t)step;
    return (int64_t)(((uint64_t)span - 1) / size) + 1;
}

static void refuse_slice(kiln_batch *batch, const char *call, const struct kiln__shape *shape,
                         uint32_t d, int64_t start_at, int64_t stop, int64_t step)
{
    if (step == 0)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: the step of dimension %u is 0", call,
                   d);
    else
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                   "%s: %lld to %lld by %lld is not within dimension %u, which has %zu", call,
                   (long long)start_at, (long long)stop, (long long)step, d, shape->dims[d]);
}

/* A bound as numpy takes it: from the end if it is negative, and no further than the ends. */
static int64_t movement_clip(int64_t bound, int64_t step, size_t extent)
{
    int64_t least = step < 0 ? -1 : 0, most = (int64_t)extent - (step < 0);
    bound += bound < 0 ? (int64_t)extent : 0;
    return bound < least ? least : bound > most ? most : bound;
}

static kiln_tensor movement_slice(kiln_batch *batch, const char *call, bool clips, kiln_tensor x,
                                  const int64_t *from, const int64_t *stop, const int64_t *step)
{
    struct kiln__node node;
    if (!movement_start(batch, x, call, KILN__VIEW, KILN__SLICE, &node))
        return kiln__none;
    if (node.shape.rank && (!from || !stop)) {
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: %s is NULL", call,
                   from ? "stop" : "start");
        return kiln__none;
    }
    for (uint32_t d = 0; d < node.shape.rank; d++) {
        size_t extent = node.shape.dims[d];
        int64_t by = step ? step[d] : 1;
        int64_t first = clips ? movement_clip(from[d], by, extent) : from[d];
        int64_t end = clips ? movement_clip(stop[d], by, extent) : stop[d];
        int64_t count = clips && first < 0 && by ? 0 : count_slice(first, end, by, extent);
        if (count < 0) {
            refuse_slice(batch, call, &node.shape, d, from[d], stop[d], by);
            return kiln__none;
        }
        node.view.source[d] = (int8_t)d;
        node.view.start[d] = count ? first : 0;
        node.view.step[d] = count > 1 ? by : 1; /* products with strides stay in range */
        node.shape.dims[d] = (size_t)count;
    }
    return kiln__batch_record(batch, &node, call);
}

kiln_tensor kiln_slice(kiln_batch *batch, kiln_tensor x, const int64_t *from, const int64_t *stop,
                       const int64_t *step)
{
    KILN__CALL(batch);
    return movement_slice(batch, __func__, false, x, from, stop, step);
}

kiln_tensor kiln_slice_clipped(kiln_batch *batch, kiln_tensor x, const int64_t *from,
                               const int64_t *stop, const int64_t *step)
{
    KILN__CALL(batch);
    return movement_slice(batch, __func__, true, x, from, stop, step);
}

kiln_tensor kiln__record_part(kiln_batch *batch, kiln_tensor x, int axis, size_t from, size_t count)
{
    const struct kiln__node *node = kiln__batch_node(batch, x, "kiln_slice", "x");
    int64_t start[KILN_MAX_RANK] = {0}, stop[KILN_MAX_RANK];
    if (!node)
        return kiln__none;
    for (uint32_t d = 0; d < node->shape.rank; d++)
        stop[d] = (int64_t)node->shape.dims[d];
    const uint32_t at = axis < 0 ? node->shape.rank - 1 : (uint32_t)axis;
    start[at] = (int64_t)from;
    stop[at] = (int64_t)(from + count);
    return kiln_slice(batch, x, start, stop, NULL);
}

kiln_tensor kiln_broadcast(kiln_batch *batch, kiln_tensor x, size_t rank, const size_t *dims)
{
    KILN__CALL(batch);
    struct kiln__node node;
    struct kiln__shape shape, both;
    if (!movement_start(batch, x, __func__, KILN__VIEW, KILN__BROADCAST, &node) ||
        !kiln__check_dims(batch, __func__, rank, dims, &shape))
        return kiln__none;
    struct kiln__shape from = node.shape;
    if (!kiln__shape_broadcast(&from, &shape, &both) || !kiln__shape_equal(&both, &shape)) {
        kiln__fail(&batch->error, KILN_SHAPE_MISMATCH, "%s: shape %s does not broadcast to %s",
                   __func__, kiln__shape_text(&from).text, kiln__shape_text(&shape).text);
        return kiln__none;
    }
    node.shape = shape;
    for (uint32_t d = 0; d < shape.rank; d++) {
        int source = (int)d - (int)(shape.rank - from.rank);
        bool repeats = source < 0 || from.dims[source] != shape.dims[d];
        node.view.source[d] = (int8_t)(repeats ? -1 : source);
        node.view.step[d] = !repeats;
    }
    return kiln__batch_record(batch, &node, __func__);
}

/* ---- windows ---- */

/* How many windows of `size` elements that are `by` apart fit `extent`, `step` apart; 0 if none
 * does. */
static size_t count_windows(size_t extent, size_t size, size_t step, size_t by)
{
    if (size == 0 || step == 0 || by == 0 || extent == 0 || (size - 1) > (extent - 1) / by)
        return 0;
    return (extent - 1 - (size - 1) * by) / step + 1;
}

static bool check_window_axes(kiln_batch *batch, const struct kiln__shape *shape, size_t axis,
                              size_t n, const size_t *size)
{
    if (n && !size)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "kiln_windows: size is NULL");
    else if (axis > shape->rank || n > shape->rank - axis)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                   "kiln_windows: shape %s has no %zu dimensions from number %zu on",
                   kiln__shape_text(shape).text, n, axis);
    else if (shape->rank + n > KILN_MAX_RANK)
        kiln__fail(
            &batch->error, KILN_INVALID_ARGUMENT,
            "kiln_windows: windows of %zu dimensions over shape %s have %zu dimensions, and 8 "
            "are the most",
            n, kiln__shape_text(shape).text, shape->rank + n);
    return !batch->error.status;
}

/* Dimension `d` of the result shows dimension `source` of x, every step-th element. */
static void show(struct kiln__node *node, size_t d, size_t source, size_t extent, size_t step)
{
    node->shape.dims[d] = extent;
    node->view.source[d] = (int8_t)source;
    node->view.step[d] = extent > 1 ? (int64_t)step : 1;
}

kiln_tensor kiln_windows(kiln_batch *batch, kiln_tensor x, size_t axis, size_t n,
                         const size_t *size, const size_t *step, const size_t *dilation)
{
    KILN__CALL(batch);
    struct kiln__node node;
    if (!movement_start(batch, x, __func__, KILN__VIEW, KILN__WINDOWS, &node))
        return kiln__none;
    const struct kiln__shape from = node.shape;
    if (!check_window_axes(batch, &from, axis, n, size))
        return kiln__none;
    node.shape.rank += (uint32_t)n;
    for (size_t d = 0; d < from.rank; d++)
        if (d < axis || d >= axis + n)
            show(&node, d < axis ? d : d + n, d, from.dims[d], 1);
    for (size_t i = 0; i < n; i++) {
        size_t every = step ? step[i] : 1, by = dilation ? dilation[i] : 1;
        size_t extent = from.dims[axis + i], count = count_windows(extent, size[i], every, by);
        if (count == 0) {
            kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                       "%s: no window of %zu elements %zu apart, %zu from one to the next, fits "
                       "dimension %zu, which has %zu",
                       __func__, size[i], by, every, axis + i, extent);
            return kiln__none;
        }
        show(&node, axis + i, axis + i, count, every);
        show(&node, axis + n + i, axis + i, size[i], by);
    }
    struct kiln__shape fits;
    if (!kiln__check_dims(batch, __func__, node.shape.rank, node.shape.dims, &fits))
        return kiln__none;
    return kiln__batch_record(batch, &node, __func__);
}
