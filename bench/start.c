/* SPDX-License-Identifier: Apache-2.0 */
/* The first result of a process that finds its kernel in kiln's cache, beside one that does not.
 * PoCL's own cache is empty in both, but in the last case.
 *
 *     parent: for each way in turn: folders, child, its report
 *     child:  context | record, plan, build, enqueue | wait | check | report */
#define _XOPEN_SOURCE 700 /* nftw */
#include "bench.h"

#include <ftw.h>
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT 65536

extern char **environ;

/* What a child reports, in seconds. `start` is from the parent's call to the child's main. */
struct times {
    double start, context, submit, wait;
};

enum cache { EMPTY, FILLED };

static struct situation {
    const char *name;
    enum cache kiln, driver;
    struct times last;
} situations[] = {
    {"cold", EMPTY, EMPTY, {0, 0, 0, 0}},
    {"warm", FILLED, EMPTY, {0, 0, 0, 0}},
    {"only the driver's cache warm", EMPTY, FILLED, {0, 0, 0, 0}},
};

static char folder[256];

/* ---- child ---- */

static void check_result(const float *x, const float *y)
{
    for (size_t i = 0; i < COUNT; i++)
        if (!(fabs(y[i] - (1.5 * fmax(x[i], 0) + x[i])) <= 1e-6))
            bench_fail("element %zu is %g", i, y[i]);
}

static int run_child(double called, int output)
{
    struct times times = {.start = bench_now() - called};
    float *x = bench_floats(COUNT, 1), *y = bench_memory(COUNT * sizeof *y);
    size_t count = COUNT;
    kiln_context *context;
    kiln_event *event;
    double start = bench_now();
    bench_ok(kiln_context_create(NULL, &context), "making a context");
    times.context = bench_now() - start;

    start = bench_now();
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor input = kiln_upload(batch, KILN_F32, 1, &count, x);
    kiln_tensor scaled = kiln_scale(batch, kiln_relu(batch, input), 1.5);
    bench_ok(kiln_read(batch, kiln_add(batch, scaled, input), y, COUNT * sizeof *y), "recording");
    bench_ok(kiln_batch_submit(batch, &event), "submitting");
    times.submit = bench_now() - start;

    start = bench_now();
    bench_ok(kiln_event_wait(event), "waiting");
    times.wait = bench_now() - start;
    check_result(x, y);
    kiln_event_release(event);
    kiln_batch_release(batch);
    kiln_context_release(context);
    return write(output, &times, sizeof times) == sizeof times ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* ---- folders ---- */

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *place)
{
    (void)status, (void)type, (void)place;
    return remove(path);
}

static void remove_folder(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* A fresh folder, or the filled one, as what `variable` names. */
static void point_at(const char *variable, const char *name, enum cache cache)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s-%s", folder, name, cache == FILLED ? "filled" : "empty");
    if (cache == EMPTY)
        remove_folder(path);
    mkdir(path, 0700);
    setenv(variable, path, 1);
}

static void remove_own_folder(void)
{
    remove_folder(folder);
}

static void make_folder(void)
{
    const char *parent = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/kiln-bench-XXXXXX", parent && *parent ? parent : "/tmp");
    if (!mkdtemp(folder))
        bench_fail("%s cannot be made", folder);
    atexit(remove_own_folder);
}

/* ---- parent ---- */

static struct times spawn_child(void)
{
    struct times times;
    int ends[2], status = -1;
    pid_t child;
    char name[] = "start", option[] = "--child", called[40], output[16];
    if (pipe(ends))
        bench_fail("no pipe");
    snprintf(called, sizeof called, "%.9f", bench_now());
    snprintf(output, sizeof output, "%d", ends[1]);
    char *argv[] = {name, option, called, output, NULL};
    if (posix_spawn(&child, "/proc/self/exe", NULL, NULL, argv, environ))
        bench_fail("no child process");
    close(ends[1]);
    bool reported = read(ends[0], &times, sizeof times) == sizeof times;
    close(ends[0]);
    if (waitpid(child, &status, 0) != child || status || !reported)
        bench_fail("the child failed; nothing was timed");
    return times;
}

static void run_situation(void *user)
{
    struct situation *situation = user;
    point_at("KILN_CACHE_DIR", "kiln", situation->kiln);
    point_at("POCL_CACHE_DIR", "driver", situation->driver);
    situation->last = spawn_child();
}

/* The parts are of the run that the total before them has just made. */
static void run_nothing(void *user)
{
    (void)user;
}

#define PART(name, value)                                                                          \
    static double name(void *user)                                                                 \
    {                                                                                              \
        const struct times *last = &((struct situation *)user)->last;                              \
        return value;                                                                              \
    }

PART(total_of, last->start + last->context + last->submit + last->wait)
PART(start_of, last->start)
PART(context_of, last->context)
PART(submit_of, last->submit)
PART(wait_of, last->wait)

/* Both filled folders have seen the kernel before. */
static void fill(void)
{
    point_at("KILN_CACHE_DIR", "kiln", FILLED);
    point_at("POCL_CACHE_DIR", "driver", FILLED);
    spawn_child();
    spawn_child();
}

static void add_situation(struct bench_row *row, size_t index, char names[5][64])
{
    static const struct part {
        const char *name;
        double (*seconds)(void *user);
    } parts[] = {{"", total_of},
                 {": process", start_of},
                 {": platform and context", context_of},
                 {": plan, build, enqueue", submit_of},
                 {": first launch", wait_of}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        snprintf(names[i], 64, "%s%s", situations[index].name, parts[i].name);
        bench_way(row, names[i], i ? run_nothing : run_situation, NULL, &situations[index])
            ->seconds = parts[i].seconds;
    }
}

int main(int argc, char **argv)
{
    static const struct bench_program program = {
        .name = "start", .purpose = "The first result of a process, with and without a cache"};
    static char names[3][5][64];
    struct bench_row row = {.name = "3 operations, 65536 elements", .unit = BENCH_MS};
    if (argc == 4 && !strcmp(argv[1], "--child"))
        return run_child(strtod(argv[2], NULL), atoi(argv[3]));
    kiln_context *context = bench_start(&program, argc, argv);
    make_folder();
    fill();
    for (size_t i = 0; i < sizeof situations / sizeof *situations; i++)
        add_situation(&row, i, names[i]);
    bench_at_least(&row, "warm", "cold", 5);
    bench_compare(&row, "warm", "only the driver's cache warm");
    if (bench_wants(row.name))
        bench_measure(&row);
    return bench_end(context);
}
