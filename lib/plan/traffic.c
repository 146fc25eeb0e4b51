/* SPDX-License-Identifier: Apache-2.0 */
/* A launch reads what its steps need of the memory that it takes. Several launches of a group hand
 * working memory on: one moves it when it writes it, another when it reads it. Working memory that
 * only one launch takes stays near its units and does not count. */
#include "plan/traffic.h"

#include <stdlib.h>

/* ---- what an access reads ---- */

static uint64_t distance(int64_t stride)
{
    return stride < 0 ? (uint64_t)-stride : (uint64_t)stride;
}

/* Dimensions with a stride, the shortest first; how many. */
static uint32_t sort_strides(const struct kiln__shape *shape, const int64_t *stride,
                             uint32_t order[KILN_MAX_RANK])
{
    uint32_t count = 0;
    for (uint32_t d = 0; d < shape->rank; d++) {
        uint32_t at = count;
        if (!stride[d])
            continue;
        for (; at > 0 && distance(stride[order[at - 1]]) > distance(stride[d]); at--)
            order[at] = order[at - 1];
        order[at] = d;
        count++;
    }
    return count;
}

/* Different elements that strides over `shape` come by: windows overlap. */
static uint64_t count_elements(const struct kiln__shape *shape, const int64_t *stride)
{
    uint32_t order[KILN_MAX_RANK];
    uint64_t count = 1, reach = 1; /* from the first one to the last */
    uint32_t strides = sort_strides(shape, stride, order);
    if (kiln__shape_count(shape) == 0)
        return 0;
    for (uint32_t i = 0; i < strides; i++) {
        uint64_t step = distance(stride[order[i]]), dim = shape->dims[order[i]];
        uint64_t whole = reach + (dim - 1) * step;
        bool overlaps = step < reach, dense = count == reach;
        count = overlaps && (dense || count * dim > whole) ? whole : count * dim;
        reach = whole;
    }
    return count;
}

/* Mark the steps from which a marked one, up to step `end`, is computed; what `border` is computed
 * from is left out. */
static void mark_steps(const struct kiln__group *group, size_t end, size_t border, bool *marked)
{
    for (size_t i = end + 1; i-- > 0;)
        for (unsigned k = 0; marked[i] && i != border && k < group->steps.items[i].n_args; k++)
            marked[group->steps.items[i].args[k]] = true;
}

static bool is_loaded(const struct kiln__group *group, const bool *marked, size_t access)
{
    for (size_t i = 0; i < group->steps.count; i++) {
        const struct kiln__step *step = &group->steps.items[i];
        bool loads = step->kind == KILN__STEP_LOAD || step->kind == KILN__STEP_GATHER ||
                     step->kind == KILN__STEP_NUMBER;
        if (marked[i] && loads && step->index == access)
            return true;
    }
    return false;
}

/* Whether the index of a gather is another one along dimension `d`. */
static bool index_varies(const struct kiln__group *group, size_t gather, uint32_t d)
{
    bool marked[KILN__MOST_STEPS] = {false};
    for (size_t i = 0; i < group->steps.count; i++) {
        const struct kiln__step *step = &group->steps.items[i];
        if (step->kind == KILN__STEP_GATHER && step->index == gather && step->n_args)
            marked[step->args[0]] = true;
    }
    mark_steps(group, group->steps.count - 1, group->steps.count, marked);
    for (size_t i = 0; i < group->accesses.count; i++)
        if (group->accesses.items[i].stride[d] && is_loaded(group, marked, i))
            return true;
    return false;
}

/* Elements of access `i`: of a table the rows that are looked up, at most. */
static uint64_t elements_of(const struct kiln__plan *plan, const struct kiln__group *group,
                            size_t i)
{
    const struct kiln__access *access = &group->accesses.items[i];
    const struct kiln__shape *shape = kiln__group_access_shape(&plan->fusion.graph, group, i);
    uint64_t count = count_elements(shape, access->stride), looked_up = 1;
    if (access->kind != KILN__ACCESS_GATHER)
        return access->kind == KILN__ACCESS_NUMBER ? 0 : count;
    for (uint32_t d = 0; d < shape->rank; d++)
        if (!access->stride[d] && index_varies(group, i, d))
            looked_up *= shape->dims[d];
    return count * (looked_up < access->extent ? looked_up : access->extent);
}

