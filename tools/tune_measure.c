/* SPDX-License-Identifier: Apache-2.0 */
/* Builds a workload as a batch, and times it under competing parameters, by turns. */
#define _GNU_SOURCE
#include "tune_measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 9, FIRST_ROUNDS = 2, SAMPLES = 129, MOST_RUNS = 1000 };

#define SAMPLE 2e-3    /* seconds at least, if that is not too many runs */
#define TOLERANCE 1e-4 /* of what was added up: some 1,000 roundings of f32 */

volatile sig_atomic_t tune_interrupted;

double tune_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* ---- memory ---- */

/* Narrow operands are made of f32 ones on the device. */
static kiln_status fill_input(struct tune_bench *bench, unsigned number, float *values)
{
    const size_t count = tune_work_input(bench->work, number);
    const kiln_type type = bench->work->type;
    if (!count)
        return KILN_OK;
    for (size_t i = 0; i < count; i++)
        values[i] = tune_work_value(number, i);
    kiln_status status =
        kiln_buffer_create(bench->context, type, 1, &count, &bench->inputs[number]);
    if (status || type == KILN_F32)
        return status ? status
                      : kiln_buffer_write(bench->inputs[number], 0, values, count * sizeof *values);
    kiln_batch *batch = kiln_batch_create(bench->context);
    kiln_tensor x = kiln_cast(batch, kiln_upload(batch, KILN_F32, 1, &count, values), type);
    status = kiln_export(batch, x, bench->inputs[number]);
    if (!status)
        status = kiln_batch_execute(batch);
    kiln_batch_release(batch);
    return status;
}

kiln_status tune_bench_open(kiln_context *context, const struct tune_work *work,
                            struct tune_bench *bench)
{
    const size_t results = tune_work_results(work);
    size_t most = results;
    *bench = (struct tune_bench){.work = work, .context = context};
    for (unsigned k = 0; k < TUNE_INPUTS; k++)
        most = tune_work_input(work, k) > most ? tune_work_input(work, k) : most;
    bench->results = malloc(most * sizeof(float));
    if (!bench->results)
        return KILN_OUT_OF_HOST_MEMORY;
    kiln_status status = KILN_OK;
    for (unsigned k = 0; k < TUNE_INPUTS && !status; k++)
        status = fill_input(bench, k, bench->results);
    return status ? status : kiln_buffer_create(context, KILN_F32, 1, &results, &bench->output);
}

void tune_bench_close(struct tune_bench *bench)
{
    for (unsigned k = 0; k < TUNE_INPUTS; k++)
        kiln_buffer_release(bench->inputs[k]);
    kiln_buffer_release(bench->output);
    free(bench->expected);
    free(bench->results);
    *bench = (struct tune_bench){0};
}

/* ---- ways ---- */

kiln_status tune_way_make(const struct tune_bench *bench, struct tune_way *way)
{
    const size_t count = tune_work_results(bench->work);
    *way = (struct tune_way){.batch = kiln_batch_create(bench->context)};
    if (!way->batch)
        return KILN_OUT_OF_HOST_MEMORY;
    kiln_tensor y = tune_work_record(way->batch, bench->work, bench->inputs);
    y = kiln_reshape(way->batch, kiln_cast(way->batch, y, KILN_F32), 1, &count);
    kiln_status status = kiln_export(way->batch, y, bench->output);
    return status ? status : kiln_batch_explain(way->batch, &way->plan);
}

void tune_way_free(struct tune_way *way)
{
    kiln_batch_release(way->batch);
    kiln_free(way->plan);
    *way = (struct tune_way){0};
}

static kiln_status wrong(const struct tune_bench *bench, size_t at, double want)
{
    fprintf(stderr, "kiln tune: %s: element %zu is %g and not %g\n", bench->work->name, at,
            (double)bench->results[at], want);
    return KILN_WRONG_RESULT;
}

/* A narrow attention's weights may be rounded to its type before they are multiplied. */
static double tolerance_of(const struct tune_work *work)
{
    const bool attends = !strncmp(work->name, "attention", 9);
    const double rounds = work->type == KILN_BF16 ? 0x1p-8 : work->type == KILN_F16 ? 0x1p-11 : 0;
    return TOLERANCE + (attends ? rounds : 0);
}

