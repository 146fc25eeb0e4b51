/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/storing.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "cache/errand.h"
#include "cache/gate.h"
#include "cache/keep.h"
#include "util/environment.h"
#include "util/log.h"

#define MS INT64_C(1000000)
#define GATHER_NS (100 * MS) /* kernels of one batch go to one process */
#define GATHER_MOST_NS (1000 * MS)
#define LONGEST_END_NS (1000 * MS)
#define POLL_NS (50 * MS)

struct kiln__storing {
    struct kiln__programs *programs;
    char *folder;
    pid_t pid; /* of the process that has the thread */
    pthread_t thread;
    struct kiln__storing *next; /* of all */
    /* Guards what follows; not held while a binary is fetched, a process is started or its answer
     * is waited for. `changed`: a program was added or dealt with, or it is time to hurry or end.
     */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct kiln__program *first, **end;
    int64_t first_added, last_added;
    uint64_t added, settled, left; /* in the order in which they were added */
    unsigned hurries;
    int answers; /* of the other process; -1: none is waited for */
    bool started, ending, giving_up, ended;
    bool no_process; /* none can be started: the thread's own */
};

/* All of them, for the end of the process. Nothing else is locked inside but their own mutex. */
static pthread_mutex_t all_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct kiln__storing *all;
static pid_t process;

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

/* The mutex is held. False: it is `until`. */
static bool wait_until(struct kiln__storing *storing, int64_t until)
{
    const struct timespec end = {until / INT64_C(1000000000), until % INT64_C(1000000000)};
    return pthread_cond_timedwait(&storing->changed, &storing->mutex, &end) != ETIMEDOUT;
}

static bool is_late(const struct kiln__storing *storing)
{
    return storing->programs->device.traits->late_binary;
}

/* ---- what becomes of a program ---- */

enum outcome { STORED, PRESENT, FAILED, LEFT };

static void settle(struct kiln__storing *storing, struct kiln__program *program,
                   enum outcome outcome)
{
    static const char *const words[] = {"stored", "stored by another process",
                                        "not stored: see above", "not stored yet"};
    KILN__LOG(KILN__LOG_INFO, "%s is %s", program->kernel, words[outcome]);
    kiln__program_stored(program);
    pthread_mutex_lock(&storing->mutex);
    storing->settled++;
    storing->left += outcome == LEFT;
    pthread_cond_broadcast(&storing->changed);
    pthread_mutex_unlock(&storing->mutex);
}

static void settle_all(struct kiln__storing *storing, struct kiln__program *list,
                       enum outcome outcome)
{
    while (list) {
        struct kiln__program *next = list->next_to_store;
        settle(storing, list, outcome);
        list = next;
    }
}

/* ---- in another process ---- */

static int start_process(struct kiln__storing *storing, const struct kiln__program *list,
                         bool hurry)
{
    const struct kiln__text *shared = &storing->programs->shared_key;
    const struct kiln__errand_head head = {
        storing->folder, storing->programs->limit, {shared->data, shared->length}, hurry};
    struct kiln__text errands = {0};
    kiln__errand_write_head(&head, &errands);
    for (; list; list = list->next_to_store) {
        const struct kiln__errand errand = {list->options, list->source, list->kernel,
                                            list->variants};
        kiln__errand_write(&errand, &errands);
    }
    int answers = kiln__errand_start(&errands);
    kiln__text_free(&errands);
    return answers;
}

/* 0: there will be none, since the process has ended or nobody waits for it any more. */
static char next_answer(int answers)
{
    char answer = 0;
    while (read(answers, &answer, 1) < 0 && errno == EINTR)
        continue;
    return answer;
}

/* Answers the programs that the process did not come to. */
static struct kiln__program *take_answers(struct kiln__storing *storing, int answers,
                                          struct kiln__program *list)
{
    char answer;
    while (list && (answer = next_answer(answers))) {
        struct kiln__program *next = list->next_to_store;
        if (answer == KILN__ERRAND_STORED)
            atomic_fetch_add(&storing->programs->stored_apart, 1);
        else if (answer != KILN__ERRAND_PRESENT)
            kiln__store_failed(storing->programs->store);
        settle(storing, list,
               answer == KILN__ERRAND_STORED    ? STORED
               : answer == KILN__ERRAND_PRESENT ? PRESENT
                                                : FAILED);
        list = next;
    }
    return list;
}

/* Whether somebody waits, and whether he has stopped waiting. */
static bool is_hurried(struct kiln__storing *storing, bool *gives_up)
{
    pthread_mutex_lock(&storing->mutex);
    bool hurried = storing->hurries;
    *gives_up = storing->giving_up;
    pthread_mutex_unlock(&storing->mutex);
    return hurried;
}

/* False: nobody waits for answers any more. */
static bool hold_answers(struct kiln__storing *storing, int answers)
{
    pthread_mutex_lock(&storing->mutex);
    bool waits = !storing->giving_up;
    if (waits)
        storing->answers = answers;
    pthread_mutex_unlock(&storing->mutex);
    return waits;
}

