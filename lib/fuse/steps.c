/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/steps.h"

#include <assert.h>
#include <string.h>

/* Steps that may be used again start here. */
static size_t first_reusable(const struct kiln__builder *builder)
{
    return builder->joins ? builder->reusable : builder->group->steps.count;
}

uint16_t kiln__add_step(struct kiln__builder *builder, struct kiln__step step)
{
    for (size_t i = first_reusable(builder); i < builder->group->steps.count; i++)
        if (!memcmp(&builder->group->steps.items[i], &step, sizeof step))
            return (uint16_t)i;
    assert(builder->group->steps.count < KILN__NO_STEP);
    struct kiln__step *place = kiln__vector_push(&builder->group->steps);
    if (!place) {
        builder->failed = true;
        return 0;
    }
    *place = step;
    return (uint16_t)(builder->group->steps.count - 1);
}

uint32_t kiln__memo_key(const struct kiln__node *node, const uint32_t *at, uint32_t rank)
{
    uint32_t key = 0;
    assert(rank >= node->shape.rank);
    for (uint32_t d = rank - node->shape.rank; d < rank; d++)
        key = key * KILN_MAX_RANK + at[d];
    return key;
}

void kiln__remember(struct kiln__builder *builder, uint32_t node, uint32_t key, uint16_t step)
{
    struct kiln__memo *memo = kiln__vector_push(&builder->fuser->memo);
    if (memo)
        *memo = (struct kiln__memo){node, key, step};
    else
        builder->failed = true;
}

static uint16_t recall(const struct kiln__fuser *fuser, uint32_t node, uint32_t key)
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
    double *scalar = kiln__vector_push(&builder->group->scalars);
    if (!scalar) {
        builder->failed = true;
        return 0;
    }
    *scalar = node->value;
    return kiln__add_step(
        builder, (struct kiln__step){.kind = KILN__STEP_SCALAR,
                                     .type = node->type,
                                     .index = (uint16_t)(builder->group->scalars.count - 1)});
}

struct kiln__access kiln__access_to(const struct kiln__fuser *fuser, uint32_t index,
                                    const uint32_t *at, uint32_t rank)
{
    const struct kiln__node *node = kiln__fuser_node(fuser, index);
    const struct kiln__layout *layout = &fuser->layouts[index];
    struct kiln__access access = {.node = layout->base, .offset = layout->offset};
    assert(layout->known && rank >= node->shape.rank);
    uint32_t shift = rank - node->shape.rank;
    if (kiln__fuser_node(fuser, layout->base)->kind == KILN__IOTA)
        access.kind = KILN__ACCESS_NUMBER;
    for (uint32_t d = 0; d < node->shape.rank; d++)
        if (node->shape.dims[d] != 1)
            access.stride[at[d + shift]] = layout->stride[d];
    return access;
}

bool kiln__same_access(const struct kiln__access *a, const struct kiln__access *b)
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
        if (loads && kiln__same_access(&group->accesses.items[step->index], access))
            return (uint16_t)i;
    }
    return KILN__NO_STEP;
}

uint16_t kiln__add_load(struct kiln__builder *builder, uint32_t index, const uint32_t *at,
                        uint32_t rank)
{
    struct kiln__access access = kiln__access_to(builder->fuser, index, at, rank);
    bool number = access.kind == KILN__ACCESS_NUMBER;
    uint16_t have = find_load(builder, &access);
    if (have != KILN__NO_STEP)
        return have;
    struct kiln__access *place = kiln__vector_push(&builder->group->accesses);
    if (!place) {
        builder->failed = true;
        return 0;
    }
    *place = access;
    if (!number)
        builder->fuser->fusion->stored[access.node] = true;
    return kiln__add_step(
        builder, (struct kiln__step){.kind = number ? KILN__STEP_NUMBER : KILN__STEP_LOAD,
                                     .type = kiln__fuser_node(builder->fuser, index)->type,
                                     .index = (uint16_t)(builder->group->accesses.count - 1)});
}

uint16_t kiln__find_stored(const struct kiln__fuser *fuser, const struct kiln__group *group,
                           uint32_t index, const uint32_t *at, uint32_t rank)
{
    uint32_t base = fuser->layouts[index].base;
    const struct kiln__shape *shape = &kiln__fuser_node(fuser, base)->shape;
    struct kiln__access wanted = kiln__access_to(fuser, index, at, rank);
    struct kiln__access natural = kiln__access_to(fuser, base, kiln__straight, shape->rank);
    for (size_t i = 0; i < group->stores.count; i++)
        if (group->stores.items[i].node == base)
            return kiln__same_access(&wanted, &natural) ? group->stores.items[i].step
                                                        : KILN__NO_STEP;
    return KILN__NO_STEP;
}

