/* SPDX-License-Identifier: Apache-2.0 */
/* Which working memory may stay from run to run: what one launch makes of one buffer, as the packed
 * panels of a product's weights. */
#include "plan/plan.h"

/* The access that an operand is made from alone, or NULL. */
static const struct kiln__access *sole_access(const struct kiln__plan *plan,
                                              const struct kiln__group *group, unsigned k)
{
    struct kiln__operand operand = kiln__group_operand(group, k);
    const struct kiln__access *access = &group->accesses.items[operand.access];
    const struct kiln__node *node = &plan->fusion.graph.nodes.items[access->node];
    return operand.end - operand.access == 1 && access->kind == KILN__ACCESS_MEMORY &&
                   node->kind == KILN__IMPORT && !kiln__plan_replacement(plan, node)
               ? access
               : NULL;
}

bool kiln__plan_may_keep(const struct kiln__plan *plan, const struct kiln__group *group,
                         unsigned operand)
{
    return sole_access(plan, group, operand);
}

static bool takes_only(const struct kiln__launch *launch, uint32_t slot, uint32_t input)
{
    for (size_t i = 0; i < launch->arguments.count; i++) {
        const struct kiln__argument *argument = &launch->arguments.items[i];
        if (argument->kind == KILN__ARGUMENT_MEMORY && argument->slot != slot &&
            argument->slot != input)
            return false;
    }
    return true;
}

#define ADD(text, value) kiln__text_add_bytes(text, &(value), sizeof(value))

static void name_argument(const struct kiln__argument *argument, uint32_t slot,
                          struct kiln__text *name)
{
    bool kept = argument->slot == slot;
    ADD(name, kept);
    uint8_t kind = (uint8_t)argument->kind;
    ADD(name, kind);
    ADD(name, argument->item);
    ADD(name, argument->integer);
    ADD(name, argument->real);
}

/* All that decides what the launch makes of its input's content. */
static void name_launch(const struct kiln__plan *plan, const struct kiln__launch *launch,
                        uint32_t slot, unsigned operand, struct kiln__text *name)
{
    const struct kiln__group *group = &plan->fusion.groups.items[launch->group];
    struct kiln__operand steps = kiln__group_operand(group, operand);
    uint8_t type =
        (uint8_t)plan->fusion.graph.nodes.items[group->accesses.items[steps.access].node].type;
    kiln__text_add(name, "%s %s %s %u ", launch->file, launch->kernel, launch->options,
                   steps.first);
    ADD(name, type);
    ADD(name, launch->form);
    ADD(name, launch->global);
    ADD(name, launch->local);
    for (size_t i = steps.first; i <= steps.value; i++)
        ADD(name, group->steps.items[i]);
    for (size_t i = 0; i < launch->arguments.count; i++)
        name_argument(&launch->arguments.items[i], slot, name);
}

void kiln__plan_keep(struct kiln__plan *plan, uint32_t slot, unsigned operand)
{
    if (plan->failed || slot == KILN__NO_SLOT)
        return;
    struct kiln__launch *launch = &plan->launches.items[plan->launches.count - 1];
    const struct kiln__access *access =
        sole_access(plan, &plan->fusion.groups.items[launch->group], operand);
    struct kiln__slot *kept = &plan->slots.items[slot];
    if (!access || !takes_only(launch, slot, plan->slot_of[access->node]))
        return;
    struct kiln__text name = {0};
    name_launch(plan, launch, slot, operand, &name);
    plan->failed = plan->failed || name.failed;
    if (!name.failed) {
        kept->place = KILN__PLACE_KEPT;
        kept->binding = (uint32_t)plan->fusion.graph.nodes.items[access->node].binding;
        kept->key = kiln__hash128(name.data, name.length);
        plan->kept_bytes += kept->bytes;
        launch->keeps = slot + 1;
    }
    kiln__text_free(&name);
}
