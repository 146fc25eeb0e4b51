/* SPDX-License-Identifier: Apache-2.0 */
/* Shape checks and sizes of the nodes that attention's gradient consists of. */
#include "graph/attention_backward.h"

static const struct kiln__shape *shape_of(const struct kiln__graph *graph,
                                          const struct kiln__node *node, unsigned i)
{
    return &kiln__graph_input(graph, node, i)->shape;
}

static size_t attention_backward_dimension(const struct kiln__shape *shape, uint32_t from_last)
{
    return shape->dims[shape->rank - from_last];
}

bool kiln__attention_backward_by_key(const struct kiln__node *node)
{
    return node->attention.backward_result == KILN__BACKWARD_VALUES ||
           node->attention.backward_result == KILN__BACKWARD_KEYS;
}

struct kiln__attention_size kiln__attention_backward_size(const struct kiln__graph *graph,
                                                          const struct kiln__node *node)
{
    struct kiln__attention_size size = {.batches = 1};
    size.m = attention_backward_dimension(&node->shape, 2);
    size.n = attention_backward_dimension(shape_of(graph, node, KILN__STREAMED_OPERAND), 2);
    size.d = attention_backward_dimension(shape_of(graph, node, KILN__ROW_OPERAND), 1);
    size.e = node->n_inputs > KILN__STATS
                 ? attention_backward_dimension(shape_of(graph, node, KILN__OTHER_ROW_OPERAND), 1)
                 : size.d;
    for (uint32_t i = 0; i + 2 < node->shape.rank; i++)
        size.batches *= node->shape.dims[i];
    return size;
}

/* ---- verify ---- */

static bool has_shape(const struct kiln__graph *graph, const struct kiln__node *node, unsigned i,
                      size_t rows, size_t columns)
{
    struct kiln__shape shape = node->shape;
    shape.dims[shape.rank - 2] = rows;
    shape.dims[shape.rank - 1] = columns;
    return kiln__shape_equal(&shape, shape_of(graph, node, i));
}

const char *kiln__attention_backward_check(const struct kiln__graph *graph,
                                           const struct kiln__node *node)
{
    const bool log_sum_exp = node->attention.backward_result == KILN__BACKWARD_LOG_SUM_EXP;
    if (node->attention.backward_result > KILN__BACKWARD_QUERIES)
        return "result";
    if (node->shape.rank < 2 || node->n_inputs != (log_sum_exp ? 2 : KILN__STATS + 1))
        return "rank or number of inputs";
    if (node->type != KILN_F32 || (node->op && node->op != KILN_F16 && node->op != KILN_BF16))
        return "type";
    for (unsigned i = 0; i < node->n_inputs; i++)
        if (shape_of(graph, node, i)->rank != node->shape.rank ||
            kiln__graph_input(graph, node, i)->type != KILN_F32)
            return "rank or type of an operand";
    const struct kiln__attention_size size = kiln__attention_backward_size(graph, node);
    const size_t queries = kiln__attention_backward_by_key(node) ? size.n : size.m;
    const size_t columns = log_sum_exp                                                ? 1
                           : node->attention.backward_result == KILN__BACKWARD_VALUES ? size.e
                                                                                      : size.d;
    if (attention_backward_dimension(&node->shape, 1) != columns ||
        !has_shape(graph, node, KILN__ROW_OPERAND, size.m, size.d) ||
        !has_shape(graph, node, KILN__STREAMED_OPERAND, size.n, size.d))
        return "shapes";
    if (!log_sum_exp && (!has_shape(graph, node, KILN__OTHER_ROW_OPERAND, size.m, size.e) ||
                         !has_shape(graph, node, KILN__OTHER_STREAMED_OPERAND, size.n, size.e) ||
                         !has_shape(graph, node, KILN__STATS, queries, KILN__STATS_COLUMNS)))
        return "shapes of the result's gradient, values or stats";
    return NULL;
}
