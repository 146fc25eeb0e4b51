/* SPDX-License-Identifier: Apache-2.0 */
/* A group for a root, by the kind of its node. */
#include <assert.h>

#include "fuse/steps.h"

/* A view that goes to memory is loaded through the layout of its input. */
static uint16_t compute_root(struct kiln__builder *builder, uint32_t index)
{
    const struct kiln__node *node = kiln__fuser_node(builder->fuser, index);
    if (!kiln__node_is_movement(node))
        return kiln__compute(builder, index, true, kiln__straight, node->shape.rank);
    struct kiln__fuser *fuser = builder->fuser;
    struct kiln__layout own = fuser->layouts[index];
    fuser->layouts[index] = kiln__layout_of(&fuser->fusion->graph, index, fuser->layouts, false);
    uint16_t step = kiln__add_load(builder, index, kiln__straight, node->shape.rank);
    fuser->layouts[index] = own;
    kiln__remember(builder, index, kiln__memo_key(node, kiln__straight, node->shape.rank), step);
    return step;
}

static bool form_map(struct kiln__fuser *fuser, uint32_t index)
{
    struct kiln__builder builder = kiln__begin_group(fuser, KILN__GROUP_MAP);
    if (builder.failed)
        return false;
    builder.group->shape = kiln__fuser_node(fuser, index)->shape;
    kiln__add_store(&builder, index, compute_root(&builder, index));
    return !builder.failed;
}

/* Kept dimensions first, then reduced ones; `at` says where the input's dimensions went. */
static void order_dimensions(struct kiln__group *group, const struct kiln__node *node,
                             const struct kiln__node *input, uint32_t at[KILN_MAX_RANK])
{
    uint32_t place = 0;
    group->shape.rank = input->shape.rank;
    for (int reduced = 0; reduced < 2; reduced++) {
        for (uint32_t d = 0; d < input->shape.rank; d++) {
            if ((int)(node->axes >> d & 1) != reduced)
                continue;
            at[d] = place;
            group->shape.dims[place++] = input->shape.dims[d];
        }
        if (!reduced)
            group->kept = place;
    }
}

static bool form_reduce(struct kiln__fuser *fuser, uint32_t index)
{
    const struct kiln__node *node = kiln__fuser_node(fuser, index);
    const struct kiln__node *input = kiln__fuser_node(fuser, node->input[0]);
    uint32_t at[KILN_MAX_RANK] = {0};
    struct kiln__builder builder = kiln__begin_group(fuser, KILN__GROUP_REDUCE);
    if (builder.failed)
        return false;
    builder.group->op = node->op;
    order_dimensions(builder.group, node, input, at);
    struct kiln__step reduced = {.kind = KILN__STEP_REDUCED, .op = node->op, .n_args = 1};
    reduced.type = node->type;
    reduced.args[0] = kiln__compute(&builder, node->input[0], false, at, input->shape.rank);
    builder.group->reduced_step = kiln__add_step(&builder, reduced);
    kiln__note(&builder, index);
    kiln__add_store(&builder, index, builder.group->reduced_step);
    return !builder.failed;
}

static bool form_matmul(struct kiln__fuser *fuser, uint32_t index)
{
    const struct kiln__node *node = kiln__fuser_node(fuser, index);
    struct kiln__builder builder = kiln__begin_group(fuser, KILN__GROUP_MATMUL);
    if (builder.failed)
        return false;
    builder.group->shape = node->shape;
    for (unsigned k = 0; k < KILN__OPERANDS; k++) {
        const struct kiln__shape *shape = &kiln__fuser_node(fuser, node->input[k])->shape;
        kiln__add_load(&builder, node->input[k], kiln__straight, node->shape.rank);
        if (builder.failed)
            return false;
        assert(builder.group->accesses.count == k + 1); /* equal operands have one each */
        builder.group->accesses.items[k].inner = shape->dims[shape->rank - 1];
    }
    kiln__note(&builder, index);
    kiln__add_store(&builder, index,
                    kiln__add_step(&builder, (struct kiln__step){.kind = KILN__STEP_PRODUCT,
                                                                 .type = node->type,
                                                                 .n_args = KILN__OPERANDS,
                                                                 .args = {0, 1}}));
    return !builder.failed;
}

/* Accesses for the first inputs of a node, which a kernel of its own reads from memory: numbers
 * too. False without memory. */
static bool load_inputs(struct kiln__builder *builder, const struct kiln__node *node,
                        unsigned count)
{
    for (unsigned k = 0; k < count; k++) {
        kiln__add_load(builder, node->input[k], kiln__straight,
                       kiln__fuser_node(builder->fuser, node->input[k])->shape.rank);
        if (builder->failed)
            return false;
        assert(builder->group->accesses.count == k + 1); /* equal inputs have one each */
        struct kiln__access *access = &builder->group->accesses.items[k];
        access->kind = KILN__ACCESS_MEMORY;
        builder->fuser->fusion->stored[access->node] = true;
    }
    return true;
}

