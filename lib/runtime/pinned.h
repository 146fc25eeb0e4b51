/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory that a device with memory of its own reads and writes at full speed: pinned by the
 * driver, and mapped for as long as it lives. */
#pragma once

#include <pthread.h>
#include <stdint.h>

#include "device/opencl.h"
#include "util/vector.h"

struct kiln__pinned {
    char *memory; /* NULL: none */
    size_t bytes;
    cl_mem object; /* that is mapped there; NULL: the host's memory, as it is */
};

/* A piece of pinned memory; no queue with commands is waited for.
 * Errors: OUT_OF_HOST_MEMORY, DEVICE_ERROR. */
kiln_status kiln__pinned_make(cl_context context, cl_device_id device, size_t bytes,
                              struct kiln__pinned *pinned, struct kiln__error *error);

/* What no command uses any more; without memory nothing is done. */
void kiln__pinned_free(cl_context context, cl_device_id device, struct kiln__pinned *pinned);

/* ---- the program's ---- */

struct kiln__pins {       /* safe to use from many threads */
    pthread_mutex_t lock; /* guards what follows; no OpenCL call is made under it */
    KILN__VECTOR(struct kiln__pinned) pieces; /* by address */
    KILN__VECTOR(struct kiln__pinned) left;   /* by the program, when commands may still use them */
    uint64_t bytes;
};

void kiln__pins_begin(struct kiln__pins *pins);

/* What is still there is not touched: the pieces are the program's to free, and of what it has left
 * commands may still use each. */
void kiln__pins_end(struct kiln__pins *pins);

/* False without memory. */
bool kiln__pins_add(struct kiln__pins *pins, const struct kiln__pinned *pinned);

/* Take the piece that begins at `memory` out; one without memory where there is none. */
struct kiln__pinned kiln__pins_remove(struct kiln__pins *pins, const void *memory);

/* A piece that was taken out, until no command uses it: then kiln__pins_clear() frees it. */
void kiln__pins_leave(struct kiln__pins *pins, const struct kiln__pinned *pinned);
void kiln__pins_clear(struct kiln__pins *pins, cl_context context, cl_device_id device);

/* Whether all of these bytes lie in one piece. */
bool kiln__pins_hold(struct kiln__pins *pins, const void *memory, size_t bytes);

/* Of all pieces. */
uint64_t kiln__pins_bytes(struct kiln__pins *pins);
