/* SPDX-License-Identifier: Apache-2.0 */
/* A plan to run by while the kernels of another one for the same batch are compiled: groups whose
 * kernels are missing are computed by the generic kernel (lower/generic.h). No thread does that:
 * other processes compile and store, and each run asks whether they have ended. */
#ifndef KILN_SESSION_BACKGROUND_H
#define KILN_SESSION_BACKGROUND_H

#include "plan/plan.h"
#include "programs/compile_workers.h"
#include "runtime/runtime.h"

struct kiln__behind {
    struct kiln__plan plan; /* the one to run by meanwhile */
    struct kiln__apart apart;
    bool over;  /* nothing is compiled for the other one any more */
    bool stays; /* whose kernels cannot be built */
};

/* Begin to have the missing kernels of `plan`, which `graph` has, compiled. NULL: it lacks too few,
 * they cannot be compiled apart, the generic kernel would take too long, or there is no memory. */
struct kiln__behind *kiln__behind_begin(struct kiln__runtime *runtime,
                                        const struct kiln__graph *graph,
                                        const struct kiln__plan *plan);

/* Whether it is time for the plan's own kernels: those that could not be compiled apart are
 * compiled where they are met. */
bool kiln__behind_is_over(struct kiln__behind *behind);

void kiln__behind_free(struct kiln__behind *behind);

#endif
