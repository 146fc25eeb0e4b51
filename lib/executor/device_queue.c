/* SPDX-License-Identifier: Apache-2.0 */
/* Which context takes a batch, and when. Workers come and ask; with several contexts one that is
 * idle leaves a batch to another that will have it done sooner all the same. */
#include "executor/future.h"

/* An estimate that a queue had no chance to mend for so many times its own length is tried again.
 */
#define TRUST 32

/* Times the first wait of a failed queue. */
#define MOST_PATIENCE 64

/* Nanoseconds until an idle worker looks again, at least. */
#define SHORTEST_NAP 100000

/* ---- how long a batch takes ---- */

/* Of a size that has not been measured: as the nearest larger, which may be of a greater length,
 * else the nearest smaller. */
static int64_t cost_of(const struct kiln__device_queue *device_queue, unsigned size)
{
    for (unsigned i = size; i < KILN__MOST_SIZES; i++)
        if (device_queue->cost[i])
            return device_queue->cost[i];
    for (unsigned i = size; i-- > 0;)
        if (device_queue->cost[i])
            return device_queue->cost[i];
    return 0;
}

int64_t kiln__device_queue_cost(const kiln_executor *executor,
                                const struct kiln__device_queue *device_queue, unsigned size)
{
    int64_t cost = cost_of(device_queue, size);
    for (size_t i = 0; i < executor->device_queue_count && !cost; i++)
        cost = cost_of(&executor->device_queues[i], size);
    return cost ? cost : (int64_t)executor->model.sizes[size].rows;
}

static int64_t poll_interval(const struct kiln__device_queue *device_queue)
{
    int64_t part = cost_of(device_queue, 0) / 4;
    return part > SHORTEST_NAP ? part : SHORTEST_NAP;
}

/* What runs takes as long again as it is late. */
static int64_t free_at(const struct kiln__device_queue *device_queue, int64_t now)
{
    if (!device_queue->running)
        return now;
    return device_queue->ready > now ? device_queue->ready : now + (now - device_queue->ready);
}

int64_t kiln__device_queue_free(const struct kiln__device_queue *device_queue, int64_t now)
{
    return free_at(device_queue, now);
}

static int64_t device_queue_finish(const struct kiln__device_queue *device_queue, unsigned size,
                                   int64_t now)
{
    int64_t cost = cost_of(device_queue, size);
    bool forgotten = !device_queue->running && now - device_queue->last > TRUST * cost;
    return free_at(device_queue, now) + (forgotten ? 0 : cost);
}

void kiln__device_queue_begin(struct kiln__device_queue *device_queue, unsigned size, int64_t now)
{
    device_queue->ready = free_at(device_queue, now) + cost_of(device_queue, size);
    if (!device_queue->running++)
        device_queue->busy_since = now;
}

void kiln__device_queue_end(struct kiln__device_queue *device_queue, int64_t now)
{
    device_queue->last = now;
    if (!--device_queue->running)
        device_queue->busy += now - device_queue->busy_since;
}

void kiln__device_queue_measured(struct kiln__device_queue *device_queue, unsigned size,
                                 int64_t took)
{
    int64_t *cost = &device_queue->cost[size];
    device_queue->latest = size;
    device_queue->failures = 0;
    device_queue->out_until = 0;
    if (device_queue->met[size])
        *cost = *cost ? *cost + (took - *cost) / 4 : took;
    device_queue->met[size] = true;
}

/* Batches of fewer rows always are of the size that they fit. */
#define LEAST_CUT 32

size_t kiln__device_queue_most(const kiln_executor *executor,
                               const struct kiln__device_queue *device_queue, unsigned length)
{
    const struct kiln__model *model = &executor->model;
    const size_t most = kiln__model_most(model, length), rows = executor->queue.rows_of[length];
    unsigned size = kiln__model_size(model, rows < most ? rows : most, length);
    if (rows >= most || rows <= LEAST_CUT || rows == model->sizes[size].rows ||
        !device_queue->cost[size])
        return most;
    size_t fewer = model->sizes[size - 1].rows;
    double all = (double)device_queue->cost[size] / (double)rows;
    double cut = (double)device_queue->cost[size - 1] / (double)fewer; /* 0: to be measured */
    return cut < all ? fewer : most;
}

/* ---- queues that fail ---- */

bool kiln__device_queue_has_other(const kiln_executor *executor,
                                  const struct kiln__device_queue *device_queue)
{
    for (size_t i = 0; i < executor->device_queue_count; i++)
        if (&executor->device_queues[i] != device_queue && !executor->device_queues[i].out_until)
            return true;
    return false;
}

