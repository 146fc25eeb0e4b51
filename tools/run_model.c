/* SPDX-License-Identifier: Apache-2.0 */
/* `kiln run`: an ONNX file, run on arrays of numpy's. */
#define _GNU_SOURCE
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "run_model.h"
#include "suggest.h"
#include "tool.h"

enum { EXIT_WRONG = 3, EXIT_UNSUPPORTED = 4 };
enum { FEW_RUNS = 10, BENCH_RUNS = 100, MOST_RUNS = 1000000 };

#define FEW_SECONDS 1.0 /* no further run after so long, unless --bench asks for them */

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* The exit status says which kind of failure it was. */
static int complain(kiln_status status)
{
    fprintf(stderr, "kiln run: %s\n", kiln_last_error());
    return status == KILN_WRONG_RESULT  ? EXIT_WRONG
           : status == KILN_UNSUPPORTED ? EXIT_UNSUPPORTED
                                        : EXIT_FAILURE;
}

/* ---- running ---- */

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void sum_up(double *seconds, size_t runs, struct run_times *times)
{
    qsort(seconds, runs, sizeof *seconds, ascending);
    times->runs = runs;
    times->best = runs ? seconds[0] : 0;
    times->median = runs ? seconds[runs / 2] : 0;
    times->mean = 0;
    for (size_t i = 0; i < runs; i++)
        times->mean += seconds[i] / (double)runs;
}

/* Launches and transfers so far: what a trace has spans of. */
static size_t count_spans(kiln_context *context)
{
    kiln_context_stats stats;
    if (kiln_context_get_stats(context, &stats))
        return 0;
    return (size_t)(stats.launches + stats.uploads + stats.downloads);
}

/* Two runs to warm up (what is kept of weights is made by the second), then as many as were asked
 * for, or a few. */
static kiln_status time_runs(const struct run_request *request, kiln_context *context,
                             kiln_batch *batch, struct run_times *times)
{
    size_t most = request->bench ? request->bench : FEW_RUNS, runs = 0;
    double *seconds = calloc(most, sizeof *seconds), until = now() + FEW_SECONDS;
    kiln_status status = seconds ? kiln_batch_execute(batch) : KILN_OUT_OF_HOST_MEMORY;
    if (!status)
        status = kiln_batch_execute(batch);
    size_t spans = count_spans(context);
    while (!status && runs < most && (request->bench || now() < until || !runs)) {
        double start = now();
        status = kiln_batch_execute(batch);
        seconds[runs++] = now() - start;
    }
    if (!status)
        sum_up(seconds, runs, times);
    times->spans = runs ? (count_spans(context) - spans) / runs : 0;
    free(seconds);
    return status;
}

static kiln_status look_at_cost(kiln_context *context, kiln_batch *batch, struct run_times *times)
{
    kiln_batch_cost cost = {0};
    kiln_context_stats stats = {0};
    kiln_status status = kiln_batch_get_cost(batch, &cost);
    if (!status)
        status = kiln_context_get_stats(context, &stats);
    times->peak_bytes = cost.peak_bytes;
    times->weight_bytes = stats.buffer_bytes;
    return status;
}

/* A run that is compared with the host is a thousand times as long: once is enough. */
static kiln_status run_lease(const struct run_request *request, kiln_context *context,
                             const kiln_array *arrays, struct run_result *result)
{
    double start = now();
    kiln_status status = kiln_model_batch(result->model, arrays, &result->lease);
    for (size_t i = 0; !status && i < result->lease->n_inputs; i++) {
        kiln_array *to = &result->lease->inputs[i];
        size_t bytes = kiln_type_size(to->type);
        for (size_t axis = 0; axis < to->rank; axis++)
            bytes *= to->dims[axis];
        if (to->data && bytes)
            memcpy(to->data, arrays[i].data, bytes);
    }
    if (!status && request->validate && isatty(STDERR_FILENO))
        fputs("kiln run: the host computes everything in double precision, one element after the "
              "other: minutes for a large model\n",
              stderr);
    if (!status) {
        struct run_progress *progress = run_progress_begin(context, result->lease->batch);
        status = kiln_batch_execute(result->lease->batch);
        run_progress_end(progress);
    }
    result->times.first = now() - start;
    if (!status && !request->validate)
        status = time_runs(request, context, result->lease->batch, &result->times);
    if (!status)
        status = look_at_cost(context, result->lease->batch, &result->times);
    return status;
}

