/* SPDX-License-Identifier: Apache-2.0 */
/* The walk that computes an error bound for each element, by a rule for each node kind
 * (bounds_rules.h). */
#include "reference/bounds.h"

#include <math.h>
#include <stdlib.h>

#include "reference/bounds_rules.h"
#include "reference/reference_attention.h"
#include "reference/reference_custom.h"

double kiln__bound_gamma(double n)
{
    return n * KILN__UNIT / (1 - n * KILN__UNIT);
}

struct kiln__bounded kiln__bounded_operand(const struct kiln__bounding *walk,
                                           const struct kiln__node *node, unsigned i)
{
    uint32_t input = node->input[i];
    return (struct kiln__bounded){&walk->graph->nodes.items[input], walk->numbers[input],
                                  walk->errors[input]};
}

static void bound_attention(const struct kiln__bounding *walk, const struct kiln__node *node,
                            double *result)
{
    if (!kiln__attention_bound(walk->graph, node, walk->reference->values, walk->errors,
                               walk->denormal, result))
        *walk->failed = true;
}

static void bound_attention_backward(const struct kiln__bounding *walk,
                                     const struct kiln__node *node, double *result)
{
    kiln__attention_backward_bound(walk->graph, node, walk->reference->values, walk->errors,
                                   walk->denormal, result);
}

static void bound_nothing(const struct kiln__bounding *walk, const struct kiln__node *node,
                          double *result)
{
    (void)walk;
    for (size_t i = 0; i < kiln__node_count(node); i++)
        result[i] = 0;
}

/* Anything. */
static void bound_unknown(const struct kiln__bounding *walk, const struct kiln__node *node,
                          double *result)
{
    (void)walk;
    for (size_t i = 0; i < kiln__node_count(node); i++)
        result[i] = INFINITY;
}

/* What own kernels make of errors only they know, but of linear ones. */
static bool is_unknown(const struct kiln__bounding *walk, const struct kiln__node *node)
{
    bool exact = node->kind != KILN__CUSTOM || node->custom.call->call.host;
    const bool spreads = node->kind == KILN__CUSTOM && node->custom.call->call.spread;
    for (unsigned k = 0; node->kind == KILN__CUSTOM && exact && !spreads && k < node->n_inputs;
         k++) {
        const struct kiln__node *input = kiln__graph_input(walk->graph, node, k);
        for (size_t i = 0; i < kiln__node_count(input) && exact; i++)
            exact = walk->errors[node->input[k]][i] == 0;
    }
    return !exact;
}

/* Rounding like the device's, if not with it, is off by so many times as much at most. */
#define ROUNDINGS 32

/* What roundings make of each row of the first dimension, its elements together. */
static void add_rounded(const struct kiln__bounding *walk, const struct kiln__node *node,
                        const double *values, double *result)
{
    const struct kiln__custom_call *call = &node->custom.call->call;
    const size_t count = kiln__node_count(node);
    const size_t row = node->shape.rank && count ? count / node->shape.dims[0] : 1;
    double *rounded = malloc((count + 1) * sizeof *rounded);
    if (!rounded ||
        !kiln__custom_evaluate(walk->graph, node, call->rounded, walk->reference->values, rounded))
        *walk->failed = true;
    for (size_t first = 0; first < count && !*walk->failed; first += row) {
        double most = 0;
        for (size_t i = first; i < first + row; i++)
            most = fmax(most, fabs(rounded[i] - values[i]));
        for (size_t i = first; i < first + row; i++)
            result[i] += ROUNDINGS * most;
    }
    free(rounded);
}

/* What a linear kernel makes of the inputs' errors, and of its own beside what it adds up. */
static void bound_linear(const struct kiln__bounding *walk, const struct kiln__node *node,
                         double *result)
{
    const struct kiln__custom_call *call = &node->custom.call->call;
    const double *values = walk->reference->values[node - walk->graph->nodes.items];
    const size_t count = kiln__node_count(node);
    double *sums = malloc((count + 1) * sizeof *sums);
    if (!sums || !kiln__custom_evaluate(walk->graph, node, call->spread, walk->errors, result) ||
        !kiln__custom_evaluate(walk->graph, node, call->spread, walk->reference->values, sums))
        *walk->failed = true;
    for (size_t i = 0; i < count && !*walk->failed; i++)
        result[i] =
            isfinite(values[i]) ? result[i] + call->tolerance * sums[i] + walk->denormal : INFINITY;
    free(sums);
}

