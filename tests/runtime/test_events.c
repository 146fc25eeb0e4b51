/* SPDX-License-Identifier: Apache-2.0 */
/* Submissions that are waited for, asked about, told of, and left alone. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kiln/opencl.h>

#include "../support/context.h"
#include "../support/layer.h"
#include "session/context.h"

enum { N = 100000, ROUNDS = 40 };

static float values[N], result[N];

/* Enough work that it is likely to be under way when the submission returns. */
static kiln_batch *record(kiln_context *context, float *place)
{
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor x = kiln_upload(batch, KILN_F32, 1, (size_t[]){N}, values);
    for (int i = 0; i < ROUNDS; i++)
        x = kiln_sub(batch, kiln_constant(batch, KILN_F32, i), x);
    expect_ok(kiln_read(batch, x, place, sizeof result));
    return batch;
}

static void expect_result(const float *place)
{
    for (int i = 0; i < N; i++)
        cr_assert_eq(place[i], values[i] + ROUNDS / 2, "element %d", i);
}

/* ---- waiting ---- */

Test(events, can_be_waited_for)
{
    kiln_context *context = open_context();
    kiln_event *event;
    fill(values, N, 1);
    kiln_batch *batch = record(context, result);
    expect_ok(kiln_batch_submit(batch, &event));
    expect_ok(kiln_event_wait(event));
    expect_result(result);
    cr_expect_eq(kiln_event_poll(event), KILN_OK);
    expect_ok(kiln_event_wait(event));
    kiln_event_release(event);
    kiln_batch_release(batch);
    close_context(context);
}

Test(events, can_be_asked)
{
    kiln_context *context = open_context();
    kiln_event *event;
    kiln_status status;
    fill(values, N, 2);
    kiln_batch *batch = record(context, result);
    expect_ok(kiln_batch_submit(batch, &event));
    while ((status = kiln_event_poll(event)) == KILN_NOT_READY)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    expect_ok(status);
    expect_result(result);
    kiln_event_release(event);
    kiln_batch_release(batch);
    close_context(context);
}

/* What the device waits for here is in our hands: nothing depends on how fast anything is. */
Test(events, are_not_ready_before_the_work_is_done)
{
    kiln_context *context = open_context();
    cl_context cl;
    cl_command_queue queue;
    cl_int code;
    kiln_event *event;
    kiln_batch *batch = record(context, result);
    expect_ok(kiln_context_cl(context, &cl, NULL, &queue));
    cl_event gate = clCreateUserEvent(cl, &code);
    cr_assert_eq(code, CL_SUCCESS);
    cr_assert_eq(clEnqueueBarrierWithWaitList(queue, 1, &gate, NULL), CL_SUCCESS);
    expect_ok(kiln_batch_submit(batch, &event));
    cr_expect_eq(kiln_event_poll(event), KILN_NOT_READY);
    cr_assert_eq(clSetUserEventStatus(gate, CL_COMPLETE), CL_SUCCESS);
    expect_ok(kiln_event_wait(event));
    cr_expect_eq(kiln_event_poll(event), KILN_OK);
    clReleaseEvent(gate);
    kiln_event_release(event);
    kiln_batch_release(batch);
    close_context(context);
}

Test(events, are_not_needed)
{
    kiln_context *context = open_context();
    fill(values, N, 3);
    kiln_batch *batch = record(context, result);
    expect_ok(kiln_batch_submit(batch, NULL));
    expect_ok(kiln_context_finish(context));
    expect_result(result);
    kiln_batch_release(batch);
    close_context(context);
}

/* ---- being told ---- */

struct told {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int times;
    kiln_status status;
};

static void tell(kiln_status status, void *user)
{
    struct told *told = user;
    pthread_mutex_lock(&told->lock);
    told->times++;
    told->status = status;
    pthread_cond_signal(&told->changed);
    pthread_mutex_unlock(&told->lock);
}

