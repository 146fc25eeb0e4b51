/* SPDX-License-Identifier: Apache-2.0 */
/* GroupQueryAttention of com.microsoft, as onnxruntime-genai's models have it: heads share keys and
 * values, which a cache has that is written at a place only the run knows. Where a program imports
 * a cache and exports the result to the same buffer, new rows are all that is written. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "onnx/onnx.pb-c.h"
#include "onnx/values.h"

enum {
    QUERY,
    KEY,
    VALUE,
    PAST_KEY,
    PAST_VALUE,
    SEQLENS,
    TOTAL,
    COSINE,
    SINE,
    POSITIONS,
    BIAS,
    OPERANDS
};

struct grouped {
    size_t batch, rows, heads, pairs, size;
    size_t slots;          /* texts of the cache: the first ones are these, the others stay */
    size_t keys;           /* of the cache with room for what is new */
    bool first;            /* nothing is in the cache yet */
    kiln_tensor before;    /* keys of each text that came earlier [batch, 1] */
    kiln_tensor places;    /* of each row [batch, rows] */
    kiln_tensor part[3];   /* queries, keys, values [batch, heads, rows, size] */
    kiln_tensor cached[2]; /* keys, values [batch, pairs, keys, size] */
    int64_t window;        /* 0: all */
    double scale, cap;
};

static kiln_tensor number(struct kiln__onnx_call *call, double value)
{
    return kiln_constant(call->batch, KILN_I32, value);
}

/* ---- operands ---- */

static bool refuse(struct kiln__onnx_call *call, const char *why)
{
    kiln__onnx_refuse(call, KILN_UNSUPPORTED, "%s", why);
    return false;
}

static bool check_attributes(struct kiln__onnx_call *call)
{
    for (size_t i = OPERANDS; i < call->n_inputs; i++)
        if (kiln__onnx_operand(call, i))
            return refuse(call, "sinks, or a cache that is quantised");
    if (kiln__onnx_int(call, "smooth_softmax", 0) > 0 || (call->n_outputs > 3 && call->wanted[3]))
        return refuse(call, "a smooth softmax, or the scores as a result");
    return !kiln__onnx_failed(call);
}

/* Queries, keys and values lie side by side where there is no operand for the latter. */
static bool read_sizes(struct kiln__onnx_call *call, struct grouped *g)
{
    const struct kiln__onnx_value *q = kiln__onnx_operand(call, QUERY);
    const int64_t heads = kiln__onnx_int(call, "num_heads", 0);
    const int64_t pairs = kiln__onnx_int(call, "kv_num_heads", 0);
    const bool apart = kiln__onnx_operand(call, KEY) != NULL;
    const size_t all = (size_t)heads + (apart ? 0 : 2 * (size_t)pairs);
    bool fits = heads > 0 && pairs > 0 && heads < INT16_MAX && heads % pairs == 0 && q->rank == 3 &&
                q->dims[2] > 0 && q->dims[2] % all == 0 && q->dims[1] > 0 &&
                apart == (kiln__onnx_operand(call, VALUE) != NULL);
    if (fits) {
        *g = (struct grouped){.batch = q->dims[0],
                              .rows = q->dims[1],
                              .heads = (size_t)heads,
                              .pairs = (size_t)pairs,
                              .size = q->dims[2] / all};
        const size_t dims[] = {g->batch, g->rows, g->pairs * g->size};
        for (size_t i = KEY; i <= VALUE && apart; i++)
            fits = fits && kiln__onnx_has_shape(kiln__onnx_operand(call, i), 3, dims);
    }
    if (!fits)
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH,
                          "queries, keys and values of %" PRId64 " and %" PRId64
                          " heads do not fit each other",
                          heads, pairs);
    return fits;
}

