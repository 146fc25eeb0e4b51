/* SPDX-License-Identifier: Apache-2.0 */
/* A request and its end are one object. It is its caller's and the executor's; whoever is the last
 * to have to do with it keeps it for another request.
 *
 *     queued -> running    under the executor's lock
 *     queued -> done       the same: it was cancelled, or its deadline passed
 *     running -> done      by the worker that has it
 *
 * What has come to pass is one word. Whoever wants to be told says so there unless it is done, and
 * who completes it sees that. Those who wait do so at an event count of the executor's, all those
 * at the same one whose requests were submitted between two batches and most likely run in one. The
 * executor's part ends with DONE, or, if there is a callback or a descriptor, with TOLD; its
 * caller's ends with RELEASED. The later one of the two keeps it. */
#pragma once

#include "executor/executor.h"
#include "util/error.h"

enum {
    KILN__FUTURE_DONE = 1,
    KILN__FUTURE_AWAITED = 2, /* somebody waits */
    KILN__FUTURE_HEARD = 4,   /* there is a callback or a descriptor */
    KILN__FUTURE_TOLD = 8,    /* and they have been told */
    KILN__FUTURE_RELEASED = 16
};

struct kiln_future {
    kiln_future *next, *previous; /* in the inbox, the queue, a batch, a list, on a shelf */
    atomic_uint passed;           /* of the above */
    atomic_bool queued;           /* in the inbox or the queue, not in a batch */
    bool rerun;                   /* a context failed it already */
    bool alone;                   /* it is a batch by itself */
    size_t rows, length;
    int64_t submitted, due, deadline; /* KILN__NEVER: none */
    unsigned length_number, priority;
    unsigned event_count; /* number */
    struct kiln_executor *executor;
    struct kiln__shelf *shelf;
    kiln_status status; /* how it ended, when it has */
    int descriptor;     /* -1: none; made and written to under the lock */
    char *sentence;     /* if not well; as long as an error's */

    pthread_mutex_t lock; /* guards what follows; the executor's is not taken under it */
    kiln_future_callback callback;
    void *user;
    bool called; /* back */
    bool raised;

    void *memory[]; /* inputs, then outputs */
};

/* Those to be told when the lock is free. */
struct kiln__told {
    struct kiln__list heard;
    unsigned event_counts; /* a bit each */
};

/* A new request, held by its caller and by the executor; NULL without memory. */
kiln_future *kiln__future_create(kiln_executor *executor);

/* One that nobody else has seen, or will see any more, is kept for another request. */
void kiln__future_recycle(kiln_future *future);

/* Whether it is in no batch. */
bool kiln__future_is_queued(const kiln_future *future);

/* Free those on shelves, for good: how many they were. */
size_t kiln__futures_close(kiln_executor *executor);

/* ---- under the executor's lock ---- */

/* So many requests have ended so. */
void kiln__executor_count(kiln_executor *executor, kiln_status status, size_t requests);

/* Take one that waits back, as if it had not been submitted. */
void kiln__future_withdraw(kiln_future *future);

/* Complete one in the queue whose deadline has passed; all of it, for a shutdown. Whoever calls
 * tells those on the list when the lock is free. */
void kiln__future_expire(kiln_future *future, struct kiln__told *told);
void kiln__future_cancel_all(kiln_executor *executor, struct kiln__told *told);

/* ---- without it ---- */

/* Look at a request of any number of rows, and fill in its options; submit one that has been looked
 * at, to be a batch by itself. Errors: those of kiln_executor_submit(). */
kiln_status kiln__submit_check(const kiln_executor *executor, const kiln_input *inputs,
                               const kiln_output *outputs, size_t rows,
                               const kiln_request_options *given, kiln_request_options *options);
kiln_status kiln__submit_alone(kiln_executor *executor, const kiln_input *inputs,
                               const kiln_output *outputs, size_t rows,
                               const kiln_request_options *options, kiln_future **future);

/* It has ended so (NULL: well); note who is to be told. It may be gone then. */
void kiln__future_complete(kiln_future *future, const struct kiln__error *error,
                           struct kiln__told *told);

/* Tell them, and let go. */
void kiln__future_tell(kiln_executor *executor, struct kiln__told *told);
