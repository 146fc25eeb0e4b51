/* SPDX-License-Identifier: Apache-2.0 */
/* Results that go to a buffer which the same batch imports. Such a result is computed straight into
 * the buffer where its kernel reads the old content, if at all, element by element, and every other
 * kernel that reads it can run before. Else the run keeps it aside and copies it at the end.
 *
 * What parts are put over finds its base there where that is the old content: nothing is copied. */
#include <assert.h>
#include <stdlib.h>

#include "memory/memory.h"

/* What must run before a group. */
struct edge {
    uint32_t before;
    uint32_t request; /* 1 + the one that is computed in place only then; 0: it must anyhow */
    uint32_t next;    /* 1 + the next edge into the same group; 0: none */
};

enum state { UNSEEN, WAITS, RUNS };

struct scheduler {
    struct kiln__plan_builder *builder;
    KILN__VECTOR(struct edge) edges;
    uint32_t *edge;    /* per group: 1 + the first edge that is not done with; 0: none is left */
    enum state *state; /* per group */
    uint32_t *stack;   /* groups that wait, each for the next one */
    uint32_t *old;     /* per request: the node that it replaces, or KILN__NO_SLOT */
    bool failed;
};

/* ---- may a result take over its buffer? ---- */

/* Whether element i of the access is what the group's result i is computed from: row-major over the
 * dimensions that it keeps. */
static bool is_elementwise(const struct kiln__group *group, const struct kiln__access *access)
{
    int64_t run = 1;
    if (access->offset || access->kind)
        return false;
    for (uint32_t d = group->shape.rank; d-- > group->kept;)
        if (group->shape.dims[d] != 1 && access->stride[d])
            return false;
    for (uint32_t d = group->kept; d-- > 0;) {
        if (group->shape.dims[d] != 1 && access->stride[d] != run)
            return false;
        run *= (int64_t)group->shape.dims[d];
    }
    return true;
}

