/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a group while it is made, and a memo of the values that they compute. */
#include "fuse/group_kinds.h"

#include <assert.h>
#include <string.h>

const uint32_t kiln__fuse_straight[KILN_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};

/* Append to a vector of the group; false, for good, without memory. */
#define APPEND(builder, vector, item)                                                              \
    (kiln__vector_add(vector, item) || ((builder)->failed = true, false))

/* Steps that may be used again start here. */
static size_t first_reusable(const struct kiln__builder *builder)
{
    return builder->joins ? builder->reusable : builder->group->steps.count;
}

uint16_t kiln__fuse_add_step(struct kiln__builder *builder, struct kiln__step step)
{
    for (size_t i = first_reusable(builder); i < builder->group->steps.count; i++)
        if (!memcmp(&builder->group->steps.items[i], &step, sizeof step))
            return (uint16_t)i;
    assert(builder->group->steps.count < KILN__NO_STEP);
    if (!APPEND(builder, &builder->group->steps, step))
        return 0;
    return (uint16_t)(builder->group->steps.count - 1);
}

static uint32_t memo_key(const struct kiln__node *node, const uint32_t *at, uint32_t rank)
{
    uint32_t key = 0;
    assert(rank >= node->shape.rank);
    for (uint32_t d = rank - node->shape.rank; d < rank; d++)
        key = key * KILN_MAX_RANK + at[d];
    return key;
}

static void steps_remember(struct kiln__builder *builder, uint32_t node, uint32_t key,
                           uint16_t step)
{
    if (!kiln__vector_add(&builder->fuser->memo, (struct kiln__memo){node, key, step}))
        builder->failed = true;
}

static uint16_t steps_recall(const struct kiln__fuser *fuser, uint32_t node, uint32_t key)
{
    for (size_t i = fuser->memo.count; i-- > 0;)
        if (fuser->memo.items[i].node == node && fuser->memo.items[i].key == key)
            return fuser->memo.items[i].step;
    return KILN__NO_STEP;
}

static uint16_t add_scalar(struct kiln__builder *builder, const struct kiln__node *node)
{
    const struct kiln__group *group = builder->group;
    for (size_t i = first_reusable(builder); i < group->steps.count; i++) {
        const struct kiln__step *have = &group->steps.items[i];
        if (have->kind == KILN__STEP_SCALAR && have->type == node->type &&
            !memcmp(&group->scalars.items[have->index], &node->value, sizeof node->value))
            return (uint16_t)i;
    }
    if (!APPEND(builder, &builder->group->scalars, node->value))
        return 0;
    return kiln__fuse_add_step(
        builder, (struct kiln__step){.kind = KILN__STEP_SCALAR,
                                     .type = node->type,
                                     .index = (uint16_t)(builder->group->scalars.count - 1)});
}

/* Joining has asked whether strides say it. */
static void reshape_access(const struct kiln__builder *builder, struct kiln__access *access)
{
    bool reached = !builder->reshaped || kiln__fuse_reshape_access(builder->reshaped, access);
    assert(reached);
    (void)reached;
}

/* Where a load through `layout` finds a node of `shape`. */
static struct kiln__access access_through(const struct kiln__fuser *fuser,
                                          const struct kiln__layout *layout,
                                          const struct kiln__shape *shape, const uint32_t *at,
                                          uint32_t rank)
{
    struct kiln__access access = {.node = layout->base, .offset = layout->offset};
    assert(layout->known && rank >= shape->rank);
    uint32_t shift = rank - shape->rank;
    if (kiln__fuse_node(fuser, layout->base)->kind == KILN__IOTA)
        access.kind = KILN__ACCESS_NUMBER;
    for (uint32_t d = 0; d < shape->rank; d++)
        if (shape->dims[d] != 1)
            access.stride[at[d + shift]] = layout->stride[d];
    return access;
}

