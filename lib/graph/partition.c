/* SPDX-License-Identifier: Apache-2.0 */
/* Assignment of each node to a phase of micro-batches, by the reductions over the batch axis
 * between them. */
#include "graph/partition.h"

#include <stdlib.h>

#include "graph/batch_axis.h"

struct work {
    struct kiln__partition *partition;
    const struct kiln__node *nodes;
    bool *needed,
        *free;        /* per node: made of constants alone, which have rows where one wants them */
    uint8_t *rows_of; /* per node: where it has rows, or may have them */
};

/* Elements' numbers begin with an i32 in each part. Blocks are not cut, nor is what an own kernel
 * makes of nothing. */
static bool leaf_has(const struct kiln__node *node, uint32_t dim)
{
    return node->kind == KILN__CONSTANT ||
           (node->kind != KILN__CUSTOM && kiln__batch_axis_is_outermost(&node->shape, dim) &&
            (!kiln__node_has_blocks(node) || dim + 1 < node->shape.rank) &&
            (node->kind != KILN__IOTA || kiln__node_count(node) <= INT32_MAX));
}

/* Whether a node can be had by rows along a dimension, and whether it depends on an input's. */
static void look_along(struct work *work, uint32_t i, uint32_t dim)
{
    struct kiln__partition *partition = work->partition;
    const struct kiln__node *node = &work->nodes[i];
    bool possible = node->n_inputs || leaf_has(node, dim);
    bool marked = !node->n_inputs && node->kind != KILN__CONSTANT && possible;
    for (unsigned k = 0; k < node->n_inputs && possible; k++) {
        int own = kiln__batch_axis(partition->graph, i, k, dim, partition->rows);
        possible = own == KILN__BATCH_AXIS_ALL ||
                   (own >= 0 && (partition->possible[node->input[k]] >> own & 1));
        marked = marked || (own >= 0 && (partition->marked[node->input[k]] >> own & 1));
    }
    partition->possible[i] |= (uint8_t)(possible << dim);
    partition->marked[i] |= (uint8_t)((possible && marked) << dim);
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
    struct kiln__partition *partition = work->partition;
    const struct kiln__node *node = &work->nodes[i];
    work->free[i] = is_free(work, node);
    for (unsigned k = 0; k < node->n_inputs; k++) {
        uint32_t level = partition->level[node->input[k]] + (partition->sum[node->input[k]] != 0);
        if (partition->level[i] < level)
            partition->level[i] = level;
    }
    if (with_sums && !work->free[i] && work->needed[i])
        partition->sum[i] = (uint8_t)kiln__batch_axis_sum(partition->graph, i, work->rows_of);
    for (uint32_t d = 0; d < node->shape.rank && !partition->sum[i]; d++)
        if (kiln__batch_axis_has(&node->shape, d, partition->rows))
            look_along(work, i, d);
    work->rows_of[i] = work->free[i] ? partition->possible[i] : partition->marked[i];
    if (partition->sum[i])
        partition->sums[partition->n_sums++] = i;
}

static void count_phases(struct kiln__partition *partition)
{
    const struct kiln__graph *graph = partition->graph;
    for (size_t i = 0; i < partition->n_sums; i++)
        if (partition->phases <= partition->level[partition->sums[i]])
            partition->phases = partition->level[partition->sums[i]] + 1;
    for (size_t i = 0; i < graph->requests.count; i++) {
        uint32_t node = graph->requests.items[i].node;
        if (kiln__partition_axis(partition, node) >= 0 &&
            partition->phases <= partition->level[node])
            partition->phases = partition->level[node] + 1;
    }
}

