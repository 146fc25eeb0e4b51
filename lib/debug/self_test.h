/* SPDX-License-Identifier: Apache-2.0 */
/* Self-tests that kernels have to pass on a context's device (plan/plan.h) before its plans use
 * them: each computes products whose sums are known exactly, in an OpenCL context of its own, which
 * a fault ends instead of the caller's. */
#pragma once

#include "plan/plan.h"
#include "runtime/runtime.h"

/* NULL without memory. It lives as long as the runtime. */
struct kiln__self_tester *kiln__self_tester_create(struct kiln__runtime *runtime);
void kiln__self_tester_destroy(struct kiln__self_tester *self_tester);
