/* SPDX-License-Identifier: Apache-2.0 */
/* What the loops of a generated kernel go around: bases, values, totals and the body for some
 * elements.
 *
 * Names in the text beside those of emit.h: p is the kept element, r the reduced one; h<k> is
 * access k at p, b<k> at p and r; g<k> is store k there, z<k> one with strides at p. v<i> is the
 * value of step i (w<i> in a second vector beside the first; A<i>, B<i>, ... in those of a lane),
 * r<i> the row's. t<i> is a REDUCED or SCANNED step's total on the way, t<i>_<u> what goes into it;
 * j<i> and j<i>_<u> are positions that go with them. m<k>_<u> is vector u of access k, loaded once
 * for all phases, k<i>_<u> the value of step i there, which costs too much to be computed again. */
#pragma once

#include "codegen/emit.h"
#include "fuse/loop_nest.h"

struct kiln__body {
    const struct kiln__emit *emit;
    const struct kiln__group *group;
    const struct kiln__variant *variant;
    struct kiln__code *code;
    struct kiln__nest nest;
    unsigned phase;
    bool needed[KILN__MOST_STEPS]; /* by the phase */
    uint32_t held;                 /* accesses whose elements are, for all phases: a bit each */
    struct {
        unsigned step, from; /* the step's number + 1; 0: none */
    } costly;
    unsigned slot; /* of held vectors, the one at hand */
};

/* The elements that the body is for. */
struct kiln__visit {
    unsigned width;
    const char *at;     /* the first one, from the bases on, along the vector */
    const char *number; /* the first one's number along the reduced axis */
    unsigned into;      /* number of the accumulators */
    char letter;        /* of values; 0: v */
    const char *only;   /* NULL, or what must hold for it to count; its place is there anyway */
};

/* In place of accumulators: the totals. */
#define KILN__TOTALS 255

/* A position that no element has: loses every tie. */
#define KILN__NO_POSITION "INT_MAX"

void kiln__body_begin(struct kiln__body *body, const struct kiln__emit *emit);

/* Turn to a phase; the one behind the last is for what comes after them all. */
void kiln__body_enter_phase(struct kiln__body *body, unsigned phase);

/* Declare h<k> and z<k>, at dimensions 0 to `end` of the kept ones, whose coordinates are declared.
 */
void kiln__body_bases(const struct kiln__body *body, uint32_t end);

/* Declare b<k> and g<k> of what the phase loads and stores, at reduced element `r`. */
void kiln__body_reduced_bases(const struct kiln__body *body, const char *r);

/* The same where its coordinates are declared. */
void kiln__body_reduced_offsets(const struct kiln__body *body, const char *r);

/* Hold what several phases load, at the places at<u> of the row, and one function that several
 * need; declare m<k>_<u> and k<i>_<u>. */
void kiln__body_cache_loads(struct kiln__body *body);

/* Declare r<i> of the steps that the phases before this one make possible, `width` of them for
 * neighbouring rows, `at` from the bases on. */
void kiln__body_values(const struct kiln__body *body, unsigned width, const char *at);

/* The phase's work on the elements of `count` visits, step by step beside each other. */
void kiln__body_elements(const struct kiln__body *body, const struct kiln__visit *visits,
                         unsigned count);

/* The same for one visit. */
void kiln__body_element(const struct kiln__body *body, unsigned width, const char *at,
                        const char *number, unsigned into);

/* Store what there is one of per row, from row `p` on: totals of a segment, or values. */
void kiln__body_store(struct kiln__body *body, unsigned width, const char *p, const char *at);

/* ---- totals (totals.c) ---- */

/* Step i, if it is a reduction of the phase, or the next one that is; the number of steps if none
 * is left. */
unsigned kiln__body_reduction(const struct kiln__body *body, unsigned i);
#define KILN__EACH_REDUCTION(i, body)                                                              \
    unsigned i = kiln__body_reduction(body, 0);                                                    \
    i < (body)->group->steps.count;                                                                \
    i = kiln__body_reduction(body, i + 1)

