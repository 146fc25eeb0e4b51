/* SPDX-License-Identifier: Apache-2.0 */
/* `kiln tune`: find the parameters with which this device is fastest, and keep them.
 *
 * One parameter after the other, each candidate beside what is best so far, in turns, over all
 * works. Results are looked at before anything is timed; what is hopeless after a work or two is
 * dropped. Each figure is kept at once, so that a run that is stopped goes on where it was. */
#define _GNU_SOURCE
#include <argp.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kiln/kiln.h>

#include "tool.h"
#include "tune_record.h"
#include "tune_work.h"

enum { ROUNDS = 7 };

#define GAIN 0.98     /* of the time: what a candidate has to be below, */
#define LOSS 1.08     /* and no work above */
#define HOPELESS 1.25 /* of the first works */

struct request {
    const char *device, *action, *file;
    double seconds;
    bool again;
};

static volatile sig_atomic_t interrupted;

static void interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int complain(void)
{
    fprintf(stderr, "kiln tune: %s\n", kiln_last_error());
    return 1;
}

/* A context with the parameters of `words`; NULL: those that are kept. */
static kiln_context *open_context(const struct request *request, const char *words)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    kiln_context *context = NULL;
    options.device = request->device;
    if (words ? setenv("KILN_TUNE", words, 1) : unsetenv("KILN_TUNE"))
        return NULL;
    return kiln_context_create(&options, &context) ? NULL : context;
}

/* ---- measuring ---- */

/* All works in one context. */
struct bench {
    kiln_context *context;
    kiln_buffer *in[2];
    kiln_batch *batches[TUNE_MOST_WORKS];
    kiln_buffer *out[TUNE_MOST_WORKS];
};

static float *inputs[2], *results;

static bool fill_inputs(void)
{
    uint32_t state = 1;
    results = malloc(TUNE_FLOATS * sizeof *results);
    for (int i = 0; i < 2; i++) {
        inputs[i] = malloc(TUNE_FLOATS * sizeof **inputs);
        for (size_t k = 0; inputs[i] && k < TUNE_FLOATS; k++) {
            state = state * 1664525 + 1013904223;
            inputs[i][k] = (float)(state >> 8) / (float)(1 << 23) - 0.75F;
        }
    }
    return inputs[0] && inputs[1] && results;
}

static void close_bench(struct bench *bench)
{
    for (size_t i = 0; i < TUNE_MOST_WORKS; i++) {
        kiln_batch_release(bench->batches[i]);
        kiln_buffer_release(bench->out[i]);
    }
    for (int i = 0; i < 2; i++)
        kiln_buffer_release(bench->in[i]);
    kiln_context_release(bench->context);
    *bench = (struct bench){0};
}

static kiln_status record_work(struct bench *bench, size_t number)
{
    const struct tune_work *work = &tune_works[number];
    kiln_batch *batch = bench->batches[number] = kiln_batch_create(bench->context);
    kiln_status status = batch ? KILN_OK : KILN_OUT_OF_HOST_MEMORY;
    if (!status)
        status =
            kiln_buffer_create(bench->context, KILN_F32, 1, &work->results, &bench->out[number]);
    if (status)
        return status;
    kiln_tensor y = work->record(batch, work, bench->in);
    return kiln_export(batch, kiln_reshape(batch, y, 1, &work->results), bench->out[number]);
}

static kiln_status open_bench(const struct request *request, const char *words, struct bench *bench)
{
    const size_t floats = TUNE_FLOATS;
    *bench = (struct bench){.context = open_context(request, words)};
    kiln_status status = bench->context ? KILN_OK : KILN_DEVICE_ERROR;
    for (int i = 0; i < 2 && !status; i++) {
        status = kiln_buffer_create(bench->context, KILN_F32, 1, &floats, &bench->in[i]);
        if (!status)
            status = kiln_buffer_write(bench->in[i], 0, inputs[i], floats * sizeof(float));
    }
    for (size_t i = 0; tune_works[i].name && !status; i++)
        status = record_work(bench, i);
    return status;
}

/* Elements at even distances, and the last one, against the host's. */
static kiln_status check_work(const struct bench *bench, size_t number)
{
    const struct tune_work *work = &tune_works[number];
    size_t step = work->results / 257 + 1;
    kiln_status status = kiln_batch_execute(bench->batches[number]);
    if (!status)
        status = kiln_buffer_read(bench->out[number], 0, results, work->results * sizeof *results);
    for (size_t i = 0; !status && i < work->results; i += step) {
        size_t at = i + step < work->results ? i : work->results - 1;
        double want = work->element(work, inputs[0], inputs[1], at);
        if (!(fabs((double)results[at] - want) <= work->tolerance * (1 + fabs(want)))) {
            fprintf(stderr, "kiln tune: %s: element %zu is %g and not %g\n", work->name, at,
                    (double)results[at], want);
            return KILN_WRONG_RESULT;
        }
    }
    return status;
}

