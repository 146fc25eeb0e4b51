/* SPDX-License-Identifier: Apache-2.0 */
/* `kiln embed`: lines become vectors, through a sentence encoder in an ONNX or GGUF
 * file.
 *
 * Lines are read and cut into tokens a window at a time, sorted by length and asked of an executor,
 * which gathers those of like length into batches (embed_windows.c). */
#define _GNU_SOURCE
#include <argp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "embed.h"
#include "suggest.h"
#include "tool.h"

#define STEADY 0.1 /* seconds behind the first result that tell how busy a device is */

struct work {
    const struct embed_request *request;
    struct embed_files files;
    struct tokenizer *tokenizer;
    struct embed_cutters *cutters;
    kiln_context *contexts[EMBED_MOST_DEVICES]; /* each with its model */
    struct embed_model models[EMBED_MOST_DEVICES];
    size_t devices;
    struct embed_output output;
    struct embed_statistics statistics;
    struct embed_source source;
    size_t batch;
    double created, began, shown; /* when */
    double busy;                  /* seconds up to the first result, of all devices */
    bool has_first;
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static bool complain(void)
{
    fprintf(stderr, "kiln embed: %s\n", kiln_last_error());
    return false;
}

/* ---- how it goes ---- */

/* Seconds in which a batch was under way, summed over devices. */
static double busy_seconds(const struct work *work)
{
    double seconds = 0;
    kiln_executor_context_stats stats;
    for (size_t i = 0; i < work->devices; i++)
        if (!kiln_executor_get_context_stats(work->models->executor, i, &stats))
            seconds += stats.utilisation * (now() - work->created);
    return seconds;
}

static void note_first(struct work *work)
{
    if (work->has_first)
        return;
    work->has_first = true;
    work->statistics.first = now() - work->began;
    work->busy = busy_seconds(work);
}

static void show_progress(struct work *work)
{
    kiln_executor_stats stats;
    double time = now();
    if (time - work->shown < 0.25 || !isatty(STDERR_FILENO) ||
        kiln_executor_get_stats(work->models->executor, &stats))
        return;
    work->shown = time;
    fprintf(stderr, "\r%llu sentences, %.1f a second ", (unsigned long long)stats.rows,
            (double)stats.rows / (time - work->began));
}

static void go_on(void *user, size_t lines, size_t tokens)
{
    struct work *work = user;
    if (lines)
        note_first(work);
    work->statistics.sentences += lines;
    work->statistics.tokens += tokens;
    show_progress(work);
}

static void add_device(struct embed_statistics *statistics, kiln_context *context)
{
    kiln_context_stats memory;
    kiln_device_info info;
    const size_t length = strlen(statistics->device);
    if (!kiln_context_get_stats(context, &memory)) {
        statistics->weight_bytes += memory.buffer_bytes;
        statistics->other_bytes +=
            memory.pool_bytes > memory.evicted_bytes ? memory.pool_bytes - memory.evicted_bytes : 0;
    }
    if (!kiln_context_device(context, &info))
        snprintf(statistics->device + length, sizeof statistics->device - length, "%s%s",
                 length ? ", " : "", info.name);
}

static void sum_up(struct work *work)
{
    struct embed_statistics *statistics = &work->statistics;
    kiln_executor_stats stats;
    double end = now(), rest = end - work->began - statistics->first;
    statistics->seconds = end - work->began;
    if (!kiln_executor_get_stats(work->models->executor, &stats))
        statistics->padding = stats.padding_share;
    for (size_t i = 0; i < work->devices; i++)
        add_device(statistics, work->contexts[i]);
    if (rest > STEADY)
        statistics->busy = (busy_seconds(work) - work->busy) / rest / (double)work->devices;
    if (work->shown > 0)
        fputs("\r\33[K", stderr);
}

/* ---- all lines ---- */

static size_t at_least(size_t least, size_t most, size_t wanted)
{
    return wanted < least ? least : wanted > most ? most : wanted;
}

/* Batches are recorded for all sizes and lengths that may come: no more than these lines need, if
 * they are all. That is part of loading, not of the lines' time. */
static bool open_executor(struct work *work, const struct embed_lines *lines)
{
    size_t longest = work->files.max_length, batch = work->batch;
    double start = now();
    kiln_executor_options options = KILN_EXECUTOR_OPTIONS_INIT;
    if (work->source.ended) {
        longest = lines->count ? embed_line_length(lines, lines->order[0]) : 1;
        batch = at_least(2, batch, lines->count);
    }
    options.max_batch = batch;
    options.max_queue = 8 * batch * work->devices;
    options.close_lengths = 1; /* lines come sorted */
    work->created = start;
    bool fine =
        embed_open_executor(work->models, work->contexts, work->devices, longest, &options) &&
        embed_open_output(&work->output, work->request, work->models->width);
    work->statistics.load += now() - start;
    work->began += now() - start;
    return fine;
}

static bool embed_lines(struct work *work)
{
    const struct embed_windows_options options = {
        &work->source, work->cutters, work->files.max_length, work->models, &work->output,
        go_on,         work};
    const struct embed_lines *first;
    work->began = now();
    struct embed_windows *windows = embed_begin_windows(&options, &first);
    bool fine = windows && open_executor(work, first) && embed_run_windows(windows);
    embed_end_windows(windows);
    if (!fine)
        return false;
    sum_up(work);
    return embed_close_output(&work->output, &work->statistics);
}

/* ---- from the command line to the vectors ---- */

/* A choice, or several with commas between them: a context each. */
static bool open_devices(struct work *work)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.precision = work->request->precision.products;
    char *choices = work->request->device ? strdup(work->request->device) : NULL;
    char *rest = choices;
    bool fine = choices || !work->request->device;
    if (!fine)
        fputs("kiln embed: no memory\n", stderr);
    do {
        options.device = strsep(&rest, ",");
        if (work->devices == EMBED_MOST_DEVICES) {
            fprintf(stderr, "kiln embed: --device names more than %d devices\n",
                    EMBED_MOST_DEVICES);
            fine = false;
        } else {
            fine = fine &&
                   (!kiln_context_create(&options, &work->contexts[work->devices]) || complain());
            work->devices += fine;
        }
    } while (fine && rest);
    free(choices);
    return fine;
}

