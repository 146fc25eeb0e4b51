/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of com.microsoft that optimised encoders are written with. */
#include <math.h>
#include <string.h>

#include "onnx/onnx.pb-c.h"
#include "onnx/values.h"

enum { INT32 = ONNX__TENSOR_PROTO__DATA_TYPE__INT32 };

/* x, with operand 1 added if it is there. */
static kiln_tensor biased(struct kiln__onnx_call *call)
{
    kiln_tensor x = kiln__onnx_tensor(call, 0);
    return kiln__onnx_operand(call, 1) ? kiln_add(call->batch, x, kiln__onnx_tensor(call, 1)) : x;
}

static void bias_gelu(struct kiln__onnx_call *call)
{
    if (kiln__onnx_need(call, 0) && kiln__onnx_need(call, 1))
        kiln__onnx_give_like(call, kiln_gelu(call->batch, biased(call)));
}

static void fast_gelu(struct kiln__onnx_call *call)
{
    if (kiln__onnx_need(call, 0))
        kiln__onnx_give_like(call, kiln_gelu_tanh(call->batch, biased(call)));
}

/* x sigmoid(alpha x) */
static void quick_gelu(struct kiln__onnx_call *call)
{
    if (!kiln__onnx_need(call, 0))
        return;
    kiln_tensor x = kiln__onnx_tensor(call, 0);
    kiln_tensor scaled = kiln_scale(call->batch, x, kiln__onnx_float(call, "alpha", 1.702));
    kiln__onnx_give_like(call, kiln_mul(call->batch, x, kiln_sigmoid(call->batch, scaled)));
}

/* ---- attention ---- */

struct heads {
    size_t batch, count, width; /* width: of all heads together */
    size_t rows, keys;
    double filter; /* what is added to scores that are masked */
};

/* [batch, rows, width] as [batch, heads, rows, width / heads] */
static kiln_tensor cut(struct kiln__onnx_call *call, kiln_tensor x, size_t heads)
{
    size_t rank, dims[KILN_MAX_RANK];
    if (kiln_tensor_shape(call->batch, x, NULL, &rank, dims))
        return (kiln_tensor){0};
    if (rank != 3 || !heads || dims[2] % heads) {
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH, "an operand that is not cut into %zu heads",
                          heads);
        return (kiln_tensor){0};
    }
    size_t parts[4] = {dims[0], dims[1], heads, dims[2] / heads};
    return kiln_transpose(call->batch, kiln_reshape(call->batch, x, 4, parts),
                          (const size_t[]){0, 2, 1, 3});
}

/* A mask of integers, operand i: which keys there are, or how many, as what is added to scores. */
static kiln_tensor key_mask(struct kiln__onnx_call *call, size_t i, const struct heads *heads)
{
    const struct kiln__onnx_value *mask = kiln__onnx_operand(call, i);
    if (!mask)
        return (kiln_tensor){0};
    kiln_tensor tensor = kiln__onnx_tensor(call, i), seen;
    kiln_tensor zero = kiln_constant(call->batch, KILN_F32, 0);
    kiln_tensor filter = kiln_constant(call->batch, KILN_F32, heads->filter);
    size_t dims[4] = {heads->batch, 1, 1, heads->keys}, keys[4] = {1, 1, 1, heads->keys};
    if (mask->rank == 1 && mask->dims[0] == heads->batch) {
        dims[3] = 1;
        seen = kiln_less(call->batch, kiln_iota(call->batch, 4, keys, 3),
                         kiln_reshape(call->batch, tensor, 4, dims));
        return kiln_where(call->batch, seen, zero, filter);
    }
    if (mask->rank == 3)
        dims[2] = mask->dims[1];
    else if (mask->rank != 2) {
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "a mask of %zu dimensions", mask->rank);
        return (kiln_tensor){0};
    }
    seen = kiln_cast(call->batch, kiln_reshape(call->batch, tensor, 4, dims), KILN_BOOL);
    return kiln_where(call->batch, seen, zero, filter);
}

