/* SPDX-License-Identifier: Apache-2.0 */
/* A request and its end are one object. It is its caller's and the executor's, which lets go when
 * the request has completed and everybody has been told; then it is kept for another request. */
#ifndef KILN_EXECUTOR_FUTURE_H
#define KILN_EXECUTOR_FUTURE_H

#include "executor/executor.h"
#include "util/error.h"

enum kiln__future_state { KILN__FUTURE_QUEUED, KILN__FUTURE_RUNNING, KILN__FUTURE_DONE };

struct kiln_future {
    struct kiln_executor *executor;
    kiln_future *next, *previous; /* in the queue, a batch, a list of completed ones, spare */
    unsigned references;
    enum kiln__future_state state;
    pthread_cond_t done;

    size_t rows;
    unsigned priority;
    int64_t submitted, due, deadline; /* KILN__NEVER: none */
    bool rerun;                       /* a context failed it already */

    struct kiln__error error; /* how it ended */
    kiln_future_callback callback;
    void *user;
    int descriptor; /* -1: none */
    void *memory[]; /* inputs, then outputs */
};

/* ---- under the lock ---- */

/* A new request that nobody holds; NULL without memory. */
kiln_future *kiln__future_create(kiln_executor *executor);

/* It has ended so (NULL: well). Whoever calls tells those on the list when the lock is free. */
void kiln__future_complete(kiln_future *future, const struct kiln__error *error,
                           struct kiln__list *told);

/* Complete those in the queue whose deadline has passed; of the others, all for a shutdown. */
void kiln__future_expire(kiln_future *future, struct kiln__list *told);
void kiln__future_cancel_all(kiln_executor *executor, struct kiln__list *told);

/* ---- without it ---- */

/* Tell whoever waits for them, and let go. A reference to the executor is held by the caller. */
void kiln__future_tell(kiln_executor *executor, struct kiln__list *told);

#endif
