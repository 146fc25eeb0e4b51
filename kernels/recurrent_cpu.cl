/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recurrent layer in float for CPUs: an item takes SEQUENCES sequences or fewer through all steps
 * in one direction, so that a step costs no launch, and the state's weights are read once for each
 * SEQUENCES of them.
 *
 *     args    x, r, before, cells, bias, peephole, lengths (those that are there: READ_PARAMETERS),
 *             y, last, kept (KEPT_PARAMETERS: last cells of GATES 4, what a reset gate leaves of the
 *             states of GATES 3 without LINEAR): each memory and offset; steps, sequences, hidden, width, backwards (bit d: direction d goes backwards), clip
 *     global  ceil(sequences / SEQUENCES), directions, 1                    local  1, 1, 1
 *
 * width is hidden up to a multiple of VECTOR; what is beyond hidden is computed and never used.
 * x [steps, sequences, directions, gates, width] has the inputs' products with their biases, r
 * [directions, width / VECTOR, hidden, gates, VECTOR] the state's weights; before, cells
 * [directions, sequences, width] the state at first, or (without BEFORE, CELLS) zeros; bias
 * [directions, width] is what a GRU's reset gate multiplies, too (BIAS), peephole [directions, 3,
 * width] (PEEPHOLE); lengths [sequences] are int (LENGTHS). y [steps, directions, sequences, width], the
 * others [directions, sequences, width].
 *
 * A sum has its terms in the order of the state's elements, whatever the other sequences are: a
 * sequence has the same bits alone and in company.
 *
 * Before this text stand ACT_F, ACT_G, ACT_H, the functions of a vector; AT_0 to AT_3, the places of
 * input, output, forget gate and cell or of update and reset gate and candidate; CLIP (sums are cut),
 * COUPLED (the forget gate is 1 - the input gate), LINEAR (linear_before_reset).
 */
#ifndef VECTOR
#define VECTOR 16
#endif
#ifndef GATES
#define GATES 4
#define SEQUENCES 2
#define ACT_F(x) (1 / (1 + exp(-(x))))
#define ACT_G(x) tanh(x)
#define ACT_H(x) tanh(x)
#define AT_0 0
#define AT_1 1
#define AT_2 2
#define AT_3 3
#define PEEPHOLE
#define READ_PARAMETERS , __global const float *peephole, const long peephole_offset
#define KEPT_PARAMETERS , __global float *kept, const long kept_offset
#endif
#include "cpu_vector.h"

#ifndef PICK_VECTOR
#define PICK_VECTOR(mask, x, y) select((y), (x), (mask))
#endif
#ifdef CLIP
#define CUT(x) PICK_VECTOR((x) < -clip, (vector)(-clip), PICK_VECTOR((x) > clip, (vector)(clip), x))
#else
#define CUT(x) (x)
#endif
#if GATES == 3 && !defined LINEAR
#define RESET AT_1
#endif
#define RELU(x) PICK_VECTOR((x) < 0, (vector)(0), x)

/* Vectors of hidden values at once: one alone is too few sums to be added to by turns. */
#define TILES(sequences) ((sequences) * GATES < 8 ? 2 : 1)

/* Sums of gates `from` to `to` for vectors `tile` on. */
INLINE void add_products(__global const float *r, long tile, long hidden,
                         __global const float *const *states, const int sequences, const int tiles,
                         const int from, const int to, vector sums[2][SEQUENCES][GATES])
{
    r += tile * hidden * (GATES * VECTOR);
    const long apart = hidden * (GATES * VECTOR);
#pragma unroll
    for (int u = 0; u < tiles; u++)
#pragma unroll
        for (int s = 0; s < sequences; s++)
#pragma unroll
            for (int g = from; g < to; g++)
                sums[u][s][g] = 0;
    for (long k = 0; k < hidden; k++)
#pragma unroll
        for (int u = 0; u < tiles; u++)
#pragma unroll
            for (int g = from; g < to; g++) {
                const vector weights = LOAD(0, __global, r + u * apart + (k * GATES + g) * VECTOR);
#pragma unroll
                for (int s = 0; s < sequences; s++)
                    sums[u][s][g] = ADD_PRODUCT((vector)(states[s][k]), weights, sums[u][s][g]);
            }
}

