/* SPDX-License-Identifier: Apache-2.0 */
/* The table of group kinds: name, shape of the iteration domain, and what may be fused into each.
 * */
#include "fuse/group_kinds.h"

const struct kiln__group_traits kiln__group_traits[KILN__GROUP_KINDS] = {
    [KILN__GROUP_MAP] = {.name = "map",
                         .begin = kiln__group_begin_map,
                         .joins = {kiln__fuse_join_results, kiln__fuse_join_rows}},
    [KILN__GROUP_REDUCE] = {.name = "reduce",
                            .reduces = true,
                            .root = KILN__REDUCE,
                            .begin = kiln__group_begin_reduce,
                            .result = KILN__BECAUSE_REDUCTION,
                            .joins = {kiln__fuse_join_results, kiln__fuse_join_rows},
                            .check = kiln__group_check_reduce},
    /* A scan begins one; a map or a reduction becomes one when a root joins it. */
    [KILN__GROUP_ROWS] = {.name = "rows",
                          .reduces = true,
                          .phased = true,
                          .root = KILN__SCAN,
                          .begin = kiln__group_begin_scan,
                          .result = KILN__BECAUSE_SCAN,
                          .joins = {kiln__fuse_join_rows},
                          .check = kiln__group_check_rows},
    [KILN__GROUP_MATMUL] = {.name = "matmul",
                            .operands = KILN__OPERANDS,
                            .root = KILN__MATMUL,
                            .begin = kiln__group_begin_product,
                            .suits = kiln__layout_suits_matmul,
                            .result = KILN__BECAUSE_PRODUCT,
                            .operand = KILN__BECAUSE_OPERAND,
                            .joins = {kiln__fuse_join_results},
                            .check = kiln__group_check_product},
    [KILN__GROUP_ATTENTION] = {.name = "attention",
                               .operands = KILN__MOST_INPUTS,
                               .root = KILN__ATTENTION,
                               .begin = kiln__group_begin_whole,
                               .result = KILN__BECAUSE_ATTENTION,
                               .operand = KILN__BECAUSE_ATTENTION,
                               .check = kiln__group_check_whole},
    [KILN__GROUP_ATTENTION_BACKWARD] = {.name = "attention_backward",
                                        .operands = KILN__MOST_INPUTS,
                                        .root = KILN__ATTENTION_BACKWARD,
                                        .begin = kiln__group_begin_whole,
                                        .suits = kiln__layout_has_rows,
                                        .result = KILN__BECAUSE_ATTENTION,
                                        .operand = KILN__BECAUSE_ATTENTION,
                                        .check = kiln__group_check_whole},
    [KILN__GROUP_SCATTER] = {.name = "scatter",
                             .operands = KILN__SCATTER_BASE,
                             .root = KILN__SCATTER,
                             .begin = kiln__group_begin_whole,
                             .suits = kiln__layout_is_dense,
                             .result = KILN__BECAUSE_SCATTERED,
                             .operand = KILN__BECAUSE_SCATTERED,
                             .check = kiln__group_check_whole},
    [KILN__GROUP_SORT] = {.name = "sort",
                          .operands = 1,
                          .root = KILN__SORT,
                          .begin = kiln__group_begin_whole,
                          .suits = kiln__layout_is_dense,
                          .result = KILN__BECAUSE_SORTED,
                          .operand = KILN__BECAUSE_SORTED,
                          .check = kiln__group_check_whole},
    [KILN__GROUP_CUSTOM] = {.name = "custom",
                            .operands = KILN__MOST_INPUTS,
                            .root = KILN__CUSTOM,
                            .begin = kiln__group_begin_whole,
                            .result = KILN__BECAUSE_CUSTOM,
                            .operand = KILN__BECAUSE_CUSTOM,
                            .check = kiln__group_check_whole},
};

static const struct kiln__group_traits *traits_of(const struct kiln__group *group)
{
    return &kiln__group_traits[group->kind];
}

enum kiln__group_kind kiln__group_kind_of(const struct kiln__node *root)
{
    enum kiln__group_kind kind = KILN__GROUP_KINDS - 1;
    if (kiln__node_puts_part(root))
        return KILN__GROUP_MAP;
    while (kind > KILN__GROUP_MAP && kiln__group_traits[kind].root != root->kind)
        kind--;
    return kind;
}

const char *kiln__group_name(const struct kiln__group *group)
{
    return traits_of(group)->name;
}

bool kiln__group_is_of_steps(const struct kiln__group *group)
{
    return traits_of(group)->joins[0];
}

bool kiln__group_reduces(const struct kiln__group *group)
{
    return traits_of(group)->reduces;
}