/* The elements between which an access stays. */
struct range {
    int64_t low, high; /* the last one */
};

static void widen(const struct kiln__plan *plan, const struct kiln__group *group, size_t i,
                  struct range *range)
{
    const struct kiln__access *access = &group->accesses.items[i];
    const struct kiln__shape *shape = kiln__group_access_shape(&plan->fusion.graph, group, i);
    struct range own = {access->offset, access->offset};
    for (uint32_t d = 0; d < shape->rank; d++) {
        int64_t reach = access->stride[d] * ((int64_t)shape->dims[d] - 1);
        *(reach < 0 ? &own.low : &own.high) += reach;
    }
    if (access->kind == KILN__ACCESS_GATHER) {
        int64_t jumps = access->jump * ((int64_t)access->extent - 1);
        *(jumps < 0 ? &own.low : &own.high) += jumps;
    }
    range->low = own.low < range->low ? own.low : range->low;
    range->high = own.high > range->high ? own.high : range->high;
}

/* Of the node of access `i`, unless an earlier one has it too, what all of `reads` read. */
static uint64_t bytes_of_node(const struct kiln__plan *plan, const struct kiln__group *group,
                              const bool *reads, size_t i)
{
    const struct kiln__access *accesses = group->accesses.items;
    const struct kiln__node *node = &plan->fusion.graph.nodes.items[accesses[i].node];
    struct range range = {INT64_MAX, INT64_MIN};
    uint64_t count = 0;
    for (size_t k = 0; k < group->accesses.count; k++) {
        if (!reads[k] || accesses[k].node != accesses[i].node)
            continue;
        if (k < i)
            return 0;
        uint64_t elements = elements_of(plan, group, k);
        count += elements;
        if (elements)
            widen(plan, group, k, &range);
    }
    uint64_t most = count ? (uint64_t)(range.high - range.low) + 1 : 0;
    return kiln__type_bytes(node->type, count < most ? count : most);
}

uint64_t kiln__group_bytes_read(const struct kiln__plan *plan, const struct kiln__group *group,
                                const bool *reads)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < group->accesses.count; i++)
        bytes += reads[i] ? bytes_of_node(plan, group, reads, i) : 0;
    return bytes;
}

/* ---- what groups and launches move ---- */

static uint64_t bytes_stored(const struct kiln__plan *plan, const struct kiln__group *group,
                             const struct kiln__store *store)
{
    const struct kiln__node *node = &plan->fusion.graph.nodes.items[store->node];
    return store->placed ? kiln__shape_count(&group->shape) * kiln_type_size(node->type)
                         : kiln__node_bytes(node);
}

uint64_t kiln__group_bytes(const struct kiln__plan *plan, const struct kiln__group *group)
{
    bool reads[KILN__MOST_ACCESSES];
    for (size_t i = 0; i < group->accesses.count; i++)
        reads[i] = true;
    uint64_t bytes = kiln__group_bytes_read(plan, group, reads);
    for (size_t i = 0; i < group->stores.count; i++)
        bytes += bytes_stored(plan, group, &group->stores.items[i]);
    return bytes;
}

/* Which accesses a launch's steps need: of a long reduction one launch has all elements, another
 * what follows their sum. */
static void find_needed(const struct kiln__group *group, enum kiln__stage stage, bool *needed)
{
    bool marked[KILN__MOST_STEPS] = {false};
    size_t total = kiln__group_total(group), border = group->steps.count;
    if (stage == KILN__STAGE_PARTIAL) {
        marked[group->steps.items[total].args[0]] = true;
    } else {
        for (size_t i = 0; i < group->stores.count; i++) {
            marked[group->stores.items[i].step] = true;
            if (group->stores.items[i].position)
                marked[group->stores.items[i].position - 1] = true;
        }
        border = stage == KILN__STAGE_FINAL ? total : border;
    }
    mark_steps(group, group->steps.count - 1, border, marked);
    for (size_t i = 0; i < group->accesses.count; i++)
        needed[i] = stage == KILN__STAGE_WHOLE || is_loaded(group, marked, i);
}

