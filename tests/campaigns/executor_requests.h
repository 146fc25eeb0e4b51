/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of many threads to an executor, with sizes, waits, deadlines, cancels, full queues,
 * callbacks and shutdowns as they come; each has to end exactly once, with its own rows or with a
 * reason, and its callback has to come exactly once. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include <kiln/kiln.h>

enum { REQUESTS_THREADS = 32 /* most of an executor */ };

/* Of all requests so far; the last four are findings. */
extern struct requests_seen {
    atomic_ulong submitted, completed, cancelled, timed_out, failed, refused, called_back;
    atomic_ulong wrong, lost, twice, strange;
} requests_seen;

/* In one thread: try so many requests, a few ahead, until the executor is shut down or `stop` (may
 * be NULL) says so. Answers how many were taken; all have ended. */
unsigned long requests_make(kiln_executor *executor, unsigned long most, const atomic_bool *stop);

/* An executor on one of two contexts or on both, with options that differ by its number. Ends the
 * process on an error. */
kiln_executor *requests_executor(kiln_context *const *contexts, unsigned number);

/* The life of such an executor: threads that try `each` requests, and in two of three lives a
 * shutdown among them. A faulty one has a device whose calls fail at times: only then may requests
 * fail. */
void requests_live(kiln_context *const *contexts, unsigned number, unsigned threads,
                   unsigned long each, bool faulty);

/* Print what was seen. Whether there is no finding, and something of everything. */
bool requests_fine(void);
