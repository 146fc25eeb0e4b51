/* SPDX-License-Identifier: Apache-2.0 */
/* What optimisers of ONNX Runtime write for several nodes: products and convolutions with an
 * activation behind them, normalisation of groups of channels. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "onnx/call.h"

/* ---- activations, with up to two numbers ---- */

typedef kiln_tensor activation(kiln_batch *b, kiln_tensor x, const double *numbers);

static kiln_tensor relu(kiln_batch *b, kiln_tensor x, const double *numbers)
{
    (void)numbers;
    return kiln_relu(b, x);
}

static kiln_tensor sigmoid(kiln_batch *b, kiln_tensor x, const double *numbers)
{
    (void)numbers;
    return kiln_sigmoid(b, x);
}

static kiln_tensor hyperbolic(kiln_batch *b, kiln_tensor x, const double *numbers)
{
    (void)numbers;
    return kiln_tanh(b, x);
}

static kiln_tensor leaky(kiln_batch *b, kiln_tensor x, const double *numbers)
{
    return kiln_leaky_relu(b, x, numbers[0]);
}

static kiln_tensor hard_sigmoid(kiln_batch *b, kiln_tensor x, const double *numbers)
{
    x = kiln_add(b, kiln_scale(b, x, numbers[0]), kiln_constant(b, KILN_F32, numbers[1]));
    return kiln_clamp(b, x, 0, 1);
}

static kiln_tensor clip(kiln_batch *b, kiln_tensor x, const double *numbers)
{
    return kiln_clamp(b, x, numbers[0], numbers[1]);
}

static const struct {
    const char *name;
    activation *apply;
    size_t n; /* numbers */
    double usual[2];
} activations[] = {
    {"Relu", relu, 0, {0}},
    {"Sigmoid", sigmoid, 0, {0}},
    {"Tanh", hyperbolic, 0, {0}},
    {"LeakyRelu", leaky, 1, {0.01}},
    {"HardSigmoid", hard_sigmoid, 2, {0.2, 0.5}},
    {"Clip", clip, 2, {-INFINITY, INFINITY}},
};

/* The attribute names an activation; its numbers are in a list, or have a name each. */
static kiln_tensor activated(struct kiln__onnx_call *call, kiln_tensor x)
{
    const char *name = kiln__onnx_string(call, "activation", "");
    size_t given;
    const float *list = kiln__onnx_floats(call, "activation_params", &given);
    for (size_t i = 0; i < sizeof activations / sizeof *activations && *name; i++) {
        double numbers[2];
        if (strcmp(name, activations[i].name))
            continue;
        if (given && given < activations[i].n)
            break;
        numbers[0] = kiln__onnx_float(call, "activation_alpha", activations[i].usual[0]);
        numbers[1] = kiln__onnx_float(call, "activation_beta", activations[i].usual[1]);
        for (size_t k = 0; k < activations[i].n && given; k++)
            numbers[k] = (double)list[k];
        return activations[i].apply(call->batch, x, numbers);
    }
    if (*name)
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "activation '%s' with %zu numbers", name, given);
    return x;
}

/* ---- behind an operator of ONNX's ---- */

struct fused {
    const char *name;
    int version;
    size_t n;   /* its operands */
    size_t sum; /* what is added before the activation; as n: nothing */
};

static void record_fused(struct kiln__onnx_call *call)
{
    const struct fused *what = call->row->data;
    struct kiln__onnx_value y = {0};
    const size_t n = call->n_inputs < what->n ? call->n_inputs : what->n;
    kiln__onnx_apply(call, what->name, what->version, n, call->in, 1, &y);
    if (kiln__onnx_failed(call) || !y.tensor.id)
        return;
    if (what->sum >= what->n && kiln__onnx_operand(call, what->sum))
        y.tensor = kiln_add(call->batch, y.tensor, kiln__onnx_tensor(call, what->sum));
    kiln__onnx_give_like(call, activated(call, y.tensor));
}

static const struct fused conv = {"Conv", 11, 3, 3}, gemm = {"Gemm", 13, 3, KILN_MAX_RANK};

/* ---- groups of channels ---- */

/* Operands: x, whose channels are last unless it says else, their scales and shifts. */
static void group_norm(struct kiln__onnx_call *call)
{
    const int64_t groups = kiln__onnx_int(call, "groups", 0);
    const int64_t swish = kiln__onnx_int(call, "activation", 0);
    for (size_t i = 0; i < 3; i++)
        if (!kiln__onnx_need(call, i))
            return;
    if (groups < 1 || swish < 0 || swish > 1) {
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "%" PRId64 " groups and activation %" PRId64,
                          groups, swish);
        return;
    }
    kiln_tensor y = kiln_group_norm(
        call->batch, kiln__onnx_tensor(call, 0), kiln__onnx_tensor(call, 1),
        kiln__onnx_tensor(call, 2), (size_t)groups,
        kiln__onnx_int(call, "channels_last", 1) ? -1 : 1, kiln__onnx_float(call, "epsilon", 1e-5));
    kiln__onnx_give_like(call, swish ? kiln_swish(call->batch, y) : y);
}

const struct kiln__onnx_row kiln__onnx_fused_rows[] = {
    KILN__ONNX_ROW("FusedConv", 1, record_fused, .data = &conv, .domain = KILN__ONNX_MICROSOFT),
    KILN__ONNX_ROW("FusedGemm", 1, record_fused, .data = &gemm, .domain = KILN__ONNX_MICROSOFT),
    KILN__ONNX_ROW("GroupNorm", 1, group_norm, .domain = KILN__ONNX_MICROSOFT),
    {0},
};
