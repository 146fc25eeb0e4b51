/* SPDX-License-Identifier: Apache-2.0 */
/* What every stage relies on, checked between stages in debug builds and by tests. */
#include <stdio.h>

#include "graph/attention.h"
#include "graph/attention_backward.h"

typedef const char *check(const struct kiln__graph *graph, const struct kiln__node *node);

static const char *check_elementwise(const struct kiln__graph *graph, const struct kiln__node *node)
{
    const struct kiln__elementwise_row *row = &kiln__elementwise_rows[node->op];
    struct kiln__shape shape = kiln__graph_input(graph, node, 0)->shape;
    if (node->n_inputs != row->arity)
        return "arity";
    enum kiln__types types = row->types;
    kiln_type type = kiln__graph_input(graph, node, node->n_inputs - 1u)->type;
    if (!kiln__types_accept(types, type) || node->type != kiln__types_result(types, type))
        return "type";
    for (unsigned i = 0; i < node->n_inputs; i++) {
        const struct kiln__node *input = kiln__graph_input(graph, node, i);
        if (input->type != kiln__types_operand(types, i, type))
            return "operand type";
        if (!kiln__shape_broadcast(&shape, &input->shape, &shape))
            return "operand shapes";
    }
    return kiln__shape_equal(&shape, &node->shape) ? NULL : "shape";
}

static const char *check_same_shape(const struct kiln__graph *graph, const struct kiln__node *node)
{
    return kiln__shape_equal(&kiln__graph_input(graph, node, 0)->shape, &node->shape) ? NULL
                                                                                      : "shape";
}

static const char *check_reduce(const struct kiln__graph *graph, const struct kiln__node *node)
{
    const struct kiln__node *input = kiln__graph_input(graph, node, 0);
    uint32_t kept = 0;
    for (uint32_t d = 0; d < input->shape.rank; d++)
        if (!(node->axes >> d & 1) && input->shape.dims[d] != node->shape.dims[kept++])
            return "kept dimension";
    kiln_type type = kiln__reduce_result(&kiln__reduce_rows[node->op], input->type);
    return kept != node->shape.rank ? "rank" : node->type != type ? "type" : NULL;
}

/* Whether a view of `shape` stays within `input`. */
static const char *check_range(const struct kiln__view *view, const struct kiln__shape *shape,
                               const struct kiln__shape *input)
{
    int64_t low[KILN_MAX_RANK], high[KILN_MAX_RANK];
    if (kiln__shape_count(shape) == 0)
        return NULL;
    for (uint32_t k = 0; k < shape->rank; k++)
        if (view->source[k] >= (int)input->rank)
            return "source dimension";
    kiln__view_range(view, shape, input->rank, low, high);
    for (uint32_t d = 0; d < input->rank; d++)
        if (low[d] < 0 || high[d] >= (int64_t)input->dims[d])
            return "range";
    return NULL;
}

static const char *check_scan(const struct kiln__graph *graph, const struct kiln__node *node)
{
    const struct kiln__node *input = kiln__graph_input(graph, node, 0);
    const struct kiln__reduce_row *row = &kiln__reduce_rows[KILN__REDUCE_sum];
    bool one = node->axes && !(node->axes & (node->axes - 1)) && !(node->axes >> node->shape.rank);
    return !one                                                  ? "axis"
           : node->type != kiln__reduce_result(row, input->type) ? "type"
                                                                 : check_same_shape(graph, node);
}

static const char *check_view(const struct kiln__graph *graph, const struct kiln__node *node)
{
    const struct kiln__node *input = kiln__graph_input(graph, node, 0);
    const char *wrong = check_range(&node->view, &node->shape, &input->shape);
    return wrong ? wrong : node->type == input->type ? NULL : "type";
}

/* Every element of the part has a place of its own. */
static const char *check_place(const struct kiln__graph *graph, const struct kiln__node *node)
{
    const struct kiln__node *part = kiln__graph_input(graph, node, 0);
    uint32_t seen = 0;
    for (unsigned i = 0; i < node->n_inputs; i++)
        if (kiln__graph_input(graph, node, i)->type != node->type)
            return "type";
    if (node->n_inputs > 1 &&
        !kiln__shape_equal(&kiln__graph_input(graph, node, 1)->shape, &node->shape))
        return "shape";
    for (uint32_t k = 0; k < part->shape.rank; k++) {
        if (part->shape.dims[k] <= 1)
            continue;
        int source = node->view.source[k];
        if (source < 0 || seen >> source & 1 || node->view.step[k] == 0)
            return "overlap";
        seen |= 1u << source;
    }
    return check_range(&node->view, &part->shape, &node->shape);
}

