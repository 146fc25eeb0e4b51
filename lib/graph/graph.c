/* SPDX-License-Identifier: Apache-2.0 */
/* Storage of nodes and requests: appending, copying, marking what requests need, release. */
#include "graph/graph.h"

#include <stdlib.h>
#include <string.h>

void kiln__graph_drop_calls(struct kiln__graph *graph)
{
    for (size_t i = 0; i < graph->calls.count; i++)
        kiln__custom_release(graph->calls.items[i]);
    graph->calls.count = 0;
}

void kiln__graph_free(struct kiln__graph *graph)
{
    kiln__graph_drop_calls(graph);
    kiln__vector_free(&graph->calls);
    kiln__vector_free(&graph->nodes);
    kiln__vector_free(&graph->requests);
    kiln__vector_free(&graph->became);
    kiln__vector_free(&graph->sunk_copies);
    kiln__vector_free(&graph->rematerialised);
}

void kiln__graph_pack(struct kiln__graph *graph, struct kiln__pack *pack)
{
    kiln__pack_vector(pack, &graph->nodes);
    kiln__pack_vector(pack, &graph->requests);
    kiln__pack_vector(pack, &graph->became);
    kiln__pack_vector(pack, &graph->sunk_copies);
    kiln__pack_vector(pack, &graph->calls);
    kiln__pack_vector(pack, &graph->rematerialised);
}

void kiln__node_copy(struct kiln__node *to, const struct kiln__node *from)
{
    memset(to, 0, sizeof *to);
    to->kind = from->kind;
    to->op = from->op;
    to->type = from->type;
    to->n_inputs = from->n_inputs;
    memcpy(to->input, from->input, from->n_inputs * sizeof *from->input);
    to->shape.rank = from->shape.rank;
    memcpy(to->shape.dims, from->shape.dims, from->shape.rank * sizeof *from->shape.dims);
    switch (from->kind) {
    case KILN__UPLOAD:
    case KILN__IMPORT: to->binding = from->binding; break;
    case KILN__CONSTANT: to->value = from->value; break;
    case KILN__REDUCE:
    case KILN__SCAN: to->axes = from->axes; break;
    case KILN__VIEW:
    case KILN__INSERT_SLICE: to->view = from->view; break;
    case KILN__SCATTER:
    case KILN__GATHER: to->axis = from->axis; break;
    case KILN__IOTA:
    case KILN__SORT: break;
    case KILN__ATTENTION:
    case KILN__ATTENTION_BACKWARD: to->attention = from->attention; break;
    case KILN__CUSTOM: to->custom = from->custom; break;
    case KILN__ELEMENTWISE:
    case KILN__CAST:
    case KILN__RESHAPE:
    case KILN__MATMUL: break;
    }
}

/* Nodes of one call mostly follow each other. */
static bool hold_call(struct kiln__graph *graph, const struct kiln__custom *call)
{
    for (size_t i = graph->calls.count; i-- > 0;)
        if (graph->calls.items[i] == call)
            return true;
    if (!kiln__vector_add(&graph->calls, call))
        return false;
    kiln__custom_retain(call);
    return true;
}

bool kiln__graph_add(struct kiln__graph *graph, const struct kiln__node *node, uint32_t *index)
{
    if (node->kind == KILN__CUSTOM && !hold_call(graph, node->custom.call))
        return false;
    struct kiln__node *place = kiln__vector_push(&graph->nodes);
    if (!place)
        return false;
    kiln__node_copy(place, node);
    *index = (uint32_t)(graph->nodes.count - 1);
    return true;
}

const char *kiln__product_name_text(size_t name)
{
    static const char *const words[] = {"exact", "tf32", "f32x3", "bf16", "f16", "whole"};
    return name < sizeof words / sizeof *words ? words[name] : NULL;
}

kiln_type kiln__product_narrow(size_t name)
{
    return name == KILN__PRODUCT_BF16  ? KILN_BF16
           : name == KILN__PRODUCT_F16 ? KILN_F16
                                       : (kiln_type)0;
}

kiln_type kiln__node_narrow(const struct kiln__node *node)
{
    return node->kind == KILN__MATMUL      ? kiln__product_narrow(node->op)
           : node->kind == KILN__ATTENTION ? kiln__product_narrow(node->attention.product)
                                           : (kiln_type)0;
}

