/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that have just come: whoever submits puts them here without a lock, and whoever next has
 * the executor's lock moves them to the queue. A worker that goes to sleep says how many rows there
 * are to be when it should look again: only who makes them so many takes the lock and wakes it.
 *
 * A submitter puts its request here and then looks at the alarm; who sets the alarm then looks
 * whether requests have come. So one of the two sees the other. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kiln/executor.h>

#define KILN__NO_ALARM UINT64_MAX /* workers look by themselves */

/* More than so many requests, or rows, never wait. */
#define KILN__MOST_WAITING (((uint64_t)1 << 24) - 1)
#define KILN__MOST_ROWS_WAITING (((uint64_t)1 << 40) - 1)

/* All in one line of cache, which a submitter has to himself for two exchanges. */
struct kiln__inbox {
    _Alignas(64) _Atomic(kiln_future *) newest; /* and older ones by next */
    _Atomic uint64_t waiting;                   /* here and in the queue: requests << 40 | rows */
    _Atomic uint64_t alarm;                     /* rows */
    atomic_uint round;                          /* batches taken so far */
};

/* Room for a request of so many rows; false: there are `most` requests here and in the queue. */
bool kiln__inbox_enter(struct kiln__inbox *inbox, size_t rows, size_t most);

/* Put a request here for which there is room. True: the alarm goes off, also at `most` requests. */
bool kiln__inbox_put(struct kiln__inbox *inbox, kiln_future *request, size_t most);

/* Those that came, the oldest first, by next. */
kiln_future *kiln__inbox_empty(struct kiln__inbox *inbox);

/* So many do not wait any more, neither here nor in the queue; or they wait again. */
void kiln__inbox_leave(struct kiln__inbox *inbox, size_t count, size_t rows);
void kiln__inbox_return(struct kiln__inbox *inbox, size_t count, size_t rows);

/* Have submitters wake a worker at so many rows. False: some have come that may not have seen it.
 */
bool kiln__inbox_set_alarm(struct kiln__inbox *inbox, uint64_t rows);
