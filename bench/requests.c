/* SPDX-License-Identifier: Apache-2.0 */
/* The serving workload: small dense models, their weights, and the rows that client threads ask
 * for. */
#include "requests.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MIDDLE = 256, WIDE = 512, MOST_FORMED = 32 };

static kiln_context *context;
static float *x, *y;

/* ---- models ---- */

static struct {
    const char *name;
    size_t rows, depth, widths[4]; /* layers, and what is between them */
    kiln_buffer *weights[3];
    float *factors[3];
    double *wanted; /* of all rows */
} models[] = {
    [REQUESTS_LAYER] =
        {"a layer", REQUESTS_MOST_ROWS, 1, {REQUESTS_WIDTH, REQUESTS_WIDTH}, {0}, {0}, NULL},
    [REQUESTS_NETWORK] = {"a network",
                          REQUESTS_MOST_ROWS,
                          3,
                          {REQUESTS_WIDTH, MIDDLE, MIDDLE, REQUESTS_WIDTH},
                          {0},
                          {0},
                          NULL},
    [REQUESTS_WIDE] = {"a wide network",
                       REQUESTS_MOST_ROWS / 4,
                       3,
                       {REQUESTS_WIDTH, WIDE, WIDE, REQUESTS_WIDTH},
                       {0},
                       {0},
                       NULL},
};

const char *requests_name(enum requests_model model)
{
    return models[model].name;
}

size_t requests_rows(enum requests_model model)
{
    return models[model].rows;
}

static kiln_tensor record_rows(enum requests_model model, kiln_batch *batch, kiln_tensor rows)
{
    for (size_t i = 0; i < models[model].depth; i++)
        rows = kiln_relu(batch,
                         kiln_matmul(batch, rows, kiln_import(batch, models[model].weights[i])));
    return rows;
}

static kiln_status record_model(kiln_batch *batch, size_t number, size_t rows,
                                const kiln_tensor *inputs, kiln_tensor *outputs, void *user)
{
    (void)number, (void)rows;
    outputs[0] = record_rows(*(const enum requests_model *)user, batch, inputs[0]);
    return KILN_OK;
}

static void make_layer(enum requests_model model, size_t i)
{
    const size_t dims[] = {models[model].widths[i], models[model].widths[i + 1]};
    size_t count = dims[0] * dims[1];
    models[model].factors[i] = bench_floats(count, 1 + (unsigned)i);
    for (size_t k = 0; k < count; k++)
        models[model].factors[i][k] *= 0.125f;
    bench_ok(kiln_buffer_create(context, KILN_F32, 2, dims, &models[model].weights[i]), "a buffer");
    bench_ok(kiln_buffer_write(models[model].weights[i], 0, models[model].factors[i],
                               count * sizeof(float)),
             "writing");
}

static void apply(enum requests_model model, size_t layer, const double *in, double *out)
{
    size_t from = models[model].widths[layer], to = models[model].widths[layer + 1];
    const float *factors = models[model].factors[layer];
    memset(out, 0, to * sizeof *out);
    for (size_t j = 0; j < from; j++)
        for (size_t k = 0; k < to; k++)
            out[k] += in[j] * factors[j * to + k];
    for (size_t k = 0; k < to; k++)
        out[k] = out[k] > 0 ? out[k] : 0;
}

static void make_wanted(enum requests_model model)
{
    double *wanted = bench_memory(models[model].rows * REQUESTS_WIDTH * sizeof *wanted);
    for (size_t r = 0; r < models[model].rows; r++) {
        double values[2][WIDE];
        for (size_t k = 0; k < REQUESTS_WIDTH; k++)
            values[0][k] = x[r * REQUESTS_WIDTH + k];
        for (size_t i = 0; i < models[model].depth; i++)
            apply(model, i, values[i % 2], values[(i + 1) % 2]);
        memcpy(wanted + r * REQUESTS_WIDTH, values[models[model].depth % 2],
               REQUESTS_WIDTH * sizeof *wanted);
    }
    models[model].wanted = wanted;
}

/* ---- all threads at it ---- */

static pthread_barrier_t barrier;
static struct requests_way *now;
static void (*serve)(size_t first, size_t count); /* requests */

static void *client(void *number)
{
    size_t each = now->load->total / now->load->threads;
    pthread_barrier_wait(&barrier);
    serve((uintptr_t)number * each, each);
    pthread_barrier_wait(&barrier);
    return NULL;
}