static kiln_status time_once(const struct bench *bench, size_t number, unsigned runs,
                             double *seconds)
{
    double start = now();
    kiln_status status = KILN_OK;
    for (unsigned i = 0; i < runs && !status; i++)
        status = kiln_batch_submit(bench->batches[number], NULL);
    if (!status)
        status = kiln_context_finish(bench->context);
    *seconds = (now() - start) / runs;
    return status;
}

/* So many that a sample takes some milliseconds. */
static kiln_status choose_runs(const struct bench *bench, size_t number, unsigned *runs)
{
    double seconds;
    kiln_status status = time_once(bench, number, 2, &seconds);
    if (!status)
        status = time_once(bench, number, 2, &seconds);
    *runs = seconds > 4e-3 ? 1 : (unsigned)(4e-3 / (seconds + 1e-6)) + 1;
    return status;
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* The candidate's share of the time of the best so far, by turns: the median of the rounds. */
static kiln_status compare_work(const struct bench *best, const struct bench *candidate,
                                size_t number, double *share)
{
    double shares[ROUNDS];
    unsigned runs = 1;
    kiln_status status = check_work(candidate, number);
    if (!status)
        status = choose_runs(best, number, &runs);
    for (int i = 0; i < ROUNDS && !status; i++) {
        double seconds[2] = {0, 0};
        for (int k = 0; k < 2 && !status; k++) {
            bool first = k == i % 2; /* each goes first in every other round */
            status = time_once(first ? best : candidate, number, runs, &seconds[!first]);
        }
        shares[i] = seconds[1] / seconds[0];
    }
    if (!status) {
        qsort(shares, ROUNDS, sizeof *shares, ascending);
        *share = shares[ROUNDS / 2];
    }
    return status;
}

struct verdict {
    double share, worst;
    size_t works;
    double shares[TUNE_MOST_WORKS];
};

/* The geometric mean over the works; of few of them where it is beyond `hopeless` then. */
static kiln_status compare(const struct bench *best, const struct bench *candidate, double hopeless,
                           struct verdict *verdict)
{
    kiln_status status = KILN_OK;
    double sum = 0;
    *verdict = (struct verdict){.share = 1};
    for (size_t i = 0; tune_works[i].name && !status && !interrupted; i++) {
        double share = 1;
        status = compare_work(best, candidate, i, &share);
        verdict->shares[i] = share;
        verdict->works = i + 1;
        verdict->worst = share > verdict->worst ? share : verdict->worst;
        sum += log(share);
        verdict->share = exp(sum / (double)(i + 1));
        if (i >= 1 && verdict->share > hopeless)
            break;
    }
    return status;
}

/* ---- searching ---- */

struct search {
    const struct request *request;
    struct tune_record record;
    struct bench best;
    double until;
    size_t measured, left;
};

static bool was_measured(const struct search *search, const kiln_tunable *tunable, unsigned value)
{
    char start[80];
    snprintf(start, sizeof start, "# %s %u: ", tunable->name, value);
    return !search->request->again && strstr(search->record.notes, start);
}

static kiln_status reopen_best(struct search *search)
{
    char words[512];
    close_bench(&search->best);
    tune_record_words(&search->record, NULL, 0, words, sizeof words);
    return open_bench(search->request, words, &search->best);
}

static void note_verdict(struct search *search, const kiln_tunable *tunable, unsigned value,
                         const struct verdict *verdict, bool taken, kiln_status status)
{
    char line[160];
    if (status)
        snprintf(line, sizeof line, "# %s %u: %s", tunable->name, value, kiln_status_name(status));
    else
        snprintf(line, sizeof line, "# %s %u: %.3f of the time of %u, at worst %.3f%s",
                 tunable->name, value, verdict->share, tunable->value, verdict->worst,
                 taken ? ", taken" : "");
    printf("%s\n", line + 2);
    fflush(stdout);
    tune_record_note(&search->record, line, strlen(line));
}

static bool pays(const struct verdict *verdict)
{
    return verdict->share < GAIN && verdict->worst < LOSS;
}

/* A candidate that is wrong, or cannot be, is noted as such and the search goes on. */
static kiln_status try_candidate(struct search *search, kiln_tunable *tunable, unsigned value)
{
    struct bench candidate;
    struct verdict verdict = {.share = 1};
    char words[512];
    tune_record_words(&search->record, tunable, value, words, sizeof words);
    /* Both contexts are as new: on an H200 an older one was a tenth ahead of its equal. */
    kiln_status status = reopen_best(search);
    if (status)
        return status;
    status = open_bench(search->request, words, &candidate);
    if (!status)
        status = compare(&search->best, &candidate, HOPELESS, &verdict);
    if (!status && pays(&verdict)) /* whatever else ran meanwhile may have favoured it: again */
        status = compare(&search->best, &candidate, HOPELESS, &verdict);
    close_bench(&candidate);
    if (interrupted)
        return KILN_OK;
    bool taken = !status && pays(&verdict);
    note_verdict(search, tunable, value, &verdict, taken, status);
    search->measured++;
    if (taken) {
        tunable->value = value;
        status = reopen_best(search);
        if (status)
            return status;
    }
    return tune_record_remember(search->best.context, &search->record);
}

static kiln_status search_all(struct search *search)
{
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < search->record.count; i++) {
        kiln_tunable *tunable = &search->record.tunables[i];
        for (size_t k = 0; k < tunable->count && !status; k++) {
            unsigned value = tunable->candidates[k];
            if (value == tunable->value || was_measured(search, tunable, value))
                continue;
            if (interrupted || now() > search->until)
                search->left++;
            else
                status = try_candidate(search, tunable, value);
        }
    }
    return status;
}

