/* SPDX-License-Identifier: Apache-2.0 */
/* The programs of a plan, before it is made ready. */
#ifndef KILN_RUNTIME_PREPARE_H
#define KILN_RUNTIME_PREPARE_H

#include "plan/plan.h"
#include "runtime/runtime.h"

/* Have the programs of `plan` compiled side by side on `threads` threads (0: as many as there are
 * cores) and stored. What does not work is left to whoever makes the plan ready.
 * Errors: OUT_OF_HOST_MEMORY. */
kiln_status kiln__prepare(struct kiln__runtime *runtime, const struct kiln__plan *plan,
                          unsigned threads, struct kiln__error *error);

#endif
