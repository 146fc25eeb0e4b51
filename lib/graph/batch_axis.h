/* SPDX-License-Identifier: Apache-2.0 */
/* Batch-axis propagation: which elements of its operands a part of a value is made from: where a
 * dimension is cut into equal blocks, called rows here, each row of a value may be made from the
 * same row of an operand along one of that one's dimensions, from all of the operand, or in another
 * way. */
#pragma once

#include "graph/graph.h"

#define KILN__BATCH_AXIS_ALL (-1)   /* any row is made from all of the operand */
#define KILN__BATCH_AXIS_NEVER (-2) /* from parts of it that are not its rows */

/* Whether dimension `dim` is there and is `rows` equal blocks, none of them empty. */
bool kiln__batch_axis_has(const struct kiln__shape *shape, uint32_t dim, size_t rows);

/* Whether rows along it lie one after the other in memory. */
bool kiln__batch_axis_is_outermost(const struct kiln__shape *shape, uint32_t dim);

/* The dimension of operand `k` that rows along dimension `dim` of the node go with, or one of the
 * above. */
int kiln__batch_axis(const struct kiln__graph *graph, uint32_t index, unsigned k, uint32_t dim,
                     size_t rows);

/* Sums whose addends can be added up a few rows at a time: reductions, products, scatters. One goes
 * along 1 + a dimension (of a reduction's operand, a scatter's indices; a product has but one)
 * where `rows_of` says, bit by bit for each node, along which of its dimensions there are rows; 0:
 * it is no such sum. */
unsigned kiln__batch_axis_sum(const struct kiln__graph *graph, uint32_t index,
                              const uint8_t *rows_of);

/* The dimension of operand `k` that such a sum goes along; KILN__BATCH_AXIS_ALL of what it is added
 * to.
 */
int kiln__batch_axis_summed(const struct kiln__graph *graph, uint32_t index, unsigned k,
                            unsigned sum);
