/* SPDX-License-Identifier: Apache-2.0 */
/* Which intermediates share memory: the largest first, each at the lowest place that is free while
 * it is alive (greedy by size: Pisarchyk and Lee 2020, "Efficient Memory Management for Deep Neural
 * Net Inference"). */
#include <stdlib.h>

#include "memory/memory.h"
#include "memory/occupancy.h"

/* Enough for every vector type and cache line, and for every device's sub-buffers. */
#define ALIGNMENT 256

static void arena_touch(struct kiln__slot *slot, uint32_t step)
{
    if (slot->first > step)
        slot->first = step;
    slot->last = step;
}

static void find_lifetimes(struct kiln__plan *plan)
{
    for (size_t i = 0; i < plan->slots.count; i++)
        plan->slots.items[i].first = UINT32_MAX;
    for (uint32_t i = 0; i < plan->steps.count; i++) {
        struct kiln__named named = {0};
        while (kiln__plan_next_named(plan, &plan->steps.items[i], &named))
            arena_touch(&plan->slots.items[named.slot], i);
    }
}

static _Thread_local const struct kiln__slot *sorting; /* qsort() hands no context on */

static int larger_first(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    if (sorting[x].bytes != sorting[y].bytes)
        return sorting[x].bytes < sorting[y].bytes ? 1 : -1;
    return x < y ? -1 : x > y;
}

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* A kernel argument needs some memory even where there is nothing to read. */
static bool has_empty_slot(const struct kiln__plan *plan)
{
    for (size_t i = 0; i < plan->slots.count; i++)
        if (plan->slots.items[i].bytes == 0 && plan->launches.count)
            return true;
    return false;
}

/* Arena slots in the order in which they get their place. */
static size_t list_slots(const struct kiln__plan *plan, uint32_t *order)
{
    size_t count = 0;
    for (uint32_t i = 0; i < plan->slots.count; i++) {
        const struct kiln__slot *slot = &plan->slots.items[i];
        if (slot->storage == KILN__STORAGE_ARENA && slot->bytes && slot->first <= slot->last)
            order[count++] = i;
    }
    sorting = plan->slots.items;
    qsort(order, count, sizeof *order, larger_first);
    return count;
}

/* At a multiple of so many bytes a slot starts. An index counts elements from the arena's
 * beginning, so that blocks start at a multiple of their own size as well: of its odd factor. */
static size_t alignment_of(const struct kiln__plan *plan, const struct kiln__slot *slot)
{
    const struct kiln__node *node =
        slot->node == KILN__SCRATCH ? NULL : &plan->fusion.graph.nodes.items[slot->node];
    const size_t size = node && kiln__node_has_blocks(node) ? kiln_type_size(node->type) : 1;
    return ALIGNMENT * (size >> __builtin_ctzll(size));
}

static bool place_slot(struct kiln__plan *plan, struct kiln__occupancy *occupied,
                       struct kiln__slot *slot)
{
    const size_t alignment = alignment_of(plan, slot);
    const size_t bytes = aligned(slot->bytes) + alignment - ALIGNMENT;
    size_t place;
    if (!kiln__occupancy_take(occupied, slot->first, slot->last, bytes, &place))
        return false;
    slot->offset = (place + alignment - 1) / alignment * alignment;
    if (plan->arena_bytes < place + bytes)
        plan->arena_bytes = place + bytes;
    plan->unshared_bytes += bytes;
    return true;
}

bool kiln__plan_assign_memory(struct kiln__plan *plan)
{
    uint32_t *order = malloc((plan->slots.count + 1) * sizeof *order);
    struct kiln__occupancy *occupied = kiln__occupancy_create((uint32_t)plan->steps.count);
    bool done = order && occupied;
    if (done)
        find_lifetimes(plan);
    size_t count = done ? list_slots(plan, order) : 0;
    for (size_t i = 0; i < count && done; i++)
        done = place_slot(plan, occupied, &plan->slots.items[order[i]]);
    if (plan->arena_bytes == 0 && has_empty_slot(plan))
        plan->arena_bytes = ALIGNMENT;
    kiln__occupancy_free(occupied);
    free(order);
    return done;
}
