/* SPDX-License-Identifier: Apache-2.0 */
/* The executor's work in short trials, for campaigns of failing calls and allocations. */
#include "executor_work.h"

#include <stdatomic.h>
#include <string.h>

#include <kiln/elementwise.h>
#include <kiln/models.h>

enum { REQUESTS = 3, WIDTH = 4, MOST_BATCH = 2, ROUNDS = 3 };

/* They stay where they are, because a run whose end could not be awaited may still write. */
static float x[REQUESTS][WIDTH], y[REQUESTS][WIDTH];

static kiln_status record(kiln_batch *batch, size_t context, size_t rows, const kiln_tensor *inputs,
                          kiln_tensor *outputs, void *user)
{
    (void)context, (void)rows, (void)user;
    outputs[0] = kiln_relu(batch, inputs[0]);
    return KILN_OK;
}

static bool create(struct trial *trial, kiln_context *const *contexts, size_t n,
                   kiln_executor **executor)
{
    const kiln_row row = {.type = KILN_F32, .rank = 1, .dims = {WIDTH}};
    const kiln_model model = {sizeof model,          record, NULL, 1, &row, 1, sizeof(kiln_row),
                              KILN_PRECISION_DEFAULT};
    kiln_executor_options options = KILN_EXECUTOR_OPTIONS_INIT;
    for (int i = 0; i < REQUESTS * WIDTH; i++)
        x[i / WIDTH][i % WIDTH] = (float)(i % 7 - 3);
    options.max_batch = MOST_BATCH;
    options.retry_us = 1;
    return trial_made(trial, kiln_executor_create(contexts, n, &model, &options, executor),
                      executor);
}

/* ---- what the callers see ---- */

static atomic_int told[REQUESTS]; /* once for each request that was taken */

static void be_told(kiln_status status, void *user)
{
    (void)status;
    atomic_fetch_add((atomic_int *)user, 1);
}

/* Each either fails with a sentence or has the result. Answers how many of those that were taken
 * failed: one that was not is its caller's. */
static int serve(struct trial *trial, kiln_executor *executor)
{
    kiln_future *futures[REQUESTS];
    int failed = 0;
    memset(y, 0, sizeof y);
    for (int i = 0; i < REQUESTS; i++) {
        const kiln_input input = {x[i], sizeof x[i], KILN_F32};
        const kiln_output output = {y[i], sizeof y[i], KILN_F32};
        if (trial_made(trial, kiln_executor_submit(executor, &input, &output, 1, NULL, &futures[i]),
                       &futures[i]))
            trial_good(trial, kiln_future_notify(futures[i], be_told, &told[i]));
        else
            atomic_fetch_add(&told[i], 1); /* by the submission */
    }
    for (int i = 0; i < REQUESTS; i++) {
        bool good = futures[i] && trial_good(trial, kiln_future_wait(futures[i]));
        failed += futures[i] && !good;
        for (int k = 0; good && k < WIDTH; k++)
            trial_expect(trial, y[i][k] == (x[i][k] > 0 ? x[i][k] : 0));
        kiln_future_release(futures[i]);
    }
    return failed;
}

/* ---- from its making to its end ---- */

static void make_models(struct trial *trial)
{
    kiln_model *slerp, *gradient;
    if (!trial_made(trial, kiln_model_create_slerp(1, (size_t[]){WIDTH}, &slerp), &slerp))
        return;
    if (trial_made(trial, kiln_model_create_gradient(slerp, 1, (size_t[]){2}, &gradient),
                   &gradient))
        kiln_free(gradient);
    kiln_free(slerp);
}

void executor_act(struct trial *trial)
{
    kiln_executor *executor;
    char *text;
    make_models(trial);
    if (!create(trial, &trial->context, 1, &executor))
        return;
    serve(trial, executor);
    if (trial_made(trial, kiln_executor_metrics(executor, KILN_METRICS_JSON, &text), &text))
        kiln_free(text);
    kiln_executor_release(executor);
}

/* ---- while it serves ---- */

static struct {
    kiln_executor *executor;
    kiln_context *other; /* NULL: it has one context */
    int rounds;
} served;

static void prepare(struct trial *trial, size_t n)
{
    kiln_context *contexts[2] = {trial->context};
    for (int i = 0; i < REQUESTS; i++)
        atomic_store(&told[i], 0);
    served.executor = NULL;
    served.other = NULL;
    served.rounds = 0;
    if (n == 2 && !trial_good(trial, work_open(trial, &served.other)))
        return;
    contexts[1] = served.other;
    if (create(trial, contexts, n, &served.executor))
        serve(trial, served.executor);
    served.rounds++;
}

void executor_prepare_serve(struct trial *trial)
{
    prepare(trial, 1);
}

void executor_prepare_two(struct trial *trial)
{
    prepare(trial, 2);
}

/* One failure concerns the batches under way, and with a second context nobody. */
void executor_act_serve(struct trial *trial)
{
    int failed = 0;
    for (int i = 0; i < ROUNDS; i++, served.rounds++)
        failed += serve(trial, served.executor);
    if (trial->once)
        trial_expect(trial, failed <= (served.other ? 0 : REQUESTS));
}

/* It serves again, and every request has ended once. */
void executor_inspect(struct trial *trial)
{
    kiln_executor_stats stats = {0};
    if (served.other && kiln_context_finish(served.other)) /* what nobody has waited for */
        trial_expect(trial, *kiln_last_error());
    serve(trial, served.executor);
    served.rounds++;
    trial_good(trial, kiln_executor_shutdown(served.executor, KILN_SHUTDOWN_DRAIN));
    for (int i = 0; i < REQUESTS; i++)
        trial_expect(trial, atomic_load(&told[i]) == served.rounds);
    if (trial_good(trial, kiln_executor_get_stats(served.executor, &stats)))
        trial_expect(trial, stats.completed + stats.failed == stats.requests && !stats.queued &&
                                !stats.running);
    kiln_executor_release(served.executor);
    kiln_context_release(served.other);
}