static bool is_tuned(const struct tune_record *record)
{
    for (size_t i = 0; i < record->count; i++)
        if (record->tunables[i].value != record->tunables[i].usual)
            return true;
    return false;
}

/* What was gained over the usual values. */
static kiln_status print_table(struct search *search)
{
    struct bench usual;
    struct verdict verdict;
    if (!is_tuned(&search->record)) {
        puts("\nnothing that was measured is faster than the usual values");
        return KILN_OK;
    }
    kiln_status status = reopen_best(search);
    if (status)
        return status;
    status = open_bench(search->request, "off", &usual);
    interrupted = 0;
    for (size_t i = 0; tune_works[i].name && !status; i++)
        status = check_work(&usual, i);
    if (!status)
        status = compare(&usual, &search->best, INFINITY, &verdict);
    close_bench(&usual);
    if (status)
        return status;
    printf("\n%-30s %s\n", "tuned, beside the usual", "times as fast");
    for (size_t i = 0; i < verdict.works; i++)
        printf("%-30s %13.2f\n", tune_works[i].name, 1 / verdict.shares[i]);
    printf("%-30s %13.2f\n", "all (geometric mean)", 1 / verdict.share);
    if (verdict.share < 1)
        return KILN_OK;
    puts("that is no gain: the usual values stay");
    for (size_t i = 0; i < search->record.count; i++)
        search->record.tunables[i].value = search->record.tunables[i].usual;
    return tune_record_remember(search->best.context, &search->record);
}

/* Where the disk cache cannot be written there is no use in a search. */
static kiln_status expect_kept(struct search *search)
{
    char *text = NULL;
    kiln_status status = tune_record_remember(search->best.context, &search->record);
    if (!status)
        status = kiln_context_recall(search->best.context, KILN_TUNED, &text);
    if (!status && !text)
        fputs("kiln tune: the kernel cache cannot be written: nothing is kept\n", stderr);
    kiln_free(text);
    return status;
}

static kiln_status begin_search(struct search *search)
{
    kiln_context *context = open_context(search->request, NULL);
    kiln_status status = context ? tune_record_recall(context, &search->record) : KILN_DEVICE_ERROR;
    kiln_context_release(context);
    if (search->request->again)
        *search->record.notes = 0;
    if (!status)
        status = reopen_best(search);
    if (!status)
        status = expect_kept(search);
    for (size_t i = 0; tune_works[i].name && !status; i++)
        status = check_work(&search->best, i);
    return status;
}

static int run_search(const struct request *request)
{
    struct search search = {.request = request, .until = now() + request->seconds};
    if (!fill_inputs()) {
        fputs("kiln tune: no memory\n", stderr);
        return 1;
    }
    signal(SIGINT, interrupt);
    signal(SIGTERM, interrupt);
    kiln_status status = begin_search(&search);
    if (!status)
        status = search_all(&search);
    if (!status)
        status = print_table(&search);
    close_bench(&search.best);
    if (status)
        return complain();
    if (search.left)
        printf("%zu candidates are left for the next time\n", search.left);
    return 0;
}

/* ---- the others ---- */

static int run_list(kiln_context *context, struct tune_record *record, const char *file)
{
    (void)context, (void)file;
    printf("%-12s %8s %8s  %s\n", "parameter", "value", "usual", "what");
    for (size_t i = 0; i < record->count; i++)
        printf("%-12s %8u %8u  %s\n", record->tunables[i].name, record->tunables[i].value,
               record->tunables[i].usual, record->tunables[i].purpose);
    fputs(record->notes, stdout);
    return 0;
}