static void drop_answers(struct kiln__storing *storing, int answers)
{
    pthread_mutex_lock(&storing->mutex);
    storing->answers = -1;
    pthread_mutex_unlock(&storing->mutex);
    close(answers);
}

/* Answers the programs that are still to be stored, if no process can do it. One that ends in the
 * middle takes the program that it was at along, and another one goes on with the rest. */
static struct kiln__program *store_apart(struct kiln__storing *storing, struct kiln__program *list)
{
    bool gives_up;
    while (list) {
        bool hurry = is_hurried(storing, &gives_up);
        int answers = start_process(storing, list, hurry);
        if (answers < 0)
            return list;
        bool ready = hold_answers(storing, answers) && next_answer(answers) == KILN__ERRAND_READY;
        if (ready)
            list = take_answers(storing, answers, list);
        drop_answers(storing, answers);
        is_hurried(storing, &gives_up);
        if (gives_up) {
            KILN__LOG(KILN__LOG_INFO, "the rest is left to a process of its own");
            settle_all(storing, list, LEFT);
            return NULL;
        }
        if (!ready) {
            KILN__LOG(KILN__LOG_INFO, "the process that stores kernels could not begin");
            return list;
        }
        if (list) {
            struct kiln__program *next = list->next_to_store;
            KILN__LOG(KILN__LOG_INFO, "the process that stores kernels ended at %s", list->kernel);
            kiln__store_failed(storing->programs->store);
            settle(storing, list, FAILED);
            list = next;
        }
    }
    return NULL;
}

/* ---- on this thread ---- */

/* False: nobody waits any more. */
static bool close_gate(struct kiln__storing *storing)
{
    bool closed = false;
    pthread_mutex_lock(&storing->mutex);
    while (!storing->giving_up && !closed) {
        closed = kiln__gate_close(storing->hurries);
        if (!closed)
            wait_until(storing, now() + POLL_NS);
    }
    pthread_mutex_unlock(&storing->mutex);
    return closed;
}

static enum outcome store_one(struct kiln__storing *storing, struct kiln__program *program)
{
    struct kiln__programs *programs = program->owner;
    bool late = is_late(storing), gives_up;
    is_hurried(storing, &gives_up);
    if (gives_up || (late && !close_gate(storing)))
        return LEFT;
    bool idle = !late || !kiln__gate_finish();
    bool kept = idle && kiln__keep_binary(programs->store, &programs->device, program->cl,
                                          &program->key, program->kernel);
    if (late)
        kiln__gate_open();
    kiln__storing_guard_exit(KILN__GUARD_FETCHED);
    if (!idle)
        kiln__store_failed(programs->store);
    return kept ? STORED : FAILED;
}

static void store_here(struct kiln__storing *storing, struct kiln__program *list)
{
    while (list) {
        struct kiln__program *next = list->next_to_store;
        settle(storing, list, store_one(storing, list));
        list = next;
    }
}

/* ---- the thread ---- */

static int64_t gathered_at(const struct kiln__storing *storing)
{
    int64_t soon = storing->last_added + GATHER_NS;
    int64_t latest = storing->first_added + GATHER_MOST_NS;
    return soon < latest ? soon : latest;
}

/* More may come right away, as from a batch that runs for the first time. The mutex is held. */
static void gather(struct kiln__storing *storing)
{
    while (!storing->hurries && !storing->ending && now() < gathered_at(storing))
        wait_until(storing, gathered_at(storing));
}

/* All that has gathered, or NULL when it is time to end. The mutex is held. */
static struct kiln__program *take(struct kiln__storing *storing)
{
    while (!storing->first && !storing->ending)
        pthread_cond_wait(&storing->changed, &storing->mutex);
    if (storing->first && is_late(storing) && !storing->no_process)
        gather(storing);
    struct kiln__program *list = storing->first;
    storing->first = NULL;
    storing->end = &storing->first;
    return list;
}

static void *work(void *user)
{
    struct kiln__storing *storing = user;
    struct kiln__program *list;
    pthread_mutex_lock(&storing->mutex);
    while ((list = take(storing))) {
        pthread_mutex_unlock(&storing->mutex);
        if (is_late(storing) && !storing->no_process) {
            list = store_apart(storing, list);
            storing->no_process = list;
        }
        store_here(storing, list);
        pthread_mutex_lock(&storing->mutex);
    }
    storing->ended = true;
    pthread_cond_broadcast(&storing->changed);
    pthread_mutex_unlock(&storing->mutex);
    return NULL;
}

/* The program's signals are the program's: none is handled here. That also keeps a write beyond the
 * limit on file sizes an error, where SIGXFSZ would end the process. The mutex is held. */
static bool start_thread(struct kiln__storing *storing)
{
    sigset_t every, before;
    sigfillset(&every);
    if (pthread_sigmask(SIG_SETMASK, &every, &before))
        return false;
    storing->started = !pthread_create(&storing->thread, NULL, work, storing);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return storing->started;
}

/* ---- its end ---- */

/* $KILN_CACHE_WAIT, as set by `kiln cache warm`: a program ends when its kernels are stored. */
static bool waits_for_all(void)
{
    return kiln__environment("KILN_CACHE_WAIT");
}

