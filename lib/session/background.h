/* SPDX-License-Identifier: Apache-2.0 */
/* Background (tiered) compilation: what a batch runs by while kernels of its plan are compiled. No
 * thread does that: other processes compile and store, and each run asks whether they have ended.
 *   - Kernels that are missing: another plan, whose kernels are compiled quickly, or in which their
 *     groups are computed by the generic kernel (lower/generic.h).
 *   - Joined launches (codegen/one_launch.c), after that: the plan as it is. Another one, in which
 *     they are joined, is made before the second run; its kernel is taken from memory or disk then,
 *     or compiled once runs by then would have saved as much time as pays. */
#pragma once

#include "plan/plan.h"
#include "programs/compile_workers.h"
#include "runtime/runtime.h"

enum kiln__background_state {
    KILN__BACKGROUND_WAITS,    /* unjoined: the plan has not run often enough */
    KILN__BACKGROUND_COMPILES, /* others do */
    KILN__BACKGROUND_OVER,     /* the plan's own kernels are there */
    KILN__BACKGROUND_STAYS     /* they cannot be built */
};

struct kiln__background {
    bool unjoined;          /* the plan itself is run until then, no launches joined; */
    struct kiln__plan plan; /* later this one, made by the second run; else this until then */
    struct kiln__compile_workers workers;
    enum kiln__background_state state;
    uint64_t runs; /* unjoined: from the second on, while it waits; */
    uint64_t pays; /* from so many on it pays to compile; 0: not known yet */
};

/* Begin to have the missing kernels of `plan`, which `graph` has, compiled. NULL: it lacks too few,
 * they cannot be compiled apart, others would take too long, or there is no memory. */
struct kiln__background *kiln__background_begin(struct kiln__runtime *runtime,
                                                const struct kiln__graph *graph,
                                                const struct kiln__plan *plan);

/* The same for what joins its launches. NULL: there are too few to join, or no memory. */
struct kiln__background *kiln__background_begin_unjoined(const struct kiln__plan *plan);

/* Of a plan that waits: one more run is about to begin. What is due now: nothing, to look whether
 * the joined launches' kernel is on disk, or to have it compiled if it is not. */
enum kiln__background_due { KILN__DUE_NOTHING, KILN__DUE_LOOK, KILN__DUE_COMPILE };
enum kiln__background_due kiln__background_count(struct kiln__background *background);

/* Do it, in one thread at a time. What is so from then on: the state, from how many runs on it pays
 * to compile, and how many more bytes of the host are taken. */
struct kiln__background_step {
    enum kiln__background_state state;
    uint64_t pays;
    size_t bytes;
};
struct kiln__background_step kiln__background_advance(struct kiln__background *background,
                                                      struct kiln__runtime *runtime,
                                                      const struct kiln__plan *plan, bool compiles);

/* Whether neither memory nor disk has a kernel that joins launches. */
bool kiln__background_is_missing(const struct kiln__background *background,
                                 struct kiln__programs *programs);

/* Whether it is time for the plan's own kernels: those that could not be compiled apart are
 * compiled where they are met; but what joins launches is not. */
bool kiln__background_is_over(struct kiln__background *background);

void kiln__background_free(struct kiln__background *background);
