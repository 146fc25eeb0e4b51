/* SPDX-License-Identifier: Apache-2.0 */
/* What happens to a graph before it is cut into kernels. */
#pragma once

#include "graph/graph.h"
#include "graph/kernel_support.h"
#include "util/error.h"

/* Run every pass in order over `graph`, for kernels with this `support`. `log` (may be NULL)
 * receives what each changed. Errors: OUT_OF_HOST_MEMORY; WRONG_STATE names a pass that left a
 * broken graph, where that is verified. */
kiln_status kiln__rewrite(struct kiln__graph *graph, const struct kiln__kernel_support *support,
                          struct kiln__text *log, struct kiln__error *error);
