/* SPDX-License-Identifier: Apache-2.0 */
/* Normalisations in which each channel has parameters of its own, and rotary embeddings. */
#include <kiln/batch.h>
#include <kiln/elementwise.h>
#include <kiln/movement.h>
#include <kiln/normalization.h>
#include <kiln/operations.h>
#include <kiln/reductions.h>

#include "record/call.h"
#include "record/operations.h"

/* One call: x, and which of its dimensions is that of the channels. */
struct call {
    kiln_batch *batch;
    const char *name;
    struct kiln__shape shape;
    uint32_t axis;
};

static bool channels_begin(struct call *call, kiln_tensor x, int axis)
{
    const struct kiln__node *node = kiln__batch_floating(call->batch, x, call->name, "x");
    if (!node)
        return false;
    call->shape = node->shape;
    return kiln__find_axis(call->batch, call->name, axis, node->shape.rank, &call->axis);
}

/* An operand with an element for each channel, in the dimension of the channels. One that may be
 * left out stays so. */
static bool read_channels(const struct call *call, const char *name, bool needed,
                          kiln_tensor *operand)
{
    size_t dims[KILN_MAX_RANK], channels = call->shape.dims[call->axis];
    if (!needed && operand->id == 0)
        return true;
    const struct kiln__node *node = kiln__batch_floating(call->batch, *operand, call->name, name);
    if (!node)
        return false;
    if (node->shape.rank != 1 || node->shape.dims[0] != channels) {
        kiln__fail(&call->batch->error, KILN_SHAPE_MISMATCH,
                   "%s: operand %s has shape %s, not an element for each of %zu channels",
                   call->name, name, kiln__shape_text(&node->shape).text, channels);
        return false;
    }
    for (uint32_t d = 0; d < call->shape.rank; d++)
        dims[d] = d == call->axis ? channels : 1;
    *operand = kiln_reshape(call->batch, *operand, call->shape.rank, dims);
    return !call->batch->error.status;
}

static kiln_tensor channels_number(const struct call *call, double value)
{
    return call->batch->error.status ? kiln__none : kiln_constant(call->batch, KILN_F32, value);
}

static kiln_tensor channels_scaled(const struct call *call, kiln_tensor y, kiln_tensor scale,
                                   kiln_tensor shift)
{
    y = scale.id ? kiln_mul(call->batch, y, scale) : y;
    return shift.id ? kiln_add(call->batch, y, shift) : y;
}

/* ---- batch norm ---- */

kiln_tensor kiln_batch_norm(kiln_batch *batch, kiln_tensor x, kiln_tensor scale, kiln_tensor shift,
                            kiln_tensor mean, kiln_tensor variance, int axis, double epsilon)
{
    KILN__CALL(batch);
    struct call call = {.batch = batch, .name = __func__};
    if (!channels_begin(&call, x, axis) ||
        !kiln__check_number(batch, __func__, "epsilon", epsilon) ||
        !read_channels(&call, "scale", false, &scale) ||
        !read_channels(&call, "shift", false, &shift) ||
        !read_channels(&call, "mean", true, &mean) ||
        !read_channels(&call, "variance", true, &variance))
        return kiln__none;
    kiln_tensor by = kiln_rsqrt(batch, kiln_add(batch, variance, channels_number(&call, epsilon)));
    by = scale.id ? kiln_mul(batch, by, scale) : by;
    return channels_scaled(&call, kiln_mul(batch, kiln_sub(batch, x, mean), by), kiln__none, shift);
}

