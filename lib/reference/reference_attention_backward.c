/* SPDX-License-Identifier: Apache-2.0 */
/* What the gradient of attention is made of, in double precision, and how far a device may be from
 * it. */
#include <math.h>

#include "reference/bounds_rules.h"
#include "reference/reference_attention.h"

enum { OF_SCALE, OF_SHIFT, OF_SLOPES, OF_VALUES }; /* columns of the stats */

static const struct kiln__shape *shape_of(const struct kiln__graph *graph,
                                          const struct kiln__node *node, unsigned i)
{
    return &kiln__graph_input(graph, node, i)->shape;
}

static size_t reference_backward_dimension(const struct kiln__shape *shape, uint32_t from_last)
{
    return shape->dims[shape->rank - from_last];
}

/* ---- one row after another ---- */

/* Row i of a matrix, which walks rows j. */
struct row {
    const struct kiln__node *node;
    struct kiln__attention_size size;
    const double *input[KILN__MOST_INPUTS], *error[KILN__MOST_INPUTS]; /* error: NULL, or of each */
    size_t i;
};

static bool is_visible(const struct row *row, size_t j)
{
    const struct kiln__attention *attention = &row->node->attention;
    bool by_key = kiln__attention_backward_by_key(row->node);
    size_t query = by_key ? j : row->i, key = by_key ? row->i : j;
    if (!attention->causal || attention->diagonal >= (int64_t)key)
        return true;
    return (int64_t)key - (int64_t)query <= attention->diagonal;
}

/* Sum of products of row i of one input and row j of the next, and how large its terms are. */
struct sum {
    double value, magnitude, carried;
};

static struct sum dot(const struct row *row, unsigned own, size_t j, size_t columns)
{
    const double *a = row->input[own] + row->i * columns, *b = row->input[own + 1] + j * columns;
    struct sum sum = {0, 0, 0};
    for (size_t c = 0; c < columns; c++) {
        sum.value += a[c] * b[c];
        sum.magnitude += fabs(a[c] * b[c]);
    }
    if (!row->error[own])
        return sum;
    const double *of_a = row->error[own] + row->i * columns,
                 *of_b = row->error[own + 1] + j * columns;
    for (size_t c = 0; c < columns; c++)
        sum.carried += of_a[c] * (fabs(b[c]) + of_b[c]) + fabs(a[c]) * of_b[c];
    return sum;
}

static size_t stats_at(const struct row *row, size_t j, unsigned column)
{
    return (kiln__attention_backward_by_key(row->node) ? j : row->i) * KILN__STATS_COLUMNS + column;
}

static bool has_backward(const struct row *row)
{
    return row->node->attention.backward_result >= KILN__BACKWARD_KEYS;
}

/* weight_ij or slope_ij. */
static double coefficient(const struct row *row, size_t j)
{
    const double *stats = row->input[KILN__STATS];
    double score = row->node->attention.scale * dot(row, KILN__ROW_OPERAND, j, row->size.d).value;
    double weight = exp(score - M_LN2 * stats[stats_at(row, j, OF_SCALE)]);
    if (!has_backward(row))
        return weight;
    double slope = dot(row, KILN__OTHER_ROW_OPERAND, j, row->size.e).value;
    return weight * (slope - stats[stats_at(row, j, OF_SHIFT)]);
}

static double scale_of(const struct row *row)
{
    double peak = -INFINITY, total = 0;
    for (size_t j = 0; j < row->size.n; j++)
        if (is_visible(row, j))
            peak = fmax(peak, dot(row, KILN__ROW_OPERAND, j, row->size.d).value);
    for (size_t j = 0; j < row->size.n; j++)
        if (is_visible(row, j))
            total += exp(row->node->attention.scale *
                         (dot(row, KILN__ROW_OPERAND, j, row->size.d).value - peak));
    return total > 0 ? log2(total) + row->node->attention.scale * peak / M_LN2 : INFINITY;
}

/* What coefficients multiply: of VALUES the fourth input, else the second. */
static unsigned factor_of(const struct row *row)
{
    return row->node->attention.backward_result == KILN__BACKWARD_VALUES
               ? KILN__OTHER_STREAMED_OPERAND
               : KILN__STREAMED_OPERAND;
}

static void evaluate_row(const struct row *row, double *result)
{
    if (row->node->attention.backward_result == KILN__BACKWARD_LOG_SUM_EXP) {
        result[0] = scale_of(row);
        return;
    }
    const size_t columns = reference_backward_dimension(&row->node->shape, 1);
    const double *x = row->input[factor_of(row)];
    const unsigned factor = has_backward(row) ? OF_SLOPES : OF_VALUES;
    for (size_t c = 0; c < columns; c++)
        result[c] = 0;
    for (size_t j = 0; j < row->size.n; j++) {
        double by = is_visible(row, j) ? coefficient(row, j) : 0;
        for (size_t c = 0; c < columns && by != 0; c++)
            result[c] += by * x[j * columns + c];
    }
    for (size_t c = 0; c < columns && row->size.n; c++)
        result[c] *= row->input[KILN__STATS][factor];
}

void kiln__attention_backward_evaluate_matrix(const struct kiln__node *node,
                                              const struct kiln__attention_size *size,
                                              const double *const inputs[KILN__MOST_INPUTS],
                                              double *result)
{
    struct row row = {.node = node, .size = *size};
    for (unsigned k = 0; k < node->n_inputs; k++)
        row.input[k] = inputs[k];
    for (row.i = 0; row.i < size->m; row.i++)
        evaluate_row(&row, result + row.i * reference_backward_dimension(&node->shape, 1));
}

