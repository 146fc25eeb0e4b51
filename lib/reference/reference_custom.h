/* SPDX-License-Identifier: Apache-2.0 */
/* Own kernels by the functions that programs give for the host. */
#pragma once

#include "graph/graph.h"

/* By `host`, one of the call's; NULL: zeros. False without memory. */
bool kiln__custom_evaluate(const struct kiln__graph *graph, const struct kiln__node *node,
                           kiln_custom_host host, double *const *values, double *result);
