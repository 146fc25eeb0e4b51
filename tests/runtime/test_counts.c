/* SPDX-License-Identifier: Apache-2.0 */
/* What kiln asks of the driver, counted by a layer between the two: how many transfers and
 * launches, which calls a second run makes, and that every object made is released. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../support/context.h"
#include "../support/layer.h"
#include "session/context.h"

#define N 1000

static float a[N], b[N], x[N], y[N], z[N];

static kiln_context *open_counted(kiln_host_memory memory)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    if (!layer_available())
        cr_skip("run with OPENCL_LAYERS=.../kiln-layer.so");
    options.host_memory = memory;
    options.cache = KILN_CACHE_OFF; /* no entry of another test is found, no thread stores one */
    fill(a, N, 1);
    fill(b, N, 2);
    return open_context_with(&options);
}

/* After the context, nothing of what the process made is left. */
static void close_counted(kiln_context *context)
{
    close_context(context);
    cr_expect_eq(layer_count("alive"), 0u, "%s", layer_snapshot());
}

static void expect_transfers(unsigned ups, unsigned downs, unsigned launches)
{
    cr_expect_eq(layer_count("upload.count"), ups, "%s", layer_snapshot());
    cr_expect_eq(layer_count("download.count"), downs, "%s", layer_snapshot());
    cr_expect_eq(layer_count("launches"), launches, "%s", layer_snapshot());
    cr_expect_eq(layer_count("upload.bytes"), ups * sizeof a);
    cr_expect_eq(layer_count("download.bytes"), downs * sizeof a);
    cr_expect_eq(layer_count("copy.count"), 0u);
    cr_expect_eq(layer_count("fill.count"), 0u);
    cr_expect_eq(layer_count("create_copy.count"), 0u);
}

/* ---- relu, scale, add: eager and as one batch ---- */

static void run_eagerly(kiln_context *context)
{
    expect_ok(kiln_now_relu(context, N, a, x));
    expect_ok(kiln_now_scale(context, N, x, 2, y));
    expect_ok(kiln_now_add(context, N, y, b, z));
}

static kiln_batch *record_three(kiln_context *context)
{
    kiln_batch *batch = kiln_batch_create(context);
    cr_assert(batch != NULL);
    kiln_tensor left = kiln_upload(batch, KILN_F32, 1, (size_t[]){N}, a);
    kiln_tensor right = kiln_upload(batch, KILN_F32, 1, (size_t[]){N}, b);
    kiln_tensor sum = kiln_add(batch, kiln_scale(batch, kiln_relu(batch, left), 2), right);
    expect_ok(kiln_read(batch, sum, z, sizeof z));
    return batch;
}

static void run_as_batch(kiln_context *context)
{
    kiln_batch *batch = record_three(context);
    run_batch(batch);
    kiln_batch_release(batch);
}

/* Counts from the second time on: the first one also looks for staging memory. */
static void expect_counts(kiln_host_memory memory, void (*run)(kiln_context *), unsigned ups,
                          unsigned downs, unsigned launches)
{
    kiln_context *context = open_counted(memory);
    run(context);
    kiln_context_stats before = stats_of(context);
    memset(z, 0, sizeof z);
    layer_reset();
    run(context);
    for (size_t i = 0; i < N; i++)
        cr_assert_eq(z[i], (a[i] > 0 ? a[i] : 0) * 2 + b[i]);
    expect_transfers(ups, downs, launches);
    kiln_context_stats after = stats_of(context);
    cr_expect_eq(after.uploads - before.uploads, ups);
    cr_expect_eq(after.downloads - before.downloads, downs);
    cr_expect_eq(after.launches - before.launches, launches);
    cr_expect_eq(after.upload_bytes - before.upload_bytes, ups * sizeof a);
    cr_expect_eq(after.download_bytes - before.download_bytes, downs * sizeof a);
    close_counted(context);
}

Test(counts, the_eager_way_makes_seven_transfers_and_three_launches)
{
    expect_counts(KILN_HOST_MEMORY_SEPARATE, run_eagerly, 4, 3, 3);
}

Test(counts, a_batch_makes_three_transfers_and_one_launch)
{
    expect_counts(KILN_HOST_MEMORY_SEPARATE, run_as_batch, 2, 1, 1);
}

Test(counts, shared_memory_is_never_copied)
{
    expect_counts(KILN_HOST_MEMORY_SHARED, run_eagerly, 0, 0, 3);
    expect_counts(KILN_HOST_MEMORY_SHARED, run_as_batch, 0, 0, 1);
}

Test(counts, the_cost_told_beforehand_is_what_a_run_makes)
{
    kiln_context *context = open_counted(KILN_HOST_MEMORY_SEPARATE);
    kiln_batch *batch = record_three(context);
    kiln_batch_cost cost = cost_of(batch);
    layer_reset();
    run_batch(batch);
    expect_transfers((unsigned)cost.uploads, (unsigned)cost.downloads, (unsigned)cost.launches);
    cr_expect_eq(cost.uploads, 2u);
    cr_expect_eq(cost.downloads, 1u);
    cr_expect_eq(cost.launches, 1u);
    kiln_batch_release(batch);
    close_counted(context);
}

