/* SPDX-License-Identifier: Apache-2.0 */
/* Compile workers: programs that other processes compile and store (programs/compile_job.h), for
 * drivers that compile in one thread of a process at a time, and for who does not want to wait. */
#ifndef KILN_PROGRAMS_COMPILE_WORKERS_H
#define KILN_PROGRAMS_COMPILE_WORKERS_H

#include "programs/program.h"
#include "util/text.h"

#define KILN__MOST_COMPILE_WORKERS 64

/* What is missing, and which process has it. */
struct kiln__compile_jobs {
    struct kiln__missing {
        struct kiln__text options;
        const struct kiln__program_wish *wish;
        uint64_t hash; /* of the key */
        unsigned party;
    } * items;
    size_t count;
};

/* Processes at work; used by one thread at a time. They need nobody: who stops listening only does
 * not hear how it ended. Nor are they waited for once they have been silent for too long. */
struct kiln__compile_workers {
    struct kiln__programs *programs;
    struct kiln__compile_worker {
        int answers;      /* -1: it has ended, or could not be started */
        bool ready;       /* it has begun */
        int64_t heard_ms; /* when it was started, or has answered last */
    } party[KILN__MOST_COMPILE_WORKERS];
    unsigned parties;
    size_t asked, stored, present; /* programs */
};

/* Whether other processes can compile for this one: what they compile is stored. */
bool kiln__compile_workers_is_possible(const struct kiln__programs *programs);

/* The wishes that neither memory nor the disk cache has; without memory none. To be freed. */
void kiln__compile_jobs_find(struct kiln__programs *programs,
                             const struct kiln__program_wish *wishes, size_t count,
                             struct kiln__compile_jobs *jobs);
void kiln__compile_jobs_drop_last(struct kiln__compile_jobs *jobs);
void kiln__compile_jobs_free(struct kiln__compile_jobs *jobs);

/* Start as many processes, which share the errands. */
void kiln__compile_workers_start(struct kiln__programs *programs, struct kiln__compile_jobs *jobs,
                                 unsigned count, struct kiln__compile_workers *workers);

/* Whether all have ended; it does not wait. */
bool kiln__compile_workers_is_over(struct kiln__compile_workers *workers);

/* Wait for their end. */
void kiln__compile_workers_await(struct kiln__compile_workers *workers);

/* Stop listening. */
void kiln__compile_workers_leave(struct kiln__compile_workers *workers);

#endif
