/* SPDX-License-Identifier: Apache-2.0 */
/* An executor on two contexts, and on contexts that fail. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "../support/context.h"
#include "../support/layer.h"
#include "../support/served.h"

enum { ROWS = 16 };

static float x[ROWS * SERVED_WIDTH], y[ROWS];
static kiln_context *contexts[2];

static kiln_executor *create(size_t count, const kiln_executor_options *options)
{
    kiln_executor *executor;
    for (size_t i = 0; i < count; i++)
        contexts[i] = open_context();
    served_fill(x, ROWS, 1);
    expect_ok(kiln_executor_create(contexts, count, &served_model, options, &executor));
    return executor;
}

static void end(kiln_executor *executor, size_t count)
{
    kiln_executor_release(executor);
    for (size_t i = 0; i < count; i++)
        close_context(contexts[i]);
}

static kiln_executor_context_stats stats_at(kiln_executor *executor, size_t index)
{
    kiln_executor_context_stats stats;
    expect_ok(kiln_executor_get_context_stats(executor, index, &stats));
    return stats;
}

static kiln_status ask(kiln_executor *executor, size_t rows)
{
    memset(y, 0, sizeof y);
    kiln_future *future = served_submit(executor, x, y, rows, NULL);
    kiln_status status = kiln_future_wait(future);
    if (!status)
        cr_assert(served_right(x, y, rows));
    kiln_future_release(future);
    return status;
}

/* ---- which are well ---- */

Test(executor_contexts, pass_by_one_that_is_held_up)
{
    kiln_executor_options options = served_options(ROWS, 1, 0);
    kiln_executor *executor = create(2, &options);
    float sum;
    cl_event gate = gate_close(contexts[0]);
    kiln_future *held = served_submit(executor, x, &sum, 1, NULL);
    cr_assert(served_running(executor, 1));
    cr_expect_eq(stats_at(executor, 0).running, 1u);
    for (int i = 0; i < 5; i++)
        expect_ok(ask(executor, ROWS));
    cr_expect_eq(stats_at(executor, 1).batches, 5u);
    cr_expect_eq(kiln_future_poll(held), KILN_NOT_READY);
    gate_open(gate);
    expect_ok(kiln_future_wait(held));
    kiln_future_release(held);
    cr_expect_eq(stats_at(executor, 0).batches, 1u);
    end(executor, 2);
}

struct door {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    bool open;
    unsigned waiting;
};

static void wait_at(kiln_status status, void *user)
{
    struct door *door = user;
    (void)status;
    pthread_mutex_lock(&door->lock);
    door->waiting++;
    while (!door->open)
        pthread_cond_wait(&door->opened, &door->lock);
    pthread_mutex_unlock(&door->lock);
}

static unsigned waiting_at(struct door *door)
{
    pthread_mutex_lock(&door->lock);
    unsigned waiting = door->waiting;
    pthread_mutex_unlock(&door->lock);
    return waiting;
}

static void pause_shortly(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* A request calls back from the first context. The other one may have it done first, as long as
 * the first one's worker is not there: then it is asked again. */
static void call_back(kiln_executor *executor, struct door *door)
{
    static float sum;
    unsigned before = waiting_at(door);
    for (bool first = false; !first;) {
        cl_event gate = gate_close(contexts[0]);
        kiln_future *held = served_submit(executor, x, &sum, 1, NULL);
        do {
            pause_shortly();
            first = stats_at(executor, 0).running;
        } while (!first && kiln_future_poll(held) == KILN_NOT_READY);
        if (first)
            expect_ok(kiln_future_notify(held, wait_at, door));
        gate_open(gate);
        kiln_future_release(held);
    }
    while (waiting_at(door) == before)
        pause_shortly();
}

/* Callbacks keep both workers of the first context; the other one serves. */
Test(executor_contexts, pass_by_one_that_calls_back)
{
    kiln_executor_options options = served_options(ROWS, 1, 0);
    kiln_executor *executor = create(2, &options);
    struct door door = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0};
    call_back(executor, &door);
    call_back(executor, &door);
    kiln_future *future = served_submit(executor, x, y, ROWS, NULL);
    cr_expect_eq(kiln_future_wait_for(future, 300000000), KILN_OK);
    pthread_mutex_lock(&door.lock);
    door.open = true;
    pthread_cond_broadcast(&door.opened);
    pthread_mutex_unlock(&door.lock);
    expect_ok(kiln_future_wait(future));
    kiln_future_release(future);
    end(executor, 2);
}

static kiln_status add_number(kiln_batch *batch, size_t context, size_t rows,
                              const kiln_tensor *inputs, kiln_tensor *outputs, void *user)
{
    (void)rows;
    outputs[0] = kiln_add(batch, inputs[0], kiln_import(batch, ((kiln_buffer **)user)[context]));
    return KILN_OK;
}

