/* SPDX-License-Identifier: Apache-2.0 */
/* Normalisation of rows, and what does nothing outside of training. */
#include <string.h>

#include "onnx/onnx.pb-c.h"
#include "onnx/values.h"

/* The axes from one to the last. */
static size_t axes_from(struct kiln__onnx_call *call, size_t rank, int *axes)
{
    size_t n = 0, axis = kiln__onnx_axis(call, kiln__onnx_int(call, "axis", -1), rank);
    for (size_t d = axis; d < rank; d++)
        axes[n++] = (int)d;
    return n;
}

static void layer_normalization(struct kiln__onnx_call *call)
{
    int axes[KILN_MAX_RANK];
    if (!kiln__onnx_need(call, 0))
        return;
    int type = kiln__onnx_operand(call, 0)->type;
    double epsilon = kiln__onnx_float(call, "epsilon", 1e-5);
    size_t n = axes_from(call, kiln__onnx_operand(call, 0)->rank, axes);
    kiln_tensor x = kiln__onnx_tensor(call, 0);
    if (kiln__onnx_failed(call))
        return;
    kiln__onnx_give(call, 0,
                    kiln_layer_norm(call->batch, x, kiln__onnx_tensor(call, 1),
                                    kiln__onnx_tensor(call, 2), n, axes, epsilon),
                    type);
    if (call->n_outputs > 1 && call->wanted[1])
        kiln__onnx_give(call, 1, kiln_mean(call->batch, x, n, axes, 1), type);
    if (call->n_outputs > 2 && call->wanted[2]) {
        kiln_tensor variance = kiln_variance(call->batch, x, n, axes, 0, 1);
        kiln_tensor more = kiln_constant(call->batch, KILN_F32, epsilon);
        kiln__onnx_give(call, 2, kiln_rsqrt(call->batch, kiln_add(call->batch, variance, more)),
                        type);
    }
}

static void rms_normalization(struct kiln__onnx_call *call)
{
    int axes[KILN_MAX_RANK];
    if (!kiln__onnx_need(call, 0) || !kiln__onnx_need(call, 1))
        return;
    double epsilon = kiln__onnx_float(call, "epsilon", 1e-5);
    size_t n = axes_from(call, kiln__onnx_operand(call, 0)->rank, axes);
    if (!kiln__onnx_failed(call))
        kiln__onnx_give(call, 0,
                        kiln_rms_norm(call->batch, kiln__onnx_tensor(call, 0),
                                      kiln__onnx_tensor(call, 1), n, axes, epsilon),
                        kiln__onnx_operand(call, 0)->type);
}

/* com.microsoft: layer_norm(input + skip + bias), with the sum as the fourth result. */
static void skip_layer_normalization(struct kiln__onnx_call *call)
{
    bool simple = call->row->data != NULL; /* by the root of mean squares, without a shift */
    size_t bias = simple ? 3 : 4;
    int axis = -1;
    if (!kiln__onnx_need(call, 0) || !kiln__onnx_need(call, 1) || !kiln__onnx_need(call, 2))
        return;
    int type = kiln__onnx_operand(call, 0)->type;
    double epsilon = kiln__onnx_float(call, "epsilon", 1e-12);
    kiln_tensor x = kiln_add(call->batch, kiln__onnx_tensor(call, 0), kiln__onnx_tensor(call, 1));
    kiln_tensor scale = kiln__onnx_tensor(call, 2);
    if (kiln__onnx_operand(call, bias))
        x = kiln_add(call->batch, x, kiln__onnx_tensor(call, bias));
    kiln__onnx_give(call, 0,
                    simple ? kiln_rms_norm(call->batch, x, scale, 1, &axis, epsilon)
                           : kiln_layer_norm(call->batch, x, scale, kiln__onnx_tensor(call, 3), 1,
                                             &axis, epsilon),
                    type);
    if (call->n_outputs > 3 && call->wanted[3])
        kiln__onnx_give(call, 3, x, type);
}

/* Outside of training nothing is left out, nor where the share is 0. */
static void dropout(struct kiln__onnx_call *call)
{
    struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    double training = 0, share = 0.5;
    if (!kiln__onnx_need(call, 0))
        return;
    bool known = !kiln__onnx_operand(call, 2) || kiln__onnx_scalar(call, 2, &training);
    bool all = kiln__onnx_scalar(call, 1, &share) && share == 0;
    if (!all && (!known || training != 0)) {
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "dropout in training");
        return;
    }
    kiln__onnx_give_value(call, 0, x);
    if (call->n_outputs > 1 && call->wanted[1])
        kiln__onnx_give(call, 1, kiln_fill(call->batch, KILN_U8, x->rank, x->dims, 1),
                        ONNX__TENSOR_PROTO__DATA_TYPE__BOOL);
}

static const bool yes = true;

const struct kiln__onnx_row kiln__onnx_normalization_rows[] = {
    KILN__ONNX_ROW("LayerNormalization", 1, layer_normalization),
    KILN__ONNX_ROW("RMSNormalization", 23, rms_normalization),
    KILN__ONNX_ROW("SimplifiedLayerNormalization", 1, rms_normalization),
    KILN__ONNX_ROW("LayerNormalization", 1, layer_normalization, .domain = KILN__ONNX_MICROSOFT),
    KILN__ONNX_ROW("SkipLayerNormalization", 1, skip_layer_normalization,
                   .domain = KILN__ONNX_MICROSOFT),
    KILN__ONNX_ROW("SkipSimplifiedLayerNormalization", 1, skip_layer_normalization, .data = &yes,
                   .domain = KILN__ONNX_MICROSOFT),
    KILN__ONNX_ROW("Dropout", 1, dropout),
    {0},
};
