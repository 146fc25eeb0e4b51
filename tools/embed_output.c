/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors as an array of numpy's, as text or as JSON, and the statistics behind them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "embed.h"

static bool complain(const char *what, const char *why)
{
    fprintf(stderr, "kiln embed: %s: %s\n", what, why);
    return false;
}

static bool is_array(const struct embed_request *request)
{
    size_t length = request->output ? strlen(request->output) : 0;
    return length >= 4 && !strcmp(request->output + length - 4, ".npy");
}

bool embed_open_output(struct embed_output *output, const struct embed_request *request,
                       size_t width)
{
    *output = (struct embed_output){.request = request, .width = width};
    if (is_array(request))
        return true;
    output->file = request->output ? fopen(request->output, "we") : stdout;
    if (!output->file)
        return complain(request->output, strerror(errno));
    if (request->json && output->file == stdout)
        fputs("{\"vectors\": [", stdout);
    return true;
}

static bool gather(struct embed_output *output, const float *vectors, size_t count)
{
    size_t bytes = count * output->width * sizeof *vectors;
    size_t before = output->count * output->width * sizeof *vectors;
    float *all = realloc(output->vectors, before + bytes + 1);
    if (!all)
        return complain(output->request->output, "no memory for the vectors");
    memcpy((char *)all + before, vectors, bytes);
    output->vectors = all;
    return true;
}

/* Nine digits bring back the same float. */
static void write_vector(const struct embed_output *output, const float *vector, bool is_first)
{
    bool is_json = output->request->json && output->file == stdout;
    const char *between = is_json ? ", " : " ";
    if (is_json)
        fputs(is_first ? "\n[" : ",\n[", output->file);
    for (size_t i = 0; i < output->width; i++)
        fprintf(output->file, "%s%.9g", i ? between : "", (double)vector[i]);
    fputs(is_json ? "]" : "\n", output->file);
}

bool embed_write(struct embed_output *output, const float *vectors, size_t count)
{
    if (!output->file && !gather(output, vectors, count))
        return false;
    for (size_t i = 0; output->file && i < count; i++)
        write_vector(output, vectors + i * output->width, output->count + i == 0);
    output->count += count;
    return !output->file || !ferror(output->file) ||
           complain(output->request->output ? output->request->output : "standard output",
                    strerror(errno));
}

static void write_statistics(FILE *file, const struct embed_statistics *statistics)
{
    double seconds = statistics->seconds > 0 ? statistics->seconds : 1e-9;
    fprintf(file,
            "\"sentences\": %zu, \"tokens\": %zu, \"seconds\": %.6f, \"sentences_per_second\": "
            "%.3f, \"tokens_per_second\": %.1f, \"padding_share\": %.4f, \"load_seconds\": %.6f, "
            "\"first_result_seconds\": %.6f, \"device_busy_share\": ",
            statistics->sentences, statistics->tokens, statistics->seconds,
            (double)statistics->sentences / seconds, (double)statistics->tokens / seconds,
            statistics->padding, statistics->load, statistics->first);
    if (statistics->busy > 0)
        fprintf(file, "%.4f", statistics->busy);
    else
        fputs("null", file); /* too short a run does not tell */
    fprintf(file, ", \"weight_bytes\": %llu, \"other_device_bytes\": %llu}\n",
            (unsigned long long)statistics->weight_bytes,
            (unsigned long long)statistics->other_bytes);
}

static void say_statistics(const struct embed_statistics *statistics)
{
    double seconds = statistics->seconds > 0 ? statistics->seconds : 1e-9;
    fprintf(stderr,
            "%zu sentences, %zu tokens in %.2f s on %s: %.1f sentences/s, %.0f tokens/s, %.0f%% "
            "padding; %.0f MB of weights and %.0f MB beside them; loaded in %.2f s, first result "
            "after %.3f s",
            statistics->sentences, statistics->tokens, statistics->seconds, statistics->device,
            (double)statistics->sentences / seconds, (double)statistics->tokens / seconds,
            100 * statistics->padding, (double)statistics->weight_bytes * 1e-6,
            (double)statistics->other_bytes * 1e-6, statistics->load, statistics->first);
    if (statistics->busy > 0)
        fprintf(stderr, ", then the device was busy %.0f%% of the time", 100 * statistics->busy);
    fputc('\n', stderr);
}

bool embed_close_output(struct embed_output *output, const struct embed_statistics *statistics)
{
    const struct embed_request *request = output->request;
    const kiln_array array = {.type = KILN_F32,
                              .rank = 2,
                              .dims = {output->count, output->width},
                              .data = output->vectors};
    bool fine = true;
    if (!output->file && kiln_npy_write(request->output, &array)) {
        fprintf(stderr, "kiln embed: %s\n", kiln_last_error());
        fine = false;
    }
    if (request->json) {
        fputs(output->file == stdout ? "\n],\n" : "{", stdout);
        write_statistics(stdout, statistics);
    } else if (fine) {
        say_statistics(statistics);
    }
    if (output->file && (output->file == stdout ? fflush(stdout) : fclose(output->file)))
        fine = complain(request->output ? request->output : "standard output", strerror(errno));
    free(output->vectors);
    return fine;
}
