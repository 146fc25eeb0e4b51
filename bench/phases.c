/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of short launches, each by itself and joined to one (KILN_ONE_LAUNCH): by kind, number
 * and size, so that it shows what a phase takes and where joining stops paying. */
#include "bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { APART, JOINED, SIDES };

struct work;

struct kind {
    const char *name;
    void (*record)(const struct work *work, kiln_batch *batch, float *y);
    void (*refer)(const struct work *work, double *y); /* what y is to be */
    double slack;
    size_t sizes[3];
};

/* A row: so many steps of a kind, each after the other but for maps, that have a length each. */
struct work {
    const struct kind *kind;
    size_t steps, size;
    const float *x, *weights;
    double *wanted;
    size_t results;
    struct side {
        kiln_context *context;
        kiln_batch *batch;
        float *y;
    } sides[SIDES];
};

#define MOST_STEPS 100
#define MOST_SIZE ((size_t)65536)
#define MOST_WIDE 256
#define ROWS ((size_t)32)

/* ---- kinds ---- */

static void record_maps(const struct work *work, kiln_batch *batch, float *y)
{
    for (size_t i = 0; i < work->steps; i++) {
        const size_t count = work->size - i;
        kiln_tensor x = kiln_upload(batch, KILN_F32, 1, &count, work->x);
        bench_ok(kiln_read(batch, kiln_scale(batch, x, 1.5), y + i * work->size, count * sizeof *y),
                 "recording");
    }
}

static void refer_maps(const struct work *work, double *y)
{
    for (size_t i = 0; i < work->steps; i++)
        for (size_t k = 0; k + i < work->size; k++)
            y[i * work->size + k] = 1.5 * (double)work->x[k];
}

/* Half of each element, and of the mean of its row or of its column in turn, which no one kernel
 * has both. */
static void record_means(const struct work *work, kiln_batch *batch, float *y)
{
    kiln_tensor x = kiln_upload(batch, KILN_F32, 2, (size_t[]){ROWS, work->size / ROWS}, work->x);
    for (int i = 0; i < (int)work->steps; i++)
        x = kiln_scale(batch, kiln_add(batch, x, kiln_mean(batch, x, 1, (int[]){i % 2}, 1)), 0.5);
    bench_ok(kiln_read(batch, x, y, work->size * sizeof *y), "recording");
}

/* Of `count` elements that lie `stride` apart. */
static void mix(double *y, size_t count, size_t stride)
{
    double sum = 0;
    for (size_t k = 0; k < count; k++)
        sum += y[k * stride];
    for (size_t k = 0; k < count; k++)
        y[k * stride] = (y[k * stride] + sum / (double)count) / 2;
}

static void refer_means(const struct work *work, double *y)
{
    const size_t columns = work->size / ROWS;
    for (size_t k = 0; k < work->size; k++)
        y[k] = (double)work->x[k];
    for (size_t i = 0; i < work->steps; i++)
        for (size_t k = 0; k < (i % 2 ? ROWS : columns); k++)
            mix(y + (i % 2 ? k * columns : k), i % 2 ? columns : ROWS, i % 2 ? 1 : columns);
}

/* A row times a square matrix, and tanh. */
static void record_products(const struct work *work, kiln_batch *batch, float *y)
{
    const size_t n = work->size;
    kiln_tensor x = kiln_upload(batch, KILN_F32, 2, (size_t[]){1, n}, work->x);
    kiln_tensor w = kiln_upload(batch, KILN_F32, 2, (size_t[]){n, n}, work->weights);
    for (size_t i = 0; i < work->steps; i++)
        x = kiln_tanh(batch, kiln_scale(batch, kiln_matmul(batch, x, w), 1 / sqrt((double)n)));
    bench_ok(kiln_read(batch, x, y, n * sizeof *y), "recording");
}

