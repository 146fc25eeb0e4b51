/* SPDX-License-Identifier: Apache-2.0 */
/* Construction of the graph for one micro-batch: slices of the inputs, accumulation of partial
 * sums, the last graph. */
#include "graph/micro_batch_graph.h"

#include <stdlib.h>

#include "graph/batch_axis.h"

/* What is needed of a value: a bit for each dimension along which it is needed by rows, and this.
 * With several of them it is computed several times. */
#define WHOLE KILN_MAX_RANK

struct work {
    const struct kiln__partition *partition;
    const struct kiln__graph *graph;
    const struct kiln__micro_batch_what *what;
    uint16_t *needs;                     /* per node */
    uint32_t (*made)[KILN_MAX_RANK + 1]; /* per node and need: the node of the new graph */
    size_t wrong_bytes;
    struct kiln__micro_batch_graph *cut;
};

size_t kiln__micro_batch_rows(const struct kiln__graph *graph)
{
    size_t rows = 0;
    for (size_t i = 0; i < graph->requests.count; i++) {
        const struct kiln__shape *shape = &graph->nodes.items[graph->requests.items[i].node].shape;
        size_t a = shape->rank ? shape->dims[0] : 0, b = rows;
        if (!a)
            return 0;
        while (b) {
            size_t rest = a % b;
            a = b;
            b = rest;
        }
        rows = a;
    }
    return rows;
}

/* ---- what is to be computed ---- */

static bool is_complete(const struct work *work, uint32_t node)
{
    return work->partition->sum[node] && (work->what->kind == KILN__MICRO_BATCH_END ||
                                          work->partition->level[node] < work->what->phase);
}

/* A sum that this graph begins, or adds to. */
static bool is_summed(const struct work *work, uint32_t node)
{
    return work->partition->sum[node] && work->what->kind != KILN__MICRO_BATCH_END &&
           work->partition->level[node] == work->what->phase;
}

/* How this graph delivers a request: a dimension, or WHOLE; -1: another graph does. */
static int delivery(const struct work *work, const struct kiln__request *request)
{
    int along = kiln__partition_axis(work->partition, request->node);
    switch (work->what->kind) {
    case KILN__MICRO_BATCH_ROWS:
        return along >= 0 && work->partition->level[request->node] == work->what->phase ? along
                                                                                        : -1;
    case KILN__MICRO_BATCH_END: return along < 0 ? WHOLE : -1;
    default: return -1;
    }
}

/* ---- what that needs ---- */

/* What has rows, and is needed as a whole by what has none: an input only if nothing else is. */
static void note_wrong(struct work *work, uint32_t node, uint32_t operand)
{
    const struct kiln__node *wide = &work->graph->nodes.items[operand];
    size_t bytes = wide->n_inputs ? kiln__node_bytes(wide) : 1;
    if (work->partition->marked[operand] && !work->partition->marked[node] &&
        bytes > work->wrong_bytes) {
        work->wrong_bytes = bytes;
        work->cut->wrong = node;
    }
}

static void need(struct work *work, uint32_t node, uint32_t operand, int dim)
{
    if (dim < 0)
        note_wrong(work, node, operand);
    work->needs[operand] |= (uint16_t)(1 << (dim < 0 ? WHOLE : dim));
}

/* A scatter's begin with its base, other sums with a constant. */
static void need_of_sum(struct work *work, uint32_t i)
{
    const struct kiln__node *node = &work->graph->nodes.items[i];
    bool begin = work->what->kind == KILN__MICRO_BATCH_BEGIN;
    for (unsigned k = 0; k < node->n_inputs; k++) {
        int dim = kiln__batch_axis_summed(work->graph, i, k, work->partition->sum[i]);
        if (begin == (dim < 0))
            need(work, i, node->input[k], dim);
    }
}

/* From users to operands. */
static void find_needs(struct work *work)
{
    const struct kiln__graph *graph = work->graph;
    for (size_t i = 0; i < graph->requests.count; i++) {
        int how = delivery(work, &graph->requests.items[i]);
        if (how >= 0)
            work->needs[graph->requests.items[i].node] |= (uint16_t)(1 << how);
    }
    for (uint32_t i = (uint32_t)graph->nodes.count; i-- > 0;) {
        const struct kiln__node *node = &graph->nodes.items[i];
        if (is_summed(work, i))
            need_of_sum(work, i);
        for (unsigned k = 0; k < node->n_inputs && !is_complete(work, i); k++)
            for (uint32_t d = 0; d <= WHOLE; d++)
                if (work->needs[i] >> d & 1)
                    need(work, i, node->input[k],
                         d == WHOLE ? KILN__BATCH_AXIS_ALL
                                    : kiln__batch_axis(graph, i, k, d, work->partition->rows));
    }
}

/* ---- the new graph ---- */

/* A node that stands for node `of` of the whole. */
static bool add_node(struct work *work, const struct kiln__node *node, uint32_t of, uint32_t *index)
{
    return kiln__vector_add(&work->cut->of, of) && kiln__graph_add(&work->cut->graph, node, index);
}

