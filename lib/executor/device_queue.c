/* SPDX-License-Identifier: Apache-2.0 */
/* Which context takes a batch, and when. Workers come and ask; with several contexts one that is
 * idle leaves a batch to another that will have it done sooner all the same. */
#include "executor/future.h"

/* An estimate that a lane had no chance to mend for so many times its own length is tried again. */
#define TRUST 32

/* Times the first wait of a failed lane. */
#define MOST_PATIENCE 64

/* Nanoseconds until an idle worker looks again, at least. */
#define SHORTEST_NAP 100000

/* ---- how long a batch takes ---- */

/* Of a size that has not been measured: as the nearest larger, which may be of a greater length,
 * else the nearest smaller. */
static int64_t cost_of(const struct kiln__lane *lane, unsigned size)
{
    for (unsigned i = size; i < KILN__MOST_SIZES; i++)
        if (lane->cost[i])
            return lane->cost[i];
    for (unsigned i = size; i-- > 0;)
        if (lane->cost[i])
            return lane->cost[i];
    return 0;
}

int64_t kiln__lane_cost(const kiln_executor *executor, const struct kiln__lane *lane, unsigned size)
{
    int64_t cost = cost_of(lane, size);
    for (size_t i = 0; i < executor->lane_count && !cost; i++)
        cost = cost_of(&executor->lanes[i], size);
    return cost ? cost : (int64_t)executor->model.sizes[size].rows;
}

static int64_t nap(const struct kiln__lane *lane)
{
    int64_t part = cost_of(lane, 0) / 4;
    return part > SHORTEST_NAP ? part : SHORTEST_NAP;
}

/* What runs takes as long again as it is late. */
static int64_t free_at(const struct kiln__lane *lane, int64_t now)
{
    if (!lane->running)
        return now;
    return lane->ready > now ? lane->ready : now + (now - lane->ready);
}

int64_t kiln__lane_free(const struct kiln__lane *lane, int64_t now)
{
    return free_at(lane, now);
}

static int64_t finish(const struct kiln__lane *lane, unsigned size, int64_t now)
{
    int64_t cost = cost_of(lane, size);
    bool forgotten = !lane->running && now - lane->last > TRUST * cost;
    return free_at(lane, now) + (forgotten ? 0 : cost);
}

void kiln__lane_begin(struct kiln__lane *lane, unsigned size, int64_t now)
{
    lane->ready = free_at(lane, now) + cost_of(lane, size);
    if (!lane->running++)
        lane->busy_since = now;
}

void kiln__lane_end(struct kiln__lane *lane, int64_t now)
{
    lane->last = now;
    if (!--lane->running)
        lane->busy += now - lane->busy_since;
}

void kiln__lane_measured(struct kiln__lane *lane, unsigned size, int64_t took)
{
    int64_t *cost = &lane->cost[size];
    lane->latest = size;
    lane->failures = 0;
    lane->out_until = 0;
    if (lane->met[size])
        *cost = *cost ? *cost + (took - *cost) / 4 : took;
    lane->met[size] = true;
}

/* Batches of fewer rows always are of the size that they fit. */
#define LEAST_CUT 32

size_t kiln__lane_most(const kiln_executor *executor, const struct kiln__lane *lane,
                       unsigned length)
{
    const struct kiln__model *model = &executor->model;
    const size_t most = executor->options.max_batch, rows = executor->queue.rows_of[length];
    unsigned size = kiln__model_size(model, rows < most ? rows : most, length);
    if (rows >= most || rows <= LEAST_CUT || rows == model->sizes[size].rows || !lane->cost[size])
        return most;
    size_t fewer = model->sizes[size - 1].rows;
    double all = (double)lane->cost[size] / (double)rows;
    double cut = (double)lane->cost[size - 1] / (double)fewer; /* 0: to be measured */
    return cut < all ? fewer : most;
}

/* ---- lanes that fail ---- */

bool kiln__lane_has_other(const kiln_executor *executor, const struct kiln__lane *lane)
{
    for (size_t i = 0; i < executor->lane_count; i++)
        if (&executor->lanes[i] != lane && !executor->lanes[i].out_until)
            return true;
    return false;
}

