/* SPDX-License-Identifier: Apache-2.0 */
/* The background thread that writes new binaries to the disk store, itself or through the process
 * kiln-store. */
#include "programs/store_thread.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "programs/compile_job.h"
#include "programs/fetch_interlock.h"
#include "programs/store_entry.h"
#include "util/clock.h"
#include "util/environment.h"
#include "util/log.h"

#define MS INT64_C(1000000)
#define GATHER_NS (100 * MS) /* kernels of one batch go to one process */
#define GATHER_MOST_NS (1000 * MS)
#define LONGEST_END_NS (1000 * MS)

/* In the order in which they were added. */
struct list {
    struct kiln__program *first, *last;
};

struct kiln__store_thread {
    struct kiln__programs *programs;
    char *folder;
    pid_t pid; /* of the process that has the thread */
    pthread_t thread;
    struct kiln__store_thread *next; /* of all */
    /* Guards what follows; not held while a file is written, a process is started or its answer is
     * waited for. `changed`: a program was added or dealt with, what was waiting is another
     * process's, or it is time to hurry or end. */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct list waiting; /* for the thread */
    struct list kept;    /* by nobody but who waits: no process can be started */
    int64_t first_added, last_added;
    uint64_t added, settled, left;
    unsigned hurries;
    int answers; /* of the other process; -1: none is waited for */
    bool started, ending, giving_up, ended, joined;
    bool no_process; /* none can be started */
};

/* All of them, for the end of the process. Nothing else is locked inside but their own mutex. */
static pthread_mutex_t all_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct kiln__store_thread *all;
static pid_t process;

/* The mutex is held. False: it is `until`. */
static bool wait_until(struct kiln__store_thread *storing, int64_t until)
{
    return kiln__cond_wait_until(&storing->changed, &storing->mutex, until) != ETIMEDOUT;
}

static bool is_late(const struct kiln__store_thread *storing)
{
    return storing->programs->device.traits->late_binary;
}

/* ---- lists ---- */

static void store_thread_append(struct list *list, struct kiln__program *first,
                                struct kiln__program *last)
{
    if (list->first)
        list->last->next_to_store = first;
    else
        list->first = first;
    list->last = last;
    last->next_to_store = NULL;
}

static struct kiln__program *take_all(struct list *list)
{
    struct kiln__program *first = list->first;
    list->first = list->last = NULL;
    return first;
}

/* ---- what becomes of a program ---- */

enum outcome { STORED, PRESENT, FAILED, LEFT };

