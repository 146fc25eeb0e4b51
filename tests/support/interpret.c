/* SPDX-License-Identifier: Apache-2.0 */
/* Interpreter of plans on the host: slots as arrays, steps in any order that dependencies allow. */
#include "interpret.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "interpret_groups.h"
#include "reference/bounds.h"
#include "session/compile.h"
#include "session/context.h"

/* ---- a fusion ---- */

static double *load_input(const struct kiln__node *node, const void *data)
{
    size_t count = kiln__node_count(node), bytes = kiln_type_size((kiln_type)node->type);
    double *values = interpret_room(count);
    for (size_t i = 0; i < count; i++)
        values[i] = kiln__value_load(node->type, (const char *)data + i * bytes);
    return values;
}

/* What was made along the way. */
struct heap {
    KILN__VECTOR(double *) blocks;
};

static double *keep(struct heap *heap, double *values)
{
    double **place = kiln__vector_push(&heap->blocks);
    cr_assert(place);
    return *place = values;
}

static void free_heap(struct heap *heap)
{
    for (size_t i = 0; i < heap->blocks.count; i++)
        free(heap->blocks.items[i]);
    kiln__vector_free(&heap->blocks);
}

/* Of each request a place for its elements. */
static double **make_results(const struct kiln__graph *graph, struct heap *heap)
{
    double **results = calloc(graph->requests.count + 1, sizeof *results);
    cr_assert(results);
    for (size_t i = 0; i < graph->requests.count; i++)
        results[i] = keep(heap, interpret_room(kiln__node_count(
                                    &graph->nodes.items[graph->requests.items[i].node])));
    return results;
}

/* Groups in their order, a memory for each value but those that a later one takes over. */
static double **run_fusion(struct machine *machine, const void *const *inputs, struct heap *heap)
{
    const struct kiln__fusion *fusion = machine->fusion;
    const struct kiln__graph *graph = &fusion->graph;
    for (size_t i = graph->nodes.count; i-- > 0;) {
        const struct kiln__node *node = &graph->nodes.items[i];
        size_t count = kiln__node_count(node);
        if (fusion->donated_to[i] != KILN__NO_DONATION)
            machine->memory[i] = machine->memory[fusion->donated_to[i]];
        else if (kiln__node_is_input(node))
            machine->memory[i] = (struct memory){
                keep(heap, load_input(node, inputs[node->binding])), 1, count, NULL};
        else if (fusion->stored[i])
            machine->memory[i] = (struct memory){keep(heap, interpret_room(count)), 1, count, NULL};
    }
    for (size_t g = 0; g < fusion->groups.count; g++)
        interpret_group(machine, g);
    double **results = make_results(graph, heap);
    for (size_t i = 0; i < graph->requests.count; i++) {
        uint32_t node = graph->requests.items[i].node;
        for (size_t e = 0; e < kiln__node_count(&graph->nodes.items[node]); e++)
            results[i][e] = interpret_fetch(machine, node, (int64_t)e);
    }
    return results;
}