/* Another lane in service, else one that could be tried by now. */
static struct kiln__lane *find_other(kiln_executor *executor, const struct kiln__lane *lane,
                                     int64_t now)
{
    struct kiln__lane *found = NULL;
    for (size_t i = 0; i < executor->lane_count; i++) {
        struct kiln__lane *other = &executor->lanes[i];
        if (other != lane && other->out_until <= now && (!found || found->out_until))
            found = other;
    }
    return found;
}

/* One is in service at any time: the last one stays where there is nobody else. */
void kiln__lane_failed(kiln_executor *executor, struct kiln__lane *lane, int64_t now)
{
    unsigned times = 1u << (lane->failures < 6 ? lane->failures : 6);
    struct kiln__lane *other = find_other(executor, lane, now);
    _Static_assert(1 << 6 == MOST_PATIENCE, "");
    lane->failed_batches++;
    if (!other)
        return;
    other->out_until = 0;
    lane->failures++;
    lane->out_until = now + (int64_t)(executor->options.retry_us * 1000 * times);
}

/* ---- whether to take a batch ---- */

/* Whether there are so many rows that can travel together. */
static bool has_rows(const struct kiln__queue *queue, size_t rows)
{
    return queue->rows_of[kiln__queue_lead(queue, rows)] >= rows;
}

static bool is_full(const kiln_executor *executor)
{
    return has_rows(&executor->queue, executor->options.max_batch) ||
           executor->queue.count >= executor->options.max_queue;
}

static enum kiln__flush reason(kiln_executor *executor, const struct kiln__lane *lane, int64_t now)
{
    if (executor->stopping)
        return KILN__FLUSH_SHUTDOWN;
    if (is_full(executor))
        return KILN__FLUSH_FULL;
    if (kiln__queue_due(&executor->queue) <= now)
        return KILN__FLUSH_WAIT;
    if (!lane->running && has_rows(&executor->queue, executor->options.min_batch))
        return KILN__FLUSH_IDLE;
    return KILN__FLUSH_NOT;
}

/* How long nobody has been there to take a batch: workers that call back may take as long again. */
static int64_t away(const struct kiln__lane *lane, int64_t now)
{
    bool there = lane->running || lane->waiting || !lane->last || now < lane->last;
    return there ? 0 : now - lane->last;
}

/* Whether another lane would have the next batch done first. Of equals the first takes it. */
static bool another_is_better(const kiln_executor *executor, const struct kiln__lane *lane,
                              int64_t now)
{
    size_t most = executor->options.max_batch;
    unsigned length = kiln__queue_lead(&executor->queue, most);
    const kiln_future *first = kiln__queue_first(&executor->queue);
    size_t rows = executor->queue.rows_of[length];
    if (first->alone) {
        length = first->length_number;
        rows = first->rows;
    }
    unsigned size = kiln__model_size(&executor->model, rows < most ? rows : most, length);
    int64_t own = finish(lane, size, now);
    for (size_t i = 0; i < executor->lane_count; i++) {
        const struct kiln__lane *other = &executor->lanes[i];
        if (other != lane && !other->out_until &&
            finish(other, size, now) + away(other, now) < own + (other < lane ? 1 : 0))
            return true;
    }
    return false;
}

enum kiln__flush kiln__lane_decide(kiln_executor *executor, struct kiln__lane *lane, int64_t now,
                                   int64_t *again)
{
    struct kiln__queue *queue = &executor->queue;
    *again = KILN__NEVER;
    if (!queue->count)
        return KILN__FLUSH_NOT;
    if (lane->out_until > now) {
        *again = lane->out_until;
        return KILN__FLUSH_NOT;
    }
    enum kiln__flush flush = reason(executor, lane, now);
    bool on_trial = lane->out_until != 0;
    if (on_trial && flush && (lane->running || kiln__queue_first(queue)->rerun)) {
        *again = now + nap(lane);
        return KILN__FLUSH_NOT;
    }
    if (!flush) {
        *again = kiln__queue_due(queue);
    } else if (!on_trial && executor->lane_count > 1 && another_is_better(executor, lane, now)) {
        *again = now + nap(lane);
        flush = KILN__FLUSH_NOT;
    }
    return flush;
}
