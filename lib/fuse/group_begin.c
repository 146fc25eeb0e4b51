/* SPDX-License-Identifier: Apache-2.0 */
/* A group for a root, by the kind of its node. */
#include "fuse/group_kinds.h"

/* Where a part lies in the memory of the whole. */
static void aim_store(struct kiln__store *store, const struct kiln__node *node,
                      const struct kiln__shape *part)
{
    int64_t stride[KILN_MAX_RANK];
    kiln__shape_strides(&node->shape, stride);
    for (uint32_t d = 0; d < node->shape.rank; d++)
        store->offset += node->view.start[d] * stride[d];
    for (uint32_t k = 0; k < part->rank; k++)
        if (part->dims[k] != 1)
            store->stride[k] = node->view.step[k] * stride[node->view.source[k]];
}

/* The same of a part whose positions along an axis the step `position` computes: the dimensions of
 * its indices stand in place of the axis. */
static void aim_store_at(struct kiln__store *store, const struct kiln__node *node,
                         const struct kiln__shape *part, uint16_t position)
{
    const uint32_t axis = (uint32_t)node->axis, indices = part->rank + 1 - node->shape.rank;
    int64_t stride[KILN_MAX_RANK];
    kiln__shape_strides(&node->shape, stride);
    for (uint32_t d = 0; d < node->shape.rank; d++) {
        const uint32_t at = d < axis ? d : d - 1 + indices;
        if (d != axis && part->dims[at] != 1)
            store->stride[at] = stride[d];
    }
    store->position = (uint16_t)(position + 1);
    store->jump = stride[axis];
    store->extent = node->shape.dims[axis];
}

/* A part of what is put over its base, at its place there. */
static void begin_part(struct kiln__builder *builder, uint32_t index)
{
    const struct kiln__node *node = kiln__fuse_node(builder->fuser, index);
    const struct kiln__shape *part = &builder->group->shape;
    const bool computed = node->kind == KILN__SCATTER;
    uint16_t position = 0;
    kiln__fuse_add_node(builder, index);
    uint16_t value =
        kiln__fuse_compute(builder, node->input[0], false, kiln__fuse_straight, part->rank);
    if (computed) {
        const uint32_t indices = node->input[KILN__SCATTER_INDICES];
        position = kiln__fuse_compute(builder, indices, false, kiln__fuse_straight + node->axis,
                                      kiln__fuse_node(builder->fuser, indices)->shape.rank);
    }
    kiln__fuse_add_store(builder, index, value);
    if (builder->failed)
        return;
    struct kiln__store *store = &builder->group->stores.items[0];
    store->placed = true;
    if (computed)
        aim_store_at(store, node, part, position);
    else
        aim_store(store, node, part);
}

void kiln__group_begin_map(struct kiln__builder *builder, uint32_t index)
{
    if (kiln__node_puts_part(kiln__fuse_node(builder->fuser, index)))
        begin_part(builder, index);
    else
        kiln__fuse_add_store(builder, index,
                             kiln__fuse_compute(builder, index, true, kiln__fuse_straight,
                                                builder->group->shape.rank));
}

/* Kept dimensions first, then those of rows; `at` says where the input's dimensions went. */
static void order_dimensions(struct kiln__group *group, const struct kiln__node *node,
                             const struct kiln__node *input, uint32_t at[KILN_MAX_RANK])
{
    group->shape.rank = input->shape.rank;
    group->axes = node->axes;
    group->kept = input->shape.rank - (uint32_t)__builtin_popcountll(node->axes);
    kiln__group_order(group, at);
    for (uint32_t d = 0; d < input->shape.rank; d++) {
        group->shape.dims[at[d]] = input->shape.dims[d];
        group->reduced *= at[d] < group->kept ? 1 : input->shape.dims[d];
    }
}

/* The step that goes over the rows of the root's input, and its store. */
static uint16_t begin_rows(struct kiln__builder *builder, uint32_t index)
{
    const struct kiln__node *node = kiln__fuse_node(builder->fuser, index);
    uint32_t at[KILN_MAX_RANK] = {0};
    order_dimensions(builder->group, node, kiln__fuse_node(builder->fuser, node->input[0]), at);
    uint16_t step = kiln__fuse_reduce(builder, index, at);
    kiln__fuse_add_store(builder, index, step);
    return step;
}

void kiln__group_begin_reduce(struct kiln__builder *builder, uint32_t index)
{
    builder->group->reduced_step = begin_rows(builder, index);
}

void kiln__group_begin_scan(struct kiln__builder *builder, uint32_t index)
{
    begin_rows(builder, index);
    if (!builder->failed)
        builder->group->stores.items[0].full = true;
}

void kiln__group_begin_product(struct kiln__builder *builder, uint32_t index)
{
    const struct kiln__node *node = kiln__fuse_node(builder->fuser, index);
    const struct kiln__shape *left = &kiln__fuse_node(builder->fuser, node->input[0])->shape;
    struct kiln__step product = {
        .kind = KILN__STEP_PRODUCT, .op = node->op, .type = node->type, .n_args = KILN__OPERANDS};
    kiln__fuse_add_node(builder, index);
    builder->group->reduced = left->dims[left->rank - 1];
    for (unsigned k = 0; k < KILN__OPERANDS && !builder->failed; k++)
        product.args[k] = kiln__fuse_operand(builder, node->input[k]);
    builder->group->reduced_step = kiln__fuse_add_step(builder, product);
    kiln__fuse_add_store(builder, index, builder->group->reduced_step);
}

void kiln__group_begin_whole(struct kiln__builder *builder, uint32_t index)
{
    kiln__fuse_load_operands(builder, index);
    kiln__fuse_add_node(builder, index);
    kiln__fuse_add_store(builder, index, 0);
}

/* What is below a root, in a group of its own: the last one. It often turns out to be there already
 * (donation.c). False without memory. */
static bool begin_base(struct kiln__fuser *fuser, uint32_t index, uint32_t base)
{
    const struct kiln__shape *shape = &kiln__fuse_node(fuser, index)->shape;
    struct kiln__builder builder = kiln__fuse_new_group(fuser, KILN__GROUP_MAP, shape);
    if (!builder.failed)
        kiln__fuse_add_store(
            &builder, index,
            kiln__fuse_compute(&builder, base, false, kiln__fuse_straight, shape->rank));
    return !builder.failed;
}

bool kiln__fuse_begin(struct kiln__fuser *fuser, uint32_t index)
{
    const struct kiln__node *node = kiln__fuse_node(fuser, index);
    enum kiln__group_kind kind = kiln__group_kind_of(node);
    uint32_t base = kiln__node_base(node);
    bool over = node->kind == KILN__INSERT_SLICE || node->kind == KILN__SCATTER;
    if (base != UINT32_MAX && !begin_base(fuser, index, base))
        return false;
    /* What is put over something else visits its own elements, not all of the result's. */
    struct kiln__builder builder = kiln__fuse_new_group(
        fuser, kind, over ? &kiln__fuse_node(fuser, node->input[0])->shape : &node->shape);
    if (builder.failed)
        return false;
    if (base != UINT32_MAX)
        builder.group->base_group = (uint32_t)fuser->fusion->groups.count - 2;
    kiln__group_traits[kind].begin(&builder, index);
    return !builder.failed;
}
