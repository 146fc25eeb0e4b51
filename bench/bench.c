/* SPDX-License-Identifier: Apache-2.0 */
/* Options, environment, memory. */
#define _GNU_SOURCE
#include "report.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kiln/version.h>

const char *argp_program_version = "kiln benchmarks " KILN_VERSION;

static const struct bench_program *program;
static kiln_context *context;
static struct {
    bool quick, alone, turns;
    const char *filter, *json, *device;
    double seconds; /* for the rounds of a row */
} options;

static const struct argp_option shared_options[] = {
    {"quick", 'q', 0, 0, "fewer sizes and rounds", 1},
    {"filter", 'f', "TEXT", 0, "only rows whose name contains TEXT", 1},
    {"kiln-only", 'k', 0, 0, "leave out what kiln is compared with", 1},
    {"json", 'j', "FILE", 0, "write the figures to FILE too (-: standard output)", 1},
    {"device", 'd', "DEVICE", 0, "number, type or part of the name, as KILN_DEVICE", 1},
    {"seconds", 's', "TIME", 0, "time for a row (2, or what the program needs; quick 0.4)", 1},
    {"turns", 't', 0, 0, "run rounds as standard input says (against.py)", 1},
    {0}};

void bench_fail(const char *format, ...)
{
    va_list arguments;
    fflush(stdout);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(EXIT_FAILURE);
}

void bench_ok(kiln_status status, const char *what)
{
    if (status != KILN_OK)
        bench_fail("%s: %s: %s", what, kiln_status_name(status), kiln_last_error());
}

static error_t parse(int key, char *value, struct argp_state *state)
{
    switch (key) {
    case 'q': options.quick = true; return 0;
    case 'f': options.filter = value; return 0;
    case 'k': options.alone = true; return 0;
    case 't': options.turns = true; return 0;
    case 'j': options.json = value; return 0;
    case 'd': options.device = value; return 0;
    case 's':
        options.seconds = strtod(value, NULL);
        if (!(options.seconds > 0))
            argp_error(state, "--seconds wants a time above 0");
        return 0;
    case ARGP_KEY_ARG: argp_usage(state); return 0;
    default: return program->option ? program->option(key, value) : ARGP_ERR_UNKNOWN;
    }
}

static void parse_all(int argc, char **argv)
{
    struct argp_option all[32] = {{0}};
    size_t count = 0;
    for (const struct argp_option *o = program->options; o && o->name; o++)
        all[count++] = *o;
    memcpy(all + count, shared_options, sizeof shared_options);
    const struct argp argp = {all, parse, NULL, program->purpose, NULL, NULL, NULL};
    argp_parse(&argp, argc, argv, 0, NULL, NULL);
    if (!(options.seconds > 0))
        options.seconds = options.quick ? 0.4 : program->seconds > 0 ? program->seconds : 2;
}

/* Libraries read these before main: start again with them. Pinned workers are what PoCL needs to
 * use all cores. Peers keep the thread policy that they have by themselves. What stores kernels is
 * this build's program: the installed one may be older, or none. */
static void settle_environment(char **argv)
{
    bool changed = !getenv("POCL_AFFINITY");
    if (!access(BENCH_STORE, X_OK))
        setenv("KILN_STORE_PROGRAM", BENCH_STORE, 0);
    setenv("POCL_AFFINITY", "1", 0);
    if (getenv("OPENBLAS_CORETYPE")) {
        unsetenv("OPENBLAS_CORETYPE"); /* set to an old core it halves OpenBLAS */
        changed = true;
    }
    if (changed)
        execv("/proc/self/exe", argv);
}

void bench_parse(const struct bench_program *what, int argc, char **argv)
{
    if (program)
        return;
    program = what;
    settle_environment(argv);
    parse_all(argc, argv);
}

kiln_context *bench_start(const struct bench_program *what, int argc, char **argv)
{
    kiln_context_options context_options = KILN_CONTEXT_OPTIONS_INIT;
    bench_parse(what, argc, argv);
    if (options.turns)
        bench_turns_start();
    context_options.device = options.device;
    bench_ok(kiln_context_create(&context_options, &context), "making a context");
    bench_report_header(program->name, program->purpose, context, argc, argv);
    return context;
}

