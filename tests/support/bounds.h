/* SPDX-License-Identifier: Apache-2.0 */
/* How far a device may be from the reference: an error bound for every element of every node,
 * carried from operands to results. Each operation adds what its row allows; sums and products add
 * gamma_n * sum |a||b|, gamma_n = n u / (1 - n u), u = 2^-24. */
#ifndef KILN_TESTS_SUPPORT_BOUNDS_H
#define KILN_TESTS_SUPPORT_BOUNDS_H

#include "graph/reference.h"

struct bounds {
    double **errors; /* per node that the reference has: INFINITY where nothing can be said */
    size_t count;
    double denormal; /* what a device that flushes denormals adds; else 0 */
};

/* The distance of floats at `value`. */
double float_ulp(double value);

/* Fails the test without memory. */
void bounds_make(const struct kiln__graph *graph, const struct kiln__reference *reference,
                 double denormal, struct bounds *bounds);
void bounds_free(struct bounds *bounds);

/* Whether a device's element may be `found`. */
bool within_bound(double wanted, double error, double found);

#endif
