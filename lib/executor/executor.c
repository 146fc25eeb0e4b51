/* SPDX-License-Identifier: Apache-2.0 */
/* Executors: made, shared, shut down. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/context.h>

#include "executor/future.h"
#include "util/forks.h"
#include "util/structure.h"

static const char create_call[] = "kiln_executor_create";

/* ---- waking ---- */

void kiln__executor_admit(kiln_executor *executor)
{
    kiln_future *request = kiln__inbox_empty(&executor->inbox);
    for (kiln_future *next; request; request = next) {
        next = request->next;
        kiln__request_queue_push(&executor->queue, request);
        executor->counts.requests++;
    }
}

/* How many rows more change what sleeping workers do. A first request makes them look when it is
 * due; then more change nothing until those of a length are enough for an idle device, or for a
 * batch. */
static uint64_t find_next(const kiln_executor *executor, bool idle)
{
    const kiln_executor_options *options = &executor->options;
    if (!executor->queue.count)
        return 1;
    const size_t some =
        idle ? kiln__request_queue_missing_rows(&executor->queue, options->min_batch) : 0;
    return some ? some : kiln__request_queue_missing_rows(&executor->queue, options->max_batch);
}

/* Those who have been called look anyway. */
static uint64_t find_alarm(const kiln_executor *executor)
{
    bool sleeps = false, idle = false;
    for (size_t i = 0; i < executor->device_queue_count; i++) {
        const struct kiln__device_queue *device_queue = &executor->device_queues[i];
        bool one = device_queue->waiting && !device_queue->called;
        sleeps = sleeps || one;
        idle = idle || (one && !device_queue->running);
    }
    if (!sleeps)
        return KILN__NO_ALARM;
    const uint64_t next = find_next(executor, idle);
    return next ? executor->queue.rows + next : KILN__NO_ALARM;
}

bool kiln__executor_set_alarm(kiln_executor *executor)
{
    return kiln__inbox_set_alarm(&executor->inbox, find_alarm(executor));
}

static void call_workers(kiln_executor *executor, int64_t now)
{
    int64_t again;
    for (size_t i = 0; i < executor->device_queue_count; i++) {
        struct kiln__device_queue *device_queue = &executor->device_queues[i];
        if (!device_queue->waiting || device_queue->called)
            continue;
        device_queue->called = kiln__device_queue_decide(executor, device_queue, now, &again) ||
                               again < device_queue->wakes;
        if (device_queue->called)
            pthread_cond_signal(&device_queue->work);
    }
}

void kiln__executor_wake(kiln_executor *executor, int64_t now)
{
    do {
        kiln__executor_admit(executor);
        call_workers(executor, now);
    } while (!kiln__executor_set_alarm(executor));
}

void kiln__executor_wake_all(kiln_executor *executor)
{
    for (size_t i = 0; i < executor->device_queue_count; i++)
        pthread_cond_broadcast(&executor->device_queues[i].work);
    pthread_cond_broadcast(&executor->room);
}

/* ---- making ---- */

bool kiln__executor_is_of_process(const kiln_executor *executor)
{
    return executor->forks == kiln__forks();
}

kiln_status kiln__executor_check(const kiln_executor *executor, const char *call)
{
    KILN__RETURN_IF_NULL(NULL, call, executor);
    if (kiln__executor_is_of_process(executor))
        return KILN_OK;
    return kiln__fail(NULL, KILN_FORKED,
                      "%s: the executor was made before a fork, and its threads are not in the "
                      "child",
                      call);
}

static void fill_in(kiln_executor_options *options)
{
    static const kiln_executor_options standard = KILN_EXECUTOR_OPTIONS_INIT;
    if (!options->max_batch)
        options->max_batch = standard.max_batch;
    if (!options->min_batch)
        options->min_batch = standard.min_batch;
    if (!options->max_wait_us)
        options->max_wait_us = standard.max_wait_us;
    if (!options->max_queue)
        options->max_queue = standard.max_queue;
    if (!options->retry_us)
        options->retry_us = 100000;
}

static kiln_status read_options(const kiln_executor_options *options, kiln_executor_options *own)
{
    return KILN__STRUCTURE_READ(NULL, create_call, options, "KILN_EXECUTOR_OPTIONS_INIT", own);
}

static kiln_status check_options(const kiln_executor_options *given, kiln_executor_options *options)
{
    const uint64_t hour = (uint64_t)3600 * 1000000;
    kiln_status status = given ? read_options(given, options) : KILN_OK;
    if (status)
        return status;
    fill_in(options);
    if (options->max_batch > KILN__MOST_ROWS || options->min_batch > options->max_batch)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                          "%s: batches of %zu to %zu rows; at most is %zu", create_call,
                          options->min_batch, options->max_batch, KILN__MOST_ROWS);
    if (options->max_wait_us > hour || options->retry_us > hour)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: options->%s is more than an hour",
                          create_call, options->retry_us > hour ? "retry_us" : "max_wait_us");
    return KILN_OK;
}