void kiln__group_order(const struct kiln__group *group, uint32_t at[KILN_MAX_RANK])
{
    uint32_t next[2] = {0, group->kept};
    for (uint32_t d = 0; d < group->shape.rank; d++)
        at[d] = next[group->axes >> d & 1]++;
}

struct kiln__shape kiln__group_visited(const struct kiln__group *group)
{
    struct kiln__shape shape = {.rank = group->shape.rank};
    uint32_t at[KILN_MAX_RANK];
    kiln__group_order(group, at);
    for (uint32_t d = 0; d < shape.rank; d++)
        shape.dims[d] = group->shape.dims[at[d]];
    return shape;
}

bool kiln__group_is_of_columns(const struct kiln__group *group)
{
    const struct kiln__shape shape = kiln__group_visited(group);
    uint32_t d = shape.rank;
    while (d > 0 && shape.dims[d - 1] == 1)
        d--;
    return kiln__group_reduces(group) && d > 0 && !(group->axes >> (d - 1) & 1);
}

bool kiln__group_reads_once(const struct kiln__group *group)
{
    return kiln__group_is_of_steps(group) && !traits_of(group)->phased;
}

const struct kiln__step *kiln__group_scan(const struct kiln__group *group)
{
    for (size_t i = 0; i < group->steps.count; i++)
        if (group->steps.items[i].kind == KILN__STEP_SCANNED)
            return &group->steps.items[i];
    return NULL;
}

unsigned kiln__group_total(const struct kiln__group *group)
{
    const struct kiln__step *scan = kiln__group_scan(group);
    return scan ? (unsigned)(scan - group->steps.items) : group->reduced_step;
}

unsigned kiln__group_operands(const struct kiln__group *group, const struct kiln__node *began)
{
    unsigned operands = traits_of(group)->operands;
    return operands < began->n_inputs ? operands : began->n_inputs;
}

bool kiln__group_has_epilogue(const struct kiln__group *group)
{
    return group->kind == KILN__GROUP_MATMUL && group->steps.count > group->reduced_step + 1u;
}

/* Accesses of the first steps: each is loaded by one. */
static uint16_t count_loads(const struct kiln__group *group, size_t end)
{
    uint16_t count = 0;
    for (size_t i = 0; i < end && i < group->steps.count; i++)
        count += group->steps.items[i].kind == KILN__STEP_LOAD;
    return count;
}

/* A load for each access, and perhaps a conversion behind it. */
static struct kiln__operand whole_operand(const struct kiln__group *group, unsigned k)
{
    struct kiln__operand operand = {.access = (uint16_t)k, .end = (uint16_t)(k + 1)};
    while (count_loads(group, operand.first + 1u) <= k)
        operand.first++;
    size_t next = operand.first + 1u;
    bool converts = next < group->steps.count && group->steps.items[next].n_args;
    operand.value = (uint16_t)(converts ? next : operand.first);
    return operand;
}

struct kiln__operand kiln__group_operand(const struct kiln__group *group, unsigned k)
{
    const struct kiln__step *product = &group->steps.items[group->reduced_step];
    if (product->kind != KILN__STEP_PRODUCT)
        return whole_operand(group, k);
    struct kiln__operand operand = {.value = product->args[k]};
    operand.first = k ? (uint16_t)(product->args[0] + 1) : 0;
    operand.access = count_loads(group, operand.first);
    operand.end = count_loads(group, operand.value + 1u);
    return operand;
}

size_t kiln__group_operand_accesses(const struct kiln__group *group)
{
    return count_loads(group, group->reduced_step);
}

const struct kiln__node *kiln__group_root(const struct kiln__graph *graph,
                                          const struct kiln__group *group)
{
    const enum kiln__kind root = traits_of(group)->root;
    for (size_t i = 0; root && i < group->nodes.count; i++) {
        const struct kiln__node *node = &graph->nodes.items[group->nodes.items[i]];
        if (node->kind == root)
            return node;
    }
    return NULL;
}

const struct kiln__shape *kiln__group_access_shape(const struct kiln__graph *graph,
                                                   const struct kiln__group *group, size_t access)
{
    const struct kiln__node *node = kiln__group_root(graph, group);
    size_t input = access;
    if (group->kind == KILN__GROUP_MATMUL)
        input = access >= kiln__group_operand_accesses(group)
                    ? KILN__OPERANDS
                    : access >= kiln__group_operand(group, 1).access;
    bool operand = node && input < kiln__group_operands(group, node);
    return operand ? &kiln__graph_input(graph, node, input)->shape : &group->shape;
}