Test(executor_contexts, have_weights_of_their_own)
{
    const kiln_row row = {.type = KILN_F32};
    kiln_buffer *weights[2];
    kiln_model model = {sizeof model, add_number, weights,          1,
                        &row,         1,          sizeof(kiln_row), KILN_PRECISION_DEFAULT};
    kiln_executor *executor;
    kiln_future *held, *future;
    float one = 1, first, second;
    kiln_input input = {&one, sizeof one, KILN_F32};
    kiln_output outputs[] = {{&first, sizeof first, KILN_F32}, {&second, sizeof second, KILN_F32}};
    for (int i = 0; i < 2; i++) {
        contexts[i] = open_context();
        weights[i] = make_buffer(contexts[i], 1, (float[]){10.f * (float)(i + 1)});
    }
    const kiln_executor_options options = served_options(1, 1, 0);
    expect_ok(kiln_executor_create(contexts, 2, &model, &options, &executor));
    cl_event gate = gate_close(contexts[0]);
    expect_ok(kiln_executor_submit(executor, &input, &outputs[0], 1, NULL, &held));
    cr_assert(served_running(executor, 1));
    expect_ok(kiln_executor_submit(executor, &input, &outputs[1], 1, NULL, &future));
    expect_ok(kiln_future_wait(future));
    gate_open(gate);
    expect_ok(kiln_future_wait(held));
    cr_expect_eq(first, 11);
    cr_expect_eq(second, 21);
    kiln_future_release(held);
    kiln_future_release(future);
    for (int i = 0; i < 2; i++)
        kiln_buffer_release(weights[i]);
    end(executor, 2);
}

/* ---- one large request ---- */

enum { MANY = 10 * ROWS + 3 };

static kiln_status run_many(kiln_executor *executor, float *many, float *sums, size_t rows)
{
    const kiln_input input = {many, rows * SERVED_WIDTH * sizeof *many, KILN_F32};
    const kiln_output output = {sums, rows * sizeof *sums, KILN_F32};
    return kiln_executor_run(executor, &input, &output, rows, NULL);
}

/* Cut into batches, which go to both, be it after a while where threads wait for a processor. */
Test(executor_contexts, share_the_rows_of_one_request)
{
    static float many[MANY * SERVED_WIDTH], sums[MANY];
    kiln_executor_options options = served_options(ROWS, 1, 0);
    options.max_queue = 2;
    kiln_executor *executor = create(2, &options);
    served_fill(many, MANY, 3);
    for (int i = 0; i < 1000; i++) {
        for (size_t rows = MANY; rows; rows = rows * 2 / 3) {
            memset(sums, 0, sizeof sums);
            expect_ok(run_many(executor, many, sums, rows));
            cr_expect(served_right(many, sums, rows));
        }
        if (stats_at(executor, 0).batches && stats_at(executor, 1).batches)
            break;
    }
    cr_expect_gt(stats_at(executor, 0).batches, 0u);
    cr_expect_gt(stats_at(executor, 1).batches, 0u);
    end(executor, 2);
}

Test(executor_contexts, say_what_is_wrong_with_a_large_request)
{
    static float many[MANY * SERVED_WIDTH], sums[MANY];
    kiln_executor *executor = create(1, NULL);
    const kiln_input input = {many, sizeof many - 4, KILN_F32};
    const kiln_output output = {sums, sizeof sums, KILN_F32};
    expect_error_part(kiln_executor_run(executor, &input, &output, MANY, NULL),
                      KILN_INVALID_ARGUMENT,
                      "kiln_executor_run: kiln_executor_submit: input 0 has");
    expect_error(kiln_executor_run(executor, NULL, &output, MANY, NULL), KILN_INVALID_ARGUMENT,
                 "kiln_executor_run: inputs is NULL");
    expect_error_part(run_many(executor, many, sums, 0), KILN_INVALID_ARGUMENT, "no rows");
    expect_error_part(run_many(executor, many, sums, SIZE_MAX / 32 + 1), KILN_INVALID_ARGUMENT,
                      "input 0 has"); /* 0 bytes, counted carelessly */
    expect_ok(kiln_executor_shutdown(executor, KILN_SHUTDOWN_DRAIN));
    expect_error_part(run_many(executor, many, sums, MANY), KILN_WRONG_STATE, "shut down");
    end(executor, 1);
}

/* ---- which fail ---- */

static const char kernel_call[] = "clEnqueueNDRangeKernel";

