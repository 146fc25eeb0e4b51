/* SPDX-License-Identifier: Apache-2.0 */
/* A run compared with the host: what its results are off, and which operation is to blame.
 *
 * Before anything else the batch runs on copies of its operands with kernels that check every index
 * into memory (those that are generated; files of kernels/ are not checked), so that a kernel with
 * wrong ones takes nobody down.
 *
 * Then two comparisons. First every requested result, by the bounds that errors of all operations
 * before it add up to. Then the operations one by one: the graph runs a second time with every
 * value asked for, and the host evaluates each operation from what the device has for its operands,
 * so that nothing but its own error counts. */
#pragma once

#include "debug/intermediates.h"

/* If this run of the batch is one to compare (else `inputs` stays empty): take the inputs' content,
 * and run the batch on copies with kernels that check their indices; waits for the queue. `call` is
 * for the sentence, which tells node i by its number numbers[i]; NULL: by its own.
 * Errors: OUT_OF_HOST_MEMORY, DEVICE_ERROR; WRONG_RESULT for an index outside its memory, after
 * which the batch itself must not run. */
kiln_status kiln__validate_begin(struct kiln__inputs *inputs, const kiln_batch *batch,
                                 const uint32_t *numbers, const char *call,
                                 struct kiln__error *error);

/* Compare, after the run has been enqueued, and free. Waits for the run. `call` is for the
 * sentence. Errors: WRONG_RESULT, OUT_OF_HOST_MEMORY, DEVICE_ERROR, BUILD_FAILED. */
kiln_status kiln__validate_end(struct kiln__inputs *inputs, const kiln_batch *batch,
                               const char *call, struct kiln__error *error);
