/* SPDX-License-Identifier: Apache-2.0 */
/* Plan verifier: slots, launch arguments and their ranges, and the slots that each step names. */
#include "plan/verify_plan.h"

#include <stdlib.h>
#include <string.h>

/* Arena slots start at multiples of the widest vector. */
#define WIDEST 64

/* ---- slots ---- */

static const char *check_place(const struct kiln__plan_verifier *verifier, uint32_t index)
{
    const struct kiln__plan *plan = verifier->plan;
    const struct kiln__slot *slot = &plan->slots.items[index];
    const struct kiln__graph *graph = &plan->fusion.graph;
    const struct kiln__node *node =
        slot->node == KILN__SCRATCH ? NULL : kiln__planned_node(verifier, slot->node);
    switch (slot->storage) {
    case KILN__STORAGE_ARENA: return NULL;
    case KILN__STORAGE_INPUT:
        return node && kiln__node_is_input(node) && node->binding == slot->binding
                   ? NULL
                   : "in an input that is another one";
    case KILN__STORAGE_RESULT:
        if (!node || slot->binding >= graph->requests.count ||
            graph->requests.items[slot->binding].node != slot->node)
            return "in the memory of a result that is another one";
        return slot->in_place && !graph->requests.items[slot->binding].replaces
                   ? "in place of no input"
                   : NULL;
    case KILN__STORAGE_PREPACKED:
        return slot->n_sources && slot->n_sources <= KILN__MOST_SOURCES
                   ? NULL
                   : "kept, and made of nothing";
    case KILN__STORAGE_COUNTERS:
        return node || slot->bytes != KILN__COUNTERS * sizeof(int32_t)
                   ? "counters, and no working memory of their size"
                   : NULL;
    }
    return "nowhere";
}

static const char *check_slot(const struct kiln__plan_verifier *verifier, uint32_t index)
{
    const struct kiln__plan *plan = verifier->plan;
    const struct kiln__slot *slot = &plan->slots.items[index];
    if (slot->node != KILN__SCRATCH &&
        (slot->node >= plan->fusion.graph.nodes.count || plan->slot_of[slot->node] != index))
        return "of a node that lives elsewhere";
    if (slot->node != KILN__SCRATCH &&
        slot->bytes != kiln__node_bytes(kiln__planned_node(verifier, slot->node)))
        return "not as large as its node";
    const char *wrong = check_place(verifier, index);
    if (wrong || slot->storage != KILN__STORAGE_ARENA)
        return wrong;
    if (slot->first > slot->last) /* no step names it: another group makes it on the way */
        return NULL;
    return slot->offset % WIDEST                            ? "not aligned"
           : slot->offset + slot->bytes > plan->arena_bytes ? "beyond the end of the arena"
                                                            : NULL;
}

static bool check_slots(const struct kiln__plan_verifier *verifier)
{
    const struct kiln__plan *plan = verifier->plan;
    for (uint32_t i = 0; i < plan->slots.count; i++) {
        const char *wrong = check_slot(verifier, i);
        if (wrong)
            return KILN__WRONG_PLAN(verifier, "slot %u: %s", i, wrong);
    }
    for (uint32_t i = 0; i < plan->fusion.graph.nodes.count; i++) {
        uint32_t slot = plan->slot_of[i], donated_to = plan->fusion.donated_to[i];
        bool none = slot == KILN__NO_SLOT;
        if (none == plan->fusion.stored[i] || (!none && slot >= plan->slots.count) ||
            (donated_to != KILN__NO_DONATION && slot != plan->slot_of[donated_to]))
            return KILN__WRONG_PLAN(verifier, "node %%%u: in the wrong slot, or in none", i);
    }
    return true;
}

/* ---- launches ---- */

static const char *check_range(const struct kiln__plan_verifier *verifier,
                               const struct kiln__launch *launch)
{
    size_t most = verifier->plan->options.device->info.max_work_group, items = 1;
    if (launch->source == KILN__SOURCE_CLBLAST)
        return NULL;
    if (launch->dimensions < 1 || launch->dimensions > 3)
        return "not of one to three dimensions";
    for (uint32_t d = 0; d < launch->dimensions; d++) {
        if (launch->local[d] == 0 || launch->global[d] == 0 || launch->global[d] % launch->local[d])
            return "its work-items are not a whole number of work-groups";
        items *= launch->local[d];
    }
    return most && items > most ? "work-groups larger than the device has" : NULL;
}