/* A group of one node. */
static bool form_whole(struct kiln__fuser *fuser, uint32_t index, enum kiln__group_kind kind)
{
    const struct kiln__node *node = kiln__fuser_node(fuser, index);
    struct kiln__builder builder = kiln__begin_group(fuser, kind);
    if (builder.failed)
        return false;
    builder.group->shape = node->shape;
    if (!load_inputs(&builder, node, node->n_inputs))
        return false;
    kiln__note(&builder, index);
    kiln__add_store(&builder, index, 0);
    return !builder.failed;
}

static bool form_attention(struct kiln__fuser *fuser, uint32_t index)
{
    return form_whole(fuser, index, KILN__GROUP_ATTENTION);
}

static bool form_scan(struct kiln__fuser *fuser, uint32_t index)
{
    return form_whole(fuser, index, KILN__GROUP_SCAN);
}

/* Where a part lies in the memory of the whole. */
static void aim_store(struct kiln__store *store, const struct kiln__node *node,
                      const struct kiln__shape *part)
{
    int64_t stride[KILN_MAX_RANK];
    kiln__shape_strides(&node->shape, stride);
    store->placed = true;
    for (uint32_t d = 0; d < node->shape.rank; d++)
        store->offset += node->view.start[d] * stride[d];
    for (uint32_t k = 0; k < part->rank; k++)
        if (part->dims[k] != 1)
            store->stride[k] = node->view.step[k] * stride[node->view.source[k]];
}

/* What is below a part, in a group of its own. It often turns out to be there already (places.c).
 */
static bool form_base(struct kiln__fuser *fuser, uint32_t index, uint32_t base)
{
    const struct kiln__shape *shape = &kiln__fuser_node(fuser, index)->shape;
    struct kiln__builder builder = kiln__begin_group(fuser, KILN__GROUP_MAP);
    if (builder.failed)
        return false;
    builder.group->shape = *shape;
    kiln__add_store(&builder, index,
                    kiln__compute(&builder, base, false, kiln__straight, shape->rank));
    return !builder.failed;
}

/* A group over the first input of `index`, on what is below it. */
static struct kiln__builder begin_over(struct kiln__fuser *fuser, uint32_t index,
                                       enum kiln__group_kind kind)
{
    const struct kiln__node *node = kiln__fuser_node(fuser, index);
    uint32_t base = kiln__node_base(node);
    if (base != UINT32_MAX && !form_base(fuser, index, base))
        return (struct kiln__builder){.failed = true};
    struct kiln__builder builder = kiln__begin_group(fuser, kind);
    if (builder.failed)
        return builder;
    builder.group->shape = kiln__fuser_node(fuser, node->input[0])->shape;
    builder.group->over = base != UINT32_MAX;
    kiln__note(&builder, index);
    return builder;
}

static bool form_place(struct kiln__fuser *fuser, uint32_t index)
{
    const struct kiln__node *node = kiln__fuser_node(fuser, index);
    struct kiln__builder builder = begin_over(fuser, index, KILN__GROUP_MAP);
    if (builder.failed)
        return false;
    const struct kiln__shape *part = &builder.group->shape;
    kiln__add_store(&builder, index,
                    kiln__compute(&builder, node->input[0], false, kiln__straight, part->rank));
    if (!builder.failed)
        aim_store(&builder.group->stores.items[0], node, part);
    return !builder.failed;
}

static bool form_scatter(struct kiln__fuser *fuser, uint32_t index)
{
    const struct kiln__node *node = kiln__fuser_node(fuser, index);
    struct kiln__builder builder = begin_over(fuser, index, KILN__GROUP_SCATTER);
    if (builder.failed || !load_inputs(&builder, node, KILN__SCATTER_BASE))
        return false;
    kiln__add_store(&builder, index, 0);
    return !builder.failed;
}

typedef bool form(struct kiln__fuser *fuser, uint32_t index);

/* Kinds of nodes that have groups of a kind of their own. */
static form *const forms[] = {
    [KILN__REDUCE] = form_reduce, [KILN__MATMUL] = form_matmul, [KILN__ATTENTION] = form_attention,
    [KILN__SCAN] = form_scan,     [KILN__PLACE] = form_place,   [KILN__SCATTER_ADD] = form_scatter,
};

bool kiln__form_group(struct kiln__fuser *fuser, uint32_t index)
{
    const size_t kind = kiln__fuser_node(fuser, index)->kind;
    form *own = kind < sizeof forms / sizeof *forms ? forms[kind] : NULL;
    return (own ? own : form_map)(fuser, index);
}
