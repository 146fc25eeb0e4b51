/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/lower.h"

#include <assert.h>
#include <stdlib.h>

/* Kernels for other devices take 32-bit indices where they suffice: 64-bit ones cost registers. */
void kiln__form_start(const struct kiln__plan *plan, const struct kiln__group *group,
                      const struct kiln__space *space, struct kiln__form *form)
{
    const struct kiln__traits *traits = plan->options.device->traits;
    form->chunked = traits->chunked;
    form->native_math = traits->fast_math_functions;
    form->no_fma = traits->emulates_fma;
    form->wide = traits->chunked || !kiln__space_is_narrow(group, space);
    form->rank = (uint8_t)space->rank;
    form->kept = (uint8_t)space->kept;
    form->vector = (uint8_t)traits->vector;
    while (!traits->chunked && 1u << form->work_group < traits->work_group)
        form->work_group++;
}

static bool store_is_aligned(const struct kiln__group *group, const struct kiln__form *form)
{
    const struct kiln__store *store = &group->stores.items[0];
    if (group->stores.count == 0 || !store->placed || form->placed == KILN__STRIDED)
        return true;
    for (uint32_t d = 0; d + 1 < group->shape.rank; d++)
        if (store->stride[d] % form->vector)
            return false;
    return store->offset % form->vector == 0;
}

bool kiln__form_is_aligned(const struct kiln__plan *plan, const struct kiln__group *group,
                           const struct kiln__form *form)
{
    if (form->chunked || form->vector == 1)
        return false;
    for (size_t i = 0; i < group->accesses.count; i++) {
        const struct kiln__access *access = &group->accesses.items[i];
        bool vectors = access->kind != KILN__ACCESS_NUMBER &&
                       (form->along[i] == KILN__CONTIGUOUS || form->along[i] == KILN__LINEAR);
        if (vectors && access->jump % form->vector)
            return false;
        if (vectors && access->offset % form->vector)
            return false;
        for (uint32_t d = 0; vectors && d + 1 < group->shape.rank; d++)
            if (access->stride[d] % form->vector)
                return false;
    }
    return !plan->options.shared && store_is_aligned(group, form);
}

size_t kiln__chunk_size(const struct kiln__traits *traits, size_t count, size_t work)
{
    if (!traits->chunked)
        return 1;
    size_t chunk = kiln__divide_up(count, traits->chunks);
    size_t least = kiln__divide_up(traits->min_chunk, work ? work : 1);
    if (chunk < least)
        chunk = least;
    return work > traits->vector ? chunk : kiln__divide_up(chunk, traits->vector) * traits->vector;
}

void kiln__launch_line(const struct kiln__traits *traits, size_t items, struct kiln__launch *launch)
{
    launch->dimensions = 1;
    launch->local[0] = traits->chunked ? 1 : traits->work_group;
    launch->global[0] = kiln__divide_up(items, launch->local[0]) * launch->local[0];
}

/* A store that goes to the very memory that the access reads; 1 + its number, or 0. */
static uint8_t find_update(const struct kiln__plan *plan, const struct kiln__group *group,
                           const struct kiln__access *access)
{
    const struct kiln__graph *graph = &plan->fusion.graph;
    const struct kiln__node *node = &graph->nodes.items[access->node];
    if (access->kind != KILN__ACCESS_MEMORY)
        return 0;
    for (size_t i = 0; i < group->stores.count; i++) {
        uint32_t number = plan->slot_of[group->stores.items[i].node];
        const struct kiln__slot *slot = &plan->slots.items[number];
        if (plan->slot_of[access->node] == number)
            return (uint8_t)(i + 1);
        if (slot->in_place && node->kind == KILN__IMPORT &&
            graph->requests.items[slot->binding].replaces == node->binding + 1)
            return (uint8_t)(i + 1);
    }
    return 0;
}

bool kiln__form_updates(const struct kiln__plan *plan, const struct kiln__group *group,
                        struct kiln__form *form)
{
    bool any = false;
    for (size_t i = 0; i < group->accesses.count; i++) {
        form->updates[i] = find_update(plan, group, &group->accesses.items[i]);
        any = any || form->updates[i];
    }
    return any;
}

