/* SPDX-License-Identifier: Apache-2.0 */
/* LinearAttention: a state of keys times values, [batch, heads, width, values], that queries read
 * step by step. Each step is written out. */
#include <math.h>
#include <string.h>

#include "onnx/call.h"

enum { MOST_STEPS = 4096, MOST_PARTS = 16 };

struct linear {
    kiln_batch *batch;
    size_t n, steps, heads, group; /* heads of keys, and how many of queries share one */
    size_t width, values;          /* of a key, of a value */
    kiln_tensor q, k, v;           /* [steps, n, heads, group or 1, width] */
    kiln_tensor decay, beta;       /* [steps, n, heads, width or 1, 1], [steps, n, heads, 1, 1] */
    double scale;
};

/* Operand i, [n, steps, a b c], as [steps, n, a, b, c]; refuses the node where it is not that. */
static kiln_tensor by_step(struct kiln__onnx_call *call, const struct linear *l, size_t i, size_t a,
                           size_t b, size_t c)
{
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, i);
    if (x->rank != 3 || x->dims[0] != l->n || x->dims[1] != l->steps || x->dims[2] != a * b * c) {
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH, "operand %zu is not [%zu,%zu,%zu]", i, l->n,
                          l->steps, a * b * c);
        return (kiln_tensor){0};
    }
    kiln_tensor y = kiln_reshape(call->batch, kiln__onnx_tensor(call, i), 5,
                                 (const size_t[]){l->n, l->steps, a, b, c});
    y = kiln_cast(call->batch, y, KILN_F32);
    return kiln_transpose(call->batch, y, (const size_t[]){1, 0, 2, 3, 4});
}

static bool read_gates(struct kiln__onnx_call *call, struct linear *l)
{
    static const struct {
        const char *name;
        bool gated, delta;
    } rules[] = {{"linear", false, false},
                 {"gated", true, false},
                 {"delta", false, true},
                 {"gated_delta", true, true}};
    const char *name = kiln__onnx_string(call, "update_rule", "gated_delta");
    size_t rule = 0, most = sizeof rules / sizeof *rules;
    while (rule < most && strcmp(name, rules[rule].name))
        rule++;
    if (rule == most)
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "its update_rule is '%.40s'", name);
    else if (rules[rule].gated != !!kiln__onnx_operand(call, 4) ||
             rules[rule].delta != !!kiln__onnx_operand(call, 5))
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT,
                          "its operands 4 and 5 are not those of update_rule '%s'", name);
    if (kiln__onnx_failed(call))
        return false;
    const struct kiln__onnx_value *decay = kiln__onnx_operand(call, 4);
    const struct kiln__onnx_value *beta = kiln__onnx_operand(call, 5);
    if (decay) {
        bool each = decay->rank == 3 && decay->dims[2] != l->heads;
        l->decay = kiln_exp(call->batch, by_step(call, l, 4, l->heads, each ? l->width : 1, 1));
    }
    if (beta)
        l->beta = by_step(call, l, 5, beta->rank == 3 && beta->dims[2] == 1 ? 1 : l->heads, 1, 1);
    return !kiln__onnx_failed(call);
}

static bool read_operands(struct kiln__onnx_call *call, struct linear *l)
{
    int64_t heads = kiln__onnx_int(call, "kv_num_heads", 0);
    int64_t queries = kiln__onnx_int(call, "q_num_heads", 0);
    for (size_t i = 0; i < 3; i++)
        if (!kiln__onnx_need(call, i))
            return false;
    const struct kiln__onnx_value *q = kiln__onnx_operand(call, 0),
                                  *v = kiln__onnx_operand(call, 2);
    if (heads < 1 || queries < 1 || queries % heads || q->rank != 3 || v->rank != 3 ||
        q->dims[2] % (size_t)queries || v->dims[2] % (size_t)heads || !q->dims[2])
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH, "its operands are not cut into heads");
    else if (q->dims[1] < 1 || q->dims[1] > MOST_STEPS)
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "%zu steps, where 1 to %d are possible",
                          q->dims[1], MOST_STEPS);
    if (kiln__onnx_failed(call))
        return false;
    *l = (struct linear){.batch = call->batch,
                         .n = q->dims[0],
                         .steps = q->dims[1],
                         .heads = (size_t)heads,
                         .group = (size_t)(queries / heads),
                         .width = q->dims[2] / (size_t)queries,
                         .values = v->dims[2] / (size_t)heads};
    l->q = by_step(call, l, 0, l->heads, l->group, l->width);
    l->k = by_step(call, l, 1, l->heads, 1, l->width);
    l->v = by_step(call, l, 2, l->heads, 1, l->values);
    l->scale = kiln__onnx_float(call, "scale", 0);
    l->scale = l->scale != 0 ? l->scale : 1 / sqrt((double)l->width);
    return !kiln__onnx_failed(call) && read_gates(call, l);
}

