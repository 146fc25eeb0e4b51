/* SPDX-License-Identifier: Apache-2.0 */
/* Which values of a plan to compute again rather than to hold them while most memory is needed. */
#pragma once

#include "memory/rematerialise_graph.h"
#include "plan/plan.h"

/* Choose what to compute again so that, of what is alive at the plan's peak, no more than `bytes`
 * of the arena are left there. *choices, one per node of the plan's graph, which is to be freed;
 * NULL: that cannot be, or would take three times the plan's work. False without memory. */
bool kiln__plan_choose_rematerialised(const struct kiln__plan *plan, uint64_t bytes,
                                      struct kiln__choice **choices);

/* The plan's graph with what is only delivered as early as it can be (schedule_early.c). False
 * without memory; `to` is to be freed then, too. */
bool kiln__plan_schedule_early(const struct kiln__plan *plan, struct kiln__graph *to);
