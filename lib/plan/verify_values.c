/* SPDX-License-Identifier: Apache-2.0 */
/* A plan's steps walked as they would run, with a note of what each slot holds: memory that nothing
 * else uses while it matters, and values that are there when they are read. */
#include "plan/verify_plan.h"

#define NOTHING UINT32_MAX

/* ---- memory ---- */

/* The slot matters from now on: nothing else that matters may lie where it does. */
static bool verify_values_enter(struct kiln__plan_verifier *verifier, uint32_t index, uint32_t step)
{
    const struct kiln__slot *slots = verifier->plan->slots.items, *slot = &slots[index];
    size_t kept = 0;
    if (slot->storage != KILN__STORAGE_ARENA || slot->bytes == 0 || verifier->entered[index])
        return true;
    verifier->entered[index] = true;
    for (size_t i = 0; i < verifier->alive_count; i++) {
        uint32_t other = verifier->alive[i];
        if (verifier->last[other] < step)
            continue;
        verifier->alive[kept++] = other;
        if (slot->offset < slots[other].offset + slots[other].bytes &&
            slots[other].offset < slot->offset + slot->bytes)
            return KILN__WRONG_PLAN(verifier,
                                    "slot %u: in the memory of slot %u, which step %u still needs",
                                    index, other, verifier->last[other]);
    }
    verifier->alive[kept++] = index;
    verifier->alive_count = kept;
    return true;
}

static bool enter_all(struct kiln__plan_verifier *verifier, uint32_t step)
{
    const struct kiln__plan *plan = verifier->plan;
    struct kiln__named named = {0};
    while (kiln__plan_next_named(plan, &plan->steps.items[step], &named))
        if (!verify_values_enter(verifier, named.slot, step))
            return false;
    return true;
}

/* ---- values ---- */

/* Nothing launched is left to be done to it. */
static bool is_complete(const struct kiln__plan_verifier *verifier, uint32_t node)
{
    uint32_t group = verifier->plan->fusion.group_of[node];
    return kiln__node_is_input(kiln__planned_node(verifier, node)) || !verifier->runs[group] ||
           verifier->has_run[group];
}

/* Whether the slot of `node` holds it now. What takes over a value's memory and changes nothing,
 * for want of elements, leaves it as it is. */
static bool is_there(const struct kiln__plan_verifier *verifier, uint32_t node)
{
    const struct kiln__fusion *fusion = &verifier->plan->fusion;
    uint32_t held = verifier->holds[verifier->plan->slot_of[node]];
    while (held != NOTHING && held != node) {
        uint32_t donated_to = fusion->donated_to[held];
        held = donated_to == KILN__NO_DONATION || verifier->runs[fusion->group_of[donated_to]]
                   ? NOTHING
                   : donated_to;
    }
    return held == node && is_complete(verifier, node);
}

/* Before the first launch of a group. */
static bool check_reads(const struct kiln__plan_verifier *verifier, uint32_t step, uint32_t index)
{
    const struct kiln__group *group = kiln__planned_group(verifier, index);
    for (size_t i = 0; i < group->accesses.count; i++) {
        uint32_t node = group->accesses.items[i].node;
        if (group->accesses.items[i].kind != KILN__ACCESS_NUMBER &&
            kiln__node_bytes(kiln__planned_node(verifier, node)) && !is_there(verifier, node))
            return KILN__WRONG_PLAN(verifier, "step %u: group %u reads %%%u, which is not there",
                                    step, index, node);
    }
    for (size_t i = 0; group->base_group != KILN__NO_GROUP && i < group->stores.count; i++) {
        uint32_t node = group->stores.items[i].node,
                 base = kiln__node_base(kiln__planned_node(verifier, node));
        bool taken = verifier->plan->fusion.donated_to[base] == node;
        if (taken ? !is_there(verifier, base)
                  : verifier->holds[verifier->plan->slot_of[node]] != node)
            return KILN__WRONG_PLAN(verifier, "step %u: group %u puts %%%u over what is not there",
                                    step, index, node);
    }
    return true;
}

/* The input whose buffer a result is computed in holds its old value no more. */
static void overwrite_input(struct kiln__plan_verifier *verifier, uint32_t slot)
{
    const struct kiln__plan *plan = verifier->plan;
    const struct kiln__slot *result = &plan->slots.items[slot];
    if (!result->in_place)
        return;
    uint32_t binding = plan->fusion.graph.requests.items[result->binding].replaces - 1;
    for (uint32_t i = 0; i < plan->slots.count; i++)
        if (plan->slots.items[i].storage == KILN__STORAGE_INPUT &&
            kiln__planned_node(verifier, plan->slots.items[i].node)->kind == KILN__IMPORT &&
            plan->slots.items[i].binding == binding)
            verifier->holds[i] = NOTHING;
}

static bool run_launch(struct kiln__plan_verifier *verifier, uint32_t step, uint32_t index)
{
    const struct kiln__group *group = kiln__planned_group(verifier, index);
    if (verifier->has_run[index])
        return true;
    if (!check_reads(verifier, step, index))
        return false;
    verifier->has_run[index] = true;
    for (size_t i = 0; i < group->stores.count; i++) {
        uint32_t node = group->stores.items[i].node, slot = verifier->plan->slot_of[node];
        verifier->holds[slot] = node;
        overwrite_input(verifier, slot);
    }
    return true;
}

