/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels/recurrent_cpu.cl computes, by the host in float64: the reference of graphs that have
 * it, by the formulas alone. */
#include <math.h>
#include <stdlib.h>

#include "nn/recurrent.h"
#include "ops/ops.h"

struct host {
    const double *scalars;
    bool rounds;
    const float *operand[KILN__LAYER_OPERANDS];
    const int *lengths;
    float *y, *last, *cells;
    size_t steps, sequences, directions, gates, vector, hidden, width;
    /* of a sequence in a direction */
    size_t d, b;
    double *h, *c, *reset, *next; /* [width] */
};

static double function(const struct host *host, unsigned which, double x)
{
    const unsigned op = ((unsigned)host->scalars[KILN__LAYER_FUNCTIONS] >> 8 * which) & 0xff;
    const double clip = host->scalars[KILN__LAYER_CLIP];
    x = clip > 0 && x < -clip ? -clip : clip > 0 && x > clip ? clip : x;
    return op == KILN__OP_sigmoid ? 1 / (1 + exp(-x))
           : op == KILN__OP_tanh  ? tanh(x)
                                  : (x < 0 ? 0 : x);
}

/* What a register or memory keeps of it. */
static double as_stored(const struct host *host, double x)
{
    return host->rounds ? (double)(float)x : x;
}

/* Where rows of a gate are. */
static size_t gate_row(const struct host *host, unsigned gate)
{
    return ((unsigned)host->scalars[KILN__LAYER_ORDER] >> 4 * gate) & 0xf;
}

/* The state's product with row j of a gate, [D,W/L,H,G,L]. */
static double recur(const struct host *host, unsigned gate, size_t j, const double *state)
{
    const size_t tile = j / host->vector, lane = j % host->vector;
    const float *r = host->operand[KILN__LAYER_R] +
                     (host->d * host->width + tile * host->vector) * host->hidden * host->gates;
    double sum = 0;
    for (size_t k = 0; k < host->hidden; k++)
        sum = as_stored(
            host,
            sum + state[k] * r[(k * host->gates + gate_row(host, gate)) * host->vector + lane]);
    return sum;
}

static double of_x(const struct host *host, size_t t, unsigned gate, size_t j)
{
    const size_t row = (t * host->sequences + host->b) * host->directions + host->d;
    return host
        ->operand[KILN__LAYER_X][(row * host->gates + gate_row(host, gate)) * host->width + j];
}

static double sum(const struct host *host, size_t t, unsigned gate, size_t j)
{
    return as_stored(host, of_x(host, t, gate, j) + recur(host, gate, j, host->h));
}

static double peep(const struct host *host, unsigned part, size_t j, double cell)
{
    const float *peephole = host->operand[KILN__LAYER_PEEPHOLE];
    return peephole ? peephole[(host->d * 3 + part) * host->width + j] * cell : 0;
}

static double step_lstm(const struct host *host, size_t t, size_t j)
{
    const double cell = host->c[j];
    const double input = function(
        host, 0, sum(host, t, KILN__LSTM_INPUT, j) + peep(host, KILN__LSTM_INPUT, j, cell));
    const double forget =
        host->scalars[KILN__LAYER_COUPLED] != 0
            ? 1 - input
            : function(host, 0,
                       sum(host, t, KILN__LSTM_FORGET, j) + peep(host, KILN__LSTM_FORGET, j, cell));
    const double now = input * function(host, 1, sum(host, t, KILN__LSTM_CELL, j)) + forget * cell;
    host->c[j] = as_stored(host, now);
    /* The last function is not cut. */
    const unsigned op = (unsigned)host->scalars[KILN__LAYER_FUNCTIONS] >> 16;
    const double seen = op == KILN__OP_sigmoid ? 1 / (1 + exp(-now))
                        : op == KILN__OP_tanh  ? tanh(now)
                                               : (now < 0 ? 0 : now);
    return function(host, 0,
                    sum(host, t, KILN__LSTM_OUTPUT, j) + peep(host, KILN__LSTM_OUTPUT, j, now)) *
           seen;
}

