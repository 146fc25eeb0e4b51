/* SPDX-License-Identifier: Apache-2.0 */
/* Training a network on the digits: what the two training examples share. */
#ifndef EXAMPLES_DIGITS_TRAIN_H
#define EXAMPLES_DIGITS_TRAIN_H

#include <kiln/kiln.h>

#include "digits_data.h"

#define DIGIT_CLASSES 10

/* The usual split: the last 360 of 1,797 digits, by other writers, are the test. */
#define TEST_ROWS 360

#define MOST_PARAMETERS 8
#define MOST_EPOCHS 200

struct network {
    const char *name;
    size_t n;
    struct {
        size_t rank, dims[4];
        size_t inputs; /* of one output: the scale of its first values; 0: they are zeros */
    } parameters[MOST_PARAMETERS];
    /* Pixels from 0 to 1, [rows, DIGIT_PIXELS], to logits, [rows, DIGIT_CLASSES], in f32; what goes
     * from layer to layer is stored as `type`. */
    kiln_tensor (*forward)(kiln_batch *batch, kiln_tensor pixels, const kiln_tensor *parameters,
                           size_t rows, kiln_type type);
};

/* 64 pixels, 128 hidden units with relu, 10 logits. */
extern const struct network digits_two_layers;

struct training {
    unsigned epochs; /* at most MOST_EPOCHS */
    double learning_rate;
    double weight_decay;
    /* Of weights and activations in memory; all are computed with in f32. I8: of weights after
     * training in f32. */
    kiln_type type;
    kiln_buffer **trained; /* where the parameters are left, the caller's then; NULL: released */
    const char *save;      /* a file to leave all in that training goes on from, or NULL */
    const char *resume;    /* such a file to go on from, or NULL */
    unsigned stop;         /* after so many epochs; 0: after all */
};

struct outcome {
    size_t right;        /* of TEST_ROWS */
    double seconds;      /* the first compilation of kernels among them */
    double step_seconds; /* mean of a training step in the fastest epoch */
    double test_seconds; /* of all test rows at once, the fastest of a few runs */
    size_t parameter_bytes;
    size_t state_bytes;        /* of the optimiser */
    uint64_t peak_bytes;       /* most that a step needs besides */
    uint64_t test_peak_bytes;  /* the same of the test */
    unsigned epochs;           /* that it has had */
    float losses[MOST_EPOCHS]; /* mean of each */
    int planned_again;         /* something was planned or compiled after the first step */
};

/* Train, telling every tenth epoch, then classify the test rows. Ends the process on an error. */
void digits_train(kiln_context *context, const struct digits *digits, const struct network *network,
                  const struct training *training, struct outcome *outcome);

/* Print the losses as a curve of characters. */
void digits_print_curve(const float *losses, unsigned count);

/* Read the digits and make a context; the command line names the device, and the type and files
 * in `training`. Ends the process on an error. */
kiln_context *digits_begin(const char *program, int argc, char **argv, struct digits *digits,
                           struct training *training);

#endif