static void store_thread_settle(struct kiln__store_thread *storing, struct kiln__program *program,
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

static void settle_all(struct kiln__store_thread *storing, struct kiln__program *list,
                       enum outcome outcome)
{
    while (list) {
        struct kiln__program *next = list->next_to_store;
        store_thread_settle(storing, list, outcome);
        list = next;
    }
}

/* ---- in another process ---- */

static int start_process(struct kiln__store_thread *storing, const struct kiln__program *list,
                         bool hurry, pid_t *child)
{
    const struct kiln__text *shared = &storing->programs->shared_key;
    const struct kiln__compile_job_head head = {
        storing->folder, storing->programs->limit, {shared->data, shared->length}, hurry};
    struct kiln__text jobs = {0};
    kiln__compile_job_write_head(&head, &jobs);
    for (; list; list = list->next_to_store) {
        const struct kiln__compile_job job = {list->options, list->source, list->kernel,
                                              list->variants};
        kiln__compile_job_write(&job, &jobs);
    }
    int answers = kiln__compile_job_start(&jobs, child);
    kiln__text_free(&jobs);
    return answers;
}

/* Answers the programs that the process did not come to. */
static struct kiln__program *take_answers(struct kiln__store_thread *storing, int answers,
                                          struct kiln__program *list)
{
    char answer;
    while (list && (answer = kiln__compile_job_listen(answers, KILN__JOB_SILENCE))) {
        struct kiln__program *next = list->next_to_store;
        if (answer == KILN__JOB_STORED)
            atomic_fetch_add(&storing->programs->stored_by_workers, 1);
        else if (answer != KILN__JOB_PRESENT)
            kiln__store_failed(storing->programs->store);
        store_thread_settle(storing, list,
                            answer == KILN__JOB_STORED    ? STORED
                            : answer == KILN__JOB_PRESENT ? PRESENT
                                                          : FAILED);
        list = next;
    }
    return list;
}

/* Whether somebody waits, and whether he has stopped waiting. */
static bool is_hurried(struct kiln__store_thread *storing, bool *gives_up)
{
    pthread_mutex_lock(&storing->mutex);
    bool hurried = storing->hurries;
    *gives_up = storing->giving_up;
    pthread_mutex_unlock(&storing->mutex);
    return hurried;
}

/* False: nobody waits for answers any more. */
static bool hold_answers(struct kiln__store_thread *storing, int answers)
{
    pthread_mutex_lock(&storing->mutex);
    bool waits = !storing->giving_up;
    storing->answers = answers;
    pthread_cond_broadcast(&storing->changed);
    pthread_mutex_unlock(&storing->mutex);
    return waits;
}

static void drop_answers(struct kiln__store_thread *storing, int answers)
{
    pthread_mutex_lock(&storing->mutex);
    storing->answers = -1;
    pthread_mutex_unlock(&storing->mutex);
    close(answers);
}

/* Whether it begins with its errands. */
static bool is_ready(struct kiln__store_thread *storing, int answers, pid_t child)
{
    bool waits = hold_answers(storing, answers);
    return kiln__compile_job_let_go(child) && waits &&
           kiln__compile_job_listen(answers, KILN__JOB_SILENCE) == KILN__JOB_READY;
}

/* Answers the programs that are still to be stored, if no process can do it. One that ends in the
 * middle takes the program that it was at along, and another one goes on with the rest. */
static struct kiln__program *store_apart(struct kiln__store_thread *storing,
                                         struct kiln__program *list)
{
    bool gives_up;
    while (list) {
        pid_t child;
        bool hurry = is_hurried(storing, &gives_up);
        int answers = start_process(storing, list, hurry, &child);
        if (answers < 0)
            return list;
        bool ready = is_ready(storing, answers, child);
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
            KILN__LOG(KILN__LOG_WARN, "the process that stores kernels could not begin");
            return list;
        }
        if (list) {
            struct kiln__program *next = list->next_to_store;
            KILN__LOG(KILN__LOG_INFO, "the process that stores kernels ended at %s", list->kernel);
            kiln__store_failed(storing->programs->store);
            store_thread_settle(storing, list, FAILED);
            list = next;
        }
    }
    return NULL;
}

/* ---- in this one ---- */

/* What was fetched when it was built. */
static bool write_fetched(const struct kiln__program *program)
{
    const struct kiln__programs *programs = program->owner;
    const struct kiln__span binary = {program->binary, program->binary_length};
    return kiln__store_entry_bytes(programs->store, &programs->device.info, &program->key,
                                   program->kernel, &binary);
}

/* While nothing of the process is launched. */
static bool fetch_and_write(const struct kiln__program *program)
{
    const struct kiln__programs *programs = program->owner;
    kiln__interlock_close();
    bool idle = !kiln__interlock_finish();
    bool kept = idle && kiln__store_entry_binary(programs->store, &programs->device, program->cl,
                                                 &program->key, program->kernel);
    kiln__interlock_open();
    if (!idle)
        kiln__store_failed(programs->store);
    return kept;
}

static void store_each(struct kiln__store_thread *storing, struct kiln__program *list,
                       bool (*store)(const struct kiln__program *program))
{
    while (list) {
        struct kiln__program *next = list->next_to_store;
        store_thread_settle(storing, list, store(list) ? STORED : FAILED);
        list = next;
    }
}

/* Until somebody waits for it: see kiln__store_thread_sync(). */
static void keep_for_later(struct kiln__store_thread *storing, struct kiln__program *list)
{
    pthread_mutex_lock(&storing->mutex);
    for (struct kiln__program *next; list; list = next) {
        next = list->next_to_store;
        store_thread_append(&storing->kept, list, list);
    }
    pthread_cond_broadcast(&storing->changed);
    pthread_mutex_unlock(&storing->mutex);
}

/* ---- the thread ---- */

static int64_t gathered_at(const struct kiln__store_thread *storing)
{
    int64_t soon = storing->last_added + GATHER_NS;
    int64_t latest = storing->first_added + GATHER_MOST_NS;
    return soon < latest ? soon : latest;
}

