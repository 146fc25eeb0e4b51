/* SPDX-License-Identifier: Apache-2.0 */
/* What the benchmark programs share.
 *
 *     program = start* row* end          a row: check each way, rounds of all ways, report
 *     round   = (idle run+ alone)*       the ways of a row in turn: A A' B B' C C' A A' ...
 *
 * A round times every way once, in a sample long enough for the clock; figures are medians over
 * the rounds, and ratios are medians of the rounds' own ratios, so that a machine that slows down
 * for a while slows both sides. A round during which other processes ran does not count, if enough
 * others are left. After each sample comes another of the same way, alone: behind itself, all else
 * being frozen. What the others take from a way shows between the two, and the machine's phases,
 * which are longer than a pair, do not. */
#pragma once

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>

#include <kiln/kiln.h>

#define BENCH_WAYS 24
#define BENCH_TARGETS 8

/* How a row's figures are shown. */
enum bench_unit {
    BENCH_NS_PER_ELEMENT,
    BENCH_GFLOPS,
    BENCH_GB_PER_SECOND,
    BENCH_MS,
    BENCH_US,
};

/* One way to do a row's work. */
struct bench_way {
    const char *name;
    void (*run)(void *user); /* complete when it returns */
    bool (*check)(
        void *user); /* after one run: whether the result is right; NULL: nothing to see */
    void *user;
    double (*seconds)(void *user); /* instead of the clock: how long the last run took itself */
    void (*finish)(void *user);    /* runs only begin: wait for all of them; NULL: they are done */
    /* Freeze what else this program has started, or let it go on; NULL: nothing has been. */
    void (*isolate)(void *user, bool frozen);
    const char *limit; /* the way that it cannot beat, if the row's figures do not say it */
    bool peer;         /* not kiln's */
};

/* A figure that a row has to show; without `at_least` and `at_most` it is only reported. */
struct bench_target {
    const char *way, *peer;
    double at_least; /* times as fast as the peer */
    double at_most;  /* seconds on top of the peer */
    bool in_seconds; /* show the difference, not the ratio */
};

struct bench_row {
    const char *name;
    double amount;       /* elements, operations or bytes per run, as the unit wants */
    double flops, bytes; /* what a run cannot do without, where `amount` does not say it all */
    bool trusted;        /* nothing is timed alone */
    enum bench_unit unit;
    size_t way_count, target_count;
    struct bench_way ways[BENCH_WAYS];
    struct bench_target targets[BENCH_TARGETS];
};

/* What a program is; its own options (may be NULL) come before the shared ones. */
struct bench_program {
    const char *name, *purpose;
    const struct argp_option *options;
    int (*option)(int key, const char *value); /* ARGP_ERR_UNKNOWN: not one of them */
    double seconds;                            /* for the rounds of a row; 0: 2 */
};

/* The arguments alone, for what comes before the context; bench_start() does it else. */
void bench_parse(const struct bench_program *program, int argc, char **argv);

/* Parse the arguments, settle the environment, make a context, print the header. Ends the process
 * on any error, as everything here does: these are programs, not the library. */
kiln_context *bench_start(const struct bench_program *program, int argc, char **argv);

/* Whether a row of that name is asked for. */
bool bench_wants(const char *name);
bool bench_is_quick(void);
kiln_context *bench_context(void);
bool bench_is_alone(void);      /* whether only kiln's own ways are asked for */
const char *bench_device(void); /* what --device says, or NULL */
double bench_budget(void);      /* seconds for the rounds of a row */

/* Add a way of kiln's, a peer's, or a target to a row. Peers, and targets that are about them, are
 * left out where kiln is alone. */
struct bench_way *bench_way(struct bench_row *row, const char *name, void (*run)(void *),
                            bool (*check)(void *), void *user);
struct bench_way *bench_peer(struct bench_row *row, const char *name, void (*run)(void *),
                             bool (*check)(void *), void *user);
void bench_at_least(struct bench_row *row, const char *way, const char *peer, double ratio);
void bench_at_most(struct bench_row *row, const char *way, const char *peer, double seconds);
void bench_compare(struct bench_row *row, const char *way, const char *peer);
void bench_limit(struct bench_row *row, const char *way, const char *limit);

/* Something to say about the row that comes next; marked, it is an error of the benchmark: its exit
 * status will be 3. */
void bench_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void bench_mark(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Check every way, time them, report. A wrong result ends the process with status 1. */
void bench_measure(const struct bench_row *row);

/* Print what became of the targets, write --json; the exit status. Releases the context. */
int bench_end(kiln_context *context);

/* ---- small things ---- */

double bench_now(void);                            /* seconds */
double bench_median(double *values, size_t count); /* sorts them */
double bench_least(double *values, size_t count);  /* too */
void bench_progress(const char *format, ...)
    __attribute__((format(printf, 1, 2))); /* on a terminal; " " ends it */
void bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void bench_ok(kiln_status status, const char *what); /* fails unless KILN_OK */
void *bench_memory(size_t bytes);                    /* aligned, touched; lasts until the end */
float *bench_floats(size_t count, unsigned seed);    /* the same with values in [-2, 2) */
void bench_fill(float *values, size_t count, unsigned seed); /* with these */

/* Whether |got - want| <= absolute + relative |want| for every element; else names the first. */
bool bench_close(const char *what, size_t count, const float *got, const double *want,
                 double absolute, double relative);
