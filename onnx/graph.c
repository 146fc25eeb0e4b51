/* SPDX-License-Identifier: Apache-2.0 */
/* Name resolution: graphs, subgraphs and function bodies become nodes with numbered values. */
#include "onnx/graph.h"

#include <stdlib.h>
#include <string.h>

#include "onnx/functions.h"
#include "onnx/names.h"
#include "onnx/operators.h"
#include "onnx/wire.h"

/* Functions that call functions, and how many nodes they may come to in all. */
enum { DEEPEST_CALL = 32, MOST_NODES = 1 << 20 };

struct kiln__onnx_block {
    struct kiln__onnx_block *next;
    max_align_t content[];
};

/* What is known where a list of nodes stands. */
struct scope {
    struct kiln__onnx_names names;
    const struct kiln__onnx_attributes *attributes;
    size_t n_imports; /* versions of operator sets */
    Onnx__OperatorSetIdProto **imports;
    unsigned depth; /* of functions' calls */
};

struct resolver {
    const Onnx__ModelProto *model;
    struct kiln__onnx_defaults *defaults; /* of each of the model's functions */
    struct kiln__onnx_graphs *graphs;
    size_t n_nodes, room_values, room_constants;
};

static kiln_status out_of_memory(void)
{
    return kiln__onnx_fail(KILN_OUT_OF_HOST_MEMORY, "kiln_model_load: no memory for the graph");
}

void *kiln__onnx_graphs_alloc(struct kiln__onnx_graphs *graphs, size_t count, size_t size)
{
    if (count > (PTRDIFF_MAX - sizeof(struct kiln__onnx_block)) / size)
        return NULL;
    struct kiln__onnx_block *block = calloc(1, sizeof *block + (count ? count : 1) * size);
    if (!block)
        return NULL;
    block->next = graphs->blocks;
    graphs->blocks = block;
    return block->content;
}

/* Room for one more of `count`: doubled where it is full. */
static bool reserve(void **array, size_t count, size_t *room, size_t size)
{
    if (count < *room)
        return true;
    size_t wanted = *room ? 2 * *room : 64;
    void *grown = realloc(*array, wanted * size);
    if (!grown)
        return false;
    *array = grown;
    *room = wanted;
    return true;
}

static const char *text_of(const char *text)
{
    return text ? text : "";
}

const char *kiln__onnx_domain(const char *domain)
{
    return !domain || !strcmp(domain, "ai.onnx") ? "" : domain;
}

const char *kiln__onnx_node_name(const struct kiln__onnx_node *node)
{
    const Onnx__NodeProto *proto = node->proto;
    if (*text_of(proto->name))
        return proto->name;
    return proto->n_output && *proto->output[0] ? proto->output[0] : "without a name";
}

/* A new number for a name, which may be "" for what nobody can refer to. */
static kiln_status define(struct resolver *resolver, struct scope *scope, const char *name,
                          uint32_t *number)
{
    struct kiln__onnx_graphs *graphs = resolver->graphs;
    if (*name && kiln__onnx_names_have(&scope->names, name))
        return kiln__onnx_fail(KILN_INVALID_ARGUMENT,
                               "kiln_model_load: the value '%s' is made twice", name);
    if (graphs->n_values == KILN__ONNX_NONE - 1 ||
        !reserve((void **)&graphs->names, graphs->n_values, &resolver->room_values,
                 sizeof *graphs->names))
        return out_of_memory();
    *number = graphs->n_values++;
    graphs->names[*number] = name;
    if (*name && !kiln__onnx_names_add(&scope->names, name, *number))
        return out_of_memory();
    return KILN_OK;
}

static kiln_status add_constant(struct resolver *resolver, struct scope *scope, const char *name,
                                Onnx__TensorProto *proto)
{
    struct kiln__onnx_graphs *graphs = resolver->graphs;
    if (!reserve((void **)&graphs->constants, graphs->n_constants, &resolver->room_constants,
                 sizeof *graphs->constants))
        return out_of_memory();
    struct kiln__onnx_constant *constant = &graphs->constants[graphs->n_constants++];
    constant->proto = proto;
    constant->shared = scope->attributes != NULL;
    return define(resolver, scope, name, &constant->value);
}

