/* SPDX-License-Identifier: Apache-2.0 */
/* A model in a file, once and over and over: onnx MODEL SECONDS OUTPUT INPUT.npy...
 * Writes the first results to OUTPUT0.npy and so on, and one line of JSON: milliseconds until the
 * first result, from before the context was made, and of a run later on; kernels compiled and
 * found; the memory of the pools in the end, beside the weights. bench/onnx.py runs it beside ONNX
 * Runtime. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kiln/kiln.h>
#include <kiln/onnx.h>

enum { MOST = 16, MOST_TIMES = 100000 };

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void must(kiln_status status)
{
    if (status) {
        fprintf(stderr, "%s\n", kiln_last_error());
        exit(EXIT_FAILURE);
    }
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void free_outputs(size_t count, kiln_array *outputs)
{
    for (size_t i = 0; i < count; i++)
        kiln_free(outputs[i].data);
}

static void keep(const char *prefix, size_t count, kiln_array *outputs)
{
    char path[4096];
    for (size_t i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s%zu.npy", prefix, i);
        must(kiln_npy_write(path, &outputs[i]));
    }
}

/* The median of the runs that there is time for, 5 at least; the first two of them do not count. */
static double time_runs(kiln_onnx_model *model, const kiln_array *inputs, size_t n_outputs,
                        double seconds)
{
    static double times[MOST_TIMES];
    kiln_array outputs[MOST];
    double end = now() + seconds;
    int count = -2;
    while (count < MOST_TIMES && (count < 5 || now() < end)) {
        double start = now();
        must(kiln_model_run(model, inputs, outputs));
        if (count >= 0)
            times[count] = now() - start;
        count++;
        free_outputs(n_outputs, outputs);
    }
    qsort(times, (size_t)count, sizeof *times, ascending);
    return times[count / 2];
}

int main(int argc, char **argv)
{
    kiln_context *context;
    kiln_context_stats stats;
    kiln_onnx_model *model;
    kiln_array inputs[MOST], outputs[MOST];
    if (argc < 4 || argc > MOST + 4) {
        fprintf(stderr, "usage: onnx MODEL SECONDS OUTPUT INPUT.npy...\n");
        return 2;
    }
    for (int i = 4; i < argc; i++)
        must(kiln_npy_read(argv[i], &inputs[i - 4]));
    double start = now();
    must(kiln_context_create(NULL, &context));
    must(kiln_model_load(context, argv[1], NULL, &model));
    size_t n_outputs = kiln_model_outputs(model, NULL);
    if (kiln_model_inputs(model, NULL) != (size_t)(argc - 4) || n_outputs > MOST) {
        fprintf(stderr, "%s has other inputs\n", argv[1]);
        return EXIT_FAILURE;
    }
    must(kiln_model_run(model, inputs, outputs));
    double first = now() - start;
    keep(argv[3], n_outputs, outputs);
    free_outputs(n_outputs, outputs);
    double steady = time_runs(model, inputs, n_outputs, strtod(argv[2], NULL));
    must(kiln_context_sync_cache(context));
    must(kiln_context_get_stats(context, &stats));
    printf("{\"first\": %.3f, \"steady\": %.4f, \"compiled\": %llu, \"found\": %llu, "
           "\"pools_mb\": %.1f}\n",
           first * 1e3, steady * 1e3, (unsigned long long)stats.kernels_compiled,
           (unsigned long long)stats.kernels_from_disk, (double)stats.pool_bytes / 1e6);
    kiln_model_release(model);
    kiln_context_release(context);
    for (int i = 4; i < argc; i++)
        kiln_free(inputs[i - 4].data);
    return EXIT_SUCCESS;
}
