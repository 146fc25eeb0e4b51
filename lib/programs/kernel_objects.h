/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel objects belong to programs, which lend them: a borrower sets the arguments, enqueues, and
 * gives the kernel back. What was enqueued keeps its arguments, so that the next borrower may set
 * others at once. A driver takes ever longer to release one of many kernels of a program (PoCL
 * walks through all), so none is released before its program is. */
#pragma once

#include <pthread.h>
#include <stdint.h>

#include "programs/program.h"

struct kiln__kernel;

/* The kernels of one program, of each name that was asked for. */
struct kiln__kernels {
    pthread_mutex_t mutex;           /* guards all; no kernel is made under it */
    struct kiln__kernel_kind *kinds; /* a name each */
};

/* A number for a borrower, which no other has. */
uint64_t kiln__kernel_borrower(void);

/* Lend `borrower` the kernel `name`, a text that lasts. `*kernel` is what it has had before, or
 * NULL: that comes back where nobody else has had it since, and `*same` says so: its arguments are
 * still those that were set. Else it is another one, made where those at hand are all lent, or few.
 * Threads: any, each for a borrower of its own.
 * Errors: DEVICE_ERROR and others of clCreateKernel; OUT_OF_HOST_MEMORY. */
kiln_status kiln__kernel_borrow(struct kiln__program *program, const char *name, uint64_t borrower,
                                struct kiln__kernel **kernel, bool *same,
                                struct kiln__error *error);

/* Give it back. `*kernel` stays what the borrower may ask for next time. */
void kiln__kernel_return(struct kiln__kernel *kernel);

/* Owner: the program. */
cl_kernel kiln__kernel_cl(const struct kiln__kernel *kernel);

/* What PoCL compiles a kernel for: each local size, and grids below and from 65,535 on. */
struct kiln__launch_shape {
    size_t local[3];
    bool small_grid;
};
struct kiln__launch_shape kiln__launch_shape(unsigned dimensions, const size_t *global,
                                             const size_t *local);

/* Note that such a launch of the kernel was enqueued: for further ones behind it in the queue, also
 * of other kernels of the name, the driver has nothing to compile. In another queue one may begin
 * before it. And whether one was. */
void kiln__kernel_launched(struct kiln__kernel *kernel, cl_command_queue queue,
                           const struct kiln__launch_shape *form);
bool kiln__kernel_was_launched(struct kiln__kernel *kernel, cl_command_queue queue,
                               const struct kiln__launch_shape *form);

/* ---- for programs ---- */

#define KILN__KERNELS_NONE                                                                         \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER, NULL                                                            \
    }

/* Nothing is lent any more. `ours`: not in a child of fork, where the driver's objects are the
 * parent's. */
void kiln__kernels_free(struct kiln__kernels *kernels, bool ours);
