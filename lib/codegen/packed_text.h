/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of kernels whose arguments are packed (plan/packing.h). */
#pragma once

#include "plan/packing.h"

/* What of it the text depends on, for the program's name. */
void kiln__packed_name(const struct kiln__launch *launch, const struct kiln__packing *packing,
                       struct kiln__text *name);

/* The launch's kernel in `source`, which declares a parameter for each argument, gets those of
 * `packing`, and declares its own by these first. */
void kiln__packed_text(const struct kiln__plan *plan, const struct kiln__launch *launch,
                       const struct kiln__packing *packing, struct kiln__text *source);
