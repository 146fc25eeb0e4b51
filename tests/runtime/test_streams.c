/* SPDX-License-Identifier: Apache-2.0 */
/* Two streams of one context: what one of them does with a buffer waits for what the other one has
 * begun, and for nothing else. An event of our own holds a stream back until it is let go. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <kiln/opencl.h>

#include "../support/context.h"
#include "runtime/commands.h"
#include "session/context.h"

enum { N = 1000 };

static float ones[N], twos[N];

struct world {
    kiln_context *context;
    struct kiln__stream *first, *second;
    kiln_buffer *buffer; /* of ones */
    cl_event held;
};

static struct world open_world(void)
{
    struct world world = {.context = open_context()};
    for (int i = 0; i < N; i++) {
        ones[i] = 1;
        twos[i] = 2;
    }
    world.first = world.context->runtime.compute;
    expect_ok(kiln__stream_create(&world.context->runtime, NULL, &world.second, NULL));
    world.buffer = make_buffer(world.context, N, ones);
    return world;
}

static void close_world(struct world *world)
{
    kiln_buffer_release(world->buffer);
    close_context(world->context);
}

/* Nothing that is enqueued from now on begins before let_go(). */
static void hold(struct world *world, struct kiln__stream *stream)
{
    cl_int code;
    world->held = clCreateUserEvent(world->context->runtime.context, &code);
    cr_assert_eq(code, CL_SUCCESS);
    cr_assert_eq(clEnqueueBarrierWithWaitList(stream->queue, 1, &world->held, NULL), CL_SUCCESS);
}

static void let_go(struct world *world)
{
    cr_assert_eq(clSetUserEventStatus(world->held, CL_COMPLETE), CL_SUCCESS);
    clReleaseEvent(world->held);
}

static struct kiln__run *run_in(struct kiln__stream *stream, kiln_batch *batch)
{
    struct kiln__run *run;
    cost_of(batch); /* leases an executable */
    expect_ok(kiln__commands_run(batch->lease.executable, stream, &batch->bindings, &run, NULL));
    return run;
}

static void expect_end(struct kiln__run *run, bool ended)
{
    cr_expect_eq(kiln__run_poll(run, "test", NULL), ended ? KILN_OK : KILN_NOT_READY);
}

static void finish(struct kiln__run *run)
{
    expect_ok(kiln__run_await(run, "test", NULL));
    kiln__run_release(run);
}

/* Doubles the buffer, or reads it to `to`. */
static kiln_batch *record(struct world *world, float *to)
{
    kiln_batch *batch = kiln_batch_create(world->context);
    kiln_tensor x = kiln_import(batch, world->buffer);
    if (to)
        expect_ok(kiln_read(batch, kiln_neg(batch, x), to, N * sizeof *to));
    else
        expect_ok(kiln_export(batch, kiln_add(batch, x, x), world->buffer));
    return batch;
}

static size_t waits(struct world *world, const struct kiln__stream *stream, bool writes)
{
    struct kiln__events events = {0};
    expect_ok(kiln__buffer_enter(world->buffer, stream, writes, &events, NULL));
    kiln__buffer_leave(world->buffer, NULL, writes);
    size_t count = events.count;
    kiln__events_free(&events);
    return count;
}

Test(streams, read_what_another_one_writes)
{
    static float read[N];
    struct world world = open_world();
    kiln_batch *doubling = record(&world, NULL), *reading = record(&world, read);
    hold(&world, world.first);
    struct kiln__run *written = run_in(world.first, doubling);
    struct kiln__run *reader = run_in(world.second, reading);
    expect_end(written, false);
    expect_end(reader, false);
    let_go(&world);
    finish(reader);
    finish(written);
    for (int i = 0; i < N; i++)
        cr_assert_eq(read[i], -2.0f);
    kiln_batch_release(doubling);
    kiln_batch_release(reading);
    close_world(&world);
}

