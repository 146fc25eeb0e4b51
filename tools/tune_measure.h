/* SPDX-License-Identifier: Apache-2.0 */
/* A work on the device, and how long it takes planned in one way and in another. */
#pragma once

#include <signal.h>

#include "tune_work.h"

/* Memory for a work, and what it gave as it was first run. */
struct tune_bench {
    const struct tune_work *work;
    kiln_context *context;
    kiln_buffer *inputs[TUNE_INPUTS], *output;
    float *expected, *results;
};

/* The work as it was planned by one record: later records do not change it. */
struct tune_way {
    kiln_batch *batch;
    char *plan; /* in words: two that are equal are the same */
};

/* Set by a signal: measuring ends soon. */
extern volatile sig_atomic_t tune_interrupted;

double tune_now(void);

kiln_status tune_bench_open(kiln_context *context, const struct tune_work *work,
                            struct tune_bench *bench);
void tune_bench_close(struct tune_bench *bench);

/* Say how it would be planned by what the context goes by now. It is so once it has been checked.
 */
kiln_status tune_way_make(const struct tune_bench *bench, struct tune_way *way);
void tune_way_free(struct tune_way *way);

/* Run, and compare some elements with plain C, and all with those of the first way that was
 * checked. WRONG_RESULT with a line on standard error. */
kiln_status tune_way_check(struct tune_bench *bench, const struct tune_way *way);

/* *share: the candidate's part of the time of the best so far, by turns, of the quickest rounds of
 * either. A candidate that is beyond `hopeless` in the first rounds is not measured further.
 * *seconds: of the candidate. */
kiln_status tune_compare(const struct tune_bench *bench, const struct tune_way *best,
                         const struct tune_way *candidate, double hopeless, double *share,
                         double *seconds);
