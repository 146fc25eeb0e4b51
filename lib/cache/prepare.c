/* SPDX-License-Identifier: Apache-2.0 */
/* Many programs at once, before any of them runs. PoCL and NVIDIA's driver compile in one thread of
 * a process at a time: there several processes of kiln's compile and store (see cache/errand.h),
 * and this one finds it all on disk. Where a driver is known to bear it, threads of this one do it
 * (Oclgrind crashes); elsewhere a kernel is compiled when it is met.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity */
#endif
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/errand.h"
#include "cache/program_state.h"
#include "cache/storing.h"
#include "util/log.h"

#define MOST_THREADS 64

/* ---- in other processes ---- */

/* One process, and what it is given. */
struct party {
    struct kiln__text errands;
    size_t count, weight; /* bytes of text, which say how long it takes */
    int answers;
};

/* What is missing, and whose it is. */
struct errands {
    struct missing {
        struct kiln__text options;
        const struct kiln__program_wish *wish;
        uint64_t hash; /* of the key */
        unsigned party;
    } * items;
    size_t count;
};

/* In memory and on disk there is no need for it. */
static bool is_missing(struct kiln__programs *programs, const struct kiln__program_wish *wish,
                       const struct kiln__key *key)
{
    struct kiln__loaded loaded;
    if (kiln__programs_has(programs, wish->name, wish->name_length))
        return false;
    bool there = kiln__store_get(programs->store, key, &loaded);
    if (there)
        kiln__store_unload(&loaded);
    return !there;
}

static void add_missing(struct kiln__programs *programs, const struct kiln__program_wish *wish,
                        struct errands *errands)
{
    struct missing *missing = &errands->items[errands->count];
    struct kiln__key key = {0};
    *missing = (struct missing){.wish = wish};
    kiln__program_options(programs, wish->options, &missing->options);
    if (!missing->options.failed &&
        kiln__key_make(&programs->shared_key, missing->options.data, wish->source, &key) &&
        is_missing(programs, wish, &key)) {
        missing->hash = kiln__hash64(key.bytes, key.length);
        errands->count++;
    } else
        kiln__text_free(&missing->options);
    kiln__key_free(&key);
}

/* Without memory there is none. */
static void find_missing(struct kiln__programs *programs, const struct kiln__program_wish *wishes,
                         size_t count, struct errands *errands)
{
    *errands = (struct errands){calloc(count, sizeof *errands->items), 0};
    for (size_t i = 0; errands->items && i < count; i++)
        add_missing(programs, &wishes[i], errands);
}

static void free_errands(struct errands *errands)
{
    for (size_t i = 0; i < errands->count; i++)
        kiln__text_free(&errands->items[i].options);
    free(errands->items);
}

static void begin_party(struct kiln__programs *programs, struct party *party)
{
    const struct kiln__errand_head head = {kiln__storing_folder(programs->storing),
                                           programs->limit,
                                           {programs->shared_key.data, programs->shared_key.length},
                                           true};
    kiln__errand_write_head(&head, &party->errands);
}

/* Kernels of one source go to the same process, which stores one binary for them; else the one
 * with the least to do takes it. */
static unsigned choose_party(const struct errands *errands, size_t index,
                             const struct party *parties, unsigned count)
{
    unsigned least = 0;
    for (size_t i = 0; i < index; i++)
        if (errands->items[i].hash == errands->items[index].hash)
            return errands->items[i].party;
    for (unsigned i = 1; i < count; i++)
        if (parties[i].weight < parties[least].weight)
            least = i;
    return least;
}

static void assign(struct kiln__programs *programs, struct errands *errands, size_t index,
                   struct party *parties, unsigned count)
{
    struct missing *missing = &errands->items[index];
    const struct kiln__program_wish *wish = missing->wish;
    char variants[KILN__PROGRAM_VARIANTS];
    const struct kiln__errand errand = {missing->options.data, wish->source, wish->kernel,
                                        variants};
    missing->party = choose_party(errands, index, parties, count);
    struct party *party = &parties[missing->party];
    kiln__program_variants(wish->dimensions, wish->global, wish->local, variants);
    if (!party->count++)
        begin_party(programs, party);
    party->weight += strlen(wish->source);
    kiln__errand_write(&errand, &party->errands);
}

/* What it does not come to is compiled by this process. */
static size_t await_party(struct kiln__programs *programs, struct party *party)
{
    size_t stored = 0;
    char answer;
    ssize_t got;
    while ((got = read(party->answers, &answer, 1)) == 1 || (got < 0 && errno == EINTR))
        stored += got == 1 && answer == KILN__ERRAND_STORED;
    close(party->answers);
    atomic_fetch_add(&programs->stored_apart, stored);
    return stored;
}

static void compile_apart(struct kiln__programs *programs, struct errands *errands,
                          unsigned threads)
{
    struct party parties[MOST_THREADS] = {0};
    size_t stored = 0;
    for (size_t i = 0; i < errands->count; i++)
        assign(programs, errands, i, parties, threads);
    for (unsigned i = 0; i < threads; i++) {
        parties[i].answers = parties[i].count ? kiln__errand_start(&parties[i].errands) : -1;
        kiln__text_free(&parties[i].errands);
    }
    for (unsigned i = 0; i < threads; i++)
        if (parties[i].answers >= 0)
            stored += await_party(programs, &parties[i]);
    KILN__LOG(KILN__LOG_INFO, "%zu of %zu kernels were compiled and stored beforehand", stored,
              errands->count);
}

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
    return programs->device.traits->serial_compiler && kiln__store_writes(programs->store) &&
           kiln__storing_folder(programs->storing);
}

void kiln__programs_prepare(struct kiln__programs *programs,
                            const struct kiln__program_wish *wishes, size_t count, unsigned threads)
{
    struct errands errands = {0};
    if (!count || programs->compile == KILN_COMPILE_NEVER)
        return;
    threads = count_threads(threads, count);
    if (is_done_apart(programs)) {
        find_missing(programs, wishes, count, &errands);
        compile_apart(programs, &errands, threads);
        free_errands(&errands);
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
    struct errands errands;
    find_missing(programs, wishes, count, &errands);
    unsigned threads = count_threads(0, errands.count / LEAST_EACH);
    threads = threads > MOST_PARTIES ? MOST_PARTIES : threads;
    if (threads >= LEAST_PARTIES && is_slow(programs, errands.items[errands.count - 1].wish)) {
        kiln__text_free(&errands.items[--errands.count].options);
        compile_apart(programs, &errands, threads);
    }
    free_errands(&errands);
}

void kiln__programs_meet(struct kiln__programs *programs, const struct kiln__program_wish *wishes,
                         size_t count)
{
    unsigned threads = count_threads(0, count);
    if (programs->compile != KILN_COMPILE_TOGETHER || threads < 2)
        return;
    if (is_done_apart(programs))
        meet_apart(programs, wishes, count);
    else if (programs->device.traits->threaded_compiler)
        compile_here(programs, wishes, count, threads);
}
