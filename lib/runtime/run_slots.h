/* SPDX-License-Identifier: Apache-2.0 */
/* What one run of an executable finds: the memory of each slot, and which launches it leaves out.
 * It stays with the executable, since the next run of the same bindings finds most of it again. */
#pragma once

#include "device/opencl.h"
#include "plan/plan.h"

struct kiln__run_slots {
    cl_mem *memory;    /* per slot; NULL: the run does not read it */
    bool *foreign;     /* per slot: memory that others may release, a wrapper's */
    bool *ready;       /* per slot: what is kept is there (prepacked.h) */
    bool *needed;      /* per slot: a launch that may be left out, and is not, names it */
    bool *left_out;    /* per launch */
    uint32_t *anew;    /* slots whose memory each run of these bindings has to find anew */
    size_t anew_count; /* so many */
    uint64_t settled;  /* `checked` of the bindings whose memory these are; 0: none */
    cl_mem arena;      /* and the arena in which they lie */
    uint64_t releases; /* the budget's, before the run took memory */
};

/* Of no run yet. False without memory. */
bool kiln__run_slots_begin(struct kiln__run_slots *run, const struct kiln__plan *plan);
void kiln__run_slots_end(struct kiln__run_slots *run);