/* What an item goes by: of its direction, and of its first sequence. */
struct place {
    __global const float *x, *r, *bias, *peephole;
    __global float *y, *last, *cells, *reset;
    long x_row, x_step, y_step, steps, hidden, width;
    bool backwards;
    float clip;
};

#define OF_X(at) LOAD(0, __global, x + (at)*place->width + j)
#define SUM(at) (OF_X(at) + sums[at])

#if GATES == 3
/* Of vector j / VECTOR. */
INLINE vector reset_of(const struct place *place, __global const float *x, long j,
                       const vector sums[GATES])
{
    const float clip = place->clip;
    return ACT_F(CUT(SUM(AT_1)));
}
#endif

#ifdef PEEPHOLE
#define SEEN(at, part, cell)                                                                       \
    ADD_PRODUCT(LOAD(0, __global, place->peephole + (part)*place->width + j), cell, SUM(at))
#else
#define SEEN(at, part, cell) SUM(at)
#endif

/* The new state; of an LSTM the cell changes where the sequence has the step. */
INLINE vector state_of(const struct place *place, __global const float *x,
                       __global const float *state, int s, long j, bool has,
                       const vector sums[GATES])
{
    const float clip = place->clip;
#if GATES == 4
    __global float *cells = place->cells + s * place->width + j;
    const vector cell = LOAD(0, __global, cells);
    const vector input = ACT_F(CUT(SEEN(AT_0, 0, cell)));
#ifdef COUPLED
    const vector forget = 1 - input;
#else
    const vector forget = ACT_F(CUT(SEEN(AT_2, 2, cell)));
#endif
    const vector now = input * ACT_G(CUT(SUM(AT_3))) + forget * cell;
    const vector output = ACT_F(CUT(SEEN(AT_1, 1, now)));
    if (has)
        STORE(now, 0, __global, cells);
    return output * ACT_H(now);
#elif GATES == 3
    const vector update = ACT_F(CUT(SUM(AT_0)));
#if defined LINEAR && defined BIAS
    const vector of_state = sums[AT_2] + LOAD(0, __global, place->bias + j);
#else
    const vector of_state = sums[AT_2];
#endif
#ifdef LINEAR
    const vector new = ACT_G(CUT(OF_X(AT_2) + reset_of(place, x, j, sums) * of_state));
#else
    const vector new = ACT_G(CUT(OF_X(AT_2) + of_state));
#endif
    return (1 - update) * new + update * LOAD(0, __global, state + j);
#else
    return ACT_F(CUT(LOAD(0, __global, x + j) + sums[0]));
#endif
}

#ifdef RESET
/* What a candidate's weights are multiplied with, where the reset gate comes before them. */
INLINE void reset_states(const struct place *place, __global const float *x,
                         __global const float *const *states, const int sequences)
{
    vector sums[2][SEQUENCES][GATES];
    for (long tile = 0; tile * VECTOR < place->width; tile++) {
        const long j = tile * VECTOR;
        add_products(place->r, tile, place->hidden, states, sequences, 1, RESET, RESET + 1, sums);
#pragma unroll
        for (int s = 0; s < sequences; s++)
            STORE(reset_of(place, x + s * place->x_row, j, sums[0][s]) *
                      LOAD(0, __global, states[s] + j),
                  0, __global, place->reset + s * place->width + j);
    }
}
#endif

/* Vectors `tile` on of all sequences: their new states, or zeros where a sequence has no such step.
 */
INLINE void take_tiles(const struct place *place, __global const float *x, __global float *y,
                       __global const float *const *states, const bool *has, long tile,
                       const int sequences, const int tiles)
{
    vector sums[2][SEQUENCES][GATES];
#if GATES == 3 && !defined LINEAR
    __global const float *reset[SEQUENCES];
#pragma unroll
    for (int s = 0; s < sequences; s++)
        reset[s] = place->reset + s * place->width;
    add_products(place->r, tile, place->hidden, states, sequences, tiles, AT_0, AT_0 + 1, sums);
    add_products(place->r, tile, place->hidden, reset, sequences, tiles, 2, 3, sums);
#else
    add_products(place->r, tile, place->hidden, states, sequences, tiles, 0, GATES, sums);
#endif
#pragma unroll
    for (int u = 0; u < tiles; u++)
#pragma unroll
        for (int s = 0; s < sequences; s++) {
            const long j = (tile + u) * VECTOR;
            const vector state = state_of(place, x + s * place->x_row, states[s], s, j, has[s],
                                          sums[u][s]);
            STORE(has[s] ? state : (vector)(0), 0, __global, y + s * place->width + j);
        }
}

