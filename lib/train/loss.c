/* SPDX-License-Identifier: Apache-2.0 */
/* Losses as recorded operations: their derivatives are those of what they consist of. */
#include <kiln/training.h>

#include <math.h>

#include <kiln/batch.h>
#include <kiln/elementwise.h>
#include <kiln/movement.h>
#include <kiln/normalization.h>
#include <kiln/operations.h>
#include <kiln/reductions.h>

#include "record/batch.h"
#include "record/call.h"
#include "record/operations.h"
#include "util/structure.h"

/* Losses do not broadcast: a forgotten dimension would go unnoticed. */
static bool check_same_shape(kiln_batch *batch, kiln_tensor x, kiln_tensor target, const char *call,
                             const char *name)
{
    const struct kiln__node *a = kiln__batch_floating(batch, x, call, name);
    const struct kiln__node *b = a ? kiln__batch_floating(batch, target, call, "target") : NULL;
    if (!b)
        return false;
    if (!kiln__shape_equal(&a->shape, &b->shape))
        kiln__fail(&batch->error, KILN_SHAPE_MISMATCH,
                   "%s: shapes %s of %s and %s of target must be equal", call,
                   kiln__shape_text(&a->shape).text, name, kiln__shape_text(&b->shape).text);
    return !batch->error.status;
}

kiln_tensor kiln_mean_squared_error(kiln_batch *batch, kiln_tensor x, kiln_tensor target)
{
    KILN__CALL(batch);
    if (!check_same_shape(batch, x, target, __func__, "x"))
        return kiln__none;
    kiln_tensor error = kiln_square(batch, kiln_sub(batch, x, target));
    return kiln_mean(batch, error, 0, NULL, 0);
}

/* -target log(p) - (1 - target) log(1 - p) with p = sigmoid(x): both logarithms are softplus, which
 * is as good where p is next to 0 or 1. */
kiln_tensor kiln_binary_cross_entropy(kiln_batch *batch, kiln_tensor logits, kiln_tensor target)
{
    KILN__CALL(batch);
    if (!check_same_shape(batch, logits, target, __func__, "logits"))
        return kiln__none;
    kiln_tensor rest = kiln_sub(batch, kiln_constant(batch, KILN_F32, 1), target);
    kiln_tensor yes = kiln_mul(batch, target, kiln_softplus(batch, kiln_neg(batch, logits)));
    kiln_tensor no = kiln_mul(batch, rest, kiln_softplus(batch, logits));
    return kiln_mean(batch, kiln_add(batch, yes, no), 0, NULL, 0);
}

static bool check_labels(kiln_batch *batch, kiln_tensor logits, kiln_tensor labels,
                         const char *call)
{
    const struct kiln__node *x = kiln__batch_floating(batch, logits, call, "logits");
    const struct kiln__node *label = x ? kiln__batch_node(batch, labels, call, "labels") : NULL;
    if (!label)
        return false;
    struct kiln__shape rows = x->shape;
    if (rows.rank)
        rows.dims[--rows.rank] = 0;
    if (kiln__node_is_floating(label))
        kiln__fail(&batch->error, KILN_TYPE_MISMATCH,
                   "%s: labels are %s, and only integers are taken", call,
                   kiln_type_name(label->type));
    else if (!x->shape.rank || !kiln__shape_equal(&rows, &label->shape))
        kiln__fail(&batch->error, KILN_SHAPE_MISMATCH,
                   "%s: logits are %s and labels %s, not one for each row", call,
                   kiln__shape_text(&x->shape).text, kiln__shape_text(&label->shape).text);
    else if (x->shape.dims[x->shape.rank - 1] > INT32_MAX)
        kiln__fail(&batch->error, KILN_TOO_LARGE, "%s: %zu classes do not fit an i32", call,
                   x->shape.dims[x->shape.rank - 1]);
    return !batch->error.status;
}

/* Labels as i32. */
static kiln_tensor loss_positions(kiln_batch *batch, kiln_tensor labels)
{
    return kiln_cast(batch, kiln__record_indices(batch, labels, "labels"), KILN_I32);
}

/* The logit of each row's label, by comparing every class with it: that fuses with what else goes
 * over the row, and its derivative is a comparison, too. NaN where no class is the label. */
static kiln_tensor logit_of_label(kiln_batch *batch, kiln_tensor logits, kiln_tensor labels,
                                  size_t rank, const size_t *dims)
{
    const int last = -1;
    size_t column[KILN_MAX_RANK];
    for (size_t d = 0; d < rank; d++)
        column[d] = d + 1 < rank ? dims[d] : 1;
    kiln_tensor wanted = loss_positions(batch, labels);
    kiln_tensor classes = kiln_arange(batch, KILN_I32, 0, (double)dims[rank - 1], 1);
    kiln_tensor is_label = kiln_equal(batch, classes, kiln_reshape(batch, wanted, rank, column));
    kiln_tensor zero = kiln_constant(batch, KILN_F32, 0);
    kiln_tensor picked = kiln_sum(batch, kiln_where(batch, is_label, logits, zero), 1, &last, 0);
    kiln_tensor first = kiln_constant(batch, KILN_I32, 0);
    kiln_tensor end = kiln_constant(batch, KILN_I32, (double)dims[rank - 1]);
    kiln_tensor exists = kiln_logical_and(batch, kiln_greater_equal(batch, wanted, first),
                                          kiln_less(batch, wanted, end));
    return kiln_where(batch, exists, picked, kiln_constant(batch, KILN_F32, NAN));
}