static void wait_until_told(struct told *told, int times)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 300;
    int late = 0;
    pthread_mutex_lock(&told->lock);
    while (told->times < times && !late)
        late = pthread_cond_timedwait(&told->changed, &told->lock, &until);
    pthread_mutex_unlock(&told->lock);
    cr_assert_not(late, "nobody called back");
}

static struct told told = {.lock = PTHREAD_MUTEX_INITIALIZER,
                           .changed = PTHREAD_COND_INITIALIZER,
                           .status = KILN_NOT_READY};

Test(events, call_back_once_before_and_after_completion)
{
    kiln_context *context = open_context();
    kiln_event *event;
    fill(values, N, 4);
    kiln_batch *batch = record(context, result);
    expect_ok(kiln_batch_submit(batch, &event));
    expect_ok(kiln_event_notify(event, tell, &told));
    wait_until_told(&told, 1);
    cr_expect_eq(told.status, KILN_OK);
    expect_result(result);
    expect_ok(kiln_event_wait(event));
    expect_ok(kiln_event_notify(event, tell, &told)); /* now that it has completed */
    wait_until_told(&told, 2);
    expect_ok(kiln_context_finish(context));
    kiln_event_release(event);
    kiln_batch_release(batch);
    close_context(context);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    cr_expect_eq(told.times, 2);
}

Test(events, call_back_after_everybody_let_go)
{
    kiln_context *context = open_context();
    kiln_event *event;
    fill(values, N, 5);
    kiln_batch *batch = record(context, result);
    expect_ok(kiln_batch_submit(batch, &event));
    expect_ok(kiln_event_notify(event, tell, &told));
    kiln_event_release(event);
    kiln_batch_release(batch);
    close_context(context);
    wait_until_told(&told, 1);
    expect_result(result);
}

/* ---- lives of their own ---- */

Test(events, outlive_their_batch_and_context)
{
    kiln_context *context = open_context();
    kiln_event *event;
    fill(values, N, 6);
    kiln_batch *batch = record(context, result);
    expect_ok(kiln_batch_submit(batch, &event));
    kiln_batch_release(batch); /* while it runs */
    kiln_context_release(context);
    expect_ok(kiln_event_wait(event));
    expect_result(result);
    kiln_event_release(event);
}

Test(events, of_a_batch_that_is_released_while_it_runs)
{
    kiln_context *context = open_context();
    fill(values, N, 7);
    for (int i = 0; i < 20; i++) {
        kiln_batch *batch = record(context, result);
        memset(result, 0, sizeof result);
        expect_ok(kiln_batch_submit(batch, NULL));
        kiln_batch_release(batch);
        expect_ok(kiln_context_finish(context));
        expect_result(result);
    }
    close_context(context);
}

Test(events, of_runs_that_follow_each_other)
{
    enum { RUNS = 10 };
    kiln_context *context = open_context();
    kiln_event *events[RUNS];
    float one = 1, zero = 0;
    kiln_batch *batch = kiln_batch_create(context);
    kiln_buffer *state = make_buffer(context, 1, &zero);
    kiln_tensor step = kiln_upload(batch, KILN_F32, 1, (size_t[]){1}, &one);
    expect_ok(kiln_export(batch, kiln_add(batch, kiln_import(batch, state), step), state));
    for (int i = 0; i < RUNS; i++)
        expect_ok(kiln_batch_submit(batch, &events[i]));
    expect_ok(kiln_event_wait(events[RUNS - 1]));
    for (int i = 0; i < RUNS; i++) {
        cr_expect_eq(kiln_event_poll(events[i]), KILN_OK, "an earlier run is not ready");
        kiln_event_release(events[i]);
    }
    expect_buffer(state, 1, (float[]){RUNS});
    cr_expect_eq(stats_of(context).batches, RUNS);
    kiln_buffer_release(state);
    kiln_batch_release(batch);
    close_context(context);
}

Test(events, of_nothing_complete)
{
    kiln_context *context = open_context();
    kiln_batch *batch = kiln_batch_create(context);
    kiln_event *event;
    expect_ok(kiln_batch_submit(batch, &event));
    expect_ok(kiln_event_wait(event));
    kiln_event_release(event);
    kiln_batch_release(batch);
    close_context(context);
}

