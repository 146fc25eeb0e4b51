/* SPDX-License-Identifier: Apache-2.0 */
/* Where the elements of a node are found: a base in memory, and strides through its movements, and
 * through casts from the type that the base is stored in to the one that loads make of it. */
#pragma once

#include "graph/graph.h"

struct kiln__layout {
    bool known;                    /* false: computed in registers, or no strides can say it */
    uint32_t base;                 /* node whose memory is read, or an iota */
    int64_t offset;                /* in elements, as the strides */
    int64_t stride[KILN_MAX_RANK]; /* per dimension of the node */
};

/* The layout of node `index`, given those of its inputs in `layouts`; `in_memory` if it is
 * materialised itself. */
struct kiln__layout kiln__layout_of(const struct kiln__graph *graph, uint32_t index,
                                    const struct kiln__layout *layouts, bool in_memory);

/* Whether a matrix product can read this layout in place: one of the last two dimensions is
 * contiguous and the leading ones are one run. */
bool kiln__layout_suits_matmul(const struct kiln__layout *layout, const struct kiln__shape *shape);

/* Row-major, as the node's own memory would be. */
bool kiln__layout_is_dense(const struct kiln__layout *layout, const struct kiln__shape *shape);

/* Dense, or rows of neighbours that start at multiples of KILN__ROWS_START elements. */
#define KILN__ROWS_START 8
bool kiln__layout_has_rows(const struct kiln__layout *layout, const struct kiln__shape *shape);
