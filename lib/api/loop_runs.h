/* SPDX-License-Identifier: Apache-2.0 */
/* Running a batch with loops of which one step is recorded: its parts one after the other
 * (loop_scopes.h), and those of a step as often as the loop says. What a step leaves is the memory
 * that the next one reads; two pieces of it for each state are enough. */
#pragma once

#include "record/batch.h"
#include "session/plan_cache.h"

struct kiln__loop_runs; /* of one batch; used by one thread at a time */

/* Plan it. `threads`: compile and store its kernels first, as kiln__plan_cache_prepare() does; -1:
 * no. Errors: OUT_OF_DEVICE_MEMORY, if a part needs more than there may be; those of planning. */
kiln_status kiln__loop_runs_make(kiln_batch *batch, int threads, struct kiln__loop_runs **made,
                                 struct kiln__error *error);
void kiln__loop_runs_free(struct kiln__plan_cache *cache, struct kiln__loop_runs *runs);

/* Run all of it on `stream`; *run is the last one's, the others' failures are told like those of
 * runs that nobody waits for. After each few hundred steps it waits for the device. Each part
 * counts as a run where the context has runs looked at. Errors: as kiln__checked_run(), behind
 * `call` and the numbers of the steps. */
kiln_status kiln__loop_runs_run(kiln_batch *batch, struct kiln__loop_runs *runs,
                                struct kiln__stream *stream, const char *call,
                                struct kiln__run **run, struct kiln__error *error);

/* What kiln_batch_get_cost() says: launches and transfers of all steps; bytes that the largest part
 * needs, beside what is in memory between parts. */
void kiln__loop_runs_cost(const kiln_batch *batch, const struct kiln__loop_runs *runs,
                          kiln_batch_cost *cost);

typedef kiln_status kiln__graph_teller(struct kiln__plan_cache *cache,
                                       const struct kiln__graph *graph, struct kiln__text *text,
                                       struct kiln__error *error);

/* Have every part told about, under a line that says how often it runs; `heads` false: without. */
kiln_status kiln__loop_runs_explain(kiln_batch *batch, const struct kiln__loop_runs *runs,
                                    bool heads, kiln__graph_teller *tell, struct kiln__text *text,
                                    struct kiln__error *error);
