/* SPDX-License-Identifier: Apache-2.0 */
/* How long one process waits for another. The lock of a key is held from the miss until the entry
 * is stored, on a device with late binaries thus until the first launch has completed. Another
 * process waits up to two seconds for it, then compiles for itself. Each wait in vain halves the
 * next one, so that they sum up to four seconds at most; and a process that holds a lock waits for
 * none, so that no two wait for each other. */
#include "cache/program.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/build.h"
#include "cache/gate.h"
#include "cache/store.h"
#include "cache/worker.h"
#include "util/log.h"

#define BUCKETS 1024
#define PATIENCE_MS 2000

static atomic_uint locks_held; /* by all programs of this process */

enum state { LOADING, READY, FAILED };

/* Whether a program still has to be put on disk. */
enum storing { STORED, WANTS_LAUNCH, LAUNCHED };

struct kiln__program {
    struct kiln__job job; /* first: the worker hands it back */
    struct kiln__programs *owner;
    struct kiln__program *next; /* in its bucket */
    /* Set before others can see the program. */
    void *name;
    size_t name_length;
    char *kernel;
    /* Guarded by the programs' mutex. */
    enum state state;
    unsigned waiting; /* threads that wait for its state */
    /* The loading thread's until the state is READY or FAILED, then constant. */
    cl_program cl;
    struct kiln__key key;
    struct kiln__error error;
    /* The loading thread's, then of whoever moved `storing` on, then the worker's. */
    atomic_int storing;
    cl_event launched;
    struct kiln__lock lock;
};

struct kiln__programs {
    pid_t pid;
    cl_context context;
    struct kiln__device device;
    struct kiln__text shared_key;
    struct kiln__store *store;
    struct kiln__worker *worker;
    atomic_uint_fast64_t compiled, from_disk, from_memory;
    atomic_uint patience_ms;
    /* Guards the buckets. A program in state LOADING belongs to the thread that put it there; all
     * others wait on `changed` for what becomes of it. The mutex is never held during a call of
     * OpenCL, a file operation or a compilation. */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct kiln__program *buckets[BUCKETS];
};

/* What kiln__programs_get() was asked for. */
struct request {
    const char *source, *options, *kernel;
};

/* ---- one program ---- */

static void free_program(struct kiln__program *program)
{
    kiln__key_free(&program->key);
    free(program->kernel);
    free(program->name);
    free(program);
}

static struct kiln__program *make_program(struct kiln__programs *programs, const void *name,
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
        free_program(program);
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
        atomic_store(&program->storing, WANTS_LAUNCH); /* from here on a launch may come */
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
    atomic_store(&program->storing, STORED);
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
    atomic_store(&program->storing, STORED);
}

bool kiln__program_wants_launch(struct kiln__programs *programs, struct kiln__program *program)
{
    (void)programs;
    int wanted = WANTS_LAUNCH;
    return atomic_load_explicit(&program->storing, memory_order_relaxed) == WANTS_LAUNCH &&
           atomic_compare_exchange_strong(&program->storing, &wanted, LAUNCHED);
}

