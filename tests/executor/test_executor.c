/* SPDX-License-Identifier: Apache-2.0 */
/* One executor, requests in an order that the test chooses: what goes out when, and how it ends. */
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../support/context.h"
#include "../support/layer.h"
#include "../support/served.h"
#include "session/context.h"

enum { MOST = 64 };

static float x[MOST * SERVED_WIDTH], y[MOST];

static void expect_end(kiln_future *future, kiln_status wanted)
{
    cr_expect_eq(kiln_future_wait(future), wanted, "%s", kiln_last_error());
    kiln_future_release(future);
}

/* A driver's child that ends interrupts calls. */
static void sleep_for(long nanoseconds)
{
    struct timespec rest = {.tv_nsec = nanoseconds};
    while (nanosleep(&rest, &rest) && errno == EINTR)
        continue;
}

static int poll_one(struct pollfd *one, int milliseconds)
{
    int ready;
    do
        ready = poll(one, 1, milliseconds);
    while (ready < 0 && errno == EINTR);
    return ready;
}

/* Two requests that the closed gate holds up, the second as large as a batch: both workers are busy
 * from then on. */
static cl_event hold_up(kiln_executor *executor, kiln_context *context, size_t max_batch,
                        kiln_future *held[2])
{
    static float sums[1 + MOST];
    cl_event gate = gate_close(context);
    held[0] = served_submit(executor, x, sums, 1, NULL);
    cr_assert(served_running(executor, 1));
    held[1] = served_submit(executor, x, sums + 1, max_batch, NULL);
    cr_assert(served_running(executor, 2));
    return gate;
}

static void let_through(cl_event gate, kiln_future *held[2])
{
    gate_open(gate);
    for (int i = 0; i < 2; i++)
        expect_end(held[i], KILN_OK);
}

/* ---- results ---- */

Test(executor, gives_each_request_its_own_rows)
{
    kiln_context *context = open_context();
    kiln_executor_options options = served_options(16, 1, 0);
    kiln_executor *executor = served_create(context, &options);
    kiln_future *futures[4];
    static const size_t rows[] = {1, 5, 3, 7};
    served_fill(x, 16, 1);
    cl_event gate = gate_close(context);
    for (size_t i = 0, at = 0; i < 4; at += rows[i++]) {
        futures[i] = served_submit(executor, x + at * SERVED_WIDTH, y + at, rows[i], NULL);
        cr_assert(served_running(executor, 1)); /* the first found the device idle */
    }
    gate_open(gate);
    for (size_t i = 0; i < 4; i++)
        expect_end(futures[i], KILN_OK);
    cr_expect(served_right(x, y, 16));
    kiln_executor_stats stats = served_stats(executor);
    cr_expect_eq(stats.requests, 4u);
    cr_expect_eq(stats.completed, 4u);
    cr_expect_eq(stats.rows, 16u);
    cr_expect_eq(stats.batches, 2u);
    cr_expect_eq(stats.padding, 2u); /* 1 row in a batch of 2, 15 in one of 16 */
    cr_expect_eq(stats.wait.count, 4u);
    cr_expect_eq(stats.run.count, 2u);
    cr_expect_gt(stats.total.most, 0);
    served_end(executor, context);
}

static uint64_t host_bytes(kiln_context *context)
{
    kiln_context_stats stats;
    expect_ok(kiln_context_get_stats(context, &stats));
    return stats.host_bytes;
}

Test(executor, keeps_rows_in_memory_that_the_device_need_not_copy)
{
    kiln_context_options separate = KILN_CONTEXT_OPTIONS_INIT;
    kiln_context *context;
    separate.host_memory = KILN_HOST_MEMORY_SEPARATE;
    expect_ok(kiln_context_create(&separate, &context));
    kiln_executor *executor = served_create(context, NULL);
    cr_expect_gt(host_bytes(context), 0u);
    served_fill(x, 3, 1);
    expect_end(served_submit(executor, x, y, 3, NULL), KILN_OK);
    cr_expect(served_right(x, y, 3));
    kiln_executor_release(executor);
    cr_expect_eq(host_bytes(context), 0u);
    kiln_context_release(context);
}

