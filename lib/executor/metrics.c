/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics: a row for each number, and two ways to write them down. */
#include <inttypes.h>
#include <string.h>

#include <kiln/context.h>

#include "executor/future.h"
#include "util/structure.h"
#include "util/text.h"

/* ---- as structures ---- */

kiln_status(kiln_executor_get_stats)(kiln_executor *executor, kiln_executor_stats *stats,
                                     size_t size)
{
    kiln_status status = kiln__executor_check(executor, "kiln_executor_get_stats");
    if (status)
        return status;
    KILN__RETURN_IF_NULL(NULL, __func__, stats);
    pthread_mutex_lock(&executor->lock);
    kiln__executor_admit(executor);
    kiln_executor_stats own = executor->counts;
    own.flushed_full = executor->flushes[KILN__FLUSH_FULL];
    own.flushed_wait = executor->flushes[KILN__FLUSH_WAIT];
    own.flushed_idle = executor->flushes[KILN__FLUSH_IDLE];
    own.flushed_shutdown = executor->flushes[KILN__FLUSH_SHUTDOWN];
    own.queued = executor->queue.count;
    own.queued_rows = executor->queue.rows;
    own.wait = kiln__histogram_read(&executor->wait);
    own.run = kiln__histogram_read(&executor->run);
    own.total = kiln__histogram_read(&executor->total);
    if (executor->full)
        own.fill = (double)executor->counts.rows / (double)executor->full;
    if (executor->computed)
        own.padding_share = 1 - (double)executor->asked / (double)executor->computed;
    pthread_mutex_unlock(&executor->lock);
    kiln__structure_fill(stats, size, &own, sizeof own);
    return KILN_OK;
}

/* A context in whose stats there is to be looked; NULL once the workers have let go of it. Under
 * the lock. */
static kiln_context *metrics_hold(const kiln_executor *executor,
                                  const struct kiln__device_queue *device_queue)
{
    kiln_context *context = executor->alive ? device_queue->context : NULL;
    kiln_context_retain(context);
    return context;
}

static kiln_status add_context(kiln_context *context, kiln_executor_context_stats *stats)
{
    kiln_context_stats all;
    kiln_status status = context ? kiln_context_get_stats(context, &all) : KILN_OK;
    if (context && !status) {
        stats->pool_bytes = all.pool_bytes;
        stats->plans_reused = all.plans_reused;
        stats->cache_hits = all.kernels_from_memory + all.kernels_from_disk;
        stats->kernels_compiled = all.kernels_compiled;
    }
    kiln_context_release(context);
    return status;
}

kiln_status(kiln_executor_get_context_stats)(kiln_executor *executor, size_t index,
                                             kiln_executor_context_stats *stats, size_t size)
{
    static const char call[] = "kiln_executor_get_context_stats";
    kiln_status status = kiln__executor_check(executor, call);
    if (status)
        return status;
    KILN__RETURN_IF_NULL(NULL, call, stats);
    if (index >= executor->device_queue_count)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: context %zu of %zu", call, index,
                          executor->device_queue_count);
    const struct kiln__device_queue *device_queue = &executor->device_queues[index];
    pthread_mutex_lock(&executor->lock);
    int64_t now = kiln__now(), age = now - executor->started;
    int64_t busy =
        device_queue->busy + (device_queue->running ? now - device_queue->busy_since : 0);
    kiln_executor_context_stats own = {.batches = device_queue->batches,
                                       .rows = device_queue->rows,
                                       .failures = device_queue->failed_batches,
                                       .running = device_queue->running,
                                       .in_service = !device_queue->out_until};
    memcpy(own.device, device_queue->device, sizeof own.device);
    own.seconds_per_row = 1e-9 * (double)device_queue->cost[device_queue->latest] /
                          (double)executor->model.sizes[device_queue->latest].rows;
    own.utilisation = age > 0 ? (double)busy / (double)age : 0;
    kiln_context *context = metrics_hold(executor, device_queue);
    pthread_mutex_unlock(&executor->lock);
    status = add_context(context, &own);
    kiln__structure_fill(stats, size, &own, sizeof own);
    return status;
}

/* ---- as text ---- */

/* A number of one of the structures. */
struct metric {
    const char *name, *kind, *help; /* kind as Prometheus has it */
    size_t offset;
    enum { WHOLE, REAL, FLAG } form;
};

