/* SPDX-License-Identifier: Apache-2.0 */
/* Events that end in an error. The program gets the driver's own event; the layer remembers it with
 * the error and answers for it wherever a program can hear how a command ended: waiting, asking,
 * being called back. No driver is asked to fail an event: some refuse, and some are not up to it
 * (PoCL 3.1 waits for ever for an event that has failed already). */
#pragma once

#include <stdbool.h>

#include "calls.h"

/* From now on `event`, of which the program has one reference, ends in `code`. */
void layer__mark(cl_event event, cl_int code);

/* What the event ends in; CL_SUCCESS if it is not marked. */
cl_int layer__mark_of(cl_event event);

/* Whether one of them is marked. */
bool layer__any_marked(cl_uint count, const cl_event *events);

/* The program has retained or released an event, of whichever kind. */
void layer__event_retained(cl_event event);
void layer__event_released(cl_event event);
