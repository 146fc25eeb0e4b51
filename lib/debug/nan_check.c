/* SPDX-License-Identifier: Apache-2.0 */
/* Search for the operation that made the first NaN or infinity, or got an index out of range, and
 * the sentence that names it. */
#include "debug/nan_check.h"

#include <math.h>
#include <stdlib.h>

#include "debug/intermediates.h"
#include "util/log.h"

/* What a value has. */
struct found {
    bool nan, infinite;
    size_t first_nan, first_infinite; /* elements */
};

struct search {
    const struct kiln__graph *graph;
    const struct kiln__labels *labels;
    const uint32_t *numbers; /* as in struct kiln__inputs */
    struct found *found;     /* per node */
    const void **values;     /* per node; NULL: neither an input nor asked for */
    bool *leaves;            /* per node: another call uses it, or a request */
};

/* ---- looking ---- */

static void look_at(const struct kiln__node *node, const void *value, struct found *found)
{
    const size_t block = kiln_type_block(node->type), count = kiln__node_count(node);
    double elements[KILN__MOST_BLOCK];
    for (size_t i = 0; i < count && !(found->nan && found->infinite); i++) {
        if (i % block == 0)
            kiln__values_load(node->type, (const char *)value + kiln__type_bytes(node->type, i),
                              block, elements);
        const double element = elements[i % block];
        if (isnan(element) && !found->nan)
            found->first_nan = i;
        if (isinf(element) && !found->infinite)
            found->first_infinite = i;
        found->nan = found->nan || isnan(element);
        found->infinite = found->infinite || isinf(element);
    }
}

static uint32_t call_of(const struct search *search, uint32_t node)
{
    return node < search->labels->nodes.count ? search->labels->nodes.items[node].call : 0;
}

static void find_leaving(const struct search *search, const struct kiln__graph *asked)
{
    for (size_t i = 0; i < asked->requests.count; i++)
        search->leaves[asked->requests.items[i].node] = true;
    for (uint32_t i = 0; i < search->graph->nodes.count; i++)
        for (unsigned k = 0; k < search->graph->nodes.items[i].n_inputs; k++) {
            uint32_t input = search->graph->nodes.items[i].input[k];
            search->leaves[input] =
                search->leaves[input] || call_of(search, input) != call_of(search, i);
        }
}

static void look_at_all(const struct search *search,
                        const struct kiln__intermediates *intermediates)
{
    size_t next = 0;
    for (uint32_t i = 0; i < search->graph->nodes.count; i++) {
        const struct kiln__node *node = &search->graph->nodes.items[i];
        const void *value = kiln__intermediates_value(intermediates, i, &next);
        if (kiln__node_is_input(node))
            value = intermediates->bindings.inputs.items[node->binding].host;
        search->values[i] = value;
        if (node->kind == KILN__CONSTANT && kiln__node_is_floating(node))
            search->found[i] =
                (struct found){.nan = isnan(node->value), .infinite = isinf(node->value)};
        else if (value && kiln__node_is_floating(node))
            look_at(node, value, &search->found[i]);
    }
}

/* ---- judging ---- */

/* A call's own constant that stands for what has no answer is no operand that brings a NaN. */
static struct found find_nan_operand(const struct search *search, uint32_t index)
{
    const struct kiln__node *node = &search->graph->nodes.items[index];
    struct found all = {0};
    for (unsigned k = 0; k < node->n_inputs; k++) {
        const struct kiln__node *input = kiln__graph_input(search->graph, node, k);
        const struct found *found = &search->found[node->input[k]];
        bool own = input->kind == KILN__CONSTANT &&
                   call_of(search, node->input[k]) == call_of(search, index);
        all.nan = all.nan || (found->nan && !own);
        all.infinite = all.infinite || found->infinite;
    }
    return all;
}

/* What is only moved or put together is nobody's making. */
static bool makes(const struct kiln__node *node)
{
    return !kiln__node_is_movement(node) && node->kind != KILN__INSERT_SLICE &&
           node->kind != KILN__CONSTANT && !kiln__node_is_input(node);
}

/* Whether something like it is in what the node's call answers. */
static bool gets_out(const struct search *search, uint32_t index, bool nan)
{
    uint32_t call = call_of(search, index);
    for (uint32_t i = index; i < search->graph->nodes.count && call_of(search, i) == call; i++)
        if (search->leaves[i] && (search->found[i].nan || (!nan && search->found[i].infinite)))
            return true;
    return false;
}

/* Frees `what`. */
static kiln_status nan_check_blame(const struct search *search, uint32_t index, const char *call,
                                   struct kiln__text *what, struct kiln__error *error)
{
    const struct kiln__node *node = &search->graph->nodes.items[index];
    struct kiln__text label = {0};
    kiln__labels_append(search->labels, index, &label);
    kiln_status status =
        kiln__fail(error, KILN_BAD_VALUE, "%s: %%%u %s%s, %s%s: %s", call,
                   search->numbers ? search->numbers[index] : index, kiln__node_name(node),
                   label.data ? label.data : "", kiln_type_name(node->type),
                   kiln__shape_text(&node->shape).text, what->data ? what->data : "");
    kiln__text_free(&label);
    kiln__text_free(what);
    KILN__LOG(KILN__LOG_ERROR, "%s", kiln_last_error());
    return status;
}