/* More may come right away, as from a batch that runs for the first time. The mutex is held. */
static void store_thread_gather(struct kiln__store_thread *storing)
{
    while (!storing->hurries && !storing->ending && kiln__now() < gathered_at(storing))
        wait_until(storing, gathered_at(storing));
}

/* All that has gathered, or NULL when it is time to end. The mutex is held. */
static struct kiln__program *store_thread_take(struct kiln__store_thread *storing)
{
    while (!storing->waiting.first && !storing->ending)
        pthread_cond_wait(&storing->changed, &storing->mutex);
    if (storing->waiting.first && is_late(storing) && !storing->no_process)
        store_thread_gather(storing);
    return take_all(&storing->waiting);
}

static void *store_thread_work(void *user)
{
    struct kiln__store_thread *storing = user;
    struct kiln__program *list;
    pthread_mutex_lock(&storing->mutex);
    while ((list = store_thread_take(storing))) {
        pthread_mutex_unlock(&storing->mutex);
        if (!is_late(storing))
            store_each(storing, list, write_fetched);
        else {
            if (!storing->no_process)
                list = store_apart(storing, list);
            storing->no_process |= list != NULL;
            keep_for_later(storing, list);
        }
        pthread_mutex_lock(&storing->mutex);
    }
    storing->ended = true;
    pthread_cond_broadcast(&storing->changed);
    pthread_mutex_unlock(&storing->mutex);
    return NULL;
}

/* The program's signals are the program's: none is handled here. That also keeps a write beyond the
 * limit on file sizes an error, where SIGXFSZ would end the process. The mutex is held. */
static bool start_thread(struct kiln__store_thread *storing)
{
    sigset_t every, before;
    sigfillset(&every);
    if (pthread_sigmask(SIG_SETMASK, &every, &before))
        return false;
    storing->started = !pthread_create(&storing->thread, NULL, store_thread_work, storing);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return storing->started;
}

/* ---- its end ---- */

/* $KILN_CACHE_WAIT, as set by `kiln cache warm`: a program ends when its kernels are stored. */
static bool waits_for_all(void)
{
    return kiln__environment("KILN_CACHE_WAIT");
}

/* Whether nothing is lost if the process ends now. The mutex is held. */
static bool is_done(const struct kiln__store_thread *storing, bool forever)
{
    return !storing->started || storing->ended ||
           (!forever && storing->answers >= 0 && !storing->waiting.first);
}

/* Has the thread end; from then on nothing is added. What a process has been given it goes on with.
 * The mutex is held. */
static void store_thread_stop(struct kiln__store_thread *storing)
{
    storing->ending = storing->giving_up = true;
    if (storing->answers >= 0)
        shutdown(storing->answers, SHUT_RDWR);
    pthread_cond_broadcast(&storing->changed);
}

static void store_thread_join(struct kiln__store_thread *storing)
{
    bool joins = storing->started && !storing->joined;
    storing->joined = true;
    if (joins)
        pthread_join(storing->thread, NULL);
}

/* At the end of the process: whatever the thread may be waiting for then, it stays there. It calls
 * nothing that is taken down. */
static void end_late(struct kiln__store_thread *storing)
{
    bool forever = waits_for_all();
    int64_t until = kiln__now() + LONGEST_END_NS;
    pthread_mutex_lock(&storing->mutex);
    storing->ending = true;
    storing->hurries += forever;
    storing->giving_up = is_late(storing) && !forever;
    pthread_cond_broadcast(&storing->changed);
    while (!is_done(storing, forever) && (forever || kiln__now() < until))
        wait_until(storing, forever ? kiln__now() + LONGEST_END_NS : until);
    store_thread_stop(storing);
    bool ended = storing->ended;
    pthread_mutex_unlock(&storing->mutex);
    if (ended)
        store_thread_join(storing);
}

static void end_all(void)
{
    if (process != getpid())
        return;
    pthread_mutex_lock(&all_mutex);
    for (struct kiln__store_thread *storing = all; storing; storing = storing->next)
        end_late(storing);
    pthread_mutex_unlock(&all_mutex);
}

void kiln__store_thread_guard_exit(enum kiln__store_thread_guard after)
{
    static atomic_uint guarded;
    if (!(atomic_fetch_or(&guarded, after) & after))
        atexit(end_all);
}

