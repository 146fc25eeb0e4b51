/* SPDX-License-Identifier: Apache-2.0 */
/* What a process of bench/start computes first. */
#pragma once

#include "bench.h"

/* A training step of a transformer's block, whose loss is read into `loss`. */
kiln_batch *start_block(kiln_context *context, float *loss);
