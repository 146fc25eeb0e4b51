/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Recurrent layers: the inputs' products are one product for all steps. On CPUs one kernel then
 *  takes all steps, each sequence in one work-item: of up to 2^19 weights of the state in a
 *  direction, of sigmoid, tanh and relu, the same ones in both directions, and where products are
 *  not narrow. Otherwise, in validated contexts, and wherever a gradient goes through, each step is
 *  recorded: a product of the state and one kernel for its gates. Micro-batches do not cut the
 *  kernel: sequences of a batch that runs out of memory stay together.
 *
 *  For all of them: the result belongs to the batch; one thread at a time; errors are sticky:
 *  INVALID_HANDLE, INVALID_ARGUMENT, SHAPE_MISMATCH, TYPE_MISMATCH, TOO_LARGE (more than 16,384
 *  steps), OUT_OF_HOST_MEMORY. */
#ifndef KILN_RECURRENT_H
#define KILN_RECURRENT_H

#include <kiln/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Which way a layer goes through the steps. */
typedef enum kiln_direction {
    KILN_FORWARD,
    KILN_REVERSE,
    KILN_BIDIRECTIONAL /**< both: D = 2, forward first */
} kiln_direction;

/** In which order the gates' rows of weights and biases follow each other. */
typedef enum kiln_gates {
    KILN_GATES_ONNX,   /**< LSTM: input, output, forget, cell; GRU: update, reset, hidden */
    KILN_GATES_PYTORCH /**< LSTM: input, forget, cell, output; GRU: reset, update, hidden */
} kiln_gates;

/** Operands and options of a layer with T steps, B sequences, I inputs and H hidden values in D
 *  directions; G gates are 1 of an RNN, 3 of a GRU, 4 of an LSTM. Start from KILN_RECURRENT_INIT;
 *  what may be {0} is left out. Tensors are f32. */
typedef struct kiln_recurrent {
    size_t size;          /**< sizeof(kiln_recurrent), set by the initialiser */
    kiln_tensor x;        /**< [T,B,I] */
    kiln_tensor w;        /**< [D,G*H,I], of the inputs */
    kiln_tensor r;        /**< [D,G*H,H], of the state */
    kiln_tensor bias;     /**< [D,2*G*H], beside w and then beside r; or {0} */
    kiln_tensor h;        /**< [D,B,H], the state before the first step; {0}: zeros */
    kiln_tensor c;        /**< the same of an LSTM's cells */
    kiln_tensor peephole; /**< of an LSTM, [D,3*H]: of input, output and forget gate; or {0} */
    kiln_tensor lengths;  /**< [B] integers: steps of each sequence; {0}: all. Results behind them
                               are 0, and the state stays */
    kiln_direction direction; /**< which way the steps go */
    kiln_gates gates;         /**< in which order the gates are in w, r and bias */
    double clip;              /**< gates' sums are cut to -clip to clip; 0: not */
    int linear_before_reset;  /**< of a GRU: the reset gate multiplies the state's product, as
                                   PyTorch's, not the state */
    int input_forget;         /**< of an LSTM: the forget gate is 1 - the input gate */
    /** Of each direction the functions of an RNN (f), GRU (f, g) or LSTM (f, g, h), such as
     *  kiln_relu; NULL: tanh of an RNN, else sigmoid for f and tanh for g and h. */
    kiln_tensor (*activation[2][3])(kiln_batch *batch, kiln_tensor x);
} kiln_recurrent;

/** Everything left out, forward. */
#define KILN_RECURRENT_INIT                                                                        \
    {                                                                                              \
        sizeof(kiln_recurrent), {0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}, KILN_FORWARD,              \
            KILN_GATES_ONNX, 0, 0, 0,                                                              \
        {                                                                                          \
            {                                                                                      \
                0                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }

/** Fill a structure as KILN_RECURRENT_INIT does. NULL does nothing. Threads: any. Errors: none. */
KILN_API void kiln_recurrent_init(kiln_recurrent *layer, size_t size);
#define kiln_recurrent_init(...) kiln_recurrent_init(__VA_ARGS__, sizeof(kiln_recurrent))

/** h = f(x w' + h r' + bias) in each step. Returns all h, [T,D,B,H]; where `last` is not NULL it
 *  receives the states after the last step, [D,B,H]. */
KILN_API kiln_tensor kiln_rnn(kiln_batch *batch, const kiln_recurrent *layer, kiln_tensor *last);

/** A gated recurrent unit (Cho et al. 2014): with gates z and r by f and a candidate by g,
 *  h = (1 - z) * g(...) + z * h. As kiln_rnn() otherwise. */
KILN_API kiln_tensor kiln_gru(kiln_batch *batch, const kiln_recurrent *layer, kiln_tensor *last);

/** Long short-term memory (Hochreiter and Schmidhuber 1997): with gates i, o, f by f and a
 * candidate by g, c = f * c + i * g(...), h = o * h(c). As kiln_rnn() otherwise; `last_c` receives
 * the cells.
 */
KILN_API kiln_tensor kiln_lstm(kiln_batch *batch, const kiln_recurrent *layer, kiln_tensor *last,
                               kiln_tensor *last_c);

#ifdef __cplusplus
}
#endif

#endif
