/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions as products of windows with weights. */
#include <kiln/elementwise.h>
#include <kiln/movement.h>
#include <kiln/product.h>
#include <kiln/reductions.h>

#include <stdlib.h>
#include <string.h>

#include "nn/convolution.h"
#include "record/call.h"
#include "record/operations.h"
#include "util/structure.h"

/* ---- one product ---- */

/* Dimensions of a tensor, put together. */
struct dims {
    size_t rank, at[KILN_MAX_RANK + 1];
};

static void convolution_append(struct dims *dims, size_t n, const size_t *more)
{
    memcpy(dims->at + dims->rank, more, n * sizeof *more);
    dims->rank += n;
}
#define APPEND(dims, ...)                                                                          \
    convolution_append(dims, sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t),                     \
                       (size_t[]){__VA_ARGS__})

static kiln_tensor reshape(const struct kiln__sliding *call, kiln_tensor x, const struct dims *dims)
{
    return call->batch->error.status ? kiln__none
                                     : kiln_reshape(call->batch, x, dims->rank, dims->at);
}

static size_t taps_of(const struct kiln__sliding *call)
{
    size_t taps = 1;
    for (uint32_t i = 0; i < call->n; i++)
        taps *= call->window[i];
    return taps;
}

static size_t channels_in(const struct kiln__sliding *call)
{
    return call->image.dims[call->n + 1];
}

/* The n dimensions within a window, from number 1 + n on. */
static void window_axes(const struct kiln__sliding *call, int *axes)
{
    for (uint32_t i = 0; i < call->n; i++)
        axes[i] = (int)(1 + call->n + i);
}

/* The weights' single input channel, dropped as a sum: weights that lie with their channels first
 * are brought into order once by that, instead of being read across for each element. */
static kiln_tensor drop_channel(const struct kiln__sliding *call, kiln_tensor w)
{
    return call->layout == KILN_CHANNELS_FIRST
               ? kiln_sum(call->batch, w, 1, (int[]){(int)call->n}, 0)
               : w;
}

/* Groups of a single input channel are sums, not worth being products. */
static kiln_tensor convolve_channels(const struct kiln__sliding *call, kiln_tensor windows,
                                     kiln_tensor w, size_t out)
{
    const struct kiln__shape shape = kiln__sliding_shape(call, windows);
    size_t channels = channels_in(call), each = out / channels;
    int axes[KILN__SPATIAL];
    struct dims of_windows = {0}, of_w = {0}, of_y = {0};
    convolution_append(&of_windows, shape.rank, shape.dims);
    convolution_append(&of_w, call->n, call->window);
    APPEND(&of_w, channels);
    convolution_append(&of_y, 1 + call->n, shape.dims);
    APPEND(&of_y, out);
    if (each > 1) {
        APPEND(&of_windows, 1);
        APPEND(&of_w, each);
    }
    window_axes(call, axes);
    windows = reshape(call, windows, &of_windows);
    w = reshape(call, drop_channel(call, w), &of_w);
    if (call->batch->error.status)
        return kiln__none;
    kiln_tensor y = kiln_sum(call->batch, kiln_mul(call->batch, windows, w), call->n, axes, 0);
    return each > 1 ? reshape(call, y, &of_y) : y;
}

/* The windows as rows of [..., taps * C]. The leading dimensions stay, so that what follows has the
 * product's own shape and runs in its kernel. */
static kiln_tensor convolve_whole(const struct kiln__sliding *call, kiln_tensor windows,
                                  kiln_tensor w, size_t out)
{
    const struct kiln__shape shape = kiln__sliding_shape(call, windows);
    size_t depth = taps_of(call) * channels_in(call);
    struct dims rows = {0};
    convolution_append(&rows, 1 + call->n, shape.dims);
    APPEND(&rows, depth);
    windows = reshape(call, windows, &rows);
    w = reshape(call, w, &(struct dims){2, {depth, out}});
    return call->batch->error.status ? kiln__none : kiln_matmul(call->batch, windows, w);
}

/* Dimension `from` of `rank` moved to the front; or the first one moved to place `to`. */
static kiln_tensor move_first(const struct kiln__sliding *call, kiln_tensor x, size_t rank,
                              size_t from)
{
    size_t order[KILN_MAX_RANK] = {from};
    for (size_t d = 1; d < rank; d++)
        order[d] = d <= from ? d - 1 : d;
    return call->batch->error.status ? kiln__none : kiln_transpose(call->batch, x, order);
}