/* An offset lies in its slot, wherever that is. */
static const char *check_argument(const struct kiln__plan_verifier *verifier,
                                  const struct kiln__launch *launch,
                                  const struct kiln__argument *argument)
{
    const struct kiln__plan *plan = verifier->plan;
    bool offset = argument->item != 0;
    if (argument->kind > KILN__ARGUMENT_TABLE || argument->kind == KILN__ARGUMENT_OFFSET)
        return "of no kind";
    if ((offset || argument->kind == KILN__ARGUMENT_MEMORY) && argument->slot >= plan->slots.count)
        return "of no slot";
    if (argument->kind == KILN__ARGUMENT_INDEX && !launch->variant.wide &&
        (argument->integer > INT32_MAX || argument->integer < INT32_MIN))
        return "too large for the kernel's indices";
    if (argument->kind == KILN__ARGUMENT_I32 &&
        (argument->integer > INT32_MAX || argument->integer < INT32_MIN))
        return "too large for an int";
    if (!offset)
        return NULL;
    const struct kiln__slot *slot = &plan->slots.items[argument->slot];
    if (!slot->bytes) /* of nothing nothing is read */
        return NULL;
    const int64_t block = (int64_t)kiln__plan_block(plan, argument);
    int64_t at = argument->integer / block * argument->item - (int64_t)slot->offset;
    return at < 0 || at > (int64_t)slot->bytes ? "an offset that is outside of its slot" : NULL;
}

static bool check_launches(const struct kiln__plan_verifier *verifier)
{
    const struct kiln__plan *plan = verifier->plan;
    for (uint32_t i = 0; i < plan->launches.count; i++) {
        const struct kiln__launch *launch = &plan->launches.items[i];
        if (launch->source > KILN__SOURCE_CUSTOM || launch->group >= plan->fusion.groups.count ||
            launch->covers > plan->fusion.groups.count || !launch->kernel)
            return KILN__WRONG_PLAN(verifier, "launch %u: of no group or kernel", i);
        const char *wrong = check_range(verifier, launch);
        if (wrong)
            return KILN__WRONG_PLAN(verifier, "launch %u (%s): %s", i, launch->kernel, wrong);
        for (size_t k = 0; k < launch->arguments.count; k++) {
            wrong = check_argument(verifier, launch, &launch->arguments.items[k]);
            if (wrong)
                return KILN__WRONG_PLAN(verifier, "launch %u (%s), argument %zu: %s", i,
                                        launch->kernel, k, wrong);
        }
    }
    return true;
}

/* ---- which steps name which slots ---- */

static void verify_plan_use(struct kiln__plan_verifier *verifier, uint32_t slot, uint32_t step)
{
    if (verifier->first[slot] > step)
        verifier->first[slot] = step;
    verifier->last[slot] = step;
}

static bool check_step(const struct kiln__plan_verifier *verifier, uint32_t index,
                       uint32_t *launches)
{
    const struct kiln__plan *plan = verifier->plan;
    const struct kiln__plan_step *step = &plan->steps.items[index];
    size_t results = plan->fusion.graph.requests.count;
    if (step->kind == KILN__STEP_LAUNCH)
        return step->launch == (*launches)++ && step->launch < plan->launches.count
                   ? true
                   : KILN__WRONG_PLAN(verifier, "step %u: not the next launch", index);
    if (step->kind > KILN__STEP_COPY || step->slot >= plan->slots.count ||
        plan->slots.items[step->slot].node == KILN__SCRATCH)
        return KILN__WRONG_PLAN(verifier, "step %u: of no kind or value", index);
    if (step->kind != KILN__STEP_UPLOAD && step->binding >= results)
        return KILN__WRONG_PLAN(verifier, "step %u: to no result", index);
    return true;
}

