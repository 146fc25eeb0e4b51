/* SPDX-License-Identifier: Apache-2.0 */
/* Results that go to a buffer which the same batch imports. Such a result is computed straight into
 * the buffer where its kernel reads the old content, if at all, element by element, and every other
 * kernel that reads it can run before. Else the run keeps it aside and copies it at the end. */
#include <stdlib.h>

#include "plan/plan.h"

/* What must run before what, beyond values that are made before they are used. */
struct edge {
    uint32_t before;
    uint32_t next; /* 1 + the next edge into the same group; 0: none */
};

/* A walk goes from groups to those that must run before them. What it has looked at of a group is
 * not looked at again. */
struct visit {
    uint32_t walk; /* that saw the group last */
    uint32_t access, edge;
};

struct scheduler {
    struct kiln__plan *plan;
    uint32_t *first_edge; /* per group: 1 + its first edge */
    KILN__VECTOR(struct edge) edges;
    struct visit *visits; /* per group */
    uint32_t walk;        /* number of the walk under way */
    uint32_t *stack;
    uint32_t *position;     /* per group: in plan->order, which obeys all edges so far */
    uint32_t *kept;         /* scratch: groups that change their positions */
    uint32_t *first_reader; /* per node, and one more: into `readers` */
    uint32_t *readers;      /* the groups that read each node, ascending */
    uint32_t *import_of;    /* per input: its node, or KILN__NO_SLOT if nothing uses it */
    bool failed;
};

/* ---- walks from a group to what must run before it ---- */

static void see(struct scheduler *scheduler, uint32_t group, size_t *depth)
{
    scheduler->visits[group] =
        (struct visit){.walk = scheduler->walk, .edge = scheduler->first_edge[group]};
    scheduler->stack[(*depth)++] = group;
}

static bool is_unseen(const struct scheduler *scheduler, uint32_t group)
{
    return scheduler->visits[group].walk != scheduler->walk;
}

/* The next group that must run before `group` and that the walk has not seen, or KILN__NO_GROUP. */
static uint32_t find_earlier(struct scheduler *scheduler, uint32_t group)
{
    const struct kiln__fusion *fusion = &scheduler->plan->fusion;
    const struct kiln__group *of = &fusion->groups.items[group];
    struct visit *visit = &scheduler->visits[group];
    while (visit->access < of->accesses.count) {
        uint32_t maker = fusion->group_of[of->accesses.items[visit->access++].node];
        if (maker != KILN__NO_GROUP && is_unseen(scheduler, maker))
            return maker;
    }
    while (visit->edge) {
        const struct edge *edge = &scheduler->edges.items[visit->edge - 1];
        visit->edge = edge->next;
        if (is_unseen(scheduler, edge->before))
            return edge->before;
    }
    return KILN__NO_GROUP;
}

/* Add `group` and all that must run before it to the plan's order, where they are not in it. */
static size_t add_to_order(struct scheduler *scheduler, uint32_t group, size_t count)
{
    size_t depth = 0;
    see(scheduler, group, &depth);
    while (depth) {
        uint32_t earlier = find_earlier(scheduler, scheduler->stack[depth - 1]);
        if (earlier != KILN__NO_GROUP) {
            see(scheduler, earlier, &depth);
            continue;
        }
        uint32_t next = scheduler->stack[--depth];
        scheduler->position[next] = (uint32_t)count;
        scheduler->plan->order[count++] = next;
    }
    return count;
}

