/* SPDX-License-Identifier: Apache-2.0 */
/* Pools. */
#include "onnx/onnx.pb-c.h"
#include "onnx/windows.h"

enum { INT64 = ONNX__TENSOR_PROTO__DATA_TYPE__INT64 };

static bool read_pool(struct kiln__onnx_call *call, struct kiln__onnx_windows *windows,
                      kiln_pool_options *options)
{
    const size_t none[3] = {0};
    if (!kiln__onnx_need(call, 0))
        return false;
    size_t rank = kiln__onnx_operand(call, 0)->rank;
    if (!kiln__onnx_windows(call, rank < 2 ? 0 : rank - 2, none, windows))
        return false;
    *options = (kiln_pool_options)KILN_POOL_OPTIONS_INIT;
    options->layout = KILN_CHANNELS_FIRST;
    options->ceil = kiln__onnx_int(call, "ceil_mode", 0) != 0;
    options->count_padding = kiln__onnx_int(call, "count_include_pad", 0) != 0;
    for (size_t i = 0; i < windows->n; i++) {
        options->stride[i] = windows->stride[i];
        options->dilation[i] = windows->dilation[i];
        options->before[i] = windows->before[i];
        options->after[i] = windows->after[i];
    }
    return !kiln__onnx_failed(call);
}

static kiln_tensor number(struct kiln__onnx_call *call, size_t value)
{
    return kiln_constant(call->batch, KILN_I32, (double)value);
}

/* From rows first to columns first. */
static kiln_tensor turn_indices(struct kiln__onnx_call *call, kiln_tensor i, const size_t *in,
                                size_t n)
{
    kiln_tensor turned = number(call, 0);
    size_t below = 1, stride[3];
    for (size_t d = 0; d < n; d++) {
        stride[d] = below;
        below *= in[d];
    }
    for (size_t d = n; d-- > 0;) {
        kiln_tensor above = kiln_div(call->batch, i, number(call, in[d]));
        kiln_tensor at =
            kiln_sub(call->batch, i, kiln_mul(call->batch, above, number(call, in[d])));
        turned = kiln_add(call->batch, turned, kiln_mul(call->batch, at, number(call, stride[d])));
        i = above;
    }
    return turned;
}

/* Numbers within a channel become numbers within x. */
static kiln_tensor spread_indices(struct kiln__onnx_call *call, kiln_tensor i,
                                  const struct kiln__onnx_windows *windows)
{
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    size_t dims[KILN_MAX_RANK] = {x->dims[0] * x->dims[1]}, plane = 1;
    for (size_t d = 0; d < windows->n; d++)
        plane *= windows->in[d];
    if (kiln__onnx_int(call, "storage_order", 0))
        i = turn_indices(call, i, windows->in, windows->n);
    kiln_tensor channel = kiln_iota(call->batch, 1, dims, 0);
    channel = kiln_mul(call->batch, channel, number(call, plane));
    for (size_t d = 0; d < x->rank; d++)
        dims[d] = d < 2 ? x->dims[d] : 1;
    return kiln_add(call->batch, i, kiln_reshape(call->batch, channel, x->rank, dims));
}

static void max_pool(struct kiln__onnx_call *call)
{
    struct kiln__onnx_windows windows;
    kiln_pool_options options;
    kiln_tensor indices;
    if (!read_pool(call, &windows, &options))
        return;
    bool wanted = call->n_outputs > 1 && call->wanted[1];
    kiln_tensor y = kiln_max_pool(call->batch, kiln__onnx_tensor(call, 0), windows.window, &options,
                                  wanted ? &indices : NULL);
    kiln__onnx_give_like(call, y);
    if (wanted && !kiln__onnx_failed(call))
        kiln__onnx_give(call, 1, spread_indices(call, indices, &windows), INT64);
}

static void average_pool(struct kiln__onnx_call *call)
{
    struct kiln__onnx_windows windows;
    kiln_pool_options options;
    if (read_pool(call, &windows, &options))
        kiln__onnx_give_like(
            call, kiln_avg_pool(call->batch, kiln__onnx_tensor(call, 0), windows.window, &options));
}

static void lp_pool(struct kiln__onnx_call *call)
{
    struct kiln__onnx_windows windows;
    kiln_pool_options options;
    int64_t p = kiln__onnx_int(call, "p", 2);
    if (read_pool(call, &windows, &options))
        kiln__onnx_give_like(call, kiln_lp_pool(call->batch, kiln__onnx_tensor(call, 0),
                                                windows.window, (double)p, &options));
}

/* ---- over whole images ---- */

typedef kiln_tensor reduction(kiln_batch *batch, kiln_tensor x, size_t n, const int *axes,
                              int keep_dims);

static kiln_tensor reduce_image(struct kiln__onnx_call *call, reduction *reduce, kiln_tensor x)
{
    int axes[KILN_MAX_RANK];
    size_t rank = kiln__onnx_operand(call, 0)->rank;
    if (rank < 3) {
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "a tensor of %zu dimensions is no image",
                          rank);
        return x;
    }
    for (size_t d = 2; d < rank; d++)
        axes[d - 2] = (int)d;
    return reduce(call->batch, x, rank - 2, axes, 1);
}

static void global_max_pool(struct kiln__onnx_call *call)
{
    if (kiln__onnx_need(call, 0))
        kiln__onnx_give_like(call, reduce_image(call, kiln_max, kiln__onnx_tensor(call, 0)));
}

static void global_average_pool(struct kiln__onnx_call *call)
{
    if (kiln__onnx_need(call, 0))
        kiln__onnx_give_like(call, reduce_image(call, kiln_mean, kiln__onnx_tensor(call, 0)));
}

static void global_lp_pool(struct kiln__onnx_call *call)
{
    double p = (double)kiln__onnx_int(call, "p", 2);
    if (!kiln__onnx_need(call, 0))
        return;
    kiln_tensor x = kiln_abs(call->batch, kiln__onnx_tensor(call, 0));
    x = kiln_pow(call->batch, x, kiln_constant(call->batch, KILN_F32, p));
    x = reduce_image(call, kiln_sum, x);
    kiln__onnx_give_like(call,
                         kiln_pow(call->batch, x, kiln_constant(call->batch, KILN_F32, 1 / p)));
}

const struct kiln__onnx_row kiln__onnx_pool_rows[] = {
    KILN__ONNX_ROW("MaxPool", 1, max_pool),
    KILN__ONNX_ROW("AveragePool", 1, average_pool),
    KILN__ONNX_ROW("LpPool", 2, lp_pool),
    KILN__ONNX_ROW("GlobalMaxPool", 1, global_max_pool),
    KILN__ONNX_ROW("GlobalAveragePool", 1, global_average_pool),
    KILN__ONNX_ROW("GlobalLpPool", 2, global_lp_pool),
    {0},
};