Test(events, have_a_cl_event)
{
    kiln_context *context = open_context();
    kiln_event *event;
    cl_int state = 99;
    fill(values, N, 8);
    kiln_batch *batch = record(context, result);
    expect_ok(kiln_batch_submit(batch, &event));
    cl_event done = kiln_event_cl(event);
    cr_assert(done);
    cr_expect_eq(clWaitForEvents(1, &done), CL_SUCCESS);
    cr_expect_eq(
        clGetEventInfo(done, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL),
        CL_SUCCESS);
    cr_expect_eq(state, CL_COMPLETE);
    expect_result(result);
    cr_expect_null(kiln_event_cl(NULL));
    kiln_event_release(event);
    kiln_batch_release(batch);
    close_context(context);
}

/* ---- commands that fail in their event ---- */

static kiln_batch *record_sum(kiln_context *context, size_t count)
{
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor a = kiln_upload(batch, KILN_F32, 1, &count, values);
    kiln_tensor b = kiln_upload(batch, KILN_F32, 1, &count, values + 1);
    expect_ok(kiln_read(batch, kiln_add(batch, a, b), result, count * sizeof *result));
    return batch;
}

static kiln_context *open_failing(const char *memory, bool profile)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    if (!layer_available())
        cr_skip("run with OPENCL_LAYERS=.../kiln-layer.so");
    setenv("KILN_HOST_MEMORY", memory, 1);
    options.profile = profile;
    fill(values, N, 9);
    return open_context_with(&options);
}

static const struct failing {
    const char *memory;
    bool profile;
    size_t count; /* elements: large uploads do not go through staging memory */
    const char *call, *sentence;
} failing[] = {
    {"separate", false, 64, "clEnqueueWriteBuffer", "command 1 of the batch, upload of 256 bytes"},
    {"separate", false, N - 1, "clEnqueueWriteBuffer", "upload of 399996 bytes"},
    {"separate", false, 64, "clEnqueueReadBuffer", "download of 256 bytes"},
    {"separate", true, 64, "clEnqueueNDRangeKernel", "command 3 of the batch, "},
    {"shared", true, 64, "clEnqueueNDRangeKernel", "command 1 of the batch, "},
    {"shared", false, 64, "clEnqueueNDRangeKernel", "command 1 of the batch, "},
    {"mapped", false, 64, "clEnqueueMapBuffer", "map of 256 bytes"},
    {"mapped", false, 64, "clEnqueueUnmapMemObject", "unmap of 256 bytes"},
};

static void expect_failure(const struct failing *row, kiln_context *context, kiln_batch *batch)
{
    kiln_event *event;
    layer_fail_next(row->call, -5, KILN_LAYER_EVENT);
    expect_error_part(kiln_batch_execute(batch), KILN_DEVICE_ERROR, row->sentence);
    cr_expect(strstr(kiln_last_error(), "kiln_batch_execute: command "), "%s", kiln_last_error());
    cr_expect(strstr(kiln_last_error(), "failed: CL_OUT_OF_RESOURCES (-5)"));
    cr_expect_eq(layer_failures(), 1u, "%s", row->call);
    layer_fail_next(row->call, -6, KILN_LAYER_EVENT);
    expect_ok(kiln_batch_submit(batch, &event));
    expect_error_part(kiln_event_wait(event), KILN_DEVICE_ERROR, row->sentence);
    expect_error_part(kiln_event_poll(event), KILN_DEVICE_ERROR, row->sentence);
    int times = told.times;
    expect_ok(kiln_event_notify(event, tell, &told));
    wait_until_told(&told, times + 1);
    cr_expect_eq(told.status, KILN_DEVICE_ERROR);
    kiln_event_release(event);
    expect_ok(kiln_context_finish(context)); /* told already */
}

/* Mesa's rusticl cannot unmap what is not mapped yet, as the mapped mode does, nor map again what a
 * failed unmap has left. */
static bool can_unmap(const kiln_context *context)
{
    return strcmp(context->runtime.device.info.platform, "rusticl") != 0;
}

