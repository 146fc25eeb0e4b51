/* SPDX-License-Identifier: Apache-2.0 */
/* Donated buffers: an inserted slice needs the memory of its base with the part put over it, a
 * scatter with values added. Where nobody reads the base afterwards, its memory is taken over, and
 * the group that would copy it goes away. */
#include <stdlib.h>
#include <string.h>

#include "fuse/fuse.h"

/* Per node the last group that loads it, plus one. */
static size_t *find_readers(const struct kiln__fusion *fusion)
{
    size_t *last = calloc(fusion->graph.nodes.count + 1, sizeof *last);
    for (size_t g = 0; last && g < fusion->groups.count; g++)
        for (size_t i = 0; i < fusion->groups.items[g].accesses.count; i++)
            last[fusion->groups.items[g].accesses.items[i].node] = g + 1;
    return last;
}

/* The base has memory of its own that nobody outside knows. */
static bool may_be_changed(const struct kiln__fuser *fuser, uint32_t base)
{
    const struct kiln__fusion *fusion = fuser->fusion;
    return (fusion->why[base] > KILN__BECAUSE_INPUT && fusion->why[base] != KILN__BECAUSE_ASKED &&
            !kiln__node_is_input(&fusion->graph.nodes.items[base]) && fusion->stored[base] &&
            fusion->donated_to[base] == KILN__NO_DONATION);
}

/* The part's group may read the base only where it is about to store. */
static bool reads_what_it_stores(const struct kiln__group *group, uint32_t base)
{
    const struct kiln__store *store = &group->stores.items[0];
    for (size_t i = 0; i < group->accesses.count; i++) {
        const struct kiln__access *access = &group->accesses.items[i];
        if (access->node == base &&
            (!store->placed || store->position || access->kind || access->offset != store->offset ||
             memcmp(access->stride, store->stride, sizeof store->stride)))
            return false;
    }
    return true;
}

void kiln__group_remove_store(struct kiln__group *group, uint32_t node)
{
    size_t kept = 0;
    for (size_t i = 0; i < group->stores.count; i++)
        if (group->stores.items[i].node != node)
            group->stores.items[kept++] = group->stores.items[i];
    group->stores.count = kept;
}

static void donation_settle(struct kiln__fuser *fuser, uint32_t index, const size_t *last_reader)
{
    struct kiln__fusion *fusion = fuser->fusion;
    uint32_t base = kiln__node_base(&fusion->graph.nodes.items[index]),
             own = fusion->group_of[index];
    struct kiln__group *group = &fusion->groups.items[own];
    if (!may_be_changed(fuser, base) || last_reader[base] > (size_t)own + 1 ||
        group->stores.count == 0 || !reads_what_it_stores(group, base))
        return;
    kiln__group_remove_store(&fusion->groups.items[group->base_group], index);
    fusion->donated_to[base] = index;
}

bool kiln__fuse_donate(struct kiln__fuser *fuser)
{
    const struct kiln__fusion *fusion = fuser->fusion;
    size_t *last_reader = find_readers(fusion);
    if (!last_reader)
        return false;
    for (uint32_t i = 0; i < fusion->graph.nodes.count; i++)
        if (kiln__node_base(&fusion->graph.nodes.items[i]) != UINT32_MAX &&
            fusion->group_of[i] != KILN__NO_GROUP)
            donation_settle(fuser, i, last_reader);
    free(last_reader);
    return true;
}