static kiln_tensor move_from_first(const struct kiln__sliding *call, kiln_tensor x, size_t rank,
                                   size_t to)
{
    size_t order[KILN_MAX_RANK] = {0};
    for (size_t d = 0; d < rank; d++)
        order[d] = d < to ? d + 1 : d == to ? 0 : d;
    return call->batch->error.status ? kiln__none : kiln_transpose(call->batch, x, order);
}

/* A batch of products, one for each group. */
static kiln_tensor convolve_groups(const struct kiln__sliding *call, kiln_tensor windows,
                                   kiln_tensor w, size_t out)
{
    const struct kiln__shape shape = kiln__sliding_shape(call, windows);
    const uint32_t n = call->n;
    size_t groups = call->groups, in = channels_in(call) / groups, each = out / groups;
    size_t rows = 1, depth = taps_of(call) * in;
    struct dims split = {0}, weights = {0}, y_dims = {0}, whole = {0};
    for (uint32_t d = 0; d <= n; d++)
        rows *= shape.dims[d];
    convolution_append(&split, 1 + 2 * n, shape.dims);
    APPEND(&split, groups, in);
    windows = move_first(call, reshape(call, windows, &split), split.rank, 1 + 2 * n);
    windows = reshape(call, windows, &(struct dims){3, {groups, rows, depth}});
    convolution_append(&weights, n, call->window);
    APPEND(&weights, in, groups, each);
    w = move_first(call, reshape(call, w, &weights), weights.rank, n + 1);
    w = reshape(call, w, &(struct dims){3, {groups, depth, each}});
    if (call->batch->error.status)
        return kiln__none;
    kiln_tensor y = kiln_matmul(call->batch, windows, w);
    APPEND(&y_dims, groups);
    convolution_append(&y_dims, 1 + n, shape.dims);
    APPEND(&y_dims, each);
    y = move_from_first(call, reshape(call, y, &y_dims), y_dims.rank, 1 + n);
    convolution_append(&whole, 1 + n, shape.dims);
    APPEND(&whole, out);
    return reshape(call, y, &whole);
}

/* ---- groups beyond what a tensor has dimensions for ---- */

/* Each group by itself. */
static kiln_tensor convolve_each_group(const struct kiln__sliding *call, kiln_tensor x,
                                       kiln_tensor w, size_t out)
{
    kiln_batch *batch = call->batch;
    size_t groups = call->groups, in = channels_in(call) / groups, each = out / groups;
    struct kiln__sliding one = *call;
    one.groups = 1;
    one.image.dims[call->n + 1] = in;
    kiln_tensor *parts = calloc(groups, sizeof *parts);
    if (!parts)
        kiln__fail(&batch->error, KILN_OUT_OF_HOST_MEMORY, "%s: no memory to record", call->name);
    for (size_t g = 0; parts && g < groups && !batch->error.status; g++)
        parts[g] = kiln__convolve(&one, kiln__record_part(batch, x, -1, g * in, in),
                                  kiln__record_part(batch, w, -1, g * each, each));
    kiln_tensor y = batch->error.status ? kiln__none : kiln_concat(batch, groups, parts, -1);
    free(parts);
    return y;
}

kiln_tensor kiln__convolve(const struct kiln__sliding *call, kiln_tensor x, kiln_tensor w)
{
    if (call->batch->error.status)
        return kiln__none;
    size_t groups = call->groups, out = kiln__sliding_shape(call, w).dims[call->n + 1];
    bool by_channel = groups > 1 && channels_in(call) == groups;
    bool has_room = 2 * call->n + 3 <= KILN_MAX_RANK;
    if (groups > 1 && !has_room && !(by_channel && out == groups))
        return convolve_each_group(call, x, w, out);
    kiln_tensor windows = kiln__sliding_windows(call, x, 0);
    if (call->batch->error.status)
        return kiln__none;
    return by_channel   ? convolve_channels(call, windows, w, out)
           : groups > 1 ? convolve_groups(call, windows, w, out)
                        : convolve_whole(call, windows, w, out);
}

/* ---- weights ---- */

/* From [O, C/groups, window ...] to [window ..., C/groups, O]. */
static kiln_tensor weights_channels_last(const struct kiln__sliding *call, kiln_tensor w)
{
    size_t order[KILN_MAX_RANK];
    const uint32_t n = call->n;
    if (call->layout == KILN_CHANNELS_LAST)
        return w;
    for (uint32_t i = 0; i < n; i++)
        order[i] = 2 + i;
    order[n] = 1;
    order[n + 1] = 0;
    return kiln_transpose(call->batch, w, order);
}

