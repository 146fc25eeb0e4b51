/* SPDX-License-Identifier: Apache-2.0 */
/* One parameter after the other, each candidate beside what is best so far, in turns. A candidate
 * that changes no plan is none. Results are looked at before anything is timed; what is hopeless
 * after a few rounds, or after a work or two, is dropped. */
#define _GNU_SOURCE
#include "tune_search.h"

#include "tune_library.h"
#include "util/format.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GAIN 0.98     /* of the time: what a candidate has to be below, */
#define LOSS 1.08     /* and no work above */
#define HOPELESS 1.25 /* of the first works, or of the first rounds */

struct verdict {
    double share, worst;
    size_t works;
    double shares[TUNE_MOST_WORKS], seconds[TUNE_MOST_WORKS];
};

/* ---- the works ---- */

static kiln_status go_by(struct tune_search *search, const char *text)
{
    return kiln_context_tune(search->context, text);
}

static kiln_status go_by_record(struct tune_search *search)
{
    char *text = malloc(MOST_RECORD + 1);
    if (!text)
        return KILN_OUT_OF_HOST_MEMORY;
    tune_record_write(search->record, text);
    kiln_status status = go_by(search, text);
    free(text);
    return status;
}

static kiln_status make_ways(struct tune_search *search, struct tune_way *ways)
{
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < search->count && !status; i++) {
        status = tune_way_make(&search->benches[i], &ways[i]);
        if (!status)
            status = tune_way_check(&search->benches[i], &ways[i]);
    }
    return status;
}

static void free_ways(struct tune_search *search, struct tune_way *ways)
{
    for (size_t i = 0; i < search->count; i++)
        tune_way_free(&ways[i]);
}

static void close_works(struct tune_search *search)
{
    free_ways(search, search->usual);
    free_ways(search, search->best);
    for (size_t i = 0; i < search->count; i++)
        tune_bench_close(&search->benches[i]);
    search->count = 0;
}

/* Whether the works were planned like this before: a value that is not taken where it does not fit
 * gives the plan of another one. */
static bool is_seen(struct tune_search *search, const struct tune_way *ways)
{
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    for (size_t i = 0; i < search->count; i++)
        for (const char *at = ways[i].plan; *at; at++)
            hash = (hash ^ (unsigned char)*at) * UINT64_C(1099511628211);
    for (size_t i = 0; i < search->seen_count; i++)
        if (search->seen[i] == hash)
            return true;
    if (search->seen_count < TUNE_MOST_SEEN)
        search->seen[search->seen_count++] = hash;
    return false;
}

static kiln_status open_works(struct tune_search *search, const struct tune_work *works,
                              size_t count)
{
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < count && !status; i++) {
        search->count++;
        status = tune_bench_open(search->context, &works[i], &search->benches[i]);
    }
    if (!status)
        status = go_by(search, "");
    if (!status)
        status = make_ways(search, search->usual);
    if (!status)
        status = go_by_record(search);
    if (!status)
        status = make_ways(search, search->best);
    search->seen_count = 0;
    if (!status) {
        is_seen(search, search->usual);
        is_seen(search, search->best);
    }
    return status;
}

/* ---- comparing ---- */

/* The geometric mean over the works; of few of them where it is beyond `hopeless` then. */
static kiln_status compare(const struct tune_search *search, const struct tune_way *best,
                           const struct tune_way *candidate, double hopeless,
                           struct verdict *verdict)
{
    kiln_status status = KILN_OK;
    double sum = 0;
    *verdict = (struct verdict){.share = 1};
    for (size_t i = 0; i < search->count && !status && !tune_interrupted; i++) {
        status = tune_compare(&search->benches[i], &best[i], &candidate[i], hopeless,
                              &verdict->shares[i], &verdict->seconds[i]);
        verdict->works = i + 1;
        verdict->worst = fmax(verdict->worst, verdict->shares[i]);
        sum += log(verdict->shares[i]);
        verdict->share = exp(sum / (double)(i + 1));
        if (i >= 1 && verdict->share > hopeless)
            break;
    }
    return status;
}

static bool pays(const struct verdict *verdict)
{
    return verdict->share < GAIN && verdict->worst < LOSS;
}

/* ---- candidates ---- */

struct candidate {
    const char *work; /* whose value it is; NULL: the device's */
    size_t tunable;
    unsigned value, before;
};