kiln_type kiln__graph_narrow(const struct kiln__graph *graph)
{
    kiln_type type = (kiln_type)0;
    for (size_t i = 0; i < graph->nodes.count && !type; i++)
        type = kiln__node_narrow(&graph->nodes.items[i]);
    return type;
}

bool *kiln__graph_needed(const struct kiln__graph *graph)
{
    bool *needed = calloc(graph->nodes.count + 1, sizeof *needed);
    for (size_t i = 0; needed && i < graph->requests.count; i++)
        needed[graph->requests.items[i].node] = true;
    for (size_t i = graph->nodes.count; needed && i-- > 0;)
        for (unsigned k = 0; needed[i] && k < graph->nodes.items[i].n_inputs; k++)
            needed[graph->nodes.items[i].input[k]] = true;
    return needed;
}

bool kiln__graph_pass_requests(const struct kiln__graph *from, const uint32_t *map,
                               struct kiln__graph *to)
{
    for (size_t i = 0; i < from->requests.count; i++) {
        struct kiln__request request = from->requests.items[i];
        request.node = map[request.node];
        if (!kiln__vector_add(&to->requests, request))
            return false;
    }
    return true;
}

bool kiln__graph_copy(const struct kiln__graph *from, struct kiln__graph *to)
{
    *to = (struct kiln__graph){.batch_invariant = from->batch_invariant};
    if (!kiln__vector_reserve(&to->nodes, from->nodes.count) ||
        !kiln__vector_reserve(&to->requests, from->requests.count))
        return false;
    for (size_t i = 0; i < from->nodes.count; i++) {
        uint32_t index;
        if (!kiln__graph_add(to, &from->nodes.items[i], &index))
            return false;
    }
    for (size_t i = 0; i < from->requests.count; i++)
        if (!kiln__vector_add(&to->requests, from->requests.items[i]))
            return false;
    return true;
}

size_t kiln__node_count(const struct kiln__node *node)
{
    return kiln__shape_count(&node->shape);
}

size_t kiln__node_bytes(const struct kiln__node *node)
{
    return kiln__type_bytes(node->type, kiln__shape_count(&node->shape));
}

uint32_t kiln__scan_axis(const struct kiln__node *node)
{
    return (uint32_t)__builtin_ctzll(node->axes);
}

size_t kiln__scan_stride(const struct kiln__node *node)
{
    size_t stride = 1;
    for (uint32_t d = kiln__scan_axis(node) + 1; d < node->shape.rank; d++)
        stride *= node->shape.dims[d];
    return stride;
}

bool kiln__node_is_input(const struct kiln__node *node)
{
    return node->kind == KILN__UPLOAD || node->kind == KILN__IMPORT;
}

bool kiln__node_has_blocks(const struct kiln__node *node)
{
    return kiln__type_is_block(node->type);
}

bool kiln__node_is_floating(const struct kiln__node *node)
{
    return kiln__type_row(node->type)->floating;
}

kiln_type kiln__node_computed(const struct kiln__node *node)
{
    return kiln__type_row(node->type)->computed;
}

bool kiln__node_takes_stored(const struct kiln__node *node, unsigned k)
{
    enum kiln__kind kind = node->kind;
    return kind == KILN__CAST || kind == KILN__CUSTOM || kind == KILN__IMPORT ||
           kiln__node_puts_part(node) || kiln__node_is_movement(node) ||
           (kind == KILN__GATHER && k == 0);
}

bool kiln__node_takes_blocks(const struct kiln__node *node, unsigned k)
{
    return node->kind == KILN__CAST || node->kind == KILN__IMPORT ||
           (node->kind == KILN__GATHER && k == 0);
}

bool kiln__node_is_pointwise(const struct kiln__node *node)
{
    return node->kind == KILN__ELEMENTWISE || node->kind == KILN__CAST;
}

bool kiln__node_goes_over_rows(const struct kiln__node *node)
{
    return node->kind == KILN__REDUCE || node->kind == KILN__SCAN;
}

bool kiln__node_is_computed(const struct kiln__node *node)
{
    return kiln__node_is_pointwise(node) || node->kind == KILN__GATHER;
}

bool kiln__node_puts_part(const struct kiln__node *node)
{
    return node->kind == KILN__INSERT_SLICE ||
           (node->kind == KILN__SCATTER && node->op == KILN__SCATTER_DISTINCT);
}