/* Ends the thread; from then on nothing is added. What a process has been given it goes on with.
 * A fetch on this thread cannot be broken off: it is waited for. */
static void end(struct kiln__storing *storing, int64_t longest)
{
    bool forever = waits_for_all();
    pthread_mutex_lock(&storing->mutex);
    bool first = !storing->ending;
    storing->ending = true;
    storing->hurries += longest > 0 || forever;
    pthread_cond_broadcast(&storing->changed);
    int64_t until = now() + longest;
    while (storing->started && !storing->ended && (forever || now() < until))
        wait_until(storing, forever ? now() + LONGEST_END_NS : until);
    storing->giving_up = true;
    if (storing->answers >= 0)
        shutdown(storing->answers, SHUT_RDWR);
    pthread_cond_broadcast(&storing->changed);
    pthread_mutex_unlock(&storing->mutex);
    if (first && storing->started)
        pthread_join(storing->thread, NULL);
}

static void end_all(void)
{
    if (process != getpid())
        return;
    pthread_mutex_lock(&all_mutex);
    for (struct kiln__storing *storing = all; storing; storing = storing->next)
        end(storing, is_late(storing) ? 0 : LONGEST_END_NS);
    pthread_mutex_unlock(&all_mutex);
}

void kiln__storing_guard_exit(enum kiln__storing_guard after)
{
    static atomic_uint guarded;
    if (!(atomic_fetch_or(&guarded, after) & after))
        atexit(end_all);
}

/* ---- from outside ---- */

static bool init_locks(struct kiln__storing *storing)
{
    pthread_condattr_t clock;
    if (pthread_condattr_init(&clock))
        return false;
    bool made = !pthread_condattr_setclock(&clock, CLOCK_MONOTONIC) &&
                !pthread_cond_init(&storing->changed, &clock);
    pthread_condattr_destroy(&clock);
    if (made && pthread_mutex_init(&storing->mutex, NULL)) {
        pthread_cond_destroy(&storing->changed);
        made = false;
    }
    return made;
}

struct kiln__storing *kiln__storing_create(struct kiln__programs *programs, const char *folder)
{
    char path[PATH_MAX]; /* a program may change its folder */
    struct kiln__storing *storing = calloc(1, sizeof *storing);
    if (!storing || !init_locks(storing)) {
        free(storing);
        return NULL;
    }
    storing->programs = programs;
    storing->folder = realpath(folder, path) ? strdup(path) : NULL;
    storing->no_process = !storing->folder;
    storing->pid = getpid();
    storing->end = &storing->first;
    storing->answers = -1;
    pthread_mutex_lock(&all_mutex);
    process = storing->pid;
    storing->next = all;
    all = storing;
    pthread_mutex_unlock(&all_mutex);
    kiln__storing_guard_exit(KILN__GUARD_LOADED);
    return storing;
}

static void take_out(struct kiln__storing *storing)
{
    pthread_mutex_lock(&all_mutex);
    struct kiln__storing **at = &all;
    while (*at != storing)
        at = &(*at)->next;
    *at = storing->next;
    pthread_mutex_unlock(&all_mutex);
}

void kiln__storing_destroy(struct kiln__storing *storing)
{
    if (!storing)
        return;
    if (storing->pid == getpid()) {
        take_out(storing);
        end(storing, LONGEST_END_NS);
        if (storing->left)
            KILN__LOG(KILN__LOG_INFO, "%llu kernels were not stored when the context ended",
                      (unsigned long long)storing->left);
        pthread_cond_destroy(&storing->changed);
        pthread_mutex_destroy(&storing->mutex);
    }
    free(storing->folder);
    free(storing);
}

bool kiln__storing_add(struct kiln__storing *storing, struct kiln__program *program)
{
    if (storing->pid != getpid())
        return false;
    pthread_mutex_lock(&storing->mutex);
    bool runs = !storing->ending && (storing->started || start_thread(storing));
    if (runs) {
        program->next_to_store = NULL;
        storing->last_added = now();
        if (!storing->first)
            storing->first_added = storing->last_added;
        *storing->end = program;
        storing->end = &program->next_to_store;
        storing->added++;
        pthread_cond_broadcast(&storing->changed);
    }
    pthread_mutex_unlock(&storing->mutex);
    return runs;
}

void kiln__storing_sync(struct kiln__storing *storing)
{
    if (storing->pid != getpid())
        return;
    pthread_mutex_lock(&storing->mutex);
    storing->hurries++;
    pthread_cond_broadcast(&storing->changed);
    uint64_t goal = storing->added;
    while (storing->settled < goal && !storing->ended)
        pthread_cond_wait(&storing->changed, &storing->mutex);
    storing->hurries--;
    pthread_mutex_unlock(&storing->mutex);
}

const char *kiln__storing_folder(const struct kiln__storing *storing)
{
    return storing->folder;
}

uint64_t kiln__storing_pending(struct kiln__storing *storing)
{
    if (storing->pid != getpid())
        return 0;
    pthread_mutex_lock(&storing->mutex);
    uint64_t pending = storing->added - storing->settled;
    pthread_mutex_unlock(&storing->mutex);
    return pending;
}