static void note(struct tune_search *search, const struct candidate *candidate,
                 const struct verdict *verdict, bool taken, kiln_status status)
{
    char line[300];
    const char *name = search->record->tunables[candidate->tunable].name;
    int at = snprintf(line, sizeof line, "# %s%s%s %u: ", candidate->work ? candidate->work : "",
                      candidate->work ? ": " : "", name, candidate->value);
    size_t rest = sizeof line - (size_t)at;
    if (status)
        snprintf(line + at, rest, "%s", kiln_status_name(status));
    else
        kiln__format(line + at, rest, "%.3f of the time of %u%s", verdict->share, candidate->before,
                     taken ? ", taken" : "");
    tune_record_note(search->record, line, strlen(line));
    search->measured++;
    if (candidate->work && !status)
        fprintf(search->progress, "%s; %s %.4g ms\n", line + 2, taken ? "best so far" : "it took",
                1e3 * verdict->seconds[0]);
    else
        fprintf(search->progress, "%s\n", line + 2);
    fflush(search->progress);
}

static bool was_measured(const struct tune_search *search, const struct candidate *candidate)
{
    char start[300];
    snprintf(start, sizeof start, "# %s%s%s %u: ", candidate->work ? candidate->work : "",
             candidate->work ? ": " : "", search->record->tunables[candidate->tunable].name,
             candidate->value);
    return !search->again && tune_record_has_note(search->record, start);
}

static kiln_status measure(struct tune_search *search, struct tune_way *ways,
                           struct verdict *verdict)
{
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < search->count && !status; i++)
        status = tune_way_check(&search->benches[i], &ways[i]);
    if (!status)
        status = compare(search, search->best, ways, HOPELESS, verdict);
    if (!status && pays(verdict)) /* whatever else ran meanwhile may have favoured it: again */
        status = compare(search, search->best, ways, HOPELESS, verdict);
    return status;
}

/* A candidate that is wrong, or cannot be, is noted as such and the search goes on. Its value is
 * in the record while it is tried. */
static kiln_status try_candidate(struct tune_search *search, const struct candidate *candidate)
{
    struct tune_way ways[TUNE_MOST_WORKS] = {0};
    struct verdict verdict = {.share = 1};
    unsigned *place = tune_record_value(search->record, candidate->work, candidate->tunable);
    *place = candidate->value;
    kiln_status status = go_by_record(search);
    for (size_t i = 0; i < search->count && !status; i++)
        status = tune_way_make(&search->benches[i], &ways[i]);
    bool other = status || !is_seen(search, ways);
    if (!status && other)
        status = measure(search, ways, &verdict);
    bool taken = !status && other && !tune_interrupted && pays(&verdict);
    if (taken)
        for (size_t i = 0; i < search->count; i++) {
            struct tune_way before = search->best[i];
            search->best[i] = ways[i];
            ways[i] = before;
        }
    else
        *place = candidate->before;
    free_ways(search, ways);
    if (!other || tune_interrupted)
        return KILN_OK;
    note(search, candidate, &verdict, taken, status);
    return search->keeps ? tune_record_remember(search->context, search->record) : KILN_OK;
}

static kiln_status search_values(struct tune_search *search, const char *work)
{
    const struct tune_record *record = search->record;
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < record->count && !status; i++) {
        const kiln_tunable *tunable = &record->tunables[i];
        bool searched = (work || !tunable->of_works) && !tune_is_of_library(tunable);
        for (size_t k = 0; k < tunable->count && !status && searched; k++) {
            const unsigned *place = tune_record_value(search->record, work, i);
            struct candidate candidate = {work, i, tunable->candidates[k], place ? *place : 0};
            if (!place || candidate.value == *place || was_measured(search, &candidate))
                continue;
            if (tune_interrupted || tune_now() > search->until)
                search->left++;
            else
                status = try_candidate(search, &candidate);
        }
    }
    return status;
}

/* ---- what was gained ---- */

static bool is_another(const struct tune_search *search)
{
    for (size_t i = 0; i < search->count; i++)
        if (strcmp(search->best[i].plan, search->usual[i].plan) != 0)
            return true;
    return false;
}

