/* SPDX-License-Identifier: Apache-2.0 */
/* Interpreter of the graph in double precision, a plain loop for each node kind. */
#include "reference/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/reference_attention.h"
#include "reference/reference_custom.h"

struct evaluator {
    const struct kiln__graph *graph;
    const void *const *inputs;
    double **values;
    bool *failed; /* without memory */
};

static const struct kiln__node *input_of(const struct evaluator *e, const struct kiln__node *node,
                                         unsigned i)
{
    return kiln__graph_input(e->graph, node, i);
}

typedef void evaluate(const struct evaluator *e, const struct kiln__node *node, double *result);

static void evaluate_input(const struct evaluator *e, const struct kiln__node *node, double *result)
{
    kiln__values_load(node->type, e->inputs[node->binding], kiln__node_count(node), result);
}

static void evaluate_constant(const struct evaluator *e, const struct kiln__node *node,
                              double *result)
{
    (void)e;
    for (size_t i = 0; i < kiln__node_count(node); i++)
        result[i] = node->value;
}

static void evaluate_elementwise(const struct evaluator *e, const struct kiln__node *node,
                                 double *result)
{
    const struct kiln__node *last = input_of(e, node, node->n_inputs - 1u);
    size_t index[KILN_MAX_RANK];
    for (size_t i = 0; i < kiln__node_count(node); i++) {
        double operand[3] = {0};
        kiln__shape_indices(&node->shape, i, index);
        for (unsigned k = 0; k < node->n_inputs; k++)
            operand[k] = e->values[node->input[k]][kiln__shape_number(&input_of(e, node, k)->shape,
                                                                      index, node->shape.rank)];
        result[i] = kiln__elementwise_value((enum kiln__elementwise)node->op, last->type, operand);
    }
}

static void evaluate_cast(const struct evaluator *e, const struct kiln__node *node, double *result)
{
    const double *values = e->values[node->input[0]];
    const kiln_type from = input_of(e, node, 0)->type;
    for (size_t i = 0; i < kiln__node_count(node); i++)
        result[i] = kiln__value_cast(from, node->type, values[i], node->op == KILN__CAST_SATURATED);
}

size_t kiln__reduced_number(const struct kiln__node *node, const struct kiln__shape *shape,
                            const size_t *index, size_t *place)
{
    size_t number = 0;
    *place = 0;
    for (uint32_t d = 0; d < shape->rank; d++) {
        size_t *to = node->axes >> d & 1 ? place : &number;
        *to = *to * shape->dims[d] + index[d];
    }
    return number;
}

static void evaluate_reduce(const struct evaluator *e, const struct kiln__node *node,
                            double *result)
{
    const struct kiln__reduce_row *row = &kiln__reduce_rows[node->op];
    const struct kiln__node *input = input_of(e, node, 0);
    const double *values = e->values[node->input[0]];
    size_t results = kiln__node_count(node), index[KILN_MAX_RANK], place;
    double *best = calloc(results + 1, sizeof *best);
    *e->failed = *e->failed || !best;
    const enum kiln__reduction op = (enum kiln__reduction)node->op;
    const kiln_type sums = kiln__reduce_accumulator(row, input->type);
    for (size_t i = 0; best && i < results; i++) {
        best[i] = kiln__identity_value((enum kiln__identity)row->identity, sums);
        result[i] = row->indexed ? 0 : best[i];
    }
    for (size_t i = 0; best && i < kiln__node_count(input); i++) {
        kiln__shape_indices(&input->shape, i, index);
        size_t kept = kiln__reduced_number(node, &input->shape, index, &place);
        if (!row->indexed) {
            result[kept] = kiln__reduce_combine(op, input->type, result[kept], values[i]);
        } else if (kiln__reduce_combine(op, input->type, best[kept], values[i]) != 0) {
            best[kept] = values[i];
            result[kept] = (double)place;
        }
    }
    size_t reduced = results ? kiln__node_count(input) / results : 0;
    double n = (double)reduced;
    for (size_t i = 0; i < results && !row->indexed; i++)
        result[i] = kiln__reduce_finish(op, input->type, result[i], n);
    free(best);
}