/* Step t of an operand, without the dimension of steps. */
static kiln_tensor step_of(const struct linear *l, kiln_tensor x, size_t t)
{
    size_t rank = 0, dims[KILN_MAX_RANK] = {0};
    int64_t start[KILN_MAX_RANK] = {(int64_t)t}, stop[KILN_MAX_RANK];
    if (kiln_tensor_shape(l->batch, x, NULL, &rank, dims) || rank != 5)
        return (kiln_tensor){0};
    for (size_t d = 0; d < rank; d++)
        stop[d] = d ? (int64_t)dims[d] : (int64_t)t + 1;
    return kiln_reshape(l->batch, kiln_slice(l->batch, x, start, stop, NULL), 4, dims + 1);
}

/* One step: the state becomes the next one; what the queries read of it. */
static kiln_tensor step(const struct linear *l, size_t t, kiln_tensor *state)
{
    kiln_tensor k = step_of(l, l->k, t), v = step_of(l, l->v, t);
    if (l->decay.id)
        *state = kiln_mul(l->batch, *state, step_of(l, l->decay, t));
    if (l->beta.id) /* only what the state does not say already */
        v = kiln_mul(l->batch, kiln_sub(l->batch, v, kiln_matmul(l->batch, k, *state)),
                     step_of(l, l->beta, t));
    kiln_tensor column = kiln_transpose(l->batch, k, (const size_t[]){0, 1, 3, 2});
    *state = kiln_add(l->batch, *state, kiln_mul(l->batch, column, v));
    return kiln_matmul(l->batch, step_of(l, l->q, t), *state);
}

/* What all steps read, [steps, n, heads, group, values]. */
static kiln_tensor run(struct kiln__onnx_call *call, const struct linear *l, kiln_tensor *state)
{
    kiln_tensor parts[MOST_PARTS] = {{0}};
    size_t have = 0, dims[5] = {1, l->n, l->heads, l->group, l->values};
    for (size_t t = 0; t < l->steps && !kiln__onnx_failed(call); t++) {
        if (have == MOST_PARTS) {
            parts[0] = kiln_concat(l->batch, have, parts, 0);
            have = 1;
        }
        parts[have++] = kiln_reshape(l->batch, step(l, t, state), 5, dims);
    }
    return have > 1 ? kiln_concat(l->batch, have, parts, 0) : parts[0];
}

static void linear_attention(struct kiln__onnx_call *call)
{
    struct linear l;
    if (!read_operands(call, &l))
        return;
    const struct kiln__onnx_value *past = kiln__onnx_operand(call, 3);
    size_t dims[4] = {l.n, l.heads, l.width, l.values};
    if (past && (past->rank != 4 || memcmp(past->dims, dims, sizeof dims))) {
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH, "its state does not fit keys and values");
        return;
    }
    int type = kiln__onnx_operand(call, 0)->type;
    kiln_tensor state = past ? kiln_cast(call->batch, kiln__onnx_tensor(call, 3), KILN_F32)
                             : kiln_fill(call->batch, KILN_F32, 4, dims, 0);
    kiln_tensor y = kiln_scale(call->batch, run(call, &l, &state), l.scale);
    y = kiln_transpose(call->batch, y, (const size_t[]){1, 0, 2, 3, 4});
    y = kiln_reshape(call->batch, y, 3,
                     (const size_t[]){l.n, l.steps, l.heads * l.group * l.values});
    kiln__onnx_give(call, 0, y, type);
    if (call->n_outputs > 1 && call->wanted[1])
        kiln__onnx_give(call, 1, state, past ? past->type : type);
}

const struct kiln__onnx_row kiln__onnx_recurrence_rows[] = {
    KILN__ONNX_ROW("LinearAttention", 27, linear_attention),
    {0},
};