/* As many keys as the cache has room for, or else as are there with the new ones. */
static bool read_cache(struct kiln__onnx_call *call, struct grouped *g)
{
    const struct kiln__onnx_value *past = kiln__onnx_operand(call, PAST_KEY);
    const struct kiln__onnx_value *values = kiln__onnx_operand(call, PAST_VALUE);
    const struct kiln__onnx_value *lengths = kiln__onnx_operand(call, SEQLENS);
    double total = 0;
    const bool known = kiln__onnx_scalar(call, TOTAL, &total);
    bool fits = (past != NULL) == (values != NULL) && lengths && lengths->rank >= 1 &&
                lengths->dims[0] == g->batch && (lengths->rank == 1 || lengths->dims[1] == 1);
    g->slots = g->batch;
    if (fits && past) {
        fits = past->rank == 4 && past->dims[0] >= g->batch;
        g->slots = fits ? past->dims[0] : g->batch;
        g->keys = fits ? past->dims[2] : 0;
        const size_t dims[] = {g->slots, g->pairs, g->keys, g->size};
        fits = fits && kiln__onnx_has_shape(past, 4, dims) && kiln__onnx_has_shape(values, 4, dims);
    }
    g->first = known && total == (double)g->rows;
    if (fits && known && total > (double)g->keys)
        g->keys = (size_t)total;
    if (!fits || total > INT32_MAX || g->keys > INT32_MAX || g->keys < g->rows)
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH,
                          "a cache of %zu keys does not fit %zu rows, or the lengths do not",
                          g->keys, g->rows);
    return !kiln__onnx_failed(call);
}

/* [batch, rows, heads * size] as [batch, heads, rows, size]. */
static kiln_tensor heads_first(struct kiln__onnx_call *call, const struct grouped *g, kiln_tensor x,
                               size_t heads)
{
    x = kiln_reshape(call->batch, x, 4, (size_t[]){g->batch, g->rows, heads, g->size});
    return kiln_transpose(call->batch, x, (const size_t[]){0, 2, 1, 3});
}

static void read_parts(struct kiln__onnx_call *call, struct grouped *g)
{
    const size_t heads[] = {g->heads, g->pairs, g->pairs};
    const size_t widths[] = {g->heads * g->size, g->pairs * g->size, g->pairs * g->size};
    if (kiln__onnx_operand(call, KEY))
        for (size_t i = 0; i < 3; i++)
            g->part[i] = kiln__onnx_tensor(call, i);
    else
        kiln_split(call->batch, kiln__onnx_tensor(call, QUERY), 2, 3, widths, g->part);
    for (size_t i = 0; i < 3; i++)
        g->part[i] = heads_first(call, g, g->part[i], heads[i]);
}

/* ---- places ---- */

static void find_places(struct kiln__onnx_call *call, struct grouped *g)
{
    kiln_batch *b = call->batch;
    const size_t each[] = {g->batch, 1};
    if (g->first)
        g->before = kiln_fill(b, KILN_I32, 2, each, 0);
    else
        g->before = kiln_add(
            b,
            kiln_reshape(b, kiln__onnx_positions(call, kiln__onnx_tensor(call, SEQLENS)), 2, each),
            number(call, 1 - (double)g->rows));
    g->places = kiln_add(b, g->before, kiln_iota(b, 2, (size_t[]){1, g->rows}, 1));
}

static void turn(struct kiln__onnx_call *call, struct grouped *g)
{
    const struct kiln__onnx_value *table = kiln__onnx_operand(call, COSINE);
    const struct kiln__onnx_value *places = kiln__onnx_operand(call, POSITIONS);
    const bool neighbours = kiln__onnx_int(call, "rotary_interleaved", 0) != 0;
    if (!kiln__onnx_int(call, "do_rotary", 0))
        return;
    if (!kiln__onnx_need(call, COSINE) || !kiln__onnx_need(call, SINE))
        return;
    if (table->rank != 2 || 2 * table->dims[1] > g->size ||
        !kiln__onnx_has_shape(kiln__onnx_operand(call, SINE), 2, table->dims) ||
        (places && !kiln__onnx_has_shape(places, 2, (size_t[]){g->batch, g->rows}))) {
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH, "angles, or positions, of another shape");
        return;
    }
    kiln_tensor at =
        places ? kiln__onnx_positions(call, kiln__onnx_tensor(call, POSITIONS)) : g->places;
    kiln_tensor angles[2];
    for (size_t i = 0; i < 2; i++)
        angles[i] = kiln_reshape(
            call->batch, kiln_gather(call->batch, kiln__onnx_tensor(call, COSINE + i), at, 0), 4,
            (size_t[]){g->batch, 1, g->rows, table->dims[1]});
    for (size_t i = 0; i < 2; i++)
        g->part[i] = kiln_rotary(call->batch, g->part[i], angles[0], angles[1], neighbours);
}

/* ---- the cache ---- */

