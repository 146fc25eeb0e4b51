/* SPDX-License-Identifier: Apache-2.0 */
/* Pool of cl_kernel objects per program; a borrower gets the object that it had last, if that is
 * free. */
#include "programs/kernel_objects.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "programs/program_state.h"
#include "util/vector.h"

/* As long as there are fewer, or not several times as many as were ever lent at once, a kernel is
 * made rather than taken from its last borrower: those that take turns keep their arguments. */
#define FEW 64
#define TIMES 4

/* Launches of a kernel that are noted; further ones count as new each time. */
#define MOST_LAUNCHED 64

struct kiln__kernel {
    cl_kernel cl;
    struct kiln__kernel_kind *kind;
    uint64_t borrower; /* who has it, or has had it last */
    bool lent;
    struct kiln__kernel *before, *behind; /* among the idle, the one returned first at the front */
    struct kiln__kernel *next;            /* of the kind's */
};

struct launched {
    cl_command_queue queue;
    struct kiln__launch_shape form;
};

struct kiln__kernel_kind {
    const char *name;
    struct kiln__kernels *kernels;
    struct kiln__kernel_kind *next;
    struct kiln__kernel *all, *first_idle, *last_idle;
    size_t count, lent, most_lent;
    KILN__VECTOR(struct launched) launched; /* a queue and form each */
};

uint64_t kiln__kernel_borrower(void)
{
    static atomic_uint_fast64_t last;
    return atomic_fetch_add(&last, 1) + 1;
}

cl_kernel kiln__kernel_cl(const struct kiln__kernel *kernel)
{
    return kernel->cl;
}

void kiln__kernels_free(struct kiln__kernels *kernels, bool ours)
{
    while (kernels->kinds) {
        struct kiln__kernel_kind *kind = kernels->kinds;
        kernels->kinds = kind->next;
        while (kind->all) {
            struct kiln__kernel *kernel = kind->all;
            kind->all = kernel->next;
            if (ours)
                clReleaseKernel(kernel->cl);
            free(kernel);
        }
        kiln__vector_free(&kind->launched);
        free(kind);
    }
}

/* ---- under the mutex ---- */

/* NULL without memory. */
static struct kiln__kernel_kind *find_kind(struct kiln__kernels *kernels, const char *name)
{
    struct kiln__kernel_kind *kind = kernels->kinds;
    while (kind && strcmp(kind->name, name) != 0)
        kind = kind->next;
    if (kind)
        return kind;
    kind = calloc(1, sizeof *kind);
    if (kind) {
        *kind =
            (struct kiln__kernel_kind){.name = name, .kernels = kernels, .next = kernels->kinds};
        kernels->kinds = kind;
    }
    return kind;
}

static void count_lent(struct kiln__kernel_kind *kind)
{
    if (++kind->lent > kind->most_lent)
        kind->most_lent = kind->lent;
}

static void lend(struct kiln__kernel *kernel, uint64_t borrower)
{
    struct kiln__kernel_kind *kind = kernel->kind;
    *(kernel->before ? &kernel->before->behind : &kind->first_idle) = kernel->behind;
    *(kernel->behind ? &kernel->behind->before : &kind->last_idle) = kernel->before;
    kernel->before = kernel->behind = NULL;
    kernel->lent = true;
    kernel->borrower = borrower;
    count_lent(kind);
}

/* The borrower's last one, else that of which nobody has heard for longest, unless one is rather
 * made. */
static struct kiln__kernel *kernel_object_choose(const struct kiln__kernel_kind *kind,
                                                 uint64_t borrower, struct kiln__kernel *last)
{
    if (last && !last->lent && last->borrower == borrower)
        return last;
    return kind->count < FEW || kind->count < TIMES * kind->most_lent ? NULL : kind->first_idle;
}

/* ---- lending ---- */