kiln_tensor kiln_batch_norm_train(kiln_batch *batch, kiln_tensor x, kiln_tensor scale,
                                  kiln_tensor shift, int axis, double epsilon, kiln_tensor *mean,
                                  kiln_tensor *variance)
{
    KILN__CALL(batch);
    struct call call = {.batch = batch, .name = __func__};
    int axes[KILN_MAX_RANK];
    size_t n = 0;
    if (mean)
        *mean = kiln__none;
    if (variance)
        *variance = kiln__none;
    if (!channels_begin(&call, x, axis) ||
        !kiln__check_number(batch, __func__, "epsilon", epsilon) ||
        !read_channels(&call, "scale", false, &scale) ||
        !read_channels(&call, "shift", false, &shift))
        return kiln__none;
    if (call.shape.rank == 1)
        x = kiln_reshape(batch, x, 2, (size_t[]){1, call.shape.dims[0]});
    for (uint32_t d = 0; d < call.shape.rank; d++)
        if (d != call.axis)
            axes[n++] = (int)d;
    if (call.shape.rank == 1)
        axes[n++] = 0;
    if (mean)
        *mean = kiln__record_mean(batch, __func__, x, n, axes);
    if (variance)
        *variance = kiln_variance(batch, x, n, axes, 0, 0);
    kiln_tensor y = channels_scaled(
        &call, kiln_layer_norm(batch, x, kiln__none, kiln__none, n, axes, epsilon), scale, shift);
    return call.shape.rank == 1 ? kiln_reshape(batch, y, 1, call.shape.dims) : y;
}

/* ---- group and instance norm ---- */

static kiln_tensor normalize_groups(struct call *call, kiln_tensor x, kiln_tensor scale,
                                    kiln_tensor shift, size_t groups, double epsilon)
{
    struct kiln__shape cut = {0};
    int axes[KILN_MAX_RANK];
    size_t n = 0;
    for (uint32_t d = 0; d < call->shape.rank; d++) {
        if (d == call->axis)
            cut.dims[cut.rank++] = groups;
        else if (d > 0)
            axes[n++] = (int)cut.rank;
        cut.dims[cut.rank++] = d == call->axis ? call->shape.dims[d] / groups : call->shape.dims[d];
        if (d == call->axis)
            axes[n++] = (int)cut.rank - 1;
    }
    kiln_tensor y = kiln_reshape(call->batch, x, cut.rank, cut.dims);
    y = kiln_layer_norm(call->batch, y, kiln__none, kiln__none, n, axes, epsilon);
    y = kiln_reshape(call->batch, y, call->shape.rank, call->shape.dims);
    return channels_scaled(call, y, scale, shift);
}

kiln_tensor kiln_group_norm(kiln_batch *batch, kiln_tensor x, kiln_tensor scale, kiln_tensor shift,
                            size_t groups, int axis, double epsilon)
{
    KILN__CALL(batch);
    struct call call = {.batch = batch, .name = __func__};
    if (!channels_begin(&call, x, axis) ||
        !kiln__check_number(batch, __func__, "epsilon", epsilon) ||
        !read_channels(&call, "scale", false, &scale) ||
        !read_channels(&call, "shift", false, &shift))
        return kiln__none;
    if (call.axis == 0 || call.shape.rank == KILN_MAX_RANK) {
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                   "%s: channels in dimension %u of shape %s: the first one is the batch's, and 7 "
                   "are the most",
                   __func__, call.axis, kiln__shape_text(&call.shape).text);
        return kiln__none;
    }
    if (groups == 0 || call.shape.dims[call.axis] % groups) {
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                   "%s: %zu channels are not cut into %zu equal groups", __func__,
                   call.shape.dims[call.axis], groups);
        return kiln__none;
    }
    return normalize_groups(&call, x, scale, shift, groups, epsilon);
}

/* Groups of one channel, without the dimension of 1. */
kiln_tensor kiln_instance_norm(kiln_batch *batch, kiln_tensor x, kiln_tensor scale,
                               kiln_tensor shift, int axis, double epsilon)
{
    KILN__CALL(batch);
    struct call call = {.batch = batch, .name = __func__};
    int axes[KILN_MAX_RANK];
    size_t n = 0;
    if (!channels_begin(&call, x, axis) ||
        !kiln__check_number(batch, __func__, "epsilon", epsilon) ||
        !read_channels(&call, "scale", false, &scale) ||
        !read_channels(&call, "shift", false, &shift))
        return kiln__none;
    for (uint32_t d = 1; d < call.shape.rank; d++)
        if (d != call.axis)
            axes[n++] = (int)d;
    if (call.axis == 0 || n == 0) {
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                   "%s: channels in dimension %u of shape %s: the first one is the batch's, and "
                   "another is normalised",
                   __func__, call.axis, kiln__shape_text(&call.shape).text);
        return kiln__none;
    }
    return channels_scaled(
        &call, kiln_layer_norm(batch, x, kiln__none, kiln__none, n, axes, epsilon), scale, shift);
}