/* What a launch does of another group's on the way is there for its own group alone. */
static bool run_covering(struct kiln__plan_verifier *verifier, uint32_t step,
                         const struct kiln__launch *launch)
{
    const struct kiln__plan *plan = verifier->plan;
    const uint32_t covered = launch->covers - 1;
    if (kiln__plan_next_launch(plan, covered, 0) < plan->launches.count)
        return KILN__WRONG_PLAN(verifier, "step %u: does group %u, which others do too", step,
                                covered);
    if ((!verifier->has_run[launch->group] && !run_launch(verifier, step, covered)) ||
        !run_launch(verifier, step, launch->group))
        return false;
    const struct kiln__group *group = kiln__planned_group(verifier, covered);
    for (size_t i = 0; i < group->stores.count; i++)
        verifier->holds[plan->slot_of[group->stores.items[i].node]] = NOTHING;
    verifier->has_run[covered] = false;
    return true;
}

static bool run_step_launch(struct kiln__plan_verifier *verifier, uint32_t step)
{
    const struct kiln__plan *plan = verifier->plan;
    const struct kiln__launch *launch = &plan->launches.items[plan->steps.items[step].launch];
    if (kiln__planned_packs(plan, launch))
        return true;
    return launch->covers ? run_covering(verifier, step, launch)
                          : run_launch(verifier, step, launch->group);
}

static bool verify_values_deliver(struct kiln__plan_verifier *verifier, uint32_t step,
                                  uint32_t slot, uint32_t binding)
{
    const struct kiln__plan *plan = verifier->plan;
    const struct kiln__request *request = &plan->fusion.graph.requests.items[binding];
    bool reads = plan->steps.items[step].kind == KILN__STEP_DOWNLOAD;
    verifier->deliveries[binding]++;
    if (reads != (request->kind == KILN__READ) || plan->slot_of[request->node] != slot ||
        !is_there(verifier, request->node))
        return KILN__WRONG_PLAN(verifier, "step %u: result #%u is %%%u, which is not there", step,
                                binding, request->node);
    return true;
}

static bool run_step(struct kiln__plan_verifier *verifier, uint32_t index)
{
    const struct kiln__plan *plan = verifier->plan;
    const struct kiln__plan_step *step = &plan->steps.items[index];
    if (step->kind == KILN__STEP_LAUNCH)
        return run_step_launch(verifier, index);
    if (step->kind != KILN__STEP_UPLOAD)
        return verify_values_deliver(verifier, index, step->slot, step->binding);
    uint32_t node = plan->slots.items[step->slot].node;
    if (kiln__planned_node(verifier, node)->kind != KILN__UPLOAD ||
        kiln__planned_node(verifier, node)->binding != step->binding)
        return KILN__WRONG_PLAN(verifier, "step %u: uploads input #%u to %%%u", index,
                                step->binding, node);
    verifier->holds[step->slot] = node;
    return true;
}

/* What is put over the old content of the buffer that it is computed in finds it there. */
static void begin_in_place(struct kiln__plan_verifier *verifier, uint32_t index)
{
    const struct kiln__plan *plan = verifier->plan;
    const struct kiln__slot *slots = plan->slots.items;
    const uint32_t slot = plan->slot_of[index];
    uint32_t base = kiln__node_base(kiln__planned_node(verifier, index));
    if (base == UINT32_MAX || slot == KILN__NO_SLOT || !slots[slot].in_place ||
        plan->fusion.donated_to[base] == index)
        return;
    while (kiln__planned_node(verifier, base)->kind == KILN__RESHAPE)
        base = kiln__planned_node(verifier, base)->input[0];
    const struct kiln__node *old = kiln__planned_node(verifier, base);
    const uint32_t replaces = plan->fusion.graph.requests.items[slots[slot].binding].replaces;
    if (old->kind == KILN__IMPORT && old->binding + 1 == replaces)
        verifier->holds[slot] = index;
}

bool kiln__plan_check_values(struct kiln__plan_verifier *verifier)
{
    const struct kiln__plan *plan = verifier->plan;
    for (uint32_t i = 0; i < plan->slots.count; i++)
        verifier->holds[i] = plan->slots.items[i].storage == KILN__STORAGE_INPUT
                                 ? plan->slots.items[i].node
                                 : NOTHING;
    for (uint32_t i = 0; i < plan->fusion.graph.nodes.count; i++)
        begin_in_place(verifier, i);
    for (uint32_t i = 0; i < plan->steps.count; i++)
        if (!enter_all(verifier, i) || !run_step(verifier, i))
            return false;
    return true;
}

/* Each result is computed where it belongs, or brought there once. */
bool kiln__plan_check_results(const struct kiln__plan_verifier *verifier)
{
    const struct kiln__plan *plan = verifier->plan;
    for (uint32_t i = 0; i < plan->fusion.graph.requests.count; i++) {
        uint32_t node = plan->fusion.graph.requests.items[i].node;
        const struct kiln__slot *slot = &plan->slots.items[plan->slot_of[node]];
        bool direct = slot->storage == KILN__STORAGE_RESULT && slot->binding == i;
        if (slot->bytes && (verifier->deliveries[i] != !direct || !is_there(verifier, node)))
            return KILN__WRONG_PLAN(verifier, "result #%u is %s", i,
                                    verifier->deliveries[i] ? "brought more than once"
                                                            : "never made");
    }
    return true;
}
