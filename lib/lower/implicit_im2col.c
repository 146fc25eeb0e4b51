/* SPDX-License-Identifier: Apache-2.0 */
/* Products whose first operand is a copy of what lies elsewhere, in an order that strides over rows
 * and columns cannot say: the windows of a convolution. A product can make that copy as it reads,
 * tile by tile, so that it is never in memory; where all that read it do, the group that would make
 * it is then part of theirs. */
#include <stdlib.h>

#include "lower/generic.h"
#include "lower/matmul.h"

/* All that the group does is to store what it loads, in full, where nothing else goes. */
static bool only_copies(const struct kiln__plan_builder *builder, const struct kiln__group *group)
{
    const struct kiln__fusion *fusion = &builder->plan->fusion;
    if (group->kind != KILN__GROUP_MAP || group->steps.count != 1 || group->accesses.count != 1 ||
        group->stores.count != 1 || group->base_group != KILN__NO_GROUP ||
        group->steps.items[0].kind != KILN__STEP_LOAD ||
        group->accesses.items[0].kind != KILN__ACCESS_MEMORY || group->stores.items[0].placed)
        return false;
    uint32_t from = group->accesses.items[0].node, to = group->stores.items[0].node;
    const struct kiln__node *source = &fusion->graph.nodes.items[from];
    return source->type == KILN_F32 && fusion->graph.nodes.items[to].type == KILN_F32 &&
           fusion->donated_to[from] == KILN__NO_DONATION &&
           fusion->donated_to[to] == KILN__NO_DONATION &&
           !kiln__replacement_of(&builder->replacements, source) &&
           builder->plan->slot_of[from] != KILN__NO_SLOT;
}

/* Dimensions `from` to `to` - 1 as at most KILN__IM2COL_LEVELS, the last of them last. */
static bool im2col_merge(const struct kiln__group *group, uint32_t from, uint32_t to,
                         struct kiln__im2col_level *levels)
{
    const int64_t *stride = group->accesses.items[0].stride;
    uint32_t at = KILN__IM2COL_LEVELS;
    for (uint32_t i = 0; i < KILN__IM2COL_LEVELS; i++)
        levels[i] = (struct kiln__im2col_level){1, 0};
    for (uint32_t d = to; d-- > from;) {
        int64_t count = (int64_t)group->shape.dims[d];
        if (count == 1)
            continue;
        if (at < KILN__IM2COL_LEVELS && stride[d] == levels[at].stride * levels[at].count) {
            levels[at].count *= count;
            continue;
        }
        if (at-- == 0)
            return false;
        levels[at] = (struct kiln__im2col_level){count, stride[d]};
    }
    return true;
}

/* Rows of several matrices that are not one behind the other, times one and the same. */
static bool rows_of_batch(const struct kiln__product *product, struct kiln__im2col *im2col)
{
    const struct kiln__matrix *a = &product->a;
    *im2col = (struct kiln__im2col){
        .slot = a->slot,
        .offset = a->offset,
        .rows = {{1, 0}, {product->batch, a->batch}, {product->m, a->row}},
        .depth = {{1, 0}, {1, 0}, {product->k, 1}},
    };
    return product->batch > 1 && product->b.batch == 0 && product->k > 0 && !a->computed &&
           a->column == 1 && product->batch <= INT32_MAX / product->m;
}

/* Rows as the copy has them, whichever way the product takes them. */
bool kiln__plan_im2col(const struct kiln__plan *plan, const struct kiln__product *product,
                       uint32_t copies, struct kiln__im2col *im2col)
{
    if (copies == KILN__NO_GROUP)
        return rows_of_batch(product, im2col);
    const struct kiln__group *group = &plan->fusion.groups.items[copies];
    const struct kiln__access *access = &group->accesses.items[0];
    const int64_t depth = product->a.column == 1 ? product->k : product->m;
    uint32_t split = group->shape.rank;
    int64_t count = 1;
    while (split > 0 && count < depth)
        count *= (int64_t)group->shape.dims[--split];
    if (count != depth || kiln__shape_count(&group->shape) > INT32_MAX)
        return false;
    im2col->slot = plan->slot_of[access->node];
    im2col->offset = access->offset;
    return im2col_merge(group, 0, split, im2col->rows) &&
           im2col_merge(group, split, group->shape.rank, im2col->depth) &&
           im2col->depth[KILN__IM2COL_LEVELS - 1].stride == 1;
}

/* Nobody asked for what such a group makes, and whoever reads it can read what it copies. */
bool kiln__plan_find_absorbed(struct kiln__plan_builder *builder)
{
    struct kiln__plan *plan = builder->plan;
    const struct kiln__fusion *fusion = &plan->fusion;
    plan->absorbed = calloc(fusion->groups.count + 1, sizeof *plan->absorbed);
    for (uint32_t g = 0; plan->absorbed && g < fusion->groups.count; g++) {
        const struct kiln__group *group = &fusion->groups.items[g];
        uint32_t made = group->stores.count ? group->stores.items[0].node : 0;
        plan->absorbed[g] = only_copies(builder, group) && fusion->group_of[made] == g &&
                            builder->first_request[made] == KILN__NO_REQUEST;
    }
    for (uint32_t g = 0; plan->absorbed && g < fusion->groups.count; g++) {
        const struct kiln__group *group = &fusion->groups.items[g];
        for (size_t i = 0; i < group->accesses.count; i++) {
            uint32_t maker = fusion->group_of[group->accesses.items[i].node];
            if (maker < fusion->groups.count && plan->absorbed[maker])
                plan->absorbed[maker] = group->kind == KILN__GROUP_MATMUL &&
                                        !kiln__plan_is_generic(plan, g) &&
                                        kiln__matmul_absorbed(plan, g) == maker;
        }
    }
    return plan->absorbed;
}
