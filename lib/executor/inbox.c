/* SPDX-License-Identifier: Apache-2.0 */
#include "executor/inbox.h"

#include "executor/future.h"

bool kiln__inbox_enter(struct kiln__inbox *inbox, size_t most)
{
    size_t count = atomic_load_explicit(&inbox->count, memory_order_relaxed);
    while (count < most)
        if (atomic_compare_exchange_weak(&inbox->count, &count, count + 1))
            return true;
    return false;
}

/* The rows are added last: of several that come at the same time, the last one sees them all. */
bool kiln__inbox_put(struct kiln__inbox *inbox, kiln_future *request, size_t most)
{
    size_t rows = request->rows; /* it may be over as soon as it is here */
    request->next = atomic_load_explicit(&inbox->newest, memory_order_relaxed);
    while (!atomic_compare_exchange_weak(&inbox->newest, &request->next, request))
        continue;
    rows += atomic_fetch_add(&inbox->rows, rows);
    size_t alarm = atomic_load(&inbox->alarm);
    return rows >= alarm || (alarm != KILN__NO_ALARM && atomic_load(&inbox->count) >= most);
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
    atomic_fetch_sub(&inbox->count, count);
    atomic_fetch_sub(&inbox->rows, rows);
}

void kiln__inbox_return(struct kiln__inbox *inbox, size_t count, size_t rows)
{
    atomic_fetch_add(&inbox->count, count);
    atomic_fetch_add(&inbox->rows, rows);
}

bool kiln__inbox_set_alarm(struct kiln__inbox *inbox, size_t rows)
{
    atomic_store(&inbox->alarm, rows);
    return rows == KILN__NO_ALARM || !atomic_load(&inbox->newest);
}
