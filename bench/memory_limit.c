/* SPDX-License-Identifier: Apache-2.0 */
/* A training step of a deep network below its peak: what it needs under each limit, how long it
 * takes, and whether the weights have the same bits after it.
 *
 *     memory_limit [ROWS [COLUMNS [f16 [LEAST]]]]      limits from 0.9 of the peak down to LEAST */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kiln/kiln.h>

enum { LAYERS = 24, RUNS = 6 };

static struct sizes {
    size_t rows, columns;
    kiln_type type;
} sizes = {2048, 256, KILN_F32};

static void expect(kiln_status status)
{
    if (!status)
        return;
    fprintf(stderr, "%s\n", kiln_last_error());
    exit(1);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

struct step {
    kiln_context *context;
    kiln_batch *batch;
    kiln_buffer *data, *weights[LAYERS];
    float loss;
};

static size_t weight_count(void)
{
    return sizes.columns * sizes.columns;
}

/* Random numbers up to `most`, the same in each context, drawn on the device. */
static kiln_buffer *draw(kiln_context *context, size_t rows, uint64_t seed, double most)
{
    const size_t dims[] = {rows, sizes.columns};
    kiln_buffer *buffer;
    kiln_batch *batch = kiln_batch_create(context);
    expect(kiln_buffer_create(context, sizes.type, 2, dims, &buffer));
    kiln_tensor drawn = kiln_random_uniform(batch, 2, dims, kiln_random_key(batch, seed));
    drawn = kiln_sub(batch, drawn, kiln_constant(batch, KILN_F32, 0.5));
    drawn = kiln_mul(batch, drawn, kiln_constant(batch, KILN_F32, 2 * most));
    expect(kiln_export(batch, kiln_cast(batch, drawn, sizes.type), buffer));
    expect(kiln_batch_execute(batch));
    kiln_batch_release(batch);
    return buffer;
}

static void record(struct step *step)
{
    kiln_batch *b = step->batch;
    kiln_tensor data = kiln_import(b, step->data), y = data, w[LAYERS], g[LAYERS];
    for (unsigned i = 0; i < LAYERS; i++) {
        w[i] = kiln_import(b, step->weights[i]);
        y = kiln_cast(b, kiln_relu(b, kiln_matmul(b, y, w[i])), sizes.type);
    }
    kiln_tensor off = kiln_cast(b, kiln_sub(b, y, data), KILN_F32);
    kiln_tensor loss = kiln_mean(b, kiln_mul(b, off, off), 0, NULL, 0);
    expect(kiln_grad(b, loss, w, LAYERS, g));
    for (unsigned i = 0; i < LAYERS; i++) {
        kiln_tensor by = kiln_mul(b, g[i], kiln_constant(b, KILN_F32, 0.1));
        expect(kiln_export(b, kiln_cast(b, kiln_sub(b, w[i], by), sizes.type), step->weights[i]));
    }
    expect(kiln_read(b, loss, &step->loss, sizeof step->loss));
}

static void begin(struct step *step, uint64_t limit)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    *step = (struct step){0};
    const double most = sqrt(6 / (double)sizes.columns); /* keeps the variance behind relu */
    options.memory_limit = limit;
    expect(kiln_context_create(&options, &step->context));
    step->data = draw(step->context, sizes.rows, 1, 0.5);
    for (unsigned i = 0; i < LAYERS; i++)
        step->weights[i] = draw(step->context, sizes.columns, 2 + i, most);
    step->batch = kiln_batch_create(step->context);
    record(step);
}

static void end(struct step *step)
{
    kiln_batch_release(step->batch);
    kiln_buffer_release(step->data);
    for (unsigned i = 0; i < LAYERS; i++)
        kiln_buffer_release(step->weights[i]);
    kiln_context_release(step->context);
}

/* All weights after the first step, and the quickest of the later ones. */
static double run(struct step *step, char *weights)
{
    const size_t bytes = weight_count() * kiln_type_size(sizes.type);
    double best = INFINITY;
    expect(kiln_batch_execute(step->batch));
    for (unsigned i = 0; i < LAYERS; i++)
        expect(kiln_buffer_read(step->weights[i], 0, weights + i * bytes, bytes));
    for (unsigned i = 0; i < RUNS; i++) {
        double before = seconds();
        expect(kiln_batch_execute(step->batch));
        best = fmin(best, seconds() - before);
    }
    return best;
}

static void *memory(size_t bytes)
{
    void *made = calloc(1, bytes);
    if (!made)
        exit(2);
    return made;
}

int main(int argc, char **argv)
{
    const double least = argc > 4 ? atof(argv[4]) : 0.2;
    sizes.rows = argc > 1 ? strtoull(argv[1], NULL, 10) : sizes.rows;
    sizes.columns = argc > 2 ? strtoull(argv[2], NULL, 10) : sizes.columns;
    sizes.type = argc > 3 && !strcmp(argv[3], "f16") ? KILN_F16 : sizes.type;
    const size_t bytes = LAYERS * weight_count() * kiln_type_size(sizes.type);
    char *whole = memory(bytes), *limited = memory(bytes);
    uint64_t peak = 0;
    double alone = 0;
    for (unsigned tenths = 10; tenths >= 1 && tenths > 10 * least - 0.01; tenths--) {
        struct step step;
        kiln_batch_cost cost;
        begin(&step, peak * tenths / 10);
        double before = seconds();
        expect(kiln_batch_get_cost(step.batch, &cost));
        double planned = seconds() - before, best = run(&step, peak ? limited : whole);
        bool same = !peak || !memcmp(whole, limited, bytes);
        alone = peak ? alone : best;
        peak = peak ? peak : cost.peak_bytes;
        printf("%.1f of the peak: needs %.1f MB (%.2f), %zu launches, planned in %.1f ms, "
               "%.2f ms (%.2f), %s\n",
               tenths / 10., (double)cost.peak_bytes / 1e6, (double)cost.peak_bytes / (double)peak,
               (size_t)cost.launches, planned * 1e3, best * 1e3, best / alone,
               same ? "same bits" : "other bits");
        end(&step);
    }
    free(whole);
    free(limited);
    return 0;
}
