/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that move elements. */
#include <kiln/movement.h>

#include "api/batch.h"

static const kiln_tensor none = {0};

/* A node over one input, of its type, with the shape left to fill in. */
static bool start(kiln_batch *batch, kiln_tensor x, const char *call, enum kiln__kind kind,
                  unsigned op, struct kiln__node *node)
{
    const struct kiln__node *input = kiln__batch_node(batch, x, call, "x");
    if (!input)
        return false;
    *node = (struct kiln__node){
        .kind = (uint8_t)kind, .op = (uint8_t)op, .type = input->type, .n_inputs = 1};
    node->input[0] = kiln__tensor_index(x);
    node->shape = input->shape;
    return true;
}

static bool check_dims(kiln_batch *batch, const char *call, size_t rank, const size_t *dims,
                       struct kiln__shape *shape)
{
    if (rank && !dims)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: dims is NULL", call);
    else if (rank > KILN_MAX_RANK)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: %zu dimensions, and 8 are the most",
                   call, rank);
    else if (!kiln__shape_make(rank, dims, shape))
        kiln__fail(&batch->error, KILN_TOO_LARGE, "%s: shape %s has too many elements", call,
                   kiln__shape_text(shape).text);
    return !batch->error.status;
}

kiln_tensor kiln_reshape(kiln_batch *batch, kiln_tensor x, size_t rank, const size_t *dims)
{
    struct kiln__node node;
    struct kiln__shape shape;
    if (!start(batch, x, __func__, KILN__RESHAPE, 0, &node) ||
        !check_dims(batch, __func__, rank, dims, &shape))
        return none;
    if (kiln__shape_count(&shape) != kiln__shape_count(&node.shape)) {
        kiln__fail(&batch->error, KILN_SHAPE_MISMATCH,
                   "%s: shape %s has %zu elements and shape %s has %zu", __func__,
                   kiln__shape_text(&node.shape).text, kiln__shape_count(&node.shape),
                   kiln__shape_text(&shape).text, kiln__shape_count(&shape));
        return none;
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
    struct kiln__node node;
    size_t order[KILN_MAX_RANK];
    if (!start(batch, x, __func__, KILN__VIEW, KILN__TRANSPOSE, &node))
        return none;
    struct kiln__shape from = node.shape;
    if (!read_order(batch, &from, axes, order))
        return none;
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

static void refuse_slice(kiln_batch *batch, const struct kiln__shape *shape, uint32_t d,
                         int64_t start_at, int64_t stop, int64_t step)
{
    if (step == 0)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                   "kiln_slice: the step of dimension %u is 0", d);
    else
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                   "kiln_slice: %lld to %lld by %lld is not within dimension %u, which has %zu",
                   (long long)start_at, (long long)stop, (long long)step, d, shape->dims[d]);
}

kiln_tensor kiln_slice(kiln_batch *batch, kiln_tensor x, const int64_t *from, const int64_t *stop,
                       const int64_t *step)
{
    struct kiln__node node;
    if (!start(batch, x, __func__, KILN__VIEW, KILN__SLICE, &node))
        return none;
    if (node.shape.rank && (!from || !stop)) {
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: %s is NULL", __func__,
                   from ? "stop" : "start");
        return none;
    }
    for (uint32_t d = 0; d < node.shape.rank; d++) {
        int64_t by = step ? step[d] : 1;
        int64_t count = count_slice(from[d], stop[d], by, node.shape.dims[d]);
        if (count < 0) {
            refuse_slice(batch, &node.shape, d, from[d], stop[d], by);
            return none;
        }
        node.view.source[d] = (int8_t)d;
        node.view.start[d] = count ? from[d] : 0;
        node.view.step[d] = count > 1 ? by : 1; /* products with strides stay in range */
        node.shape.dims[d] = (size_t)count;
    }
    return kiln__batch_record(batch, &node, __func__);
}

kiln_tensor kiln_broadcast(kiln_batch *batch, kiln_tensor x, size_t rank, const size_t *dims)
{
    struct kiln__node node;
    struct kiln__shape shape, both;
    if (!start(batch, x, __func__, KILN__VIEW, KILN__BROADCAST, &node) ||
        !check_dims(batch, __func__, rank, dims, &shape))
        return none;
    struct kiln__shape from = node.shape;
    if (!kiln__shape_broadcast(&from, &shape, &both) || !kiln__shape_equal(&both, &shape)) {
        kiln__fail(&batch->error, KILN_SHAPE_MISMATCH, "%s: shape %s does not broadcast to %s",
                   __func__, kiln__shape_text(&from).text, kiln__shape_text(&shape).text);
        return none;
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