/* Another queue in service, else one that could be tried by now. */
static struct kiln__device_queue *
find_other(kiln_executor *executor, const struct kiln__device_queue *device_queue, int64_t now)
{
    struct kiln__device_queue *found = NULL;
    for (size_t i = 0; i < executor->device_queue_count; i++) {
        struct kiln__device_queue *other = &executor->device_queues[i];
        if (other != device_queue && other->out_until <= now && (!found || found->out_until))
            found = other;
    }
    return found;
}

/* One is in service at any time: the last one stays where there is nobody else. */
void kiln__device_queue_failed(kiln_executor *executor, struct kiln__device_queue *device_queue,
                               int64_t now)
{
    unsigned times = 1u << (device_queue->failures < 6 ? device_queue->failures : 6);
    struct kiln__device_queue *other = find_other(executor, device_queue, now);
    _Static_assert(1 << 6 == MOST_PATIENCE, "");
    device_queue->failed_batches++;
    if (!other)
        return;
    other->out_until = 0;
    device_queue->failures++;
    device_queue->out_until = now + (int64_t)(executor->options.retry_us * 1000 * times);
}

/* ---- whether to take a batch ---- */

/* Whether there are so many rows that can travel together. */
static bool has_rows(const struct kiln__request_queue *queue, size_t rows)
{
    return kiln__request_queue_has(queue, kiln__request_queue_next_length(queue, rows), rows);
}

static bool is_full(const kiln_executor *executor)
{
    return has_rows(&executor->queue, executor->options.max_batch) ||
           executor->queue.count >= executor->options.max_queue;
}

static enum kiln__flush reason(kiln_executor *executor,
                               const struct kiln__device_queue *device_queue, int64_t now)
{
    if (executor->stopping)
        return KILN__FLUSH_SHUTDOWN;
    if (is_full(executor))
        return KILN__FLUSH_FULL;
    if (kiln__request_queue_due(&executor->queue) <= now)
        return KILN__FLUSH_WAIT;
    if (!device_queue->running && has_rows(&executor->queue, executor->options.min_batch))
        return KILN__FLUSH_IDLE;
    return KILN__FLUSH_NOT;
}

/* How long nobody has been there to take a batch: workers that call back may take as long again. */
static int64_t time_away(const struct kiln__device_queue *device_queue, int64_t now)
{
    bool there = device_queue->running || device_queue->waiting || !device_queue->last ||
                 now < device_queue->last;
    return there ? 0 : now - device_queue->last;
}

/* Whether another queue would have the next batch done first. Of equals the first takes it. */
static bool another_is_better(const kiln_executor *executor,
                              const struct kiln__device_queue *device_queue, int64_t now)
{
    unsigned length =
        kiln__request_queue_next_length(&executor->queue, executor->options.max_batch);
    const kiln_future *first = kiln__request_queue_first(&executor->queue);
    size_t rows = executor->queue.rows_of[length];
    if (first->alone) {
        length = first->length_number;
        rows = first->rows;
    }
    const size_t most = kiln__model_most(&executor->model, length);
    unsigned size = kiln__model_size(&executor->model, rows < most ? rows : most, length);
    int64_t own = device_queue_finish(device_queue, size, now);
    for (size_t i = 0; i < executor->device_queue_count; i++) {
        const struct kiln__device_queue *other = &executor->device_queues[i];
        if (other != device_queue && !other->out_until &&
            device_queue_finish(other, size, now) + time_away(other, now) <
                own + (other < device_queue ? 1 : 0))
            return true;
    }
    return false;
}

enum kiln__flush kiln__device_queue_decide(kiln_executor *executor,
                                           struct kiln__device_queue *device_queue, int64_t now,
                                           int64_t *again)
{
    struct kiln__request_queue *queue = &executor->queue;
    *again = KILN__NEVER;
    if (!queue->count)
        return KILN__FLUSH_NOT;
    if (device_queue->out_until > now) {
        *again = device_queue->out_until;
        return KILN__FLUSH_NOT;
    }
    enum kiln__flush flush = reason(executor, device_queue, now);
    bool on_trial = device_queue->out_until != 0;
    if (on_trial && flush && (device_queue->running || kiln__request_queue_first(queue)->rerun)) {
        *again = now + poll_interval(device_queue);
        return KILN__FLUSH_NOT;
    }
    if (!flush) {
        *again = kiln__request_queue_due(queue);
    } else if (!on_trial && executor->device_queue_count > 1 &&
               another_is_better(executor, device_queue, now)) {
        *again = now + poll_interval(device_queue);
        flush = KILN__FLUSH_NOT;
    }
    return flush;
}
