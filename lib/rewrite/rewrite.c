/* SPDX-License-Identifier: Apache-2.0 */
/* Driver of a pass: maps old nodes to new ones, counts uses, and lets the pass's rule replace
 * nodes. */
#include "rewrite/rewrite.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/format.h"

uint32_t kiln__rewrite_add(struct kiln__rewrite *rewrite, const struct kiln__node *node)
{
    uint32_t index;
    uint32_t *uses = kiln__vector_push(&rewrite->uses);
    if (!uses || !kiln__graph_add(rewrite->to, node, &index))
        return KILN__NO_NODE;
    bool chained = node->kind == KILN__INSERT_SLICE && node->n_inputs > 1;
    if (chained && !kiln__rewrite_add_link(rewrite, index))
        return KILN__NO_NODE;
    return index;
}

void kiln__rewrite_log(struct kiln__rewrite *rewrite, const char *format, ...)
{
    if (!rewrite->log)
        return;
    char words[200];
    va_list arguments;
    va_start(arguments, format);
    kiln__vformat(words, sizeof words, format, arguments);
    va_end(arguments);
    kiln__text_add(rewrite->log, "  %%%u %s: %s\n", rewrite->current,
                   kiln__node_name(&rewrite->from->nodes.items[rewrite->current]), words);
}

/* How many live nodes and requests use each node; 0 is dead. */
static void count_uses(const struct kiln__graph *graph, uint32_t *uses)
{
    for (size_t i = 0; i < graph->requests.count; i++)
        uses[graph->requests.items[i].node]++;
    for (size_t i = graph->nodes.count; i-- > 0;) {
        const struct kiln__node *node = &graph->nodes.items[i];
        for (unsigned k = 0; uses[i] && k < node->n_inputs; k++)
            uses[node->input[k]]++;
    }
}

/* Movements that are looked through for where elements are. */
#define LONGEST_WAY 16

/* Strides through the movements at `index` down to what they move, which lies row-major. False if
 * none say them. */
static bool find_strides(const struct kiln__graph *graph, uint32_t index,
                         int64_t stride[KILN_MAX_RANK])
{
    const struct kiln__node *way[LONGEST_WAY], *node = &graph->nodes.items[index];
    unsigned length = 0;
    for (; kiln__node_is_movement(node); node = kiln__graph_input(graph, node, 0)) {
        if (length == LONGEST_WAY)
            return false;
        way[length++] = node;
    }
    kiln__shape_strides(&node->shape, stride);
    while (length-- > 0) {
        int64_t strides_below[KILN_MAX_RANK];
        const struct kiln__shape *shape = &graph->nodes.items[way[length]->input[0]].shape;
        memcpy(strides_below, stride, sizeof strides_below);
        if (way[length]->kind == KILN__RESHAPE &&
            !kiln__shape_restride(shape, strides_below, &way[length]->shape, stride))
            return false;
        for (uint32_t k = 0; way[length]->kind == KILN__VIEW && k < way[length]->shape.rank; k++) {
            int d = way[length]->view.source[k];
            stride[k] = d < 0 ? 0 : way[length]->view.step[k] * strides_below[d];
        }
    }
    return true;
}

/* Who of those that read the node reads what it is of: all do through a movement. To the type that
 * a narrow value is computed with casts whoever loads it, from where it lies; but what is copied
 * before it can be read is cast on the way. */
static uint8_t reads_through(const struct kiln__graph *graph, const struct kiln__node *node,
                             uint8_t readers)
{
    int64_t stride[KILN_MAX_RANK];
    if (kiln__node_is_movement(node))
        return readers;
    if (!readers || node->kind != KILN__CAST)
        return 0;
    const struct kiln__node *input = kiln__graph_input(graph, node, 0);
    if (node->type != kiln__node_computed(input) || node->type == input->type ||
        !find_strides(graph, node->input[0], stride))
        return 0;
    if (readers & KILN__READ_BY_PRODUCT &&
        (node->shape.rank < 2 || !kiln__shape_suits_matmul(&node->shape, stride)))
        readers |= KILN__READ_ONCE_COPIED;
    return readers;
}

static void mark_operands(const struct kiln__graph *graph, uint8_t *readers)
{
    for (size_t i = graph->nodes.count; i-- > 0;) {
        const struct kiln__node *node = &graph->nodes.items[i];
        uint8_t own = node->kind == KILN__MATMUL      ? KILN__READ_BY_PRODUCT
                      : node->kind == KILN__ATTENTION ? KILN__READ_BY_ATTENTION
                                                      : reads_through(graph, node, readers[i]);
        for (unsigned k = 0; k < node->n_inputs; k++)
            readers[node->input[k]] |= own;
    }
}

void kiln__rewrite_replace(struct kiln__rewrite *rewrite, uint32_t from, uint32_t to)
{
    if (rewrite->map[from] != KILN__NO_NODE)
        return;
    rewrite->map[from] = to;
    rewrite->uses.items[to] += rewrite->from_uses[from];
}