/* ---- a plan ---- */

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
        memory.cells = keep(heap, interpret_room(memory.count)); /* made on the way */
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
            inputs[node->binding] = keep(heap, load_input(node, given[node->binding]));
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
static double **run_plan(struct machine *machine, const struct kiln__plan *plan,
                         const void *const *given, struct heap *heap)
{
    const struct kiln__graph *graph = &plan->fusion.graph;
    double *arena = keep(heap, interpret_room(plan->arena_bytes)),
           **results = make_results(graph, heap);
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

/* ---- comparing ---- */

struct expectation {
    const struct kiln__graph *graph; /* as recorded */
    struct kiln__reference reference;
    struct kiln__bounds bounds;
};

static struct interpret_counts counts;

/* Folded constants are rounded to f32, as on a device: beyond that nothing differs. */
static bool is_close(kiln_type type, double wanted, double error, double found)
{
    return kiln__bounds_allow(type, wanted, error, found) ||
           (kiln__type_row(type)->floating && fabs(found - wanted) <= 1e-9 * fabs(wanted));
}

static void compare(struct machine *machine, const struct expectation *expected, double **results)
{
    const struct kiln__graph *graph = expected->graph;
    for (size_t i = 0; i < graph->requests.count; i++) {
        uint32_t node = graph->requests.items[i].node;
        for (size_t e = 0; e < kiln__node_count(&graph->nodes.items[node]); e++) {
            double wanted = expected->reference.values[node][e], found = results[i][e];
            if (!is_close(graph->nodes.items[node].type, wanted, expected->bounds.errors[node][e],
                          found))
                interpret_complain(machine, "result %zu, %%%u %s, element %zu: %.9g is not %.9g", i,
                                   node, kiln__node_name(&graph->nodes.items[node]), e, found,
                                   wanted);
        }
    }
}

static void show(const struct machine *machine, const struct kiln__graph *graph, const char *stage)
{
    struct kiln__text text = {0};
    kiln__graph_dump(graph, &text);
    for (size_t g = 0; g < machine->fusion->groups.count; g++) {
        kiln__text_add(&text, "group %zu: ", g);
        kiln__group_dump(&machine->fusion->groups.items[g], &text);
    }
    cr_log_warn("%s: %s\n%s", stage, machine->wrong, text.length < 12000 ? text.data : "");
    kiln__text_free(&text);
}

static bool run_both_ways(const struct expectation *expected, const struct kiln__fusion *fusion,
                          const struct kiln__plan *plan, const void *const *inputs,
                          const char *stage)
{
    bool right = true;
    for (int backwards = 0; backwards < 2 && right; backwards++) {
        struct heap heap = {0};
        struct machine machine = {.fusion = fusion, .backwards = backwards};
        machine.memory = calloc(fusion->graph.nodes.count + 1, sizeof *machine.memory);
        cr_assert(machine.memory);
        double **results =
            plan ? run_plan(&machine, plan, inputs, &heap) : run_fusion(&machine, inputs, &heap);
        compare(&machine, expected, results);
        right = !machine.wrong[0];
        if (!right)
            show(&machine, expected->graph, stage);
        counts.runs++;
        free(results);
        free_heap(&heap);
        free(machine.memory);
    }
    return right;
}

static bool check_plan(const struct expectation *expected, const void *const *inputs,
                       const struct kiln__device *device, bool shared)
{
    struct kiln__plan_options options = {.device = device, .shared = shared};
    struct kiln__plan plan;
    if (kiln__compile_plan(expected->graph, &options, NULL, &plan, NULL)) {
        struct kiln__text text = {0};
        kiln__graph_dump(expected->graph, &text);
        cr_log_warn("%s\n%s", kiln_last_error(), text.length < 12000 ? text.data : "");
        kiln__text_free(&text);
        return false;
    }
    bool right = shared || run_both_ways(expected, &plan.fusion, NULL, inputs, "the groups");
    right = right && run_both_ways(expected, &plan.fusion, &plan, inputs,
                                   shared ? "the plan with shared memory" : "the plan");
    kiln__plan_free(&plan);
    return right;
}

bool interpret_graph(const struct kiln__graph *graph, const void *const *inputs,
                     const struct kiln__device *device)
{
    struct expectation expected = {.graph = graph};
    cr_assert(kiln__reference_run(graph, inputs, &expected.reference));
    cr_assert(kiln__bounds_make(graph, &expected.reference, 0, &expected.bounds));
    bool right =
        check_plan(&expected, inputs, device, false) && check_plan(&expected, inputs, device, true);
    counts.graphs++;
    kiln__bounds_free(&expected.bounds);
    kiln__reference_free(&expected.reference);
    return right;
}

static bool interpret_uploads(const kiln_batch *batch, const struct kiln__graph *graph)
{
    size_t count = batch->bindings.inputs.count;
    const void **inputs = calloc(count + 1, sizeof *inputs);
    cr_assert(inputs);
    cr_assert_eq(kiln_batch_status(batch), KILN_OK, "%s", kiln_batch_error(batch));
    for (size_t i = 0; i < count; i++)
        inputs[i] = batch->bindings.inputs.items[i].host;
    bool right = interpret_graph(graph, inputs, &batch->context->runtime.device);
    free(inputs);
    return right;
}

bool interpret_batch(const kiln_batch *batch)
{
    return interpret_uploads(batch, &batch->graph);
}

/* Have `request` replace an input that is like it. */
static bool replace_input(struct kiln__graph *graph, struct kiln__request *request)
{
    const struct kiln__node *made = &graph->nodes.items[request->node];
    for (size_t i = 0; i < graph->nodes.count && !kiln__node_is_input(made); i++) {
        struct kiln__node *node = &graph->nodes.items[i];
        if (node->kind != KILN__UPLOAD || node->type != made->type ||
            !kiln__shape_equal(&node->shape, &made->shape))
            continue;
        node->kind = KILN__IMPORT;
        request->kind = KILN__EXPORT;
        request->replaces = 1 + (uint32_t)node->binding;
        return true;
    }
    return false;
}

bool interpret_taken_over(const kiln_batch *batch)
{
    struct kiln__graph graph;
    bool right = true, replaced = false;
    cr_assert(kiln__graph_copy(&batch->graph, &graph));
    for (size_t i = 0; i < graph.requests.count; i++)
        replaced |= replace_input(&graph, &graph.requests.items[i]);
    if (replaced)
        right = interpret_uploads(batch, &graph);
    kiln__graph_free(&graph);
    return right;
}

struct interpret_counts interpret_counts(void)
{
    return counts;
}
