/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers of lowering: the start of a kernel variant, alignment, work sizes, arguments for offsets
 * and strides. */
#include "lower/lower.h"

#include <assert.h>

void kiln__variant_arithmetic(const struct kiln__device *device, struct kiln__variant *variant)
{
    variant->native_math = device->traits->fast_math_functions;
    variant->no_fma = device->traits->emulates_fma;
    variant->level_80 = device->info.has_inline_ptx && device->ptx_level >= 80;
}

/* Kernels for other devices take 32-bit indices where they suffice: 64-bit ones cost registers. */
void kiln__variant_start(const struct kiln__plan *plan, const struct kiln__group *group,
                         const struct kiln__space *space, struct kiln__variant *variant)
{
    const struct kiln__device *device = kiln__plan_device(plan, group);
    const struct kiln__traits *traits = device->traits;
    kiln__variant_arithmetic(device, variant);
    variant->chunked = traits->chunked;
    variant->wide = traits->chunked || !kiln__space_is_narrow(group, space);
    variant->rank = (uint8_t)space->rank;
    variant->kept = (uint8_t)space->kept;
    variant->vector = (uint8_t)traits->vector;
    while (!traits->chunked && 1u << variant->work_group < traits->work_group)
        variant->work_group++;
}

static bool store_is_aligned(const struct kiln__group *group, const struct kiln__variant *variant)
{
    const struct kiln__store *store = &group->stores.items[0];
    if (group->stores.count == 0 || !store->placed || variant->placed == KILN__STRIDED)
        return true; /* whole rows: as long as whole vectors, and so is all between them */
    for (uint32_t d = 0; d + 1 < group->shape.rank; d++)
        if (store->stride[d] % variant->vector)
            return false;
    return store->offset % variant->vector == 0 && store->jump % variant->vector == 0;
}