uint32_t kiln__rewrite_copy(struct kiln__rewrite *rewrite, uint32_t index)
{
    if (rewrite->map[index] != KILN__NO_NODE)
        return rewrite->map[index];
    struct kiln__node node = rewrite->from->nodes.items[index];
    for (unsigned k = 0; k < node.n_inputs; k++) {
        node.input[k] = kiln__rewrite_copy(rewrite, node.input[k]);
        if (node.input[k] == KILN__NO_NODE)
            return KILN__NO_NODE;
    }
    uint32_t current = rewrite->current;
    rewrite->current = index;
    uint32_t copy = rewrite->rule(rewrite, &node);
    rewrite->current = current;
    if (copy != KILN__NO_NODE)
        kiln__rewrite_replace(rewrite, index, copy);
    return copy;
}

static bool copy_nodes(struct kiln__rewrite *rewrite)
{
    for (uint32_t i = 0; i < rewrite->from->nodes.count; i++) {
        rewrite->current = i;
        if (!rewrite->from_uses[i]) {
            if (!kiln__node_is_input(&rewrite->from->nodes.items[i]))
                kiln__rewrite_log(rewrite, "dropped, nobody asks for it");
            continue;
        }
        if (kiln__rewrite_copy(rewrite, i) == KILN__NO_NODE)
            return false;
    }
    return true;
}

uint32_t kiln__rewrite_clone_at(struct kiln__rewrite *rewrite, uint32_t index,
                                const struct kiln__node *node)
{
    uint32_t copy = kiln__rewrite_add(rewrite, node);
    if (!kiln__vector_add(&rewrite->to->sunk_copies, (struct kiln__sunk_copy){index, copy}))
        return KILN__NO_NODE;
    return copy;
}

/* The node of `to` for one of `from`, or for what replaces it. */
static uint32_t what_became(const struct kiln__rewrite *rewrite, const uint32_t *successors,
                            uint32_t index)
{
    while (!rewrite->from_uses[index] && successors[index])
        index = successors[index] - 1;
    return rewrite->from_uses[index] ? rewrite->map[index] : KILN__DROPPED;
}

/* What has become of the recorded nodes, which are those of `from` before the first pass. */
static bool follow_recorded(const struct kiln__rewrite *rewrite, struct kiln__graph *from)
{
    bool is_recorded = from->became.count == 0;
    uint32_t *successors =
        calloc(from->nodes.count + 1, sizeof *successors); /* 1 + each; always later */
    bool done = successors && kiln__vector_reserve(&from->became, from->nodes.count);
    for (size_t i = 0; done && i < from->sunk_copies.count; i++)
        successors[from->sunk_copies.items[i].node] = 1 + from->sunk_copies.items[i].copy;
    for (uint32_t i = 0; is_recorded && done && i < from->nodes.count; i++)
        done = kiln__vector_add(&from->became, i);
    for (size_t i = 0; done && i < from->became.count; i++)
        if (from->became.items[i] != KILN__DROPPED)
            from->became.items[i] = what_became(rewrite, successors, from->became.items[i]);
    rewrite->to->became = from->became;
    memset(&from->became, 0, sizeof from->became);
    free(successors);
    return done;
}

/* Its memory stays. */
static void forget_nodes(struct kiln__graph *graph)
{
    kiln__graph_drop_calls(graph);
    graph->nodes.count = graph->requests.count = graph->became.count = graph->sunk_copies.count = 0;
    graph->rematerialised.count = 0;
}

bool kiln__rewrite_run(struct kiln__graph *graph, struct kiln__graph *spare, kiln__rule *rule,
                       const struct kiln__kernel_support *support, struct kiln__text *log)
{
    struct kiln__graph to = *spare;
    *spare = (struct kiln__graph){0};
    forget_nodes(&to);
    to.batch_invariant = graph->batch_invariant;
    size_t count = graph->nodes.count + 1; /* calloc(0) may answer NULL */
    struct kiln__rewrite rewrite = {
        .from = graph, .to = &to, .rule = rule, .support = support, .log = log};
    rewrite.map = malloc(count * sizeof *rewrite.map);
    rewrite.from_uses = calloc(count, sizeof *rewrite.from_uses);
    rewrite.readers = calloc(count, sizeof *rewrite.readers);
    bool done = rewrite.map && rewrite.from_uses && rewrite.readers &&
                kiln__vector_reserve(&to.nodes, count) &&
                kiln__vector_reserve(&rewrite.uses, count) &&
                kiln__vector_reserve(&to.requests, graph->requests.count);
    if (done) {
        memset(rewrite.map, 0xff, count * sizeof *rewrite.map);
        count_uses(graph, rewrite.from_uses);
        mark_operands(graph, rewrite.readers);
    }
    done = done && copy_nodes(&rewrite) && kiln__graph_pass_requests(graph, rewrite.map, &to) &&
           follow_recorded(&rewrite, graph);
    free(rewrite.map);
    free(rewrite.from_uses);
    free(rewrite.readers);
    free(rewrite.table);
    kiln__rewrite_free_merge(&rewrite);
    kiln__rewrite_free_narrow(&rewrite);
    kiln__rewrite_free_pads(&rewrite);
    kiln__vector_free(&rewrite.uses);
    kiln__vector_free(&rewrite.sunk);
    kiln__vector_free(&rewrite.links);
    if (!done) {
        kiln__graph_free(&to);
        return false;
    }
    *spare = *graph;
    *graph = to;
    return true;
}
