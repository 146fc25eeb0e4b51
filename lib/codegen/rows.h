/* SPDX-License-Identifier: Apache-2.0 */
/* What the two shapes of rows kernels share. Names in their texts beside those of emit.h: p is the
 * row, h<k> access k at its start, b<k> at reduced element `r` and g<k> store k there; r<i> is the
 * row's value of step i, t<i> a REDUCED step's total on the way and a<i>_<u> vectors that go into
 * it; m<k>_<u> is vector u of access k, loaded once for all phases. */
#ifndef KILN_CODEGEN_ROWS_H
#define KILN_CODEGEN_ROWS_H

#include "codegen/emit.h"
#include "fuse/rows.h"

struct kiln__rows_emit {
    const struct kiln__emit *emit;
    struct kiln__rows rows;
    unsigned phase;
    bool needed[KILN__MOST_ROWS_STEPS]; /* by the phase */
    struct {
        bool held; /* between phases */
        unsigned from;
    } access[KILN__MOST_ACCESSES];
    unsigned slot; /* of held vectors, the one at hand */
};

/* Turn to a phase. */
void kiln__rows_turn(struct kiln__rows_emit *rows, unsigned phase);

/* Hold what several phases load, from the first of them on. */
void kiln__rows_hold(struct kiln__rows_emit *rows);

/* Declare m<k>_<u>. */
void kiln__rows_held(const struct kiln__rows_emit *rows, const char *indent);

/* The kernel's head; `parameter` is chunk or lanes. */
void kiln__rows_signature(const struct kiln__rows_emit *rows, const char *parameter);

/* Whether step i is a reduction of this phase. */
bool kiln__rows_reduces(const struct kiln__rows_emit *rows, size_t i);

/* Declare h<k>. */
void kiln__rows_bases(const struct kiln__rows_emit *rows, const char *indent);

/* Declare b<k> and g<k> of what the phase loads and stores, at reduced element `r`. */
void kiln__rows_reduced_bases(const struct kiln__rows_emit *rows, const char *indent,
                              const char *r);

/* Declare r<i> of the steps that the phases before this one make possible. */
void kiln__rows_values(const struct kiln__rows_emit *rows, const char *indent);

/* An accumulator's number that stands for the total. */
#define KILN__ROWS_TOTAL 9

/* Declare t<i>, and a<i>_0 to a<i>_<unroll - 1>, of the phase's reductions. */
void kiln__rows_totals(const struct kiln__rows_emit *rows, const char *indent);
void kiln__rows_accumulators(const struct kiln__rows_emit *rows, const char *indent,
                             unsigned unroll);

/* The phase's work on `width` elements at `at` from `r` on, into accumulators `u`, or, one by one,
 * into the totals. */
void kiln__rows_element(const struct kiln__rows_emit *rows, const char *indent, unsigned u,
                        unsigned width, const char *at);

/* Accumulators into the totals. */
void kiln__rows_fold(const struct kiln__rows_emit *rows, const char *indent, unsigned unroll);

/* Take text `from` into text `into`, both scalars of reduction i. */
void kiln__rows_merge(const struct kiln__rows_emit *rows, const char *indent, size_t i,
                      const char *into, const char *from);

/* Declare r<i> of the phase's reductions from the totals. */
void kiln__rows_finish(const struct kiln__rows_emit *rows, const char *indent);

/* Store what there is one of per row. */
void kiln__rows_store(const struct kiln__rows_emit *rows);

/* How many vectors side by side suit the phase. */
unsigned kiln__rows_unroll(const struct kiln__rows_emit *rows);

/* The accumulator type of reduction i. */
kiln_type kiln__rows_type(const struct kiln__rows_emit *rows, size_t i);

#endif