static int version_of(const struct scope *scope, const char *domain)
{
    for (size_t i = 0; i < scope->n_imports; i++)
        if (!strcmp(kiln__onnx_domain(scope->imports[i]->domain), domain)) {
            int64_t version = scope->imports[i]->version;
            return version < 0 || version > 9999 ? 0 : (int)version;
        }
    return *domain ? 1 : 0;
}

/* ---- operands ---- */

static bool made_later(size_t n, Onnx__NodeProto *const *nodes, const char *name)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < nodes[i]->n_output; k++)
            if (!strcmp(nodes[i]->output[k], name))
                return true;
    return false;
}

static kiln_status find_operands(struct resolver *resolver, struct scope *scope,
                                 struct kiln__onnx_node *node, size_t n_after,
                                 Onnx__NodeProto *const *after)
{
    const Onnx__NodeProto *proto = node->proto;
    node->n_inputs = proto->n_input;
    node->inputs = kiln__onnx_graphs_alloc(resolver->graphs, proto->n_input, sizeof *node->inputs);
    if (!node->inputs)
        return out_of_memory();
    for (size_t i = 0; i < proto->n_input; i++) {
        node->inputs[i] = KILN__ONNX_NONE;
        if (!*proto->input[i] ||
            kiln__onnx_names_find(&scope->names, proto->input[i], &node->inputs[i]))
            continue;
        const char *why =
            made_later(n_after, after, proto->input[i])
                ? "which this node or a later one makes: a cycle, or nodes out of order"
                : "which nothing makes";
        return kiln__onnx_fail(
            KILN_INVALID_ARGUMENT, "kiln_model_load: node '%s' (%s): input %zu is '%s', %s",
            kiln__onnx_node_name(node), text_of(proto->op_type), i, proto->input[i], why);
    }
    return KILN_OK;
}

static kiln_status resolve_graph(struct resolver *resolver, const Onnx__GraphProto *proto,
                                 const struct scope *around, struct kiln__onnx_graph **graph);
static kiln_status resolve_nodes(struct resolver *resolver, size_t n, Onnx__NodeProto **protos,
                                 struct scope *scope, struct kiln__onnx_graph *graph, size_t *room);

static kiln_status resolve_inner(struct resolver *resolver, const struct scope *scope,
                                 struct kiln__onnx_node *node)
{
    const Onnx__NodeProto *proto = node->proto;
    size_t graphs = 0;
    for (size_t i = 0; i < proto->n_attribute; i++)
        graphs += proto->attribute[i]->g != NULL;
    if (!graphs)
        return KILN_OK;
    node->n_graphs = proto->n_attribute;
    node->graphs =
        kiln__onnx_graphs_alloc(resolver->graphs, proto->n_attribute, sizeof *node->graphs);
    if (!node->graphs)
        return out_of_memory();
    for (size_t i = 0; i < proto->n_attribute; i++)
        if (proto->attribute[i]->g) {
            kiln_status status =
                resolve_graph(resolver, proto->attribute[i]->g, scope, &node->graphs[i]);
            if (status)
                return status;
        }
    return KILN_OK;
}

/* A call is its function's nodes: the names of parameters stand for the caller's values, and the
 * caller's for what the function's results are. */
