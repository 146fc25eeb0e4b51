/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the program's own to launches: one each, with the arguments that recording has listed.
 */
#include "lower/lower.h"

/* Items of a work-group, where neither the kernel nor the device says. */
#define ITEMS 64

/* Where each item has a loop to itself, on a device that gives cores whole work-groups. */
#define ITEMS_OF_LOOPS 4

/* And along the third dimension, where NVIDIA's devices have room for no more. */
#define ITEMS_DEEP 64

static size_t largest_divisor(size_t number, size_t most)
{
    size_t divisor = number < most ? number : most;
    while (divisor > 1 && number % divisor)
        divisor--;
    return divisor ? divisor : 1;
}

/* Elements of a loop that an item takes: a vector, where there is one. */
static unsigned loop_width(const struct kiln__device *device, const struct kiln__custom_call *call)
{
    unsigned width = device->traits->chunked ? device->traits->vector : 1;
    while (width > 1 && width > call->global[0])
        width /= 2;
    return width;
}

/* Items beyond the end return at once. */
static void size_loop(const struct kiln__device *device, const struct kiln__custom_call *call,
                      struct kiln__launch *launch)
{
    const size_t most = device->info.max_work_group;
    const size_t items = kiln__divide_up(call->global[0], launch->variant.vector);
    size_t local = device->traits->chunked ? ITEMS_OF_LOOPS : device->traits->work_group;
    if (most && local > most)
        local = most;
    launch->dimensions = 1;
    launch->local[0] = local;
    launch->global[0] = kiln__divide_up(items, local) * local;
    for (unsigned d = 1; d < 3; d++)
        launch->global[d] = launch->local[d] = 1;
}

static void size_launch(const struct kiln__device *device, const struct kiln__custom_call *call,
                        struct kiln__launch *launch)
{
    const size_t most = device->info.max_work_group;
    size_t items = device->traits->chunked ? ITEMS : device->traits->work_group;
    if (most && items > most)
        items = most;
    launch->dimensions = 1;
    for (unsigned d = 0; d < 3; d++) {
        launch->global[d] = call->global[d];
        launch->local[d] = call->local[0]
                               ? call->local[d]
                               : largest_divisor(call->global[d],
                                                 d == 2 && items > ITEMS_DEEP ? ITEMS_DEEP : items);
        items /= call->local[0] ? 1 : launch->local[d];
        if (launch->global[d] > 1)
            launch->dimensions = d + 1;
    }
}

/* Where output `number` goes: nobody may have asked for it. */
static uint32_t slot_of_output(struct kiln__plan *plan, const struct kiln__group *group,
                               const struct kiln__custom_call *call, unsigned number)
{
    const struct kiln__node *nodes = plan->fusion.graph.nodes.items;
    for (size_t i = 0; i < group->stores.count; i++)
        if (nodes[group->stores.items[i].node].custom.output == number)
            return plan->slot_of[group->stores.items[i].node];
    const struct kiln__custom_output *output = &call->outputs[number];
    return kiln__plan_scratch(plan,
                              kiln__shape_count(&output->shape) * kiln_type_size(output->type));
}

static void add_argument(struct kiln__plan *plan, const struct kiln__group *group,
                         const struct kiln__custom_call *call,
                         const struct kiln__custom_argument *argument, struct kiln__launch *launch)
{
    const struct kiln__access *access = &group->accesses.items[argument->number];
    uint32_t slot;
    switch (argument->kind) {
    case KILN__CUSTOM_INPUT:
        slot = plan->slot_of[access->node];
        kiln__launch_memory(launch, slot);
        kiln__launch_offset(launch, slot, access->offset,
                            kiln_type_size(call->inputs[argument->number]));
        break;
    case KILN__CUSTOM_OUTPUT:
        slot = slot_of_output(plan, group, call, argument->number);
        kiln__launch_memory(launch, slot);
        kiln__launch_offset(launch, slot, 0, kiln_type_size(call->outputs[argument->number].type));
        break;
    case KILN__CUSTOM_STRIDE: kiln__launch_index(launch, access->stride[argument->dim]); break;
    case KILN__CUSTOM_I32: kiln__launch_i32(launch, argument->integer); break;
    case KILN__CUSTOM_I64: kiln__launch_index(launch, argument->integer); break;
    default: kiln__launch_f32(launch, argument->real);
    }
}

/* What it may read and write, each element once. */
static uint64_t bytes_of(const struct kiln__plan *plan, const struct kiln__group *group,
                         const struct kiln__custom_call *call)
{
    const struct kiln__node *nodes = plan->fusion.graph.nodes.items;
    const struct kiln__node *node = &nodes[group->nodes.items[0]];
    uint64_t bytes = 0;
    for (unsigned k = 0; k < node->n_inputs; k++)
        bytes += kiln__node_bytes(&nodes[node->input[k]]);
    for (unsigned k = 0; k < call->n_outputs; k++)
        bytes += kiln__shape_count(&call->outputs[k].shape) * kiln_type_size(call->outputs[k].type);
    return bytes;
}

static bool is_empty(const struct kiln__custom_call *call)
{
    bool empty = true;
    for (unsigned k = 0; k < call->n_outputs; k++)
        empty = empty && kiln__shape_count(&call->outputs[k].shape) == 0;
    return empty;
}

void kiln__lower_custom(struct kiln__plan *plan, uint32_t index)
{
    const struct kiln__group *group = &plan->fusion.groups.items[index];
    struct kiln__launch launch = {.source = KILN__SOURCE_CUSTOM, .group = index};
    if (group->stores.count == 0)
        return;
    const struct kiln__custom *custom = kiln__launch_custom(plan, &launch);
    if (is_empty(&custom->call))
        return;
    const struct kiln__device *device = kiln__plan_device(plan, group);
    struct kiln__variant arithmetic = {0};
    kiln__variant_arithmetic(device, &arithmetic);
    launch.variant.level_80 = arithmetic.level_80;
    launch.variant.vector = 1;
    launch.variant.wide = true;
    if (custom->loop || custom->file) {
        launch.variant = arithmetic;
        launch.variant.vector =
            (uint8_t)(custom->file ? device->traits->vector : loop_width(device, &custom->call));
        launch.variant.chunked = device->traits->chunked;
        launch.variant.wide = true;
    }
    launch.kernel = custom->kernel;
    launch.bytes = bytes_of(plan, group, &custom->call);
    if (custom->loop)
        size_loop(device, &custom->call, &launch);
    else
        size_launch(device, &custom->call, &launch);
    for (unsigned i = 0; i < custom->call.n_arguments; i++)
        add_argument(plan, group, &custom->call, &custom->arguments[i], &launch);
    kiln__plan_launch(plan, &launch);
}