/* ---- which calls a run makes ---- */

/* Eight operations. */
static kiln_batch *record_eight(kiln_context *context)
{
    kiln_batch *batch = kiln_batch_create(context);
    cr_assert(batch != NULL);
    kiln_tensor left = kiln_upload(batch, KILN_F32, 1, (size_t[]){N}, a);
    kiln_tensor right = kiln_upload(batch, KILN_F32, 1, (size_t[]){N}, b);
    kiln_tensor sum = kiln_add(batch, kiln_relu(batch, left), right);
    kiln_tensor product = kiln_mul(batch, kiln_abs(batch, sum), kiln_neg(batch, left));
    kiln_tensor result = kiln_sub(batch, kiln_scale(batch, product, 3), kiln_tanh(batch, right));
    expect_ok(kiln_read(batch, result, z, sizeof z));
    cr_assert_eq(kiln_batch_operation_count(batch), 8u);
    return batch;
}

/* The lines of the snapshot that are calls, in the order of their names. */
static void expect_calls(const char *expected)
{
    char calls[4096] = "";
    const char *line = layer_snapshot();
    while (*line) {
        size_t length = strcspn(line, "\n") + 1;
        if (!strncmp(line, "cl", 2))
            strncat(calls, line, length);
        line += length;
    }
    cr_expect_str_eq(calls, expected, "the calls were:\n%s", calls);
}

/* What a context asks of the driver depends on how host memory meets the device; "shared" memory is
 * live on some drivers and mapped on others. */
static kiln_context *open_counted_with(const char *word)
{
    setenv("KILN_HOST_MEMORY", word, 1);
    return open_counted(KILN_HOST_MEMORY_DEFAULT);
}

static const char *const words[] = {"shared", "mapped", "separate"};
enum { WORDS = sizeof words / sizeof *words };

/* The two uploads go through staging memory: each waits for the transfer that used it last.
 * Wrappers of mapped memory live for one run only. */
static const char *const calls_of_running_again[] = {
    [KILN__HOST_LIVE] = "clEnqueueNDRangeKernel=1\n"
                        "clFlush=1\n"
                        "clReleaseEvent=1\n"
                        "clWaitForEvents=1\n",
    [KILN__HOST_MAPPED] = "clCreateBuffer=3\n"
                          "clEnqueueMapBuffer=1\n"
                          "clEnqueueNDRangeKernel=1\n"
                          "clEnqueueUnmapMemObject=1\n"
                          "clFlush=1\n"
                          "clReleaseEvent=2\n"
                          "clReleaseMemObject=6\n"
                          "clRetainMemObject=3\n"
                          "clSetKernelArg=3\n"
                          "clWaitForEvents=1\n",
    [KILN__HOST_SEPARATE] = "clEnqueueNDRangeKernel=1\n"
                            "clEnqueueReadBuffer=1\n"
                            "clEnqueueWriteBuffer=2\n"
                            "clFlush=1\n"
                            "clReleaseEvent=5\n"
                            "clRetainEvent=2\n"
                            "clWaitForEvents=3\n",
};

Test(counts, running_again_makes_four_calls_on_live_memory_and_few_on_other)
{
    for (int w = 0; w < WORDS; w++) {
        kiln_context *context = open_counted_with(words[w]);
        kiln_batch *batch = record_eight(context);
        for (int i = 0; i < 8; i++) /* every piece of the staging memory has been in use */
            run_batch(batch);
        layer_reset();
        run_batch(batch);
        expect_calls(calls_of_running_again[context->runtime.host_mode]);
        kiln_batch_release(batch);
        close_counted(context);
    }
}

/* The same once more with what the first batch's release gave back. */
static const char *const calls_of_recording_again[] = {
    [KILN__HOST_LIVE] = "clCreateBuffer=3\n"
                        "clEnqueueNDRangeKernel=1\n"
                        "clFlush=1\n"
                        "clRetainMemObject=3\n"
                        "clSetKernelArg=3\n"
                        "clWaitForEvents=1\n",
    [KILN__HOST_MAPPED] = "clCreateBuffer=3\n"
                          "clEnqueueMapBuffer=1\n"
                          "clEnqueueNDRangeKernel=1\n"
                          "clEnqueueUnmapMemObject=1\n"
                          "clFlush=1\n"
                          "clReleaseMemObject=3\n"
                          "clRetainMemObject=3\n"
                          "clSetKernelArg=3\n"
                          "clWaitForEvents=1\n",
    [KILN__HOST_SEPARATE] = "clEnqueueNDRangeKernel=1\n"
                            "clEnqueueReadBuffer=1\n"
                            "clEnqueueWriteBuffer=2\n"
                            "clFlush=1\n"
                            "clReleaseEvent=2\n"
                            "clRetainEvent=2\n"
                            "clSetKernelArg=3\n"
                            "clWaitForEvents=3\n",
};

