/* SPDX-License-Identifier: Apache-2.0 */
/* How long one process waits for another. The lock of a key is held from the miss until the entry
 * is stored, on a device with late binaries thus until the first launch has completed. Another
 * process waits up to two seconds for it, then compiles for itself. Each wait in vain halves the
 * next one, so that they sum up to four seconds at most; and a process that holds a lock waits for
 * none, so that no two wait for each other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/build.h"
#include "cache/gate.h"
#include "cache/program_state.h"
#include "util/log.h"

static atomic_uint locks_held; /* by all programs of this process */

void kiln__program_free(struct kiln__program *program)
{
    kiln__key_free(&program->key);
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
    if (program->lock.fd < 0)
        return;
    kiln__lock_release(&program->lock);
    atomic_fetch_sub(&locks_held, 1);
}

/* In a child of fork the driver and the locks are the parent's: only what is copied goes. */
void kiln__program_release(struct kiln__program *program, bool ours)
{
    if (ours) {
        release_lock(program);
        clReleaseProgram(program->cl);
    } else if (program->lock.fd >= 0)
        close(program->lock.fd);
    kiln__program_free(program);
}

/* ---- storing, on the worker's thread ---- */

/* True once the launch has completed without an error. */
static bool has_run(struct kiln__program *program)
{
    cl_int status = CL_COMPLETE;
    if (!program->launched)
        return true;
    cl_int code = clWaitForEvents(1, &program->launched);
    if (!code)
        code = clGetEventInfo(program->launched, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status,
                              &status, NULL);
    clReleaseEvent(program->launched);
    program->launched = NULL;
    return !code && status == CL_COMPLETE;
}

static struct kiln__span text_span(const char *text)
{
    return (struct kiln__span){text, strlen(text) + 1};
}

static void put_binary(struct kiln__program *program, const void *binary, size_t length)
{
    struct kiln__programs *programs = program->owner;
    const kiln_device_info *info = &programs->device.info;
    char driver[sizeof info->platform + sizeof info->driver_version + 1];
    snprintf(driver, sizeof driver, "%s %s", info->platform, info->driver_version);
    struct kiln__entry entry = {{
        [KILN__ENTRY_KEY] = {program->key.bytes, program->key.length},
        [KILN__ENTRY_DEVICE] = text_span(info->name),
        [KILN__ENTRY_DRIVER] = text_span(driver),
        [KILN__ENTRY_KERNEL] = text_span(program->kernel),
        [KILN__ENTRY_PAYLOAD] = {binary, length},
    }};
    kiln__store_put(programs->store, &entry);
}

static void store_program(struct kiln__job *job)
{
    struct kiln__program *program = (struct kiln__program *)job;
    void *binary = NULL;
    size_t length = 0;
    if (!has_run(program)) {
        release_lock(program);
        atomic_store(&program->storing,
                     KILN__PROGRAM_WANTS_LAUNCH); /* from here on a launch may come */
        return;
    }
    bool late = program->owner->device.traits->late_binary;
    cl_int code = late ? kiln__gate_close() : CL_SUCCESS;
    if (!code)
        code = kiln__build_fetch(program->cl, &program->owner->device, &binary, &length);
    if (late)
        kiln__gate_open();
    if (code) {
        KILN__LOG(KILN__LOG_INFO, "the binary of %s cannot be had: %s", program->kernel,
                  kiln__cl_name(code));
        kiln__store_failed(program->owner->store);
    } else
        put_binary(program, binary, length);
    free(binary);
    release_lock(program);
    atomic_store(&program->storing, KILN__PROGRAM_STORED);
}

static void store_later(struct kiln__program *program)
{
    program->job.run = store_program;
    if (kiln__worker_add(program->owner->worker, &program->job))
        return;
    if (program->launched)
        clReleaseEvent(program->launched);
    program->launched = NULL;
    kiln__store_failed(program->owner->store);
    release_lock(program);
    atomic_store(&program->storing, KILN__PROGRAM_STORED);
}

bool kiln__program_wants_launch(struct kiln__programs *programs, struct kiln__program *program)
{
    (void)programs;
    int wanted = KILN__PROGRAM_WANTS_LAUNCH;
    return atomic_load_explicit(&program->storing, memory_order_relaxed) ==
               KILN__PROGRAM_WANTS_LAUNCH &&
           atomic_compare_exchange_strong(&program->storing, &wanted, KILN__PROGRAM_LAUNCHED);
}

/* Without an event (the launch failed) the next launch is wanted. */
void kiln__program_launched(struct kiln__programs *programs, struct kiln__program *program,
                            cl_event launched)
{
    (void)programs;
    if (!launched || clRetainEvent(launched)) {
        atomic_store(&program->storing, KILN__PROGRAM_WANTS_LAUNCH);
        return;
    }
    program->launched = launched;
    store_later(program);
}

cl_program kiln__program_cl(const struct kiln__program *program)
{
    return program->cl;
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
    unsigned wait = atomic_load(&locks_held) ? 0 : atomic_load(&programs->patience_ms);
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
    if (answer == KILN__STORE_LOCKED)
        atomic_fetch_add(&locks_held, 1);
    return false;
}

static kiln_status compile(struct kiln__program *program, const char *options,
                           const struct kiln__program_request *request)
{
    struct kiln__programs *programs = program->owner;
    kiln_status status =
        kiln__build_source(programs->context, &programs->device, request->source, options,
                           request->kernel, &program->cl, &program->error);
    if (status) {
        release_lock(program);
        return status;
    }
    atomic_fetch_add(&programs->compiled, 1);
    if (!kiln__store_writes(programs->store))
        return KILN_OK;
    if (programs->device.traits->late_binary)
        atomic_store(&program->storing, KILN__PROGRAM_WANTS_LAUNCH);
    else {
        atomic_store(&program->storing, KILN__PROGRAM_LAUNCHED);
        store_later(program);
    }
    return KILN_OK;
}

kiln_status kiln__program_load(struct kiln__program *program,
                               const struct kiln__program_request *request)
{
    struct kiln__programs *programs = program->owner;
    struct kiln__text options = {0};
    const char *of_device = programs->device.traits->build_options;
    kiln__text_add(&options, "%s %s", of_device ? of_device : "",
                   request->options ? request->options : "");
    kiln_status status = KILN_OK;
    if (options.failed ||
        !kiln__key_make(&programs->shared_key, options.data, request->source, &program->key))
        status = kiln__fail(&program->error, KILN_OUT_OF_HOST_MEMORY,
                            "no memory for the key of kernel %s", request->kernel);
    else if (!load(program, options.data))
        status = compile(program, options.data, request);
    kiln__text_free(&options);
    return status;
}
