/* SPDX-License-Identifier: Apache-2.0 */
/* Many programs at once, before any of them runs. PoCL and NVIDIA's driver compile in one thread of
 * a process at a time: there several processes of kiln's compile and store (see
 * programs/compile_workers.h), and this one finds it all on disk. Where a driver is known to bear
 * it, threads of this one do it (Oclgrind crashes); elsewhere a kernel is compiled when it is met.
 *
 * A process takes 0.1 to 0.3 s to begin, and on PoCL as much to read the driver's library. Below
 * six kernels, or twelve on two cores, the batch's own thread is as soon.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity */
#endif
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "programs/compile_workers.h"
#include "programs/program_state.h"
#include "util/log.h"

#define MOST_THREADS KILN__MOST_COMPILE_WORKERS

/* ---- in this one ---- */

struct work {
    struct kiln__programs *programs;
    const struct kiln__program_spec *specs;
    size_t count;
    atomic_size_t next;
};

/* An error is the next asker's, who asks again. */
static void *get_some(void *user)
{
    struct work *work = user;
    for (;;) {
        size_t i = atomic_fetch_add(&work->next, 1);
        if (i >= work->count)
            return NULL;
        const struct kiln__program_spec *spec = &work->specs[i];
        struct kiln__program *program;
        struct kiln__error error = {0};
        kiln__programs_get(work->programs, spec->name, spec->name_length, spec->source,
                           spec->options, spec->kernel, &program, &error);
    }
}

static void compile_here(struct kiln__programs *programs, const struct kiln__program_spec *specs,
                         size_t count, unsigned threads)
{
    struct work work = {programs, specs, count, 0};
    pthread_t others[MOST_THREADS];
    unsigned started = 0;
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    while (started + 1 < threads && !pthread_create(&others[started], NULL, get_some, &work))
        started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    get_some(&work);
    while (started)
        pthread_join(others[--started], NULL);
}

/* ---- what is missing ---- */

static bool is_on_disk(struct kiln__programs *programs, const struct kiln__program_spec *spec)
{
    struct kiln__text options = {0};
    struct kiln__loaded loaded;
    struct kiln__key key = {0};
    kiln__program_options(programs, spec->options, &options);
    bool there = !options.failed &&
                 kiln__key_make(&programs->shared_key, options.data, spec->source, &key) &&
                 kiln__store_get(programs->store, &key, &loaded);
    if (there)
        kiln__store_unload(&loaded);
    kiln__key_free(&key);
    kiln__text_free(&options);
    return there;
}

void kiln__programs_find_missing(struct kiln__programs *programs,
                                 const struct kiln__program_spec *specs, size_t count,
                                 struct kiln__missing *missing)
{
    *missing = (struct kiln__missing){calloc(count + 1, sizeof *missing->items), 0};
    for (size_t i = 0; missing->items && i < count; i++)
        if (!kiln__program_is_quick(&programs->device, specs[i].options) &&
            !kiln__programs_has(programs, specs[i].name, specs[i].name_length) &&
            !is_on_disk(programs, &specs[i]))
            missing->items[missing->count++] = &specs[i];
}

/* ---- both ---- */

/* 0: as many as there are cores for this process; not more than there is to do. */
static unsigned count_threads(unsigned threads, size_t most)
{
    cpu_set_t cores;
    if (!threads)
        threads = sched_getaffinity(0, sizeof cores, &cores) ? 1 : (unsigned)CPU_COUNT(&cores);
    if (threads > MOST_THREADS)
        threads = MOST_THREADS;
    return threads > most ? (unsigned)most : threads;
}

/* Whether other processes can do it, and have to: here it would be one after the other. */
static bool needs_workers(const struct kiln__programs *programs)
{
    return programs->device.traits->serial_compiler && kiln__compile_workers_is_possible(programs);
}

/* What is not done then is compiled by this process. */
static void compile_by_workers(struct kiln__programs *programs, const struct kiln__missing *missing,
                               unsigned threads)
{
    struct kiln__compile_workers workers = {0};
    kiln__compile_workers_start_specs(&workers, programs, missing, threads, true);
    while (kiln__compile_workers_listen(&workers, true))
        continue;
    KILN__LOG(KILN__LOG_INFO, "%u of %zu kernels were compiled and stored beforehand",
              workers.stored, workers.jobs.texts.count);
    kiln__compile_workers_free(&workers);
}

void kiln__programs_prepare(struct kiln__programs *programs, const struct kiln__program_spec *specs,
                            size_t count, unsigned threads)
{
    struct kiln__missing missing;
    if (!count || programs->compile == KILN_COMPILE_NEVER)
        return;
    threads = count_threads(threads, count);
    if (needs_workers(programs)) {
        kiln__programs_find_missing(programs, specs, count, &missing);
        compile_by_workers(programs, &missing, threads);
        free(missing.items);
    }
    compile_here(programs, specs, count, threads);
    kiln__programs_sync(programs);
}

/* Before a process compiles, PoCL's library is read in it, for as long as small kernels are
 * compiled: three processes with two kernels each are sooner than this one, and two that save six.
 * Each has some of a GPU's memory. */
#define LEAST_EACH 2
#define LEAST_WORKERS 3
#define LEAST_OF_TWO 12
#define MOST_WORKERS 8

/* A driver that has its own cache of what was compiled before needs less for a kernel. */
#define CACHED_NS 35000000

/* Whether the driver has to compile: the last kernel is compiled here, and is one less. */
static bool is_slow(struct kiln__programs *programs, const struct kiln__program_spec *spec)
{
    struct kiln__program *program;
    struct kiln__error error = {0};
    uint64_t before = atomic_load(&programs->compile_ns);
    return kiln__programs_get(programs, spec->name, spec->name_length, spec->source, spec->options,
                              spec->kernel, &program, &error) ||
           atomic_load(&programs->compile_ns) - before > CACHED_NS;
}

static void compile_missing_in_workers(struct kiln__programs *programs,
                                       const struct kiln__program_spec *specs, size_t count)
{
    struct kiln__missing missing;
    kiln__programs_find_missing(programs, specs, count, &missing);
    unsigned threads = count_threads(0, missing.count / LEAST_EACH);
    threads = threads > MOST_WORKERS ? MOST_WORKERS : threads;
    const bool pays = threads >= LEAST_WORKERS || (threads == 2 && missing.count >= LEAST_OF_TWO);
    if (pays && is_slow(programs, missing.items[missing.count - 1])) {
        missing.count--;
        compile_by_workers(programs, &missing, threads);
    }
    free(missing.items);
}

void kiln__programs_compile_missing(struct kiln__programs *programs,
                                    const struct kiln__program_spec *specs, size_t count)
{
    unsigned threads = count_threads(0, count);
    if (!kiln__programs_compile_in_parallel(programs) || threads < 2)
        return;
    if (needs_workers(programs))
        compile_missing_in_workers(programs, specs, count);
    else if (programs->device.traits->threaded_compiler)
        compile_here(programs, specs, count, threads);
}
