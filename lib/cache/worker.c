/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/worker.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

struct kiln__worker {
    pid_t pid; /* of the process that has the thread */
    pthread_t thread;
    /* Guards what follows; never held while a job runs. `changed`: a job was added, a job has run,
     * or it is time to end. A job's memory is not looked at once it has run. */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct kiln__job *first, **end;
    uint64_t added, run;
    bool started, ending;
};

struct kiln__worker *kiln__worker_create(void)
{
    struct kiln__worker *worker = calloc(1, sizeof *worker);
    if (!worker)
        return NULL;
    worker->pid = getpid();
    worker->end = &worker->first;
    if (pthread_mutex_init(&worker->mutex, NULL)) {
        free(worker);
        return NULL;
    }
    if (pthread_cond_init(&worker->changed, NULL)) {
        pthread_mutex_destroy(&worker->mutex);
        free(worker);
        return NULL;
    }
    return worker;
}

/* The next job, or NULL when it is time to end. The mutex is held. */
static struct kiln__job *take(struct kiln__worker *worker)
{
    while (!worker->first && !worker->ending)
        pthread_cond_wait(&worker->changed, &worker->mutex);
    struct kiln__job *job = worker->first;
    if (job) {
        worker->first = job->next;
        if (!worker->first)
            worker->end = &worker->first;
    }
    return job;
}

static void *work(void *user)
{
    struct kiln__worker *worker = user;
    struct kiln__job *job;
    pthread_mutex_lock(&worker->mutex);
    while ((job = take(worker))) {
        pthread_mutex_unlock(&worker->mutex);
        job->run(job);
        pthread_mutex_lock(&worker->mutex);
        worker->run++;
        pthread_cond_broadcast(&worker->changed);
    }
    pthread_mutex_unlock(&worker->mutex);
    return NULL;
}

/* The program's signals are the program's: none is handled here. That also keeps a write beyond the
 * limit on file sizes an error, where SIGXFSZ would end the process. */
static bool start(struct kiln__worker *worker)
{
    sigset_t all, before;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before))
        return false;
    worker->started = !pthread_create(&worker->thread, NULL, work, worker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return worker->started;
}

bool kiln__worker_add(struct kiln__worker *worker, struct kiln__job *job)
{
    if (worker->pid != getpid())
        return false;
    pthread_mutex_lock(&worker->mutex);
    bool runs = worker->started || start(worker);
    if (runs) {
        job->next = NULL;
        *worker->end = job;
        worker->end = &job->next;
        worker->added++;
        pthread_cond_broadcast(&worker->changed);
    }
    pthread_mutex_unlock(&worker->mutex);
    return runs;
}

void kiln__worker_sync(struct kiln__worker *worker)
{
    if (worker->pid != getpid())
        return;
    pthread_mutex_lock(&worker->mutex);
    uint64_t goal = worker->added;
    while (worker->run < goal)
        pthread_cond_wait(&worker->changed, &worker->mutex);
    pthread_mutex_unlock(&worker->mutex);
}

void kiln__worker_destroy(struct kiln__worker *worker)
{
    if (!worker)
        return;
    if (worker->pid == getpid()) {
        pthread_mutex_lock(&worker->mutex);
        worker->ending = true;
        pthread_cond_broadcast(&worker->changed);
        pthread_mutex_unlock(&worker->mutex);
        if (worker->started)
            pthread_join(worker->thread, NULL);
        pthread_cond_destroy(&worker->changed);
        pthread_mutex_destroy(&worker->mutex);
    }
    free(worker);
}