bool kiln__variant_is_aligned(const struct kiln__plan *plan, const struct kiln__group *group,
                              const struct kiln__variant *variant)
{
    if (variant->chunked || variant->vector == 1)
        return false;
    for (size_t i = 0; i < group->accesses.count; i++) {
        const struct kiln__access *access = &group->accesses.items[i];
        bool vectors = access->kind != KILN__ACCESS_NUMBER &&
                       (variant->along[i] == KILN__CONTIGUOUS || variant->along[i] == KILN__LINEAR);
        if (vectors && access->jump % variant->vector)
            return false;
        if (vectors && access->offset % variant->vector)
            return false;
        for (uint32_t d = 0; vectors && d + 1 < group->shape.rank; d++)
            if (access->stride[d] % variant->vector)
                return false;
    }
    return !plan->options.shared && store_is_aligned(group, variant);
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

void kiln__launch_line(size_t items, struct kiln__launch *launch)
{
    launch->dimensions = 1;
    launch->local[0] = (size_t)1 << launch->variant.work_group;
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

bool kiln__variant_updates(const struct kiln__plan *plan, const struct kiln__group *group,
                           struct kiln__variant *variant)
{
    bool any = false;
    for (size_t i = 0; i < group->accesses.count; i++) {
        variant->updates[i] = find_update(plan, group, &group->accesses.items[i]);
        any = any || variant->updates[i];
    }
    return any;
}

static void add_memory(const struct kiln__plan *plan, struct kiln__launch *launch, uint32_t node,
                       struct kiln__argument memory, const char *name, size_t k)
{
    memory.kind = KILN__ARGUMENT_MEMORY;
    memory.type = plan->fusion.graph.nodes.items[node].type;
    memory.slot = plan->slot_of[node];
    assert(memory.slot != KILN__NO_SLOT);
    kiln__launch_add(launch, memory, name, k, 0);
}

static struct kiln__argument offset_in(const struct kiln__plan *plan, uint32_t node,
                                       int64_t elements)
{
    kiln_type type = plan->fusion.graph.nodes.items[node].type;
    return (struct kiln__argument){.kind = KILN__ARGUMENT_OFFSET,
                                   .item = (uint8_t)kiln_type_size(type),
                                   .slot = plan->slot_of[node],
                                   .integer = elements};
}

/* What an index must be below. */
static struct kiln__argument extent_of(size_t extent)
{
    return (struct kiln__argument){.kind = KILN__ARGUMENT_I32,
                                   .integer = extent < INT32_MAX ? (int64_t)extent : INT32_MAX};
}

static void add_access(const struct kiln__plan *plan, const struct kiln__space *space,
                       const struct kiln__access *access, size_t k, struct kiln__launch *launch)
{
    bool number = access->kind == KILN__ACCESS_NUMBER;
    if (!number && !launch->variant.updates[k])
        add_memory(plan, launch, access->node,
                   (struct kiln__argument){.constant = true, .restricted = true}, "x#", k);
    kiln__launch_add(launch,
                     number ? KILN__INDEX(access->offset)
                            : offset_in(plan, access->node, access->offset),
                     "o#", k, 0);
    for (uint32_t d = 0; launch->variant.along[k] != KILN__LINEAR && d < space->rank; d++)
        kiln__launch_add(launch, KILN__INDEX(space->stride[k][d]), "s#_#", k, d);
    if (access->kind != KILN__ACCESS_GATHER)
        return;
    kiln__launch_add(launch, KILN__INDEX(access->jump), "g#", k, 0);
    kiln__launch_add(launch, extent_of(access->extent), "e#", k, 0);
}

void kiln__launch_accesses(const struct kiln__plan *plan, const struct kiln__group *group,
                           const struct kiln__space *space, struct kiln__launch *launch,
                           size_t first, size_t end)
{
    for (size_t k = first; k < end; k++)
        add_access(plan, space, &group->accesses.items[k], k, launch);
}

/* A store of an epilogue may be the kernel's own result. */
void kiln__launch_stores(const struct kiln__plan *plan, const struct kiln__group *group,
                         const struct kiln__space *space, struct kiln__launch *launch)
{
    for (size_t k = 0; k < group->stores.count; k++) {
        const struct kiln__store *store = &group->stores.items[k];
        add_memory(plan, launch, store->node,
                   (struct kiln__argument){.restricted = !launch->variant.epilogue}, "y#", k);
        kiln__launch_add(launch, offset_in(plan, store->node, store->offset), "q#", k, 0);
        if (store->position) {
            kiln__launch_add(launch, KILN__INDEX(store->jump), "j#", k, 0);
            kiln__launch_add(launch, extent_of(store->extent), "l#", k, 0);
        }
    }
    for (uint32_t d = 0; launch->variant.placed && d < space->rank; d++)
        kiln__launch_add(launch, KILN__INDEX(space->stride[group->accesses.count][d]), "u0_#", d,
                         0);
}

void kiln__launch_scalars(const struct kiln__group *group, struct kiln__launch *launch, size_t from,
                          size_t to)
{
    for (size_t i = from; i < to; i++) {
        const struct kiln__step *step = &group->steps.items[i];
        if (step->kind != KILN__STEP_SCALAR)
            continue;
        double value = group->scalars.items[step->index];
        bool floating = kiln__type_row(step->type)->floating;
        struct kiln__argument scalar = {.kind = floating                 ? KILN__ARGUMENT_F32
                                                : step->type == KILN_I64 ? KILN__ARGUMENT_I64
                                                                         : KILN__ARGUMENT_I32};
        if (floating)
            scalar.real = (float)value;
        else
            scalar.integer = kiln__value_integer(step->type, value);
        kiln__launch_add(launch, scalar, "c#", step->index, 0);
    }
}

void kiln__launch_reads(const struct kiln__plan *plan, unsigned operands, unsigned vector,
                        struct kiln__launch *launch)
{
    const struct kiln__group *group = &plan->fusion.groups.items[launch->group];
    struct kiln__variant *variant = &launch->variant;
    for (unsigned k = 0; k < operands && k < group->accesses.count; k++) {
        struct kiln__operand operand = kiln__group_operand(group, k);
        if (operand.value == operand.first)
            continue;
        variant->operands |= (uint8_t)(KILN__READS_A << k);
        variant->along[k] = KILN__CONTIGUOUS;
        variant->chunked = kiln__plan_device(plan, group)->traits->chunked;
        variant->vector = (uint8_t)vector;
    }
}

void kiln__plan_launch(struct kiln__plan *plan, struct kiln__launch *launch)
{
    plan->failed = plan->failed || launch->failed || !kiln__vector_add(&plan->launches, *launch);
    if (plan->failed) {
        kiln__vector_free(&launch->arguments);
        kiln__vector_free(&launch->table);
    }
    kiln__plan_add(plan, (struct kiln__plan_step){.kind = KILN__STEP_LAUNCH,
                                                  .launch = (uint32_t)(plan->launches.count - 1)});
}
