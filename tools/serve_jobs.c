/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs begin in a connection's thread, are among their model's until that model's thread ends them,
 * and go with their connection. */
#define _GNU_SOURCE
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#include "serve.h"

/* ---- beginning and end ---- */

static void make_id(struct serve_job *job)
{
    uint64_t random[2] = {0, 0};
    const ssize_t got = getrandom(random, sizeof random, 0);
    (void)got;
    snprintf(job->id, sizeof job->id, "%s-%016llx%08llx", job->form.chat ? "chatcmpl" : "cmpl",
             (unsigned long long)random[0], (unsigned long long)(random[1] >> 32));
    job->created = time(NULL);
}

void serve_job_free(struct serve_job *job)
{
    job->form.model->kind->free(job);
    serve_form_free(&job->form);
    kiln__text_free(&job->out);
    free(job);
}

/* For its connection, which frees it. */
static void answer(struct serve_job *job)
{
    const struct serve_kind *kind = job->form.model->kind;
    if (!job->gone)
        kind->write(job);
    job->ended = true;
    if (job->connection)
        serve_http_resume(job);
}

void serve_job_end(struct serve_job *job)
{
    job->form.model->kind->cancel(job);
    if (job->is_left)
        serve_job_free(job);
    else
        answer(job);
}

/* Nobody has it go on any more. */
static void say_that_it_is_cancelled(struct serve_job *job)
{
    if (!job->problem.status)
        serve_refuse(&job->problem, 503, "cancelled", NULL, "this server is about to end");
}

struct serve_job *serve_job_begin(struct serve_form *form, struct serve_problem *problem)
{
    struct served *model = form->model;
    struct serve_job *job = calloc(1, sizeof *job);
    if (!job) {
        serve_form_free(form);
        serve_refuse(problem, 500, NULL, NULL, "no memory");
        return NULL;
    }
    job->form = *form;
    make_id(job);
    if (!model->kind->submit(job, problem)) {
        serve_job_free(job);
        return NULL;
    }
    pthread_mutex_lock(&model->lock);
    if (model->closed) {
        say_that_it_is_cancelled(job);
        model->kind->cancel(job);
        answer(job);
    } else {
        job->next = model->jobs;
        model->jobs = job;
        sem_post(&model->wake);
    }
    pthread_mutex_unlock(&model->lock);
    return job;
}

/* Vectors that are being written have to be waited for, which is left to the model's thread. */
void serve_job_close(struct serve_job *job)
{
    struct served *model = job->form.model;
    pthread_mutex_lock(&model->lock);
    struct serve_job **link = &model->jobs;
    while (*link && *link != job)
        link = &(*link)->next;
    job->is_left = *link && job->form.vectors;
    if (job->is_left) {
        model->kind->cancel(job);
        sem_post(&model->wake);
    } else if (*link) {
        *link = job->next;
    }
    const bool is_left = job->is_left;
    pthread_mutex_unlock(&model->lock);
    if (!is_left)
        serve_job_free(job);
}

bool serve_job_has_gone(const struct serve_job *job)
{
    struct pollfd socket = {job->descriptor, POLLRDHUP, 0};
    return job->connection && poll(&socket, 1, 0) > 0;
}

/* ---- threads ---- */

bool serve_jobs_start(struct served *model)
{
    if (pthread_mutex_init(&model->lock, NULL))
        return false;
    if (sem_init(&model->wake, 0, 0)) {
        pthread_mutex_destroy(&model->lock);
        return false;
    }
    model->has_thread = !pthread_create(&model->thread, NULL, model->kind->work, model);
    if (!model->has_thread) {
        sem_destroy(&model->wake);
        pthread_mutex_destroy(&model->lock);
    }
    return model->has_thread;
}

void serve_jobs_cancel(struct served *model)
{
    pthread_mutex_lock(&model->lock);
    model->closed = true;
    for (struct serve_job *job = model->jobs; job; job = job->next)
        model->kind->cancel(job);
    pthread_mutex_unlock(&model->lock);
}

void serve_jobs_stop(struct served *model)
{
    pthread_mutex_lock(&model->lock);
    model->stops = model->closed = true;
    sem_post(&model->wake);
    pthread_mutex_unlock(&model->lock);
    pthread_join(model->thread, NULL);
    pthread_mutex_lock(&model->lock);
    for (struct serve_job *job; (job = model->jobs) != NULL;) {
        model->jobs = job->next;
        say_that_it_is_cancelled(job);
        serve_job_end(job);
    }
    pthread_mutex_unlock(&model->lock);
}

void serve_jobs_free(struct served *model)
{
    if (!model->has_thread)
        return;
    if (!model->stops)
        serve_jobs_stop(model);
    sem_destroy(&model->wake);
    pthread_mutex_destroy(&model->lock);
}