void kiln__fuse_value_dimensions(const struct kiln__group *group, uint32_t rank,
                                 uint32_t at[KILN_MAX_RANK])
{
    if (rank == group->shape.rank)
        kiln__group_order(group, at);
    else
        memcpy(at, kiln__fuse_straight, sizeof kiln__fuse_straight);
}

struct kiln__access kiln__fuse_access(const struct kiln__fuser *fuser, uint32_t index,
                                      const uint32_t *at, uint32_t rank)
{
    return access_through(fuser, &fuser->layouts[index], &kiln__fuse_node(fuser, index)->shape, at,
                          rank);
}

bool kiln__fuse_same_access(const struct kiln__access *a, const struct kiln__access *b)
{
    return a->node == b->node && a->kind == b->kind && a->kind != KILN__ACCESS_GATHER &&
           a->offset == b->offset && !memcmp(a->stride, b->stride, sizeof a->stride);
}

/* The step that loads by such an access and can be used again. */
static uint16_t find_load(const struct kiln__builder *builder, const struct kiln__access *access)
{
    const struct kiln__group *group = builder->group;
    for (size_t i = first_reusable(builder); i < group->steps.count; i++) {
        const struct kiln__step *step = &group->steps.items[i];
        bool loads = step->kind == KILN__STEP_LOAD || step->kind == KILN__STEP_NUMBER;
        if (loads && kiln__fuse_same_access(&group->accesses.items[step->index], access))
            return (uint16_t)i;
    }
    return KILN__NO_STEP;
}

/* `step`, as a value of `type`. */
static uint16_t convert(struct kiln__builder *builder, uint16_t step, kiln_type type)
{
    if (builder->failed || builder->group->steps.items[step].type == type)
        return step;
    struct kiln__step converted = {.kind = KILN__STEP_CONVERT, .type = type, .n_args = 1};
    converted.args[0] = step;
    return kiln__fuse_add_step(builder, converted);
}

/* What lies there, as a value of `type`. */
static uint16_t add_load(struct kiln__builder *builder, const struct kiln__access *access,
                         kiln_type type)
{
    bool number = access->kind == KILN__ACCESS_NUMBER;
    uint16_t have = find_load(builder, access);
    if (have != KILN__NO_STEP)
        return convert(builder, have, type);
    if (!APPEND(builder, &builder->group->accesses, *access))
        return 0;
    builder->fuser->fusion->stored[access->node] |= !number;
    struct kiln__step load = {.kind = number ? KILN__STEP_NUMBER : KILN__STEP_LOAD};
    load.type = kiln__fuse_node(builder->fuser, access->node)->type;
    load.index = (uint16_t)(builder->group->accesses.count - 1);
    return convert(builder, kiln__fuse_add_step(builder, load), type);
}

uint16_t kiln__fuse_load(struct kiln__builder *builder, uint32_t index)
{
    const struct kiln__node *node = kiln__fuse_node(builder->fuser, index);
    size_t before = builder->group->accesses.count;
    struct kiln__access access =
        kiln__fuse_access(builder->fuser, index, kiln__fuse_straight, node->shape.rank);
    access.kind = KILN__ACCESS_MEMORY; /* numbers too */
    uint16_t step = add_load(builder, &access, node->type);
    assert(builder->failed || builder->group->accesses.count == before + 1); /* equal ones too */
    (void)before;
    return step;
}

void kiln__fuse_load_operands(struct kiln__builder *builder, uint32_t index)
{
    const struct kiln__node *node = kiln__fuse_node(builder->fuser, index);
    unsigned count = kiln__group_operands(builder->group, node);
    for (unsigned k = 0; k < count && !builder->failed; k++)
        kiln__fuse_load(builder, node->input[k]);
}

