/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a buffer. */
#ifndef KILN_RUNTIME_BUFFER_H
#define KILN_RUNTIME_BUFFER_H

#include <stdatomic.h>

#include <kiln/buffer.h>

#include "device/opencl.h"
#include "graph/shape.h"

struct kiln_buffer {
    atomic_int references;
    kiln_context *context;
    kiln_type type;
    struct kiln__shape shape;
    size_t bytes;
    cl_mem memory; /* NULL if it has no elements */
    atomic_bool mapped;
    void *mapping;
};

/* Zero its content. Errors: DEVICE_ERROR. */
kiln_status kiln__buffer_clear(kiln_buffer *buffer);

#endif
