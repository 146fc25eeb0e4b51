/* SPDX-License-Identifier: Apache-2.0 */
/* The least time that a row could take: bandwidth and arithmetic of the device, measured in the
 * same run by kernels that do nothing else, and on a CPU by plain C, too; the better one counts.
 * What a row is quicker than was measured while something else ran, and is measured again. */
#pragma once

#include "bench.h"

/* The time that no program could be below, and what for. */
struct limit {
    double seconds; /* 0: not known */
    const char *of; /* "memory" or "arithmetic" */
};

/* Of a row that moves `bytes`, all of them once, and works `flops` (0: arithmetic is no limit).
 * Memory is measured with that many bytes, so that what fits into a cache has the cache's
 * bandwidth. `quickest`: what the row has taken, INFINITY if that is not known. Where this is more
 * than a twentieth below the limit, what limits it is measured once more, and the better counts. */
struct limit limit_of(kiln_context *context, double flops, double bytes, double quickest);

/* Says both, memory of a gigabyte. */
void limit_print(kiln_context *context);
