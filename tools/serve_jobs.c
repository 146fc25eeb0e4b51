/* SPDX-License-Identifier: Apache-2.0 */
/* A model's thread has its batcher go on as long as somebody waits, and hands out what comes of it.
 * Jobs of a model are under its lock; the batcher's steps are not. */
#define _GNU_SOURCE
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "language.h"
#include "serve.h"

enum { WATCH_MS = 50 }; /* between looks at connections that wait */

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

static bool submit(struct serve_job *job, struct serve_problem *problem)
{
    struct serve_form *form = &job->form;
    for (; job->count < form->prompt_count * form->each; job->count++) {
        const struct serve_prompt *prompt = &form->prompts[job->count / form->each];
        kiln_lm_request_options options = form->options;
        options.seed += job->count % form->each;
        const kiln_status status =
            kiln_lm_batcher_submit(form->model->batcher, prompt->tokens, prompt->count, &options,
                                   &job->choices[job->count].request);
        if (status)
            return serve_refuse_kiln(problem, status);
    }
    return true;
}

static void free_job(struct serve_job *job)
{
    for (size_t i = 0; i < job->count; i++) {
        kiln_lm_request_release(job->choices[i].request);
        free(job->choices[i].text.bytes);
        free(job->choices[i].said);
    }
    serve_form_free(&job->form);
    free(job->out.bytes);
    free(job);
}

/* Under the lock, as the next one. */
static void end_job(struct serve_job *job)
{
    for (size_t i = 0; i < job->count; i++)
        kiln_lm_request_cancel(job->choices[i].request);
    if (!job->gone)
        serve_job_finish(job);
    job->ended = true;
}

/* Nobody has it go on any more. */
static void break_off(struct serve_job *job)
{
    if (!job->problem.status)
        serve_refuse(&job->problem, 503, "cancelled", NULL, "this server is about to end");
    end_job(job);
    if (job->connection)
        serve_http_resume(job);
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
    if (!submit(job, problem)) {
        free_job(job);
        return NULL;
    }
    pthread_mutex_lock(&model->lock);
    if (model->closed) {
        break_off(job);
    } else {
        job->next = model->jobs;
        model->jobs = job;
        pthread_cond_signal(&model->wake);
    }
    pthread_mutex_unlock(&model->lock);
    return job;
}

void serve_job_close(struct serve_job *job)
{
    struct served *model = job->form.model;
    pthread_mutex_lock(&model->lock);
    struct serve_job **link = &model->jobs;
    while (*link && *link != job)
        link = &(*link)->next;
    if (*link)
        *link = job->next;
    pthread_mutex_unlock(&model->lock);
    free_job(job);
}

/* ---- going on; under the lock ---- */

static bool has_gone(const struct serve_job *job)
{
    struct pollfd socket = {job->descriptor, POLLRDHUP, 0};
    return job->connection && poll(&socket, 1, 0) > 0;
}

static void collect(struct serve_job *job)
{
    bool all = true;
    for (size_t i = 0; i < job->count && !job->problem.status; i++) {
        struct serve_choice *choice = &job->choices[i];
        if (choice->finish)
            continue;
        serve_choice_read(job, choice);
        if (job->form.stream && !job->problem.status)
            serve_choice_send(job, choice);
        all = all && choice->finish;
    }
    if (all || job->problem.status || job->gone)
        end_job(job);
    if (job->connection && (job->ended || (job->form.stream && job->out.count > job->taken)))
        serve_http_resume(job);
}

/* Jobs that have ended are their connections' alone. */
static void collect_all(struct served *model, bool watches)
{
    struct serve_job **link = &model->jobs;
    while (*link) {
        struct serve_job *job = *link;
        job->gone = watches && has_gone(job);
        collect(job);
        if (job->ended)
            *link = job->next;
        else
            link = &job->next;
    }
}

static void *work(void *user)
{
    struct served *model = user;
    double watched = 0;
    kiln_status status = KILN_NOT_READY;
    pthread_mutex_lock(&model->lock);
    while (!model->stops) {
        if (!model->jobs && status == KILN_NOT_READY) {
            pthread_cond_wait(&model->wake, &model->lock);
            if (!model->jobs)
                continue;
        }
        pthread_mutex_unlock(&model->lock);
        status = kiln_lm_batcher_step(model->batcher);
        if (status && status != KILN_NOT_READY)
            language_complain("kiln serve");
        const double now = language_now();
        const bool watches = now - watched > 1e-3 * WATCH_MS;
        watched = watches ? now : watched;
        pthread_mutex_lock(&model->lock);
        collect_all(model, watches);
    }
    pthread_mutex_unlock(&model->lock);
    return NULL;
}

/* ---- threads ---- */

bool serve_jobs_start(struct served *model)
{
    if (pthread_mutex_init(&model->lock, NULL))
        return false;
    if (pthread_cond_init(&model->wake, NULL)) {
        pthread_mutex_destroy(&model->lock);
        return false;
    }
    model->has_thread = !pthread_create(&model->thread, NULL, work, model);
    if (!model->has_thread) {
        pthread_cond_destroy(&model->wake);
        pthread_mutex_destroy(&model->lock);
    }
    return model->has_thread;
}

void serve_jobs_cancel(struct served *model)
{
    pthread_mutex_lock(&model->lock);
    model->closed = true;
    for (struct serve_job *job = model->jobs; job; job = job->next)
        for (size_t i = 0; i < job->count; i++)
            kiln_lm_request_cancel(job->choices[i].request);
    pthread_mutex_unlock(&model->lock);
}

void serve_jobs_stop(struct served *model)
{
    pthread_mutex_lock(&model->lock);
    model->stops = model->closed = true;
    pthread_cond_signal(&model->wake);
    pthread_mutex_unlock(&model->lock);
    pthread_join(model->thread, NULL);
    pthread_mutex_lock(&model->lock);
    for (struct serve_job *job; (job = model->jobs) != NULL;) {
        model->jobs = job->next;
        break_off(job);
    }
    pthread_mutex_unlock(&model->lock);
}

void serve_jobs_free(struct served *model)
{
    if (!model->has_thread)
        return;
    if (!model->stops)
        serve_jobs_stop(model);
    pthread_cond_destroy(&model->wake);
    pthread_mutex_destroy(&model->lock);
}
