/* SPDX-License-Identifier: Apache-2.0 */
/* Assignment of each node to a phase of micro-batches, by the reductions over the batch axis
 * between them. */
#include "graph/partition.h"

#include <stdlib.h>

#include "graph/batch_axis.h"

struct work {
    struct kiln__division *division;
    const struct kiln__node *nodes;
    bool *needed,
        *free;        /* per node: made of constants alone, which have rows where one wants them */
    uint8_t *rows_of; /* per node: where it has rows, or may have them */
};

/* Elements' numbers begin with an i32 in each part. */
static bool leaf_has(const struct kiln__node *node, uint32_t dim)
{
    return node->kind == KILN__CONSTANT ||
           (kiln__along_is_outermost(&node->shape, dim) &&
            (node->kind != KILN__IOTA || kiln__node_count(node) <= INT32_MAX));
}

/* Whether a node can be had by rows along a dimension, and whether it depends on an input's. */
static void look_along(struct work *work, uint32_t i, uint32_t dim)
{
    struct kiln__division *division = work->division;
    const struct kiln__node *node = &work->nodes[i];
    bool possible = node->n_inputs || leaf_has(node, dim);
    bool marked = !node->n_inputs && node->kind != KILN__CONSTANT && possible;
    for (unsigned k = 0; k < node->n_inputs && possible; k++) {
        int own = kiln__along(division->graph, i, k, dim, division->rows);
        possible =
            own == KILN__ALONG_ALL || (own >= 0 && (division->possible[node->input[k]] >> own & 1));
        marked = marked || (own >= 0 && (division->marked[node->input[k]] >> own & 1));
    }
    division->possible[i] |= (uint8_t)(possible << dim);
    division->marked[i] |= (uint8_t)((possible && marked) << dim);
}

static bool is_free(const struct work *work, const struct kiln__node *node)
{
    for (unsigned k = 0; k < node->n_inputs; k++)
        if (!work->free[node->input[k]])
            return false;
    return node->n_inputs || node->kind == KILN__CONSTANT;
}

/* A sum is had as a whole, when it is complete. */
static void look_at(struct work *work, uint32_t i, bool with_sums)
{
    struct kiln__division *division = work->division;
    const struct kiln__node *node = &work->nodes[i];
    work->free[i] = is_free(work, node);
    for (unsigned k = 0; k < node->n_inputs; k++) {
        uint32_t level = division->level[node->input[k]] + (division->sum[node->input[k]] != 0);
        if (division->level[i] < level)
            division->level[i] = level;
    }
    if (with_sums && !work->free[i] && work->needed[i])
        division->sum[i] = (uint8_t)kiln__along_sum(division->graph, i, work->rows_of);
    for (uint32_t d = 0; d < node->shape.rank && !division->sum[i]; d++)
        if (kiln__along_has(&node->shape, d, division->rows))
            look_along(work, i, d);
    work->rows_of[i] = work->free[i] ? division->possible[i] : division->marked[i];
    if (division->sum[i])
        division->sums[division->n_sums++] = i;
}

static void count_phases(struct kiln__division *division)
{
    const struct kiln__graph *graph = division->graph;
    for (size_t i = 0; i < division->n_sums; i++)
        if (division->phases <= division->level[division->sums[i]])
            division->phases = division->level[division->sums[i]] + 1;
    for (size_t i = 0; i < graph->requests.count; i++) {
        uint32_t node = graph->requests.items[i].node;
        if (kiln__division_along(division, node) >= 0 && division->phases <= division->level[node])
            division->phases = division->level[node] + 1;
    }
}

bool kiln__division_make(const struct kiln__graph *graph, size_t rows, bool with_sums,
                         struct kiln__division *division)
{
    size_t count = graph->nodes.count + 1;
    struct work work = {.division = division, .nodes = graph->nodes.items};
    *division = (struct kiln__division){.graph = graph, .rows = rows};
    work.needed = kiln__graph_needed(graph);
    work.free = calloc(count, sizeof *work.free);
    work.rows_of = calloc(count, sizeof *work.rows_of);
    division->possible = calloc(count, sizeof *division->possible);
    division->marked = calloc(count, sizeof *division->marked);
    division->sum = calloc(count, sizeof *division->sum);
    division->level = calloc(count, sizeof *division->level);
    division->sums = calloc(count, sizeof *division->sums);
    bool made = work.needed && work.free && work.rows_of && division->possible &&
                division->marked && division->sum && division->level && division->sums;
    for (uint32_t i = 0; made && i < graph->nodes.count; i++)
        look_at(&work, i, with_sums);
    if (made)
        count_phases(division);
    free(work.needed);
    free(work.free);
    free(work.rows_of);
    return made;
}

void kiln__division_free(struct kiln__division *division)
{
    free(division->possible);
    free(division->marked);
    free(division->sum);
    free(division->level);
    free(division->sums);
    *division = (struct kiln__division){0};
}

int kiln__division_along(const struct kiln__division *division, uint32_t node)
{
    const struct kiln__shape *shape = &division->graph->nodes.items[node].shape;
    for (uint32_t d = 0; d < shape->rank; d++)
        if ((division->possible[node] >> d & 1) && kiln__along_is_outermost(shape, d))
            return (int)d;
    return -1;
}

double kiln__division_bytes(const struct kiln__division *division)
{
    double bytes = 0;
    for (uint32_t i = 0; i < division->graph->nodes.count; i++) {
        const struct kiln__node *node = &division->graph->nodes.items[i];
        bytes += node->n_inputs && division->marked[i] ? (double)kiln__node_bytes(node) : 0;
    }
    return bytes;
}
