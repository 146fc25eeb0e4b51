/* SPDX-License-Identifier: Apache-2.0 */
/* What a graph asks for, computed by its groups alone and by its plans, and compared with the
 * reference. */
#include "interpret.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "interpret_groups.h"
#include "interpret_plan.h"
#include "reference/bounds.h"
#include "session/compile.h"
#include "session/context.h"

/* ---- a fusion ---- */

static bool is_stored_by(const struct kiln__group *group, uint32_t node)
{
    bool stored = false;
    for (size_t i = 0; i < group->stores.count; i++)
        stored = stored || group->stores.items[i].node == node;
    return stored;
}

/* What is put over the content of a buffer that a plan computes it in, which no group copies. */
static void bring_base(struct machine *machine, uint32_t index)
{
    const struct kiln__fusion *fusion = machine->fusion;
    const struct kiln__node *nodes = fusion->graph.nodes.items;
    uint32_t base = kiln__node_base(&nodes[index]), group = fusion->group_of[index];
    if (base == UINT32_MAX || group == KILN__NO_GROUP || fusion->donated_to[base] == index ||
        is_stored_by(&fusion->groups.items[fusion->groups.items[group].base_group], index))
        return;
    while (nodes[base].kind == KILN__RESHAPE)
        base = nodes[base].input[0];
    cr_assert_eq(nodes[base].kind, KILN__IMPORT);
    for (size_t i = 0; i < machine->memory[index].count; i++)
        machine->memory[index].cells[i] = machine->memory[base].cells[i];
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
                interpret_keep(heap, interpret_input(node, inputs[node->binding])), 1, count, NULL};
        else if (fusion->stored[i])
            machine->memory[i] =
                (struct memory){interpret_keep(heap, interpret_room(count)), 1, count, NULL};
    }
    for (uint32_t i = 0; i < graph->nodes.count; i++)
        bring_base(machine, i);
    for (size_t g = 0; g < fusion->groups.count; g++)
        interpret_group(machine, g);
    double **results = interpret_results(graph, heap);
    for (size_t i = 0; i < graph->requests.count; i++) {
        uint32_t node = graph->requests.items[i].node;
        for (size_t e = 0; e < kiln__node_count(&graph->nodes.items[node]); e++)
            results[i][e] = interpret_fetch(machine, node, (int64_t)e);
    }
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
        double **results = plan ? interpret_plan(&machine, plan, inputs, &heap)
                                : run_fusion(&machine, inputs, &heap);
        compare(&machine, expected, results);
        right = !machine.wrong[0];
        if (!right)
            show(&machine, expected->graph, stage);
        counts.runs++;
        free(results);
        interpret_free_heap(&heap);
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
