/* SPDX-License-Identifier: Apache-2.0 */
/* Data-parallel training: a thread for each context makes the steps. */
#ifndef KILN_EXECUTOR_PARALLEL_H
#define KILN_EXECUTOR_PARALLEL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include <kiln/parallel.h>

#include "util/error.h"

struct kiln__member {
    kiln_parallel *parallel;
    size_t number;
    kiln_context *context;
    double share; /* of 1 */
    kiln_batch *derive, *update;
    kiln_buffer **gradients; /* own ones, then averages */
    float *host;             /* the same in host memory, where they travel; else NULL */
    pthread_t thread;
    struct kiln__error error; /* of the last step */
};

struct kiln_parallel {
    pid_t process;
    kiln_training training;
    kiln_reducer reducer; /* without functions where this process is alone */
    size_t count;
    struct kiln__member *members;
    size_t *elements; /* of each gradient */
    size_t *offsets;  /* of each in the host memory, where the last one is first */
    size_t numbers;   /* of all gradients */
    pthread_barrier_t meeting;
    bool can_meet;
    atomic_bool failed;         /* somebody did, in this step */
    atomic_bool weights_differ; /* or may, for good: an update has failed */

    /* Of the first member's thread. */
    size_t handed, summed; /* numbers that the reducer was given in this step, and is done with */
    bool host_is_lost;     /* to a reducer that failed */

    pthread_mutex_t lock;   /* guards what follows */
    pthread_cond_t changed; /* `steps` or `over`; or `done` */
    unsigned long steps;
    size_t started, done; /* threads in all; those that have made the step */
    bool over;
};

/* Whether gradients go through host memory. */
static inline bool kiln__parallel_travels(const kiln_parallel *parallel)
{
    return parallel->count > 1 || parallel->reducer.begin;
}

/* A member's thread. */
void *kiln__parallel_work(void *argument);

#endif
