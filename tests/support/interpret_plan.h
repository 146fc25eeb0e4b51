/* SPDX-License-Identifier: Apache-2.0 */
/* A plan computed on the machine: slots as arrays, steps in any order that dependencies allow. */
#pragma once

#include "interpret_machine.h"

/* What the plan's requests get from inputs in `given`, by their binding. Where the machine visits
 * elements backwards, steps run in an order of their own. The results' elements live in the heap;
 * the caller frees the list. */
double **interpret_plan(struct machine *machine, const struct kiln__plan *plan,
                        const void *const *given, struct heap *heap);
