/* SPDX-License-Identifier: Apache-2.0 */
/* A background thread that runs jobs one after another. It starts with the first job. */
#ifndef KILN_CACHE_WORKER_H
#define KILN_CACHE_WORKER_H

#include <stdbool.h>

/* Part of a larger structure of the caller's, which stays until the job has run. */
struct kiln__job {
    struct kiln__job *next;
    void (*run)(struct kiln__job *job);
};

struct kiln__worker;

/* NULL: out of memory. */
struct kiln__worker *kiln__worker_create(void);

/* Run the jobs that are left, then end. In a child of fork, where there is no thread, at once. */
void kiln__worker_destroy(struct kiln__worker *worker);

/* False: there can be no thread, and the job will not run. */
bool kiln__worker_add(struct kiln__worker *worker, struct kiln__job *job);

/* Wait until all jobs added so far have run. */
void kiln__worker_sync(struct kiln__worker *worker);

#endif
