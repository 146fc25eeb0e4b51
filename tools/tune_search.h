/* SPDX-License-Identifier: Apache-2.0 */
/* The search of `kiln tune`: over a set of works, for values of the device or of each work. */
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "tune_measure.h"
#include "tune_record.h"

enum { TUNE_MOST_WORKS = 16, TUNE_MOST_SEEN = 512 };

/* What a search came to. */
struct tune_gain {
    char name[TUNE_NAME];
    double share;   /* of the usual values' time */
    double seconds; /* of a run, as tuned */
    char values[160];
};

struct tune_search {
    kiln_context *context;
    struct tune_record *record;
    bool keeps, again; /* the record, at each step; measure also what is noted there */
    double until;
    FILE *progress;
    size_t measured, left;
    /* The works that are measured together, each as usual and as it is best so far. */
    struct tune_bench benches[TUNE_MOST_WORKS];
    struct tune_way usual[TUNE_MOST_WORKS], best[TUNE_MOST_WORKS];
    size_t count;
    uint64_t seen[TUNE_MOST_SEEN]; /* hashes of their plans that were measured */
    size_t seen_count;
};

/* Search for the device: one value for all of the works. */
kiln_status tune_search_device(struct tune_search *search, const struct tune_work *works,
                               size_t count, struct tune_gain gains[TUNE_MOST_WORKS]);

/* Search for a single work. */
kiln_status tune_search_work(struct tune_search *search, const struct tune_work *work,
                             struct tune_gain *gain);
