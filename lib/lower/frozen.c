/* SPDX-License-Identifier: Apache-2.0 */
/* Frozen inputs: which slots a run may leave to the next one. A slot qualifies if launches compute
 * it from buffers alone, only changing their form (packing, transposing, scaling), and if the batch
 * does not write these buffers. Only slots that other launches read are kept, under a key that
 * names the launches and the buffers' versions; values in between are computed again. Beside 1,024
 * rows and more weights are packed in each run: that is a hundredth of the product's work. */

#include "lower/generic.h"
#include "lower/lower.h"

#include <string.h>

/* Values of so much are kept whoever reads them: a bias, factors. Larger ones are kept for products
 * that read them as their second operand, and for gathers, as weights and tables are; for others it
 * would be what a network is asked about, in a buffer, that fills the memory. */
#define SMALL_BYTES ((size_t)1 << 16)

/* Over all groups, there and back. More takes a chain that goes back and forth; nothing is kept. */
#define MOST_WALKS 8

#define TOO_MANY (KILN__MOST_SOURCES + 1)

static const struct kiln__node *node_at(const struct kiln__plan *plan, uint32_t index)
{
    return &plan->fusion.graph.nodes.items[index];
}

static struct kiln__slot *slot_of(const struct kiln__plan *plan, uint32_t node)
{
    return &plan->slots.items[plan->slot_of[node]];
}

/* ---- values ---- */

static bool reads_frozen(const struct kiln__plan *plan, const struct kiln__access *access)
{
    return access->kind == KILN__ACCESS_NUMBER || slot_of(plan, access->node)->frozen;
}

/* Whether the group only brings what is frozen into another form: its one store is frozen, too. */
static bool prepares(const struct kiln__plan *plan, const struct kiln__group *group)
{
    bool forms = group->kind == KILN__GROUP_MAP ||
                 (group->kind == KILN__GROUP_REDUCE && group->reduced == 1);
    if (!forms || kiln__plan_is_generic(plan, (uint32_t)(group - plan->fusion.groups.items)) ||
        group->stores.count != 1 || !slot_of(plan, group->stores.items[0].node)->frozen)
        return false;
    for (size_t i = 0; i < group->accesses.count; i++)
        if (!reads_frozen(plan, &group->accesses.items[i]))
            return false;
    return true;
}

/* Before any group is looked at. */
static bool begins_frozen(const struct kiln__plan_builder *builder, const struct kiln__slot *slot)
{
    const struct kiln__node *node = node_at(builder->plan, slot->node);
    if (node->kind == KILN__IMPORT)
        return !kiln__replacement_of(&builder->replacements, node);
    return slot->storage == KILN__STORAGE_ARENA && node->kind != KILN__UPLOAD && slot->bytes &&
           builder->first_request[slot->node] == KILN__NO_REQUEST;
}

/* A value that another one takes the memory of, and that more than the group which does so reads:
 * in memory that stays they would find the later one. */
static void thaw_what_is_taken_over(const struct kiln__plan *plan)
{
    const struct kiln__fusion *fusion = &plan->fusion;
    for (size_t g = 0; g < fusion->groups.count; g++) {
        const struct kiln__group *group = &fusion->groups.items[g];
        for (size_t i = 0; i < group->accesses.count && group->stores.count; i++) {
            const struct kiln__access *access = &group->accesses.items[i];
            if (access->kind != KILN__ACCESS_NUMBER &&
                fusion->donated_to[access->node] != KILN__NO_DONATION &&
                fusion->group_of[fusion->donated_to[access->node]] != g)
                slot_of(plan, access->node)->frozen = false;
        }
    }
}

static bool is_weight(const struct kiln__plan *plan, const struct kiln__group *group, size_t access)
{
    if (group->kind == KILN__GROUP_CUSTOM)
        return node_at(plan, group->nodes.items[0])->custom.call->call.weights >> access & 1;
    if (group->kind != KILN__GROUP_MATMUL)
        return group->accesses.items[access].kind == KILN__ACCESS_GATHER;
    struct kiln__operand operand = kiln__group_operand(group, 1);
    return access >= operand.access && access < operand.end;
}

/* Whether it was frozen until now. */
static bool unfreeze(struct kiln__slot *slot)
{
    bool frozen = slot->frozen;
    slot->frozen = false;
    return frozen;
}

