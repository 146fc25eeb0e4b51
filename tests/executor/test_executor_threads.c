/* SPDX-License-Identifier: Apache-2.0 */
/* Many threads at one executor: each request ends once, with its own rows or with a reason. */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../support/context.h"
#include "../support/served.h"

enum { MOST_THREADS = 32, MOST_ROWS = 5 };

/* What threads count; Criterion's assertions are for the test's own thread. */
static struct {
    atomic_int wrong, submitted, refused, completed, cancelled, timed_out, told;
} seen;

static kiln_executor *executor;
static pthread_barrier_t start;
static unsigned rounds;

static void check(bool right)
{
    atomic_fetch_add(&seen.wrong, !right);
}

static void run_threads(unsigned count, void *(*work)(void *))
{
    pthread_t threads[MOST_THREADS];
    pthread_barrier_init(&start, NULL, count);
    for (uintptr_t i = 0; i < count; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, work, (void *)i), 0);
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&start);
}

static unsigned next(unsigned *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

/* ---- one after another ---- */

static void *ask(void *number)
{
    float x[MOST_ROWS * SERVED_WIDTH], y[MOST_ROWS];
    unsigned state = (unsigned)(uintptr_t)number;
    kiln_future *future;
    pthread_barrier_wait(&start);
    for (unsigned i = 0; i < rounds; i++) {
        size_t rows = 1 + next(&state) % MOST_ROWS;
        served_fill(x, rows, next(&state));
        check(served_try(executor, x, y, rows, NULL, &future) == KILN_OK);
        check(kiln_future_wait(future) == KILN_OK && served_right(x, y, rows));
        kiln_future_release(future);
    }
    return NULL;
}

static void ask_with(unsigned threads, unsigned each, const kiln_executor_options *options)
{
    kiln_context *context = open_context();
    executor = served_create(context, options);
    rounds = each;
    run_threads(threads, ask);
    kiln_executor_stats stats = served_stats(executor);
    cr_expect_eq(atomic_load(&seen.wrong), 0);
    cr_expect_eq(stats.completed, (uint64_t)threads * each);
    cr_expect_eq(stats.wait.count, stats.completed);
    served_end(executor, context);
}

Test(executor_threads, eight_get_their_own_rows)
{
    ask_with(8, 300, NULL);
}

Test(executor_threads, thirty_two_get_their_own_rows)
{
    const kiln_executor_options options = {
        .size = sizeof options, .max_batch = 24, .max_queue = 7, .max_wait_us = 200};
    ask_with(32, 80, &options);
}

/* ---- all at once: callbacks, deadlines, cancels, and a shutdown in the middle ---- */

static void be_told(kiln_status status, void *user)
{
    (void)status;
    atomic_fetch_add(&seen.told, 1);
    atomic_fetch_add((atomic_int *)user, 1);
}

/* A request of a thread, with memory that lasts until it has ended. */
struct request {
    float x[MOST_ROWS * SERVED_WIDTH], y[MOST_ROWS];
    size_t rows;
    kiln_future *future;
    atomic_int told;
    bool notified;
};

static void settle(struct request *r)
{
    kiln_status status = kiln_future_wait(r->future);
    switch (status) {
    case KILN_OK:
        check(served_right(r->x, r->y, r->rows));
        atomic_fetch_add(&seen.completed, 1);
        break;
    case KILN_CANCELLED: atomic_fetch_add(&seen.cancelled, 1); break;
    case KILN_TIMED_OUT: atomic_fetch_add(&seen.timed_out, 1); break;
    default: check(false);
    }
    check(kiln_future_poll(r->future) == status);
    check(kiln_future_cancel(r->future) == KILN_WRONG_STATE);
    kiln_future_release(r->future);
    r->future = NULL;
}

static bool submit(struct request *r, unsigned *state)
{
    kiln_request_options options = KILN_REQUEST_OPTIONS_INIT;
    unsigned luck = next(state);
    options.priority = (kiln_priority)(luck % 3);
    options.when_full = luck / 4 % 2 ? KILN_WHEN_FULL_FAIL : KILN_WHEN_FULL_WAIT;
    options.room_us = luck / 8 % 4 ? 0 : 50;
    options.deadline_us = luck / 32 % 4 ? 0 : 1 + luck / 256 % 1000;
    r->rows = 1 + luck / 512 % MOST_ROWS;
    served_fill(r->x, r->rows, luck);
    kiln_status status = served_try(executor, r->x, r->y, r->rows, &options, &r->future);
    check(!status == (r->future != NULL));
    atomic_fetch_add(status ? &seen.refused : &seen.submitted, 1);
    check(!status || status == KILN_BUSY || status == KILN_TIMED_OUT || status == KILN_WRONG_STATE);
    return status != KILN_WRONG_STATE;
}

static void meddle(struct request *r, unsigned *state)
{
    int descriptor;
    unsigned luck = next(state);
    if (!r->future)
        return;
    r->notified = luck % 4 == 0;
    if (r->notified)
        check(kiln_future_notify(r->future, be_told, &r->told) == KILN_OK);
    if (luck / 4 % 16 == 0)
        check(kiln_future_descriptor(r->future, &descriptor) == KILN_OK);
    if (luck / 64 % 8 == 0) {
        kiln_status status = kiln_future_cancel(r->future);
        check(status == KILN_OK || status == KILN_WRONG_STATE);
    }
}

/* Several of a thread are under way at a time. */
static void *race(void *number)
{
    enum { AHEAD = 4 };
    unsigned state = 77 + (unsigned)(uintptr_t)number, i = 0;
    static struct request all[MOST_THREADS][AHEAD];
    struct request *requests = all[(uintptr_t)number];
    bool open = true;
    pthread_barrier_wait(&start);
    for (; open && (i < rounds || !rounds); i++) {
        struct request *r = &requests[i % AHEAD];
        if (r->future)
            settle(r);
        open = submit(r, &state);
        meddle(r, &state);
    }
    for (unsigned k = 0; k < AHEAD; k++)
        if (requests[k].future)
            settle(&requests[k]);
    return NULL;
}

static void *shut_down(void *how)
{
    pthread_barrier_wait(&start);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    check(kiln_executor_shutdown(executor, (kiln_shutdown)(uintptr_t)how) == KILN_OK);
    return NULL;
}

static void expect_counts(void)
{
    kiln_executor_stats stats = served_stats(executor);
    cr_expect_eq(atomic_load(&seen.wrong), 0);
    cr_expect_eq(stats.requests, (uint64_t)atomic_load(&seen.submitted));
    cr_expect_eq(stats.refused, (uint64_t)atomic_load(&seen.refused));
    cr_expect_eq(stats.completed, (uint64_t)atomic_load(&seen.completed));
    cr_expect_eq(stats.cancelled, (uint64_t)atomic_load(&seen.cancelled));
    cr_expect_eq(stats.timed_out, (uint64_t)atomic_load(&seen.timed_out));
    cr_expect_eq(stats.completed + stats.cancelled + stats.timed_out, stats.requests);
    cr_expect_eq(stats.queued + stats.running + stats.queued_rows, 0u);
}

static void *race_or_shut_down(void *number)
{
    static atomic_int ways;
    if ((uintptr_t)number % 8)
        return race(number);
    int way = atomic_fetch_add(&ways, 1);
    return shut_down((void *)(uintptr_t)(way % 2 ? KILN_SHUTDOWN_DRAIN : KILN_SHUTDOWN_CANCEL));
}

static const kiln_executor_options narrow = {
    .size = sizeof narrow, .max_batch = 16, .min_batch = 4, .max_queue = 9, .max_wait_us = 300};

Test(executor_threads, end_each_request_once_whatever_happens_to_it)
{
    kiln_context *context = open_context();
    executor = served_create(context, &narrow);
    rounds = 400;
    run_threads(8, race);
    expect_ok(kiln_executor_shutdown(executor, KILN_SHUTDOWN_DRAIN)); /* callbacks have returned */
    expect_counts();
    cr_expect_gt(atomic_load(&seen.completed), 0);
    cr_expect_gt(atomic_load(&seen.told), 0);
    served_end(executor, context);
}

Test(executor_threads, end_each_request_once_while_others_shut_down)
{
    kiln_context *context = open_context();
    rounds = 0; /* until the shutdown */
    for (int i = 0; i < 4; i++) {
        executor = served_create(context, &narrow);
        run_threads(i % 2 ? 32 : 9, race_or_shut_down);
        expect_counts();
        kiln_executor_release(executor);
        memset(&seen, 0, sizeof seen);
    }
    close_context(context);
}

/* ---- handles ---- */

static void *come_and_go(void *number)
{
    float x[SERVED_WIDTH], y;
    kiln_future *future;
    unsigned seed = (unsigned)(uintptr_t)number;
    pthread_barrier_wait(&start);
    served_fill(x, 1, seed);
    check(served_try(executor, x, &y, 1, NULL, &future) == KILN_OK);
    kiln_executor_release(executor); /* its own reference: perhaps the last one */
    check(kiln_future_wait(future) == KILN_OK && served_right(x, &y, 1));
    kiln_future_release(future);
    return NULL;
}

Test(executor_threads, let_go_of_an_executor_one_by_one)
{
    kiln_context *context = open_context();
    for (int i = 0; i < 20; i++) {
        executor = served_create(context, NULL);
        for (int k = 0; k < 8; k++)
            kiln_executor_retain(executor);
        kiln_executor_release(executor);
        run_threads(8, come_and_go);
    }
    cr_expect_eq(atomic_load(&seen.wrong), 0);
    close_context(context);
}

/* ---- fork ---- */

static atomic_bool over;

static void *ask_until_over(void *number)
{
    float x[SERVED_WIDTH], y;
    unsigned seed = (unsigned)(uintptr_t)number;
    kiln_future *future;
    pthread_barrier_wait(&start);
    while (!atomic_load(&over)) {
        served_fill(x, 1, seed++);
        check(served_try(executor, x, &y, 1, NULL, &future) == KILN_OK);
        check(kiln_future_wait(future) == KILN_OK && served_right(x, &y, 1));
        kiln_future_release(future);
    }
    return NULL;
}

static void be_called(kiln_status status, void *user)
{
    (void)status, (void)user;
}

/* Whoever held a lock in the parent is not there: a child that wants it hangs. */
static bool is_refused(kiln_future *future)
{
    float x[SERVED_WIDTH] = {0}, y;
    int descriptor;
    char *text;
    kiln_executor_stats stats;
    kiln_executor_context_stats context_stats;
    kiln_future *none;
    bool refused = served_try(executor, x, &y, 1, NULL, &none) == KILN_FORKED &&
                   kiln_future_wait(future) == KILN_FORKED &&
                   kiln_future_wait_for(future, 1) == KILN_FORKED &&
                   kiln_future_poll(future) == KILN_FORKED &&
                   kiln_future_notify(future, be_called, NULL) == KILN_FORKED &&
                   kiln_future_cancel(future) == KILN_FORKED &&
                   kiln_future_descriptor(future, &descriptor) == KILN_FORKED &&
                   kiln_executor_get_stats(executor, &stats) == KILN_FORKED &&
                   kiln_executor_get_context_stats(executor, 0, &context_stats) == KILN_FORKED &&
                   kiln_executor_metrics(executor, KILN_METRICS_JSON, &text) == KILN_FORKED &&
                   kiln_executor_shutdown(executor, KILN_SHUTDOWN_CANCEL) == KILN_FORKED;
    kiln_executor_retain(executor);
    kiln_future_release(future);
    kiln_executor_release(executor);
    kiln_executor_release(executor);
    return refused;
}

static void *fork_or_ask(void *number)
{
    float x[SERVED_WIDTH], y;
    int state = 0;
    kiln_future *future;
    if (number)
        return ask_until_over(number);
    pthread_barrier_wait(&start);
    for (unsigned i = 0; i < 20; i++) {
        served_fill(x, 1, i);
        check(served_try(executor, x, &y, 1, NULL, &future) == KILN_OK);
        pid_t child = fork();
        if (!child) {
            alarm(300);
            _exit(!is_refused(future));
        }
        while (child > 0 && waitpid(child, &state, 0) < 0 && errno == EINTR)
            ;
        check(child > 0 && WIFEXITED(state) && WEXITSTATUS(state) == 0);
        check(kiln_future_wait(future) == KILN_OK && served_right(x, &y, 1));
        kiln_future_release(future);
    }
    atomic_store(&over, true);
    return NULL;
}

Test(executor_threads, refuse_everything_in_a_child_of_a_fork_while_they_serve)
{
    kiln_context *context = open_context();
    fflush(NULL);
    executor = served_create(context, &narrow);
    run_threads(8, fork_or_ask);
    cr_expect_eq(atomic_load(&seen.wrong), 0);
    served_end(executor, context);
}
