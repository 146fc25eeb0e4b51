/* SPDX-License-Identifier: Apache-2.0 */
/* Construction of a plan: steps, slots, scratch memory, and its release. */
#include "plan/plan.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void kiln__plan_add(struct kiln__plan *plan, struct kiln__plan_step step)
{
    plan->failed = plan->failed || !kiln__vector_add(&plan->steps, step);
}

size_t kiln__plan_block(const struct kiln__plan *plan, const struct kiln__argument *argument)
{
    const uint32_t node = plan->slots.items[argument->slot].node;
    return node == KILN__SCRATCH ? 1 : kiln_type_block(plan->fusion.graph.nodes.items[node].type);
}

int64_t kiln__plan_first_element(const struct kiln__plan *plan,
                                 const struct kiln__argument *argument)
{
    const size_t blocks = plan->slots.items[argument->slot].offset / argument->item;
    return (int64_t)(blocks * kiln__plan_block(plan, argument));
}

uint32_t kiln__plan_add_slot(struct kiln__plan *plan, struct kiln__slot slot)
{
    if (!kiln__vector_add(&plan->slots, slot)) {
        plan->failed = true;
        return KILN__NO_SLOT;
    }
    return (uint32_t)(plan->slots.count - 1);
}

uint32_t kiln__plan_scratch(struct kiln__plan *plan, size_t bytes)
{
    return kiln__plan_add_slot(plan, (struct kiln__slot){.node = KILN__SCRATCH, .bytes = bytes});
}

uint32_t kiln__plan_counters(struct kiln__plan *plan)
{
    for (uint32_t i = 0; i < plan->slots.count; i++)
        if (plan->slots.items[i].storage == KILN__STORAGE_COUNTERS)
            return i;
    return kiln__plan_add_slot(plan,
                               (struct kiln__slot){.node = KILN__SCRATCH,
                                                   .storage = KILN__STORAGE_COUNTERS,
                                                   .bytes = KILN__COUNTERS * sizeof(int32_t)});
}

static bool is_stored(const struct kiln__plan *plan, const struct kiln__group *group, uint32_t slot)
{
    for (size_t i = 0; i < group->stores.count; i++)
        if (plan->slot_of[group->stores.items[i].node] == slot)
            return true;
    return false;
}

bool kiln__plan_next_named(const struct kiln__plan *plan, const struct kiln__plan_step *step,
                           struct kiln__named *named)
{
    if (step->kind != KILN__STEP_LAUNCH) {
        *named = (struct kiln__named){step->slot, step->kind == KILN__STEP_UPLOAD, named->next + 1};
        return named->next == 1;
    }
    const struct kiln__launch *launch = &plan->launches.items[step->launch];
    const struct kiln__group *group = &plan->fusion.groups.items[launch->group];
    while (named->next < launch->arguments.count) {
        const struct kiln__argument *argument = &launch->arguments.items[named->next++];
        if (argument->kind != KILN__ARGUMENT_MEMORY)
            continue;
        named->slot = argument->slot;
        named->written = plan->slots.items[named->slot].node == KILN__SCRATCH ||
                         is_stored(plan, group, named->slot);
        return true;
    }
    return false;
}

size_t kiln__plan_next_launch(const struct kiln__plan *plan, uint32_t group, size_t from)
{
    while (from < plan->launches.count && plan->launches.items[from].group != group)
        from++;
    return from;
}

bool kiln__plan_group_names(const struct kiln__plan *plan, uint32_t group, size_t before,
                            uint32_t slot)
{
    size_t i = kiln__plan_next_launch(plan, group, 0);
    while (i < before && !kiln__launch_names(&plan->launches.items[i], slot))
        i = kiln__plan_next_launch(plan, group, i + 1);
    return i < before;
}

size_t kiln__plan_enqueued(const struct kiln__plan *plan)
{
    size_t count = kiln__plan_launches(plan);
    for (size_t i = 0; i < plan->launches.count; i++)
        count -= plan->launches.items[i].joined != 0;
    return count;
}

