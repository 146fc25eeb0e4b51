/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions as products of windows with weights, pools as reductions of windows. */
#include <kiln/convolution.h>
#include <kiln/elementwise.h>
#include <kiln/movement.h>
#include <kiln/product.h>
#include <kiln/reductions.h>

#include <math.h>
#include <string.h>

#include "record/batch.h"

static const kiln_tensor none = {0};

enum { N, H, W, C }; /* dimensions of an image */
#define IMAGE 4

/* One call, with its options read. */
struct call {
    kiln_batch *batch;
    const char *name;
    struct kiln__shape image;
    size_t window[2];
    kiln_window_options options;
};

/* ---- checks ---- */

static bool check_operand(struct call *call, const char *name, kiln_tensor x,
                          struct kiln__shape *shape)
{
    const struct kiln__node *node = kiln__batch_floating(call->batch, x, call->name, name);
    if (!node)
        return false;
    *shape = node->shape;
    if (shape->rank != IMAGE)
        kiln__fail(&call->batch->error, KILN_SHAPE_MISMATCH,
                   "%s: operand %s of shape %s has not 4 dimensions", call->name, name,
                   kiln__shape_text(shape).text);
    return !call->batch->error.status;
}

static bool read_options(struct call *call, const kiln_window_options *options, bool pools)
{
    call->options = (kiln_window_options)KILN_WINDOW_OPTIONS_INIT;
    if (options && options->size != sizeof *options) {
        kiln__fail(&call->batch->error, KILN_INVALID_ARGUMENT,
                   "%s: options were not made by KILN_WINDOW_OPTIONS_INIT", call->name);
        return false;
    }
    if (options)
        call->options = *options;
    for (int i = 0; i < 2; i++) {
        if (!call->options.stride[i])
            call->options.stride[i] = pools ? call->window[i] : 1;
        if (!call->options.dilation[i])
            call->options.dilation[i] = 1;
    }
    if (!call->options.groups)
        call->options.groups = 1;
    if (pools && call->options.groups > 1)
        kiln__fail(&call->batch->error, KILN_INVALID_ARGUMENT, "%s: %zu groups; a pool has none",
                   call->name, call->options.groups);
    return !call->batch->error.status;
}

/* Whether the padding leaves room for sums of extents. */
static bool check_padding(struct call *call)
{
    for (int i = 0; i < 2; i++) {
        size_t before = call->options.before[i], after = call->options.after[i];
        if (before <= SIZE_MAX / 4 && after <= SIZE_MAX / 4 &&
            call->image.dims[H + i] <= SIZE_MAX / 4)
            continue;
        kiln__fail(&call->batch->error, KILN_TOO_LARGE,
                   "%s: shape %s is padded to too many elements, by %zu before and %zu after",
                   call->name, kiln__shape_text(&call->image).text, before, after);
        return false;
    }
    return true;
}

/* Whether a window fits the padded image. Nothing overflows. */
static bool check_windows(struct call *call)
{
    for (int i = 0; i < 2; i++) {
        size_t size = call->window[i], extent = call->image.dims[H + i];
        extent += call->options.before[i] + call->options.after[i];
        if (size && extent && size - 1 <= (extent - 1) / call->options.dilation[i])
            continue;
        kiln__fail(&call->batch->error, KILN_INVALID_ARGUMENT,
                   "%s: no window of %zu by %zu, its elements %zu and %zu apart, fits %s padded by "
                   "%zu, %zu before and %zu, %zu after",
                   call->name, call->window[0], call->window[1], call->options.dilation[0],
                   call->options.dilation[1], kiln__shape_text(&call->image).text,
                   call->options.before[0], call->options.before[1], call->options.after[0],
                   call->options.after[1]);
        return false;
    }
    return true;
}

static bool check_channels(struct call *call, const struct kiln__shape *w)
{
    size_t groups = call->options.groups, channels = call->image.dims[C];
    if (channels % groups == 0 && channels / groups == w->dims[2] && w->dims[3] % groups == 0)
        return true;
    kiln__fail(&call->batch->error, KILN_SHAPE_MISMATCH,
               "%s: x of shape %s and w of shape %s do not fit in %zu groups: w's dimension 2 must "
               "be x's channels divided by the groups, and they must divide w's dimension 3",
               call->name, kiln__shape_text(&call->image).text, kiln__shape_text(w).text, groups);
    return false;
}

/* ---- windows ---- */

/* [N,OH,OW,KH,KW,C] */
static kiln_tensor windows_of(const struct call *call, kiln_tensor x, double padding)
{
    const kiln_window_options *options = &call->options;
    size_t low[IMAGE] = {0, options->before[0], options->before[1], 0};
    size_t high[IMAGE] = {0, options->after[0], options->after[1], 0};
    if (low[H] || low[W] || high[H] || high[W])
        x = kiln_pad(call->batch, x, low, high, padding);
    x = kiln_windows(call->batch, x, H, 2, call->window, options->stride, options->dilation);
    kiln__error_within(&call->batch->error, call->name);
    return x;
}

static size_t dim_of(const struct call *call, kiln_tensor x, uint32_t d)
{
    return call->batch->graph.nodes.items[kiln__tensor_index(x)].shape.dims[d];
}