static kiln_status record_both(kiln_batch *batch, size_t context, size_t rows,
                               const kiln_tensor *inputs, kiln_tensor *outputs, void *user)
{
    cr_assert_eq(context, 0u);
    cr_assert_geq(rows, 1u);
    outputs[0] = kiln_add(batch, inputs[0], kiln_import(batch, user));
    outputs[1] = kiln_one_hot(batch, inputs[1], 4, KILN_U8);
    return KILN_OK;
}

Test(executor, serves_models_of_several_inputs_and_outputs)
{
    kiln_context *context = open_context();
    kiln_executor *executor;
    kiln_future *future;
    const float weights[3] = {10, 20, 30}, in[2][3] = {{1, 2, 3}, {4, 5, 6}};
    const int32_t labels[2] = {3, 0};
    float out[2][3];
    uint8_t hot[2][4];
    const kiln_row rows[] = {{.type = KILN_F32, .rank = 1, .dims = {3}},
                             {.type = KILN_I32, .below = 4}};
    kiln_buffer *buffer = make_buffer(context, 3, weights);
    kiln_model model = {sizeof model, record_both, buffer,           2,
                        rows,         2,           sizeof(kiln_row), KILN_PRECISION_DEFAULT};
    const kiln_executor_options options = served_options(2, 1, 0);
    expect_ok(kiln_executor_create(&context, 1, &model, &options, &executor));
    kiln_buffer_release(buffer);
    kiln_input inputs[] = {{in, sizeof in, KILN_F32}, {labels, sizeof labels, KILN_I32}};
    kiln_output outputs[] = {{out, sizeof out, KILN_F32}, {hot, sizeof hot, KILN_U8}};
    expect_ok(kiln_executor_submit(executor, inputs, outputs, 2, NULL, &future));
    expect_end(future, KILN_OK);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 3; k++)
            cr_expect_eq(out[i][k], in[i][k] + weights[k]);
        for (int k = 0; k < 4; k++)
            cr_expect_eq(hot[i][k], labels[i] == k);
    }
    served_end(executor, context);
}

/* ---- when a batch goes out ---- */

Test(executor, sends_a_batch_when_it_is_full)
{
    kiln_context *context = open_context();
    kiln_executor_options options = served_options(4, 1, 0);
    kiln_executor *executor = served_create(context, &options);
    kiln_future *futures[6];
    served_fill(x, 8, 2);
    cl_event gate = gate_close(context);
    futures[0] = served_submit(executor, x, y, 1, NULL);
    cr_assert(served_running(executor, 1));
    for (int i = 1; i < 4; i++)
        futures[i] = served_submit(executor, x + i * SERVED_WIDTH, y + i, 1, NULL);
    cr_expect_eq(served_stats(executor).running, 1u, "three of four rows are not a full batch");
    futures[4] = served_submit(executor, x + 4 * SERVED_WIDTH, y + 4, 1, NULL);
    cr_assert(served_running(executor, 5));
    futures[5] = served_submit(executor, x + 5 * SERVED_WIDTH, y + 5, 3, NULL);
    gate_open(gate);
    for (int i = 0; i < 6; i++)
        expect_end(futures[i], KILN_OK);
    cr_expect(served_right(x, y, 8));
    kiln_executor_stats stats = served_stats(executor);
    cr_expect_eq(stats.flushed_full, 1u);
    cr_expect_eq(stats.flushed_idle, 2u);
    cr_expect_eq(stats.flushed_wait + stats.flushed_shutdown, 0u);
    cr_expect_float_eq(stats.fill, 8. / 12, 1e-9);
    served_end(executor, context);
}

