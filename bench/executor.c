/* SPDX-License-Identifier: Apache-2.0 */
/* Requests from many threads: an executor beside what one would write by hand. Figures are
 * microseconds a request. In a closed loop a thread waits for an answer when it has so many
 * requests ahead; in an open loop requests come when they come, and figures are the times that they
 * see. */
#include "requests.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char balanced[] = "executor, balanced", formed[] = "one formed batch",
                  calls[] = "a call per request", locked[] = "a mutex and a batch",
                  looped[] = "a loop by hand";

static const struct preset {
    const char *name;
    kiln_executor_options options;
} presets[] = {
    {balanced, KILN_EXECUTOR_OPTIONS_INIT},
    {"executor, latency", KILN_EXECUTOR_LATENCY_INIT},
    {"executor, throughput", KILN_EXECUTOR_THROUGHPUT_INIT},
};
enum { PRESETS = sizeof presets / sizeof *presets };

/* ---- closed loops ---- */

/* Ways of a row, each with a load and what came of it. */
static struct requests_way ways[BENCH_WAYS];
static struct bench_row row;
static char row_name[80];

static void begin(const struct requests_load *load)
{
    snprintf(row_name, sizeof row_name, "%s, %u thread%s, %u ahead, %zu row%s",
             requests_name(load->model), load->threads, load->threads == 1 ? "" : "s", load->ahead,
             load->rows, load->rows == 1 ? "" : "s");
    row = (struct bench_row){.name = row_name, .unit = BENCH_US};
}

static void add(const char *name, void (*run)(void *), const struct requests_load *load,
                kiln_executor *executor, size_t batch)
{
    struct requests_way *way = &ways[row.way_count];
    *way = (struct requests_way){.load = load, .executor = executor, .batch = batch};
    bench_way(&row, name, run, requests_check, way)->seconds = requests_seconds;
}

/* All presets, and what stands beside them; calls and mutexes take long for as many requests. */
static void measure_presets(struct requests_load load, kiln_executor *const *executors)
{
    struct requests_load fewer = load;
    fewer.total = load.total < 2048 ? load.total : 2048;
    begin(&load);
    if (!bench_wants(row_name))
        return;
    for (size_t i = 0; i < PRESETS; i++)
        add(presets[i].name, requests_run_executor, &load, executors[i], 0);
    add(formed, requests_run_formed, &load, NULL, 1024);
    add(calls, requests_run_calls, &fewer, NULL, 0);
    add(locked, requests_run_locked, &fewer, NULL, 0);
    add(looped, requests_run_loop, &load, NULL, 1024);
    bool light = load.ahead > 1 && load.rows == 1 && load.model != REQUESTS_WIDE;
    bench_at_least(&row, balanced, calls, light ? 10 : 0);
    if (load.ahead > 1) {
        bench_limit(&row, balanced, formed);
        bench_at_least(&row, balanced, formed, 0.8);
        bench_at_most(&row, balanced, formed, 2e-6);
    }
    bench_compare(&row, balanced, locked);
    bench_compare(&row, balanced, looped);
    bench_measure(&row);
}

static void measure_threads(kiln_executor *const *layer)
{
    static const unsigned all[] = {1, 2, 4, 8, 16, 32}, few[] = {1, 16};
    const unsigned *threads = bench_is_quick() ? few : all;
    size_t count = bench_is_quick() ? 2 : 6;
    for (size_t i = 0; i < count; i++)
        measure_presets((struct requests_load){REQUESTS_LAYER, threads[i], 1, 1, 2048}, layer);
    for (size_t i = 0; i < count; i++)
        measure_presets((struct requests_load){REQUESTS_LAYER, threads[i], 64, 1, 16384}, layer);
    measure_presets((struct requests_load){REQUESTS_LAYER, 16, 16, 16, 1024}, layer);
}

/* With so many under way that batches are full while others are formed. */
static void measure_network(enum requests_model model)
{
    static const struct {
        unsigned ahead;
        size_t rows;
    } loads[] = {{64, 1}, {256, 1}, {64, 4}, {16, 16}};
    kiln_executor *executors[PRESETS];
    for (size_t i = 0; i < PRESETS; i++)
        executors[i] = requests_executor(model, presets[i].options);
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++)
        measure_presets((struct requests_load){model, 16, loads[i].ahead, loads[i].rows,
                                               requests_rows(model) / loads[i].rows},
                        executors);
    for (size_t i = 0; i < PRESETS; i++)
        kiln_executor_release(executors[i]);
}

/* As many requests under way as fill the largest. */
static void measure_batch(size_t batch)
{
    static const char gathered[] = "executor";
    const struct requests_load load = {REQUESTS_LAYER, 16, 256, 1, 16384};
    kiln_executor_options options = KILN_EXECUTOR_OPTIONS_INIT;
    begin(&load);
    size_t length = strlen(row_name);
    snprintf(row_name + length, sizeof row_name - length, ", batches of %zu", batch);
    if (!bench_wants(row_name))
        return;
    options.max_batch = batch;
    kiln_executor *executor = requests_executor(REQUESTS_LAYER, options);
    add(gathered, requests_run_executor, &load, executor, 0);
    add(formed, requests_run_formed, &load, NULL, batch);
    bench_limit(&row, gathered, formed);
    bench_compare(&row, gathered, formed);
    bench_at_most(&row, gathered, formed, 2e-6);
    bench_measure(&row);
    kiln_executor_release(executor);
}

