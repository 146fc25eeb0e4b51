/* SPDX-License-Identifier: Apache-2.0 */
/* A recurrent layer whose operands have been checked: recorded step by step (recurrent.c), or on
 * CPUs as one kernel that takes all steps (recurrent_kernel.c). */
#pragma once

#include <kiln/recurrent.h>

#include "graph/custom_calls.h"
#include "record/batch.h"

#define KILN__MOST_GATES 4

/* Parts of the gates' rows: of an LSTM, of a GRU. */
enum kiln__lstm_gate { KILN__LSTM_INPUT, KILN__LSTM_OUTPUT, KILN__LSTM_FORGET, KILN__LSTM_CELL };
enum kiln__gru_gate { KILN__GRU_UPDATE, KILN__GRU_RESET, KILN__GRU_HIDDEN };

struct kiln__layer_state {
    kiln_tensor h, c; /* [1,B,H]; none: zeros */
};

struct kiln__layer;

/* What one step makes of its inputs' product [1,B,G*H] and the state. */
typedef struct kiln__layer_state kiln__layer_step(const struct kiln__layer *layer, kiln_tensor x,
                                                  struct kiln__layer_state before);

struct kiln__layer {
    kiln_batch *batch;
    const char *name;
    const kiln_recurrent *given; /* the caller's, then `own` */
    kiln_recurrent own;
    kiln__layer_step *step;
    size_t gates; /* 1: RNN, 3: GRU, 4: LSTM */
    size_t steps, sequences, inputs, hidden, directions;
    const uint8_t *order; /* of gates */
    /* of the direction at hand */
    kiln_tensor r, r_bias, peephole; /* [1,G*H,H]; [1,G*H] and [1,3*H] or none */
    kiln_tensor (*activation[3])(kiln_batch *batch, kiln_tensor x);
};

/* [T,D,B,H], [D,B,H] and of an LSTM [D,B,H]. */
struct kiln__layer_results {
    kiln_tensor y, last, cells;
};

/* The functions of a direction, those by default among them, into `activation`. */
void kiln__layer_functions(struct kiln__layer *layer, size_t direction);

/* Record it step by step, whatever else could be. */
void kiln__layer_steps(struct kiln__layer *layer, struct kiln__layer_results *results);

/* Record it as one kernel; false, and nothing is recorded, where none is faster, or could say what
 * its functions are. What is computed does not depend on how many sequences there are. */
bool kiln__layer_in_kernel(struct kiln__layer *layer, struct kiln__layer_results *results);

/* The kernel on the host, from the same inputs, in float64. */
void kiln__layer_host(const kiln_array *inputs, const kiln_array *outputs, const double *scalars,
                      void *user);

/* The same, sums and states rounded to f32. */
void kiln__layer_host_rounded(const kiln_array *inputs, const kiln_array *outputs,
                              const double *scalars, void *user);

/* What it goes by. */
enum kiln__layer_scalar {
    KILN__LAYER_GATES,
    KILN__LAYER_VECTOR,
    KILN__LAYER_HIDDEN,
    KILN__LAYER_ORDER,     /* 4 bits for each gate */
    KILN__LAYER_HAS,       /* bits: enum kiln__layer_operand */
    KILN__LAYER_FUNCTIONS, /* a byte for each: enum kiln__elementwise */
    KILN__LAYER_BACKWARDS, /* bit d: direction d */
    KILN__LAYER_CLIP,      /* 0: not */
    KILN__LAYER_LINEAR,
    KILN__LAYER_COUPLED
};

/* Inputs of the kernel, in its order; those from BEFORE on where they are there. */
enum kiln__layer_operand {
    KILN__LAYER_X,
    KILN__LAYER_R,
    KILN__LAYER_BEFORE,
    KILN__LAYER_CELLS,
    KILN__LAYER_BIAS,
    KILN__LAYER_PEEPHOLE,
    KILN__LAYER_LENGTHS,
    KILN__LAYER_OPERANDS
};
