/* SPDX-License-Identifier: Apache-2.0 */
/* A context is used by many threads at once, each with batches of its own. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../support/context.h"

enum { THREADS = 8, RUNS = 200, N = 3000 };

static kiln_context *context;
static pthread_barrier_t start;

/* Criterion's assertions are for the test's own thread: others count what is wrong. */
static atomic_int wrong;

static void check(bool right)
{
    atomic_fetch_add(&wrong, !right);
}

static void run_threads(void *(*work)(void *))
{
    pthread_t threads[THREADS];
    context = open_context();
    pthread_barrier_init(&start, NULL, THREADS);
    for (intptr_t i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, work, (void *)i), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&start);
    cr_expect_eq(atomic_load(&wrong), 0);
    cr_expect_eq(stats_of(context).buffers_live, 0u);
    close_context(context);
}

/* ---- the same structure everywhere: plans and kernels are shared ---- */

static void run_sum(size_t n, unsigned seed)
{
    float values[N], results[N], sum = 0, total = 0;
    kiln_batch *batch = kiln_batch_create(context);
    fill(values, n, seed);
    kiln_tensor x = kiln_upload(batch, KILN_F32, 1, &n, values);
    kiln_tensor y = kiln_add(batch, x, kiln_constant(batch, KILN_F32, seed % 7));
    kiln_read(batch, y, results, n * sizeof *results);
    kiln_read(batch, kiln_sum(batch, x, 0, NULL, 0), &sum, sizeof sum);
    check(kiln_batch_execute(batch) == KILN_OK);
    for (size_t i = 0; i < n; i++) {
        check(results[i] == values[i] + (float)(seed % 7));
        total += values[i];
    }
    check(sum == total);
    kiln_batch_release(batch);
}

static void *run_same(void *number)
{
    pthread_barrier_wait(&start);
    for (unsigned i = 0; i < RUNS; i++)
        run_sum(1000 + i % 2 * 2000, i * THREADS + (unsigned)(intptr_t)number);
    return NULL;
}

Test(threads, share_plans_and_kernels)
{
    run_threads(run_same);
}

/* ---- a batch that stays, run again and again ---- */

static void *run_again(void *number)
{
    static float values[THREADS][N], results[THREADS][N];
    float *x = values[(intptr_t)number], *y = results[(intptr_t)number];
    const size_t n = N;
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor tensor = kiln_upload(batch, KILN_F32, 1, &n, x);
    kiln_read(batch, kiln_relu(batch, kiln_neg(batch, tensor)), y, sizeof *values);
    pthread_barrier_wait(&start);
    for (unsigned i = 0; i < RUNS; i++) {
        fill(x, N, i);
        check(kiln_batch_execute(batch) == KILN_OK);
        for (int k = 0; k < N; k++)
            check(y[k] == (x[k] < 0 ? -x[k] : 0));
    }
    kiln_batch_release(batch);
    return NULL;
}

Test(threads, run_their_batches_again)
{
    run_threads(run_again);
}

/* ---- buffers, events, statistics, all at once ---- */

static void finished(kiln_status status, void *count)
{
    check(status == KILN_OK);
    atomic_fetch_add((atomic_int *)count, 1);
}

/* Add one to each element of a buffer, `times` times, without waiting between. */
static void count_up(kiln_buffer *buffer, int times, atomic_int *callbacks)
{
    kiln_event *event = NULL;
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor one = kiln_constant(batch, KILN_F32, 1);
    kiln_export(batch, kiln_add(batch, kiln_import(batch, buffer), one), buffer);
    for (int i = 0; i < times; i++) {
        kiln_event_release(event);
        check(kiln_batch_submit(batch, &event) == KILN_OK);
        check(kiln_event_notify(event, finished, callbacks) == KILN_OK);
    }
    check(kiln_event_wait(event) == KILN_OK);
    kiln_event_release(event);
    kiln_batch_release(batch);
}

static void *run_mixed(void *number)
{
    static atomic_int callbacks[THREADS];
    const size_t n = N;
    float values[N];
    kiln_buffer *buffer;
    kiln_context_stats stats;
    pthread_barrier_wait(&start);
    for (int round = 0; round < 5; round++) {
        fill(values, N, (unsigned)round);
        check(kiln_buffer_create(context, KILN_F32, 1, &n, &buffer) == KILN_OK);
        check(kiln_buffer_write(buffer, 0, values, sizeof values) == KILN_OK);
        count_up(buffer, 20, &callbacks[(intptr_t)number]);
        float before = values[N - 1];
        check(kiln_buffer_read(buffer, 0, values, sizeof values) == KILN_OK);
        check(values[N - 1] == before + 20);
        kiln_buffer_release(buffer);
        check(kiln_context_get_stats(context, &stats) == KILN_OK);
        check(kiln_context_trim(context) == KILN_OK);
    }
    check(kiln_context_finish(context) == KILN_OK);
    check(kiln_exp(NULL, (kiln_tensor){0}).id == 0 && *kiln_last_error());
    return NULL;
}

Test(threads, mix_buffers_events_and_questions)
{
    run_threads(run_mixed);
}

/* ---- every thread another structure: planning and compiling at once ---- */

static void *run_different(void *number)
{
    float values[N], results[N];
    const size_t n = N;
    kiln_batch *batch = kiln_batch_create(context);
    fill(values, N, 1);
    kiln_tensor x = kiln_upload(batch, KILN_F32, 1, &n, values);
    kiln_tensor y = x;
    for (intptr_t i = 0; i <= (intptr_t)number; i++)
        y = kiln_add(batch, y, x);
    kiln_read(batch, y, results, sizeof results);
    pthread_barrier_wait(&start);
    check(kiln_batch_execute(batch) == KILN_OK);
    for (int i = 0; i < N; i++)
        check(results[i] == values[i] * (float)((intptr_t)number + 2));
    kiln_batch_release(batch);
    return NULL;
}

Test(threads, plan_and_compile_at_once)
{
    run_threads(run_different);
}

/* ---- errors belong to their thread ---- */

static void *fail_alone(void *number)
{
    kiln_batch *batch = kiln_batch_create(context);
    pthread_barrier_wait(&start);
    for (int i = 0; i < RUNS; i++) {
        if ((intptr_t)number % 2)
            kiln_exp(batch, (kiln_tensor){0});
        else
            kiln_tanh(batch, (kiln_tensor){0});
        const char *name = (intptr_t)number % 2 ? "kiln_exp" : "kiln_tanh";
        check(!strncmp(kiln_last_error(), name, strlen(name)));
        check(kiln_batch_reset(batch) == KILN_OK);
    }
    kiln_batch_release(batch);
    return NULL;
}

Test(threads, have_errors_of_their_own)
{
    run_threads(fail_alone);
}
