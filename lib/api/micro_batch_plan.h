/* SPDX-License-Identifier: Apache-2.0 */
/* A micro-batch's plan: one of the graphs of a batch that runs in parts, and what its runs read and
 * write.
 */
#pragma once

#include "graph/micro_batch_graph.h"
#include "record/batch.h"
#include "session/plan_cache.h"

struct kiln__micro_batch_plan {
    struct kiln__micro_batch_what what;
    size_t rows;         /* of the batch */
    size_t first, count; /* of ROWS: the row that its first run begins with; how many runs there
                            are. The last one begins so that it ends with the rows */
    struct kiln__micro_batch_graph micro_graph;
    struct kiln__labels
        labels;       /* of the graph's nodes: the batch's, of which only `nodes` is ours */
    int32_t *numbers; /* per run, each input of the graph that is none of the batch's */
    struct kiln__lease lease;
};

/* The graph of `section->what`, `first` and `count`; to be freed whatever the answer. */
kiln_status kiln__micro_batch_plan_make(const kiln_batch *batch,
                                        const struct kiln__partition *partition,
                                        struct kiln__micro_batch_plan *part_plan,
                                        struct kiln__error *error);
void kiln__micro_batch_plan_free(struct kiln__plan_cache *cache,
                                 struct kiln__micro_batch_plan *part_plan);

/* Look what nodes are called: names may have come or gone since. */
kiln_status kiln__micro_batch_plan_label(const kiln_batch *batch,
                                         struct kiln__micro_batch_plan *part_plan,
                                         struct kiln__error *error);

/* The row that a run begins with. */
size_t kiln__micro_batch_plan_first(const struct kiln__micro_batch_plan *part_plan, size_t number);

/* Device memory that a run with the section's plan takes, and `others`. */
uint64_t kiln__micro_batch_plan_pool_bytes(const kiln_batch *batch,
                                           const struct kiln__micro_batch_plan *part_plan,
                                           uint64_t others);

/* What a run reads and writes; sums are in `sums`. False without memory. */
bool kiln__micro_batch_plan_bind(const kiln_batch *batch,
                                 const struct kiln__micro_batch_plan *part_plan, size_t number,
                                 const struct kiln__binding *sums, struct kiln__bindings *bindings);

/* Whether a plan leaves the operands alone that a result goes over, which some phase delivers by
 * rows, or reads no more of them than the rows that the result's are made from. */
bool kiln__micro_batch_plan_allows(const kiln_batch *batch,
                                   const struct kiln__micro_batch_plan *part_plan, uint32_t phase,
                                   const struct kiln__binding *result);
