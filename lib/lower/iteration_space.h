/* SPDX-License-Identifier: Apache-2.0 */
/* The space that a generated kernel visits: a group's dimensions after merging neighbours that
 * every access walks as one run. Few dimensions make short texts, and one text serves many shapes.
 */
#pragma once

#include "plan/launch.h"

struct kiln__space {
    /* Reduce: the first `kept` dimensions are kept; map: all are; matmul: all but the columns are,
     * and accesses of operands have no strides. */
    uint32_t rank, kept;
    size_t dims[KILN_MAX_RANK];
    int64_t stride[KILN__MOST_ACCESSES + 1][KILN_MAX_RANK]; /* per access; after them those of
                                                               stores, if these have any: */
    bool placed; /* a placed one, or whole rows whose dimensions are not a value's last */
    size_t kept_count, reduced_count; /* elements */
};

void kiln__space_of(const struct kiln__group *group, struct kiln__space *space);

/* Whether every index that the space can reach, in any access, fits 31 bits. */
bool kiln__space_is_narrow(const struct kiln__group *group, const struct kiln__space *space);

/* Along which way access `i` lies in dimension `d`. */
enum kiln__vector_access kiln__space_vector_access(const struct kiln__space *space, size_t i,
                                                   uint32_t d);

/* The strides by which a product's kernel finds elements of an operand's access: of the matrices,
 * of their lines, which are rows of the first and columns of the second operand, and along a line.
 */
enum { KILN__BY_BATCH, KILN__BY_LINE, KILN__BY_DEPTH, KILN__LINE_STRIDES };
void kiln__operand_strides(const struct kiln__group *group, size_t access,
                           int64_t strides[KILN__LINE_STRIDES]);
