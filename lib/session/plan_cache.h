/* SPDX-License-Identifier: Apache-2.0 */
/* The plans of a context, found by the structure of a batch: a batch that looks like an earlier one
 * is not planned again. */
#pragma once

#include "plan/plan.h"
#include "record/batch.h"
#include "runtime/runtime.h"

struct kiln__plan_cache; /* safe to use from many threads */

/* NULL without memory. */
struct kiln__plan_cache *kiln__plan_cache_create(struct kiln__runtime *runtime, const char *matmul,
                                                 const struct kiln__tuning *tuning);

/* What is planned from now on is planned anew: the tuning or the traits are other ones. */
void kiln__plan_cache_forget(struct kiln__plan_cache *cache);

/* Before its first plan: who says which kernels pass their self-tests; NULL: nobody. */
void kiln__plan_cache_use_self_tester(struct kiln__plan_cache *cache,
                                      struct kiln__self_tester *self_tester);

/* Before its first plan: no batch runs before its own kernels are there, whatever the programs'
 * compile mode says. */
void kiln__plan_cache_wait_for_kernels(struct kiln__plan_cache *cache);

/* Whether plans from now on have runs of short launches joined to one each, where the device can;
 * $KILN_ONE_LAUNCH says what is first. Launches that would always be joined stay apart where
 * kernels are compiled behind batches, and others where spans are kept, which say what each took.
 */
void kiln__plan_cache_use_one_launch(struct kiln__plan_cache *cache, enum kiln__one_launch use);

/* Before its first plan: all groups that the generic kernel can compute are computed by it. */
void kiln__plan_cache_use_generic(struct kiln__plan_cache *cache);
void kiln__plan_cache_destroy(struct kiln__plan_cache *cache);

/* Find or make the plan of `graph`, and an executable of its own for the caller; `checked`: kernels
 * that look at every index. A plan that needs more memory than there may be has no executable.
 * Errors: OUT_OF_HOST_MEMORY, BUILD_FAILED, DEVICE_ERROR. */
kiln_status kiln__plan_cache_lease(struct kiln__plan_cache *cache, const struct kiln__graph *graph,
                                   bool checked, struct kiln__lease *lease,
                                   struct kiln__error *error);

/* The same; its programs are compiled side by side and stored first, see
 * kiln__compile_executable(); what joins launches is only looked for. */
kiln_status kiln__plan_cache_prepare(struct kiln__plan_cache *cache,
                                     const struct kiln__graph *graph, unsigned threads,
                                     struct kiln__lease *lease, struct kiln__error *error);

/* Whether the lease's kernels were those to run by meanwhile, and its plan's own are there now: who
 * gives it back and takes another one has these. */
bool kiln__plan_cache_has_changed(struct kiln__plan_cache *cache, const struct kiln__lease *lease);

/* Wait until nothing is compiled behind plans any more (background.h). */
void kiln__plan_cache_wait_for_background(struct kiln__plan_cache *cache);

void kiln__plan_cache_return(struct kiln__plan_cache *cache, struct kiln__lease *lease);

/* Append a line for each work of `graph`, "WORK # count". Errors: OUT_OF_HOST_MEMORY. */
kiln_status kiln__plan_cache_list_works(struct kiln__plan_cache *cache,
                                        const struct kiln__graph *graph, struct kiln__text *text,
                                        struct kiln__error *error);

/* Append an explanation of `graph` to `text`. Errors: OUT_OF_HOST_MEMORY. */
kiln_status kiln__plan_cache_explain(struct kiln__plan_cache *cache,
                                     const struct kiln__graph *graph, struct kiln__text *text,
                                     struct kiln__error *error);
