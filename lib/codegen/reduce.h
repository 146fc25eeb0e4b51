/* SPDX-License-Identifier: Apache-2.0 */
/* What the two shapes of reduction kernels share. In their texts a<u> is accumulator u and j<u> the
 * position that goes with it; h<k> is access k at the current result. */
#ifndef KILN_CODEGEN_REDUCE_H
#define KILN_CODEGEN_REDUCE_H

#include "codegen/emit.h"

/* No element has been chosen yet: loses every tie. */
#define KILN__NO_POSITION "INT_MAX"

/* The scalar accumulator of a result, beside vectors a0 to a3. */
#define KILN__TOTAL 9
#define KILN__TOTAL_VALUE "a9"
#define KILN__TOTAL_POSITION "j9"

const struct kiln__reduce_row *kiln__emit_row(const struct kiln__emit *emit);
kiln_type kiln__emit_accumulator(const struct kiln__emit *emit);

/* The kernel's head; `parameter` is chunk or lanes. */
void kiln__emit_reduce_signature(const struct kiln__emit *emit, const char *parameter);

/* Declare accumulators `first` to `first + count - 1`, `width` elements each, at their start. */
void kiln__emit_accumulators(const struct kiln__emit *emit, const char *indent, unsigned first,
                             unsigned count, unsigned width);

/* Declare h<k> for each access, at result `p`; up to dimension `end` of the kept ones. */
void kiln__emit_result_bases(const struct kiln__emit *emit, const char *indent, const char *p);

/* Declare b<k> for each access that is reduced, at reduced element `r`. */
void kiln__emit_reduced_bases(const struct kiln__emit *emit, const char *indent, const char *r);

/* Take accumulator `from` (any text, with its position text) into `into`; both are scalars. */
void kiln__emit_merge(const struct kiln__emit *emit, const char *indent, const char *into,
                      const char *into_position, const char *from, const char *from_position);

/* Finish accumulator text `a` and position `j`: the epilogue's steps and the stores at `at`. */
void kiln__emit_finish(const struct kiln__emit *emit, const char *indent, unsigned width,
                       const char *a, const char *j, const char *place, const char *at);

/* Whether an element takes so few steps that memory is what it waits for. */
bool kiln__emit_is_short(const struct kiln__emit *emit);

/* How many vector accumulators: independent ones hide the latency of adding, and long bodies have
 * enough to do. */
unsigned kiln__emit_unroll(const struct kiln__emit *emit);

/* The steps for `width` elements at `at` along the vector, into accumulator `u`. */
void kiln__emit_element(const struct kiln__emit *emit, const char *indent, unsigned u,
                        unsigned width, const char *at, const char *position);

/* The positions of the lanes of a vector that starts at reduced element `from`, as text. */
void kiln__emit_positions(char *text, size_t size, const char *from, unsigned width);

/* Vector accumulators a0 to a<unroll - 1> into the total. */
void kiln__emit_fold(const struct kiln__emit *emit, const char *indent, unsigned unroll);

/* Where every element is the accumulator's start, the first one is chosen. */
void kiln__emit_default_position(const struct kiln__emit *emit, const char *indent);

#endif
