/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a context. */
#ifndef KILN_API_CONTEXT_H
#define KILN_API_CONTEXT_H

#include "api/plans.h"
#include "runtime/runtime.h"

struct kiln_context {
    atomic_int references;
    struct kiln__runtime runtime;
    struct kiln__plans *plans;
    char *matmul;              /* implementation to use where it can be, or NULL */
    double validate;           /* share of runs to compare with the host */
    atomic_uint_fast64_t runs; /* counted where that is not 0 */
};

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

struct kiln_event {
    atomic_int references;
    kiln_context *context;
    struct kiln__run *run;
};

#endif