Test(streams, write_after_another_one_has_read)
{
    static float read[N];
    struct world world = open_world();
    kiln_batch *doubling = record(&world, NULL), *reading = record(&world, read);
    hold(&world, world.second);
    struct kiln__run *reader = run_in(world.second, reading);
    struct kiln__run *written = run_in(world.first, doubling);
    expect_end(reader, false);
    expect_end(written, false);
    let_go(&world);
    finish(written);
    finish(reader);
    for (int i = 0; i < N; i++)
        cr_assert_eq(read[i], -1.0f);
    expect_buffer(world.buffer, N, twos);
    kiln_batch_release(doubling);
    kiln_batch_release(reading);
    close_world(&world);
}

Test(streams, do_not_wait_where_both_read)
{
    static float read[2][N];
    struct world world = open_world();
    kiln_batch *readings[] = {record(&world, read[0]), record(&world, read[1])};
    hold(&world, world.first);
    struct kiln__run *runs[] = {run_in(world.first, readings[0]),
                                run_in(world.second, readings[1])};
    finish(runs[1]);
    expect_end(runs[0], false);
    let_go(&world);
    finish(runs[0]);
    for (int i = 0; i < 2; i++)
        kiln_batch_release(readings[i]);
    close_world(&world);
}

Test(streams, wait_for_the_last_of_each_other_one)
{
    static float read[N];
    struct world world = open_world();
    kiln_batch *doubling = record(&world, NULL), *reading = record(&world, read);
    cr_expect_eq(waits(&world, world.second, true), 1); /* who wrote the ones */
    for (int i = 0; i < 3; i++)
        finish(run_in(world.first, doubling));
    cr_expect_eq(waits(&world, world.first, true), 0);
    cr_expect_eq(waits(&world, world.second, false), 1); /* the writer */
    for (int i = 0; i < 3; i++)
        finish(run_in(world.first, reading));
    cr_expect_eq(waits(&world, world.second, false), 1);
    cr_expect_eq(waits(&world, world.second, true), 2); /* and the last reader */
    finish(run_in(world.second, doubling));
    cr_expect_eq(waits(&world, world.second, true), 0);
    cr_expect_eq(waits(&world, world.first, true), 1);
    kiln_batch_release(doubling);
    kiln_batch_release(reading);
    close_world(&world);
}

/* Whoever of two threads leaves last is noted, be his commands the first of the queue. */
Test(streams, wait_for_all_readers_that_overlapped)
{
    static float read[N];
    struct world world = open_world();
    kiln_batch *doubling = record(&world, NULL), *reading = record(&world, read);
    struct kiln__run *over = run_in(world.first, reading);
    expect_ok(kiln__run_await(over, "test", NULL));
    hold(&world, world.first);
    struct kiln__run *reader = run_in(world.first, reading);
    struct kiln__events events = {0};
    for (int i = 0; i < 2; i++)
        expect_ok(kiln__buffer_enter(world.buffer, world.first, false, &events, NULL));
    kiln__buffer_leave(world.buffer, reader, false);
    kiln__buffer_leave(world.buffer, over, false);
    struct kiln__run *written = run_in(world.second, doubling);
    for (int i = 0; i < 100; i++, usleep(1000))
        expect_end(written, false);
    let_go(&world);
    finish(reader);
    finish(written);
    finish(over);
    cr_expect_eq(read[0], -1.0f);
    cr_expect_eq(waits(&world, world.second, true), 0); /* they are forgotten */
    expect_buffer(world.buffer, N, twos);
    kiln__events_free(&events);
    kiln_batch_release(doubling);
    kiln_batch_release(reading);
    close_world(&world);
}

