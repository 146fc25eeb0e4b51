/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of one row from many threads: an executor beside what one would write by hand. Figures
 * are microseconds a request. In a closed loop a thread waits for each answer, or keeps so many
 * requests ahead; an open loop (Poisson arrivals) follows, with the latencies that it sees. */
#include "bench.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { WIDTH = 64, MOST_THREADS = 32, MOST_AHEAD = 64, MOST_BATCH = 1024, TOTAL = 4096 };

static kiln_context *context;
static kiln_buffer *weights;
static float *x, *y, *factors;
static double *wanted; /* of all rows */

static struct load {
    unsigned threads, ahead;
    kiln_executor *executor;
    double seconds; /* a request of the last run */
} load;

static kiln_tensor record_rows(kiln_batch *batch, kiln_tensor rows)
{
    return kiln_relu(batch, kiln_matmul(batch, rows, kiln_import(batch, weights)));
}

/* ---- all threads at it ---- */

static pthread_barrier_t barrier;
static void (*serve)(size_t first, size_t count);

static void *client(void *number)
{
    size_t each = TOTAL / load.threads;
    pthread_barrier_wait(&barrier);
    serve((uintptr_t)number * each, each);
    pthread_barrier_wait(&barrier);
    return NULL;
}

static void run(void (*way)(size_t, size_t))
{
    pthread_t threads[MOST_THREADS];
    memset(y, 0, TOTAL * WIDTH * sizeof *y);
    serve = way;
    pthread_barrier_init(&barrier, NULL, load.threads + 1);
    for (uintptr_t i = 0; i < load.threads; i++)
        if (pthread_create(&threads[i], NULL, client, (void *)i))
            bench_fail("no thread");
    pthread_barrier_wait(&barrier);
    double start = bench_now();
    pthread_barrier_wait(&barrier);
    load.seconds = (bench_now() - start) / TOTAL;
    for (unsigned i = 0; i < load.threads; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
}

static double read_seconds(void *user)
{
    (void)user;
    return load.seconds;
}

static bool check(void *user)
{
    (void)user;
    return bench_close("a row", TOTAL * WIDTH, y, wanted, 1e-4, 1e-5);
}

/* ---- through the executor ---- */

static kiln_status record_model(kiln_batch *batch, size_t number, size_t rows,
                                const kiln_tensor *inputs, kiln_tensor *outputs, void *user)
{
    (void)number, (void)rows, (void)user;
    outputs[0] = record_rows(batch, inputs[0]);
    return KILN_OK;
}

static kiln_future *submit(size_t row)
{
    const kiln_input input = {x + row * WIDTH, WIDTH * sizeof *x, KILN_F32};
    const kiln_output output = {y + row * WIDTH, WIDTH * sizeof *y, KILN_F32};
    kiln_future *future;
    bench_ok(kiln_executor_submit(load.executor, &input, &output, 1, NULL, &future), "submitting");
    return future;
}

static void settle(kiln_future *future)
{
    bench_ok(kiln_future_wait(future), "a request");
    kiln_future_release(future);
}

static void serve_executor(size_t first, size_t count)
{
    kiln_future *futures[MOST_AHEAD];
    for (size_t i = 0; i < count + load.ahead; i++) {
        if (i >= load.ahead)
            settle(futures[i % load.ahead]);
        if (i < count)
            futures[i % load.ahead] = submit(first + i);
    }
}

static kiln_executor *make_executor(kiln_executor_options options)
{
    const kiln_row row = {.type = KILN_F32, .rank = 1, .dims = {WIDTH}};
    const kiln_model model = {sizeof model, record_model, NULL, 1, &row, 1};
    kiln_executor *executor;
    options.prepare = 1;
    options.max_queue = 4096; /* what the threads keep ahead fits */
    bench_ok(kiln_executor_create(&context, 1, &model, &options, &executor), "an executor");
    return executor;
}

static void run_executor(void *executor)
{
    load.executor = executor;
    run(serve_executor);
}

/* ---- by hand ---- */

static void serve_calls(size_t first, size_t count)
{
    for (size_t i = first; i < first + count; i++) {
        kiln_batch *batch = kiln_batch_create(context);
        kiln_tensor row = kiln_upload(batch, KILN_F32, 2, (size_t[]){1, WIDTH}, x + i * WIDTH);
        kiln_read(batch, record_rows(batch, row), y + i * WIDTH, WIDTH * sizeof *y);
        bench_ok(kiln_batch_execute(batch), "a call");
        kiln_batch_release(batch);
    }
}

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    kiln_batch *one, *many; /* kept batches of 1 and of MOST_BATCH rows */
    float *in, *out, *one_in, *one_out;
    size_t queue[MOST_BATCH], queued; /* rows */
    bool *done, over;
} hand = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static kiln_batch *keep(size_t rows, float **in, float **out)
{
    kiln_batch *batch = kiln_batch_create(context);
    *in = bench_memory(rows * WIDTH * sizeof **in);
    *out = bench_memory(rows * WIDTH * sizeof **out);
    kiln_tensor values = kiln_upload(batch, KILN_F32, 2, (size_t[]){rows, WIDTH}, *in);
    kiln_read(batch, record_rows(batch, values), *out, rows * WIDTH * sizeof **out);
    bench_ok(kiln_batch_execute(batch), "a batch");
    return batch;
}

