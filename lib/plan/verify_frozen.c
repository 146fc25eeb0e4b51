/* SPDX-License-Identifier: Apache-2.0 */
/* What plans keep from run to run (frozen.c): what goes into it stays, too, and nobody changes it.
 */
#include "plan/verify_plan.h"

static bool has_source(const struct kiln__slot *slot, uint32_t input)
{
    for (uint32_t i = 0; i < slot->n_sources; i++)
        if (slot->n_sources > KILN__MOST_SOURCES || slot->sources[i] == input)
            return true;
    return false;
}

/* What goes into what may stay: a buffer that does, or what is made of such alone. */
static const char *check_source(const struct kiln__plan_verifier *verifier, uint32_t from,
                                uint32_t to)
{
    const struct kiln__plan *plan = verifier->plan;
    const struct kiln__slot *read = &plan->slots.items[from], *made = &plan->slots.items[to];
    if (read->storage != KILN__STORAGE_INPUT) {
        for (uint32_t i = 0; i < read->n_sources && i < KILN__MOST_SOURCES; i++)
            if (!has_source(made, read->sources[i]))
                return "made of more than its sources";
        return verifier->makes[from] ? NULL : "made of what does not stay";
    }
    if (!read->frozen)
        return "made of an input that does not stay";
    return has_source(made, read->binding) ? NULL : "made of more than its sources";
}

/* A launch that may be left out makes one value, before anybody else names it. */
static const char *check_maker(const struct kiln__plan_verifier *verifier,
                               const struct kiln__launch *launch)
{
    const struct kiln__plan *plan = verifier->plan;
    const struct kiln__group *group = &plan->fusion.groups.items[launch->group];
    uint32_t made = launch->prepacks - 1;
    if (launch->prepacks > plan->slots.count || !kiln__launch_names(launch, made) ||
        plan->slots.items[made].storage == KILN__STORAGE_INPUT ||
        plan->slots.items[made].storage == KILN__STORAGE_RESULT)
        return "makes what is not its own";
    if (plan->slots.items[made].node != KILN__SCRATCH &&
        (group->stores.count != 1 || plan->slot_of[group->stores.items[0].node] != made))
        return "makes more than one value";
    if (plan->slots.items[made].node == KILN__SCRATCH && group->kind != KILN__GROUP_MATMUL)
        return "makes working memory of no product";
    if (verifier->first[made] != UINT32_MAX)
        return "makes what was used before";
    for (size_t i = 0; i < launch->arguments.count; i++) {
        const struct kiln__argument *argument = &launch->arguments.items[i];
        const char *wrong = argument->kind == KILN__ARGUMENT_MEMORY && argument->slot != made
                                ? check_source(verifier, argument->slot, made)
                                : NULL;
        if (wrong)
            return wrong;
    }
    return NULL;
}

/* Others find it in memory that stays, or it is made in every run; and leave it as it is. */
static const char *check_reader(struct kiln__plan_verifier *verifier,
                                const struct kiln__plan_step *step)
{
    const struct kiln__plan *plan = verifier->plan;
    struct kiln__named named = {0};
    while (kiln__plan_next_named(plan, step, &named)) {
        const struct kiln__slot *slot = &plan->slots.items[named.slot];
        verifier->first[named.slot] = 0;
        if (!verifier->makes[named.slot]) {
            if (slot->storage == KILN__STORAGE_PREPACKED)
                return "names what is kept before it is made";
            continue;
        }
        if (!slot->wanted)
            return "needs what nobody is known to need";
        if (named.written && slot->node != KILN__SCRATCH)
            return "writes what is kept";
    }
    return NULL;
}

/* An input that is frozen is a buffer, and no result goes there. */
static bool check_inputs(const struct kiln__plan_verifier *verifier)
{
    const struct kiln__plan *plan = verifier->plan;
    for (uint32_t i = 0; i < plan->slots.count; i++) {
        const struct kiln__slot *slot = &plan->slots.items[i];
        if (!slot->frozen || slot->storage != KILN__STORAGE_INPUT)
            continue;
        const struct kiln__node *node = kiln__planned_node(verifier, slot->node);
        if (node->kind != KILN__IMPORT || kiln__replacement_of(&verifier->replacements, node))
            return KILN__WRONG_PLAN(verifier, "slot %u: frozen, and an input that changes", i);
    }
    return true;
}

/* In the order of steps; `first` is whether anybody else has named a slot. */
bool kiln__plan_check_frozen(struct kiln__plan_verifier *verifier)
{
    const struct kiln__plan *plan = verifier->plan;
    if (!check_inputs(verifier))
        return false;
    for (uint32_t i = 0; i < plan->steps.count; i++) {
        const struct kiln__plan_step *step = &plan->steps.items[i];
        const struct kiln__launch *launch =
            step->kind == KILN__STEP_LAUNCH && step->launch < plan->launches.count
                ? &plan->launches.items[step->launch]
                : NULL;
        if (!launch && step->slot >= plan->slots.count)
            continue;
        const char *wrong = launch && launch->prepacks ? check_maker(verifier, launch)
                                                       : check_reader(verifier, step);
        if (wrong)
            return KILN__WRONG_PLAN(verifier, "step %u: %s", i, wrong);
        if (launch && launch->prepacks)
            verifier->makes[launch->prepacks - 1] = true;
    }
    for (uint32_t i = 0; i < plan->slots.count; i++) {
        verifier->first[i] = UINT32_MAX;
        if (plan->slots.items[i].storage == KILN__STORAGE_PREPACKED && !verifier->makes[i])
            return KILN__WRONG_PLAN(verifier, "slot %u: kept, and made by no launch", i);
    }
    return true;
}
