/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel texts for a plan's launches. */
#ifndef KILN_CODEGEN_CODEGEN_H
#define KILN_CODEGEN_CODEGEN_H

#include "plan/plan.h"

/* A short name that launches share exactly if they share their text: the structure of the group and
 * its form, no sizes and no values. */
void kiln__codegen_name(const struct kiln__plan *plan, const struct kiln__launch *launch,
                        struct kiln__text *name);

/* The OpenCL C text of a launch. */
void kiln__codegen_source(const struct kiln__plan *plan, const struct kiln__launch *launch,
                          struct kiln__text *source);

/* The same for people: library texts are named instead of repeated. */
void kiln__codegen_show(const struct kiln__plan *plan, const struct kiln__launch *launch,
                        struct kiln__text *text);

/* Check the arguments of every launch against the parameters that its text declares
 * (verify_launches.c). Errors: WRONG_STATE, with what is wrong in `text`; OUT_OF_HOST_MEMORY. */
kiln_status kiln__launches_verify(const struct kiln__plan *plan, char text[KILN__WRONG]);

#endif
