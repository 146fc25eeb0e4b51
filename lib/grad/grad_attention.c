/* SPDX-License-Identifier: Apache-2.0 */
/* The adjoint of attention: scores and weights are computed again, a block of query rows at a time,
 * so that what is in memory of the m by n matrices is bounded.
 *
 * Where the operands are all of a narrow type and weights may be rounded to it, on a GPU
 * (batch->limits) all that is multiplied is: weights, the slope and what flows to the scores. Then
 * all five products have operands for tensor cores, and the m by n matrices take half the memory.
 * What is too small for f16 would be lost, so slopes go on at a size that fits: those of a matrix
 * times a power of two. The scale of the scores, which may be of any size, comes after the products
 * that they go into.
 *
 * Where the device has kernels for that, which keep scores in registers, such a gradient is
 * recorded as backward nodes (graph/attention_backward.h): no m by n matrix is in memory at all. */
#include <math.h>

#include <kiln/elementwise.h>
#include <kiln/movement.h>
#include <kiln/operations.h>
#include <kiln/product.h>
#include <kiln/reductions.h>

#include "grad/gradient.h"
#include "graph/attention_backward.h"
#include "record/record_attention_backward.h"

/* Blocks of rows at most, each of a dozen operations, and rows of one at least. */
#define MOST_BLOCKS 32
#define LEAST_ROWS 64

struct adjoint {
    struct kiln__gradient *walk;
    kiln_batch *batch;
    const struct kiln__node *node;
    struct kiln__attention_size size;
    kiln_type narrow;                   /* what is multiplied is rounded to this; 0: is not */
    kiln_tensor q, k, v, mask, lengths; /* mask, lengths: empty if there are none */
    kiln_tensor g;                      /* of the result, */
    kiln_tensor unit;                   /* times this; empty: as it is */
    kiln_tensor shift;                  /* [.., m, 1]: sum of g times the result */
};

/* What has been found so far. */
struct found {
    kiln_tensor q[MOST_BLOCKS], mask[MOST_BLOCKS]; /* per block of rows */
    kiln_tensor k, v;                              /* sums over blocks */
    size_t blocks;
};

/* Rows `first` to `end` of a [.., m, x] tensor. */
static kiln_tensor rows_of(const struct adjoint *a, kiln_tensor x, size_t first, size_t end)
{
    struct kiln__shape shape = kiln__gradient_shape(a->walk, x);
    int64_t start[KILN_MAX_RANK] = {0}, stop[KILN_MAX_RANK];
    for (uint32_t d = 0; d < shape.rank; d++)
        stop[d] = (int64_t)shape.dims[d];
    if (!x.id || shape.rank < 2)
        return x;
    start[shape.rank - 2] = (int64_t)first;
    stop[shape.rank - 2] = (int64_t)end;
    return kiln_slice(a->batch, x, start, stop, NULL);
}

static kiln_tensor grad_attention_real(const struct adjoint *a, double value)
{
    return kiln_constant(a->batch, KILN_F32, value);
}

/* As it is multiplied: f32 again, so that what is transposed next is what a product reads. */
static kiln_tensor rounded(const struct adjoint *a, kiln_tensor x)
{
    return a->narrow ? kiln_cast(a->batch, kiln_cast(a->batch, x, a->narrow), KILN_F32) : x;
}

/* A result of the walk, at its own size; `scores`: made of what flows to the scores. */
static kiln_tensor resized(const struct adjoint *a, kiln_tensor x, bool scores)
{
    if (!a->unit.id || !x.id)
        return x;
    x = scores ? kiln_scale(a->batch, x, a->node->attention.scale) : x;
    return kiln_div(a->batch, x, a->unit);
}

kiln_tensor kiln__gradient_visible_keys(kiln_batch *batch, const struct kiln__attention *attention,
                                        size_t first, size_t queries, size_t keys)
{
    const size_t dims[2] = {queries, keys};
    int64_t least = -(int64_t)(first + queries), most = (int64_t)keys;
    int64_t diagonal = attention->diagonal;
    diagonal = diagonal < least ? least : diagonal > most ? most : diagonal;
    kiln_tensor row = kiln_iota(batch, 2, dims, 0), key = kiln_iota(batch, 2, dims, 1);
    kiln_tensor last = kiln_constant(batch, KILN_I32, (double)((int64_t)first + diagonal));
    return kiln_less_equal(batch, key, kiln_add(batch, row, last));
}

/* Whether rows do not see all keys. */
static bool has_hidden_keys(const struct adjoint *a)
{
    return a->mask.id || a->lengths.id || a->node->attention.causal || a->node->attention.window;
}

