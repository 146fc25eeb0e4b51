/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs as text, for people and for golden tests. */
#include "graph/graph.h"

/* Per dimension of a view, where it comes from. */
static void dump_view(const struct kiln__view *view, const struct kiln__shape *shape,
                      struct kiln__text *text)
{
    kiln__text_add(text, " (");
    for (uint32_t d = 0; d < shape->rank; d++) {
        const char *comma = d ? ", " : "";
        int source = view->source[d];
        if (source < 0 || view->step[d] == 0)
            kiln__text_add(text, "%srepeat", comma);
        else
            kiln__text_add(text, "%sd%d from %lld by %lld", comma, source,
                           (long long)view->start[source], (long long)view->step[d]);
    }
    kiln__text_add(text, ")");
}

/* What a node has beside its inputs. */
static void dump_attributes(const struct kiln__graph *graph, const struct kiln__node *node,
                            struct kiln__text *text)
{
    if (node->kind == KILN__CONSTANT)
        kiln__text_add(text, " %s", kiln__value_text(node->type, node->value).text);
    if (kiln__node_is_input(node))
        kiln__text_add(text, " #%llu", (unsigned long long)node->binding);
    if (node->kind == KILN__REDUCE || node->kind == KILN__SCAN) {
        const struct kiln__node *input = kiln__graph_input(graph, node, 0);
        kiln__text_add(text, " over");
        for (uint32_t d = 0; d < input->shape.rank; d++)
            if (node->axes >> d & 1)
                kiln__text_add(text, " %u", d);
    }
    if (node->kind == KILN__SCAN && node->op == KILN__SCAN_BACKWARD)
        kiln__text_add(text, " from the end");
    const bool attends = node->kind == KILN__ATTENTION || node->kind == KILN__ATTENTION_BACKWARD;
    if (attends)
        kiln__text_add(text, " scale %.9g", node->attention.scale);
    if (attends && node->attention.causal)
        kiln__text_add(text, " causal %lld", (long long)node->attention.diagonal);
    if (attends && node->attention.window)
        kiln__text_add(text, " window %lld", (long long)node->attention.window);
    if (attends && node->attention.lengths)
        kiln__text_add(text, " of lengths");
    if (attends && node->op)
        kiln__text_add(text, " weights %s", kiln_type_name((kiln_type)node->op));
    if (node->kind == KILN__VIEW)
        dump_view(&node->view, &node->shape, text);
    if (node->kind == KILN__ATTENTION && node->attention.product != KILN__PRODUCT_EXACT)
        kiln__text_add(text, " %s", kiln__product_name_text(node->attention.product));
    if (node->kind == KILN__MATMUL && node->op != KILN__PRODUCT_EXACT)
        kiln__text_add(text, " %s", kiln__product_name_text(node->op));
    if (node->kind == KILN__SORT && node->op == KILN__SORT_DESCENDING)
        kiln__text_add(text, " descending");
    if (node->kind == KILN__GATHER || node->kind == KILN__SCATTER)
        kiln__text_add(text, " along %u", (unsigned)node->axis);
    if (node->kind == KILN__GATHER && node->op == KILN__GATHER_PADDED)
        kiln__text_add(text, " or 0");
    if (node->kind == KILN__CUSTOM && node->custom.call->call.n_outputs > 1)
        kiln__text_add(text, " output %u", (unsigned)node->custom.output);
    if (node->kind == KILN__INSERT_SLICE) {
        kiln__text_add(text, " at");
        dump_view(&node->view, &kiln__graph_input(graph, node, 0)->shape, text);
    }
}

void kiln__node_dump(const struct kiln__graph *graph, uint32_t index, struct kiln__text *text)
{
    const struct kiln__node *node = &graph->nodes.items[index];
    kiln__text_add(text, "%%%u %s%s = %s", index, kiln_type_name(node->type),
                   kiln__shape_text(&node->shape).text, kiln__node_name(node));
    for (uint32_t i = 0; i < node->n_inputs; i++)
        kiln__text_add(text, " %%%u", node->input[i]);
    dump_attributes(graph, node, text);
    const char *name = kiln__labels_name(graph->labels, index);
    if (name)
        kiln__text_add(text, " \"%s\"", name);
    kiln__text_add(text, "\n");
}

void kiln__graph_dump(const struct kiln__graph *graph, struct kiln__text *text)
{
    for (uint32_t i = 0; i < graph->nodes.count; i++) {
        kiln__text_add(text, "  ");
        kiln__node_dump(graph, i, text);
    }
    for (size_t i = 0; i < graph->requests.count; i++)
        kiln__text_add(text, "  %s #%zu %%%u\n",
                       graph->requests.items[i].kind == KILN__READ ? "read" : "export", i,
                       graph->requests.items[i].node);
}