void bench_store(void)
{
    bench_ok(kiln_context_sync_cache(context), "storing kernels");
}

int bench_end(kiln_context *made)
{
    bool right = bench_report_end(options.json);
    kiln_context_release(made);
    return right ? EXIT_SUCCESS : BENCH_MARKED;
}

kiln_context *bench_context(void)
{
    return context;
}

bool bench_wants(const char *name)
{
    return !options.filter || strcasestr(name, options.filter);
}

bool bench_is_quick(void)
{
    return options.quick;
}

bool bench_is_alone(void)
{
    return options.alone;
}

bool bench_takes_turns(void)
{
    return options.turns;
}

const char *bench_device(void)
{
    return options.device;
}

double bench_budget(void)
{
    return options.seconds;
}

struct bench_way *bench_way(struct bench_row *row, const char *name, void (*run)(void *),
                            bool (*check)(void *), void *user)
{
    if (row->way_count == BENCH_WAYS)
        bench_fail("%s: too many ways", row->name);
    struct bench_way *way = &row->ways[row->way_count++];
    *way = (struct bench_way){.name = name, .run = run, .check = check, .user = user};
    return way;
}

struct bench_way *bench_peer(struct bench_row *row, const char *name, void (*run)(void *),
                             bool (*check)(void *), void *user)
{
    static struct bench_way left_out;
    struct bench_way *way = options.alone ? &left_out : bench_way(row, name, run, check, user);
    way->peer = true;
    return way;
}

static struct bench_way *find_way(struct bench_row *row, const char *name)
{
    for (size_t w = 0; w < row->way_count; w++)
        if (!strcmp(row->ways[w].name, name))
            return &row->ways[w];
    return NULL;
}

static void add_target(struct bench_row *row, struct bench_target target)
{
    if (options.alone && !(find_way(row, target.way) && find_way(row, target.peer)))
        return;
    if (row->target_count == BENCH_TARGETS)
        bench_fail("%s: too many targets", row->name);
    row->targets[row->target_count++] = target;
}

void bench_at_least(struct bench_row *row, const char *way, const char *peer, double ratio)
{
    add_target(row, (struct bench_target){.way = way, .peer = peer, .at_least = ratio});
}

void bench_at_most(struct bench_row *row, const char *way, const char *peer, double seconds)
{
    add_target(row, (struct bench_target){
                        .way = way, .peer = peer, .at_most = seconds, .in_seconds = true});
}

void bench_compare(struct bench_row *row, const char *way, const char *peer)
{
    add_target(row, (struct bench_target){.way = way, .peer = peer});
}

void bench_limit(struct bench_row *row, const char *way, const char *limit)
{
    struct bench_way *found = find_way(row, way);
    if (found && find_way(row, limit))
        found->limit = limit;
}

void *bench_memory(size_t bytes)
{
    void *memory = NULL;
    if (posix_memalign(&memory, 4096, bytes ? bytes : 1))
        bench_fail("out of memory: %zu bytes", bytes);
    return memset(memory, 0, bytes);
}

/* Neighbours, and elements at any stride, have nothing to do with each other (as they have in a
 * plain linear generator). */
static uint32_t scramble(uint32_t bits)
{
    bits = (bits ^ bits >> 16) * 0x7feb352du;
    bits = (bits ^ bits >> 15) * 0x846ca68bu;
    return bits ^ bits >> 16;
}

void bench_fill(float *values, size_t count, unsigned seed)
{
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(scramble((uint32_t)i + (seed << 28)) >> 8) / 4194304.0f - 2;
}

float *bench_floats(size_t count, unsigned seed)
{
    float *values = bench_memory(count * sizeof *values);
    bench_fill(values, count, seed);
    return values;
}

void bench_progress(const char *format, ...)
{
    va_list arguments;
    if (!isatty(STDERR_FILENO))
        return;
    fputs("\r\33[K", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fflush(stderr);
}

bool bench_close(const char *what, size_t count, const float *got, const double *want,
                 double absolute, double relative)
{
    for (size_t i = 0; i < count; i++)
        if (!(fabs(got[i] - want[i]) <= absolute + relative * fabs(want[i]))) {
            fprintf(stderr, "%s: element %zu is %.9g, not %.9g\n", what, i, got[i], want[i]);
            return false;
        }
    return true;
}
