/* SPDX-License-Identifier: Apache-2.0 */
/* What running a plan relies on: launches that a device can take, memory that nothing else uses
 * while it matters, and steps in an order in which every value is there when it is read. The steps
 * are walked as they would run, with a note of what each slot holds. Its fusion is a sound one
 * (fuse/verify.c). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

/* Arena slots start at multiples of the widest vector. */
#define WIDEST 64

#define NOTHING UINT32_MAX

struct verifier {
    const struct kiln__plan *plan;
    char *text;
    uint32_t *first, *last; /* per slot: steps that name it */
    uint32_t *holds;        /* per slot: the node whose value is there by now; or NOTHING */
    uint32_t *alive;        /* arena slots that matter at the current step, */
    size_t alive_count;     /* so many */
    bool *entered;          /* per slot: it has been among them */
    bool *makes;            /* per slot: launches so far that may be left out have made it */
    bool *runs, *has_run;   /* per group: it has launches; they have begun */
    uint32_t *deliveries;   /* per request */
};

/* Answers false, for what calls it to hand on. */
#define WRONG(verifier, ...) (snprintf((verifier)->text, KILN__WRONG, __VA_ARGS__), false)

static const struct kiln__node *node_at(const struct verifier *verifier, uint32_t index)
{
    return &verifier->plan->fusion.graph.nodes.items[index];
}

static const struct kiln__group *group_at(const struct verifier *verifier, uint32_t index)
{
    return &verifier->plan->fusion.groups.items[index];
}

/* ---- slots ---- */

static const char *check_place(const struct verifier *verifier, uint32_t index)
{
    const struct kiln__plan *plan = verifier->plan;
    const struct kiln__slot *slot = &plan->slots.items[index];
    const struct kiln__graph *graph = &plan->fusion.graph;
    const struct kiln__node *node =
        slot->node == KILN__SCRATCH ? NULL : node_at(verifier, slot->node);
    switch (slot->place) {
    case KILN__PLACE_ARENA: return NULL;
    case KILN__PLACE_INPUT:
        return node && kiln__node_is_input(node) && node->binding == slot->binding
                   ? NULL
                   : "in an input that is another one";
    case KILN__PLACE_RESULT:
        if (!node || slot->binding >= graph->requests.count ||
            graph->requests.items[slot->binding].node != slot->node)
            return "in the memory of a result that is another one";
        return slot->in_place && !graph->requests.items[slot->binding].replaces
                   ? "in place of no input"
                   : NULL;
    case KILN__PLACE_KEPT:
        return slot->n_sources && slot->n_sources <= KILN__MOST_SOURCES
                   ? NULL
                   : "kept, and made of nothing";
    case KILN__PLACE_COUNTERS:
        return node || slot->bytes != KILN__COUNTERS * sizeof(int32_t)
                   ? "counters, and no working memory of their size"
                   : NULL;
    }
    return "nowhere";
}

static const char *check_slot(const struct verifier *verifier, uint32_t index)
{
    const struct kiln__plan *plan = verifier->plan;
    const struct kiln__slot *slot = &plan->slots.items[index];
    if (slot->node != KILN__SCRATCH &&
        (slot->node >= plan->fusion.graph.nodes.count || plan->slot_of[slot->node] != index))
        return "of a node that lives elsewhere";
    if (slot->node != KILN__SCRATCH &&
        slot->bytes != kiln__node_bytes(node_at(verifier, slot->node)))
        return "not as large as its node";
    const char *wrong = check_place(verifier, index);
    if (wrong || slot->place != KILN__PLACE_ARENA)
        return wrong;
    if (slot->first > slot->last) /* no step names it: another group makes it on the way */
        return NULL;
    return slot->offset % WIDEST                            ? "not aligned"
           : slot->offset + slot->bytes > plan->arena_bytes ? "beyond the end of the arena"
                                                            : NULL;
}

static bool check_slots(const struct verifier *verifier)
{
    const struct kiln__plan *plan = verifier->plan;
    for (uint32_t i = 0; i < plan->slots.count; i++) {
        const char *wrong = check_slot(verifier, i);
        if (wrong)
            return WRONG(verifier, "slot %u: %s", i, wrong);
    }
    for (uint32_t i = 0; i < plan->fusion.graph.nodes.count; i++) {
        uint32_t slot = plan->slot_of[i], heir = plan->fusion.heir[i];
        bool none = slot == KILN__NO_SLOT;
        if (none == plan->fusion.stored[i] || (!none && slot >= plan->slots.count) ||
            (heir != KILN__NO_HEIR && slot != plan->slot_of[heir]))
            return WRONG(verifier, "node %%%u: in the wrong slot, or in none", i);
    }
    return true;
}

