/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/graph.h"

#include <stdlib.h>

void kiln__graph_free(struct kiln__graph *graph)
{
    kiln__vector_free(&graph->nodes);
    kiln__vector_free(&graph->requests);
}

bool kiln__graph_add(struct kiln__graph *graph, const struct kiln__node *node, uint32_t *index)
{
    struct kiln__node *place = kiln__vector_push(&graph->nodes);
    if (!place)
        return false;
    *place = *node;
    *index = (uint32_t)(graph->nodes.count - 1);
    return true;
}

size_t kiln__node_count(const struct kiln__node *node)
{
    return kiln__shape_count(&node->shape);
}

size_t kiln__node_bytes(const struct kiln__node *node)
{
    return kiln__shape_count(&node->shape) * kiln_type_size((kiln_type)node->type);
}

bool kiln__node_is_input(const struct kiln__node *node)
{
    return node->kind == KILN__UPLOAD || node->kind == KILN__IMPORT;
}

bool kiln__node_is_pointwise(const struct kiln__node *node)
{
    return node->kind == KILN__ELEMENTWISE || node->kind == KILN__CAST;
}

bool kiln__node_is_movement(const struct kiln__node *node)
{
    return node->kind == KILN__VIEW || node->kind == KILN__RESHAPE;
}

const char *kiln__node_name(const struct kiln__node *node)
{
    static const char *const views[] = {"transpose", "slice", "broadcast", "view"};
    switch ((enum kiln__kind)node->kind) {
    case KILN__UPLOAD: return "upload";
    case KILN__IMPORT: return "import";
    case KILN__CONSTANT: return "constant";
    case KILN__ELEMENTWISE: return kiln__elementwise_rows[node->op].name;
    case KILN__CAST: return "cast";
    case KILN__REDUCE: return kiln__reduce_rows[node->op].name;
    case KILN__VIEW: return views[node->op];
    case KILN__RESHAPE: return "reshape";
    case KILN__MATMUL: return "matmul";
    }
    return "?";
}
