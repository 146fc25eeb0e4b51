/* SPDX-License-Identifier: Apache-2.0 */
/* Attention in double precision, a row after another, and how far a device may be from it. */
#include "reference/reference_attention.h"

#include <math.h>
#include <stdlib.h>

#include "reference/bounds_rules.h"

/* What the mask adds to a score: -INFINITY takes the key away, whatever the score is. */
static double mask_value(kiln_type type, double value)
{
    return type != KILN_U8 ? value : value != 0 ? 0 : -INFINITY;
}

/* ---- one row after another ---- */

/* What a row is computed from; errors may be NULL. */
struct row {
    const struct kiln__node *node;
    struct kiln__attention_size size;
    kiln_type mask_type;
    const double *q, *k, *v, *mask; /* the row's own; mask NULL: none */
    const double *q_error, *k_error, *v_error, *mask_error;
    size_t reach; /* keys that it sees by its position, */
    size_t first; /* but for those before this one */
};

static const double *matrix(double *const *from, const struct kiln__node *node, unsigned input,
                            size_t elements)
{
    return from ? from[node->input[input]] + elements : NULL;
}

/* How many keys of a matrix there are. */
static size_t keys_of(const struct kiln__node *node, size_t n, double *const *values, size_t batch)
{
    const unsigned lengths = kiln__attention_lengths(node);
    const double given = lengths ? values[node->input[lengths]][batch] : (double)n;
    return given <= 0 ? 0 : given < (double)n ? (size_t)given : n;
}

/* How many of `keys` row i sees by its position: all, or with a causal node those up to it. */
static size_t reach_of(const struct kiln__node *node, const struct kiln__attention_size *size,
                       size_t keys, size_t i)
{
    int64_t reach = kiln__attention_diagonal(node, size) + (int64_t)i + 1;
    reach += node->attention.lengths ? (int64_t)keys : 0;
    return reach < 0 ? 0 : (uint64_t)reach < keys ? (size_t)reach : keys;
}

/* The first of `keys` that row i's window has. */
static size_t first_of(const struct kiln__node *node, const struct kiln__attention_size *size,
                       size_t keys, size_t i)
{
    int64_t first = kiln__attention_earliest(node, size);
    first += node->attention.causal ? (int64_t)i : 0;
    first += node->attention.lengths ? (int64_t)keys : 0;
    return first < 0 || !node->attention.window ? 0 : (size_t)first;
}

/* Of what is beyond the length nothing counts, so that the row has no more keys. */
static struct row row_at(const struct kiln__graph *graph, const struct kiln__node *node,
                         double *const *values, double *const *errors, size_t batch, size_t i)
{
    const struct kiln__attention_size size = kiln__attention_size(graph, node), *s = &size;
    struct row row = {.node = node, .size = size};
    row.size.n = keys_of(node, s->n, values, batch);
    row.reach = reach_of(node, s, row.size.n, i);
    row.first = first_of(node, s, row.size.n, i);
    size_t line = batch * s->m + i, first = batch * s->n;
    row.q = matrix(values, node, KILN__QUERY, line * s->d);
    row.k = matrix(values, node, KILN__KEY, first * s->d);
    row.v = matrix(values, node, KILN__VALUE, first * s->e);
    row.q_error = matrix(errors, node, KILN__QUERY, line * s->d);
    row.k_error = matrix(errors, node, KILN__KEY, first * s->d);
    row.v_error = matrix(errors, node, KILN__VALUE, first * s->e);
    if (!kiln__attention_is_masked(node))
        return row;
    row.mask_type = kiln__graph_input(graph, node, KILN__MASK)->type;
    row.mask = matrix(values, node, KILN__MASK, line * s->n);
    row.mask_error = matrix(errors, node, KILN__MASK, line * s->n);
    return row;
}

static double bias_of(const struct row *row, size_t j)
{
    return row->mask ? mask_value(row->mask_type, row->mask[j]) : 0;
}

