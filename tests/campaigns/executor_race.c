/* SPDX-License-Identifier: Apache-2.0 */
/* Submissions by many threads, while sizes, waits, deadlines, cancels, full queues, releases and
 * shutdowns race: each request ends exactly once, with its own rows or with a reason, and its
 * callback comes exactly once.
 *
 *     executor_race          some 20,000 requests
 *     executor_race long     1,000,000 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kiln/kiln.h>

enum { THREADS = 16, AHEAD = 6, MOST_ROWS = 4, WIDTH = 3, NOT_RUN = 77 };

static kiln_context *contexts[2];
static kiln_executor *executor;
static pthread_barrier_t start;
static unsigned long each; /* requests of a thread in one life of an executor */

static struct {
    atomic_ulong submitted, completed, cancelled, timed_out, refused, called_back;
    atomic_ulong wrong, lost, twice, strange;
} seen;

static void finding(atomic_ulong *count, bool found)
{
    if (found)
        atomic_fetch_add(count, 1);
}

static unsigned next(unsigned *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

/* ---- a request ---- */

struct request {
    float x[MOST_ROWS][WIDTH], y[MOST_ROWS][WIDTH];
    size_t rows;
    kiln_future *future;
    atomic_uint called; /* back */
    bool notified;
};

static void call_back(kiln_status status, void *user)
{
    struct request *r = user;
    (void)status;
    atomic_fetch_add(&seen.called_back, 1);
    atomic_fetch_add(&r->called, 1);
}

static bool is_right(const struct request *r)
{
    for (size_t i = 0; i < r->rows; i++)
        for (size_t k = 0; k < WIDTH; k++)
            if (r->y[i][k] != 2 * r->x[i][k])
                return false;
    return true;
}

/* False: the executor is shut down. */
static bool submit(struct request *r, unsigned *state)
{
    kiln_request_options options = KILN_REQUEST_OPTIONS_INIT;
    unsigned luck = next(state);
    options.priority = (kiln_priority)(luck % 3);
    options.when_full = luck / 3 % 4 ? KILN_WHEN_FULL_WAIT : KILN_WHEN_FULL_FAIL;
    options.room_us = luck / 12 % 4 ? 0 : 20;
    options.deadline_us = luck / 48 % 4 ? 0 : 1 + next(state) % 2000;
    r->rows = 1 + next(state) % MOST_ROWS;
    for (size_t i = 0; i < r->rows * WIDTH; i++)
        r->x[i / WIDTH][i % WIDTH] = (float)(next(state) % 1000);
    memset(r->y, 0, sizeof r->y);
    atomic_store(&r->called, 0);
    const size_t bytes = r->rows * sizeof r->x[0];
    const kiln_input input = {r->x, bytes, KILN_F32};
    const kiln_output output = {r->y, bytes, KILN_F32};
    kiln_status status =
        kiln_executor_submit(executor, &input, &output, r->rows, &options, &r->future);
    finding(&seen.strange, !status != (r->future != NULL));
    finding(&seen.strange, status && status != KILN_BUSY && status != KILN_TIMED_OUT &&
                               status != KILN_WRONG_STATE);
    atomic_fetch_add(status ? &seen.refused : &seen.submitted, 1);
    return status != KILN_WRONG_STATE;
}

static void meddle(struct request *r, unsigned *state)
{
    unsigned luck = next(state);
    int descriptor;
    r->notified = luck % 2;
    if (r->notified)
        finding(&seen.strange, kiln_future_notify(r->future, call_back, r) != KILN_OK);
    if (luck / 2 % 32 == 0)
        finding(&seen.strange, kiln_future_descriptor(r->future, &descriptor) != KILN_OK);
    if (luck / 64 % 8 == 0) {
        kiln_status status = kiln_future_cancel(r->future);
        finding(&seen.strange, status != KILN_OK && status != KILN_WRONG_STATE);
    }
}

/* A callback may come a moment after the wait is over. */
static void await_callback(struct request *r)
{
    for (int i = 0; i < 20000 && !atomic_load(&r->called); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    finding(&seen.lost, !atomic_load(&r->called));
    finding(&seen.twice, atomic_load(&r->called) > 1);
}

static void settle(struct request *r)
{
    kiln_status status = kiln_future_wait_for(r->future, 60000000);
    switch (status) {
    case KILN_OK:
        finding(&seen.wrong, !is_right(r));
        atomic_fetch_add(&seen.completed, 1);
        break;
    case KILN_CANCELLED: atomic_fetch_add(&seen.cancelled, 1); break;
    case KILN_TIMED_OUT: atomic_fetch_add(&seen.timed_out, 1); break;
    case KILN_NOT_READY: atomic_fetch_add(&seen.lost, 1); break;
    default: atomic_fetch_add(&seen.strange, 1);
    }
    finding(&seen.twice, kiln_future_poll(r->future) != status);
    if (r->notified)
        await_callback(r);
    kiln_future_release(r->future);
    r->future = NULL;
}

/* ---- threads ---- */

static void *work(void *number)
{
    static struct request all[THREADS][AHEAD];
    static atomic_uint seed = 1;
    struct request *requests = all[(uintptr_t)number];
    unsigned state = atomic_fetch_add(&seed, 1) * 2654435761u;
    bool open = true;
    pthread_barrier_wait(&start);
    for (unsigned long i = 0; i < each && open; i++) {
        struct request *r = &requests[i % AHEAD];
        if (r->future)
            settle(r);
        open = submit(r, &state);
        if (r->future)
            meddle(r, &state);
    }
    for (unsigned i = 0; i < AHEAD; i++)
        if (requests[i].future)
            settle(&requests[i]);
    kiln_executor_release(executor); /* its own */
    return NULL;
}

/* What the executor counted is what its callers saw. */
static bool agrees(kiln_executor *of, unsigned long submitted)
{
    kiln_executor_stats s;
    return !kiln_executor_get_stats(of, &s) && s.requests == submitted &&
           s.completed + s.cancelled + s.timed_out == s.requests && !s.failed && !s.queued &&
           !s.running;
}

static kiln_status record(kiln_batch *batch, size_t context, size_t rows, const kiln_tensor *inputs,
                          kiln_tensor *outputs, void *user)
{
    (void)context, (void)rows, (void)user;
    outputs[0] = kiln_add(batch, inputs[0], inputs[0]);
    return KILN_OK;
}

/* An executor's life: threads, and in two of three lives a shutdown among them. */
static void live(unsigned number)
{
    const kiln_row row = {.type = KILN_F32, .rank = 1, .dims = {WIDTH}};
    const kiln_model model = {sizeof model, record, NULL, 1, &row, 1};
    kiln_executor_options options = {sizeof options,
                                     8u << number % 3,
                                     1 + number % 2,
                                     100 + number % 5 * 200,
                                     5 + number % 7 * 4,
                                     0,
                                     0};
    pthread_t threads[THREADS];
    unsigned long before = atomic_load(&seen.submitted);
    if (kiln_executor_create(contexts, 1 + number % 2, &model, &options, &executor)) {
        printf("%s\n", kiln_last_error());
        exit(1);
    }
    pthread_barrier_init(&start, NULL, THREADS + 1);
    for (uintptr_t i = 0; i < THREADS; i++) {
        kiln_executor_retain(executor);
        if (pthread_create(&threads[i], NULL, work, (void *)i))
            exit(1);
    }
    pthread_barrier_wait(&start);
    if (number % 3) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000 * (1 + number % 30)}, NULL);
        finding(&seen.strange, kiln_executor_shutdown(
                                   executor, number % 3 == 1 ? KILN_SHUTDOWN_DRAIN
                                                             : KILN_SHUTDOWN_CANCEL) != KILN_OK);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    finding(&seen.strange, kiln_executor_shutdown(executor, KILN_SHUTDOWN_DRAIN) != KILN_OK);
    finding(&seen.strange, !agrees(executor, atomic_load(&seen.submitted) - before));
    kiln_executor_release(executor);
    pthread_barrier_destroy(&start);
}