bool kiln__partition_make(const struct kiln__graph *graph, size_t rows, bool with_sums,
                          struct kiln__partition *partition)
{
    size_t count = graph->nodes.count + 1;
    struct work work = {.partition = partition, .nodes = graph->nodes.items};
    *partition = (struct kiln__partition){.graph = graph, .rows = rows};
    work.needed = kiln__graph_needed(graph);
    work.free = calloc(count, sizeof *work.free);
    work.rows_of = calloc(count, sizeof *work.rows_of);
    partition->possible = calloc(count, sizeof *partition->possible);
    partition->marked = calloc(count, sizeof *partition->marked);
    partition->sum = calloc(count, sizeof *partition->sum);
    partition->level = calloc(count, sizeof *partition->level);
    partition->sums = calloc(count, sizeof *partition->sums);
    bool made = work.needed && work.free && work.rows_of && partition->possible &&
                partition->marked && partition->sum && partition->level && partition->sums;
    for (uint32_t i = 0; made && i < graph->nodes.count; i++)
        look_at(&work, i, with_sums);
    if (made)
        count_phases(partition);
    free(work.needed);
    free(work.free);
    free(work.rows_of);
    return made;
}

void kiln__partition_free(struct kiln__partition *partition)
{
    free(partition->possible);
    free(partition->marked);
    free(partition->sum);
    free(partition->level);
    free(partition->sums);
    *partition = (struct kiln__partition){0};
}

int kiln__partition_axis(const struct kiln__partition *partition, uint32_t node)
{
    const struct kiln__shape *shape = &partition->graph->nodes.items[node].shape;
    for (uint32_t d = 0; d < shape->rank; d++)
        if ((partition->possible[node] >> d & 1) && kiln__batch_axis_is_outermost(shape, d))
            return (int)d;
    return -1;
}

double kiln__partition_bytes(const struct kiln__partition *partition)
{
    double bytes = 0;
    for (uint32_t i = 0; i < partition->graph->nodes.count; i++) {
        const struct kiln__node *node = &partition->graph->nodes.items[i];
        bytes += node->n_inputs && partition->marked[i] ? (double)kiln__node_bytes(node) : 0;
    }
    return bytes;
}

/* ---- which rows ---- */

/* How many rows an input has; 0: none. */
static size_t rows_of_input(const struct kiln__node *node)
{
    uint32_t d = 0;
    while (d < node->shape.rank && node->shape.dims[d] == 1)
        d++;
    bool is = !node->n_inputs && node->kind != KILN__CONSTANT && d < node->shape.rank;
    return is ? node->shape.dims[d] : 0;
}

struct choice {
    size_t rows;
    double bytes; /* that are computed by these rows */
};

bool kiln__partition_rows(const struct kiln__graph *graph, size_t tried[KILN__MOST_TRIED])
{
    struct choice chosen[KILN__MOST_TRIED];
    for (size_t i = 0; i < KILN__MOST_TRIED; i++)
        chosen[i] = (struct choice){0, -1};
    for (size_t i = 0; i < graph->nodes.count; i++) {
        struct choice own = {rows_of_input(&graph->nodes.items[i]), 0};
        struct kiln__partition partition;
        bool known = own.rows < 2;
        for (size_t k = 0; k < KILN__MOST_TRIED; k++)
            known = known || chosen[k].rows == own.rows;
        if (known)
            continue;
        bool made = kiln__partition_make(graph, own.rows, true, &partition);
        own.bytes = made ? kiln__partition_bytes(&partition) : 0;
        kiln__partition_free(&partition);
        if (!made)
            return false;
        for (size_t k = 0; k < KILN__MOST_TRIED; k++)
            if (own.bytes > chosen[k].bytes) {
                struct choice worse = chosen[k];
                chosen[k] = own;
                own = worse;
            }
    }
    for (size_t i = 0; i < KILN__MOST_TRIED; i++)
        tried[i] = chosen[i].rows;
    return true;
}

bool kiln__partition_delivers(const struct kiln__partition *partition, bool whole)
{
    const struct kiln__graph *graph = partition->graph;
    for (size_t i = 0; i < graph->requests.count; i++) {
        const int axis = kiln__partition_axis(partition, graph->requests.items[i].node);
        if (whole ? axis != 0 : axis >= 0)
            return !whole;
    }
    return whole;
}

uint32_t kiln__partition_phase(const struct kiln__partition *partition, size_t result)
{
    const uint32_t node = partition->graph->requests.items[result].node;
    return kiln__partition_axis(partition, node) < 0 ? partition->phases : partition->level[node];
}
