/* SPDX-License-Identifier: Apache-2.0 */
/* Collection of profiled events, and their output as JSON in Chrome's trace format. */
#include "runtime/trace.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/vector.h"

/* Beyond this many spans only the first are kept: a trace is for looking at. */
#define MOST_SPANS 1000000

/* Unread events pin driver memory, so times are read as soon as this many wait. */
#define MOST_UNREAD 256

struct span {
    char name[40];
    unsigned stream;
    uint32_t described; /* 1 + its words; 0: none */
    uint32_t called;    /* 1 + its names; 0: none */
    uint64_t bytes;
    cl_event event;                             /* NULL once the times are read */
    cl_ulong queued, submitted, started, ended; /* ns of the device's clock */
};

struct kiln__trace {
    char *path;
    char *device;
    pthread_mutex_t lock; /* guards the spans and words */
    KILN__VECTOR(struct span) spans;
    KILN__VECTOR(struct kiln__trace_words) words; /* with texts of their own */
    KILN__VECTOR(char *) names;                   /* of a launch, a line each */
    unsigned streams;                             /* that have spans, at most */
    size_t read;                                  /* spans before this one have their times */
};

struct kiln__trace *kiln__trace_create(const char *path, const char *device)
{
    struct kiln__trace *trace = calloc(1, sizeof *trace);
    if (!trace)
        return NULL;
    pthread_mutex_init(&trace->lock, NULL);
    trace->path = path ? strdup(path) : NULL;
    trace->device = strdup(device);
    return trace;
}

/* That the command failed is for its run to say (runtime/run.h); its times are then left 0. */
static void read_times(struct span *span)
{
    (void)clWaitForEvents(1, &span->event);
    clGetEventProfilingInfo(span->event, CL_PROFILING_COMMAND_QUEUED, sizeof span->queued,
                            &span->queued, NULL);
    clGetEventProfilingInfo(span->event, CL_PROFILING_COMMAND_SUBMIT, sizeof span->submitted,
                            &span->submitted, NULL);
    clGetEventProfilingInfo(span->event, CL_PROFILING_COMMAND_START, sizeof span->started,
                            &span->started, NULL);
    clGetEventProfilingInfo(span->event, CL_PROFILING_COMMAND_END, sizeof span->ended, &span->ended,
                            NULL);
    clReleaseEvent(span->event);
    span->event = NULL;
}

static void read_all(struct kiln__trace *trace)
{
    for (; trace->read < trace->spans.count; trace->read++)
        read_times(&trace->spans.items[trace->read]);
}

static void free_words(struct kiln__trace_words *words)
{
    free((char *)words->operations);
    free((char *)words->shapes);
}

uint32_t kiln__trace_describe(struct kiln__trace *trace, const struct kiln__trace_words *words)
{
    struct kiln__trace_words own = *words;
    own.operations = strdup(words->operations);
    own.shapes = strdup(words->shapes);
    pthread_mutex_lock(&trace->lock);
    const bool added = own.operations && own.shapes && trace->words.count < MOST_SPANS &&
                       kiln__vector_add(&trace->words, own);
    uint32_t described = added ? (uint32_t)trace->words.count : 0;
    pthread_mutex_unlock(&trace->lock);
    if (!added)
        free_words(&own);
    return described;
}

uint32_t kiln__trace_call(struct kiln__trace *trace, const char *names)
{
    char *own = strdup(names);
    pthread_mutex_lock(&trace->lock);
    const bool added =
        own && trace->names.count < MOST_SPANS && kiln__vector_add(&trace->names, own);
    uint32_t called = added ? (uint32_t)trace->names.count : 0;
    pthread_mutex_unlock(&trace->lock);
    if (!added)
        free(own);
    return called;
}