static kiln_status check_contexts(kiln_context *const *contexts, size_t n)
{
    if (!contexts || !n || n > KILN__MOST_CONTEXTS)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                          contexts ? "%s: %zu contexts, and 1 to %d are taken"
                                   : "%s: contexts is NULL",
                          create_call, n, KILN__MOST_CONTEXTS);
    for (size_t i = 0; i < n; i++) {
        if (!contexts[i])
            return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: context %zu is NULL", create_call,
                              i);
        for (size_t k = 0; k < i; k++)
            if (contexts[k] == contexts[i])
                return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                                  "%s: contexts %zu and %zu are the same", create_call, k, i);
    }
    return KILN_OK;
}

/* It is held for a moment only: whoever finds it taken looks again before he goes to sleep. */
static bool make_lock(pthread_mutex_t *lock)
{
#ifdef PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP
    pthread_mutexattr_t attributes;
    if (pthread_mutexattr_init(&attributes))
        return false;
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
    bool done = !pthread_mutex_init(lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return done;
#else
    return !pthread_mutex_init(lock, NULL);
#endif
}

static bool executor_allocate(kiln_executor *executor, size_t n)
{
    executor->device_queues = calloc(n, sizeof *executor->device_queues);
    executor->workers = calloc(n * KILN__WORKERS, sizeof *executor->workers);
    if (!executor->device_queues || !executor->workers)
        return false;
    bool done = make_lock(&executor->lock) && kiln__cond_create(&executor->room) &&
                kiln__cond_create(&executor->over);
    for (size_t i = 0; i < n && done; i++)
        done = kiln__cond_create(&executor->device_queues[i].work);
    executor->device_queue_count = n;
    return done;
}

/* What an executor without workers and futures still has. */
static void executor_destroy(kiln_executor *executor)
{
    for (size_t i = 0; i < executor->device_queue_count; i++)
        pthread_cond_destroy(&executor->device_queues[i].work);
    if (executor->device_queue_count) {
        pthread_cond_destroy(&executor->over);
        pthread_cond_destroy(&executor->room);
        pthread_mutex_destroy(&executor->lock);
    }
    free(executor->workers);
    free(executor->device_queues);
    free(executor);
}

void kiln__executor_drop(kiln_executor *executor, size_t references)
{
    if (atomic_fetch_sub(&executor->references, references) == references)
        executor_destroy(executor);
}

/* Nobody submits any more: futures that somebody still holds are not put on a shelf again. */
void kiln__executor_leave(kiln_executor *executor)
{
    if (atomic_fetch_sub(&executor->holders, 1) == 1)
        kiln__executor_drop(executor, 1 + kiln__futures_close(executor));
}

static void open_lane(kiln_executor *executor, size_t i, kiln_context *context)
{
    kiln_device_info info;
    struct kiln__device_queue *device_queue = &executor->device_queues[i];
    kiln_context_retain(context);
    device_queue->context = context;
    device_queue->wakes = KILN__NEVER;
    if (!kiln_context_device(context, &info))
        memcpy(device_queue->device, info.name, sizeof device_queue->device);
    for (size_t k = 0; k < KILN__WORKERS; k++)
        executor->workers[i * KILN__WORKERS + k] =
            (struct kiln__worker){.executor = executor, .device_queue = device_queue};
}

static kiln_status executor_record(kiln_executor *executor)
{
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < executor->device_queue_count * KILN__WORKERS && !status; i++) {
        struct kiln__worker *worker = &executor->workers[i];
        status = kiln__slots_record(&worker->slots, &executor->model, worker->device_queue->context,
                                    i / KILN__WORKERS, executor->options.prepare != 0);
    }
    return status;
}

/* Signals are for the program's own threads. */
static kiln_status executor_start(kiln_executor *executor)
{
    size_t all = executor->device_queue_count * KILN__WORKERS, made = 0;
    sigset_t every, before;
    int error = 0;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    pthread_mutex_lock(&executor->lock);
    for (; made < all && !error; made += !error)
        error = pthread_create(&executor->workers[made].thread, NULL, kiln__worker_main,
                               &executor->workers[made]);
    executor->alive = (unsigned)made;
    executor->thread_count = made;
    atomic_store(&executor->holders, 1 + made);
    atomic_store(&executor->stopping, made < all);
    pthread_mutex_unlock(&executor->lock);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error ? kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "%s: no thread: %s", create_call,
                              strerror(error))
                 : KILN_OK;
}