/* It is lent from the beginning. */
static kiln_status kernel_object_make(struct kiln__kernel_kind *kind,
                                      const struct kiln__program *program, uint64_t borrower,
                                      struct kiln__kernel **made, struct kiln__error *error)
{
    struct kiln__kernel *kernel = calloc(1, sizeof *kernel);
    cl_int code;
    if (!kernel)
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory for a kernel");
    *kernel = (struct kiln__kernel){.kind = kind, .borrower = borrower, .lent = true};
    kernel->cl = clCreateKernel(program->cl, kind->name, &code);
    if (code) {
        free(kernel);
        return kiln__cl_fail(error, "clCreateKernel", code);
    }
    pthread_mutex_lock(&kind->kernels->mutex);
    kernel->next = kind->all;
    kind->all = kernel;
    kind->count++;
    count_lent(kind);
    pthread_mutex_unlock(&kind->kernels->mutex);
    *made = kernel;
    return KILN_OK;
}

kiln_status kiln__kernel_borrow(struct kiln__program *program, const char *name, uint64_t borrower,
                                struct kiln__kernel **kernel, bool *same, struct kiln__error *error)
{
    struct kiln__kernels *kernels = &program->kernels;
    pthread_mutex_lock(&kernels->mutex);
    struct kiln__kernel_kind *kind = find_kind(kernels, name);
    struct kiln__kernel *chosen = kind ? kernel_object_choose(kind, borrower, *kernel) : NULL;
    *same = chosen && chosen == *kernel && chosen->borrower == borrower;
    if (chosen)
        lend(chosen, borrower);
    pthread_mutex_unlock(&kernels->mutex);
    if (!kind)
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory for a kernel");
    *kernel = chosen;
    return chosen ? KILN_OK : kernel_object_make(kind, program, borrower, kernel, error);
}

void kiln__kernel_return(struct kiln__kernel *kernel)
{
    struct kiln__kernel_kind *kind = kernel->kind;
    pthread_mutex_lock(&kind->kernels->mutex);
    kernel->lent = false;
    kind->lent--;
    kernel->before = kind->last_idle;
    *(kind->last_idle ? &kind->last_idle->behind : &kind->first_idle) = kernel;
    kind->last_idle = kernel;
    pthread_mutex_unlock(&kind->kernels->mutex);
}

/* ---- what was launched ---- */

struct kiln__launch_shape kiln__launch_shape(unsigned dimensions, const size_t *global,
                                             const size_t *local)
{
    struct kiln__launch_shape form = {{1, 1, 1}, true};
    for (unsigned i = 0; i < dimensions && i < 3; i++) {
        form.local[i] = local[i];
        form.small_grid = form.small_grid && global[i] < USHRT_MAX;
    }
    return form;
}

/* Under the mutex. */
static bool is_noted(const struct kiln__kernel_kind *kind, cl_command_queue queue,
                     const struct kiln__launch_shape *form)
{
    for (size_t i = 0; i < kind->launched.count; i++) {
        const struct launched *launched = &kind->launched.items[i];
        if (launched->queue == queue && launched->form.small_grid == form->small_grid &&
            !memcmp(launched->form.local, form->local, sizeof form->local))
            return true;
    }
    return false;
}

void kiln__kernel_launched(struct kiln__kernel *kernel, cl_command_queue queue,
                           const struct kiln__launch_shape *form)
{
    struct kiln__kernel_kind *kind = kernel->kind;
    pthread_mutex_lock(&kind->kernels->mutex);
    bool noted = kind->launched.count == MOST_LAUNCHED || is_noted(kind, queue, form);
    struct launched *place = noted ? NULL : kiln__vector_push(&kind->launched);
    if (place)
        *place = (struct launched){queue, *form};
    pthread_mutex_unlock(&kind->kernels->mutex);
}

bool kiln__kernel_was_launched(struct kiln__kernel *kernel, cl_command_queue queue,
                               const struct kiln__launch_shape *form)
{
    pthread_mutex_lock(&kernel->kind->kernels->mutex);
    bool was = is_noted(kernel->kind, queue, form);
    pthread_mutex_unlock(&kernel->kind->kernels->mutex);
    return was;
}
