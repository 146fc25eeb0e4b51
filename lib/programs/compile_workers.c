/* SPDX-License-Identifier: Apache-2.0 */
/* Start of worker processes, waiting for what they do, and their end. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* posix_spawn_file_actions_addclosefrom_np */
#endif
#include "programs/compile_workers.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "programs/program_state.h"
#include "programs/store_thread.h"
#include "util/clock.h"
#include "util/environment.h"
#include "util/log.h"
#include "util/open_file.h"
#include "util/process.h"

#define SECOND (1000 * KILN__MS)

/* A program needs some milliseconds to begin. It may sleep for so long, and take so long in all on
 * a machine that has no time for it. */
#define LONGEST_START_NS SECOND
#define LONGEST_BUSY_START_NS (120 * SECOND)

/* A caller that can do the jobs itself waits so long for a worker to find the driver. */
#define LONGEST_IMPATIENT_START_NS (10 * SECOND)

/* Guards `answers` where one thread stops what another one listens to. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

bool kiln__compile_workers_is_possible(const struct kiln__programs *programs)
{
    return kiln__store_writes(programs->store) && kiln__store_thread_folder(programs->storing);
}

/* ---- one process ---- */

/* A library that was moved with its program, such as a wheel's, has it in its own folder; one that
 * was only built has it above libtool's. False if not. */
static bool find_in_own_folder(char path[PATH_MAX])
{
    static const char built[] = "/.libs";
    Dl_info library;
    const char *end = NULL;
    if (dladdr(&mutex, &library) && library.dli_fname)
        end = strrchr(library.dli_fname, '/');
    if (!end)
        return false;
    size_t length = (size_t)(end - library.dli_fname);
    if (length > strlen(built) && !strncmp(end - strlen(built), built, strlen(built)))
        length -= strlen(built);
    const int printed = snprintf(path, PATH_MAX, "%.*s/kiln-store", (int)length, library.dli_fname);
    return printed > 0 && printed < PATH_MAX && !access(path, X_OK);
}

/* The program's own path. */
static const char *path_of_program(char beside[PATH_MAX])
{
    const char *path = kiln__environment("KILN_STORE_PROGRAM");
    if (path)
        return path;
    return find_in_own_folder(beside) ? beside : KILN_STORE_PROGRAM;
}

/* 0 or an errno. None of this process's signals, files and terminal are the other's. */
static int spawn(const char *program, int file, int answers, char **environment, pid_t *child)
{
    char *const arguments[] = {(char *)"kiln-store", NULL};
    const short flags = POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID;
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    int error = posix_spawn_file_actions_init(&files);
    if (error)
        return error;
    error = posix_spawnattr_init(&attributes);
    if (!error) {
        posix_spawnattr_setsigdefault(&attributes, &all);
        posix_spawnattr_setsigmask(&attributes, &none);
        posix_spawnattr_setflags(&attributes, flags);
        error = posix_spawn_file_actions_adddup2(&files, file, 0);
    }
    if (!error)
        error = posix_spawn_file_actions_adddup2(&files, answers, 1);
    if (!error)
        error = posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    if (!error)
        error = posix_spawn_file_actions_addclosefrom_np(&files, 3);
    if (!error)
        error = posix_spawn(child, program, &files, &attributes, arguments, environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return error;
}

/* Whether it ends in time. A program that waits for all its children may have taken the end along:
 * that is no error. */
static bool has_ended(pid_t child)
{
    int64_t waited = 0, slept = 0;
    int status;
    pid_t found;
    while (!(found = waitpid(child, &status, WNOHANG)) || (found < 0 && errno == EINTR)) {
        if (slept >= LONGEST_START_NS || waited >= LONGEST_BUSY_START_NS)
            return false;
        const char state = kiln__process_state(child);
        const int64_t nap = kiln__poll_sleep();
        waited += nap;
        slept += !state || state == 'S' ? nap : 0;
    }
    return true;
}

/* The work is done by processes of its own, and `child` ends at once: a program that waits for all
 * its children does not wait for workers. */
static bool let_go(const char *program, pid_t child)
{
    if (has_ended(child))
        return true;
    KILN__LOG(KILN__LOG_WARN, "%s does not go on by itself and is killed", program);
    kill(-child, SIGKILL); /* it leads a session */
    has_ended(child);
    return false;
}

/* Answers this end of a socket, or -1. */
static int start_process(int file)
{
    int sockets[2], error = EPERM;
    pid_t child;
    char beside[PATH_MAX];
    const char *program = path_of_program(beside);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets))
        return -1;
    char **environment = kiln__environment_of_child();
    int ours = kiln__file_above_standard(sockets[0]);
    int theirs = kiln__file_above_standard(sockets[1]);
    if (ours >= 0 && theirs >= 0 && environment)
        error = spawn(program, file, theirs, environment, &child);
    free(environment);
    if (theirs >= 0)
        close(theirs);
    if (error)
        KILN__LOG(KILN__LOG_WARN, "%s cannot be started: %s", program, strerror(error));
    if (!error && let_go(program, child))
        return ours;
    if (ours >= 0)
        close(ours);
    return -1;
}