static void pack_launch(struct kiln__launch *launch, struct kiln__pack *pack)
{
    kiln__pack_vector(pack, &launch->arguments);
    kiln__pack_vector(pack, &launch->phases);
    kiln__pack_vector(pack, &launch->table);
}

/* Arrays before those that their items have: of a copy the items are its own then. */
static void pack_all(struct kiln__plan *plan, struct kiln__pack *pack)
{
    kiln__pack_vector(pack, &plan->launches);
    kiln__pack_vector(pack, &plan->joined);
    for (size_t i = 0; i < plan->launches.count; i++)
        pack_launch(&plan->launches.items[i], pack);
    for (size_t i = 0; i < plan->joined.count; i++)
        pack_launch(&plan->joined.items[i], pack);
    kiln__pack_vector(pack, &plan->functions);
    kiln__pack_vector(pack, &plan->slots);
    kiln__pack_vector(pack, &plan->steps);
    kiln__pack_vector(pack, &plan->dependencies);
    kiln__pack_array(pack, &plan->slot_of, plan->fusion.graph.nodes.count);
    kiln__pack_array(pack, &plan->absorbed, plan->fusion.groups.count);
    kiln__fusion_pack(&plan->fusion, pack);
}

size_t kiln__plan_pack(struct kiln__plan *plan)
{
    struct kiln__pack needed = {0}, pack = {0};
    pack_all(plan, &needed);
    pack.memory = plan->packed ? NULL : malloc(needed.bytes + 1);
    if (pack.memory)
        pack_all(plan, &pack);
    plan->packed = pack.memory ? pack.memory : plan->packed;
    return needed.bytes;
}

bool kiln__plan_copy(const struct kiln__plan *plan, struct kiln__plan *copy)
{
    struct kiln__pack pack = {.copies = true};
    *copy = *plan;
    copy->tuned = NULL;
    copy->packed = NULL;
    pack_all(copy, &pack);
    for (size_t i = 0; i < copy->fusion.graph.calls.count; i++)
        kiln__custom_retain(copy->fusion.graph.calls.items[i]);
    if (pack.failed)
        kiln__plan_free(copy);
    return !pack.failed;
}

const struct kiln__device *kiln__plan_device(const struct kiln__plan *plan,
                                             const struct kiln__group *group)
{
    const size_t index = (size_t)(group - plan->fusion.groups.items);
    assert(index < plan->fusion.groups.count);
    return plan->tuned && plan->tuned[index] ? &plan->tuned[index]->device : plan->options.device;
}

const struct kiln__custom *kiln__launch_custom(const struct kiln__plan *plan,
                                               const struct kiln__launch *launch)
{
    const struct kiln__group *group = &plan->fusion.groups.items[launch->group];
    return plan->fusion.graph.nodes.items[group->nodes.items[0]].custom.call;
}

void kiln__plan_forget_tuned(struct kiln__plan *plan)
{
    for (size_t i = 0; plan->tuned && i < plan->fusion.groups.count; i++)
        free(plan->tuned[i]);
    free(plan->tuned);
    plan->tuned = NULL;
}

static void free_launch(struct kiln__launch *launch)
{
    kiln__vector_free(&launch->arguments);
    kiln__vector_free(&launch->phases);
    kiln__vector_free(&launch->table);
}

static void free_vectors(struct kiln__plan *plan)
{
    for (size_t i = 0; i < plan->launches.count; i++)
        free_launch(&plan->launches.items[i]);
    for (size_t i = 0; i < plan->joined.count; i++)
        free_launch(&plan->joined.items[i]);
    kiln__vector_free(&plan->launches);
    kiln__vector_free(&plan->joined);
    kiln__vector_free(&plan->functions);
    kiln__vector_free(&plan->slots);
    kiln__vector_free(&plan->steps);
    kiln__vector_free(&plan->dependencies);
    kiln__fusion_free(&plan->fusion);
    free(plan->slot_of);
    free(plan->absorbed);
}

void kiln__plan_free(struct kiln__plan *plan)
{
    kiln__plan_forget_tuned(plan);
    if (plan->packed)
        kiln__graph_drop_calls(&plan->fusion.graph);
    else
        free_vectors(plan);
    free(plan->packed);
    *plan = (struct kiln__plan){0};
}
