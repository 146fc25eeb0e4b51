/* SPDX-License-Identifier: Apache-2.0 */
/* From a recorded graph to an executable, stage after stage, each verified where that is asked for
 * (util/verify.h). */
#pragma once

#include "plan/plan.h"
#include "runtime/executable.h"

/* A copy of `recorded` after the passes, for kernels with this `support`. `log` (may be NULL)
 * receives what each changed. What is answered is the caller's to free. Errors, of all three:
 * OUT_OF_HOST_MEMORY; WRONG_STATE names the stage that has left something broken. */
kiln_status kiln__compile_rewrite(const struct kiln__graph *recorded,
                                  const struct kiln__kernel_support *support,
                                  struct kiln__text *log, struct kiln__graph *graph,
                                  struct kiln__error *error);

/* Cut `graph`, which is taken over, into groups. */
kiln_status kiln__compile_fuse(struct kiln__graph *graph,
                               const struct kiln__kernel_support *support,
                               struct kiln__fusion *fusion, struct kiln__error *error);

/* Both, then planned. Launches that are joined from the first run on (KILN__ONE_LAUNCH_ON) are. */
kiln_status kiln__compile_plan(const struct kiln__graph *recorded,
                               const struct kiln__plan_options *options, struct kiln__text *log,
                               struct kiln__plan *plan, struct kiln__error *error);

/* The same plan with launches joined that are so later (KILN__ONE_LAUNCH_AUTO), if it has any; not
 * packed. Errors: OUT_OF_HOST_MEMORY. */
kiln_status kiln__compile_joined(const struct kiln__plan *plan, struct kiln__plan *joined,
                                 struct kiln__error *error);

/* Which kernels of a plan an executable has. */
enum kiln__kernel_set {
    KILN__KERNELS_JOINED, /* of joined launches, and of those that are no phases */
    KILN__KERNELS_JOINED_ALONE,
    KILN__KERNELS_UNJOINED, /* of each launch by itself */
    KILN__KERNELS_CHECKED   /* the same, and they look at every index */
};

/* The plan, which must outlive it, made ready to run: programs from memory, disk or source, with
 * their kernels. `labels`, which may be NULL, name in errors what a kernel computes. `threads`: see
 * kiln__compile_ahead(). Errors: BUILD_FAILED, DEVICE_ERROR, OUT_OF_HOST_MEMORY. */
kiln_status kiln__compile_executable(struct kiln__runtime *runtime, const struct kiln__plan *plan,
                                     const struct kiln__labels *labels,
                                     enum kiln__kernel_set kernels, const unsigned *threads,
                                     struct kiln__executable **made, struct kiln__error *error);

/* ---- plan_programs.c: text from codegen, binary from the cache ---- */

/* The program of each launch, as far as they are in memory; whether all are. */
bool kiln__find_programs(struct kiln__programs *programs, const struct kiln__plan *plan,
                         enum kiln__kernel_set kernels, struct kiln__launch_program *found);

/* Load or compile those that were not found.
 * Errors: BUILD_FAILED, DEVICE_ERROR, OUT_OF_HOST_MEMORY. */
kiln_status kiln__get_programs(struct kiln__programs *programs, const struct kiln__plan *plan,
                               const struct kiln__labels *labels, enum kiln__kernel_set kernels,
                               struct kiln__launch_program *found, struct kiln__error *error);

/* Some of a plan's programs as specs, with their texts. */
struct kiln__program_specs {
    struct kiln__program_spec *items;
    struct kiln__spec_texts *texts;
    size_t count, most;
};

/* `only_new`: not those in memory. False without memory; to be freed then, too. */
bool kiln__program_specs_list(struct kiln__programs *programs, const struct kiln__plan *plan,
                              enum kiln__kernel_set kernels, bool only_new,
                              struct kiln__program_specs *specs);
void kiln__program_specs_free(struct kiln__program_specs *specs);

/* Before that: have them compiled side by side on `*threads` threads (0: as many as there are
 * cores) and stored; NULL: only what nothing has yet, and as the context's mode says. What does not
 * work is left to kiln__get_programs(). Errors: OUT_OF_HOST_MEMORY. */
kiln_status kiln__compile_ahead(struct kiln__programs *programs, const struct kiln__plan *plan,
                                enum kiln__kernel_set kernels, const unsigned *threads,
                                struct kiln__error *error);
