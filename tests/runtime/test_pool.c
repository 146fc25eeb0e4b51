/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory: how much of it pools and buffers take, and what happens where there is no more. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "../support/context.h"
#include "../support/layer.h"
#include "runtime/executable.h"
#include "session/context.h"

enum { KIB = 1 << 10, MIB = 1 << 20 };

static kiln_context *open_limited(uint64_t limit)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.memory_limit = limit;
    return open_context_with(&options);
}

/* The device has no more than that. */
static kiln_context *open_small(uint64_t bytes)
{
    kiln_context *context = open_context();
    struct kiln__budget *budget = &context->runtime.memory;
    budget->device_memory = budget->limit = bytes;
    return context;
}

static cl_mem take(kiln_context *context, size_t bytes)
{
    cl_mem memory;
    expect_ok(kiln__pool_take(context->runtime.compute->pool, bytes, &memory, NULL));
    return memory;
}

static void give(kiln_context *context, cl_mem memory)
{
    kiln__pool_give(context->runtime.compute->pool, memory);
}

static kiln_status make(kiln_context *context, size_t bytes, kiln_buffer **buffer)
{
    return kiln_buffer_create(context, KILN_U8, 1, &bytes, buffer);
}

Test(pool, adds_an_eighth_at_most)
{
    kiln_context *context = open_context();
    for (size_t bytes = 1; bytes < 64 * MIB; bytes += 1 + bytes / 7) {
        cl_mem memory = take(context, bytes);
        uint64_t held = stats_of(context).pool_bytes;
        cr_expect_geq(held, bytes);
        cr_expect(held <= 4096 || held <= bytes + bytes / 8, "%zu of %zu bytes", (size_t)held,
                  bytes);
        give(context, memory);
        expect_ok(kiln_context_trim(context));
    }
    close_context(context);
}

Test(pool, gives_neighbours_the_same_memory)
{
    kiln_context *context = open_context();
    cl_mem memory = take(context, 1000 * KIB);
    give(context, memory);
    cr_expect_eq(take(context, 1010 * KIB), memory);
    cl_mem other = take(context, 1000 * KIB);
    cr_expect_neq(other, memory);
    give(context, memory);
    give(context, other);
    cr_expect_neq(take(context, 700 * KIB), memory);
    close_context(context);
}

/* One after the other, from small to large and back: nobody is in anybody's way. */
Test(pool, lets_runs_of_many_shapes_share_the_largest)
{
    kiln_context *context = open_context();
    for (size_t bytes = MIB; bytes < 16 * MIB; bytes += bytes / 3)
        give(context, take(context, bytes));
    uint64_t held = stats_of(context).pool_bytes;
    cr_expect_lt(held, 18 * MIB);
    for (size_t bytes = 12 * MIB; bytes >= MIB; bytes -= bytes / 3)
        give(context, take(context, bytes));
    cr_expect_eq(stats_of(context).pool_bytes, held);
    cl_mem memory = take(context, 512 * KIB); /* a small one leaves it for others */
    give(context, take(context, 12 * MIB));
    cr_expect_lt(stats_of(context).pool_bytes, held + MIB);
    give(context, memory);
    close_context(context);
}

/* Only what is large makes room for what is larger. */
Test(pool, keeps_what_is_small_for_who_comes_again)
{
    kiln_context *context = open_context();
    cl_mem memory = take(context, 8 * KIB);
    give(context, memory);
    give(context, take(context, 2 * MIB));
    give(context, take(context, 4 * MIB));
    cr_expect_eq(stats_of(context).pool_bytes, 4 * MIB + 8 * KIB);
    cr_expect_eq(take(context, 8 * KIB), memory);
    give(context, memory);
    close_context(context);
}

enum { TURNS = 500 };