/* ---- all of them ---- */

/* False: nobody is listened to from now on. */
static bool watch_answers(struct kiln__compile_workers *workers, int answers)
{
    pthread_mutex_lock(&mutex);
    int before = workers->answers;
    bool holds = answers >= 0 && !workers->stopped;
    workers->answers = holds ? answers : -1;
    pthread_mutex_unlock(&mutex);
    if (before >= 0)
        close(before);
    if (answers >= 0 && !holds)
        close(answers);
    return holds;
}

/* Workers for the jobs that none has taken yet. */
static bool start_rest(struct kiln__compile_workers *workers)
{
    struct kiln__compile_head *head = workers->head;
    workers->begun = kiln__compile_workers_begun(workers);
    unsigned left = (unsigned)workers->jobs.texts.count - workers->begun;
    head->workers = left < workers->count ? left : workers->count;
    workers->heard = false;
    workers->heard_at = kiln__now();
    return watch_answers(workers, start_process(workers->file));
}

bool kiln__compile_workers_start(struct kiln__compile_workers *workers,
                                 struct kiln__programs *programs, unsigned count, bool urgent)
{
    workers->programs = programs;
    workers->count = count;
    workers->answers = workers->file = -1;
    if (!getauxval(AT_SECURE) && workers->jobs.texts.count)
        workers->file = kiln__compile_jobs_share(
            &workers->jobs, kiln__store_thread_folder(programs->storing), &programs->shared_key,
            programs->limit, urgent || kiln__store_thread_is_awaited(), &workers->head,
            &workers->length);
    if (workers->head)
        workers->head->late_binary = programs->device.traits->late_binary;
    return workers->file >= 0 && start_rest(workers);
}

static void add_wish(struct kiln__compile_workers *workers, const struct kiln__programs *programs,
                     const struct kiln__program_spec *spec)
{
    struct kiln__text options = {0};
    char variants[KILN__PROGRAM_VARIANTS];
    kiln__program_options(programs, spec->options, &options);
    kiln__program_variants(spec->dimensions, spec->global, spec->local, variants);
    if (options.failed)
        workers->jobs.failed = true;
    else
        kiln__compile_jobs_add(
            &workers->jobs,
            &(struct kiln__compile_job){options.data, spec->source, spec->kernel, variants});
    kiln__text_free(&options);
}

void kiln__compile_workers_start_specs(struct kiln__compile_workers *workers,
                                       struct kiln__programs *programs,
                                       const struct kiln__missing *missing, unsigned count,
                                       bool urgent)
{
    for (size_t i = 0; i < missing->count; i++)
        add_wish(workers, programs, missing->items[i]);
    workers->impatient = urgent;
    kiln__compile_workers_start(workers, programs, count, urgent);
}