/* ---- results ---- */

/* A name of the command line that the model has not is most likely misspelt. */
static bool know(const char *what, const struct namings *namings, const kiln_model_value *values,
                 size_t count)
{
    for (size_t i = 0; i < namings->count; i++) {
        const struct naming *naming = &namings->items[i];
        bool found = false;
        for (size_t k = 0; k < count && !found; k++)
            found = strlen(values[k].name) == naming->length &&
                    !memcmp(values[k].name, naming->name, naming->length);
        if (!found) {
            fprintf(stderr, "kiln run: the model has no %s \"%.*s\"\n", what, (int)naming->length,
                    naming->name);
            return false;
        }
    }
    return true;
}

static bool know_names(const struct run_request *request, const kiln_onnx_model *model)
{
    const kiln_model_value *inputs, *outputs;
    size_t input_count = kiln_model_inputs(model, &inputs);
    size_t output_count = kiln_model_outputs(model, &outputs);
    return know("input", &request->inputs, inputs, input_count) &&
           know("output", &request->outputs, outputs, output_count);
}

static kiln_status write_outputs(const struct run_request *request, const struct run_result *result)
{
    const kiln_model_value *values;
    kiln_status status = KILN_OK;
    size_t count = kiln_model_outputs(result->model, &values);
    for (size_t i = 0; i < count && !status; i++) {
        const char *path = namings_find(&request->outputs, values[i].name);
        if (path)
            status = kiln_npy_write(path, &result->lease->outputs[i]);
    }
    return status;
}

/* ---- from the file to the report ---- */

static int run_and_write(const struct run_request *request, kiln_context *context,
                         struct run_result *result)
{
    size_t count = kiln_model_inputs(result->model, NULL);
    kiln_array *arrays = calloc(count + 1, sizeof *arrays);
    int failed = !arrays || !run_make_inputs(request, result->model, arrays);
    if (!failed) {
        kiln_status status = run_lease(request, context, arrays, result);
        if (!status)
            status = write_outputs(request, result);
        if (status)
            failed = complain(status);
    }
    run_free_arrays(arrays, count);
    return failed;
}

/* Without inputs a model is described. */
static bool only_describes(const struct run_request *request, const kiln_onnx_model *model)
{
    return !request->random && !request->inputs.count && !request->outputs.count &&
           !request->bench && !request->profile && !request->validate &&
           kiln_model_inputs(model, NULL);
}

static int use_context(const struct run_request *request, kiln_context *context,
                       struct run_result *result)
{
    kiln_device_info info;
    kiln_model_options options;
    double start = now();
    kiln_model_options_init(&options);
    options.weights = request->precision.weights;
    options.plain = request->plain;
    kiln_status status = kiln_model_load(context, request->model, &options, &result->model);
    result->times.load = now() - start;
    if (!status)
        status = kiln_context_device(context, &info);
    if (status)
        return complain(status);
    snprintf(result->device, sizeof result->device, "%s", info.name);
    if (!know_names(request, result->model))
        return EXIT_FAILURE;
    return only_describes(request, result->model) ? 0 : run_and_write(request, context, result);
}

/* ---- reports ---- */

static int write_json(json_t *root)
{
    int failed = !root || json_dumpf(root, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(root);
    if (failed)
        fputs("kiln run: the JSON text could not be written\n", stderr);
    return failed;
}

/* A trace is written when the last of its context goes: what the model says is said before. */
static int run(const struct run_request *request, const char *trace)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    struct run_launches launches = {0};
    struct run_result result = {0};
    json_t *root = NULL;
    kiln_context *context;
    options.device = request->device;
    options.precision = request->precision.products;
    options.validate = request->validate;
    options.trace = trace;
    kiln_status status = kiln_context_create(&options, &context);
    int failed = status ? complain(status) : use_context(request, context, &result);
    if (!failed && request->json)
        root = run_make_json(request, &result);
    else if (!failed)
        run_print_text(request, &result);
    kiln_model_batch_return(result.lease);
    kiln_model_release(result.model);
    kiln_context_release(context);
    if (!failed && trace && !run_read_trace(trace, &result.times, &launches))
        failed = EXIT_FAILURE;
    if (!failed && trace && !request->json)
        run_print_launches(&launches);
    if (root && launches.items)
        run_add_launches(root, &launches);
    if (!failed && request->json)
        return free(launches.items), write_json(root);
    json_decref(root);
    free(launches.items);
    return failed;
}

