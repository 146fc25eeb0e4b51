/* SPDX-License-Identifier: Apache-2.0 */
/* Products whose first operand is a copy of what lies elsewhere, in an order that strides over rows
 * and columns cannot say: the windows of a convolution. A product can make that copy as it reads,
 * tile by tile, so that it is never in memory; where all that read it do, the group that would make
 * it is then part of theirs. */
#include <stdlib.h>

#include "lower/generic.h"
#include "lower/matmul.h"

/* All that the group does is to store what it loads, in full, where nothing else goes. */
static bool only_copies(const struct kiln__plan *plan, const struct kiln__group *group)
{
    const struct kiln__fusion *fusion = &plan->fusion;
    if (group->kind != KILN__GROUP_MAP || group->steps.count != 1 || group->accesses.count != 1 ||
        group->stores.count != 1 || group->base_group != KILN__NO_GROUP ||
        group->steps.items[0].kind != KILN__STEP_LOAD ||
        group->accesses.items[0].kind != KILN__ACCESS_MEMORY || group->stores.items[0].placed)
        return false;
    uint32_t from = group->accesses.items[0].node, to = group->stores.items[0].node;
    const struct kiln__node *source = &fusion->graph.nodes.items[from];
    return source->type == KILN_F32 && fusion->graph.nodes.items[to].type == KILN_F32 &&
           fusion->heir[from] == KILN__NO_HEIR && fusion->heir[to] == KILN__NO_HEIR &&
           !kiln__plan_replacement(plan, source) && plan->slot_of[from] != KILN__NO_SLOT;
}

/* Dimensions `from` to `to` - 1 as at most KILN__PATCH_LEVELS, the last of them last. */
static bool merge(const struct kiln__group *group, uint32_t from, uint32_t to,
                  struct kiln__patch_level *levels)
{
    const int64_t *stride = group->accesses.items[0].stride;
    uint32_t at = KILN__PATCH_LEVELS;
    for (uint32_t i = 0; i < KILN__PATCH_LEVELS; i++)
        levels[i] = (struct kiln__patch_level){1, 0};
    for (uint32_t d = to; d-- > from;) {
        int64_t count = (int64_t)group->shape.dims[d];
        if (count == 1)
            continue;
        if (at < KILN__PATCH_LEVELS && stride[d] == levels[at].stride * levels[at].count) {
            levels[at].count *= count;
            continue;
        }
        if (at-- == 0)
            return false;
        levels[at] = (struct kiln__patch_level){count, stride[d]};
    }
    return true;
}

/* Rows of several matrices that are not one behind the other, times one and the same. */
static bool rows_of_batch(const struct kiln__product *product, struct kiln__patches *patches)
{
    const struct kiln__matrix *a = &product->a;
    *patches = (struct kiln__patches){
        .slot = a->slot,
        .offset = a->offset,
        .rows = {{1, 0}, {product->batch, a->batch}, {product->m, a->row}},
        .depth = {{1, 0}, {1, 0}, {product->k, 1}},
    };
    return product->batch > 1 && product->b.batch == 0 && product->k > 0 && !a->computed &&
           a->column == 1 && product->batch <= INT32_MAX / product->m;
}

/* Rows as the copy has them, whichever way the product takes them. */
bool kiln__plan_patches(const struct kiln__plan *plan, const struct kiln__product *product,
                        uint32_t copies, struct kiln__patches *patches)
{
    if (copies == KILN__NO_GROUP)
        return rows_of_batch(product, patches);
    const struct kiln__group *group = &plan->fusion.groups.items[copies];
    const struct kiln__access *access = &group->accesses.items[0];
    const int64_t depth = product->a.column == 1 ? product->k : product->m;
    uint32_t split = group->shape.rank;
    int64_t count = 1;
    while (split > 0 && count < depth)
        count *= (int64_t)group->shape.dims[--split];
    if (count != depth || kiln__shape_count(&group->shape) > INT32_MAX)
        return false;
    patches->slot = plan->slot_of[access->node];
    patches->offset = access->offset;
    return merge(group, 0, split, patches->rows) &&
           merge(group, split, group->shape.rank, patches->depth) &&
           patches->depth[KILN__PATCH_LEVELS - 1].stride == 1;
}

/* Nobody asked for what such a group makes, and whoever reads it can read what it copies. */
bool kiln__plan_find_parts(struct kiln__plan *plan)
{
    const struct kiln__fusion *fusion = &plan->fusion;
    plan->parts = calloc(fusion->groups.count + 1, sizeof *plan->parts);
    for (uint32_t g = 0; plan->parts && g < fusion->groups.count; g++) {
        const struct kiln__group *group = &fusion->groups.items[g];
        uint32_t made = group->stores.count ? group->stores.items[0].node : 0;
        plan->parts[g] = only_copies(plan, group) && fusion->group_of[made] == g &&
                         plan->first_request[made] == KILN__NO_REQUEST;
    }
    for (uint32_t g = 0; plan->parts && g < fusion->groups.count; g++) {
        const struct kiln__group *group = &fusion->groups.items[g];
        for (size_t i = 0; i < group->accesses.count; i++) {
            uint32_t maker = fusion->group_of[group->accesses.items[i].node];
            if (maker < fusion->groups.count && plan->parts[maker])
                plan->parts[maker] = group->kind == KILN__GROUP_MATMUL &&
                                     !kiln__plan_is_generic(plan, g) &&
                                     kiln__matmul_part(plan, g) == maker;
        }
    }
    return plan->parts;
}
