/* SPDX-License-Identifier: Apache-2.0 */
/* The device against the reference. A batch made here owns the memory that goes in and comes out;
 * check_run() compares everything that was asked for. */
#pragma once

#include <stdbool.h>

#include <kiln/elementwise.h>
#include <kiln/kiln.h>
#include <kiln/reductions.h>

#include "context.h"

/* A rank and its dimensions, as two arguments. */
#define DIMS(...) sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t), ((size_t[]){__VA_ARGS__})
#define SCALAR 0, NULL

/* What inputs hold. */
enum check_values {
    CHECK_PLAIN,    /* -4 to 4; integers -100 to 100, u8 0 to 255 */
    CHECK_POSITIVE, /* 0.25 to 4; integers 1 to 100 */
    CHECK_WIDE,     /* f32 of every exponent and sign, integers of the whole range */
    CHECK_SPECIAL,  /* infinities, NaN, zeros, denormals, limits among others; integer limits */
    CHECK_FEW       /* whole numbers of which many are equal */
};

/* The same context at each call; closed by check_close(), which fails if more than a tenth of what
 * was compared had no bound, or nearly all results of one operation: random batches, which may have
 * few of an operation, are closed by check_close_random(). */
kiln_context *check_context(void);
void check_close(void);
void check_close_random(void);

/* The same one, which prefers an implementation of products to others ("": none). The test ends if
 * that is one `of_cpus` and the device is none. */
void check_prefer(const char *matmul, bool of_cpus);

/* PoCL compiles without optimising, in half of the time or less: before the first OpenCL call. */
void check_cheaply(void);

/* Whether check_context() was called, and not yet closed. */
bool check_is_open(void);

/* What flushing denormals may change: 0 on a device that has them. */
double check_denormal(void);

/* A number for an element of an input. */
double check_value(kiln_type type, enum check_values values);

kiln_batch *check_begin(void);
void check_end(kiln_batch *batch);

/* Inputs: filled, and copied from `data`. */
kiln_tensor check_input(kiln_batch *batch, kiln_type type, size_t rank, const size_t *dims,
                        enum check_values values);
kiln_tensor check_plain(kiln_batch *batch, size_t rank, const size_t *dims);    /* of f32 */
kiln_tensor check_positive(kiln_batch *batch, size_t rank, const size_t *dims); /* of f32 */
kiln_tensor check_given(kiln_batch *batch, kiln_type type, size_t rank, const size_t *dims,
                        const void *data);

/* Ask for a tensor. Its memory lives until check_end(). */
void *check_read(kiln_batch *batch, kiln_tensor tensor);

/* Run twice: every result is within its bound, the second run has the same bits, and nothing
 * beyond a result has been written. Failures name the element and show the graph; false then. */
bool check_run(kiln_batch *batch);

/* One result of one batch: read, run, end. */
void check_tensor(kiln_batch *batch, kiln_tensor tensor);

/* Rows by their number. Where a row takes numbers, check_number(type, 0) and (type, 1) are given.
 */
double check_number(kiln_type type, unsigned which);
kiln_tensor check_elementwise(kiln_batch *batch, unsigned op, const kiln_tensor *operands);
kiln_tensor check_reduction(kiln_batch *batch, unsigned op, kiln_tensor x, size_t n_axes,
                            const int *axes, int keep_dims);

/* A number of a sequence that is the same on every machine. */
uint32_t check_random(uint32_t below);
void check_seed(uint64_t seed);

/* The batch failed with this status and sentence. Ends it. */
void check_refusal(kiln_batch *batch, kiln_status status, const char *sentence);

/* The call records nothing in the batch `b`, which it is given, but an error with these words. */
#define CHECK_REFUSED(call, status, part)                                                          \
    do {                                                                                           \
        kiln_batch *b = check_begin();                                                             \
        cr_expect_eq((call).id, 0u);                                                               \
        cr_expect_eq(kiln_batch_status(b), status);                                                \
        cr_expect(strstr(without_call(kiln_batch_error(b)), part), "%s", kiln_batch_error(b));     \
        check_end(b);                                                                              \
    } while (0)