/* The data of a gather: dimensions before the axis and behind it stand around those of the indices;
 * along the axis the index decides. */
static struct kiln__access gathered_access(const struct kiln__fuser *fuser,
                                           const struct kiln__node *node, const uint32_t *at)
{
    const struct kiln__node *data = kiln__fuser_node(fuser, node->input[0]);
    const struct kiln__layout *layout = &fuser->layouts[node->input[0]];
    uint32_t indices = kiln__fuser_node(fuser, node->input[1])->shape.rank,
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
    const struct kiln__node *indices = kiln__fuser_node(builder->fuser, node->input[1]);
    uint16_t where =
        kiln__compute(builder, node->input[1], false, at + node->axis, indices->shape.rank);
    struct kiln__access *access = kiln__vector_push(&builder->group->accesses);
    if (!access) {
        builder->failed = true;
        return 0;
    }
    *access = gathered_access(builder->fuser, node, at);
    builder->fuser->fusion->stored[access->node] = true;
    struct kiln__step gather = {.kind = KILN__STEP_GATHER, .type = node->type, .n_args = 1};
    gather.index = (uint16_t)(builder->group->accesses.count - 1);
    gather.args[0] = where;
    return kiln__add_step(builder, gather);
}

/* The step of an elementwise operation or a cast. */
static uint16_t add_apply(struct kiln__builder *builder, const struct kiln__node *node,
                          const uint32_t *at, uint32_t rank)
{
    struct kiln__step apply = {.op = node->op, .type = node->type, .n_args = node->n_inputs};
    apply.kind = node->kind == KILN__CAST ? KILN__STEP_CONVERT : KILN__STEP_APPLY;
    for (unsigned k = 0; k < node->n_inputs; k++)
        apply.args[k] = kiln__compute(builder, node->input[k], false, at, rank);
    return kiln__add_step(builder, apply);
}

/* The depth is bounded by the steps that one root may have. */
uint16_t kiln__compute(struct kiln__builder *builder, uint32_t index, bool root, const uint32_t *at,
                       uint32_t rank)
{
    const struct kiln__node *node = kiln__fuser_node(builder->fuser, index);
    uint32_t key = kiln__memo_key(node, at, rank);
    uint16_t step = recall(builder->fuser, index, key);
    if (step != KILN__NO_STEP || builder->failed)
        return step;
    if (node->kind == KILN__CONSTANT) {
        step = add_scalar(builder, node);
    } else if (kiln__node_is_computed(node) && (root || !builder->fuser->layouts[index].known)) {
        step = node->kind == KILN__GATHER
                   ? add_gather(builder, node, at + (rank - node->shape.rank))
                   : add_apply(builder, node, at, rank);
        kiln__note(builder, index);
    } else {
        step = kiln__find_stored(builder->fuser, builder->group, index, at, rank);
        if (step == KILN__NO_STEP)
            step = kiln__add_load(builder, index, at, rank);
    }
    kiln__remember(builder, index, key, step);
    return step;
}

void kiln__note(struct kiln__builder *builder, uint32_t node)
{
    uint32_t *place = kiln__vector_push(&builder->group->nodes);
    if (place)
        *place = node;
    else
        builder->failed = true;
}

void kiln__add_store(struct kiln__builder *builder, uint32_t node, uint16_t step)
{
    struct kiln__store *place = kiln__vector_push(&builder->group->stores);
    if (place)
        *place = (struct kiln__store){.node = node, .step = step};
    else
        builder->failed = true;
}

struct kiln__builder kiln__begin_group(struct kiln__fuser *fuser, enum kiln__group_kind kind)
{
    struct kiln__builder builder = {.fuser = fuser};
    builder.group = kiln__vector_push(&fuser->fusion->groups);
    builder.failed = !builder.group;
    fuser->memo.count = 0;
    if (builder.group)
        builder.group->kind = (uint8_t)kind;
    return builder;
}

struct kiln__builder kiln__join_group(struct kiln__fuser *fuser, struct kiln__group *group,
                                      size_t reusable)
{
    fuser->memo.count = 0;
    return (struct kiln__builder){
        .fuser = fuser, .group = group, .joins = true, .reusable = reusable};
}