/* Accesses of a group whose memory the launch takes; where a store's is the same, it takes that. */
static void find_reads(const struct kiln__plan *plan, const struct kiln__launch *launch,
                       const struct kiln__group *group, bool *reads)
{
    const bool own = group == &plan->fusion.groups.items[launch->group];
    find_needed(group, own ? launch->variant.stage : KILN__STAGE_WHOLE, reads);
    for (size_t i = 0; i < group->accesses.count; i++)
        reads[i] =
            reads[i] && ((own && launch->variant.updates[i]) ||
                         kiln__launch_names(launch, plan->slot_of[group->accesses.items[i].node]));
}

static bool is_first_of_slot(const struct kiln__launch *launch, size_t argument)
{
    const struct kiln__argument *arguments = launch->arguments.items;
    if (arguments[argument].kind != KILN__ARGUMENT_MEMORY)
        return false;
    for (size_t i = 0; i < argument; i++)
        if (arguments[i].kind == KILN__ARGUMENT_MEMORY &&
            arguments[i].slot == arguments[argument].slot)
            return false;
    return true;
}

/* Of all launches. */
struct census {
    unsigned *takers; /* launches that take each slot */
    size_t *first;    /* launch of each group */
};

static uint64_t bytes_handed_on(const struct kiln__plan *plan, const struct kiln__launch *launch,
                                const unsigned *takers)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < launch->arguments.count; i++) {
        if (!is_first_of_slot(launch, i))
            continue;
        uint32_t number = launch->arguments.items[i].slot;
        const struct kiln__slot *slot = &plan->slots.items[number];
        bool working = slot->node == KILN__SCRATCH && slot->storage != KILN__STORAGE_COUNTERS;
        bytes += working && takers[number] > 1 ? slot->bytes : 0;
    }
    return bytes;
}

/* Whether a launch before this one of the same group takes the slot; most groups have one. */
static bool is_taken_before(const struct kiln__plan *plan, size_t index, uint32_t slot,
                            const struct census *census)
{
    const uint32_t group = plan->launches.items[index].group;
    return census->first[group] < index && kiln__plan_group_names(plan, group, index, slot);
}

static uint64_t bytes_of_launch(const struct kiln__plan *plan, size_t index,
                                const struct census *census)
{
    const struct kiln__launch *launch = &plan->launches.items[index];
    const struct kiln__group *groups = plan->fusion.groups.items, *group = &groups[launch->group];
    uint64_t bytes = bytes_handed_on(plan, launch, census->takers);
    bool reads[KILN__MOST_ACCESSES];
    find_reads(plan, launch, group, reads);
    bytes += kiln__group_bytes_read(plan, group, reads);
    if (launch->covers) {
        find_reads(plan, launch, &groups[launch->covers - 1], reads);
        bytes += kiln__group_bytes_read(plan, &groups[launch->covers - 1], reads);
    }
    for (size_t i = 0; i < group->stores.count; i++) {
        uint32_t slot = plan->slot_of[group->stores.items[i].node];
        if (kiln__launch_names(launch, slot)) /* one that was written to before is changed */
            bytes += bytes_stored(plan, group, &group->stores.items[i]) *
                     (is_taken_before(plan, index, slot, census) ? 2 : 1);
    }
    return bytes;
}

static void count_all(const struct kiln__plan *plan, struct census *census)
{
    for (size_t i = plan->launches.count; i-- > 0;) {
        const struct kiln__launch *launch = &plan->launches.items[i];
        census->first[launch->group] = i;
        for (size_t k = 0; k < launch->arguments.count; k++)
            if (is_first_of_slot(launch, k))
                census->takers[launch->arguments.items[k].slot]++;
    }
}

bool kiln__plan_count_bytes(struct kiln__plan *plan)
{
    struct census census = {.takers = calloc(plan->slots.count + 1, sizeof *census.takers),
                            .first = calloc(plan->fusion.groups.count + 1, sizeof *census.first)};
    const bool done = census.takers && census.first;
    if (done)
        count_all(plan, &census);
    for (size_t i = 0; i < plan->launches.count && done; i++)
        if (!plan->launches.items[i].bytes)
            plan->launches.items[i].bytes = bytes_of_launch(plan, i, &census);
    free(census.takers);
    free(census.first);
    return done;
}