void kiln__trace_add(struct kiln__trace *trace, unsigned stream,
                     const struct kiln__trace_span *what, cl_event event)
{
    pthread_mutex_lock(&trace->lock);
    struct span *span = trace->spans.count < MOST_SPANS ? kiln__vector_push(&trace->spans) : NULL;
    if (span && !clRetainEvent(event)) {
        snprintf(span->name, sizeof span->name, "%s", what->name);
        span->stream = stream;
        span->described = what->described;
        span->called = what->called;
        span->bytes = what->bytes;
        trace->streams = stream < trace->streams ? trace->streams : stream + 1;
        span->event = event;
    } else if (span) {
        trace->spans.count--;
    }
    if (trace->spans.count - trace->read > MOST_UNREAD)
        read_all(trace);
    pthread_mutex_unlock(&trace->lock);
}

static json_t *names_json(const char *names)
{
    json_t *list = json_array();
    while (*names) {
        size_t length = strcspn(names, "\n");
        json_array_append_new(list, json_stringn(names, length));
        names += length + (names[length] == '\n');
    }
    return list;
}

static json_t *arguments_json(const struct kiln__trace *trace, const struct span *span)
{
    json_t *arguments = json_pack("{s:I, s:f}", "bytes", (json_int_t)span->bytes, "queued_us",
                                  (double)(span->started - span->queued) / 1e3);
    if (span->called)
        json_object_set_new(arguments, "names", names_json(trace->names.items[span->called - 1]));
    if (!span->described)
        return arguments;
    const struct kiln__trace_words *words = &trace->words.items[span->described - 1];
    json_object_set_new(arguments, "what", json_string(words->operations));
    json_object_set_new(arguments, "shapes", json_string(words->shapes));
    json_object_set_new(arguments, "group", json_integer(words->group));
    json_object_set_new(arguments, "operations", json_integer((json_int_t)words->amount));
    return arguments;
}

static json_t *span_json(const struct kiln__trace *trace, const struct span *span)
{
    return json_pack("{s:s, s:s, s:f, s:f, s:i, s:i, s:o}", "name", span->name, "ph", "X", "ts",
                     (double)span->started / 1e3, "dur",
                     (double)(span->ended - span->started) / 1e3, "pid", (int)getpid(), "tid",
                     (int)span->stream, "args", arguments_json(trace, span));
}

static int write_trace(const struct kiln__trace *trace)
{
    json_t *events = json_array();
    for (unsigned i = 0; i < trace->streams; i++)
        json_array_append_new(
            events, json_pack("{s:s, s:s, s:i, s:i, s:{s:s+}}", "name", "thread_name", "ph", "M",
                              "pid", (int)getpid(), "tid", (int)i, "args", "name",
                              trace->device ? trace->device : "device", i ? ", overlapped" : ""));
    for (size_t i = 0; i < trace->spans.count; i++)
        json_array_append_new(events, span_json(trace, &trace->spans.items[i]));
    json_t *root = json_pack("{s:o, s:s}", "traceEvents", events, "displayTimeUnit", "ns");
    int result = json_dump_file(root, trace->path, JSON_COMPACT);
    json_decref(root);
    return result;
}

kiln_status kiln__trace_destroy(struct kiln__trace *trace, struct kiln__error *error)
{
    kiln_status status = KILN_OK;
    if (!trace)
        return KILN_OK;
    read_all(trace);
    if (trace->path && write_trace(trace))
        status = kiln__fail(error, KILN_IO_ERROR, "kiln: cannot write the trace to %s: %s",
                            trace->path, strerror(errno));
    kiln__vector_free(&trace->spans);
    for (size_t i = 0; i < trace->words.count; i++)
        free_words(&trace->words.items[i]);
    kiln__vector_free(&trace->words);
    for (size_t i = 0; i < trace->names.count; i++)
        free(trace->names.items[i]);
    kiln__vector_free(&trace->names);
    pthread_mutex_destroy(&trace->lock);
    free(trace->path);
    free(trace->device);
    free(trace);
    return status;
}