static void run(struct requests_way *way, void (*how)(size_t, size_t))
{
    pthread_t threads[REQUESTS_MOST_THREADS];
    size_t requests = way->load->total / way->load->threads * way->load->threads;
    memset(y, 0, (size_t)REQUESTS_MOST_ROWS * REQUESTS_WIDTH * sizeof *y);
    now = way;
    serve = how;
    pthread_barrier_init(&barrier, NULL, way->load->threads + 1);
    for (uintptr_t i = 0; i < way->load->threads; i++)
        if (pthread_create(&threads[i], NULL, client, (void *)i))
            bench_fail("no thread");
    pthread_barrier_wait(&barrier);
    double start = bench_now();
    pthread_barrier_wait(&barrier);
    way->seconds = (bench_now() - start) / (double)requests;
    way->served = requests * way->load->rows;
    for (unsigned i = 0; i < way->load->threads; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
}

double requests_seconds(void *way)
{
    return ((const struct requests_way *)way)->seconds;
}

bool requests_check(void *user)
{
    const struct requests_way *way = user;
    return bench_close("a row", way->served * REQUESTS_WIDTH, y, models[way->load->model].wanted,
                       1e-3, 1e-4);
}

/* ---- through the executor ---- */

kiln_future *requests_submit(kiln_executor *executor, size_t first, size_t rows)
{
    const size_t bytes = rows * REQUESTS_WIDTH * sizeof *x;
    const kiln_input input = {x + first * REQUESTS_WIDTH, bytes, KILN_F32};
    const kiln_output output = {y + first * REQUESTS_WIDTH, bytes, KILN_F32};
    kiln_future *future;
    bench_ok(kiln_executor_submit(executor, &input, &output, rows, NULL, &future), "submitting");
    return future;
}

void requests_settle(kiln_future *future)
{
    bench_ok(kiln_future_wait(future), "a request");
    kiln_future_release(future);
}

static void serve_executor(size_t first, size_t count)
{
    kiln_future *futures[REQUESTS_MOST_AHEAD];
    size_t ahead = now->load->ahead, rows = now->load->rows;
    for (size_t i = 0; i < count + ahead; i++) {
        if (i >= ahead && i - ahead < count)
            requests_settle(futures[i % ahead]);
        if (i < count)
            futures[i % ahead] = requests_submit(now->executor, (first + i) * rows, rows);
    }
}

kiln_executor *requests_executor(enum requests_model which, kiln_executor_options options)
{
    static enum requests_model users[] = {REQUESTS_LAYER, REQUESTS_NETWORK, REQUESTS_WIDE};
    const kiln_row row = {.type = KILN_F32, .rank = 1, .dims = {REQUESTS_WIDTH}};
    const kiln_model model = {.size = sizeof model,
                              .record = record_model,
                              .user = &users[which],
                              .input_count = 1,
                              .inputs = &row,
                              .output_count = 1};
    kiln_executor *executor;
    options.prepare = 1;
    options.max_queue = REQUESTS_MOST_ROWS; /* what the threads keep ahead fits */
    bench_ok(kiln_executor_create(&context, 1, &model, &options, &executor), "an executor");
    return executor;
}

void requests_run_executor(void *way)
{
    run(way, serve_executor);
}

/* ---- by hand ---- */

/* Batches that are kept, with their memory. */
static struct formed {
    enum requests_model model;
    size_t rows;
    kiln_batch *batch;
    float *in, *out;
} formed[MOST_FORMED];

static struct formed *form(enum requests_model model, size_t rows)
{
    struct formed *f = formed;
    while (f->batch && (f->model != model || f->rows != rows))
        if (++f == formed + MOST_FORMED)
            bench_fail("too many batches");
    if (f->batch)
        return f;
    const size_t dims[] = {rows, REQUESTS_WIDTH}, bytes = rows * REQUESTS_WIDTH * sizeof *x;
    *f = (struct formed){model, rows, kiln_batch_create(context), bench_memory(bytes),
                         bench_memory(bytes)};
    kiln_tensor values = kiln_upload(f->batch, KILN_F32, 2, dims, f->in);
    kiln_read(f->batch, record_rows(model, f->batch, values), f->out, bytes);
    bench_ok(kiln_batch_execute(f->batch), "a batch");
    return f;
}

/* Rows through a kept batch. */
static void put_through(const struct formed *f, size_t first, size_t rows)
{
    const size_t bytes = rows * REQUESTS_WIDTH * sizeof *x;
    memcpy(f->in, x + first * REQUESTS_WIDTH, bytes);
    bench_ok(kiln_batch_execute(f->batch), "a batch");
    memcpy(y + first * REQUESTS_WIDTH, f->out, bytes);
}

static void serve_calls(size_t first, size_t count)
{
    size_t rows = now->load->rows, bytes = rows * REQUESTS_WIDTH * sizeof *x;
    for (size_t i = first * rows; i < (first + count) * rows; i += rows) {
        kiln_batch *batch = kiln_batch_create(context);
        kiln_tensor in = kiln_upload(batch, KILN_F32, 2, (size_t[]){rows, REQUESTS_WIDTH},
                                     x + i * REQUESTS_WIDTH);
        kiln_read(batch, record_rows(now->load->model, batch, in), y + i * REQUESTS_WIDTH, bytes);
        bench_ok(kiln_batch_execute(batch), "a call");
        kiln_batch_release(batch);
    }
}

void requests_run_calls(void *way)
{
    run(way, serve_calls);
}

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const struct formed *kept;
    size_t queue[REQUESTS_MOST_ROWS], queued; /* requests */
    bool done[REQUESTS_MOST_ROWS], over;
} hand = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void serve_locked(size_t first, size_t count)
{
    size_t rows = now->load->rows;
    for (size_t i = first; i < first + count; i++) {
        pthread_mutex_lock(&hand.lock);
        put_through(hand.kept, i * rows, rows);
        pthread_mutex_unlock(&hand.lock);
    }
}