kiln_tensor kiln_cross_entropy(kiln_batch *batch, kiln_tensor logits, kiln_tensor labels)
{
    KILN__CALL(batch);
    const int last = -1;
    size_t rank, dims[KILN_MAX_RANK];
    if (!check_labels(batch, logits, labels, __func__) ||
        kiln_tensor_shape(batch, logits, NULL, &rank, dims))
        return kiln__none;
    kiln_tensor total = kiln_logsumexp(batch, logits, 1, &last, 0);
    kiln_tensor picked = logit_of_label(batch, logits, labels, rank, dims);
    return kiln_mean(batch, kiln_sub(batch, total, picked), 0, NULL, 0);
}

/* ---- with options ---- */

static bool check_options(kiln_batch *batch, const char *call, size_t classes,
                          const kiln_cross_entropy_options *options)
{
    const kiln_tensor weights = options->class_weights;
    if ((unsigned)options->reduction > KILN_REDUCTION_NONE)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: %d is no reduction", call,
                   (int)options->reduction);
    else if (!(options->label_smoothing >= 0 && options->label_smoothing <= 1))
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                   "%s: label smoothing is %.9g, not from 0 to 1", call, options->label_smoothing);
    else if (weights.id) {
        const struct kiln__node *node = kiln__batch_floating(batch, weights, call, "class_weights");
        if (node && (node->shape.rank != 1 || node->shape.dims[0] != classes))
            kiln__fail(&batch->error, KILN_SHAPE_MISMATCH,
                       "%s: class weights have shape %s, and there are %zu classes", call,
                       kiln__shape_text(&node->shape).text, classes);
    }
    return !batch->error.status;
}

/* The loss of each row before what ignoring and reducing make of it; *share: the weight of its
 * label, {0} if all are 1. */
static kiln_tensor loss_of_rows(kiln_batch *batch, kiln_tensor logits, kiln_tensor labels,
                                const kiln_cross_entropy_options *options, size_t rank,
                                const size_t *dims, kiln_tensor *share)
{
    const int last = -1;
    const kiln_tensor weights = options->class_weights;
    const double smoothing = options->label_smoothing;
    kiln_tensor logs = options->log_probabilities ? kiln_cast(batch, logits, KILN_F32)
                                                  : kiln_log_softmax(batch, logits, 1, &last);
    kiln_tensor loss = kiln_neg(batch, logit_of_label(batch, logs, labels, rank, dims));
    *share = kiln__none;
    if (weights.id) {
        *share =
            logit_of_label(batch, kiln_broadcast(batch, weights, rank, dims), labels, rank, dims);
        loss = kiln_mul(batch, loss, *share);
    }
    if (smoothing == 0)
        return loss;
    kiln_tensor all =
        kiln_sum(batch, weights.id ? kiln_mul(batch, logs, weights) : logs, 1, &last, 0);
    return kiln_sub(batch, kiln_scale(batch, loss, 1 - smoothing),
                    kiln_scale(batch, all, smoothing / (double)dims[rank - 1]));
}

kiln_tensor kiln_cross_entropy_with(kiln_batch *batch, kiln_tensor logits, kiln_tensor labels,
                                    const kiln_cross_entropy_options *options)
{
    KILN__CALL(batch);
    kiln_cross_entropy_options own = KILN_CROSS_ENTROPY_INIT;
    size_t rank, dims[KILN_MAX_RANK];
    kiln_tensor share;
    if (!check_labels(batch, logits, labels, __func__) ||
        kiln_tensor_shape(batch, logits, NULL, &rank, dims) ||
        (options &&
         KILN__STRUCTURE_READ(&batch->error, __func__, options, "KILN_CROSS_ENTROPY_INIT", &own)) ||
        !check_options(batch, __func__, dims[rank - 1], &own))
        return kiln__none;
    kiln_tensor loss = loss_of_rows(batch, logits, labels, &own, rank, dims, &share);
    kiln_tensor zero = kiln_constant(batch, KILN_F32, 0), one = kiln_constant(batch, KILN_F32, 1);
    if (own.ignores) {
        kiln_tensor kept = kiln_not_equal(batch, loss_positions(batch, labels),
                                          kiln_constant(batch, KILN_I32, own.ignored_label));
        loss = kiln_where(batch, kept, loss, zero);
        share = kiln_where(batch, kept, share.id ? share : one, zero);
    }
    if (own.reduction == KILN_REDUCTION_NONE)
        return loss;
    if (own.reduction == KILN_REDUCTION_MEAN && !share.id)
        return kiln_mean(batch, loss, 0, NULL, 0);
    loss = kiln_sum(batch, loss, 0, NULL, 0);
    return own.reduction == KILN_REDUCTION_SUM
               ? loss
               : kiln_div(batch, loss, kiln_sum(batch, share, 0, NULL, 0));
}
