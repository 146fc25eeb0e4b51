/* SPDX-License-Identifier: Apache-2.0 */
/* Groups and plans computed on the host, in double precision and without a device or a kernel:
 * element by element, straight from steps, accesses, stores, slots and the order of a plan, or any
 * that the dependencies of its steps allow. What
 * comes out is compared with the reference, which knows nothing of groups: passes, fusion and
 * planning are checked at thousands of graphs per second. */
#pragma once

#include "plan/plan.h"
#include "record/batch.h"

/* Whether what a batch asks for comes out right: of its groups alone, and of the plan for its
 * context's device with transfers and with shared memory, elements visited forwards and backwards.
 * Imports are taken for what `graph` has of them. Failures name the element and show the groups.
 *
 * `graph` is what was recorded, with inputs in `inputs` by their binding. */
bool interpret_graph(const struct kiln__graph *graph, const void *const *inputs,
                     const struct kiln__device *device);

/* The same of a batch whose inputs are all uploads. */
bool interpret_batch(const kiln_batch *batch);

/* The same where results replace inputs: each that is of an input's type and shape goes to the
 * buffer that this input is then imported from. True if there is none. */
bool interpret_taken_over(const kiln_batch *batch);

/* How many graphs were interpreted, and how many times a plan or the groups of one. */
struct interpret_counts {
    size_t graphs, runs;
};
struct interpret_counts interpret_counts(void);
