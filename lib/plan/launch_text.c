/* SPDX-License-Identifier: Apache-2.0 */
/* Launches in words and figures, for people: errors, traces, explanations. */
#include "plan/launch_text.h"

#include <string.h>

#include "graph/attention.h"
#include "graph/attention_backward.h"

/* Operations of a kernel that a sentence names. */
#define MOST_NAMED 16

static const struct kiln__group *group_of(const struct kiln__plan *plan, uint32_t launch)
{
    return &plan->fusion.groups.items[kiln__plan_launch_at(plan, launch)->group];
}

static void add_words(const struct kiln__plan *plan, const struct kiln__group *group,
                      struct kiln__text *text)
{
    for (size_t i = 0; i < group->nodes.count && i < MOST_NAMED; i++)
        kiln__text_add(text, "%s%s", i ? ", " : "",
                       kiln__node_name(&plan->fusion.graph.nodes.items[group->nodes.items[i]]));
    if (group->nodes.count > MOST_NAMED)
        kiln__text_add(text, " and %zu more", group->nodes.count - MOST_NAMED);
}

void kiln__launch_operation_names(const struct kiln__plan *plan, uint32_t launch,
                                  struct kiln__text *text)
{
    for (size_t k = 0; k < kiln__plan_phases(plan, launch); k++) {
        kiln__text_add(text, "%s", k ? "; " : "");
        add_words(plan, group_of(plan, kiln__plan_phase(plan, launch, k)), text);
    }
}

void kiln__launch_title(const struct kiln__plan *plan, uint32_t launch, struct kiln__text *text)
{
    kiln__text_add(text, "kernel %u (%s%s", launch, kiln__plan_launch_at(plan, launch)->kernel,
                   group_of(plan, launch)->nodes.count ? ": " : "");
    kiln__launch_operation_names(plan, launch, text);
    kiln__text_add(text, ")");
}

static void add_value(const struct kiln__plan *plan, uint32_t index, const char *before,
                      struct kiln__text *text)
{
    const struct kiln__node *node = &plan->fusion.graph.nodes.items[index];
    kiln__text_add(text, "%s%s%s", before, kiln_type_name(node->type),
                   kiln__shape_text(&node->shape).text);
}

static void add_shapes(const struct kiln__plan *plan, const struct kiln__group *group,
                       const char *before, struct kiln__text *text)
{
    for (size_t i = 0; i < group->accesses.count; i++) {
        bool again = group->accesses.items[i].kind == KILN__ACCESS_NUMBER;
        for (size_t k = 0; k < i; k++)
            again = again || group->accesses.items[k].node == group->accesses.items[i].node;
        if (again)
            continue;
        add_value(plan, group->accesses.items[i].node, before, text);
        before = " ";
    }
    for (size_t i = 0; i < group->stores.count; i++)
        add_value(plan, group->stores.items[i].node, i ? " " : " -> ", text);
}

void kiln__launch_shapes(const struct kiln__plan *plan, uint32_t launch, struct kiln__text *text)
{
    for (size_t k = 0; k < kiln__plan_phases(plan, launch); k++)
        add_shapes(plan, group_of(plan, kiln__plan_phase(plan, launch, k)), k ? "; " : "", text);
}

/* ---- how much ---- */

/* Of a kernel that takes all steps: products of each sequence's states with weights. */
static uint64_t operations_of_steps(const struct kiln__graph *graph, const struct kiln__node *node)
{
    const struct kiln__custom_call *call = &node->custom.call->call;
    const struct kiln__shape *y = &call->outputs[0].shape;
    uint64_t operations = 0;
    for (unsigned k = 0; node->custom.output == 0 && k < node->n_inputs; k++)
        if (call->weights >> k & 1)
            operations +=
                2 * kiln__node_count(&graph->nodes.items[node->input[k]]) * y->dims[0] * y->dims[2];
    return operations;
}

static uint64_t operations_of(const struct kiln__graph *graph, const struct kiln__node *node)
{
    const struct kiln__node *nodes = graph->nodes.items;
    uint64_t count = kiln__node_count(node);
    switch (node->kind) {
    case KILN__ELEMENTWISE: return count * kiln__elementwise_rows[node->op].cost;
    case KILN__REDUCE:
    case KILN__SCAN: return kiln__node_count(&nodes[node->input[0]]);
    case KILN__SCATTER: return kiln__node_count(&nodes[node->input[KILN__SCATTER_VALUES]]);
    case KILN__MATMUL: {
        const struct kiln__shape *a = &nodes[node->input[0]].shape;
        return 2 * count * a->dims[a->rank - 1];
    }
    case KILN__ATTENTION: {
        struct kiln__attention_size size = kiln__attention_size(graph, node);
        return 2 * (uint64_t)size.batches * size.m * size.n * (size.d + size.e);
    }
    case KILN__ATTENTION_BACKWARD: {
        static const unsigned products[] = {1, 2, 3, 3}; /* of a row with a row, by form */
        struct kiln__attention_size size = kiln__attention_backward_size(graph, node);
        uint64_t each = size.d + (products[node->attention.backward_result] - 1) * size.e;
        return 2 * (uint64_t)size.batches * size.m * size.n * each;
    }
    case KILN__CUSTOM: return operations_of_steps(graph, node);
    default: return 0;
    }
}

static bool ends_in(const char *name, const char *end)
{
    size_t length = strlen(name), tail = strlen(end);
    return length >= tail && !strcmp(name + length - tail, end);
}

/* Of the launches of one group, whether this one only makes ready what another computes from, or
 * puts together what others have computed. */
static bool is_auxiliary(const struct kiln__launch *launch)
{
    return launch->variant.stage == KILN__STAGE_FINAL ||
           launch->variant.stage == KILN__STAGE_BEHIND ||
           (kiln__launch_is_by(launch, KILN__KERNEL_PRODUCT) &&
            (ends_in(launch->kernel, "_pack_b") || ends_in(launch->kernel, "_pack") ||
             ends_in(launch->kernel, "_sum")));
}

static uint64_t operations_in(const struct kiln__plan *plan, const struct kiln__group *group)
{
    uint64_t operations = 0;
    for (size_t i = 0; i < group->nodes.count; i++)
        operations += operations_of(&plan->fusion.graph,
                                    &plan->fusion.graph.nodes.items[group->nodes.items[i]]);
    return operations;
}

uint64_t kiln__launch_operations(const struct kiln__plan *plan, uint32_t launch)
{
    uint64_t operations = 0;
    for (size_t k = 0; k < kiln__plan_phases(plan, launch); k++) {
        const uint32_t part = kiln__plan_phase(plan, launch, k);
        if (!is_auxiliary(&plan->launches.items[part]))
            operations += operations_in(plan, group_of(plan, part));
    }
    return operations;
}
