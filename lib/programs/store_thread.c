/* SPDX-License-Identifier: Apache-2.0 */
/* The background thread that writes new binaries to the disk store, itself or through the process
 * kiln-store. */
#include "programs/store_thread.h"

#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "programs/compile_workers.h"
#include "programs/fetch_interlock.h"
#include "programs/store_entry.h"
#include "util/clock.h"
#include "util/environment.h"
#include "util/log.h"

#define GATHER_NS (100 * KILN__MS) /* kernels of one batch go to one process */
#define GATHER_MOST_NS (1000 * KILN__MS)
#define LONGEST_END_NS (1000 * KILN__MS)

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
    struct kiln__program *waiting; /* for the thread, or without a process for who waits */
    struct kiln__program **last;   /* where the next one is put */
    int64_t first_added, last_added;
    uint64_t added, settled, left;
    unsigned hurries;
    struct kiln__compile_workers *workers; /* that are listened to */
    bool started, ending, giving_up, ended, joined;
    bool no_process; /* none can be started */
};

/* All of them, for the end of the process. Nothing else is locked inside but their own mutex. */
static pthread_mutex_t all_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct kiln__store_thread *all;
static pid_t process;

static bool is_late(const struct kiln__store_thread *storing)
{
    return storing->programs->device.traits->late_binary;
}

/* The mutex is held. */
static void add_last(struct kiln__store_thread *storing, struct kiln__program *program)
{
    *storing->last = program;
    storing->last = &program->next_to_store;
    program->next_to_store = NULL;
    storing->added++;
    pthread_cond_broadcast(&storing->changed);
}