static const char *check_reshape(const struct kiln__graph *graph, const struct kiln__node *node)
{
    const struct kiln__node *input = kiln__graph_input(graph, node, 0);
    return kiln__node_count(input) != kiln__node_count(node) ? "count"
           : node->type != input->type                       ? "type"
                                                             : NULL;
}

static const char *check_matmul(const struct kiln__graph *graph, const struct kiln__node *node)
{
    const struct kiln__shape *a = &kiln__graph_input(graph, node, 0)->shape;
    const struct kiln__shape *b = &kiln__graph_input(graph, node, 1)->shape, *c = &node->shape;
    uint32_t rank = c->rank;
    if (!kiln__product_name_text(node->op))
        return "precision";
    if (rank < 2 || a->rank != rank || b->rank != rank)
        return "rank";
    for (uint32_t d = 0; d + 2 < rank; d++)
        if (a->dims[d] != c->dims[d] || b->dims[d] != c->dims[d])
            return "leading dimension";
    return a->dims[rank - 2] != c->dims[rank - 2] || b->dims[rank - 1] != c->dims[rank - 1] ||
                   a->dims[rank - 1] != b->dims[rank - 2]
               ? "inner dimension"
               : NULL;
}

static const char *check_iota(const struct kiln__graph *graph, const struct kiln__node *node)
{
    (void)graph;
    return node->type != KILN_I32 ? "type" : kiln__node_count(node) > INT32_MAX ? "count" : NULL;
}

static const char *check_gather(const struct kiln__graph *graph, const struct kiln__node *node)
{
    const struct kiln__node *data = kiln__graph_input(graph, node, 0),
                            *indices = kiln__graph_input(graph, node, 1);
    struct kiln__shape shape;
    if (node->op > KILN__GATHER_PADDED)
        return "op";
    const kiln_type type = kiln__node_has_blocks(data) ? KILN_F32 : data->type;
    if (node->type != type || (indices->type != KILN_I32 && indices->type != KILN_U8))
        return "type";
    if (node->axis >= data->shape.rank ||
        !kiln__shape_gathered(&data->shape, &indices->shape, (uint32_t)node->axis, &shape) ||
        !kiln__shape_equal(&shape, &node->shape))
        return "shape";
    return NULL;
}

static const char *check_scatter(const struct kiln__graph *graph, const struct kiln__node *node)
{
    const struct kiln__node *values = kiln__graph_input(graph, node, KILN__SCATTER_VALUES);
    const struct kiln__node *indices = kiln__graph_input(graph, node, KILN__SCATTER_INDICES);
    const struct kiln__node *base = kiln__graph_input(graph, node, KILN__SCATTER_BASE);
    struct kiln__shape shape;
    if (node->type != base->type || node->type != values->type ||
        (indices->type != KILN_I32 && indices->type != KILN_U8))
        return "type";
    if (node->op > KILN__SCATTER_DISTINCT)
        return "mode";
    if (!kiln__shape_equal(&base->shape, &node->shape) || node->axis >= base->shape.rank ||
        !kiln__shape_gathered(&base->shape, &indices->shape, (uint32_t)node->axis, &shape) ||
        !kiln__shape_equal(&shape, &values->shape))
        return "shape";
    return NULL;
}

static const char *check_sort(const struct kiln__graph *graph, const struct kiln__node *node)
{
    const struct kiln__node *values = kiln__graph_input(graph, node, 0);
    struct kiln__shape shape = values->shape;
    if (node->type != KILN_I32 || kiln__node_computed(values) != values->type)
        return "type";
    if (shape.rank == 0 || shape.rank != node->shape.rank ||
        node->shape.dims[shape.rank - 1] > shape.dims[shape.rank - 1])
        return "shape";
    shape.dims[shape.rank - 1] = node->shape.dims[shape.rank - 1];
    return kiln__shape_equal(&shape, &node->shape) ? NULL : "shape";
}