/* ---- open loops: one thread sends at its moments, and nobody waits ---- */

static struct arrivals {
    const char *name;
    double rate;  /* requests a second */
    size_t burst; /* that come at once; 1: each at a random moment of its own */
    kiln_executor_options options;
    size_t count;
    double wait_p50, wait_p99, allowed, total_p50, total_p99; /* seconds, of the last run */
} arrivals;

/* Seconds to the next one, as chance has it. */
static double draw_pause(double rate)
{
    static unsigned state = 1;
    state = state * 1664525 + 1013904223;
    return -log(((state >> 8) + 1.0) / 16777217) / rate;
}

static void sleep_until(double moment)
{
    double left = moment - bench_now();
    if (left <= 0)
        return;
    const struct timespec pause = {(time_t)left, (long)(fmod(left, 1) * 1e9)};
    nanosleep(&pause, NULL);
}

static void arrive(void *user)
{
    static kiln_future *futures[REQUESTS_MOST_ROWS];
    struct arrivals *a = user;
    kiln_executor_stats s;
    kiln_executor *executor = requests_executor(REQUESTS_LAYER, a->options);
    double at = bench_now();
    for (size_t i = 0; i < a->count; i++) {
        if (a->burst == 1)
            at += draw_pause(a->rate);
        else if (i % a->burst == 0)
            at += (double)a->burst / a->rate;
        sleep_until(at);
        futures[i] = requests_submit(executor, i, 1);
    }
    for (size_t i = 0; i < a->count; i++)
        requests_settle(futures[i]);
    bench_ok(kiln_executor_get_stats(executor, &s), "stats");
    kiln_executor_release(executor);
    a->wait_p50 = s.wait.p50;
    a->wait_p99 = s.wait.p99;
    a->allowed = 1e-6 * (double)a->options.max_wait_us + s.run.p99;
    a->total_p50 = s.total.p50;
    a->total_p99 = s.total.p99;
}

static void arrived(void *figure) /* with the first way of the row */
{
    (void)figure;
}

static double read_figure(void *figure)
{
    return *(const double *)figure;
}

static double read_wait(void *user)
{
    return ((const struct arrivals *)user)->wait_p50;
}

static void add_figure(const char *name, double *figure)
{
    bench_way(&row, name, arrived, NULL, figure)->seconds = read_figure;
}

static void measure_arrivals(const struct preset *preset, double rate, size_t burst)
{
    static const char wait[] = "wait, p99", allowed[] = "longest wait and a run, p99";
    double seconds = bench_is_quick() ? 0.1 : 0.5;
    arrivals = (struct arrivals){.rate = rate, .burst = burst, .options = preset->options};
    arrivals.count = (size_t)fmin(rate * seconds, REQUESTS_MOST_ROWS);
    snprintf(row_name, sizeof row_name, "open loop, %s, %.0f requests/s%s", preset->name + 10, rate,
             burst > 1 ? ", bursts of 64" : "");
    if (!bench_wants(row_name))
        return;
    row = (struct bench_row){.name = row_name, .unit = BENCH_US};
    bench_way(&row, "wait, p50", arrive, NULL, &arrivals)->seconds = read_wait;
    add_figure(wait, &arrivals.wait_p99);
    add_figure("total, p50", &arrivals.total_p50);
    add_figure("total, p99", &arrivals.total_p99);
    add_figure(allowed, &arrivals.allowed);
    bench_at_most(&row, wait, allowed, 1e-3);
    bench_measure(&row);
}

static void measure_open_loops(void)
{
    for (size_t i = 0; i < (bench_is_quick() ? 1 : PRESETS); i++)
        for (double rate = 1000; rate <= 64000; rate *= bench_is_quick() ? 64 : 4)
            measure_arrivals(&presets[i], rate, 1);
    for (double rate = 6400; rate <= 64000; rate *= 10)
        measure_arrivals(&presets[0], rate, 64);
}

int main(int argc, char **argv)
{
    static const struct bench_program program = {
        .name = "executor", .purpose = "Requests of many threads, gathered and not"};
    kiln_executor *executors[PRESETS];
    setenv("POCL_AFFINITY", "0", 0); /* its threads share the cores with those that ask */
    kiln_context *context = bench_start(&program, argc, argv);
    requests_start(context);
    for (size_t i = 0; i < PRESETS; i++)
        executors[i] = requests_executor(REQUESTS_LAYER, presets[i].options);
    measure_threads(executors);
    for (size_t i = 0; i < PRESETS; i++)
        kiln_executor_release(executors[i]);
    measure_network(REQUESTS_NETWORK);
    measure_network(REQUESTS_WIDE);
    for (size_t batch = 16; batch <= 4096; batch *= bench_is_quick() ? 16 : 2)
        measure_batch(batch);
    measure_open_loops();
    requests_end();
    return bench_end(context);
}
