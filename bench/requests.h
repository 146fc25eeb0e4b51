/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that many threads ask for, through an executor and by hand. A row has 64 numbers, and so has
 * its result: relu(row W), or a network of three such layers, 256 or 512 wide in the middle. */
#pragma once

#include "bench.h"

enum {
    REQUESTS_WIDTH = 64,
    REQUESTS_MOST_THREADS = 32,
    REQUESTS_MOST_AHEAD = 256,
    REQUESTS_MOST_ROWS = 16384,
};

enum requests_model { REQUESTS_LAYER, REQUESTS_NETWORK, REQUESTS_WIDE };

/* How the threads ask, all at once: each waits for an answer when so many are under way. */
struct requests_load {
    enum requests_model model;
    unsigned threads, ahead;
    size_t rows;  /* of a request */
    size_t total; /* requests of all threads in a run */
};

/* One way to serve a load. */
struct requests_way {
    const struct requests_load *load;
    kiln_executor *executor;
    size_t batch;   /* rows, of what is formed by hand */
    double seconds; /* a request of the last run */
    size_t served;  /* rows of the last run */
};

void requests_start(kiln_context *context);
void requests_end(void);

/* A model's executor; the kernels are compiled. */
kiln_executor *requests_executor(enum requests_model model, kiln_executor_options options);

/* "a layer", and how many rows there are of it. */
const char *requests_name(enum requests_model model);
size_t requests_rows(enum requests_model model);

/* One request for rows from this one on. */
kiln_future *requests_submit(kiln_executor *executor, size_t first, size_t rows);
void requests_settle(kiln_future *future);

/* What bench_way() wants; `way` is a struct requests_way. */
void requests_run_executor(void *way);
void requests_run_calls(void *way);  /* each records and runs a batch of its own */
void requests_run_locked(void *way); /* a mutex and a kept batch of a request */
void requests_run_loop(void *way);   /* a thread runs what has gathered, with condition variables */
void requests_run_formed(void *way); /* nobody to wait for, nothing to gather */
double requests_seconds(void *way);
bool requests_check(void *way);