/* A launch has an event where spans are kept, or as a run's last command: where a map follows it,
 * it is neither. */
static bool has_event(const struct failing *row, const kiln_context *context)
{
    bool launch = !strcmp(row->call, "clEnqueueNDRangeKernel");
    return !launch || row->profile || context->runtime.device.traits->live_host_pointers;
}

Test(events, tell_of_a_failed_command_that_is_not_the_last)
{
    for (size_t i = 0; i < sizeof failing / sizeof *failing; i++) {
        const struct failing *row = &failing[i];
        kiln_context *context = open_failing(row->memory, row->profile);
        if (!strcmp(row->memory, "mapped") && !can_unmap(context)) {
            close_context(context);
            continue;
        }
        kiln_batch *batch = record_sum(context, row->count);
        run_batch(batch);
        if (has_event(row, context))
            expect_failure(row, context, batch);
        layer_reset();
        run_batch(batch);
        for (size_t k = 0; k < row->count; k++)
            cr_assert_eq(result[k], values[k] + values[k + 1]);
        kiln_batch_release(batch);
        close_context(context);
    }
}

/* Nobody waits for the run that fails: the next call that waits says so, once. */
/* A batch that owns what its run reads waits for the run, and keeps to itself how that ended. */
Test(events, of_a_batch_that_is_released_meanwhile_are_told_of_too)
{
    static float window[64];
    kiln_context *context = open_failing("separate", false);
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor taper = kiln_window(batch, KILN_TAPER_HANN, 64, 1);
    kiln_read(batch, kiln_square(batch, taper), window, sizeof window);
    layer_fail_next("clEnqueueWriteBuffer", -5, KILN_LAYER_EVENT);
    expect_ok(kiln_batch_submit(batch, NULL));
    kiln_batch_release(batch);
    expect_error_part(kiln_context_finish(context), KILN_DEVICE_ERROR, "in an earlier run");
    close_context(context);
}

Test(events, that_nobody_waits_for_are_told_of_by_the_next_call_that_waits)
{
    kiln_context *context = open_failing("separate", false);
    kiln_buffer *buffer = make_buffer(context, 4, values);
    kiln_batch *batch = record_sum(context, 64);
    kiln_batch *next = kiln_batch_create(context);
    kiln_event *event;
    float read[4];
    void *mapping;
    for (int call = 0; call < 4; call++) {
        layer_fail_next("clEnqueueWriteBuffer", -5, KILN_LAYER_EVENT);
        expect_ok(kiln_batch_submit(batch, call == 1 ? &event : NULL));
        if (call == 1)
            kiln_event_release(event);
        kiln_status status = call == 0   ? kiln_context_finish(context)
                             : call == 1 ? kiln_batch_execute(next)
                             : call == 2 ? kiln_buffer_read(buffer, 0, read, sizeof read)
                                         : kiln_buffer_map(buffer, &mapping);
        expect_error_part(status, KILN_DEVICE_ERROR, "in an earlier run: command 1 of the batch");
        expect_ok(kiln_context_finish(context));
    }
    expect_ok(kiln_buffer_map(buffer, &mapping));
    if (can_unmap(context)) {
        layer_fail_next("clEnqueueUnmapMemObject", -5, KILN_LAYER_EVENT);
        expect_ok(kiln_buffer_unmap(buffer));
        expect_error_part(kiln_context_finish(context), KILN_DEVICE_ERROR,
                          "unmap of a buffer of 16");
    } else {
        expect_ok(kiln_buffer_unmap(buffer));
    }
    kiln_buffer_release(buffer);
    kiln_batch_release(next);
    kiln_batch_release(batch);
    close_context(context);
}

