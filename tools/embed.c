/* SPDX-License-Identifier: Apache-2.0 */
/* `kiln embed`: lines become vectors, through a sentence encoder in an ONNX file.
 *
 * Lines are read and cut into tokens a chunk at a time, sorted by length and asked of an executor,
 * which gathers those of like length into batches. While a chunk is computed the next one is
 * read. */
#define _GNU_SOURCE
#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "embed.h"
#include "tool.h"

/* Lines of a batch where nothing else is said. More are no faster, take more memory, and leave more
 * rows empty. */
enum { CPU_BATCH = 16, GPU_BATCH = 128 };

#define STEADY 0.1 /* seconds behind the first result that tell how busy a device is */

/* A chunk on its way. */
struct job {
    struct embed_lines lines;
    float *vectors;
    kiln_future **futures; /* in the order in which they were asked */
    size_t submitted;
};

struct work {
    const struct embed_request *request;
    struct embed_files files;
    struct wordpiece *wordpiece;
    kiln_context *context;
    struct embed_model model;
    struct embed_output output;
    struct embed_statistics statistics;
    FILE *input;
    size_t batch;
    double created, began, shown; /* when */
    double busy;                  /* seconds up to the first result */
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

static bool complain_of_memory(void)
{
    fputs("kiln embed: out of memory\n", stderr);
    return false;
}

/* ---- how it goes ---- */

/* Seconds in which a batch was under way. */
static double busy_seconds(const struct work *work)
{
    kiln_executor_context_stats stats;
    if (kiln_executor_get_context_stats(work->model.executor, 0, &stats))
        return 0;
    return stats.utilisation * (now() - work->created);
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
        kiln_executor_get_stats(work->model.executor, &stats))
        return;
    work->shown = time;
    fprintf(stderr, "\r%llu sentences, %.1f a second ", (unsigned long long)stats.rows,
            (double)stats.rows / (time - work->began));
}

static void sum_up(struct work *work)
{
    struct embed_statistics *statistics = &work->statistics;
    kiln_executor_stats stats;
    kiln_context_stats memory;
    kiln_device_info info;
    double end = now(), rest = end - work->began - statistics->first;
    statistics->seconds = end - work->began;
    if (!kiln_executor_get_stats(work->model.executor, &stats))
        statistics->padding = stats.padding_share;
    if (!kiln_context_get_stats(work->context, &memory)) {
        statistics->weight_bytes = memory.buffer_bytes;
        statistics->other_bytes = memory.pool_bytes > memory.given_up_bytes
                                      ? memory.pool_bytes - memory.given_up_bytes
                                      : 0;
    }
    if (!kiln_context_device(work->context, &info))
        snprintf(statistics->device, sizeof statistics->device, "%s", info.name);
    if (rest > STEADY)
        statistics->busy = (busy_seconds(work) - work->busy) / rest;
    if (work->shown > 0)
        fputs("\r\33[K", stderr);
}

/* ---- a chunk ---- */

static bool submit_line(struct work *work, struct job *job, size_t line)
{
    const struct embed_lines *lines = &job->lines;
    size_t length = lines->starts[line + 1] - lines->starts[line], width = work->model.width;
    const kiln_input input = {lines->ids + lines->starts[line], length * sizeof(int32_t), KILN_I32};
    const kiln_output output = {job->vectors + line * width, width * sizeof(float), KILN_F32};
    kiln_request_options options = KILN_REQUEST_OPTIONS_INIT;
    options.length = length;
    if (kiln_executor_submit(work->model.executor, &input, &output, 1, &options,
                             &job->futures[job->submitted]))
        return complain();
    job->submitted++;
    work->statistics.tokens += length;
    return true;
}

static bool submit(struct work *work, struct job *job)
{
    const struct embed_lines *lines = &job->lines;
    job->vectors = calloc(lines->count * work->model.width + 1, sizeof *job->vectors);
    job->futures = calloc(lines->count + 1, sizeof(kiln_future *));
    if (!job->vectors || !job->futures)
        return complain_of_memory();
    for (size_t i = 0; i < lines->count; i++) {
        if (!submit_line(work, job, lines->order[i]))
            return false;
        if (!work->has_first && kiln_future_poll(job->futures[0]) == KILN_OK)
            note_first(work);
        show_progress(work);
    }
    return true;
}

/* Wait for what was asked, whatever else has failed: the memory is lent until then. */
static bool finish(struct work *work, struct job *job, bool fine)
{
    for (size_t i = 0; i < job->submitted; i++) {
        if (kiln_future_wait(job->futures[i]) && fine)
            fine = complain();
        note_first(work);
        show_progress(work);
        kiln_future_release(job->futures[i]);
    }
    if (fine && job->submitted)
        fine = embed_write(&work->output, job->vectors, job->lines.count);
    work->statistics.sentences += job->submitted;
    job->submitted = 0;
    free(job->vectors);
    free(job->futures);
    job->vectors = NULL;
    job->futures = NULL;
    return fine;
}

/* ---- all lines ---- */

static bool read_lines(struct work *work, struct job *job)
{
    if (embed_read_lines(work->input, work->wordpiece, work->files.max_length, &job->lines))
        return true;
    fprintf(stderr, "kiln embed: %s: %s\n",
            work->request->input ? work->request->input : "standard input", strerror(errno));
    return false;
}