/* What it reads and would not be kept for it. */
static bool thaw_operands(const struct kiln__plan *plan, const struct kiln__group *group)
{
    bool any = false;
    if (!group->stores.count || prepares(plan, group))
        return false;
    for (size_t i = 0; i < group->accesses.count; i++) {
        if (group->accesses.items[i].kind == KILN__ACCESS_NUMBER)
            continue;
        struct kiln__slot *read = slot_of(plan, group->accesses.items[i].node);
        if (read->storage == KILN__STORAGE_ARENA && read->bytes > SMALL_BYTES &&
            !is_weight(plan, group, i))
            any |= unfreeze(read);
    }
    return any;
}

static bool thaw_results(const struct kiln__plan *plan, const struct kiln__group *group)
{
    bool any = false;
    if (prepares(plan, group))
        return false;
    for (size_t i = 0; i < group->stores.count; i++)
        any |= unfreeze(slot_of(plan, group->stores.items[i].node));
    return any;
}

void kiln__plan_find_frozen(const struct kiln__plan_builder *builder)
{
    const struct kiln__plan *plan = builder->plan;
    const struct kiln__group *groups = plan->fusion.groups.items;
    const size_t count = plan->fusion.groups.count;
    bool some = false, again = true;
    for (size_t i = 0; i < plan->slots.count; i++) {
        struct kiln__slot *slot = &plan->slots.items[i];
        slot->frozen = begins_frozen(builder, slot);
        some = some || (slot->storage == KILN__STORAGE_INPUT && slot->frozen);
    }
    thaw_what_is_taken_over(plan);
    for (int walks = 0; some && again && walks < MOST_WALKS; walks++) {
        again = false;
        for (size_t i = count; i-- > 0;)
            again |= thaw_operands(plan, &groups[builder->order[i]]);
        for (size_t i = 0; i < count; i++)
            again |= thaw_results(plan, &groups[builder->order[i]]);
    }
    for (size_t i = 0; i < plan->slots.count && again; i++)
        if (plan->slots.items[i].storage != KILN__STORAGE_INPUT)
            plan->slots.items[i].frozen = false;
}

bool kiln__plan_may_prepack(const struct kiln__plan *plan, const struct kiln__group *group,
                            unsigned operand)
{
    struct kiln__operand of = kiln__group_operand(group, operand);
    for (size_t i = of.access; i < of.end; i++)
        if (!reads_frozen(plan, &group->accesses.items[i]))
            return false;
    return true;
}

/* ---- launches ---- */

void kiln__plan_prepack(struct kiln__plan *plan, uint32_t slot, unsigned operand)
{
    if (plan->failed || slot == KILN__NO_SLOT)
        return;
    struct kiln__launch *launch = &plan->launches.items[plan->launches.count - 1];
    if (kiln__plan_may_prepack(plan, &plan->fusion.groups.items[launch->group], operand))
        launch->prepacks = slot + 1;
}

void kiln__plan_prepack_group(struct kiln__plan *plan, const struct kiln__group *group)
{
    if (!plan->failed && plan->launches.count && prepares(plan, group))
        plan->launches.items[plan->launches.count - 1].prepacks =
            plan->slot_of[group->stores.items[0].node] + 1;
}

/* ---- names ---- */

#define ADD(text, value) kiln__text_add_bytes(text, &(value), sizeof(value))

/* The number of an input among the slot's. */
static uint32_t source_of(struct kiln__slot *slot, uint32_t input)
{
    uint32_t i = 0;
    while (i < slot->n_sources && i < KILN__MOST_SOURCES && slot->sources[i] != input)
        i++;
    if (i < slot->n_sources && i < KILN__MOST_SOURCES)
        return i;
    if (slot->n_sources < KILN__MOST_SOURCES)
        slot->sources[slot->n_sources++] = input;
    else
        slot->n_sources = TOO_MANY;
    return slot->n_sources - 1;
}

/* Memory that goes into slot `to`: by numbers of its sources, which are the same in all plans. */
static void name_memory(struct kiln__plan *plan, uint32_t from, uint32_t to,
                        struct kiln__text *name)
{
    const struct kiln__slot *read = &plan->slots.items[from];
    struct kiln__slot *made = &plan->slots.items[to];
    uint32_t number;
    if (from == to) {
        kiln__text_add(name, "itself ");
    } else if (read->storage == KILN__STORAGE_INPUT) {
        uint8_t type = (uint8_t)node_at(plan, read->node)->type;
        number = source_of(made, read->binding);
        ADD(name, type);
        ADD(name, number);
    } else {
        if (read->n_sources == TOO_MANY)
            made->n_sources = TOO_MANY;
        for (uint32_t i = 0; i < read->n_sources && i < KILN__MOST_SOURCES; i++) {
            number = source_of(made, read->sources[i]);
            ADD(name, number);
        }
        ADD(name, read->key);
    }
}

