/* SPDX-License-Identifier: Apache-2.0 */
/* Life of a request: states, waiting, callbacks, event descriptors, and free lists that recycle the
 * objects. */
#include "executor/future.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- lives ---- */

/* Its memory's places, and a sentence of an error, come after it. */
static kiln_future *future_make(kiln_executor *executor)
{
    size_t parts = executor->model.input_count + executor->model.output_count;
    size_t bytes = sizeof(kiln_future) + parts * sizeof(void *);
    kiln_future *future = calloc(1, bytes + sizeof((struct kiln__error *)0)->text);
    if (!future)
        return NULL;
    pthread_mutex_init(&future->lock, NULL);
    future->sentence = (char *)future + bytes;
    future->executor = executor;
    return future;
}

static void future_destroy(kiln_future *future)
{
    pthread_mutex_destroy(&future->lock);
    free(future);
}

static kiln_future closed; /* a shelf that takes none back */

/* The calling thread's shelf. */
static struct kiln__shelf *find_shelf(kiln_executor *executor)
{
    static atomic_uint threads;
    static _Thread_local unsigned own; /* from 1 */
    if (!own)
        own = 1 + atomic_fetch_add(&threads, 1) % KILN__SHELVES;
    return &executor->shelves[own - 1];
}

/* Few meet at a shelf, and for some instructions only. */
static kiln_future *take_from(struct kiln__shelf *shelf, kiln_executor *executor)
{
    while (atomic_flag_test_and_set_explicit(&shelf->taken, memory_order_acquire))
        sched_yield();
    if (!shelf->spare)
        shelf->spare = atomic_exchange(&shelf->newest, NULL);
    kiln_future *future = shelf->spare;
    if (future)
        shelf->spare = future->next;
    atomic_flag_clear_explicit(&shelf->taken, memory_order_release);
    if (future || !(future = future_make(executor)))
        return future;
    future->shelf = shelf;
    atomic_fetch_add(&executor->references, 1);
    return future;
}

kiln_future *kiln__future_create(kiln_executor *executor)
{
    kiln_future *future = take_from(find_shelf(executor), executor);
    if (!future)
        return NULL;
    atomic_init(&future->passed, 0);
    atomic_init(&future->queued, true);
    future->status = KILN_OK;
    future->rerun = future->called = future->raised = false;
    future->callback = NULL;
    future->descriptor = -1;
    return future;
}

static size_t close_shelf(struct kiln__shelf *shelf)
{
    kiln_future *lists[] = {shelf->spare, atomic_exchange(&shelf->newest, &closed)};
    size_t count = 0;
    for (int i = 0; i < 2; i++)
        for (kiln_future *future = lists[i], *next; future; future = next) {
            next = future->next;
            future_destroy(future);
            count++;
        }
    return count;
}

size_t kiln__futures_close(kiln_executor *executor)
{
    size_t count = 0;
    for (size_t i = 0; i < KILN__SHELVES; i++)
        count += close_shelf(&executor->shelves[i]);
    return count;
}

/* Nothing is touched once it is on the shelf: the executor may be gone then. */
void kiln__future_recycle(kiln_future *future)
{
    kiln_executor *executor = future->executor;
    struct kiln__shelf *shelf = future->shelf;
    kiln_future *newest = atomic_load(&shelf->newest);
    do {
        if (newest == &closed) {
            future_destroy(future);
            kiln__executor_drop(executor, 1);
            return;
        }
        future->next = newest;
    } while (!atomic_compare_exchange_weak(&shelf->newest, &newest, future));
}

/* Whether the executor has nothing more to do with it. */
static bool is_over(unsigned passed)
{
    return passed & KILN__FUTURE_TOLD ||
           (passed & (KILN__FUTURE_DONE | KILN__FUTURE_HEARD)) == KILN__FUTURE_DONE;
}

void kiln_future_release(kiln_future *future)
{
    if (!future || !kiln__executor_is_of_process(future->executor))
        return;
    if (future->descriptor >= 0) {
        pthread_mutex_lock(&future->lock);
        close(future->descriptor);
        future->descriptor = -1;
        pthread_mutex_unlock(&future->lock);
    }
    if (is_over(atomic_load(&future->passed)) ||
        is_over(atomic_fetch_or(&future->passed, KILN__FUTURE_RELEASED)))
        kiln__future_recycle(future);
}

/* ---- ends ---- */

static bool is_done(const kiln_future *future)
{
    return atomic_load(&future->passed) & KILN__FUTURE_DONE;
}

bool kiln__future_is_queued(const kiln_future *future)
{
    return atomic_load(&future->queued) && !is_done(future);
}

/* Have it told when it is done; false: it is. */
static bool listen_to(kiln_future *future, unsigned how)
{
    unsigned passed = atomic_load(&future->passed);
    while (!(passed & KILN__FUTURE_DONE))
        if (atomic_compare_exchange_weak(&future->passed, &passed, passed | how))
            return true;
    return false;
}

