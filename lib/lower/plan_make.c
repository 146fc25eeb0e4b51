/* SPDX-License-Identifier: Apache-2.0 */
/* Groups to a plan: where values live, launches and transfers in their order, memory. */
#include "lower/generic.h"
#include "lower/workload.h"
#include "plan/traffic.h"

#include <stdlib.h>
#include <string.h>

static const struct kiln__node *node_at(const struct kiln__plan *plan, uint32_t index)
{
    return &plan->fusion.graph.nodes.items[index];
}

/* ---- where values live ---- */

static bool list_replacements(struct kiln__plan *plan)
{
    const struct kiln__graph *graph = &plan->fusion.graph;
    for (size_t i = 0; i < graph->requests.count; i++)
        if (graph->requests.items[i].replaces > plan->inputs)
            plan->inputs = graph->requests.items[i].replaces;
    plan->replacements = calloc(plan->inputs + 1, sizeof *plan->replacements);
    for (uint32_t i = 0; plan->replacements && i < graph->requests.count; i++)
        if (graph->requests.items[i].replaces)
            plan->replacements[graph->requests.items[i].replaces - 1] = i + 1;
    return plan->replacements;
}

/* The requests of each node as a list, in their order. */
static bool list_requests(struct kiln__plan *plan)
{
    const struct kiln__graph *graph = &plan->fusion.graph;
    plan->first_request = malloc((graph->nodes.count + 1) * sizeof(uint32_t));
    plan->next_request = malloc((graph->requests.count + 1) * sizeof(uint32_t));
    if (!plan->first_request || !plan->next_request)
        return false;
    for (size_t i = 0; i < graph->nodes.count; i++)
        plan->first_request[i] = KILN__NO_REQUEST;
    for (uint32_t i = (uint32_t)graph->requests.count; i-- > 0;) {
        uint32_t *first = &plan->first_request[graph->requests.items[i].node];
        plan->next_request[i] = *first;
        *first = i;
    }
    return true;
}

/* The first request that the value of `node` can be computed straight into, or KILN__NO_REQUEST. */
static uint32_t direct_request(const struct kiln__plan *plan, uint32_t node)
{
    const struct kiln__request *requests = plan->fusion.graph.requests.items;
    if (plan->takes_over[node])
        return plan->takes_over[node] - 1;
    uint32_t i = plan->first_request[node];
    while (i != KILN__NO_REQUEST && requests[i].kind != KILN__EXPORT && !plan->options.shared)
        i = plan->next_request[i];
    return i;
}

static struct kiln__slot place_node(const struct kiln__plan *plan, uint32_t index)
{
    const struct kiln__node *node = node_at(plan, index);
    struct kiln__slot slot = {.node = index, .bytes = kiln__node_bytes(node)};
    if (node->kind == KILN__IMPORT || (node->kind == KILN__UPLOAD && plan->options.shared)) {
        slot.storage = KILN__STORAGE_INPUT;
        slot.binding = (uint32_t)node->binding;
    } else if (node->kind != KILN__UPLOAD) {
        uint32_t request = direct_request(plan, index);
        bool direct = request != KILN__NO_REQUEST;
        slot.storage = direct ? KILN__STORAGE_RESULT : KILN__STORAGE_ARENA;
        slot.binding = direct ? request : 0;
        slot.in_place = plan->takes_over[index] != 0;
    }
    return slot;
}

/* A value whose memory a later one takes over lives where that one lives. */
static bool place_nodes(struct kiln__plan *plan)
{
    const struct kiln__fusion *fusion = &plan->fusion;
    uint32_t count = (uint32_t)fusion->graph.nodes.count;
    for (uint32_t i = 0; i < count; i++) {
        plan->slot_of[i] = KILN__NO_SLOT;
        if (!fusion->stored[i] || fusion->donated_to[i] != KILN__NO_DONATION)
            continue;
        plan->slot_of[i] = kiln__plan_add_slot(plan, place_node(plan, i));
        if (plan->slot_of[i] == KILN__NO_SLOT)
            return false;
    }
    for (uint32_t i = count; i-- > 0;)
        if (fusion->donated_to[i] != KILN__NO_DONATION)
            plan->slot_of[i] = plan->slot_of[fusion->donated_to[i]];
    return true;
}

/* ---- steps ---- */

/* Uploads come right before their first use, so that short-lived memory is shared. */
static void add_uploads(struct kiln__plan *plan, const struct kiln__group *group, bool *uploaded)
{
    for (size_t i = 0; i < group->accesses.count; i++) {
        uint32_t node = group->accesses.items[i].node;
        if (plan->options.shared || uploaded[node] || node_at(plan, node)->kind != KILN__UPLOAD)
            continue;
        uploaded[node] = true;
        if (kiln__node_bytes(node_at(plan, node)))
            kiln__plan_add(
                plan, (struct kiln__plan_step){.kind = KILN__STEP_UPLOAD,
                                               .slot = plan->slot_of[node],
                                               .binding = (uint32_t)node_at(plan, node)->binding});
    }
}

