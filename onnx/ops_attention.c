/* SPDX-License-Identifier: Apache-2.0 */
/* The operator Attention. What hides keys is put together as one mask that is added to the scores:
 * it broadcasts and fuses, and only a few of its parts are there in most models. */
#include <math.h>
#include <string.h>

#include "onnx/onnx.pb-c.h"
#include "onnx/values.h"

enum { BOOLEAN = ONNX__TENSOR_PROTO__DATA_TYPE__BOOL };

/* Queries, keys and values as [batch, heads, rows, width], and what hides keys. */
struct attention {
    kiln_tensor q, k, v, mask; /* mask: {0}, or f32 of four dimensions */
    size_t batch, heads, rows; /* of q */
    size_t kv_heads, keys;     /* of k, with those of the cache */
    size_t width, v_width;     /* of a row */
    size_t past;               /* keys of the cache */
    bool flat;                 /* operands were [batch, rows, heads * width] */
    double scale;
};

static kiln_tensor number(struct kiln__onnx_call *call, kiln_type type, double value)
{
    return kiln_constant(call->batch, type, value);
}

/* An operand of three or four dimensions as four. */
static kiln_tensor heads_first(struct kiln__onnx_call *call, size_t i, int64_t heads, size_t *dims)
{
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, i);
    kiln_tensor tensor = kiln__onnx_tensor(call, i);
    if (x->rank == 4) {
        memcpy(dims, x->dims, 4 * sizeof *dims);
        return tensor;
    }
    if (x->rank != 3 || heads < 1 || x->dims[2] % (size_t)heads) {
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH, "operand %zu is not cut into heads", i);
        memset(dims, 0, 4 * sizeof *dims);
        return (kiln_tensor){0};
    }
    size_t cut[4] = {x->dims[0], x->dims[1], (size_t)heads, x->dims[2] / (size_t)heads};
    size_t turned[4] = {cut[0], cut[2], cut[1], cut[3]};
    memcpy(dims, turned, sizeof turned);
    return kiln_transpose(call->batch, kiln_reshape(call->batch, tensor, 4, cut),
                          (const size_t[]){0, 2, 1, 3});
}

/* The new keys or values after those of the cache, operand i, which result k gets. */
static kiln_tensor after_past(struct kiln__onnx_call *call, size_t i, size_t k, kiln_tensor fresh)
{
    if (kiln__onnx_operand(call, i)) {
        kiln_tensor parts[] = {kiln__onnx_tensor(call, i), fresh};
        kiln_type old, now;
        if (!kiln_tensor_shape(call->batch, parts[0], &old, NULL, NULL) &&
            !kiln_tensor_shape(call->batch, parts[1], &now, NULL, NULL) && old != now)
            for (size_t p = 0; p < 2; p++)
                parts[p] = kiln_cast(call->batch, parts[p], KILN_F32);
        fresh = kiln_concat(call->batch, 2, parts, 2);
    }
    kiln__onnx_give(call, k, fresh, kiln__onnx_operand(call, 1)->type);
    return fresh;
}

static bool read_operands(struct kiln__onnx_call *call, struct attention *a)
{
    size_t q[4], k[4], v[4];
    for (size_t i = 0; i < 3; i++)
        if (!kiln__onnx_need(call, i))
            return false;
    int64_t heads = kiln__onnx_int(call, "q_num_heads", 0);
    int64_t kv_heads = kiln__onnx_int(call, "kv_num_heads", 0);
    a->flat = kiln__onnx_operand(call, 0)->rank == 3;
    a->q = heads_first(call, 0, heads, q);
    a->k = heads_first(call, 1, kv_heads, k);
    a->v = heads_first(call, 2, kv_heads, v);
    if (kiln__onnx_failed(call))
        return false;
    a->batch = q[0];
    a->heads = q[1];
    a->rows = q[2];
    a->width = q[3];
    a->kv_heads = k[1];
    a->v_width = v[3];
    if (!a->kv_heads || a->heads % a->kv_heads || v[1] != a->kv_heads) {
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH,
                          "%zu heads of queries, %zu of keys, %zu of values", a->heads, a->kv_heads,
                          v[1]);
        return false;
    }
    a->k = after_past(call, 4, 1, a->k);
    a->v = after_past(call, 5, 2, a->v);
    size_t all[KILN_MAX_RANK];
    if (kiln__onnx_failed(call) || kiln_tensor_shape(call->batch, a->k, NULL, NULL, all))
        return false;
    a->keys = all[2];
    a->past = all[2] - k[2];
    a->scale = kiln__onnx_float(call, "scale", a->width ? 1 / sqrt((double)a->width) : 1);
    return true;
}

/* ---- what hides keys ---- */

