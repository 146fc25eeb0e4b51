/* SPDX-License-Identifier: Apache-2.0 */
/* Values that go to memory become the roots of groups, in an order in which every group comes after
 * those that it reads. A root joins an earlier group where one kernel can do both. */
#include <stdlib.h>

#include "fuse/rows.h"
#include "fuse/steps.h"

/* The first step that runs once for each element of the group's results. */
static size_t first_of_results(const struct kiln__group *group)
{
    return group->kind == KILN__GROUP_REDUCE   ? group->reduced_step
           : group->kind == KILN__GROUP_MATMUL ? KILN__PRODUCT_STEP
                                               : 0;
}

/* False without memory, as all that follows. */
static bool join(struct kiln__fuser *fuser, uint32_t number, uint32_t index)
{
    struct kiln__group *group = &fuser->fusion->groups.items[number];
    struct kiln__builder builder = kiln__join_group(fuser, group, first_of_results(group));
    uint32_t rank = kiln__fuser_node(fuser, index)->shape.rank;
    kiln__add_store(&builder, index, kiln__compute(&builder, index, true, kiln__straight, rank));
    return !builder.failed;
}

static bool place_root(struct kiln__fuser *fuser, uint32_t index)
{
    struct kiln__fusion *fusion = fuser->fusion;
    bool done;
    uint32_t company = kiln__join_rows(fuser, index, &done);
    if (company == KILN__NO_GROUP && kiln__node_is_computed(kiln__fuser_node(fuser, index))) {
        company = kiln__find_company(fuser, index);
        done = company == KILN__NO_GROUP || join(fuser, company, index);
    }
    if (company == KILN__NO_GROUP) {
        done = kiln__form_group(fuser, index);
        company = (uint32_t)(fusion->groups.count - 1);
    }
    fusion->group_of[index] = company;
    return done;
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
    bool done = true;
    for (size_t i = 0; i < fusion->graph.requests.count; i++)
        fusion->stored[fusion->graph.requests.items[i].node] = true;
    for (uint32_t i = 0; i < fusion->graph.nodes.count && done; i++)
        if (fusion->why[i] > KILN__BECAUSE_INPUT)
            done = place_root(fuser, i);
    kiln__vector_free(&fuser->memo);
    drop_stores(fusion);
    count_saved(fusion);
    return done && kiln__settle_places(fuser);
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
