/* SPDX-License-Identifier: Apache-2.0 */
/* Products whose first operand is a copy of what lies elsewhere, in an order that strides over rows
 * and columns cannot say: the windows of a convolution. A product can make that copy as it reads,
 * tile by tile, so that it is never in memory; the group that would make it is then part of the
 * product's. */
#include "plan/generic.h"
#include "plan/matmul.h"

#define MANY (UINT32_MAX - 1)

/* Per node: the group that alone reads it, or MANY, or KILN__NO_GROUP. */
bool kiln__plan_find_readers(struct kiln__plan *plan)
{
    const struct kiln__fusion *fusion = &plan->fusion;
    size_t count = fusion->graph.nodes.count;
    plan->reader_of = malloc((count + 1) * sizeof *plan->reader_of);
    for (size_t i = 0; plan->reader_of && i < count; i++)
        plan->reader_of[i] = plan->first_request[i] == KILN__NO_REQUEST ? KILN__NO_GROUP : MANY;
    for (uint32_t g = 0; plan->reader_of && g < fusion->groups.count; g++) {
        const struct kiln__group *group = &fusion->groups.items[g];
        for (size_t i = 0; i < group->accesses.count; i++) {
            uint32_t *reader = &plan->reader_of[group->accesses.items[i].node];
            *reader = *reader == KILN__NO_GROUP || *reader == g ? g : MANY;
        }
    }
    return plan->reader_of;
}

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

bool kiln__plan_patches(const struct kiln__plan *plan, uint32_t copies, int64_t depth,
                        struct kiln__patches *patches)
{
    const struct kiln__group *group = &plan->fusion.groups.items[copies];
    const struct kiln__access *access = &group->accesses.items[0];
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

uint32_t kiln__plan_copies_of(const struct kiln__plan *plan, uint32_t node, uint32_t reader)
{
    uint32_t maker = plan->fusion.group_of[node];
    bool copies = plan->options.device->traits->chunked && plan->reader_of[node] == reader &&
                  !kiln__node_is_input(&plan->fusion.graph.nodes.items[node]) &&
                  only_copies(plan, &plan->fusion.groups.items[maker]);
    return copies ? maker : KILN__NO_GROUP;
}

bool kiln__plan_is_part(const struct kiln__plan *plan, uint32_t index)
{
    const struct kiln__group *group = &plan->fusion.groups.items[index];
    if (!plan->options.device->traits->chunked || !only_copies(plan, group))
        return false;
    uint32_t reader = plan->reader_of[group->stores.items[0].node];
    return reader < plan->fusion.groups.count && !kiln__plan_is_generic(plan, reader) &&
           plan->fusion.groups.items[reader].kind == KILN__GROUP_MATMUL &&
           kiln__matmul_part(plan, reader) == index;
}
