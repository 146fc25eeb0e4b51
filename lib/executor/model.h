/* SPDX-License-Identifier: Apache-2.0 */
/* A model's batches, one of each size, with the host memory that they read and write. */
#ifndef KILN_EXECUTOR_MODEL_H
#define KILN_EXECUTOR_MODEL_H

#include <stdbool.h>

#include <kiln/executor.h>

#define KILN__MOST_ROWS ((size_t)1 << 20)
#define KILN__MOST_SIZES 21 /* 1 to 2^20, doubling */

struct kiln__part {
    kiln_row row; /* of an output: its type */
    size_t bytes; /* of a row; of an output 0 until it is known */
};

struct kiln__model {
    kiln_model_recorder record;
    void *user;
    size_t input_count, output_count;
    struct kiln__part parts[2 * KILN_MODEL_MOST]; /* inputs, then outputs */
    unsigned size_count;
    size_t sizes[KILN__MOST_SIZES]; /* rows */
};

struct kiln__region {
    void *base;
    size_t bytes;
};

/* A batch that is run again and again in the same memory. */
struct kiln__slot {
    kiln_batch *batch;
    struct kiln__region in, out;
    char *memory[2 * KILN_MODEL_MOST]; /* of each part */
};

struct kiln__slots {
    struct kiln__slot of[KILN__MOST_SIZES];
};

/* Look at what the caller says of a model. Errors: INVALID_ARGUMENT, TOO_LARGE. */
kiln_status kiln__model_check(const kiln_model *from, size_t most_rows, struct kiln__model *model);

/* Record all sizes. What is made after an error is released by kiln__slots_free(). */
kiln_status kiln__slots_record(struct kiln__slots *slots, struct kiln__model *model,
                               kiln_context *context, size_t number, bool prepare);
void kiln__slots_free(struct kiln__slots *slots);

/* The smallest size that has so many rows. */
unsigned kiln__model_size(const struct kiln__model *model, size_t rows);

#endif
