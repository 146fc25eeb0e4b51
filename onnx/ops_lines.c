/* SPDX-License-Identifier: Apache-2.0 */
/* What is done along an axis, or over some of them, and keeps the shape. */
#include <string.h>

#include "onnx/call.h"

static kiln_tensor number(struct kiln__onnx_call *call, double value)
{
    return kiln_constant(call->batch, KILN_F32, value);
}

/* The axis of the attribute; false after refusing the node. */
static bool find_axis(struct kiln__onnx_call *call, int64_t usual, int *axis)
{
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    if (!kiln__onnx_need(call, 0))
        return false;
    *axis = (int)kiln__onnx_axis(call, kiln__onnx_int(call, "axis", usual), x->rank);
    return !kiln__onnx_failed(call);
}

static void record_norm(struct kiln__onnx_call *call)
{
    int axis;
    if (!find_axis(call, -1, &axis))
        return;
    kiln_tensor x = kiln__onnx_tensor(call, 0), norm;
    if (kiln__onnx_int(call, "p", 2) == 1)
        norm = kiln_sum(call->batch, kiln_abs(call->batch, x), 1, &axis, 1);
    else
        norm = kiln_norm(call->batch, x, 1, &axis, 1);
    kiln_tensor is_zero = kiln_equal(call->batch, norm, number(call, 0));
    norm = kiln_where(call->batch, is_zero, number(call, 1), norm);
    kiln__onnx_give(call, 0, kiln_div(call->batch, x, norm), kiln__onnx_operand(call, 0)->type);
}

/* (x - mean) / (deviation + 1e-9) */
static void record_mean_variance(struct kiln__onnx_call *call)
{
    static const int64_t usual[] = {0, 2, 3};
    size_t n;
    int axes[KILN_MAX_RANK];
    const int64_t *list = kiln__onnx_ints(call, "axes", &n);
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    if (!kiln__onnx_need(call, 0))
        return;
    if (!list) {
        list = usual;
        n = 3;
    }
    if (n > x->rank) {
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "%zu axes of %zu dimensions", n, x->rank);
        return;
    }
    for (size_t i = 0; i < n && !kiln__onnx_failed(call); i++)
        axes[i] = (int)kiln__onnx_axis(call, list[i], x->rank);
    if (kiln__onnx_failed(call))
        return;
    kiln_tensor y = kiln__onnx_tensor(call, 0);
    y = kiln_sub(call->batch, y, kiln_mean(call->batch, y, n, axes, 1));
    kiln_tensor variance = kiln_mean(call->batch, kiln_square(call->batch, y), n, axes, 1);
    kiln_tensor deviation =
        kiln_add(call->batch, kiln_sqrt(call->batch, variance), number(call, 1e-9));
    kiln__onnx_give(call, 0, kiln_div(call->batch, y, deviation), x->type);
}

/* x / (bias + alpha / size * sum of the squares of `size` neighbours along axis 1)^beta */
static void record_neighbours(struct kiln__onnx_call *call)
{
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    size_t low[KILN_MAX_RANK] = {0}, high[KILN_MAX_RANK] = {0};
    if (!kiln__onnx_need(call, 0))
        return;
    int64_t size = kiln__onnx_int(call, "size", 0);
    if (x->rank < 2 || size < 1 || size > INT32_MAX) {
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "it has %lld neighbours", (long long)size);
        return;
    }
    double factor = kiln__onnx_float(call, "alpha", 1e-4) / (double)size;
    size_t window = (size_t)size;
    low[1] = (window - 1) / 2;
    high[1] = window - 1 - low[1];
    kiln_tensor y = kiln__onnx_tensor(call, 0);
    kiln_tensor sum = kiln_pad(call->batch, kiln_square(call->batch, y), low, high, 0);
    sum = kiln_windows(call->batch, sum, 1, 1, &window, NULL, NULL);
    sum = kiln_sum(call->batch, sum, 1, (int[]){2}, 0);
    sum = kiln_add(call->batch, kiln_scale(call->batch, sum, factor),
                   number(call, kiln__onnx_float(call, "bias", 1)));
    y = kiln_div(call->batch, y,
                 kiln_pow(call->batch, sum, number(call, kiln__onnx_float(call, "beta", 0.75))));
    kiln__onnx_give(call, 0, y, x->type);
}

