/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers that a batch both imports and exports to: per input, the request that replaces it. */
#pragma once

#include "graph/graph.h"

struct kiln__replacements {
    uint32_t *request; /* per input, up to the last that is replaced: 1 + the request; 0: none */
    size_t inputs;     /* so many */
};

/* False without memory. */
bool kiln__replacements_list(const struct kiln__graph *graph,
                             struct kiln__replacements *replacements);
void kiln__replacements_free(struct kiln__replacements *replacements);

/* 1 + the request that goes to the buffer which `node` imports; 0: none. */
uint32_t kiln__replacement_of(const struct kiln__replacements *replacements,
                              const struct kiln__node *node);
