/* SPDX-License-Identifier: Apache-2.0 */
/* The caller's memory in every form: at odd addresses, overlapping, of no bytes, read and written
 * in one batch. The results are the same however the device reaches it. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/opencl.h>

#include "../support/context.h"
#include "../support/layer.h"
#include "session/context.h"

enum { N = 1000 };

/* "shared" is what PoCL does by itself; "mapped" what drivers need that copy behind the scenes. */
static const char *const modes[] = {"shared", "mapped", "separate"};

/* Run a test in each mode, whatever the environment says. */
#define EACH_MODE(context)                                                                         \
    for (size_t mode = 0; mode < sizeof modes / sizeof *modes; mode++)                             \
        for (kiln_context *context = open_mode(mode); context; context = done(context))

/* Mesa's rusticl cannot unmap what is not mapped yet, as the mapped mode does; it never needs that
 * mode, because it works on the caller's memory at any time. */
static bool mode_exists(const kiln_context *context, size_t mode)
{
    kiln_device_info info;
    expect_ok(kiln_context_device(context, &info));
    return strcmp(modes[mode], "mapped") || strcmp(info.platform, "rusticl");
}

static kiln_context *done(kiln_context *context)
{
    close_context(context);
    return NULL;
}

static kiln_context *open_mode(size_t mode)
{
    setenv("KILN_HOST_MEMORY", modes[mode], 1);
    kiln_context *context = open_context();
    return mode_exists(context, mode) ? context : done(context);
}

static kiln_tensor upload(kiln_batch *batch, const void *data)
{
    return kiln_upload(batch, KILN_F32, 1, (size_t[]){N}, data);
}

/* ---- kiln's own ---- */

static void *free_it(void *argument)
{
    void **both = argument;
    return kiln_host_free(both[0], both[1]) ? both : NULL;
}

/* Made here, freed by another thread, after the program has let go of the context. */
Test(host_memory, of_kiln_is_used_as_any_other)
{
    EACH_MODE(context)
    {
        void *memory, *result = &memory;
        pthread_t thread;
        expect_ok(kiln_host_alloc(context, 4 * N + 8, &memory));
        cr_expect_eq((uintptr_t)memory % 64, 0u);
        cr_expect_eq(stats_of(context).host_bytes, 4u * N + 8);
        float *values = memory;
        kiln_batch *batch = kiln_batch_create(context);
        fill(values, N, (unsigned)mode);
        float first = values[2];
        expect_ok(kiln_read(batch, kiln_neg(batch, upload(batch, values + 2)), values, 4 * N));
        run_batch(batch);
        cr_expect_eq(values[0], -first, "%s", modes[mode]);
        kiln_batch_release(batch);
        void *both[] = {context, memory}; /* a literal would end with the assertion */
        cr_assert_eq(pthread_create(&thread, NULL, free_it, both), 0);
        pthread_join(thread, &result);
        cr_expect_null(result);
        cr_expect_eq(stats_of(context).host_bytes, 0u);
        expect_ok(kiln_host_alloc(context, 0, &memory));
        expect_ok(kiln_host_free(context, memory));
    }
}

Test(host_memory, of_kiln_that_cannot_be_made_or_freed)
{
    EACH_MODE(context)
    {
        void *memory = context;
        char text[200];
        expect_error(kiln_host_alloc(NULL, 8, &memory), KILN_INVALID_ARGUMENT,
                     "kiln_host_alloc: context is NULL");
        cr_expect_null(memory);
        expect_error(kiln_host_alloc(context, 8, NULL), KILN_INVALID_ARGUMENT,
                     "kiln_host_alloc: memory is NULL");
        memory = context;
        expect_error_part(kiln_host_alloc(context, SIZE_MAX / 2, &memory), KILN_OUT_OF_HOST_MEMORY,
                          "kiln_host_alloc: no 9223372036854775807 bytes of ");
        cr_expect_null(memory);
        expect_ok(kiln_host_free(NULL, NULL));
        expect_ok(kiln_host_free(context, NULL));
        expect_error(kiln_host_free(NULL, text), KILN_INVALID_ARGUMENT,
                     "kiln_host_free: context is NULL");
        expect_error_part(kiln_host_free(context, text), KILN_INVALID_ARGUMENT,
                          " is not the beginning of memory that kiln_host_alloc() of this context "
                          "gave");
        expect_ok(kiln_host_alloc(context, 8, &memory));
        expect_error_part(kiln_host_free(context, (char *)memory + 4), KILN_INVALID_ARGUMENT,
                          "kiln_host_free: ");
        expect_ok(kiln_host_free(context, memory));
        cr_expect_eq(kiln_host_free(context, memory), KILN_INVALID_ARGUMENT);
    }
}