static void hide(struct kiln__onnx_call *call, struct attention *a, kiln_tensor mask)
{
    a->mask = a->mask.id ? kiln_add(call->batch, a->mask, mask) : mask;
}

/* 0 where a truth value is, else -infinity. */
static void hide_unless(struct kiln__onnx_call *call, struct attention *a, kiln_tensor seen)
{
    hide(call, a,
         kiln_where(call->batch, seen, number(call, KILN_F32, 0),
                    number(call, KILN_F32, -INFINITY)));
}

/* The operand: keys behind its end are hidden. */
static void hide_by_operand(struct kiln__onnx_call *call, struct attention *a)
{
    const struct kiln__onnx_value *given = kiln__onnx_operand(call, 3);
    if (!given)
        return;
    size_t dims[4] = {1, 1, 1, 1}, low[4] = {0}, high[4] = {0};
    if (given->rank > 4 || given->rank == 0) {
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH, "a mask of %zu dimensions", given->rank);
        return;
    }
    memcpy(dims + 4 - given->rank, given->dims, given->rank * sizeof *dims);
    kiln_tensor mask = kiln_reshape(call->batch, kiln__onnx_tensor(call, 3), 4, dims);
    if (given->type == BOOLEAN)
        mask = kiln_where(call->batch, mask, number(call, KILN_F32, 0),
                          number(call, KILN_F32, -INFINITY));
    if (dims[3] < a->keys) {
        high[3] = a->keys - dims[3];
        mask = kiln_pad(call->batch, mask, low, high, -INFINITY);
    }
    hide(call, a, mask);
}

/* What a row sees by its place: so many keys ahead of its own, and of these the last `window`. */
struct reach {
    int64_t ahead, window; /* window 0: all */
    bool all;              /* a row's place does not matter */
};

static struct reach reach_of(struct kiln__onnx_call *call, const struct attention *a)
{
    const int64_t keys = (int64_t)a->keys + (int64_t)a->rows;
    const int64_t left = kiln__onnx_int(call, "left_window_size", -1);
    const int64_t right = kiln__onnx_int(call, "right_window_size", -1);
    const bool causal = kiln__onnx_int(call, "is_causal", 0) != 0;
    struct reach reach = {.all = left < 0 && right < 0 && !causal};
    reach.ahead = causal ? 0 : right < 0 || right > keys ? keys : right;
    reach.window = left < 0 || left > keys ? 0 : left + reach.ahead + 1;
    return reach;
}

/* As a mask, where rows stand among the keys from `offset` on, of each batch where that differs. */
static void hide_by_place(struct kiln__onnx_call *call, struct attention *a, kiln_tensor offset)
{
    const struct reach reach = reach_of(call, a);
    size_t square[4] = {1, 1, a->rows, a->keys};
    if (reach.all)
        return;
    kiln_tensor row = kiln_add(call->batch, kiln_iota(call->batch, 4, square, 2), offset);
    kiln_tensor ahead = kiln_sub(call->batch, kiln_iota(call->batch, 4, square, 3), row);
    hide_unless(call, a,
                kiln_less_equal(call->batch, ahead, number(call, KILN_I32, (double)reach.ahead)));
    if (reach.window)
        hide_unless(call, a,
                    kiln_less(call->batch,
                              number(call, KILN_I32, (double)(reach.ahead - reach.window)), ahead));
}

static void hide_keys(struct kiln__onnx_call *call, struct attention *a, bool by_option)
{
    hide_by_operand(call, a);
    kiln_tensor offset = number(call, KILN_I32, (double)a->past);
    if (kiln__onnx_operand(call, 6)) {
        size_t each[4] = {a->batch, 1, 1, 1}, keys[4] = {1, 1, 1, a->keys};
        kiln_tensor count = kiln_reshape(
            call->batch, kiln__onnx_positions(call, kiln__onnx_tensor(call, 6)), 4, each);
        hide_unless(call, a, kiln_less(call->batch, kiln_iota(call->batch, 4, keys, 3), count));
        if (!kiln__onnx_operand(call, 4))
            offset = kiln_sub(call->batch, count, number(call, KILN_I32, (double)a->rows));
    }
    if (!by_option)
        hide_by_place(call, a, offset);
}

/* ---- heads that share keys ---- */

/* The mask with its heads in groups, as the queries have theirs. */
static kiln_tensor group_mask(struct kiln__onnx_call *call, const struct attention *a)
{
    size_t dims[KILN_MAX_RANK];
    if (!a->mask.id || kiln_tensor_shape(call->batch, a->mask, NULL, NULL, dims))
        return a->mask;
    bool all = dims[1] == a->heads;
    size_t grouped[5] = {dims[0], all ? a->kv_heads : 1, all ? a->heads / a->kv_heads : dims[1],
                         dims[2], dims[3]};
    return kiln_reshape(call->batch, a->mask, 5, grouped);
}