void requests_run_locked(void *user)
{
    struct requests_way *way = user;
    hand.kept = form(way->load->model, way->load->rows);
    run(way, serve_locked);
}

/* What has gathered, in one batch of the one size that there is. */
static void put_gathered(const size_t *requests, size_t count)
{
    const struct formed *f = hand.kept;
    size_t rows = now->load->rows, step = rows * REQUESTS_WIDTH, bytes = step * sizeof *x;
    for (size_t i = 0; i < count; i++)
        memcpy(f->in + i * step, x + requests[i] * step, bytes);
    bench_ok(kiln_batch_execute(f->batch), "a batch");
    for (size_t i = 0; i < count; i++)
        memcpy(y + requests[i] * step, f->out + i * step, bytes);
}

static void *loop(void *user)
{
    static size_t requests[REQUESTS_MOST_ROWS];
    (void)user;
    pthread_mutex_lock(&hand.lock);
    for (;;) {
        while (!hand.queued && !hand.over)
            pthread_cond_wait(&hand.changed, &hand.lock);
        if (!hand.queued)
            break;
        size_t most = hand.kept->rows / now->load->rows;
        size_t count = hand.queued < most ? hand.queued : most;
        memcpy(requests, hand.queue, count * sizeof *requests);
        hand.queued -= count;
        memmove(hand.queue, hand.queue + count, hand.queued * sizeof *requests);
        pthread_mutex_unlock(&hand.lock);
        put_gathered(requests, count);
        pthread_mutex_lock(&hand.lock);
        for (size_t i = 0; i < count; i++)
            hand.done[requests[i]] = true;
        pthread_cond_broadcast(&hand.changed);
    }
    pthread_mutex_unlock(&hand.lock);
    return NULL;
}

static void serve_loop(size_t first, size_t count)
{
    size_t ahead = now->load->ahead;
    pthread_mutex_lock(&hand.lock);
    for (size_t i = 0; i < count + ahead; i++) {
        while (i >= ahead && i - ahead < count && !hand.done[first + i - ahead])
            pthread_cond_wait(&hand.changed, &hand.lock);
        if (i >= count)
            continue;
        hand.queue[hand.queued++] = first + i;
        pthread_cond_broadcast(&hand.changed);
    }
    pthread_mutex_unlock(&hand.lock);
}

void requests_run_loop(void *user)
{
    struct requests_way *way = user;
    pthread_t thread;
    hand.kept = form(way->load->model, way->batch);
    hand.over = false;
    memset(hand.done, 0, sizeof hand.done);
    now = way;
    if (pthread_create(&thread, NULL, loop, NULL))
        bench_fail("no thread");
    run(way, serve_loop);
    pthread_mutex_lock(&hand.lock);
    hand.over = true;
    pthread_cond_broadcast(&hand.changed);
    pthread_mutex_unlock(&hand.lock);
    pthread_join(thread, NULL);
}

void requests_run_formed(void *user)
{
    struct requests_way *way = user;
    const struct formed *f = form(way->load->model, way->batch);
    size_t rows = models[way->load->model].rows / way->batch * way->batch;
    double start = bench_now();
    for (size_t i = 0; i < rows; i += way->batch)
        put_through(f, i, way->batch);
    way->seconds = (bench_now() - start) * (double)way->load->rows / (double)rows;
    way->served = rows;
}

/* ---- begin, end ---- */

void requests_start(kiln_context *given)
{
    context = given;
    x = bench_floats((size_t)REQUESTS_MOST_ROWS * REQUESTS_WIDTH, 7);
    y = bench_memory((size_t)REQUESTS_MOST_ROWS * REQUESTS_WIDTH * sizeof *y);
    for (int m = REQUESTS_LAYER; m <= REQUESTS_WIDE; m++) {
        for (size_t i = 0; i < models[m].depth; i++)
            make_layer((enum requests_model)m, i);
        make_wanted((enum requests_model)m);
    }
}

void requests_end(void)
{
    for (struct formed *f = formed; f < formed + MOST_FORMED && f->batch; f++)
        kiln_batch_release(f->batch);
    for (int m = REQUESTS_LAYER; m <= REQUESTS_WIDE; m++)
        for (size_t i = 0; i < models[m].depth; i++)
            kiln_buffer_release(models[m].weights[i]);
}