static void evaluate_scan(const struct evaluator *e, const struct kiln__node *node, double *result)
{
    const double *values = e->values[node->input[0]];
    const kiln_type type = input_of(e, node, 0)->type;
    size_t stride = kiln__scan_stride(node), count = kiln__node_count(node);
    size_t n = node->shape.dims[kiln__scan_axis(node)];
    for (size_t k = 0; k < count; k++) {
        bool backward = node->op == KILN__SCAN_BACKWARD;
        size_t i = backward ? count - 1 - k : k, place = i / stride % n;
        bool first = place == (backward ? n - 1 : 0);
        double before = first ? 0 : result[backward ? i + stride : i - stride];
        result[i] = kiln__reduce_combine(KILN__REDUCE_sum, type, before, values[i]);
    }
}

static void evaluate_view(const struct evaluator *e, const struct kiln__node *node, double *result)
{
    const struct kiln__shape *shape = &input_of(e, node, 0)->shape;
    size_t index[KILN_MAX_RANK];
    for (size_t i = 0; i < kiln__node_count(node); i++) {
        kiln__shape_indices(&node->shape, i, index);
        result[i] = e->values[node->input[0]]
                             [kiln__view_number(&node->view, node->shape.rank, index, shape)];
    }
}

/* Elements that nothing was put into are NaN: whoever reads them is found out. */
static void evaluate_place(const struct evaluator *e, const struct kiln__node *node, double *result)
{
    const struct kiln__shape *part = &input_of(e, node, 0)->shape;
    const double *base = node->n_inputs > 1 ? e->values[node->input[1]] : NULL;
    size_t index[KILN_MAX_RANK];
    for (size_t i = 0; i < kiln__node_count(node); i++)
        result[i] = base ? base[i] : NAN;
    for (size_t i = 0; i < kiln__shape_count(part); i++) {
        kiln__shape_indices(part, i, index);
        result[kiln__view_number(&node->view, part->rank, index, &node->shape)] =
            e->values[node->input[0]][i];
    }
}

static void evaluate_iota(const struct evaluator *e, const struct kiln__node *node, double *result)
{
    (void)e;
    for (size_t i = 0; i < kiln__node_count(node); i++)
        result[i] = (double)i;
}

size_t kiln__gathered_number(const struct kiln__node *node, const struct kiln__shape *data,
                             const struct kiln__shape *indices, const double *values, size_t number)
{
    size_t inner = 1, extent = data->dims[node->axis];
    for (uint32_t d = (uint32_t)node->axis + 1; d < data->rank; d++)
        inner *= data->dims[d];
    size_t count = kiln__shape_count(indices);
    double index = values[number / inner % count];
    if (!(index >= 0 && index < (double)extent))
        return SIZE_MAX;
    return (number / inner / count * extent + (size_t)index) * inner + number % inner;
}

/* Beyond the data there is NaN, of integers, or where that is padding, 0. */
static void evaluate_gather(const struct evaluator *e, const struct kiln__node *node,
                            double *result)
{
    const struct kiln__node *data = input_of(e, node, 0), *indices = input_of(e, node, 1);
    bool floating = kiln__node_is_floating(node) && node->op == KILN__GATHER_OPEN;
    for (size_t i = 0; i < kiln__node_count(node); i++) {
        size_t number = kiln__gathered_number(node, &data->shape, &indices->shape,
                                              e->values[node->input[1]], i);
        result[i] = number != SIZE_MAX ? e->values[node->input[0]][number] : floating ? NAN : 0;
    }
}