/* Rows that meet slopes in a product. A slope is 0 where a row does not see a key, whatever either
 * holds, and NaN where it sees a NaN: such elements need no factor. What is rounded is read by the
 * product as it lies. */
static kiln_tensor grad_attention_factor(const struct adjoint *a, kiln_tensor rows)
{
    if (!has_hidden_keys(a) || a->narrow)
        return rows;
    return kiln_where(a->batch, kiln_isfinite(a->batch, rows), rows, grad_attention_real(a, 0));
}

/* How many keys there are of each matrix, [.., 1, 1], within what there is room for. */
static kiln_tensor keys_of(const struct adjoint *a)
{
    kiln_batch *b = a->batch;
    kiln_tensor given = kiln__gradient_operand(a->walk, a->node, kiln__attention_lengths(a->node));
    given = kiln_maximum(b, given, kiln_constant(b, KILN_I32, 0));
    return kiln_minimum(b, given, kiln_constant(b, KILN_I32, (double)a->size.n));
}

/* Which keys rows `first` to `end` see where there are lengths. */
static kiln_tensor seen_of_lengths(const struct adjoint *a, size_t first, size_t end)
{
    kiln_batch *b = a->batch;
    const size_t dims[2] = {end - first, a->size.n};
    const int64_t diagonal = kiln__attention_diagonal(a->node, &a->size) + (int64_t)first;
    kiln_tensor row = kiln_iota(b, 2, dims, 0), key = kiln_iota(b, 2, dims, 1);
    kiln_tensor last = kiln_add(b, a->lengths, kiln_constant(b, KILN_I32, (double)diagonal));
    return kiln_logical_and(b, kiln_less(b, key, a->lengths),
                            kiln_less_equal(b, key, kiln_add(b, row, last)));
}

/* Which keys the window of rows `first` to `end` has; later ones too. */
static kiln_tensor near_keys(const struct adjoint *a, size_t first, size_t end)
{
    kiln_batch *b = a->batch;
    const size_t dims[2] = {end - first, a->size.n};
    const bool causal = a->node->attention.causal;
    const int64_t earliest = kiln__attention_earliest(a->node, &a->size);
    kiln_tensor from =
        kiln_constant(b, KILN_I32, (double)(earliest + (causal ? (int64_t)first : 0)));
    if (causal)
        from = kiln_add(b, kiln_iota(b, 2, dims, 0), from);
    if (a->lengths.id)
        from = kiln_add(b, a->lengths, from);
    return kiln_less_equal(b, from, kiln_iota(b, 2, dims, 1));
}

/* The weights of rows `first` to `end`, as the forward operation has them: rows sum to 1, or are 0
 * if they see no key. */
static kiln_tensor weights_of(const struct adjoint *a, kiln_tensor q, size_t first, size_t end)
{
    kiln_batch *b = a->batch;
    const int axis = -1;
    const double scale = a->node->attention.scale;
    kiln_tensor score = a->narrow ? kiln_scale(b, kiln_matmul_transposed(b, q, 0, a->k, 1), scale)
                                  : kiln_matmul_transposed(b, kiln_scale(b, q, scale), 0, a->k, 1);
    kiln_tensor hidden = grad_attention_real(a, -INFINITY), mask = rows_of(a, a->mask, first, end);
    bool masked =
        mask.id && a->walk->batch->graph.nodes.items[a->node->input[KILN__MASK]].type == KILN_U8;
    if (masked)
        score = kiln_where(b, mask, score, hidden);
    else if (mask.id)
        score = kiln_where(b, kiln_equal(b, mask, hidden), hidden, kiln_add(b, score, mask));
    if (a->lengths.id)
        score = kiln_where(b, seen_of_lengths(a, first, end), score, hidden);
    else if (a->node->attention.causal)
        score = kiln_where(
            b, kiln__gradient_visible_keys(b, &a->node->attention, first, end - first, a->size.n),
            score, hidden);
    if (a->node->attention.window)
        score = kiln_where(b, near_keys(a, first, end), score, hidden);
    kiln_tensor peak = kiln_max(b, score, 1, &axis, 1);
    peak = kiln_where(b, kiln_equal(b, peak, hidden), grad_attention_real(a, 0), peak);
    kiln_tensor weight = kiln_exp(b, kiln_sub(b, score, peak));
    kiln_tensor total = kiln_sum(b, weight, 1, &axis, 1);
    total = kiln_where(b, kiln_equal(b, total, grad_attention_real(a, 0)),
                       grad_attention_real(a, 1), total);
    weight = kiln_div(b, weight, total);
    return has_hidden_keys(a)
               ? kiln_where(b, kiln_equal(b, score, hidden), grad_attention_real(a, 0), weight)
               : weight;
}