/* The mutex is held. */
static struct kiln__program *take_all(struct kiln__store_thread *storing)
{
    struct kiln__program *first = storing->waiting;
    storing->waiting = NULL;
    storing->last = &storing->waiting;
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

static bool is_hurried(struct kiln__store_thread *storing)
{
    pthread_mutex_lock(&storing->mutex);
    bool hurried = storing->hurries;
    pthread_mutex_unlock(&storing->mutex);
    return hurried;
}

/* From now on who ends may stop them. False: nobody waits for storing any more. */
static bool hold_workers(struct kiln__store_thread *storing, struct kiln__compile_workers *workers)
{
    pthread_mutex_lock(&storing->mutex);
    bool waits = !storing->giving_up;
    storing->workers = workers;
    pthread_cond_broadcast(&storing->changed);
    pthread_mutex_unlock(&storing->mutex);
    return waits;
}

/* `lost`: so many jobs had been begun by workers that have ended, and took along what they were at.
 * Answers the programs that nothing is known of yet. */
static struct kiln__program *settle_known(struct kiln__store_thread *storing,
                                          const struct kiln__compile_workers *workers,
                                          unsigned lost, struct kiln__program *list)
{
    struct kiln__program **at = &list, *program;
    while ((program = *at)) {
        enum kiln__compile_outcome outcome = kiln__compile_workers_outcome(workers, program->job);
        if (outcome == KILN__JOB_OPEN && program->job >= lost) {
            at = &program->next_to_store;
            continue;
        }
        *at = program->next_to_store;
        if (outcome == KILN__JOB_OPEN || outcome == KILN__JOB_FAILED)
            kiln__store_failed(storing->programs->store);
        store_thread_settle(storing, program,
                            outcome == KILN__JOB_STORED    ? STORED
                            : outcome == KILN__JOB_PRESENT ? PRESENT
                                                           : FAILED);
    }
    return list;
}

static struct kiln__program *await_workers(struct kiln__store_thread *storing,
                                           struct kiln__compile_workers *workers,
                                           struct kiln__program *list)
{
    bool waits = hold_workers(storing, workers);
    while (waits && kiln__compile_workers_listen(workers, true))
        list = settle_known(storing, workers, 0, list);
    waits = hold_workers(storing, NULL);
    list = settle_known(storing, workers, waits ? kiln__compile_workers_begun(workers) : 0, list);
    if (waits && list)
        KILN__LOG(KILN__LOG_WARN, "no process that stores kernels could begin");
    if (waits || !list)
        return list;
    KILN__LOG(KILN__LOG_INFO, "the rest is left to a process of its own");
    settle_all(storing, list, LEFT);
    return NULL;
}

/* Answers the programs that are still to be stored, if no process can do it. */
static struct kiln__program *store_by_worker(struct kiln__store_thread *storing,
                                             struct kiln__program *list)
{
    struct kiln__compile_workers workers = {0};
    for (struct kiln__program *each = list; each; each = each->next_to_store)
        each->job = kiln__compile_jobs_add(
            &workers.jobs,
            &(struct kiln__compile_job){each->options, each->source, each->kernel, each->variants});
    if (kiln__compile_workers_start(&workers, storing->programs, 1, is_hurried(storing)))
        list = await_workers(storing, &workers, list);
    kiln__compile_workers_free(&workers);
    return list;
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

/* Until somebody waits for them: see kiln__store_thread_sync(). */
static void put_back(struct kiln__store_thread *storing, struct kiln__program *list)
{
    pthread_mutex_lock(&storing->mutex);
    storing->no_process = true;
    for (struct kiln__program *next; list; list = next) {
        next = list->next_to_store;
        storing->added--;
        add_last(storing, list);
    }
    pthread_mutex_unlock(&storing->mutex);
}

/* ---- the thread ---- */

/* More may come right away, as from a batch that runs for the first time. The mutex is held. */
static void store_thread_gather(struct kiln__store_thread *storing)
{
    int64_t until = KILN__NEVER;
    while (!storing->hurries && !storing->ending && kiln__now() < until) {
        int64_t soon = storing->last_added + GATHER_NS;
        int64_t latest = storing->first_added + GATHER_MOST_NS;
        until = soon < latest ? soon : latest;
        kiln__cond_wait_until(&storing->changed, &storing->mutex, until);
    }
}

/* All that has gathered, or NULL when it is time to end. The mutex is held. */
static struct kiln__program *store_thread_take(struct kiln__store_thread *storing)
{
    while (!storing->ending && (!storing->waiting || storing->no_process))
        pthread_cond_wait(&storing->changed, &storing->mutex);
    if (storing->no_process)
        return NULL;
    if (storing->waiting && is_late(storing))
        store_thread_gather(storing);
    return take_all(storing);
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
        else if ((list = store_by_worker(storing, list)))
            put_back(storing, list);
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

/* Whether nothing is lost if it stops now. The mutex is held. */
static bool is_done(const struct kiln__store_thread *storing)
{
    return !storing->started || storing->ended ||
           (storing->giving_up && storing->workers && !storing->waiting);
}

/* Has the thread end; from then on nothing is added. What a process has been given it goes on with.
 * At the end of the process (`last`), whatever the thread may be waiting for after the time that it
 * has, it stays there: it calls nothing that is taken down. */
static void store_thread_end(struct kiln__store_thread *storing, bool last)
{
    bool forever = kiln__store_thread_is_awaited();
    if (forever && !last)
        kiln__store_thread_sync(storing);
    int64_t until = forever && last ? KILN__NEVER : kiln__now() + LONGEST_END_NS;
    pthread_mutex_lock(&storing->mutex);
    storing->ending = true;
    storing->hurries += forever || !last;
    storing->giving_up |= last && !forever && is_late(storing);
    if (storing->giving_up && storing->workers) /* what came later is handed over, too */
        kiln__compile_workers_stop(storing->workers);
    pthread_cond_broadcast(&storing->changed);
    while (!is_done(storing) && kiln__now() < until)
        kiln__cond_wait_until(&storing->changed, &storing->mutex, until);
    storing->giving_up = true;
    if (storing->workers)
        kiln__compile_workers_stop(storing->workers);
    bool joins = storing->started && !storing->joined && (storing->ended || !last);
    storing->joined |= joins;
    pthread_mutex_unlock(&storing->mutex);
    if (joins)
        pthread_join(storing->thread, NULL);
}

static void end_all(void)
{
    if (process != getpid())
        return;
    pthread_mutex_lock(&all_mutex);
    for (struct kiln__store_thread *storing = all; storing; storing = storing->next)
        store_thread_end(storing, true);
    pthread_mutex_unlock(&all_mutex);
}

void kiln__store_thread_guard_exit(enum kiln__store_thread_guard after)
{
    static atomic_uint guarded;
    if (!(atomic_fetch_or(&guarded, after) & after))
        atexit(end_all);
}

/* ---- from outside ---- */

/* As set by `kiln cache warm`. */
bool kiln__store_thread_is_awaited(void)
{
    return kiln__environment("KILN_CACHE_WAIT");
}

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
    storing->no_process = !storing->folder && is_late(storing);
    storing->last = &storing->waiting;
    storing->pid = getpid();
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
        store_thread_end(storing, false);
        settle_all(storing, take_all(storing), LEFT);
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
        if (!storing->waiting)
            storing->first_added = storing->last_added;
        add_last(storing, program);
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
        if (storing->no_process && storing->waiting && !storing->ending) {
            struct kiln__program *list = take_all(storing);
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
