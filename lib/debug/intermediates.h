/* SPDX-License-Identifier: Apache-2.0 */
/* A batch run once more on copies of its inputs, with every value asked for: to be looked at. */
#pragma once

#include "session/context.h"

/* The content of a batch's inputs before its run, copied. */
struct kiln__inputs {
    void **items; /* per binding; NULL: nothing is copied */
    size_t count;
    bool lost;               /* a run that uses them could not be awaited: they cannot be freed */
    const uint32_t *numbers; /* per node: by which sentences tell it; NULL: its own */
};

/* Waits for earlier runs, which may still write what this one reads.
 * Errors: OUT_OF_HOST_MEMORY, DEVICE_ERROR; nothing is copied then. */
kiln_status kiln__intermediates_inputs_copy(const kiln_batch *batch, struct kiln__inputs *inputs,
                                            struct kiln__error *error);
void kiln__intermediates_inputs_free(struct kiln__inputs *inputs);

/* The content of one binding, to be freed whatever comes of it. */
kiln_status kiln__copy_content(kiln_context *context, const struct kiln__binding *binding,
                               void **copy, struct kiln__error *error);

/* Whether the device can hold every value at once, and something beside; else that is logged, with
 * what is not done (NULL: nothing is logged). */
bool kiln__intermediates_fits(const kiln_batch *batch, const char *undone);

/* Run a graph, if `checked` with kernels that look at every index. `lost`: the end could not be
 * awaited. Errors: those of a run; WRONG_RESULT for an index outside its memory. */
kiln_status kiln__intermediates_run(kiln_context *context, const struct kiln__graph *graph,
                                    struct kiln__bindings *bindings, bool checked, const char *call,
                                    bool *lost, struct kiln__error *error);

/* The batch's graph with every operation's value asked for, and where the values are. */
struct kiln__intermediates {
    struct kiln__graph graph;
    struct kiln__bindings bindings;
};

/* What no result needs stays out. False without memory; to be freed then, too. */
bool kiln__intermediates_make(const struct kiln__inputs *inputs, const kiln_batch *batch,
                              struct kiln__intermediates *intermediates);
void kiln__intermediates_free(struct kiln__intermediates *intermediates, bool lost);

/* The value of each node in turn, as the device has it: *next counts what was asked for, from 0.
 * NULL: it was not. */
const void *kiln__intermediates_value(const struct kiln__intermediates *intermediates,
                                      uint32_t node, size_t *next);
