/* SPDX-License-Identifier: Apache-2.0 */
/* How far a device may be from the reference: an error bound for every element of every node,
 * carried from operands to results. Each operation adds what its row allows; sums and products add
 * gamma_n * sum |a||b|, gamma_n = n u / (1 - n u), u = 2^-24 (Higham 2002, section 3.1). All that
 * is computed is computed in f32; types that are only stored round when they are cast to. */
#pragma once

#include "reference/reference.h"

struct kiln__bounds {
    double **errors; /* per node that the reference has: INFINITY where nothing can be said */
    size_t count;
};

/* Bounds of every value of `reference`. `denormal`: what a device that flushes denormals adds,
 * else 0. False without memory. */
bool kiln__bounds_make(const struct kiln__graph *graph, const struct kiln__reference *reference,
                       double denormal, struct kiln__bounds *bounds);
void kiln__bounds_free(struct kiln__bounds *bounds);

/* Bounds of the elements of one node whose operands are exactly the values of `given`, as are its
 * own, except where `unknown` (per node, NULL: nowhere) has INFINITY instead of 0. `result` has
 * room for them. False without memory. */
bool kiln__bounds_node(const struct kiln__graph *graph, uint32_t index,
                       const struct kiln__reference *given, double *const *unknown, double denormal,
                       double *result);

/* Whether a device's element of `type` may be `found`; both values as in ops.h. */
bool kiln__bounds_allow(kiln_type type, double wanted, double error, double found);