Test(executor, sends_a_batch_when_its_oldest_request_has_waited)
{
    kiln_context *context = open_context();
    kiln_executor_options options = served_options(16, 8, 30000);
    kiln_executor *executor = served_create(context, &options);
    served_fill(x, 2, 3);
    kiln_future *first = served_submit(executor, x, y, 1, NULL);
    kiln_future *second = served_submit(executor, x + SERVED_WIDTH, y + 1, 1, NULL);
    expect_end(first, KILN_OK);
    expect_end(second, KILN_OK);
    cr_expect(served_right(x, y, 2));
    kiln_executor_stats stats = served_stats(executor);
    cr_expect_geq(stats.flushed_wait, 1u); /* 2: the second one came late on a slow machine */
    cr_expect_eq(stats.batches, stats.flushed_wait);
    cr_expect_geq(stats.wait.most, 0.03);
    served_end(executor, context);
}

Test(executor, waits_for_the_rows_that_make_an_idle_device_begin)
{
    kiln_context *context = open_context();
    kiln_executor_options options = served_options(16, 4, 0);
    kiln_executor *executor = served_create(context, &options);
    served_fill(x, 4, 4);
    kiln_future *first = served_submit(executor, x, y, 2, NULL);
    cr_expect_eq(kiln_future_wait_for(first, 20000), KILN_NOT_READY);
    cr_expect_eq(kiln_future_poll(first), KILN_NOT_READY);
    kiln_future *second = served_submit(executor, x + 2 * SERVED_WIDTH, y + 2, 2, NULL);
    expect_ok(kiln_future_wait(second));
    cr_expect_eq(kiln_future_poll(first), KILN_OK);
    cr_expect_eq(served_stats(executor).flushed_idle, 1u);
    cr_expect(served_right(x, y, 4));
    kiln_future_release(first);
    kiln_future_release(second);
    served_end(executor, context);
}

/* ---- ends other than a result ---- */

Test(executor, ends_a_request_whose_deadline_passes_while_the_device_hangs)
{
    kiln_context *context = open_context();
    kiln_executor_options options = served_options(16, 1, 0);
    kiln_executor *executor = served_create(context, &options);
    kiln_request_options request = KILN_REQUEST_OPTIONS_INIT;
    kiln_future *held[2];
    cl_event gate = hold_up(executor, context, options.max_batch, held);
    request.deadline_us = 10000;
    kiln_future *waited = served_submit(executor, x, y, 1, &request);
    kiln_future *polled = served_submit(executor, x, y, 1, &request);
    kiln_future *left = served_submit(executor, x, y, 1, &request);
    expect_error(kiln_future_wait(waited), KILN_TIMED_OUT,
                 "kiln_future_wait: the request's deadline passed while it waited");
    sleep_for(10000000);
    cr_expect_eq(kiln_future_poll(polled), KILN_TIMED_OUT);
    cr_expect_eq(kiln_future_poll(held[1]), KILN_NOT_READY, "one that runs is finished");
    let_through(gate, held);
    cr_expect_eq(kiln_future_wait(left), KILN_TIMED_OUT);
    cr_expect_eq(served_stats(executor).timed_out, 3u);
    kiln_future_release(waited);
    kiln_future_release(polled);
    kiln_future_release(left);
    served_end(executor, context);
}

Test(executor, cancels_what_waits_and_only_that)
{
    kiln_context *context = open_context();
    kiln_executor_options options = served_options(16, 1, 0);
    kiln_executor *executor = served_create(context, &options);
    kiln_future *held[2];
    cl_event gate = hold_up(executor, context, options.max_batch, held);
    kiln_future *future = served_submit(executor, x, y, 1, NULL);
    expect_ok(kiln_future_cancel(future));
    expect_error(kiln_future_poll(future), KILN_CANCELLED,
                 "kiln_future_poll: the request was cancelled");
    expect_error(kiln_future_cancel(future), KILN_WRONG_STATE,
                 "kiln_future_cancel: the request has completed");
    expect_error(kiln_future_cancel(held[0]), KILN_WRONG_STATE,
                 "kiln_future_cancel: the request runs");
    cr_expect_eq(served_stats(executor).queued, 0u);
    let_through(gate, held);
    expect_end(future, KILN_CANCELLED);
    served_end(executor, context);
}

