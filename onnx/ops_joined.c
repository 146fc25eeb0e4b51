/* SPDX-License-Identifier: Apache-2.0 */
/* What patterns.c finds: layers that exporters write as several nodes. */
#include <math.h>
#include <string.h>

#include "onnx/onnx.pb-c.h"
#include "onnx/patterns.h"
#include "onnx/values.h"

/* Rows of more elements do not fit into every device's local memory. */
enum { WIDEST = 512 };

/* A score of this in the place of another, or less, gives its key no weight beside any score that
 * is above it by 104 (exp(-104) is 0 in f32); where it is lowest, it is also what any score becomes
 * to which it is added. */
static const double faraway = -1e4, lowest = -1e30;

/* ---- several nodes as one: without a result where that would not be the same ---- */

/* The shape of q k; false where it is none. */
static bool shape_of_scores(const struct kiln__onnx_call *call, size_t *rank, size_t *dims)
{
    const struct kiln__onnx_value *q = call->in[0], *k = call->in[1], *v = call->in[2];
    size_t both = q->rank > k->rank ? q->rank : k->rank;
    if (q->rank < 2 || k->rank < 2 || v->rank < 2 || v->rank > both)
        return false;
    for (size_t d = 0; d + 2 < both; d++) {
        size_t a = d + q->rank >= both ? q->dims[d + q->rank - both] : 1;
        size_t b = d + k->rank >= both ? k->dims[d + k->rank - both] : 1;
        if (a != b && a != 1 && b != 1)
            return false;
        dims[d] = a == 1 ? b : a;
    }
    dims[both - 2] = q->dims[q->rank - 2];
    dims[both - 1] = k->dims[k->rank - 1];
    *rank = both;
    return q->dims[q->rank - 1] == k->dims[k->rank - 2] && q->dims[q->rank - 1] <= WIDEST &&
           v->dims[v->rank - 1] <= WIDEST;
}

/* Whether an operand of the scores leaves them their shape. */
static bool spreads(const struct kiln__onnx_value *mask, size_t rank, const size_t *dims)
{
    bool fits = mask->rank <= rank;
    for (size_t d = 0; fits && d < mask->rank; d++)
        fits = mask->dims[d] == 1 || mask->dims[d] == dims[d + rank - mask->rank];
    return fits;
}

/* Whether the softmax is over the keys. */
static bool is_over_keys(struct kiln__onnx_call *call, size_t rank)
{
    const struct kiln__onnx_attention *steps = call->node->steps;
    struct kiln__onnx_call inner = *call;
    inner.node = &call->node->parts[steps->softmax];
    int64_t axis = kiln__onnx_int(&inner, "axis", inner.node->version < 13 ? 1 : -1);
    return axis == -1 || axis == (int64_t)rank - 1;
}

/* Scores as kiln_attention() has them: a factor, then a mask that is added. */
struct scores {
    double scale;
    kiln_tensor added; /* {0}: nothing */
    bool may_hide;     /* it may be -infinity */
    /* A row all of whose scores are that: */
    enum { IS_NAN, IS_ZERO, SEES_ALL_ALIKE } blind;
};

static kiln_tensor number_of(struct kiln__onnx_call *call, double number)
{
    return kiln_constant(call->batch, KILN_F32, number);
}

/* Scores are replaced by a number where the mask says so. */
static bool replace(struct kiln__onnx_call *call, enum kiln__onnx_step step, size_t operand,
                    double number, struct scores *scores)
{
    bool hides = number > lowest;
    if (!(number <= faraway) || (hides && (scores->added.id || !call->in[operand]->rank)))
        return false;
    kiln_tensor mask = kiln__onnx_tensor(call, operand);
    kiln_tensor other = scores->added.id ? scores->added : number_of(call, 0);
    kiln_tensor away = number_of(call, hides ? -INFINITY : number);
    scores->added = step == KILN__ONNX_WHERE ? kiln_where(call->batch, mask, other, away)
                                             : kiln_where(call->batch, mask, away, other);
    scores->may_hide |= hides || number == -INFINITY;
    scores->blind = hides ? SEES_ALL_ALIKE : scores->blind;
    return true;
}

