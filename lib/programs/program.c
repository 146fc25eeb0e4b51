/* SPDX-License-Identifier: Apache-2.0 */
/* One program: loaded from disk or compiled, and stored.
 *
 * How long one process waits for another: the lock of a key is held while the program is compiled,
 * and where its binary is complete then, until the entry is stored; never while storing waits for
 * something. Another process waits up to two seconds for it, then compiles for itself. Each wait in
 * vain halves the next one, so that they sum up to four seconds at most. No two wait for each
 * other: a thread that waits holds no lock, and who holds one waits for nobody. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "programs/build.h"
#include "programs/program_state.h"
#include "programs/store_entry.h"
#include "programs/store_thread.h"
#include "util/clock.h"
#include "util/log.h"

void kiln__program_free(struct kiln__program *program)
{
    kiln__key_free(&program->key);
    free(program->binary);
    free(program->options);
    free(program->source);
    free(program->kernel);
    free(program->name);
    free(program);
}

struct kiln__program *kiln__program_make(struct kiln__programs *programs, const void *name,
                                         size_t name_length, const char *kernel)
{
    struct kiln__program *program = calloc(1, sizeof *program);
    if (!program)
        return NULL;
    program->owner = programs;
    program->kernels = (struct kiln__kernels)KILN__KERNELS_NONE;
    program->lock = (struct kiln__lock)KILN__LOCK_NONE;
    program->name = malloc(name_length + 1);
    program->kernel = strdup(kernel);
    if (!program->name || !program->kernel) {
        kiln__program_free(program);
        return NULL;
    }
    memcpy(program->name, name, name_length);
    program->name_length = name_length;
    return program;
}

static void release_lock(struct kiln__program *program)
{
    if (program->lock.fd >= 0)
        kiln__lock_release(&program->lock);
}

/* In a child of fork the driver and the locks are the parent's: only what is copied goes. */
void kiln__program_release(struct kiln__program *program, bool ours)
{
    kiln__kernels_free(&program->kernels, ours);
    if (ours) {
        if (atomic_load(&program->storing) == KILN__PROGRAM_WANTS_LAUNCH)
            KILN__LOG(KILN__LOG_INFO, "%s is not stored: it never ran", program->kernel);
        release_lock(program);
        clReleaseProgram(program->cl);
    } else if (program->lock.fd >= 0)
        close(program->lock.fd);
    kiln__program_free(program);
}

/* ---- storing ---- */

void kiln__program_stored(struct kiln__program *program)
{
    release_lock(program);
    free(program->binary);
    free(program->options);
    free(program->source);
    program->binary = program->options = program->source = NULL;
    atomic_store(&program->storing, KILN__PROGRAM_STORED);
}

static void store_later(struct kiln__program *program)
{
    if (kiln__store_thread_add(program->owner->storing, program))
        return;
    KILN__LOG(KILN__LOG_INFO,
              "%s is not stored: there can be no thread for it, or the process ends",
              program->kernel);
    kiln__store_failed(program->owner->store);
    kiln__program_stored(program);
}

void kiln__program_variants(unsigned dimensions, const size_t *global, const size_t *local,
                            char variants[KILN__PROGRAM_VARIANTS])
{
    const struct kiln__launch_shape form = kiln__launch_shape(dimensions, global, local);
    snprintf(variants, KILN__PROGRAM_VARIANTS, "%zu-%zu-%zu-goffs0%s", form.local[0], form.local[1],
             form.local[2], form.small_grid ? "-smallgrid" : "");
}

void kiln__program_launched(struct kiln__program *program, unsigned dimensions,
                            const size_t *global, const size_t *local)
{
    int wanted = KILN__PROGRAM_WANTS_LAUNCH;
    if (atomic_load_explicit(&program->storing, memory_order_relaxed) != wanted ||
        !atomic_compare_exchange_strong(&program->storing, &wanted, KILN__PROGRAM_WAITS))
        return;
    kiln__program_variants(dimensions, global, local, program->variants);
    store_later(program);
}

/* ---- loading, on the thread that asked first ---- */

/* Whether it is the binary that the driver refuses. Anything else (no memory, a device that is
 * gone) may be this process's own trouble, and the entry is good for all others. */
static bool blames_binary(cl_int code)
{
    return code == CL_INVALID_BINARY || code == CL_BUILD_PROGRAM_FAILURE ||
           code == CL_COMPILE_PROGRAM_FAILURE || code == CL_LINK_PROGRAM_FAILURE;
}

static bool use_binary(struct kiln__program *program, const char *options,
                       struct kiln__loaded *loaded)
{
    struct kiln__programs *programs = program->owner;
    const struct kiln__span *binary = &loaded->entry.sections[KILN__ENTRY_PAYLOAD];
    cl_int code = kiln__build_binary(programs->context, &programs->device, binary->bytes,
                                     binary->length, options, &program->cl);
    if (code)
        kiln__store_reject(programs->store, &program->key, loaded, blames_binary(code),
                           kiln__cl_name(code));
    else
        atomic_fetch_add(&programs->from_disk, 1);
    kiln__store_unload(loaded);
    return !code;
}