static void *submit_later(void *executor)
{
    static float sum;
    expect_end(served_submit(executor, x, &sum, 1, NULL), KILN_OK);
    return NULL;
}

Test(executor, answers_in_three_ways_when_the_queue_is_full)
{
    kiln_context *context = open_context();
    kiln_executor_options options = served_options(16, 1, 0);
    options.max_queue = 2;
    kiln_executor *executor = served_create(context, &options);
    kiln_request_options fail = KILN_REQUEST_OPTIONS_INIT, wait = KILN_REQUEST_OPTIONS_INIT;
    kiln_future *held[2], *queued[2], *none = (kiln_future *)x;
    pthread_t thread;
    cl_event gate = hold_up(executor, context, options.max_batch, held);
    for (int i = 0; i < 2; i++)
        queued[i] = served_submit(executor, x, y + i, 1, NULL);
    fail.when_full = KILN_WHEN_FULL_FAIL;
    expect_error(served_try(executor, x, y, 1, &fail, &none), KILN_BUSY,
                 "kiln_executor_submit: 2 requests wait already");
    cr_expect_null(none);
    wait.room_us = 5000;
    expect_error(served_try(executor, x, y, 1, &wait, &none), KILN_TIMED_OUT,
                 "kiln_executor_submit: no room among 2 requests that wait");
    cr_expect_eq(pthread_create(&thread, NULL, submit_later, executor), 0);
    sleep_for(5000000);
    cr_expect_eq(served_stats(executor).requests, 4u);
    expect_ok(kiln_future_cancel(queued[0]));
    let_through(gate, held);
    pthread_join(thread, NULL);
    expect_end(queued[0], KILN_CANCELLED);
    expect_end(queued[1], KILN_OK);
    cr_expect_eq(served_stats(executor).refused, 2u);
    served_end(executor, context);
}

/* ---- being told ---- */

struct told {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int times;
    kiln_status status;
    kiln_executor *executor;
    kiln_future *future;
};

static struct told told = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void tell(kiln_status status, void *user)
{
    struct told *to = user;
    pthread_mutex_lock(&to->lock);
    to->times++;
    to->status = status;
    pthread_cond_signal(&to->changed);
    pthread_mutex_unlock(&to->lock);
}

static void wait_until_told(int times)
{
    pthread_mutex_lock(&told.lock);
    while (told.times < times)
        pthread_cond_wait(&told.changed, &told.lock);
    pthread_mutex_unlock(&told.lock);
}

Test(executor, calls_back_once_before_and_after_completion)
{
    kiln_context *context = open_context();
    kiln_executor *executor = served_create(context, NULL);
    cl_event gate = gate_close(context);
    kiln_future *future = served_submit(executor, x, y, 1, NULL);
    expect_error(kiln_future_notify(future, NULL, &told), KILN_INVALID_ARGUMENT,
                 "kiln_future_notify: callback is NULL");
    expect_ok(kiln_future_notify(future, tell, &told));
    expect_error(kiln_future_notify(future, tell, &told), KILN_WRONG_STATE,
                 "kiln_future_notify: the future has a callback already");
    cr_expect_eq(told.times, 0);
    gate_open(gate);
    wait_until_told(1);
    expect_error(kiln_future_notify(future, tell, &told), KILN_WRONG_STATE,
                 "kiln_future_notify: the future has a callback already");
    expect_end(future, KILN_OK);
    future = served_submit(executor, x, y, 1, NULL);
    expect_ok(kiln_future_wait(future));
    expect_ok(kiln_future_notify(future, tell, &told));
    expect_error(kiln_future_notify(future, tell, &told), KILN_WRONG_STATE,
                 "kiln_future_notify: the future has a callback already");
    cr_expect_eq(told.times, 2);
    kiln_future_release(future);
    served_end(executor, context);
    cr_expect_eq(told.times, 2);
}