static kiln_status judge_value(const struct search *search, uint32_t index, const char *call,
                               struct kiln__error *error)
{
    const struct kiln__node *node = &search->graph->nodes.items[index];
    const struct found *found = &search->found[index];
    struct found before = find_nan_operand(search, index);
    bool nan = found->nan && !before.nan;
    bool infinite = found->infinite && !before.infinite && !before.nan;
    if (!makes(node) || !(nan || infinite) || !gets_out(search, index, nan))
        return KILN_OK;
    size_t element = nan ? found->first_nan : found->first_infinite;
    struct kiln__text what = {0};
    kiln__text_add(&what, "element %s is %s, and %s",
                   kiln__shape_position(&node->shape, element).text, nan ? "NaN" : "infinite",
                   nan && before.infinite ? "no operand has one, only infinities"
                   : nan                  ? "no operand has one"
                                          : "all operands are finite");
    return nan_check_blame(search, index, call, &what, error);
}

/* The first index of a gather or a scatter that is outside. Those of a gradient are the indices of
 * what it is the gradient of. */
static kiln_status judge_indices(const struct search *search, uint32_t index, const char *call,
                                 struct kiln__error *error)
{
    const struct kiln__node *nodes = search->graph->nodes.items, *node = &nodes[index];
    bool scatter = node->kind == KILN__SCATTER;
    uint32_t number = call_of(search, index);
    bool gather = node->kind == KILN__GATHER && node->op == KILN__GATHER_OPEN;
    if ((!gather && !scatter) || (number && search->labels->calls.items[number - 1].unnamed))
        return KILN_OK;
    const uint32_t from = node->input[KILN__SCATTER_INDICES];
    const struct kiln__node *indices = &nodes[from];
    const struct kiln__shape *shape = &nodes[node->input[scatter ? KILN__SCATTER_BASE : 0]].shape;
    size_t extent = shape->dims[node->axis], size = kiln_type_size(indices->type);
    bool constant = indices->kind == KILN__CONSTANT;
    if (!constant && !search->values[from])
        return KILN_OK;
    for (size_t i = 0; i < kiln__node_count(indices); i++) {
        double value = constant ? indices->value
                                : kiln__type_load(indices->type,
                                                  (const char *)search->values[from] + i * size);
        if (value >= 0 && value < (double)extent)
            continue;
        if (kiln__node_is_floating(node) && !scatter && !gets_out(search, index, true))
            return KILN_OK;
        struct kiln__text what = {0};
        kiln__text_add(&what, "index %s is %.0f, and dimension %u of %s has %zu",
                       kiln__shape_position(&indices->shape, i).text, value, (unsigned)node->axis,
                       kiln__shape_text(shape).text, extent);
        return nan_check_blame(search, index, call, &what, error);
    }
    return KILN_OK;
}

static kiln_status judge(const struct search *search, const char *call, struct kiln__error *error)
{
    kiln_status status = KILN_OK;
    for (uint32_t i = 0; i < search->graph->nodes.count && !status; i++) {
        if (search->values[i])
            status = judge_indices(search, i, call, error);
        if (!status)
            status = judge_value(search, i, call, error);
    }
    return status;
}

/* ---- the whole ---- */

static kiln_status search_values(const kiln_batch *batch, const uint32_t *numbers,
                                 const struct kiln__intermediates *intermediates, const char *call,
                                 struct kiln__error *error)
{
    size_t count = intermediates->graph.nodes.count + 1;
    struct search search = {
        .graph = &intermediates->graph, .labels = batch->graph.labels, .numbers = numbers};
    search.found = calloc(count, sizeof *search.found);
    search.values = calloc(count, sizeof *search.values);
    search.leaves = calloc(count, sizeof *search.leaves);
    kiln_status status = KILN_OK;
    if (!search.found || !search.values || !search.leaves) {
        status =
            kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "%s: no memory to look at values", call);
    } else {
        find_leaving(&search, &batch->graph);
        look_at_all(&search, intermediates);
        status = judge(&search, call, error);
    }
    free(search.found);
    free((void *)search.values);
    free(search.leaves);
    return status;
}

bool kiln__nan_check_wanted(const kiln_batch *batch)
{
    return !batch->unvalidated && kiln__sample_next(&batch->context->check_values);
}

kiln_status kiln__nan_check(const kiln_batch *batch, const uint32_t *numbers, const char *call,
                            struct kiln__error *error)
{
    struct kiln__inputs inputs;
    struct kiln__intermediates intermediates = {0};
    if (!kiln__intermediates_fits(batch, "values are not looked at"))
        return KILN_OK;
    kiln_status status = kiln__intermediates_inputs_copy(batch, &inputs, error);
    if (status)
        return status;
    if (!kiln__intermediates_make(&inputs, batch, &intermediates))
        status =
            kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "%s: no memory to look at values", call);
    if (!status)
        status = kiln__intermediates_run(batch->context, &intermediates.graph,
                                         &intermediates.bindings, false, call, &inputs.lost, error);
    if (!status)
        status = search_values(batch, numbers, &intermediates, call, error);
    kiln__intermediates_free(&intermediates, inputs.lost);
    kiln__intermediates_inputs_free(&inputs);
    return status;
}