/* From disk. False: the program has to be compiled; its lock may be held. */
static bool load(struct kiln__program *program, const char *options)
{
    struct kiln__programs *programs = program->owner;
    struct kiln__loaded loaded;
    unsigned wait =
        programs->compile == KILN_COMPILE_NEVER ? 0 : atomic_load(&programs->patience_ms);
    enum kiln__store_answer answer =
        kiln__store_get_or_lock(programs->store, &program->key, wait, &loaded, &program->lock);
    if (answer == KILN__STORE_FOUND && use_binary(program, options, &loaded))
        return true;
    if (answer == KILN__STORE_FOUND) {
        /* The driver refused it, and this process replaces it. */
        answer =
            kiln__store_get_or_lock(programs->store, &program->key, 0, &loaded, &program->lock);
        if (answer == KILN__STORE_FOUND)
            kiln__store_unload(&loaded);
    } else if (answer == KILN__STORE_UNLOCKED && wait && kiln__store_writes(programs->store))
        atomic_store(&programs->patience_ms, wait / 2);
    return false;
}

/* It is fetched on the thread that compiled, and written on another one. */
static void store_complete(struct kiln__program *program)
{
    struct kiln__programs *programs = program->owner;
    if (!kiln__store_entry_fetch(programs->store, &programs->device, program->cl, program->kernel,
                                 &program->binary, &program->binary_length)) {
        release_lock(program);
        return;
    }
    atomic_store(&program->storing, KILN__PROGRAM_WAITS);
    store_later(program);
}

/* Where the binary is complete only after a launch, the lock is not held until then, and what
 * another process compiles again is kept. */
static void plan_storing(struct kiln__program *program, const char *options, const char *source)
{
    struct kiln__programs *programs = program->owner;
    bool late = programs->device.traits->late_binary;
    bool stores =
        kiln__store_writes(programs->store) && !kiln__program_is_quick(&programs->device, options);
    if (!stores || late)
        release_lock(program);
    if (!stores)
        return;
    if (!late) {
        store_complete(program);
        return;
    }
    program->options = strdup(options);
    program->source = strdup(source);
    if (program->options && program->source)
        atomic_store(&program->storing, KILN__PROGRAM_WANTS_LAUNCH);
    else
        kiln__store_failed(programs->store);
}

/* Its lock, which nobody needs then, is not held any longer. */
static kiln_status program_refuse(struct kiln__program *program)
{
    const char *folder = kiln__store_thread_folder(program->owner->storing);
    release_lock(program);
    return kiln__fail(
        &program->error, KILN_BUILD_FAILED,
        "%.200s is not in the kernel cache%s%.100s, and nothing may be compiled; "
        "where it may, `kiln cache export FILE PROGRAM` collects what a program needs",
        program->kernel, folder ? " " : "", folder ? folder : "");
}

static kiln_status compile(struct kiln__program *program, const char *options,
                           const struct kiln__program_request *request)
{
    struct kiln__programs *programs = program->owner;
    int64_t start = kiln__now();
    kiln_status status =
        kiln__build_source(programs->context, &programs->device, request->source, options,
                           request->kernel, &program->cl, &program->error);
    uint64_t took = (uint64_t)(kiln__now() - start);
    kiln__store_thread_guard_exit(KILN__GUARD_COMPILED);
    atomic_fetch_add(&programs->compile_ns, took);
    if (status) {
        release_lock(program);
        return status;
    }
    KILN__LOG(KILN__LOG_INFO, "%s was compiled in %.3f s", program->kernel, (double)took * 1e-9);
    atomic_fetch_add(&programs->compiled, 1);
    plan_storing(program, options, request->source);
    return KILN_OK;
}

void kiln__program_options(const struct kiln__programs *programs, const char *own,
                           struct kiln__text *options)
{
    const char *of_device = programs->device.traits->build_options;
    kiln__text_add(options, "%s %s", of_device ? of_device : "", own ? own : "");
}

bool kiln__program_is_quick(const struct kiln__device *device, const char *options)
{
    const char *quick = device->traits->quick_options;
    return quick && options && strstr(options, quick);
}

kiln_status kiln__program_load(struct kiln__program *program,
                               const struct kiln__program_request *request)
{
    struct kiln__programs *programs = program->owner;
    struct kiln__text options = {0};
    kiln__program_options(programs, request->options, &options);
    kiln_status status = KILN_OK;
    if (options.failed ||
        !kiln__key_make(&programs->shared_key, options.data, request->source, &program->key))
        status = kiln__fail(&program->error, KILN_OUT_OF_HOST_MEMORY,
                            "no memory for the key of kernel %s", request->kernel);
    else if (kiln__program_is_quick(&programs->device, options.data))
        status = compile(program, options.data, request);
    else if (!load(program, options.data))
        status = programs->compile == KILN_COMPILE_NEVER ? program_refuse(program)
                                                         : compile(program, options.data, request);
    kiln__text_free(&options);
    return status;
}