static void serve_locked(size_t first, size_t count)
{
    for (size_t i = first; i < first + count; i++) {
        pthread_mutex_lock(&hand.lock);
        memcpy(hand.one_in, x + i * WIDTH, WIDTH * sizeof *x);
        bench_ok(kiln_batch_execute(hand.one), "a batch");
        memcpy(y + i * WIDTH, hand.one_out, WIDTH * sizeof *y);
        pthread_mutex_unlock(&hand.lock);
    }
}

/* One thread runs whatever has gathered, in a batch of the largest size. */
static void *loop(void *user)
{
    size_t rows[MOST_BATCH], count;
    (void)user;
    pthread_mutex_lock(&hand.lock);
    for (;;) {
        while (!hand.queued && !hand.over)
            pthread_cond_wait(&hand.changed, &hand.lock);
        if (!hand.queued)
            break;
        count = hand.queued;
        memcpy(rows, hand.queue, count * sizeof *rows);
        hand.queued = 0;
        pthread_mutex_unlock(&hand.lock);
        for (size_t i = 0; i < count; i++)
            memcpy(hand.in + i * WIDTH, x + rows[i] * WIDTH, WIDTH * sizeof *x);
        bench_ok(kiln_batch_execute(hand.many), "a batch");
        for (size_t i = 0; i < count; i++)
            memcpy(y + rows[i] * WIDTH, hand.out + i * WIDTH, WIDTH * sizeof *y);
        pthread_mutex_lock(&hand.lock);
        for (size_t i = 0; i < count; i++)
            hand.done[rows[i]] = true;
        pthread_cond_broadcast(&hand.changed);
    }
    pthread_mutex_unlock(&hand.lock);
    return NULL;
}

static void serve_loop(size_t first, size_t count)
{
    pthread_mutex_lock(&hand.lock);
    for (size_t i = first; i < first + count; i++) {
        hand.done[i] = false;
        hand.queue[hand.queued++] = i;
        pthread_cond_broadcast(&hand.changed);
        while (!hand.done[i])
            pthread_cond_wait(&hand.changed, &hand.lock);
    }
    pthread_mutex_unlock(&hand.lock);
}

static void run_calls(void *user)
{
    (void)user;
    run(serve_calls);
}

static void run_locked(void *user)
{
    (void)user;
    run(serve_locked);
}

static void run_loop(void *user)
{
    pthread_t thread;
    (void)user;
    hand.over = false;
    if (pthread_create(&thread, NULL, loop, NULL))
        bench_fail("no thread");
    run(serve_loop);
    pthread_mutex_lock(&hand.lock);
    hand.over = true;
    pthread_cond_broadcast(&hand.changed);
    pthread_mutex_unlock(&hand.lock);
    pthread_join(thread, NULL);
}

/* Nobody to wait for, nothing to gather. */
static void run_formed(void *user)
{
    double start = bench_now();
    (void)user;
    for (size_t i = 0; i < TOTAL; i += MOST_BATCH) {
        memcpy(hand.in, x + i * WIDTH, MOST_BATCH * WIDTH * sizeof *x);
        bench_ok(kiln_batch_execute(hand.many), "a batch");
        memcpy(y + i * WIDTH, hand.out, MOST_BATCH * WIDTH * sizeof *y);
    }
    load.seconds = (bench_now() - start) / TOTAL;
}

/* ---- rows ---- */

static void add(struct bench_row *row, const char *name, void (*way)(void *), void *user)
{
    bench_way(row, name, way, check, user)->seconds = read_seconds;
}