/* softmax(scale q k' + masks) v, back as [batch, rows, width] */
static void attend(struct kiln__onnx_call *call, const struct heads *heads, kiln_tensor q,
                   kiln_tensor k, kiln_tensor v, kiln_tensor mask, kiln_tensor more, int type)
{
    kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
    options.scale = kiln__onnx_float(call, "scale", 0);
    options.causal = kiln__onnx_int(call, "unidirectional", 0) != 0;
    options.diagonal = (int64_t)heads->keys - (int64_t)heads->rows;
    if (more.id)
        mask = mask.id ? kiln_add(call->batch, mask, more) : more;
    kiln_tensor y = kiln_attention(call->batch, q, k, v, mask, &options);
    size_t flat[3] = {heads->batch, heads->rows, heads->width};
    y = kiln_transpose(call->batch, y, (const size_t[]){0, 2, 1, 3});
    kiln__onnx_give(call, 0, kiln_reshape(call->batch, y, 3, flat), type);
}

/* Where attention whose queries, keys and values lie side by side has its other operands; those it
 * has not are beyond all. */
struct packed {
    size_t mask, past, added;
};

/* The cache [2, batch, heads, past, size] before new keys, number 0, or values, number 1. */
static kiln_tensor after_past(struct kiln__onnx_call *call, const struct kiln__onnx_value *past,
                              kiln_tensor cache, size_t number, kiln_tensor fresh)
{
    int64_t start[5] = {(int64_t)number}, stop[5] = {(int64_t)number + 1};
    for (size_t i = 1; i < 5; i++)
        stop[i] = (int64_t)past->dims[i];
    kiln_tensor parts[] = {kiln_reshape(call->batch,
                                        kiln_slice(call->batch, cache, start, stop, NULL), 4,
                                        past->dims + 1),
                           fresh};
    for (size_t i = 0; i < 2; i++)
        parts[i] = kiln_cast(call->batch, parts[i], KILN_F32);
    return kiln_concat(call->batch, 2, parts, 2);
}

/* Keys and values, which result 1 gets as one. */
static void give_cache(struct kiln__onnx_call *call, const kiln_tensor *parts, int type)
{
    size_t rank, dims[1 + KILN_MAX_RANK] = {1}; /* a shape is written whole */
    if (call->n_outputs < 2 || !call->wanted[1] ||
        kiln_tensor_shape(call->batch, parts[0], NULL, &rank, dims + 1))
        return;
    kiln_tensor both[] = {kiln_reshape(call->batch, parts[0], rank + 1, dims),
                          kiln_reshape(call->batch, parts[1], rank + 1, dims)};
    kiln__onnx_give(call, 1, kiln_concat(call->batch, 2, both, 0), type);
}

static void attend_packed(struct kiln__onnx_call *call, kiln_tensor all,
                          const struct packed *operands, int type)
{
    const struct kiln__onnx_value *past = kiln__onnx_operand(call, operands->past);
    const int64_t count = kiln__onnx_int(call, "num_heads", 0);
    size_t rank, dims[KILN_MAX_RANK];
    kiln_tensor parts[3];
    if (kiln__onnx_failed(call) || kiln_tensor_shape(call->batch, all, NULL, &rank, dims))
        return;
    if (kiln__onnx_has_attribute(call, "qkv_hidden_sizes") ||
        kiln__onnx_int(call, "do_rotary", 0) ||
        kiln__onnx_int(call, "past_present_share_buffer", 0) || rank != 3 || dims[2] % 3 ||
        count < 1) {
        kiln__onnx_refuse(call, KILN_UNSUPPORTED,
                          "attention with rotation, parts of different widths or a shared cache");
        return;
    }
    struct heads heads = {.batch = dims[0],
                          .count = (size_t)count,
                          .width = dims[2] / 3,
                          .rows = dims[1],
                          .keys = dims[1],
                          .filter = kiln__onnx_float(call, "mask_filter_value", -10000)};
    if (past && (past->rank != 5 || past->dims[0] != 2 || past->dims[1] != heads.batch ||
                 past->dims[2] != heads.count || past->dims[4] * heads.count != heads.width)) {
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH, "a cache that does not fit");
        return;
    }
    if (kiln_split(call->batch, all, 2, 3, NULL, parts))
        return;
    for (size_t i = 0; i < 3; i++)
        parts[i] = cut(call, parts[i], heads.count);
    for (size_t i = 0; i < 2 && past; i++)
        parts[1 + i] =
            after_past(call, past, kiln__onnx_tensor(call, operands->past), i, parts[1 + i]);
    heads.keys += past ? past->dims[3] : 0;
    give_cache(call, parts + 1, type);
    kiln_tensor mask = key_mask(call, operands->mask, &heads);
    if (!kiln__onnx_failed(call))
        attend(call, &heads, parts[0], parts[1], parts[2], mask,
               kiln__onnx_tensor(call, operands->added), type);
}

