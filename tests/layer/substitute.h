/* SPDX-License-Identifier: Apache-2.0 */
/* Events that end in an error although their command succeeds.
 *
 * A substitute is a user event that the program gets in place of the real one. It never reaches
 * the driver in a wait list: PoCL 3.1 waits for ever for an event that has failed already, and
 * frees a command too early when one of two events that it waits for fails. The layer hands the
 * real event down instead and makes the waiting command's own event a substitute too. */
#ifndef KILN_TESTS_LAYER_SUBSTITUTE_H
#define KILN_TESTS_LAYER_SUBSTITUTE_H

#include <stdbool.h>

#include "calls.h"

/* Take `real` and return a user event that ends with `code` when `real` has ended. Flushes the
 * queue, because nothing that waits for a user event would. Returns `real` if that fails. */
cl_event layer__substitute(cl_command_queue queue, cl_event real, cl_int code);

/* The program has retained or released an event, of whichever kind. */
void layer__event_retained(cl_event event);
void layer__event_released(cl_event event);

/* A wait list with the real event in place of every substitute. */
struct layer__waits {
    const cl_event *events;
    bool failing; /* there was a substitute */
    cl_event *copy;
};
struct layer__waits layer__waits_open(cl_uint count, const cl_event *events);
void layer__waits_close(struct layer__waits *waits);

/* Wait until every substitute of a finished queue has ended too. */
void layer__settle(cl_command_queue queue);

#endif