/* How many vectors side by side suit the phase. */
unsigned kiln__body_unroll(const struct kiln__body *body);

/* A line for each total of the phase, made from a pattern: `@` is its name, t<i> or j<i>, `$` its
 * type, `width` wide, and `!` what it starts at. */
void kiln__body_totals(const struct kiln__body *body, unsigned width, const char *pattern);
/* The same for the running sums that it carries. */
void kiln__body_sums(const struct kiln__body *body, unsigned width, const char *pattern);
#define KILN__START "$ @ = ($)(!)"

/* Declare t<i>_0 to t<i>_<count - 1>, and j, at their start. */
void kiln__body_accumulators(const struct kiln__body *body, unsigned count);

/* A visit's value of step i as one of an accumulator's type. */
struct kiln__phrase kiln__body_summand(const struct kiln__body *body, unsigned i,
                                       const struct kiln__visit *visit, kiln_type type);

/* A visit's value of reduction i into its accumulator or total. */
void kiln__body_accumulate(const struct kiln__body *body, unsigned i,
                           const struct kiln__visit *visit);

/* Whether the phase adds up floats. */
bool kiln__body_adds(const struct kiln__body *body);

/* Declare t<i>_sum, and t<i>_lost, which rounding has taken from it. */
void kiln__body_long_totals(const struct kiln__body *body, unsigned width);
/* The first `count` accumulators, or, with 0, the totals, into t<i>_sum; they start again. And
 * t<i>_sum into the first accumulator or the totals. */
void kiln__body_export_sums(const struct kiln__body *body, unsigned width, unsigned count);
void kiln__body_import_sums(const struct kiln__body *body, unsigned width, unsigned count);
/* How many visits an accumulator adds up before that goes on: the error of a sum of many floats
 * grows with this, not with their number. */
#define KILN__IN_ONE 32

/* The first `count` accumulators into the totals. */
void kiln__body_fold(const struct kiln__body *body, unsigned count);

/* Take scalars into others, each called by a pattern such as "scratch_@[item]". */
void kiln__body_merge(const struct kiln__body *body, const char *into, const char *from);

/* A pattern: the total of segment `s` at p. */
const char *kiln__body_partial(const struct kiln__body *body);

/* Declare r<i> of the phase's reductions from the totals, which are `width` wide; those of a
 * segment are only made whole. */
void kiln__body_finish(const struct kiln__body *body, unsigned width);

/* Store the totals of a segment, those of neighbouring rows beside each other. */
void kiln__body_store_totals(const struct kiln__body *body, unsigned width, const char *p);

/* ---- running sums (scan.c) ---- */

/* Step i, if it is a running sum that the phase carries along, or the next one that is; and whether
 * there is any. */
unsigned kiln__body_scan(const struct kiln__body *body, unsigned i);
bool kiln__body_has_scan(const struct kiln__body *body);

/* Where the phase's `width` elements `at` of `count` are: sums may go from the last one on. */
struct kiln__phrase kiln__body_scan_position(const struct kiln__body *body, const char *at,
                                             unsigned width, const char *count);

/* Declare the values of SCANNED step i at the visits, which lie side by side. */
void kiln__body_scanned(const struct kiln__body *body, unsigned i, const struct kiln__visit *visits,
                        unsigned count);

/* What the segments before this one come to, into the totals. */
void kiln__body_segments(const struct kiln__body *body);

/* A row that lanes share: pieces one after the other, of which each lane has a few neighbours. And
 * the local memory that these take. */
void kiln__body_lane_chunks(const struct kiln__body *body);
void kiln__body_lanes_memory(const struct kiln__body *body);

/* How many items share a row, where they exchange values. */
unsigned kiln__body_shuffled(const struct kiln__body *body);

/* Of how many items or groups of them each keeps a value in local memory for the others: 0 where
 * all that share a row exchange values. */
unsigned kiln__body_shared(const struct kiln__body *body);
