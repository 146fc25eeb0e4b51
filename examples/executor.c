/* SPDX-License-Identifier: Apache-2.0 */
/* Sixteen threads, each with rows of its own to classify: through an executor, which gathers them
 * into batches, and with a call per request. Prints throughput, fill and latency of both. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <kiln/kiln.h>

enum { THREADS = 16, ROWS = 1000, INPUTS = 64, CLASSES = 10 };

/* Logits of a linear classifier: x W + b. */
struct classifier {
    kiln_buffer *weights, *bias;
};

static float rows[ROWS][INPUTS], weights[INPUTS][CLASSES], bias[CLASSES];
static float results[ROWS][CLASSES], expected[ROWS][CLASSES];
static double latency[ROWS];

static kiln_context *context;
static kiln_executor *executor;
static struct classifier classifier;

static void check(kiln_status status, const char *what)
{
    if (!status)
        return;
    fprintf(stderr, "executor: %s: %s\n", what, kiln_last_error());
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static kiln_tensor logits(kiln_batch *batch, kiln_tensor x, const struct classifier *c)
{
    kiln_tensor product = kiln_matmul(batch, x, kiln_import(batch, c->weights));
    return kiln_add(batch, product, kiln_import(batch, c->bias));
}

/* ---- one row, each way ---- */

static kiln_status record(kiln_batch *batch, size_t number, size_t count, const kiln_tensor *inputs,
                          kiln_tensor *outputs, void *user)
{
    (void)number, (void)count;
    outputs[0] = logits(batch, inputs[0], user);
    return KILN_OK;
}

static void submit(size_t row)
{
    kiln_input x = {rows[row], sizeof rows[row], KILN_F32};
    kiln_output y = {results[row], sizeof results[row], KILN_F32};
    kiln_future *future;
    check(kiln_executor_submit(executor, &x, &y, 1, NULL, &future), "submitting");
    check(kiln_future_wait(future), "a request");
    kiln_future_release(future);
}

static void call(size_t row)
{
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor x = kiln_upload(batch, KILN_F32, 2, (size_t[]){1, INPUTS}, rows[row]);
    kiln_read(batch, logits(batch, x, &classifier), results[row], sizeof results[row]);
    check(kiln_batch_execute(batch), "a call");
    kiln_batch_release(batch);
}

/* ---- all of them ---- */

struct client {
    pthread_t thread;
    size_t first;
    void (*classify)(size_t row);
};

static void *work(void *argument)
{
    const struct client *client = argument;
    for (size_t row = client->first; row < ROWS; row += THREADS) {
        double start = now();
        client->classify(row);
        latency[row] = now() - start;
    }
    return NULL;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Rows a second. */
static double serve(const char *name, void (*classify)(size_t row))
{
    struct client clients[THREADS];
    double start = now();
    for (size_t i = 0; i < THREADS; i++) {
        clients[i] = (struct client){.first = i, .classify = classify};
        if (pthread_create(&clients[i].thread, NULL, work, &clients[i]))
            exit(1);
    }
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(clients[i].thread, NULL);
    double seconds = now() - start;
    qsort(latency, ROWS, sizeof *latency, by_size);
    printf("%-18s %8.0f rows/s, latency %6.0f us p50, %6.0f us p99\n", name, ROWS / seconds,
           latency[ROWS / 2] * 1e6, latency[ROWS * 99 / 100] * 1e6);
    return ROWS / seconds;
}

static void make_data(void)
{
    for (size_t i = 0; i < ROWS; i++)
        for (size_t k = 0; k < INPUTS; k++)
            rows[i][k] = (float)((i * 7 + k * 13) % 17) / 16;
    for (size_t k = 0; k < INPUTS; k++)
        for (size_t c = 0; c < CLASSES; c++)
            weights[k][c] = (float)((k * 5 + c * 3) % 11) / 8 - 0.5f;
    for (size_t i = 0; i < ROWS; i++)
        for (size_t c = 0; c < CLASSES; c++)
            for (size_t k = 0; k < INPUTS; k++)
                expected[i][c] += rows[i][k] * weights[k][c];
}

static kiln_buffer *upload(size_t rank, const size_t *dims, const void *data)
{
    kiln_buffer *buffer;
    check(kiln_buffer_create(context, KILN_F32, rank, dims, &buffer), "a buffer");
    check(kiln_buffer_write(buffer, 0, data, kiln_buffer_bytes(buffer)), "writing");
    return buffer;
}

static int count_wrong(void)
{
    int wrong = 0;
    for (size_t i = 0; i < ROWS; i++)
        for (size_t c = 0; c < CLASSES; c++)
            wrong += !(fabsf(results[i][c] - expected[i][c]) < 1e-4f);
    return wrong;
}

int main(void)
{
    const kiln_row row = {.type = KILN_F32, .rank = 1, .dims = {INPUTS}};
    kiln_model model = KILN_MODEL_INIT;
    kiln_executor_options options = KILN_EXECUTOR_OPTIONS_INIT;
    kiln_executor_stats stats;
    make_data();
    check(kiln_context_create(NULL, &context), "no context");
    classifier.weights = upload(2, (const size_t[]){INPUTS, CLASSES}, weights);
    classifier.bias = upload(1, (const size_t[]){CLASSES}, bias);
    model.record = record;
    model.user = &classifier;
    model.inputs = &row;
    model.input_count = model.output_count = 1;
    options.max_batch = 64;
    check(kiln_executor_create(&context, 1, &model, &options, &executor), "no executor");
    serve("warming up", submit);
    double together = serve("executor", submit);
    int wrong = count_wrong();
    call(0);
    double alone = serve("a call per request", call);
    wrong += count_wrong();
    check(kiln_executor_get_stats(executor, &stats), "stats");
    printf("%.1f times as many rows; %.1f rows a batch (%.0f%% of what it could hold), waiting "
           "%.0f us p50, running %.0f us p50\n",
           together / alone, (double)stats.rows / (double)stats.batches, stats.fill * 100,
           stats.wait.p50 * 1e6, stats.run.p50 * 1e6);
    kiln_executor_release(executor);
    kiln_buffer_release(classifier.weights);
    kiln_buffer_release(classifier.bias);
    kiln_context_release(context);
    if (wrong)
        fprintf(stderr, "executor: %d numbers are wrong\n", wrong);
    return wrong != 0;
}