/* ---- launches ---- */

static const char *check_range(const struct verifier *verifier, const struct kiln__launch *launch)
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
static const char *check_argument(const struct verifier *verifier,
                                  const struct kiln__launch *launch,
                                  const struct kiln__argument *argument)
{
    const struct kiln__plan *plan = verifier->plan;
    bool offset = argument->item != 0;
    if (argument->kind > KILN__ARGUMENT_TABLE || argument->kind == KILN__ARGUMENT_OFFSET)
        return "of no kind";
    if ((offset || argument->kind == KILN__ARGUMENT_MEMORY) && argument->slot >= plan->slots.count)
        return "of no slot";
    if (argument->kind == KILN__ARGUMENT_INDEX && !launch->form.wide &&
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
    int64_t at = argument->integer * argument->item - (int64_t)slot->offset;
    return at < 0 || at > (int64_t)slot->bytes ? "an offset that is outside of its slot" : NULL;
}

static bool check_launches(const struct verifier *verifier)
{
    const struct kiln__plan *plan = verifier->plan;
    for (uint32_t i = 0; i < plan->launches.count; i++) {
        const struct kiln__launch *launch = &plan->launches.items[i];
        if (launch->source > KILN__SOURCE_CLBLAST || launch->group >= plan->fusion.groups.count ||
            launch->covers > plan->fusion.groups.count || !launch->kernel)
            return WRONG(verifier, "launch %u: of no group or kernel", i);
        const char *wrong = check_range(verifier, launch);
        if (wrong)
            return WRONG(verifier, "launch %u (%s): %s", i, launch->kernel, wrong);
        for (size_t k = 0; k < launch->arguments.count; k++) {
            wrong = check_argument(verifier, launch, &launch->arguments.items[k]);
            if (wrong)
                return WRONG(verifier, "launch %u (%s), argument %zu: %s", i, launch->kernel, k,
                             wrong);
        }
    }
    return true;
}

/* ---- what may be left out ---- */

static bool has_source(const struct kiln__slot *slot, uint32_t input)
{
    for (uint32_t i = 0; i < slot->n_sources; i++)
        if (slot->n_sources > KILN__MOST_SOURCES || slot->sources[i] == input)
            return true;
    return false;
}

/* What goes into what may stay: a buffer that does, or what is made of such alone. */
static const char *check_source(const struct verifier *verifier, uint32_t from, uint32_t to)
{
    const struct kiln__plan *plan = verifier->plan;
    const struct kiln__slot *read = &plan->slots.items[from], *made = &plan->slots.items[to];
    if (read->place != KILN__PLACE_INPUT) {
        for (uint32_t i = 0; i < read->n_sources && i < KILN__MOST_SOURCES; i++)
            if (!has_source(made, read->sources[i]))
                return "made of more than its sources";
        return verifier->makes[from] ? NULL : "made of what does not stay";
    }
    const struct kiln__node *node = node_at(verifier, read->node);
    if (node->kind != KILN__IMPORT || kiln__plan_replacement(plan, node))
        return "made of an input that does not stay";
    return has_source(made, read->binding) ? NULL : "made of more than its sources";
}

/* A launch that may be left out makes one value, before anybody else names it. */
static const char *check_maker(const struct verifier *verifier, const struct kiln__launch *launch)
{
    const struct kiln__plan *plan = verifier->plan;
    const struct kiln__group *group = &plan->fusion.groups.items[launch->group];
    uint32_t made = launch->makes - 1;
    if (launch->makes > plan->slots.count || !kiln__launch_names(launch, made) ||
        plan->slots.items[made].place == KILN__PLACE_INPUT ||
        plan->slots.items[made].place == KILN__PLACE_RESULT)
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
static const char *check_reader(struct verifier *verifier, const struct kiln__plan_step *step)
{
    const struct kiln__plan *plan = verifier->plan;
    struct kiln__named named = {0};
    while (kiln__plan_next_named(plan, step, &named)) {
        const struct kiln__slot *slot = &plan->slots.items[named.slot];
        verifier->first[named.slot] = 0;
        if (!verifier->makes[named.slot]) {
            if (slot->place == KILN__PLACE_KEPT)
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

/* In the order of steps; `first` is whether anybody else has named a slot. */
static bool check_kept(struct verifier *verifier)
{
    const struct kiln__plan *plan = verifier->plan;
    for (uint32_t i = 0; i < plan->steps.count; i++) {
        const struct kiln__plan_step *step = &plan->steps.items[i];
        const struct kiln__launch *launch =
            step->kind == KILN__STEP_LAUNCH && step->launch < plan->launches.count
                ? &plan->launches.items[step->launch]
                : NULL;
        if (!launch && step->slot >= plan->slots.count)
            continue;
        const char *wrong =
            launch && launch->makes ? check_maker(verifier, launch) : check_reader(verifier, step);
        if (wrong)
            return WRONG(verifier, "step %u: %s", i, wrong);
        if (launch && launch->makes)
            verifier->makes[launch->makes - 1] = true;
    }
    for (uint32_t i = 0; i < plan->slots.count; i++) {
        verifier->first[i] = UINT32_MAX;
        if (plan->slots.items[i].place == KILN__PLACE_KEPT && !verifier->makes[i])
            return WRONG(verifier, "slot %u: kept, and made by no launch", i);
    }
    return true;
}

/* ---- which steps name which slots ---- */

static void use(struct verifier *verifier, uint32_t slot, uint32_t step)
{
    if (verifier->first[slot] > step)
        verifier->first[slot] = step;
    verifier->last[slot] = step;
}

static bool check_step(const struct verifier *verifier, uint32_t index, uint32_t *launches)
{
    const struct kiln__plan *plan = verifier->plan;
    const struct kiln__plan_step *step = &plan->steps.items[index];
    size_t results = plan->fusion.graph.requests.count;
    if (step->kind == KILN__STEP_LAUNCH)
        return step->launch == (*launches)++ && step->launch < plan->launches.count
                   ? true
                   : WRONG(verifier, "step %u: not the next launch", index);
    if (step->kind > KILN__STEP_COPY || step->slot >= plan->slots.count ||
        plan->slots.items[step->slot].node == KILN__SCRATCH)
        return WRONG(verifier, "step %u: of no kind or value", index);
    if (step->kind != KILN__STEP_UPLOAD && step->binding >= results)
        return WRONG(verifier, "step %u: to no result", index);
    return true;
}

static bool find_uses(struct verifier *verifier)
{
    const struct kiln__plan *plan = verifier->plan;
    uint32_t launches = 0;
    for (uint32_t i = 0; i < plan->steps.count; i++) {
        const struct kiln__plan_step *step = &plan->steps.items[i];
        struct kiln__named named = {0};
        if (!check_step(verifier, i, &launches))
            return false;
        while (kiln__plan_next_named(plan, step, &named))
            use(verifier, named.slot, i);
        if (step->kind != KILN__STEP_LAUNCH)
            continue;
        const struct kiln__launch *launch = &plan->launches.items[step->launch];
        verifier->runs[launch->group] = true;
        if (launch->covers)
            verifier->runs[launch->covers - 1] = true;
    }
    if (launches < plan->launches.count)
        return WRONG(verifier, "launch %u: in no step", launches);
    for (uint32_t i = 0; i < plan->slots.count; i++)
        if (verifier->first[i] != UINT32_MAX && (plan->slots.items[i].first != verifier->first[i] ||
                                                 plan->slots.items[i].last != verifier->last[i]))
            return WRONG(verifier, "slot %u: said to matter in other steps than those that use it",
                         i);
    return true;
}

/* One of a group's launches has what it stores for an argument. */
static bool check_stores(const struct verifier *verifier)
{
    const struct kiln__plan *plan = verifier->plan;
    const struct kiln__launch *launches = plan->launches.items;
    for (size_t from = 0, to = 0; from < plan->launches.count; from = to) {
        const struct kiln__group *group = group_at(verifier, launches[from].group);
        while (to < plan->launches.count && launches[to].group == launches[from].group)
            to++;
        for (size_t i = 0; i < group->stores.count; i++) {
            uint32_t node = group->stores.items[i].node;
            size_t by = from;
            while (by < to && !kiln__launch_names(&launches[by], plan->slot_of[node]))
                by++;
            if (by == to && kiln__node_bytes(node_at(verifier, node)))
                return WRONG(verifier, "group %u: none of its launches stores %%%u",
                             launches[from].group, node);
        }
    }
    return true;
}

/* ---- memory ---- */

/* The slot matters from now on: nothing else that matters may lie where it does. */
static bool enter(struct verifier *verifier, uint32_t index, uint32_t step)
{
    const struct kiln__slot *slots = verifier->plan->slots.items, *slot = &slots[index];
    size_t kept = 0;
    if (slot->place != KILN__PLACE_ARENA || slot->bytes == 0 || verifier->entered[index])
        return true;
    verifier->entered[index] = true;
    for (size_t i = 0; i < verifier->alive_count; i++) {
        uint32_t other = verifier->alive[i];
        if (verifier->last[other] < step)
            continue;
        verifier->alive[kept++] = other;
        if (slot->offset < slots[other].offset + slots[other].bytes &&
            slots[other].offset < slot->offset + slot->bytes)
            return WRONG(verifier, "slot %u: in the memory of slot %u, which step %u still needs",
                         index, other, verifier->last[other]);
    }
    verifier->alive[kept++] = index;
    verifier->alive_count = kept;
    return true;
}

static bool enter_all(struct verifier *verifier, uint32_t step)
{
    const struct kiln__plan *plan = verifier->plan;
    struct kiln__named named = {0};
    while (kiln__plan_next_named(plan, &plan->steps.items[step], &named))
        if (!enter(verifier, named.slot, step))
            return false;
    return true;
}

/* ---- values ---- */

/* Nothing launched is left to be done to it. */
static bool is_complete(const struct verifier *verifier, uint32_t node)
{
    uint32_t group = verifier->plan->fusion.group_of[node];
    return kiln__node_is_input(node_at(verifier, node)) || !verifier->runs[group] ||
           verifier->has_run[group];
}

/* Whether the slot of `node` holds it now. What takes over a value's memory and changes nothing,
 * for want of elements, leaves it as it is. */
static bool is_there(const struct verifier *verifier, uint32_t node)
{
    const struct kiln__fusion *fusion = &verifier->plan->fusion;
    uint32_t held = verifier->holds[verifier->plan->slot_of[node]];
    while (held != NOTHING && held != node) {
        uint32_t heir = fusion->heir[held];
        held = heir == KILN__NO_HEIR || verifier->runs[fusion->group_of[heir]] ? NOTHING : heir;
    }
    return held == node && is_complete(verifier, node);
}

/* Before the first launch of a group. */
static bool check_reads(const struct verifier *verifier, uint32_t step, uint32_t index)
{
    const struct kiln__group *group = group_at(verifier, index);
    for (size_t i = 0; i < group->accesses.count; i++) {
        uint32_t node = group->accesses.items[i].node;
        if (group->accesses.items[i].kind != KILN__ACCESS_NUMBER &&
            kiln__node_bytes(node_at(verifier, node)) && !is_there(verifier, node))
            return WRONG(verifier, "step %u: group %u reads %%%u, which is not there", step, index,
                         node);
    }
    for (size_t i = 0; group->base_group != KILN__NO_GROUP && i < group->stores.count; i++) {
        uint32_t node = group->stores.items[i].node,
                 base = kiln__node_base(node_at(verifier, node));
        bool taken = verifier->plan->fusion.heir[base] == node;
        if (taken ? !is_there(verifier, base)
                  : verifier->holds[verifier->plan->slot_of[node]] != node)
            return WRONG(verifier, "step %u: group %u puts %%%u over what is not there", step,
                         index, node);
    }
    return true;
}

/* The input whose buffer a result is computed in holds its old value no more. */
static void overwrite_input(struct verifier *verifier, uint32_t slot)
{
    const struct kiln__plan *plan = verifier->plan;
    const struct kiln__slot *result = &plan->slots.items[slot];
    if (!result->in_place)
        return;
    uint32_t binding = plan->fusion.graph.requests.items[result->binding].replaces - 1;
    for (uint32_t i = 0; i < plan->slots.count; i++)
        if (plan->slots.items[i].place == KILN__PLACE_INPUT &&
            node_at(verifier, plan->slots.items[i].node)->kind == KILN__IMPORT &&
            plan->slots.items[i].binding == binding)
            verifier->holds[i] = NOTHING;
}

static bool run_launch(struct verifier *verifier, uint32_t step, uint32_t index)
{
    const struct kiln__group *group = group_at(verifier, index);
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
static bool run_covering(struct verifier *verifier, uint32_t step,
                         const struct kiln__launch *launch)
{
    const struct kiln__plan *plan = verifier->plan;
    const uint32_t covered = launch->covers - 1;
    for (size_t i = 0; i < plan->launches.count; i++)
        if (plan->launches.items[i].group == covered)
            return WRONG(verifier, "step %u: does group %u, which others do too", step, covered);
    if ((!verifier->has_run[launch->group] && !run_launch(verifier, step, covered)) ||
        !run_launch(verifier, step, launch->group))
        return false;
    const struct kiln__group *group = group_at(verifier, covered);
    for (size_t i = 0; i < group->stores.count; i++)
        verifier->holds[plan->slot_of[group->stores.items[i].node]] = NOTHING;
    verifier->has_run[covered] = false;
    return true;
}

static bool run_step_launch(struct verifier *verifier, uint32_t step)
{
    const struct kiln__plan *plan = verifier->plan;
    const struct kiln__launch *launch = &plan->launches.items[plan->steps.items[step].launch];
    return launch->covers ? run_covering(verifier, step, launch)
                          : run_launch(verifier, step, launch->group);
}

static bool deliver(struct verifier *verifier, uint32_t step, uint32_t slot, uint32_t binding)
{
    const struct kiln__plan *plan = verifier->plan;
    const struct kiln__request *request = &plan->fusion.graph.requests.items[binding];
    bool reads = plan->steps.items[step].kind == KILN__STEP_DOWNLOAD;
    verifier->deliveries[binding]++;
    if (reads != (request->kind == KILN__READ) || plan->slot_of[request->node] != slot ||
        !is_there(verifier, request->node))
        return WRONG(verifier, "step %u: result #%u is %%%u, which is not there", step, binding,
                     request->node);
    return true;
}

static bool run_step(struct verifier *verifier, uint32_t index)
{
    const struct kiln__plan *plan = verifier->plan;
    const struct kiln__plan_step *step = &plan->steps.items[index];
    if (step->kind == KILN__STEP_LAUNCH)
        return run_step_launch(verifier, index);
    if (step->kind != KILN__STEP_UPLOAD)
        return deliver(verifier, index, step->slot, step->binding);
    uint32_t node = plan->slots.items[step->slot].node;
    if (node_at(verifier, node)->kind != KILN__UPLOAD ||
        node_at(verifier, node)->binding != step->binding)
        return WRONG(verifier, "step %u: uploads input #%u to %%%u", index, step->binding, node);
    verifier->holds[step->slot] = node;
    return true;
}

static bool run_steps(struct verifier *verifier)
{
    const struct kiln__plan *plan = verifier->plan;
    for (uint32_t i = 0; i < plan->slots.count; i++)
        verifier->holds[i] =
            plan->slots.items[i].place == KILN__PLACE_INPUT ? plan->slots.items[i].node : NOTHING;
    for (uint32_t i = 0; i < plan->steps.count; i++)
        if (!enter_all(verifier, i) || !run_step(verifier, i))
            return false;
    return true;
}

/* Each result is computed where it belongs, or brought there once. */
static bool check_results(const struct verifier *verifier)
{
    const struct kiln__plan *plan = verifier->plan;
    for (uint32_t i = 0; i < plan->fusion.graph.requests.count; i++) {
        uint32_t node = plan->fusion.graph.requests.items[i].node;
        const struct kiln__slot *slot = &plan->slots.items[plan->slot_of[node]];
        bool direct = slot->place == KILN__PLACE_RESULT && slot->binding == i;
        if (slot->bytes && (verifier->deliveries[i] != !direct || !is_there(verifier, node)))
            return WRONG(verifier, "result #%u is %s", i,
                         verifier->deliveries[i] ? "brought more than once" : "never made");
    }
    return true;
}

/* ---- all ---- */

static bool make_room(struct verifier *verifier)
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
           verifier->deliveries;
}

kiln_status kiln__plan_verify(const struct kiln__plan *plan, char text[KILN__WRONG])
{
    struct verifier verifier = {.plan = plan, .text = text};
    bool room = make_room(&verifier);
    bool right = room && check_slots(&verifier) && check_launches(&verifier) &&
                 check_kept(&verifier) && find_uses(&verifier) && run_steps(&verifier) &&
                 check_stores(&verifier) && check_results(&verifier);
    free(verifier.first);
    free(verifier.last);
    free(verifier.holds);
    free(verifier.alive);
    free(verifier.entered);
    free(verifier.makes);
    free(verifier.runs);
    free(verifier.has_run);
    free(verifier.deliveries);
    return !room ? KILN_OUT_OF_HOST_MEMORY : right ? KILN_OK : KILN_WRONG_STATE;
}
