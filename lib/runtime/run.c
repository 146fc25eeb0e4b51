/* SPDX-License-Identifier: Apache-2.0 */
/* A run's events, the wait for its end, the error of whichever command failed, and the runs that
 * nobody waits for. */
#include "runtime/run.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/stream.h"
#include "util/vector.h"

/* Events pin driver memory: at so many, those that have ended are let go of. */
#define MOST_KEPT 256

/* The same for remembered runs. */
#define MOST_REMEMBERED 64

struct command {
    char name[40];
    uint64_t bytes;
    uint32_t number; /* among those with an event, from 1 */
};

struct kiln__run {
    struct kiln__stream *stream;
    atomic_int references;
    atomic_bool told; /* somebody heard how it ended */
    KILN__VECTOR(cl_event) events;
    KILN__VECTOR(struct command) commands; /* one per event */
    uint32_t made;
    struct kiln__error failed; /* of a command that has been let go of */
    pthread_mutex_t ending;    /* held while an open run gets its end, */
    bool open;                 /* which it has not yet */
};

static struct kiln__run *make_run(void)
{
    struct kiln__run *run = calloc(1, sizeof *run);
    if (run)
        pthread_mutex_init(&run->ending, NULL);
    return run;
}

static void free_run(struct kiln__run *run)
{
    if (!run)
        return;
    kiln__vector_free(&run->events);
    kiln__vector_free(&run->commands);
    pthread_mutex_destroy(&run->ending);
    free(run);
}

/* A batch that runs over and over has the same one each time, and room in it for its events. */
struct kiln__run *kiln__run_create(struct kiln__stream *stream)
{
    struct kiln__run *run = atomic_exchange(&stream->spare, NULL);
    if (!run)
        run = make_run();
    if (!run)
        return NULL;
    run->stream = stream;
    atomic_store(&run->told, false);
    atomic_store(&run->references, 1);
    atomic_fetch_add(&stream->busy, 1);
    return run;
}

static void leave_spare(struct kiln__run *run)
{
    run->events.count = run->commands.count = 0;
    run->made = 0;
    run->open = false;
    run->failed.status = KILN_OK;
    run->failed.text[0] = 0;
    free_run(atomic_exchange(&run->stream->spare, run));
}

/* Nobody waits for news of it any more. */
static void hear(struct kiln__run *run)
{
    if (!atomic_exchange(&run->told, true))
        atomic_fetch_sub(&run->stream->busy, 1);
}

struct kiln__stream *kiln__run_stream(const struct kiln__run *run)
{
    return run->stream;
}

bool kiln__run_is_over(const struct kiln__run *run)
{
    return atomic_load(&run->told);
}

void kiln__run_mark_part(struct kiln__run *run)
{
    hear(run);
}

void kiln__run_retain(struct kiln__run *run)
{
    atomic_fetch_add(&run->references, 1);
}

void kiln__run_release(struct kiln__run *run)
{
    if (!run || atomic_fetch_sub(&run->references, 1) != 1)
        return;
    hear(run);
    for (size_t i = 0; i < run->events.count; i++)
        clReleaseEvent(run->events.items[i]);
    leave_spare(run);
}

void kiln__run_destroy_spare(struct kiln__stream *stream)
{
    free_run(atomic_exchange(&stream->spare, NULL));
}

/* ---- the end of a run that is left alone ---- */

void kiln__run_defer_event(struct kiln__run *run)
{
    run->open = true;
}

bool kiln__run_is_open(const struct kiln__run *run)
{
    return run->open;
}

/* Nothing of it has an event. */
static bool is_bare(struct kiln__run *run)
{
    pthread_mutex_lock(&run->ending);
    bool bare = run->open && !run->made;
    pthread_mutex_unlock(&run->ending);
    return bare;
}

/* What the queue has got since comes before the marker, too: whoever waits for it waits longer than
 * they need, but only for what was enqueued before they asked. */
static kiln_status close_run(struct kiln__run *run, struct kiln__error *error)
{
    kiln_status status = KILN_OK;
    pthread_mutex_lock(&run->ending);
    if (run->open) {
        cl_event event = NULL;
        status = kiln__cl_mark(run->stream->queue, &event, error);
        if (!status)
            status = kiln__run_note(run, "marker", 0, event, error);
        cl_int code = status ? CL_SUCCESS : clFlush(run->stream->queue);
        if (code)
            status = kiln__cl_fail(error, "clFlush", code);
        run->open = status != KILN_OK;
    }
    pthread_mutex_unlock(&run->ending);
    return status;
}

