/* SPDX-License-Identifier: Apache-2.0 */
/* A lock-free multi-producer stack of requests; one atomic word holds the number of waiting
 * requests and of their rows. */
#include "executor/inbox.h"

#include "executor/future.h"

static uint64_t inbox_pack(size_t count, size_t rows)
{
    return (uint64_t)count << 40 | rows;
}

static size_t count_of(uint64_t waiting)
{
    return (size_t)(waiting >> 40);
}

static uint64_t rows_of(uint64_t waiting)
{
    return waiting & KILN__MOST_ROWS_WAITING;
}

bool kiln__inbox_enter(struct kiln__inbox *inbox, size_t rows, size_t most)
{
    uint64_t waiting = atomic_load_explicit(&inbox->waiting, memory_order_relaxed);
    if (most > KILN__MOST_WAITING)
        most = KILN__MOST_WAITING;
    while (count_of(waiting) < most && rows_of(waiting) + rows <= KILN__MOST_ROWS_WAITING)
        if (atomic_compare_exchange_weak(&inbox->waiting, &waiting, waiting + inbox_pack(1, rows)))
            return true;
    return false;
}

/* Its rows have been counted: of several that come at the same time, the last one sees them all. */
bool kiln__inbox_put(struct kiln__inbox *inbox, kiln_future *request, size_t most)
{
    unsigned round = atomic_load_explicit(&inbox->round, memory_order_relaxed);
    request->event_count = round % KILN__EVENT_COUNTS;
    request->next = atomic_load_explicit(&inbox->newest, memory_order_relaxed);
    while (!atomic_compare_exchange_weak(&inbox->newest, &request->next, request))
        continue;
    uint64_t alarm = atomic_load(&inbox->alarm);
    if (alarm == KILN__NO_ALARM)
        return false;
    uint64_t waiting = atomic_load(&inbox->waiting);
    return rows_of(waiting) >= alarm || count_of(waiting) >= most;
}

kiln_future *kiln__inbox_empty(struct kiln__inbox *inbox)
{
    kiln_future *oldest = NULL;
    if (!atomic_load(&inbox->newest)) /* in the order of all: a shutdown must not overlook one */
        return NULL;
    for (kiln_future *request = atomic_exchange(&inbox->newest, NULL), *older; request;
         request = older) {
        older = request->next;
        request->next = oldest;
        oldest = request;
    }
    return oldest;
}

void kiln__inbox_leave(struct kiln__inbox *inbox, size_t count, size_t rows)
{
    atomic_fetch_sub(&inbox->waiting, inbox_pack(count, rows));
}

void kiln__inbox_return(struct kiln__inbox *inbox, size_t count, size_t rows)
{
    atomic_fetch_add(&inbox->waiting, inbox_pack(count, rows));
}

bool kiln__inbox_set_alarm(struct kiln__inbox *inbox, uint64_t rows)
{
    atomic_store(&inbox->alarm, rows);
    return rows == KILN__NO_ALARM || !atomic_load(&inbox->newest);
}
