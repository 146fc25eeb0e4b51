/* SPDX-License-Identifier: Apache-2.0 */
/* Roots that join a group over the same rows. The group starts as a reduction, or as a map that one
 * reduces; the first further reduction, or map over whole rows, makes it a rows group. What there
 * is one of per row follows a reduction as its epilogue. */
#include "fuse/rows.h"

#include "fuse/steps.h"

/* What one kernel may hold. */
#define MOST_STEPS 128
#define MOST_BUFFERS 28
#define MOST_REDUCED 12

/* How far back a root looks. */
#define LOOK_BACK 8

/* Longer rows are reduced in segments, side by side, by kernels of their own. It is a row's length
 * alone that decides, so that a row's bits do not depend on how many others there are. */
#define LONGEST_ROW (1 << 17)

/* A map goes on with what reduces it only over rows that are worth a loop of their own, and short
 * enough for one work-item even if there is a single one. */
#define SHORTEST_MAPPED_ROW 16
#define LONGEST_MAPPED_ROW (1 << 13)

struct joiner {
    struct kiln__fuser *fuser;
    struct kiln__group *group;
    uint32_t number;      /* of the group */
    uint32_t first;       /* the reduction that the group began with: its rows are the group's */
    struct kiln__shape s; /* of its input */
    uint32_t kept;        /* leading dimensions that are not reduced */
    uint32_t rank;        /* of the root's value: dimensions of what is computed align at its end */
    bool epilogue;        /* the root comes once per row, after a single reduction */
    bool direct, shares, possible;
};

/* ---- which groups, which roots ---- */

static size_t count_dims(const struct kiln__shape *shape, uint32_t from, uint32_t to)
{
    size_t count = 1;
    for (uint32_t d = from; d < to; d++)
        count *= shape->dims[d];
    return count;
}

/* Of access strides over the group's dimensions: neighbours, or one value for all, along a row. */
static bool runs_along_rows(const struct joiner *joiner, const struct kiln__access *access)
{
    for (uint32_t d = joiner->s.rank; d-- > joiner->kept;)
        if (joiner->s.dims[d] != 1)
            return access->stride[d] == 0 || access->stride[d] == 1;
    return true;
}

static uint32_t find_reduction(const struct joiner *joiner)
{
    const struct kiln__group *group = joiner->group;
    for (size_t i = 0; i < group->stores.count; i++)
        if (kiln__fuser_node(joiner->fuser, group->stores.items[i].node)->kind == KILN__REDUCE)
            return group->stores.items[i].node;
    return group->stores.items[0].node;
}

/* Say what the group's rows are, or would be if `index` reduced them: trailing dimensions. */
static bool find_rows(struct joiner *joiner, uint32_t index)
{
    const struct kiln__group *group = joiner->group;
    if (group->kind == KILN__GROUP_MAP)
        joiner->first = index;
    else if (group->kind == KILN__GROUP_REDUCE || group->kind == KILN__GROUP_ROWS)
        joiner->first = find_reduction(joiner);
    else
        return false;
    const struct kiln__node *node = kiln__fuser_node(joiner->fuser, joiner->first);
    if (node->kind != KILN__REDUCE)
        return false;
    joiner->s = kiln__fuser_node(joiner->fuser, node->input[0])->shape;
    joiner->kept = node->shape.rank;
    return node->axes >> joiner->kept << joiner->kept == node->axes;
}

/* Whether one kernel suits them: neighbours in memory, neither a single element nor too long. */
static bool suits(const struct joiner *joiner)
{
    const struct kiln__group *group = joiner->group;
    bool mapped = group->kind == KILN__GROUP_MAP;
    size_t length = count_dims(&joiner->s, joiner->kept, joiner->s.rank);
    bool suits = mapped ? length >= SHORTEST_MAPPED_ROW && length <= LONGEST_MAPPED_ROW &&
                              !group->stores.items[0].placed &&
                              kiln__shape_equal(&group->shape, &joiner->s)
                        : length > 1 && length <= LONGEST_ROW;
    suits = suits && !kiln__reduce_rows[kiln__fuser_node(joiner->fuser, joiner->first)->op].indexed;
    for (size_t i = 0; i < group->accesses.count; i++)
        suits = suits && group->accesses.items[i].kind != KILN__ACCESS_GATHER &&
                runs_along_rows(joiner, &group->accesses.items[i]);
    return suits;
}

/* One value per row, as a reduction leaves it or with the reduced dimensions as 1. */
static bool is_per_row(const struct joiner *joiner, const struct kiln__shape *shape)
{
    bool dropped = shape->rank == joiner->kept;
    if (!dropped && shape->rank != joiner->s.rank)
        return false;
    for (uint32_t d = 0; d < shape->rank; d++)
        if (shape->dims[d] != (d < joiner->kept ? joiner->s.dims[d] : 1))
            return false;
    return true;
}

static bool is_root_of_rows(const struct joiner *joiner, uint32_t index)
{
    const struct kiln__node *node = kiln__fuser_node(joiner->fuser, index);
    if (node->kind == KILN__REDUCE)
        return !kiln__reduce_rows[node->op].indexed &&
               node->axes == kiln__fuser_node(joiner->fuser, joiner->first)->axes &&
               kiln__shape_equal(&kiln__fuser_node(joiner->fuser, node->input[0])->shape,
                                 &joiner->s);
    if (!kiln__node_is_pointwise(node))
        return false;
    if (kiln__shape_equal(&node->shape, &joiner->s))
        return true;
    return is_per_row(joiner, &node->shape);
}

static size_t count_reduced(const struct kiln__group *group)
{
    size_t count = 0;
    for (size_t i = 0; i < group->steps.count; i++)
        count += group->steps.items[i].kind == KILN__STEP_REDUCED;
    return count;
}