/* ---- what became of commands ---- */

static cl_int state_of(cl_event event)
{
    cl_int state = CL_COMPLETE;
    cl_int code =
        clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL);
    return code ? code : state;
}

static kiln_status run_blame(const struct command *command, cl_int state, struct kiln__error *error)
{
    return kiln__fail(error, KILN_DEVICE_ERROR,
                      "command %" PRIu32 " of the batch, %s of %" PRIu64 " bytes, failed: %s (%d)",
                      command->number, command->name, command->bytes, kiln__cl_name(state),
                      (int)state);
}

/* The first command that failed; NOT_READY if none did and one has not ended. */
static kiln_status run_look(struct kiln__run *run, struct kiln__error *error)
{
    bool ended = true;
    kiln_status status = close_run(run, error);
    if (status)
        return status;
    if (run->failed.status)
        return kiln__fail(error, run->failed.status, "%s", run->failed.text);
    for (size_t i = 0; i < run->events.count; i++) {
        cl_int state = state_of(run->events.items[i]);
        if (state < 0)
            return run_blame(&run->commands.items[i], state, error);
        ended = ended && state == CL_COMPLETE;
    }
    return ended ? KILN_OK : KILN_NOT_READY;
}

static kiln_status run_tell(struct kiln__run *run, const char *call,
                            const struct kiln__error *found, struct kiln__error *error)
{
    hear(run);
    return found->status ? kiln__fail(error, found->status, "%s: %s", call, found->text) : KILN_OK;
}

/* Let go of what has ended; the last command's event stays. */
static void thin_out(struct kiln__run *run)
{
    size_t kept = 0;
    for (size_t i = 0; i < run->events.count; i++) {
        bool is_last = i + 1 == run->events.count;
        cl_int state = is_last ? CL_QUEUED : state_of(run->events.items[i]);
        if (state < 0)
            run_blame(&run->commands.items[i], state, &run->failed);
        if (state <= CL_COMPLETE) {
            clReleaseEvent(run->events.items[i]);
            continue;
        }
        run->events.items[kept] = run->events.items[i];
        run->commands.items[kept++] = run->commands.items[i];
    }
    run->events.count = run->commands.count = kept;
}

kiln_status kiln__run_note(struct kiln__run *run, const char *name, uint64_t bytes, cl_event event,
                           struct kiln__error *error)
{
    struct command *command = kiln__vector_push(&run->commands);
    cl_event *place = command ? kiln__vector_push(&run->events) : NULL;
    if (!place) {
        run->commands.count -= command != NULL;
        clReleaseEvent(event);
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to run the batch");
    }
    *place = event;
    size_t length = strnlen(name, sizeof command->name - 1);
    memcpy(command->name, name, length);
    command->name[length] = 0;
    command->bytes = bytes;
    command->number = ++run->made;
    if (run->made % MOST_KEPT == 0)
        thin_out(run);
    return KILN_OK;
}

kiln_status kiln__run_note_all(struct kiln__run *run, const char *name, uint64_t bytes,
                               struct kiln__events *events, struct kiln__error *error)
{
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < events->count; i++) {
        kiln_status kept = kiln__run_note(run, name, bytes, events->items[i], error);
        status = status ? status : kept;
    }
    events->count = 0;
    return status;
}

cl_event kiln__run_end(struct kiln__run *run)
{
    return close_run(run, NULL) ? NULL : run->events.items[run->events.count - 1];
}

bool kiln__run_has_one_event(const struct kiln__run *run)
{
    return run->made == 1;
}

void kiln__run_wait_for_memory(struct kiln__run *run)
{
    if (close_run(run, NULL) || clWaitForEvents((cl_uint)run->events.count, run->events.items))
        kiln__stream_finish(run->stream);
}

kiln_status kiln__run_await(struct kiln__run *run, const char *call, struct kiln__error *error)
{
    struct kiln__error found = run->failed;
    cl_int code = CL_SUCCESS;
    if (!close_run(run, &found))
        code = clWaitForEvents((cl_uint)run->events.count, run->events.items);
    if (!found.status)
        found = run->failed; /* of a command that made place for the end's event */
    if (code || found.status) {
        kiln__stream_finish(run->stream);
        kiln_status status = run_look(run, &found);
        if (!status || status == KILN_NOT_READY)
            kiln__fail(&found, KILN_DEVICE_ERROR,
                       "a command of the batch failed: clWaitForEvents answered %s (%d)",
                       kiln__cl_name(code), (int)code);
    }
    return run_tell(run, call, &found, error);
}

