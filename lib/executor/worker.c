/* SPDX-License-Identifier: Apache-2.0 */
/* worker = (take gather run scatter complete)* end */
#include <stdio.h>
#include <string.h>

#include <kiln/batch.h>
#include <kiln/context.h>

#include "executor/future.h"

/* What a worker has at hand. */
struct taken {
    struct kiln__list requests; /* in the order of their rows */
    size_t count, rows, elements;
    unsigned size;
    int64_t start;
};

static _Thread_local bool in_worker;

bool kiln__is_worker_thread(void)
{
    return in_worker;
}

/* ---- taking, under the lock ---- */

static void take_one(kiln_executor *executor, kiln_future *request, struct taken *taken)
{
    kiln__request_queue_remove(&executor->queue, request);
    atomic_store_explicit(&request->queued, false, memory_order_relaxed);
    taken->count++;
    taken->rows += request->rows;
    taken->elements += request->rows * (request->length ? request->length : 1);
    kiln__list_push(&taken->requests, request);
}

static bool takes_alone(const struct taken *taken)
{
    return taken->requests.first && taken->requests.first->alone;
}

/* As many of a length as there are to be at most, in their order; none overtakes one of its length
 * that does not fit. */
static void take_of(kiln_executor *executor, unsigned length, size_t most, struct taken *taken,
                    struct kiln__told *told)
{
    for (unsigned i = 0; i < KILN__PRIORITIES; i++) {
        for (kiln_future *r = executor->queue.lists[i].first, *next; r; r = next) {
            next = r->next;
            if (r->deadline <= taken->start)
                kiln__future_expire(r, told);
            else if (r->length_number != length)
                continue;
            else if (taken->rows && (r->alone || taken->rows + r->rows > most))
                return;
            else
                take_one(executor, r, taken);
            if (takes_alone(taken))
                return;
        }
    }
}

/* A length that has rows enough goes before the first request's until somebody has waited. */
static void worker_take(kiln_executor *executor, const struct kiln__device_queue *device_queue,
                        enum kiln__flush flush, struct taken *taken, struct kiln__told *told)
{
    const kiln_executor_options *options = &executor->options;
    bool due = kiln__request_queue_due(&executor->queue) <= taken->start;
    size_t enough = flush == KILN__FLUSH_FULL && !due ? options->max_batch
                    : flush == KILN__FLUSH_IDLE       ? options->min_batch
                                                      : 0;
    unsigned length = kiln__request_queue_next_length(&executor->queue, enough);
    take_of(executor, length, kiln__device_queue_most(executor, device_queue, length), taken, told);
    if (taken->rows)
        taken->size = kiln__model_size(&executor->model, taken->rows, length);
    kiln__inbox_leave(&executor->inbox, taken->count, taken->rows);
    pthread_cond_broadcast(&executor->room);
}

/* Nothing comes any more: neither from callers nor back from a device queue that fails. */
static bool is_over(const kiln_executor *executor)
{
    return executor->stopping && !executor->queue.count && !executor->active;
}

static void sleep_until(kiln_executor *executor, struct kiln__device_queue *device_queue,
                        int64_t again)
{
    if (!device_queue->waiting++ || again < device_queue->wakes)
        device_queue->wakes = again;
    if (kiln__executor_set_alarm(executor))
        kiln__cond_wait_until(&device_queue->work, &executor->lock, again);
    device_queue->waiting--;
    device_queue->called = false;
    device_queue->wakes =
        KILN__NEVER; /* when the other looks again, if it waits too, is forgotten */
}

/* The next batch; false: there will be none. Requests may only have expired: then it is empty. */
static bool next_batch(struct kiln__worker *worker, struct taken *taken, struct kiln__told *told)
{
    kiln_executor *executor = worker->executor;
    struct kiln__device_queue *device_queue = worker->device_queue;
    enum kiln__flush flush;
    int64_t again;
    pthread_mutex_lock(&executor->lock);
    while (!is_over(executor)) {
        kiln__executor_admit(executor);
        taken->start = kiln__now();
        flush = kiln__device_queue_decide(executor, device_queue, taken->start, &again);
        if (flush)
            break;
        sleep_until(executor, device_queue, again);
    }
    if (is_over(executor)) {
        pthread_mutex_unlock(&executor->lock);
        return false;
    }
    worker_take(executor, device_queue, flush, taken, told);
    if (taken->rows) {
        executor->flushes[flush]++;
        executor->counts.running += taken->count;
        executor->active++;
        atomic_fetch_add_explicit(&executor->inbox.round, 1, memory_order_relaxed);
        kiln__device_queue_begin(device_queue, taken->size, taken->start);
    }
    kiln__executor_wake(executor, taken->start);
    pthread_mutex_unlock(&executor->lock);
    return true;
}