static void group_heads(struct kiln__onnx_call *call, struct attention *a)
{
    size_t q[5] = {a->batch, a->kv_heads, a->heads / a->kv_heads, a->rows, a->width};
    size_t k[5] = {a->batch, a->kv_heads, 1, a->keys, a->width};
    size_t v[5] = {a->batch, a->kv_heads, 1, a->keys, a->v_width};
    if (a->heads == a->kv_heads)
        return;
    a->q = kiln_reshape(call->batch, a->q, 5, q);
    a->k = kiln_reshape(call->batch, a->k, 5, k);
    a->v = kiln_reshape(call->batch, a->v, 5, v);
    a->mask = group_mask(call, a);
}

/* ---- with and without the scores in memory ---- */

static kiln_tensor in_one_call(struct kiln__onnx_call *call, const struct attention *a,
                               bool by_option)
{
    kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
    const struct reach reach = reach_of(call, a);
    if (by_option && !reach.all) {
        options.causal = 1;
        options.diagonal = (int64_t)a->past + reach.ahead;
        options.window = reach.window;
    }
    kiln_tensor q = a->q;
    if (a->scale == 0) /* which is the default's sign in the options */
        q = kiln_scale(call->batch, q, 0);
    else
        options.scale = a->scale;
    return kiln_attention(call->batch, q, a->k, a->v, a->mask, &options);
}

/* A result of the scores: which stage of them the node wants. */
static void give_scores(struct kiln__onnx_call *call, const struct attention *a, int64_t stage,
                        kiln_tensor scores)
{
    size_t dims[4] = {a->batch, a->heads, a->rows, a->keys};
    if (call->n_outputs > 3 && call->wanted[3] &&
        kiln__onnx_int(call, "qk_matmul_output_mode", 0) == stage)
        kiln__onnx_give(call, 3, kiln_reshape(call->batch, scores, 4, dims),
                        kiln__onnx_operand(call, 0)->type);
}

static kiln_tensor step_by_step(struct kiln__onnx_call *call, const struct attention *a, double cap)
{
    int last = -1;
    kiln_tensor scores = kiln_matmul_transposed(call->batch, a->q, 0, a->k, 1);
    scores = kiln_scale(call->batch, scores, a->scale);
    if (cap > 0)
        scores = kiln_scale(call->batch,
                            kiln_tanh(call->batch, kiln_scale(call->batch, scores, 1 / cap)), cap);
    give_scores(call, a, 0, scores);
    give_scores(call, a, 1, scores);
    kiln_tensor hidden = a->mask.id ? kiln_add(call->batch, scores, a->mask) : scores;
    give_scores(call, a, 2, hidden);
    kiln_tensor weights = kiln_softmax(call->batch, hidden, 1, &last);
    if (a->mask.id) { /* rows that see no key are 0 */
        kiln_tensor most = kiln_max(call->batch, a->mask, 1, &last, 1);
        kiln_tensor blind = kiln_equal(call->batch, most, number(call, KILN_F32, -INFINITY));
        weights = kiln_where(call->batch, blind, number(call, KILN_F32, 0), weights);
    }
    give_scores(call, a, 3, weights);
    return kiln_matmul(call->batch, weights, a->v);
}

static void attention(struct kiln__onnx_call *call)
{
    struct attention a = {0};
    if (!read_operands(call, &a))
        return;
    double cap = kiln__onnx_float(call, "softcap", 0);
    bool scores = cap > 0 || (call->n_outputs > 3 && call->wanted[3]);
    const bool by_option = !scores && !kiln__onnx_operand(call, 6);
    hide_keys(call, &a, by_option);
    if (kiln__onnx_failed(call))
        return;
    group_heads(call, &a);
    kiln_tensor y = scores ? step_by_step(call, &a, cap) : in_one_call(call, &a, by_option);
    size_t dims[4] = {a.batch, a.heads, a.rows, a.v_width};
    size_t flat[3] = {a.batch, a.rows, a.heads * a.v_width};
    y = kiln_reshape(call->batch, y, 4, dims);
    if (a.flat)
        y = kiln_reshape(call->batch, kiln_transpose(call->batch, y, (const size_t[]){0, 2, 1, 3}),
                         3, flat);
    kiln__onnx_give(call, 0, y, kiln__onnx_operand(call, 0)->type);
}

const struct kiln__onnx_row kiln__onnx_attention_rows[] = {
    KILN__ONNX_ROW("Attention", 23, attention),
    {0},
};
