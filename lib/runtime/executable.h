/* SPDX-License-Identifier: Apache-2.0 */
/* An executable: the kernels of a plan with their constant arguments set. Running it again
 * (runtime/commands.h) sets only the memory arguments that changed. One that nobody runs has no
 * kernels: their programs lend them to others (programs/kernel_objects.h). */
#pragma once

#include "plan/plan.h"
#include "runtime/run_slots.h"
#include "runtime/runtime.h"

/* What the kernel of a launch is taken from. */
struct kiln__launch_program {
    struct kiln__program *program; /* NULL of a call of CLBlast */
    bool checked;                  /* looks at every index, and takes further arguments */
};

struct kiln__executable { /* used by one thread at a time */
    struct kiln__runtime *runtime;
    const struct kiln__plan *plan;
    cl_kernel *kernels;                    /* per launch; NULL while it has none */
    struct kiln__kernel **lent;            /* per launch: what that is, or was before */
    uint64_t borrower;                     /* who borrows them */
    struct kiln__launch_program *programs; /* per launch */
    cl_mem *tables;                        /* per launch, of those that have one */
    uint32_t *described; /* per launch: what a trace says of it; NULL: there is none */
    uint32_t *called;    /* per launch, and behind these per slot: names in a trace; NULL: none */
    uint64_t labels;     /* hash of what these are of */
    uint32_t *first_use; /* per slot, and one more: where its uses start */
    struct kiln__use {
        uint32_t launch, argument;
    } * uses;
    struct kiln__bound { /* per slot: what kernel arguments were last set to */
        cl_mem memory;
        bool retained; /* where it is foreign; all else is known by its address */
    } * bound;
    uint64_t releases; /* the budget's, before the run that set them took memory: while there are no
                          more, an address means the object that it meant */
    bool has_run;
    cl_mem wrong; /* where checked kernels note an index that is outside; NULL: none is checked */
    struct kiln__run_slots run; /* the last one, or the one that is being enqueued */
};

/* Borrow the kernels of `plan`, which must outlive it, from a program for each launch.
 * Errors: DEVICE_ERROR, OUT_OF_HOST_MEMORY. */
kiln_status kiln__executable_create(struct kiln__runtime *runtime, const struct kiln__plan *plan,
                                    const struct kiln__launch_program *programs,
                                    struct kiln__executable **made, struct kiln__error *error);
void kiln__executable_destroy(struct kiln__executable *executable);

/* Pool memory that a run of the plan may need at once, as pools round it: what is kept, too, since
 * a run may have to make it again, and `others`, which are rounded already. */
uint64_t kiln__executable_pool_bytes(const struct kiln__plan *plan, uint64_t others);

/* Before a run takes memory. */
void kiln__executable_begin(struct kiln__executable *executable);

/* Set the kernels' memory arguments to executable->run.memory, where that changed. What a kernel
 * was set to is not held: an executable that waits pins no memory of the pools'. `bindings`: their
 * `checked` (bindings.h), by which the next run of the same ones is known. */
kiln_status kiln__executable_bind(struct kiln__executable *executable, uint64_t bindings,
                                  struct kiln__error *error);

/* From now on it runs for a batch with these labels: where there is a trace, its launches have that
 * batch's names. */
void kiln__executable_set_labels(struct kiln__executable *executable,
                                 const struct kiln__labels *labels);

/* It was enqueued: programs that were compiled are stored. */
void kiln__executable_launched(struct kiln__executable *executable);

/* Forget the memory of the last run, wrappers too. */
void kiln__executable_unbind(struct kiln__executable *executable);

/* The same, and give all kernels back: nobody runs it before it has borrowed them again. */
void kiln__executable_return(struct kiln__executable *executable);

/* Borrow them again. What others have had since gets its arguments anew.
 * Errors: DEVICE_ERROR, OUT_OF_HOST_MEMORY; it can only be destroyed then. */
kiln_status kiln__executable_borrow(struct kiln__executable *executable, struct kiln__error *error);

/* ---- checked_launch.c ---- */

/* Memory to note wrong indices in, and the further arguments of a checked kernel. */
kiln_status kiln__checked_begin(struct kiln__executable *executable, struct kiln__error *error);
kiln_status kiln__checked_arguments(struct kiln__executable *executable, size_t index,
                                    struct kiln__error *error);

/* After a run in `stream` has ended: whether a checked kernel used an index outside its memory.
 * `call` is for the sentence. Errors: WRONG_RESULT, DEVICE_ERROR. */
kiln_status kiln__checked_judge(struct kiln__executable *executable, struct kiln__stream *stream,
                                const char *call, struct kiln__error *error);