static void bound_custom(const struct kiln__bounding *walk, const struct kiln__node *node,
                         double *result)
{
    const double *values = walk->reference->values[node - walk->graph->nodes.items];
    const double tolerance = node->custom.call->call.tolerance;
    if (node->custom.call->call.spread) {
        bound_linear(walk, node, result);
        return;
    }
    if (is_unknown(walk, node)) {
        bound_unknown(walk, node, result);
        return;
    }
    for (size_t i = 0; i < kiln__node_count(node); i++)
        result[i] = !kiln__node_is_floating(node) || !isfinite(values[i])
                        ? 0
                        : tolerance * fabs(values[i]) + kiln__type_ulp(node->type, values[i]) +
                              walk->denormal;
    if (node->custom.call->call.rounded)
        add_rounded(walk, node, values, result);
}

static kiln__bound *const rules[] = {
    [KILN__UPLOAD] = bound_nothing,
    [KILN__IMPORT] = bound_nothing,
    [KILN__CONSTANT] = bound_nothing,
    [KILN__ELEMENTWISE] = kiln__bound_elementwise,
    [KILN__CAST] = kiln__bound_cast,
    [KILN__REDUCE] = kiln__bound_reduce,
    [KILN__VIEW] = kiln__bound_view,
    [KILN__RESHAPE] = kiln__bound_reshape,
    [KILN__MATMUL] = kiln__bound_matmul,
    [KILN__ATTENTION] = bound_attention,
    [KILN__INSERT_SLICE] = kiln__bound_insert_slice,
    [KILN__IOTA] = bound_nothing,
    [KILN__GATHER] = kiln__bound_gather,
    [KILN__SCAN] = kiln__bound_scan,
    [KILN__SCATTER] = kiln__bound_scatter,
    [KILN__SORT] = kiln__bound_sort,
    [KILN__ATTENTION_BACKWARD] = bound_attention_backward,
    [KILN__CUSTOM] = bound_custom,
};

/* What a value is off by, too, if it is rounded to the type. */
static double rounded_error(kiln_type type, double value, double error)
{
    const double size = fabs(value) + error;
    if (!isfinite(value) || isinf(error))
        return error;
    if (size >= kiln__type_overflow(type))
        return INFINITY;
    return error > 0 ? error + kiln__type_ulp(type, size) / 2
                     : fabs(kiln__type_round(type, value) - value);
}

/* Errors as readers of the node find them: of a graph with narrow products (`type`) some read its
 * values rounded. The caller frees; NULL without memory. */
static double *read_errors(const struct kiln__node *node, kiln_type type, const double *values,
                           const double *errors)
{
    const size_t count = kiln__node_count(node);
    const bool rounds = type && node->type == KILN_F32;
    double *read = malloc((count + 1) * sizeof *read);
    for (size_t i = 0; read && i < count; i++)
        read[i] = rounds ? rounded_error(type, values[i], errors[i]) : errors[i];
    return read;
}

static void free_errors(double **errors, size_t count)
{
    for (size_t i = 0; errors && i < count; i++)
        free(errors[i]);
    free(errors);
}

/* A value beyond f32 is infinite on the device and not in the reference: what is computed from it
 * cannot be compared. The value itself can. */
static bool overflows(const struct kiln__node *node, double value, double error)
{
    return kiln__node_is_floating(node) && isfinite(value) && fabs(value) + error >= KILN__OVERFLOW;
}

static bool has_user(const struct kiln__bounding *walk, uint32_t index)
{
    for (uint32_t i = index + 1; i < walk->reference->count; i++) {
        const struct kiln__node *user = &walk->graph->nodes.items[i];
        for (unsigned k = 0; k < user->n_inputs; k++)
            if (walk->reference->values[i] && user->input[k] == index)
                return true;
    }
    return false;
}

static void mark_overflow(const struct kiln__bounding *walk, uint32_t index, double *errors)
{
    const struct kiln__node *node = &walk->graph->nodes.items[index];
    bool used = has_user(walk, index);
    for (size_t i = 0; i < kiln__node_count(node) && used; i++)
        if (overflows(node, walk->reference->values[index][i], errors[i]))
            errors[i] = INFINITY;
}

static void free_numbers(const struct kiln__graph *graph, const struct kiln__reference *reference,
                         double **numbers)
{
    for (size_t i = 0; numbers && i < reference->count; i++)
        if (graph->nodes.items[i].type == KILN_I64)
            free(numbers[i]);
    free(numbers);
}

/* Per node its values, or, where these are no numbers, a copy that are. */
static double **make_numbers(const struct kiln__graph *graph,
                             const struct kiln__reference *reference)
{
    double **numbers = calloc(graph->nodes.count + 1, sizeof *numbers);
    bool failed = !numbers;
    for (size_t i = 0; i < reference->count && !failed; i++) {
        const struct kiln__node *node = &graph->nodes.items[i];
        numbers[i] = reference->values[i];
        if (node->type != KILN_I64 || !numbers[i])
            continue;
        numbers[i] = malloc((kiln__node_count(node) + 1) * sizeof(double));
        failed = !numbers[i];
        for (size_t k = 0; k < kiln__node_count(node) && !failed; k++)
            numbers[i][k] = kiln__value_number(node->type, reference->values[i][k]);
    }
    if (!failed)
        return numbers;
    free_numbers(graph, reference, numbers);
    return NULL;
}