static int run_with_trace(const struct run_request *request)
{
    const char *folder = getenv("TMPDIR");
    char *path;
    if (asprintf(&path, "%s/kiln-run.XXXXXX", folder && *folder ? folder : "/tmp") < 0)
        return EXIT_FAILURE;
    int file = mkstemp(path), failed = EXIT_FAILURE;
    if (file < 0) {
        perror(path);
    } else {
        failed = run(request, path);
        close(file);
        unlink(path);
    }
    free(path);
    return failed;
}

/* ---- arguments ---- */

static const struct argp_option options[] = {
    {"input", 'i', "NAME=FILE", 0, "Take this input from a .npy file", 0},
    {"output", 'o', "NAME=FILE", 0, "Write this output to a .npy file", 0},
    {"random", 'r', NULL, 0, "Inputs that are not given have random numbers", 0},
    {"dim", 'n', "NAME=SIZE", 0, "Their open dimension of this name, or INPUT:AXIS", 0},
    {"bench", 'b', "RUNS", OPTION_ARG_OPTIONAL,
     "Time so many runs, 100 where no number follows; without it 10, a second at most", 0},
    {"profile", 'p', NULL, 0, "A table of the times of all kernels", 0},
    {"validate", 'v', NULL, 0, "Compare with the host in double precision", 0},
    {"plain", 'l', NULL, 0, "Record each node by itself, without recognising layers", 0},
    {"precision", 't', PRECISION_WORDS, 0, PRECISION_HELP, 0},
    {"device", 'd', "CHOICE", 0, "This device: number, type, or part of a name", 0},
    {"json", 'j', NULL, 0, "Print JSON", 0},
    {0},
};

static unsigned long read_number(const char *text, unsigned long most, struct argp_state *state)
{
    char *end;
    unsigned long number = strtoul(text, &end, 10);
    if (end == text || *end || *text == '-' || !number || number > most)
        argp_error(state, "\"%s\" is no number from 1 to %lu", text, most);
    return number;
}

/* Whether an argument, NULL behind the last, has digits only. */
static bool is_number(const char *text)
{
    return text && *text && !text[strspn(text, "0123456789")];
}

static void take_naming(struct namings *namings, const char *arg, struct argp_state *state)
{
    if (!namings_add(namings, arg))
        argp_error(state, "\"%s\" is not NAME=VALUE", arg);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct run_request *request = state->input;
    switch (key) {
    case 'i': take_naming(&request->inputs, arg, state); return 0;
    case 'o': take_naming(&request->outputs, arg, state); return 0;
    case 'n':
        take_naming(&request->dims, arg, state);
        read_number(strrchr(arg, '=') + 1, UINT32_MAX, state);
        return 0;
    case 'r': request->random = true; return 0;
    case 'b':
        if (!arg && is_number(state->argv[state->next]))
            arg = state->argv[state->next++];
        request->bench = arg ? (unsigned)read_number(arg, MOST_RUNS, state) : BENCH_RUNS;
        return 0;
    case 'p': request->profile = true; return 0;
    case 'v': request->validate = true; return 0;
    case 'l': request->plain = true; return 0;
    case 't': request->precision = precision_read(arg, state); return 0;
    case 'd': request->device = arg; return 0;
    case 'j': request->json = true; return 0;
    case ARGP_KEY_ARG:
        if (request->model)
            argp_error(state, "\"%s\" is one argument too many", arg);
        request->model = arg;
        return 0;
    case ARGP_KEY_END:
        if (!request->model)
            argp_error(state, "a model is missing");
        if (request->profile && request->validate)
            argp_error(state, "what is compared with the host is not timed: "
                              "either --profile or --validate");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int kiln__tool_run_model(int argc, char **argv)
{
    static const char doc[] =
        "Run the ONNX file MODEL once, then some more times, and say how long that takes. Without "
        "inputs, and if it has some: tell what it takes and gives.\v"
        "The exit status is 0, 1 after a failure, 2 for wrong usage, 3 if a result is wrong "
        "(--validate), 4 if the model has something that kiln cannot do.";
    struct argp argp = {.options = options, .parser = parse, .args_doc = "MODEL", .doc = doc};
    struct run_request request = {0};
    kiln__tool_parse(&argp, argc, argv, 0, &request);
    int status = request.profile ? run_with_trace(&request) : run(&request, NULL);
    free(request.inputs.items);
    free(request.outputs.items);
    free(request.dims.items);
    return status;
}