static bool is_visible(const struct row *row, size_t j)
{
    return j >= row->first && j < row->reach && bias_of(row, j) != -INFINITY;
}

/* The score of key j: -INFINITY if the row does not see it. */
static double score_of(const struct row *row, size_t j)
{
    double sum = 0, bias = bias_of(row, j);
    if (!is_visible(row, j))
        return -INFINITY;
    for (size_t c = 0; c < row->size.d; c++)
        sum += row->q[c] * row->k[j * row->size.d + c];
    return sum * row->node->attention.scale + bias;
}

/* The scores' largest, from which exponents are counted; finite unless one is infinite or NaN. */
static double peak_of(const struct row *row)
{
    double peak = -INFINITY;
    for (size_t j = 0; j < row->size.n; j++)
        peak = fmax(peak, score_of(row, j));
    return peak == -INFINITY ? 0 : peak;
}

static void evaluate_row(const struct row *row, double *result)
{
    double peak = peak_of(row), total = 0;
    for (size_t c = 0; c < row->size.e; c++)
        result[c] = 0;
    for (size_t j = 0; j < row->size.n; j++) {
        double score = score_of(row, j);
        if (score == -INFINITY)
            continue;
        double weight = exp(score - peak);
        total += weight;
        for (size_t c = 0; c < row->size.e; c++)
            result[c] += weight * row->v[j * row->size.e + c];
    }
    for (size_t c = 0; c < row->size.e && total != 0; c++)
        result[c] /= total;
}

void kiln__attention_evaluate(const struct kiln__graph *graph, const struct kiln__node *node,
                              double *const *values, double *result)
{
    struct kiln__attention_size size = kiln__attention_size(graph, node);
    for (size_t b = 0; b < size.batches; b++)
        for (size_t i = 0; i < size.m; i++) {
            struct row row = row_at(graph, node, values, NULL, b, i);
            evaluate_row(&row, result + (b * size.m + i) * size.e);
        }
}

/* ---- bounds ---- */

/* How far a computed score may be from the exact one: the dot product's error, a rounding each for
 * the scale and for the mask, and two of the exponent, which is counted from the peak. */
static double score_error(const struct row *row, size_t j, double score, double peak)
{
    double magnitude = 0, carried = 0;
    const double *k = row->k + j * row->size.d, *k_error = row->k_error + j * row->size.d;
    for (size_t c = 0; c < row->size.d; c++) {
        magnitude += fabs(row->q[c] * k[c]);
        carried += row->q_error[c] * (fabs(k[c]) + k_error[c]) + fabs(row->q[c]) * k_error[c];
    }
    double scale = fabs(row->node->attention.scale);
    double bias = bias_of(row, j);
    double error =
        scale * (kiln__bound_gamma((double)row->size.d + 3) * (magnitude + carried) + carried);
    error += row->mask ? row->mask_error[j] : 0;
    if (scale * magnitude + fabs(bias) > KILN__LARGEST / 2)
        return INFINITY;
    return error + 3 * KILN__UNIT * (fabs(bias) + fabs(score) + fabs(peak));
}

/* Whether an infinity is in a score, and what it is multiplied with may be 0: a computed score may
 * be NaN. */
static bool may_be_nan(const struct row *row, size_t j)
{
    const double *k = row->k + j * row->size.d, *k_error = row->k_error + j * row->size.d;
    for (size_t c = 0; c < row->size.d; c++)
        if ((isinf(k[c]) && row->q_error[c] >= fabs(row->q[c]) && row->q_error[c] > 0) ||
            (isinf(row->q[c]) && k_error[c] >= fabs(k[c]) && k_error[c] > 0))
            return true;
    return false;
}

/* Weights w_j and their relative errors r_j, and of a row all together. A weight below 2^-126 may
 * be 0. */
struct weights {
    double *weight, *relative;
    double total, shift; /* shift: the sum's relative error */
    bool open;           /* one may be NaN */
};

