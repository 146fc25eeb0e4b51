/* SPDX-License-Identifier: Apache-2.0 */
/* A context on the device that $KILN_DEVICE names, and data for it. */
#pragma once

#include <stdbool.h>

#include <kiln/kiln.h>

/* Skips the test where there is no device. */
kiln_context *open_context(void);
kiln_context *open_context_with(const kiln_context_options *options);

/* Fails the test if something still holds the context. */
void close_context(kiln_context *context);

/* Fail the test with the sentence unless the call went well. */
void expect_ok(kiln_status status);

/* Execute, expect success. */
void run_batch(kiln_batch *batch);

/* A sentence without the number of the call that it names, which tests of one call say nothing
 * about. Lasts until the thread's next one. */
const char *without_call(const char *sentence);

/* A status and the whole sentence that goes with it, but for that number. */
void expect_error(kiln_status status, kiln_status wanted, const char *sentence);
void expect_error_part(kiln_status status, kiln_status wanted, const char *part);

/* Small whole numbers, so that sums and products are exact in f32. */
void fill(float *values, size_t count, unsigned seed);

kiln_context_stats stats_of(const kiln_context *context);
kiln_batch_cost cost_of(kiln_batch *batch);

/* Whether the batch's explanation has this part. */
bool explains(kiln_batch *batch, const char *part);

/* A product of the batch is done by this implementation: a wish falls back where it cannot be met.
 * "" is any. */
void expect_product_by(kiln_batch *batch, const char *name);

/* A buffer with a content, and the content of one. */
kiln_buffer *make_buffer(kiln_context *context, size_t n, const float *content);
void expect_buffer(kiln_buffer *buffer, size_t n, const float *content);
