/* SPDX-License-Identifier: Apache-2.0 */
/* Which earlier group a root joins: one kernel does both, and reads only what is there by then.
 * What the root goes on with (producer and consumer) comes before what only reads the same. */
#include <string.h>

#include "fuse/group_kinds.h"

static const struct kiln__node *root_of(const struct kiln__join *join)
{
    return kiln__fuse_node(join->fuser, join->index);
}

bool kiln__fuse_is_per_result(const struct kiln__group *group, uint32_t kept,
                              const struct kiln__shape *shape)
{
    uint32_t at[KILN_MAX_RANK];
    kiln__fuse_value_dimensions(group, shape->rank, at);
    if (shape->rank != kept && shape->rank != group->shape.rank)
        return false;
    for (uint32_t d = 0; d < shape->rank; d++)
        if (shape->dims[d] != (at[d] < kept ? group->shape.dims[at[d]] : 1))
            return false;
    return true;
}

bool kiln__fuse_join_results(struct kiln__join *join)
{
    const struct kiln__group *group = join->group;
    const struct kiln__shape *shape = &root_of(join)->shape;
    return kiln__node_is_computed(root_of(join)) && !group->stores.items[0].placed &&
           (kiln__fuse_is_per_result(group, group->kept, shape) ||
            kiln__fuse_reshape(group, shape, false, &join->reshaped));
}

/* ---- room ---- */

/* Of reductions and running sums. */
static unsigned count_totals(const struct kiln__group *group)
{
    unsigned count = 0;
    for (size_t i = 0; i < group->steps.count; i++)
        count += group->steps.items[i].kind == KILN__STEP_REDUCED ||
                 group->steps.items[i].kind == KILN__STEP_SCANNED;
    return count;
}

static bool has_room(const struct kiln__join *join)
{
    const struct kiln__group *group = join->group;
    bool rows = kiln__node_goes_over_rows(root_of(join));
    const struct kiln__size *size =
        &join->fuser->sizes[rows ? root_of(join)->input[0] : join->index];
    unsigned buffers = kiln__group_traits[group->kind].operands ? KILN__MOST_PRODUCT_BUFFERS
                                                                : KILN__MOST_GROUP_BUFFERS;
    return (group->steps.count + size->steps + rows <= KILN__MOST_GROUP_STEPS &&
            group->accesses.count + group->stores.count + size->loads < buffers &&
            count_totals(group) + rows <= KILN__MOST_GROUP_REDUCTIONS);
}

/* ---- what the root reads ---- */

/* As large as all that the group visits: less is not worth a kernel that does two things. */
static bool loads_too(const struct kiln__join *join, uint32_t index,
                      const struct kiln__access *access)
{
    const struct kiln__group *group = join->group;
    const struct kiln__shape visited =
        join->reshaped.used ? join->reshaped.own : kiln__group_visited(group);
    if (access->kind != KILN__ACCESS_MEMORY ||
        !kiln__shape_equal(&kiln__fuse_node(join->fuser, index)->shape, &visited))
        return false;
    for (size_t i = 0; i < group->accesses.count; i++)
        if (kiln__fuse_same_access(&group->accesses.items[i], access))
            return true;
    return false;
}

static bool is_made_before(const struct kiln__join *join, uint32_t index)
{
    uint32_t maker = join->fuser->fusion->group_of[join->fuser->layouts[index].base];
    return maker == KILN__NO_GROUP || maker < join->number;
}

/* A value that is read in other places than the group's element must be there before; a constant
 * too, if it is in memory. */
static void inspect_gathered(struct kiln__join *join, uint32_t index)
{
    const struct kiln__node *node = kiln__fuse_node(join->fuser, index);
    bool known = join->fuser->layouts[index].known;
    if (kiln__node_is_computed(node) && !known) {
        for (unsigned k = 0; k < node->n_inputs; k++)
            inspect_gathered(join, node->input[k]);
    } else if (node->kind != KILN__CONSTANT || known) {
        join->possible = join->possible && is_made_before(join, index);
    }
}

/* Look at everything that computing `index` in registers reads, aligned at the last of `rank`
 * dimensions. */