/* The access is read only where the result is complete: not as an operand of a product. */
static bool is_read_late(const struct kiln__group *group, size_t access)
{
    if (!kiln__group_reads_once(group))
        return false; /* later phases read it again, and other elements do */
    for (size_t i = 0; i < group->reduced_step; i++)
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

/* The first group that writes to the memory of `node`: of parts that one after the other take over
 * a value the one whose base is another's. */
static uint32_t first_writer(const struct kiln__fusion *fusion, uint32_t node)
{
    const struct kiln__node *nodes = fusion->graph.nodes.items;
    uint32_t base;
    while ((base = kiln__node_base(&nodes[node])) != UINT32_MAX && fusion->donated_to[base] == node)
        node = base;
    return fusion->group_of[node];
}

/* The one of several stores of a group that is of `node`; NULL: none. */
static const struct kiln__store *store_of(const struct kiln__group *group, uint32_t node)
{
    for (size_t i = 0; i < group->stores.count; i++)
        if (group->stores.items[i].node == node)
            return &group->stores.items[i];
    return NULL;
}

/* Whether the group below what `writer` puts its part over brings `old` there as it is. */
static bool copies_old(const struct kiln__fusion *fusion, const struct kiln__group *writer,
                       uint32_t old)
{
    if (old == KILN__NO_SLOT || writer->base_group == KILN__NO_GROUP || !writer->stores.count)
        return false;
    const struct kiln__group *below = &fusion->groups.items[writer->base_group];
    const struct kiln__store *store = store_of(below, writer->stores.items[0].node);
    const struct kiln__step *step = store ? &below->steps.items[store->step] : NULL;
    if (!step || store->placed || step->kind != KILN__STEP_LOAD)
        return false;
    const struct kiln__access *access = &below->accesses.items[step->index];
    return access->node == old && is_elementwise(below, access);
}

static bool reads(const struct kiln__group *group, uint32_t node)
{
    bool found = false;
    for (size_t i = 0; i < group->accesses.count; i++)
        found = found || group->accesses.items[i].node == node;
    return found;
}

/* Whether it may, where all others who read the old content run before. */
static bool in_place_suits(const struct kiln__plan_builder *builder,
                           const struct kiln__request *request, uint32_t old)
{
    const struct kiln__fusion *fusion = &builder->plan->fusion;
    const struct kiln__node *nodes = fusion->graph.nodes.items;
    uint32_t index = fusion->group_of[request->node];
    if (!request->replaces || index == KILN__NO_GROUP || builder->takes_over[request->node])
        return false;
    if (old != KILN__NO_SLOT && (nodes[old].type != nodes[request->node].type ||
                                 builder->first_request[old] != KILN__NO_REQUEST))
        return false;
    const struct kiln__group *group = &fusion->groups.items[index];
    if (kiln__node_base(&nodes[request->node]) != UINT32_MAX) {
        group = &fusion->groups.items[first_writer(fusion, request->node)];
        return copies_old(fusion, group, old) && !reads(group, old);
    }
    return !group->stores.items[0].placed && (old == KILN__NO_SLOT || reads_in_step(group, old));
}

static void in_place_choose(struct scheduler *scheduler)
{
    struct kiln__plan_builder *builder = scheduler->builder;
    const struct kiln__graph *graph = &builder->plan->fusion.graph;
    for (size_t i = 0; i < graph->requests.count; i++)
        scheduler->old[i] = KILN__NO_SLOT;
    for (uint32_t i = 0; i < graph->nodes.count; i++) {
        uint32_t request = kiln__replacement_of(&builder->replacements, &graph->nodes.items[i]);
        if (request)
            scheduler->old[request - 1] = i;
    }
    for (uint32_t i = 0; i < graph->requests.count; i++)
        if (in_place_suits(builder, &graph->requests.items[i], scheduler->old[i]))
            builder->takes_over[graph->requests.items[i].node] = i + 1;
}

/* ---- what must run before what ---- */

static void add_edge(struct scheduler *scheduler, uint32_t before, uint32_t group, uint32_t request)
{
    if (before == group || before == KILN__NO_GROUP)
        return;
    if (!kiln__vector_add(&scheduler->edges,
                          (struct edge){before, request, scheduler->edge[group]})) {
        scheduler->failed = true;
        return;
    }
    scheduler->edge[group] = (uint32_t)scheduler->edges.count;
}

/* A value is read after it is made, and before its memory holds another one. */
static void add_reader(struct scheduler *scheduler, uint32_t group, uint32_t node)
{
    const struct kiln__plan_builder *builder = scheduler->builder;
    const struct kiln__fusion *fusion = &builder->plan->fusion;
    uint32_t request =
        kiln__replacement_of(&builder->replacements, &fusion->graph.nodes.items[node]);
    uint32_t result = request ? fusion->graph.requests.items[request - 1].node : 0;
    if (request && builder->takes_over[result] == request)
        add_edge(scheduler, group, first_writer(fusion, result), request);
    if (fusion->donated_to[node] != KILN__NO_DONATION)
        add_edge(scheduler, group, fusion->group_of[fusion->donated_to[node]], 0);
    add_edge(scheduler, fusion->group_of[node], group, 0);
}

static void add_edges(struct scheduler *scheduler)
{
    const struct kiln__fusion *fusion = &scheduler->builder->plan->fusion;
    for (uint32_t g = 0; g < fusion->groups.count; g++) {
        const struct kiln__group *group = &fusion->groups.items[g];
        add_edge(scheduler, group->base_group, g, 0);
        for (size_t i = 0; i < group->accesses.count; i++)
            add_reader(scheduler, g, group->accesses.items[i].node);
    }
    for (uint32_t i = 0; i < fusion->graph.nodes.count; i++)
        if (fusion->donated_to[i] != KILN__NO_DONATION)
            add_edge(scheduler, fusion->group_of[i], fusion->group_of[fusion->donated_to[i]], 0);
}

/* ---- the order ---- */

/* 1 + the request that is computed in place of what the edge's group reads; 0: none any more. */
static uint32_t *taken_over(const struct scheduler *scheduler, const struct edge *edge)
{
    const struct kiln__plan_builder *builder = scheduler->builder;
    return &builder->takes_over[builder->plan->fusion.graph.requests.items[edge->request - 1].node];
}

/* An edge from what has not run yet, or NULL. */
static const struct edge *find_edge(struct scheduler *scheduler, uint32_t group)
{
    while (scheduler->edge[group]) {
        const struct edge *edge = &scheduler->edges.items[scheduler->edge[group] - 1];
        bool holds = !edge->request || *taken_over(scheduler, edge) == edge->request;
        if (holds && scheduler->state[edge->before] != RUNS)
            return edge;
        scheduler->edge[group] = edge->next;
    }
    return NULL;
}

/* The last group on the stack waits for `before`, which waits for it: the last request on the way
 * is not computed in place. Its group looks on; those behind it wait for nothing yet. */
static size_t give_way(struct scheduler *scheduler, size_t depth, uint32_t before)
{
    const struct edge *last = NULL;
    size_t to = depth;
    for (size_t i = depth; i > 0 && (i == depth || scheduler->stack[i] != before); i--) {
        const struct edge *edge = find_edge(scheduler, scheduler->stack[i - 1]);
        if (edge->request && (!last || edge->request > last->request)) {
            last = edge;
            to = i;
        }
    }
    assert(last);
    *taken_over(scheduler, last) = 0;
    while (depth > to)
        scheduler->state[scheduler->stack[--depth]] = UNSEEN;
    return depth;
}

static size_t in_place_enter(struct scheduler *scheduler, size_t depth, uint32_t group)
{
    scheduler->state[group] = WAITS;
    scheduler->stack[depth] = group;
    return depth + 1;
}

/* Groups in the order in which they were formed, but for what must run before. */
static void make_order(struct scheduler *scheduler)
{
    size_t count = 0, depth = 0;
    for (uint32_t g = 0; g < scheduler->builder->plan->fusion.groups.count; g++) {
        depth = scheduler->state[g] == UNSEEN ? in_place_enter(scheduler, 0, g) : 0;
        while (depth) {
            uint32_t group = scheduler->stack[depth - 1];
            const struct edge *edge = find_edge(scheduler, group);
            if (!edge) {
                scheduler->state[group] = RUNS;
                scheduler->builder->order[count++] = group;
                depth--;
            } else if (scheduler->state[edge->before] == WAITS) {
                depth = give_way(scheduler, depth, edge->before);
            } else {
                depth = in_place_enter(scheduler, depth, edge->before);
            }
        }
    }
}

/* ---- what is there already ---- */

/* Copies of old content to where it is. */
static void drop_copies(struct kiln__plan_builder *builder)
{
    struct kiln__fusion *fusion = &builder->plan->fusion;
    for (uint32_t i = 0; i < fusion->graph.nodes.count; i++) {
        if (!builder->takes_over[i] || kiln__node_base(&fusion->graph.nodes.items[i]) == UINT32_MAX)
            continue;
        const struct kiln__group *writer = &fusion->groups.items[first_writer(fusion, i)];
        kiln__group_remove_store(&fusion->groups.items[writer->base_group],
                                 writer->stores.items[0].node);
    }
}

bool kiln__plan_in_place(struct kiln__plan_builder *builder)
{
    struct scheduler scheduler = {.builder = builder};
    const struct kiln__fusion *fusion = &builder->plan->fusion;
    const size_t groups = fusion->groups.count + 1;
    builder->takes_over = calloc(fusion->graph.nodes.count + 1, sizeof *builder->takes_over);
    builder->order = calloc(groups, sizeof *builder->order);
    scheduler.edge = calloc(groups, sizeof *scheduler.edge);
    scheduler.state = calloc(groups, sizeof *scheduler.state);
    scheduler.stack = calloc(groups, sizeof *scheduler.stack);
    scheduler.old = calloc(fusion->graph.requests.count + 1, sizeof *scheduler.old);
    bool done = builder->takes_over && builder->order && scheduler.edge && scheduler.state &&
                scheduler.stack && scheduler.old;
    if (done) {
        in_place_choose(&scheduler);
        add_edges(&scheduler);
    }
    done = done && !scheduler.failed;
    if (done) {
        make_order(&scheduler);
        drop_copies(builder);
    }
    kiln__vector_free(&scheduler.edges);
    free(scheduler.edge);
    free(scheduler.state);
    free(scheduler.stack);
    free(scheduler.old);
    return done;
}
