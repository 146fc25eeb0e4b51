/* SPDX-License-Identifier: Apache-2.0 */
/* Checks, rounds, medians. */
#define _GNU_SOURCE
#include "report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_ROUNDS 400
#define MOST_RUNS 100000

/* A sample is at least this long, so that neither clock nor first touch counts. */
#define SAMPLE_SECONDS 1e-3
#define WARM_SECONDS 5e-3 /* what comes before one, and where runs are slow still */
#define MOST_WARM_SECONDS 0.05
#define SLOW 1.1            /* times the quickest run so far, peers.py's rule */
#define OFTEN_SECONDS 0.4   /* what runs for so long has run often */
#define LONG_SECONDS 0.05   /* longer ones go without a run before them that warms up */
#define QUEUED_SECONDS 5e-3 /* where waiting for the last run takes its time, too */

/* Worker threads that spin after a run get this time to give up. */
#define REST_SECONDS 0.5

/* A way's times beside the others may be so much off those alone. */
#define MOST_OFF 0.1
#define TRIES 3
#define RETRY_SECONDS 60 /* of a program: on a machine that is never quiet they would not end */

/* How long a sample waits for other processes to leave the cores, if they do. */
#define QUIET_SECONDS 0.05

/* Rounds during which nothing else ran come first. */
struct rounds {
    size_t count, quiet;
    double seconds[BENCH_WAYS][MOST_ROUNDS], alone[BENCH_WAYS][MOST_ROUNDS];
};

double bench_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void rest(double seconds)
{
    struct timespec time = {0, (long)(seconds * 1e9)};
    nanosleep(&time, NULL);
}

/* Processor time of all threads. */
static double own_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Threads that want a core at this moment, in all processes; 1 where the system does not tell. */
static int count_runnable(void)
{
    int running = 1;
    FILE *file = fopen("/proc/loadavg", "r");
    if (file && fscanf(file, "%*f %*f %*f %d", &running) != 1)
        running = 1;
    if (file)
        fclose(file);
    return running;
}

/* This thread is one; that of a driver or of OpenMP may be on its way to sleep. */
static bool is_quiet(void)
{
    return count_runnable() <= 2;
}

static void wait_for_quiet(void)
{
    for (double start = bench_now(); count_runnable() > 1 && bench_now() - start < QUIET_SECONDS;)
        rest(1e-3);
}

/* This process's own threads, those of OpenMP or of a library, have stopped spinning: what a way
 * leaves behind does not take the next one's cores. Whether they have in time. */
static bool wait_for_own_threads(void)
{
    double start = bench_now();
    do {
        double before = own_seconds(), since = bench_now();
        rest(5e-4);
        if (own_seconds() - before < 0.2 * (bench_now() - since))
            return true;
    } while (bench_now() - start < REST_SECONDS);
    return false;
}

static void finish(const struct bench_way *way)
{
    if (way->finish)
        way->finish(way->user);
}

/* Two runs before the look at the result: the second one is what will be timed. What times itself
 * and has nothing to look at may take long, and is not run for nothing. */
static void check_ways(const struct bench_row *row)
{
    for (size_t w = 0; w < row->way_count; w++) {
        const struct bench_way *way = &row->ways[w];
        if (way->seconds && !way->check)
            continue;
        way->run(way->user);
        if (!way->seconds)
            way->run(way->user);
        finish(way);
        if (way->check && !way->check(way->user))
            bench_fail("%s: the result of \"%s\" is wrong; nothing was timed", row->name,
                       way->name);
    }
}

/* How often a way runs in a sample, and the time of its quickest run that was waited for. */
struct pace {
    size_t runs;
    double quickest;
};

/* What the way before has evicted comes back, the cores' speed, and a driver's threads to cores of
 * their own: until a run is about as quick as the quickest so far. */
static void warm_up(const struct bench_way *way, struct pace *pace)
{
    double start = bench_now(), spent = 0;
    bool slow = true;
    while (spent < (slow ? MOST_WARM_SECONDS : WARM_SECONDS)) {
        double before = spent;
        way->run(way->user);
        finish(way);
        spent = bench_now() - start;
        slow = spent - before > SLOW * pace->quickest;
        pace->quickest = fmin(pace->quickest, spent - before);
    }
}

static double sample(const struct bench_way *way, struct pace *pace)
{
    if (way->seconds) {
        way->run(way->user);
        return way->seconds(way->user);
    }
    if (pace->runs > 1)
        warm_up(way, pace);
    double start = bench_now();
    for (size_t i = 0; i < pace->runs; i++)
        way->run(way->user);
    finish(way);
    return (bench_now() - start) / (double)pace->runs;
}

