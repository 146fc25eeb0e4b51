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

/* Those that answer say false without memory. */

/* Decide which results are computed in the buffer of an input, and the order that allows it
 * (in_place.c). */
bool kiln__plan_in_place(struct kiln__plan_builder *builder);

/* Mark which slots are frozen (frozen.c). */
void kiln__plan_find_frozen(const struct kiln__plan_builder *builder);

/* Find the absorbed groups, which their readers' kernels compute: they have no launches
 * (implicit_im2col.c). */
bool kiln__plan_find_absorbed(struct kiln__plan_builder *builder);

/* Once all launches are there: which slots are kept, and what names them (frozen.c). */
bool kiln__plan_settle_prepacked(struct kiln__plan *plan);

/* Give arena slots their offsets; slots alive at the same time do not overlap (arena.c). */
bool kiln__plan_assign_memory(struct kiln__plan *plan);

/* Find what each step depends on (dependencies.c). */
bool kiln__plan_find_dependencies(struct kiln__plan_builder *builder);
