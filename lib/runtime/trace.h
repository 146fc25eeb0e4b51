/* SPDX-License-Identifier: Apache-2.0 */
/* Spans of launches and transfers, written as a Chrome trace (the Trace Event Format's complete
 * events), to be looked at with chrome://tracing or ui.perfetto.dev. */
#pragma once

#include <stdint.h>

#include "device/opencl.h"

struct kiln__trace; /* safe to use from many threads */

/* `path`: where kiln__trace_destroy() writes; NULL: spans are kept for nobody. NULL without
 * memory. */
struct kiln__trace *kiln__trace_create(const char *path, const char *device);

/* What a launch does, for its spans. */
struct kiln__trace_words {
    const char *operations, *shapes; /* copied */
    uint32_t group;                  /* of its plan */
    uint64_t amount;                 /* of operations on numbers */
};

/* Keep the words; the answer stands for them in kiln__trace_add(). 0, for none, without memory. */
uint32_t kiln__trace_describe(struct kiln__trace *trace, const struct kiln__trace_words *words);

/* Keep the names of a launch, a line each; the answer stands for them, as above. */
uint32_t kiln__trace_call(struct kiln__trace *trace, const char *names);

/* A command of a stream. */
struct kiln__trace_span {
    const char *name;
    uint64_t bytes;
    uint32_t described, called; /* what stands for its words and its names; or 0 */
};

/* Note it; its event is retained until its times are read. */
void kiln__trace_add(struct kiln__trace *trace, unsigned stream,
                     const struct kiln__trace_span *what, cl_event event);

/* Waits for the noted commands and writes the file. Errors: IO_ERROR. */
kiln_status kiln__trace_destroy(struct kiln__trace *trace, struct kiln__error *error);