/* Without an event (the launch failed) the next launch is wanted. */
void kiln__program_launched(struct kiln__programs *programs, struct kiln__program *program,
                            cl_event launched)
{
    (void)programs;
    if (!launched || clRetainEvent(launched)) {
        atomic_store(&program->storing, WANTS_LAUNCH);
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

static bool use_binary(struct kiln__program *program, const char *options,
                       struct kiln__loaded *loaded)
{
    struct kiln__programs *programs = program->owner;
    const struct kiln__span *binary = &loaded->entry.sections[KILN__ENTRY_PAYLOAD];
    cl_int code = kiln__build_binary(programs->context, &programs->device, binary->bytes,
                                     binary->length, options, &program->cl);
    kiln__store_unload(loaded);
    if (code)
        kiln__store_reject(programs->store, &program->key, kiln__cl_name(code));
    else
        atomic_fetch_add(&programs->from_disk, 1);
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
        /* The driver refused it, and it is gone: this process replaces it. */
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
                           const struct request *request)
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
        atomic_store(&program->storing, WANTS_LAUNCH);
    else {
        atomic_store(&program->storing, LAUNCHED);
        store_later(program);
    }
    return KILN_OK;
}

static kiln_status load_or_compile(struct kiln__program *program, const struct request *request)
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

/* ---- the table ---- */

static struct kiln__program **bucket_of(struct kiln__programs *programs, const void *name,
                                        size_t name_length)
{
    return &programs->buckets[kiln__hash64(name, name_length) % BUCKETS];
}

/* The mutex is held. */
static struct kiln__program *look_up(struct kiln__programs *programs, const void *name,
                                     size_t name_length)
{
    struct kiln__program *program = *bucket_of(programs, name, name_length);
    while (program &&
           (program->name_length != name_length || memcmp(program->name, name, name_length)))
        program = program->next;
    return program;
}

/* A program that could not be made is not kept: the next one who asks tries again. The mutex is
 * held. */
static void take_out(struct kiln__program *program)
{
    struct kiln__program **at = bucket_of(program->owner, program->name, program->name_length);
    while (*at != program)
        at = &(*at)->next;
    *at = program->next;
}

struct kiln__program *kiln__programs_find(struct kiln__programs *programs, const void *name,
                                          size_t name_length)
{
    if (programs->pid != getpid())
        return NULL;
    pthread_mutex_lock(&programs->mutex);
    struct kiln__program *program = look_up(programs, name, name_length);
    if (program && program->state != READY)
        program = NULL;
    pthread_mutex_unlock(&programs->mutex);
    if (program)
        atomic_fetch_add(&programs->from_memory, 1);
    return program;
}

/* What others get. Who looks last at a program that could not be made takes it along. The mutex is
 * held, and given back. */
static kiln_status wait_for(struct kiln__program *found, struct kiln__program **program,
                            struct kiln__error *error)
{
    struct kiln__programs *programs = found->owner;
    kiln_status status = KILN_OK;
    found->waiting++;
    while (found->state == LOADING)
        pthread_cond_wait(&programs->changed, &programs->mutex);
    found->waiting--;
    if (found->state == FAILED)
        status = kiln__fail(error, found->error.status, "%s", found->error.text);
    else
        *program = found;
    bool last = status && !found->waiting;
    pthread_mutex_unlock(&programs->mutex);
    if (last)
        free_program(found);
    return status;
}

/* What the thread that loaded it gets. */
static kiln_status publish(struct kiln__program *loaded, kiln_status status,
                           struct kiln__program **program, struct kiln__error *error)
{
    struct kiln__programs *programs = loaded->owner;
    if (status && error && !error->status)
        *error = loaded->error;
    pthread_mutex_lock(&programs->mutex);
    loaded->state = status ? FAILED : READY;
    if (status)
        take_out(loaded);
    else
        *program = loaded;
    bool last = status && !loaded->waiting;
    pthread_cond_broadcast(&programs->changed);
    pthread_mutex_unlock(&programs->mutex);
    if (last)
        free_program(loaded);
    return status;
}

kiln_status kiln__programs_get(struct kiln__programs *programs, const void *name,
                               size_t name_length, const char *source, const char *options,
                               const char *kernel, struct kiln__program **program,
                               struct kiln__error *error)
{
    const struct request request = {source, options, kernel};
    *program = NULL;
    if (programs->pid != getpid())
        return kiln__fail(error, KILN_FORKED, "the programs of a context stay behind at a fork");
    pthread_mutex_lock(&programs->mutex);
    struct kiln__program *found = look_up(programs, name, name_length);
    if (found) {
        atomic_fetch_add(&programs->from_memory, 1);
        return wait_for(found, program, error);
    }
    found = make_program(programs, name, name_length, kernel);
    if (!found) {
        pthread_mutex_unlock(&programs->mutex);
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "no memory for kernel %s", kernel);
    }
    struct kiln__program **bucket = bucket_of(programs, name, name_length);
    found->next = *bucket;
    *bucket = found;
    pthread_mutex_unlock(&programs->mutex);
    return publish(found, load_or_compile(found, &request), program, error);
}

/* ---- all programs ---- */

static bool init_table(struct kiln__programs *programs)
{
    if (pthread_mutex_init(&programs->mutex, NULL))
        return false;
    if (!pthread_cond_init(&programs->changed, NULL))
        return true;
    pthread_mutex_destroy(&programs->mutex);
    return false;
}

kiln_status kiln__programs_create(cl_context context, const struct kiln__device *device,
                                  const struct kiln__programs_options *options,
                                  struct kiln__programs **programs, struct kiln__error *error)
{
    const struct kiln__store_options of_store = {options->directory, options->limit, options->mode};
    struct kiln__programs *made = calloc(1, sizeof *made);
    *programs = NULL;
    if (!made || !init_table(made)) {
        free(made);
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "no memory for the kernel cache");
    }
    made->pid = getpid();
    made->context = context;
    made->device = *device;
    atomic_init(&made->patience_ms, PATIENCE_MS);
    kiln__key_begin(device, &made->shared_key);
    made->store = kiln__store_open(&of_store);
    made->worker = kiln__worker_create();
    if (made->shared_key.failed || !made->store || !made->worker) {
        kiln__programs_destroy(made);
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "no memory for the kernel cache");
    }
    *programs = made;
    return KILN_OK;
}

/* In a child of fork the driver and the locks are the parent's: only what is copied goes. */
static void release_program(struct kiln__program *program, bool ours)
{
    if (ours) {
        release_lock(program);
        clReleaseProgram(program->cl);
    } else if (program->lock.fd >= 0)
        close(program->lock.fd);
    free_program(program);
}

void kiln__programs_destroy(struct kiln__programs *programs)
{
    if (!programs)
        return;
    bool ours = programs->pid == getpid();
    if (ours)
        kiln__gate_hurry(true);
    kiln__worker_destroy(programs->worker);
    if (ours)
        kiln__gate_hurry(false);
    for (size_t i = 0; i < BUCKETS; i++)
        while (programs->buckets[i]) {
            struct kiln__program *program = programs->buckets[i];
            programs->buckets[i] = program->next;
            release_program(program, ours);
        }
    kiln__store_close(programs->store);
    kiln__text_free(&programs->shared_key);
    if (ours) {
        pthread_cond_destroy(&programs->changed);
        pthread_mutex_destroy(&programs->mutex);
    }
    free(programs);
}

void kiln__programs_sync(struct kiln__programs *programs)
{
    if (programs->pid != getpid())
        return;
    kiln__gate_hurry(true);
    kiln__worker_sync(programs->worker);
    kiln__gate_hurry(false);
}

void kiln__programs_get_stats(struct kiln__programs *programs, struct kiln__programs_stats *stats)
{
    stats->compiled = atomic_load(&programs->compiled);
    stats->from_disk = atomic_load(&programs->from_disk);
    stats->from_memory = atomic_load(&programs->from_memory);
    stats->stores = kiln__store_puts(programs->store);
    stats->failures = kiln__store_failures(programs->store);
}
