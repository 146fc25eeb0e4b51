/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a device whose driver releases none beside other calls: what is let go waits, is
 * released when nothing else goes on, and is there for who needs it. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "../support/context.h"
#include "session/context.h"

enum { N = 1000, THREADS = 4 };

static kiln_context *context;

static kiln_context *open_idle(uint64_t limit)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.memory_limit = limit;
    kiln_context *made = open_context_with(&options);
    made->runtime.memory.idle_release = true;
    return made;
}

static kiln_buffer *buffer_of(size_t n)
{
    kiln_buffer *buffer;
    cr_assert(!kiln_buffer_create(context, KILN_F32, 1, &n, &buffer), "%s", kiln_last_error());
    return buffer;
}

static size_t waiting(void)
{
    return context->runtime.memory.ended.count;
}

static void add_one(kiln_buffer *buffer, int times)
{
    kiln_event *event = NULL;
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor one = kiln_constant(batch, KILN_F32, 1);
    kiln_export(batch, kiln_add(batch, kiln_import(batch, buffer), one), buffer);
    for (int i = 0; i < times; i++) {
        kiln_event_release(event);
        cr_assert(!kiln_batch_submit(batch, &event), "%s", kiln_batch_error(batch));
    }
    cr_assert(!kiln_event_wait(event));
    kiln_event_release(event);
    kiln_batch_release(batch);
}

Test(idle_release, what_is_let_go_waits)
{
    context = open_idle(0);
    for (size_t i = 0; i < 200; i++) {
        kiln_buffer_release(buffer_of(N));
        cr_expect_leq(waiting(), 64u);
    }
    cr_expect_gt(waiting(), 0u);
    cr_expect_eq(stats_of(context).buffers_live, 0u);
    cr_expect(!kiln_context_trim(context));
    cr_expect_eq(waiting(), 0u);
    kiln_buffer_release(buffer_of((size_t)20 << 20)); /* so many bytes do not wait for others */
    kiln_buffer *next = buffer_of(N);
    cr_expect_eq(waiting(), 0u);
    kiln_buffer_release(next);
    cr_expect_eq(waiting(), 1u); /* the end of the context has it */
    close_context(context);
}

/* Each pass needs more than is idle, so that the pool's blocks go. */
Test(idle_release, is_room_for_who_needs_it)
{
    context = open_idle((uint64_t)8 << 20);
    for (size_t n = 100000; n < 1000000; n += 100000) {
        float *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y);
        fill(x, n, 1);
        kiln_batch *batch = kiln_batch_create(context);
        kiln_read(batch,
                  kiln_add(batch, kiln_upload(batch, KILN_F32, 1, &n, x),
                           kiln_constant(batch, KILN_F32, 1)),
                  y, n * sizeof *y);
        cr_assert(!kiln_batch_execute(batch), "%s", kiln_batch_error(batch));
        cr_expect_eq(y[n - 1], x[n - 1] + 1);
        kiln_batch_release(batch);
        free(x);
        free(y);
    }
    close_context(context);
}

static atomic_int wrong;

static void *make_and_release(void *unused)
{
    (void)unused;
    float values[N] = {0};
    for (int round = 0; round < 40; round++) {
        kiln_buffer *buffer = buffer_of(N);
        values[N - 1] = (float)round;
        atomic_fetch_add(&wrong, kiln_buffer_write(buffer, 0, values, sizeof values) != KILN_OK);
        add_one(buffer, 5);
        atomic_fetch_add(&wrong, kiln_buffer_read(buffer, 0, values, sizeof values) != KILN_OK);
        atomic_fetch_add(&wrong, values[N - 1] != (float)round + 5);
        kiln_buffer_release(buffer);
        if (round % 8 == 7)
            atomic_fetch_add(&wrong, kiln_context_trim(context) != KILN_OK);
    }
    return NULL;
}

Test(idle_release, threads_release_while_others_run)
{
    pthread_t threads[THREADS];
    context = open_idle(0);
    for (int i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, make_and_release, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    cr_expect_eq(atomic_load(&wrong), 0);
    cr_expect_eq(stats_of(context).buffers_live, 0u);
    close_context(context);
}