/* ---- what becomes of jobs ---- */

/* What is left of the time within which they have to say something. */
static int patience_ms(const struct kiln__compile_workers *workers)
{
    bool begins = workers->impatient && !workers->heard && !kiln__store_thread_is_awaited();
    int64_t silence = workers->head->urgent ? KILN__JOB_SILENCE : KILN__JOB_PATIENT_SILENCE;
    int64_t longest = begins ? LONGEST_IMPATIENT_START_NS : silence * SECOND;
    int64_t left = (workers->heard_at + longest - kiln__now()) / KILN__MS;
    return left > 0 ? (int)left : 0;
}

/* So often one call reads: a program that does not stop talking stops nobody else. */
enum { MOST_HEARD = 64 };

/* False: all have ended. */
static bool read_answers(struct kiln__compile_workers *workers)
{
    char bytes[64];
    ssize_t got = 1;
    for (int i = 0; i < MOST_HEARD && (got > 0 || (got < 0 && errno == EINTR)); i++) {
        got = recv(workers->answers, bytes, sizeof bytes, MSG_DONTWAIT);
        if (got > 0) {
            workers->heard = true;
            workers->heard_at = kiln__now();
        }
    }
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR));
}

/* Whether nothing is open any more. */
static bool count_outcomes(struct kiln__compile_workers *workers)
{
    unsigned counts[KILN__JOB_FAILED + 1] = {0};
    for (unsigned i = 0; i < workers->jobs.texts.count; i++)
        counts[kiln__compile_workers_outcome(workers, i)]++;
    if (counts[KILN__JOB_STORED] > workers->stored)
        atomic_fetch_add(&workers->programs->stored_by_workers,
                         counts[KILN__JOB_STORED] - workers->stored);
    workers->stored = counts[KILN__JOB_STORED];
    workers->present = counts[KILN__JOB_PRESENT];
    return !counts[KILN__JOB_OPEN];
}

/* They took the jobs that they were at along. */
static bool start_again(struct kiln__compile_workers *workers)
{
    unsigned begun = kiln__compile_workers_begun(workers);
    return !workers->stopped && begun > workers->begun && begun < workers->jobs.texts.count &&
           start_rest(workers);
}

bool kiln__compile_workers_listen(struct kiln__compile_workers *workers, bool waits)
{
    if (!workers->head || workers->answers < 0)
        return false;
    if (waits)
        poll(&(struct pollfd){.fd = workers->answers, .events = POLLIN}, 1, patience_ms(workers));
    bool live = read_answers(workers);
    if (!count_outcomes(workers) &&
        (live ? patience_ms(workers) > 0 : waits && start_again(workers)))
        return true;
    return watch_answers(workers, -1);
}

enum kiln__compile_outcome
kiln__compile_workers_outcome(const struct kiln__compile_workers *workers, unsigned job)
{
    unsigned outcome = atomic_load(&workers->head->outcomes[job]);
    return outcome <= KILN__JOB_FAILED ? (enum kiln__compile_outcome)outcome : KILN__JOB_FAILED;
}

unsigned kiln__compile_workers_begun(const struct kiln__compile_workers *workers)
{
    unsigned next = workers->head ? atomic_load(&workers->head->next) : 0;
    return next < workers->jobs.texts.count ? next : (unsigned)workers->jobs.texts.count;
}

void kiln__compile_workers_stop(struct kiln__compile_workers *workers)
{
    pthread_mutex_lock(&mutex);
    workers->stopped = true;
    if (workers->answers >= 0)
        shutdown(workers->answers, SHUT_RDWR);
    pthread_mutex_unlock(&mutex);
}

void kiln__compile_workers_free(struct kiln__compile_workers *workers)
{
    if (workers->head) {
        if (workers->answers >= 0)
            close(workers->answers);
        close(workers->file);
        munmap(workers->head, workers->length);
    }
    kiln__compile_jobs_free(&workers->jobs);
    *workers = (struct kiln__compile_workers){.answers = -1};
}
