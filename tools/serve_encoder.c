/* SPDX-License-Identifier: Apache-2.0 */
/* An encoder's executor gathers texts of all callers into batches. The model's thread looks for
 * requests whose texts are all done, and writes their answers. */
#define _GNU_SOURCE
#include "serve_encoder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A batch has so many texts at most, and tokens: more are no faster. */
enum { CPU_BATCH = 64, CPU_TOKENS = 4096, GPU_BATCH = 512, GPU_TOKENS = 1 << 15 };

static const char command[] = "kiln serve";

/* ---- what a job asks for ---- */

static void call_thread(kiln_status status, void *model)
{
    (void)status;
    sem_post(&((struct served *)model)->wake);
}

static kiln_status ask(struct served *model, struct serve_vectors *vectors, size_t number)
{
    const struct serve_encoder *encoder = model->encoder;
    const size_t length = vectors->starts[number + 1] - vectors->starts[number];
    const size_t width = encoder->model.width;
    const kiln_input input = {vectors->ids + vectors->starts[number], length * sizeof(int32_t),
                              KILN_I32};
    const kiln_output output = {vectors->values + number * width, width * sizeof(float), KILN_F32};
    kiln_request_options options = KILN_REQUEST_OPTIONS_INIT;
    options.length = length;
    options.when_full = KILN_WHEN_FULL_FAIL;
    kiln_future **future = &vectors->futures[number];
    kiln_status status =
        kiln_executor_submit(encoder->model.executor, &input, &output, 1, &options, future);
    if (status)
        return status;
    vectors->asked++;
    return kiln_future_notify(*future, call_thread, model);
}

static void cancel(struct serve_job *job)
{
    struct serve_vectors *vectors = job->form.vectors;
    for (size_t i = vectors->done; i < vectors->asked; i++) {
        const kiln_status ignored = kiln_future_cancel(vectors->futures[i]);
        (void)ignored;
    }
}

/* Nor do others have to, for an answer that is only to be sent. */
static void end_waiting(struct serve_job *job)
{
    struct serve_vectors *vectors = job->form.vectors;
    atomic_fetch_sub(&job->form.model->encoder->texts, vectors->waiting);
    vectors->waiting = 0;
}

/* What cannot be asked for is the job's problem once what was asked before it has ended. */
static bool submit(struct serve_job *job, struct serve_problem *problem)
{
    struct served *model = job->form.model;
    struct serve_encoder *encoder = model->encoder;
    struct serve_vectors *vectors = job->form.vectors;
    kiln_status status = KILN_OK;
    vectors->waiting = vectors->count;
    const size_t before = atomic_fetch_add(&encoder->texts, vectors->count);
    if (before >= encoder->most_texts) {
        atomic_fetch_add(&encoder->refused, 1);
        return serve_refuse(problem, 429, "rate_limit_exceeded", NULL,
                            "%zu texts wait already, and at most are %zu", before,
                            encoder->most_texts);
    }
    vectors->values = calloc(vectors->count * encoder->model.width, sizeof *vectors->values);
    if (!vectors->values)
        return serve_refuse(problem, 500, NULL, NULL, "no memory");
    atomic_fetch_add(&encoder->tokens, vectors->starts[vectors->count]);
    for (size_t i = 0; i < vectors->count && !status; i++)
        status = ask(model, vectors, i);
    if (status) {
        serve_refuse_kiln(&job->problem, status);
        cancel(job);
    }
    return true;
}

/* An executor that runs a batch still writes to its vectors. */
static void free_vectors(struct serve_job *job)
{
    struct serve_vectors *vectors = job->form.vectors;
    for (size_t i = 0; i < vectors->asked; i++) {
        const kiln_status ignored = kiln_future_wait(vectors->futures[i]);
        (void)ignored;
        kiln_future_release(vectors->futures[i]);
    }
    end_waiting(job);
}

/* Once. */
static void write_answer(struct serve_job *job)
{
    if (job->out.length)
        return;
    if (job->problem.status || !serve_vectors_write(job))
        serve_text_json(&job->out, serve_problem_json(&job->problem));
}

/* ---- the thread; under the model's lock ---- */

/* The first failure cancels what waits still. */
static bool is_done(struct serve_job *job)
{
    struct serve_vectors *vectors = job->form.vectors;
    for (; vectors->done < vectors->asked; vectors->done++) {
        const kiln_status status = kiln_future_poll(vectors->futures[vectors->done]);
        if (status == KILN_NOT_READY)
            return false;
        if (!status || job->problem.status)
            continue;
        serve_refuse_kiln(&job->problem, status);
        cancel(job);
    }
    return true;
}

static struct serve_job *find_done(struct served *model)
{
    struct serve_job *job = model->jobs;
    while (job && !is_done(job))
        job = job->next;
    return job;
}

static void take_out(struct served *model, const struct serve_job *job)
{
    struct serve_job **link = &model->jobs;
    while (*link != job)
        link = &(*link)->next;
    *link = job->next;
}

/* Answers are written without the lock. */
static void collect(struct served *model)
{
    struct serve_job *job;
    for (job = model->jobs; job; job = job->next) {
        if (job->gone || !serve_job_has_gone(job))
            continue;
        job->gone = true;
        cancel(job);
    }
    while ((job = find_done(model)) != NULL) {
        const bool is_wanted = !job->gone && !job->is_left;
        end_waiting(job);
        pthread_mutex_unlock(&model->lock);
        if (is_wanted)
            write_answer(job);
        pthread_mutex_lock(&model->lock);
        take_out(model, job);
        serve_job_end(job);
    }
}