/* One step; false where kiln_attention() has nothing for it. */
static bool take_step(struct kiln__onnx_call *call, enum kiln__onnx_step step, size_t operand,
                      size_t rank, const size_t *dims, struct scores *scores)
{
    double number;
    struct kiln__onnx_value *value = call->in[operand];
    if (scores->blind == SEES_ALL_ALIKE && step != KILN__ONNX_OR_ZERO)
        return false;
    switch (step) {
    case KILN__ONNX_TIMES:
    case KILN__ONNX_DIVIDED:
        if (scores->added.id || value->rank > rank || !kiln__onnx_scalar(call, operand, &number))
            return false;
        scores->scale *= step == KILN__ONNX_TIMES ? number : 1 / number;
        return isfinite(scores->scale) && scores->scale != 0;
    case KILN__ONNX_PLUS:
        if (!spreads(value, rank, dims) || !value->rank)
            return false;
        scores->may_hide = true;
        scores->added = scores->added.id
                            ? kiln_add(call->batch, scores->added, kiln__onnx_tensor(call, operand))
                            : kiln__onnx_tensor(call, operand);
        return true;
    case KILN__ONNX_OR_ZERO:
        if (scores->blind == IS_NAN)
            scores->blind = IS_ZERO;
        return kiln__onnx_scalar(call, operand, &number) && number == 0;
    case KILN__ONNX_WHERE:
    case KILN__ONNX_WHERE_NOT: break;
    }
    return spreads(value, rank, dims) && kiln__onnx_scalar(call, operand + 1, &number) &&
           call->in[operand + 1]->rank <= rank && replace(call, step, operand, number, scores);
}

/* Rows that see no key are 0 to kiln_attention(), and to the nodes only if these say so: a softmax
 * of nothing but -infinity is NaN; one of a single number in each place is even, as that of a
 * query of zeros without a mask. */
static kiln_tensor mend_blind_rows(struct kiln__onnx_call *call, struct scores *scores,
                                   kiln_tensor q)
{
    if (!scores->may_hide || scores->blind == IS_ZERO)
        return q;
    kiln_batch *batch = call->batch;
    bool alike = scores->blind == SEES_ALL_ALIKE;
    kiln_tensor most = kiln_max(batch, scores->added, 1, (int[]){-1}, 1);
    kiln_tensor blind = kiln_equal(batch, most, number_of(call, -INFINITY));
    scores->added = kiln_where(batch, blind, number_of(call, alike ? 0 : NAN), scores->added);
    return alike ? kiln_where(batch, blind, number_of(call, 0), q) : q;
}

static void attention_of_nodes(struct kiln__onnx_call *call)
{
    const struct kiln__onnx_attention *steps = call->node->steps;
    struct scores scores = {.scale = 1};
    size_t rank, dims[KILN_MAX_RANK], operand = 3;
    for (size_t i = 0; i < call->n_inputs; i++)
        if (!call->in[i])
            return;
    if (!kiln__onnx_type_floats(call->in[0]->type) || !shape_of_scores(call, &rank, dims) ||
        !is_over_keys(call, rank) || dims[rank - 1] == 0)
        return;
    for (size_t i = 0; i < steps->n; i++) {
        if (!take_step(call, steps->steps[i], operand, rank, dims, &scores))
            return;
        operand += steps->steps[i] >= KILN__ONNX_WHERE ? 2 : 1;
    }
    kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
    options.scale = scores.scale;
    kiln_tensor queries = mend_blind_rows(call, &scores, kiln__onnx_tensor(call, 0));
    kiln_tensor keys = kiln_transpose(call->batch, kiln__onnx_tensor(call, 1), NULL);
    kiln__onnx_give(call, 0,
                    kiln_attention(call->batch, queries, keys, kiln__onnx_tensor(call, 2),
                                   scores.added, &options),
                    call->in[0]->type);
}

static bool is_near(const struct kiln__onnx_call *call, size_t operand, double wanted)
{
    double number;
    return kiln__onnx_scalar(call, operand, &number) && fabs(number - wanted) < 1e-6 &&
           call->in[operand]->rank <= call->in[0]->rank;
}

static void gelu_of_nodes(struct kiln__onnx_call *call)
{
    for (size_t i = 0; i < call->n_inputs; i++)
        if (!call->in[i])
            return;
    if (kiln__onnx_type_floats(call->in[0]->type) && is_near(call, 1, 1.4142135623730951) &&
        is_near(call, 2, 1) && is_near(call, 3, 0.5))
        kiln__onnx_give(call, 0, kiln_gelu(call->batch, kiln__onnx_tensor(call, 0)),
                        call->in[0]->type);
}

const struct kiln__onnx_row kiln__onnx_attention_row = {.name = "attention",
                                                        .first = 1,
                                                        .last = KILN__ONNX_NEWEST,
                                                        .record = attention_of_nodes,
                                                        .domain = ""};
const struct kiln__onnx_row kiln__onnx_gelu_row = {
    .name = "gelu", .first = 1, .last = KILN__ONNX_NEWEST, .record = gelu_of_nodes, .domain = ""};