static struct pace choose_pace(const struct bench_way *way)
{
    struct pace pace = {1, INFINITY};
    bool is_long = false;
    double enough = way->finish ? QUEUED_SECONDS : SAMPLE_SECONDS;
    while (!way->seconds && pace.runs < MOST_RUNS) {
        double seconds = sample(way, &pace) * (double)pace.runs;
        is_long = seconds >= LONG_SECONDS;
        if (seconds >= enough)
            break;
        size_t wanted = seconds > 0 ? (size_t)(1.3 * enough / seconds * (double)pace.runs) : 0;
        pace.runs = wanted > pace.runs && wanted < 10 * pace.runs ? wanted : 10 * pace.runs;
    }
    if (pace.runs == 1 && !is_long)
        pace.runs = 2;
    return pace;
}

/* The way's second sample: behind itself, with all else frozen. 0 for parts of a run and the like.
 */
static double sample_alone(const struct bench_row *row, const struct bench_way *way,
                           struct pace *pace)
{
    if (row->trusted || bench_takes_turns() || (way->seconds && !way->isolate))
        return 0;
    if (way->isolate)
        way->isolate(way->user, true);
    double seconds = sample(way, pace);
    if (way->isolate)
        way->isolate(way->user, false);
    return seconds;
}

/* Times every way once, and alone; whether nothing else ran meanwhile. */
static bool run_round(const struct bench_row *row, struct pace *paces, double *seconds,
                      double *alone)
{
    bool quiet = true;
    for (size_t w = 0; w < row->way_count; w++) {
        quiet = wait_for_own_threads() && quiet;
        wait_for_quiet();
        seconds[w] = sample(&row->ways[w], &paces[w]);
        quiet = quiet && is_quiet();
        alone[w] = sample_alone(row, &row->ways[w], &paces[w]);
    }
    return quiet;
}

/* A quiet round goes before those that are not. */
static void keep_round(const struct bench_row *row, struct rounds *rounds, const double *seconds,
                       const double *alone, bool quiet)
{
    size_t place = quiet ? rounds->quiet : rounds->count;
    for (size_t w = 0; w < row->way_count; w++) {
        rounds->seconds[w][rounds->count] = rounds->seconds[w][place];
        rounds->seconds[w][place] = seconds[w];
        rounds->alone[w][rounds->count] = rounds->alone[w][place];
        rounds->alone[w][place] = alone[w];
    }
    rounds->count++;
    rounds->quiet += quiet;
}

/* What is compiled behind a way that has run often (KILN_ONE_LAUNCH) is there before it is timed.
 */
static void settle(const struct bench_way *way)
{
    if (way->peer || way->seconds || bench_is_quick() || !bench_context())
        return;
    for (double start = bench_now(); bench_now() - start < OFTEN_SECONDS;) {
        way->run(way->user);
        finish(way);
    }
    bench_ok(kiln_context_sync_cache(bench_context()), "waiting for kernels");
}

static void choose_paces(const struct bench_row *row, struct pace *paces)
{
    for (size_t w = 0; w < row->way_count; w++) {
        settle(&row->ways[w]);
        paces[w] = choose_pace(&row->ways[w]);
    }
}

static void take_turns(const struct bench_row *row)
{
    struct pace paces[BENCH_WAYS];
    double seconds[BENCH_WAYS], alone[BENCH_WAYS];
    choose_paces(row, paces);
    bench_turns_row(row);
    while (bench_turns_wanted()) {
        bool quiet = run_round(row, paces, seconds, alone);
        bench_turns_round(row, seconds, quiet);
    }
}

/* Within the budget; beyond it, at most four times, for a few rounds that are quiet. Three at
 * least, if they do not take ten times the budget. */