/* A run that waits for `gate`, and whose end nobody can await because each call fails then. */
static kiln_batch *run_into_the_void(kiln_context *context, cl_event *gate, float *values)
{
    cl_context cl;
    cl_command_queue queue;
    cl_int code;
    kiln_event *event;
    kiln_batch *batch = kiln_batch_create(context);
    expect_ok(kiln_context_cl(context, &cl, NULL, &queue));
    *gate = clCreateUserEvent(cl, &code);
    cr_assert_eq(code, CL_SUCCESS);
    expect_ok(kiln_read(batch, kiln_neg(batch, upload(batch, values)), values + N, 4 * N));
    run_batch(batch);
    cr_assert_eq(clEnqueueBarrierWithWaitList(queue, 1, gate, NULL), CL_SUCCESS);
    values[N] = 77;
    expect_ok(kiln_batch_submit(batch, &event));
    cr_assert(layer_fail(1, NULL, -6, KILN_LAYER_FOREVER, KILN_LAYER_CALL));
    cr_expect_eq(kiln_event_wait(event), KILN_DEVICE_ERROR);
    kiln_event_release(event);
    return batch;
}

Test(host_memory, of_kiln_is_not_freed_under_a_run_whose_end_cannot_be_awaited)
{
    if (!layer_available())
        cr_skip("run with OPENCL_LAYERS=.../kiln-layer.so");
    for (size_t mode = 0; mode < sizeof modes / sizeof *modes; mode += 2) {
        kiln_context *context = open_mode(mode);
        void *memory;
        cl_event gate;
        expect_ok(kiln_host_alloc(context, 8 * N, &memory));
        float *values = memory;
        fill(values, N, 3);
        kiln_batch *batch = run_into_the_void(context, &gate, values);
        uint64_t pinned = layer_count("alive.mem");
        expect_ok(kiln_host_free(context, memory));
        cr_expect_eq(layer_count("alive.mem"), pinned, "%s", modes[mode]);
        layer_reset();
        cr_assert_eq(clSetUserEventStatus(gate, CL_COMPLETE), CL_SUCCESS);
        expect_ok(kiln_context_finish(context));
        cr_expect_eq(values[N], -values[0], "%s", modes[mode]);
        clReleaseEvent(gate);
        kiln_batch_release(batch);
        close_context(context);
        cr_expect_eq(layer_count("alive"), 0u, "%s", modes[mode]);
    }
}

/* ---- large pages ---- */

enum { MIB = 1 << 20 };

static void *host_of(kiln_buffer *buffer)
{
    void *host = NULL;
    cr_expect_eq(
        clGetMemObjectInfo(kiln_buffer_cl(buffer), CL_MEM_HOST_PTR, sizeof host, &host, NULL),
        CL_SUCCESS);
    return host;
}

static kiln_buffer *make_bytes(kiln_context *context, size_t bytes)
{
    kiln_buffer *buffer;
    expect_ok(kiln_buffer_create(context, KILN_U8, 1, &bytes, &buffer));
    return buffer;
}

