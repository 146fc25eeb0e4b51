/* SPDX-License-Identifier: Apache-2.0 */
/* Groups to a plan: where values live, launches and transfers in their order, memory. */
#include "lower/generic.h"
#include "lower/lower.h"
#include "lower/workload.h"
#include "memory/memory.h"
#include "plan/traffic.h"

#include <stdlib.h>

static const struct kiln__node *node_at(const struct kiln__plan *plan, uint32_t index)
{
    return &plan->fusion.graph.nodes.items[index];
}

/* ---- where values live ---- */

/* The requests of each node as a list, in their order. */
static bool list_requests(struct kiln__plan_builder *builder)
{
    const struct kiln__graph *graph = &builder->plan->fusion.graph;
    builder->first_request = malloc((graph->nodes.count + 1) * sizeof(uint32_t));
    builder->next_request = malloc((graph->requests.count + 1) * sizeof(uint32_t));
    if (!builder->first_request || !builder->next_request)
        return false;
    for (size_t i = 0; i < graph->nodes.count; i++)
        builder->first_request[i] = KILN__NO_REQUEST;
    for (uint32_t i = (uint32_t)graph->requests.count; i-- > 0;) {
        uint32_t *first = &builder->first_request[graph->requests.items[i].node];
        builder->next_request[i] = *first;
        *first = i;
    }
    return true;
}

/* The first request that the value of `node` can be computed straight into, or KILN__NO_REQUEST. */
static uint32_t direct_request(const struct kiln__plan_builder *builder, uint32_t node)
{
    const struct kiln__plan *plan = builder->plan;
    const struct kiln__request *requests = plan->fusion.graph.requests.items;
    if (builder->takes_over[node])
        return builder->takes_over[node] - 1;
    uint32_t i = builder->first_request[node];
    while (i != KILN__NO_REQUEST && requests[i].kind != KILN__EXPORT && !plan->options.shared)
        i = builder->next_request[i];
    return i;
}

static struct kiln__slot place_node(const struct kiln__plan_builder *builder, uint32_t index)
{
    const struct kiln__plan *plan = builder->plan;
    const struct kiln__node *node = node_at(plan, index);
    struct kiln__slot slot = {.node = index, .bytes = kiln__node_bytes(node)};
    if (node->kind == KILN__IMPORT || (node->kind == KILN__UPLOAD && plan->options.shared)) {
        slot.storage = KILN__STORAGE_INPUT;
        slot.binding = (uint32_t)node->binding;
    } else if (node->kind != KILN__UPLOAD) {
        uint32_t request = direct_request(builder, index);
        bool direct = request != KILN__NO_REQUEST;
        slot.storage = direct ? KILN__STORAGE_RESULT : KILN__STORAGE_ARENA;
        slot.binding = direct ? request : 0;
        slot.in_place = builder->takes_over[index] != 0;
    }
    return slot;
}

/* A value whose memory a later one takes over lives where that one lives. */
static bool place_nodes(const struct kiln__plan_builder *builder)
{
    struct kiln__plan *plan = builder->plan;
    const struct kiln__fusion *fusion = &plan->fusion;
    uint32_t count = (uint32_t)fusion->graph.nodes.count;
    for (uint32_t i = 0; i < count; i++) {
        plan->slot_of[i] = KILN__NO_SLOT;
        if (!fusion->stored[i] || fusion->donated_to[i] != KILN__NO_DONATION)
            continue;
        plan->slot_of[i] = kiln__plan_add_slot(plan, place_node(builder, i));
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
static void add_upload(const struct kiln__plan_builder *builder, uint32_t index)
{
    struct kiln__plan *plan = builder->plan;
    const struct kiln__node *node = node_at(plan, index);
    if (plan->options.shared || builder->uploaded[index] || node->kind != KILN__UPLOAD)
        return;
    builder->uploaded[index] = true;
    if (kiln__node_bytes(node))
        kiln__plan_add(plan, (struct kiln__plan_step){.kind = KILN__STEP_UPLOAD,
                                                      .slot = plan->slot_of[index],
                                                      .binding = (uint32_t)node->binding});
}

/* Bring the value of `node` to every request that it was not computed straight into. */
static void add_deliveries(const struct kiln__plan_builder *builder, uint32_t node)
{
    struct kiln__plan *plan = builder->plan;
    const struct kiln__graph *graph = &plan->fusion.graph;
    const struct kiln__slot slot = plan->slots.items[plan->slot_of[node]];
    uint32_t i = slot.bytes ? builder->first_request[node] : KILN__NO_REQUEST;
    for (; i != KILN__NO_REQUEST; i = builder->next_request[i]) {
        if (slot.storage == KILN__STORAGE_RESULT && slot.binding == i)
            continue;
        struct kiln__plan_step step = {.slot = plan->slot_of[node], .binding = i};
        bool reads = graph->requests.items[i].kind == KILN__READ;
        step.kind = reads ? KILN__STEP_DOWNLOAD : KILN__STEP_COPY;
        kiln__plan_add(plan, step);
    }
}

static void lower_group(const struct kiln__plan_builder *builder, uint32_t index)
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
        [KILN__GROUP_CUSTOM] = kiln__lower_custom,
    };
    _Static_assert(sizeof lower / sizeof *lower == KILN__GROUP_KINDS, "a row per kind");
    struct kiln__plan *plan = builder->plan;
    const struct kiln__group *group = &plan->fusion.groups.items[index];
    for (size_t i = 0; i < group->accesses.count; i++)
        add_upload(builder, group->accesses.items[i].node);
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
            add_deliveries(builder, node);
    }
}

