/* SPDX-License-Identifier: Apache-2.0 */
/* The adjoint of what attention's gradient is made of (graph/attention_backward.h), for second
 * derivatives: by products, with all scores in memory. */
#include <math.h>

#include <kiln/elementwise.h>
#include <kiln/movement.h>
#include <kiln/operations.h>
#include <kiln/product.h>
#include <kiln/reductions.h>

#include "grad/gradient.h"
#include "graph/attention_backward.h"
#include "record/operations.h"

struct adjoint {
    struct kiln__gradient *walk;
    kiln_batch *batch;
    const struct kiln__node *node;
    struct kiln__attention_size size;
    bool by_key, backward;
    kiln_tensor input[KILN__MOST_INPUTS];
    kiln_tensor weights, apart; /* [.., m, n]: exponentials, and slopes less their shifts */
};

static kiln_tensor grad_backward_real(const struct adjoint *a, double value)
{
    return kiln_constant(a->batch, KILN_F32, value);
}

static kiln_tensor transposed(const struct adjoint *a, kiln_tensor x)
{
    size_t order[KILN_MAX_RANK];
    const uint32_t rank = a->node->shape.rank;
    for (uint32_t d = 0; d < rank; d++)
        order[d] = d + 2 < rank ? d : 2 * rank - 3 - d;
    return kiln_transpose(a->batch, x, order);
}

/* Column `column` of the stats, as it goes with weights. */
static kiln_tensor grad_backward_stat(const struct adjoint *a, size_t column)
{
    kiln_tensor found = kiln__record_part(a->batch, a->input[KILN__STATS], -1, column, 1);
    return a->by_key ? transposed(a, found) : found;
}

static kiln_tensor products(const struct adjoint *a, unsigned own)
{
    return kiln_matmul_transposed(a->batch, a->input[own], 0, a->input[own + 1], 1);
}

/* exp(scale a_i.b_j - ln 2 l); 0 where nothing is seen. */
static kiln_tensor weights_of(const struct adjoint *a, kiln_tensor scales)
{
    kiln_batch *b = a->batch;
    const struct kiln__attention *how = &a->node->attention;
    kiln_tensor score = kiln_scale(b, products(a, KILN__ROW_OPERAND), how->scale);
    kiln_tensor weight = kiln_exp(b, kiln_sub(b, score, kiln_scale(b, scales, M_LN2)));
    if (!how->causal)
        return weight;
    const size_t queries = a->by_key ? a->size.n : a->size.m,
                 keys = a->by_key ? a->size.m : a->size.n, order[] = {1, 0};
    kiln_tensor seen = kiln__gradient_visible_keys(b, how, 0, queries, keys);
    return kiln_where(b, a->by_key ? kiln_transpose(b, seen, order) : seen, weight,
                      grad_backward_real(a, 0));
}

static void grad_backward_give(const struct adjoint *a, unsigned input, kiln_tensor part)
{
    kiln__gradient_accumulate(a->walk, a->node->input[input], part);
}

/* When s flows to products of rows of two inputs. */
static void give_products(const struct adjoint *a, unsigned own, kiln_tensor s)
{
    grad_backward_give(a, own, kiln_matmul(a->batch, s, a->input[own + 1]));
    grad_backward_give(a, own + 1, kiln_matmul_transposed(a->batch, s, 1, a->input[own], 0));
}

/* To l and t of each query; what undoes units is constant. */
static void give_stats(const struct adjoint *a, kiln_tensor of_l, kiln_tensor of_t)
{
    kiln_batch *b = a->batch;
    const size_t dims[2] = {1, KILN__STATS_COLUMNS};
    const int axis = a->by_key ? -2 : -1;
    kiln_tensor column = kiln_iota(b, 2, dims, 1), zero = grad_backward_real(a, 0), shift = zero;
    kiln_tensor scale = kiln_scale(b, kiln_sum(b, of_l, 1, &axis, 1), -M_LN2);
    if (a->backward)
        shift = kiln_neg(b, kiln_sum(b, of_t, 1, &axis, 1));
    scale = a->by_key ? transposed(a, scale) : scale;
    shift = a->by_key && a->backward ? transposed(a, shift) : shift;
    kiln_tensor found =
        kiln_where(b, kiln_equal(b, column, kiln_constant(b, KILN_I32, 1)), shift, zero);
    grad_backward_give(
        a, KILN__STATS,
        kiln_where(b, kiln_equal(b, column, kiln_constant(b, KILN_I32, 0)), scale, found));
}

void kiln__adjoint_attention_backward(struct kiln__gradient *walk, const struct kiln__node *node,
                                      kiln_tensor y, kiln_tensor g)
{
    const enum kiln__attention_backward_result result =
        (enum kiln__attention_backward_result)node->attention.backward_result;
    struct adjoint a = {.walk = walk, .batch = walk->batch, .node = node};
    kiln_batch *b = a.batch;
    a.size = kiln__attention_backward_size(&b->graph, node);
    a.by_key = kiln__attention_backward_by_key(node);
    a.backward = result >= KILN__BACKWARD_KEYS;
    for (unsigned i = 0; i < node->n_inputs; i++)
        a.input[i] = kiln__gradient_operand(walk, node, i);
    if (result == KILN__BACKWARD_LOG_SUM_EXP) {
        kiln_tensor part = kiln_mul(b, weights_of(&a, y), g);
        give_products(&a, KILN__ROW_OPERAND, kiln_scale(b, part, node->attention.scale / M_LN2));
        return;
    }
    const unsigned factor =
        result == KILN__BACKWARD_VALUES ? KILN__OTHER_STREAMED_OPERAND : KILN__STREAMED_OPERAND;
    kiln_tensor weight = weights_of(&a, grad_backward_stat(&a, 0)), coefficient = weight, of_t = g;
    if (a.backward)
        coefficient =
            kiln_mul(b, weight,
                     kiln_sub(b, products(&a, KILN__OTHER_ROW_OPERAND), grad_backward_stat(&a, 1)));
    const size_t undoes = result == KILN__BACKWARD_VALUES ? 3 : 2;
    kiln_tensor first =
        a.by_key ? transposed(&a, grad_backward_stat(&a, undoes)) : grad_backward_stat(&a, undoes);
    const int row = -2;
    g = kiln_mul(b, g, kiln_max(b, first, 1, &row, 1)); /* the same for all */
    grad_backward_give(&a, factor, kiln_matmul_transposed(b, coefficient, 1, g, 0));
    kiln_tensor flows = kiln_matmul_transposed(b, g, 0, a.input[factor], 1);
    kiln_tensor of_scores = kiln_mul(b, flows, coefficient);
    if (a.backward) {
        of_t = kiln_mul(b, flows, weight);
        give_products(&a, KILN__OTHER_ROW_OPERAND, of_t);
    }
    give_products(&a, KILN__ROW_OPERAND, kiln_scale(b, of_scores, node->attention.scale));
    give_stats(&a, of_scores, of_t);
}
