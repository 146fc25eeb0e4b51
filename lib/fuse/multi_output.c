/* SPDX-License-Identifier: Apache-2.0 */
/* Horizontal fusion: two nodes that each have a kernel of their own become one group with two
 * outputs where a kernel computes both: of an attention the log-sum-exp of its rows, which its
 * gradient asks for, and of that gradient what flows to the values beside what flows to the keys.
 * The outputs of an own kernel become one group. */
#include "fuse/fuse.h"
#include "graph/attention_backward.h"

static const struct kiln__node *root_of(const struct kiln__fusion *fusion,
                                        const struct kiln__group *group)
{
    return &fusion->graph.nodes.items[group->nodes.items[0]];
}

static bool has_result(const struct kiln__node *node, enum kiln__attention_backward_result result)
{
    return node->kind == KILN__ATTENTION_BACKWARD && node->attention.backward_result == result;
}

/* Whether the kernel for `node` computes `other` as well, of what both read. */
static bool computes(const struct kiln__node *node, const struct kiln__node *other)
{
    const struct kiln__attention *a = &node->attention, *b = &other->attention;
    if (node->kind == KILN__CUSTOM || other->kind == KILN__CUSTOM)
        return node->kind == other->kind && node->custom.call == other->custom.call &&
               node->custom.output != other->custom.output;
    const bool log_sum_exp = node->kind == KILN__ATTENTION && node->n_inputs <= KILN__MASK &&
                             has_result(other, KILN__BACKWARD_LOG_SUM_EXP);
    const bool values =
        has_result(node, KILN__BACKWARD_KEYS) && has_result(other, KILN__BACKWARD_VALUES);
    return (log_sum_exp || values) && node->op == other->op && a->scale == b->scale &&
           a->diagonal == b->diagonal && a->causal == b->causal && a->window == b->window;
}

static bool reads_the_same(const struct kiln__group *group, const struct kiln__group *other)
{
    bool same = group->accesses.count >= other->accesses.count;
    for (size_t i = 0; i < other->accesses.count && same; i++)
        same = kiln__fuse_same_access(&group->accesses.items[i], &other->accesses.items[i]);
    return same;
}

static bool is_whole(const struct kiln__group *group)
{
    if (group->kind == KILN__GROUP_CUSTOM)
        return group->stores.count > 0;
    return (group->kind == KILN__GROUP_ATTENTION ||
            group->kind == KILN__GROUP_ATTENTION_BACKWARD) &&
           group->stores.count == 1;
}

static bool multi_output_join(struct kiln__fusion *fusion, uint32_t number,
                              struct kiln__group *other)
{
    struct kiln__group *group = &fusion->groups.items[number];
    const uint32_t node = other->nodes.items[0];
    if (!kiln__vector_add(&group->stores, other->stores.items[0]) ||
        !kiln__vector_add(&group->nodes, node))
        return false;
    other->stores.count = other->accesses.count = other->steps.count = 0; /* never launched */
    fusion->group_of[node] = number;
    return true;
}

bool kiln__fuse_multi_output(struct kiln__fuser *fuser)
{
    struct kiln__fusion *fusion = fuser->fusion;
    for (uint32_t g = 0; g < fusion->groups.count; g++) {
        struct kiln__group *other = &fusion->groups.items[g];
        if (!is_whole(other))
            continue;
        for (uint32_t i = 0; i < g; i++) {
            const struct kiln__group *group = &fusion->groups.items[i];
            if (!is_whole(group) || !computes(root_of(fusion, group), root_of(fusion, other)) ||
                !reads_the_same(group, other))
                continue;
            if (!multi_output_join(fusion, i, other))
                return false;
            break;
        }
    }
    return true;
}