/* ---- rows in, rows out: parts of all requests, one after another ---- */

/* Rows of so many bytes where there is room for more, with zeros behind each. */
static void copy_in(char *place, const char *from, size_t rows, size_t bytes, size_t room)
{
    if (bytes == room) {
        memcpy(place, from, rows * bytes);
        return;
    }
    for (size_t i = 0; i < rows; i++, place += room, from += bytes) {
        memcpy(place, from, bytes);
        memset(place + bytes, 0, room - bytes);
    }
}

static void copy_out(char *to, const char *place, size_t rows, size_t bytes, size_t room)
{
    if (bytes == room) {
        memcpy(to, place, rows * bytes);
        return;
    }
    for (size_t i = 0; i < rows; i++, place += room, to += bytes)
        memcpy(to, place, bytes);
}

static void gather_lengths(const struct kiln__batch_slot *slot, size_t rows,
                           const struct taken *taken)
{
    int32_t *place = slot->lengths;
    for (const kiln_future *r = taken->requests.first; r; r = r->next)
        for (size_t i = 0; i < r->rows; i++)
            *place++ = (int32_t)r->length;
    memset(place, 0, (rows - taken->rows) * sizeof *place);
}

static void worker_gather(const struct kiln__model *model, struct kiln__batch_slot *slot,
                          const struct taken *taken)
{
    const struct kiln__batch_size *size = &model->sizes[taken->size];
    kiln__slot_meet(slot);
    for (size_t i = 0; i < model->input_count; i++) {
        const struct kiln__model_part *part = &model->parts[i];
        size_t room = kiln__part_bytes(part, size->length);
        char *place = slot->memory[i];
        for (const kiln_future *r = taken->requests.first; r; r = r->next) {
            copy_in(place, r->memory[i], r->rows, kiln__part_bytes(part, r->length), room);
            place += r->rows * room;
        }
    }
    if (size->length)
        gather_lengths(slot, size->rows, taken);
}

static void scatter(const struct kiln__model *model, const struct kiln__batch_slot *slot,
                    const struct taken *taken)
{
    size_t first = model->input_count, length = model->sizes[taken->size].length;
    for (size_t i = first; i < first + model->output_count; i++) {
        const struct kiln__model_part *part = &model->parts[i];
        size_t room = kiln__part_bytes(part, length);
        const char *place = slot->memory[i];
        for (const kiln_future *r = taken->requests.first; r; r = r->next) {
            copy_out(r->memory[i], place, r->rows, kiln__part_bytes(part, r->length), room);
            place += r->rows * room;
        }
    }
}

/* ---- ends ---- */

/* How long each has waited, or taken in all. */
static void note_times(const struct taken *taken, int64_t until, struct kiln__histogram *times)
{
    for (const kiln_future *r = taken->requests.first; r; r = r->next)
        kiln__histogram_add(times, until - r->submitted);
}

/* The device is free for another batch before this one's results are where they belong. */
static void leave_device(struct kiln__worker *worker, const struct taken *taken, kiln_status status)
{
    kiln_executor *executor = worker->executor;
    struct kiln__device_queue *device_queue = worker->device_queue;
    const struct kiln__batch_size *size = &executor->model.sizes[taken->size];
    int64_t now = kiln__now();
    pthread_mutex_lock(&executor->lock);
    kiln__histogram_move(&worker->wait, &executor->wait);
    kiln__device_queue_end(device_queue, now);
    if (status) {
        executor->counts.failed_batches++;
        kiln__device_queue_failed(executor, device_queue, now);
    } else {
        kiln__device_queue_measured(device_queue, taken->size, now - taken->start);
        kiln__histogram_add(&executor->run, now - taken->start);
        device_queue->batches++;
        device_queue->rows += taken->rows;
        executor->counts.batches++;
        executor->counts.rows += taken->rows;
        executor->counts.padding += size->rows - taken->rows;
        executor->asked += taken->elements;
        executor->full +=
            kiln__model_most(&executor->model, taken->size / executor->model.size_count);
        executor->computed += size->rows * (size->length ? size->length : 1);
    }
    kiln__executor_wake(executor, now);
    pthread_mutex_unlock(&executor->lock);
}