/* ---- local response ---- */

kiln_tensor kiln_local_response_norm(kiln_batch *batch, kiln_tensor x, int axis, size_t size,
                                     double alpha, double beta, double bias)
{
    KILN__CALL(batch);
    struct call call = {.batch = batch, .name = __func__};
    size_t low[KILN_MAX_RANK] = {0}, high[KILN_MAX_RANK] = {0};
    if (!channels_begin(&call, x, axis) || !kiln__check_number(batch, __func__, "alpha", alpha) ||
        !kiln__check_number(batch, __func__, "beta", beta) ||
        !kiln__check_number(batch, __func__, "bias", bias))
        return kiln__none;
    if (size == 0 || size > INT32_MAX || call.shape.rank == KILN_MAX_RANK) {
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                   "%s: windows of %zu channels over shape %s, of 1 or more over 7 dimensions at "
                   "most",
                   __func__, size, kiln__shape_text(&call.shape).text);
        return kiln__none;
    }
    if (kiln__shape_count(&call.shape) == 0)
        return kiln_cast(batch, x, KILN_F32);
    low[call.axis] = (size - 1) / 2;
    high[call.axis] = size - 1 - low[call.axis];
    kiln_tensor squares = kiln_pad(batch, kiln_square(batch, x), low, high, 0);
    squares = kiln_windows(batch, squares, call.axis, 1, &size, NULL, NULL);
    const int window = (int)call.axis + 1;
    kiln_tensor around =
        kiln_scale(batch, kiln_sum(batch, squares, 1, &window, 0), alpha / (double)size);
    around = kiln_add(batch, around, channels_number(&call, bias));
    return kiln_mul(batch, x, kiln_pow(batch, around, channels_number(&call, -beta)));
}

/* ---- rotary embeddings ---- */

/* Every step-th element of the last dimension from `first` on, `count` of them. */
static kiln_tensor channels_part(const struct call *call, kiln_tensor x, size_t first, size_t count,
                                 size_t step)
{
    int64_t start[KILN_MAX_RANK] = {0}, stop[KILN_MAX_RANK], steps[KILN_MAX_RANK];
    const uint32_t last = call->shape.rank - 1;
    for (uint32_t d = 0; d <= last; d++)
        stop[d] = (int64_t)call->shape.dims[d], steps[d] = 1;
    start[last] = (int64_t)first;
    stop[last] = count ? (int64_t)(first + (count - 1) * step + 1) : (int64_t)first;
    steps[last] = (int64_t)step;
    return kiln_slice(call->batch, x, start, stop, steps);
}

static bool check_angles(const struct call *call, kiln_tensor cosine, kiln_tensor sine,
                         size_t *pairs)
{
    const struct kiln__node *a = kiln__batch_floating(call->batch, cosine, call->name, "cosine");
    const struct kiln__node *b =
        a ? kiln__batch_floating(call->batch, sine, call->name, "sine") : NULL;
    struct kiln__shape half = call->shape, both;
    if (!b)
        return false;
    *pairs = a->shape.rank ? a->shape.dims[a->shape.rank - 1] : 0;
    half.dims[half.rank - 1] = *pairs;
    if (!kiln__shape_equal(&a->shape, &b->shape) || *pairs == 0 ||
        *pairs > call->shape.dims[call->shape.rank - 1] / 2 ||
        !kiln__shape_broadcast(&half, &a->shape, &both) || !kiln__shape_equal(&both, &half))
        kiln__fail(&call->batch->error, KILN_SHAPE_MISMATCH,
                   "%s: cosines of shape %s and sines of shape %s do not turn pairs of x's last "
                   "dimension, of shape %s",
                   call->name, kiln__shape_text(&a->shape).text, kiln__shape_text(&b->shape).text,
                   kiln__shape_text(&call->shape).text);
    return !call->batch->error.status;
}