static int run_clear(kiln_context *context, struct tune_record *record, const char *file)
{
    (void)record, (void)file;
    if (kiln_context_remember(context, KILN_TUNED, ""))
        return complain();
    puts("cleared");
    return 0;
}

/* What a record is for, as the file's first line. */
static kiln_status describe(kiln_context *context, char line[600])
{
    kiln_device_info info;
    kiln_status status = kiln_context_device(context, &info);
    snprintf(line, 600, "kiln %s, %s, %s\n", kiln_version(), info.name, info.driver_version);
    return status;
}

static int run_export(kiln_context *context, struct tune_record *record, const char *file)
{
    char line[600], text[MOST_RECORD + 1];
    if (describe(context, line))
        return complain();
    tune_record_write(record, text);
    FILE *stream = fopen(file, "we");
    bool failed = !stream || fprintf(stream, "%s%s", line, text) < 0;
    if ((stream && fclose(stream)) || failed) {
        perror(file);
        return 1;
    }
    puts("exported");
    return 0;
}

/* Values of the file go before those that are kept. */
static int run_import(kiln_context *context, struct tune_record *record, const char *file)
{
    char line[600], found[600], text[MOST_RECORD + 1];
    FILE *stream = fopen(file, "re");
    if (!stream) {
        perror(file);
        return 1;
    }
    if (!fgets(found, sizeof found, stream))
        *found = 0;
    text[fread(text, 1, MOST_RECORD, stream)] = 0;
    fclose(stream);
    if (describe(context, line))
        return complain();
    if (strcmp(line, found)) {
        fprintf(stderr, "kiln tune: %s is not for this device: it begins with %.*s, not with %s",
                file, (int)strcspn(found, "\n"), found, line);
        return 1;
    }
    bool understood = tune_record_read(text, record);
    if (tune_record_remember(context, record))
        return complain();
    puts("imported");
    return understood ? 0 : 1;
}

static const struct action {
    const char *name;
    bool takes_file;
    int (*run)(kiln_context *context, struct tune_record *record, const char *file);
} actions[] = {
    {"list", false, run_list},
    {"clear", false, run_clear},
    {"export", true, run_export},
    {"import", true, run_import},
};

static const struct action *find_action(const char *name)
{
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
        if (!strcmp(name, actions[i].name))
            return &actions[i];
    return NULL;
}

static int run_action(const struct request *request)
{
    struct tune_record record;
    kiln_context *context = open_context(request, NULL);
    if (!context || tune_record_recall(context, &record)) {
        kiln_context_release(context);
        return complain();
    }
    int status = find_action(request->action)->run(context, &record, request->file);
    kiln_context_release(context);
    return status;
}

/* ---- arguments ---- */

static const struct argp_option options[] = {
    {"again", 'a', NULL, 0, "Measure also what was measured before", 0},
    {"device", 'd', "DEVICE", 0, "This device, by name or number", 0},
    {"seconds", 's', "TIME", 0, "Begin no candidate after so long (120)", 0},
    {0},
};

static void take_argument(struct request *request, const char *arg, struct argp_state *state)
{
    const struct action *action = request->action ? find_action(request->action) : NULL;
    if (!action && !find_action(arg))
        argp_error(state, "there is no action \"%s\"", arg);
    else if (!action)
        request->action = arg;
    else if (action->takes_file && !request->file)
        request->file = arg;
    else
        argp_error(state, "\"%s\" is one argument too many", arg);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct request *request = state->input;
    char *end;
    switch (key) {
    case 'a': request->again = true; return 0;
    case 'd': request->device = arg; return 0;
    case 's':
        request->seconds = strtod(arg, &end);
        if (end == arg || *end || !(request->seconds >= 0))
            argp_error(state, "\"%s\" is no number of seconds", arg);
        return 0;
    case ARGP_KEY_ARG: take_argument(request, arg, state); return 0;
    case ARGP_KEY_END:
        if (request->action && find_action(request->action)->takes_file && !request->file)
            argp_error(state, "%s needs the name of a file", request->action);
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int kiln__tool_tune(int argc, char **argv)
{
    static const char doc[] =
        "Find the parameters of kernels with which this device is fastest, and keep them.\v"
        "Without an action: measure, beside what is best so far, what was not measured yet.\n"
        "Actions:\n"
        "  list          the parameters, and what was measured\n"
        "  export FILE   write them as a text\n"
        "  import FILE   take over those of such a file, made on the same device\n"
        "  clear         go back to the usual ones";
    struct argp argp = {.options = options,
                        .parser = parse,
                        .args_doc = "\nlist|clear\nexport|import FILE",
                        .doc = doc};
    struct request request = {.seconds = 120};
    argp_parse(&argp, argc, argv, 0, NULL, &request);
    return request.action ? run_action(&request) : run_search(&request);
}