static double reference_scattered(const struct kiln__node *node, double held, double value)
{
    static const enum kiln__elementwise rows[] = {[KILN_SCATTER_ADD] = KILN__OP_add,
                                                  [KILN_SCATTER_MUL] = KILN__OP_mul,
                                                  [KILN_SCATTER_MIN] = KILN__OP_minimum,
                                                  [KILN_SCATTER_MAX] = KILN__OP_maximum};
    return node->op == KILN_SCATTER_SET || node->op == KILN__SCATTER_DISTINCT
               ? value
               : kiln__elementwise_value(rows[node->op], node->type, (double[]){held, value, 0});
}

static void evaluate_scatter(const struct evaluator *e, const struct kiln__node *node,
                             double *result)
{
    const struct kiln__node *values = input_of(e, node, KILN__SCATTER_VALUES);
    const struct kiln__node *indices = input_of(e, node, KILN__SCATTER_INDICES);
    const double *base = e->values[node->input[KILN__SCATTER_BASE]];
    for (size_t i = 0; i < kiln__node_count(node); i++)
        result[i] = base[i];
    for (size_t i = 0; i < kiln__node_count(values); i++) {
        size_t number = kiln__gathered_number(node, &node->shape, &indices->shape,
                                              e->values[node->input[KILN__SCATTER_INDICES]], i);
        if (number != SIZE_MAX)
            result[number] = reference_scattered(node, result[number],
                                                 e->values[node->input[KILN__SCATTER_VALUES]][i]);
    }
}

struct place {
    double number; /* of a floating value; of an integer 0 */
    int64_t whole;
    size_t position;
};

/* NaN is above all; equal ones stay in their order. */
static int by_value(const void *left, const void *right)
{
    const struct place *a = left, *b = right;
    int order = isnan(a->number) || isnan(b->number)
                    ? isnan(a->number) - isnan(b->number)
                    : (a->number > b->number) - (a->number < b->number);
    order = order ? order : (a->whole > b->whole) - (a->whole < b->whole);
    return order ? order : a->position < b->position ? -1 : 1;
}

static int by_value_descending(const void *left, const void *right)
{
    const struct place *a = left, *b = right;
    const struct place x = {a->number, a->whole, b->position};
    const struct place y = {b->number, b->whole, a->position};
    return -by_value(&x, &y);
}

static struct place place_of(kiln_type type, double value, size_t position)
{
    return kiln__type_row(type)->floating
               ? (struct place){value, 0, position}
               : (struct place){0, kiln__value_integer(type, value), position};
}

static void evaluate_sort(const struct evaluator *e, const struct kiln__node *node, double *result)
{
    const struct kiln__node *input = input_of(e, node, 0);
    const size_t n = input->shape.dims[input->shape.rank - 1];
    const size_t kept = node->shape.dims[node->shape.rank - 1];
    const size_t lines = kept ? kiln__node_count(node) / kept : 0;
    struct place *line = calloc(n + 1, sizeof *line);
    *e->failed = *e->failed || !line;
    for (size_t i = 0; line && i < lines; i++) {
        for (size_t k = 0; k < n; k++)
            line[k] = place_of(input->type, e->values[node->input[0]][i * n + k], k);
        qsort(line, n, sizeof *line,
              node->op == KILN__SORT_DESCENDING ? by_value_descending : by_value);
        for (size_t k = 0; k < kept; k++)
            result[i * kept + k] = (double)line[k].position;
    }
    free(line);
}

static void evaluate_reshape(const struct evaluator *e, const struct kiln__node *node,
                             double *result)
{
    memcpy(result, e->values[node->input[0]], kiln__node_count(node) * sizeof *result);
}