static bool find_uses(struct kiln__plan_verifier *verifier)
{
    const struct kiln__plan *plan = verifier->plan;
    uint32_t launches = 0;
    for (uint32_t i = 0; i < plan->steps.count; i++) {
        const struct kiln__plan_step *step = &plan->steps.items[i];
        struct kiln__named named = {0};
        if (!check_step(verifier, i, &launches))
            return false;
        while (kiln__plan_next_named(plan, step, &named))
            verify_plan_use(verifier, named.slot, i);
        if (step->kind != KILN__STEP_LAUNCH)
            continue;
        const struct kiln__launch *launch = &plan->launches.items[step->launch];
        verifier->runs[launch->group] = true;
        if (launch->covers)
            verifier->runs[launch->covers - 1] = true;
    }
    if (launches < plan->launches.count)
        return KILN__WRONG_PLAN(verifier, "launch %u: in no step", launches);
    for (uint32_t i = 0; i < plan->slots.count; i++)
        if (verifier->first[i] != UINT32_MAX && (plan->slots.items[i].first != verifier->first[i] ||
                                                 plan->slots.items[i].last != verifier->last[i]))
            return KILN__WRONG_PLAN(
                verifier, "slot %u: said to matter in other steps than those that use it", i);
    return true;
}

bool kiln__planned_packs(const struct kiln__plan *plan, const struct kiln__launch *launch)
{
    const struct kiln__group *group = &plan->fusion.groups.items[launch->group];
    bool packs = launch->prepacks != 0;
    for (size_t i = 0; i < group->stores.count && packs; i++)
        packs = plan->slot_of[group->stores.items[i].node] != launch->prepacks - 1;
    return packs;
}

/* One of a group's launches has what it stores for an argument. */
static bool check_stores(const struct kiln__plan_verifier *verifier)
{
    const struct kiln__plan *plan = verifier->plan;
    for (uint32_t g = 0; g < plan->fusion.groups.count; g++) {
        const struct kiln__group *group = kiln__planned_group(verifier, g);
        bool runs = kiln__plan_next_launch(plan, g, 0) < plan->launches.count;
        for (size_t i = 0; i < group->stores.count && runs; i++) {
            uint32_t node = group->stores.items[i].node;
            if (kiln__node_bytes(kiln__planned_node(verifier, node)) &&
                !kiln__plan_group_names(plan, g, plan->launches.count, plan->slot_of[node]))
                return KILN__WRONG_PLAN(verifier, "group %u: none of its launches stores %%%u", g,
                                        node);
        }
    }
    return true;
}

/* ---- all ---- */

static bool make_room(struct kiln__plan_verifier *verifier)
{
    const struct kiln__plan *plan = verifier->plan;
    size_t slots = plan->slots.count + 1, groups = plan->fusion.groups.count + 1;
    verifier->first = malloc(slots * sizeof *verifier->first);
    verifier->last = calloc(slots, sizeof *verifier->last);
    verifier->holds = calloc(slots, sizeof *verifier->holds);
    verifier->alive = calloc(slots, sizeof *verifier->alive);
    verifier->entered = calloc(slots, sizeof *verifier->entered);
    verifier->makes = calloc(slots, sizeof *verifier->makes);
    verifier->runs = calloc(groups, sizeof *verifier->runs);
    verifier->has_run = calloc(groups, sizeof *verifier->has_run);
    verifier->deliveries =
        calloc(plan->fusion.graph.requests.count + 1, sizeof *verifier->deliveries);
    if (verifier->first)
        memset(verifier->first, 0xff, slots * sizeof *verifier->first);
    return verifier->first && verifier->last && verifier->holds && verifier->alive &&
           verifier->entered && verifier->makes && verifier->runs && verifier->has_run &&
           verifier->deliveries &&
           kiln__replacements_list(&plan->fusion.graph, &verifier->replacements);
}

kiln_status kiln__plan_verify(const struct kiln__plan *plan, char text[KILN__WRONG])
{
    struct kiln__plan_verifier verifier = {.plan = plan, .text = text};
    bool room = make_room(&verifier);
    bool right = room && check_slots(&verifier) && check_launches(&verifier) &&
                 kiln__plan_check_frozen(&verifier) && find_uses(&verifier) &&
                 kiln__plan_check_values(&verifier) && check_stores(&verifier) &&
                 kiln__plan_check_results(&verifier);
    free(verifier.first);
    free(verifier.last);
    free(verifier.holds);
    free(verifier.alive);
    free(verifier.entered);
    free(verifier.makes);
    free(verifier.runs);
    free(verifier.has_run);
    free(verifier.deliveries);
    kiln__replacements_free(&verifier.replacements);
    return !room ? KILN_OUT_OF_HOST_MEMORY : right ? KILN_OK : KILN_WRONG_STATE;
}
