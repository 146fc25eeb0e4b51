/* SPDX-License-Identifier: Apache-2.0 */
/* Values that go to memory become the roots of groups, in an order in which every group comes after
 * those that it reads. A root joins an earlier group where one kernel can do both. */
#include <stdlib.h>
#include <string.h>

#include "passes/rows.h"

#define NO_STEP UINT16_MAX
#define NO_GROUP UINT32_MAX

/* ---- building one group ---- */

struct builder {
    struct kiln__fuser *fuser;
    struct kiln__group *group;
    bool failed;
};

static const struct kiln__node *node_at(const struct kiln__fuser *fuser, uint32_t index)
{
    return &fuser->fusion->graph.nodes.items[index];
}

static uint16_t add_step(struct builder *builder, struct kiln__step step)
{
    struct kiln__step *place = kiln__vector_push(&builder->group->steps);
    if (!place) {
        builder->failed = true;
        return 0;
    }
    *place = step;
    return (uint16_t)(builder->group->steps.count - 1);
}

/* The dimensions of a node that stand at `at`, aligned at the last of `rank`, as a number. */
static uint32_t key_of(const struct kiln__node *node, const uint32_t *at, uint32_t rank)
{
    uint32_t key = 0;
    for (uint32_t d = rank - node->shape.rank; d < rank; d++)
        key = key * KILN_MAX_RANK + at[d];
    return key;
}

static void remember(struct builder *builder, uint32_t node, uint32_t key, uint16_t step)
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
    return NO_STEP;
}

static uint16_t add_scalar(struct builder *builder, const struct kiln__node *node)
{
    double *scalar = kiln__vector_push(&builder->group->scalars);
    if (!scalar) {
        builder->failed = true;
        return 0;
    }
    *scalar = node->value;
    return add_step(builder,
                    (struct kiln__step){.kind = KILN__STEP_SCALAR,
                                        .type = node->type,
                                        .index = (uint16_t)(builder->group->scalars.count - 1)});
}

