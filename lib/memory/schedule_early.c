/* SPDX-License-Identifier: Apache-2.0 */
/* What is only delivered is computed as soon as it can be: new weights right behind the gradients
 * that they are made of, which then need not wait in memory for each other. The kernels stay the
 * same ones. */
#include <stdlib.h>

#include "memory/rematerialise.h"

struct place {
    uint32_t behind; /* the node that it comes behind: itself where it stays */
    uint32_t node;
};

struct early {
    const struct kiln__plan *plan;
    bool *advances; /* per node: maps that only results are made of */
    struct place *places;
    uint32_t *now; /* per node: its number in the new graph */
};

/* Whether the kernel that computes a root is begun by such a node. */
static bool may_move(const struct early *early, uint32_t index)
{
    const struct kiln__fusion *fusion = &early->plan->fusion;
    const struct kiln__node *node = &fusion->graph.nodes.items[index];
    uint32_t group = fusion->group_of[index];
    if (!kiln__node_is_pointwise(node) && !kiln__node_is_movement(node))
        return false;
    return group == KILN__NO_GROUP || fusion->groups.items[group].kind == KILN__GROUP_MAP;
}

static void find_advancing(struct early *early)
{
    const struct kiln__fusion *fusion = &early->plan->fusion;
    const struct kiln__graph *graph = &fusion->graph;
    bool *advances = early->advances;
    for (size_t i = 0; i < graph->requests.count; i++)
        advances[graph->requests.items[i].node] = true;
    for (uint32_t i = (uint32_t)graph->nodes.count; i-- > 0;)
        for (unsigned k = 0; k < graph->nodes.items[i].n_inputs; k++)
            advances[graph->nodes.items[i].input[k]] = true;
    for (uint32_t i = (uint32_t)graph->nodes.count; i-- > 0;) {
        advances[i] = advances[i] && may_move(early, i);
        for (unsigned k = 0; !advances[i] && k < graph->nodes.items[i].n_inputs; k++)
            advances[graph->nodes.items[i].input[k]] = false;
    }
}

static int compare(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->behind != y->behind)
        return x->behind < y->behind ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

/* Inputs come first: nothing comes behind a later node than what is made of it does. */
static void sort(struct early *early)
{
    const struct kiln__graph *graph = &early->plan->fusion.graph;
    size_t count = graph->nodes.count;
    for (uint32_t i = 0; i < count; i++) {
        const struct kiln__node *node = &graph->nodes.items[i];
        bool moves = early->advances[i] || !node->n_inputs;
        early->places[i] = (struct place){moves ? 0 : i, i};
        for (unsigned k = 0; early->advances[i] && k < node->n_inputs; k++) {
            uint32_t behind = early->places[node->input[k]].behind;
            if (behind > early->places[i].behind)
                early->places[i].behind = behind;
        }
    }
    qsort(early->places, count, sizeof *early->places, compare);
    for (uint32_t i = 0; i < count; i++)
        early->now[early->places[i].node] = i;
}

/* What has moved joins nothing that it did not before. */
static bool add_node(const struct early *early, uint32_t index, uint32_t *since,
                     struct kiln__graph *to)
{
    const struct kiln__graph *from = &early->plan->fusion.graph;
    uint32_t was = early->places[index].node, at;
    struct kiln__node node = from->nodes.items[was];
    struct kiln__rematerialised *mark = kiln__vector_push(&to->rematerialised);
    for (unsigned k = 0; k < node.n_inputs; k++)
        node.input[k] = early->now[node.input[k]];
    if (!mark || !kiln__graph_add(to, &node, &at))
        return false;
    *since = early->advances[was] ? *since : index + 1;
    if (early->advances[was])
        mark->since = *since;
    return true;
}

bool kiln__plan_schedule_early(const struct kiln__plan *plan, struct kiln__graph *to)
{
    const struct kiln__graph *from = &plan->fusion.graph;
    size_t count = from->nodes.count;
    struct early early = {.plan = plan};
    uint32_t since = 0;
    *to = (struct kiln__graph){.batch_invariant = from->batch_invariant};
    early.advances = calloc(count + 1, sizeof *early.advances);
    early.places = malloc((count + 1) * sizeof *early.places);
    early.now = malloc((count + 1) * sizeof *early.now);
    bool done = early.advances && early.places && early.now;
    if (done) {
        find_advancing(&early);
        sort(&early);
    }
    for (uint32_t i = 0; i < count && done; i++)
        done = add_node(&early, i, &since, to);
    done = done && kiln__graph_pass_requests(from, early.now, to);
    for (size_t i = 0; i < from->became.count && done; i++) {
        const uint32_t was = from->became.items[i];
        done = kiln__vector_add(&to->became, was == KILN__DROPPED ? was : early.now[was]);
    }
    free(early.advances);
    free(early.places);
    free(early.now);
    return done;
}