static kiln_status write_out(struct resolver *resolver, size_t which,
                             const struct kiln__onnx_node *call, struct scope *scope,
                             struct kiln__onnx_graph *graph, size_t *room)
{
    const Onnx__FunctionProto *function = resolver->model->functions[which];
    const struct kiln__onnx_defaults *defaults = &resolver->defaults[which];
    const Onnx__NodeProto *proto = call->proto;
    if (scope->depth == DEEPEST_CALL || proto->n_input > function->n_input ||
        proto->n_output > function->n_output)
        return kiln__onnx_fail(KILN_INVALID_ARGUMENT, "kiln_model_load: node '%s' (%s): %s",
                               kiln__onnx_node_name(call), text_of(proto->op_type),
                               scope->depth == DEEPEST_CALL
                                   ? "functions call each other more than 32 deep"
                                   : "more operands or results than the function has");
    struct kiln__onnx_attributes *attributes =
        kiln__onnx_graphs_alloc(resolver->graphs, 1, sizeof *attributes);
    if (!attributes)
        return out_of_memory();
    *attributes =
        (struct kiln__onnx_attributes){scope->attributes, proto, defaults->n, defaults->list};
    struct scope inner = {.attributes = attributes,
                          .n_imports = function->n_opset_import,
                          .imports = function->opset_import,
                          .depth = scope->depth + 1};
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < function->n_input && !status; i++) {
        uint32_t value = i < call->n_inputs ? call->inputs[i] : KILN__ONNX_NONE;
        if (kiln__onnx_names_have(&inner.names, function->input[i]))
            status = kiln__onnx_fail(KILN_INVALID_ARGUMENT,
                                     "kiln_model_load: function '%s' has two parameters '%s'",
                                     text_of(function->name), function->input[i]);
        else if (!kiln__onnx_names_add(&inner.names, function->input[i], value))
            status = out_of_memory();
    }
    if (!status)
        status = resolve_nodes(resolver, function->n_node, function->node, &inner, graph, room);
    for (size_t i = 0; i < proto->n_output && !status; i++) {
        uint32_t value;
        if (!*proto->output[i])
            continue;
        if (!kiln__onnx_names_find(&inner.names, function->output[i], &value))
            status = kiln__onnx_fail(KILN_INVALID_ARGUMENT,
                                     "kiln_model_load: function '%s' does not make its output '%s'",
                                     text_of(function->name), function->output[i]);
        else if (kiln__onnx_names_have(&scope->names, proto->output[i]))
            status =
                kiln__onnx_fail(KILN_INVALID_ARGUMENT,
                                "kiln_model_load: the value '%s' is made twice", proto->output[i]);
        else if (!kiln__onnx_names_add(&scope->names, proto->output[i], value))
            status = out_of_memory();
    }
    kiln__onnx_names_free(&inner.names);
    return status;
}

/* The tensor of a node Constant that has nothing else. */
static Onnx__TensorProto *tensor_of(const Onnx__NodeProto *proto)
{
    bool constant = !strcmp(text_of(proto->op_type), "Constant") &&
                    !*kiln__onnx_domain(proto->domain) && proto->n_input == 0 &&
                    proto->n_output == 1 && *proto->output[0] && proto->n_attribute == 1;
    if (!constant || strcmp(text_of(proto->attribute[0]->name), "value"))
        return NULL;
    return proto->attribute[0]->t;
}

static kiln_status resolve_node(struct resolver *resolver, const Onnx__NodeProto *proto,
                                size_t n_after, Onnx__NodeProto *const *after, struct scope *scope,
                                struct kiln__onnx_graph *graph, size_t *room)
{
    struct kiln__onnx_graphs *graphs = resolver->graphs;
    Onnx__TensorProto *constant = tensor_of(proto);
    /* Calls and constants count too: functions that call the next one twice double them. */
    if (resolver->n_nodes++ == MOST_NODES)
        return kiln__onnx_fail(KILN_TOO_LARGE, "kiln_model_load: more than %d nodes", MOST_NODES);
    if (constant)
        return add_constant(resolver, scope, proto->output[0], constant);
    const char *domain = kiln__onnx_domain(proto->domain);
    struct kiln__onnx_node node = {.proto = proto,
                                   .attributes = scope->attributes,
                                   .version = version_of(scope, domain),
                                   .n_outputs = proto->n_output};
    kiln_status status = find_operands(resolver, scope, &node, n_after, after);
    if (status)
        return status;
    size_t function = kiln__onnx_function_of(resolver->model, proto);
    node.row = kiln__onnx_find_row(domain, text_of(proto->op_type), node.version);
    if (function != KILN__ONNX_NONE && !node.row)
        return write_out(resolver, function, &node, scope, graph, room);
    status = resolve_inner(resolver, scope, &node);
    node.outputs = kiln__onnx_graphs_alloc(graphs, proto->n_output, sizeof *node.outputs);
    if (!node.outputs)
        return out_of_memory();
    for (size_t i = 0; i < proto->n_output && !status; i++)
        status = define(resolver, scope, proto->output[i], &node.outputs[i]);
    if (status)
        return status;
    if (!reserve((void **)&graph->nodes, graph->n_nodes, room, sizeof node))
        return out_of_memory();
    graph->nodes[graph->n_nodes++] = node;
    return KILN_OK;
}