/* Those of a batch that failed which have not failed before wait once more, for another context.
 * The last comes to the front first, so that they keep their order. */
static void queue_again(kiln_executor *executor, struct taken *taken)
{
    struct kiln__list rest = {0};
    for (kiln_future *request = taken->requests.last, *previous; request; request = previous) {
        previous = request->previous;
        if (request->rerun) {
            kiln__list_push(&rest, request);
            continue;
        }
        atomic_store_explicit(&request->queued, true, memory_order_relaxed);
        request->rerun = true;
        executor->counts.rerun++;
        taken->count--;
        kiln__request_queue_push_front(&executor->queue, request);
        kiln__inbox_return(&executor->inbox, 1, request->rows);
    }
    taken->requests = rest;
}

/* What is counted stands before anybody hears that his request has ended. */
static void worker_complete(struct kiln__worker *worker, struct taken *taken,
                            const struct kiln__error *error)
{
    kiln_executor *executor = worker->executor;
    if (!error)
        note_times(taken, kiln__now(), &worker->total);
    pthread_mutex_lock(&executor->lock);
    executor->counts.running -= taken->count;
    if (error && kiln__device_queue_has_other(executor, worker->device_queue))
        queue_again(executor, taken);
    if (error)
        note_times(taken, kiln__now(), &worker->total);
    kiln__executor_count(executor, error ? error->status : KILN_OK, taken->count);
    kiln__histogram_move(&worker->total, &executor->total);
    executor->active--;
    if (executor->stopping)
        kiln__executor_wake_all(executor);
    else if (error)
        kiln__executor_wake(executor, kiln__now());
    pthread_mutex_unlock(&executor->lock);
    struct kiln__told told = {0}; /* when all have completed: who wakes up finds many of his so */
    for (kiln_future *r = taken->requests.first, *next; r; r = next) {
        next = r->next;
        kiln__future_complete(r, error, &told);
    }
    kiln__future_tell(executor, &told);
}

static void worker_run(struct kiln__worker *worker, struct taken *taken)
{
    const struct kiln__model *model = &worker->executor->model;
    struct kiln__batch_slot *slot = &worker->slots.of[taken->size];
    struct kiln__error error;
    worker_gather(model, slot, taken);
    note_times(taken, taken->start, &worker->wait);
    kiln_status status = kiln_batch_execute(slot->batch);
    error.status = status;
    if (status)
        snprintf(error.text, sizeof error.text, "a batch of %zu rows: %s", taken->rows,
                 kiln_last_error());
    leave_device(worker, taken, status);
    if (!status)
        scatter(model, slot, taken);
    worker_complete(worker, taken, status ? &error : NULL);
}

/* The last worker lets go of the contexts: a future that somebody keeps must not hold a device. */
static void worker_end(struct kiln__worker *worker)
{
    kiln_executor *executor = worker->executor;
    kiln__slots_free(&worker->slots);
    pthread_mutex_lock(&executor->lock);
    bool last = --executor->alive == 0;
    kiln__executor_wake_all(executor);
    pthread_mutex_unlock(&executor->lock);
    for (size_t i = 0; last && i < executor->device_queue_count; i++)
        kiln_context_release(executor->device_queues[i].context);
    pthread_mutex_lock(&executor->lock);
    executor->ended = executor->ended || last;
    pthread_cond_broadcast(&executor->over);
    pthread_mutex_unlock(&executor->lock);
    kiln__executor_leave(executor);
}

void *kiln__worker_main(void *argument)
{
    struct kiln__worker *worker = argument;
    struct kiln__told told = {0};
    in_worker = true;
    for (struct taken taken = {0}; next_batch(worker, &taken, &told); taken = (struct taken){0}) {
        kiln__future_tell(worker->executor, &told);
        if (taken.rows)
            worker_run(worker, &taken);
    }
    kiln__future_tell(worker->executor, &told);
    worker_end(worker);
    return NULL;
}