Test(streams, are_waited_for_by_calls_of_a_buffer)
{
    static const float zeros[N];
    static float read[N];
    struct world world = open_world();
    kiln_batch *doubling = record(&world, NULL), *reading = record(&world, read);
    hold(&world, world.second);
    struct kiln__run *reader = run_in(world.second, reading);
    expect_ok(kiln__buffer_clear(world.buffer, "test"));
    expect_end(world.buffer->writer, false);
    let_go(&world);
    finish(reader);
    for (int i = 0; i < N; i++)
        cr_assert_eq(read[i], -1.0f);
    expect_buffer(world.buffer, N, zeros);
    expect_ok(kiln_buffer_write(world.buffer, 0, ones, sizeof ones));
    struct kiln__run *written = run_in(world.second, doubling);
    expect_buffer(world.buffer, N, twos); /* waits for it in the first stream */
    finish(written);
    kiln_batch_release(doubling);
    kiln_batch_release(reading);
    close_world(&world);
}

/* Each has memory of its own for what lies between its kernels. */
Test(streams, share_no_pool)
{
    struct world world = open_world();
    kiln_context_stats before = stats_of(world.context);
    cl_mem memory[2];
    expect_ok(kiln__pool_take(world.first->pool, 1 << 20, &memory[0], NULL));
    kiln__pool_give(world.first->pool, memory[0]);
    expect_ok(kiln__pool_take(world.second->pool, 1 << 20, &memory[1], NULL));
    cr_expect_neq(memory[0], memory[1]);
    kiln__pool_give(world.second->pool, memory[1]);
    cr_expect_eq(stats_of(world.context).pool_bytes, before.pool_bytes + (2 << 20));
    expect_ok(kiln_context_trim(world.context));
    cr_expect_eq(stats_of(world.context).pool_bytes, 0);
    close_world(&world);
}

/* ---- threads that submit at the same moment ---- */

enum { THREADS = 4, ROUNDS = 60, WIDE = 64 };

struct adder {
    struct world *world;
    struct kiln__stream *stream;
    kiln_batch *batch;
};

static pthread_barrier_t together;
static atomic_int failed; /* Criterion's assertions are for the test's own thread */

static void *add_again_and_again(void *argument)
{
    struct adder *adder = argument;
    struct kiln__run *run;
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&together);
        if (kiln__commands_run(adder->batch->lease.executable, adder->stream,
                               &adder->batch->bindings, &run, NULL)) {
            atomic_fetch_add(&failed, 1);
            continue;
        }
        atomic_fetch_add(&failed, kiln__run_await(run, "test", NULL) != KILN_OK);
        kiln__run_release(run);
    }
    return NULL;
}

/* buffer = buffer @ 1 + 1: the product is in the pool's memory before it is copied to the buffer.
 */
static kiln_batch *record_adding(struct world *world, kiln_buffer *buffer, const float *identity)
{
    kiln_batch *batch = kiln_batch_create(world->context);
    kiln_tensor x = kiln_import(batch, buffer);
    kiln_tensor one = kiln_upload(batch, KILN_F32, 2, (size_t[]){WIDE, WIDE}, identity);
    kiln_tensor sum =
        kiln_add(batch, kiln_matmul(batch, x, one), kiln_constant(batch, KILN_F32, 1));
    expect_ok(kiln_export(batch, sum, buffer));
    cost_of(batch); /* leases an executable */
    return batch;
}

/* Each adds to what another has left, none overlooks another: in two streams, and in one, where the
 * commands of two runs must not mix. */
