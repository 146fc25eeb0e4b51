/* SPDX-License-Identifier: Apache-2.0 */
/* What a run has in the queue, and what became of it. The run keeps the event of every command that
 * has one: a driver may report a failure there and nowhere else, and the command that failed need
 * not be the last. Transfers always have an event; launches only where spans are kept, and the last
 * command, since an event makes a launch three times as expensive on some drivers. On those a run
 * that is left alone is open: its end has an event only once somebody asks for it, that of a marker
 * in its queue, which is flushed then. */
#pragma once

#include <stdint.h>

#include "device/opencl.h"

struct kiln__stream;
struct kiln__run;  /* one run; any thread once everything is enqueued */
struct kiln__runs; /* runs whose end nobody has asked about yet; safe to use from many threads */

struct kiln__events { /* a vector of retained ones */
    cl_event *items;
    size_t count, capacity;
};
void kiln__events_free(struct kiln__events *events);

/* A run in a stream, which must outlive it. NULL without memory. */
struct kiln__run *kiln__run_create(struct kiln__stream *stream);
struct kiln__stream *kiln__run_stream(const struct kiln__run *run);
bool kiln__run_is_over(const struct kiln__run *run); /* and somebody has heard of it */
void kiln__run_retain(struct kiln__run *run);
void kiln__run_release(struct kiln__run *run); /* NULL does nothing */
void kiln__run_destroy_spare(struct kiln__stream *stream);

/* Keep the event of a command just enqueued, which is the run's last so far; the reference becomes
 * the run's, also after an error. Errors: OUT_OF_HOST_MEMORY. */
kiln_status kiln__run_note(struct kiln__run *run, const char *name, uint64_t bytes, cl_event event,
                           struct kiln__error *error);

/* The same of several, which are all gone from `events` then. */
kiln_status kiln__run_note_all(struct kiln__run *run, const char *name, uint64_t bytes,
                               struct kiln__events *events, struct kiln__error *error);

/* While it is being enqueued: its last command has no event. */
void kiln__run_defer_event(struct kiln__run *run);
bool kiln__run_is_open(const struct kiln__run *run);

/* The last command's event, and whether it is the only one. NULL where an open run cannot get one.
 */
cl_event kiln__run_end(struct kiln__run *run);
bool kiln__run_has_one_event(const struct kiln__run *run);

/* Wait for the run and look at every command. If the events cannot be awaited, or one has failed,
 * the queue is finished: nothing uses the caller's memory afterwards. `call` is for the sentence.
 * Errors: DEVICE_ERROR. */
kiln_status kiln__run_await(struct kiln__run *run, const char *call, struct kiln__error *error);

/* Until nothing of it uses the caller's memory any more. How it ended is still to be told. */
void kiln__run_wait_for_memory(struct kiln__run *run);

/* The same without waiting; NOT_READY, without a sentence, before the end. */
kiln_status kiln__run_poll(struct kiln__run *run, const char *call, struct kiln__error *error);

/* A part of another run of the same stream, which tells how it ended: nobody asks this one. */
void kiln__run_mark_part(struct kiln__run *run);

/* Add the end of a run that commands in another stream wait for. */
kiln_status kiln__events_add(struct kiln__events *events, struct kiln__run *run,
                             struct kiln__error *error);

/* NULL without memory. */
struct kiln__runs *kiln__runs_create(void);
void kiln__runs_destroy(struct kiln__runs *runs);

/* Have its stream remember a run that the caller does not wait for; without memory it is waited for
 * at once, and what became of it remembered. */
void kiln__runs_add(struct kiln__run *run);

/* Before its stream is finished: those that are open get their end, so that they can tell of it. */
void kiln__runs_end_open(struct kiln__runs *runs);

/* Whether a remembered run that has ended by now failed; each failure is told once.
 * Errors: DEVICE_ERROR. */
kiln_status kiln__runs_report_failure(struct kiln__runs *runs, const char *call,
                                      struct kiln__error *error);