static void reference_attention_weigh(const struct row *row, struct weights *weights)
{
    double peak = peak_of(row), spread = 0;
    weights->total = 0;
    weights->open = false;
    for (size_t j = 0; j < row->size.n; j++) {
        double score = score_of(row, j);
        weights->open |= is_visible(row, j) && may_be_nan(row, j);
        weights->weight[j] = score == -INFINITY ? 0 : exp(score - peak);
        weights->relative[j] = 0;
        if (score == -INFINITY)
            continue;
        weights->relative[j] = expm1(score_error(row, j, score, peak)) + 8 * KILN__UNIT;
        weights->total += weights->weight[j];
        spread += weights->weight[j] * weights->relative[j];
    }
    weights->shift = weights->total > 0 ? spread / weights->total : 0;
}

/* What becomes of a weight of 1 at most that is rounded to the type that the node may round it to:
 * a share of it, and a part of what is too small there. */
static const struct rounding {
    kiln_type type;
    double relative, absolute;
} roundings[] = {{KILN_F16, 0x1p-11, 0x1p-25}, {KILN_BF16, 0x1p-8, 0x1p-126}};

static struct rounding rounding_of(const struct kiln__node *node)
{
    struct rounding none = {.relative = 0};
    for (size_t i = 0; i < sizeof roundings / sizeof *roundings; i++)
        if (roundings[i].type == node->op || roundings[i].type == kiln__node_narrow(node))
            return roundings[i];
    return none;
}

/* A result is a mean of v: numerator and denominator are sums of n terms, which are scaled again
 * for each block of keys. */
static double mean_error(const struct row *row, const struct weights *weights, size_t c,
                         double denormal)
{
    double sums = 2 * kiln__bound_gamma(2 * (double)row->size.n + 4) + 4 * KILN__UNIT, error = 0,
           lost = 0;
    const struct rounding rounding = rounding_of(row->node);
    if (weights->open)
        return INFINITY;
    if (isnan(weights->total) || weights->total == 0)
        return 0; /* NaN, or no key */
    for (size_t j = 0; j < row->size.n; j++) {
        double v = fabs(row->v[j * row->size.e + c]);
        if (!isfinite(v) || isinf(row->v_error[j * row->size.e + c]))
            return INFINITY;
        double relative = weights->relative[j] + weights->shift + sums + rounding.relative;
        error += weights->weight[j] *
                 (v * relative + row->v_error[j * row->size.e + c] * (1 + relative));
        lost += v;
    }
    if (lost > KILN__LARGEST / 2)
        return INFINITY; /* the numerator's sum may overflow */
    error = error / weights->total + lost * (2 * KILN__SMALLEST + rounding.absolute) +
            (double)row->size.n * KILN__DENORMAL + denormal;
    return weights->shift < 0.5 ? error * (1 + 2 * weights->shift) : INFINITY;
}

/* Whether how many keys there are is known. */
static bool knows_keys(const struct kiln__node *node, double *const *errors, size_t batch)
{
    const unsigned lengths = kiln__attention_lengths(node);
    return !lengths || errors[node->input[lengths]][batch] == 0;
}

bool kiln__attention_bound(const struct kiln__graph *graph, const struct kiln__node *node,
                           double *const *values, double *const *errors, double denormal,
                           double *result)
{
    struct kiln__attention_size size = kiln__attention_size(graph, node);
    struct weights weights = {malloc((size.n + 1) * sizeof(double)),
                              malloc((size.n + 1) * sizeof(double)), 0, 0, false};
    bool done = weights.weight && weights.relative;
    for (size_t b = 0; b < size.batches && done; b++)
        for (size_t i = 0; i < size.m; i++) {
            struct row row = row_at(graph, node, values, errors, b, i);
            reference_attention_weigh(&row, &weights);
            for (size_t c = 0; c < size.e; c++)
                result[(b * size.m + i) * size.e + c] =
                    knows_keys(node, errors, b) ? mean_error(&row, &weights, c, denormal)
                                                : INFINITY;
        }
    free(weights.weight);
    free(weights.relative);
    return done;
}

/* ---- what its kernels need ---- */
