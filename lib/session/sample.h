/* SPDX-License-Identifier: Apache-2.0 */
/* Which runs of a context are looked at closely. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include <kiln/status.h>

struct kiln__sample {
    double share;              /* 0 to 1 */
    atomic_uint_fast64_t runs; /* counted where that is not 0 */
};

/* The share from an option called `name`, or from `variable` of the environment where that is 0.
 * Errors: INVALID_ARGUMENT unless it is from 0 to 1. */
kiln_status kiln__sample_choose(struct kiln__sample *sample, const char *call, const char *name,
                                double option, const char *variable);

/* Whether the next run is one of them. Of n runs ceil(n * share) are, spread evenly: the first one
 * is always among them. */
bool kiln__sample_next(struct kiln__sample *sample);