Test(executor_contexts, that_fail_are_left_out_and_tried_again)
{
    if (!layer_available())
        cr_skip("run with OPENCL_LAYERS=.../kiln-layer.so");
    kiln_executor_options options = served_options(ROWS, 1, 0);
    options.retry_us = 200000;
    kiln_executor *executor = create(2, &options);
    layer_fail_next(kernel_call, -36, KILN_LAYER_CALL);
    expect_ok(ask(executor, ROWS));
    kiln_executor_stats stats = served_stats(executor);
    cr_expect_eq(stats.rerun, 1u);
    cr_expect_eq(stats.failed_batches, 1u);
    cr_expect_eq(stats.completed, 1u);
    cr_expect_eq(stats.failed, 0u);
    cr_expect_eq(stats_at(executor, 0).in_service + stats_at(executor, 1).in_service, 1);
    for (int i = 0; i < 30000 && served_stats(executor).batches < 100000; i++) {
        expect_ok(ask(executor, 1));
        if (stats_at(executor, 0).in_service + stats_at(executor, 1).in_service == 2)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    cr_expect(stats_at(executor, 0).in_service && stats_at(executor, 1).in_service);
    end(executor, 2);
}

/* Where there is no other, those in the batch are told, and the next one is served. */
Test(executor_contexts, that_are_alone_and_fail_go_on)
{
    if (!layer_available())
        cr_skip("run with OPENCL_LAYERS=.../kiln-layer.so");
    kiln_executor *executor = create(1, NULL);
    expect_ok(ask(executor, 2));
    layer_fail_next(kernel_call, -36, KILN_LAYER_CALL);
    expect_error_part(ask(executor, 2), KILN_DEVICE_ERROR,
                      "kiln_future_wait: a batch of 2 rows: clEnqueueNDRangeKernel");
    expect_ok(ask(executor, 2));
    kiln_executor_stats stats = served_stats(executor);
    cr_expect_eq(stats.failed, 1u);
    cr_expect_eq(stats.rerun, 0u);
    cr_expect(stats_at(executor, 0).in_service);
    end(executor, 1);
}

/* Both fail: each request is told after its second try, and nothing is lost. */
Test(executor_contexts, that_all_fail_tell_everybody)
{
    if (!layer_available())
        cr_skip("run with OPENCL_LAYERS=.../kiln-layer.so");
    kiln_executor_options options = served_options(ROWS, 1, 0);
    options.retry_us = 1000;
    kiln_executor *executor = create(2, &options);
    layer_fail(1, kernel_call, -36, KILN_LAYER_FOREVER, KILN_LAYER_CALL);
    for (int i = 0; i < 10; i++)
        cr_expect_eq(ask(executor, 3), KILN_DEVICE_ERROR);
    layer_reset();
    for (int i = 0; i < 10; i++)
        expect_ok(ask(executor, 3));
    kiln_executor_stats stats = served_stats(executor);
    cr_expect_eq(stats.failed, 10u);
    cr_expect_eq(stats.completed, 10u);
    end(executor, 2);
}

/* A piece whose context fails runs on the other one. */
Test(executor_contexts, that_fail_leave_their_piece_to_others)
{
    static float many[MANY * SERVED_WIDTH], sums[MANY];
    if (!layer_available())
        cr_skip("run with OPENCL_LAYERS=.../kiln-layer.so");
    kiln_executor_options options = served_options(ROWS, 1, 0);
    kiln_executor *executor = create(2, &options);
    served_fill(many, MANY, 3);
    layer_fail(2, kernel_call, -36, KILN_LAYER_ONCE, KILN_LAYER_CALL);
    expect_ok(run_many(executor, many, sums, MANY));
    cr_expect_eq(layer_failures(), 1u);
    cr_expect(served_right(many, sums, MANY));
    cr_expect_eq(served_stats(executor).rerun, 1u);
    end(executor, 2);
}

/* Each call in turn, of those that warm contexts make: an error or the right sums, and with two
 * contexts the right sums. */
static void fail_each_call(size_t count, enum kiln_layer_where where)
{
    kiln_executor_options options = served_options(2, 1, 0);
    options.retry_us = 1;
    kiln_executor *executor = create(count, &options);
    unsigned long failures = 0;
    for (int i = 0; i < 8; i++)
        expect_ok(ask(executor, 1 + (size_t)i % 2));
    for (unsigned long n = 1, hit = 1; hit && n < 100; n++) {
        layer_fail(n, NULL, -5, KILN_LAYER_ONCE, where);
        kiln_status first = ask(executor, 2), second = ask(executor, 1);
        hit = layer_failures();
        layer_reset();
        failures += hit;
        cr_expect(!first || !second, "one failure, two errors");
        cr_expect((!first && !second) || (hit && count == 1), "call %lu", n);
        expect_ok(ask(executor, 2));
    }
    cr_expect_gt(failures, 0u);
    end(executor, count);
}

Test(executor_contexts, may_fail_in_any_call)
{
    if (!layer_available())
        cr_skip("run with OPENCL_LAYERS=.../kiln-layer.so");
    for (size_t count = 1; count <= 2; count++) {
        fail_each_call(count, KILN_LAYER_CALL);
        fail_each_call(count, KILN_LAYER_AFTER);
        fail_each_call(count, KILN_LAYER_EVENT);
    }
}
