/* SPDX-License-Identifier: Apache-2.0 */
/* `kiln tune`: find the parameters with which this device is fastest, and keep them: for the
 * device, or for single works. Each figure is kept at once, so that a run that is stopped goes on
 * where it was. */
#define _GNU_SOURCE
#include <argp.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/kiln.h>

#include "columns.h"
#include "suggest.h"
#include "tool.h"
#include "tune_library.h"
#include "tune_report.h"
#include "tune_search.h"
#include "util/format.h"

struct request {
    const char *device, *action, *file, *shapes;
    double seconds;
    bool again, compares, json, times;
    const char **works; /* as given */
    size_t works_count;
};

static void interrupt(int number)
{
    (void)number;
    tune_interrupted = 1;
}

static int complain(void)
{
    fprintf(stderr, "kiln tune: %s\n", kiln_last_error());
    return 1;
}

static kiln_context *open_context(const struct request *request)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    kiln_context *context = NULL;
    options.device = request->device;
    if (!request->times)
        unsetenv("KILN_TUNE"); /* which would go before what is kept */
    unsetenv("KILN_RECORD_SHAPES");
    tune_keep_drivers();
    return kiln_context_create(&options, &context) ? NULL : context;
}

/* ---- works ---- */

struct works {
    struct tune_work *items;
    size_t count;
};

static bool has_work(const struct works *works, const struct tune_work *work)
{
    for (size_t i = 0; i < works->count; i++)
        if (!strcmp(works->items[i].name, work->name))
            return true;
    return false;
}

/* One that is not to be measured is named, and left out. */
static bool add_work(struct works *works, const char *text)
{
    struct tune_work work;
    const char *why;
    if (text[strspn(text, " \t\r\n")] == 0 || *text == '#')
        return true;
    if (!tune_work_read(text, &work, &why)) {
        fprintf(stderr, "kiln tune: \"%.*s\" is left out: %s\n", (int)strcspn(text, "\n"), text,
                why);
        return false;
    }
    if (has_work(works, &work))
        return true;
    struct tune_work *more = realloc(works->items, (works->count + 1) * sizeof *more);
    if (!more)
        return false;
    works->items = more;
    works->items[works->count++] = work;
    return true;
}

/* Those of a file, as $KILN_RECORD_SHAPES writes them. False: it cannot be read. */
static bool add_file(struct works *works, const char *path)
{
    char line[512];
    FILE *file = fopen(path, "re");
    if (!file) {
        fprintf(stderr, "kiln tune: %s: %s\n", path, strerror(errno));
        return false;
    }
    while (fgets(line, sizeof line, file))
        add_work(works, line);
    fclose(file);
    return true;
}

/* What is measured for a device as a whole. */
static const char *const common_works[] = {
    "map 1048576 costly",     "map 65536",
    "transpose 1024x1024",    "rows 1024x1024",
    "reduce 1x4194304",       "reduce 1024x2048 columns",
    "product 512x512x512 nn", "product 8x1024x1024 nn",
};
enum { COMMON_WORKS = sizeof common_works / sizeof *common_works };

/* ---- searching ---- */

/* Where the disk cache cannot be written there is no use in a search. */
static kiln_status expect_kept(struct tune_search *search)
{
    char *text = NULL;
    kiln_status status = tune_record_remember(search->context, search->record);
    if (!status)
        status = kiln_context_recall(search->context, KILN_TUNED, &text);
    if (!status && !text)
        fputs("kiln tune: the kernel cache cannot be written: nothing is kept\n", stderr);
    kiln_free(text);
    return status;
}

/* CLBlast's parameters have half of the time, where products go there. */
static int search_device(const struct request *request, struct tune_search *search)
{
    struct tune_work works[COMMON_WORKS];
    struct tune_gain gains[TUNE_MOST_WORKS + TUNE_LIBRARY_WORKS];
    const struct tune_report report = {request->json, request->compares, false};
    const char *why;
    bool library = tune_uses_library(search->context);
    size_t count = COMMON_WORKS + (library ? TUNE_LIBRARY_WORKS : 0);
    for (size_t i = 0; i < COMMON_WORKS; i++)
        if (!tune_work_read(common_works[i], &works[i], &why))
            return 1;
    const double end = tune_now() + request->seconds;
    search->until = library ? end - request->seconds / 2 : end;
    kiln_status status = tune_search_device(search, works, COMMON_WORKS, gains);
    search->until = end;
    if (!status && library)
        status = tune_search_library(search, request->device, gains + COMMON_WORKS);
    if (status)
        return complain();
    tune_report(search, &report, gains, count);
    return 0;
}