/* The weights' shape as if they had channels last. */
static bool read_weights(struct kiln__sliding *call, kiln_tensor w, struct kiln__shape *shape)
{
    const struct kiln__node *node = kiln__batch_floating(call->batch, w, call->name, "w");
    if (!node)
        return false;
    *shape = node->shape;
    if (shape->rank != call->n + 2)
        kiln__fail(&call->batch->error, KILN_SHAPE_MISMATCH,
                   "%s: operand w of shape %s has not %u dimensions, as x has", call->name,
                   kiln__shape_text(shape).text, call->n + 2);
    if (call->layout == KILN_CHANNELS_FIRST && !call->batch->error.status) {
        for (uint32_t i = 0; i < call->n; i++)
            shape->dims[i] = node->shape.dims[2 + i];
        shape->dims[call->n] = node->shape.dims[1];
        shape->dims[call->n + 1] = node->shape.dims[0];
    }
    memcpy(call->window, shape->dims, call->n * sizeof *call->window);
    return !call->batch->error.status;
}

/* The input channels of w: those of one group, or of a transposed convolution all. */
static bool check_channels(struct kiln__sliding *call, const struct kiln__shape *w, bool transposed)
{
    size_t groups = call->groups, channels = channels_in(call);
    size_t in = w->dims[call->n + transposed], out = w->dims[call->n + !transposed];
    bool fits = transposed ? channels == in : channels / groups == in && out % groups == 0;
    if (channels % groups == 0 && fits)
        return true;
    kiln__fail(&call->batch->error, KILN_SHAPE_MISMATCH,
               "%s: x with %zu channels and w, which takes %zu and gives %zu, do not fit in %zu "
               "groups",
               call->name, channels, in, out, groups);
    return false;
}

bool kiln__convolution_options(struct kiln__sliding *call, const kiln_conv_options *options,
                               kiln_conv_options *own)
{
    *own = (kiln_conv_options)KILN_CONV_OPTIONS_INIT;
    return kiln__batch_is_open(call->batch, call->name) &&
           (!options || !KILN__STRUCTURE_READ(&call->batch->error, call->name, options,
                                              "KILN_CONV_OPTIONS_INIT", own));
}

bool kiln__convolution_begin(struct kiln__sliding *call, const kiln_conv_options *options,
                             uint32_t n, bool transposed, kiln_tensor *x, kiln_tensor *w)
{
    struct kiln__shape weights;
    if (!kiln__batch_floating(call->batch, *x, call->name, "x"))
        return false;
    call->layout = options->layout;
    call->groups = options->groups ? options->groups : 1;
    if (!kiln__sliding_begin(call, x, n) || !read_weights(call, *w, &weights))
        return false;
    const struct kiln__sliding_given given = {options->stride, options->dilation, options->before,
                                              options->after};
    kiln__sliding_read(call, &given, NULL);
    if (!check_channels(call, &weights, transposed))
        return false;
    *w = weights_channels_last(call, *w);
    return !call->batch->error.status;
}

/* ---- the calls ---- */

static kiln_tensor convolve(struct kiln__sliding *call, const kiln_conv_options *options,
                            uint32_t n, kiln_tensor x, kiln_tensor w)
{
    if (!kiln__convolution_begin(call, options, n, false, &x, &w) || !kiln__sliding_check(call))
        return kiln__none;
    return kiln__sliding_result(call, kiln__convolve(call, x, w));
}

kiln_tensor kiln_conv(kiln_batch *batch, kiln_tensor x, kiln_tensor w,
                      const kiln_conv_options *options)
{
    KILN__CALL(batch);
    struct kiln__sliding call = {.batch = batch, .name = __func__};
    kiln_conv_options own;
    return kiln__convolution_options(&call, options, &own) ? convolve(&call, &own, 0, x, w)
                                                           : kiln__none;
}

kiln_tensor kiln_conv2d(kiln_batch *batch, kiln_tensor x, kiln_tensor w,
                        const kiln_window_options *options)
{
    KILN__CALL(batch);
    struct kiln__sliding call = {.batch = batch, .name = __func__};
    kiln_conv_options general = KILN_CONV_OPTIONS_INIT;
    kiln_window_options own = KILN_WINDOW_OPTIONS_INIT;
    if (!kiln__batch_is_open(batch, __func__) ||
        (options &&
         KILN__STRUCTURE_READ(&batch->error, __func__, options, "KILN_WINDOW_OPTIONS_INIT", &own)))
        return kiln__none;
    general.groups = own.groups;
    memcpy(general.stride, own.stride, sizeof own.stride);
    memcpy(general.dilation, own.dilation, sizeof own.dilation);
    memcpy(general.before, own.before, sizeof own.before);
    memcpy(general.after, own.after, sizeof own.after);
    return convolve(&call, &general, 2, x, w);
}