/* Inputs that were asked for as they are. */
static void deliver_inputs(const struct kiln__plan_builder *builder)
{
    const struct kiln__plan *plan = builder->plan;
    for (uint32_t i = 0; i < plan->fusion.graph.nodes.count; i++) {
        if (!kiln__node_is_input(node_at(plan, i)) || plan->slot_of[i] == KILN__NO_SLOT ||
            builder->first_request[i] == KILN__NO_REQUEST)
            continue;
        add_upload(builder, i);
        add_deliveries(builder, i);
    }
}

static bool make_steps(struct kiln__plan_builder *builder)
{
    struct kiln__plan *plan = builder->plan;
    builder->uploaded = calloc(plan->fusion.graph.nodes.count + 1, sizeof *builder->uploaded);
    plan->failed = plan->failed || !builder->uploaded;
    for (uint32_t i = 0; i < plan->fusion.groups.count && !plan->failed; i++)
        lower_group(builder, builder->order[i]);
    if (!plan->failed)
        deliver_inputs(builder);
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
            argument->integer += kiln__plan_first_element(plan, argument);
            if (argument->integer > INT32_MAX / 2)
                launch->variant.wide = true;
        }
    }
}

static void free_builder(struct kiln__plan_builder *builder)
{
    kiln__replacements_free(&builder->replacements);
    free(builder->first_request);
    free(builder->next_request);
    free(builder->takes_over);
    free(builder->order);
    free(builder->uploaded);
}

static bool lower_fusion(struct kiln__plan_builder *builder)
{
    struct kiln__plan *plan = builder->plan;
    if (!list_requests(builder) ||
        !kiln__replacements_list(&plan->fusion.graph, &builder->replacements) ||
        !kiln__plan_in_place(builder) || !place_nodes(builder))
        return false;
    kiln__plan_find_frozen(builder);
    if (!kiln__plan_find_absorbed(builder) || !make_steps(builder) ||
        !kiln__plan_count_bytes(plan) || !kiln__plan_choose_prepacked(plan))
        return false;
    const struct kiln__traits *traits = plan->options.device->traits;
    if (plan->options.one_launch && traits->one_launch && traits->chunked)
        kiln__plan_prepack_first(plan);
    return kiln__plan_assign_memory(plan) && kiln__plan_find_dependencies(builder);
}

kiln_status kiln__plan_make(struct kiln__fusion *fusion, const struct kiln__plan_options *options,
                            struct kiln__plan *plan, struct kiln__error *error)
{
    struct kiln__plan_builder builder = {.plan = plan};
    *plan = (struct kiln__plan){.options = *options, .fusion = *fusion};
    *fusion = (struct kiln__fusion){0};
    plan->slot_of = malloc((plan->fusion.graph.nodes.count + 1) * sizeof(uint32_t));
    bool done = plan->slot_of && lower_fusion(&builder);
    free_builder(&builder);
    if (!done) {
        kiln__plan_free(plan);
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to plan the batch");
    }
    settle_offsets(plan);
    kiln__plan_forget_tuned(plan);
    plan->options.generic = NULL; /* the caller's */
    return KILN_OK;
}