static bool open_model(struct work *work)
{
    bool on_cpus = true;
    double start = now();
    for (size_t i = 0; i < work->devices; i++) {
        kiln_device_info info;
        struct embed_model *model = &work->models[i];
        if (!embed_load(model, work->contexts[i], work->request->precision.weights, &work->files) ||
            kiln_context_device(work->contexts[i], &info))
            return complain();
        on_cpus = on_cpus && info.type == KILN_DEVICE_CPU;
        model->command = work->request->command;
        model->cls = work->files.cls;
        model->pooling = work->request->pooling;
        model->normalize = !work->request->no_normalize;
    }
    work->statistics.load = now() - start;
    work->batch = work->request->batch ? work->request->batch
                  : on_cpus            ? EMBED_CPU_BATCH
                                       : EMBED_GPU_BATCH;
    return true;
}

static bool open_tokenizer(struct work *work)
{
    char error[KILN__TOKENIZER_ERROR] = "no memory";
#ifdef HAVE_LM
    if (work->models->lm)
        work->tokenizer = tokenizer_of_model(work->models->lm);
    else
#endif
        work->tokenizer = tokenizer_open(work->files.vocabulary, error);
    if (!work->tokenizer) {
        fprintf(stderr, "kiln embed: %s\n", error);
        return false;
    }
    size_t around =
        work->tokenizer->facts.around.before_count + work->tokenizer->facts.around.after_count;
    if (work->files.max_length > around) {
        work->cutters = embed_open_cutters(work->tokenizer);
        return work->cutters;
    }
    fprintf(stderr, "kiln embed: %zu tokens have no room for words beside the %zu around them\n",
            work->files.max_length, around);
    return false;
}

