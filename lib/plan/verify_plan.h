/* SPDX-License-Identifier: Apache-2.0 */
/* What running a plan relies on: launches that a device can take, memory that nothing else uses
 * while it matters, and steps in an order in which every value is there when it is read.
 * verify_plan.c looks at slots, launches and what steps name, verify_frozen.c at what may be left
 * out, verify_values.c walks the steps. The plan's fusion is a sound one (fuse/verify_groups.h). */
#pragma once

#include <stdio.h>

#include "graph/replacements.h"
#include "plan/plan.h"
#include "util/format.h"

struct kiln__plan_verifier {
    const struct kiln__plan *plan;
    char *text;
    uint32_t *first, *last; /* per slot: steps that name it */
    uint32_t *holds;        /* per slot: the node whose value is there by now; UINT32_MAX: none */
    uint32_t *alive;        /* arena slots that matter at the current step, */
    size_t alive_count;     /* so many */
    bool *entered;          /* per slot: it has been among them */
    bool *makes;            /* per slot: launches so far that may be left out have made it */
    bool *runs, *has_run;   /* per group: it has launches; they have begun */
    uint32_t *deliveries;   /* per request */
    struct kiln__replacements replacements;
};

/* Answers false, for what calls it to hand on. */
#define KILN__WRONG_PLAN(verifier, ...)                                                            \
    (kiln__format((verifier)->text, KILN__WRONG, __VA_ARGS__), false)

static inline const struct kiln__node *
kiln__planned_node(const struct kiln__plan_verifier *verifier, uint32_t index)
{
    return &verifier->plan->fusion.graph.nodes.items[index];
}

static inline const struct kiln__group *
kiln__planned_group(const struct kiln__plan_verifier *verifier, uint32_t index)
{
    return &verifier->plan->fusion.groups.items[index];
}

/* Whether a launch packs an operand of its group, of buffers alone (verify_frozen.c), and may stand
 * before what the group reads besides. */
bool kiln__planned_packs(const struct kiln__plan *plan, const struct kiln__launch *launch);

/* What may be left out of a run; uses `first`, and leaves it as it was. */
bool kiln__plan_check_frozen(struct kiln__plan_verifier *verifier);

/* Each value is where it is read, and each result is brought once where it belongs. */
bool kiln__plan_check_values(struct kiln__plan_verifier *verifier);
bool kiln__plan_check_results(const struct kiln__plan_verifier *verifier);