/* Operands: x, the weights and biases of q, k and v side by side, a mask, the cache, what is added.
 */
static void packed_attention(struct kiln__onnx_call *call)
{
    static const struct packed operands = {3, 4, 5};
    for (size_t i = 0; i < 2; i++)
        if (!kiln__onnx_need(call, i))
            return;
    kiln_tensor all =
        kiln_matmul(call->batch, kiln__onnx_tensor(call, 0), kiln__onnx_tensor(call, 1));
    if (kiln__onnx_operand(call, 2))
        all = kiln_add(call->batch, all, kiln__onnx_tensor(call, 2));
    attend_packed(call, all, &operands, kiln__onnx_operand(call, 0)->type);
}

/* Operands: x, the weights, biases, the scales of x and of the weights, a mask, their zero points,
 * the cache. */
static void quantized_attention(struct kiln__onnx_call *call)
{
    static const struct packed operands = {5, 8, SIZE_MAX};
    struct kiln__onnx_value product = {0};
    for (size_t i = 0; i < 5; i++)
        if (!kiln__onnx_need(call, i))
            return;
    struct kiln__onnx_value *const parts[] = {
        kiln__onnx_operand(call, 0), kiln__onnx_operand(call, 1), kiln__onnx_operand(call, 6),
        kiln__onnx_operand(call, 7)};
    kiln__onnx_apply(call, "MatMulInteger", 10, 4, parts, 1, &product);
    if (kiln__onnx_failed(call))
        return;
    kiln_tensor scale =
        kiln_mul(call->batch, kiln__onnx_tensor(call, 3), kiln__onnx_tensor(call, 4));
    kiln_tensor all =
        kiln_mul(call->batch, kiln_cast(call->batch, product.tensor, KILN_F32), scale);
    all = kiln_add(call->batch, all, kiln__onnx_tensor(call, 2));
    attend_packed(call, all, &operands, kiln__onnx_operand(call, 2)->type);
}

/* Operands: q, k, v, their biases, a mask of keys, what is added, the cache of k and of v. */
static void multi_head_attention(struct kiln__onnx_call *call)
{
    kiln_tensor parts[3];
    for (size_t i = 0; i < 3; i++)
        if (!kiln__onnx_need(call, i))
            return;
    const struct kiln__onnx_value *q = kiln__onnx_operand(call, 0),
                                  *v = kiln__onnx_operand(call, 2);
    int64_t count = kiln__onnx_int(call, "num_heads", 0), start = 0;
    if (q->rank != 3 || v->rank != 3 || kiln__onnx_operand(call, 1)->rank != 3 || count < 1 ||
        kiln__onnx_operand(call, 8)) {
        kiln__onnx_refuse(call, KILN_UNSUPPORTED,
                          "operands that are packed, or of four dimensions");
        return;
    }
    if (kiln__onnx_operand(call, 3) && kiln__onnx_operand(call, 3)->rank != 1) {
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH, "biases of %zu dimensions",
                          kiln__onnx_operand(call, 3)->rank);
        return;
    }
    for (size_t i = 0; i < 3; i++) {
        parts[i] = kiln__onnx_tensor(call, i);
        int64_t width = (int64_t)kiln__onnx_operand(call, i)->dims[2], stop = start + width;
        if (kiln__onnx_operand(call, 3))
            parts[i] =
                kiln_add(call->batch, parts[i],
                         kiln_slice(call->batch, kiln__onnx_tensor(call, 3), &start, &stop, NULL));
        start = stop;
        parts[i] = cut(call, parts[i], (size_t)count);
        if (i && kiln__onnx_operand(call, 5 + i)) {
            kiln_tensor both[] = {kiln__onnx_tensor(call, 5 + i), parts[i]};
            parts[i] = kiln_concat(call->batch, 2, both, 2);
        }
        if (i)
            kiln__onnx_give(call, i, parts[i], q->type);
    }
    size_t dims[KILN_MAX_RANK];
    if (kiln__onnx_failed(call) || kiln_tensor_shape(call->batch, parts[1], NULL, NULL, dims))
        return;
    struct heads heads = {.batch = q->dims[0],
                          .count = (size_t)count,
                          .width = v->dims[2],
                          .rows = q->dims[1],
                          .keys = dims[2],
                          .filter = kiln__onnx_float(call, "mask_filter_value", -10000)};
    kiln_tensor mask = key_mask(call, 4, &heads);
    if (!kiln__onnx_failed(call))
        attend(call, &heads, parts[0], parts[1], parts[2], mask, kiln__onnx_tensor(call, 5),
               q->type);
}