/* 1 at the first of the largest elements. Before version 13 over the axis and all behind it. */
static void record_hardmax(struct kiln__onnx_call *call)
{
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    int axes[KILN_MAX_RANK], axis;
    if (!find_axis(call, call->version < 13 ? 1 : -1, &axis))
        return;
    size_t last = call->version < 13 ? x->rank : (size_t)axis + 1, n = 0, dims[KILN_MAX_RANK];
    for (size_t i = 0; i < x->rank; i++)
        dims[i] = 1;
    for (size_t i = (size_t)axis; i < last; i++) {
        axes[n++] = (int)i;
        dims[i] = x->dims[i];
    }
    kiln_tensor y = kiln__onnx_tensor(call, 0);
    kiln_tensor place = kiln_argmax(call->batch, y, n, axes, 1);
    size_t count = 1;
    for (size_t i = 0; i < n; i++)
        count *= x->dims[axes[i]];
    kiln_tensor positions =
        kiln_reshape(call->batch, kiln_iota(call->batch, 1, &count, 0), x->rank, dims);
    kiln_tensor is = kiln_equal(call->batch, place, positions);
    kiln__onnx_give(call, 0, kiln_cast(call->batch, is, KILN_F32), x->type);
}

/* ---- products of all before: each round multiplies by what is 1, 2, 4, ... elements away ---- */

struct line {
    struct kiln__onnx_call *call;
    const struct kiln__onnx_value *x;
    size_t axis;
    bool reverse;
};

/* y moved along the axis, towards the end, or the beginning in reverse; ones come after it. */
static kiln_tensor shift(const struct line *line, kiln_tensor y, size_t by)
{
    int64_t start[KILN_MAX_RANK] = {0}, stop[KILN_MAX_RANK];
    size_t low[KILN_MAX_RANK] = {0}, high[KILN_MAX_RANK] = {0};
    for (size_t i = 0; i < line->x->rank; i++)
        stop[i] = (int64_t)line->x->dims[i];
    if (line->reverse)
        start[line->axis] = (int64_t)by;
    else
        stop[line->axis] -= (int64_t)by;
    (line->reverse ? high : low)[line->axis] = by;
    return kiln_pad(line->call->batch, kiln_slice(line->call->batch, y, start, stop, NULL), low,
                    high, 1);
}

static void record_cumulative_product(struct kiln__onnx_call *call)
{
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    size_t n;
    const int64_t *axis = kiln__onnx_integers(call, 1, &n);
    if (!kiln__onnx_need(call, 0) || !kiln__onnx_need(call, 1) || kiln__onnx_failed(call))
        return;
    struct line line = {.call = call, .x = x, .reverse = kiln__onnx_int(call, "reverse", 0) != 0};
    line.axis = kiln__onnx_axis(call, n ? *axis : 0, x->rank);
    if (kiln__onnx_failed(call))
        return;
    size_t extent = x->dims[line.axis];
    kiln_tensor y = kiln__onnx_tensor(call, 0);
    if (kiln__onnx_int(call, "exclusive", 0) && extent)
        y = shift(&line, y, 1);
    for (size_t by = 1; by < extent; by *= 2)
        y = kiln_mul(call->batch, y, shift(&line, y, by));
    kiln__onnx_give(call, 0, y, x->type);
}

const struct kiln__onnx_row kiln__onnx_lines_rows[] = {
    KILN__ONNX_ROW("LpNormalization", 1, record_norm),
    KILN__ONNX_ROW("MeanVarianceNormalization", 9, record_mean_variance),
    KILN__ONNX_ROW("LRN", 1, record_neighbours),
    KILN__ONNX_ROW("Hardmax", 1, record_hardmax),
    KILN__ONNX_ROW("CumProd", 26, record_cumulative_product, .known = KILN__ONNX_BIT(1)),
    {0},
};