Test(host_memory, of_many_bytes_lies_in_large_pages)
{
    kiln_context *context = open_context();
    bool live = context->runtime.device.traits->live_host_pointers;
    const size_t sizes[] = {MIB, 4 * MIB, 9 * MIB + 1};
    for (size_t i = 0; i < 3; i++) {
        void *own;
        kiln_buffer *buffer = make_bytes(context, sizes[i]);
        char *host = host_of(buffer);
        cr_expect_eq(host != NULL, live && sizes[i] >= 4 * MIB);
        cr_expect_eq((uintptr_t)host % (2 * MIB), 0u);
        kiln_buffer_release(buffer);
        expect_ok(kiln_host_alloc(context, sizes[i], &own));
        memset(own, 1, sizes[i]);
        cr_expect(!live || sizes[i] < 4 * MIB || (uintptr_t)own % (2 * MIB) == 0);
        expect_ok(kiln_host_free(context, own));
    }
    close_context(context);
}

/* In pages, of what the process has in memory. */
static long resident(void)
{
    long all = 0, here = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%ld %ld", &all, &here) != 2)
        here = 0;
    if (file)
        fclose(file);
    return here;
}

Test(host_memory, of_many_bytes_goes_with_its_buffer)
{
    static const char zeros[32 * MIB];
    kiln_context *context = open_context();
    long before = 0;
    for (int i = 0; i < 40; i++) { /* a sanitizer keeps some of what is freed */
        kiln_buffer *buffer = make_bytes(context, 32 * MIB);
        expect_ok(kiln_buffer_write(buffer, 0, zeros, sizeof zeros));
        kiln_buffer_release(buffer);
        before = i == 3 ? resident() : before;
    }
    cr_expect_lt(resident() - before, 12 * (32 * MIB / 4096), "%ld pages more",
                 resident() - before);
    close_context(context);
}

Test(host_memory, of_many_bytes_whose_end_no_driver_would_tell)
{
    if (!layer_available())
        cr_skip("run with OPENCL_LAYERS=.../kiln-layer.so");
    kiln_context *context = open_context();
    const size_t bytes = 4 * MIB;
    kiln_buffer *buffer;
    if (context->runtime.device.traits->live_host_pointers) {
        cr_assert(layer_fail(1, "clSetMemObjectDestructorCallback", -5, KILN_LAYER_FOREVER,
                             KILN_LAYER_CALL));
        cr_expect_neq(kiln_buffer_create(context, KILN_U8, 1, &bytes, &buffer), KILN_OK);
        cr_expect_gt(layer_failures(), 0u);
        layer_reset();
    }
    kiln_buffer_release(make_bytes(context, bytes));
    close_context(context);
}

/* ---- where it lies ---- */

Test(host_memory, may_lie_at_any_address)
{
    static char from[4 * N + 8], to[4 * N + 8];
    float values[N], results[N];
    EACH_MODE(context)
    {
        kiln_batch *batch = kiln_batch_create(context);
        fill(values, N, (unsigned)mode);
        memset(to, 77, sizeof to);
        memcpy(from + 1, values, sizeof values);
        expect_ok(kiln_read(batch, kiln_neg(batch, upload(batch, from + 1)), to + 3, 4 * N));
        for (int run = 0; run < 3; run++) {
            run_batch(batch);
            memcpy(results, to + 3, sizeof results);
            for (int i = 0; i < N; i++)
                cr_assert_eq(results[i], -values[i], "%s: element %d", modes[mode], i);
            cr_assert(to[2] == 77 && to[4 * N + 3] == 77, "%s: written beside", modes[mode]);
        }
        kiln_batch_release(batch);
    }
}

/* Aligned for f32 but not for a vector of them. */
Test(host_memory, may_lie_at_any_element)
{
    static _Alignas(128) float from[N + 40], to[N + 40];
    EACH_MODE(context)
    {
        for (int at = 1; at < 32; at *= 2) {
            kiln_batch *batch = kiln_batch_create(context);
            fill(from, N + 40, (unsigned)at);
            memset(to, 0, sizeof to);
            expect_ok(
                kiln_read(batch, kiln_neg(batch, upload(batch, from + at)), to + at + 1, 4 * N));
            run_batch(batch);
            for (int i = 0; i < N; i++)
                cr_assert_eq(to[at + 1 + i], -from[at + i], "%s: at %d", modes[mode], at);
            cr_assert(to[at] == 0 && to[at + 1 + N] == 0, "%s: written beside", modes[mode]);
            kiln_batch_release(batch);
        }
    }
}