/* ---- convolution ---- */

/* A group of a single channel each way is a sum, not worth being a product. */
static kiln_tensor convolve_channels(const struct call *call, kiln_tensor windows, kiln_tensor w)
{
    size_t dims[] = {call->window[0], call->window[1], call->image.dims[C]};
    w = kiln_reshape(call->batch, w, 3, dims);
    return kiln_sum(call->batch, kiln_mul(call->batch, windows, w), 2, (int[]){3, 4}, 0);
}

/* The windows as rows of [..., KH*KW*C]. The leading dimensions stay, so that what follows has the
 * product's own shape and runs in its kernel. */
static kiln_tensor convolve_whole(const struct call *call, kiln_tensor windows, kiln_tensor w)
{
    size_t depth = call->window[0] * call->window[1] * call->image.dims[C];
    size_t dims[] = {call->image.dims[N], dim_of(call, windows, 1), dim_of(call, windows, 2),
                     depth};
    windows = kiln_reshape(call->batch, windows, 4, dims);
    w = kiln_reshape(call->batch, w, 2, (size_t[]){depth, dim_of(call, w, 3)});
    return kiln_matmul(call->batch, windows, w);
}

/* A batch of products, one for each group. */
static kiln_tensor convolve_groups(const struct call *call, kiln_tensor windows, kiln_tensor w)
{
    kiln_batch *batch = call->batch;
    size_t groups = call->options.groups, kh = call->window[0], kw = call->window[1];
    size_t n = call->image.dims[N], oh = dim_of(call, windows, 1), ow = dim_of(call, windows, 2);
    size_t in = call->image.dims[C] / groups, out = dim_of(call, w, 3) / groups;
    windows = kiln_reshape(batch, windows, 7, (size_t[]){n, oh, ow, kh, kw, groups, in});
    windows = kiln_transpose(batch, windows, (size_t[]){5, 0, 1, 2, 3, 4, 6});
    windows = kiln_reshape(batch, windows, 3, (size_t[]){groups, n * oh * ow, kh * kw * in});
    w = kiln_reshape(batch, w, 5, (size_t[]){kh, kw, in, groups, out});
    w = kiln_transpose(batch, w, (size_t[]){3, 0, 1, 2, 4});
    w = kiln_reshape(batch, w, 3, (size_t[]){groups, kh * kw * in, out});
    kiln_tensor y = kiln_matmul(batch, windows, w);
    y = kiln_reshape(batch, y, 5, (size_t[]){groups, n, oh, ow, out});
    y = kiln_transpose(batch, y, (size_t[]){1, 2, 3, 0, 4});
    return kiln_reshape(batch, y, 4, (size_t[]){n, oh, ow, groups * out});
}

kiln_tensor kiln_conv2d(kiln_batch *batch, kiln_tensor x, kiln_tensor w,
                        const kiln_window_options *options)
{
    struct call call = {.batch = batch, .name = __func__};
    struct kiln__shape weights;
    if (!check_operand(&call, "x", x, &call.image) || !check_operand(&call, "w", w, &weights))
        return none;
    memcpy(call.window, weights.dims, sizeof call.window);
    if (!read_options(&call, options, false) || !check_channels(&call, &weights) ||
        !check_padding(&call) || !check_windows(&call))
        return none;
    kiln_tensor windows = windows_of(&call, x, 0);
    if (batch->error.status)
        return none;
    size_t groups = call.options.groups;
    if (groups > 1 && weights.dims[2] == 1 && weights.dims[3] == groups)
        return convolve_channels(&call, windows, w);
    return groups > 1 ? convolve_groups(&call, windows, w) : convolve_whole(&call, windows, w);
}

/* ---- pools ---- */

static kiln_tensor pool_windows(struct call *call, kiln_tensor x, const size_t *window,
                                const kiln_window_options *options, double padding)
{
    if (!check_operand(call, "x", x, &call->image))
        return none;
    if (!window) {
        kiln__fail(&call->batch->error, KILN_INVALID_ARGUMENT, "%s: window is NULL", call->name);
        return none;
    }
    memcpy(call->window, window, sizeof call->window);
    if (!read_options(call, options, true) || !check_padding(call) || !check_windows(call))
        return none;
    return windows_of(call, x, padding);
}

kiln_tensor kiln_max_pool2d(kiln_batch *batch, kiln_tensor x, const size_t window[2],
                            const kiln_window_options *options)
{
    struct call call = {.batch = batch, .name = __func__};
    kiln_tensor windows = pool_windows(&call, x, window, options, -INFINITY);
    return windows.id ? kiln_max(batch, windows, 2, (int[]){3, 4}, 0) : none;
}

kiln_tensor kiln_avg_pool2d(kiln_batch *batch, kiln_tensor x, const size_t window[2],
                            const kiln_window_options *options)
{
    struct call call = {.batch = batch, .name = __func__};
    kiln_tensor windows = pool_windows(&call, x, window, options, 0);
    return windows.id ? kiln_mean(batch, windows, 2, (int[]){3, 4}, 0) : none;
}
