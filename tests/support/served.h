/* SPDX-License-Identifier: Apache-2.0 */
/* An executor for tests, whose model adds up each row of WIDTH numbers, and a device that can be
 * held up. */
#pragma once

#include <stdbool.h>

#include <kiln/opencl.h>

enum { SERVED_WIDTH = 8 };

/* The sums of rows; no weights, one kernel. */
extern const kiln_model served_model;

/* Options for tests that say when a batch goes out: nothing goes for waiting within an hour. */
kiln_executor_options served_options(size_t max_batch, size_t min_batch, uint64_t max_wait_us);
kiln_executor *served_create(kiln_context *context, const kiln_executor_options *options);
void served_end(kiln_executor *executor, kiln_context *context);
kiln_executor_stats served_stats(kiln_executor *executor);

/* Submit `rows` rows at x, for sums in y, and expect that they are taken. */
kiln_future *served_submit(kiln_executor *executor, const float *x, float *y, size_t rows,
                           const kiln_request_options *options);
kiln_status served_try(kiln_executor *executor, const float *x, float *y, size_t rows,
                       const kiln_request_options *options, kiln_future **future);

/* Fill rows with small whole numbers; whether the sums are theirs. */
void served_fill(float *x, size_t rows, unsigned seed);
bool served_right(const float *x, const float *y, size_t rows);

/* Until so many requests are in batches: false after five minutes or more. */
bool served_running(kiln_executor *executor, uint64_t requests);

/* What is enqueued from now on waits; until the gate is opened. */
cl_event gate_close(kiln_context *context);
void gate_open(cl_event gate);
