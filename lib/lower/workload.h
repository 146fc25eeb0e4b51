/* SPDX-License-Identifier: Apache-2.0 */
/* What a kernel does by its kind and its sizes, as a line: "product 513x777x1031 nt". Kernels with
 * the same line are expected to be fastest with the same parameters, whatever else is fused. */
#pragma once

#include "plan/plan.h"

/* Append the group's. Sizes are those after dimensions were merged:
 *
 *   map DIMS, transpose DIMS           elements one by one; read along another dimension
 *   reduce KEPTxREDUCED                results and the elements of each
 *   rows KEPTxREDUCED, scan ...        rows that are visited in phases; running sums
 *   product [BATCHx]MxKxN nn           each operand as it lies: by rows (n) or by columns (t)
 *   attention BATCHxMxNxDxE            queries, keys, columns of keys and of values
 *   scatter DIMS, sort DIMS
 *
 * and behind them "columns" (neighbours are in different rows), "of 2" (rows of so many operands),
 * "windows" (a product's first operand is a copy that it makes), "tf32", "f32x3" or "whole" (how a
 * product adds up, if not as exactly as f32), "causal", "window W" (keys of a row), and what
 * operands are stored as, if not f32. */
void kiln__plan_work(const struct kiln__plan *plan, uint32_t index, struct kiln__text *text);

/* A product's (lower_matmul.c). */
void kiln__matmul_work(const struct kiln__plan *plan, uint32_t index, struct kiln__text *text);

/* Look up the values that a tuning record has for the group's workload: kiln__plan_device() has
 * them from then on. */
void kiln__plan_tune(struct kiln__plan *plan, uint32_t group);
