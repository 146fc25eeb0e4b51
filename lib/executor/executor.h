/* SPDX-License-Identifier: Apache-2.0 */
/* Requests become batches:
 *
 *     submit.c        a caller's thread: checks, and the inbox
 *     worker.c        two threads per context: take requests, copy in, run, copy out, complete
 *     device_queue.c  whether a context is to take a batch now
 *
 * While one worker of a context waits for its batch, the other gathers the next, and may upload and
 * run it: batches are independent. One lock guards everything that is neither a worker's own nor
 * atomic; nobody copies rows, runs a batch or calls back under it. Whoever submits a request, waits
 * for it, asks about it or lets go of it does without, as long as nobody is to be woken: workers
 * take it, for a whole batch at a time. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <kiln/executor.h>

#include "executor/event_count.h"
#include "executor/histogram.h"
#include "executor/inbox.h"
#include "executor/model.h"
#include "executor/request_queue.h"
#include "util/clock.h"

#define KILN__WORKERS 2 /* of a context */
#define KILN__SHELVES 8
#define KILN__EVENT_COUNTS 16
#define KILN__MOST_CONTEXTS 64

/* Why a batch goes out. */
enum kiln__flush {
    KILN__FLUSH_NOT, /* it does not, yet */
    KILN__FLUSH_FULL,
    KILN__FLUSH_WAIT,
    KILN__FLUSH_IDLE,
    KILN__FLUSH_SHUTDOWN,
    KILN__FLUSH_COUNT
};

/* A context and what is known of it. */
struct kiln__device_queue {
    kiln_context *context;
    char device[128];
    pthread_cond_t work; /* its workers wait here */
    unsigned waiting;    /* workers that do */
    int64_t wakes;       /* when the first of them looks again by itself */
    bool called;         /* one of them has been woken and has not looked yet */

    unsigned running;   /* batches taken and not yet run */
    int64_t busy_since; /* while there are any */
    int64_t busy;       /* nanoseconds in all, up to the last time there were none */
    int64_t ready;      /* when those that run are expected to be done */
    int64_t last;       /* when the last one was done */

    int64_t cost[KILN__MOST_SIZES]; /* measured nanoseconds of a batch of each size; 0: not yet */
    bool met[KILN__MOST_SIZES];     /* ran once, with the compiler perhaps: not a measure */
    unsigned latest;                /* size that ran last */

    unsigned failures; /* in a row */
    int64_t out_until; /* 0: in service */
    uint64_t batches, rows, failed_batches;
};

struct kiln__worker {
    struct kiln_executor *executor;
    struct kiln__device_queue *device_queue;
    pthread_t thread;
    struct kiln__slots slots;           /* its own, as what follows */
    struct kiln__histogram wait, total; /* of the batch at hand */
};

/* Futures of earlier requests. Each thread takes from one shelf, so that few meet there; each
 * future goes back where it came from. */
struct kiln__shelf {
    _Alignas(64) atomic_flag taken; /* by one who takes a future */
    kiln_future *spare;             /* by next */
    _Atomic(kiln_future *)
        newest; /* come back meanwhile, by next; &kiln__shelf_closed: none will */
};

struct kiln_executor {
    struct kiln__inbox inbox;
    struct kiln__event_count event_counts[KILN__EVENT_COUNTS]; /* for those who wait for futures */
    struct kiln__shelf shelves[KILN__SHELVES];
    pthread_mutex_t lock; /* guards all that follows and is not set once */
    pthread_cond_t room;  /* of the queue; or shut down */
    pthread_cond_t over;  /* no worker is left */

    /* set once */
    int64_t started;
    kiln_executor_options options;
    struct kiln__model model;
    size_t device_queue_count;
    struct kiln__device_queue *device_queues;
    struct kiln__worker *workers; /* KILN__WORKERS for each device queue */

    atomic_size_t holders;    /* all handles together, each worker */
    atomic_size_t references; /* all holders together, each future, on a shelf or not */
    atomic_bool stopping;     /* no further requests */

    bool claimed;   /* somebody joins or detaches the threads */
    bool ended;     /* all workers have, and let go of the contexts */
    unsigned forks; /* at its making; set once */
    unsigned handles;
    unsigned alive;  /* workers */
    unsigned active; /* of them, those with a batch: it may come back to the queue */
    size_t thread_count;

    struct kiln__request_queue queue;

    /* metrics; what is asked for otherwise is not counted here */
    kiln_executor_stats counts;
    uint64_t flushes[KILN__FLUSH_COUNT];
    uint64_t asked, computed; /* elements of rows, or rows without a length */
    uint64_t full;            /* rows that full batches would have had */
    struct kiln__histogram wait, run, total;
};

/* FORKED, or INVALID_ARGUMENT for NULL. */
kiln_status kiln__executor_check(const kiln_executor *executor, const char *call);

/* Whether it was made in this process: a fork leaves its threads behind. */
bool kiln__executor_is_of_process(const kiln_executor *executor);

/* A holder leaves; references are given back: the executor may be gone then. */
void kiln__executor_leave(kiln_executor *executor);
void kiln__executor_drop(kiln_executor *executor, size_t references);

/* Whether this thread is a worker, which must wait for nothing that a worker does. */
bool kiln__is_worker_thread(void);
void *kiln__worker_main(void *argument); /* a worker */

/* ---- all of these under the lock ---- */

/* Whether a worker of the device queue should take a batch now; if not, *again is when to ask
 * again. */
enum kiln__flush kiln__device_queue_decide(kiln_executor *executor,
                                           struct kiln__device_queue *device_queue, int64_t now,
                                           int64_t *again);

/* Move requests from the inbox to the queue. */
void kiln__executor_admit(kiln_executor *executor);

/* Have submitters wake a worker once there is something for it to do; false: there may be now. */
bool kiln__executor_set_alarm(kiln_executor *executor);

/* Admit requests, and wake workers for what there is to do. */
void kiln__executor_wake(kiln_executor *executor, int64_t now);
void kiln__executor_wake_all(kiln_executor *executor);

/* Expected nanoseconds of a batch of that size: those of the nearest measured size, else from
 * another context's, else 1 per row. And the time at which the running batches should end. */
int64_t kiln__device_queue_cost(const kiln_executor *executor,
                                const struct kiln__device_queue *device_queue, unsigned size);
int64_t kiln__device_queue_free(const struct kiln__device_queue *device_queue, int64_t now);

/* The most rows of a length that the next batch is to have: a few that do not fit a smaller size
 * wait for the one after it where that costs less than a larger size mostly of nobody's rows. */
size_t kiln__device_queue_most(const kiln_executor *executor,
                               const struct kiln__device_queue *device_queue, unsigned length);

void kiln__device_queue_begin(struct kiln__device_queue *device_queue, unsigned size, int64_t now);
void kiln__device_queue_end(struct kiln__device_queue *device_queue, int64_t now);
void kiln__device_queue_measured(struct kiln__device_queue *device_queue, unsigned size,
                                 int64_t took);
void kiln__device_queue_failed(kiln_executor *executor, struct kiln__device_queue *device_queue,
                               int64_t now);

/* Whether another device queue is in service. */
bool kiln__device_queue_has_other(const kiln_executor *executor,
                                  const struct kiln__device_queue *device_queue);
