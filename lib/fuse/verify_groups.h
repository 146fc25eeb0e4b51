/* SPDX-License-Identifier: Apache-2.0 */
/* What plan and codegen rely on in groups. Each rule is stated from the group and the graph alone,
 * not from how the groups were formed: verify_groups.c has what holds for groups and nodes as such,
 * verify_steps.c for steps, verify_memory.c for what is read and stored, verify_kinds.c for one
 * kind of group. */
#pragma once

#include "fuse/group_kinds.h"

struct kiln__group_verifier {
    const struct kiln__fusion *fusion;
    const struct kiln__group *group;
    uint32_t number; /* of the group */
    char *text;
};

static inline const struct kiln__node *
kiln__verified_node(const struct kiln__group_verifier *verifier, uint32_t index)
{
    return &verifier->fusion->graph.nodes.items[index];
}

/* "group 3 (rows), step 4: no such type", and the same of the group as a whole. */
const char *kiln__verifier_fault(const struct kiln__group_verifier *verifier, const char *part,
                                 size_t index, const char *wrong);
const char *kiln__verifier_group_fault(const struct kiln__group_verifier *verifier,
                                       const char *wrong);

/* The first step that `step` may use (verify_steps.c). */
size_t kiln__verifier_first_visible(const struct kiln__group *group, size_t step);

/* Whether one of a group's stores is of a node. */
bool kiln__group_stores(const struct kiln__group *group, uint32_t node);

kiln__group_check kiln__group_check_steps, kiln__group_check_accesses, kiln__group_check_stores;