static void *take_turns(void *context)
{
    struct kiln__pool *pool = ((kiln_context *)context)->runtime.compute->pool;
    uintptr_t failed = 0;
    for (size_t i = 0; i < TURNS; i++) {
        cl_mem memory;
        failed += kiln__pool_take_turn(pool, 4 * MIB - i % 3 * MIB, &memory, NULL) != KILN_OK;
        sched_yield();
        kiln__pool_give(pool, memory);
    }
    return (void *)failed;
}

/* Runs of several threads that are enqueued into one queue need no more than the largest of them.
 */
Test(pool, is_large_once_for_runs_that_follow_each_other)
{
    enum { COUNT = 4 };
    kiln_context *context = open_context();
    pthread_t threads[COUNT];
    for (int i = 0; i < COUNT; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, take_turns, context), 0);
    for (int i = 0; i < COUNT; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        cr_expect_null(failed);
    }
    cr_expect_eq(stats_of(context).pool_bytes, 4 * MIB);
    close_context(context);
}

/* Who found no memory leaves the turn to the next. */
Test(pool, has_a_turn_after_one_that_failed)
{
    kiln_context *context = open_limited(2 * MIB);
    struct kiln__pool *pool = context->runtime.compute->pool;
    cl_mem memory;
    expect_error_part(kiln__pool_take_turn(pool, 3 * MIB, &memory, NULL), KILN_OUT_OF_DEVICE_MEMORY,
                      "kiln: no 3145728 bytes of device memory");
    for (int i = 0; i < 2; i++) {
        expect_ok(kiln__pool_take_turn(pool, 2 * MIB, &memory, NULL));
        kiln__pool_give(pool, memory);
    }
    close_context(context);
}

/* ---- batches that wait ---- */

enum { SIDE = 64 };

/* Its first product is in the arena. */
static kiln_batch *record_two_products(kiln_context *context, float *x, float *y)
{
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor a = kiln_upload(batch, KILN_F32, 2, (size_t[]){SIDE, SIDE}, x);
    expect_ok(kiln_read(batch, kiln_matmul(batch, kiln_matmul(batch, a, a), a), y,
                        SIDE * SIDE * sizeof *y));
    return batch;
}

Test(pool, memory_is_not_held_by_a_batch_that_waits)
{
    static float x[SIDE * SIDE], y[SIDE * SIDE], first[SIDE * SIDE];
    kiln_context *context = open_context();
    fill(x, SIDE * SIDE, 1);
    kiln_batch *batch = record_two_products(context, x, y);
    run_batch(batch);
    memcpy(first, y, sizeof y);
    cl_mem arena = take(context, stats_of(context).pool_bytes);
    cl_uint references = 0;
    cr_expect_eq(
        clGetMemObjectInfo(arena, CL_MEM_REFERENCE_COUNT, sizeof references, &references, NULL),
        CL_SUCCESS);
    /* Mesa's rusticl retains memory in clSetKernelArg, which the specification forbids: 100 kernels
     * with one buffer as argument make 101 references of it there, and 1 on PoCL. */
    bool kernels_hold = !strcmp(context->runtime.device.info.platform, "rusticl");
    cr_expect(references == 1 || kernels_hold, "%u references", references);
    give(context, arena);
    expect_ok(kiln_context_trim(context));
    memset(y, 0, sizeof y);
    run_batch(batch);
    cr_expect_arr_eq(y, first, sizeof y);
    kiln_batch_release(batch);
    close_context(context);
}

/* How often four runs of a batch set kernels' arguments; between the second and the third `happens`
 * to it. */
static void count_arguments(void (*happens)(kiln_batch *batch), uint64_t counts[4])
{
    static float x[SIDE * SIDE], y[SIDE * SIDE];
    kiln_context *context = open_context();
    kiln_batch *batch = record_two_products(context, x, y);
    for (int i = 0; i < 4; i++) {
        if (i == 2)
            happens(batch);
        layer_reset();
        run_batch(batch);
        counts[i] = layer_count("clSetKernelArg");
    }
    kiln_batch_release(batch);
    close_context(context);
}

