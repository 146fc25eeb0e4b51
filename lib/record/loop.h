/* SPDX-License-Identifier: Apache-2.0 */
/* A loop that is being recorded: the step as nodes of the batch. */
#pragma once

#include <kiln/loop.h>

#include "record/batch.h"

struct kiln__loop_call {
    kiln_batch *batch;
    const char *call; /* for sentences */
    kiln_loop_options options;
    size_t count; /* nodes before the loop itself */
    bool *varies; /* per node: it depends on the state or the number of the step, or an element */
    bool *needed; /* and what the step gives is made of it */
};

/* Record it as one kernel. False if it cannot be, and nothing is recorded then. */
bool kiln__loop_in_kernel(struct kiln__loop_call *loop, kiln_tensor *last, kiln_tensor *stacked);

/* The node of a placeholder's own input, and the shape of output `k` of all steps. */
uint32_t kiln__loop_initial(const struct kiln__loop_call *loop, size_t k);
bool kiln__loop_stacked(const struct kiln__loop_call *loop, size_t k, struct kiln__shape *shape);