/* A batch recorded anew, of the same structure: plan, program and kernels are there. */
Test(counts, recording_the_same_again_makes_no_kernel)
{
    for (int w = 0; w < WORDS; w++) {
        kiln_context *context = open_counted_with(words[w]);
        for (int i = 0; i < 8; i++) {
            kiln_batch *first = record_eight(context);
            run_batch(first);
            kiln_batch_release(first);
        }
        kiln_context_stats before = stats_of(context);
        layer_reset();
        kiln_batch *second = record_eight(context);
        run_batch(second);
        expect_calls(calls_of_recording_again[context->runtime.host_mode]);
        kiln_context_stats after = stats_of(context);
        cr_expect_eq(after.plans_made, before.plans_made);
        cr_expect_eq(after.plans_reused, before.plans_reused + 1);
        kiln_batch_release(second);
        close_counted(context);
    }
}

/* ---- what is released ---- */

Test(counts, everything_made_is_released)
{
    kiln_context *context = open_counted(KILN_HOST_MEMORY_SEPARATE);
    kiln_buffer *buffer = make_buffer(context, N, a);
    kiln_batch *batch = record_three(context);
    kiln_event *event;
    void *mapping;
    expect_ok(kiln_export(batch, kiln_sqrt(batch, kiln_import(batch, buffer)), buffer));
    expect_ok(kiln_batch_submit(batch, &event));
    expect_ok(kiln_event_wait(event));
    expect_ok(kiln_buffer_map(buffer, &mapping));
    kiln_batch_release(batch);
    kiln_event_release(event);
    kiln_buffer_release(buffer); /* while mapped */
    static const char *const kinds[] = {"created.context", "created.queue",  "created.mem",
                                        "created.program", "created.kernel", "created.event"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        cr_expect_gt(layer_count(kinds[i]), 0u, "%s", kinds[i]);
    close_counted(context);
}

Test(counts, what_outlives_the_context_keeps_it_and_no_more)
{
    kiln_context *context = open_counted(KILN_HOST_MEMORY_SHARED);
    kiln_buffer *buffer = make_buffer(context, N, a);
    kiln_batch *batch = record_three(context);
    kiln_event *event;
    expect_ok(kiln_batch_submit(batch, &event));
    kiln_context_release(context);
    kiln_batch_release(batch);
    kiln_buffer_release(buffer);
    cr_expect_eq(layer_count("alive.context"), 1u);
    expect_ok(kiln_event_wait(event));
    kiln_event_release(event);
    cr_expect_eq(layer_count("alive"), 0u, "%s", layer_snapshot());
}

/* A call that fails leaves nothing behind, and the batch runs when tried again. */
static void expect_recovery(const char *call, kiln_status wanted)
{
    kiln_context *context = open_counted(KILN_HOST_MEMORY_SEPARATE);
    kiln_batch *batch = record_three(context);
    cr_assert(layer_fail_next(call, -5, KILN_LAYER_CALL));
    cr_expect_eq(kiln_batch_execute(batch), wanted, "%s", call);
    cr_expect_str_not_empty(kiln_last_error());
    cr_expect_eq(layer_failures(), 1u, "%s", call);
    layer_reset();
    run_batch(batch);
    for (size_t i = 0; i < N; i++)
        cr_assert_eq(z[i], (a[i] > 0 ? a[i] : 0) * 2 + b[i]);
    kiln_batch_release(batch);
    close_counted(context);
}

Test(counts, everything_is_released_after_an_error)
{
    expect_recovery("clBuildProgram", KILN_OUT_OF_DEVICE_MEMORY);
    expect_recovery("clCreateKernel", KILN_OUT_OF_DEVICE_MEMORY);
    expect_recovery("clSetKernelArg", KILN_OUT_OF_DEVICE_MEMORY);
    expect_recovery("clEnqueueNDRangeKernel", KILN_OUT_OF_DEVICE_MEMORY);
    expect_recovery("clEnqueueReadBuffer", KILN_OUT_OF_DEVICE_MEMORY);
    expect_recovery("clWaitForEvents", KILN_DEVICE_ERROR);
}

/* The caller's memory is borrowed until the run has ended, however that is found out. */
Test(counts, a_wait_that_fails_is_made_up_for)
{
    kiln_context *context = open_counted(KILN_HOST_MEMORY_SHARED);
    kiln_batch *batch = record_three(context);
    run_batch(batch);
    cr_assert(layer_fail_next("clWaitForEvents", -5, KILN_LAYER_CALL));
    cr_expect_eq(kiln_batch_execute(batch), KILN_DEVICE_ERROR);
    cr_expect_eq(layer_count("clFinish"), 1u);
    layer_reset();
    kiln_batch_release(batch);
    close_counted(context);
}
