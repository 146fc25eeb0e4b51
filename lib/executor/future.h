/* SPDX-License-Identifier: Apache-2.0 */
/* A request and its end are one object. It is its caller's and the executor's, which lets go when
 * the request has completed and everybody has been told; then it is kept for another request.
 *
 *     queued -> running    under the executor's lock
 *     queued -> done       the same: it was cancelled, or its deadline passed
 *     running -> done      by the worker that has it
 *
 * Whoever wants to be told counts himself in and then looks at the state; whoever completes it sets
 * the state and then looks whether anybody is to be told. So one of the two sees the other. */
#ifndef KILN_EXECUTOR_FUTURE_H
#define KILN_EXECUTOR_FUTURE_H

#include "executor/executor.h"
#include "util/error.h"

enum kiln__future_state { KILN__FUTURE_QUEUED, KILN__FUTURE_RUNNING, KILN__FUTURE_DONE };

struct kiln_future {
    struct kiln_executor *executor;
    struct kiln__shelf *shelf;
    kiln_future *next, *previous; /* in the inbox, the queue, a batch, a list, on a shelf */
    _Atomic(enum kiln__future_state) state;
    atomic_uint references;
    atomic_uint listeners; /* those who wait, a callback, a descriptor */
    kiln_status status;    /* how it ended, when it has */
    char *sentence;        /* if not well; as long as an error's */
    size_t rows, length;
    unsigned length_number;
    int64_t submitted, due, deadline; /* KILN__NEVER: none */
    unsigned priority;
    bool rerun; /* a context failed it already */
    bool alone; /* it is a batch by itself */

    pthread_mutex_t lock; /* guards what follows; the executor's is not taken under it */
    pthread_cond_t done;
    kiln_future_callback callback;
    void *user;
    bool called; /* back */
    bool raised;
    int descriptor; /* -1: none */

    void *memory[]; /* inputs, then outputs */
};

/* A new request, held by its caller and by the executor; NULL without memory. */
kiln_future *kiln__future_create(kiln_executor *executor);

/* Free those on shelves, for good: how many they were. */
size_t kiln__futures_close(kiln_executor *executor);

/* ---- under the executor's lock ---- */

/* So many requests have ended so. */
void kiln__executor_count(kiln_executor *executor, kiln_status status, size_t requests);

/* Take one that waits back, as if it had not been submitted. */
void kiln__future_withdraw(kiln_future *future);

/* Complete one in the queue whose deadline has passed; all of it, for a shutdown. Whoever calls
 * tells those on the list when the lock is free. */
void kiln__future_expire(kiln_future *future, struct kiln__list *told);
void kiln__future_cancel_all(kiln_executor *executor, struct kiln__list *told);

/* ---- without it ---- */

/* Look at a request of any number of rows, and fill in its options; submit one that has been looked
 * at, to be a batch by itself. Errors: those of kiln_executor_submit(). */
kiln_status kiln__submit_check(const kiln_executor *executor, const kiln_input *inputs,
                               const kiln_output *outputs, size_t rows,
                               const kiln_request_options *given, kiln_request_options *options);
kiln_status kiln__submit_alone(kiln_executor *executor, const kiln_input *inputs,
                               const kiln_output *outputs, size_t rows,
                               const kiln_request_options *options, kiln_future **future);

/* It has ended so (NULL: well). */
void kiln__future_complete(kiln_future *future, const struct kiln__error *error);

/* Tell whoever waits for them, and let go. */
void kiln__future_tell(struct kiln__list *told);

#endif
