/* SPDX-License-Identifier: Apache-2.0 */
/* A language model's thread has its batcher go on as long as somebody waits, and hands out what
 * comes of it. Jobs are under the model's lock; the batcher's steps are not. */
#include <stdlib.h>

#include "language.h"
#include "serve.h"

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

static void cancel(struct serve_job *job)
{
    for (size_t i = 0; i < job->count; i++)
        kiln_lm_request_cancel(job->choices[i].request);
}

static void free_choices(struct serve_job *job)
{
    for (size_t i = 0; i < job->count; i++) {
        kiln_lm_request_release(job->choices[i].request);
        kiln__text_free(&job->choices[i].text);
        free(job->choices[i].said);
    }
}

/* ---- going on; under the lock ---- */

/* Whether it is to end. */
static bool collect(struct serve_job *job)
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
        return true;
    if (job->connection && job->form.stream && (job->out.failed || job->out.length > job->taken))
        serve_http_resume(job);
    return false;
}

/* Jobs that have ended are their connections' alone. */
static void collect_all(struct served *model, bool watches)
{
    struct serve_job **link = &model->jobs;
    while (*link) {
        struct serve_job *job = *link;
        job->gone = watches && serve_job_has_gone(job);
        if (collect(job)) {
            *link = job->next;
            serve_job_end(job);
        } else {
            link = &job->next;
        }
    }
}

static void *work(void *user)
{
    struct served *model = user;
    double watched = 0;
    kiln_status status = KILN_NOT_READY;
    pthread_mutex_lock(&model->lock);
    while (!model->stops) {
        const bool waits = !model->jobs && status == KILN_NOT_READY;
        pthread_mutex_unlock(&model->lock);
        if (waits)
            sem_wait(&model->wake);
        else
            status = kiln_lm_batcher_step(model->batcher);
        if (status && status != KILN_NOT_READY)
            language_complain("kiln serve");
        const double now = language_now();
        const bool watches = now - watched > 1e-3 * SERVE_WATCH_MS;
        watched = watches ? now : watched;
        pthread_mutex_lock(&model->lock);
        collect_all(model, watches);
    }
    pthread_mutex_unlock(&model->lock);
    return NULL;
}

/* ---- all ---- */

static kiln_status get_stats(struct served *model, kiln_lm_batcher_stats *stats)
{
    return kiln_lm_batcher_get_stats(model->batcher, stats);
}

static void close_model(struct served *model)
{
    kiln_lm_batcher_release(model->batcher);
    kiln_lm_release(model->lm);
}

const struct serve_kind serve_language = {.what = "a language model",
                                          .paths = "/v1/completions and /v1/chat/completions",
                                          .work = work,
                                          .submit = submit,
                                          .cancel = cancel,
                                          .write = serve_texts_write,
                                          .free = free_choices,
                                          .stats = get_stats,
                                          .close = close_model};
