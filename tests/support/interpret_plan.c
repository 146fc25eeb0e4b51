/* SPDX-License-Identifier: Apache-2.0 */
/* Interpreter of plans on the host: slots as arrays, steps in any order that dependencies allow. */
#include "interpret_plan.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "interpret_groups.h"

/* Working memory of a launch holds nothing of anyone else's. */
static void spoil_scratch(const struct kiln__plan *plan, const struct kiln__launch *launch,
                          double *arena)
{
    for (size_t k = 0; k < launch->arguments.count; k++) {
        const struct kiln__argument *argument = &launch->arguments.items[k];
        if (argument->kind != KILN__ARGUMENT_MEMORY)
            continue;
        const struct kiln__slot *slot = &plan->slots.items[argument->slot];
        bool scratch = slot->node == KILN__SCRATCH && slot->storage == KILN__STORAGE_ARENA;
        for (size_t i = 0; scratch && i < slot->bytes; i++)
            arena[slot->offset + i] = NAN;
    }
}

/* Whether the launch has a node's memory for an argument, under whatever slot: of the arena by that
 * of the node alone, since others may have the memory before and after it. */
static bool names(const struct machine *machine, const struct kiln__plan *plan,
                  const struct kiln__launch *launch, uint32_t node)
{
    const struct memory *memory = &machine->memory[node];
    for (uint32_t i = 0; i < plan->slots.count; i++)
        if (plan->slots.items[i].node != KILN__SCRATCH &&
            (plan->slots.items[i].storage != KILN__STORAGE_ARENA || i == plan->slot_of[node]) &&
            machine->memory[plan->slots.items[i].node].cells == memory->cells &&
            kiln__launch_names(launch, i))
            return true;
    return false;
}

/* What a launch reads is what others of its group have read there. */
static void look(struct machine *machine, const struct kiln__plan *plan,
                 const struct kiln__launch *launch, struct pending *pending)
{
    const struct kiln__group *group = &machine->fusion->groups.items[launch->group];
    for (size_t i = 0; i < group->accesses.count; i++) {
        const struct memory *memory = &machine->memory[group->accesses.items[i].node];
        size_t cells = memory->count * memory->step;
        double **seen = &pending->seen[i];
        if (!memory->cells || !names(machine, plan, launch, group->accesses.items[i].node))
            continue;
        if (*seen && memcmp(*seen, memory->cells, cells * sizeof **seen))
            interpret_complain(machine, "group %u: its launches do not read the same",
                               launch->group);
        *seen = *seen ? *seen : interpret_room(cells);
        memcpy(*seen, memory->cells, cells * sizeof **seen);
    }
}

/* The group computes with what its launches have read, each what it names. */
static void run_seen(struct machine *machine, uint32_t number, struct pending *pending)
{
    const struct kiln__group *group = &machine->fusion->groups.items[number];
    for (size_t i = 0; i < group->accesses.count; i++)
        machine->memory[group->accesses.items[i].node].seen = pending->seen[i];
    machine->pending = pending;
    interpret_group(machine, number);
    machine->pending = NULL;
    for (size_t i = 0; i < group->accesses.count; i++) {
        machine->memory[group->accesses.items[i].node].seen = NULL;
        free(pending->seen[i]);
        pending->seen[i] = NULL;
    }
    interpret_commit_all(pending);
}

/* What the launch's group does on the way is done where it reads what that is made from. */
static void run_covered(struct machine *machine, const struct kiln__plan *plan,
                        const struct kiln__launch *launch)
{
    if (!launch->covers)
        return;
    const struct kiln__group *group = &machine->fusion->groups.items[launch->covers - 1];
    if (kiln__launch_names(launch, plan->slot_of[group->accesses.items[0].node]))
        interpret_group(machine, launch->covers - 1);
}

/* Of several launches of a group each may read what it names, and the last one stores; where there
 * is one alone it stores as it goes. */
static void run_launch(struct machine *machine, const struct kiln__plan *plan,
                       const struct kiln__launch *launch, struct pending *pending, double *arena)
{
    bool alone = pending->launches == 1 && !pending->begun;
    pending->begun = true;
    pending->launches--;
    spoil_scratch(plan, launch, arena);
    run_covered(machine, plan, launch);
    if (!alone)
        look(machine, plan, launch, pending);
    if (alone)
        interpret_group(machine, launch->group);
    else if (!pending->launches)
        run_seen(machine, launch->group, pending);
}

static void run_step(struct machine *machine, const struct kiln__plan *plan, size_t number,
                     struct pending *pending, double *arena, double **inputs, double **results)
{
    const struct kiln__plan_step *step = &plan->steps.items[number];
    if (step->kind == KILN__STEP_LAUNCH) {
        const struct kiln__launch *launch = &plan->launches.items[step->launch];
        run_launch(machine, plan, launch, &pending[launch->group], arena);
        return;
    }
    uint32_t node = plan->slots.items[step->slot].node;
    size_t count = kiln__node_count(interpret_node(machine, node));
    for (size_t i = 0; i < count; i++)
        if (step->kind == KILN__STEP_UPLOAD)
            interpret_put(machine, node, (int64_t)i, inputs[step->binding][i]);
        else
            results[step->binding][i] = interpret_fetch(machine, node, (int64_t)i);
}