static bool has_room(const struct joiner *joiner, uint32_t index)
{
    const struct kiln__node *node = kiln__fuser_node(joiner->fuser, index);
    const struct kiln__group *group = joiner->group;
    bool reduces = node->kind == KILN__REDUCE;
    const struct kiln__size *size = &joiner->fuser->sizes[reduces ? node->input[0] : index];
    return (group->steps.count + size->steps + 2 <= MOST_STEPS &&
            group->accesses.count + group->stores.count + size->loads + 2 < MOST_BUFFERS &&
            count_reduced(group) + reduces <= MOST_REDUCED);
}

/* ---- what the root reads ---- */

static struct kiln__access access_at(const struct joiner *joiner, uint32_t index, uint32_t rank)
{
    return kiln__access_to(joiner->fuser, index, kiln__straight, rank);
}

static bool has_access(const struct joiner *joiner, const struct kiln__access *access)
{
    for (size_t i = 0; i < joiner->group->accesses.count; i++)
        if (kiln__same_access(&joiner->group->accesses.items[i], access))
            return true;
    return false;
}

/* Look at everything that computing `index` in registers reads. */
static void inspect(struct joiner *joiner, uint32_t index, bool root)
{
    const struct kiln__node *node = kiln__fuser_node(joiner->fuser, index);
    const struct kiln__layout *layout = &joiner->fuser->layouts[index];
    if (node->kind == KILN__CONSTANT || !joiner->possible)
        return;
    if (kiln__node_is_pointwise(node) && (root || !layout->known)) {
        for (unsigned k = 0; k < node->n_inputs; k++)
            inspect(joiner, node->input[k], false);
        return;
    }
    if (kiln__node_is_computed(node) && !layout->known) {
        joiner->possible = false; /* a gather */
        return;
    }
    uint32_t maker = joiner->fuser->fusion->group_of[layout->base];
    if (maker == joiner->number) {
        joiner->possible = kiln__find_stored(joiner->fuser, joiner->group, index, kiln__straight,
                                             joiner->rank) != KILN__NO_STEP;
        joiner->direct = true;
        return;
    }
    struct kiln__access access = access_at(joiner, index, joiner->rank);
    joiner->possible = (maker == KILN__NO_GROUP || maker < joiner->number) &&
                       (joiner->epilogue || runs_along_rows(joiner, &access));
    joiner->shares = joiner->shares || has_access(joiner, &access);
}

static bool can_join(struct joiner *joiner, uint32_t index)
{
    const struct kiln__node *node = kiln__fuser_node(joiner->fuser, index);
    bool reduces = node->kind == KILN__REDUCE;
    if (!find_rows(joiner, index) || !is_root_of_rows(joiner, index) || !has_room(joiner, index))
        return false;
    joiner->epilogue =
        !reduces && joiner->group->kind == KILN__GROUP_REDUCE && is_per_row(joiner, &node->shape);
    if (!joiner->epilogue && !suits(joiner))
        return false;
    joiner->rank = reduces ? joiner->s.rank : node->shape.rank;
    joiner->possible = true;
    inspect(joiner, reduces ? node->input[0] : index, !reduces);
    bool mapped = joiner->group->kind == KILN__GROUP_MAP;
    return joiner->possible && (joiner->direct || (reduces && !mapped && joiner->shares));
}

/* ---- joining ---- */

/* A reduction or a map becomes a rows group. */
static void become_rows(struct joiner *joiner)
{
    struct kiln__group *group = joiner->group;
    for (size_t i = 0; group->kind == KILN__GROUP_MAP && i < group->stores.count; i++)
        group->stores.items[i].full = true;
    group->kind = KILN__GROUP_ROWS;
    group->kept = joiner->kept;
}

/* False without memory. An epilogue does not see what comes before its reduction. */
static bool join(struct joiner *joiner, uint32_t index)
{
    const struct kiln__node *node = kiln__fuser_node(joiner->fuser, index);
    bool full = !joiner->epilogue && node->kind != KILN__REDUCE &&
                kiln__shape_equal(&node->shape, &joiner->s);
    if (!joiner->epilogue)
        become_rows(joiner);
    struct kiln__builder builder = kiln__join_group(
        joiner->fuser, joiner->group, joiner->epilogue ? joiner->group->reduced_step : 0);
    uint16_t step;
    if (node->kind == KILN__REDUCE) {
        struct kiln__step reduced = {.kind = KILN__STEP_REDUCED, .op = node->op, .n_args = 1};
        reduced.type = node->type;
        reduced.args[0] =
            kiln__compute(&builder, node->input[0], false, kiln__straight, joiner->rank);
        kiln__note(&builder, index);
        step = kiln__add_step(&builder, reduced);
    } else {
        step = kiln__compute(&builder, index, true, kiln__straight, joiner->rank);
    }
    kiln__add_store(&builder, index, step);
    if (!builder.failed)
        joiner->group->stores.items[joiner->group->stores.count - 1].full = full;
    return !builder.failed;
}

uint32_t kiln__join_rows(struct kiln__fuser *fuser, uint32_t index, bool *done)
{
    struct kiln__fusion *fusion = fuser->fusion;
    uint32_t count = (uint32_t)fusion->groups.count;
    *done = true;
    for (uint32_t back = 1; back <= count && back <= LOOK_BACK; back++) {
        struct joiner joiner = {.fuser = fuser, .number = count - back};
        joiner.group = &fusion->groups.items[joiner.number];
        if (!can_join(&joiner, index))
            continue;
        *done = join(&joiner, index);
        return joiner.number;
    }
    return KILN__NO_GROUP;
}