static size_t at_least(size_t least, size_t most, size_t wanted)
{
    return wanted < least ? least : wanted > most ? most : wanted;
}

/* Batches are recorded for all sizes and lengths that may come: no more than these lines need, if
 * they are all. */
static bool open_executor(struct work *work, const struct embed_lines *lines)
{
    size_t longest = work->files.max_length, batch = work->batch;
    if (feof(work->input)) {
        uint32_t first = lines->count ? lines->order[0] : 0;
        longest = lines->count ? lines->starts[first + 1] - lines->starts[first] : 1;
        batch = at_least(2, batch, lines->count);
    }
    work->created = now();
    return embed_open_executor(&work->model, work->context, longest, batch) &&
           embed_open_output(&work->output, work->request, work->model.width);
}

static bool embed_lines(struct work *work)
{
    struct job jobs[2] = {0}, *job = &jobs[0], *other = &jobs[1];
    bool fine = read_lines(work, job) && open_executor(work, &job->lines);
    work->began = now();
    while (fine && job->lines.count) {
        struct job *next = other;
        fine = submit(work, job);
        fine = finish(work, other, fine);
        fine = fine && read_lines(work, next);
        other = job;
        job = next;
    }
    fine = finish(work, other, fine);
    fine = finish(work, job, fine);
    for (int i = 0; i < 2; i++)
        embed_free_lines(&jobs[i].lines);
    if (!fine)
        return false;
    sum_up(work);
    return embed_close_output(&work->output, &work->statistics);
}

/* ---- from the command line to the vectors ---- */

static bool open_model(struct work *work)
{
    kiln_model_options options;
    kiln_device_info info;
    double start = now();
    kiln_model_options_init(&options);
    options.weights = work->request->precision;
    if (kiln_model_load(work->context, work->files.model, &options, &work->model.onnx) ||
        kiln_context_device(work->context, &info))
        return complain();
    work->statistics.load = now() - start;
    work->batch = work->request->batch           ? work->request->batch
                  : info.type == KILN_DEVICE_CPU ? CPU_BATCH
                                                 : GPU_BATCH;
    work->model.cls = work->files.cls;
    work->model.normalize = !work->request->no_normalize;
    return true;
}

static bool open_tokenizer(struct work *work)
{
    char error[WORDPIECE_ERROR];
    work->wordpiece = wordpiece_open(work->files.vocabulary, error);
    if (!work->wordpiece) {
        fprintf(stderr, "kiln embed: %s\n", error);
        return false;
    }
    size_t around = work->wordpiece->before_count + work->wordpiece->after_count;
    if (work->files.max_length > around)
        return true;
    fprintf(stderr, "kiln embed: %zu tokens have no room for words beside the %zu around them\n",
            work->files.max_length, around);
    return false;
}

static bool open_input(struct work *work)
{
    const char *path = work->request->input;
    work->input = path && strcmp(path, "-") != 0 ? fopen(path, "re") : stdin;
    if (!work->input)
        fprintf(stderr, "kiln embed: %s: %s\n", path, strerror(errno));
    return work->input;
}

static int run(const struct embed_request *request)
{
    struct work work = {.request = request};
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.device = request->device;
    bool fine = embed_find_files(request, &work.files) && open_tokenizer(&work) &&
                open_input(&work) &&
                (!kiln_context_create(&options, &work.context) || complain()) &&
                open_model(&work) && embed_lines(&work);
    kiln_executor_release(work.model.executor);
    kiln_model_release(work.model.onnx);
    kiln_context_release(work.context);
    wordpiece_close(work.wordpiece);
    if (work.input && work.input != stdin)
        fclose(work.input);
    embed_free_files(&work.files);
    return fine ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* ---- arguments ---- */

enum { NO_NORMALIZE = 256 };

static const struct argp_option options[] = {
    {"model", 'm', "PATH", 0, "The encoder: an ONNX file, or the folder that has it", 0},
    {"vocab", 'v', "FILE", 0, "tokenizer.json or vocab.txt; else the one beside the model", 0},
    {"output", 'o', "FILE", 0, "Write vectors there: an array if it ends in .npy, else text", 0},
    {"max-length", 'l', "TOKENS", 0, "Most tokens of a line; as configured, else 256", 0},
    {"pooling", 'p', "mean|cls", 0, "What a vector is made of; as configured, else mean", 0},
    {"no-normalize", NO_NORMALIZE, NULL, 0, "Leave vectors as long as they are", 0},
    {"batch", 'b', "LINES", 0, "Most lines of a batch (16; on GPUs 128)", 0},
    {"precision", 't', "TYPE", 0, "Store weights as f32, bf16 or f16", 0},
    {"device", 'd', "CHOICE", 0, "This device: number, type, or part of a name", 0},
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

static kiln_type read_precision(const char *text, struct argp_state *state)
{
    static const kiln_type types[] = {KILN_F32, KILN_BF16, KILN_F16};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(text, kiln_type_name(types[i])))
            return types[i];
    argp_error(state, "\"%s\" is no precision: f32, bf16 or f16", text);
    return KILN_F32;
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
    case 't': request->precision = read_precision(arg, state); return 0;
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
    struct embed_request request = {0};
    argp_parse(&argp, argc, argv, 0, NULL, &request);
    return run(&request);
}
