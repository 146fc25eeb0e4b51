/* SPDX-License-Identifier: Apache-2.0 */
/* The first result of a process whose kernels are in kiln's cache, in the driver's own, in both or
 * in none. A driver's binary may be its compiler's last word (PoCL) or a text that it compiles
 * again (NVIDIA's is PTX), which only its own cache then saves; so both caches lie in folders of
 * this program.
 *
 *     parent: for each way in turn: folders, child, its report
 *     child:  context | record, plan, build, enqueue | wait | check | report
 *
 * This program's own clBuildProgram stands before the loader's: what it takes in a child that
 * compiles alone is what no cold start can do without, and the process and its context are what
 * none can. */
#define _GNU_SOURCE /* nftw, RTLD_NEXT */
#include "start.h"

#include <dlfcn.h>
#include <ftw.h>
#include <math.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kiln/opencl.h>

#define COUNT 65536

extern char **environ;

/* What a child reports, in seconds. `start` is from the parent's call to the child's main. */
struct times {
    double start, context, submit, wait;
    double driver; /* in its compiler, of this process alone */
};

enum cache {
    EMPTY,
    GENERIC, /* has seen other batches run before their kernels were compiled */
    FILLED
};

/* What a first result cannot do without, of a child that has compiled one after the other. */
static const char opening[] = "process and context",
                  compiler[] = "process, context, clBuildProgram",
                  spread[] = "process, context, clBuildProgram on every core";

static const struct situation {
    const char *name;
    enum cache kiln, driver;
    const char *compile; /* $KILN_COMPILE */
    bool in_parts;       /* of a row that shows them */
    bool of_many;        /* shows something only where there are many kernels */
    const char *limit;
} situations[] = {
    /* clang-format off */
    {"cold",                      EMPTY,   EMPTY,  "together", true,  false, spread},
    {"cold, one after the other", EMPTY,   EMPTY,  "alone",    false, true,  compiler},
    {"cold, compiled in the background",     EMPTY,   EMPTY,  "background",   false, true,  opening},
    {"compiled in the background",           GENERIC, EMPTY,  "background",   false, true,  opening},
    {"kiln's cache",              FILLED,  EMPTY,  "together", true,  false, opening},
    {"the driver's cache",        EMPTY,   FILLED, "together", false, false, opening},
    {"both caches",               FILLED,  FILLED, "together", false, false, opening},
    /* clang-format on */
};

enum { SITUATIONS = sizeof situations / sizeof *situations };

static char folder[256];

/* ---- child ---- */

static atomic_ullong driver_nanoseconds; /* other threads compile, too */

CL_API_ENTRY cl_int CL_API_CALL clBuildProgram(cl_program program, cl_uint count,
                                               const cl_device_id *devices, const char *options,
                                               void(CL_CALLBACK *notify)(cl_program, void *),
                                               void *user)
{
    static __typeof__(clBuildProgram) *loaders;
    double start = bench_now();
    if (!loaders)
        loaders = (__typeof__(loaders))dlsym(RTLD_NEXT, "clBuildProgram");
    cl_int code = loaders(program, count, devices, options, notify, user);
    atomic_fetch_add(&driver_nanoseconds, (unsigned long long)(1e9 * (bench_now() - start)));
    return code;
}

static float *x, *y, loss;

static kiln_batch *record_chain(kiln_context *context)
{
    size_t count = COUNT;
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor input = kiln_upload(batch, KILN_F32, 1, &count, x);
    kiln_tensor scaled = kiln_scale(batch, kiln_relu(batch, input), 1.5);
    bench_ok(kiln_read(batch, kiln_add(batch, scaled, input), y, COUNT * sizeof *y), "recording");
    return batch;
}

static void check_chain(void)
{
    for (size_t i = 0; i < COUNT; i++)
        if (!(fabs(y[i] - (1.5 * fmax(x[i], 0) + x[i])) <= 1e-6))
            bench_fail("element %zu is %g", i, y[i]);
}

static kiln_batch *record_block(kiln_context *context)
{
    return start_block(context, &loss);
}

/* Kernels that the others have not: one for each function. */
static kiln_batch *record_functions(kiln_context *context)
{
    static kiln_tensor (*const functions[])(kiln_batch *, kiln_tensor) = {
        kiln_log, kiln_sqrt, kiln_abs,  kiln_tanh,  kiln_floor, kiln_exp2,
        kiln_sin, kiln_cos,  kiln_ceil, kiln_log1p, kiln_sign,  kiln_softplus};
    kiln_batch *batch = kiln_batch_create(context);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        size_t count = COUNT / 16 - i; /* so that each has its own */
        kiln_tensor input = kiln_upload(batch, KILN_F32, 1, &count, x);
        bench_ok(kiln_read(batch, functions[i](batch, input), y, count * sizeof *y), "recording");
    }
    return batch;
}

