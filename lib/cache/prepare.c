/* SPDX-License-Identifier: Apache-2.0 */
/* Many programs at once, before any of them runs. PoCL compiles in one thread of a process at a
 * time: there several processes of kiln's compile and store (see cache/errand.h), and this one
 * finds it all on disk. Elsewhere, and where that does not work, threads of this one do it. */
#include <errno.h>
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

struct party {
    struct kiln__text errands;
    size_t count;
    int answers;
};

/* In memory and on disk there is no need for it. */
static bool is_missing(struct kiln__programs *programs, const struct kiln__program_wish *wish,
                       const struct kiln__key *key)
{
    struct kiln__loaded loaded;
    if (kiln__programs_find(programs, wish->name, wish->name_length))
        return false;
    bool there = kiln__store_get(programs->store, key, &loaded);
    if (there)
        kiln__store_unload(&loaded);
    return !there;
}

static void begin_party(struct kiln__programs *programs, struct party *party)
{
    const struct kiln__errand_head head = {kiln__storing_folder(programs->storing),
                                           programs->limit,
                                           {programs->shared_key.data, programs->shared_key.length},
                                           true};
    kiln__errand_write_head(&head, &party->errands);
}

/* Kernels of one source go to the same process, which stores one binary for them: the hash in the
 * key's name decides. */
static void assign(struct kiln__programs *programs, const struct kiln__program_wish *wish,
                   struct party *parties, unsigned count)
{
    struct kiln__text options = {0};
    struct kiln__key key = {0};
    char variants[KILN__PROGRAM_VARIANTS];
    kiln__program_options(programs, wish->options, &options);
    kiln__program_variants(wish->dimensions, wish->global, wish->local, variants);
    if (!options.failed &&
        kiln__key_make(&programs->shared_key, options.data, wish->source, &key) &&
        is_missing(programs, wish, &key)) {
        const struct kiln__errand errand = {options.data, wish->source, wish->kernel, variants};
        struct party *party = &parties[kiln__hash64(key.bytes, key.length) % count];
        if (!party->count++)
            begin_party(programs, party);
        kiln__errand_write(&errand, &party->errands);
    }
    kiln__key_free(&key);
    kiln__text_free(&options);
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

static void compile_apart(struct kiln__programs *programs, const struct kiln__program_wish *wishes,
                          size_t count, unsigned threads)
{
    struct party parties[MOST_THREADS] = {0};
    size_t stored = 0, wanted = 0;
    for (size_t i = 0; i < count; i++)
        assign(programs, &wishes[i], parties, threads);
    for (unsigned i = 0; i < threads; i++) {
        wanted += parties[i].count;
        parties[i].answers = parties[i].count ? kiln__errand_start(&parties[i].errands) : -1;
        kiln__text_free(&parties[i].errands);
    }
    for (unsigned i = 0; i < threads; i++)
        if (parties[i].answers >= 0)
            stored += await_party(programs, &parties[i]);
    KILN__LOG(KILN__LOG_INFO, "%zu of %zu kernels were compiled and stored beforehand", stored,
              wanted);
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

void kiln__programs_prepare(struct kiln__programs *programs,
                            const struct kiln__program_wish *wishes, size_t count, unsigned threads)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (!threads)
        threads = cores > 0 ? (unsigned)cores : 1;
    if (threads > count)
        threads = (unsigned)count;
    if (threads > MOST_THREADS)
        threads = MOST_THREADS;
    if (!count)
        return;
    if (programs->device.traits->late_binary && kiln__store_writes(programs->store) &&
        kiln__storing_folder(programs->storing))
        compile_apart(programs, wishes, count, threads);
    compile_here(programs, wishes, count, threads);
    kiln__programs_sync(programs);
}
