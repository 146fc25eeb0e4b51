/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of a recording, counted. A public function that records begins with KILN__CALL(batch);
 * those that it calls in turn are part of it. Errors meanwhile say "kiln_add, call 57". */
#pragma once

#include "record/batch.h"

/* `batch` may be NULL. `function` is static. */
kiln_batch *kiln__call_begin(kiln_batch *batch, const char *function);
void kiln__call_end(kiln_batch **batch);

#define KILN__CALL(batch)                                                                          \
    kiln_batch *kiln__called __attribute__((cleanup(kiln__call_end), unused)) =                    \
        kiln__call_begin(batch, __func__)

/* Each result of the call that is being recorded has a name for itself. */
void kiln__call_unnamed(kiln_batch *batch);

/* What is recorded from now on is called "`what` NAME" after a node; where that has no name, as in
 * `scope`. */
void kiln__call_for(kiln_batch *batch, const char *what, uint32_t node, uint32_t scope);