/* More runs than are remembered, more commands than a run keeps. */
Test(events, of_many_runs_and_commands_are_looked_at_too)
{
    enum { RUNS = 200, UPLOADS = 400 };
    size_t one = 1;
    kiln_context *context = open_failing("separate", false);
    kiln_batch *batch = record_sum(context, 64);
    layer_fail(3, "clEnqueueWriteBuffer", -5, KILN_LAYER_ONCE, KILN_LAYER_EVENT);
    for (int i = 0; i < RUNS; i++)
        expect_ok(kiln_batch_submit(batch, NULL));
    expect_error_part(kiln_context_finish(context), KILN_DEVICE_ERROR, "command 1 of the batch");
    expect_ok(kiln_batch_reset(batch));
    kiln_tensor sum = kiln_constant(batch, KILN_F32, 0);
    for (int i = 0; i < UPLOADS; i++)
        sum = kiln_add(batch, sum, kiln_upload(batch, KILN_F32, 1, &one, values + i));
    expect_ok(kiln_read(batch, sum, result, sizeof *result));
    layer_fail(7, "clEnqueueWriteBuffer", -5, KILN_LAYER_ONCE, KILN_LAYER_EVENT);
    expect_error_part(kiln_batch_execute(batch), KILN_DEVICE_ERROR,
                      "command 7 of the batch, upload of 4 bytes");
    kiln_batch_release(batch);
    close_context(context);
}

/* ---- runs that are left alone, where events are dear ---- */

static kiln_batch *record_count(kiln_context *context, kiln_buffer *state)
{
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor next =
        kiln_add(batch, kiln_import(batch, state), kiln_constant(batch, KILN_F32, 1));
    expect_ok(kiln_export(batch, next, state));
    return batch;
}

Test(events, of_runs_that_are_left_alone_are_made_when_asked_for)
{
    enum { RUNS = 100 };
    kiln_context *context = open_failing("separate", false);
    context->runtime.ends_on_demand = true;
    kiln_buffer *state = make_buffer(context, N, values);
    kiln_batch *batch = record_count(context, state);
    expect_ok(kiln_batch_submit(batch, NULL)); /* PoCL compiles now, and an end waits for that */
    expect_ok(kiln_context_finish(context));
    layer_reset();
    uint64_t before = layer_count("created.event");
    for (int i = 0; i < RUNS; i++)
        expect_ok(kiln_batch_submit(batch, NULL));
    cr_expect_eq(layer_count("created.event"), before);
    /* A large read goes through another queue, which waits for the end of this one's work. */
    expect_ok(kiln_buffer_read(state, 0, result, sizeof result));
    for (int i = 0; i < N; i++)
        cr_assert_eq(result[i], values[i] + 1 + RUNS);
    expect_ok(kiln_batch_submit(batch, NULL));
    expect_ok(kiln_batch_reset(batch)); /* waits */
    expect_ok(kiln_context_finish(context));
    kiln_buffer_release(state);
    kiln_batch_release(batch);
    close_context(context);
}

/* Where commands begin without a flush, it is left to whoever waits: here as many runs are flushed
 * as have an event or are waited for. */
Test(events, of_runs_that_are_left_alone_are_flushed_when_asked_for)
{
    kiln_context *context = open_failing("separate", false);
    kiln_buffer *state = make_buffer(context, N, values);
    kiln_batch *batch = record_count(context, state);
    kiln_event *event;
    run_batch(batch);
    context->runtime.ends_on_demand = true;
    context->runtime.starts_unflushed = false;
    layer_reset();
    expect_ok(kiln_batch_submit(batch, NULL));
    cr_expect_eq(layer_count("clFlush"), 1u, "nobody knows that it would begin");
    context->runtime.starts_unflushed = true;
    for (int i = 0; i < 3; i++)
        expect_ok(kiln_batch_submit(batch, NULL));
    cr_expect_eq(layer_count("clFlush"), 1u);
    expect_ok(kiln_batch_submit(batch, &event));
    cr_expect_eq(layer_count("clFlush"), 2u);
    expect_ok(kiln_event_wait(event));
    kiln_event_release(event);
    expect_ok(kiln_batch_submit(batch, NULL));
    cr_expect_eq(layer_count("clFlush"), 2u);
    expect_ok(kiln_context_finish(context));
    cr_expect_eq(layer_count("clFlush"), 3u, "its end is asked for");
    expect_ok(kiln_batch_submit(batch, NULL));
    expect_ok(kiln_buffer_read(state, 0, result, sizeof result));
    cr_expect_gt(layer_count("clFlush"), 3u, "another queue waits for this one");
    for (int i = 0; i < N; i++)
        cr_assert_eq(result[i], values[i] + 8);
    expect_ok(kiln_batch_submit(batch, NULL));
    expect_ok(kiln_context_finish(context));
    uint64_t before = layer_count("clFlush");
    atomic_store(&context->runtime.shown, true);
    expect_ok(kiln_batch_submit(batch, NULL));
    cr_expect_eq(layer_count("clFlush"), before + 1, "the program's queue");
    kiln_batch_release(batch);
    kiln_buffer_release(state);
    close_context(context);
}

