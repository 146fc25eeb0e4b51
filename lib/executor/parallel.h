/* SPDX-License-Identifier: Apache-2.0 */
/* Data-parallel training: a thread for each context makes the steps. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include <kiln/parallel.h>

#include "util/error.h"
#include "util/vector.h"

struct kiln__member {
    kiln_parallel *parallel;
    size_t number;
    kiln_context *context;
    double share; /* of 1 */
    kiln_batch *derive, *update;
    kiln_buffer **gradients;         /* own ones, then averages */
    kiln_buffer **weights, **shards; /* of those that are divided, retained; else NULL */
    float *host;                     /* the same in host memory, where they travel; else NULL */
    pthread_t thread;
    struct kiln__error error; /* of the last step */
};

/* A gradient in host memory, where the last one is first. */
struct kiln__gradient_range {
    size_t elements, offset;
    size_t first, kept; /* of its elements, those whose weights this process updates */
};

/* What travels at once. */
struct kiln__gradient_bucket {
    size_t offset, numbers;
    size_t gradient; /* complete when this one is */
    bool is_divided; /* a whole gradient, of which each process gets its part */
};

struct kiln_parallel {
    pid_t process;
    kiln_training training;
    kiln_reducer reducer; /* without functions where this process is alone */
    size_t count;
    struct kiln__member *members;
    struct kiln__gradient_range *ranges; /* of each gradient */
    size_t numbers;                      /* of all gradients */
    KILN__VECTOR(struct kiln__gradient_bucket) buckets;
    pthread_barrier_t meeting;
    bool can_meet;
    atomic_bool failed;         /* somebody did, in this step */
    atomic_bool weights_differ; /* or may, for good: an update has failed */

    /* Of the first member's thread. */
    size_t handed, summed; /* buckets that the reducer was given in this step, and is done with */
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

/* Whether each process keeps a part of this gradient's weights. */
static inline bool kiln__parallel_divides(const kiln_parallel *parallel, size_t gradient)
{
    return parallel->ranges[gradient].kept < parallel->ranges[gradient].elements;
}

/* In our form. */
kiln_status kiln__read_reducer(const kiln_reducer *reducer, kiln_reducer *own, const char *call);

/* What the training says of weights and shard of a gradient whose elements are known. */
kiln_status kiln__parallel_take_shard(struct kiln__member *member, size_t gradient);

/* Copies of their parts of the weights into the shards. */
kiln_status kiln__parallel_fill_shards(const struct kiln__member *member);

/* A member's thread. */
void *kiln__parallel_work(void *argument);
