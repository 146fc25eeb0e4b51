/* SPDX-License-Identifier: Apache-2.0 */
/* Sixteen threads with 1,000 rows of their own, which are interpolated or get the gradient of a
 * loss: through an executor, which gathers them into batches, and with a call per request. Prints
 * throughput, fill and latency, and looks at the answers. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <kiln/kiln.h>

enum { THREADS = 16, ROWS = 1000, PIXELS = 64, CLASSES = 10, VECTOR = 4, MOST = 3 };

/* All threads may fail at once: the first one says why, and ends the process. */
static void check(kiln_status status, const char *what)
{
    static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER;
    if (!status)
        return;
    pthread_mutex_lock(&first);
    fprintf(stderr, "executor: %s: %s\n", what, kiln_last_error());
    _exit(1); /* exit() would take what other threads use away from them */
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the loss of a linear classifier ---- */

static float weights[PIXELS][CLASSES], bias[CLASSES];
static kiln_buffer *on_device[2];

/* Cross-entropy of each row with the classes it should have. */
static kiln_status lose(kiln_batch *batch, size_t context, size_t rows, const kiln_tensor *inputs,
                        kiln_tensor *outputs, void *user)
{
    static const int classes[] = {1};
    (void)context, (void)rows, (void)user;
    kiln_tensor product = kiln_matmul(batch, inputs[0], kiln_import(batch, on_device[0]));
    kiln_tensor z = kiln_add(batch, product, kiln_import(batch, on_device[1]));
    kiln_tensor wanted = kiln_sum(batch, kiln_mul(batch, z, inputs[1]), 1, classes, 0);
    outputs[0] = kiln_sub(batch, kiln_logsumexp(batch, z, 1, classes, 0), wanted);
    return KILN_OK;
}

static const kiln_row loss_rows[] = {{.type = KILN_F32, .rank = 1, .dims = {PIXELS}},
                                     {.type = KILN_F32, .rank = 1, .dims = {CLASSES}}};
static const kiln_model loss = {
    .size = sizeof loss, .record = lose, .input_count = 2, .inputs = loss_rows, .output_count = 1};

/* ---- what is served: a model, its rows, and what should come back ---- */

struct service {
    const char *name;
    const kiln_model *model;
    size_t in[MOST], out[2];               /* numbers of a row */
    void (*answer)(size_t row, double *y); /* of the last output */
};

static float inputs[MOST][ROWS][PIXELS], results[2][ROWS][PIXELS];
static double latency[ROWS];

/* By the pixels: W (softmax(z) - wanted). */
static void exact_gradient(size_t row, double *y)
{
    double z[CLASSES], sum = 0;
    for (size_t c = 0; c < CLASSES; c++) {
        z[c] = (double)bias[c];
        for (size_t k = 0; k < PIXELS; k++)
            z[c] += (double)inputs[0][row][k] * (double)weights[k][c];
        sum += exp(z[c]);
    }
    for (size_t k = 0; k < PIXELS; k++) {
        y[k] = 0;
        for (size_t c = 0; c < CLASSES; c++)
            y[k] += (double)weights[k][c] * (exp(z[c]) / sum - (double)inputs[1][row][c]);
    }
}

static void exact_slerp(size_t row, double *y)
{
    const float *a = inputs[0][row], *b = inputs[1][row];
    double aa = 0, bb = 0, ab = 0, t = (double)inputs[2][row][0];
    for (size_t k = 0; k < VECTOR; k++) {
        aa += (double)a[k] * (double)a[k];
        bb += (double)b[k] * (double)b[k];
        ab += (double)a[k] * (double)b[k];
    }
    double angle = acos(ab / sqrt(aa * bb));
    for (size_t k = 0; k < VECTOR; k++)
        y[k] = (sin((1 - t) * angle) * (double)a[k] + sin(t * angle) * (double)b[k]) / sin(angle);
}

static int count_wrong(const struct service *of)
{
    size_t last = of->model->output_count - 1;
    int wrong = 0;
    for (size_t row = 0; row < ROWS; row++) {
        double y[PIXELS];
        of->answer(row, y);
        for (size_t k = 0; k < of->out[last]; k++)
            wrong += !(fabs((double)results[last][row][k] - y[k]) < 1e-4);
    }
    memset(results, 0, sizeof results);
    return wrong;
}

/* ---- one row, each way ---- */

static kiln_context *context;
static kiln_executor *executor;

static void submit(const struct service *of, size_t row)
{
    kiln_input x[MOST];
    kiln_output y[2];
    kiln_future *future;
    for (size_t i = 0; i < of->model->input_count; i++)
        x[i] = (kiln_input){inputs[i][row], of->in[i] * sizeof(float), KILN_F32};
    for (size_t i = 0; i < of->model->output_count; i++)
        y[i] = (kiln_output){results[i][row], of->out[i] * sizeof(float), KILN_F32};
    check(kiln_executor_submit(executor, x, y, 1, NULL, &future), "submitting");
    check(kiln_future_wait(future), "a request");
    kiln_future_release(future);
}

static void call(const struct service *of, size_t row)
{
    const kiln_model *model = of->model;
    kiln_tensor x[MOST], y[2];
    kiln_batch *batch = kiln_batch_create(context);
    for (size_t i = 0; i < model->input_count; i++)
        x[i] = kiln_upload(batch, KILN_F32, model->inputs[i].rank + 1, (size_t[]){1, of->in[i]},
                           inputs[i][row]);
    check(model->record(batch, 0, 1, x, y, model->user), "recording");
    for (size_t i = 0; i < model->output_count; i++)
        kiln_read(batch, y[i], results[i][row], of->out[i] * sizeof(float));
    check(kiln_batch_execute(batch), "a call");
    kiln_batch_release(batch);
}

/* ---- all of them ---- */

struct client {
    pthread_t thread;
    size_t first;
    const struct service *service;
    void (*serve)(const struct service *of, size_t row);
};

static void *work(void *argument)
{
    const struct client *client = argument;
    for (size_t row = client->first; row < ROWS; row += THREADS) {
        double start = now();
        client->serve(client->service, row);
        latency[row] = now() - start;
    }
    return NULL;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Every row once; the seconds that it takes. */
static double run(const struct service *of, void (*serve)(const struct service *of, size_t row))
{
    struct client clients[THREADS];
    double start = now();
    for (size_t i = 0; i < THREADS; i++) {
        clients[i] = (struct client){.first = i, .service = of, .serve = serve};
        if (pthread_create(&clients[i].thread, NULL, work, &clients[i]))
            exit(1);
    }
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(clients[i].thread, NULL);
    return now() - start;
}

/* Rows a second once everything is compiled, in the fastest of a few runs: other work on the
 * machine only adds. */
static double measure(const char *name, const struct service *of,
                      void (*serve)(const struct service *of, size_t row))
{
    double seconds = INFINITY, took, all[ROWS];
    run(of, serve);
    for (int i = 0; i < 5; i++)
        if ((took = run(of, serve)) < seconds) {
            seconds = took;
            memcpy(all, latency, sizeof all);
        }
    qsort(all, ROWS, sizeof *all, by_size);
    printf("%-9s %-19s %8.0f rows/s, latency %6.0f us p50, %6.0f us p99\n", of->name, name,
           ROWS / seconds, all[ROWS / 2] * 1e6, all[ROWS * 99 / 100] * 1e6);
    return ROWS / seconds;
}

/* How many answers are wrong. */
static int serve(const struct service *of)
{
    kiln_executor_options options = KILN_EXECUTOR_OPTIONS_INIT;
    kiln_executor_stats stats;
    options.max_batch = THREADS; /* each thread has one request at a time */
    check(kiln_executor_create(&context, 1, of->model, &options, &executor), "no executor");
    double together = measure("executor", of, submit);
    int wrong = count_wrong(of);
    double alone = measure("a call per request", of, call);
    wrong += count_wrong(of);
    check(kiln_executor_get_stats(executor, &stats), "stats");
    printf("%9s %.1f times as many rows; %.1f rows a batch (%.0f%% of what it could hold), waiting "
           "%.0f us p50, running %.0f us p50\n",
           "", together / alone, (double)stats.rows / (double)stats.batches, stats.fill * 100,
           stats.wait.p50 * 1e6, stats.run.p50 * 1e6);
    kiln_executor_release(executor);
    return wrong;
}

static kiln_buffer *upload(size_t rank, const size_t *dims, const void *data)
{
    kiln_buffer *buffer;
    check(kiln_buffer_create(context, KILN_F32, rank, dims, &buffer), "a buffer");
    check(kiln_buffer_write(buffer, 0, data, kiln_buffer_bytes(buffer)), "writing");
    return buffer;
}

static void make_data(void)
{
    for (size_t i = 0; i < MOST; i++)
        for (size_t row = 0; row < ROWS; row++)
            for (size_t k = 0; k < PIXELS; k++)
                inputs[i][row][k] = (float)((row * 7 + k * 13 + i * 5) % 17 + i) / 16;
    for (size_t k = 0; k < PIXELS; k++)
        for (size_t c = 0; c < CLASSES; c++)
            weights[k][c] = (float)((k * 5 + c * 3) % 11) / 8 - 0.5f;
    on_device[0] = upload(2, (const size_t[]){PIXELS, CLASSES}, weights);
    on_device[1] = upload(1, (const size_t[]){CLASSES}, bias);
}

int main(void)
{
    kiln_model *slerp, *gradient;
    int wrong = 0;
    check(kiln_context_create(NULL, &context), "no context");
    make_data();
    check(kiln_model_create_slerp(1, (const size_t[]){VECTOR}, &slerp), "slerp");
    check(kiln_model_create_gradient(&loss, 1, (const size_t[]){0}, &gradient), "a gradient");
    const struct service services[] = {
        {"slerp", slerp, {VECTOR, VECTOR, 1}, {VECTOR}, exact_slerp},
        {"gradient", gradient, {PIXELS, CLASSES}, {1, PIXELS}, exact_gradient},
    };
    for (size_t i = 0; i < sizeof services / sizeof *services; i++)
        wrong += serve(&services[i]);
    kiln_free(gradient);
    kiln_free(slerp);
    for (size_t i = 0; i < 2; i++)
        kiln_buffer_release(on_device[i]);
    kiln_context_release(context);
    if (wrong)
        fprintf(stderr, "executor: %d numbers are wrong\n", wrong);
    return wrong != 0;
}
