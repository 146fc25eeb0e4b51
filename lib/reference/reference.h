/* SPDX-License-Identifier: Apache-2.0 */
/* The graph evaluated on the host in double precision: what devices are checked against. Plain
 * loops, no fusion, nothing shared with code generation. */
#pragma once

#include "graph/graph.h"

struct kiln__reference {
    double **values; /* per node: its elements, values as in ops.h; or NULL: not needed */
    size_t count;
};

/* Evaluate every node that a request needs. `inputs[binding]` is the content of an upload or
 * import. Values of integer type are exact, and wrap around. False without memory. */
bool kiln__reference_run(const struct kiln__graph *graph, const void *const *inputs,
                         struct kiln__reference *reference);

/* Evaluate one node from the values of its operands in `given`; `result` has room for its elements.
 * False without memory. */
bool kiln__reference_node(const struct kiln__graph *graph, uint32_t index,
                          const void *const *inputs, const struct kiln__reference *given,
                          double *result);
void kiln__reference_free(struct kiln__reference *reference);

/* Of a gather: the number of the element of the data that element `number` of the result is, or
 * SIZE_MAX where its index is none. Of a scatter: where value `number` goes in the result. `values`
 * are those of the indices. */
size_t kiln__gathered_number(const struct kiln__node *node, const struct kiln__shape *data,
                             const struct kiln__shape *indices, const double *values,
                             size_t number);

/* The number of the result that the element at `index` of an operand of shape `shape` is reduced
 * into; *place: its place among those that are. */
size_t kiln__reduced_number(const struct kiln__node *node, const struct kiln__shape *shape,
                            const size_t *index, size_t *place);