static kiln_status resolve_nodes(struct resolver *resolver, size_t n, Onnx__NodeProto **protos,
                                 struct scope *scope, struct kiln__onnx_graph *graph, size_t *room)
{
    for (size_t i = 0; i < n; i++) {
        kiln_status status =
            resolve_node(resolver, protos[i], n - i, protos + i, scope, graph, room);
        if (status)
            return status;
    }
    return KILN_OK;
}

static kiln_status resolve_inputs(struct resolver *resolver, const Onnx__GraphProto *proto,
                                  struct scope *scope, struct kiln__onnx_graph *graph)
{
    if (proto->n_sparse_initializer)
        return kiln__onnx_fail(KILN_UNSUPPORTED,
                               "kiln_model_load: graph '%s' has sparse initialisers",
                               text_of(proto->name));
    for (size_t i = 0; i < proto->n_initializer; i++) {
        const char *name = text_of(proto->initializer[i]->name);
        if (!*name)
            return kiln__onnx_fail(KILN_INVALID_ARGUMENT,
                                   "kiln_model_load: initialiser %zu has no name", i);
        kiln_status status = add_constant(resolver, scope, name, proto->initializer[i]);
        if (status)
            return status;
    }
    graph->inputs =
        kiln__onnx_graphs_alloc(resolver->graphs, proto->n_input, sizeof *graph->inputs);
    graph->input_protos =
        kiln__onnx_graphs_alloc(resolver->graphs, proto->n_input, sizeof *graph->input_protos);
    if (!graph->inputs || !graph->input_protos)
        return out_of_memory();
    size_t before = resolver->graphs->n_values;
    for (size_t i = 0; i < proto->n_input; i++) {
        const char *name = text_of(proto->input[i]->name);
        uint32_t number;
        if (kiln__onnx_names_have(&scope->names, name) &&
            kiln__onnx_names_find(&scope->names, name, &number) && number < before)
            continue; /* the default of an input: an initialiser */
        if (!*name)
            return kiln__onnx_fail(KILN_INVALID_ARGUMENT, "kiln_model_load: input %zu has no name",
                                   i);
        kiln_status status = define(resolver, scope, name, &graph->inputs[graph->n_inputs]);
        if (status)
            return status;
        graph->input_protos[graph->n_inputs++] = proto->input[i];
    }
    return KILN_OK;
}

static kiln_status resolve_outputs(struct resolver *resolver, const Onnx__GraphProto *proto,
                                   const struct scope *scope, struct kiln__onnx_graph *graph)
{
    graph->n_outputs = proto->n_output;
    graph->outputs =
        kiln__onnx_graphs_alloc(resolver->graphs, proto->n_output, sizeof *graph->outputs);
    if (!graph->outputs)
        return out_of_memory();
    for (size_t i = 0; i < proto->n_output; i++)
        if (!kiln__onnx_names_find(&scope->names, text_of(proto->output[i]->name),
                                   &graph->outputs[i]) ||
            graph->outputs[i] == KILN__ONNX_NONE)
            return kiln__onnx_fail(KILN_INVALID_ARGUMENT,
                                   "kiln_model_load: nothing makes the output '%s'",
                                   text_of(proto->output[i]->name));
    return KILN_OK;
}

