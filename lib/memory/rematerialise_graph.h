/* SPDX-License-Identifier: Apache-2.0 */
/* Values that would be held in memory for long are computed once more where they are needed late
 * (rematerialisation: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"). Which
 * these are the plan says (memory/rematerialise.h); no rule may run behind it that computes equal
 * nodes once.
 */
#pragma once

#include "graph/graph.h"

/* Per node of a graph. */
struct kiln__choice {
    bool held;       /* materialised: later kernels read it from memory */
    bool chosen;     /* a held value to rematerialise: its late users read a copy computed again */
    uint32_t before; /* of a late user: 1 + the node that begins its kernel; of others 0 */
};

/* The graph in which that is so. False without memory; `to` is to be freed then, too. */
bool kiln__rematerialise(const struct kiln__graph *from, const struct kiln__choice *choices,
                         struct kiln__graph *to);
