/* SPDX-License-Identifier: Apache-2.0 */
/* Losses over classes: scores [N, C, d...], labels [N, d...], and a weight for each class. */
#include <string.h>

#include "onnx/call.h"

struct loss {
    kiln_batch *batch;
    size_t rank, dims[KILN_MAX_RANK]; /* of the scores */
    kiln_tensor labels;               /* [N, 1, d...] */
    kiln_tensor is_label;             /* the mask of each element's class */
};

static bool find_shapes(struct kiln__onnx_call *call, struct loss *loss)
{
    const struct kiln__onnx_value *scores = kiln__onnx_operand(call, 0);
    const struct kiln__onnx_value *labels = kiln__onnx_operand(call, 1);
    if (!kiln__onnx_need(call, 0) || !kiln__onnx_need(call, 1))
        return false;
    bool fits = scores->rank >= 2 && labels->rank + 1 == scores->rank;
    for (size_t i = 0; fits && i < labels->rank; i++)
        fits = labels->dims[i] == scores->dims[i ? i + 1 : 0];
    if (!fits) {
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH,
                          "labels have the shape of the scores without their second dimension");
        return false;
    }
    loss->batch = call->batch;
    loss->rank = scores->rank;
    memcpy(loss->dims, scores->dims, sizeof loss->dims);
    return true;
}

/* Which element of the scores is its label's. */
static void compare_labels(struct kiln__onnx_call *call, struct loss *loss)
{
    size_t dims[KILN_MAX_RANK], classes[KILN_MAX_RANK];
    for (size_t i = 0; i < loss->rank; i++) {
        dims[i] = i == 1 ? 1 : loss->dims[i];
        classes[i] = i == 1 ? loss->dims[i] : 1;
    }
    loss->labels = kiln_reshape(loss->batch, kiln__onnx_positions(call, kiln__onnx_tensor(call, 1)),
                                loss->rank, dims);
    loss->is_label =
        kiln_equal(loss->batch, loss->labels, kiln_iota(loss->batch, loss->rank, classes, 1));
}

/* Of each column of classes what its label says; 0 for a label that is no class. */
static kiln_tensor pick(const struct loss *loss, kiln_tensor values)
{
    kiln_tensor zero = kiln_constant(loss->batch, KILN_F32, 0);
    kiln_tensor picked = kiln_where(loss->batch, loss->is_label, values, zero);
    return kiln_sum(loss->batch, picked, 1, (int[]){1}, 0);
}

/* [N, d...]: the weight of each label; 0 where it is to be ignored. */
static kiln_tensor pick_weights(struct kiln__onnx_call *call, const struct loss *loss)
{
    size_t dims[KILN_MAX_RANK];
    for (size_t i = 0; i < loss->rank; i++)
        dims[i] = i == 1 ? loss->dims[i] : 1;
    kiln_tensor weights =
        kiln__onnx_operand(call, 2)
            ? kiln_reshape(loss->batch, kiln__onnx_tensor(call, 2), loss->rank, dims)
            : kiln_constant(loss->batch, KILN_F32, 1);
    if (kiln__onnx_has_attribute(call, "ignore_index")) {
        double ignored = (double)kiln__onnx_int(call, "ignore_index", 0);
        if (ignored >= INT32_MIN && ignored <= INT32_MAX)
            weights = kiln_where(loss->batch,
                                 kiln_equal(loss->batch, loss->labels,
                                            kiln_constant(loss->batch, KILN_I32, ignored)),
                                 kiln_constant(loss->batch, KILN_F32, 0), weights);
    }
    return pick(loss, weights);
}

static kiln_tensor combine(struct kiln__onnx_call *call, const struct loss *loss, kiln_tensor logs)
{
    const char *reduction = kiln__onnx_string(call, "reduction", "mean");
    kiln_tensor weights = pick_weights(call, loss);
    kiln_tensor each = kiln_mul(loss->batch, kiln_neg(loss->batch, pick(loss, logs)), weights);
    if (!strcmp(reduction, "none"))
        return each;
    kiln_tensor all = kiln_sum(loss->batch, each, 0, NULL, 0);
    if (!strcmp(reduction, "mean"))
        all = kiln_div(loss->batch, all, kiln_sum(loss->batch, weights, 0, NULL, 0));
    else if (strcmp(reduction, "sum"))
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "its reduction is '%.40s'", reduction);
    return all;
}

static void record_likelihood(struct kiln__onnx_call *call)
{
    struct loss loss;
    if (!find_shapes(call, &loss))
        return;
    compare_labels(call, &loss);
    kiln_tensor logs = kiln__onnx_tensor(call, 0);
    kiln__onnx_give(call, 0, combine(call, &loss, logs), kiln__onnx_operand(call, 0)->type);
}

static void record_cross_entropy(struct kiln__onnx_call *call)
{
    struct loss loss;
    if (!find_shapes(call, &loss))
        return;
    compare_labels(call, &loss);
    int type = kiln__onnx_operand(call, 0)->type;
    kiln_tensor logs = kiln_log_softmax(call->batch, kiln__onnx_tensor(call, 0), 1, (int[]){1});
    kiln__onnx_give(call, 0, combine(call, &loss, logs), type);
    if (call->n_outputs > 1)
        kiln__onnx_give(call, 1, logs, type);
}

const struct kiln__onnx_row kiln__onnx_loss_rows[] = {
    KILN__ONNX_ROW("NegativeLogLikelihoodLoss", 12, record_likelihood),
    KILN__ONNX_ROW("SoftmaxCrossEntropyLoss", 12, record_cross_entropy),
    {0},
};
