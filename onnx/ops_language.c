/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of language models: gates, and caches of keys and values that are written at a place. */
#include <string.h>

#include "onnx/call.h"

/* a * sigmoid(alpha * a), times b if there is one. */
static void record_swish(struct kiln__onnx_call *call)
{
    if (!kiln__onnx_need(call, 0))
        return;
    double alpha = kiln__onnx_float(call, "alpha", 1);
    kiln_tensor a = kiln__onnx_tensor(call, 0), y;
    if (alpha == 1)
        y = kiln_swish(call->batch, a);
    else
        y = kiln_mul(call->batch, a, kiln_sigmoid(call->batch, kiln_scale(call->batch, a, alpha)));
    if (kiln__onnx_operand(call, 1))
        y = kiln_mul(call->batch, y, kiln__onnx_tensor(call, 1));
    kiln__onnx_give(call, 0, y, kiln__onnx_operand(call, 0)->type);
}

/* x where it is above alpha, else 0. */
static void record_threshold(struct kiln__onnx_call *call)
{
    if (!kiln__onnx_need(call, 0))
        return;
    kiln_tensor x = kiln__onnx_tensor(call, 0);
    kiln_tensor alpha = kiln_constant(call->batch, KILN_F32, kiln__onnx_float(call, "alpha", 1));
    kiln_tensor above = kiln_greater(call->batch, x, alpha);
    kiln__onnx_give(call, 0,
                    kiln_where(call->batch, above, x, kiln_constant(call->batch, KILN_F32, 0)),
                    kiln__onnx_operand(call, 0)->type);
}

/* A cache [B, middle, S, inner] and an update [B, middle, n, inner] that is to begin at an element
 * of S of its own in each batch. */
struct cache {
    size_t batches, middle, length, inner, written;
};

static bool find_cache(struct kiln__onnx_call *call, struct cache *cache)
{
    const struct kiln__onnx_value *past = kiln__onnx_operand(call, 0);
    const struct kiln__onnx_value *update = kiln__onnx_operand(call, 1);
    if (!kiln__onnx_need(call, 0) || !kiln__onnx_need(call, 1))
        return false;
    size_t axis = kiln__onnx_axis(call, kiln__onnx_int(call, "axis", -2), past->rank);
    if (kiln__onnx_failed(call))
        return false;
    bool fits = axis > 0 && update->rank == past->rank;
    *cache = (struct cache){.batches = past->dims[0], .middle = 1, .inner = 1};
    for (size_t i = 0; fits && i < past->rank; i++) {
        fits = i == axis ? update->dims[i] <= past->dims[i] : update->dims[i] == past->dims[i];
        *(i < axis ? &cache->middle : &cache->inner) *= i && i != axis ? past->dims[i] : 1;
    }
    if (!fits || past->dims[axis] > INT32_MAX) {
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH, "the update does not fit the cache");
        return false;
    }
    cache->length = past->dims[axis];
    cache->written = update->dims[axis];
    return true;
}

/* [B, 1, S]: which element of the update each of the cache gets; outside of it: none. */
static kiln_tensor find_sources(struct kiln__onnx_call *call, const struct cache *cache)
{
    kiln_batch *batch = call->batch;
    bool circular = !strcmp(kiln__onnx_string(call, "mode", "linear"), "circular");
    kiln_tensor s = kiln_iota(batch, 3, (size_t[]){1, 1, cache->length}, 2);
    if (!kiln__onnx_operand(call, 2))
        return s;
    kiln_tensor begin = kiln_reshape(batch, kiln__onnx_positions(call, kiln__onnx_tensor(call, 2)),
                                     3, (size_t[]){cache->batches, 1, 1});
    kiln_tensor from = kiln_sub(batch, s, begin), zero = kiln_constant(batch, KILN_I32, 0);
    kiln_tensor around =
        kiln_add(batch, from, kiln_constant(batch, KILN_I32, (double)cache->length));
    return circular ? kiln_where(batch, kiln_less(batch, from, zero), around, from) : from;
}

