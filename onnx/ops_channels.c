/* SPDX-License-Identifier: Apache-2.0 */
/* Normalisations with parameters for each channel, the second dimension, and rotary embeddings. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "onnx/onnx.pb-c.h"
#include "onnx/values.h"

static bool need(struct kiln__onnx_call *call, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!kiln__onnx_need(call, i))
            return false;
    return true;
}

/* ---- batch norm ---- */

/* What a running average becomes. */
static kiln_tensor average(struct kiln__onnx_call *call, kiln_tensor before, kiln_tensor now,
                           double momentum)
{
    return kiln_add(call->batch, kiln_scale(call->batch, before, momentum),
                    kiln_scale(call->batch, now, 1 - momentum));
}

/* A number for each channel, from those of the operands. */
typedef double per_channel(const double *scale_shift_mean_variance, double epsilon);

static double factor_of(const double *in, double epsilon)
{
    return in[0] / sqrt(in[3] + epsilon);
}

static double shift_of(const double *in, double epsilon)
{
    return in[1] - in[2] * factor_of(in, epsilon);
}

/* The same in a shape that broadcasts to x; {0} where an operand is not known on the host. */
static kiln_tensor fold(struct kiln__onnx_call *call, per_channel *number, double epsilon)
{
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    const struct kiln__onnx_host *in[4];
    struct kiln__onnx_value folded = {.type = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT};
    for (size_t i = 0; i < 4; i++) {
        in[i] = kiln__onnx_operand(call, 1 + i)->host;
        if (!in[i] || !in[i]->floats || x->rank < 2 || in[i]->count != x->dims[1])
            return (kiln_tensor){0};
    }
    folded.rank = x->rank - 1;
    for (size_t d = 0; d < folded.rank; d++)
        folded.dims[d] = d ? 1 : x->dims[1];
    struct kiln__onnx_host *host = kiln__onnx_new_host(call, folded.type, folded.rank, folded.dims);
    for (size_t c = 0; host && c < host->count; c++) {
        double of_channel[4];
        for (size_t i = 0; i < 4; i++)
            of_channel[i] = in[i]->cells[c].f;
        host->cells[c].f = number(of_channel, epsilon);
    }
    folded.host = host;
    return host ? kiln__onnx_tensor_of(call, &folded) : (kiln_tensor){0};
}

/* A factor and a shift, computed here where the operands are constants: what follows a convolution
 * runs in its kernel then. */
static bool fold_batch_norm(struct kiln__onnx_call *call, double epsilon)
{
    kiln_tensor factor = fold(call, factor_of, epsilon);
    if (!factor.id || kiln__onnx_failed(call))
        return false;
    kiln_tensor y = kiln_mul(call->batch, kiln__onnx_tensor(call, 0), factor);
    kiln__onnx_give_like(call, kiln_add(call->batch, y, fold(call, shift_of, epsilon)));
    return true;
}

static void batch_normalization(struct kiln__onnx_call *call)
{
    kiln_batch *batch = call->batch;
    kiln_tensor in[5], mean, variance;
    if (!need(call, 5))
        return;
    const double epsilon = kiln__onnx_float(call, "epsilon", 1e-5);
    const double momentum = kiln__onnx_float(call, "momentum", 0.9);
    const int axis = kiln__onnx_operand(call, 0)->rank > 1 ? 1 : 0;
    const bool trains = call->version < 14 ? call->n_outputs > 1 && call->wanted[1]
                                           : kiln__onnx_int(call, "training_mode", 0) != 0;
    if (call->version < 9 && kiln__onnx_int(call, "spatial", 1) == 0)
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "statistics for each position");
    if (kiln__onnx_failed(call) || (!trains && fold_batch_norm(call, epsilon)))
        return;
    for (size_t i = 0; i < 5; i++)
        in[i] = kiln__onnx_tensor(call, i);
    if (kiln__onnx_failed(call))
        return;
    if (!trains) {
        kiln__onnx_give_like(
            call, kiln_batch_norm(batch, in[0], in[1], in[2], in[3], in[4], axis, epsilon));
        return;
    }
    kiln__onnx_give_like(
        call, kiln_batch_norm_train(batch, in[0], in[1], in[2], axis, epsilon, &mean, &variance));
    kiln__onnx_give(call, 1, average(call, in[3], mean, momentum),
                    kiln__onnx_operand(call, 3)->type);
    kiln__onnx_give(call, 2, average(call, in[4], variance, momentum),
                    kiln__onnx_operand(call, 4)->type);
}

/* ---- group and instance norm ---- */

static void instance_normalization(struct kiln__onnx_call *call)
{
    if (need(call, 3))
        kiln__onnx_give_like(call, kiln_instance_norm(call->batch, kiln__onnx_tensor(call, 0),
                                                      kiln__onnx_tensor(call, 1),
                                                      kiln__onnx_tensor(call, 2), 1,
                                                      kiln__onnx_float(call, "epsilon", 1e-5)));
}

/* One for each channel of what older versions have one of for each group. */
static kiln_tensor for_channels(struct kiln__onnx_call *call, size_t i, size_t groups,
                                size_t channels)
{
    kiln_tensor x = kiln__onnx_tensor(call, i);
    if (kiln__onnx_operand(call, i)->rank != 1 || kiln__onnx_operand(call, i)->dims[0] != groups ||
        groups == channels)
        return x;
    x = kiln_reshape(call->batch, x, 2, (size_t[]){groups, 1});
    x = kiln_broadcast(call->batch, x, 2, (size_t[]){groups, channels / groups});
    return kiln_reshape(call->batch, x, 1, &channels);
}

