/* SPDX-License-Identifier: Apache-2.0 */
/* A plan in words. */
#pragma once

#include "plan/plan.h"

/* Append every stage to `text`: `recorded` as it was recorded, what rewriting said (`log`), what
 * was fused and why not, groups, memory, steps, kernel text. */
void kiln__explain(const struct kiln__graph *recorded, const struct kiln__text *log,
                   const struct kiln__plan *plan, struct kiln__text *text);

/* A line for each launch, and what the whole takes (explain_summary.c). */
void kiln__explain_summary(const struct kiln__graph *recorded, const struct kiln__plan *plan,
                           struct kiln__text *text);

/* The same as a JSON object, in one line. */
void kiln__explain_json(const struct kiln__graph *recorded, const struct kiln__plan *plan,
                        struct kiln__text *text);

/* One of them, by $KILN_EXPLAIN_AS (`form`), to the file that $KILN_EXPLAIN names; "-" is standard
 * error. The context could write there when it was made: what goes wrong later is logged, and the
 * run goes on. */
void kiln__explain_to(const char *path, const char *variant, const struct kiln__graph *recorded,
                      const struct kiln__text *log, const struct kiln__plan *plan);