/* Each work has its share of the time that is left. One that cannot be measured is named. */
static int search_works(const struct request *request, struct tune_search *search,
                        const struct works *works)
{
    struct tune_gain *gains = calloc(works->count + 1, sizeof *gains);
    const struct tune_report report = {request->json, request->compares, true};
    const double end = tune_now() + request->seconds;
    size_t done = 0;
    int result = gains ? 0 : 1;
    for (size_t i = 0; i < works->count && gains && !tune_interrupted; i++) {
        const struct tune_work *work = &works->items[i];
        const double now = tune_now();
        search->until = now + (end - now) / (double)(works->count - i);
        if (end < now) {
            fprintf(search->progress, "%s: no time is left\n", work->name);
            search->left++;
        } else if (tune_search_work(search, work, &gains[done])) {
            fprintf(stderr, "kiln tune: %s: %s\n", work->name, kiln_last_error());
            result = 1;
        } else {
            fprintf(search->progress, "%s: %.4g ms, %.2f times as fast as with the usual values\n",
                    work->name, 1e3 * gains[done].seconds, 1 / gains[done].share);
            done++;
        }
    }
    if (done)
        tune_report(search, &report, gains, done);
    free(gains);
    return result;
}

static int run_search(const struct request *request)
{
    struct tune_record *record = calloc(1, sizeof *record);
    struct tune_search *search = calloc(1, sizeof *search);
    struct works works = {0};
    int result = record && search ? 0 : 1;
    for (size_t i = 0; i < request->works_count && !result; i++)
        result = !add_work(&works, request->works[i]);
    if (!result && request->shapes)
        result = !add_file(&works, request->shapes);
    kiln_context *context = result ? NULL : open_context(request);
    if (!result && !context)
        result = complain();
    if (!result) {
        *search = (struct tune_search){.context = context, .record = record};
        search->keeps = !request->compares;
        search->again = request->again || request->compares;
        search->progress = request->json ? stderr : stdout;
        signal(SIGINT, interrupt);
        signal(SIGTERM, interrupt);
        if ((search->keeps ? tune_record_recall : tune_record_begin)(context, record) ||
            (search->keeps && expect_kept(search)))
            result = complain();
    }
    if (!result && request->again)
        *record->notes = 0;
    if (!result && (request->shapes || request->works_count))
        result = search_works(request, search, &works);
    else if (!result)
        result = search_device(request, search);
    kiln_context_release(context);
    free(works.items);
    free(search);
    free(record);
    return result;
}

/* ---- the others ---- */

static int run_time(const struct request *request)
{
    kiln_context *context = open_context(request);
    int result = context ? 0 : complain();
    for (size_t i = 0; i < request->works_count && !result; i++) {
        struct tune_work work;
        const char *why;
        if (!tune_work_read(request->works[i], &work, &why))
            result = 1;
        else if (tune_time_work(context, &work))
            result = complain();
    }
    kiln_context_release(context);
    return result;
}

/* The values that a parameter may have on this device; products' kernels with their names. */
static void list_candidates(const kiln_tunable *tunable, FILE *stream)
{
    static const char *const products[] = {
        "",
#define PRODUCT(name, ...) #name,
#include "device/kernels.def"
    };
    const bool named = !strcmp(tunable->name, "product");
    for (size_t i = 0; i < tunable->count; i++) {
        const unsigned value = tunable->candidates[i];
        fprintf(stream, "%s%u", i ? ", " : " (", value);
        if (named && value < sizeof products / sizeof *products)
            fprintf(stream, " %s", products[value]);
    }
    fputs(tunable->count ? ")" : "", stream);
}

/* What a parameter is about, and its candidates. */
static void list_tunable(const kiln_tunable *tunable)
{
    char *text = NULL;
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    if (stream) {
        fputs(tunable->purpose, stream);
        list_candidates(tunable, stream);
        fclose(stream);
    }
    kiln__tool_print_rest(printf("%-12s %8u %8u  ", tunable->name, tunable->value, tunable->usual),
                          "%s", text ? text : tunable->purpose);
    free(text);
}

