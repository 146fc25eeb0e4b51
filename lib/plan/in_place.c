/* SPDX-License-Identifier: Apache-2.0 */
/* Results that go to a buffer which the same batch imports. Such a result is computed straight into
 * the buffer where its kernel reads the old content, if at all, element by element, and every other
 * kernel that reads it can run before. Else the run keeps it aside and copies it at the end. */
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

#define NO_GROUP UINT32_MAX

/* What must run before what, beyond values that are made before they are used. */
struct edge {
    uint32_t before;
    uint32_t next; /* 1 + the next edge into the same group; 0: none */
};

struct scheduler {
    struct kiln__plan *plan;
    uint32_t *first_edge; /* per group: 1 + its first edge */
    bool *seen;           /* per group: by the walks under way */
    uint32_t *stack;
    KILN__VECTOR(struct edge) edges;
    bool failed;
};

/* ---- walks from a group to what must run before it ---- */

/* A group that must run before `group` and that no walk has seen, or NO_GROUP. */
static uint32_t find_earlier(const struct scheduler *scheduler, uint32_t group)
{
    const struct kiln__group *of = &scheduler->plan->fusion.groups.items[group];
    for (size_t i = 0; i < of->accesses.count; i++) {
        uint32_t maker = scheduler->plan->fusion.group_of[of->accesses.items[i].node];
        if (maker != NO_GROUP && !scheduler->seen[maker])
            return maker;
    }
    for (uint32_t e = scheduler->first_edge[group]; e; e = scheduler->edges.items[e - 1].next)
        if (!scheduler->seen[scheduler->edges.items[e - 1].before])
            return scheduler->edges.items[e - 1].before;
    return NO_GROUP;
}

/* See `group` and all that must run before it; `order` (may be NULL) takes them as they can run. */
static size_t walk(struct scheduler *scheduler, uint32_t group, uint32_t *order)
{
    size_t depth = 0, count = 0;
    scheduler->seen[group] = true;
    scheduler->stack[depth++] = group;
    while (depth) {
        uint32_t earlier = find_earlier(scheduler, scheduler->stack[depth - 1]);
        if (earlier != NO_GROUP) {
            scheduler->seen[earlier] = true;
            scheduler->stack[depth++] = earlier;
            continue;
        }
        depth--;
        if (order)
            order[count] = scheduler->stack[depth];
        count++;
    }
    return count;
}

static void forget_walks(struct scheduler *scheduler)
{
    memset(scheduler->seen, 0, scheduler->plan->fusion.groups.count * sizeof *scheduler->seen);
}

/* Whether `earlier` has to run before `group`. */
static bool comes_before(struct scheduler *scheduler, uint32_t earlier, uint32_t group)
{
    forget_walks(scheduler);
    walk(scheduler, group, NULL);
    return scheduler->seen[earlier];
}

static void add_edge(struct scheduler *scheduler, uint32_t before, uint32_t group)
{
    struct edge *edge = kiln__vector_push(&scheduler->edges);
    if (!edge) {
        scheduler->failed = true;
        return;
    }
    *edge = (struct edge){before, scheduler->first_edge[group]};
    scheduler->first_edge[group] = (uint32_t)scheduler->edges.count;
}

/* ---- may a result take over its buffer? ---- */

static bool reads(const struct kiln__group *group, uint32_t node)
{
    for (size_t i = 0; i < group->accesses.count; i++)
        if (group->accesses.items[i].node == node)
            return true;
    return false;
}

/* Whether element i of the access is what the group's result i is computed from: row-major over the
 * dimensions that it keeps. */
static bool is_elementwise(const struct kiln__group *group, const struct kiln__access *access)
{
    uint32_t kept = group->kind == KILN__GROUP_REDUCE ? group->kept : group->shape.rank;
    int64_t run = 1;
    if (access->offset || access->kind)
        return false;
    for (uint32_t d = group->shape.rank; d-- > kept;)
        if (group->shape.dims[d] != 1 && access->stride[d])
            return false;
    for (uint32_t d = kept; d-- > 0;) {
        if (group->shape.dims[d] != 1 && access->stride[d] != run)
            return false;
        run *= (int64_t)group->shape.dims[d];
    }
    return true;
}

/* The access is read only where the result is complete: not as an operand of a product. */
static bool is_read_late(const struct kiln__group *group, size_t access)
{
    if (group->kind == KILN__GROUP_ROWS || !kiln__group_is_of_steps(group))
        return false; /* later phases read it again, and other elements do */
    if (group->kind == KILN__GROUP_MATMUL)
        return access >= KILN__OPERANDS;
    for (size_t i = 0; group->kind == KILN__GROUP_REDUCE && i < group->reduced_step; i++)
        if (group->steps.items[i].kind == KILN__STEP_LOAD && group->steps.items[i].index == access)
            return false;
    return true;
}

