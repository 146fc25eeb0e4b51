/* SPDX-License-Identifier: Apache-2.0 */
/* Shape checks of the attention node, and its sizes: heads, queries, keys, depth. */
#include "graph/attention.h"

static size_t attention_dimension(const struct kiln__node *node, uint32_t from_last)
{
    return node->shape.dims[node->shape.rank - from_last];
}

struct kiln__attention_size kiln__attention_size(const struct kiln__graph *graph,
                                                 const struct kiln__node *node)
{
    struct kiln__attention_size size = {.batches = 1};
    size.m = attention_dimension(node, 2);
    size.e = attention_dimension(node, 1);
    size.d = attention_dimension(kiln__graph_input(graph, node, KILN__QUERY), 1);
    size.n = attention_dimension(kiln__graph_input(graph, node, KILN__KEY), 2);
    for (uint32_t i = 0; i + 2 < node->shape.rank; i++)
        size.batches *= node->shape.dims[i];
    return size;
}

bool kiln__attention_is_masked(const struct kiln__node *node)
{
    return node->n_inputs > KILN__MASK + (node->attention.lengths != 0);
}

unsigned kiln__attention_lengths(const struct kiln__node *node)
{
    return node->attention.lengths ? node->n_inputs - 1u : 0;
}

int64_t kiln__attention_diagonal(const struct kiln__node *node,
                                 const struct kiln__attention_size *size)
{
    const int64_t m = (int64_t)size->m, n = (int64_t)size->n;
    const bool from_last = node->attention.lengths;
    const int64_t least = from_last ? -n : -m, most = from_last ? m : n;
    int64_t diagonal = node->attention.diagonal;
    if (!node->attention.causal)
        return n;
    diagonal = diagonal < least ? least : diagonal > most ? most : diagonal;
    return from_last ? diagonal - m : diagonal;
}

int64_t kiln__attention_earliest(const struct kiln__node *node,
                                 const struct kiln__attention_size *size)
{
    const int64_t m = (int64_t)size->m, n = (int64_t)size->n, most = m + n;
    const bool from_last = node->attention.lengths, causal = node->attention.causal;
    /* As the place of the last key that row 0 sees. */
    const int64_t more = causal ? (from_last ? -m : 0) : (from_last ? -1 : n - 1);
    const int64_t diagonal = causal ? node->attention.diagonal : 0;
    const int64_t window = node->attention.window - 1;
    if (window < 0 || (diagonal < 0 && window > INT64_MAX + diagonal))
        return -most;
    const int64_t apart = diagonal - window;
    const int64_t within = apart < -2 * most ? -2 * most : apart > 2 * most ? 2 * most : apart;
    return within + more;
}

/* ---- verify ---- */

static bool has_shape(const struct kiln__graph *graph, const struct kiln__node *node, unsigned i,
                      size_t rows, size_t columns)
{
    struct kiln__shape shape = node->shape;
    shape.dims[shape.rank - 2] = rows;
    shape.dims[shape.rank - 1] = columns;
    return kiln__shape_equal(&shape, &kiln__graph_input(graph, node, i)->shape);
}

static const char *check_lengths(const struct kiln__graph *graph, const struct kiln__node *node)
{
    const unsigned lengths = kiln__attention_lengths(node);
    if (!lengths)
        return NULL;
    if (lengths < KILN__MASK || !has_shape(graph, node, lengths, 1, 1))
        return "shape of the lengths";
    return kiln__graph_input(graph, node, lengths)->type != KILN_I32 ? "type of the lengths" : NULL;
}

const char *kiln__attention_check(const struct kiln__graph *graph, const struct kiln__node *node)
{
    if (node->shape.rank < 2)
        return "rank";
    if (node->op && node->op != KILN_F16 && node->op != KILN_BF16)
        return "type of the weights";
    if (node->attention.window < 0)
        return "window";
    for (unsigned i = 0; i < node->n_inputs; i++)
        if (kiln__graph_input(graph, node, i)->shape.rank != node->shape.rank)
            return "rank of an operand";
    struct kiln__attention_size size = kiln__attention_size(graph, node);
    if (!has_shape(graph, node, KILN__QUERY, size.m, size.d) ||
        !has_shape(graph, node, KILN__KEY, size.n, size.d) ||
        !has_shape(graph, node, KILN__VALUE, size.n, size.e))
        return "operand shapes";
    for (unsigned i = 0; i < KILN__MASK; i++)
        if (kiln__graph_input(graph, node, i)->type != KILN_F32)
            return "operand type";
    if (node->type != KILN_F32)
        return "type";
    const char *wrong = check_lengths(graph, node);
    if (wrong || !kiln__attention_is_masked(node))
        return wrong;
    if (node->n_inputs != KILN__MASK + 1u + (node->attention.lengths != 0))
        return "number of inputs";
    if (!has_shape(graph, node, KILN__MASK, size.m, size.n))
        return "mask shape";
    kiln_type type = kiln__graph_input(graph, node, KILN__MASK)->type;
    return type != KILN_F32 && type != KILN_U8 ? "mask type" : NULL;
}

size_t kiln__attention_padded_columns(size_t columns)
{
    size_t room = 32;
    while (room < columns)
        room *= 2;
    return room;
}

uint64_t kiln__attention_local(size_t d, size_t e)
{
    const size_t most = (size_t)1 << 30;
    if (d > most || e > most)
        return UINT64_MAX;
    uint64_t lines = kiln__attention_padded_columns(d) + kiln__attention_padded_columns(e) +
                     KILN__ATTENTION_KEYS;
    return lines * 4 * sizeof(float);
}