/* With its context. */
static void store_thread_end(struct kiln__store_thread *storing)
{
    bool forever = waits_for_all();
    int64_t until = kiln__now() + LONGEST_END_NS;
    if (forever)
        kiln__store_thread_sync(storing);
    pthread_mutex_lock(&storing->mutex);
    storing->ending = true;
    storing->hurries++;
    pthread_cond_broadcast(&storing->changed);
    while (storing->started && !storing->ended && kiln__now() < until)
        wait_until(storing, until);
    store_thread_stop(storing);
    pthread_mutex_unlock(&storing->mutex);
    store_thread_join(storing);
    settle_all(storing, take_all(&storing->kept), LEFT);
}

/* ---- from outside ---- */

static bool init_locks(struct kiln__store_thread *storing)
{
    bool made = kiln__cond_create(&storing->changed);
    if (made && pthread_mutex_init(&storing->mutex, NULL)) {
        pthread_cond_destroy(&storing->changed);
        made = false;
    }
    return made;
}

struct kiln__store_thread *kiln__store_thread_create(struct kiln__programs *programs,
                                                     const char *folder)
{
    char path[PATH_MAX]; /* a program may change its folder */
    struct kiln__store_thread *storing = calloc(1, sizeof *storing);
    if (!storing || !init_locks(storing)) {
        free(storing);
        return NULL;
    }
    storing->programs = programs;
    storing->folder = realpath(folder, path) ? strdup(path) : NULL;
    storing->no_process = !storing->folder;
    storing->pid = getpid();
    storing->answers = -1;
    pthread_mutex_lock(&all_mutex);
    process = storing->pid;
    storing->next = all;
    all = storing;
    pthread_mutex_unlock(&all_mutex);
    kiln__store_thread_guard_exit(KILN__GUARD_LOADED);
    return storing;
}

static void take_out(struct kiln__store_thread *storing)
{
    pthread_mutex_lock(&all_mutex);
    struct kiln__store_thread **at = &all;
    while (*at != storing)
        at = &(*at)->next;
    *at = storing->next;
    pthread_mutex_unlock(&all_mutex);
}

void kiln__store_thread_destroy(struct kiln__store_thread *storing)
{
    if (!storing)
        return;
    if (storing->pid == getpid()) {
        take_out(storing);
        store_thread_end(storing);
        if (storing->left)
            KILN__LOG(KILN__LOG_INFO, "%llu kernels were not stored when the context ended",
                      (unsigned long long)storing->left);
        pthread_cond_destroy(&storing->changed);
        pthread_mutex_destroy(&storing->mutex);
    }
    free(storing->folder);
    free(storing);
}

bool kiln__store_thread_add(struct kiln__store_thread *storing, struct kiln__program *program)
{
    if (storing->pid != getpid())
        return false;
    pthread_mutex_lock(&storing->mutex);
    bool runs = !storing->ending && (storing->started || start_thread(storing));
    if (runs) {
        storing->last_added = kiln__now();
        if (!storing->waiting.first)
            storing->first_added = storing->last_added;
        store_thread_append(&storing->waiting, program, program);
        storing->added++;
        pthread_cond_broadcast(&storing->changed);
    }
    pthread_mutex_unlock(&storing->mutex);
    return runs;
}

void kiln__store_thread_sync(struct kiln__store_thread *storing)
{
    if (storing->pid != getpid())
        return;
    pthread_mutex_lock(&storing->mutex);
    storing->hurries++;
    pthread_cond_broadcast(&storing->changed);
    uint64_t goal = storing->added;
    while (storing->settled < goal && !storing->ended)
        if (storing->kept.first && !storing->ending) {
            struct kiln__program *list = take_all(&storing->kept);
            pthread_mutex_unlock(&storing->mutex);
            store_each(storing, list, fetch_and_write);
            pthread_mutex_lock(&storing->mutex);
        } else
            pthread_cond_wait(&storing->changed, &storing->mutex);
    storing->hurries--;
    pthread_mutex_unlock(&storing->mutex);
}

const char *kiln__store_thread_folder(const struct kiln__store_thread *storing)
{
    return storing->folder;
}

uint64_t kiln__store_thread_pending(struct kiln__store_thread *storing)
{
    if (storing->pid != getpid())
        return 0;
    pthread_mutex_lock(&storing->mutex);
    uint64_t pending = storing->added - storing->settled;
    pthread_mutex_unlock(&storing->mutex);
    return pending;
}
