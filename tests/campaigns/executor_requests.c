/* SPDX-License-Identifier: Apache-2.0 */
/* Random client threads of an executor, and a check of each request's only outcome. */
#include "executor_requests.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../support/layer.h"

enum { AHEAD = 6, MOST_ROWS = 4, WIDTH = 3 };

struct requests_seen requests_seen;
#define seen requests_seen

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
static bool submit(kiln_executor *executor, struct request *r, unsigned *state)
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
    for (int i = 0; i < 300000 && !atomic_load(&r->called); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    finding(&seen.lost, !atomic_load(&r->called));
    finding(&seen.twice, atomic_load(&r->called) > 1);
}

static void settle(struct request *r)
{
    kiln_status status = kiln_future_wait_for(r->future, 300000000);
    switch (status) {
    case KILN_OK:
        finding(&seen.wrong, !is_right(r));
        atomic_fetch_add(&seen.completed, 1);
        break;
    case KILN_CANCELLED: atomic_fetch_add(&seen.cancelled, 1); break;
    case KILN_TIMED_OUT: atomic_fetch_add(&seen.timed_out, 1); break;
    case KILN_NOT_READY: atomic_fetch_add(&seen.lost, 1); break;
    default: atomic_fetch_add(&seen.failed, 1); finding(&seen.strange, !*kiln_last_error());
    }
    finding(&seen.twice, kiln_future_poll(r->future) != status);
    if (r->notified)
        await_callback(r);
    kiln_future_release(r->future);
    r->future = NULL;
}

unsigned long requests_make(kiln_executor *executor, unsigned long most, const atomic_bool *stop)
{
    static atomic_uint seed = 1;
    struct request requests[AHEAD] = {0};
    unsigned state = atomic_fetch_add(&seed, 1) * 2654435761u;
    unsigned long submitted = 0;
    bool open = true;
    for (unsigned long i = 0; i < most && open && !(stop && atomic_load(stop)); i++) {
        struct request *r = &requests[i % AHEAD];
        if (r->future)
            settle(r);
        open = submit(executor, r, &state);
        submitted += r->future != NULL;
        if (r->future)
            meddle(r, &state);
    }
    for (unsigned i = 0; i < AHEAD; i++)
        if (requests[i].future)
            settle(&requests[i]);
    return submitted;
}

/* ---- executors ---- */

static kiln_status record(kiln_batch *batch, size_t context, size_t rows, const kiln_tensor *inputs,
                          kiln_tensor *outputs, void *user)
{
    (void)context, (void)rows, (void)user;
    outputs[0] = kiln_add(batch, inputs[0], inputs[0]);
    return KILN_OK;
}

kiln_executor *requests_executor(kiln_context *const *contexts, unsigned number)
{
    const kiln_row row = {.type = KILN_F32, .rank = 1, .dims = {WIDTH}};
    const kiln_model model = {.size = sizeof model,
                              .record = record,
                              .input_count = 1,
                              .inputs = &row,
                              .output_count = 1};
    const kiln_executor_options options = {.size = sizeof options,
                                           .max_batch = 8u << number % 3,
                                           .min_batch = 1 + number % 2,
                                           .max_wait_us = 100 + number % 5 * 200,
                                           .max_queue = 5 + number % 7 * 4,
                                           .retry_us = 500};
    kiln_executor *executor;
    if (!kiln_executor_create(contexts, 1 + number % 2, &model, &options, &executor))
        return executor;
    printf("%s\n", kiln_last_error());
    exit(1);
}

/* Calls of OpenCL fail, one after another, in each of the ways there are. */
static void *spoil(void *over)
{
    static const int codes[] = {-4, -5, -6};
    unsigned state = 1;
    while (!atomic_load((atomic_bool *)over)) {
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
        layer_fail(1 + next(&state) % 20, NULL, codes[next(&state) % 3], KILN_LAYER_ONCE,
                   (enum kiln_layer_where)(KILN_LAYER_CALL + next(&state) % 3));
    }
    layer_fail(0, NULL, 0, KILN_LAYER_ONCE, KILN_LAYER_CALL);
    return NULL;
}

/* What the executor counted is what its callers saw. */
static bool agrees(kiln_executor *executor, unsigned long submitted)
{
    kiln_executor_stats s;
    return !kiln_executor_get_stats(executor, &s) && s.requests == submitted &&
           s.completed + s.cancelled + s.timed_out + s.failed == s.requests && !s.queued &&
           !s.running;
}

struct life {
    kiln_executor *executor;
    unsigned long each;
    atomic_ulong submitted;
    pthread_barrier_t start;
};

static void *work(void *argument)
{
    struct life *life = argument;
    kiln_executor *executor = life->executor;
    pthread_barrier_wait(&life->start);
    atomic_fetch_add(&life->submitted, requests_make(executor, life->each, NULL));
    kiln_executor_release(executor); /* its own */
    return NULL;
}

void requests_live(kiln_context *const *contexts, unsigned number, unsigned threads,
                   unsigned long each, bool faulty)
{
    struct life life = {.executor = requests_executor(contexts, number), .each = each};
    pthread_t all[REQUESTS_THREADS], spoiler;
    atomic_bool over = false;
    pthread_barrier_init(&life.start, NULL, threads + 1);
    for (unsigned i = 0; i < threads; i++) {
        kiln_executor_retain(life.executor);
        if (pthread_create(&all[i], NULL, work, &life))
            exit(1);
    }
    if (faulty)
        layer_fail(1, NULL, -5, KILN_LAYER_ONCE, KILN_LAYER_CALL);
    if (faulty && pthread_create(&spoiler, NULL, spoil, &over))
        exit(1);
    pthread_barrier_wait(&life.start);
    if (number % 3) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000 * (1 + number % 30)}, NULL);
        finding(&seen.strange,
                kiln_executor_shutdown(life.executor, number % 3 == 1 ? KILN_SHUTDOWN_DRAIN
                                                                      : KILN_SHUTDOWN_CANCEL));
    }
    for (unsigned i = 0; i < threads; i++)
        pthread_join(all[i], NULL);
    atomic_store(&over, true);
    if (faulty)
        pthread_join(spoiler, NULL);
    finding(&seen.strange, kiln_executor_shutdown(life.executor, KILN_SHUTDOWN_DRAIN));
    finding(&seen.strange, !agrees(life.executor, atomic_load(&life.submitted)));
    kiln_executor_release(life.executor);
    pthread_barrier_destroy(&life.start);
}

bool requests_fine(void)
{
    printf("%lu requests: %lu completed, %lu cancelled, %lu past their deadline, %lu failed; "
           "%lu refused; %lu callbacks\n",
           seen.submitted, seen.completed, seen.cancelled, seen.timed_out, seen.failed,
           seen.refused, seen.called_back);
    printf("%lu wrong, %lu lost, %lu twice, %lu strange\n", seen.wrong, seen.lost, seen.twice,
           seen.strange);
    return !seen.wrong && !seen.lost && !seen.twice && !seen.strange &&
           seen.completed + seen.cancelled + seen.timed_out + seen.failed == seen.submitted &&
           seen.cancelled && seen.timed_out && seen.refused;
}
