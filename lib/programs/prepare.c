/* SPDX-License-Identifier: Apache-2.0 */
/* Many programs at once, before any of them runs. PoCL and NVIDIA's driver compile in one thread of
 * a process at a time: there several processes of kiln's compile and store (see
 * programs/compile_job.h), and this one finds it all on disk. Where a driver is known to bear it,
 * threads of this one do it (Oclgrind crashes); elsewhere a kernel is compiled when it is met.
 *
 * A process takes 0.1 to 0.3 s to begin, and on PoCL does nearly twice the work of a launch. Below
 * six kernels or three cores the batch's own thread is as soon.
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
    const struct kiln__program_wish *wishes;
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
        const struct kiln__program_wish *wish = &work->wishes[i];
        struct kiln__program *program;
        struct kiln__error error = {0};
        kiln__programs_get(work->programs, wish->name, wish->name_length, wish->source,
                           wish->options, wish->kernel, &program, &error);
    }
}

static void compile_here(struct kiln__programs *programs, const struct kiln__program_wish *wishes,
                         size_t count, unsigned threads)
{
    struct work work = {programs, wishes, count, 0};
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
static bool is_done_apart(const struct kiln__programs *programs)
{
    return programs->device.traits->serial_compiler && kiln__compile_workers_is_possible(programs);
}

/* What is not done then is compiled by this process. */
static void compile_by_workers(struct kiln__programs *programs, struct kiln__compile_jobs *jobs,
                               unsigned threads)
{
    struct kiln__compile_workers workers;
    kiln__compile_workers_start(programs, jobs, threads, &workers);
    kiln__compile_workers_await(&workers);
    KILN__LOG(KILN__LOG_INFO, "%zu of %zu kernels were compiled and stored beforehand",
              workers.stored, workers.asked);
}

void kiln__programs_prepare(struct kiln__programs *programs,
                            const struct kiln__program_wish *wishes, size_t count, unsigned threads)
{
    struct kiln__compile_jobs jobs = {0};
    if (!count || programs->compile == KILN_COMPILE_NEVER)
        return;
    threads = count_threads(threads, count);
    if (is_done_apart(programs)) {
        kiln__compile_jobs_find(programs, wishes, count, &jobs);
        compile_by_workers(programs, &jobs, threads);
        kiln__compile_jobs_free(&jobs);
    }
    compile_here(programs, wishes, count, threads);
    kiln__programs_sync(programs);
}

/* A process takes 0.1 to 0.3 s to begin, and for a binary that is complete PoCL compiles nearly
 * twice what a launch needs: three of them, with two kernels each, are sooner than this one. Each
 * has some of a GPU's memory. */
#define LEAST_EACH 2
#define LEAST_PARTIES 3
#define MOST_PARTIES 8

/* A driver that has its own cache of what was compiled before needs less for a kernel. */
#define CACHED_NS 35000000

/* Whether the driver has to compile: the last kernel is compiled here, and is one less. */
static bool is_slow(struct kiln__programs *programs, const struct kiln__program_wish *wish)
{
    struct kiln__program *program;
    struct kiln__error error = {0};
    uint64_t before = atomic_load(&programs->compile_ns);
    return kiln__programs_get(programs, wish->name, wish->name_length, wish->source, wish->options,
                              wish->kernel, &program, &error) ||
           atomic_load(&programs->compile_ns) - before > CACHED_NS;
}

static void meet_apart(struct kiln__programs *programs, const struct kiln__program_wish *wishes,
                       size_t count)
{
    struct kiln__compile_jobs jobs;
    kiln__compile_jobs_find(programs, wishes, count, &jobs);
    unsigned threads = count_threads(0, jobs.count / LEAST_EACH);
    threads = threads > MOST_PARTIES ? MOST_PARTIES : threads;
    if (threads >= LEAST_PARTIES && is_slow(programs, jobs.items[jobs.count - 1].wish)) {
        kiln__compile_jobs_drop_last(&jobs);
        compile_by_workers(programs, &jobs, threads);
    }
    kiln__compile_jobs_free(&jobs);
}

void kiln__programs_meet(struct kiln__programs *programs, const struct kiln__program_wish *wishes,
                         size_t count)
{
    unsigned threads = count_threads(0, count);
    if (!kiln__programs_compile_together(programs) || threads < 2)
        return;
    if (is_done_apart(programs))
        meet_apart(programs, wishes, count);
    else if (programs->device.traits->threaded_compiler)
        compile_here(programs, wishes, count, threads);
}
