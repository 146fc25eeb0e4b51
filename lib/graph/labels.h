/* SPDX-License-Identifier: Apache-2.0 */
/* What the nodes of a recorded graph are called, and which calls made them: words for people. They
 * are no part of a batch's structure: batches of any names share a plan. */
#pragma once

#include <stdint.h>

#include "util/text.h"
#include "util/vector.h"

struct kiln__label {
    uint32_t call; /* that recorded the node: its number, from 1; 0: none that counts */
    uint32_t name; /* where in `names`; 0: it has none of its own */
};

struct kiln__called {
    const char *function; /* static */
    uint32_t name;        /* of its first result that was given one, which its other nodes share */
    bool unnamed;         /* they do not: each of its results is another thing */
};

struct kiln__labels {
    KILN__VECTOR(struct kiln__label) nodes;
    KILN__VECTOR(struct kiln__called) calls;
    struct kiln__text names; /* each with its end, after an empty one; no bytes: nothing is named */
    uint32_t scope;          /* the name of what is being recorded, or 0 */
};

void kiln__labels_clear(struct kiln__labels *labels);
void kiln__labels_free(struct kiln__labels *labels);

/* Keep a copy of a name, at most its first 200 bytes, in which no byte is a control character or
 * wrong UTF-8. What stands for it; 0 for an empty one, and without memory, which `names` tells. */
uint32_t kiln__labels_keep(struct kiln__labels *labels, const char *name);

/* What stands for the node's name: its own, or that of its call; 0: none. `labels` may be NULL. */
uint32_t kiln__labels_find(const struct kiln__labels *labels, uint32_t node);

/* The name itself; NULL: none. */
const char *kiln__labels_name(const struct kiln__labels *labels, uint32_t node);

/* Of all names and of what has them; 0: nothing has. */
uint64_t kiln__labels_hash(const struct kiln__labels *labels);

/* Append ' "layer3.q" (kiln_add, call 57)', or as much of it as is known. */
void kiln__labels_append(const struct kiln__labels *labels, uint32_t node, struct kiln__text *text);
