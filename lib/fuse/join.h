/* SPDX-License-Identifier: Apache-2.0 */
/* May a root join a group? Both have to visit the same elements, in one of two ways; all else is
 * asked once for both (join.c). */
#pragma once

#include "fuse/fuse.h"

struct kiln__join {
    struct kiln__fuser *fuser;
    struct kiln__group *group;
    uint32_t number, index; /* of the group, of the root */

    /* What the way says: whether the group is, or becomes, a rows group over these dimensions, and
     * the root has a value for every element of a row. */
    bool rows, full;
    bool columns; /* neighbours in memory are in different rows */
    uint32_t kept;
    uint64_t axes;
    size_t length; /* of a row */

    /* Where the dimensions of what the root visits stand in the group's. */
    uint32_t at[KILN_MAX_RANK];
    struct kiln__reshaped reshaped; /* in another shape than the group's: `at` is straight */

    /* What the root reads. */
    bool possible; /* nothing that is made by a later group, or moved by this one */
    bool direct;   /* a value of the group */
    bool shares;   /* memory that the group loads too, in the same way */
};

/* Whether root and group visit the same elements; says how. */
typedef bool kiln__join_way(struct kiln__join *join);

/* Each element of the root comes with one result of the group (join.c). */
kiln__join_way kiln__fuse_join_results;

/* Root and group go over the same rows, which one or both reduce (join_rows.c). */
kiln__join_way kiln__fuse_join_rows;

/* Of access strides over the group's dimensions: neighbours, or one value for all, along a row, or
 * of columns from one to the next. */
bool kiln__fuse_runs_along_rows(const struct kiln__join *join, const struct kiln__access *access);

/* Whether a value of `shape` is one for each element of the first `kept` of the group's dimensions:
 * it has no others, or of the others 1. */
bool kiln__fuse_is_per_result(const struct kiln__group *group, uint32_t kept,
                              const struct kiln__shape *shape);
