/* SPDX-License-Identifier: Apache-2.0 */
/* Distribution of missing programs over worker processes, and polling of their answers. */
#include "programs/compile_workers.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "programs/compile_job.h"
#include "programs/program_state.h"
#include "programs/store_thread.h"
#include "util/clock.h"

/* One process, and what it is given. */
struct party {
    struct kiln__text jobs;
    size_t count, weight; /* bytes of text, which say how long it takes */
};

bool kiln__compile_workers_is_possible(const struct kiln__programs *programs)
{
    return kiln__store_writes(programs->store) && kiln__store_thread_folder(programs->storing);
}

/* ---- what is missing ---- */

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
                        struct kiln__compile_jobs *jobs)
{
    struct kiln__missing *missing = &jobs->items[jobs->count];
    struct kiln__key key = {0};
    *missing = (struct kiln__missing){.wish = wish};
    kiln__program_options(programs, wish->options, &missing->options);
    if (!missing->options.failed &&
        kiln__key_make(&programs->shared_key, missing->options.data, wish->source, &key) &&
        is_missing(programs, wish, &key)) {
        missing->hash = kiln__hash64(key.bytes, key.length);
        jobs->count++;
    } else
        kiln__text_free(&missing->options);
    kiln__key_free(&key);
}

/* Without memory there is none. */
void kiln__compile_jobs_find(struct kiln__programs *programs,
                             const struct kiln__program_wish *wishes, size_t count,
                             struct kiln__compile_jobs *jobs)
{
    *jobs = (struct kiln__compile_jobs){calloc(count, sizeof *jobs->items), 0};
    for (size_t i = 0; jobs->items && i < count; i++)
        add_missing(programs, &wishes[i], jobs);
}

void kiln__compile_jobs_drop_last(struct kiln__compile_jobs *jobs)
{
    kiln__text_free(&jobs->items[--jobs->count].options);
}

void kiln__compile_jobs_free(struct kiln__compile_jobs *jobs)
{
    while (jobs->count)
        kiln__compile_jobs_drop_last(jobs);
    free(jobs->items);
    jobs->items = NULL;
}

/* ---- whose it is ---- */

static void begin_party(struct kiln__programs *programs, struct party *party)
{
    const struct kiln__compile_job_head head = {
        kiln__store_thread_folder(programs->storing),
        programs->limit,
        {programs->shared_key.data, programs->shared_key.length},
        true};
    kiln__compile_job_write_head(&head, &party->jobs);
}

/* Kernels of one source go to the same process, which stores one binary for them; else the one
 * with the least to do takes it. */
static unsigned choose_party(const struct kiln__compile_jobs *jobs, size_t index,
                             const struct party *parties, unsigned count)
{
    unsigned least = 0;
    for (size_t i = 0; i < index; i++)
        if (jobs->items[i].hash == jobs->items[index].hash)
            return jobs->items[i].party;
    for (unsigned i = 1; i < count; i++)
        if (parties[i].weight < parties[least].weight)
            least = i;
    return least;
}

static void assign(struct kiln__programs *programs, struct kiln__compile_jobs *jobs, size_t index,
                   struct party *parties, unsigned count)
{
    struct kiln__missing *missing = &jobs->items[index];
    const struct kiln__program_wish *wish = missing->wish;
    char variants[KILN__PROGRAM_VARIANTS];
    const struct kiln__compile_job job = {missing->options.data, wish->source, wish->kernel,
                                          variants};
    missing->party = choose_party(jobs, index, parties, count);
    struct party *party = &parties[missing->party];
    kiln__program_variants(wish->dimensions, wish->global, wish->local, variants);
    if (!party->count++)
        begin_party(programs, party);
    party->weight += strlen(wish->source);
    kiln__compile_job_write(&job, &party->jobs);
}

/* False: there is no use in starting another one. */
static bool start_party(const struct party *party, struct kiln__compile_worker *started)
{
    pid_t child;
    int answers = kiln__compile_job_start(&party->jobs, &child);
    if (answers >= 0 && !kiln__compile_job_let_go(child)) {
        close(answers);
        answers = -1;
    }
    *started =
        (struct kiln__compile_worker){.answers = answers, .heard_ms = kiln__now() / KILN__MS};
    return answers >= 0;
}

void kiln__compile_workers_start(struct kiln__programs *programs, struct kiln__compile_jobs *jobs,
                                 unsigned count, struct kiln__compile_workers *workers)
{
    struct party parties[KILN__MOST_COMPILE_WORKERS] = {0};
    *workers = (struct kiln__compile_workers){
        .programs = programs, .parties = count, .asked = jobs->count};
    for (size_t i = 0; i < jobs->count; i++)
        assign(programs, jobs, i, parties, count);
    bool possible = true;
    for (unsigned i = 0; i < count; i++) {
        workers->party[i].answers = -1;
        if (parties[i].count && possible)
            possible = start_party(&parties[i], &workers->party[i]);
        kiln__text_free(&parties[i].jobs);
    }
}

/* ---- what becomes of it ---- */

/* What is left of the time within which it has to say something. */
static int patience_ms(const struct kiln__compile_worker *party)
{
    int64_t longest = (party->ready ? KILN__JOB_SILENCE : KILN__JOB_SOON) * INT64_C(1000);
    int64_t left = party->heard_ms + longest - kiln__now() / KILN__MS;
    return left > 0 ? (int)left : 0;
}

static void take_answers(struct kiln__compile_workers *workers, const char *heard, ssize_t count)
{
    for (ssize_t i = 0; i < count; i++) {
        workers->stored += heard[i] == KILN__JOB_STORED;
        workers->present += heard[i] == KILN__JOB_PRESENT;
        if (heard[i] == KILN__JOB_STORED)
            atomic_fetch_add(&workers->programs->stored_by_workers, 1);
    }
}

/* False: it has ended, or stalled; what it did not come to nobody has compiled. */
static bool listen_to(struct kiln__compile_workers *workers, struct kiln__compile_worker *party)
{
    char heard[64];
    ssize_t got = 1;
    while (got > 0 || (got < 0 && errno == EINTR)) {
        got = recv(party->answers, heard, sizeof heard, MSG_DONTWAIT);
        if (got <= 0)
            continue;
        take_answers(workers, heard, got);
        party->ready = true;
        party->heard_ms = kiln__now() / KILN__MS;
    }
    return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) && patience_ms(party);
}

/* Whether it is at work still; `waits`: until it is not. */
static bool is_at_work(struct kiln__compile_workers *workers, struct kiln__compile_worker *party,
                       bool waits)
{
    bool works = party->answers >= 0;
    if (!works)
        return false;
    while ((works = listen_to(workers, party)) && waits)
        poll(&(struct pollfd){.fd = party->answers, .events = POLLIN}, 1, patience_ms(party));
    if (!works) {
        close(party->answers);
        party->answers = -1;
    }
    return works;
}

static bool are_at_work(struct kiln__compile_workers *workers, bool wait)
{
    bool works = false;
    for (unsigned i = 0; i < workers->parties; i++)
        works = is_at_work(workers, &workers->party[i], wait) || works;
    return works;
}

bool kiln__compile_workers_is_over(struct kiln__compile_workers *workers)
{
    return !are_at_work(workers, false);
}

void kiln__compile_workers_await(struct kiln__compile_workers *workers)
{
    are_at_work(workers, true);
}

void kiln__compile_workers_leave(struct kiln__compile_workers *workers)
{
    for (unsigned i = 0; i < workers->parties; i++)
        if (workers->party[i].answers >= 0)
            close(workers->party[i].answers);
    *workers = (struct kiln__compile_workers){.programs = NULL};
}