static kiln_status weigh(struct tune_search *search, struct verdict *verdict)
{
    const sig_atomic_t interrupted = tune_interrupted;
    *verdict = (struct verdict){.share = 1};
    tune_interrupted = 0; /* what was found is told in any case */
    kiln_status status = KILN_OK;
    if (is_another(search)) {
        struct verdict again = {.share = 1};
        status = compare(search, search->usual, search->best, INFINITY, verdict);
        if (!status)
            status = compare(search, search->usual, search->best, INFINITY, &again);
        if (!status && again.share > verdict->share) /* the lesser gain of the two */
            *verdict = again;
    } else
        for (size_t i = 0; i < search->count && !status; i++) {
            double share;
            status = tune_compare(&search->benches[i], &search->best[i], &search->best[i], INFINITY,
                                  &share, &verdict->seconds[i]);
            verdict->shares[i] = 1;
        }
    tune_interrupted = tune_interrupted || interrupted;
    return status;
}

static void fill_gain(const char *name, double share, double seconds, struct tune_gain *gain)
{
    *gain = (struct tune_gain){.share = share, .seconds = seconds};
    snprintf(gain->name, sizeof gain->name, "%s", name);
}

/* ---- the device ---- */

kiln_status tune_search_device(struct tune_search *search, const struct tune_work *works,
                               size_t count, struct tune_gain gains[TUNE_MOST_WORKS])
{
    struct verdict verdict;
    kiln_status status = open_works(search, works, count);
    if (!status)
        status = search_values(search, NULL);
    if (!status)
        status = weigh(search, &verdict);
    for (size_t i = 0; i < count && !status; i++)
        fill_gain(works[i].name, verdict.shares[i], verdict.seconds[i], &gains[i]);
    if (!status && verdict.share >= 1) {
        for (size_t i = 0; i < search->record->count; i++)
            if (!tune_is_of_library(&search->record->tunables[i]))
                search->record->tunables[i].value = search->record->tunables[i].usual;
        if (search->keeps)
            status = tune_record_remember(search->context, search->record);
    }
    close_works(search);
    return status;
}

/* ---- a work ---- */

enum { MOST_KEYS = 8 };

/* The batch's kernels: each has values of its own. */
static kiln_status list_keys(const struct tune_search *search, char keys[MOST_KEYS][TUNE_NAME],
                             size_t *count)
{
    char *text = NULL;
    kiln_status status = kiln_batch_list_works(search->best[0].batch, &text);
    *count = 0;
    for (const char *line = text; !status && *line && *count < MOST_KEYS;) {
        size_t length = strcspn(line, "#\n");
        if (length > 1 && length < TUNE_NAME)
            snprintf(keys[(*count)++], TUNE_NAME, "%.*s", (int)length - 1, line);
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    kiln_free(text);
    return status;
}

static void name_values(const struct tune_search *search, char keys[MOST_KEYS][TUNE_NAME],
                        size_t count, struct tune_gain *gain)
{
    size_t at = 0;
    for (size_t key = 0; key < count; key++)
        for (size_t i = 0; i < search->record->count; i++) {
            const unsigned *value = tune_record_value(search->record, keys[key], i);
            if (value && *value && at < sizeof gain->values - 20)
                at += (size_t)snprintf(gain->values + at, sizeof gain->values - at, "%s%s %u",
                                       at ? ", " : "", search->record->tunables[i].name, *value);
        }
}

static void drop_values(struct tune_search *search, char keys[MOST_KEYS][TUNE_NAME], size_t count)
{
    for (size_t key = 0; key < count; key++)
        for (size_t i = 0; i < search->record->count; i++) {
            unsigned *value = tune_record_value(search->record, keys[key], i);
            if (value)
                *value = 0;
        }
}

kiln_status tune_search_work(struct tune_search *search, const struct tune_work *work,
                             struct tune_gain *gain)
{
    char keys[MOST_KEYS][TUNE_NAME];
    size_t count = 0;
    struct verdict verdict;
    kiln_status status = open_works(search, work, 1);
    if (!status)
        status = list_keys(search, keys, &count);
    for (size_t i = 0; i < count && !status; i++)
        status = search_values(search, keys[i]);
    if (!status)
        status = weigh(search, &verdict);
    if (!status && verdict.share >= 1)
        drop_values(search, keys, count);
    if (!status) {
        fill_gain(work->name, fmin(verdict.share, 1), verdict.seconds[0], gain);
        name_values(search, keys, count, gain);
        if (search->keeps)
            status = tune_record_remember(search->context, search->record);
    }
    close_works(search);
    return status;
}