static void record_cache(struct kiln__onnx_call *call)
{
    struct cache cache;
    kiln_batch *batch = call->batch;
    if (!find_cache(call, &cache))
        return;
    const struct kiln__onnx_value *past = kiln__onnx_operand(call, 0);
    size_t rows[3] = {cache.batches, cache.middle, 1};
    size_t shape[4] = {cache.batches, cache.middle, cache.length, cache.inner};
    kiln_tensor n = kiln_constant(batch, KILN_I32, (double)cache.written);
    kiln_tensor zero = kiln_constant(batch, KILN_I32, 0), from = find_sources(call, &cache);
    kiln_tensor is_new =
        kiln_logical_and(batch, kiln_greater_equal(batch, from, zero), kiln_less(batch, from, n));
    size_t count = cache.batches * cache.middle;
    kiln_tensor row = kiln_reshape(batch, kiln_iota(batch, 1, &count, 0), 3, rows);
    row = kiln_add(batch, kiln_mul(batch, row, n), kiln_where(batch, is_new, from, zero));
    kiln_tensor update = kiln_reshape(batch, kiln__onnx_tensor(call, 1), 2,
                                      (size_t[]){count * cache.written, cache.inner});
    kiln_tensor old = kiln_reshape(batch, kiln__onnx_tensor(call, 0), 4, shape);
    is_new = kiln_reshape(
        batch, is_new, 4,
        (size_t[]){kiln__onnx_operand(call, 2) ? cache.batches : 1, 1, cache.length, 1});
    kiln_tensor y = kiln_where(batch, is_new, kiln_gather(batch, update, row, 0), old);
    kiln__onnx_give(call, 0, kiln_reshape(batch, y, past->rank, past->dims), past->type);
}

/* ---- a convolution over what came before, which a state goes on with ---- */

/* Elements [begin, end) of the last of three dimensions. */
static kiln_tensor cut(kiln_batch *batch, kiln_tensor x, const size_t *dims, size_t begin,
                       size_t end)
{
    return kiln_slice(batch, x, (int64_t[]){0, 0, (int64_t)begin},
                      (int64_t[]){(int64_t)dims[0], (int64_t)dims[1], (int64_t)end}, NULL);
}

/* x [B, C, L], weights [C, 1, k], a bias [C], the last k - 1 elements before x [B, C, k - 1]. */
static void record_causal(struct kiln__onnx_call *call)
{
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    const struct kiln__onnx_value *weight = kiln__onnx_operand(call, 1);
    kiln_batch *batch = call->batch;
    if (!kiln__onnx_need(call, 0) || !kiln__onnx_need(call, 1))
        return;
    if (x->rank != 3 || weight->rank != 3 || weight->dims[0] != x->dims[1] || !weight->dims[2]) {
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH, "there is not a filter for each channel");
        return;
    }
    size_t window = weight->dims[2], length = x->dims[2] + window - 1;
    kiln_tensor all = kiln_cast(batch, kiln__onnx_tensor(call, 0), KILN_F32);
    if (kiln__onnx_operand(call, 3) && window > 1) {
        kiln_tensor past = kiln_cast(batch, kiln__onnx_tensor(call, 3), KILN_F32);
        all = kiln_concat(batch, 2, (kiln_tensor[]){past, all}, 2);
    } else {
        all = kiln_pad(batch, all, (size_t[]){0, 0, window - 1}, (size_t[]){0, 0, 0}, 0);
    }
    kiln_tensor y = kiln_windows(batch, all, 2, 1, &window, NULL, NULL);
    y = kiln_sum(batch, kiln_mul(batch, y, kiln__onnx_tensor(call, 1)), 1, (int[]){3}, 0);
    if (kiln__onnx_operand(call, 2))
        y = kiln_add(batch, y,
                     kiln_reshape(batch, kiln__onnx_tensor(call, 2), 2, (size_t[]){x->dims[1], 1}));
    if (strcmp(kiln__onnx_string(call, "activation", "none"), "none"))
        y = kiln_swish(batch, y);
    kiln__onnx_give(call, 0, y, x->type);
    if (call->n_outputs > 1)
        kiln__onnx_give(call, 1, cut(batch, all, x->dims, x->dims[2], length), x->type);
}

const struct kiln__onnx_row kiln__onnx_language_rows[] = {
    KILN__ONNX_ROW("Swish", 24, record_swish),
    KILN__ONNX_ROW("SwiGLU", 28, record_swish),
    KILN__ONNX_ROW("ThresholdedRelu", 10, record_threshold),
    KILN__ONNX_ROW("TensorScatter", 24, record_cache),
    KILN__ONNX_ROW("CausalConvWithState", 27, record_causal),
    {0},
};