/* What an own kernel gives, and all that is made of it: indices and integers, too, which rules take
 * for exact. */
static bool depends_on_unknown(const struct kiln__bounding *walk, uint32_t index,
                               const bool *unknown)
{
    const struct kiln__node *node = &walk->graph->nodes.items[index];
    bool depends = is_unknown(walk, node);
    for (unsigned k = 0; k < node->n_inputs; k++)
        depends = depends || unknown[node->input[k]];
    return depends;
}

bool kiln__bounds_make(const struct kiln__graph *graph, const struct kiln__reference *reference,
                       double denormal, struct kiln__bounds *bounds)
{
    const kiln_type type = kiln__graph_narrow(graph);
    *bounds =
        (struct kiln__bounds){calloc(reference->count + 1, sizeof(double *)), reference->count};
    double **read = type ? calloc(reference->count + 1, sizeof *read) : bounds->errors;
    double **numbers = make_numbers(graph, reference);
    bool failed = !bounds->errors || !read || !numbers;
    struct kiln__bounding walk = {graph, reference, read, numbers, denormal, &failed};
    bool *unknown = calloc(graph->nodes.count + 1, sizeof *unknown);
    failed = failed || !unknown;
    for (uint32_t i = 0; i < reference->count && !failed; i++) {
        const struct kiln__node *node = &graph->nodes.items[i];
        if (!reference->values[i])
            continue;
        bounds->errors[i] = malloc((kiln__node_count(node) + 1) * sizeof(double));
        failed = !bounds->errors[i];
        if (failed)
            break;
        unknown[i] = depends_on_unknown(&walk, i, unknown);
        (unknown[i] ? bound_unknown : rules[node->kind])(&walk, node, bounds->errors[i]);
        mark_overflow(&walk, i, bounds->errors[i]);
        if (type)
            read[i] = read_errors(node, type, numbers[i], bounds->errors[i]);
        failed = failed || !read[i];
    }
    free(unknown);
    if (type)
        free_errors(read, reference->count);
    free_numbers(graph, reference, numbers);
    if (failed)
        kiln__bounds_free(bounds);
    return !failed;
}

/* As many zeros as the largest operand has elements. */
static double *no_errors(const struct kiln__graph *graph, const struct kiln__node *node)
{
    size_t most = 0;
    for (unsigned k = 0; k < node->n_inputs; k++) {
        size_t count = kiln__node_count(kiln__graph_input(graph, node, k));
        most = count > most ? count : most;
    }
    return calloc(most + 1, sizeof(double));
}

bool kiln__bounds_node(const struct kiln__graph *graph, uint32_t index,
                       const struct kiln__reference *given, double *const *unknown, double denormal,
                       double *result)
{
    const struct kiln__node *node = &graph->nodes.items[index];
    const kiln_type type = kiln__graph_narrow(graph);
    double **errors = calloc(graph->nodes.count + 1, sizeof *errors);
    double *zeros = no_errors(graph, node), **numbers = make_numbers(graph, given);
    bool failed = !errors || !zeros || !numbers;
    struct kiln__bounding walk = {graph, given, errors, numbers, denormal, &failed};
    for (unsigned k = 0; k < node->n_inputs && !failed; k++) {
        const uint32_t input = node->input[k];
        if (!errors[input])
            errors[input] = read_errors(&graph->nodes.items[input], type, numbers[input],
                                        unknown[input] ? unknown[input] : zeros);
        failed = !errors[input];
    }
    if (!failed)
        rules[node->kind](&walk, node, result);
    free_numbers(graph, given, numbers);
    free(zeros);
    free_errors(errors, graph->nodes.count);
    return !failed;
}

void kiln__bounds_free(struct kiln__bounds *bounds)
{
    free_errors(bounds->errors, bounds->count);
    *bounds = (struct kiln__bounds){0};
}

bool kiln__bounds_allow(kiln_type type, double wanted, double error, double found)
{
    if (isinf(error))
        return true;
    if (!kiln__type_row(type)->floating && error == 0)
        return kiln__value_integer(type, wanted) == kiln__value_integer(type, found);
    wanted = kiln__value_number(type, wanted);
    found = kiln__value_number(type, found);
    if (isnan(wanted) || isnan(found))
        return isnan(wanted) && isnan(found);
    if (isinf(wanted))
        return found == wanted;
    if (isinf(found))
        return fabs(wanted) + error >= KILN__OVERFLOW && signbit(found) == signbit(wanted);
    return fabs(found - wanted) <= error;
}