Test(host_memory, may_be_uploaded_and_read_into_by_one_batch)
{
    static float place[N + 1], before[N + 1];
    EACH_MODE(context)
    {
        kiln_batch *batch = kiln_batch_create(context);
        kiln_tensor x = upload(batch, place);
        kiln_tensor turned =
            kiln_slice(batch, x, (int64_t[]){N - 1}, (int64_t[]){-1}, (int64_t[]){-1});
        expect_ok(kiln_read(batch, kiln_neg(batch, turned), place, 4 * N));
        for (int run = 0; run < 3; run++) {
            fill(place, N, (unsigned)run);
            memcpy(before, place, sizeof before);
            run_batch(batch);
            for (int i = 0; i < N; i++)
                cr_assert_eq(place[i], -before[N - 1 - i], "%s: run %d", modes[mode], run);
        }
        kiln_batch_release(batch);
    }
}

Test(host_memory, may_overlap_what_is_uploaded)
{
    static float place[2 * N], before[2 * N];
    EACH_MODE(context)
    {
        kiln_batch *batch = kiln_batch_create(context);
        fill(place, 2 * N, 5);
        memcpy(before, place, sizeof before);
        expect_ok(kiln_read(batch, kiln_neg(batch, upload(batch, place)), place + N / 2, 4 * N));
        run_batch(batch);
        for (int i = 0; i < N; i++)
            cr_assert_eq(place[N / 2 + i], -before[i], "%s: element %d", modes[mode], i);
        kiln_batch_release(batch);
    }
}

/* The part that both write holds one of the two; each element comes whole. */
Test(host_memory, may_take_two_results_that_overlap)
{
    static float values[N], place[2 * N];
    EACH_MODE(context)
    {
        kiln_batch *batch = kiln_batch_create(context);
        fill(values, N, 6);
        kiln_tensor x = upload(batch, values);
        expect_ok(kiln_read(batch, kiln_neg(batch, x), place, 4 * N));
        expect_ok(kiln_read(batch, kiln_square(batch, x), place + N / 2, 4 * N));
        run_batch(batch);
        for (int i = 0; i < N / 2; i++) {
            float first = -values[N / 2 + i], second = values[i] * values[i];
            cr_assert_eq(place[i], -values[i], "%s", modes[mode]);
            cr_assert(place[N / 2 + i] == first || place[N / 2 + i] == second, "%s", modes[mode]);
            cr_assert_eq(place[N + i], values[N / 2 + i] * values[N / 2 + i], "%s", modes[mode]);
        }
        kiln_batch_release(batch);
    }
}

/* The first result is there before the second one's input is looked at. */
Test(host_memory, may_be_overwritten_only_after_its_last_use)
{
    static float first[N], second[N], before[N], copy[N], squares[N];
    EACH_MODE(context)
    {
        kiln_batch *batch = kiln_batch_create(context);
        fill(first, N, 1);
        fill(second, N, 2);
        memcpy(before, second, sizeof before);
        kiln_tensor negative = kiln_neg(batch, upload(batch, first));
        expect_ok(kiln_read(batch, negative, copy, sizeof copy));
        expect_ok(kiln_read(batch, negative, second, sizeof second));
        expect_ok(
            kiln_read(batch, kiln_square(batch, upload(batch, second)), squares, sizeof squares));
        run_batch(batch);
        for (int i = 0; i < N; i++) {
            cr_assert_eq(second[i], -first[i], "%s", modes[mode]);
            cr_assert_eq(copy[i], -first[i], "%s", modes[mode]);
            cr_assert_eq(squares[i], before[i] * before[i], "%s", modes[mode]);
        }
        kiln_batch_release(batch);
    }
}