/* Under its lock. An eventfd takes this without waiting. */
static void raise_descriptor(kiln_future *future)
{
    const uint64_t one = 1;
    if (future->descriptor < 0 || future->raised)
        return;
    future->raised = true;
    if (write(future->descriptor, &one, sizeof one) < 0)
        return;
}

/* The callback, if there is one that nobody has called: now it is the asker's. Under its lock. */
static kiln_future_callback take_callback(kiln_future *future)
{
    kiln_future_callback callback = future->called ? NULL : future->callback;
    future->called = future->called || callback;
    return callback;
}

void kiln__executor_count(kiln_executor *executor, kiln_status status, size_t requests)
{
    kiln_executor_stats *counts = &executor->counts;
    *(status == KILN_OK          ? &counts->completed
      : status == KILN_CANCELLED ? &counts->cancelled
      : status == KILN_TIMED_OUT ? &counts->timed_out
                                 : &counts->failed) += requests;
}

void kiln__future_complete(kiln_future *future, const struct kiln__error *error,
                           struct kiln__told *told)
{
    unsigned event_count = 1u << future->event_count;
    if (error) {
        future->status = error->status;
        memcpy(future->sentence, error->text, sizeof error->text);
    }
    unsigned passed = atomic_fetch_or(&future->passed, KILN__FUTURE_DONE);
    if (passed & KILN__FUTURE_AWAITED)
        told->event_counts |= event_count;
    if (passed & KILN__FUTURE_HEARD)
        kiln__list_push(&told->heard, future);
    else if (passed & KILN__FUTURE_RELEASED)
        kiln__future_recycle(future);
}

static void future_tell(kiln_future *future)
{
    pthread_mutex_lock(&future->lock);
    raise_descriptor(future);
    kiln_future_callback callback = take_callback(future);
    pthread_mutex_unlock(&future->lock);
    if (callback)
        callback(future->status, future->user);
    if (atomic_fetch_or(&future->passed, KILN__FUTURE_TOLD) & KILN__FUTURE_RELEASED)
        kiln__future_recycle(future);
}

void kiln__future_tell(kiln_executor *executor, struct kiln__told *told)
{
    for (unsigned i = 0; told->event_counts >> i; i++)
        if (told->event_counts >> i & 1)
            kiln__event_count_notify(&executor->event_counts[i]);
    for (kiln_future *future = told->heard.first, *next; future; future = next) {
        next = future->next;
        future_tell(future);
    }
    *told = (struct kiln__told){0};
}

static void leave_queue(kiln_future *future)
{
    kiln_executor *executor = future->executor;
    kiln__request_queue_remove(&executor->queue, future);
    kiln__inbox_leave(&executor->inbox, 1, future->rows);
    pthread_cond_broadcast(&executor->room);
}

void kiln__future_withdraw(kiln_future *future)
{
    leave_queue(future);
    future->executor->counts.requests--;
    kiln__future_recycle(future);
}

/* One that waits ends here, not in a batch. */
static void end_queued(kiln_future *future, kiln_status status, const char *sentence,
                       struct kiln__told *told)
{
    kiln_executor *executor = future->executor;
    struct kiln__error error = {.status = status};
    snprintf(error.text, sizeof error.text, "%s", sentence); /* no call of this thread has failed */
    leave_queue(future);
    kiln__executor_count(executor, status, 1);
    kiln__histogram_add(&executor->total, kiln__now() - future->submitted);
    kiln__future_complete(future, &error, told);
}

void kiln__future_expire(kiln_future *future, struct kiln__told *told)
{
    end_queued(future, KILN_TIMED_OUT, "the request's deadline passed while it waited", told);
}

void kiln__future_cancel_all(kiln_executor *executor, struct kiln__told *told)
{
    for (kiln_future *future; (future = kiln__request_queue_first(&executor->queue));)
        end_queued(future, KILN_CANCELLED, "the executor was shut down while the request waited",
                   told);
}

/* ---- asking ---- */

static kiln_status future_check(const kiln_future *future, const char *call)
{
    KILN__RETURN_IF_NULL(NULL, call, future);
    return kiln__executor_check(future->executor, call);
}

static kiln_status check_future(const kiln_future *future, const char *call)
{
    if (!is_done(future))
        return KILN_NOT_READY;
    return future->status ? kiln__fail(NULL, future->status, "%s: %s", call, future->sentence)
                          : KILN_OK;
}

/* The workers may all be busy when a deadline passes: whoever asks for the request sees to that. */
static void look_at_deadline(kiln_future *future)
{
    kiln_executor *executor = future->executor;
    struct kiln__told told = {0};
    if (future->deadline == KILN__NEVER || !kiln__future_is_queued(future) ||
        kiln__now() < future->deadline)
        return;
    pthread_mutex_lock(&executor->lock);
    kiln__executor_admit(executor);
    if (kiln__future_is_queued(future))
        kiln__future_expire(future, &told);
    kiln__executor_wake(executor, kiln__now()); /* the alarm counted on its rows */
    pthread_mutex_unlock(&executor->lock);
    kiln__future_tell(executor, &told);
}

