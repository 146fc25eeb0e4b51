/* SPDX-License-Identifier: Apache-2.0 */
/* Random batches: small graphs of every kind of operation over small tensors. */
#ifndef KILN_TESTS_SUPPORT_RANDOM_H
#define KILN_TESTS_SUPPORT_RANDOM_H

#include <kiln/kiln.h>

/* Record the batch of a seed, and ask for some of its results. The same seed records the same batch
 * on every machine. Values stay moderate, so that most results have a bound. */
void random_record(kiln_batch *batch, uint64_t seed, size_t operations);

/* Record, run and compare the batches of `count` seeds from `first` on. Fails the test, naming the
 * seeds that went wrong, and stops after a few. */
void random_check(uint64_t first, uint64_t count, size_t operations);

#endif