static int run_list(kiln_context *context, struct tune_record *record, const char *file)
{
    (void)context, (void)file;
    printf("%-12s %8s %8s  %s\n", "parameter", "value", "usual", "what (values to choose from)");
    for (size_t i = 0; i < record->count; i++)
        list_tunable(&record->tunables[i]);
    for (size_t i = 0; i < record->works_count; i++) {
        printf("%s:", record->works[i].name);
        for (size_t k = 0; k < record->count; k++)
            if (record->works[i].values[k])
                printf(" %s %u", record->tunables[k].name, record->works[i].values[k]);
        puts("");
    }
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
    static char text[MOST_RECORD + 1];
    char line[600];
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
    static char text[MOST_RECORD + 1];
    char line[600], found[600];
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
    static struct tune_record record;
    kiln_context *context = open_context(request);
    if (!context || tune_record_recall(context, &record)) {
        kiln_context_release(context);
        return complain();
    }
    int status = find_action(request->action)->run(context, &record, request->file);
    kiln_context_release(context);
    return status;
}

/* ---- arguments ---- */

enum { COMPARE = 256, JSON, TIME };

static const struct argp_option options[] = {
    {"again", 'a', NULL, 0, "Measure also what was measured before", 0},
    {"compare", COMPARE, NULL, 0, "Search from the usual values, and keep nothing", 0},
    {"device", 'd', "DEVICE", 0, "This device, by name or number", 0},
    {"json", JSON, NULL, 0, "Write the table as JSON, and progress to standard error", 0},
    {"seconds", 's', "TIME", 0, "Begin no candidate after so long (120)", 0},
    {"shapes", 'S', "FILE", 0, "Tune for the works of this file", 0},
    {"time", TIME, NULL, 0, "Only say how many seconds each work takes as it is now", 0},
    {0},
};

static void refuse_action(const char *name, const struct argp_state *state)
{
    struct kiln__suggestion suggestion = {.word = name};
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
        kiln__suggest(&suggestion, actions[i].name);
    kiln__refuse_word(state, "action", &suggestion);
}

static void take_argument(struct request *request, const char *arg, struct argp_state *state)
{
    const struct action *action = request->action ? find_action(request->action) : NULL;
    struct tune_work work;
    const char *why;
    if (action && action->takes_file && !request->file)
        request->file = arg;
    else if (action)
        argp_error(state, "\"%s\" is one argument too many", arg);
    else if (!request->works_count && find_action(arg))
        request->action = arg;
    else if (tune_work_read(arg, &work, &why))
        request->works[request->works_count++] = arg;
    else if (strchr(arg, ' '))
        argp_error(state, "\"%s\" is not measured: %s", arg, why);
    else
        refuse_action(arg, state);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct request *request = state->input;
    char *end;
    switch (key) {
    case 'a': request->again = true; return 0;
    case 'd': request->device = arg; return 0;
    case 'S': request->shapes = arg; return 0;
    case COMPARE: request->compares = true; return 0;
    case JSON: request->json = true; return 0;
    case TIME: request->times = true; return 0;
    case 's':
        request->seconds = kiln__parse_double(arg, &end);
        if (end == arg || *end || !(request->seconds >= 0))
            argp_error(state, "\"%s\" is no number of seconds", arg);
        return 0;
    case ARGP_KEY_ARG: take_argument(request, arg, state); return 0;
    case ARGP_KEY_END:
        if (request->action && find_action(request->action)->takes_file && !request->file)
            argp_error(state, "%s needs the name of a file", request->action);
        if (request->times && !request->works_count)
            argp_error(state, "--time needs a work");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int kiln__tool_tune(int argc, char **argv)
{
    static const char doc[] =
        "Find the parameters of kernels with which this device is fastest, and keep them.\v"
        "Without a work: for the device as a whole. A work is a kind of kernel and its sizes, such "
        "as \"product 513x777x1031 nt\"; programs write theirs to the file that KILN_RECORD_SHAPES "
        "names.\n"
        "What was not measured yet is measured beside what is best so far.\n"
        "Actions:\n"
        "  list          the parameters, their possible values, and what was measured\n"
        "  export FILE   write them as a text\n"
        "  import FILE   take over those of such a file, made on the same device\n"
        "  clear         go back to the usual ones";
    struct argp argp = {.options = options,
                        .parser = parse,
                        .args_doc = "[WORK...]\nlist|clear\nexport|import FILE",
                        .doc = doc};
    struct request request = {.seconds = 120};
    request.works = calloc((size_t)argc + 1, sizeof *request.works);
    if (!request.works)
        return 1;
    kiln__tool_parse(&argp, argc, argv, 0, &request);
    int result = request.times    ? run_time(&request)
                 : request.action ? run_action(&request)
                                  : run_search(&request);
    free(request.works);
    return result;
}