int main(int argc, char **argv)
{
    bool is_long = argc > 1 && !strcmp(argv[1], "long");
    unsigned long wanted = is_long ? 1000000 : 20000;
    unsigned lives = 0;
    for (int i = 0; i < 2; i++)
        if (kiln_context_create(NULL, &contexts[i])) {
            printf("%s\n", kiln_last_error());
            return NOT_RUN;
        }
    each = is_long ? 5000 : 400;
    while (atomic_load(&seen.submitted) < wanted)
        live(lives++);
    for (int i = 0; i < 2; i++)
        kiln_context_release(contexts[i]);
    printf("%u executors, %lu requests: %lu completed, %lu cancelled, %lu past their deadline; %lu "
           "refused; %lu callbacks\n",
           lives, seen.submitted, seen.completed, seen.cancelled, seen.timed_out, seen.refused,
           seen.called_back);
    printf("%lu wrong, %lu lost, %lu twice, %lu strange\n", seen.wrong, seen.lost, seen.twice,
           seen.strange);
    bool fine = !seen.wrong && !seen.lost && !seen.twice && !seen.strange;
    fine = fine && seen.completed + seen.cancelled + seen.timed_out == seen.submitted;
    return fine && seen.cancelled && seen.timed_out && seen.refused ? 0 : 1;
}
