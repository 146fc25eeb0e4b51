/* SPDX-License-Identifier: Apache-2.0 */
/* Rows groups: several reductions over the same rows, and maps between and after them, in one
 * kernel. A row's elements are visited once per phase. A phase computes what its reductions and
 * stores need, element by element, and ends in the values of its reductions, which later phases
 * use; what depends on such values alone is computed once per row, between phases. */
#ifndef KILN_FUSE_ROWS_H
#define KILN_FUSE_ROWS_H

#include "fuse/group.h"

#define KILN__MOST_ROWS_STEPS KILN__MOST_STEPS

/* What the steps of a rows group are, by their number. */
struct kiln__rows {
    unsigned phases;
    /* For every element of a row, not once per row. */
    bool full[KILN__MOST_ROWS_STEPS];
    /* The phase in which a full step can be computed and a REDUCED step adds up; for other steps,
     * how many phases have to be over before. */
    uint8_t phase[KILN__MOST_ROWS_STEPS];
    /* 1 + the store whose memory keeps a costly value from its first phase to later ones; 0: it is
     * computed again. */
    uint8_t keeper[KILN__MOST_ROWS_STEPS];
};
/* Without `keeps` nothing is kept: where functions are cheap and memory is not. */
void kiln__rows_of(const struct kiln__group *group, bool keeps, struct kiln__rows *rows);

/* The phase in which a full store is written. */
unsigned kiln__rows_store_phase(const struct kiln__group *group, const struct kiln__rows *rows,
                                size_t store);

/* Mark the steps that `phase` computes, loads from their keepers or uses, element by element. */
void kiln__rows_needs(const struct kiln__group *group, const struct kiln__rows *rows,
                      unsigned phase, bool needed[KILN__MOST_ROWS_STEPS]);

#endif