static void name_argument(struct kiln__plan *plan, const struct kiln__argument *argument,
                          uint32_t slot, struct kiln__text *name)
{
    uint8_t kind = (uint8_t)argument->kind;
    ADD(name, kind);
    ADD(name, argument->item);
    ADD(name, argument->integer);
    ADD(name, argument->real);
    if (argument->kind == KILN__ARGUMENT_MEMORY)
        name_memory(plan, argument->slot, slot, name);
}

/* All that decides what the launch makes of what it reads. Of a product's steps those before it. */
static void name_launch(struct kiln__plan *plan, const struct kiln__launch *launch, uint32_t slot,
                        struct kiln__text *name)
{
    const struct kiln__group *group = &plan->fusion.groups.items[launch->group];
    size_t steps = group->kind == KILN__GROUP_MATMUL ? group->reduced_step : group->steps.count;
    kiln__text_add(name, "%s %s %s %d ", launch->file ? launch->file : "", launch->kernel,
                   launch->options, (int)launch->source);
    ADD(name, plan->slots.items[slot].key);
    ADD(name, launch->variant);
    ADD(name, launch->global);
    ADD(name, launch->local);
    for (size_t i = 0; i < steps; i++)
        ADD(name, group->steps.items[i]);
    for (size_t i = 0; i < group->stores.count && group->kind != KILN__GROUP_MATMUL; i++) {
        uint8_t type = (uint8_t)node_at(plan, group->stores.items[i].node)->type;
        ADD(name, type);
    }
    for (size_t i = 0; i < launch->arguments.count; i++)
        name_argument(plan, &launch->arguments.items[i], slot, name);
}

static void settle_name(struct kiln__plan *plan, const struct kiln__launch *launch)
{
    struct kiln__text name = {0};
    uint32_t slot = launch->prepacks - 1;
    name_launch(plan, launch, slot, &name);
    plan->failed = plan->failed || name.failed;
    if (!name.failed)
        plan->slots.items[slot].key = kiln__hash128(name.data, name.length);
    kiln__text_free(&name);
}

bool kiln__plan_choose_prepacked(struct kiln__plan *plan)
{
    for (size_t i = 0; i < plan->launches.count && !plan->failed; i++)
        if (plan->launches.items[i].prepacks)
            settle_name(plan, &plan->launches.items[i]);
    for (size_t i = 0; i < plan->steps.count; i++) {
        const struct kiln__plan_step *step = &plan->steps.items[i];
        struct kiln__named named = {0};
        if (step->kind == KILN__STEP_LAUNCH && plan->launches.items[step->launch].prepacks)
            continue;
        while (kiln__plan_next_named(plan, step, &named))
            plan->slots.items[named.slot].wanted = true;
    }
    for (size_t i = 0; i < plan->slots.count; i++) {
        struct kiln__slot *slot = &plan->slots.items[i];
        if (!slot->wanted || !slot->n_sources || slot->n_sources == TOO_MANY)
            continue;
        slot->storage = KILN__STORAGE_PREPACKED;
        plan->prepacked_bytes += slot->bytes;
    }
    return !plan->failed;
}

/* ---- their place ---- */

/* Element `from` comes before element `to`. */
static void move_item(void *items, size_t size, size_t from, size_t to, void *room)
{
    char *first = (char *)items + to * size;
    memcpy(room, (char *)items + from * size, size);
    memmove(first + size, first, (from - to) * size);
    memcpy(first, room, size);
}

/* Steps have launches in their order. */
void kiln__plan_prepack_first(struct kiln__plan *plan)
{
    struct kiln__launch launch;
    struct kiln__plan_step step;
    uint32_t front = 0, number = 0;
    for (size_t i = 0; i < plan->steps.count; i++) {
        const struct kiln__plan_step *own = &plan->steps.items[i];
        if (own->kind != KILN__STEP_LAUNCH || !plan->launches.items[own->launch].prepacks)
            continue;
        move_item(plan->launches.items, sizeof launch, own->launch, front, &launch);
        move_item(plan->steps.items, sizeof step, i, front++, &step);
    }
    for (size_t i = 0; i < plan->steps.count; i++)
        if (plan->steps.items[i].kind == KILN__STEP_LAUNCH)
            plan->steps.items[i].launch = number++;
}