static void inspect(struct kiln__join *join, uint32_t index, uint32_t rank, bool root)
{
    const struct kiln__node *node = kiln__fuse_node(join->fuser, index);
    const struct kiln__layout *layout = &join->fuser->layouts[index];
    if (node->kind == KILN__CONSTANT || !join->possible)
        return;
    if (kiln__node_is_computed(node) && (root || !layout->known)) {
        join->possible = node->kind != KILN__GATHER || (!join->rows && !join->reshaped.used);
        for (unsigned k = 0; k < node->n_inputs; k++)
            if (node->kind == KILN__GATHER)
                inspect_gathered(join, node->input[k]);
            else
                inspect(join, node->input[k], rank, false);
        return;
    }
    struct kiln__access access = kiln__fuse_access(join->fuser, index, join->at, rank);
    if (join->reshaped.used && !kiln__fuse_reshape_access(&join->reshaped, &access)) {
        join->possible = false;
    } else if (join->fuser->fusion->group_of[layout->base] == join->number) {
        join->direct = true;
        join->possible = kiln__fuse_find_stored(join->group, &access) != KILN__NO_STEP;
    } else {
        join->possible = is_made_before(join, index) &&
                         (!join->rows || kiln__fuse_runs_along_rows(join, &access));
        join->shares = join->shares || loads_too(join, index, &access);
    }
}

/* Both go over rows, or neither. For single elements a launch is all that counts. */
static bool is_sibling(const struct kiln__join *join)
{
    const struct kiln__group_traits *traits = &kiln__group_traits[join->group->kind];
    return traits->reduces == kiln__node_goes_over_rows(root_of(join)) && !traits->operands &&
           (join->shares || kiln__shape_count(&join->group->shape) == 1);
}

static bool can_join(struct kiln__join *join, kiln__join_way *way)
{
    const struct kiln__node *root = root_of(join);
    bool rows = kiln__node_goes_over_rows(root);
    if (!way(join) || !has_room(join))
        return false;
    uint32_t visited = rows ? root->input[0] : join->index;
    uint32_t rank = kiln__fuse_node(join->fuser, visited)->shape.rank;
    if (join->reshaped.used)
        memcpy(join->at, kiln__fuse_straight, sizeof join->at);
    else
        kiln__fuse_value_dimensions(join->group, rank, join->at);
    join->possible = true;
    inspect(join, visited, rank, !rows);
    return join->possible && (join->direct || is_sibling(join));
}

/* ---- joining ---- */

/* A reduction or a map becomes a rows group. */
static void become_rows(const struct kiln__join *join)
{
    struct kiln__group *group = join->group;
    group->kind = KILN__GROUP_ROWS;
    group->reduced_step = 0;
    group->kept = join->kept;
    group->axes = join->axes;
    group->reduced = join->length;
}

/* False without memory. */
static bool add_root(const struct kiln__join *join)
{
    if (join->rows)
        become_rows(join);
    struct kiln__builder builder = kiln__fuse_resume(join->fuser, join->group);
    builder.reshaped = join->reshaped.used ? &join->reshaped : NULL;
    kiln__fuse_add_store(
        &builder, join->index,
        kiln__node_goes_over_rows(root_of(join))
            ? kiln__fuse_reduce(&builder, join->index, join->at)
            : kiln__fuse_compute(&builder, join->index, true, join->at, root_of(join)->shape.rank));
    if (join->rows && !builder.failed)
        join->group->stores.items[join->group->stores.count - 1].full = join->full;
    return !builder.failed;
}

/* What is computed again stays away from groups that are begun before. */
static bool is_begun_since(const struct kiln__fuser *fuser, const struct kiln__group *group,
                           uint32_t index)
{
    const struct kiln__graph *graph = &fuser->fusion->graph;
    return !graph->rematerialised.count ||
           group->stores.items[0].node >= graph->rematerialised.items[index].since;
}

bool kiln__fuse_join(struct kiln__fuser *fuser, uint32_t index, uint32_t *number)
{
    struct kiln__join best = {.number = KILN__NO_GROUP};
    uint32_t count = (uint32_t)fuser->fusion->groups.count;
    for (uint32_t back = 1; back <= count && back <= KILN__LOOK_BACK && !best.direct; back++) {
        struct kiln__group *group = &fuser->fusion->groups.items[count - back];
        kiln__join_way *const *ways = kiln__group_traits[group->kind].joins;
        if (!is_begun_since(fuser, group, index))
            continue;
        for (unsigned w = 0; w < KILN__WAYS && ways[w]; w++) {
            struct kiln__join join = {
                .fuser = fuser, .group = group, .number = count - back, .index = index};
            if (!can_join(&join, ways[w]) || (best.group && !join.direct))
                continue;
            best = join;
            break;
        }
    }
    *number = best.number;
    return !best.group || add_root(&best);
}
