/* SPDX-License-Identifier: Apache-2.0 */
/* Peers that are programs: libraries for other languages. A peer reads lines and answers each:
 *
 *     (its start)                              "ok", once it could load its library
 *     row NAME FILE INPUTS SHAPE... COUNT      "ok", or "no" if it has no such operation
 *     run                                      the seconds that one run took
 *     result                                   "ok": the results are in FILE
 *
 * A SHAPE is a rank and its dimensions. FILE holds the inputs, f32, one after the other, and behind
 * them room for COUNT results. */
#ifndef KILN_BENCH_PROCESS_H
#define KILN_BENCH_PROCESS_H

#include <stdbool.h>
#include <stddef.h>

struct process;

struct process_shape {
    size_t rank, dims[4];
};

/* Start `arguments` (NULL at the end; arguments[0] is the program). NULL if it does not start or
 * has no library to offer, which is no error. */
struct process *process_start(const char *const *arguments);

/* Whether it can do the row; its inputs are copied there. */
bool process_take(struct process *process, const char *name, size_t input_count,
                  const struct process_shape *shapes, const float *const *inputs,
                  size_t result_count);

/* One run; how long it took. */
void process_run(struct process *process);
double process_seconds(const struct process *process);

/* The results of the last run; owned by the process, until its next row. */
const float *process_result(struct process *process);

void process_end(struct process *process);

#endif