/* Row-major over what the store is of. */
static struct kiln__access stored_access(const struct kiln__group *group,
                                         const struct kiln__store *store)
{
    struct kiln__access access = {.node = store->node};
    struct kiln__shape shape = kiln__group_visited(group);
    int64_t stride[KILN_MAX_RANK];
    uint32_t at[KILN_MAX_RANK];
    if (store->full) {
        kiln__group_order(group, at);
    } else {
        shape = group->shape;
        shape.rank = group->kept;
        memcpy(at, kiln__fuse_straight, sizeof at);
    }
    kiln__shape_strides(&shape, stride);
    for (uint32_t d = 0; d < shape.rank; d++)
        if (shape.dims[d] != 1)
            access.stride[at[d]] = stride[d];
    return access;
}

uint16_t kiln__fuse_find_stored(const struct kiln__group *group, const struct kiln__access *wanted)
{
    for (size_t i = 0; i < group->stores.count; i++) {
        const struct kiln__store *store = &group->stores.items[i];
        struct kiln__access own = stored_access(group, store);
        if (store->node == wanted->node)
            return kiln__fuse_same_access(wanted, &own) ? store->step : KILN__NO_STEP;
    }
    return KILN__NO_STEP;
}

/* The data of a gather: dimensions before the axis and behind it stand around those of the indices;
 * along the axis the index decides. */
static struct kiln__access gathered_access(const struct kiln__fuser *fuser,
                                           const struct kiln__node *node, const uint32_t *at)
{
    const struct kiln__node *data = kiln__fuse_node(fuser, node->input[0]);
    const struct kiln__layout *layout = &fuser->layouts[node->input[0]];
    uint32_t indices = kiln__fuse_node(fuser, node->input[1])->shape.rank,
             axis = (uint32_t)node->axis;
    struct kiln__access access = {.node = layout->base, .offset = layout->offset};
    access.kind = KILN__ACCESS_GATHER;
    access.jump = layout->stride[axis];
    access.extent = data->shape.dims[axis];
    for (uint32_t d = 0; d < data->shape.rank; d++)
        if (d != axis && data->shape.dims[d] != 1)
            access.stride[at[d < axis ? d : d - 1 + indices]] = layout->stride[d];
    return access;
}

/* `at` says where the dimensions of the gather itself stand. */
static uint16_t add_gather(struct kiln__builder *builder, const struct kiln__node *node,
                           const uint32_t *at)
{
    const struct kiln__node *indices = kiln__fuse_node(builder->fuser, node->input[1]);
    uint16_t where =
        kiln__fuse_compute(builder, node->input[1], false, at + node->axis, indices->shape.rank);
    struct kiln__access access = gathered_access(builder->fuser, node, at);
    reshape_access(builder, &access);
    if (!APPEND(builder, &builder->group->accesses, access))
        return 0;
    builder->fuser->fusion->stored[access.node] = true;
    struct kiln__step gather = {.kind = KILN__STEP_GATHER, .n_args = 1};
    gather.op = node->op;
    gather.type = kiln__fuse_node(builder->fuser, access.node)->type;
    gather.index = (uint16_t)(builder->group->accesses.count - 1);
    gather.args[0] = where;
    return convert(builder, kiln__fuse_add_step(builder, gather), node->type);
}

/* The step of an elementwise operation or a cast. */
static uint16_t add_apply(struct kiln__builder *builder, const struct kiln__node *node,
                          const uint32_t *at, uint32_t rank)
{
    struct kiln__step apply = {.op = node->op, .type = node->type, .n_args = node->n_inputs};
    apply.kind = node->kind == KILN__CAST ? KILN__STEP_CONVERT : KILN__STEP_APPLY;
    for (unsigned k = 0; k < node->n_inputs; k++)
        apply.args[k] = kiln__fuse_compute(builder, node->input[k], false, at, rank);
    return kiln__fuse_add_step(builder, apply);
}

/* A movement that goes to memory is loaded through the layout of its input. */
static uint16_t add_movement(struct kiln__builder *builder, uint32_t index, const uint32_t *at,
                             uint32_t rank)
{
    const struct kiln__fuser *fuser = builder->fuser;
    const struct kiln__node *node = kiln__fuse_node(fuser, index);
    struct kiln__layout layout =
        kiln__layout_of(&fuser->fusion->graph, index, fuser->layouts, false);
    struct kiln__access access = access_through(fuser, &layout, &node->shape, at, rank);
    reshape_access(builder, &access);
    return add_load(builder, &access, node->type);
}

