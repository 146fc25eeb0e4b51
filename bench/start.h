/* SPDX-License-Identifier: Apache-2.0 */
/* What a process of bench/start computes first. */
#ifndef KILN_BENCH_START_H
#define KILN_BENCH_START_H

#include "bench.h"

/* A training step of a transformer's block, whose loss is read into `loss`. */
kiln_batch *start_block(kiln_context *context, float *loss);

#endif
