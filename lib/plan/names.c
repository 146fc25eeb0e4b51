/* SPDX-License-Identifier: Apache-2.0 */
/* Maps user-given names of nodes to the launches that compute them, for traces and explanations. */
#include "plan/names.h"

#include <stdlib.h>
#include <string.h>

/* Per node of the plan whether a kernel computes it. NULL without memory. */
static bool *computed_in(const struct kiln__plan *plan)
{
    const struct kiln__fusion *fusion = &plan->fusion;
    bool *computed = calloc(fusion->graph.nodes.count + 1, sizeof *computed);
    for (size_t i = 0; computed && i < fusion->groups.count; i++)
        for (size_t k = 0; k < fusion->groups.items[i].nodes.count; k++)
            computed[fusion->groups.items[i].nodes.items[k]] = true;
    return computed;
}

/* What computes the value that a node shows: what is only moved by strides has no kernel. */
static uint32_t computing_node(const struct kiln__graph *graph, const bool *computed, uint32_t node)
{
    while (!computed[node] && graph->nodes.items[node].n_inputs)
        node = graph->nodes.items[node].input[0];
    return node;
}

void kiln__names_make(const struct kiln__plan *plan, const struct kiln__labels *labels,
                      struct kiln__names *names)
{
    const struct kiln__graph *graph = &plan->fusion.graph;
    *names = (struct kiln__names){.plan = plan, .labels = labels};
    if (!labels || !labels->names.length)
        return;
    bool *computed = computed_in(plan);
    names->first = calloc(graph->nodes.count + 1, sizeof *names->first);
    names->next = calloc(graph->became.count + 1, sizeof *names->next);
    bool done = computed && names->first && names->next;
    for (uint32_t i = (uint32_t)graph->became.count; done && i-- > 0;) {
        uint32_t now = graph->became.items[i];
        if (now == KILN__DROPPED || !kiln__labels_find(labels, i))
            continue;
        now = computing_node(graph, computed, now);
        names->next[i] = names->first[now];
        names->first[now] = i + 1;
    }
    free(computed);
    if (!done)
        kiln__names_free(names);
}

void kiln__names_free(struct kiln__names *names)
{
    free(names->first);
    free(names->next);
    names->first = names->next = NULL;
}

static bool is_among(const char *const *found, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(found[i], name))
            return true;
    return false;
}

/* The node that has the names: a copy has those of what it does once more. */
static uint32_t naming_node(const struct kiln__names *names, uint32_t node)
{
    const struct kiln__graph *graph = &names->plan->fusion.graph;
    while (graph->rematerialised.count && graph->rematerialised.items[node].of)
        node = graph->rematerialised.items[node].of - 1;
    return node;
}

/* The names of a node of the plan behind `count` others. Returns how many these are now. */
static size_t add_names(const struct kiln__names *names, uint32_t node, size_t count,
                        const char *found[KILN__MOST_NAMES])
{
    for (uint32_t k = names->first ? names->first[naming_node(names, node)] : 0; k;
         k = names->next[k - 1]) {
        const char *name = kiln__labels_name(names->labels, k - 1);
        if (count < KILN__MOST_NAMES && !is_among(found, count, name))
            found[count++] = name;
    }
    return count;
}

size_t kiln__names_of(const struct kiln__names *names, uint32_t launch,
                      const char *found[KILN__MOST_NAMES])
{
    const struct kiln__plan *plan = names->plan;
    size_t count = 0;
    for (size_t part = 0; part < kiln__plan_phases(plan, launch); part++) {
        const uint32_t index = plan->launches.items[kiln__plan_phase(plan, launch, part)].group;
        const struct kiln__group *group = &plan->fusion.groups.items[index];
        for (size_t i = 0; i < group->nodes.count; i++)
            count = add_names(names, group->nodes.items[i], count, found);
    }
    return count;
}

static void names_say(const char *const *found, size_t count, const char *before,
                      const char *between, struct kiln__text *text)
{
    for (size_t i = 0; i < count; i++)
        kiln__text_add(text, "%s%s", i ? between : before, found[i]);
}

void kiln__names_append(const struct kiln__names *names, uint32_t launch, const char *before,
                        const char *between, struct kiln__text *text)
{
    const char *found[KILN__MOST_NAMES];
    names_say(found, kiln__names_of(names, launch, found), before, between, text);
}

void kiln__names_append_slot(const struct kiln__names *names, uint32_t slot, const char *between,
                             struct kiln__text *text)
{
    const char *found[KILN__MOST_NAMES];
    uint32_t node = names->plan->slots.items[slot].node;
    size_t count = node == KILN__SCRATCH ? 0 : add_names(names, node, 0, found);
    names_say(found, count, "", between, text);
}
