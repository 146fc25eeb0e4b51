/* SPDX-License-Identifier: Apache-2.0 */
/* The programs of a context: a table in memory, where two threads that want the same one meet. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "programs/compiler_guard.h"
#include "programs/program_state.h"
#include "programs/store_thread.h"
#include "store/location.h"
#include "util/environment.h"

#define PATIENCE_MS 2000 /* see program.c */

static struct kiln__program **bucket_of(struct kiln__programs *programs, const void *name,
                                        size_t name_length)
{
    return &programs->buckets[kiln__hash64(name, name_length) % KILN__PROGRAM_BUCKETS];
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
    if (program && program->state != KILN__PROGRAM_READY)
        program = NULL;
    pthread_mutex_unlock(&programs->mutex);
    if (program)
        atomic_fetch_add(&programs->from_memory, 1);
    return program;
}

bool kiln__programs_has(struct kiln__programs *programs, const void *name, size_t name_length)
{
    pthread_mutex_lock(&programs->mutex);
    const struct kiln__program *program = look_up(programs, name, name_length);
    bool has = program && program->state == KILN__PROGRAM_READY;
    pthread_mutex_unlock(&programs->mutex);
    return has;
}

/* What others get. Who looks last at a program that could not be made takes it along. The mutex is
 * held, and given back. */
static kiln_status wait_for(struct kiln__program *found, struct kiln__program **program,
                            struct kiln__error *error)
{
    struct kiln__programs *programs = found->owner;
    kiln_status status = KILN_OK;
    found->waiting++;
    while (found->state == KILN__PROGRAM_LOADING)
        pthread_cond_wait(&programs->changed, &programs->mutex);
    found->waiting--;
    if (found->state == KILN__PROGRAM_FAILED)
        status = kiln__fail(error, found->error.status, "%s", found->error.text);
    else
        *program = found;
    bool last = status && !found->waiting;
    pthread_mutex_unlock(&programs->mutex);
    if (last)
        kiln__program_free(found);
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
    loaded->state = status ? KILN__PROGRAM_FAILED : KILN__PROGRAM_READY;
    if (status)
        take_out(loaded);
    else
        *program = loaded;
    bool last = status && !loaded->waiting;
    pthread_cond_broadcast(&programs->changed);
    pthread_mutex_unlock(&programs->mutex);
    if (last)
        kiln__program_free(loaded);
    return status;
}

kiln_status kiln__programs_get(struct kiln__programs *programs, const void *name,
                               size_t name_length, const char *source, const char *options,
                               const char *kernel, struct kiln__program **program,
                               struct kiln__error *error)
{
    const struct kiln__program_request request = {source, options, kernel};
    *program = NULL;
    if (programs->pid != getpid())
        return kiln__fail(error, KILN_FORKED, "the programs of a context stay behind at a fork");
    pthread_mutex_lock(&programs->mutex);
    struct kiln__program *found = look_up(programs, name, name_length);
    if (found) {
        atomic_fetch_add(&programs->from_memory, 1);
        return wait_for(found, program, error);
    }
    found = kiln__program_make(programs, name, name_length, kernel);
    if (!found) {
        pthread_mutex_unlock(&programs->mutex);
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "no memory for kernel %s", kernel);
    }
    struct kiln__program **bucket = bucket_of(programs, name, name_length);
    found->next = *bucket;
    *bucket = found;
    pthread_mutex_unlock(&programs->mutex);
    return publish(found, kiln__program_load(found, &request), program, error);
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

/* What $KILN_COMPILE makes of KILN_COMPILE_DEFAULT. session/option_words.c has looked at it. */
static kiln_compile_mode choose_compile_mode(kiln_compile_mode mode)
{
    const char *value = kiln__environment("KILN_COMPILE");
    if (mode != KILN_COMPILE_DEFAULT)
        return mode;
    return !value || !strcmp(value, "together") ? KILN_COMPILE_TOGETHER
           : !strcmp(value, "never")            ? KILN_COMPILE_NEVER
           : !strcmp(value, "background")       ? KILN_COMPILE_BACKGROUND
           : !strcmp(value, "quick")            ? KILN_COMPILE_QUICK
                                                : KILN_COMPILE_ALONE;
}

bool kiln__programs_compile_in_parallel(const struct kiln__programs *programs)
{
    return programs->compile != KILN_COMPILE_ALONE && programs->compile != KILN_COMPILE_NEVER;
}

bool kiln__programs_compile_in_background(const struct kiln__programs *programs)
{
    return programs->compile == KILN_COMPILE_BACKGROUND ||
           (programs->compile == KILN_COMPILE_QUICK && programs->device.traits->quick_options);
}

bool kiln__programs_have_disk(const struct kiln__programs *programs)
{
    return kiln__store_reads(programs->store);
}

kiln_compile_mode kiln__programs_compile_mode(const struct kiln__programs *programs)
{
    return programs->compile;
}

kiln_status kiln__programs_create(cl_context context, const struct kiln__device *device,
                                  const struct kiln__programs_options *options,
                                  struct kiln__programs **programs, struct kiln__error *error)
{
    const struct kiln__store_options of_store = {options->folder, options->limit, options->mode};
    struct kiln__programs *made = calloc(1, sizeof *made);
    char path[PATH_MAX];
    *programs = NULL;
    if (!made || !init_table(made)) {
        free(made);
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "no memory for the kernel cache");
    }
    kiln__compiler_guard_exit();
    made->pid = getpid();
    made->context = context;
    made->device = *device;
    atomic_init(&made->patience_ms, PATIENCE_MS);
    kiln__key_begin(device, &made->shared_key);
    made->limit = options->limit;
    made->compile = choose_compile_mode(options->compile);
    made->store = kiln__store_open(&of_store);
    made->storing = kiln__store_thread_create(
        made, kiln__location_find(options->folder, path, sizeof path) ? path : "");
    if (made->shared_key.failed || !made->store || !made->storing) {
        kiln__programs_destroy(made);
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "no memory for the kernel cache");
    }
    *programs = made;
    return KILN_OK;
}

void kiln__programs_destroy(struct kiln__programs *programs)
{
    if (!programs)
        return;
    bool ours = programs->pid == getpid();
    kiln__store_thread_destroy(programs->storing);
    for (size_t i = 0; i < KILN__PROGRAM_BUCKETS; i++)
        while (programs->buckets[i]) {
            struct kiln__program *program = programs->buckets[i];
            programs->buckets[i] = program->next;
            kiln__program_release(program, ours);
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
    kiln__store_thread_sync(programs->storing);
}

void kiln__programs_get_stats(struct kiln__programs *programs, struct kiln__programs_stats *stats)
{
    stats->compiled = atomic_load(&programs->compiled);
    stats->from_disk = atomic_load(&programs->from_disk);
    stats->from_memory = atomic_load(&programs->from_memory);
    stats->stores = kiln__store_puts(programs->store) + atomic_load(&programs->stored_by_workers);
    stats->failures = kiln__store_failures(programs->store);
    stats->pending = kiln__store_thread_pending(programs->storing);
    stats->compile_ns = atomic_load(&programs->compile_ns);
}
