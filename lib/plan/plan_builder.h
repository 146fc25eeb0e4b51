/* SPDX-License-Identifier: Apache-2.0 */
/* A plan in the making: what the passes of planning find out about its graph and hand on to each
 * other, which is thrown away when the plan is complete. */
#pragma once

#include "graph/replacements.h"
#include "plan/plan.h"

struct kiln__plan_builder {
    struct kiln__plan *plan;                /* that is made */
    struct kiln__replacements replacements; /* of the graph's inputs */
    uint32_t *first_request; /* per node: the first request of it, or KILN__NO_REQUEST */
    uint32_t *next_request;  /* per request: the next one of the same node */
    uint32_t *takes_over; /* per node: 1 + the request that it is computed in place for; 0: none */
    uint32_t *order;      /* groups, as they run */
    bool *uploaded;       /* per node: a step brings it to the device */
};
#define KILN__NO_REQUEST UINT32_MAX
