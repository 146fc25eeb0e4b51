/* SPDX-License-Identifier: Apache-2.0 */
/* Compile jobs for worker processes (the program kiln-store), in memory that they share with the
 * process that asks.
 *
 *   queue = head outcome* folder shared_key job*
 *   job   = options source kernel variants
 *
 * A worker takes the next job by the head's counter, and notes what has come of it. Each text is
 * its length as size_t, its bytes, and a zero: both programs are of one build. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "store/entry.h"
#include "util/text.h"
#include "util/vector.h"

enum kiln__compile_outcome {
    KILN__JOB_OPEN, /* not known yet; or its worker ended in the middle */
    KILN__JOB_STORED,
    KILN__JOB_PRESENT, /* another process was faster; or it is a quick one, which the driver's own
                          cache has from now on and kiln's never */
    KILN__JOB_FAILED
};

struct kiln__compile_head {
    atomic_uint next; /* job that no worker has taken */
    unsigned jobs;
    unsigned workers; /* processes that share the jobs */
    bool urgent;      /* somebody waits: at the usual priority, beside other such processes */
    bool late_binary; /* the driver compiles more when it is asked for a binary */
    uint64_t limit;   /* most bytes in the folder of the cache */
    atomic_uchar outcomes[]; /* enum kiln__compile_outcome, of each job */
};

struct kiln__compile_job {
    const char *options, *source, *kernel;
    const char *variants; /* for which launches the binary is to be complete, as the driver names
                             them, with commas between */
};

/* ---- of who asks ---- */

struct kiln__compile_text {
    struct kiln__text program, variants;
    uint64_t hash; /* of options and source */
};

/* Jobs that are not in shared memory yet. */
struct kiln__compile_jobs {
    KILN__VECTOR(struct kiln__compile_text) texts;
    bool failed; /* no memory */
};

/* Answers the job's number: that of an earlier one for the same binary, to which it adds its
 * variants, or a new one. */
unsigned kiln__compile_jobs_add(struct kiln__compile_jobs *jobs,
                                const struct kiln__compile_job *job);

/* Put a queue of all of them into a file in memory. `folder` is absolute, `shared` begins the
 * device's keys. Answers the file, above the standard ones, or -1; `head`, mapped: to be unmapped
 * with `length`. */
int kiln__compile_jobs_share(const struct kiln__compile_jobs *jobs, const char *folder,
                             const struct kiln__text *shared, uint64_t limit, bool urgent,
                             struct kiln__compile_head **head, size_t *length);
void kiln__compile_jobs_free(struct kiln__compile_jobs *jobs);

/* ---- of workers ---- */

struct kiln__compile_queue {
    struct kiln__compile_head *head;
    const char *folder;
    struct kiln__span shared;
    struct kiln__span rest; /* jobs that are not read yet */
};

/* False: it is damaged. The queue refers to the bytes. */
bool kiln__compile_queue_open(void *bytes, size_t length, struct kiln__compile_queue *queue);

/* The next job, whoever has taken it. False: there is none, or it is damaged. */
bool kiln__compile_queue_read(struct kiln__compile_queue *queue, struct kiln__compile_job *job);
