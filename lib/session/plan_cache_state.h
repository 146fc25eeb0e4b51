/* SPDX-License-Identifier: Apache-2.0 */
/* A context's plans: what plan_cache.c, which makes them, and lease.c, which lends them, share. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "session/plan_cache.h"
#include "session/plan_table.h"
#include "util/index.h"

struct kiln__plan_cache {
    struct kiln__runtime *runtime;
    struct kiln__plan_options options;
    atomic_bool portable;      /* no kernels that need a self-test: one that had passed its own
                                  has failed, and its batch runs without such */
    atomic_bool runs_baseline; /* batches run before their kernels are compiled */
    pthread_mutex_t beginning; /* held while a plan to run by meanwhile is made, and an entry's
                                  `background` is settled; `lock` may be taken under it, and never
                                  the other way around */
    pthread_mutex_t lock;      /* guards what follows; planning and compiling happen outside */
    struct kiln__plan_table table;
    struct kiln__index works; /* hashes of those that were written down (plan_workloads.h) */
};

/* The graph as bytes: of equal ones, equal bytes. */
void kiln__plan_key(const struct kiln__graph *graph, struct kiln__text *key);

/* Plan `graph` and borrow the plan's entry, which takes the key. `portable`: the plan does without
 * kernels that need a self-test. Errors: OUT_OF_HOST_MEMORY. */
kiln_status kiln__plan_cache_add(struct kiln__plan_cache *cache, const struct kiln__graph *graph,
                                 bool portable, uint64_t hash, struct kiln__text *key,
                                 struct kiln__plan_entry **result, struct kiln__error *error);

/* Entries that nobody finds any more, by next. */
void kiln__plan_entries_free(struct kiln__plan_entry *list);