/* Hand an array that has grown to those that are freed together. */
static kiln_status keep_nodes(struct resolver *resolver, struct kiln__onnx_graph *graph)
{
    struct kiln__onnx_node *nodes =
        kiln__onnx_graphs_alloc(resolver->graphs, graph->n_nodes, sizeof *graph->nodes);
    if (nodes && graph->n_nodes)
        memcpy(nodes, graph->nodes, graph->n_nodes * sizeof *nodes);
    free(graph->nodes);
    graph->nodes = nodes;
    return nodes ? KILN_OK : out_of_memory();
}

static kiln_status resolve_graph(struct resolver *resolver, const Onnx__GraphProto *proto,
                                 const struct scope *around, struct kiln__onnx_graph **graph)
{
    struct scope scope = *around;
    scope.names = (struct kiln__onnx_names){.outer = &around->names};
    *graph = kiln__onnx_graphs_alloc(resolver->graphs, 1, sizeof **graph);
    if (!*graph)
        return out_of_memory();
    size_t room = 0;
    kiln_status status = resolve_inputs(resolver, proto, &scope, *graph);
    if (!status)
        status = resolve_nodes(resolver, proto->n_node, proto->node, &scope, *graph, &room);
    if (!status)
        status = resolve_outputs(resolver, proto, &scope, *graph);
    kiln_status kept = keep_nodes(resolver, *graph);
    kiln__onnx_names_free(&scope.names);
    return status ? status : kept;
}

static void mark_inputs(const struct kiln__onnx_node *node, bool *needed)
{
    for (size_t i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] != KILN__ONNX_NONE)
            needed[node->inputs[i]] = true;
}

static void mark_graph(struct kiln__onnx_graph *graph, bool *needed)
{
    for (size_t i = 0; i < graph->n_outputs; i++)
        needed[graph->outputs[i]] = true;
    for (size_t n = graph->n_nodes; n-- > 0;) {
        struct kiln__onnx_node *node = &graph->nodes[n];
        for (size_t i = 0; i < node->n_outputs; i++)
            node->live = node->live || needed[node->outputs[i]];
        if (!node->live)
            continue;
        mark_inputs(node, needed);
        for (size_t i = 0; i < node->n_graphs; i++)
            if (node->graphs[i])
                mark_graph(node->graphs[i], needed);
    }
}

kiln_status kiln__onnx_resolve(const Onnx__ModelProto *model, struct kiln__onnx_graphs *graphs)
{
    *graphs = (struct kiln__onnx_graphs){0};
    if (!model->graph)
        return kiln__onnx_fail(KILN_INVALID_ARGUMENT, "kiln_model_load: the model has no graph");
    struct resolver resolver = {.model = model, .graphs = graphs};
    struct scope scope = {.n_imports = model->n_opset_import, .imports = model->opset_import};
    kiln_status status = kiln__onnx_function_defaults(model, graphs, &resolver.defaults);
    if (!status)
        status = resolve_graph(&resolver, model->graph, &scope, &graphs->main);
    if (status)
        return status;
    graphs->needed = kiln__onnx_graphs_alloc(graphs, graphs->n_values, sizeof *graphs->needed);
    if (!graphs->needed)
        return out_of_memory();
    mark_graph(graphs->main, graphs->needed);
    return KILN_OK;
}

void kiln__onnx_graphs_free(struct kiln__onnx_graphs *graphs)
{
    while (graphs->blocks) {
        struct kiln__onnx_block *next = graphs->blocks->next;
        free(graphs->blocks);
        graphs->blocks = next;
    }
    free(graphs->names);
    free(graphs->constants);
    *graphs = (struct kiln__onnx_graphs){0};
}
