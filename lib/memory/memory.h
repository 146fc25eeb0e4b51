/* SPDX-License-Identifier: Apache-2.0 */
/* The passes of planning that see to memory, in the order in which lower/plan_make.c runs them.
 * They answer false without memory of the host. */
#pragma once

#include "plan/plan_builder.h"

/* Decide which results are computed in the buffer of an input, and the order that allows it
 * (in_place.c). */
bool kiln__plan_in_place(struct kiln__plan_builder *builder);

/* Give arena slots their offsets; slots alive at the same time do not overlap (arena.c). */
bool kiln__plan_assign_memory(struct kiln__plan *plan);

/* Find what each step depends on (dependencies.c). */
bool kiln__plan_find_dependencies(struct kiln__plan_builder *builder);