struct kiln__access kiln__access_to(const struct kiln__fuser *fuser, uint32_t index,
                                    const uint32_t *at, uint32_t rank)
{
    const struct kiln__node *node = node_at(fuser, index);
    const struct kiln__layout *layout = &fuser->layouts[index];
    struct kiln__access access = {.node = layout->base, .offset = layout->offset};
    uint32_t shift = rank - node->shape.rank;
    if (node_at(fuser, layout->base)->kind == KILN__IOTA)
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

static uint16_t add_load(struct builder *builder, uint32_t index, const uint32_t *at, uint32_t rank)
{
    struct kiln__access *access = kiln__vector_push(&builder->group->accesses);
    if (!access) {
        builder->failed = true;
        return 0;
    }
    *access = kiln__access_to(builder->fuser, index, at, rank);
    bool number = access->kind == KILN__ACCESS_NUMBER;
    if (!number)
        builder->fuser->fusion->stored[access->node] = true;
    return add_step(builder,
                    (struct kiln__step){.kind = number ? KILN__STEP_NUMBER : KILN__STEP_LOAD,
                                        .type = node_at(builder->fuser, index)->type,
                                        .index = (uint16_t)(builder->group->accesses.count - 1)});
}

/* The data of a gather: dimensions before the axis and behind it stand around those of the indices;
 * along the axis the index decides. */
static struct kiln__access gathered_access(const struct kiln__fuser *fuser,
                                           const struct kiln__node *node, const uint32_t *at)
{
    const struct kiln__node *data = node_at(fuser, node->input[0]);
    const struct kiln__layout *layout = &fuser->layouts[node->input[0]];
    uint32_t indices = node_at(fuser, node->input[1])->shape.rank, axis = (uint32_t)node->axis;
    struct kiln__access access = {.node = layout->base, .offset = layout->offset};
    access.kind = KILN__ACCESS_GATHER;
    access.jump = layout->stride[axis];
    access.extent = data->shape.dims[axis];
    for (uint32_t d = 0; d < data->shape.rank; d++)
        if (d != axis && data->shape.dims[d] != 1)
            access.stride[at[d < axis ? d : d - 1 + indices]] = layout->stride[d];
    return access;
}

static uint16_t compute(struct builder *builder, uint32_t index, bool root, const uint32_t *at,
                        uint32_t rank);

/* `at` says where the dimensions of the gather itself stand. */
static uint16_t add_gather(struct builder *builder, const struct kiln__node *node,
                           const uint32_t *at)
{
    const struct kiln__node *indices = node_at(builder->fuser, node->input[1]);
    uint16_t where = compute(builder, node->input[1], false, at + node->axis, indices->shape.rank);
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
    return add_step(builder, gather);
}

/* The step of an elementwise operation or a cast. */
static uint16_t add_apply(struct builder *builder, const struct kiln__node *node,
                          const uint32_t *at, uint32_t rank)
{
    struct kiln__step apply = {.op = node->op, .type = node->type, .n_args = node->n_inputs};
    apply.kind = node->kind == KILN__CAST ? KILN__STEP_CONVERT : KILN__STEP_APPLY;
    for (unsigned k = 0; k < node->n_inputs; k++)
        apply.args[k] = compute(builder, node->input[k], false, at, rank);
    return add_step(builder, apply);
}

/* The step that computes `index` at the group's element; `root` is computed even if it is in
 * memory. The depth is bounded by the steps that one root may have. */
static uint16_t compute(struct builder *builder, uint32_t index, bool root, const uint32_t *at,
                        uint32_t rank)
{
    const struct kiln__node *node = node_at(builder->fuser, index);
    uint32_t key = key_of(node, at, rank);
    uint16_t step = recall(builder->fuser, index, key);
    if (step != NO_STEP || builder->failed)
        return step;
    if (node->kind == KILN__CONSTANT) {
        step = add_scalar(builder, node);
    } else if (kiln__node_is_computed(node) && (root || !builder->fuser->layouts[index].known)) {
        step = node->kind == KILN__GATHER
                   ? add_gather(builder, node, at + (rank - node->shape.rank))
                   : add_apply(builder, node, at, rank);
        uint32_t *computed = kiln__vector_push(&builder->group->nodes);
        if (computed)
            *computed = index;
    } else {
        step = add_load(builder, index, at, rank);
    }
    remember(builder, index, key, step);
    return step;
}

static void add_store(struct builder *builder, uint32_t node, uint16_t step)
{
    struct kiln__store *place = kiln__vector_push(&builder->group->stores);
    if (place)
        *place = (struct kiln__store){.node = node, .step = step};
    else
        builder->failed = true;
}

static struct kiln__group *new_group(struct builder *builder, enum kiln__group_kind kind)
{
    builder->group = kiln__vector_push(&builder->fuser->fusion->groups);
    builder->fuser->memo.count = 0;
    if (builder->group)
        builder->group->kind = (uint8_t)kind;
    else
        builder->failed = true;
    return builder->group;
}

/* ---- the three kinds ---- */

/* A view that goes to memory is loaded through the layout of its input. */
static uint16_t compute_root(struct builder *builder, uint32_t index)
{
    const struct kiln__node *node = node_at(builder->fuser, index);
    if (!kiln__node_is_movement(node))
        return compute(builder, index, true, kiln__straight, node->shape.rank);
    struct kiln__fuser *fuser = builder->fuser;
    struct kiln__layout own = fuser->layouts[index];
    fuser->layouts[index] = kiln__layout_of(&fuser->fusion->graph, index, fuser->layouts, false);
    uint16_t step = add_load(builder, index, kiln__straight, node->shape.rank);
    fuser->layouts[index] = own;
    remember(builder, index, key_of(node, kiln__straight, node->shape.rank), step);
    return step;
}

static void form_map(struct builder *builder, uint32_t index)
{
    if (!new_group(builder, KILN__GROUP_MAP))
        return;
    builder->group->shape = node_at(builder->fuser, index)->shape;
    add_store(builder, index, compute_root(builder, index));
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

static void form_reduce(struct builder *builder, uint32_t index)
{
    const struct kiln__node *node = node_at(builder->fuser, index);
    const struct kiln__node *input = node_at(builder->fuser, node->input[0]);
    uint32_t at[KILN_MAX_RANK] = {0};
    if (!new_group(builder, KILN__GROUP_REDUCE))
        return;
    builder->group->op = node->op;
    order_dimensions(builder->group, node, input, at);
    struct kiln__step reduced = {.kind = KILN__STEP_REDUCED, .op = node->op, .n_args = 1};
    reduced.type = node->type;
    reduced.args[0] = compute(builder, node->input[0], false, at, input->shape.rank);
    builder->group->reduced_step = add_step(builder, reduced);
    uint32_t *computed = kiln__vector_push(&builder->group->nodes);
    if (computed)
        *computed = index;
    add_store(builder, index, builder->group->reduced_step);
}

static void form_matmul(struct builder *builder, uint32_t index)
{
    const struct kiln__node *node = node_at(builder->fuser, index);
    if (!new_group(builder, KILN__GROUP_MATMUL))
        return;
    builder->group->shape = node->shape;
    for (unsigned k = 0; k < 2 && !builder->failed; k++) {
        const struct kiln__shape *shape = &node_at(builder->fuser, node->input[k])->shape;
        add_load(builder, node->input[k], kiln__straight, node->shape.rank);
        if (!builder->failed)
            builder->group->accesses.items[k].inner = shape->dims[shape->rank - 1];
    }
    uint32_t *computed = kiln__vector_push(&builder->group->nodes);
    if (computed)
        *computed = index;
    add_store(builder, index,
              add_step(builder, (struct kiln__step){.kind = KILN__STEP_PRODUCT,
                                                    .type = node->type,
                                                    .n_args = KILN__OPERANDS,
                                                    .args = {0, 1}}));
}

/* A group of one node with a kernel of its own, and an access for each input. */
static void form_whole(struct builder *builder, uint32_t index, enum kiln__group_kind kind)
{
    const struct kiln__node *node = node_at(builder->fuser, index);
    if (!new_group(builder, kind))
        return;
    builder->group->shape = node->shape;
    for (unsigned k = 0; k < node->n_inputs && !builder->failed; k++) {
        add_load(builder, node->input[k], kiln__straight, node->shape.rank);
        if (builder->failed)
            return;
        struct kiln__access *access = &builder->group->accesses.items[k];
        access->kind = KILN__ACCESS_MEMORY; /* numbers too */
        builder->fuser->fusion->stored[access->node] = true;
    }
    uint32_t *computed = kiln__vector_push(&builder->group->nodes);
    if (computed)
        *computed = index;
    add_store(builder, index, 0);
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
static void form_base(struct builder *builder, uint32_t index, uint32_t base)
{
    const struct kiln__shape *shape = &node_at(builder->fuser, index)->shape;
    if (!new_group(builder, KILN__GROUP_MAP))
        return;
    builder->group->shape = *shape;
    add_store(builder, index, compute(builder, base, false, kiln__straight, shape->rank));
}

/* A group over the first input of `index`, on what is below it. */
static bool form_over(struct builder *builder, uint32_t index, enum kiln__group_kind kind)
{
    const struct kiln__node *node = node_at(builder->fuser, index);
    uint32_t base = kiln__node_base(node);
    if (base != UINT32_MAX)
        form_base(builder, index, base);
    if (builder->failed || !new_group(builder, kind))
        return false;
    builder->group->shape = node_at(builder->fuser, node->input[0])->shape;
    builder->group->over = base != UINT32_MAX;
    uint32_t *computed = kiln__vector_push(&builder->group->nodes);
    if (computed)
        *computed = index;
    return true;
}

static void form_place(struct builder *builder, uint32_t index)
{
    const struct kiln__node *node = node_at(builder->fuser, index);
    if (!form_over(builder, index, KILN__GROUP_MAP))
        return;
    const struct kiln__shape *part = &builder->group->shape;
    add_store(builder, index, compute(builder, node->input[0], false, kiln__straight, part->rank));
    if (!builder->failed)
        aim_store(&builder->group->stores.items[0], node, part);
}

static void form_scatter(struct builder *builder, uint32_t index)
{
    const struct kiln__node *node = node_at(builder->fuser, index);
    if (!form_over(builder, index, KILN__GROUP_SCATTER))
        return;
    for (unsigned k = 0; k < KILN__SCATTER_BASE && !builder->failed; k++) {
        add_load(builder, node->input[k], kiln__straight,
                 node_at(builder->fuser, node->input[k])->shape.rank);
        if (builder->failed)
            return;
        struct kiln__access *access = &builder->group->accesses.items[k];
        access->kind = KILN__ACCESS_MEMORY; /* an iota is in memory for this */
        builder->fuser->fusion->stored[access->node] = true;
    }
    add_store(builder, index, 0);
}

/* ---- joining ---- */

/* The memo of a group that is taken up again: the values that it has at each element. */
static void recall_group(struct builder *builder)
{
    struct kiln__fuser *fuser = builder->fuser;
    const struct kiln__group *group = builder->group;
    fuser->memo.count = 0;
    for (size_t i = 0; i < group->stores.count; i++) {
        const struct kiln__store *store = &group->stores.items[i];
        const struct kiln__node *node = node_at(fuser, store->node);
        remember(builder, store->node, key_of(node, kiln__straight, node->shape.rank), store->step);
    }
}

/* Loads that the group has already at the same element. */
static void share_loads(struct builder *builder, uint32_t index, bool root)
{
    struct kiln__fuser *fuser = builder->fuser;
    const struct kiln__node *node = node_at(fuser, index);
    uint32_t rank = node_at(fuser, builder->group->stores.items[0].node)->shape.rank;
    uint32_t key = key_of(node, kiln__straight, rank);
    if (recall(fuser, index, key) != NO_STEP || node->kind == KILN__CONSTANT)
        return;
    if (kiln__node_is_computed(node) && (root || !fuser->layouts[index].known)) {
        for (unsigned k = 0; k < node->n_inputs && node->kind != KILN__GATHER; k++)
            share_loads(builder, node->input[k], false);
        return;
    }
    struct kiln__access access = kiln__access_to(fuser, index, kiln__straight, rank);
    size_t first = builder->group->kind == KILN__GROUP_MATMUL ? KILN__PRODUCT_STEP : 0;
    for (size_t i = first; i < builder->group->steps.count; i++) {
        const struct kiln__step *step = &builder->group->steps.items[i];
        if (step->kind == KILN__STEP_LOAD &&
            kiln__same_access(&builder->group->accesses.items[step->index], &access)) {
            remember(builder, index, key, (uint16_t)i);
            return;
        }
    }
}

static void join(struct builder *builder, uint32_t group, uint32_t index)
{
    builder->group = &builder->fuser->fusion->groups.items[group];
    recall_group(builder);
    if (builder->group->kind != KILN__GROUP_REDUCE)
        share_loads(builder, index, true);
    const struct kiln__node *node = node_at(builder->fuser, index);
    add_store(builder, index, compute(builder, index, true, kiln__straight, node->shape.rank));
}

/* ---- all groups ---- */

static void form_group(struct builder *builder, uint32_t index)
{
    struct kiln__fusion *fusion = builder->fuser->fusion;
    const struct kiln__node *node = node_at(builder->fuser, index);
    bool done;
    uint32_t company = kiln__join_rows(builder->fuser, index, &done);
    if (company != NO_GROUP) {
        builder->failed = !done;
        fusion->group_of[index] = company;
        return;
    }
    if (kiln__node_is_computed(node))
        company = kiln__find_company(builder->fuser, index);
    if (company != NO_GROUP)
        join(builder, company, index);
    else if (node->kind == KILN__REDUCE)
        form_reduce(builder, index);
    else if (node->kind == KILN__MATMUL)
        form_matmul(builder, index);
    else if (node->kind == KILN__ATTENTION)
        form_whole(builder, index, KILN__GROUP_ATTENTION);
    else if (node->kind == KILN__SCAN)
        form_whole(builder, index, KILN__GROUP_SCAN);
    else if (node->kind == KILN__PLACE)
        form_place(builder, index);
    else if (node->kind == KILN__SCATTER_ADD)
        form_scatter(builder, index);
    else
        form_map(builder, index);
    fusion->group_of[index] = company != NO_GROUP ? company : (uint32_t)(fusion->groups.count - 1);
}

/* A store that no kernel loads and nobody asked for is not made. */
static void drop_stores(struct kiln__fusion *fusion)
{
    for (size_t g = 0; g < fusion->groups.count; g++) {
        struct kiln__group *group = &fusion->groups.items[g];
        size_t kept = 0;
        for (size_t i = 0; i < group->stores.count; i++)
            if (fusion->stored[group->stores.items[i].node])
                group->stores.items[kept++] = group->stores.items[i];
        group->stores.count = kept;
    }
}

/* One write and one read of each value that stays in registers. */
static void count_saved(struct kiln__fusion *fusion)
{
    for (uint32_t i = 0; i < fusion->graph.nodes.count; i++) {
        const struct kiln__node *node = &fusion->graph.nodes.items[i];
        bool value = kiln__node_is_pointwise(node) || node->kind == KILN__REDUCE ||
                     node->kind == KILN__MATMUL;
        if (value && !fusion->stored[i])
            fusion->saved_bytes += 2 * kiln__node_bytes(node);
    }
}

bool kiln__form_groups(struct kiln__fuser *fuser)
{
    struct kiln__fusion *fusion = fuser->fusion;
    struct builder builder = {.fuser = fuser};
    for (size_t i = 0; i < fusion->graph.requests.count; i++)
        fusion->stored[fusion->graph.requests.items[i].node] = true;
    for (uint32_t i = 0; i < fusion->graph.nodes.count && !builder.failed; i++)
        if (fusion->why[i] > KILN__BECAUSE_INPUT)
            form_group(&builder, i);
    kiln__vector_free(&fuser->memo);
    drop_stores(fusion);
    count_saved(fusion);
    return !builder.failed && kiln__settle_places(fuser);
}

bool kiln__group_has_epilogue(const struct kiln__group *group)
{
    return group->kind == KILN__GROUP_MATMUL && group->steps.count > KILN__PRODUCT_STEP + 1;
}