/* Of an executor that nobody has seen. */
static void abandon(kiln_executor *executor)
{
    size_t made = executor->thread_count, all = executor->device_queue_count * KILN__WORKERS;
    for (size_t i = made; i < all; i++)
        kiln__slots_free(&executor->workers[i].slots);
    for (size_t i = 0; i < made; i++)
        pthread_join(executor->workers[i].thread, NULL);
    for (size_t i = 0; i < executor->device_queue_count && !made; i++)
        kiln_context_release(executor->device_queues[i].context); /* else the last worker does */
    executor_destroy(executor);
}

kiln_status kiln_executor_create(kiln_context *const *contexts, size_t n, const kiln_model *model,
                                 const kiln_executor_options *given, kiln_executor **result)
{
    kiln_executor_options options = KILN_EXECUTOR_OPTIONS_INIT;
    if (!result)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: executor is NULL", create_call);
    *result = NULL;
    kiln_status status = check_contexts(contexts, n);
    if (!status)
        status = check_options(given, &options);
    if (status)
        return status;
    kiln_executor *executor = calloc(1, sizeof *executor);
    if (!executor)
        return kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "%s: no memory", create_call);
    executor->forks = kiln__forks();
    executor->options = options;
    executor->handles = 1;
    atomic_store(&executor->references, 1);
    status = kiln__model_check(model, &options, &executor->model);
    for (unsigned i = 0; i < executor->model.length_count && !status; i++)
        executor->queue.most_of[i] = kiln__model_most(&executor->model, i);
    if (!status && !(kiln__forks_watch() && executor_allocate(executor, n)))
        status = kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "%s: no memory", create_call);
    for (size_t i = 0; i < n && !status; i++)
        open_lane(executor, i, contexts[i]);
    if (!status)
        status = executor_record(executor);
    executor->started = kiln__now();
    if (!status)
        status = executor_start(executor);
    if (status) {
        abandon(executor);
        return status;
    }
    *result = executor;
    return KILN_OK;
}

/* ---- ending ---- */

/* Under the lock. */
static void executor_stop(kiln_executor *executor, kiln_shutdown how, struct kiln__told *told)
{
    atomic_store(&executor->stopping, true);
    kiln__executor_admit(executor);
    if (how == KILN_SHUTDOWN_CANCEL)
        kiln__future_cancel_all(executor, told);
    kiln__executor_wake_all(executor);
}

/* Join the threads, or, in one of them, let them go. The caller has claimed them. */
static void executor_part(kiln_executor *executor)
{
    for (size_t i = 0; i < executor->thread_count; i++)
        if (kiln__is_worker_thread())
            pthread_detach(executor->workers[i].thread);
        else
            pthread_join(executor->workers[i].thread, NULL);
}

/* Until the threads have ended; one caller joins them. */
static void await_end(kiln_executor *executor)
{
    pthread_mutex_lock(&executor->lock);
    while (!executor->ended)
        pthread_cond_wait(&executor->over, &executor->lock);
    bool claim = !executor->claimed;
    executor->claimed = true;
    pthread_mutex_unlock(&executor->lock);
    if (claim)
        executor_part(executor);
}

kiln_status kiln_executor_shutdown(kiln_executor *executor, kiln_shutdown how)
{
    struct kiln__told told = {0};
    kiln_status status = kiln__executor_check(executor, "kiln_executor_shutdown");
    if (status)
        return status;
    if (how != KILN_SHUTDOWN_DRAIN && how != KILN_SHUTDOWN_CANCEL)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                          "kiln_executor_shutdown: %d is no way to shut down", (int)how);
    pthread_mutex_lock(&executor->lock);
    atomic_fetch_add(&executor->holders, 1); /* a callback may release the last handle */
    executor_stop(executor, how, &told);
    pthread_mutex_unlock(&executor->lock);
    kiln__future_tell(executor, &told);
    if (!kiln__is_worker_thread())
        await_end(executor);
    kiln__executor_leave(executor);
    return KILN_OK;
}

void kiln_executor_retain(kiln_executor *executor)
{
    if (!executor || !kiln__executor_is_of_process(executor))
        return;
    pthread_mutex_lock(&executor->lock);
    executor->handles++;
    pthread_mutex_unlock(&executor->lock);
}

void kiln_executor_release(kiln_executor *executor)
{
    struct kiln__told told = {0};
    if (!executor || !kiln__executor_is_of_process(executor))
        return;
    pthread_mutex_lock(&executor->lock);
    bool last = --executor->handles == 0;
    bool detach = last && kiln__is_worker_thread() && !executor->claimed;
    if (last)
        executor_stop(executor, KILN_SHUTDOWN_DRAIN, &told);
    if (detach)
        executor->claimed = true;
    pthread_mutex_unlock(&executor->lock);
    if (!last)
        return;
    if (detach)
        executor_part(executor);
    else if (!kiln__is_worker_thread())
        await_end(executor);
    kiln__executor_leave(executor);
}
