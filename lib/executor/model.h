/* SPDX-License-Identifier: Apache-2.0 */
/* A model's batches, one of each size, with the host memory that they read and write. */
#pragma once

#include <stdbool.h>

#include <kiln/executor.h>

#define KILN__MOST_ROWS ((size_t)1 << 20)
#define KILN__MOST_LENGTH ((size_t)1 << 18)
#define KILN__MOST_LENGTHS 32                      /* 8 to 2^18, doubling, and between */
#define KILN__MOST_SIZES (20 * KILN__MOST_LENGTHS) /* 2 to 2^20 rows, doubling, of each length */

struct kiln__model_part {
    kiln_row row; /* of an output: its type, and whether it is a sequence */
    size_t bytes; /* of a row, or of an element of a sequence; of an output 0 until it is known */
    size_t known; /* of an output: at which length; 0: for all */
};

/* Of a batch. */
struct kiln__batch_size {
    size_t rows, length; /* 0: rows have none */
};

struct kiln__model {
    kiln_model_recorder record;
    void *user;
    kiln_precision precision;
    size_t input_count, output_count;
    struct kiln__model_part parts[2 * KILN_MODEL_MOST]; /* inputs, then outputs */
    size_t longest;                                     /* 0: rows have no length */
    unsigned size_count, length_count;
    /* size_count of each length, lengths ascending; where fewer rows are the most, the last again
     */
    struct kiln__batch_size sizes[KILN__MOST_SIZES];
};

struct kiln__region {
    void *base;
    size_t bytes;
    kiln_context *context; /* whose device reads and writes it at full speed; NULL: pages */
    bool met;              /* nothing undefined is in it */
};

/* A batch that is run again and again in the same memory. Rows of nobody are those of earlier
 * batches, or zeros. */
struct kiln__batch_slot {
    kiln_batch *batch;
    struct kiln__region in, out;
    char *memory[2 * KILN_MODEL_MOST]; /* of each part */
    int32_t *lengths;                  /* of each row, if rows have one */
};

struct kiln__slots {
    struct kiln__batch_slot of[KILN__MOST_SIZES];
};

/* The row of an input, of a model that was read. Errors: those of kiln__structure_take(). */
kiln_status kiln__model_row(const char *asks, const kiln_model *model, size_t number,
                            kiln_row *row);

/* Look at what the caller says of a model. Errors: INVALID_ARGUMENT, TOO_LARGE. */
kiln_status kiln__model_check(const kiln_model *from, const kiln_executor_options *options,
                              struct kiln__model *model);

/* Record all sizes. What is made after an error is released by kiln__slots_free(). */
kiln_status kiln__slots_record(struct kiln__slots *slots, struct kiln__model *model,
                               kiln_context *context, size_t number, bool prepare);
void kiln__slots_free(struct kiln__slots *slots);

/* The same of one size, which need not be one of the model's. */
kiln_status kiln__slot_record(struct kiln__batch_slot *slot, struct kiln__model *model,
                              kiln_context *context, size_t number,
                              const struct kiln__batch_size *size);
void kiln__slot_free(struct kiln__batch_slot *slot);

/* Before rows are put there. */
void kiln__slot_meet(struct kiln__batch_slot *slot);

/* The least of the lengths that holds `length`, by number; the smallest size of it that has so many
 * rows. */
unsigned kiln__model_length(const struct kiln__model *model, size_t length);
unsigned kiln__model_size(const struct kiln__model *model, size_t rows, unsigned length);

/* The most rows of a batch for a length, by number. */
size_t kiln__model_most(const struct kiln__model *model, unsigned length);

/* What a part of a row of a length has. */
size_t kiln__part_bytes(const struct kiln__model_part *part, size_t length);
