/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of one run: memory for every slot, then everything into the queue. */
#ifndef KILN_RUNTIME_COMMANDS_H
#define KILN_RUNTIME_COMMANDS_H

#include "runtime/ready.h"

struct kiln__use {
    uint32_t launch, argument;
};

struct kiln__ready {
    struct kiln__runtime *runtime;
    const struct kiln__plan *plan;
    cl_kernel *kernels;              /* per launch */
    struct kiln__program **programs; /* per launch */
    cl_mem *memory;                  /* per slot: of the run that is being enqueued */
    cl_mem *bound;                   /* per slot: what kernel arguments were last set to */
    uint32_t *first_use;             /* per slot, and one more: where its uses start */
    struct kiln__use *uses;
    bool has_run;
    cl_mem wrong; /* checked: where kernels note an index that is outside; else NULL */
};

struct kiln__commands {
    struct kiln__ready *ready;
    struct kiln__bindings *bindings;
    struct kiln__run *run; /* receives the events */
    cl_mem arena;
    KILN__VECTOR(struct kiln__stand_in {
        cl_mem memory;
        struct kiln__binding *binding;
        bool is_input;
    })
    stand_ins; /* pool memory between kernels and detached bindings */
    KILN__VECTOR(struct kiln__wrapper {
        cl_mem memory;
        size_t result_bytes; /* 0 of an input */
    })
    wrappers;     /* around host memory, for this run only */
    size_t shows; /* wrappers of results */
    size_t left;  /* steps still to come: the last has an event in any case */
};

/* Memory for every slot, in ready->memory. */
kiln_status kiln__commands_begin(struct kiln__commands *commands, struct kiln__error *error);

/* Enqueue transfers and launches, and flush. */
kiln_status kiln__commands_enqueue(struct kiln__commands *commands, struct kiln__error *error);

/* Give memory back; the queue is in-order, so that it may still be in use. */
void kiln__commands_end(struct kiln__commands *commands);

#endif
