/* SPDX-License-Identifier: Apache-2.0 */
/* Launches in words and figures, for people. */
#pragma once

#include "plan/plan.h"

/* "kernel 3 (kiln_map: neg, square)". */
void kiln__launch_title(const struct kiln__plan *plan, uint32_t launch, struct kiln__text *text);

/* "neg, square": what its group computes. */
void kiln__launch_operation_names(const struct kiln__plan *plan, uint32_t launch,
                                  struct kiln__text *text);

/* "f32[4,8] f32[8] -> f32[4,8]": what its group reads and writes. */
void kiln__launch_shapes(const struct kiln__plan *plan, uint32_t launch, struct kiln__text *text);

/* Operations on numbers: additions and multiplications each count, others as their rows' cost. Of
 * several launches that compute one thing together, the one that does most of it has them all. */
uint64_t kiln__launch_operations(const struct kiln__plan *plan, uint32_t launch);