static const char *check_custom(const struct kiln__graph *graph, const struct kiln__node *node)
{
    const struct kiln__custom *custom = node->custom.call;
    size_t held = 0;
    while (held < graph->calls.count && graph->calls.items[held] != custom)
        held++;
    if (held == graph->calls.count)
        return "call, which the graph does not hold";
    if (node->n_inputs != custom->call.n_inputs || node->custom.output >= custom->call.n_outputs)
        return "number of inputs or outputs";
    for (unsigned i = 0; i < node->n_inputs; i++)
        if (kiln__graph_input(graph, node, i)->type != custom->call.inputs[i])
            return "operand type";
    const struct kiln__custom_output *output = &custom->call.outputs[node->custom.output];
    return node->type != output->type                         ? "type"
           : !kiln__shape_equal(&node->shape, &output->shape) ? "shape"
                                                              : NULL;
}

static const struct {
    unsigned inputs_at_least;
    check *check;
} checks[] = {
    [KILN__UPLOAD] = {0, NULL},
    [KILN__IMPORT] = {0, NULL},
    [KILN__CONSTANT] = {0, NULL},
    [KILN__ELEMENTWISE] = {1, check_elementwise},
    [KILN__CAST] = {1, check_same_shape},
    [KILN__REDUCE] = {1, check_reduce},
    [KILN__VIEW] = {1, check_view},
    [KILN__RESHAPE] = {1, check_reshape},
    [KILN__MATMUL] = {2, check_matmul},
    [KILN__ATTENTION] = {3, kiln__attention_check},
    [KILN__INSERT_SLICE] = {1, check_place},
    [KILN__IOTA] = {0, check_iota},
    [KILN__GATHER] = {2, check_gather},
    [KILN__SCAN] = {1, check_scan},
    [KILN__SCATTER] = {3, check_scatter},
    [KILN__SORT] = {1, check_sort},
    [KILN__ATTENTION_BACKWARD] = {2, kiln__attention_backward_check},
    [KILN__CUSTOM] = {0, check_custom},
};

_Static_assert(sizeof checks / sizeof *checks == KILN__CUSTOM + 1, "a row per kind");

static bool is_computed(const struct kiln__node *node)
{
    return kiln__node_computed(node) == node->type;
}

static bool accepts_type(const struct kiln__node *node, unsigned k, const struct kiln__node *input)
{
    return kiln__node_has_blocks(input) ? kiln__node_takes_blocks(node, k)
                                        : kiln__node_takes_stored(node, k) || is_computed(input);
}

static const char *check_node(const struct kiln__graph *graph, uint32_t index)
{
    const struct kiln__node *node = &graph->nodes.items[index];
    if (node->kind >= sizeof checks / sizeof *checks)
        return "kind";
    if (!kiln__type_row(node->type))
        return "type";
    if (node->n_inputs < checks[node->kind].inputs_at_least || node->n_inputs > KILN__MOST_INPUTS)
        return "number of inputs";
    for (unsigned i = 0; i < node->n_inputs; i++)
        if (node->input[i] >= index)
            return "order of inputs";
    for (unsigned i = 0; i < node->n_inputs; i++)
        if (!accepts_type(node, i, kiln__graph_input(graph, node, i)))
            return "type of an input, which nothing computes with";
    if (kiln__node_has_blocks(node) && !kiln__node_is_input(node))
        return "type, which only inputs have";
    if (kiln__node_has_blocks(node) && !kiln__shape_has_blocks(&node->shape, node->type))
        return "row of a part of a block";
    return checks[node->kind].check ? checks[node->kind].check(graph, node) : NULL;
}

const char *kiln__graph_verify(const struct kiln__graph *graph, char text[160])
{
    for (uint32_t i = 0; i < graph->nodes.count; i++) {
        const char *wrong = check_node(graph, i);
        if (wrong) {
            snprintf(text, 160, "node %%%u (%s): wrong %s", i,
                     kiln__node_name(&graph->nodes.items[i]), wrong);
            return text;
        }
    }
    for (size_t i = 0; i < graph->requests.count; i++)
        if (graph->requests.items[i].node >= graph->nodes.count) {
            snprintf(text, 160, "result #%zu names no node", i);
            return text;
        }
    for (size_t i = 0; i < graph->became.count; i++)
        if (graph->became.items[i] != KILN__DROPPED &&
            graph->became.items[i] >= graph->nodes.count) {
            snprintf(text, 160, "recorded node %%%zu became none", i);
            return text;
        }
    return NULL;
}