static void refer_products(const struct work *work, double *y)
{
    const size_t n = work->size;
    double next[MOST_WIDE];
    for (size_t k = 0; k < n; k++)
        y[k] = (double)work->x[k];
    for (size_t i = 0; i < work->steps; i++) {
        for (size_t column = 0; column < n; column++) {
            next[column] = 0;
            for (size_t k = 0; k < n; k++)
                next[column] += y[k] * (double)work->weights[k * n + column];
        }
        for (size_t k = 0; k < n; k++)
            y[k] = tanh(next[k] / sqrt((double)n));
    }
}

static const struct kind kinds[] = {
    {"maps", record_maps, refer_maps, 1e-6, {512, 8192, MOST_SIZE}},
    {"means", record_means, refer_means, 1e-4, {512, 8192, MOST_SIZE}},
    {"products", record_products, refer_products, 1e-3, {32, 128, MOST_WIDE}},
};

static const size_t numbers[] = {4, 20, MOST_STEPS};

/* ---- ways ---- */

static struct work work;

static void run(void *user)
{
    const struct side *side = user;
    bench_ok(kiln_batch_execute(side->batch), "the batch");
}

static bool check(void *user)
{
    const struct side *side = user;
    bool right = true;
    const size_t each = work.kind->record == record_maps ? work.steps : 1;
    for (size_t i = 0; i < each; i++)
        right = right && bench_close(work.kind->name, work.size - i, side->y + i * work.size,
                                     work.wanted + i * work.size, work.kind->slack, 0);
    return right && !memcmp(side->y, work.sides[APART].y, work.results * sizeof *side->y);
}

static size_t count_launches(const struct side *side)
{
    kiln_batch_cost cost;
    bench_ok(kiln_batch_get_cost(side->batch, &cost), "the cost");
    return cost.launches;
}

static void begin_side(struct side *side)
{
    memset(side->y, 0, work.results * sizeof *side->y);
    side->batch = kiln_batch_create(side->context);
    work.kind->record(&work, side->batch, side->y);
    run(side);
}

static void measure(const struct kind *kind, size_t steps, size_t size)
{
    char name[80];
    struct bench_row row = {.name = name, .unit = BENCH_US};
    snprintf(name, sizeof name, "%zu %s of %zu", steps, kind->name, size);
    if (!bench_wants(name))
        return;
    work.kind = kind;
    work.steps = steps;
    work.size = size;
    work.results = (kind->record == record_maps ? steps : 1) * size;
    kind->refer(&work, work.wanted);
    for (int i = 0; i < SIDES; i++)
        begin_side(&work.sides[i]);
    bench_note("%zu launches, joined %zu", count_launches(&work.sides[APART]),
               count_launches(&work.sides[JOINED]));
    bench_way(&row, "apart", run, check, &work.sides[APART]);
    bench_way(&row, "joined", run, check, &work.sides[JOINED]);
    bench_compare(&row, "joined", "apart");
    bench_measure(&row);
    for (int i = 0; i < SIDES; i++)
        kiln_batch_release(work.sides[i].batch);
}

static kiln_context *make_context(const char *word)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    kiln_context *context;
    options.device = bench_device();
    setenv("KILN_ONE_LAUNCH", word, 1);
    bench_ok(kiln_context_create(&options, &context), "a context");
    return context;
}

int main(int argc, char **argv)
{
    static const struct bench_program program = {
        .name = "phases", .purpose = "Short launches, each by itself and joined to one"};
    setenv("KILN_ONE_LAUNCH", "off", 1);
    work.sides[APART].context = bench_start(&program, argc, argv);
    work.sides[JOINED].context = make_context("on");
    work.x = bench_floats(MOST_SIZE, 1);
    work.weights = bench_floats((size_t)MOST_WIDE * MOST_WIDE, 2);
    work.wanted = bench_memory(MOST_STEPS * MOST_SIZE * sizeof *work.wanted);
    for (int i = 0; i < SIDES; i++)
        work.sides[i].y = bench_memory(MOST_STEPS * MOST_SIZE * sizeof(float));
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t s = 0; s < 3; s++)
            for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
                measure(&kinds[k], numbers[i], kinds[k].sizes[s]);
    kiln_context_release(work.sides[JOINED].context);
    return bench_end(work.sides[APART].context);
}