/* ---- embeddings ---- */

/* layer_norm(words[ids] + positions[0, 1, ...] + segments[segment ids]) and how many ids count. */
static void embed(struct kiln__onnx_call *call)
{
    int last = -1;
    static const size_t needed[] = {0, 2, 3, 5, 6};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!kiln__onnx_need(call, needed[i]))
            return;
    struct kiln__onnx_value *ids = kiln__onnx_operand(call, 0),
                            *words = kiln__onnx_operand(call, 2);
    if (ids->rank != 2) {
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH, "ids of %zu dimensions", ids->rank);
        return;
    }
    kiln_batch *batch = call->batch;
    kiln_tensor place = kiln__onnx_operand(call, 8) ? kiln__onnx_tensor(call, 8)
                                                    : kiln_iota(batch, 1, &ids->dims[1], 0);
    kiln_tensor sum = kiln_add(
        batch, kiln_gather(batch, kiln__onnx_tensor(call, 2), kiln__onnx_tensor(call, 0), 0),
        kiln_gather(batch, kiln__onnx_tensor(call, 3), place, 0));
    if (kiln__onnx_operand(call, 1) && kiln__onnx_operand(call, 4))
        sum =
            kiln_add(batch, sum,
                     kiln_gather(batch, kiln__onnx_tensor(call, 4), kiln__onnx_tensor(call, 1), 0));
    kiln__onnx_give(call, 0,
                    kiln_layer_norm(batch, sum, kiln__onnx_tensor(call, 5),
                                    kiln__onnx_tensor(call, 6), 1, &last,
                                    kiln__onnx_float(call, "epsilon", 1e-12)),
                    words->type);
    if (call->n_outputs > 1 && call->wanted[1])
        kiln__onnx_give(call, 1,
                        kiln__onnx_operand(call, 7)
                            ? kiln_sum(batch, kiln__onnx_tensor(call, 7), 1, &last, 0)
                            : kiln_fill(batch, KILN_I32, 1, ids->dims, 0),
                        INT32);
    if (call->n_outputs > 2 && call->wanted[2])
        kiln__onnx_give(call, 2, sum, words->type);
}

const struct kiln__onnx_row kiln__onnx_microsoft_rows[] = {
    KILN__ONNX_ROW("Attention", 1, packed_attention, .domain = KILN__ONNX_MICROSOFT),
    KILN__ONNX_ROW("BiasGelu", 1, bias_gelu, .domain = KILN__ONNX_MICROSOFT),
    KILN__ONNX_ROW("EmbedLayerNormalization", 1, embed, .domain = KILN__ONNX_MICROSOFT),
    KILN__ONNX_ROW("FastGelu", 1, fast_gelu, .domain = KILN__ONNX_MICROSOFT),
    KILN__ONNX_ROW("MultiHeadAttention", 1, multi_head_attention, .domain = KILN__ONNX_MICROSOFT),
    KILN__ONNX_ROW("QAttention", 1, quantized_attention, .domain = KILN__ONNX_MICROSOFT),
    KILN__ONNX_ROW("QuickGelu", 1, quick_gelu, .domain = KILN__ONNX_MICROSOFT),
    {0},
};
