/* SPDX-License-Identifier: Apache-2.0 */
#include "executor/future.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/eventfd.h>
#endif

/* ---- lives ---- */

kiln_future *kiln__future_create(kiln_executor *executor)
{
    size_t parts = executor->model.input_count + executor->model.output_count;
    kiln_future *future = executor->spare;
    if (future) {
        executor->spare = future->next;
    } else {
        future = calloc(1, sizeof *future + parts * sizeof *future->memory);
        if (!future || !kiln__cond_create(&future->done)) {
            free(future);
            return NULL;
        }
        future->executor = executor;
    }
    future->next = future->previous = NULL;
    future->state = KILN__FUTURE_QUEUED;
    future->rerun = false;
    future->error.status = KILN_OK;
    future->callback = NULL;
    future->descriptor = -1;
    executor->references++;
    return future;
}

/* Under the lock. True: the executor has to lose a reference, too. */
static bool let_go(kiln_future *future)
{
    if (--future->references)
        return false;
    future->next = future->executor->spare;
    future->executor->spare = future;
    return true;
}

void kiln_future_release(kiln_future *future)
{
    if (!future || future->executor->process != getpid())
        return;
    kiln_executor *executor = future->executor;
    pthread_mutex_lock(&executor->lock);
    if (future->descriptor >= 0)
        close(future->descriptor);
    future->descriptor = -1;
    kiln__executor_drop(executor, let_go(future));
}

/* ---- ends ---- */

/* An eventfd takes this without waiting. */
static void raise_descriptor(const kiln_future *future)
{
    const uint64_t one = 1;
    if (future->descriptor >= 0 && write(future->descriptor, &one, sizeof one) < 0)
        return;
}

static uint64_t *counter_of(kiln_executor_stats *counts, kiln_status status)
{
    return status == KILN_OK          ? &counts->completed
           : status == KILN_CANCELLED ? &counts->cancelled
           : status == KILN_TIMED_OUT ? &counts->timed_out
                                      : &counts->failed;
}

void kiln__future_complete(kiln_future *future, const struct kiln__error *error,
                           struct kiln__list *told)
{
    kiln_executor *executor = future->executor;
    future->state = KILN__FUTURE_DONE;
    if (error)
        future->error = *error;
    ++*counter_of(&executor->counts, future->error.status);
    kiln__histogram_add(&executor->total, kiln__now() - future->submitted);
    raise_descriptor(future);
    kiln__list_push(told, future);
}

void kiln__future_tell(kiln_executor *executor, struct kiln__list *told)
{
    size_t gone = 0;
    if (!told->first)
        return;
    for (kiln_future *future = told->first; future; future = future->next) {
        pthread_cond_broadcast(&future->done);
        if (future->callback)
            future->callback(future->error.status, future->user);
    }
    pthread_mutex_lock(&executor->lock);
    for (kiln_future *future; (future = kiln__list_pop(told));)
        gone += let_go(future);
    kiln__executor_drop(executor, gone);
}

/* One that waits ends here, not in a batch. */
static void end_queued(kiln_future *future, kiln_status status, const char *sentence,
                       struct kiln__list *told)
{
    struct kiln__error error = {.status = status};
    snprintf(error.text, sizeof error.text, "%s", sentence); /* no call of this thread has failed */
    kiln__queue_remove(&future->executor->queue, future);
    pthread_cond_broadcast(&future->executor->room);
    kiln__future_complete(future, &error, told);
}

void kiln__future_expire(kiln_future *future, struct kiln__list *told)
{
    end_queued(future, KILN_TIMED_OUT, "the request's deadline passed while it waited", told);
}

void kiln__future_cancel_all(kiln_executor *executor, struct kiln__list *told)
{
    for (kiln_future *future; (future = kiln__queue_first(&executor->queue));)
        end_queued(future, KILN_CANCELLED, "the executor was shut down while the request waited",
                   told);
}

/* ---- asking ---- */

static kiln_status check(const kiln_future *future, const char *call)
{
    if (!future)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: future is NULL", call);
    return kiln__executor_check(future->executor, call);
}

static kiln_status answer(const kiln_future *future, const char *call)
{
    if (future->state != KILN__FUTURE_DONE)
        return KILN_NOT_READY;
    const struct kiln__error *error = &future->error;
    return error->status ? kiln__fail(NULL, error->status, "%s: %s", call, error->text) : KILN_OK;
}

/* Wait until then at most. The workers may all be busy when a deadline passes: whoever waits for
 * the request sees to that. */