/* Bring the value of `node` to every request that it was not computed straight into. */
static void add_deliveries(struct kiln__plan *plan, uint32_t node)
{
    const struct kiln__graph *graph = &plan->fusion.graph;
    const struct kiln__slot slot = plan->slots.items[plan->slot_of[node]];
    uint32_t i = slot.bytes ? plan->first_request[node] : KILN__NO_REQUEST;
    for (; i != KILN__NO_REQUEST; i = plan->next_request[i]) {
        if (slot.storage == KILN__STORAGE_RESULT && slot.binding == i)
            continue;
        struct kiln__plan_step step = {.slot = plan->slot_of[node], .binding = i};
        bool reads = graph->requests.items[i].kind == KILN__READ;
        step.kind = reads ? KILN__STEP_DOWNLOAD : KILN__STEP_COPY;
        kiln__plan_add(plan, step);
    }
}

static void lower_group(struct kiln__plan *plan, uint32_t index)
{
    static kiln__lower *const lower[] = {
        [KILN__GROUP_MAP] = kiln__lower_nest,
        [KILN__GROUP_REDUCE] = kiln__lower_nest,
        [KILN__GROUP_ROWS] = kiln__lower_nest,
        [KILN__GROUP_MATMUL] = kiln__lower_matmul,
        [KILN__GROUP_ATTENTION] = kiln__lower_attention,
        [KILN__GROUP_ATTENTION_BACKWARD] = kiln__lower_attention_backward,
        [KILN__GROUP_SCATTER] = kiln__lower_scatter,
        [KILN__GROUP_SORT] = kiln__lower_sort,
    };
    _Static_assert(sizeof lower / sizeof *lower == KILN__GROUP_KINDS, "a row per kind");
    const struct kiln__group *group = &plan->fusion.groups.items[index];
    if (plan->absorbed[index])
        return;
    kiln__plan_tune(plan, index);
    if (kiln__plan_is_generic(plan, index))
        kiln__lower_generic(plan, index);
    else
        lower[group->kind](plan, index);
    for (size_t i = 0; i < group->stores.count; i++) {
        uint32_t node = group->stores.items[i].node;
        if (plan->fusion.group_of[node] == index)
            add_deliveries(plan, node);
    }
}

/* Inputs that were asked for as they are. */
static void deliver_inputs(struct kiln__plan *plan, bool *uploaded)
{
    const struct kiln__graph *graph = &plan->fusion.graph;
    for (uint32_t i = 0; i < graph->nodes.count; i++) {
        const struct kiln__node *node = node_at(plan, i);
        if (!kiln__node_is_input(node) || plan->slot_of[i] == KILN__NO_SLOT)
            continue;
        struct kiln__access access = {.node = i};
        struct kiln__group group = {.accesses = {.items = &access, .count = 1}};
        if (plan->first_request[i] == KILN__NO_REQUEST)
            continue;
        add_uploads(plan, &group, uploaded);
        add_deliveries(plan, i);
    }
}

static bool make_steps(struct kiln__plan *plan)
{
    bool *uploaded = calloc(plan->fusion.graph.nodes.count + 1, sizeof *uploaded);
    plan->failed = plan->failed || !uploaded;
    for (uint32_t i = 0; i < plan->fusion.groups.count && !plan->failed; i++) {
        add_uploads(plan, &plan->fusion.groups.items[plan->order[i]], uploaded);
        lower_group(plan, plan->order[i]);
    }
    if (!plan->failed)
        deliver_inputs(plan, uploaded);
    free(uploaded);
    return !plan->failed;
}

/* Offsets within the arena are known now. */
static void settle_offsets(struct kiln__plan *plan)
{
    for (size_t i = 0; i < plan->launches.count; i++) {
        struct kiln__launch *launch = &plan->launches.items[i];
        for (size_t k = 0; k < launch->arguments.count; k++) {
            struct kiln__argument *argument = &launch->arguments.items[k];
            if (argument->kind != KILN__ARGUMENT_OFFSET)
                continue;
            argument->kind = KILN__ARGUMENT_INDEX;
            argument->integer +=
                (int64_t)(plan->slots.items[argument->slot].offset / argument->item);
            if (argument->integer > INT32_MAX / 2)
                launch->variant.wide = true;
        }
    }
}

static bool copy_generic(struct kiln__plan *plan)
{
    size_t count = plan->fusion.groups.count;
    if (!plan->options.generic)
        return true;
    plan->generic = malloc(count + 1);
    if (plan->generic)
        memcpy(plan->generic, plan->options.generic, count);
    plan->options.generic = plan->generic;
    return plan->generic;
}

kiln_status kiln__plan_make(struct kiln__fusion *fusion, const struct kiln__plan_options *options,
                            struct kiln__plan *plan, struct kiln__error *error)
{
    *plan = (struct kiln__plan){.options = *options, .fusion = *fusion};
    *fusion = (struct kiln__fusion){0};
    plan->slot_of = malloc((plan->fusion.graph.nodes.count + 1) * sizeof(uint32_t));
    bool done = plan->slot_of && copy_generic(plan) && list_requests(plan) &&
                list_replacements(plan) && kiln__plan_in_place(plan) && place_nodes(plan) &&
                kiln__plan_find_frozen(plan) && kiln__plan_find_absorbed(plan) &&
                make_steps(plan) && kiln__plan_count_bytes(plan) &&
                kiln__plan_settle_prepacked(plan) && kiln__plan_assign_memory(plan) &&
                kiln__plan_find_dependencies(plan);
    if (!done) {
        kiln__plan_free(plan);
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to plan the batch");
    }
    settle_offsets(plan);
    kiln__plan_forget_tuned(plan);
    return KILN_OK;
}
