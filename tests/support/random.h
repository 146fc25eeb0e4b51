/* SPDX-License-Identifier: Apache-2.0 */
/* Random batches: small graphs of every kind of operation over small tensors. */
#pragma once

#include <stdbool.h>

#include <kiln/kiln.h>

/* Record the batch of a seed, and ask for some of its results. The same numbers record the same
 * batch on every machine; other sizes, mostly the same operations. Values stay moderate, so that
 * most results have a bound. */
void random_record(kiln_batch *batch, uint64_t seed, uint64_t sizes, size_t operations);

/* Which batches: `count` seeds from `first` on, each with `variants` sizes. */
struct random_range {
    uint64_t first, count, variants;
    uint64_t base; /* of the seeds, beyond $KILN_RANDOM_SEED */
    size_t operations;
    uint64_t validate_each; /* every so many seeds one with a gradient and an update, in validation
                               mode; 0: none */
};

/* Record, run and compare. Fails the test, naming the seeds that went wrong, with a program that
 * shows it on standard error, and stops after a few. */
bool random_check(const struct random_range *range);
