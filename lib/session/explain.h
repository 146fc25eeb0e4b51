/* SPDX-License-Identifier: Apache-2.0 */
/* A plan in words. */
#ifndef KILN_SESSION_EXPLAIN_H
#define KILN_SESSION_EXPLAIN_H

#include "plan/plan.h"

/* Append every stage to `text`: `recorded` as it was recorded, what the passes said, what was fused
 * and why not, groups, memory, steps, kernel text. */
void kiln__explain(const struct kiln__graph *recorded, const struct kiln__text *passes,
                   const struct kiln__plan *plan, struct kiln__text *text);

#endif
