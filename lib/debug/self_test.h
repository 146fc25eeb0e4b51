/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that a context's device has to prove right (plan/plan.h) before its plans use them: each
 * computes products whose sums are known exactly, in an OpenCL context of its own, which a fault
 * ends instead of the caller's. */
#ifndef KILN_DEBUG_SELF_TEST_H
#define KILN_DEBUG_SELF_TEST_H

#include "plan/plan.h"
#include "runtime/runtime.h"

/* NULL without memory. It lives as long as the runtime. */
struct kiln__prover *kiln__prover_create(struct kiln__runtime *runtime);
void kiln__prover_destroy(struct kiln__prover *prover);

#endif