/* All steps of some sequences, from number `first` of the item on. */
INLINE void take_steps(const struct place *place, __global const int *lengths, const int sequences)
{
    __global const float *states[SEQUENCES];
    bool has[SEQUENCES];
#pragma unroll
    for (int s = 0; s < sequences; s++)
        states[s] = place->last + s * place->width;
    for (long i = 0; i < place->steps; i++) {
        const long t = place->backwards ? place->steps - 1 - i : i;
        __global const float *x = place->x + t * place->x_step;
        __global float *y = place->y + t * place->y_step;
#pragma unroll
        for (int s = 0; s < sequences; s++)
            has[s] = !lengths || t < lengths[s];
#ifdef RESET
        reset_states(place, x, states, sequences);
#endif
        long tile = 0;
        for (; (tile + TILES(sequences)) * VECTOR <= place->width; tile += TILES(sequences))
            take_tiles(place, x, y, states, has, tile, sequences, TILES(sequences));
        for (; tile * VECTOR < place->width; tile++)
            take_tiles(place, x, y, states, has, tile, sequences, 1);
#pragma unroll
        for (int s = 0; s < sequences; s++)
            states[s] = has[s] ? y + s * place->width : states[s];
    }
    for (int s = 0; s < sequences; s++)
        for (long j = 0; j < place->width && place->steps; j += VECTOR)
            STORE(LOAD(0, __global, states[s] + j), 0, __global, place->last + s * place->width + j);
}

INLINE void begin(__global float *to, __global const float *from, long count)
{
    for (long j = 0; j < count; j += VECTOR)
        STORE(from ? LOAD(0, __global, from + j) : (vector)(0), 0, __global, to + j);
}

__kernel void kiln_recurrent(__global const float *x, const long x_offset, __global const float *r,
                             const long r_offset READ_PARAMETERS, __global float *y,
                             const long y_offset, __global float *last,
                             const long last_offset KEPT_PARAMETERS, const long steps,
                             const long sequences, const long hidden, const long width,
                             const int backwards, const float clip)
{
    const long first = get_global_id(0) * SEQUENCES, d = get_global_id(1);
    const long directions = get_global_size(1), row = d * sequences + first;
    const long here = min(sequences - first, (long)SEQUENCES);
    struct place place = {
        .x = x + x_offset + (first * directions + d) * GATES * width,
        .x_row = directions * GATES * width,
        .x_step = sequences * directions * GATES * width,
        .r = r + r_offset + d * width * hidden * GATES,
        .y = y + y_offset + row * width,
        .y_step = directions * sequences * width,
        .last = last + last_offset + row * width,
        .steps = steps,
        .hidden = hidden,
        .width = width,
        .backwards = backwards >> d & 1,
        .clip = clip,
    };
#ifdef BIAS
    place.bias = bias + bias_offset + d * width;
#endif
#ifdef PEEPHOLE
    place.peephole = peephole + peephole_offset + d * 3 * width;
#endif
#ifdef LENGTHS
    __global const int *ends = lengths + lengths_offset + first;
#else
    __global const int *ends = 0;
#endif
#ifdef BEFORE
    begin(place.last, before + before_offset + row * width, here * width);
#else
    begin(place.last, 0, here * width);
#endif
#ifdef RESET
    place.reset = kept + kept_offset + row * width;
#elif GATES == 4
    place.cells = kept + kept_offset + row * width;
#ifdef CELLS
    begin(place.cells, cells + cells_offset + row * width, here * width);
#else
    begin(place.cells, 0, here * width);
#endif
#endif
    if (here == SEQUENCES) {
        take_steps(&place, ends, SEQUENCES);
        return;
    }
    for (long s = 0; s < here; s++) {
        take_steps(&place, ends, 1);
        place.x += place.x_row;
        place.y += width;
        place.last += width;
        place.cells += width;
        place.reset += width;
        ends += ends ? 1 : 0;
    }
}
