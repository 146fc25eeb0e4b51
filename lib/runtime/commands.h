/* SPDX-License-Identifier: Apache-2.0 */
/* One run of an executable: memory for every slot, then all commands into the queue. */
#pragma once

#include "runtime/bindings.h"
#include "runtime/executable.h"

/* Enqueue transfers and launches in `stream`, after what other streams do with the same buffers,
 * and flush, unless the run is left open and the device starts it anyway; *run is the caller's.
 * After an error it is NULL, and nothing is left running that uses the caller's memory.
 * Errors: OUT_OF_HOST_MEMORY, OUT_OF_DEVICE_MEMORY, DEVICE_ERROR, FORKED. */
kiln_status kiln__commands_run(struct kiln__executable *executable, struct kiln__stream *stream,
                               struct kiln__bindings *bindings, struct kiln__run **run,
                               struct kiln__error *error);