static kiln_status wait_until(kiln_future *future, int64_t until, const char *call)
{
    kiln_executor *executor = future->executor;
    struct kiln__list told = {0};
    int late = 0;
    pthread_mutex_lock(&executor->lock);
    while (future->state != KILN__FUTURE_DONE && !late) {
        bool queued = future->state == KILN__FUTURE_QUEUED;
        int64_t next = queued && future->deadline < until ? future->deadline : until;
        late = kiln__cond_wait_until(&future->done, &executor->lock, next) && next == until;
        if (future->state == KILN__FUTURE_QUEUED && kiln__now() >= future->deadline)
            kiln__future_expire(future, &told);
    }
    kiln_status status = answer(future, call);
    pthread_mutex_unlock(&executor->lock);
    kiln__future_tell(executor, &told);
    return status;
}

static kiln_status poll_as(kiln_future *future, const char *call)
{
    struct kiln__list told = {0};
    pthread_mutex_lock(&future->executor->lock);
    if (future->state == KILN__FUTURE_QUEUED && kiln__now() >= future->deadline)
        kiln__future_expire(future, &told);
    kiln_status status = answer(future, call);
    pthread_mutex_unlock(&future->executor->lock);
    kiln__future_tell(future->executor, &told);
    return status;
}

static kiln_status wait(kiln_future *future, int64_t until, const char *call)
{
    if (!kiln__in_worker())
        return wait_until(future, until, call);
    kiln_status status = poll_as(future, call);
    return status == KILN_NOT_READY
               ? kiln__fail(NULL, KILN_WRONG_STATE,
                            "%s: a callback must not wait, since others wait for it", call)
               : status;
}

kiln_status kiln_future_wait(kiln_future *future)
{
    kiln_status status = check(future, "kiln_future_wait");
    return status ? status : wait(future, KILN__NEVER, "kiln_future_wait");
}

kiln_status kiln_future_wait_for(kiln_future *future, uint64_t timeout_us)
{
    kiln_status status = check(future, "kiln_future_wait_for");
    int64_t until = KILN__NEVER;
    if (timeout_us < (uint64_t)INT64_MAX / 2000)
        until = kiln__now() + (int64_t)timeout_us * 1000;
    return status ? status : wait(future, until, "kiln_future_wait_for");
}

kiln_status kiln_future_poll(kiln_future *future)
{
    kiln_status status = check(future, "kiln_future_poll");
    return status ? status : poll_as(future, "kiln_future_poll");
}

kiln_status kiln_future_notify(kiln_future *future, kiln_future_callback callback, void *user)
{
    kiln_status status = check(future, "kiln_future_notify");
    if (status)
        return status;
    if (!callback)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "kiln_future_notify: callback is NULL");
    pthread_mutex_lock(&future->executor->lock);
    bool taken = future->callback != NULL;
    bool done = future->state == KILN__FUTURE_DONE;
    kiln_status ended = future->error.status;
    if (!taken && !done) {
        future->callback = callback;
        future->user = user;
    }
    pthread_mutex_unlock(&future->executor->lock);
    if (taken)
        return kiln__fail(NULL, KILN_WRONG_STATE,
                          "kiln_future_notify: the future has a callback already");
    if (done)
        callback(ended, user);
    return KILN_OK;
}

static int make_descriptor(void)
{
#ifdef __linux__
    return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
#else
    errno = ENOSYS;
    return -1;
#endif
}

kiln_status kiln_future_descriptor(kiln_future *future, int *descriptor)
{
    if (descriptor)
        *descriptor = -1;
    kiln_status status = check(future, "kiln_future_descriptor");
    if (status)
        return status;
    if (!descriptor)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                          "kiln_future_descriptor: descriptor is NULL");
    pthread_mutex_lock(&future->executor->lock);
    bool made = future->descriptor < 0;
    if (made)
        future->descriptor = make_descriptor();
    int error = errno;
    if (made && future->state == KILN__FUTURE_DONE)
        raise_descriptor(future);
    *descriptor = future->descriptor;
    pthread_mutex_unlock(&future->executor->lock);
    if (*descriptor >= 0)
        return KILN_OK;
    return error == ENOSYS
               ? kiln__fail(NULL, KILN_UNSUPPORTED,
                            "kiln_future_descriptor: there is no eventfd here")
               : kiln__fail(NULL, KILN_IO_ERROR, "kiln_future_descriptor: no descriptor is left");
}

kiln_status kiln_future_cancel(kiln_future *future)
{
    struct kiln__list told = {0};
    kiln_status status = check(future, "kiln_future_cancel");
    if (status)
        return status;
    pthread_mutex_lock(&future->executor->lock);
    bool queued = future->state == KILN__FUTURE_QUEUED;
    bool done = future->state == KILN__FUTURE_DONE;
    if (queued)
        end_queued(future, KILN_CANCELLED, "the request was cancelled", &told);
    pthread_mutex_unlock(&future->executor->lock);
    kiln__future_tell(future->executor, &told);
    if (queued)
        return KILN_OK;
    return kiln__fail(NULL, KILN_WRONG_STATE, "kiln_future_cancel: the request %s",
                      done ? "has completed" : "runs");
}
