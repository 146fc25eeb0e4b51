/* SPDX-License-Identifier: Apache-2.0 */
/* The device's traits as `kiln tune` has found them best. */
#pragma once

#include "session/context.h"

/* Give the context's device traits of its own: what $KILN_TUNE says ("off": the usual ones), else
 * what is kept in the disk cache. A line of that which is not understood is logged, and does not
 * count. Errors: INVALID_ARGUMENT of the variable. */
kiln_status kiln__tuning_load(const char *call, kiln_context *context);