static void count_a_release(kiln_batch *batch)
{
    atomic_fetch_add(&batch->context->runtime.memory.releases, 1);
}

static void rest(kiln_batch *batch)
{
    kiln__executable_unbind(batch->lease.executable);
}

/* What comes after a release may have the released object's address; who rests holds none. */
Test(pool, memory_is_bound_again_after_a_release_and_a_rest)
{
    static void (*const happen[])(kiln_batch *) = {count_a_release, rest};
    if (!layer_available())
        cr_skip("run with OPENCL_LAYERS=.../kiln-layer.so");
    for (size_t i = 0; i < sizeof happen / sizeof *happen; i++) {
        uint64_t counts[4];
        count_arguments(happen[i], counts);
        cr_expect_gt(counts[0], 0u);
        cr_expect_eq(counts[1], 0u);
        cr_expect_gt(counts[2], 0u);
        cr_expect_eq(counts[3], 0u);
    }
}

Test(pool, refuses_nothing_that_fits_exactly)
{
    enum { LIMIT = 7777777 };
    kiln_context *context = open_limited(LIMIT);
    cl_mem memory;
    expect_error(kiln__pool_take(context->runtime.compute->pool, LIMIT + 1, &memory, NULL),
                 KILN_OUT_OF_DEVICE_MEMORY,
                 "kiln: no 7777778 bytes of device memory (CL_MEM_OBJECT_ALLOCATION_FAILURE); the "
                 "pool's limit has 7777777, the pool holds 0, buffers 0, free are 7777777");
    memory = take(context, LIMIT);
    cr_expect_eq(stats_of(context).pool_bytes, LIMIT);
    give(context, memory);
    cr_expect_eq(take(context, LIMIT - 10), memory); /* though it is of no bin's size */
    give(context, memory);
    memory = take(context, LIMIT / 2);
    cr_expect_leq(stats_of(context).pool_bytes, LIMIT);
    give(context, memory);
    close_context(context);
}

Test(pool, counts_with_what_buffers_have)
{
    kiln_context *context = open_small(10 * MIB);
    kiln_buffer *buffers[2];
    cl_mem memory;
    expect_ok(make(context, 6 * MIB, &buffers[0]));
    expect_error_part(kiln__pool_take(context->runtime.compute->pool, 5 * MIB, &memory, NULL),
                      KILN_OUT_OF_DEVICE_MEMORY,
                      "the device has 10485760, the pool holds 0, buffers 6291456, free are "
                      "4194304");
    memory = take(context, 3 * MIB);
    expect_error(make(context, 2 * MIB, &buffers[1]), KILN_OUT_OF_DEVICE_MEMORY,
                 "kiln_buffer_create: no 2097152 bytes of device memory "
                 "(CL_MEM_OBJECT_ALLOCATION_FAILURE); the device has 10485760, the pool holds "
                 "3145728, buffers 6291456, free are 1048576");
    cr_expect_null(buffers[1]);
    kiln_buffer_release(buffers[0]);
    expect_ok(make(context, 7 * MIB, &buffers[0]));
    cr_expect_eq(stats_of(context).pool_bytes, 3 * MIB);
    give(context, memory);
    kiln_buffer_release(buffers[0]);
    close_context(context);
}

Test(pool, gives_idle_memory_back_for_a_buffer)
{
    kiln_context *context = open_small(10 * MIB);
    kiln_buffer *buffer;
    context->runtime.memory.device_memory = 64 * MIB; /* so much may be idle */
    give(context, take(context, 7 * MIB));
    cr_expect_eq(stats_of(context).pool_bytes, 7 * MIB);
    context->runtime.memory.device_memory = 10 * MIB;
    expect_ok(make(context, 10 * MIB, &buffer));
    cr_expect_eq(stats_of(context).pool_bytes, 0);
    kiln_buffer_release(buffer);
    close_context(context);
}

