/* SPDX-License-Identifier: Apache-2.0 */
/* What a group of steps computes, as a loop nest that no device has shaped yet:
 *
 *   for each kept element { values; for each phase { for each reduced one { body } ends; values } }
 *
 * The reduced elements of a kept one are a row. They are visited once per phase. A phase computes
 * what its reductions and stores need, element by element, and ends in the values of its
 * reductions, which later phases use; what depends on such values alone is computed once per row.
 * A phase that needs running sums carries them along: it visits the elements of a row in order. One
 * that needs them again carries them again.
 * A map has no reduced axis: one phase, whose body is visited once. A reduce group has one phase
 * with one reduction.
 *
 * Sums of exp(x - top), where top is the row's largest x, take two phases, and yet one visit does
 * (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018): they are of the
 * largest so far, and scaled by exp(top so far - top now) where that grows. A phase that has only
 * such sums *follows* the one before it: both may go over the row together, block by block. */
#pragma once

#include "fuse/group.h"

/* What the steps are, by their number. */
struct kiln__nest {
    unsigned phases;
    /* Visited for every element of a row, not once per row. */
    bool full[KILN__MOST_STEPS];
    /* The phase in which a full step can be computed and a REDUCED step adds up; for other steps,
     * how many phases have to be over before. */
    uint8_t phase[KILN__MOST_STEPS];
    /* 1 + the store whose memory keeps a costly value from its first phase to later ones; 0: it is
     * computed again. */
    uint8_t keeper[KILN__MOST_STEPS];
    /* 1 + the row's value that a sum's elements are exponentials below; 0: they are none. */
    uint8_t top[KILN__MOST_STEPS];
};

/* Whether a step's value comes from an access. */
bool kiln__step_reads(const struct kiln__step *step);

/* Without `keeps` nothing is kept: where functions are cheap and memory is not. */
void kiln__nest_of(const struct kiln__group *group, bool keeps, struct kiln__nest *nest);

/* The phase in which a full store is written. */
unsigned kiln__nest_store_phase(const struct kiln__group *group, const struct kiln__nest *nest,
                                size_t store);

/* Mark the steps that `phase` computes, loads from their keepers or uses, element by element. */
void kiln__nest_needs(const struct kiln__group *group, const struct kiln__nest *nest,
                      unsigned phase, bool needed[KILN__MOST_STEPS]);

/* Accesses from which elements of rows are loaded, a bit each: by several phases, which may share
 * what one has loaded, or by one alone that is behind the first. */
struct kiln__loads {
    uint32_t shared, behind;
};
struct kiln__loads kiln__nest_loads(const struct kiln__group *group, const struct kiln__nest *nest);

/* Whether a phase follows the one before it. */
bool kiln__nest_is_online(const struct kiln__group *group, const struct kiln__nest *nest,
                          unsigned phase);