/* Rows go beyond a text that is in no operand, and so nowhere. */
static kiln_tensor for_all_slots(struct kiln__onnx_call *call, const struct grouped *g,
                                 kiln_tensor x, kiln_tensor *before)
{
    const size_t more = g->slots - g->batch;
    *before = g->before;
    if (!more)
        return x;
    *before =
        kiln_pad(call->batch, *before, (size_t[]){0, 0}, (size_t[]){more, 0}, (double)g->keys);
    return kiln_pad(call->batch, x, (size_t[]){0, 0, 0, 0}, (size_t[]){more, 0, 0, 0}, 0);
}

/* Of the texts that are in the operands. */
static kiln_tensor of_texts(struct kiln__onnx_call *call, const struct grouped *g, kiln_tensor x)
{
    const int64_t start[] = {0, 0, 0, 0}, stop[] = {(int64_t)g->batch, (int64_t)g->pairs,
                                                    (int64_t)g->keys, (int64_t)g->size};
    return g->slots == g->batch ? x : kiln_slice(call->batch, x, start, stop, NULL);
}

/* New keys or values in their place among the old ones: result 1 or 2. */
static void remember(struct kiln__onnx_call *call, struct grouped *g, size_t i)
{
    const struct kiln__onnx_value *past = kiln__onnx_operand(call, PAST_KEY + i);
    const int type = past ? past->type : kiln__onnx_operand(call, QUERY)->type;
    kiln_batch *b = call->batch;
    kiln_tensor x = g->part[1 + i], old = {0};
    kiln_type stored = kiln__onnx_type(type)->type;
    if (past && past->dims[2]) {
        old = kiln__onnx_tensor(call, PAST_KEY + i);
        if (kiln_tensor_shape(b, old, &stored, NULL, NULL))
            return;
        if (past->dims[2] < g->keys)
            old = kiln_pad(b, old, (size_t[]){0, 0, 0, 0},
                           (size_t[]){0, 0, g->keys - past->dims[2], 0}, 0);
    } else if (g->keys > g->rows) {
        old = kiln_cast(
            b, kiln_fill(b, KILN_F32, 4, (size_t[]){g->slots, g->pairs, g->keys, g->size}, 0),
            stored);
    }
    kiln_tensor before;
    x = for_all_slots(call, g, kiln_cast(b, x, stored), &before);
    x = old.id ? kiln_update_slice(b, old, x, before, 2) : x;
    kiln__onnx_give(call, 1 + i, x, type);
    g->cached[i] = of_texts(call, g, x);
}

/* ---- attention ---- */

/* Queries as matrices whose rows see the same keys: of one row a text its heads are these. */
static bool is_single(const struct grouped *g)
{
    return g->rows == 1;
}

/* What is added to scores [batch, pairs, heads of them, rows, keys], or, of one row, without these.
 */
static kiln_tensor bias(struct kiln__onnx_call *call, const struct grouped *g)
{
    const struct kiln__onnx_value *given = kiln__onnx_operand(call, BIAS);
    const size_t shared = g->heads / g->pairs;
    if (!given)
        return (kiln_tensor){0};
    const size_t *dims = given->dims;
    if (given->rank != 4 || (dims[0] != 1 && dims[0] != g->batch) ||
        (dims[1] != 1 && dims[1] != g->heads) || dims[2] != g->rows || dims[3] > g->keys) {
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH, "what is added to scores is of another shape");
        return (kiln_tensor){0};
    }
    kiln_tensor x = kiln_pad(call->batch, kiln__onnx_tensor(call, BIAS), (size_t[]){0, 0, 0, 0},
                             (size_t[]){0, 0, 0, g->keys - dims[3]}, 0);
    const bool all = dims[1] == g->heads;
    const size_t wide[] = {dims[0], all ? g->pairs : 1, all ? shared : 1, g->rows, g->keys};
    const size_t single[] = {dims[0], wide[1], wide[2], g->keys};
    return is_single(g) ? kiln_reshape(call->batch, x, 4, single)
                        : kiln_reshape(call->batch, x, 5, wide);
}