/* A driver may say no where there seems to be room: it is asked once more when there is more. */
Test(pool, asks_the_driver_again_when_it_has_trimmed)
{
    kiln_context *context = open_context();
    kiln_buffer *buffer;
    cl_mem memory;
    if (!layer_available())
        cr_skip("run with OPENCL_LAYERS=.../kiln-layer.so");
    give(context, take(context, MIB));
    layer_fail_next("clCreateBuffer", -4, KILN_LAYER_CALL);
    expect_ok(make(context, MIB, &buffer));
    cr_expect_eq(layer_failures(), 1u);
    cr_expect_eq(stats_of(context).pool_bytes, 0);
    layer_reset();
    layer_fail(1, "clCreateBuffer", -4, KILN_LAYER_FOREVER, KILN_LAYER_CALL);
    kiln_buffer *none;
    expect_error_part(make(context, MIB, &none), KILN_OUT_OF_DEVICE_MEMORY,
                      "kiln_buffer_create: no 1048576 bytes of device memory "
                      "(CL_MEM_OBJECT_ALLOCATION_FAILURE); the device has ");
    cr_expect_eq(layer_count("clCreateBuffer"), 2u);
    expect_error_part(kiln__pool_take(context->runtime.compute->pool, MIB, &memory, NULL),
                      KILN_OUT_OF_DEVICE_MEMORY, "kiln: no 1048576 bytes of device memory ");
    layer_reset();
    kiln_buffer_release(buffer);
    expect_ok(make(context, MIB, &buffer));
    kiln_buffer_release(buffer);
    close_context(context);
    cr_expect_eq(layer_count("alive"), 0u, "%s", layer_snapshot());
}

/* A driver that promises any amount is asked for it in earnest when a buffer is made. */
Test(pool, finds_out_at_once_that_a_promise_is_empty)
{
    kiln_context *context = open_context();
    kiln_buffer *buffer;
    if (!layer_available())
        cr_skip("run with OPENCL_LAYERS=.../kiln-layer.so");
    cl_command_queue own = context->runtime.memory.touches;
    context->runtime.memory.touches = context->runtime.compute->queue;
    layer_reset();
    expect_ok(make(context, MIB, &buffer));
    kiln_buffer_release(buffer);
    cr_expect_eq(layer_count("clEnqueueMigrateMemObjects"), 1u);
    cr_expect_eq(layer_count("clFinish"), 1u, "another queue may have used it meanwhile");
    layer_fail(1, "clEnqueueMigrateMemObjects", -4, KILN_LAYER_FOREVER, KILN_LAYER_CALL);
    expect_error_part(make(context, MIB, &buffer), KILN_OUT_OF_DEVICE_MEMORY,
                      "kiln_buffer_create: no 1048576 bytes of device memory "
                      "(CL_MEM_OBJECT_ALLOCATION_FAILURE); the device has ");
    cr_expect_eq(layer_failures(), 2u); /* once more when there is room */
    layer_reset();
    cr_expect_eq(atomic_load(&context->runtime.memory.buffers), 0u);
    context->runtime.memory.touches = own;
    close_context(context);
    cr_expect_eq(layer_count("alive"), 0u, "%s", layer_snapshot());
}

/* ---- threads ---- */

enum { THREADS = 4 };

static void *make_and_release(void *context)
{
    uintptr_t refused = 0;
    for (int i = 0; i < 50; i++) {
        kiln_buffer *buffer;
        refused += make(context, 2 * MIB, &buffer) != KILN_OK;
        kiln_buffer_release(buffer);
    }
    return (void *)refused;
}

/* There is room for all of them: none is refused for what another has asked for in vain. */
Test(pool, has_room_for_each_thread_that_there_is_room_for)
{
    kiln_context *context = open_small(2 * THREADS * MIB);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, make_and_release, context), 0);
    for (int i = 0; i < THREADS; i++) {
        void *refused;
        pthread_join(threads[i], &refused);
        cr_expect_null(refused);
    }
    cr_expect_eq(atomic_load(&context->runtime.memory.buffers), 0u);
    close_context(context);
}