static size_t part_of(const struct work *work, size_t elements)
{
    return elements / work->partition->rows * work->what->part;
}

static bool add_input(struct work *work, const struct kiln__micro_batch_input *input,
                      struct kiln__node *node)
{
    node->binding = work->cut->inputs.count;
    return kiln__vector_add(&work->cut->inputs, *input);
}

static bool add_result(struct work *work, const struct kiln__micro_batch_result *result,
                       uint32_t node, enum kiln__request_kind kind, uint32_t replaces)
{
    return kiln__vector_add(&work->cut->results, *result) &&
           kiln__vector_add(&work->cut->graph.requests,
                            (struct kiln__request){node, kind, replaces});
}

/* An operand as rows along `dim` of it, or whole. */
static uint32_t operand(const struct work *work, uint32_t node, int dim)
{
    return work->made[node][dim < 0 ? WHOLE : dim];
}

/* What is needed of a node along `dim`, or of it whole. */
static bool micro_batch_add(struct work *work, uint32_t index, uint32_t dim)
{
    const struct kiln__node *from = &work->graph->nodes.items[index];
    struct kiln__node node = *from;
    bool rows = dim != WHOLE;
    if (rows)
        node.shape.dims[dim] = part_of(work, from->shape.dims[dim]);
    for (unsigned k = 0; k < from->n_inputs; k++)
        node.input[k] =
            operand(work, from->input[k],
                    rows ? kiln__batch_axis(work->graph, index, k, dim, work->partition->rows)
                         : KILN__BATCH_AXIS_ALL);
    const struct kiln__micro_batch_input input = {.binding = from->binding, .rows = rows};
    return (!kiln__node_is_input(from) || add_input(work, &input, &node)) &&
           add_node(work, &node, index, &work->made[index][dim]);
}

/* Elements count from the part's first one, and what is before it comes as an input. */
static bool add_numbers(struct work *work, uint32_t index, uint32_t dim)
{
    const struct kiln__node *from = &work->graph->nodes.items[index];
    struct kiln__node numbers = *from, first = {.kind = KILN__UPLOAD, .type = KILN_I32};
    struct kiln__node sum = {
        .kind = KILN__ELEMENTWISE, .op = KILN__OP_add, .type = KILN_I32, .n_inputs = 2};
    const struct kiln__micro_batch_input input = {.numbers = kiln__node_count(from) /
                                                             work->partition->rows};
    numbers.shape.dims[dim] = part_of(work, from->shape.dims[dim]);
    sum.shape = numbers.shape;
    return add_input(work, &input, &first) && add_node(work, &numbers, index, &sum.input[0]) &&
           add_node(work, &first, index, &sum.input[1]) &&
           add_node(work, &sum, index, &work->made[index][dim]);
}

/* ---- sums ---- */

static uint32_t number_of(const struct work *work, uint32_t node)
{
    uint32_t number = 0;
    while (work->partition->sums[number] != node)
        number++;
    return number;
}

/* A sum as it is by now. */
static bool add_sum(struct work *work, uint32_t index, uint32_t *added)
{
    const struct kiln__node *from = &work->graph->nodes.items[index];
    struct kiln__node node = {.kind = KILN__IMPORT, .type = from->type, .shape = from->shape};
    const struct kiln__micro_batch_input input = {.sum = number_of(work, index) + 1};
    return add_input(work, &input, &node) && add_node(work, &node, index, added);
}

static bool add_constant(struct work *work, uint32_t index, const struct kiln__shape *shape,
                         double value, uint32_t *added)
{
    const struct kiln__node node = {.kind = KILN__CONSTANT,
                                    .type = work->graph->nodes.items[index].type,
                                    .shape = *shape,
                                    .value = value};
    return add_node(work, &node, index, added);
}

static bool add_pair(struct work *work, uint32_t index, uint8_t op, uint32_t a, uint32_t b,
                     uint32_t *added)
{
    const struct kiln__node *from = &work->graph->nodes.items[index];
    const struct kiln__node node = {.kind = KILN__ELEMENTWISE,
                                    .op = op,
                                    .type = from->type,
                                    .n_inputs = 2,
                                    .input = {a, b},
                                    .shape = from->shape};
    return add_node(work, &node, index, added);
}

/* How what rows come to is put together. */
static uint8_t joining(const struct kiln__node *node)
{
    if (node->kind != KILN__REDUCE)
        return KILN__OP_add;
    switch (kiln__reduce_rows[node->op].kind) {
    case KILN__REDUCES_PRODUCT: return KILN__OP_mul;
    case KILN__REDUCES_LARGEST: return KILN__OP_maximum;
    case KILN__REDUCES_SMALLEST: return KILN__OP_minimum;
    default: return KILN__OP_add;
    }
}

