/* SPDX-License-Identifier: Apache-2.0 */
/* Peers that are programs: libraries for other languages. A peer reads lines and answers each:
 *
 *     (its start)                              "ok", once it could load its library
 *     row NAME FILE INPUTS SHAPE... COUNT      "ok" and its modes (eager, compiled, ...), or "no"
 *                                              if it has no such operation
 *     run MODE                                 the seconds that one run took
 *     result MODE                              "ok": the results are in FILE
 *     check TOLERANCE                          "ok" if the results in FILE are those that it has in
 *                                              double precision, "no" if it has none, else what
 *                                              is wrong
 *
 * A SHAPE is a type, a rank and its dimensions. FILE holds the inputs, f32, one after the other,
 * and behind them room for COUNT results; the peer makes them what their types say.
 *
 * A peer is stopped, its children with it, while nothing is asked of it: threads that wait for work
 * by spinning then take nothing from the others. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <kiln/types.h>

#define PROCESS_MODES 4

struct process;

struct process_shape {
    kiln_type type; /* 0: f32 */
    size_t rank, dims[4];
};

size_t process_count(const struct process_shape *shape); /* elements */

/* " INPUTS SHAPE..." */
void process_describe(size_t input_count, const struct process_shape *shapes, char *text,
                      size_t size);

/* ---- the file that a row's data is in, of all peers ---- */

/* Room for inputs and results, which is there until the next call. NULL and 0 release it. */
float *process_share(size_t input_count, size_t result_count);
float *process_results(void);

/* ---- a peer ---- */

/* Start `arguments` (NULL at the end; arguments[0] is the program). NULL if it does not start or
 * has no library to offer, which is no error. */
struct process *process_start(const char *const *arguments);

/* Whether it can do the row, whose inputs are shared. */
bool process_take(struct process *process, const char *name, size_t input_count,
                  const struct process_shape *shapes, size_t result_count);

/* How the peer can run it; NULL from the end on. */
const char *process_mode(const struct process *process, size_t mode);

/* Seconds of one run. */
double process_run(struct process *process, size_t mode);

/* Have the results of its last run shared. */
void process_result(struct process *process, size_t mode);

/* What is wrong with the shared results: NULL if nothing is, or if it cannot tell (*known). The
 * text lasts until the next call. */
const char *process_check(struct process *process, double tolerance, bool *known);

/* Freeze every process that came from this one, in whatever group it is now, but for those of
 * `process` (NULL: none), and let go on what was frozen. That is another way than the one by which
 * peers are stopped, so that the one can be held to the other. */
void process_freeze_others(const struct process *process);
void process_thaw_others(void);

void process_end(struct process *process);
