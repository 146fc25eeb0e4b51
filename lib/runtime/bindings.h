/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan's inputs and results stand for in one batch: host memory or buffers. */
#pragma once

#include <stdint.h>

#include <kiln/types.h>

#include "device/opencl.h"
#include "graph/labels.h"
#include "util/vector.h"

struct kiln__binding {
    void *host; /* of an upload (only read) or a read; NULL: a buffer */
    size_t bytes;
    size_t item;                /* at a multiple of so many bytes an element starts */
    struct kiln_buffer *buffer; /* whose memory it is, not owned; or NULL */
    uintptr_t identity;         /* of a buffer's memory (kiln__buffer_identity()) */
    cl_mem memory;     /* a buffer's, not owned, during a run if that may come and go; or a wrapper
                          around `host`, owned; or NULL */
    bool is_part;      /* rows of a larger whole: */
    size_t offset;     /* of a buffer: from this byte on */
    bool needs_bounce; /* kernels must not work on it directly: a copy goes between */
    size_t bounce;     /* of this run: its number */
    bool overlaps;     /* a result whose memory others use too: written after everything else */
};

/* A buffer that inputs or results stand for. */
struct kiln__use_of_buffer {
    struct kiln_buffer *buffer;
    bool writes;
    size_t last_step; /* of this run, that uses it; KILN__NEVER_EARLY: what follows them does */
    struct kiln__run *early; /* of this run: up to that step; or NULL */
};
#define KILN__NEVER_EARLY SIZE_MAX

struct kiln__bindings {
    KILN__VECTOR(struct kiln__binding) inputs;
    KILN__VECTOR(struct kiln__binding) results;
    KILN__VECTOR(struct kiln__use_of_buffer) buffers; /* each once, by address */
    const struct kiln__labels *labels; /* what spans of a run are called, not owned; or NULL */
    bool independent; /* other streams may use a buffer as soon as this run is done with it */
    bool left;        /* nobody waits for this run, as a rule */
    bool overlap;     /* some results do */
    uint64_t checked; /* the number of the last kiln__bindings_check(), which no other one in the
                         process has; 0 after any change */
};

void kiln__bindings_free(struct kiln__bindings *bindings);

/* Once they are listed: the use of a buffer; NULL for NULL. */
struct kiln__use_of_buffer *kiln__bindings_find(const struct kiln__bindings *bindings,
                                                struct kiln_buffer *buffer);

/* Point a host binding elsewhere. */
void kiln__bindings_move(struct kiln__bindings *bindings, struct kiln__binding *binding,
                         void *host);

/* Whether writing one changes the other. */
bool kiln__bindings_overlap(const struct kiln__binding *a, const struct kiln__binding *b);

/* Settle which bindings are needs_bounce: host memory that is not aligned for its type, results
 * that overlap an input or an earlier result; and list the buffers. False without memory. */
bool kiln__bindings_check(struct kiln__bindings *bindings);
