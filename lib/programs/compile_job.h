/* SPDX-License-Identifier: Apache-2.0 */
/* Compile jobs: what the program kiln-store is asked to do, and how it is started.
 *
 * Fetching a complete binary from PoCL means more compiling, under a lock that every kernel of the
 * process waits for. So another process does it: it compiles the same source, most of which it
 * finds in the driver's own cache, fetches the binary and stores it. It needs nothing of the
 * process that asked, and goes on if that one ends.
 *
 *   errands = folder limit[8] shared_key hurry[1] errand*
 *   errand  = options source kernel variants
 *
 * Each field is its length as size_t, its bytes, and a zero: both programs are of one build. */
#ifndef KILN_PROGRAMS_COMPILE_JOB_H
#define KILN_PROGRAMS_COMPILE_JOB_H

#include <sys/types.h>

#include "store/entry.h"
#include "util/text.h"

/* A process that nobody waits for takes its turn, and each of its errands, for so many seconds at
 * most; then it ends itself. One that is silent for longer has stalled. */
#define KILN__JOB_SECONDS 120
#define KILN__JOB_SILENCE (KILN__JOB_SECONDS + 10)

/* One that somebody waits for is ready sooner. */
#define KILN__JOB_SOON 10

/* All that the errands of one process share. */
struct kiln__compile_job_head {
    const char *folder;       /* of the cache, absolute */
    uint64_t limit;           /* most bytes there */
    struct kiln__span shared; /* key of the device: see kiln__key_begin() */
    bool hurry; /* somebody waits: at the usual priority, beside other such processes */
};

struct kiln__compile_job {
    const char *options, *source, *kernel;
    const char *variants; /* for which launches the binary is to be complete, as the driver names
                             them */
};

/* What becomes of one, in order, a byte each; the first byte says that the process is ready. */
enum kiln__compile_job_answer {
    KILN__JOB_READY = 'r',
    KILN__JOB_STORED = 's',
    KILN__JOB_PRESENT = 'p', /* another process was faster */
    KILN__JOB_FAILED = 'f'
};

void kiln__compile_job_write_head(const struct kiln__compile_job_head *head,
                                  struct kiln__text *text);
void kiln__compile_job_write(const struct kiln__compile_job *job, struct kiln__text *text);

/* Take the next field of `rest` off. False: there is none, or it is damaged. */
bool kiln__compile_job_read_head(struct kiln__span *rest, struct kiln__compile_job_head *head);
bool kiln__compile_job_read(struct kiln__span *rest, struct kiln__compile_job *job);

/* Start a process with these errands. Answers a socket that its answers come from, or -1. The
 * process holds no file of this one and ends by itself. It does its work in a process of its own,
 * and `child` ends at once: kiln__compile_job_let_go() has to follow, but at the end of this
 * process. */
int kiln__compile_job_start(const struct kiln__text *jobs, pid_t *child);

/* Wait for the end of `child`, so that a program that waits for all its children does not wait for
 * this one: a second at most. False: it has stalled, and all its processes have been killed. */
bool kiln__compile_job_let_go(pid_t child);

/* The next answer. 0: there is none; the process has ended or is silent for so many seconds, or
 * somebody has shut the socket down. */
char kiln__compile_job_listen(int answers, int seconds);

#endif
