/* SPDX-License-Identifier: Apache-2.0 */
/* Attention, and what its gradient is made of, in double precision: their values, and how far a
 * device may be from them. */
#pragma once

#include "graph/attention_backward.h"

/* Its value in double precision; `values` are those of all nodes. */
void kiln__attention_evaluate(const struct kiln__graph *graph, const struct kiln__node *node,
                              double *const *values, double *result);

/* How far a float computation may be from it: `errors` are bounds of all nodes' errors. False
 * without memory. */
bool kiln__attention_bound(const struct kiln__graph *graph, const struct kiln__node *node,
                           double *const *values, double *const *errors, double denormal,
                           double *result);

/* One matrix of a result in double precision: `inputs` as above, dense. */
void kiln__attention_backward_evaluate_matrix(const struct kiln__node *node,
                                              const struct kiln__attention_size *size,
                                              const double *const inputs[KILN__MOST_INPUTS],
                                              double *result);

/* As kiln__attention_evaluate() and kiln__attention_bound(). */
void kiln__attention_backward_evaluate(const struct kiln__graph *graph,
                                       const struct kiln__node *node, double *const *values,
                                       double *result);
void kiln__attention_backward_bound(const struct kiln__graph *graph, const struct kiln__node *node,
                                    double *const *values, double *const *errors, double denormal,
                                    double *result);