static struct memory memory_of(const struct machine *machine, const struct kiln__slot *slot,
                               uint32_t node, double *arena, double **inputs, double **results,
                               struct heap *heap)
{
    const struct kiln__node *value = interpret_node(machine, node);
    struct memory memory = {.step = 1, .count = kiln__node_count(value)};
    if (slot->storage == KILN__STORAGE_ARENA && slot->first > slot->last) {
        memory.cells = interpret_keep(heap, interpret_room(memory.count)); /* made on the way */
    } else if (slot->storage == KILN__STORAGE_ARENA) {
        memory.cells = arena + slot->offset;
        memory.step = kiln_type_size((kiln_type)value->type);
    } else {
        memory.cells =
            slot->storage == KILN__STORAGE_INPUT ? inputs[slot->binding] : results[slot->binding];
    }
    return memory;
}

/* By their binding; NULL for those that the passes dropped. */
static double **load_inputs(const struct kiln__graph *graph, const void *const *given,
                            struct heap *heap)
{
    uint64_t count = 0;
    for (size_t i = 0; i < graph->nodes.count; i++)
        if (kiln__node_is_input(&graph->nodes.items[i]) && graph->nodes.items[i].binding >= count)
            count = graph->nodes.items[i].binding + 1;
    for (size_t i = 0; i < graph->requests.count; i++)
        if (graph->requests.items[i].replaces > count)
            count = graph->requests.items[i].replaces;
    double **inputs = calloc(count + 1, sizeof *inputs);
    cr_assert(inputs);
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct kiln__node *node = &graph->nodes.items[i];
        if (kiln__node_is_input(node))
            inputs[node->binding] =
                interpret_keep(heap, interpret_input(node, given[node->binding]));
    }
    return inputs;
}

static unsigned any(unsigned below)
{
    static unsigned seed = 12345;
    seed = seed * 1664525u + 1013904223u;
    return (unsigned)((uint64_t)seed * below >> 32);
}

/* Steps as they depend on each other, else in any order: of those that can be next, any. */
static void shuffle(const struct kiln__plan *plan, uint32_t *order)
{
    size_t count = plan->steps.count, ready = 0;
    uint32_t *missing = calloc(count + 1, sizeof *missing);
    cr_assert(missing);
    for (uint32_t i = 0; i < count; i++) {
        missing[i] = plan->steps.items[i].dependencies;
        if (!missing[i])
            order[ready++] = i;
    }
    for (size_t at = 0; at < count; at++) {
        cr_assert_lt(at, ready, "steps depend on each other in a circle");
        size_t other = at + any((unsigned)(ready - at));
        uint32_t next = order[other];
        order[other] = order[at];
        order[at] = next;
        for (uint32_t i = next + 1; i < count; i++) {
            const struct kiln__plan_step *step = &plan->steps.items[i];
            for (uint32_t k = 0; k < step->dependencies; k++)
                if (plan->dependencies.items[step->first_dependency + k] == next && !--missing[i])
                    order[ready++] = i;
        }
    }
    free(missing);
}

/* Steps one after the other; where elements are visited backwards, in an order of their own. */
static void run_steps(struct machine *machine, const struct kiln__plan *plan, double *arena,
                      double **inputs, double **results)
{
    uint32_t *order = calloc(plan->steps.count + 1, sizeof *order);
    struct pending *pending = calloc(plan->fusion.groups.count + 1, sizeof *pending);
    cr_assert(order && pending);
    for (uint32_t i = 0; i < plan->steps.count; i++)
        order[i] = i;
    for (size_t i = 0; i < plan->launches.count; i++)
        pending[plan->launches.items[i].group].launches++;
    if (machine->backwards)
        shuffle(plan, order);
    for (size_t i = 0; i < plan->steps.count; i++)
        run_step(machine, plan, order[i], pending, arena, inputs, results);
    free(order);
    free(pending);
}

/* A result that is computed in the buffer of an import is its memory. */
double **interpret_plan(struct machine *machine, const struct kiln__plan *plan,
                        const void *const *given, struct heap *heap)
{
    const struct kiln__graph *graph = &plan->fusion.graph;
    double *arena = interpret_keep(heap, interpret_room(plan->arena_bytes)),
           **results = interpret_results(graph, heap);
    double **inputs = load_inputs(graph, given, heap);
    for (size_t i = 0; i < plan->slots.count; i++) {
        const struct kiln__slot *slot = &plan->slots.items[i];
        const struct kiln__request *request = &graph->requests.items[slot->binding];
        if (slot->storage == KILN__STORAGE_RESULT && slot->in_place &&
            inputs[request->replaces - 1])
            results[slot->binding] = inputs[request->replaces - 1];
    }
    for (uint32_t i = 0; i < graph->nodes.count; i++)
        if (plan->slot_of[i] != KILN__NO_SLOT)
            machine->memory[i] = memory_of(machine, &plan->slots.items[plan->slot_of[i]], i, arena,
                                           inputs, results, heap);
    run_steps(machine, plan, arena, inputs, results);
    free(inputs);
    return results;
}