/* Until it has completed, its deadline passes in the queue, or it is so late: then true. */
static bool sleep_until(kiln_future *future, int64_t until)
{
    struct kiln__event_count *event_count = &future->executor->event_counts[future->event_count];
    int64_t next = until;
    bool late = false;
    while (!late) {
        unsigned count = atomic_load(&event_count->count);
        if (!listen_to(future, KILN__FUTURE_AWAITED))
            return false;
        bool queued = kiln__future_is_queued(future);
        next = queued && future->deadline < until ? future->deadline : until;
        late = !kiln__event_count_wait(event_count, count, next);
    }
    return next == until;
}

static kiln_status wait_until(kiln_future *future, int64_t until, const char *call)
{
    bool late = false;
    while (!late && !is_done(future)) {
        late = sleep_until(future, until);
        look_at_deadline(future);
    }
    return check_future(future, call);
}

static kiln_status poll_as(kiln_future *future, const char *call)
{
    look_at_deadline(future);
    return check_future(future, call);
}

static kiln_status wait(kiln_future *future, int64_t until, const char *call)
{
    if (!kiln__is_worker_thread())
        return wait_until(future, until, call);
    kiln_status status = poll_as(future, call);
    return status == KILN_NOT_READY
               ? kiln__fail(NULL, KILN_WRONG_STATE,
                            "%s: a callback must not wait, since others wait for it", call)
               : status;
}

kiln_status kiln_future_wait(kiln_future *future)
{
    kiln_status status = future_check(future, "kiln_future_wait");
    return status ? status : wait(future, KILN__NEVER, "kiln_future_wait");
}

kiln_status kiln_future_wait_for(kiln_future *future, uint64_t timeout_us)
{
    kiln_status status = future_check(future, "kiln_future_wait_for");
    int64_t until = KILN__NEVER;
    if (timeout_us < (uint64_t)INT64_MAX / 2000)
        until = kiln__now() + (int64_t)timeout_us * 1000;
    return status ? status : wait(future, until, "kiln_future_wait_for");
}

kiln_status kiln_future_poll(kiln_future *future)
{
    kiln_status status = future_check(future, "kiln_future_poll");
    return status ? status : poll_as(future, "kiln_future_poll");
}

kiln_status kiln_future_notify(kiln_future *future, kiln_future_callback callback, void *user)
{
    kiln_status status = future_check(future, "kiln_future_notify");
    if (status)
        return status;
    KILN__RETURN_IF_NULL(NULL, __func__, callback);
    pthread_mutex_lock(&future->lock);
    bool taken = future->callback != NULL, now = false;
    if (!taken) {
        future->callback = callback;
        future->user = user;
        now = !listen_to(future, KILN__FUTURE_HEARD) && take_callback(future);
    }
    pthread_mutex_unlock(&future->lock);
    if (taken)
        return kiln__fail(NULL, KILN_WRONG_STATE,
                          "kiln_future_notify: the future has a callback already");
    if (now)
        callback(future->status, user);
    return KILN_OK;
}

kiln_status kiln_future_descriptor(kiln_future *future, int *descriptor)
{
    if (descriptor)
        *descriptor = -1;
    kiln_status status = future_check(future, "kiln_future_descriptor");
    if (status)
        return status;
    KILN__RETURN_IF_NULL(NULL, __func__, descriptor);
    pthread_mutex_lock(&future->lock);
    bool made = future->descriptor < 0;
    if (made)
        future->descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (future->descriptor >= 0 && !listen_to(future, KILN__FUTURE_HEARD))
        raise_descriptor(future);
    *descriptor = future->descriptor;
    pthread_mutex_unlock(&future->lock);
    return *descriptor >= 0
               ? KILN_OK
               : kiln__fail(NULL, KILN_IO_ERROR, "%s: no descriptor is left", __func__);
}

kiln_status kiln_future_cancel(kiln_future *future)
{
    struct kiln__told told = {0};
    kiln_status status = future_check(future, "kiln_future_cancel");
    if (status)
        return status;
    kiln_executor *executor = future->executor;
    pthread_mutex_lock(&executor->lock);
    kiln__executor_admit(executor);
    bool queued = kiln__future_is_queued(future);
    bool done = is_done(future);
    if (queued)
        end_queued(future, KILN_CANCELLED, "the request was cancelled", &told);
    kiln__executor_wake(executor, kiln__now()); /* the alarm counted on its rows */
    pthread_mutex_unlock(&executor->lock);
    kiln__future_tell(executor, &told);
    if (queued)
        return KILN_OK;
    return kiln__fail(NULL, KILN_WRONG_STATE, "kiln_future_cancel: the request %s",
                      done ? "has completed" : "runs");
}