Test(host_memory, may_be_uploaded_twice)
{
    static float values[N], result[N];
    EACH_MODE(context)
    {
        kiln_batch *batch = kiln_batch_create(context);
        fill(values, N, 8);
        kiln_tensor x = upload(batch, values), y = upload(batch, values);
        expect_ok(kiln_read(batch, kiln_mul(batch, x, y), result, sizeof result));
        run_batch(batch);
        for (int i = 0; i < N; i++)
            cr_assert_eq(result[i], values[i] * values[i], "%s", modes[mode]);
        kiln_batch_release(batch);
    }
}

Test(host_memory, of_no_bytes_may_be_null)
{
    static const size_t none[] = {0, 3};
    float sums[3] = {7, 7, 7};
    EACH_MODE(context)
    {
        kiln_batch *batch = kiln_batch_create(context);
        kiln_tensor x = kiln_upload(batch, KILN_F32, 2, none, NULL);
        kiln_tensor y = kiln_exp(batch, x);
        expect_ok(kiln_read(batch, y, NULL, 0));
        expect_ok(kiln_read(batch, x, NULL, 0));
        expect_ok(kiln_read(batch, kiln_sum(batch, y, 1, (int[]){0}, 0), sums, sizeof sums));
        run_batch(batch);
        cr_expect(sums[0] == 0 && sums[1] == 0 && sums[2] == 0, "%s", modes[mode]);
        kiln_batch_release(batch);
    }
}

Test(host_memory, may_move_while_the_batch_stays)
{
    enum { PLACES = 4 };
    static float values[PLACES][N + 1], results[PLACES][N + 1];
    EACH_MODE(context)
    {
        kiln_batch *batch = kiln_batch_create(context);
        kiln_tensor x = upload(batch, values[0]), y = kiln_neg(batch, x);
        expect_ok(kiln_read(batch, y, results[0], 4 * N));
        for (int run = 0; run < 3 * PLACES; run++) {
            int at = run % PLACES;
            fill(values[at], N, (unsigned)run);
            expect_ok(kiln_rebind_upload(batch, x, values[at]));
            expect_ok(kiln_rebind_read(batch, 0, results[at], 4 * N));
            run_batch(batch);
            for (int i = 0; i < N; i++)
                cr_assert_eq(results[at][i], -values[at][i], "%s: run %d", modes[mode], run);
        }
        kiln_batch_release(batch);
    }
}

/* Small types in vectors of many. */
Test(host_memory, of_bytes_may_lie_at_any_address)
{
    static uint8_t from[N + 64], to[N + 64];
    EACH_MODE(context)
    {
        kiln_batch *batch = kiln_batch_create(context);
        for (int i = 0; i < N + 64; i++)
            from[i] = (uint8_t)(i * 7);
        kiln_tensor x = kiln_upload(batch, KILN_U8, 1, (size_t[]){N}, from + 13);
        kiln_tensor y = kiln_maximum(batch, x, kiln_constant(batch, KILN_U8, 100));
        expect_ok(kiln_read(batch, y, to + 3, N));
        run_batch(batch);
        for (int i = 0; i < N; i++)
            cr_assert_eq(to[3 + i], from[13 + i] > 100 ? from[13 + i] : 100, "%s", modes[mode]);
        kiln_batch_release(batch);
    }
}

Test(host_memory, of_an_unknown_kind_is_an_error)
{
    kiln_context *context;
    size_t devices = 0;
    if (kiln_device_count(&devices) || !devices)
        cr_skip("no OpenCL device here");
    setenv("KILN_HOST_MEMORY", "sharde", 1);
    expect_error(kiln_context_create(NULL, &context), KILN_INVALID_ARGUMENT,
                 "kiln_context_create: KILN_HOST_MEMORY is \"sharde\", none of shared, separate, "
                 "mapped");
    cr_expect_null(context);
}