static void add_to(const struct adjoint *a, kiln_tensor *sum, kiln_tensor part)
{
    *sum = sum->id ? kiln_add(a->batch, *sum, part) : part;
}

/* With p the weights, s the scores and D the shift: v' = p^T g, p' = g v^T, s' = p (p' - D),
 * q' = scale s' k, k' = scale s'^T q (Dao et al. 2022, appendix B.2). */
static void walk_block(const struct adjoint *a, size_t first, size_t end, struct found *found)
{
    kiln_batch *b = a->batch;
    const double scale = a->unit.id ? 1 : a->node->attention.scale; /* 1: resized() has it */
    kiln_tensor q = rows_of(a, a->q, first, end), g = rows_of(a, a->g, first, end);
    kiln_tensor p = rounded(a, weights_of(a, q, first, end));
    if (kiln__gradient_wants(a->walk, a->node->input[KILN__VALUE]))
        add_to(a, &found->v, kiln_matmul_transposed(b, p, 1, g, 0));
    kiln_tensor of_p = kiln_matmul_transposed(b, g, 0, a->v, 1);
    kiln_tensor of_s = kiln_mul(b, p, kiln_sub(b, of_p, rows_of(a, a->shift, first, end)));
    if (has_hidden_keys(a))
        of_s = kiln_where(b, kiln_equal(b, p, grad_attention_real(a, 0)), grad_attention_real(a, 0),
                          of_s);
    found->mask[found->blocks] = of_s;
    kiln_tensor scaled = rounded(a, kiln_scale(b, of_s, scale));
    found->q[found->blocks++] = kiln_matmul(b, scaled, grad_attention_factor(a, a->k));
    if (kiln__gradient_wants(a->walk, a->node->input[KILN__KEY]))
        add_to(a, &found->k, kiln_matmul_transposed(b, scaled, 1, grad_attention_factor(a, q), 0));
}

static size_t rows_per_block(size_t scores_at_once, const struct kiln__attention_size *size)
{
    size_t scores = size->batches * size->n, rows = size->m;
    if (scores)
        rows = scores_at_once / scores;
    size_t least = (size->m + MOST_BLOCKS - 1) / MOST_BLOCKS;
    rows = rows < least ? least : rows;
    return rows < LEAST_ROWS ? LEAST_ROWS : rows;
}

static void give_found(const struct adjoint *a, const struct found *found)
{
    const uint32_t *to = a->node->input;
    if (kiln__gradient_wants(a->walk, to[KILN__QUERY]))
        kiln__gradient_accumulate(
            a->walk, to[KILN__QUERY],
            resized(a, kiln_concat(a->batch, found->blocks, found->q, -2), true));
    kiln__gradient_accumulate(a->walk, to[KILN__KEY], resized(a, found->k, true));
    kiln__gradient_accumulate(a->walk, to[KILN__VALUE], resized(a, found->v, false));
    if (a->mask.id && kiln__gradient_wants(a->walk, to[KILN__MASK]))
        kiln__gradient_accumulate(
            a->walk, to[KILN__MASK],
            resized(a, kiln_concat(a->batch, found->blocks, found->mask, -2), false));
}

/* The largest magnitude of each matrix, [.., 1, 1]. */
static kiln_tensor peak_of(const struct adjoint *a, kiln_tensor x)
{
    kiln_batch *b = a->batch;
    const int column = -1, row = -2;
    kiln_tensor peak = kiln_max(b, kiln_abs(b, x), 1, &column, 1);
    return kiln_maximum(b, kiln_max(b, peak, 1, &row, 1), grad_attention_real(a, 0x1p-100));
}

/* A power of two for each matrix, [.., 1, 1], that has f16 hold the slopes, and what flows to the
 * scores before their scale. That is at most twice the largest slope times the largest value, in
 * each of e columns: below 2^15, and slopes below 2^14. The largest values of f16 leave a largest
 * slope of 2^-3 / e at least, of which f16 loses 2^-22 e. */
static kiln_tensor unit_of(const struct adjoint *a, kiln_tensor g)
{
    kiln_batch *b = a->batch;
    kiln_tensor room = kiln_sub(b, grad_attention_real(a, 14 - log2((double)a->size.e)),
                                kiln_log2(b, peak_of(a, a->v)));
    room =
        kiln_sub(b, kiln_minimum(b, room, grad_attention_real(a, 14)), kiln_log2(b, peak_of(a, g)));
    return kiln_exp2(b, kiln_maximum(b, kiln_floor(b, room), grad_attention_real(a, -120)));
}

/* ---- by backward nodes ---- */

static bool takes_attention_backward(const struct adjoint *a)
{
    return a->narrow && !a->mask.id && !a->lengths.id && !a->node->attention.window &&
           a->batch->takes_attention_backward &&
           a->batch->takes_attention_backward(a->batch, a->narrow, a->node->attention.scale,
                                              a->size.d, a->size.e);
}