Test(streams, take_turns_where_threads_write_the_same_buffer)
{
    static float identity[WIDE * WIDE], content[WIDE * WIDE];
    struct world world = open_world();
    struct adder adders[THREADS];
    pthread_t threads[THREADS];
    kiln_buffer *buffer;
    expect_ok(kiln_buffer_create(world.context, KILN_F32, 2, (size_t[]){WIDE, WIDE}, &buffer));
    expect_ok(kiln_buffer_write(buffer, 0, content, sizeof content));
    for (int i = 0; i < WIDE; i++)
        identity[i * WIDE + i] = 1;
    pthread_barrier_init(&together, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        adders[i] = (struct adder){&world, i % 2 ? world.first : world.second,
                                   record_adding(&world, buffer, identity)};
    for (int i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, add_again_and_again, &adders[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    cr_expect_eq(failed, 0);
    expect_ok(kiln_buffer_read(buffer, 0, content, sizeof content));
    for (int i = 0; i < WIDE * WIDE; i++)
        cr_assert_eq(content[i], (float)(THREADS * ROUNDS), "%g", (double)content[i]);
    for (int i = 0; i < THREADS; i++)
        kiln_batch_release(adders[i].batch);
    pthread_barrier_destroy(&together);
    kiln_buffer_release(buffer);
    close_world(&world);
}

/* ---- batches that run apart, on a device with memory of its own ---- */

enum { LARGE = 1 << 17 };

static struct world open_separate(const char *trace)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.host_memory = KILN_HOST_MEMORY_SEPARATE;
    options.trace = trace;
    struct world world = {.context = open_context_with(&options)};
    for (int i = 0; i < N; i++) {
        ones[i] = 1;
        twos[i] = 2;
    }
    world.first = world.context->runtime.compute;
    world.buffer = make_buffer(world.context, N, ones);
    return world;
}

static kiln_event *submit_apart(kiln_batch *batch)
{
    kiln_event *event;
    expect_ok(kiln_batch_set_independent(batch));
    expect_ok(kiln_batch_submit(batch, &event));
    return event;
}

static void await_and_release(kiln_event *event)
{
    expect_ok(kiln_event_wait(event));
    kiln_event_release(event);
}

/* Negates host memory. It has run once: a stream's first upload waits for pinned memory. */
static kiln_batch *record_own(struct world *world, const float *from, float *to)
{
    kiln_batch *batch = kiln_batch_create(world->context);
    kiln_tensor x = kiln_upload(batch, KILN_F32, 1, (size_t[]){N}, from);
    expect_ok(kiln_read(batch, kiln_neg(batch, x), to, N * sizeof *to));
    run_batch(batch);
    return batch;
}

/* One is held up: another one passes by, the same one again does not. */
Test(streams, are_several_for_batches_that_run_apart)
{
    static float read[2][N];
    static const char path[] = "streams.trace";
    struct world world = open_separate(path);
    kiln_batch *batches[] = {record_own(&world, ones, read[0]), record_own(&world, twos, read[1])};
    hold(&world, world.first);
    kiln_event *held = submit_apart(batches[0]), *again = submit_apart(batches[0]);
    await_and_release(submit_apart(batches[1]));
    cr_expect_eq(read[1][N - 1], -2);
    cr_expect_eq(kiln_event_poll(held), KILN_NOT_READY);
    cr_expect_eq(kiln_event_poll(again), KILN_NOT_READY);
    let_go(&world);
    await_and_release(held);
    await_and_release(again);
    cr_expect_eq(read[0][N - 1], -1);
    for (int i = 0; i < 2; i++)
        kiln_batch_release(batches[i]);
    close_world(&world);

    static char text[1 << 16];
    FILE *file = fopen(path, "r");
    cr_assert(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    remove(path);
    cr_expect(strstr(text, "\"tid\":0") && strstr(text, "\"tid\":1"));
}

/* Buffers keep their order. */
Test(streams, of_batches_apart_follow_each_other_where_they_share_a_buffer)
{
    static float read[N];
    struct world world = open_separate(NULL);
    kiln_batch *doubling = record(&world, NULL), *reading = record(&world, read);
    hold(&world, world.first);
    kiln_event *written = submit_apart(doubling), *reader = submit_apart(reading);
    cr_expect_neq(doubling->last, NULL);
    cr_expect_neq(kiln__run_stream(doubling->last), kiln__run_stream(reading->last));
    cr_expect_eq(kiln_event_poll(reader), KILN_NOT_READY);
    let_go(&world);
    await_and_release(reader);
    await_and_release(written);
    for (int i = 0; i < N; i++)
        cr_assert_eq(read[i], -2.0f);
    kiln_batch_release(doubling);
    kiln_batch_release(reading);
    close_world(&world);
}

/* Whoever has the first queue may count on its order. */
Test(streams, are_one_where_the_program_has_the_queue)
{
    static float read[2][N];
    struct world world = open_separate(NULL);
    kiln_batch *batches[] = {record_own(&world, ones, read[0]), record_own(&world, twos, read[1])};
    cl_command_queue queue;
    expect_ok(kiln_context_cl(world.context, NULL, NULL, &queue));
    hold(&world, world.first);
    kiln_event *events[] = {submit_apart(batches[0]), submit_apart(batches[1])};
    for (int i = 0; i < 2; i++)
        cr_expect_eq(kiln__run_stream(batches[i]->last)->queue, queue);
    let_go(&world);
    for (int i = 0; i < 2; i++) {
        await_and_release(events[i]);
        kiln_batch_release(batches[i]);
    }
    close_world(&world);
}

/* A large transfer does not wait for a batch that has nothing to do with its buffer. */
Test(streams, let_large_transfers_pass_by)
{
    static float large[LARGE], back[LARGE], read[N];
    struct world world = open_separate(NULL);
    kiln_batch *reading = record(&world, read);
    kiln_buffer *buffer;
    expect_ok(kiln_buffer_create(world.context, KILN_F32, 1, (size_t[]){LARGE}, &buffer));
    large[LARGE - 1] = 3;
    hold(&world, world.first);
    kiln_event *held;
    expect_ok(kiln_batch_submit(reading, &held));
    expect_ok(kiln_buffer_write(buffer, 0, large, sizeof large));
    expect_ok(kiln_buffer_read(buffer, 0, back, sizeof back));
    cr_expect_eq(kiln_event_poll(held), KILN_NOT_READY);
    cr_expect_eq(back[LARGE - 1], 3);
    let_go(&world);
    await_and_release(held);
    kiln_batch_release(reading);
    kiln_buffer_release(buffer);
    close_world(&world);
}

static cl_command_type last_command(struct kiln__run *run)
{
    cl_command_type type = 0;
    clGetEventInfo(kiln__run_end(run), CL_EVENT_COMMAND_TYPE, sizeof type, &type, NULL);
    return type;
}

/* What reads a large result waits for it, not for what the batch does afterwards. */
Test(streams, tell_early_that_a_buffer_is_complete)
{
    static float large[LARGE], back[LARGE], sum;
    struct world world = open_separate(NULL);
    kiln_buffer *first;
    expect_ok(kiln_buffer_create(world.context, KILN_F32, 1, (size_t[]){LARGE}, &first));
    kiln_batch *batch = kiln_batch_create(world.context);
    kiln_tensor x = kiln_upload(batch, KILN_F32, 1, (size_t[]){LARGE}, large);
    kiln_tensor y = kiln_add(batch, x, kiln_constant(batch, KILN_F32, 1));
    kiln_tensor total = kiln_sum(batch, kiln_cumsum(batch, y, 0, 0), 1, (const int[]){0}, 0);
    expect_ok(kiln_export(batch, y, first));
    expect_ok(kiln_read(batch, total, &sum, sizeof sum));
    await_and_release(submit_apart(batch));
    cr_expect_eq(last_command(first->writer), CL_COMMAND_MARKER);
    cr_expect_neq(first->writer, batch->last);
    for (int i = 0; i < LARGE; i++)
        large[i] = 6;
    kiln_event *event = submit_apart(batch);
    expect_ok(kiln_buffer_read(first, 0, back, sizeof back));
    for (int i = 0; i < LARGE; i++)
        cr_assert_eq(back[i], 7);
    await_and_release(event);
    kiln_batch_release(batch);
    kiln_buffer_release(first);
    close_world(&world);
}
