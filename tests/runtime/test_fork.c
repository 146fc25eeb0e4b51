/* SPDX-License-Identifier: Apache-2.0 */
/* A child of fork() has none of the driver's threads: it must be told quickly, and be able to let
 * go of what it inherited. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../support/context.h"

enum { N = 1000, PATIENCE_S = 300 };

static float values[N], result[N];

/* Everything that a program may hold when it forks. */
struct inherited {
    kiln_context *context;
    kiln_batch *ran, *recorded;
    kiln_buffer *buffer, *mapped;
    kiln_event *event;
    void *memory;
};

static void record(kiln_batch *batch)
{
    kiln_tensor x = kiln_upload(batch, KILN_F32, 1, (size_t[]){N}, values);
    expect_ok(kiln_read(batch, kiln_exp(batch, x), result, sizeof result));
}

static struct inherited prepare(void)
{
    void *data;
    struct inherited all = {.context = open_context()};
    all.ran = kiln_batch_create(all.context);
    all.recorded = kiln_batch_create(all.context);
    all.buffer = make_buffer(all.context, N, values);
    all.mapped = make_buffer(all.context, N, values);
    expect_ok(kiln_buffer_map(all.mapped, &data));
    expect_ok(kiln_host_alloc(all.context, N, &all.memory));
    record(all.ran);
    record(all.recorded);
    run_batch(all.ran);
    expect_ok(kiln_batch_submit(all.ran, &all.event));
    return all;
}

static void let_go(struct inherited all)
{
    kiln_host_free(all.context, all.memory);
    kiln_event_release(all.event);
    kiln_batch_release(all.ran);
    kiln_batch_release(all.recorded);
    kiln_buffer_release(all.buffer);
    kiln_buffer_release(all.mapped);
    kiln_context_release(all.context);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* In a child: the number of the first step that `steps` finds wrong, 0 for none. */
static int in_child(int (*steps)(struct inherited), struct inherited all)
{
    int state;
    fflush(NULL);
    pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        alarm(PATIENCE_S); /* a hang ends as a signal */
        _exit(steps(all));
    }
    cr_assert_eq(waitpid(child, &state, 0), child);
    cr_assert(WIFEXITED(state), "the child ended by signal %d", WTERMSIG(state));
    return WEXITSTATUS(state);
}

static bool refused(kiln_status status)
{
    return status == KILN_FORKED && strstr(kiln_last_error(), "fork");
}

static int call_everything(struct inherited all)
{
    kiln_batch_cost cost;
    kiln_buffer *buffer;
    kiln_event *event;
    kiln_context_stats stats;
    kiln_type type;
    const size_t n = N;
    void *data;
    double start = seconds();
    int step = 1;
    bool fine = refused(kiln_batch_execute(all.ran));
#define NEXT(condition) (step += fine, fine = fine && (condition))
    NEXT(refused(kiln_batch_execute(all.recorded)));
    NEXT(refused(kiln_batch_submit(all.recorded, &event)) && !event);
    NEXT(refused(kiln_batch_get_cost(all.recorded, &cost)));
    NEXT(refused(kiln_batch_reset(all.ran)));
    NEXT(refused(kiln_event_wait(all.event)));
    NEXT(refused(kiln_event_poll(all.event)));
    NEXT(refused(kiln_buffer_create(all.context, KILN_F32, 1, &n, &buffer)) && !buffer);
    NEXT(refused(kiln_buffer_write(all.buffer, 0, values, 4)));
    NEXT(refused(kiln_buffer_read(all.buffer, 0, result, 4)));
    NEXT(refused(kiln_buffer_map(all.buffer, &data)) && !data);
    NEXT(refused(kiln_buffer_unmap(all.mapped)));
    NEXT(refused(kiln_context_finish(all.context)));
    NEXT(refused(kiln_context_sync_cache(all.context)));
    NEXT(refused(kiln_context_trim(all.context)));
    NEXT(refused(kiln_context_best_precision(all.context, &type)));
    NEXT(refused(kiln_now_relu(all.context, 1, values, result)));
    NEXT(kiln_context_get_stats(all.context, &stats) == KILN_OK);
    NEXT(seconds() - start < 200); /* whoever waits does so for ever */
    return fine ? 0 : step;
}

Test(fork, every_call_of_the_child_is_refused_at_once)
{
    struct inherited all = prepare();
    cr_expect_eq(in_child(call_everything, all), 0);
    expect_ok(kiln_event_wait(all.event));
    run_batch(all.recorded); /* the parent goes on as before */
    let_go(all);
}

static int release_everything(struct inherited all)
{
    double start = seconds();
    let_go(all);
    return seconds() - start < 200 ? 0 : 1;
}

Test(fork, the_child_can_release_what_it_inherited)
{
    struct inherited all = prepare();
    cr_expect_eq(in_child(release_everything, all), 0);
    run_batch(all.recorded);
    let_go(all);
}

/* The driver has no threads in the child, whether or not the context is a new one. */
static int open_another(struct inherited all)
{
    kiln_context *context;
    (void)all;
    return refused(kiln_context_create(NULL, &context)) && !context ? 0 : 1;
}

Test(fork, the_child_cannot_have_a_context_of_its_own)
{
    struct inherited all = prepare();
    cr_expect_eq(in_child(open_another, all), 0);
    let_go(all);
}

static int open_first(struct inherited all)
{
    kiln_context *context;
    (void)all;
    if (kiln_context_create(NULL, &context))
        return 1;
    kiln_status status = kiln_now_relu(context, N, values, result);
    kiln_context_release(context);
    return status ? 2 : 0;
}

Test(fork, a_child_of_a_process_without_opencl_is_free)
{
    if (in_child(open_first, (struct inherited){0}) == 1)
        cr_skip("no OpenCL device here");
    cr_expect_eq(in_child(open_first, (struct inherited){0}), 0);
}