/* The callback's own thread must not wait, may submit, and may let go of everything. */
static void go_on(kiln_status status, void *user)
{
    struct told *to = user;
    kiln_future *next;
    kiln_status waited = KILN_OK;
    if (to->future) {
        kiln_future_release(to->future);
        to->future = NULL;
        if (!served_try(to->executor, x, y, 1, NULL, &next))
            waited = kiln_future_wait(next);
        if (kiln_future_notify(next, go_on, user))
            status = KILN_INVALID_ARGUMENT;
        kiln_future_release(next);
        kiln_executor_release(to->executor);
        tell(waited == KILN_WRONG_STATE ? status : waited, user);
        return;
    }
    tell(status, user);
}

Test(executor, can_be_let_go_of_in_a_callback)
{
    kiln_context *context = open_context();
    cl_event gate = gate_close(context);
    told.executor = served_create(context, NULL);
    told.future = served_submit(told.executor, x, y, 1, NULL);
    expect_ok(kiln_future_notify(told.future, go_on, &told));
    gate_open(gate);
    wait_until_told(2);
    cr_expect_eq(told.status, KILN_OK);
    while (stats_of(context).batches < 2 || kiln_context_trim(context))
        ;
    kiln_context_release(context); /* the last worker may not have let go yet */
}

Test(executor, raises_a_descriptor)
{
    kiln_context *context = open_context();
    kiln_executor *executor = served_create(context, NULL);
    int descriptor, again;
    cl_event gate = gate_close(context);
    kiln_future *future = served_submit(executor, x, y, 1, NULL);
    expect_ok(kiln_future_descriptor(future, &descriptor));
    expect_ok(kiln_future_descriptor(future, &again));
    cr_expect_eq(descriptor, again);
    struct pollfd ready = {.fd = descriptor, .events = POLLIN};
    cr_expect_eq(poll_one(&ready, 5), 0);
    gate_open(gate);
    cr_expect_eq(poll_one(&ready, -1), 1);
    cr_expect_eq(kiln_future_poll(future), KILN_OK);
    expect_ok(kiln_context_sync_cache(context)); /* nobody opens a file, whose number it might be */
    kiln_future_release(future);
    cr_expect_eq(write(descriptor, &ready, 8), -1, "it is closed");
    future = served_submit(executor, x, y, 1, NULL);
    expect_ok(kiln_future_wait(future));
    expect_ok(kiln_future_descriptor(future, &ready.fd)); /* after the fact */
    cr_expect_eq(poll_one(&ready, 0), 1);
    kiln_future_release(future);
    served_end(executor, context);
}

/* ---- shutting down ---- */

Test(executor, drains_when_its_last_handle_goes)
{
    kiln_context *context = open_context();
    kiln_executor_options options = served_options(16, 8, 0);
    kiln_executor *executor = served_create(context, &options);
    served_fill(x, 1, 5);
    kiln_future *future = served_submit(executor, x, y, 1, NULL);
    kiln_executor_retain(executor);
    kiln_executor_release(executor);
    cr_expect_eq(kiln_future_poll(future), KILN_NOT_READY);
    kiln_executor_release(executor);
    cr_expect_eq(kiln_future_poll(future), KILN_OK);
    cr_expect(served_right(x, y, 1));
    close_context(context); /* a future does not hold it */
    expect_end(future, KILN_OK);
}

Test(executor, cancels_what_waits_when_it_is_shut_down_so)
{
    kiln_context *context = open_context();
    kiln_executor_options options = served_options(16, 8, 0);
    kiln_executor *executor = served_create(context, &options);
    kiln_future *future = served_submit(executor, x, y, 1, NULL), *none;
    expect_error(kiln_executor_shutdown(executor, (kiln_shutdown)7), KILN_INVALID_ARGUMENT,
                 "kiln_executor_shutdown: 7 is no way to shut down");
    expect_ok(kiln_executor_shutdown(executor, KILN_SHUTDOWN_CANCEL));
    expect_error(kiln_future_poll(future), KILN_CANCELLED,
                 "kiln_future_poll: the executor was shut down while the request waited");
    expect_error(served_try(executor, x, y, 1, NULL, &none), KILN_WRONG_STATE,
                 "kiln_executor_submit: the executor is shut down");
    expect_ok(kiln_executor_shutdown(executor, KILN_SHUTDOWN_DRAIN));
    cr_expect_eq(served_stats(executor).cancelled, 1u);
    kiln_future_release(future);
    served_end(executor, context);
}

