/* SPDX-License-Identifier: Apache-2.0 */
/* Transposed stores: a result that one map alone reads, and only to reorder it, is stored in that
 * order at once, where the kernel takes strides for it: attention, whose heads go side by side. So
 * is one that the map converts to the narrow type of all that it was computed from, where the
 * device has kernels that take such operands as they are. */
#include <stdlib.h>

#include "fuse/fuse.h"
#include "graph/attention.h"

/* Per node, how many accesses and requests there are of it. */
static uint32_t *count_readers(const struct kiln__fusion *fusion)
{
    uint32_t *readers = calloc(fusion->graph.nodes.count + 1, sizeof *readers);
    for (size_t g = 0; readers && g < fusion->groups.count; g++)
        for (size_t i = 0; i < fusion->groups.items[g].accesses.count; i++)
            readers[fusion->groups.items[g].accesses.items[i].node]++;
    for (size_t i = 0; readers && i < fusion->graph.requests.count; i++)
        readers[fusion->graph.requests.items[i].node]++;
    return readers;
}

#define MOST_COLUMNS 128 /* of an attention: every kernel for so few stores narrow results, too */

static bool takes_strides(const struct kiln__node *node)
{
    return node->kind == KILN__ATTENTION || node->kind == KILN__ATTENTION_BACKWARD;
}

/* Every kernel of backward nodes stores narrow results, and those of small attentions. */
static bool may_be_narrow(const struct kiln__graph *graph, const struct kiln__node *source)
{
    if (source->kind == KILN__ATTENTION_BACKWARD)
        return true;
    const struct kiln__attention_size size = kiln__attention_size(graph, source);
    return size.d <= MOST_COLUMNS && size.e <= MOST_COLUMNS;
}

/* What the map makes of its one load: nothing, or the narrow type. */
static bool only_copies(const struct kiln__fuser *fuser, const struct kiln__group *map,
                        const struct kiln__node *source)
{
    const struct kiln__node *target = kiln__fuse_node(fuser, map->stores.items[0].node);
    if (map->steps.items[0].kind != KILN__STEP_LOAD)
        return false;
    if (map->steps.count == 1)
        return target->type == source->type;
    return map->steps.count == 2 && map->steps.items[1].kind == KILN__STEP_CONVERT &&
           fuser->fusion->narrow_operands && source->op && target->type == source->op &&
           may_be_narrow(&fuser->fusion->graph, source);
}

static struct kiln__store *store_of(const struct kiln__group *group, uint32_t node)
{
    size_t i = 0;
    while (group->stores.items[i].node != node)
        i++;
    return &group->stores.items[i];
}

/* The map's one load of what an attention stores, if that is all that it does. */
static const struct kiln__access *find_copied(const struct kiln__fuser *fuser, uint32_t number,
                                              const uint32_t *readers)
{
    const struct kiln__fusion *fusion = fuser->fusion;
    const struct kiln__group *map = &fusion->groups.items[number];
    if (map->kind != KILN__GROUP_MAP || map->steps.count == 0 || map->accesses.count != 1 ||
        map->stores.count != 1 || map->base_group != KILN__NO_GROUP || map->stores.items[0].placed)
        return NULL;
    const struct kiln__access *access = &map->accesses.items[0];
    uint32_t maker = fusion->group_of[access->node], target = map->stores.items[0].node;
    return fusion->group_of[target] == number && access->kind == KILN__ACCESS_MEMORY &&
                   access->offset == 0 && maker != KILN__NO_GROUP && readers[access->node] == 1 &&
                   takes_strides(kiln__fuse_node(fuser, access->node)) &&
                   !store_of(&fusion->groups.items[maker], access->node)->placed &&
                   only_copies(fuser, map, kiln__fuse_node(fuser, access->node))
               ? access
               : NULL;
}

/* The map's dimensions, from the one along which its load takes the widest steps, with the strides
 * of what it stores. False if the load, in that order, does not read one element after the other.
 */
static bool order_by_load(const struct kiln__group *map, const struct kiln__access *access,
                          struct kiln__shape *shape, int64_t stride[KILN_MAX_RANK])
{
    int64_t target[KILN_MAX_RANK], dense = 1;
    uint32_t left = 0;
    kiln__shape_strides(&map->shape, target);
    for (uint32_t d = 0; d < map->shape.rank; d++)
        left |= (uint32_t)(map->shape.dims[d] != 1) << d;
    *shape = (struct kiln__shape){.rank = (uint32_t)__builtin_popcount(left)};
    for (uint32_t k = shape->rank; k-- > 0;) {
        uint32_t d = 0;
        while (d < map->shape.rank && !(left >> d & 1 && access->stride[d] == dense))
            d++;
        if (d == map->shape.rank)
            return false;
        shape->dims[k] = map->shape.dims[d];
        stride[k] = target[d];
        dense *= (int64_t)map->shape.dims[d];
        left &= ~(UINT32_C(1) << d);
    }
    return true;
}

/* Where the source's elements go in the target: a stride for each of its dimensions, whatever
 * reshapes are between. False if none says it, or leaves no rows. */
static bool place_store(const struct kiln__node *source, const struct kiln__group *map,
                        const struct kiln__access *access, struct kiln__store *store)
{
    const struct kiln__shape *shape = &source->shape;
    struct kiln__shape read;
    int64_t stride[KILN_MAX_RANK];
    return kiln__shape_count(shape) > 0 &&
           kiln__shape_count(shape) == kiln__shape_count(&map->shape) &&
           order_by_load(map, access, &read, stride) &&
           kiln__shape_restride(&read, stride, shape, store->stride) &&
           (shape->dims[shape->rank - 1] == 1 || store->stride[shape->rank - 1] == 1);
}

bool kiln__fuse_store_transposed(struct kiln__fuser *fuser)
{
    struct kiln__fusion *fusion = fuser->fusion;
    uint32_t *readers = count_readers(fusion);
    for (size_t g = 0; readers && g < fusion->groups.count; g++) {
        struct kiln__group *map = &fusion->groups.items[g];
        const struct kiln__access *access = find_copied(fuser, (uint32_t)g, readers);
        if (!access)
            continue;
        uint32_t source = access->node, maker = fusion->group_of[source];
        struct kiln__store *store = store_of(&fusion->groups.items[maker], source);
        struct kiln__store moved = *store;
        if (!place_store(kiln__fuse_node(fuser, source), map, access, &moved))
            continue;
        moved.node = map->stores.items[0].node;
        moved.placed = true;
        *store = moved;
        map->stores.count = map->accesses.count = map->steps.count = 0; /* never launched */
        fusion->group_of[moved.node] = maker;
        fusion->stored[source] = false;
    }
    bool done = readers != NULL;
    free(readers);
    return done;
}
