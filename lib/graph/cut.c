/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/cut.h"

#include <stdlib.h>

/* What is needed of a value. Both may be: it is computed twice then. */
enum need { NOTHING = 0, ROWS = 1, WHOLE = 2, IMPOSSIBLE = 4 };

struct work {
    const struct kiln__graph *graph;
    size_t rows, part;
    uint8_t *needs;     /* per node */
    uint32_t *by_rows;  /* per node: in the new graph */
    uint32_t *as_whole; /* the same */
    struct kiln__cut *cut;
};

static bool has_rows(const struct kiln__shape *shape, size_t rows)
{
    return shape->rank && shape->dims[0] && shape->dims[0] % rows == 0;
}

size_t kiln__cut_rows(const struct kiln__graph *graph)
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

/* ---- what rows of a node need ---- */

static bool same_rows(const struct kiln__shape *a, const struct kiln__shape *b)
{
    return a->rank && b->rank && a->dims[0] == b->dims[0];
}

/* Row i of the view, or of a place's part, is in row i of the input; no other dimension goes over
 * rows. */
static bool keeps_rows(const struct kiln__view *view, const struct kiln__shape *shape,
                       const struct kiln__shape *input)
{
    for (uint32_t i = 1; i < shape->rank; i++)
        if (view->source[i] == 0 && view->step[i])
            return false;
    return same_rows(shape, input) && view->source[0] == 0 && view->step[0] == 1 &&
           view->start[0] == 0;
}

static enum need of_view(const struct kiln__node *node, const struct kiln__shape *input)
{
    if (keeps_rows(&node->view, &node->shape, input))
        return ROWS;
    return node->view.source[0] < 0 || node->view.step[0] == 0 ? WHOLE : IMPOSSIBLE;
}

static enum need of_product(const struct kiln__node *node, unsigned k)
{
    return node->shape.rank > 2 || k == 0 ? ROWS : WHOLE;
}

static enum need of_gather(const struct kiln__node *node, const struct kiln__shape *input,
                           unsigned k)
{
    if (node->axis)
        return k == 0 ? ROWS : WHOLE;
    return k == 0 ? WHOLE : input->rank ? ROWS : IMPOSSIBLE;
}

static enum need of_scatter(const struct kiln__node *node, unsigned k)
{
    return !node->axis ? IMPOSSIBLE : k == KILN__SCATTER_INDICES ? WHOLE : ROWS;
}

static enum need of_place(const struct work *work, const struct kiln__node *node, unsigned k)
{
    const struct kiln__shape *part = &work->graph->nodes.items[node->input[0]].shape;
    return k || keeps_rows(&node->view, part, &node->shape) ? ROWS : IMPOSSIBLE;
}

/* What rows of a node need of its operand `k`. */
static enum need need_of(const struct work *work, const struct kiln__node *node, unsigned k)
{
    const struct kiln__shape *input = &work->graph->nodes.items[node->input[k]].shape;
    switch (node->kind) {
    case KILN__ELEMENTWISE:
    case KILN__CAST:
        return input->rank == node->shape.rank && same_rows(input, &node->shape) ? ROWS : WHOLE;
    case KILN__REDUCE:
    case KILN__SCAN: return node->axes & 1 ? IMPOSSIBLE : ROWS;
    case KILN__VIEW: return of_view(node, input);
    case KILN__RESHAPE: return has_rows(input, work->rows) ? ROWS : IMPOSSIBLE;
    case KILN__MATMUL: return of_product(node, k);
    case KILN__ATTENTION: return node->shape.rank > 2 ? ROWS : IMPOSSIBLE;
    case KILN__PLACE: return of_place(work, node, k);
    case KILN__GATHER: return of_gather(node, input, k);
    case KILN__SCATTER: return of_scatter(node, k);
    case KILN__SORT: return node->shape.rank > 1 ? ROWS : IMPOSSIBLE;
    default: return IMPOSSIBLE;
    }
}

/* What a part's numbers begin with is one as well. */
static bool has_numbers(const struct kiln__node *node)
{
    return kiln__node_count(node) <= INT32_MAX;
}

/* From users to operands. False: `wrong` cannot be had. */
static bool find_needs(struct work *work)
{
    for (size_t i = 0; i < work->graph->requests.count; i++)
        work->needs[work->graph->requests.items[i].node] |= ROWS;
    for (uint32_t i = (uint32_t)work->graph->nodes.count; i-- > 0;) {
        const struct kiln__node *node = &work->graph->nodes.items[i];
        bool possible =
            !(work->needs[i] & ROWS) ||
            (has_rows(&node->shape, work->rows) && (node->kind != KILN__IOTA || has_numbers(node)));
        for (unsigned k = 0; k < node->n_inputs; k++) {
            uint8_t *operand = &work->needs[node->input[k]];
            if (work->needs[i] & WHOLE)
                *operand |= WHOLE;
            if (work->needs[i] & ROWS)
                *operand |= need_of(work, node, k);
            possible = possible && !(*operand & IMPOSSIBLE);
        }
        work->cut->wrong = i;
        if (!possible)
            return false;
    }
    return true;
}