static void measure(unsigned threads, unsigned ahead, kiln_executor *const executors[3])
{
    char name[80];
    snprintf(name, sizeof name, "%u threads, %u ahead, a row of %d", threads, ahead, WIDTH);
    if (!bench_wants(name))
        return;
    struct bench_row row = {.name = name, .unit = BENCH_US};
    load.threads = threads;
    load.ahead = ahead;
    add(&row, "executor, balanced", run_executor, executors[0]);
    add(&row, "executor, latency", run_executor, executors[1]);
    add(&row, "executor, throughput", run_executor, executors[2]);
    add(&row, "one formed batch of 1024", run_formed, NULL);
    if (ahead == 1) {
        add(&row, "a call per request", run_calls, NULL);
        add(&row, "a mutex and a batch", run_locked, NULL);
        add(&row, "a loop by hand", run_loop, NULL);
        bench_compare(&row, "executor, balanced", "a call per request");
        bench_compare(&row, "executor, balanced", "a mutex and a batch");
        bench_compare(&row, "executor, balanced", "a loop by hand");
    }
    bench_compare(&row, "executor, balanced", "one formed batch of 1024");
    bench_measure(&row);
}

/* So many requests a second at random moments, each as late as chance has it: nobody waits. */
static void arrive(double rate, kiln_executor_options options)
{
    enum { COUNT = 2000 };
    static kiln_future *futures[COUNT];
    kiln_executor_stats s;
    unsigned state = 1;
    load.executor = make_executor(options);
    double at = bench_now();
    for (size_t i = 0; i < COUNT; i++) {
        state = state * 1664525 + 1013904223;
        at -= log(((state >> 8) + 1.0) / 16777217) / rate;
        double now = bench_now();
        if (at > now) {
            const struct timespec pause = {0, (long)(fmin(at - now, 0.9) * 1e9)};
            nanosleep(&pause, NULL);
        }
        futures[i] = submit(i);
    }
    for (size_t i = 0; i < COUNT; i++)
        settle(futures[i]);
    bench_ok(kiln_executor_get_stats(load.executor, &s), "stats");
    printf(
        "open loop, %6.0f requests/s: %5.1f rows a batch, wait p50 %5.0f p99 %5.0f us, total p50 "
        "%5.0f p99 %5.0f us\n",
        rate, (double)s.rows / (double)s.batches, s.wait.p50 * 1e6, s.wait.p99 * 1e6,
        s.total.p50 * 1e6, s.total.p99 * 1e6);
    kiln_executor_release(load.executor);
}

static void prepare(void)
{
    factors = bench_floats(WIDTH * WIDTH, 1);
    x = bench_floats((size_t)TOTAL * WIDTH, 2);
    y = bench_memory((size_t)TOTAL * WIDTH * sizeof *y);
    wanted = bench_memory((size_t)TOTAL * WIDTH * sizeof *wanted);
    hand.done = bench_memory(TOTAL * sizeof *hand.done);
    for (size_t i = 0; i < TOTAL; i++)
        for (size_t k = 0; k < WIDTH; k++) {
            double sum = 0;
            for (size_t j = 0; j < WIDTH; j++)
                sum += (double)x[i * WIDTH + j] * factors[j * WIDTH + k];
            wanted[i * WIDTH + k] = sum > 0 ? sum : 0;
        }
    bench_ok(kiln_buffer_create(context, KILN_F32, 2, (const size_t[]){WIDTH, WIDTH}, &weights),
             "a buffer");
    bench_ok(kiln_buffer_write(weights, 0, factors, WIDTH * WIDTH * sizeof *factors), "writing");
    hand.one = keep(1, &hand.one_in, &hand.one_out);
    hand.many = keep(MOST_BATCH, &hand.in, &hand.out);
}

int main(int argc, char **argv)
{
    static const struct bench_program program = {
        .name = "executor", .purpose = "Requests of many threads, gathered and not"};
    static const kiln_executor_options presets[] = {
        KILN_EXECUTOR_OPTIONS_INIT, KILN_EXECUTOR_LATENCY_INIT, KILN_EXECUTOR_THROUGHPUT_INIT};
    static const unsigned threads[] = {1, 4, 16, 32};
    kiln_executor *executors[3];
    context = bench_start(&program, argc, argv);
    prepare();
    for (int i = 0; i < 3; i++)
        executors[i] = make_executor(presets[i]);
    for (int i = 0; i < 4; i++)
        measure(threads[i], 1, executors);
    measure(4, 64, executors);
    measure(16, 64, executors);
    for (double rate = 1000; rate <= 16000 && bench_wants("open loop"); rate *= 4)
        arrive(rate, presets[0]);
    for (int i = 0; i < 3; i++)
        kiln_executor_release(executors[i]);
    kiln_batch_release(hand.one);
    kiln_batch_release(hand.many);
    kiln_buffer_release(weights);
    return bench_end(context);
}
