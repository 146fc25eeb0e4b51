/* SPDX-License-Identifier: Apache-2.0 */
/* The group verifier's entry: rules on a whole fusion (order, stores, bases, donated buffers), then
 * each group's own rules. */
#include "fuse/verify_groups.h"

#include <stdio.h>

const char *kiln__verifier_fault(const struct kiln__group_verifier *verifier, const char *part,
                                 size_t index, const char *wrong)
{
    snprintf(verifier->text, KILN__WRONG, "group %u (%s), %s %zu: %s", verifier->number,
             kiln__group_name(verifier->group), part, index, wrong);
    return verifier->text;
}

const char *kiln__verifier_group_fault(const struct kiln__group_verifier *verifier,
                                       const char *wrong)
{
    snprintf(verifier->text, KILN__WRONG, "group %u (%s): %s", verifier->number,
             kiln__group_name(verifier->group), wrong);
    return verifier->text;
}

bool kiln__group_stores(const struct kiln__group *group, uint32_t node)
{
    for (size_t i = 0; i < group->stores.count; i++)
        if (group->stores.items[i].node == node)
            return true;
    return false;
}

/* ---- groups ---- */

/* Which dimensions are reduced, and to how many elements each result comes. */
static const char *check_reduced_dimensions(const struct kiln__group_verifier *verifier)
{
    const struct kiln__group *group = verifier->group;
    const struct kiln__group_traits *traits = &kiln__group_traits[group->kind];
    size_t reduced = 1;
    if (group->kept > group->shape.rank || (!traits->reduces && group->kept < group->shape.rank))
        return kiln__verifier_group_fault(verifier, "reduces dimensions that it does not have");
    for (uint32_t d = group->kept; d < group->shape.rank; d++)
        reduced *= group->shape.dims[d];
    bool multiplies = traits->joins[0] && traits->operands;
    return reduced == group->reduced || multiplies
               ? NULL
               : kiln__verifier_group_fault(verifier,
                                            "not as many elements for each result as it says");
}

static const char *check_limits(const struct kiln__group_verifier *verifier)
{
    const struct kiln__group *group = verifier->group;
    if (group->accesses.count > KILN__MOST_ACCESSES)
        return kiln__verifier_group_fault(verifier, "too many accesses");
    if (group->steps.count > KILN__MOST_STEPS)
        return kiln__verifier_group_fault(verifier, "too many steps");
    if (group->stores.count > KILN__MOST_STORES)
        return kiln__verifier_group_fault(verifier, "too many stores");
    if (group->shape.rank > KILN_MAX_RANK)
        return kiln__verifier_group_fault(verifier, "too many dimensions");
    for (size_t i = 0; i < group->nodes.count; i++)
        if (group->nodes.items[i] >= verifier->fusion->graph.nodes.count)
            return kiln__verifier_fault(verifier, "node", i, "not in the graph");
    bool becomes = kiln__group_traits[group->kind].phased; /* without a node of its own */
    if (kiln__group_traits[group->kind].root && !becomes &&
        !kiln__group_root(&verifier->fusion->graph, group))
        return kiln__verifier_group_fault(verifier, "no node that it computes");
    return NULL;
}

static const char *check_group(const struct kiln__group_verifier *verifier)
{
    kiln__group_check *const checks[] = {check_limits,
                                         check_reduced_dimensions,
                                         kiln__group_check_steps,
                                         kiln__group_traits[verifier->group->kind].check,
                                         kiln__group_check_accesses,
                                         kiln__group_check_stores};
    const char *wrong = NULL;
    for (size_t i = 0; i < sizeof checks / sizeof *checks && !wrong; i++)
        wrong = checks[i] ? checks[i](verifier) : NULL;
    return wrong;
}

/* ---- nodes ---- */

/* What is put over a base finds it there: copied by the group before, or taken over. */
static const char *check_base(const struct kiln__fusion *fusion, uint32_t index)
{
    uint32_t base = kiln__node_base(&fusion->graph.nodes.items[index]);
    uint32_t own = fusion->group_of[index];
    uint32_t below = fusion->groups.items[own].base_group;
    if (below == KILN__NO_GROUP)
        return base == UINT32_MAX ? NULL : "nothing below what is put over it";
    if (base == UINT32_MAX || below >= own)
        return "over something that it does not have";
    bool copied = kiln__group_stores(&fusion->groups.items[below], index);
    return copied == (fusion->donated_to[base] == index)
               ? "its base is neither copied nor taken over"
               : NULL;
}

static const char *check_donation(const struct kiln__fusion *fusion, uint32_t index)
{
    uint32_t donated_to = fusion->donated_to[index];
    if (donated_to == KILN__NO_DONATION)
        return NULL;
    if (donated_to >= fusion->graph.nodes.count ||
        kiln__node_base(&fusion->graph.nodes.items[donated_to]) != index)
        return "what it is donated to is not put over it";
    if (kiln__node_is_input(&fusion->graph.nodes.items[index]) ||
        fusion->why[index] == KILN__BECAUSE_ASKED || !fusion->stored[index])
        return "taken over, though others know its memory";
    return NULL;
}

static const char *check_node(const struct kiln__fusion *fusion, uint32_t index)
{
    const struct kiln__node *node = &fusion->graph.nodes.items[index];
    const char *wrong = check_donation(fusion, index);
    uint32_t group = fusion->group_of[index];
    bool root = fusion->why[index] > KILN__BECAUSE_INPUT;
    if (wrong || kiln__node_is_input(node))
        return wrong;
    if (root != (group != KILN__NO_GROUP) || (root && group >= fusion->groups.count))
        return "in memory, and in no group, or the reverse";
    if (!fusion->stored[index])
        return NULL;
    if (!root || !kiln__group_stores(&fusion->groups.items[group], index))
        return "needed in memory, but its group does not store it";
    bool laid = node->kind == KILN__INSERT_SLICE || node->kind == KILN__SCATTER;
    return laid ? check_base(fusion, index) : NULL;
}

static const char *check_request(const struct kiln__fusion *fusion, size_t index)
{
    uint32_t node = fusion->graph.requests.items[index].node;
    return node >= fusion->graph.nodes.count ? "names no node"
           : !fusion->stored[node]           ? "is never stored"
                                             : NULL;
}

const char *kiln__fusion_verify(const struct kiln__fusion *fusion, char text[KILN__WRONG])
{
    for (uint32_t g = 0; g < fusion->groups.count; g++) {
        const struct kiln__group_verifier verifier = {fusion, &fusion->groups.items[g], g, text};
        if (verifier.group->kind >= KILN__GROUP_KINDS) {
            snprintf(text, KILN__WRONG, "group %u: no such kind", g);
            return text;
        }
        const char *wrong = check_group(&verifier);
        if (wrong)
            return wrong;
    }
    for (uint32_t i = 0; i < fusion->graph.nodes.count; i++) {
        const char *wrong = check_node(fusion, i);
        if (wrong) {
            snprintf(text, KILN__WRONG, "node %%%u (%s): %s", i,
                     kiln__node_name(&fusion->graph.nodes.items[i]), wrong);
            return text;
        }
    }
    for (size_t i = 0; i < fusion->graph.requests.count; i++) {
        const char *wrong = check_request(fusion, i);
        if (wrong) {
            snprintf(text, KILN__WRONG, "result #%zu %s", i, wrong);
            return text;
        }
    }
    return NULL;
}
