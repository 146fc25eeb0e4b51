/* SPDX-License-Identifier: Apache-2.0 */
/* Times in steps of 1/16: sixteen between a power of two nanoseconds and the next. */
#pragma once

#include <stdint.h>

#include <kiln/executor.h>

enum { KILN__STEPS = 16 * 44 }; /* up to 39 hours; what is longer counts in the last */

struct kiln__histogram {
    uint64_t count, most;
    unsigned last; /* no later step has been counted in */
    double sum;
    uint64_t steps[KILN__STEPS];
};

void kiln__histogram_add(struct kiln__histogram *histogram, int64_t nanoseconds);

/* Move all that one has counted to another. */
void kiln__histogram_move(struct kiln__histogram *from, struct kiln__histogram *to);
kiln_latency kiln__histogram_read(const struct kiln__histogram *histogram);