static bool launch_access(const struct kiln__plan *plan, const struct kiln__group *group,
                          const struct kiln__space *space, struct kiln__launch *launch,
                          size_t access)
{
    const struct kiln__access *from = &group->accesses.items[access];
    uint32_t slot = plan->slot_of[from->node];
    assert(from->kind == KILN__ACCESS_NUMBER || slot != KILN__NO_SLOT);
    size_t item = kiln_type_size((kiln_type)plan->fusion.graph.nodes.items[from->node].type);
    bool done;
    if (from->kind == KILN__ACCESS_NUMBER)
        done = kiln__launch_index(launch, from->offset);
    else
        done = (launch->form.updates[access] || kiln__launch_memory(launch, slot)) &&
               kiln__launch_offset(launch, slot, from->offset, item);
    for (uint32_t d = 0; launch->form.along[access] != KILN__LINEAR && d < space->rank; d++)
        done = done && kiln__launch_index(launch, space->stride[access][d]);
    if (from->kind == KILN__ACCESS_GATHER)
        done =
            done && kiln__launch_index(launch, from->jump) &&
            kiln__launch_i32(launch, from->extent < INT32_MAX ? (int64_t)from->extent : INT32_MAX);
    return done;
}

bool kiln__launch_accesses(const struct kiln__plan *plan, const struct kiln__group *group,
                           const struct kiln__space *space, struct kiln__launch *launch,
                           size_t first)
{
    for (size_t i = first; i < group->accesses.count; i++)
        if (!launch_access(plan, group, space, launch, i))
            return false;
    return true;
}

bool kiln__launch_stores(const struct kiln__plan *plan, const struct kiln__group *group,
                         const struct kiln__space *space, struct kiln__launch *launch)
{
    bool done = true;
    for (size_t i = 0; i < group->stores.count; i++) {
        uint32_t node = group->stores.items[i].node, slot = plan->slot_of[node];
        size_t item = kiln_type_size((kiln_type)plan->fusion.graph.nodes.items[node].type);
        done = done && kiln__launch_memory(launch, slot) &&
               kiln__launch_offset(launch, slot, group->stores.items[i].offset, item);
    }
    for (uint32_t d = 0; launch->form.placed && d < space->rank; d++)
        done = done && kiln__launch_index(launch, space->stride[group->accesses.count][d]);
    return done;
}

bool kiln__launch_scalars(const struct kiln__group *group, struct kiln__launch *launch)
{
    bool done = true;
    for (size_t i = 0; i < group->steps.count; i++) {
        const struct kiln__step *step = &group->steps.items[i];
        if (step->kind == KILN__STEP_SCALAR)
            done = done && kiln__launch_scalar(launch, (kiln_type)step->type,
                                               group->scalars.items[step->index]);
    }
    return done;
}

uint64_t kiln__group_bytes(const struct kiln__plan *plan, const struct kiln__group *group)
{
    const struct kiln__node *nodes = plan->fusion.graph.nodes.items;
    uint64_t bytes = 0;
    for (size_t i = 0; i < group->accesses.count; i++)
        if (group->accesses.items[i].kind != KILN__ACCESS_NUMBER)
            bytes += kiln__node_bytes(&nodes[group->accesses.items[i].node]);
    for (size_t i = 0; i < group->stores.count; i++) {
        const struct kiln__store *store = &group->stores.items[i];
        bytes += store->placed ? kiln__shape_count(&group->shape) *
                                     kiln_type_size((kiln_type)nodes[store->node].type)
                               : kiln__node_bytes(&nodes[store->node]);
    }
    return bytes;
}

bool kiln__plan_launch(struct kiln__plan *plan, struct kiln__launch *launch, bool complete)
{
    struct kiln__launch *place = complete ? kiln__vector_push(&plan->launches) : NULL;
    if (!place) {
        kiln__vector_free(&launch->arguments);
        return false;
    }
    *place = *launch;
    struct kiln__plan_step *step = kiln__vector_push(&plan->steps);
    if (!step)
        return false;
    *step = (struct kiln__plan_step){.kind = KILN__STEP_LAUNCH,
                                     .launch = (uint32_t)(plan->launches.count - 1)};
    return true;
}