/* [.., m, 4]: scale, shift, and what undoes the units. */
static kiln_tensor stats_of(const struct adjoint *a, kiln_tensor scales)
{
    kiln_batch *b = a->batch;
    const size_t dims[2] = {1, KILN__STATS_COLUMNS};
    kiln_tensor column = kiln_iota(b, 2, dims, 1), of_values = grad_attention_real(a, 1);
    if (a->unit.id)
        of_values = kiln_div(b, of_values, a->unit);
    kiln_tensor of_backward = kiln_scale(b, of_values, a->node->attention.scale);
    kiln_tensor stats =
        kiln_where(b, kiln_equal(b, column, kiln_constant(b, KILN_I32, 2)), of_backward, of_values);
    stats = kiln_where(b, kiln_equal(b, column, kiln_constant(b, KILN_I32, 1)), a->shift, stats);
    return kiln_where(b, kiln_equal(b, column, kiln_constant(b, KILN_I32, 0)), scales, stats);
}

static void give_backward(const struct adjoint *a)
{
    kiln_batch *b = a->batch;
    const uint32_t *to = a->node->input;
    const uint8_t type = (uint8_t)a->narrow;
    struct kiln__attention how = a->node->attention;
    const kiln_tensor scores[] = {a->q, a->k};
    how.backward_result = KILN__BACKWARD_LOG_SUM_EXP;
    kiln_tensor stats = stats_of(a, kiln__record_attention_backward(b, &how, type, 2, scores));
    const kiln_tensor by_key[] = {a->k, a->q, a->v, a->g, stats},
                      by_query[] = {a->q, a->k, a->g, a->v, stats};
    const struct {
        unsigned operand;
        enum kiln__attention_backward_result backward_result;
        const kiln_tensor *inputs;
    } parts[] = {{KILN__QUERY, KILN__BACKWARD_QUERIES, by_query},
                 {KILN__KEY, KILN__BACKWARD_KEYS, by_key},
                 {KILN__VALUE, KILN__BACKWARD_VALUES, by_key}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts && !b->error.status; i++) {
        how.backward_result = parts[i].backward_result;
        if (kiln__gradient_wants(a->walk, to[parts[i].operand]))
            kiln__gradient_accumulate(
                a->walk, to[parts[i].operand],
                kiln__record_attention_backward(b, &how, type, 5, parts[i].inputs));
    }
}

static void grad_attention_give(struct kiln__gradient *walk, const struct kiln__node *node,
                                kiln_tensor y, kiln_tensor g)
{
    struct adjoint a = {.walk = walk, .batch = walk->batch, .node = node};
    struct found found = {.blocks = 0};
    const int axis = -1;
    a.size = kiln__attention_size(&walk->batch->graph, node);
    if (kiln__node_count(node) == 0 || a.size.n == 0)
        return; /* nothing depends on anything */
    if (a.batch->limits.rounds_gradients)
        a.narrow = (kiln_type)node->op;
    a.q = kiln__gradient_operand(walk, node, KILN__QUERY);
    a.k = kiln__gradient_operand(walk, node, KILN__KEY);
    a.v = kiln__gradient_operand(walk, node, KILN__VALUE);
    if (kiln__attention_is_masked(node))
        a.mask = kiln__gradient_operand(walk, node, KILN__MASK);
    if (node->attention.lengths)
        a.lengths = keys_of(&a);
    if (a.narrow == KILN_F16) {
        a.unit = unit_of(&a, g);
        g = kiln_mul(a.batch, g, a.unit);
    }
    a.g = rounded(&a, g);
    a.shift = kiln_sum(a.batch, kiln_mul(a.batch, a.g, rounded(&a, y)), 1, &axis, 1);
    if (takes_attention_backward(&a)) {
        give_backward(&a);
        return;
    }
    size_t rows = rows_per_block(a.batch->limits.scores, &a.size);
    for (size_t first = 0; first < a.size.m && !a.batch->error.status; first += rows)
        walk_block(&a, first, first + rows < a.size.m ? first + rows : a.size.m, &found);
    if (!a.batch->error.status)
        give_found(&a, &found);
}

/* Its products are narrow where the operation's are. */
void kiln__adjoint_attention(struct kiln__gradient *walk, const struct kiln__node *node,
                             kiln_tensor y, kiln_tensor g)
{
    const uint8_t usual = walk->batch->product;
    if (kiln__node_narrow(node) || kiln__product_narrow(usual))
        walk->batch->product = (uint8_t)node->attention.product;
    grad_attention_give(walk, node, y, g);
    walk->batch->product = usual;
}