static bool reads_in_step(const struct kiln__group *group, uint32_t node)
{
    for (size_t i = 0; i < group->accesses.count; i++) {
        const struct kiln__access *access = &group->accesses.items[i];
        if (access->node == node && !(is_elementwise(group, access) && is_read_late(group, i)))
            return false;
    }
    return true;
}

static bool is_requested(const struct kiln__graph *graph, uint32_t node)
{
    for (size_t i = 0; i < graph->requests.count; i++)
        if (graph->requests.items[i].node == node)
            return true;
    return false;
}

/* The node of input number `binding`, or KILN__NO_SLOT if nothing uses it. */
static uint32_t find_input(const struct kiln__graph *graph, uint32_t binding)
{
    for (uint32_t i = 0; i < graph->nodes.count; i++) {
        const struct kiln__node *node = &graph->nodes.items[i];
        if (node->kind == KILN__IMPORT && node->binding == binding)
            return i;
    }
    return KILN__NO_SLOT;
}

/* Have every other group that reads `node` run before `group`; false if one cannot. */
static bool run_readers_first(struct scheduler *scheduler, uint32_t node, uint32_t group)
{
    const struct kiln__group *groups = scheduler->plan->fusion.groups.items;
    size_t count = scheduler->plan->fusion.groups.count;
    for (uint32_t g = 0; g < count; g++)
        if (g != group && reads(&groups[g], node) && comes_before(scheduler, group, g))
            return false;
    for (uint32_t g = 0; g < count; g++)
        if (g != group && reads(&groups[g], node))
            add_edge(scheduler, g, group);
    return true;
}

/* A part comes after what is below it, and after all who still read the memory that it changes. */
static void order_places(struct scheduler *scheduler)
{
    const struct kiln__fusion *fusion = &scheduler->plan->fusion;
    for (uint32_t g = 0; g < fusion->groups.count; g++) {
        const struct kiln__group *group = &fusion->groups.items[g];
        if (group->over)
            add_edge(scheduler, g - 1, g);
        for (size_t i = 0; i < group->accesses.count; i++) {
            uint32_t heir = fusion->heir[group->accesses.items[i].node];
            if (heir != KILN__NO_HEIR && fusion->group_of[heir] != g)
                add_edge(scheduler, g, fusion->group_of[heir]);
        }
    }
    for (uint32_t i = 0; i < fusion->graph.nodes.count; i++)
        if (fusion->heir[i] != KILN__NO_HEIR)
            add_edge(scheduler, fusion->group_of[i], fusion->group_of[fusion->heir[i]]);
}

static bool can_take_over(struct scheduler *scheduler, const struct kiln__request *request)
{
    const struct kiln__plan *plan = scheduler->plan;
    const struct kiln__graph *graph = &plan->fusion.graph;
    uint32_t old = find_input(graph, request->replaces - 1);
    uint32_t group = plan->fusion.group_of[request->node];
    if (group == NO_GROUP || plan->takes_over[request->node] ||
        plan->fusion.groups.items[group].over ||
        plan->fusion.groups.items[group].stores.items[0].placed)
        return false;
    if (old == KILN__NO_SLOT)
        return true;
    return (graph->nodes.items[old].type == graph->nodes.items[request->node].type &&
            !is_requested(graph, old) && reads_in_step(&plan->fusion.groups.items[group], old) &&
            run_readers_first(scheduler, old, group));
}

/* ---- all of them ---- */

static void decide(struct scheduler *scheduler)
{
    struct kiln__plan *plan = scheduler->plan;
    const struct kiln__graph *graph = &plan->fusion.graph;
    order_places(scheduler);
    for (uint32_t i = 0; i < graph->requests.count; i++) {
        const struct kiln__request *request = &graph->requests.items[i];
        if (request->replaces && can_take_over(scheduler, request))
            plan->takes_over[request->node] = i + 1;
    }
    size_t placed = 0;
    if (scheduler->failed)
        return;
    forget_walks(scheduler);
    for (uint32_t g = 0; g < plan->fusion.groups.count; g++)
        if (!scheduler->seen[g])
            placed += walk(scheduler, g, plan->order + placed);
}

bool kiln__plan_in_place(struct kiln__plan *plan)
{
    size_t groups = plan->fusion.groups.count + 1;
    struct scheduler scheduler = {.plan = plan};
    plan->takes_over = calloc(plan->fusion.graph.nodes.count + 1, sizeof *plan->takes_over);
    plan->order = calloc(groups, sizeof *plan->order);
    scheduler.first_edge = calloc(groups, sizeof *scheduler.first_edge);
    scheduler.seen = calloc(groups, sizeof *scheduler.seen);
    scheduler.stack = calloc(groups, sizeof *scheduler.stack);
    bool done = plan->takes_over && plan->order && scheduler.first_edge && scheduler.seen &&
                scheduler.stack;
    if (done)
        decide(&scheduler);
    kiln__vector_free(&scheduler.edges);
    free(scheduler.first_edge);
    free(scheduler.seen);
    free(scheduler.stack);
    return done && !scheduler.failed;
}
