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

struct hastening {
    const struct kiln__plan *plan;
    bool *hasty; /* per node: maps that only results are made of */
    struct place *places;
    uint32_t *now; /* per node: its number in the new graph */
};

/* Whether the kernel that computes a root is begun by such a node. */
static bool may_move(const struct hastening *hastening, uint32_t index)
{
    const struct kiln__fusion *fusion = &hastening->plan->fusion;
    const struct kiln__node *node = &fusion->graph.nodes.items[index];
    uint32_t group = fusion->group_of[index];
    if (!kiln__node_is_pointwise(node) && !kiln__node_is_movement(node))
        return false;
    return group == KILN__NO_GROUP || fusion->groups.items[group].kind == KILN__GROUP_MAP;
}

static void find_hasty(struct hastening *hastening)
{
    const struct kiln__fusion *fusion = &hastening->plan->fusion;
    const struct kiln__graph *graph = &fusion->graph;
    bool *hasty = hastening->hasty;
    for (size_t i = 0; i < graph->requests.count; i++)
        hasty[graph->requests.items[i].node] = true;
    for (uint32_t i = (uint32_t)graph->nodes.count; i-- > 0;)
        for (unsigned k = 0; k < graph->nodes.items[i].n_inputs; k++)
            hasty[graph->nodes.items[i].input[k]] = true;
    for (uint32_t i = (uint32_t)graph->nodes.count; i-- > 0;) {
        hasty[i] = hasty[i] && may_move(hastening, i);
        for (unsigned k = 0; !hasty[i] && k < graph->nodes.items[i].n_inputs; k++)
            hasty[graph->nodes.items[i].input[k]] = false;
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
static void sort(struct hastening *hastening)
{
    const struct kiln__graph *graph = &hastening->plan->fusion.graph;
    size_t count = graph->nodes.count;
    for (uint32_t i = 0; i < count; i++) {
        const struct kiln__node *node = &graph->nodes.items[i];
        bool moves = hastening->hasty[i] || !node->n_inputs;
        hastening->places[i] = (struct place){moves ? 0 : i, i};
        for (unsigned k = 0; hastening->hasty[i] && k < node->n_inputs; k++) {
            uint32_t behind = hastening->places[node->input[k]].behind;
            if (behind > hastening->places[i].behind)
                hastening->places[i].behind = behind;
        }
    }
    qsort(hastening->places, count, sizeof *hastening->places, compare);
    for (uint32_t i = 0; i < count; i++)
        hastening->now[hastening->places[i].node] = i;
}

/* What has moved joins nothing that it did not before. */
static bool add_node(const struct hastening *hastening, uint32_t index, uint32_t *since,
                     struct kiln__graph *to)
{
    const struct kiln__graph *from = &hastening->plan->fusion.graph;
    uint32_t was = hastening->places[index].node, at;
    struct kiln__node node = from->nodes.items[was];
    struct kiln__rematerialised *mark = kiln__vector_push(&to->rematerialised);
    for (unsigned k = 0; k < node.n_inputs; k++)
        node.input[k] = hastening->now[node.input[k]];
    if (!mark || !kiln__graph_add(to, &node, &at))
        return false;
    *since = hastening->hasty[was] ? *since : index + 1;
    if (hastening->hasty[was])
        mark->since = *since;
    return true;
}

bool kiln__plan_schedule_early(const struct kiln__plan *plan, struct kiln__graph *to)
{
    const struct kiln__graph *from = &plan->fusion.graph;
    size_t count = from->nodes.count;
    struct hastening hastening = {.plan = plan};
    uint32_t since = 0;
    *to = (struct kiln__graph){.batch_invariant = from->batch_invariant};
    hastening.hasty = calloc(count + 1, sizeof *hastening.hasty);
    hastening.places = malloc((count + 1) * sizeof *hastening.places);
    hastening.now = malloc((count + 1) * sizeof *hastening.now);
    bool done = hastening.hasty && hastening.places && hastening.now;
    if (done) {
        find_hasty(&hastening);
        sort(&hastening);
    }
    for (uint32_t i = 0; i < count && done; i++)
        done = add_node(&hastening, i, &since, to);
    for (size_t i = 0; i < from->requests.count && done; i++) {
        struct kiln__request *request = kiln__vector_push(&to->requests);
        done = request;
        if (done) {
            *request = from->requests.items[i];
            request->node = hastening.now[request->node];
        }
    }
    for (size_t i = 0; i < from->became.count && done; i++) {
        uint32_t *place = kiln__vector_push(&to->became), was = from->became.items[i];
        done = place;
        if (done)
            *place = was == KILN__DROPPED ? was : hastening.now[was];
    }
    free(hastening.hasty);
    free(hastening.places);
    free(hastening.now);
    return done;
}