/* ---- the new graph ---- */

/* A node that stands for node `of` of the whole. */
static bool add_node(struct work *work, const struct kiln__node *node, uint32_t of, uint32_t *index)
{
    uint32_t *place = kiln__vector_push(&work->cut->of);
    if (!place)
        return false;
    *place = of;
    return kiln__graph_add(&work->cut->graph, node, index);
}

static bool add(struct work *work, uint32_t index, bool rows)
{
    const struct kiln__node *from = &work->graph->nodes.items[index];
    struct kiln__node node = *from;
    if (rows)
        node.shape.dims[0] = from->shape.dims[0] / work->rows * work->part;
    for (unsigned k = 0; k < from->n_inputs; k++)
        node.input[k] = rows && need_of(work, from, k) == ROWS ? work->by_rows[from->input[k]]
                                                               : work->as_whole[from->input[k]];
    if (kiln__node_is_input(from)) {
        struct kiln__cut_input *input = kiln__vector_push(&work->cut->inputs);
        if (!input)
            return false;
        *input = (struct kiln__cut_input){from->binding, rows, 0};
        node.binding = work->cut->inputs.count - 1;
    }
    return add_node(work, &node, index, rows ? &work->by_rows[index] : &work->as_whole[index]);
}

/* Elements count from the part's first one, and what is before it comes as an input. */
static bool add_numbers(struct work *work, uint32_t index)
{
    const struct kiln__node *from = &work->graph->nodes.items[index];
    struct kiln__node numbers = *from, first = {.kind = KILN__UPLOAD, .type = KILN_I32};
    struct kiln__node sum = {
        .kind = KILN__ELEMENTWISE, .op = KILN__OP_add, .type = KILN_I32, .n_inputs = 2};
    struct kiln__cut_input *input = kiln__vector_push(&work->cut->inputs);
    if (!input)
        return false;
    *input = (struct kiln__cut_input){.numbers = kiln__node_count(from) / work->rows};
    first.binding = work->cut->inputs.count - 1;
    numbers.shape.dims[0] = from->shape.dims[0] / work->rows * work->part;
    sum.shape = numbers.shape;
    return add_node(work, &numbers, index, &sum.input[0]) &&
           add_node(work, &first, index, &sum.input[1]) &&
           add_node(work, &sum, index, &work->by_rows[index]);
}

static bool add_rows(struct work *work, uint32_t index)
{
    return work->graph->nodes.items[index].kind == KILN__IOTA ? add_numbers(work, index)
                                                              : add(work, index, true);
}

static bool build(struct work *work)
{
    struct kiln__graph *graph = &work->cut->graph;
    graph->alike = true;
    for (uint32_t i = 0; i < work->graph->nodes.count; i++)
        if (((work->needs[i] & WHOLE) && !add(work, i, false)) ||
            ((work->needs[i] & ROWS) && !add_rows(work, i)))
            return false;
    for (size_t i = 0; i < work->graph->requests.count; i++) {
        struct kiln__request *request = kiln__vector_push(&graph->requests);
        if (!request)
            return false;
        *request = work->graph->requests.items[i];
        request->node = work->by_rows[request->node];
        request->replaces = 0;
    }
    return true;
}

enum kiln__cut_answer kiln__cut_make(const struct kiln__graph *graph, size_t rows, size_t part,
                                     struct kiln__cut *cut)
{
    size_t count = graph->nodes.count + 1;
    struct work work = {.graph = graph, .rows = rows, .part = part, .cut = cut};
    *cut = (struct kiln__cut){0};
    work.needs = calloc(count, sizeof *work.needs);
    work.by_rows = calloc(count, sizeof *work.by_rows);
    work.as_whole = calloc(count, sizeof *work.as_whole);
    enum kiln__cut_answer answer = KILN__CUT_NO_MEMORY;
    if (work.needs && work.by_rows && work.as_whole)
        answer = !find_needs(&work) ? KILN__CUT_IMPOSSIBLE
                 : build(&work)     ? KILN__CUT_DONE
                                    : KILN__CUT_NO_MEMORY;
    free(work.needs);
    free(work.by_rows);
    free(work.as_whole);
    return answer;
}

void kiln__cut_free(struct kiln__cut *cut)
{
    kiln__graph_free(&cut->graph);
    kiln__vector_free(&cut->inputs);
    kiln__vector_free(&cut->of);
}
