/* SPDX-License-Identifier: Apache-2.0 */
/* The line that describes a group's workload, the key under which tuning records find its
 * parameters. */
#include "lower/workload.h"

#include <stdlib.h>

#include "device/tunables.h"
#include "graph/attention.h"
#include "lower/lower.h"

static void add_sizes(const char *name, size_t count, const size_t *sizes, struct kiln__text *text)
{
    kiln__text_add(text, "%s ", name);
    for (size_t i = 0; i < count; i++)
        kiln__text_add(text, "%s%zu", i ? "x" : "", sizes[i]);
}

/* Whether something is read along another dimension than the last. */
static bool is_turned(const struct kiln__group *group, const struct kiln__space *space)
{
    for (size_t i = 0; i < group->accesses.count; i++) {
        if (group->accesses.items[i].kind != KILN__ACCESS_MEMORY ||
            kiln__space_vector_access(space, i, space->rank - 1) != KILN__STRIDED)
            continue;
        for (uint32_t d = 0; d + 1 < space->rank; d++)
            if (space->stride[i][d] == 1 && space->dims[d] > 1)
                return true;
    }
    return false;
}

/* Accesses that have an element for each that is visited, and not one for each row. */
static unsigned count_operands(const struct kiln__group *group)
{
    unsigned operands = 0;
    for (size_t i = 0; i < group->accesses.count; i++) {
        const struct kiln__access *access = &group->accesses.items[i];
        bool kept = false, reduced = false;
        for (uint32_t d = 0; d < group->shape.rank; d++)
            *(d < group->kept ? &kept : &reduced) |= access->stride[d] != 0;
        operands += access->kind == KILN__ACCESS_MEMORY && kept && reduced;
    }
    return operands;
}

static void add_nest(const struct kiln__group *group, struct kiln__text *text)
{
    struct kiln__space space;
    kiln__space_of(group, &space);
    if (group->kind == KILN__GROUP_MAP) {
        add_sizes(is_turned(group, &space) ? "transpose" : "map", space.rank, space.dims, text);
        return;
    }
    const size_t sizes[] = {space.kept_count, space.reduced_count};
    const char *name = group->kind == KILN__GROUP_REDUCE ? "reduce"
                       : kiln__group_scan(group)         ? "scan"
                                                         : "rows";
    add_sizes(name, 2, sizes, text);
    if (kiln__axis_mapping_is_of_columns(group, &space))
        kiln__text_add(text, " columns");
    unsigned operands = count_operands(group);
    if (operands > 1 && group->kind == KILN__GROUP_ROWS)
        kiln__text_add(text, " of %u", operands);
}

static void add_attention(const struct kiln__plan *plan, const struct kiln__group *group,
                          struct kiln__text *text)
{
    const struct kiln__graph *graph = &plan->fusion.graph;
    const struct kiln__node *node = &graph->nodes.items[group->nodes.items[0]];
    const struct kiln__attention_size size = kiln__attention_size(graph, node);
    const size_t sizes[] = {size.batches, size.m, size.n, size.d, size.e};
    add_sizes("attention", 5, sizes, text);
    if (node->attention.causal)
        kiln__text_add(text, " causal");
    if (node->attention.window)
        kiln__text_add(text, " window %lld", (long long)node->attention.window);
}

static void add_type(const struct kiln__plan *plan, const struct kiln__group *group,
                     struct kiln__text *text)
{
    for (size_t i = 0; i < group->accesses.count; i++) {
        const struct kiln__access *access = &group->accesses.items[i];
        kiln_type type = plan->fusion.graph.nodes.items[access->node].type;
        if (access->kind != KILN__ACCESS_MEMORY)
            continue;
        if (type != KILN_F32)
            kiln__text_add(text, " %s", kiln_type_name(type));
        return;
    }
}

void kiln__plan_work(const struct kiln__plan *plan, uint32_t index, struct kiln__text *text)
{
    const struct kiln__group *group = &plan->fusion.groups.items[index];
    switch (group->kind) {
    case KILN__GROUP_MAP:
    case KILN__GROUP_REDUCE:
    case KILN__GROUP_ROWS: add_nest(group, text); break;
    case KILN__GROUP_MATMUL: kiln__matmul_work(plan, index, text); break;
    case KILN__GROUP_ATTENTION: add_attention(plan, group, text); break;
    default: add_sizes(kiln__group_name(group), group->shape.rank, group->shape.dims, text); break;
    }
    add_type(plan, group, text);
}

void kiln__plan_tune(struct kiln__plan *plan, uint32_t group)
{
    struct kiln__text work = {0};
    struct kiln__tuned_device tuned = {.device = *plan->options.device};
    if (!plan->options.tuning || !plan->options.tuning->works.count)
        return;
    if (!plan->tuned)
        plan->tuned = calloc(plan->fusion.groups.count, sizeof *plan->tuned);
    if (plan->tuned && !plan->tuned[group])
        plan->tuned[group] = malloc(sizeof tuned);
    kiln__plan_work(plan, group, &work);
    tuned.traits = *tuned.device.traits;
    if (work.data)
        kiln__tuning_apply(plan->options.tuning, &tuned.device, work.data,
                           plan->fusion.graph.batch_invariant, &tuned.traits);
    kiln__text_free(&work);
    if (plan->tuned && plan->tuned[group]) {
        *plan->tuned[group] = tuned;
        plan->tuned[group]->device.traits = &plan->tuned[group]->traits;
    } else
        plan->failed = true;
}