/* As long as jobs are under way their connections are looked at now and then. */
static void wait_for_news(struct served *model, bool has_jobs)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 1000000L * SERVE_WATCH_MS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (has_jobs)
        sem_timedwait(&model->wake, &until);
    else
        sem_wait(&model->wake);
    while (!sem_trywait(&model->wake))
        ;
}

/* When it leaves, no batch runs any more. */
static void *work(void *user)
{
    struct served *model = user;
    pthread_mutex_lock(&model->lock);
    while (!model->stops) {
        const bool has_jobs = model->jobs;
        pthread_mutex_unlock(&model->lock);
        wait_for_news(model, has_jobs);
        pthread_mutex_lock(&model->lock);
        collect(model);
    }
    pthread_mutex_unlock(&model->lock);
    const kiln_status ignored =
        kiln_executor_shutdown(model->encoder->model.executor, KILN_SHUTDOWN_CANCEL);
    (void)ignored;
    return NULL;
}

/* ---- metrics ---- */

/* As a batcher's: batches are its steps. */
static kiln_status get_stats(struct served *model, kiln_lm_batcher_stats *stats)
{
    struct serve_encoder *encoder = model->encoder;
    kiln_executor_stats own;
    kiln_status status = kiln_executor_get_stats(encoder->model.executor, &own);
    *stats = (kiln_lm_batcher_stats){.requests = own.requests,
                                     .refused = own.refused + atomic_load(&encoder->refused),
                                     .completed = own.completed,
                                     .failed = own.failed,
                                     .cancelled = own.cancelled,
                                     .timed_out = own.timed_out,
                                     .prompt_tokens = atomic_load(&encoder->tokens),
                                     .steps = own.batches,
                                     .failed_steps = own.failed_batches,
                                     .running = own.running,
                                     .queued = own.queued,
                                     .step = own.run,
                                     .total = own.total};
    return status;
}

/* ---- from the files ---- */

static bool complain(const char *sentence)
{
    fprintf(stderr, "%s: %s\n", command, sentence);
    return false;
}

static bool open_tokenizer(struct serve_encoder *encoder, size_t most_tokens)
{
    char error[KILN__TOKENIZER_ERROR] = "no memory";
    encoder->tokenizer = encoder->model.lm ? tokenizer_of_model(encoder->model.lm)
                                           : tokenizer_open(encoder->files.vocabulary, error);
    if (!encoder->tokenizer)
        return complain(error);
    encoder->max_length = encoder->files.max_length;
    if (most_tokens && most_tokens < encoder->max_length)
        encoder->max_length = most_tokens;
    return encoder->max_length > encoder->tokenizer->facts.around.before_count +
                                     encoder->tokenizer->facts.around.after_count ||
           complain("--context has no room for words beside the tokens around them");
}

static bool open_executor(struct serve_encoder *encoder, kiln_context *context,
                          const struct serve_encoder_options *given)
{
    kiln_executor_options options = KILN_EXECUTOR_OPTIONS_INIT;
    options.max_batch = given->is_cpu ? CPU_BATCH : GPU_BATCH;
    options.max_elements = given->is_cpu ? CPU_TOKENS : GPU_TOKENS;
    options.max_queue =
        encoder->most_texts + (size_t)2 * SERVE_MOST_INPUTS; /* of two threads that submit */
    options.prepare = 1;
    encoder->model.command = command;
    encoder->model.cls = encoder->files.cls;
    encoder->model.normalize = true;
    return embed_open_executor(&encoder->model, &context, 1, encoder->max_length, &options);
}

static void close_encoder(struct served *model)
{
    struct serve_encoder *encoder = model->encoder;
    if (!encoder)
        return;
    tokenizer_close(encoder->tokenizer);
    embed_close(&encoder->model);
    embed_free_files(&encoder->files);
    pthread_mutex_destroy(&encoder->lock);
    free(encoder);
}

bool serve_encoder_open(struct served *model, kiln_context *context, const char *path,
                        const struct serve_encoder_options *options)
{
    const struct embed_request request = {.command = command, .advice = "", .model = path};
    struct serve_encoder *encoder = calloc(1, sizeof *encoder);
    if (!encoder || pthread_mutex_init(&encoder->lock, NULL)) {
        free(encoder);
        return complain("no memory");
    }
    model->kind = &serve_encoding;
    model->encoder = encoder;
    encoder->model.lm = model->lm;
    model->lm = NULL;
    encoder->most_texts = options->most_texts ? options->most_texts : SERVE_MOST_INPUTS;
    if (!embed_find_files(&request, &encoder->files))
        return false;
    const bool is_gguf = encoder->files.is_gguf; /* the tokenizer is in the model's file */
    if (!is_gguf && !open_tokenizer(encoder, options->most_tokens))
        return false;
    if (!embed_load(&encoder->model, context, options->weights, &encoder->files))
        return complain(kiln_last_error());
    return (!is_gguf || open_tokenizer(encoder, options->most_tokens)) &&
           open_executor(encoder, context, options);
}

const struct serve_kind serve_encoding = {.what = "an encoder",
                                          .paths = "/v1/embeddings",
                                          .work = work,
                                          .submit = submit,
                                          .cancel = cancel,
                                          .write = write_answer,
                                          .free = free_vectors,
                                          .stats = get_stats,
                                          .close = close_encoder};