static void run_rounds(const struct bench_row *row, struct rounds *rounds)
{
    struct pace paces[BENCH_WAYS];
    size_t fewest = bench_is_quick() ? 5 : 15;
    double budget = bench_budget(), seconds[BENCH_WAYS], alone[BENCH_WAYS], spent = 0;
    choose_paces(row, paces);
    double start = bench_now();
    while (rounds->count < MOST_ROUNDS &&
           ((rounds->count < 3 && spent < 10 * budget) || spent < budget ||
            (rounds->quiet < fewest && spent < 4 * budget))) {
        bool quiet = run_round(row, paces, seconds, alone);
        keep_round(row, rounds, seconds, alone, quiet);
        spent = bench_now() - start;
    }
    /* Where there were enough of them, only these count. */
    if (rounds->quiet >= fewest)
        rounds->count = rounds->quiet;
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Sorts `values`. */
static struct bench_result middle(double *values, size_t count)
{
    qsort(values, count, sizeof *values, ascending);
    double median = (values[(count - 1) / 2] + values[count / 2]) / 2;
    double quartiles = values[3 * (count - 1) / 4] - values[(count - 1) / 4];
    return (struct bench_result){
        .seconds = median, .spread = quartiles / 2 / median, .best = values[0]};
}

/* The rounds stay in their order: ratios are of one round. */
static struct bench_result middle_of(const struct rounds *rounds, size_t way)
{
    double seconds[MOST_ROUNDS];
    memcpy(seconds, rounds->seconds[way], rounds->count * sizeof *seconds);
    return middle(seconds, rounds->count);
}

double bench_median(double *values, size_t count)
{
    return middle(values, count).seconds;
}

double bench_least(double *values, size_t count)
{
    return middle(values, count).best;
}

static size_t find_way(const struct bench_row *row, const char *name)
{
    for (size_t w = 0; w < row->way_count; w++)
        if (!strcmp(row->ways[w].name, name))
            return w;
    bench_fail("%s: no way \"%s\" to compare with", row->name, name);
}

static struct bench_outcome compare(const struct bench_row *row, const struct rounds *rounds,
                                    const struct bench_target *target)
{
    const double *way = rounds->seconds[find_way(row, target->way)];
    const double *peer = rounds->seconds[find_way(row, target->peer)];
    double ratios[MOST_ROUNDS], differences[MOST_ROUNDS];
    for (size_t i = 0; i < rounds->count; i++) {
        ratios[i] = peer[i] / way[i];
        differences[i] = way[i] - peer[i];
    }
    return (struct bench_outcome){middle(ratios, rounds->count).seconds,
                                  middle(differences, rounds->count).seconds};
}

/* ---- alone ---- */

/* Whether all from `low` to `high` is more than 10% above 1, or below. */
static bool is_apart(double low, double high)
{
    return low > 1 + MOST_OFF || high * (1 + MOST_OFF) < 1;
}

bool bench_is_off(const struct bench_result *result)
{
    double quickest = result->best / result->alone;
    return result->alone > 0 && is_apart(quickest, quickest) &&
           is_apart(result->beside - result->doubt, result->beside + result->doubt);
}

static void judge_pairs(const struct rounds *rounds, size_t way, struct bench_result *result)
{
    double alone[MOST_ROUNDS], ratios[MOST_ROUNDS];
    if (rounds->count < 3 || rounds->alone[way][0] <= 0)
        return; /* fewer say nothing, or it is not timed alone */
    for (size_t i = 0; i < rounds->count; i++) {
        alone[i] = rounds->alone[way][i];
        ratios[i] = rounds->seconds[way][i] / alone[i];
    }
    result->alone = bench_least(alone, rounds->count);
    struct bench_result pairs = middle(ratios, rounds->count);
    result->beside = pairs.seconds;
    result->doubt = 3.14 * pairs.spread * pairs.seconds / sqrt((double)rounds->count);
}

/* A row of which a way runs otherwise beside the others than alone is timed again; what is the
 * others' doing is so each time. */
static void run_until_agreed(const struct bench_row *row, struct rounds *rounds,
                             struct bench_result *results)
{
    static double retried; /* seconds, of all rows */
    bool agree = false;
    for (int try = 1; try <= TRIES && !agree && retried < RETRY_SECONDS; try++) {
        double start = bench_now();
        rounds->count = rounds->quiet = 0;
        run_rounds(row, rounds);
        agree = true;
        for (size_t w = 0; w < row->way_count; w++) {
            results[w] = middle_of(rounds, w);
            judge_pairs(rounds, w, &results[w]);
            agree = agree && !bench_is_off(&results[w]);
        }
        retried += try > 1 ? bench_now() - start : 0;
    }
}

/* Peers and ways that have a limit of their own do not count. */
static double quickest_of(const struct bench_row *row, const struct bench_result *results)
{
    double quickest = INFINITY;
    for (size_t w = 0; w < row->way_count; w++)
        if (!row->ways[w].peer && !row->ways[w].limit)
            quickest = fmin(quickest, results[w].seconds);
    return quickest;
}

static struct limit find_limit(const struct bench_row *row, const struct bench_result *results)
{
    static bool told;
    double flops = row->flops, bytes = row->bytes;
    if (flops + bytes <= 0) {
        flops = row->unit == BENCH_GFLOPS ? row->amount : 0;
        bytes = row->unit == BENCH_GB_PER_SECOND ? row->amount : 0;
    }
    if (flops + bytes > 0 && !told)
        limit_print(bench_context());
    told = told || flops + bytes > 0;
    return limit_of(bench_context(), flops, bytes, quickest_of(row, results));
}

void bench_measure(const struct bench_row *row)
{
    static struct rounds rounds;
    struct bench_result results[BENCH_WAYS];
    struct bench_outcome outcomes[BENCH_TARGETS];
    check_ways(row);
    bench_store();
    if (bench_takes_turns()) {
        take_turns(row);
        return;
    }
    run_until_agreed(row, &rounds, results);
    for (size_t t = 0; t < row->target_count; t++)
        outcomes[t] = compare(row, &rounds, &row->targets[t]);
    bench_report_row(row, find_limit(row, results), results, outcomes, rounds.count, rounds.quiet);
}
