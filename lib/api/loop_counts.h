/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a batch with loops (loop_scopes.h), and how often a run of the batch runs each. */
#pragma once

#include "api/loop_scopes.h"

struct kiln__loop_runs {
    const kiln_batch *batch;
    struct kiln__loop_scope scope;
};

/* Whether the host looks before a step whether the loop has ended, which takes waiting for the
 * device; and how often that is. `before`: the first step of the run before it. */
bool kiln__loop_polls_end_before(size_t step, size_t before);

/* Steps are named where runs are looked at: each is one then. */
bool kiln__loop_runs_single_steps(const kiln_batch *batch);

/* Steps that one run takes where as many are left. */
size_t kiln__loop_steps_per_run(const kiln_batch *batch, const struct kiln__replayed *loop);

/* `times`: how often a run of the batch runs the part, which may be never. */
typedef kiln_status kiln__loop_visitor(void *of, struct kiln__loop_part *part, double times);

/* Have the visitor called for a part before the loops behind it; the first error ends that. */
kiln_status kiln__loop_each_part(const kiln_batch *batch, struct kiln__loop_scope *scope,
                                 double times, kiln__loop_visitor *visit, void *of);
