/* SPDX-License-Identifier: Apache-2.0 */
/* The plans of a context, found by the structure of a batch: a batch that looks like an earlier one
 * is not planned again. */
#ifndef KILN_SESSION_PLANS_H
#define KILN_SESSION_PLANS_H

#include "record/batch.h"
#include "runtime/ready.h"

struct kiln__plans; /* safe to use from many threads */

/* NULL without memory. */
struct kiln__plans *kiln__plans_create(struct kiln__runtime *runtime, const char *matmul);
void kiln__plans_destroy(struct kiln__plans *plans);

/* Find or make the plan of `graph`, and kernels of its own for the borrower; `checked`: kernels
 * that look at every index. Errors: OUT_OF_HOST_MEMORY, BUILD_FAILED, DEVICE_ERROR. */
kiln_status kiln__plans_borrow(struct kiln__plans *plans, const struct kiln__graph *graph,
                               bool checked, struct kiln__loan *loan, struct kiln__error *error);

/* The same; its programs are compiled side by side and stored first, see kiln__prepare(). */
kiln_status kiln__plans_prepare(struct kiln__plans *plans, const struct kiln__graph *graph,
                                unsigned threads, struct kiln__loan *loan,
                                struct kiln__error *error);
void kiln__plans_return(struct kiln__plans *plans, struct kiln__loan *loan);

/* Append an explanation of `graph` to `text`. Errors: OUT_OF_HOST_MEMORY. */
kiln_status kiln__plans_explain(struct kiln__plans *plans, const struct kiln__graph *graph,
                                struct kiln__text *text, struct kiln__error *error);

#endif
