/* SPDX-License-Identifier: Apache-2.0 */
/* A phase and the one that follows it (fuse/loop_nest.h) in one visit:
 *
 *   for elements { first's body } running maxima; rescale; for the same elements { second's body }
 *
 * and so on along the row. Each lane of a vector has a running maximum of its own, so that nothing
 * crosses lanes before the row is over. Names in the text: top_t<i> is what the total t<i> is
 * below, top_t<i>_0 what its accumulators are. */
#pragma once

#include "codegen/body.h"

/* Whether a phase runs online: in one visit with the one before it, as in online softmax. */
bool kiln__online_applies(const struct kiln__body *body, unsigned phase);

/* What follows is about the phase that follows the one at hand, and nothing where none does. */

/* Declare its totals, or `count` accumulators, at their start. */
void kiln__online_totals(struct kiln__body *body);
void kiln__online_accumulators(struct kiln__body *body, unsigned count);

/* Rescale the second phase's sums to the new running maximum. It is that of the first phase's
 * `count` accumulators of `width` lanes, or, with a width of 0, of its totals; it is declared here.
 */
void kiln__online_rescale(struct kiln__body *body, unsigned width, unsigned count);

/* Turn to it, which may go over these elements then. False where there is none. */
bool kiln__online_enter_phase(struct kiln__body *body);
void kiln__online_leave_phase(struct kiln__body *body);

/* Its first `count` accumulators into the totals, once the first phase's are. */
void kiln__online_fold(struct kiln__body *body, unsigned count);

/* The totals of the phase at hand, which was done with the one before: from their own running
 * maxima to the row's. */
void kiln__online_end(const struct kiln__body *body);