static void evaluate_matmul(const struct evaluator *e, const struct kiln__node *node,
                            double *result)
{
    const struct kiln__shape *shape = &node->shape;
    const struct kiln__shape *left = &input_of(e, node, 0)->shape;
    size_t m = shape->dims[shape->rank - 2], n = shape->dims[shape->rank - 1];
    size_t k = left->dims[left->rank - 1];
    size_t product = m * n, batches = product > 0 ? kiln__node_count(node) / product : 0;
    for (size_t z = 0; z < batches; z++)
        for (size_t i = 0; i < m; i++)
            for (size_t j = 0; j < n; j++) {
                const double *a = e->values[node->input[0]] + (z * m + i) * k;
                const double *b = e->values[node->input[1]] + z * k * n + j;
                double sum = 0;
                for (size_t q = 0; q < k; q++)
                    sum += a[q] * b[q * n];
                result[(z * m + i) * n + j] = sum;
            }
}

static void evaluate_attention(const struct evaluator *e, const struct kiln__node *node,
                               double *result)
{
    kiln__attention_evaluate(e->graph, node, e->values, result);
}

static void evaluate_attention_backward(const struct evaluator *e, const struct kiln__node *node,
                                        double *result)
{
    kiln__attention_backward_evaluate(e->graph, node, e->values, result);
}

static void evaluate_custom(const struct evaluator *e, const struct kiln__node *node,
                            double *result)
{
    *e->failed = *e->failed || !kiln__custom_evaluate(e->graph, node, node->custom.call->call.host,
                                                      e->values, result);
}

static evaluate *const evaluators[] = {
    [KILN__UPLOAD] = evaluate_input,
    [KILN__IMPORT] = evaluate_input,
    [KILN__CONSTANT] = evaluate_constant,
    [KILN__ELEMENTWISE] = evaluate_elementwise,
    [KILN__CAST] = evaluate_cast,
    [KILN__REDUCE] = evaluate_reduce,
    [KILN__VIEW] = evaluate_view,
    [KILN__RESHAPE] = evaluate_reshape,
    [KILN__MATMUL] = evaluate_matmul,
    [KILN__ATTENTION] = evaluate_attention,
    [KILN__INSERT_SLICE] = evaluate_place,
    [KILN__IOTA] = evaluate_iota,
    [KILN__GATHER] = evaluate_gather,
    [KILN__SCAN] = evaluate_scan,
    [KILN__SCATTER] = evaluate_scatter,
    [KILN__SORT] = evaluate_sort,
    [KILN__ATTENTION_BACKWARD] = evaluate_attention_backward,
    [KILN__CUSTOM] = evaluate_custom,
};

bool kiln__reference_run(const struct kiln__graph *graph, const void *const *inputs,
                         struct kiln__reference *reference)
{
    size_t count = graph->nodes.count;
    bool *needed = kiln__graph_needed(graph);
    *reference = (struct kiln__reference){calloc(count + 1, sizeof(double *)), count};
    bool done = needed && reference->values;
    bool failed = false;
    struct evaluator evaluator = {graph, inputs, reference->values, &failed};
    for (size_t i = 0; done && i < count; i++) {
        const struct kiln__node *node = &graph->nodes.items[i];
        if (!needed[i])
            continue;
        reference->values[i] = malloc((kiln__node_count(node) + 1) * sizeof(double));
        done = reference->values[i];
        if (done)
            evaluators[node->kind](&evaluator, node, reference->values[i]);
        done = done && !failed;
    }
    free(needed);
    if (!done)
        kiln__reference_free(reference);
    return done;
}

bool kiln__reference_node(const struct kiln__graph *graph, uint32_t index,
                          const void *const *inputs, const struct kiln__reference *given,
                          double *result)
{
    bool failed = false;
    struct evaluator evaluator = {graph, inputs, given->values, &failed};
    const struct kiln__node *node = &graph->nodes.items[index];
    evaluators[node->kind](&evaluator, node, result);
    return !failed;
}

void kiln__reference_free(struct kiln__reference *reference)
{
    for (size_t i = 0; reference->values && i < reference->count; i++)
        free(reference->values[i]);
    free(reference->values);
    *reference = (struct kiln__reference){0};
}