/* Which keys a row sees, up to its place; of the shape of bias(). */
static kiln_tensor sees(struct kiln__onnx_call *call, const struct grouped *g)
{
    kiln_batch *b = call->batch;
    kiln_tensor keys = kiln_iota(b, 3, (size_t[]){1, 1, g->keys}, 2);
    kiln_tensor row = kiln_reshape(b, g->places, 3, (size_t[]){g->batch, g->rows, 1});
    kiln_tensor seen = kiln_less_equal(b, keys, row);
    if (g->window)
        seen = kiln_logical_and(
            b, seen, kiln_less(b, kiln_sub(b, row, keys), number(call, (double)g->window)));
    return is_single(g) ? kiln_reshape(b, seen, 4, (size_t[]){g->batch, 1, 1, g->keys})
                        : kiln_reshape(b, seen, 5, (size_t[]){g->batch, 1, 1, g->rows, g->keys});
}

/* With scores in memory, which a cap bends. */
static kiln_tensor attend_capped(struct kiln__onnx_call *call, const struct grouped *g,
                                 kiln_tensor q, kiln_tensor k, kiln_tensor v)
{
    kiln_batch *b = call->batch;
    kiln_tensor scores = kiln_scale(b, kiln_matmul_transposed(b, q, 0, k, 1), g->scale / g->cap);
    scores = kiln_scale(b, kiln_tanh(b, scores), g->cap);
    kiln_tensor added = bias(call, g), seen = sees(call, g);
    if (added.id)
        scores = kiln_add(b, scores, added);
    scores = kiln_where(b, seen, scores, kiln_constant(b, KILN_F32, -INFINITY));
    return kiln_matmul(b, kiln_softmax(b, scores, 1, (int[]){-1}), v);
}

static void attend(struct kiln__onnx_call *call, const struct grouped *g)
{
    kiln_batch *b = call->batch;
    const size_t shared = g->heads / g->pairs;
    kiln_tensor q = g->part[0], k = g->cached[0], v = g->cached[1], y;
    kiln_tensor lengths = kiln_add(b, g->before, number(call, (double)g->rows));
    if (is_single(g)) {
        q = kiln_reshape(b, q, 4, (size_t[]){g->batch, g->pairs, shared, g->size});
    } else {
        const size_t each[] = {g->batch, g->pairs, 1, g->keys, g->size};
        q = kiln_reshape(b, q, 5, (size_t[]){g->batch, g->pairs, shared, g->rows, g->size});
        k = kiln_reshape(b, k, 5, each);
        v = kiln_reshape(b, v, 5, each);
        lengths = kiln_reshape(b, lengths, 3, (size_t[]){g->batch, 1, 1});
    }
    if (g->cap > 0) {
        y = attend_capped(call, g, q, k, v);
    } else {
        kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
        options.causal = !is_single(g);
        options.scale = g->scale;
        options.window = g->window;
        y = kiln_attention_with_lengths(b, q, k, v, bias(call, g), lengths, &options);
    }
    y = kiln_reshape(b, y, 4, (size_t[]){g->batch, g->heads, g->rows, g->size});
    y = kiln_transpose(b, y, (const size_t[]){0, 2, 1, 3});
    kiln__onnx_give_like(call,
                         kiln_reshape(b, y, 3, (size_t[]){g->batch, g->rows, g->heads * g->size}));
}

static void grouped(struct kiln__onnx_call *call)
{
    struct grouped g;
    if (!kiln__onnx_need(call, QUERY) || !kiln__onnx_need(call, SEQLENS) ||
        !check_attributes(call) || !read_sizes(call, &g) || !read_cache(call, &g))
        return;
    const int64_t window = kiln__onnx_int(call, "local_window_size", -1);
    g.window = window > 0 && (uint64_t)window < g.keys ? window : 0;
    g.cap = kiln__onnx_float(call, "softcap", 0);
    g.scale = kiln__onnx_float(call, "scale", 0);
    g.scale = g.scale == 0 ? 1 / sqrt((double)g.size) : g.scale;
    read_parts(call, &g);
    find_places(call, &g);
    turn(call, &g);
    remember(call, &g, 0);
    remember(call, &g, 1);
    if (!kiln__onnx_failed(call))
        attend(call, &g);
}

const struct kiln__onnx_row kiln__onnx_grouped_rows[] = {
    KILN__ONNX_ROW("GroupQueryAttention", 1, grouped, .known = KILN__ONNX_BIT(TOTAL),
                   .roomy = KILN__ONNX_BIT(PAST_KEY) | KILN__ONNX_BIT(PAST_VALUE),
                   .domain = KILN__ONNX_MICROSOFT),
    {0},
};
