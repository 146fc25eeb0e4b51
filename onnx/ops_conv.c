/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions. */
#include <inttypes.h>

#include "onnx/windows.h"

static bool need_floats(struct kiln__onnx_call *call)
{
    if (!kiln__onnx_need(call, 0) || !kiln__onnx_need(call, 1))
        return false;
    int type = kiln__onnx_operand(call, 0)->type;
    if (!kiln__onnx_type_floats(type))
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "a convolution of %s",
                          kiln__onnx_type_name(type));
    return !kiln__onnx_failed(call);
}

/* The sizes of windows, which the weights have. */
static bool read_windows(struct kiln__onnx_call *call, struct kiln__onnx_windows *windows)
{
    const struct kiln__onnx_value *w = kiln__onnx_operand(call, 1);
    size_t window[3] = {0};
    for (size_t i = 0; i + 2 < w->rank && i < 3; i++)
        window[i] = w->dims[2 + i];
    return kiln__onnx_windows(call, w->rank < 2 ? 0 : w->rank - 2, window, windows);
}

static kiln_conv_options options_of(struct kiln__onnx_call *call,
                                    const struct kiln__onnx_windows *windows)
{
    kiln_conv_options options = KILN_CONV_OPTIONS_INIT;
    int64_t groups = kiln__onnx_int(call, "group", 1);
    options.layout = KILN_CHANNELS_FIRST;
    options.groups = groups > 0 ? (size_t)groups : 0;
    for (size_t i = 0; i < windows->n; i++) {
        options.stride[i] = windows->stride[i];
        options.dilation[i] = windows->dilation[i];
        options.before[i] = windows->before[i];
        options.after[i] = windows->after[i];
    }
    if (groups <= 0)
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "%" PRId64 " groups", groups);
    return options;
}

/* y plus a bias for each channel. */
static void give_biased(struct kiln__onnx_call *call, kiln_tensor y)
{
    const struct kiln__onnx_value *bias = kiln__onnx_operand(call, 2);
    size_t dims[] = {1, bias && bias->rank ? bias->dims[0] : 1, 1, 1, 1};
    if (bias)
        y = kiln_add(call->batch, y,
                     kiln_reshape(call->batch, kiln__onnx_tensor(call, 2),
                                  kiln__onnx_operand(call, 0)->rank, dims));
    kiln__onnx_give(call, 0, y, kiln__onnx_operand(call, 0)->type);
}

static void conv(struct kiln__onnx_call *call)
{
    struct kiln__onnx_windows windows;
    if (!need_floats(call) || !read_windows(call, &windows))
        return;
    kiln_conv_options options = options_of(call, &windows);
    if (!kiln__onnx_failed(call))
        give_biased(call, kiln_conv(call->batch, kiln__onnx_tensor(call, 0),
                                    kiln__onnx_tensor(call, 1), &options));
}

/* What the result has along a dimension without padding. */
static int64_t whole_extent(const struct kiln__onnx_windows *windows, size_t i, int64_t more)
{
    return (int64_t)((windows->in[i] - 1) * windows->stride[i] +
                     (windows->window[i] - 1) * windows->dilation[i] + 1) +
           more;
}

/* Padding by what the result shall have: the odd one goes to the end of SAME_UPPER, else to the
 * beginning. */
static void pad_to(struct kiln__onnx_windows *windows, size_t i, int64_t extent, bool upper,
                   kiln_conv_options *options)
{
    int64_t total = whole_extent(windows, i, (int64_t)options->output_padding[i]) - extent;
    if (total < 0) { /* more than there is: zeros at the end */
        options->output_padding[i] += (size_t)-total;
        total = 0;
    }
    options->before[i] = (size_t)(upper ? total / 2 : total - total / 2);
    options->after[i] = (size_t)total - options->before[i];
}

static void conv_transpose(struct kiln__onnx_call *call)
{
    struct kiln__onnx_windows windows;
    size_t n_more, n_shape;
    if (!need_floats(call) || !read_windows(call, &windows))
        return;
    kiln_conv_options options = options_of(call, &windows);
    const int64_t *more = kiln__onnx_ints(call, "output_padding", &n_more);
    const int64_t *shape = kiln__onnx_ints(call, "output_shape", &n_shape);
    if ((more && n_more != windows.n) || (shape && n_shape < windows.n))
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT,
                          "attributes of the result are not of %zu dimensions", windows.n);
    for (size_t i = 0; i < windows.n && !kiln__onnx_failed(call); i++) {
        if (more && more[i] < 0)
            kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "an output padding of %" PRId64,
                              more[i]);
        options.output_padding[i] = more && more[i] > 0 ? (size_t)more[i] : 0;
        bool upper = windows.same == KILN__ONNX_SAME_UPPER;
        if (windows.in[i] == 0 || windows.window[i] == 0)
            continue; /* the convolution refuses it */
        if (shape)    /* some have the sizes of samples and channels before it */
            pad_to(&windows, i, shape[n_shape - windows.n + i], upper, &options);
        else if (windows.same != KILN__ONNX_NOT_SAME)
            pad_to(&windows, i, (int64_t)(windows.in[i] * windows.stride[i]), upper, &options);
    }
    if (!kiln__onnx_failed(call))
        give_biased(call, kiln_conv_transposed(call->batch, kiln__onnx_tensor(call, 0),
                                               kiln__onnx_tensor(call, 1), &options));
}

const struct kiln__onnx_row kiln__onnx_conv_rows[] = {
    KILN__ONNX_ROW("Conv", 1, conv),
    KILN__ONNX_ROW("ConvTranspose", 1, conv_transpose),
    {0},
};
