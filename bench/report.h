/* SPDX-License-Identifier: Apache-2.0 */
/* What the terminal and the --json file show. */
#pragma once

#include "bench.h"
#include "limit.h"

/* What the rounds gave for a way, seconds a run. */
struct bench_result {
    double seconds; /* median */
    double spread;  /* half the distance of the quartiles, as a part of the median */
    double best;    /* the quickest round */
    double alone;   /* the quickest alone; 0: not timed alone */
    double beside;  /* the middle of what a pair took beside the others by what it took alone, */
    double doubt;   /* give or take 1.57 times the distance of the quartiles by the root of n */
};

/* Whether the way runs otherwise beside the others than alone: the quickest of both, and the pairs
 * beyond doubt, are more than 10% apart. One of the two without the other is the machine's doing.
 */
bool bench_is_off(const struct bench_result *result);

/* The exit status where a row was marked. */
#define BENCH_MARKED 3

/* What they gave for a target. */
struct bench_outcome {
    double ratio;   /* how many times as fast as the peer */
    double seconds; /* on top of the peer */
};

void bench_report_header(const char *program, const char *purpose, kiln_context *context, int argc,
                         char **argv);
/* `quiet` of the `rounds` had the machine for themselves. */
void bench_report_row(const struct bench_row *row, struct limit rows_limit,
                      const struct bench_result *results, const struct bench_outcome *outcomes,
                      size_t rounds, size_t quiet);

/* The last line, and the file if `json` names one; "-" is standard output. False if a row was
 * marked. */
bool bench_report_end(const char *json);

/* Have the kernels stored that were compiled so far: that takes cores, too. */
void bench_store(void);

/* ---- turns ---- */

/* Two processes that take turns: what asks for the rounds of both (against.py) lets one rest while
 * the other runs. On standard input a line for a round, or `next`; on standard output
 *
 *     row <tab> name <tab> way...        checked, ready for rounds
 *     round <tab> quiet <tab> seconds...
 *
 * and all else goes to standard error. */
bool bench_takes_turns(void);
void bench_turns_start(void);
void bench_turns_row(const struct bench_row *row);
bool bench_turns_wanted(void); /* one more round of the row */
void bench_turns_round(const struct bench_row *row, const double *seconds, bool quiet);
