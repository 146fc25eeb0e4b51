/* SPDX-License-Identifier: Apache-2.0 */
/* A run of a plan, looked at as the context asks: for NaN before it, and beside the host. */
#pragma once

#include "record/batch.h"

/* Run the batch's graph by its lease. It keeps the run as its latest one, also where the host finds
 * it wrong. Sentences tell node i by its number numbers[i]; NULL: by its own. Errors: those of
 * kiln__nan_check(), kiln__validate_begin() and _end(), kiln__commands_run(). */
kiln_status kiln__checked_run(kiln_batch *batch, struct kiln__stream *stream,
                              const uint32_t *numbers, const char *call, struct kiln__error *error);
