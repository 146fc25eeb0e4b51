/* SPDX-License-Identifier: Apache-2.0 */
/* A rule per node kind that carries the batch axis from a result to its operands. */
#include "graph/batch_axis.h"

#define ALL KILN__BATCH_AXIS_ALL
#define NEVER KILN__BATCH_AXIS_NEVER

static const struct kiln__shape *shape_of(const struct kiln__graph *graph,
                                          const struct kiln__node *node, unsigned k)
{
    return &kiln__graph_input(graph, node, k)->shape;
}

bool kiln__batch_axis_has(const struct kiln__shape *shape, uint32_t dim, size_t rows)
{
    return dim < shape->rank && shape->dims[dim] && shape->dims[dim] % rows == 0;
}

/* Elements of the dimensions before one. */
static size_t count_before(const struct kiln__shape *shape, uint32_t dim)
{
    size_t count = 1;
    for (uint32_t d = 0; d < dim; d++)
        count *= shape->dims[d];
    return count;
}

bool kiln__batch_axis_is_outermost(const struct kiln__shape *shape, uint32_t dim)
{
    return count_before(shape, dim) == 1;
}

static int of_elementwise(const struct kiln__node *node, const struct kiln__shape *input, int dim)
{
    int own = dim + (int)input->rank - (int)node->shape.rank;
    return own >= 0 && input->dims[own] == node->shape.dims[dim] ? own : ALL;
}

static int of_reduce(const struct kiln__node *node, const struct kiln__shape *input, int dim)
{
    int own = 0;
    for (int kept = 0; own < (int)input->rank; own++)
        if (!(node->axes >> own & 1) && kept++ == dim)
            break;
    return own;
}

/* Dimension `dim` of `view` goes over all of `source`, and no other one does. */
static bool goes_over(const struct kiln__view *view, const struct kiln__shape *shape,
                      const struct kiln__shape *of, int dim, int source)
{
    for (int d = 0; d < (int)shape->rank; d++)
        if (d != dim && view->source[d] == source && view->step[d])
            return false;
    return view->source[dim] == source && view->step[dim] == 1 && view->start[source] == 0 &&
           shape->dims[dim] == of->dims[source];
}

static int of_view(const struct kiln__node *node, const struct kiln__shape *input, int dim)
{
    int source = node->view.source[dim];
    if (source < 0 || node->view.step[dim] == 0)
        return ALL;
    return goes_over(&node->view, &node->shape, input, dim, source) ? source : NEVER;
}

/* A block has the same elements where as many come before the dimension. */
static int of_reshape(const struct kiln__node *node, const struct kiln__shape *input, int dim,
                      size_t rows)
{
    size_t before = count_before(&node->shape, (uint32_t)dim);
    for (uint32_t d = 0; d < input->rank; d++)
        if (kiln__batch_axis_has(input, d, rows) && count_before(input, d) == before)
            return (int)d;
    return NEVER;
}

static int of_product(const struct kiln__node *node, unsigned k, int dim)
{
    int rank = (int)node->shape.rank, own = k ? rank - 1 : rank - 2;
    return dim < rank - 2 || dim == own ? dim : ALL;
}

static int of_insertion(const struct kiln__graph *graph, const struct kiln__node *node, unsigned k,
                        int dim)
{
    const struct kiln__shape *part = shape_of(graph, node, 0);
    for (int d = 0; k == 0 && d < (int)part->rank; d++)
        if (goes_over(&node->view, part, &node->shape, d, dim))
            return d;
    return k ? dim : NEVER;
}

static int of_gather(const struct kiln__graph *graph, const struct kiln__node *node, unsigned k,
                     int dim)
{
    int axis = (int)node->axis, indices = (int)shape_of(graph, node, 1)->rank;
    if (dim >= axis && dim < axis + indices)
        return k ? dim - axis : ALL;
    return k ? ALL : dim < axis ? dim : dim - indices + 1;
}

static int of_scatter(const struct kiln__graph *graph, const struct kiln__node *node, unsigned k,
                      int dim)
{
    int axis = (int)node->axis, indices = (int)shape_of(graph, node, KILN__SCATTER_INDICES)->rank;
    if (dim == axis)
        return NEVER;
    return k == KILN__SCATTER_INDICES                ? ALL
           : k == KILN__SCATTER_VALUES && dim > axis ? dim + indices - 1
                                                     : dim;
}

int kiln__batch_axis(const struct kiln__graph *graph, uint32_t index, unsigned k, uint32_t dim,
                     size_t rows)
{
    const struct kiln__node *node = &graph->nodes.items[index];
    const struct kiln__shape *input = shape_of(graph, node, k);
    int d = (int)dim, rank = (int)node->shape.rank;
    switch (node->kind) {
    case KILN__ELEMENTWISE:
    case KILN__CAST: return of_elementwise(node, input, d);
    case KILN__REDUCE: return of_reduce(node, input, d);
    case KILN__SCAN: return node->axes >> d & 1 ? NEVER : d;
    case KILN__VIEW: return of_view(node, input, d);
    case KILN__RESHAPE: return of_reshape(node, input, d, rows);
    case KILN__MATMUL: return of_product(node, k, d);
    case KILN__ATTENTION:
    case KILN__ATTENTION_BACKWARD: return d < rank - 2 ? d : NEVER;
    case KILN__INSERT_SLICE: return of_insertion(graph, node, k, d);
    case KILN__GATHER: return of_gather(graph, node, k, d);
    case KILN__SCATTER: return of_scatter(graph, node, k, d);
    case KILN__SORT: return d < rank - 1 ? d : NEVER;
    default: return NEVER;
    }
}

/* ---- sums ---- */

static bool adds_up(const struct kiln__node *node)
{
    switch (node->kind) {
    case KILN__REDUCE: return !kiln__reduce_rows[node->op].indexed;
    case KILN__MATMUL:
    case KILN__SCATTER: return true;
    default: return false;
    }
}

/* How many dimensions there are to choose from. */
static unsigned choices(const struct kiln__graph *graph, const struct kiln__node *node)
{
    return node->kind == KILN__REDUCE    ? shape_of(graph, node, 0)->rank
           : node->kind == KILN__SCATTER ? shape_of(graph, node, KILN__SCATTER_INDICES)->rank
                                         : 1;
}

unsigned kiln__batch_axis_sum(const struct kiln__graph *graph, uint32_t index,
                              const uint8_t *rows_of)
{
    const struct kiln__node *node = &graph->nodes.items[index];
    for (unsigned sum = 1; adds_up(node) && sum <= choices(graph, node); sum++) {
        bool goes = node->kind != KILN__REDUCE || (node->axes >> (sum - 1) & 1);
        for (unsigned k = 0; k < node->n_inputs && goes; k++) {
            int dim = kiln__batch_axis_summed(graph, index, k, sum);
            goes = dim < 0 || (rows_of[node->input[k]] >> dim & 1);
        }
        if (goes)
            return sum;
    }
    return 0;
}

int kiln__batch_axis_summed(const struct kiln__graph *graph, uint32_t index, unsigned k,
                            unsigned sum)
{
    const struct kiln__node *node = &graph->nodes.items[index];
    if (node->kind == KILN__MATMUL)
        return (int)node->shape.rank - (k ? 2 : 1);
    if (node->kind == KILN__REDUCE || k == KILN__SCATTER_INDICES)
        return (int)sum - 1;
    return k == KILN__SCATTER_VALUES ? (int)(node->axis + sum) - 1 : ALL;
}