static void group_normalization(struct kiln__onnx_call *call)
{
    if (!need(call, 3))
        return;
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    const int64_t groups = kiln__onnx_int(call, "num_groups", 0);
    const size_t channels = x->rank > 1 ? x->dims[1] : 0;
    if (groups <= 0 || (uint64_t)groups > channels || channels % (size_t)groups) {
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "%" PRId64 " groups of %zu channels", groups,
                          channels);
        return;
    }
    const bool old = call->version < 21;
    kiln_tensor scale =
        old ? for_channels(call, 1, (size_t)groups, channels) : kiln__onnx_tensor(call, 1);
    kiln_tensor shift =
        old ? for_channels(call, 2, (size_t)groups, channels) : kiln__onnx_tensor(call, 2);
    kiln__onnx_give_like(call, kiln_group_norm(call->batch, kiln__onnx_tensor(call, 0), scale,
                                               shift, (size_t)groups, 1,
                                               kiln__onnx_float(call, "epsilon", 1e-5)));
}

/* ---- rotary embeddings ---- */

/* Where the operands of a row are. */
struct places {
    size_t cosine, sine, positions;
};

/* A table's rows for each position, [batch or 1, sequence, width]; the table itself where there are
 * no positions. Of a single position it is the first one's. */
static kiln_tensor rows_of(struct kiln__onnx_call *call, size_t table, size_t positions,
                           size_t sequence)
{
    kiln_batch *batch = call->batch;
    kiln_tensor rows = kiln__onnx_tensor(call, table);
    const struct kiln__onnx_value *at = kiln__onnx_operand(call, positions);
    if (!at)
        return rows;
    kiln_tensor numbers = kiln__onnx_positions(call, kiln__onnx_tensor(call, positions));
    if (at->rank < 2) {
        const size_t dims[] = {1, sequence}, one[] = {1, 1};
        numbers = kiln_reshape(batch, numbers, 2, one);
        numbers = kiln_add(batch, numbers, kiln_iota(batch, 2, dims, 1));
    }
    return kiln_gather(batch, rows, numbers, 0);
}

/* [b, s, w] as [b, 1, s, w], or where heads lie behind the sequence as [b, s, 1, w]. */
static kiln_tensor across_heads(struct kiln__onnx_call *call, kiln_tensor rows, bool behind)
{
    size_t rank, dims[KILN_MAX_RANK];
    if (kiln_tensor_shape(call->batch, rows, NULL, &rank, dims))
        return (kiln_tensor){0};
    if (rank != 3) {
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH, "angles of %zu dimensions", rank);
        return (kiln_tensor){0};
    }
    const size_t wide[] = {dims[0], behind ? dims[1] : 1, behind ? 1 : dims[1], dims[2]};
    return kiln_reshape(call->batch, rows, 4, wide);
}

static void rotary_embedding(struct kiln__onnx_call *call)
{
    static const struct places usual = {1, 2, 3}, microsoft = {2, 3, 1};
    const struct places *places = call->row->data ? &microsoft : &usual;
    kiln_batch *batch = call->batch;
    if (!need(call, call->row->data ? 4 : 3))
        return;
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    const struct kiln__onnx_value *table = kiln__onnx_operand(call, places->cosine);
    const bool flat = x->rank == 3;
    int64_t heads = kiln__onnx_int(call, "num_heads", 0);
    const size_t width = table->rank ? table->dims[table->rank - 1] : 0;
    if (flat && heads == 0 && call->row->data && width)
        heads = (int64_t)(x->dims[2] / (2 * width));
    if ((!flat && x->rank != 4) ||
        (flat && (heads <= 0 || (uint64_t)heads > x->dims[2] || x->dims[2] % (size_t)heads))) {
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH, "%" PRId64 " heads of %zu dimensions", heads,
                          x->rank);
        return;
    }
    kiln_tensor y = kiln__onnx_tensor(call, 0);
    if (flat)
        y = kiln_reshape(
            batch, y, 4,
            (size_t[]){x->dims[0], x->dims[1], (size_t)heads, x->dims[2] / (size_t)heads});
    const size_t sequence = x->dims[flat ? 1 : 2];
    kiln_tensor cosine = rows_of(call, places->cosine, places->positions, sequence);
    kiln_tensor sine = rows_of(call, places->sine, places->positions, sequence);
    y = kiln_rotary(batch, y, across_heads(call, cosine, flat), across_heads(call, sine, flat),
                    kiln__onnx_int(call, "interleaved", 0) != 0);
    kiln__onnx_give_like(call, flat ? kiln_reshape(batch, y, 3, x->dims) : y);
}

static const bool yes = true;

const struct kiln__onnx_row kiln__onnx_channels_rows[] = {
    KILN__ONNX_ROW("BatchNormalization", 7, batch_normalization),
    KILN__ONNX_ROW("InstanceNormalization", 1, instance_normalization),
    KILN__ONNX_ROW("GroupNormalization", 18, group_normalization),
    KILN__ONNX_ROW("RotaryEmbedding", 23, rotary_embedding),
    KILN__ONNX_ROW("RotaryEmbedding", 1, rotary_embedding, .data = &yes,
                   .domain = KILN__ONNX_MICROSOFT),
    {0},
};
