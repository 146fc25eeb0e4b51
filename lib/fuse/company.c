/* SPDX-License-Identifier: Apache-2.0 */
/* Which earlier group a root can join: one kernel does both, and reads only what is there by
 * then. */
#include "fuse/fuse.h"

/* What one kernel may hold, beyond what a single root may. */
#define MOST_STEPS 160
#define MOST_BUFFERS 28
#define MOST_PRODUCT_BUFFERS 16 /* its kernels have many arguments of their own */

/* How far back a root looks for company. */
#define LOOK_BACK 8

struct company {
    uint32_t group;
    bool possible; /* nothing that the root reads is made by a later group, or moved by this one */
    bool direct;   /* the root uses a value of the group */
    bool shares;   /* both load the same memory in the same way */
};

static bool loads_too(const struct kiln__fuser *fuser, const struct kiln__group *group,
                      uint32_t index)
{
    const struct kiln__shape *shape = &kiln__fuser_node(fuser, index)->shape;
    if (!kiln__shape_equal(shape, &group->shape))
        return false;
    struct kiln__access access = kiln__access_to(fuser, index, kiln__straight, shape->rank);
    if (access.kind != KILN__ACCESS_MEMORY)
        return false;
    for (size_t i = 0; i < group->accesses.count; i++)
        if (kiln__same_access(&group->accesses.items[i], &access))
            return true;
    return false;
}

/* A value that is read in other places than the group's element must be there before; a constant
 * too, if it is in memory. */
static void inspect_moved(const struct kiln__fuser *fuser, uint32_t index, struct company *company)
{
    const struct kiln__node *node = kiln__fuser_node(fuser, index);
    if (kiln__node_is_computed(node) && !fuser->layouts[index].known) {
        for (unsigned k = 0; k < node->n_inputs; k++)
            inspect_moved(fuser, node->input[k], company);
    } else if (node->kind != KILN__CONSTANT || fuser->layouts[index].known) {
        uint32_t maker = fuser->fusion->group_of[fuser->layouts[index].base];
        company->possible =
            company->possible && (maker == KILN__NO_GROUP || maker < company->group);
    }
}

/* Look at everything that computing `index` in registers reads. */
static void inspect(const struct kiln__fuser *fuser, uint32_t index, bool root,
                    struct company *company)
{
    const struct kiln__node *node = kiln__fuser_node(fuser, index);
    const struct kiln__fusion *fusion = fuser->fusion;
    const struct kiln__group *group = &fusion->groups.items[company->group];
    if (node->kind == KILN__CONSTANT)
        return;
    if (kiln__node_is_computed(node) && (root || !fuser->layouts[index].known)) {
        for (unsigned k = 0; k < node->n_inputs; k++)
            if (node->kind == KILN__GATHER)
                inspect_moved(fuser, node->input[k], company);
            else
                inspect(fuser, node->input[k], false, company);
        return;
    }
    uint32_t maker = fusion->group_of[fuser->layouts[index].base];
    bool same_place = fuser->layouts[index].base == index &&
                      kiln__node_count(node) ==
                          kiln__node_count(kiln__fuser_node(fuser, group->stores.items[0].node));
    if (maker != KILN__NO_GROUP &&
        (maker > company->group || (maker == company->group && !same_place)))
        company->possible = false;
    company->direct |= maker == company->group;
    company->shares = company->shares || loads_too(fuser, group, index);
}

static bool welcomes(const struct kiln__fuser *fuser, const struct kiln__group *group,
                     uint32_t index)
{
    const struct kiln__size *size = &fuser->sizes[index];
    const struct kiln__node *made = kiln__fuser_node(fuser, group->stores.items[0].node);
    const size_t buffers = group->kind == KILN__GROUP_MATMUL ? MOST_PRODUCT_BUFFERS : MOST_BUFFERS;
    return (kiln__group_is_of_steps(group) && !group->stores.items[0].placed &&
            kiln__shape_equal(&made->shape, &kiln__fuser_node(fuser, index)->shape) &&
            group->steps.count + size->steps <= MOST_STEPS &&
            group->accesses.count + group->stores.count + size->loads < buffers);
}

uint32_t kiln__find_company(const struct kiln__fuser *fuser, uint32_t index)
{
    const struct kiln__fusion *fusion = fuser->fusion;
    uint32_t count = (uint32_t)fusion->groups.count;
    for (uint32_t back = 1; back <= count && back <= LOOK_BACK; back++) {
        struct company company = {.group = count - back, .possible = true};
        const struct kiln__group *group = &fusion->groups.items[company.group];
        if (group->kind == KILN__GROUP_ROWS || !welcomes(fuser, group, index))
            continue;
        inspect(fuser, index, true, &company);
        /* For single elements a launch is all that counts. */
        bool cheap = company.shares || kiln__node_count(kiln__fuser_node(fuser, index)) == 1;
        bool wanted = company.direct || (cheap && group->kind == KILN__GROUP_MAP);
        if (company.possible && wanted)
            return company.group;
    }
    return KILN__NO_GROUP;
}