#define OF(field) offsetof(kiln_executor_stats, field)
static const struct metric metrics[] = {
    {"requests", "counter", "Requests taken.", OF(requests), WHOLE},
    {"refused", "counter", "Requests not taken.", OF(refused), WHOLE},
    {"completed", "counter", "Requests that went well.", OF(completed), WHOLE},
    {"failed", "counter", "Requests that a device failed.", OF(failed), WHOLE},
    {"cancelled", "counter", "Requests cancelled.", OF(cancelled), WHOLE},
    {"timed_out", "counter", "Requests whose deadline passed.", OF(timed_out), WHOLE},
    {"rerun", "counter", "Requests run elsewhere after a failure.", OF(rerun), WHOLE},
    {"rows", "counter", "Rows computed for requests.", OF(rows), WHOLE},
    {"padding", "counter", "Rows computed for nobody.", OF(padding), WHOLE},
    {"batches", "counter", "Batches that went well.", OF(batches), WHOLE},
    {"failed_batches", "counter", "Batches that failed.", OF(failed_batches), WHOLE},
    {"flushed_full", "counter", "Batches sent because full.", OF(flushed_full), WHOLE},
    {"flushed_wait", "counter", "Batches sent after the longest wait.", OF(flushed_wait), WHOLE},
    {"flushed_idle", "counter", "Batches sent to an idle device.", OF(flushed_idle), WHOLE},
    {"flushed_shutdown", "counter", "Batches sent by a shutdown.", OF(flushed_shutdown), WHOLE},
    {"queued", "gauge", "Requests that wait.", OF(queued), WHOLE},
    {"queued_rows", "gauge", "Rows that wait.", OF(queued_rows), WHOLE},
    {"running", "gauge", "Requests in batches.", OF(running), WHOLE},
    {"fill", "gauge", "Rows of batches over those of full ones.", OF(fill), REAL},
    {"padding_share", "gauge", "Share of computed elements that are nobody's.", OF(padding_share),
     REAL},
};

static const struct {
    const char *name, *help;
    size_t offset;
} latencies[] = {
    {"wait", "Seconds from submission to the start of the batch.", OF(wait)},
    {"run", "Seconds that a batch takes.", OF(run)},
    {"total", "Seconds from submission to completion.", OF(total)},
};
#undef OF

#define OF(field) offsetof(kiln_executor_context_stats, field)
static const struct metric context_metrics[] = {
    {"context_batches", "counter", "Batches that went well.", OF(batches), WHOLE},
    {"context_rows", "counter", "Rows in them.", OF(rows), WHOLE},
    {"context_failures", "counter", "Batches that failed.", OF(failures), WHOLE},
    {"context_running", "gauge", "Batches under way.", OF(running), WHOLE},
    {"context_in_service", "gauge", "0: it failed.", OF(in_service), FLAG},
    {"context_seconds_per_row", "gauge", "Seconds a row took lately.", OF(seconds_per_row), REAL},
    {"context_utilisation", "gauge", "Share of time with a batch.", OF(utilisation), REAL},
    {"context_pool_bytes", "gauge", "Device memory of the pool.", OF(pool_bytes), WHOLE},
    {"context_plans_reused", "counter", "Batches that found their plan.", OF(plans_reused), WHOLE},
    {"context_cache_hits", "counter", "Kernels found in a cache.", OF(cache_hits), WHOLE},
    {"context_kernels_compiled", "counter", "Kernels not found.", OF(kernels_compiled), WHOLE},
};
#undef OF

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void add_value(struct kiln__text *text, const struct metric *metric, const void *stats)
{
    const void *at = (const char *)stats + metric->offset;
    switch (metric->form) {
    case WHOLE: kiln__text_add(text, "%" PRIu64, *(const uint64_t *)at); break;
    case REAL: kiln__text_add(text, "%.9g", *(const double *)at); break;
    case FLAG: kiln__text_add(text, "%d", *(const int *)at); break;
    }
}

/* In quotes, and what is not plain is left out: names of devices come from drivers. */
static void add_name(struct kiln__text *text, const char *name)
{
    kiln__text_add(text, "\"");
    for (; *name; name++)
        if (*name >= ' ' && *name <= '~' && *name != '"' && *name != '\\')
            kiln__text_add_bytes(text, name, 1);
    kiln__text_add(text, "\"");
}

/* All numbers, of one moment but for those of contexts. */
struct snapshot {
    kiln_executor_stats all;
    size_t count;
    kiln_executor_context_stats contexts[KILN__MOST_CONTEXTS];
};

static const kiln_latency *latency_of(const struct snapshot *from, size_t i)
{
    const void *at = (const char *)&from->all + latencies[i].offset;
    return at;
}

static void add_latency_json(struct kiln__text *text, const kiln_latency *l)
{
    kiln__text_add(text,
                   "{\"count\": %" PRIu64 ", \"mean\": %.9g, \"p50\": %.9g, \"p90\": %.9g, "
                   "\"p99\": %.9g, \"p999\": %.9g, \"most\": %.9g}",
                   l->count, l->mean, l->p50, l->p90, l->p99, l->p999, l->most);
}

