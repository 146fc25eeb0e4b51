/* SPDX-License-Identifier: Apache-2.0 */
/* Background (tiered) compilation: a plan to run by while the kernels of another one for the same
 * batch are compiled: groups whose kernels are missing are computed by the generic kernel
 * (lower/generic.h). No thread does that: other processes compile and store, and each run asks
 * whether they have ended. */
#ifndef KILN_SESSION_BACKGROUND_H
#define KILN_SESSION_BACKGROUND_H

#include "plan/plan.h"
#include "programs/compile_workers.h"
#include "runtime/runtime.h"

struct kiln__background {
    struct kiln__plan plan; /* the interim one, to run by until then */
    struct kiln__compile_workers workers;
    bool over;  /* nothing is compiled for the other one any more */
    bool stays; /* whose kernels cannot be built */
};

/* Begin to have the missing kernels of `plan`, which `graph` has, compiled. NULL: it lacks too few,
 * they cannot be compiled apart, the generic kernel would take too long, or there is no memory. */
struct kiln__background *kiln__background_begin(struct kiln__runtime *runtime,
                                                const struct kiln__graph *graph,
                                                const struct kiln__plan *plan);

/* Whether it is time for the plan's own kernels: those that could not be compiled apart are
 * compiled where they are met. */
bool kiln__background_is_over(struct kiln__background *background);

void kiln__background_free(struct kiln__background *background);

#endif