bool kiln__node_is_movement(const struct kiln__node *node)
{
    return node->kind == KILN__VIEW || node->kind == KILN__RESHAPE;
}

uint32_t kiln__node_base(const struct kiln__node *node)
{
    if (node->kind == KILN__SCATTER)
        return node->input[KILN__SCATTER_BASE];
    return node->kind == KILN__INSERT_SLICE && node->n_inputs > 1 ? node->input[1] : UINT32_MAX;
}

size_t kiln__view_number(const struct kiln__view *view, uint32_t rank, const size_t *index,
                         const struct kiln__shape *input)
{
    int64_t at[KILN_MAX_RANK];
    size_t number = 0;
    for (uint32_t d = 0; d < input->rank; d++)
        at[d] = view->start[d];
    for (uint32_t k = 0; k < rank; k++)
        if (view->source[k] >= 0)
            at[view->source[k]] += view->step[k] * (int64_t)index[k];
    for (uint32_t d = 0; d < input->rank; d++)
        number = number * input->dims[d] + (size_t)at[d];
    return number;
}

void kiln__view_range(const struct kiln__view *view, const struct kiln__shape *shape,
                      uint32_t input_rank, int64_t *low, int64_t *high)
{
    for (uint32_t d = 0; d < input_rank; d++)
        low[d] = high[d] = view->start[d];
    for (uint32_t k = 0; k < shape->rank; k++) {
        int64_t reach = view->step[k] * ((int64_t)shape->dims[k] - 1);
        if (view->source[k] >= 0)
            *(reach < 0 ? &low[view->source[k]] : &high[view->source[k]]) += reach;
    }
}

struct kiln__view kiln__view_straight(uint32_t rank)
{
    struct kiln__view view = {0};
    for (uint32_t d = 0; d < rank; d++) {
        view.source[d] = (int8_t)d;
        view.step[d] = 1;
    }
    return view;
}

bool kiln__view_is_identity(const struct kiln__view *view, const struct kiln__shape *shape,
                            const struct kiln__shape *input)
{
    if (!kiln__shape_equal(shape, input))
        return false;
    for (uint32_t d = 0; d < shape->rank; d++) {
        bool same = view->source[d] == (int)d && view->step[d] == 1;
        if (view->start[d] != 0 || (!same && shape->dims[d] != 1))
            return false;
    }
    return true;
}

static const char *const scatter_names[] = {
    [KILN_SCATTER_SET] = "scatter_set", [KILN_SCATTER_ADD] = "scatter_add",
    [KILN_SCATTER_MUL] = "scatter_mul", [KILN_SCATTER_MIN] = "scatter_min",
    [KILN_SCATTER_MAX] = "scatter_max", [KILN__SCATTER_DISTINCT] = "update_slice",
};

static const char *const attention_backward_names[] = {
    "attention_log_sum_exp", "attention_by_values", "attention_by_keys", "attention_by_queries"};

const char *kiln__node_name(const struct kiln__node *node)
{
    static const char *const views[] = {"transpose", "slice", "broadcast", "view", "windows"};
    switch (node->kind) {
    case KILN__UPLOAD: return "upload";
    case KILN__IMPORT: return node->n_inputs ? "loop" : "import";
    case KILN__CONSTANT: return "constant";
    case KILN__ELEMENTWISE: return kiln__elementwise_rows[node->op].name;
    case KILN__CAST: return node->op == KILN__DETACH ? "detach" : "cast";
    case KILN__REDUCE: return kiln__reduce_rows[node->op].name;
    case KILN__VIEW: return views[node->op];
    case KILN__RESHAPE: return "reshape";
    case KILN__MATMUL: return "matmul";
    case KILN__ATTENTION: return "attention";
    case KILN__INSERT_SLICE: return "insert_slice";
    case KILN__IOTA: return "iota";
    case KILN__GATHER: return "gather";
    case KILN__SCAN: return "cumsum";
    case KILN__SCATTER: return scatter_names[node->op];
    case KILN__SORT: return "argsort";
    case KILN__ATTENTION_BACKWARD: return attention_backward_names[node->attention.backward_result];
    case KILN__CUSTOM: return kiln__custom_name(node->custom.call);
    }
    return "?";
}
