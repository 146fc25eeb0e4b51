/* SPDX-License-Identifier: Apache-2.0 */
/* Who made the first NaN: before a run the batch runs on copies of its inputs with every value
 * asked for (intermediates.h). The first operation is named that makes a NaN of operands without
 * one, an infinity of finite operands, or that has an index out of range. What does not leave the
 * call that recorded it (as where a call itself chooses another value in its place) is nobody's
 * business. */
#pragma once

#include "session/context.h"

/* Whether this run of the batch is one to look at. */
bool kiln__nan_check_wanted(const kiln_batch *batch);

/* The batch itself must not run after an error, so that its buffers keep what they have. Sentences
 * tell node i by its number numbers[i]; NULL: by its own. Nothing is done where the device cannot
 * hold every value at once. Errors: BAD_VALUE; OUT_OF_HOST_MEMORY, DEVICE_ERROR. */
kiln_status kiln__nan_check(const kiln_batch *batch, const uint32_t *numbers, const char *call,
                            struct kiln__error *error);