static int run(const struct embed_request *request)
{
    struct work work = {.request = request, .source = {.fd = -1}};
    bool fine = embed_find_files(request, &work.files);
    const bool is_gguf = work.files.is_gguf; /* the tokenizer is in the model's file */
    fine = fine && (is_gguf || open_tokenizer(&work)) &&
           embed_open_source(&work.source, request->input) && open_devices(&work) &&
           open_model(&work) && (!is_gguf || open_tokenizer(&work)) && embed_lines(&work);
    embed_close_cutters(work.cutters);
    tokenizer_close(work.tokenizer);
    for (size_t i = 0; i < work.devices; i++)
        embed_close(&work.models[i]);
    for (size_t i = 0; i < work.devices; i++)
        kiln_context_release(work.contexts[i]);
    embed_close_source(&work.source);
    embed_free_files(&work.files);
    return fine ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* ---- arguments ---- */

enum { NO_NORMALIZE = 256 };

static const struct argp_option options[] = {
    {"model", 'm', "PATH", 0,
     "The encoder: an ONNX or GGUF file, or the folder that has an ONNX file", 0},
    {"vocab", 'v', "FILE", 0, "tokenizer.json or vocab.txt; else the one beside the model", 0},
    {"output", 'o', "FILE", 0, "Write vectors there: an array if it ends in .npy, else text", 0},
    {"max-length", 'l', "TOKENS", 0, "Most tokens of a line; as configured, else 256", 0},
    {"pooling", 'p', "mean|cls", 0, "What a vector is made of; as configured, else mean", 0},
    {"no-normalize", NO_NORMALIZE, NULL, 0, "Leave vectors as long as they are", 0},
    {"batch", 'b', "LINES", 0, "Most lines of a batch (16; on GPUs 128)", 0},
    {"precision", 't', PRECISION_WORDS, 0, PRECISION_HELP, 0},
    {"device", 'd', "CHOICE", 0,
     "These devices, with commas between: number, type, or part of a name", 0},
    {"json", 'j', NULL, 0, "Print JSON", 0},
    {0},
};

static size_t read_number(const char *text, size_t least, size_t most, struct argp_state *state)
{
    char *end;
    unsigned long number = strtoul(text, &end, 10);
    if (end == text || *end || *text == '-' || number < least || number > most)
        argp_error(state, "\"%s\" is no number from %zu to %zu", text, least, most);
    return number;
}

static enum embed_pooling read_pooling(const char *text, struct argp_state *state)
{
    if (strcmp(text, "mean") && strcmp(text, "cls"))
        argp_error(state, "\"%s\" is no pooling: mean or cls", text);
    return strcmp(text, "cls") ? EMBED_MEAN : EMBED_CLS;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct embed_request *request = state->input;
    switch (key) {
    case 'm': request->model = arg; return 0;
    case 'v': request->vocabulary = arg; return 0;
    case 'o': request->output = strcmp(arg, "-") ? arg : NULL; return 0;
    case 'l': request->max_length = read_number(arg, 1, EMBED_MOST_LENGTH, state); return 0;
    case 'b': request->batch = read_number(arg, 2, EMBED_MOST_BATCH, state); return 0;
    case 'p': request->pooling = read_pooling(arg, state); return 0;
    case 't': request->precision = precision_read(arg, state); return 0;
    case NO_NORMALIZE: request->no_normalize = true; return 0;
    case 'd': request->device = arg; return 0;
    case 'j': request->json = true; return 0;
    case ARGP_KEY_ARG:
        if (request->input)
            argp_error(state, "\"%s\" is one argument too many", arg);
        request->input = arg;
        return 0;
    case ARGP_KEY_END:
        if (!request->model)
            argp_error(state, "--model is missing");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int kiln__tool_embed(int argc, char **argv)
{
    static const char doc[] =
        "Read lines from FILE, or from standard input (-), and write a vector "
        "of each: what a sentence encoder of BERT's kind makes of it.";
    struct argp argp = {.options = options, .parser = parse, .args_doc = "[FILE]", .doc = doc};
    struct embed_request request = {.command = "kiln embed", .advice = ": say --vocab FILE"};
    kiln__tool_parse(&argp, argc, argv, 0, &request);
    return run(&request);
}
