/* SPDX-License-Identifier: Apache-2.0 */
/* The programs of a plan: text from codegen, binary from the cache. */
#ifndef KILN_SESSION_PROGRAMS_H
#define KILN_SESSION_PROGRAMS_H

#include "runtime/executable.h"

/* Look up or compile the program of each launch; `checked`: those of generated kernels look at
 * every index (codegen/codegen.h). Errors: BUILD_FAILED, DEVICE_ERROR, OUT_OF_HOST_MEMORY. */
kiln_status kiln__plan_programs(struct kiln__programs *programs, const struct kiln__plan *plan,
                                bool checked, struct kiln__launch_program *found,
                                struct kiln__error *error);

/* Before that: have them compiled side by side on `threads` threads (0: as many as there are cores)
 * and stored. What does not work is left to kiln__plan_programs(). Errors: OUT_OF_HOST_MEMORY. */
kiln_status kiln__plan_programs_prepare(struct kiln__programs *programs,
                                        const struct kiln__plan *plan, unsigned threads,
                                        struct kiln__error *error);

#endif