static bool begin_sum(struct work *work, uint32_t index)
{
    const struct kiln__node *node = &work->graph->nodes.items[index];
    const struct kiln__micro_batch_result result = {.sum = number_of(work, index) + 1};
    uint32_t first = 0;
    double value = node->kind == KILN__REDUCE
                       ? kiln__identity_value(kiln__reduce_rows[node->op].identity, node->type)
                       : 0;
    if (node->kind == KILN__SCATTER)
        first = operand(work, node->input[KILN__SCATTER_BASE], KILN__BATCH_AXIS_ALL);
    else if (!add_constant(work, index, &node->shape, value, &first))
        return false;
    return add_result(work, &result, first, KILN__EXPORT, 0);
}

/* A mean is the sum of what parts have, each counting as much as it has of all rows. */
static bool micro_batch_weigh(struct work *work, uint32_t index, uint32_t *partial)
{
    const struct kiln__node *node = &work->graph->nodes.items[index];
    uint32_t share;
    double value = (double)work->what->part / (double)work->partition->rows;
    if (node->kind != KILN__REDUCE || kiln__reduce_rows[node->op].kind != KILN__REDUCES_MEAN)
        return true;
    return add_constant(work, index, &(struct kiln__shape){0}, value, &share) &&
           add_pair(work, index, KILN__OP_mul, *partial, share, partial);
}

/* The sum so far and what these rows add to it, left where it was. */
static bool go_on(struct work *work, uint32_t index)
{
    const struct kiln__node *from = &work->graph->nodes.items[index];
    struct kiln__node node = *from;
    const struct kiln__micro_batch_result result = {.sum = number_of(work, index) + 1};
    uint32_t before, after;
    if (!add_sum(work, index, &before))
        return false;
    uint32_t replaces = (uint32_t)work->cut->inputs.count;
    for (unsigned k = 0; k < node.n_inputs; k++) {
        int dim = kiln__batch_axis_summed(work->graph, index, k, work->partition->sum[index]);
        node.input[k] = dim < 0 ? before : operand(work, from->input[k], dim);
    }
    if (!add_node(work, &node, index, &after))
        return false;
    bool added =
        node.kind == KILN__SCATTER || (micro_batch_weigh(work, index, &after) &&
                                       add_pair(work, index, joining(from), before, after, &after));
    return added && add_result(work, &result, after, KILN__EXPORT, replaces);
}

static bool build_node(struct work *work, uint32_t i)
{
    uint16_t needs = work->needs[i];
    if (is_summed(work, i))
        return work->what->kind == KILN__MICRO_BATCH_BEGIN ? begin_sum(work, i) : go_on(work, i);
    if (is_complete(work, i))
        return !needs || add_sum(work, i, &work->made[i][WHOLE]);
    for (uint32_t d = 0; d <= WHOLE; d++) {
        bool numbers = d < WHOLE && work->graph->nodes.items[i].kind == KILN__IOTA;
        if ((needs >> d & 1) && !(numbers ? add_numbers(work, i, d) : micro_batch_add(work, i, d)))
            return false;
    }
    return true;
}

/* 1 + the input of the new graph that is all of the same one as this of the whole; 0: none. */
static uint32_t find_replaced(const struct work *work, uint32_t replaces)
{
    for (uint32_t i = 0; replaces && i < work->cut->inputs.count; i++) {
        const struct kiln__micro_batch_input *input = &work->cut->inputs.items[i];
        if (!input->rows && !input->numbers && !input->sum && input->binding == replaces - 1)
            return i + 1;
    }
    return 0;
}

static bool build(struct work *work)
{
    struct kiln__graph *graph = &work->cut->graph;
    for (uint32_t i = 0; i < work->graph->nodes.count; i++)
        if (!build_node(work, i))
            return false;
    graph->batch_invariant = work->graph->batch_invariant;
    for (size_t i = 0; i < work->graph->requests.count; i++) {
        const struct kiln__request *from = &work->graph->requests.items[i];
        int how = delivery(work, from);
        struct kiln__micro_batch_result result = {.binding = i, .rows = how != WHOLE};
        graph->batch_invariant = graph->batch_invariant || (how >= 0 && result.rows);
        if (how >= 0 && !add_result(work, &result, work->made[from->node][how], from->kind,
                                    result.rows ? 0 : find_replaced(work, from->replaces)))
            return false;
    }
    return true;
}

bool kiln__micro_batch_graph_make(const struct kiln__partition *partition,
                                  const struct kiln__micro_batch_what *what,
                                  struct kiln__micro_batch_graph *cut)
{
    size_t count = partition->graph->nodes.count + 1;
    struct work work = {
        .partition = partition, .graph = partition->graph, .what = what, .cut = cut};
    *cut = (struct kiln__micro_batch_graph){.wrong = KILN__MICRO_BATCH_FINE};
    work.needs = calloc(count, sizeof *work.needs);
    work.made = calloc(count, sizeof *work.made);
    bool made = work.needs && work.made;
    if (made)
        find_needs(&work);
    made = made && build(&work);
    free(work.needs);
    free(work.made);
    return made;
}

void kiln__micro_batch_graph_free(struct kiln__micro_batch_graph *cut)
{
    kiln__graph_free(&cut->graph);
    kiln__vector_free(&cut->inputs);
    kiln__vector_free(&cut->results);
    kiln__vector_free(&cut->of);
}