static void check_nothing(void)
{
}

static void check_block(void)
{
    if (!(loss > 0.1F && loss < 10))
        bench_fail("the loss is %g", loss);
}

static const struct work {
    const char *name;
    kiln_batch *(*record)(kiln_context *context);
    void (*check)(void);
    bool many; /* kernels; then one run takes seconds */
} works[] = {
    {"3 operations, 65536 elements", record_chain, check_chain, false},
    {"training step of a transformer's block", record_block, check_block, true},
};

enum { WORKS = sizeof works / sizeof *works };

static const struct work functions = {"functions", record_functions, check_nothing, true};

static const struct work *work_of(int number)
{
    return number < WORKS ? &works[number] : &functions;
}

static int run_child(const struct work *work, double called, int output)
{
    struct times times = {.start = bench_now() - called};
    kiln_context *context;
    kiln_event *event;
    x = bench_floats(COUNT, 1);
    y = bench_memory(COUNT * sizeof *y);
    double start = bench_now();
    bench_ok(kiln_context_create(NULL, &context), "making a context");
    times.context = bench_now() - start;

    start = bench_now();
    kiln_batch *batch = work->record(context);
    bench_ok(kiln_batch_submit(batch, &event), "submitting");
    times.submit = bench_now() - start;

    start = bench_now();
    bench_ok(kiln_event_wait(event), "waiting");
    times.wait = bench_now() - start;
    times.driver = 1e-9 * (double)atomic_load(&driver_nanoseconds);
    work->check();
    kiln_event_release(event);
    bench_ok(kiln_batch_prepare(batch, 0), "waiting for what is compiled in the background");
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

/* What holds the generic kernel, and no kernel of the works. */
#define TEMPLATE "kiln-template"

static void copy_template(const char *to)
{
    char command[1000];
    snprintf(command, sizeof command, "cp -p %s/" TEMPLATE "/* %s", folder, to);
    if (system(command))
        bench_fail("a folder cannot be copied");
}

/* A fresh folder, or the filled one, as what `variable` names. */
static void point_at(const char *variable, const char *name, enum cache cache)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s-%s", folder, name, cache == FILLED ? "filled" : "empty");
    if (cache != FILLED)
        remove_folder(path);
    mkdir(path, 0700);
    if (cache == GENERIC)
        copy_template(path);
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

/* The drivers' own caches; the others are not looked at. */
static void point_driver(enum cache cache)
{
    point_at("POCL_CACHE_DIR", "pocl", cache);
    point_at("CUDA_CACHE_PATH", "cuda", cache);
    point_at("MESA_SHADER_CACHE_DIR", "mesa", cache);
}

/* ---- parent ---- */

static struct times spawn_child(const struct work *work)
{
    struct times times;
    int ends[2], status = -1;
    pid_t child;
    char name[] = "start", option[] = "--child", number[16], called[40], output[16];
    if (pipe(ends))
        bench_fail("no pipe");
    snprintf(number, sizeof number, "%d", work == &functions ? WORKS : (int)(work - works));
    snprintf(called, sizeof called, "%.9f", bench_now());
    snprintf(output, sizeof output, "%d", ends[1]);
    char *argv[] = {name, option, number, called, output, NULL};
    if (posix_spawn(&child, "/proc/self/exe", NULL, NULL, argv, environ))
        bench_fail("no child process");
    close(ends[1]);
    bool reported = read(ends[0], &times, sizeof times) == sizeof times;
    close(ends[0]);
    if (waitpid(child, &status, 0) != child || status || !reported)
        bench_fail("the child failed; nothing was timed");
    return times;
}

/* One situation of one work, and its last run. */
struct way {
    const struct situation *situation;
    const struct work *work;
    struct times last;
};

/* Nothing is stored when it has ended: that would be in the way of the next one. */
static void run_situation(void *user)
{
    struct way *way = user;
    point_at("KILN_CACHE_DIR", "kiln", way->situation->kiln);
    point_driver(way->situation->driver);
    setenv("KILN_COMPILE", way->situation->compile, 1);
    way->last = spawn_child(way->work);
}

/* The parts are of the run that the total before them has just made. */
static void run_nothing(void *user)
{
    (void)user;
}

#define PART(name, value)                                                                          \
    static double name(void *user)                                                                 \
    {                                                                                              \
        const struct times *last = &((struct way *)user)->last;                                    \
        return value;                                                                              \
    }

PART(total_of, last->start + last->context + last->submit + last->wait)
PART(opening_of, last->start + last->context)
PART(compiler_of, opening_of(user) + last->driver)
PART(spread_of, opening_of(user) + last->driver / (double)sysconf(_SC_NPROCESSORS_ONLN))
PART(start_of, last->start)
PART(context_of, last->context)
PART(submit_of, last->submit)
PART(wait_of, last->wait)

/* The filled folders have seen the kernels before: the driver's by compiling them, and kiln's
 * binaries besides. */
static void fill(const struct work *work)
{
    point_at("KILN_CACHE_DIR", "kiln", FILLED);
    point_driver(FILLED);
    setenv("KILN_COMPILE", "alone", 1);
    spawn_child(work);
    spawn_child(work);
    if (!work->many)
        return;
    char path[400];
    snprintf(path, sizeof path, "%s/" TEMPLATE, folder);
    mkdir(path, 0700);
    setenv("KILN_CACHE_DIR", path, 1);
    setenv("KILN_COMPILE", "background", 1);
    point_driver(EMPTY);
    spawn_child(&functions);
}

static void add_situation(struct bench_row *row, struct way *way, char names[5][64])
{
    static const struct part {
        const char *name;
        double (*seconds)(void *user);
    } parts[] = {{"", total_of},
                 {": process", start_of},
                 {": platform and context", context_of},
                 {": plan, build, enqueue", submit_of},
                 {": first launch", wait_of}};
    size_t count = way->situation->in_parts && !way->work->many ? sizeof parts / sizeof *parts : 1;
    for (size_t i = 0; i < count; i++) {
        snprintf(names[i], 64, "%s%s", way->situation->name, parts[i].name);
        bench_way(row, names[i], i ? run_nothing : run_situation, NULL, way)->seconds =
            parts[i].seconds;
    }
}

/* Of a single kernel each compiler is one. */
static void add_limits(struct bench_row *row, struct way *alone)
{
    bool many = alone->work->many;
    bench_way(row, opening, run_nothing, NULL, alone)->seconds = opening_of;
    bench_way(row, compiler, run_nothing, NULL, alone)->seconds = compiler_of;
    if (many)
        bench_way(row, spread, run_nothing, NULL, alone)->seconds = spread_of;
    for (size_t i = 0; i < SITUATIONS; i++) {
        const char *limit = situations[i].limit;
        bench_limit(row, situations[i].name, limit == spread && !many ? compiler : limit);
    }
}

static void measure(const struct work *work)
{
    static char names[WORKS][SITUATIONS][5][64];
    static struct way ways[WORKS][SITUATIONS];
    size_t number = (size_t)(work - works);
    struct bench_row row = {.name = work->name, .unit = BENCH_MS};
    if (!bench_wants(work->name) || (bench_is_quick() && work->many))
        return;
    fill(work);
    for (size_t i = 0; i < SITUATIONS; i++) {
        ways[number][i] = (struct way){.situation = &situations[i], .work = work};
        if (work->many || !situations[i].of_many)
            add_situation(&row, &ways[number][i], names[number][i]);
    }
    add_limits(&row, &ways[number][work->many]);
    bench_at_least(&row, "both caches", "cold", 5);
    bench_compare(&row, "kiln's cache", "cold");
    bench_compare(&row, "kiln's cache", "the driver's cache");
    if (work->many) {
        bench_compare(&row, "cold", "cold, one after the other");
        bench_compare(&row, "cold, compiled in the background", "cold");
        bench_compare(&row, "compiled in the background", "cold");
    }
    bench_measure(&row);
}

int main(int argc, char **argv)
{
    static const struct bench_program program = {
        .name = "start", .purpose = "The first result of a process, with and without a cache"};
    if (argc == 5 && !strcmp(argv[1], "--child"))
        return run_child(work_of(atoi(argv[2])), strtod(argv[3], NULL), atoi(argv[4]));
    kiln_context *context = bench_start(&program, argc, argv);
    setenv("KILN_CACHE_WAIT", "1", 1);
    make_folder();
    for (size_t i = 0; i < WORKS; i++)
        measure(&works[i]);
    return bench_end(context);
}