/* Elements at even distances, and the last one. Those that take long are few. */
static kiln_status check_sample(const struct tune_bench *bench)
{
    const size_t count = tune_work_results(bench->work), step = count / SAMPLES + 1;
    const double start = tune_now(), tolerance = tolerance_of(bench->work);
    for (size_t i = 0; i < count; i += step) {
        size_t at = i + step < count ? i : count - 1;
        double size, want = tune_work_element(bench->work, at, &size);
        if (!(fabs((double)bench->results[at] - want) <= tolerance * (fabs(want) + size)))
            return wrong(bench, at, want);
        if (tune_now() - start > 0.1 && at < count - 1)
            i = count - 1 - step;
    }
    return KILN_OK;
}

/* Both have rounded. */
static kiln_status check_all(const struct tune_bench *bench)
{
    const double tolerance = tolerance_of(bench->work);
    for (size_t i = 0; i < tune_work_results(bench->work); i++) {
        double want = (double)bench->expected[i], got = (double)bench->results[i];
        if (!(fabs(got - want) <= 10 * tolerance * (1 + fabs(want))))
            return wrong(bench, i, want);
    }
    return KILN_OK;
}

kiln_status tune_way_check(struct tune_bench *bench, const struct tune_way *way)
{
    const size_t bytes = tune_work_results(bench->work) * sizeof(float);
    memset(bench->results, 0, bytes);
    kiln_status status = kiln_buffer_write(bench->output, 0, bench->results, bytes);
    if (!status)
        status = kiln_batch_execute(way->batch);
    if (!status)
        status = kiln_buffer_read(bench->output, 0, bench->results, bytes);
    if (!status)
        status = check_sample(bench);
    if (status)
        return status;
    if (bench->expected)
        return check_all(bench);
    bench->expected = malloc(bytes);
    if (!bench->expected)
        return KILN_OUT_OF_HOST_MEMORY;
    memcpy(bench->expected, bench->results, bytes);
    return KILN_OK;
}

/* ---- time ---- */

static kiln_status time_way(const struct tune_bench *bench, const struct tune_way *way,
                            unsigned runs, double *seconds)
{
    double start = tune_now();
    kiln_status status = KILN_OK;
    for (unsigned i = 0; i < runs && !status; i++)
        status = kiln_batch_submit(way->batch, NULL);
    if (!status)
        status = kiln_context_finish(bench->context);
    *seconds = (tune_now() - start) / runs;
    return status;
}

/* So many that a sample takes some milliseconds. */
static kiln_status choose_runs(const struct tune_bench *bench, const struct tune_way *way,
                               unsigned *runs)
{
    double seconds;
    kiln_status status = time_way(bench, way, 2, &seconds);
    if (!status)
        status = time_way(bench, way, 2, &seconds);
    *runs = seconds > SAMPLE ? 1 : (unsigned)(SAMPLE / (seconds + 1e-6)) + 1;
    *runs = *runs > MOST_RUNS ? MOST_RUNS : *runs;
    return status;
}

/* The quickest of all rounds so far: what else ran meanwhile has made the others longer. */
static double least(const double *times, int count)
{
    double least = times[0];
    for (int i = 1; i < count; i++)
        least = times[i] < least ? times[i] : least;
    return least;
}

kiln_status tune_compare(const struct tune_bench *bench, const struct tune_way *best,
                         const struct tune_way *candidate, double hopeless, double *share,
                         double *seconds)
{
    double times[2][ROUNDS]; /* of the best and of the candidate */
    unsigned runs = 1;
    *share = 1;
    *seconds = 0;
    /* What is made of an operand stays once it has been made twice. */
    kiln_status status = time_way(bench, candidate, 2, seconds);
    if (!status)
        status = choose_runs(bench, best, &runs);
    for (int i = 0; i < ROUNDS && !status && !tune_interrupted; i++) {
        /* One run, where it may be many times as long. */
        unsigned each = i || !isfinite(hopeless) ? runs : 1;
        for (int k = 0; k < 2 && !status; k++) {
            bool first = k == i % 2; /* each goes first in every other round */
            status = time_way(bench, first ? best : candidate, each, &times[!first][i]);
        }
        if (status)
            break;
        *share = least(times[1], i + 1) / least(times[0], i + 1);
        *seconds = least(times[1], i + 1);
        if ((i == 0 && *share > 4 * hopeless) || (i == FIRST_ROUNDS && *share > hopeless))
            break;
    }
    return status;
}
