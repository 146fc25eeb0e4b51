/* SPDX-License-Identifier: Apache-2.0 */
/* The client of compile workers: other processes (the program kiln-store), which compile and store
 * programs.
 *
 * Fetching a complete binary from PoCL means more compiling, under a lock that every kernel of the
 * process waits for. So workers do it: they compile the same source, most of which they find in the
 * driver's own cache, fetch the binary and store it. They also help where a driver compiles in one
 * thread of a process at a time, and who does not want to wait.
 *
 * Of a quick kernel (kiln__program_is_quick()) nothing is stored. It is compiled into the driver's
 * own cache, where the process that asked finds what it has not compiled itself by then.
 *
 * Workers share one queue of jobs (programs/compile_queue.h) and one socket, on which each says by
 * a byte that it has begun or a job is done. They need nothing of the process that asked, and go on
 * if that one ends or stops listening. If all have ended before the last job was begun, and any had
 * begun one, others are started for the rest while somebody waits. */
#pragma once

#include "programs/compile_queue.h"
#include "programs/program.h"

#define KILN__MOST_COMPILE_WORKERS 64

/* Seconds. A worker takes each of its jobs, and one that nobody waits for its turn, for so long at
 * most; then it ends itself. Workers that are silent for longer have stalled. Who has the lowest
 * priority may get hardly any of a busy machine's time. */
#define KILN__JOB_SECONDS 120
#define KILN__JOB_PATIENT_SECONDS 1200
#define KILN__JOB_SILENCE (KILN__JOB_SECONDS + 10)
#define KILN__JOB_PATIENT_SILENCE (KILN__JOB_PATIENT_SECONDS + 10)

/* Used by one thread at a time; {0} before its first job. */
struct kiln__compile_workers {
    struct kiln__compile_jobs jobs;
    struct kiln__programs *programs; /* NULL: not started */
    struct kiln__compile_head *head; /* shared with the workers; NULL: not started */
    size_t length;
    int file, answers; /* the queue; the socket, -1: nobody is listened to */
    unsigned count;    /* most workers at a time */
    unsigned begun;    /* jobs taken when they were started */
    bool impatient;    /* who asks does the jobs itself rather than wait long for a beginning */
    bool heard;
    int64_t heard_at; /* or started at */
    unsigned stored, present;
    atomic_bool stopped;
};

/* Whether other processes can compile for this one: what they compile is stored. */
bool kiln__compile_workers_is_possible(const struct kiln__programs *programs);

/* Start so many for `workers->jobs`: two seconds at most, and more where there is no processor for
 * them. $KILN_CACHE_WAIT hurries them, and waits for their beginning. False: none could be started.
 * To be freed in either case. */
bool kiln__compile_workers_start(struct kiln__compile_workers *workers,
                                 struct kiln__programs *programs, unsigned count, bool urgent);

/* The same for specs; `urgent`: somebody waits for them. */
void kiln__compile_workers_start_specs(struct kiln__compile_workers *workers,
                                       struct kiln__programs *programs,
                                       const struct kiln__missing *missing, unsigned count,
                                       bool urgent);

/* Hear what has become of jobs; `waits`: until there may be news, and with others where the workers
 * have ended too early. False: all is known, or nothing more will be, since the workers have ended,
 * are silent for too long, or have been stopped. */
bool kiln__compile_workers_listen(struct kiln__compile_workers *workers, bool waits);

enum kiln__compile_outcome
kiln__compile_workers_outcome(const struct kiln__compile_workers *workers, unsigned job);

/* How many jobs, from the first, workers have taken. */
unsigned kiln__compile_workers_begun(const struct kiln__compile_workers *workers);

/* Have a thread that listens hear nothing more. Threads: any, while the workers are not freed. */
void kiln__compile_workers_stop(struct kiln__compile_workers *workers);

/* Stop listening, and forget them. */
void kiln__compile_workers_free(struct kiln__compile_workers *workers);