/* Matrix `batch` of all inputs. */
static void find_inputs(const struct kiln__graph *graph, const struct kiln__node *node,
                        double *const *from, size_t batch, const double *to[KILN__MOST_INPUTS])
{
    for (unsigned k = 0; k < node->n_inputs; k++) {
        const struct kiln__shape *shape = shape_of(graph, node, k);
        to[k] = from[node->input[k]] + batch * reference_backward_dimension(shape, 2) *
                                           reference_backward_dimension(shape, 1);
    }
}

void kiln__attention_backward_evaluate(const struct kiln__graph *graph,
                                       const struct kiln__node *node, double *const *values,
                                       double *result)
{
    const struct kiln__attention_size size = kiln__attention_backward_size(graph, node);
    const double *inputs[KILN__MOST_INPUTS];
    for (size_t b = 0; b < size.batches; b++) {
        find_inputs(graph, node, values, b, inputs);
        kiln__attention_backward_evaluate_matrix(
            node, &size, inputs,
            result + b * size.m * reference_backward_dimension(&node->shape, 1));
    }
}

/* ---- bounds ---- */

/* How far a computed score may be from the exact one, as in attention.c. */
static double score_error(const struct row *row, size_t j)
{
    const double scale = fabs(row->node->attention.scale);
    const struct sum sum = dot(row, KILN__ROW_OPERAND, j, row->size.d);
    if (scale * (sum.magnitude + sum.carried) > KILN__LARGEST / 2)
        return INFINITY;
    return scale * (kiln__bound_gamma((double)row->size.d + 3) * (sum.magnitude + sum.carried) +
                    sum.carried) +
           3 * KILN__UNIT * fabs(scale * sum.value);
}

/* The sum is at most wrong by what a score is; its logarithm by two roundings more. */
static double scale_error(const struct row *row, double scale)
{
    double most = 0;
    for (size_t j = 0; j < row->size.n; j++)
        if (is_visible(row, j))
            most = fmax(most, score_error(row, j));
    return (most + kiln__bound_gamma((double)row->size.n + 8)) / M_LN2 +
           4 * KILN__UNIT * (isfinite(scale) ? fabs(scale) : 0);
}

/* Of a coefficient that is rounded to the node's narrow type. */
static double coefficient_error(const struct row *row, size_t j, double value)
{
    const double *stats = row->input[KILN__STATS], *errors = row->error[KILN__STATS];
    const size_t scale = stats_at(row, j, OF_SCALE), shift = stats_at(row, j, OF_SHIFT);
    const bool f16 = row->node->op == KILN_F16;
    const double unit = f16             ? 0x1p-11
                        : row->node->op ? 0x1p-8
                                        : 0,
                 least = f16 ? 0x1p-25 : 0x1p-126;
    if (stats[scale] == INFINITY)
        return 0;
    const double relative =
        expm1(score_error(row, j) + M_LN2 * errors[scale] + 4 * KILN__UNIT * fabs(stats[scale])) +
        8 * KILN__UNIT;
    double error = fabs(value) * relative;
    if (has_backward(row)) {
        const struct sum sum = dot(row, KILN__OTHER_ROW_OPERAND, j, row->size.e);
        const double apart = sum.value - stats[shift], weight = apart != 0 ? value / apart : 1;
        const double of_slope =
            kiln__bound_gamma((double)row->size.e + 2) * (sum.magnitude + sum.carried) +
            sum.carried + errors[shift] + 2 * KILN__UNIT * (fabs(sum.value) + fabs(stats[shift]));
        error += fabs(weight) * of_slope * (1 + relative);
    }
    if (f16 && fabs(value) + error > 65000)
        return INFINITY;
    return error + unit * (fabs(value) + error) + least;
}

static void bound_row(const struct row *row, double denormal, double *result)
{
    if (row->node->attention.backward_result == KILN__BACKWARD_LOG_SUM_EXP) {
        result[0] = scale_error(row, scale_of(row));
        return;
    }
    const size_t columns = reference_backward_dimension(&row->node->shape, 1);
    const double *x = row->input[factor_of(row)], *of_x = row->error[factor_of(row)];
    const double sums = kiln__bound_gamma((double)row->size.n + 4);
    const unsigned at = has_backward(row) ? OF_SLOPES : OF_VALUES;
    for (size_t c = 0; c < columns; c++)
        result[c] = 0;
    for (size_t j = 0; j < row->size.n; j++) {
        if (!is_visible(row, j))
            continue;
        const double by = coefficient(row, j), error = coefficient_error(row, j, by);
        for (size_t c = 0; c < columns; c++) {
            const double value = fabs(x[j * columns + c]), off = of_x[j * columns + c];
            result[c] += error * (value + off) + fabs(by) * off + sums * (fabs(by) + error) * value;
        }
    }
    for (size_t c = 0; c < columns && row->size.n; c++)
        result[c] = result[c] * fabs(row->input[KILN__STATS][at]) * (1 + 2 * KILN__UNIT) + denormal;
}

void kiln__attention_backward_bound(const struct kiln__graph *graph, const struct kiln__node *node,
                                    double *const *values, double *const *errors, double denormal,
                                    double *result)
{
    struct row row = {.node = node, .size = kiln__attention_backward_size(graph, node)};
    const size_t columns = reference_backward_dimension(&node->shape, 1);
    for (size_t b = 0; b < row.size.batches; b++) {
        find_inputs(graph, node, values, b, row.input);
        find_inputs(graph, node, errors, b, row.error);
        for (row.i = 0; row.i < row.size.m; row.i++)
            bound_row(&row, denormal, result + (b * row.size.m + row.i) * columns);
    }
}
