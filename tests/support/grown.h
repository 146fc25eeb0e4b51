/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of any size, each of one structure: what recording and planning have to be linear in. */
#pragma once

#include <kiln/kiln.h>

#define GROWN_EDGE 4
#define GROWN_ITEMS (GROWN_EDGE * GROWN_EDGE) /* floats of anything at most */
#define GROWN_BUFFERS(n) ((n) / 6 + 2)        /* buffers of n operations at most */

/* Where a batch finds its memory. */
struct grown_memory {
    const float *input;    /* GROWN_ITEMS of them */
    float *results;        /* GROWN_ITEMS per operation */
    kiln_buffer **buffers; /* GROWN_BUFFERS of them, GROWN_EDGE x GROWN_EDGE */
    size_t reads;          /* so far; 0 before recording */
};

struct grown {
    const char *name, *what;
    void (*record)(kiln_batch *batch, size_t n, struct grown_memory *memory);
};

/* Ends with an empty name. `n` is about how many operations are recorded. */
extern const struct grown grown[];