static void release_it(kiln_status status, void *executor)
{
    cr_expect_eq(status, KILN_CANCELLED);
    kiln_executor_release(executor);
}

Test(executor, is_released_by_a_callback_of_its_shutdown)
{
    kiln_context *context = open_context();
    kiln_executor_options options = served_options(16, 8, 0);
    kiln_executor *executor = served_create(context, &options);
    kiln_future *future = served_submit(executor, x, y, 1, NULL);
    expect_ok(kiln_future_notify(future, release_it, executor));
    kiln_future_release(future);
    expect_ok(kiln_executor_shutdown(executor, KILN_SHUTDOWN_CANCEL));
    close_context(context);
}

Test(executor, counts_what_a_shutdown_sends)
{
    kiln_context *context = open_context();
    kiln_executor_options options = served_options(16, 8, 0);
    kiln_executor *executor = served_create(context, &options);
    kiln_future *future = served_submit(executor, x, y, 1, NULL);
    expect_ok(kiln_executor_shutdown(executor, KILN_SHUTDOWN_DRAIN));
    cr_expect_eq(served_stats(executor).flushed_shutdown, 1u);
    expect_end(future, KILN_OK);
    served_end(executor, context);
}

/* ---- what it costs ---- */

/* Both workers run a batch of so many rows: the second one's request has not long to wait. They
 * write their results at the same time. */
static void run_twice(kiln_executor *executor, kiln_context *context, size_t rows)
{
    kiln_future *futures[2];
    cl_event gate = gate_close(context);
    for (uint64_t i = 0; i < 2; i++) {
        futures[i] = served_submit(executor, x, y + i * rows, rows, NULL);
        cr_assert(served_running(executor, i + 1));
    }
    let_through(gate, futures);
}

Test(executor, makes_no_objects_once_it_has_run)
{
    if (!layer_available())
        cr_skip("run with OPENCL_LAYERS=.../kiln-layer.so");
    kiln_context *context = open_context();
    kiln_executor_options options = served_options(8, 1, 1);
    kiln_executor *executor = served_create(context, &options);
    for (size_t rows = 1; rows <= 8; rows *= 2)
        run_twice(executor, context, rows);
    expect_ok(kiln_context_sync_cache(context));
    layer_reset();
    const uint64_t alive = layer_count("alive.mem");
    for (int round = 0; round < 100; round++)
        expect_end(served_submit(executor, x, y, 1 + (size_t)round % 8, NULL), KILN_OK);
    /* Some drivers look at the program's memory only when an object is made of it: rows and results
     * are one each, for the run alone. */
    const bool mapped = context->runtime.host_mode == KILN__HOST_MAPPED;
    cr_expect_leq(layer_count("clCreateBuffer"), mapped ? 200u : 0u);
    cr_expect_eq(layer_count("alive.mem"), alive);
    cr_expect_eq(layer_count("clCreateKernel"), 0u);
    cr_expect_eq(layer_count("clBuildProgram"), 0u);
    served_end(executor, context);
}

/* ---- metrics ---- */

static void expect_text(kiln_executor *executor, kiln_metrics_format format,
                        const char *const *parts)
{
    char *text;
    expect_ok(kiln_executor_metrics(executor, format, &text));
    for (; *parts; parts++)
        cr_expect(strstr(text, *parts), "%s is not in\n%s", *parts, text);
    kiln_free(text);
}

