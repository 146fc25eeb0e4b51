/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel texts for a plan's launches. */
#pragma once

#include "plan/plan.h"

/* A short name that launches share exactly if they share their program: the structure of the group
 * and its form, no sizes and no values. */
void kiln__codegen_name(const struct kiln__plan *plan, const struct kiln__launch *launch,
                        bool checked, struct kiln__text *name);

/* Whether the text is not kiln's: the program that uses kiln brought it along. */
bool kiln__codegen_is_foreign(const struct kiln__plan *plan, const struct kiln__launch *launch);

/* Whether a launch's text has a checked form: generated ones have, files of kernels/ have not. */
bool kiln__codegen_is_checked(const struct kiln__launch *launch);

/* The OpenCL C text of a launch's program; `checked`: in a form that looks at every index into
 * memory (checked_text.c). The kernel then takes further arguments: for each memory argument two
 * longs, the bytes between which it may be used; the launch's number, from 1; and KILN__WRONG_BYTES
 * of memory, zeroed, where the first index that is outside is noted: [0] the launch's number, [1]
 * which memory, from 1, [2] and [3] the element, low half first. */
void kiln__codegen_source(const struct kiln__plan *plan, const struct kiln__launch *launch,
                          bool checked, struct kiln__text *source);

/* Name and text of a launch as a phase of another one: its kernel has a parameter for each
 * argument, whatever a program of its own would have. */
void kiln__codegen_phase_name(const struct kiln__plan *plan, const struct kiln__launch *launch,
                              struct kiln__text *name);
void kiln__codegen_phase(const struct kiln__plan *plan, const struct kiln__launch *launch,
                         struct kiln__text *source);

/* The same for people: library texts are named instead of repeated. */
void kiln__codegen_show(const struct kiln__plan *plan, const struct kiln__launch *launch,
                        struct kiln__text *text);

/* Join runs of short launches to one each, where the plan's options ask for that (one_launch.c).
 * False: no memory. And whether it is worth looking at each launch. */
bool kiln__launches_join(struct kiln__plan *plan);
bool kiln__launches_may_join(const struct kiln__plan *plan);

/* Why a launch of a plan that is to have them is not joined, a static text; NULL: it is, or there
 * are too few to say more. */
const char *kiln__launch_unjoined_because(const struct kiln__plan *plan, uint32_t index);

/* The name and the text of a launch that does others as its phases (one_launch_text.c). */
void kiln__joined_name(const struct kiln__plan *plan, const struct kiln__launch *joined,
                       struct kiln__text *name);
void kiln__joined_source(const struct kiln__plan *plan, const struct kiln__launch *joined,
                         bool brief, struct kiln__text *source);

/* Check the arguments of every launch against the parameters that its text declares
 * (verify_launches.c). Errors: WRONG_STATE, with what is wrong in `text`; OUT_OF_HOST_MEMORY. */
kiln_status kiln__launches_verify(const struct kiln__plan *plan, char text[KILN__WRONG]);
