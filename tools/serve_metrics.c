/* SPDX-License-Identifier: Apache-2.0 */
/* What the models have done so far, as Prometheus reads it (text exposition format 0.0.4). */
#include <stddef.h>

#include "serve.h"

/* A count of a batcher's, or of an encoder's executor, with a label more where several are parts of
 * one. */
static const struct row {
    const char *name, *kind, *help, *label;
    size_t place; /* in kiln_lm_batcher_stats */
} rows[] = {
#define ROW(name, kind, help, label, field)                                                        \
    {                                                                                              \
        name, kind, help, label, offsetof(kiln_lm_batcher_stats, field)                            \
    }
    ROW("requests_total", "counter", "Texts that were asked for.", "", requests),
    ROW("refused_total", "counter", "Texts that were refused.", "", refused),
    ROW("ended_total", "counter", "Texts that have ended.", ",how=\"completed\"", completed),
    ROW("ended_total", NULL, NULL, ",how=\"failed\"", failed),
    ROW("ended_total", NULL, NULL, ",how=\"cancelled\"", cancelled),
    ROW("ended_total", NULL, NULL, ",how=\"timed_out\"", timed_out),
    ROW("prompt_tokens_total", "counter", "Tokens of prompts.", "", prompt_tokens),
    ROW("shared_tokens_total", "counter", "Those that had been read for a prompt before.", "",
        shared_tokens),
    ROW("tokens_total", "counter", "Tokens of answers.", "", tokens),
    ROW("steps_total", "counter", "Runs in which texts went on.", "", steps),
    ROW("failed_steps_total", "counter", "Runs that failed.", "", failed_steps),
    ROW("slots", "gauge", "Texts that can go on at once.", "", slots),
    ROW("running", "gauge", "Texts that have a slot.", "", running),
    ROW("queued", "gauge", "Texts that wait for one.", "", queued),
    ROW("cache_bytes", "gauge", "Device memory of keys and values.", "", cache_bytes),
#undef ROW
};

static const struct time_row {
    const char *name, *help;
    size_t place;
} times[] = {
    {"first_token_seconds", "From the request to the first token.",
     offsetof(kiln_lm_batcher_stats, first)},
    {"step_seconds", "A step of all texts.", offsetof(kiln_lm_batcher_stats, step)},
    {"total_seconds", "From the request to the end.", offsetof(kiln_lm_batcher_stats, total)},
};

static void print_head(struct kiln__text *text, const char *name, const char *kind,
                       const char *help)
{
    kiln__text_add(text, "# HELP kiln_serve_%s %s\n# TYPE kiln_serve_%s %s\n", name, help, name,
                   kind);
}

/* A label's value: quotes and backslashes are escaped. */
static void print_model(struct kiln__text *text, const struct served *model)
{
    kiln__text_add(text, "{model=\"");
    for (const char *at = model->name; *at; at++)
        kiln__text_add(text, *at == '"' || *at == '\\' ? "\\%c" : "%c", *at);
    kiln__text_add(text, "\"");
}

static void print_counts(struct server *server, struct kiln__text *text)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].help)
            print_head(text, rows[i].name, rows[i].kind, rows[i].help);
        for (size_t k = 0; k < server->count; k++) {
            kiln_lm_batcher_stats stats;
            if (server->models[k].kind->stats(&server->models[k], &stats))
                continue;
            const uint64_t *value = (const uint64_t *)((const char *)&stats + rows[i].place);
            kiln__text_add(text, "kiln_serve_%s", rows[i].name);
            print_model(text, &server->models[k]);
            kiln__text_add(text, "%s} %llu\n", rows[i].label, (unsigned long long)*value);
        }
    }
}

static void print_quantile(struct kiln__text *text, const char *name, const struct served *model,
                           const char *share, double seconds)
{
    kiln__text_add(text, "kiln_serve_%s", name);
    print_model(text, model);
    kiln__text_add(text, ",quantile=\"%s\"} %.9g\n", share, seconds);
}

static void print_time(struct kiln__text *text, const char *name, const struct served *model,
                       const kiln_latency *latency)
{
    print_quantile(text, name, model, "0.5", latency->p50);
    print_quantile(text, name, model, "0.9", latency->p90);
    print_quantile(text, name, model, "0.99", latency->p99);
    kiln__text_add(text, "kiln_serve_%s_sum", name);
    print_model(text, model);
    kiln__text_add(text, "} %.9g\nkiln_serve_%s_count", latency->mean * (double)latency->count,
                   name);
    print_model(text, model);
    kiln__text_add(text, "} %llu\n", (unsigned long long)latency->count);
}

static void print_times(struct server *server, struct kiln__text *text)
{
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        print_head(text, times[i].name, "summary", times[i].help);
        for (size_t k = 0; k < server->count; k++) {
            kiln_lm_batcher_stats stats;
            if (!server->models[k].kind->stats(&server->models[k], &stats))
                print_time(text, times[i].name, &server->models[k],
                           (const kiln_latency *)((const char *)&stats + times[i].place));
        }
    }
}

void serve_metrics(struct server *server, struct kiln__text *text)
{
    print_head(text, "answers_total", "counter", "Answers by the first digit of their status.");
    for (unsigned digit = 2; digit < 6; digit++)
        kiln__text_add(text, "kiln_serve_answers_total{status=\"%uxx\"} %llu\n", digit,
                       (unsigned long long)atomic_load(&server->answers[digit]));
    print_head(text, "open", "gauge", "Requests that are being answered.");
    kiln__text_add(text, "kiln_serve_open %zu\n", atomic_load(&server->open));
    print_counts(server, text);
    print_times(server, text);
}