static void write_json(struct kiln__text *text, const struct snapshot *from)
{
    const char *between = "{\n";
    for (size_t i = 0; i < COUNT(metrics); i++, between = ",\n") {
        kiln__text_add(text, "%s  \"%s\": ", between, metrics[i].name);
        add_value(text, &metrics[i], &from->all);
    }
    for (size_t i = 0; i < COUNT(latencies); i++) {
        kiln__text_add(text, ",\n  \"%s_seconds\": ", latencies[i].name);
        add_latency_json(text, latency_of(from, i));
    }
    kiln__text_add(text, ",\n  \"contexts\": [");
    for (size_t c = 0; c < from->count; c++) {
        kiln__text_add(text, "%s\n    {\"device\": ", c ? "," : "");
        add_name(text, from->contexts[c].device);
        for (size_t i = 0; i < COUNT(context_metrics); i++) {
            kiln__text_add(text, ", \"%s\": ", context_metrics[i].name + strlen("context_"));
            add_value(text, &context_metrics[i], &from->contexts[c]);
        }
        kiln__text_add(text, "}");
    }
    kiln__text_add(text, "\n  ]\n}\n");
}

static void add_head(struct kiln__text *text, const struct metric *metric, const char *suffix)
{
    kiln__text_add(text, "# HELP kiln_executor_%s%s %s\n", metric->name, suffix, metric->help);
    kiln__text_add(text, "# TYPE kiln_executor_%s%s %s\n", metric->name, suffix, metric->kind);
}

static const char *suffix_of(const struct metric *metric)
{
    return strcmp(metric->kind, "counter") ? "" : "_total";
}

static void add_summary(struct kiln__text *text, size_t i, const kiln_latency *l)
{
    const char *name = latencies[i].name;
    const struct {
        const char *share;
        double value;
    } rows[] = {{"0.5", l->p50}, {"0.9", l->p90}, {"0.99", l->p99}, {"0.999", l->p999}};
    kiln__text_add(text, "# HELP kiln_executor_%s_seconds %s\n", name, latencies[i].help);
    kiln__text_add(text, "# TYPE kiln_executor_%s_seconds summary\n", name);
    for (size_t k = 0; k < COUNT(rows); k++)
        kiln__text_add(text, "kiln_executor_%s_seconds{quantile=\"%s\"} %.9g\n", name,
                       rows[k].share, rows[k].value);
    kiln__text_add(text, "kiln_executor_%s_seconds_sum %.9g\n", name, l->mean * (double)l->count);
    kiln__text_add(text, "kiln_executor_%s_seconds_count %" PRIu64 "\n", name, l->count);
}

static void write_prometheus(struct kiln__text *text, const struct snapshot *from)
{
    for (size_t i = 0; i < COUNT(metrics); i++) {
        const char *suffix = suffix_of(&metrics[i]);
        add_head(text, &metrics[i], suffix);
        kiln__text_add(text, "kiln_executor_%s%s ", metrics[i].name, suffix);
        add_value(text, &metrics[i], &from->all);
        kiln__text_add(text, "\n");
    }
    for (size_t i = 0; i < COUNT(latencies); i++)
        add_summary(text, i, latency_of(from, i));
    for (size_t i = 0; i < COUNT(context_metrics); i++) {
        const char *suffix = suffix_of(&context_metrics[i]);
        add_head(text, &context_metrics[i], suffix);
        for (size_t c = 0; c < from->count; c++) {
            kiln__text_add(text,
                           "kiln_executor_%s%s{context=\"%zu\",device=", context_metrics[i].name,
                           suffix, c);
            add_name(text, from->contexts[c].device);
            kiln__text_add(text, "} ");
            add_value(text, &context_metrics[i], &from->contexts[c]);
            kiln__text_add(text, "\n");
        }
    }
}

kiln_status kiln_executor_metrics(kiln_executor *executor, kiln_metrics_format format,
                                  char **result)
{
    static const char call[] = "kiln_executor_metrics";
    struct kiln__text text = {0};
    struct snapshot from;
    if (result)
        *result = NULL;
    kiln_status status = kiln__executor_check(executor, call);
    if (status)
        return status;
    if (!result)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: text is NULL", call);
    if (format != KILN_METRICS_JSON && format != KILN_METRICS_PROMETHEUS)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: %d is no format", call, (int)format);
    from.count = executor->device_queue_count;
    status = kiln_executor_get_stats(executor, &from.all);
    for (size_t i = 0; i < from.count && !status; i++)
        status = kiln_executor_get_context_stats(executor, i, &from.contexts[i]);
    if (status)
        return status;
    if (format == KILN_METRICS_JSON)
        write_json(&text, &from);
    else
        write_prometheus(&text, &from);
    *result = kiln__text_take(&text);
    kiln__text_free(&text);
    return *result ? KILN_OK : kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "%s: no memory", call);
}