/* Groups in the order in which they were formed, but for what must run before. */
static void make_order(struct scheduler *scheduler)
{
    size_t count = 0;
    scheduler->walk++;
    for (uint32_t g = 0; g < scheduler->plan->fusion.groups.count; g++)
        if (is_unseen(scheduler, g))
            count = add_to_order(scheduler, g, count);
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

/* ---- have some groups run before another ---- */

/* See all that must run before `from`, as far as it stands behind `group` in the order; false if
 * that is `group` itself. */
static bool see_behind(struct scheduler *scheduler, uint32_t from, uint32_t group)
{
    size_t depth = 0;
    see(scheduler, from, &depth);
    while (depth) {
        uint32_t earlier = find_earlier(scheduler, scheduler->stack[depth - 1]);
        if (earlier == group)
            return false;
        if (earlier == KILN__NO_GROUP)
            depth--;
        else if (scheduler->position[earlier] > scheduler->position[group])
            see(scheduler, earlier, &depth);
    }
    return true;
}

static void put(struct scheduler *scheduler, uint32_t position, uint32_t group)
{
    scheduler->plan->order[position] = group;
    scheduler->position[group] = position;
}

/* Those that the walk has seen, up to position `last`, come before `group`; all others keep their
 * order (D. J. Pearce and P. H. J. Kelly, "A Dynamic Topological Sort Algorithm for Directed
 * Acyclic Graphs", 2006, with one side only). */
static void move_seen(struct scheduler *scheduler, uint32_t group, uint32_t last)
{
    uint32_t to = scheduler->position[group], kept = 0;
    for (uint32_t at = to; at <= last; at++) {
        uint32_t moved = scheduler->plan->order[at];
        if (is_unseen(scheduler, moved))
            scheduler->kept[kept++] = moved;
        else
            put(scheduler, to++, moved);
    }
    for (uint32_t k = 0; k < kept; k++)
        put(scheduler, to++, scheduler->kept[k]);
}

/* Have every other group that reads `node` run before `group`; false if one cannot. */
static bool run_readers_first(struct scheduler *scheduler, uint32_t node, uint32_t group)
{
    const uint32_t *reader = scheduler->readers + scheduler->first_reader[node];
    const uint32_t *end = scheduler->readers + scheduler->first_reader[node + 1];
    uint32_t last = scheduler->position[group];
    scheduler->walk++;
    for (const uint32_t *g = reader; g < end; g++) {
        uint32_t at = scheduler->position[*g];
        last = at > last ? at : last;
        if (at > scheduler->position[group] && is_unseen(scheduler, *g) &&
            !see_behind(scheduler, *g, group))
            return false;
    }
    move_seen(scheduler, group, last);
    for (const uint32_t *g = reader; g < end; g++)
        if (*g != group)
            add_edge(scheduler, *g, group);
    return true;
}

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

/* A part comes after what is below it, and after all who still read the memory that it changes. */
static void order_places(struct scheduler *scheduler)
{
    const struct kiln__fusion *fusion = &scheduler->plan->fusion;
    for (uint32_t g = 0; g < fusion->groups.count; g++) {
        const struct kiln__group *group = &fusion->groups.items[g];
        if (group->base_group != KILN__NO_GROUP)
            add_edge(scheduler, group->base_group, g);
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
    uint32_t old = scheduler->import_of[request->replaces - 1];
    uint32_t group = plan->fusion.group_of[request->node];
    if (group == KILN__NO_GROUP || plan->takes_over[request->node] ||
        plan->fusion.groups.items[group].base_group != KILN__NO_GROUP ||
        plan->fusion.groups.items[group].stores.items[0].placed)
        return false;
    if (old == KILN__NO_SLOT)
        return true;
    return (graph->nodes.items[old].type == graph->nodes.items[request->node].type &&
            plan->first_request[old] == KILN__NO_REQUEST &&
            reads_in_step(&plan->fusion.groups.items[group], old) &&
            run_readers_first(scheduler, old, group));
}

/* ---- who reads what ---- */

static bool is_first_access(const struct kiln__group *group, size_t access)
{
    for (size_t i = 0; i < access; i++)
        if (group->accesses.items[i].node == group->accesses.items[access].node)
            return false;
    return true;
}

/* A counting sort: counts stand two places further, sums one, until each reader is in its place. */
static bool list_readers(struct scheduler *scheduler)
{
    const struct kiln__fusion *fusion = &scheduler->plan->fusion;
    size_t nodes = fusion->graph.nodes.count;
    uint32_t *first = scheduler->first_reader = calloc(nodes + 2, sizeof *first);
    for (size_t g = 0; first && g < fusion->groups.count; g++)
        for (size_t i = 0; i < fusion->groups.items[g].accesses.count; i++)
            first[fusion->groups.items[g].accesses.items[i].node + 2] +=
                is_first_access(&fusion->groups.items[g], i);
    for (size_t i = 2; first && i < nodes + 2; i++)
        first[i] += first[i - 1];
    scheduler->readers = first ? malloc((first[nodes + 1] + 1) * sizeof *first) : NULL;
    for (uint32_t g = 0; scheduler->readers && g < fusion->groups.count; g++)
        for (size_t i = 0; i < fusion->groups.items[g].accesses.count; i++)
            if (is_first_access(&fusion->groups.items[g], i))
                scheduler->readers[first[fusion->groups.items[g].accesses.items[i].node + 1]++] = g;
    return scheduler->readers;
}

static bool list_imports(struct scheduler *scheduler)
{
    const struct kiln__graph *graph = &scheduler->plan->fusion.graph;
    size_t inputs = 0;
    for (size_t i = 0; i < graph->requests.count; i++)
        if (graph->requests.items[i].replaces > inputs)
            inputs = graph->requests.items[i].replaces;
    scheduler->import_of = malloc((inputs + 1) * sizeof *scheduler->import_of);
    for (size_t i = 0; scheduler->import_of && i < inputs; i++)
        scheduler->import_of[i] = KILN__NO_SLOT;
    for (uint32_t i = (uint32_t)graph->nodes.count; scheduler->import_of && i-- > 0;)
        if (graph->nodes.items[i].kind == KILN__IMPORT && graph->nodes.items[i].binding < inputs)
            scheduler->import_of[graph->nodes.items[i].binding] = i;
    return scheduler->import_of;
}

/* ---- all of them ---- */

static void decide(struct scheduler *scheduler)
{
    struct kiln__plan *plan = scheduler->plan;
    const struct kiln__graph *graph = &plan->fusion.graph;
    order_places(scheduler);
    make_order(scheduler);
    for (uint32_t i = 0; i < graph->requests.count && !scheduler->failed; i++) {
        const struct kiln__request *request = &graph->requests.items[i];
        if (request->replaces && can_take_over(scheduler, request))
            plan->takes_over[request->node] = i + 1;
    }
    if (!scheduler->failed)
        make_order(scheduler);
}

static bool make_room(struct scheduler *scheduler)
{
    struct kiln__plan *plan = scheduler->plan;
    size_t groups = plan->fusion.groups.count + 1;
    plan->takes_over = calloc(plan->fusion.graph.nodes.count + 1, sizeof *plan->takes_over);
    plan->order = calloc(groups, sizeof *plan->order);
    scheduler->first_edge = calloc(groups, sizeof *scheduler->first_edge);
    scheduler->visits = calloc(groups, sizeof *scheduler->visits);
    scheduler->stack = calloc(groups, sizeof *scheduler->stack);
    scheduler->position = calloc(groups, sizeof *scheduler->position);
    scheduler->kept = calloc(groups, sizeof *scheduler->kept);
    return plan->takes_over && plan->order && scheduler->first_edge && scheduler->visits &&
           scheduler->stack && scheduler->position && scheduler->kept && list_readers(scheduler) &&
           list_imports(scheduler);
}

bool kiln__plan_in_place(struct kiln__plan *plan)
{
    struct scheduler scheduler = {.plan = plan};
    bool done = make_room(&scheduler);
    if (done)
        decide(&scheduler);
    kiln__vector_free(&scheduler.edges);
    free(scheduler.first_edge);
    free(scheduler.visits);
    free(scheduler.stack);
    free(scheduler.position);
    free(scheduler.kept);
    free(scheduler.first_reader);
    free(scheduler.readers);
    free(scheduler.import_of);
    return done && !scheduler.failed;
}