static double step_gru(const struct host *host, size_t t, size_t j)
{
    const bool linear = host->scalars[KILN__LAYER_LINEAR] != 0;
    const double update = function(host, 0, sum(host, t, KILN__GRU_UPDATE, j));
    const float *bias = host->operand[KILN__LAYER_BIAS];
    double of_h = recur(host, KILN__GRU_HIDDEN, j, linear ? host->h : host->reset);
    if (linear)
        of_h = function(host, 0, sum(host, t, KILN__GRU_RESET, j)) *
               (of_h + (bias ? bias[host->d * host->width + j] : 0));
    return (1 - update) * function(host, 1, of_x(host, t, KILN__GRU_HIDDEN, j) + of_h) +
           update * host->h[j];
}

static void take_step(const struct host *host, size_t t)
{
    const bool resets = host->gates == 3 && host->scalars[KILN__LAYER_LINEAR] == 0;
    for (size_t j = 0; j < host->width && resets; j++)
        host->reset[j] = function(host, 0, sum(host, t, KILN__GRU_RESET, j)) * host->h[j];
    for (size_t j = 0; j < host->width; j++)
        host->next[j] = host->gates == 4   ? step_lstm(host, t, j)
                        : host->gates == 3 ? step_gru(host, t, j)
                                           : function(host, 0, sum(host, t, 0, j));
}

static void take_sequence(const struct host *host)
{
    const size_t row = (host->d * host->sequences + host->b) * host->width;
    const bool backwards = ((unsigned)host->scalars[KILN__LAYER_BACKWARDS] >> host->d) & 1;
    const float *before = host->operand[KILN__LAYER_BEFORE],
                *cells = host->operand[KILN__LAYER_CELLS];
    for (size_t j = 0; j < host->width; j++) {
        host->h[j] = before ? before[row + j] : 0;
        host->c[j] = cells ? cells[row + j] : 0;
    }
    for (size_t i = 0; i < host->steps; i++) {
        const size_t t = backwards ? host->steps - 1 - i : i;
        if (host->lengths && (int64_t)t >= host->lengths[host->b])
            continue;
        take_step(host, t);
        for (size_t j = 0; j < host->width; j++) {
            host->h[j] = as_stored(host, host->next[j]);
            host->y[t * host->directions * host->sequences * host->width + row + j] =
                (float)host->h[j];
        }
    }
    for (size_t j = 0; j < host->width; j++) {
        host->last[row + j] = (float)host->h[j];
        if (host->gates == 4)
            host->cells[row + j] = (float)host->c[j];
    }
}

/* Outputs are zeros at first. */
static void compute(const kiln_array *inputs, const kiln_array *outputs, const double *scalars,
                    bool rounds)
{
    struct host host = {.scalars = scalars, .rounds = rounds};
    size_t k = 0;
    for (unsigned what = 0; what < KILN__LAYER_LENGTHS; what++)
        if ((unsigned)scalars[KILN__LAYER_HAS] >> what & 1)
            host.operand[what] = inputs[k++].data;
    if ((unsigned)scalars[KILN__LAYER_HAS] >> KILN__LAYER_LENGTHS & 1)
        host.lengths = inputs[k].data;
    host.y = outputs[0].data;
    host.last = outputs[1].data;
    host.gates = (size_t)scalars[KILN__LAYER_GATES];
    host.cells = host.gates == 4 ? outputs[2].data : NULL;
    host.vector = (size_t)scalars[KILN__LAYER_VECTOR];
    host.hidden = (size_t)scalars[KILN__LAYER_HIDDEN];
    host.steps = outputs[0].dims[0];
    host.directions = outputs[0].dims[1];
    host.sequences = outputs[0].dims[2];
    host.width = outputs[0].dims[3];
    double *memory = calloc(4 * host.width + 1, sizeof *memory);
    if (!memory)
        return;
    host.h = memory;
    host.c = memory + host.width;
    host.reset = memory + 2 * host.width;
    host.next = memory + 3 * host.width;
    for (host.d = 0; host.d < host.directions; host.d++)
        for (host.b = 0; host.b < host.sequences; host.b++)
            take_sequence(&host);
    free(memory);
}

void kiln__layer_host(const kiln_array *inputs, const kiln_array *outputs, const double *scalars,
                      void *user)
{
    (void)user;
    compute(inputs, outputs, scalars, false);
}

void kiln__layer_host_rounded(const kiln_array *inputs, const kiln_array *outputs,
                              const double *scalars, void *user)
{
    (void)user;
    compute(inputs, outputs, scalars, true);
}