Test(events, that_are_made_when_asked_for_tell_of_failures_too)
{
    kiln_context *context = open_failing("separate", false);
    context->runtime.ends_on_demand = true;
    kiln_buffer *state = make_buffer(context, 4, values);
    kiln_batch *batch = record_count(context, state), *sum = record_sum(context, 64);
    run_batch(batch);
    layer_fail_next("clEnqueueMarkerWithWaitList", -5, KILN_LAYER_EVENT);
    expect_ok(kiln_batch_submit(batch, NULL));
    expect_ok(kiln_batch_submit(batch, NULL));
    expect_error_part(kiln_context_finish(context), KILN_DEVICE_ERROR,
                      "in an earlier run: command 1 of the batch, marker");
    layer_fail_next("clEnqueueMarkerWithWaitList", CL_INVALID_COMMAND_QUEUE, KILN_LAYER_CALL);
    expect_ok(kiln_batch_submit(batch, NULL));
    expect_error_part(kiln_batch_reset(batch), KILN_DEVICE_ERROR, "clEnqueueMarkerWithWaitList");
    layer_reset();
    expect_ok(kiln_context_finish(context));
    /* What has an event is not forgotten for what follows it. */
    layer_fail_next("clEnqueueWriteBuffer", -5, KILN_LAYER_EVENT);
    expect_ok(kiln_batch_submit(sum, NULL));
    kiln_batch_release(batch);
    batch = record_count(context, state);
    expect_ok(kiln_batch_submit(batch, NULL));
    expect_ok(kiln_batch_submit(batch, NULL));
    expect_error_part(kiln_context_finish(context), KILN_DEVICE_ERROR, "command 1 of the batch");
    kiln_buffer_release(state);
    kiln_batch_release(sum);
    kiln_batch_release(batch);
    close_context(context);
}

/* ---- misuse ---- */

Test(events, refuse_null)
{
    kiln_context *context = open_context();
    kiln_batch *batch = kiln_batch_create(context);
    kiln_event *event;
    expect_ok(kiln_batch_submit(batch, &event));
    expect_error(kiln_event_wait(NULL), KILN_INVALID_ARGUMENT, "kiln_event_wait: event is NULL");
    expect_error(kiln_event_poll(NULL), KILN_INVALID_ARGUMENT, "kiln_event_poll: event is NULL");
    expect_error(kiln_event_notify(NULL, tell, NULL), KILN_INVALID_ARGUMENT,
                 "kiln_event_notify: event is NULL");
    expect_error(kiln_event_notify(event, NULL, NULL), KILN_INVALID_ARGUMENT,
                 "kiln_event_notify: callback is NULL");
    kiln_event_release(NULL);
    kiln_event_release(event);
    kiln_batch_release(batch);
    close_context(context);
}

Test(events, are_not_made_for_a_failed_batch)
{
    kiln_context *context = open_context();
    kiln_batch *batch = kiln_batch_create(context);
    kiln_event *event = (kiln_event *)&told;
    kiln_exp(batch, (kiln_tensor){0});
    expect_error(kiln_batch_submit(batch, &event), KILN_INVALID_HANDLE,
                 "kiln_exp: operand a is the empty tensor");
    cr_expect_null(event);
    cr_expect_eq(stats_of(context).batches, 0u);
    kiln_batch_release(batch);
    close_context(context);
}