static uint16_t add_value(struct kiln__builder *builder, uint32_t index, bool root,
                          const uint32_t *at, uint32_t rank)
{
    const struct kiln__node *node = kiln__fuse_node(builder->fuser, index);
    if (node->kind == KILN__CONSTANT)
        return add_scalar(builder, node);
    if (root && kiln__node_is_movement(node))
        return add_movement(builder, index, at, rank);
    const struct kiln__layout *layout = &builder->fuser->layouts[index];
    if (kiln__node_is_computed(node) && (root || !layout->known || layout->base != index)) {
        uint16_t step = node->kind == KILN__GATHER
                            ? add_gather(builder, node, at + (rank - node->shape.rank))
                            : add_apply(builder, node, at, rank);
        kiln__fuse_add_node(builder, index);
        return step;
    }
    struct kiln__access access = kiln__fuse_access(builder->fuser, index, at, rank);
    reshape_access(builder, &access);
    uint16_t stored = kiln__fuse_find_stored(builder->group, &access);
    if (stored != KILN__NO_STEP)
        return convert(builder, stored, node->type);
    return add_load(builder, &access, node->type);
}

/* The depth is bounded by the steps that one root may have. */
uint16_t kiln__fuse_compute(struct kiln__builder *builder, uint32_t index, bool root,
                            const uint32_t *at, uint32_t rank)
{
    const struct kiln__node *node = kiln__fuse_node(builder->fuser, index);
    uint32_t key = memo_key(node, at, rank);
    uint16_t step = steps_recall(builder->fuser, index, key);
    if (step != KILN__NO_STEP || builder->failed)
        return step;
    step = add_value(builder, index, root, at, rank);
    steps_remember(builder, index, key, step);
    return step;
}

uint16_t kiln__fuse_reduce(struct kiln__builder *builder, uint32_t index, const uint32_t *at)
{
    const struct kiln__node *node = kiln__fuse_node(builder->fuser, index);
    uint32_t rank = kiln__fuse_node(builder->fuser, node->input[0])->shape.rank;
    struct kiln__step reduced = {.op = node->op, .n_args = 1};
    reduced.kind = node->kind == KILN__SCAN ? KILN__STEP_SCANNED : KILN__STEP_REDUCED;
    reduced.type = node->type;
    reduced.args[0] = kiln__fuse_compute(builder, node->input[0], false, at, rank);
    kiln__fuse_add_node(builder, index);
    return kiln__fuse_add_step(builder, reduced);
}

void kiln__fuse_add_node(struct kiln__builder *builder, uint32_t node)
{
    (void)APPEND(builder, &builder->group->nodes, node);
}

void kiln__fuse_add_store(struct kiln__builder *builder, uint32_t node, uint16_t step)
{
    struct kiln__store store = {
        .node = node, .step = step, .full = !kiln__group_reduces(builder->group)};
    (void)APPEND(builder, &builder->group->stores, store);
}

struct kiln__builder kiln__fuse_new_group(struct kiln__fuser *fuser, enum kiln__group_kind kind,
                                          const struct kiln__shape *shape)
{
    struct kiln__group *group = kiln__vector_push(&fuser->fusion->groups);
    fuser->memo.count = 0;
    if (group) {
        group->kind = kind;
        group->base_group = KILN__NO_GROUP;
        group->shape = *shape;
        group->kept = shape->rank;
        group->reduced = 1;
    }
    return (struct kiln__builder){.fuser = fuser, .group = group, .failed = !group};
}

struct kiln__builder kiln__fuse_resume(struct kiln__fuser *fuser, struct kiln__group *group)
{
    fuser->memo.count = 0;
    return (struct kiln__builder){
        .fuser = fuser, .group = group, .joins = true, .reusable = group->reduced_step};
}
