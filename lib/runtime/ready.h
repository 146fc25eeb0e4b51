/* SPDX-License-Identifier: Apache-2.0 */
/* A plan made ready to run: its kernels with their constant arguments set. Running it again sets
 * only the memory arguments that changed. */
#ifndef KILN_RUNTIME_READY_H
#define KILN_RUNTIME_READY_H

#include "plan/plan.h"
#include "runtime/bindings.h"
#include "runtime/runtime.h"

struct kiln__ready; /* used by one thread at a time */

/* Look up or compile the programs of `plan`, which must outlive it; `checked`: those that look at
 * every index (codegen/codegen.h).
 * Errors: BUILD_FAILED, DEVICE_ERROR, OUT_OF_HOST_MEMORY. */
kiln_status kiln__ready_create(struct kiln__runtime *runtime, const struct kiln__plan *plan,
                               bool checked, struct kiln__ready **made, struct kiln__error *error);
void kiln__ready_destroy(struct kiln__ready *ready);

/* Forget the memory of the last run: a set of kernels that waits pins none. */
void kiln__ready_rest(struct kiln__ready *ready);

/* After a checked run has ended: whether a kernel used an index outside its memory. `call` is for
 * the sentence. Errors: WRONG_RESULT, DEVICE_ERROR. */
kiln_status kiln__ready_judge(struct kiln__ready *ready, const char *call,
                              struct kiln__error *error);

/* "kernel 3 (kiln_map: neg, square)". */
void kiln__ready_name_launch(const struct kiln__plan *plan, uint32_t launch,
                             struct kiln__text *text);

/* Enqueue everything; *run is the caller's. After an error it is NULL, and nothing is left running
 * that uses the caller's memory. Errors: OUT_OF_DEVICE_MEMORY, DEVICE_ERROR, FORKED. */
kiln_status kiln__ready_run(struct kiln__ready *ready, struct kiln__bindings *bindings,
                            struct kiln__run **run, struct kiln__error *error);

#endif
