/* SPDX-License-Identifier: Apache-2.0 */
/* Values that go to memory become the roots of groups, in an order in which every group comes after
 * those that it reads. A root joins an earlier group where one kernel can do both. */
#include <stdlib.h>

#include "passes/rows.h"
#include "passes/steps.h"

/* The first step that runs once for each element of the group's results. */
static size_t first_of_results(const struct kiln__group *group)
{
    return group->kind == KILN__GROUP_REDUCE   ? group->reduced_step
           : group->kind == KILN__GROUP_MATMUL ? KILN__PRODUCT_STEP
                                               : 0;
}

static void join(struct kiln__builder *builder, uint32_t number, uint32_t index)
{
    struct kiln__group *group = &builder->fuser->fusion->groups.items[number];
    const struct kiln__node *node = kiln__fuser_node(builder->fuser, index);
    *builder = kiln__join_group(builder->fuser, group, first_of_results(group));
    kiln__add_store(builder, index,
                    kiln__compute(builder, index, true, kiln__straight, node->shape.rank));
}

static void place_root(struct kiln__builder *builder, uint32_t index)
{
    struct kiln__fusion *fusion = builder->fuser->fusion;
    const struct kiln__node *node = kiln__fuser_node(builder->fuser, index);
    bool done;
    uint32_t company = kiln__join_rows(builder->fuser, index, &done);
    if (company != KILN__NO_GROUP) {
        builder->failed = !done;
        fusion->group_of[index] = company;
        return;
    }
    if (kiln__node_is_computed(node))
        company = kiln__find_company(builder->fuser, index);
    if (company != KILN__NO_GROUP)
        join(builder, company, index);
    else
        kiln__form_group(builder, index);
    fusion->group_of[index] =
        company != KILN__NO_GROUP ? company : (uint32_t)(fusion->groups.count - 1);
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
    struct kiln__builder builder = {.fuser = fuser};
    for (size_t i = 0; i < fusion->graph.requests.count; i++)
        fusion->stored[fusion->graph.requests.items[i].node] = true;
    for (uint32_t i = 0; i < fusion->graph.nodes.count && !builder.failed; i++)
        if (fusion->why[i] > KILN__BECAUSE_INPUT)
            place_root(&builder, i);
    kiln__vector_free(&fuser->memo);
    drop_stores(fusion);
    count_saved(fusion);
    return !builder.failed && kiln__settle_places(fuser);
}

bool kiln__group_is_of_steps(const struct kiln__group *group)
{
    return (group->kind != KILN__GROUP_ATTENTION && group->kind != KILN__GROUP_SCAN &&
            group->kind != KILN__GROUP_SCATTER);
}

bool kiln__group_has_epilogue(const struct kiln__group *group)
{
    return group->kind == KILN__GROUP_MATMUL && group->steps.count > KILN__PRODUCT_STEP + 1;
}
