/* SPDX-License-Identifier: Apache-2.0 */
/* Batches whose kernels are all different, and a cold cache for them. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include <kiln/kiln.h>

enum { COLD_ELEMENTS = 4096 };

/* Batch `number`, of one kernel, from x to y. Two numbers below 64 share no kernel. */
kiln_batch *cold_batch(kiln_context *context, unsigned number, const float *x, float *y);

/* New empty folders for kiln's cache and the driver's, in the environment. Below $TMPDIR. */
void cold_folders(void);

/* Entries in kiln's cache. */
unsigned cold_entries(void);

/* Wait until there are `count`, for half a minute at most. */
bool cold_await(unsigned count);

double cold_seconds(void);

/* This program once more, with one argument, whose standard output is `output`; -1 and errno. */
pid_t cold_spawn(const char *program, const char *argument, int output);