kiln_status kiln__run_poll(struct kiln__run *run, const char *call, struct kiln__error *error)
{
    struct kiln__error found = {0};
    kiln_status status = run_look(run, &found);
    return status == KILN_NOT_READY ? status : run_tell(run, call, &found, error);
}

/* ---- what other streams wait for ---- */

/* The event is of use to another queue only once its own is flushed. */
kiln_status kiln__events_add(struct kiln__events *events, struct kiln__run *run,
                             struct kiln__error *error)
{
    kiln_status status = close_run(run, error);
    if (status)
        return status;
    cl_event event = kiln__run_end(run), *place = kiln__vector_push(events);
    if (!place)
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to wait for a run");
    cl_int code = clFlush(run->stream->queue);
    if (!code)
        code = clRetainEvent(event);
    if (code) {
        events->count--;
        return kiln__cl_fail(error, "clRetainEvent", code);
    }
    *place = event;
    return KILN_OK;
}

void kiln__events_free(struct kiln__events *events)
{
    for (size_t i = 0; i < events->count; i++)
        clReleaseEvent(events->items[i]);
    kiln__vector_free(events);
}

/* ---- runs that nobody waits for ---- */

struct kiln__runs {
    pthread_mutex_t lock; /* guards what follows; nothing waits under it */
    KILN__VECTOR(struct kiln__run *) runs;
    struct kiln__error failed; /* the first failure that has not been told */
};

struct kiln__runs *kiln__runs_create(void)
{
    struct kiln__runs *runs = calloc(1, sizeof *runs);
    if (runs)
        pthread_mutex_init(&runs->lock, NULL);
    return runs;
}

void kiln__runs_destroy(struct kiln__runs *runs)
{
    if (!runs)
        return;
    for (size_t i = 0; i < runs->runs.count; i++)
        kiln__run_release(runs->runs.items[i]);
    kiln__vector_free(&runs->runs);
    pthread_mutex_destroy(&runs->lock);
    free(runs);
}

/* Caller holds the lock. Forget those that have ended, or were asked about elsewhere. Behind one
 * that has not ended none has, as a rule. */
static void sweep(struct kiln__runs *runs)
{
    size_t kept = 0;
    for (size_t i = 0; i < runs->runs.count; i++) {
        struct kiln__run *run = runs->runs.items[i];
        if (!atomic_load(&run->told) && (kept || run_look(run, &runs->failed) == KILN_NOT_READY)) {
            runs->runs.items[kept++] = run;
            continue;
        }
        hear(run);
        kiln__run_release(run);
    }
    runs->runs.count = kept;
}

/* Caller holds the lock. Of bare runs the latest stands for all: what fails takes those behind it
 * along. */
static void forget_bare(struct kiln__runs *runs)
{
    struct kiln__run *last = runs->runs.count ? runs->runs.items[runs->runs.count - 1] : NULL;
    if (!last || !is_bare(last))
        return;
    hear(last);
    kiln__run_release(last);
    runs->runs.count--;
}

void kiln__runs_end_open(struct kiln__runs *runs)
{
    pthread_mutex_lock(&runs->lock);
    for (size_t i = 0; i < runs->runs.count; i++)
        (void)close_run(runs->runs.items[i], &runs->failed);
    pthread_mutex_unlock(&runs->lock);
}

void kiln__runs_add(struct kiln__run *run)
{
    struct kiln__runs *runs = run->stream->runs;
    if (atomic_load(&run->told))
        return;
    pthread_mutex_lock(&runs->lock);
    if (is_bare(run))
        forget_bare(runs);
    if (runs->runs.count >= MOST_REMEMBERED)
        sweep(runs);
    const bool added = kiln__vector_add(&runs->runs, run);
    pthread_mutex_unlock(&runs->lock);
    if (added) {
        kiln__run_retain(run);
        return;
    }
    struct kiln__error found = {0};
    kiln__run_await(run, "kiln", &found);
    pthread_mutex_lock(&runs->lock);
    if (found.status && !runs->failed.status)
        runs->failed = found;
    pthread_mutex_unlock(&runs->lock);
}

kiln_status kiln__runs_report_failure(struct kiln__runs *runs, const char *call,
                                      struct kiln__error *error)
{
    pthread_mutex_lock(&runs->lock);
    sweep(runs);
    kiln_status status = runs->failed.status;
    if (status)
        kiln__fail(error, status, "%s: in an earlier run: %s", call, runs->failed.text);
    runs->failed.status = KILN_OK;
    runs->failed.text[0] = 0;
    pthread_mutex_unlock(&runs->lock);
    return status;
}