/* Elements of the last dimension as pairs: [.., 2, pairs], or [.., pairs, 2] if `interleaved`; of
 * angles one for each pair. Where there is no room for another dimension, the ones before are
 * merged, of angles after broadcasting. */
static kiln_tensor as_pairs(const struct call *call, kiln_tensor x, size_t pairs, size_t of_pair,
                            int interleaved)
{
    struct kiln__shape shape = kiln__batch_node(call->batch, x, call->name, "x")->shape;
    if (call->shape.rank == KILN_MAX_RANK) {
        struct kiln__shape whole = call->shape;
        whole.dims[whole.rank - 1] = pairs * of_pair;
        x = kiln_broadcast(call->batch, x, whole.rank, whole.dims);
        shape = (struct kiln__shape){.rank = 2, .dims = {1, pairs * of_pair}};
        for (uint32_t d = 0; d + 1 < whole.rank; d++)
            shape.dims[0] *= whole.dims[d];
    }
    shape.dims[shape.rank - 1] = interleaved ? pairs : of_pair;
    shape.dims[shape.rank++] = interleaved ? of_pair : pairs;
    return kiln_reshape(call->batch, x, shape.rank, shape.dims);
}

/* The other one of each pair, and what stands before its sine: -1 for the first. */
static kiln_tensor rotated_partners(const struct call *call, kiln_tensor pairs, uint32_t axis,
                                    kiln_tensor *sign)
{
    kiln_batch *batch = call->batch;
    const struct kiln__shape shape = kiln__batch_node(batch, pairs, call->name, "x")->shape;
    int64_t start[KILN_MAX_RANK] = {0}, stop[KILN_MAX_RANK], steps[KILN_MAX_RANK];
    size_t dims[2] = {1, 1};
    for (uint32_t d = 0; d < shape.rank; d++)
        stop[d] = (int64_t)shape.dims[d], steps[d] = 1;
    start[axis] = 1, stop[axis] = steps[axis] = -1;
    dims[axis + 2 - shape.rank] = 2;
    *sign = kiln_cast(batch, kiln_iota(batch, 2, dims, (int)(axis + 2 - shape.rank)), KILN_F32);
    *sign = kiln_add(batch, kiln_scale(batch, *sign, 2), channels_number(call, -1));
    return kiln_slice(batch, pairs, start, stop, steps);
}

/* x cosine + other x sine, of which the first of a pair takes less: one map of what lies where it
 * is. */
kiln_tensor kiln_rotary(kiln_batch *batch, kiln_tensor x, kiln_tensor cosine, kiln_tensor sine,
                        int interleaved)
{
    KILN__CALL(batch);
    struct call call = {.batch = batch, .name = __func__};
    size_t pairs;
    if (!channels_begin(&call, x, -1) || !check_angles(&call, cosine, sine, &pairs))
        return kiln__none;
    struct kiln__shape turned = call.shape;
    const size_t width = turned.dims[turned.rank - 1];
    turned.dims[turned.rank - 1] = 2 * pairs;
    kiln_tensor sign, own = width > 2 * pairs ? channels_part(&call, x, 0, 2 * pairs, 1) : x;
    own = as_pairs(&call, own, pairs, 2, interleaved);
    cosine = as_pairs(&call, cosine, pairs, 1, interleaved);
    sine = as_pairs(&call, sine, pairs, 1, interleaved);
    if (batch->error.status)
        return kiln__none;
    const struct kiln__node *node = kiln__batch_node(batch, own, __func__, "x");
    kiln_tensor other =
        rotated_partners(&call, own, node->shape.rank - (interleaved ? 1 : 2), &sign);
    kiln_tensor y = kiln_add(batch, kiln_mul(batch, own, cosine),
                             kiln_mul(batch, other, kiln_mul(batch, sine, sign)));
    y = kiln_reshape(batch, y, turned.rank, turned.dims);
    if (width == 2 * pairs)
        return y;
    kiln_tensor rest =
        channels_part(&call, kiln_cast(batch, x, KILN_F32), 2 * pairs, width - 2 * pairs, 1);
    return kiln_concat(batch, 2, ((kiln_tensor[]){y, rest}), -1);
}