Test(executor, writes_its_metrics_down)
{
    kiln_context *context = open_context();
    kiln_executor *executor = served_create(context, NULL);
    kiln_executor_context_stats stats;
    char *text = (char *)x;
    expect_end(served_submit(executor, x, y, 3, NULL), KILN_OK);
    expect_text(executor, KILN_METRICS_JSON,
                (const char *const[]){"{\n  \"requests\": 1,\n", "\"rows\": 3,", "\"padding\": 1,",
                                      "\"wait_seconds\": {\"count\": 1, \"mean\": ",
                                      "\"contexts\": [\n    {\"device\": \"", "\"in_service\": 1",
                                      NULL});
    expect_text(executor, KILN_METRICS_PROMETHEUS,
                (const char *const[]){
                    "# TYPE kiln_executor_requests_total counter\n"
                    "kiln_executor_requests_total 1\n",
                    "kiln_executor_queued 0\n", "kiln_executor_wait_seconds{quantile=\"0.99\"} ",
                    "kiln_executor_run_seconds_count 1\n",
                    "kiln_executor_context_rows_total{context=\"0\",device=\"",
                    "kiln_executor_context_pool_bytes{context=\"0\",device=\"",
                    "kiln_executor_context_cache_hits_total{context=\"0\",device=\"", NULL});
    expect_error(kiln_executor_metrics(executor, (kiln_metrics_format)3, &text),
                 KILN_INVALID_ARGUMENT, "kiln_executor_metrics: 3 is no format");
    cr_expect_null(text);
    expect_ok(kiln_executor_get_context_stats(executor, 0, &stats));
    cr_expect_eq(stats.rows, 3u);
    cr_expect(stats.utilisation > 0 && stats.utilisation < 1);
    kiln_context_stats all = stats_of(context);
    cr_expect_eq(stats.kernels_compiled + stats.cache_hits,
                 all.kernels_compiled + all.kernels_from_memory + all.kernels_from_disk);
    cr_expect_gt(stats.kernels_compiled + stats.cache_hits, 0u);
    cr_expect_eq(stats.pool_bytes, all.pool_bytes);
    expect_ok(kiln_executor_shutdown(executor, KILN_SHUTDOWN_DRAIN));
    expect_ok(kiln_executor_get_context_stats(executor, 0, &stats));
    cr_expect_eq(stats.rows, 3u);
    cr_expect_eq(stats.kernels_compiled + stats.cache_hits, 0u, "it holds no context any more");
    expect_error(kiln_executor_get_context_stats(executor, 1, &stats), KILN_INVALID_ARGUMENT,
                 "kiln_executor_get_context_stats: context 1 of 1");
    served_end(executor, context);
}

/* ---- fork ---- */

Test(executor, refuses_everything_in_a_child_of_fork)
{
    kiln_context *context = open_context();
    kiln_executor *executor = served_create(context, NULL);
    kiln_future *future = served_submit(executor, x, y, 1, NULL), *none;
    int state, descriptor;
    kiln_executor_stats stats;
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        alarm(300);
        bool fine = kiln_future_wait(future) == KILN_FORKED &&
                    kiln_future_poll(future) == KILN_FORKED &&
                    kiln_future_cancel(future) == KILN_FORKED &&
                    kiln_future_descriptor(future, &descriptor) == KILN_FORKED &&
                    served_try(executor, x, y, 1, NULL, &none) == KILN_FORKED && !none &&
                    kiln_executor_get_stats(executor, &stats) == KILN_FORKED &&
                    kiln_executor_shutdown(executor, KILN_SHUTDOWN_DRAIN) == KILN_FORKED;
        kiln_executor_retain(executor);
        kiln_future_release(future);
        kiln_executor_release(executor);
        kiln_executor_release(executor);
        _exit(!fine);
    }
    while (child > 0 && waitpid(child, &state, 0) < 0 && errno == EINTR)
        continue;
    cr_assert_gt(child, 0);
    cr_expect(WIFEXITED(state) && WEXITSTATUS(state) == 0);
    expect_end(future, KILN_OK);
    served_end(executor, context);
}
