/* SPDX-License-Identifier: Apache-2.0 */
/* A batch that needs more memory than there may be at once, run in micro-batches of its rows. Sums
 * over rows are added up in memory that stays from part to part; what is made from them comes in
 * later phases, and at the end (graph/partition.h). */
#pragma once

#include "record/batch.h"
#include "session/plan_cache.h"

struct kiln__micro_batches; /* of one batch; used by one thread at a time */

/* For a batch whose lease has no executable. Errors: OUT_OF_DEVICE_MEMORY, and the sentence says
 * which value cannot be had by rows; those of planning. */
kiln_status kiln__micro_batches_make(kiln_batch *batch, struct kiln__micro_batches **made,
                                     struct kiln__error *error);
void kiln__micro_batches_free(struct kiln__plan_cache *cache, struct kiln__micro_batches *micro);

/* Look at the values of every part before the first one runs (debug/nan_check.h), in parts so small
 * that the device can hold every value of one. Errors: as kiln__nan_check(); the sentence says
 * which rows these are, and counts elements from the first of them. */
kiln_status kiln__micro_batches_check_nan(kiln_batch *batch,
                                          const struct kiln__micro_batches *micro, const char *call,
                                          struct kiln__error *error);

/* Run one part after the other on `stream`; *run is the last one's, the others' failures are told
 * like those of runs that nobody waits for. Errors: as kiln__commands_run(). */
kiln_status kiln__micro_batches_run(kiln_batch *batch, struct kiln__micro_batches *micro,
                                    struct kiln__stream *stream, struct kiln__run **run,
                                    struct kiln__error *error);
