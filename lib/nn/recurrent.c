/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrent layers: looked at, and recorded step by step or as one kernel. */
#include <kiln/batch.h>
#include <kiln/elementwise.h>
#include <kiln/movement.h>
#include <kiln/operations.h>
#include <kiln/product.h>
#include <kiln/recurrent.h>

#include <stdlib.h>

#include "nn/recurrent.h"
#include "record/batch.h"
#include "record/call.h"
#include "record/operations.h"
#include "util/structure.h"

static const kiln_tensor none = {0};

#define MOST_STEPS 16384

static const uint8_t orders_of_lstm[][KILN__MOST_GATES] = {
    [KILN_GATES_ONNX] = {[KILN__LSTM_INPUT] = 0,
                         [KILN__LSTM_OUTPUT] = 1,
                         [KILN__LSTM_FORGET] = 2,
                         [KILN__LSTM_CELL] = 3},
    [KILN_GATES_PYTORCH] = {[KILN__LSTM_INPUT] = 0,
                            [KILN__LSTM_FORGET] = 1,
                            [KILN__LSTM_CELL] = 2,
                            [KILN__LSTM_OUTPUT] = 3},
};
static const uint8_t orders_of_gru[][KILN__MOST_GATES] = {
    [KILN_GATES_ONNX] = {[KILN__GRU_UPDATE] = 0, [KILN__GRU_RESET] = 1, [KILN__GRU_HIDDEN] = 2},
    [KILN_GATES_PYTORCH] = {[KILN__GRU_RESET] = 0, [KILN__GRU_UPDATE] = 1, [KILN__GRU_HIDDEN] = 2},
};

#define OP(name, ...) kiln_##name(layer->batch, __VA_ARGS__)

/* ---- parts of tensors ---- */

/* Elements `from` to `from` + `count` of the last dimension. */
static kiln_tensor columns(const struct kiln__layer *layer, kiln_tensor x, size_t from,
                           size_t count)
{
    return kiln__record_part(layer->batch, x, -1, from, count);
}

/* Number `i` of the first dimension, which stays as 1: a reshape would sink through a whole step,
 * to be computed once more. */
static kiln_tensor row(const struct kiln__layer *layer, kiln_tensor x, size_t i)
{
    return kiln__record_part(layer->batch, x, 0, i, 1);
}

static kiln_tensor gate(const struct kiln__layer *layer, kiln_tensor x, unsigned part)
{
    return columns(layer, x, layer->order[part] * layer->hidden, layer->hidden);
}

static kiln_tensor recurrent_number(const struct kiln__layer *layer, double value)
{
    return OP(constant, KILN_F32, value);
}

/* ---- steps ---- */

static kiln_tensor recurrent_clip(const struct kiln__layer *layer, kiln_tensor x)
{
    return layer->given->clip > 0 ? OP(clamp, x, -layer->given->clip, layer->given->clip) : x;
}

static kiln_tensor activate(const struct kiln__layer *layer, unsigned which, kiln_tensor x)
{
    return layer->batch->error.status
               ? none
               : layer->activation[which](layer->batch, recurrent_clip(layer, x));
}

/* The state times rows `from` to `from` + `count` of r, none of zeros. */
static kiln_tensor recur(const struct kiln__layer *layer, kiln_tensor h, size_t from, size_t count)
{
    int64_t start[] = {0, (int64_t)from, 0};
    int64_t stop[] = {1, (int64_t)(from + count), (int64_t)layer->hidden};
    return h.id ? OP(matmul_transposed, h, 0, OP(slice, layer->r, start, stop, NULL), 1) : none;
}

static kiln_tensor recurrent_add(const struct kiln__layer *layer, kiln_tensor a, kiln_tensor b)
{
    return !a.id ? b : !b.id ? a : OP(add, a, b);
}

static kiln_tensor recurrent_multiply(const struct kiln__layer *layer, kiln_tensor a, kiln_tensor b)
{
    return !a.id || !b.id ? none : OP(mul, a, b);
}

static struct kiln__layer_state step_rnn(const struct kiln__layer *layer, kiln_tensor x,
                                         struct kiln__layer_state before)
{
    x = recurrent_add(layer, x, recur(layer, before.h, 0, layer->hidden));
    return (struct kiln__layer_state){activate(layer, 0, x), none};
}

/* The candidate's part of the state. */
static kiln_tensor recur_hidden(const struct kiln__layer *layer, kiln_tensor h, kiln_tensor reset)
{
    size_t from = layer->order[KILN__GRU_HIDDEN] * layer->hidden;
    if (!layer->given->linear_before_reset)
        return recur(layer, recurrent_multiply(layer, reset, h), from, layer->hidden);
    kiln_tensor bias = layer->r_bias.id ? columns(layer, layer->r_bias, from, layer->hidden) : none;
    return recurrent_multiply(layer, reset,
                              recurrent_add(layer, recur(layer, h, from, layer->hidden), bias));
}

static struct kiln__layer_state step_gru(const struct kiln__layer *layer, kiln_tensor x,
                                         struct kiln__layer_state before)
{
    size_t gates = 2 * layer->hidden; /* the first two parts in either order */
    kiln_tensor both = columns(layer, x, 0, gates);
    both = recurrent_add(layer, both, recur(layer, before.h, 0, gates));
    if (layer->given->linear_before_reset && layer->r_bias.id)
        both = recurrent_add(layer, both, columns(layer, layer->r_bias, 0, gates));
    kiln_tensor update = activate(layer, 0, gate(layer, both, KILN__GRU_UPDATE));
    kiln_tensor reset = activate(layer, 0, gate(layer, both, KILN__GRU_RESET));
    kiln_tensor hidden = recurrent_add(layer, gate(layer, x, KILN__GRU_HIDDEN),
                                       recur_hidden(layer, before.h, reset));
    hidden = activate(layer, 1, hidden);
    kiln_tensor h = OP(mul, OP(sub, recurrent_number(layer, 1), update), hidden);
    return (struct kiln__layer_state){
        recurrent_add(layer, h, recurrent_multiply(layer, update, before.h)), none};
}

/* A peephole's sight of the cells. */
static kiln_tensor peep(const struct kiln__layer *layer, unsigned part, kiln_tensor c)
{
    return layer->peephole.id && c.id
               ? OP(mul, columns(layer, layer->peephole, part * layer->hidden, layer->hidden), c)
               : none;
}

static struct kiln__layer_state step_lstm(const struct kiln__layer *layer, kiln_tensor x,
                                          struct kiln__layer_state before)
{
    x = recurrent_add(layer, x, recur(layer, before.h, 0, 4 * layer->hidden));
    kiln_tensor input = activate(layer, 0,
                                 recurrent_add(layer, gate(layer, x, KILN__LSTM_INPUT),
                                               peep(layer, KILN__LSTM_INPUT, before.c)));
    kiln_tensor forget = layer->given->input_forget
                             ? OP(sub, recurrent_number(layer, 1), input)
                             : activate(layer, 0,
                                        recurrent_add(layer, gate(layer, x, KILN__LSTM_FORGET),
                                                      peep(layer, KILN__LSTM_FORGET, before.c)));
    kiln_tensor cell = OP(mul, input, activate(layer, 1, gate(layer, x, KILN__LSTM_CELL)));
    kiln_tensor c = recurrent_add(layer, cell, recurrent_multiply(layer, forget, before.c));
    kiln_tensor output = activate(
        layer, 0,
        recurrent_add(layer, gate(layer, x, KILN__LSTM_OUTPUT), peep(layer, KILN__LSTM_OUTPUT, c)));
    kiln_tensor h = layer->batch->error.status ? none : layer->activation[2](layer->batch, c);
    return (struct kiln__layer_state){OP(mul, output, h), c};
}

/* ---- lengths ---- */

/* `after` in sequences that have step t, else `before`. */
static kiln_tensor recurrent_choose(const struct kiln__layer *layer, kiln_tensor has,
                                    kiln_tensor after, kiln_tensor before)
{
    return !after.id ? none
                     : OP(where, has, after, before.id ? before : recurrent_number(layer, 0));
}

/* Advance the state; the result of step t goes to `y`. */
static void advance(const struct kiln__layer *layer, kiln_tensor x, kiln_tensor lengths, size_t t,
                    struct kiln__layer_state *state, kiln_tensor *y)
{
    struct kiln__layer_state before = *state;
    *state = layer->step(layer, row(layer, x, t), before);
    *y = state->h;
    if (!lengths.id)
        return;
    kiln_tensor has = OP(greater, lengths, OP(constant, KILN_I32, (double)t));
    *y = recurrent_choose(layer, has, state->h, none);
    state->h = recurrent_choose(layer, has, state->h, before.h);
    state->c = recurrent_choose(layer, has, state->c, before.c);
}

/* ---- directions ---- */

/* The product of all inputs, [T,B,G*H], with what of the bias does not go through a gate. */
static kiln_tensor multiply_inputs(struct kiln__layer *layer, size_t direction)
{
    size_t rows = layer->gates * layer->hidden;
    kiln_tensor x =
        OP(matmul_transposed, layer->given->x, 0, row(layer, layer->given->w, direction), 1);
    layer->r_bias = none;
    if (!layer->given->bias.id)
        return x;
    kiln_tensor bias = row(layer, layer->given->bias, direction);
    kiln_tensor of_x = columns(layer, bias, 0, rows), of_h = columns(layer, bias, rows, rows);
    if (layer->step != step_gru || !layer->given->linear_before_reset)
        return OP(add, x, OP(add, of_x, of_h));
    layer->r_bias = of_h;
    return OP(add, x, of_x);
}

void kiln__layer_functions(struct kiln__layer *layer, size_t direction)
{
    for (unsigned i = 0; i < 3; i++) {
        layer->activation[i] = layer->given->activation[direction][i];
        if (!layer->activation[i])
            layer->activation[i] = i || layer->step == step_rnn ? kiln_tanh : kiln_sigmoid;
    }
}

static struct kiln__layer_state recurrent_begin(const struct kiln__layer *layer, size_t direction)
{
    const kiln_recurrent *given = layer->given;
    return (struct kiln__layer_state){
        given->h.id ? row(layer, given->h, direction) : none,
        given->c.id && layer->step == step_lstm ? row(layer, given->c, direction) : none};
}

/* All steps of one direction; results go to y[t * D + direction]. */
static struct kiln__layer_state recurrent_go(struct kiln__layer *layer, size_t direction,
                                             kiln_tensor *y)
{
    bool backward = layer->given->direction == KILN_REVERSE || direction;
    struct kiln__layer_state state = recurrent_begin(layer, direction);
    kiln_tensor x = multiply_inputs(layer, direction), lengths = none;
    layer->r = row(layer, layer->given->r, direction);
    layer->peephole =
        layer->given->peephole.id ? row(layer, layer->given->peephole, direction) : none;
    if (layer->given->lengths.id)
        lengths = OP(reshape,
                     OP(cast, kiln__record_indices(layer->batch, layer->given->lengths, "lengths"),
                        KILN_I32),
                     2, ((size_t[]){layer->sequences, 1}));
    kiln__layer_functions(layer, direction);
    for (size_t i = 0; i < layer->steps && !layer->batch->error.status; i++) {
        size_t t = backward ? layer->steps - 1 - i : i;
        advance(layer, x, lengths, t, &state, &y[t * layer->directions + direction]);
    }
    return state;
}

/* ---- checks ---- */

static bool check_operand(const struct kiln__layer *layer, const char *what, kiln_tensor x,
                          size_t rank, const size_t *dims)
{
    const struct kiln__node *node = kiln__batch_floating(layer->batch, x, layer->name, what);
    struct kiln__shape wanted = {0};
    if (!node)
        return false;
    if (kiln__shape_make(rank, dims, &wanted) && kiln__shape_equal(&wanted, &node->shape))
        return true;
    kiln__fail(&layer->batch->error, KILN_SHAPE_MISMATCH, "%s: %s of shape %s must be %s",
               layer->name, what, kiln__shape_text(&node->shape).text,
               kiln__shape_text(&wanted).text);
    return false;
}
#define CHECK(what, ...)                                                                           \
    check_operand(layer, #what, given->what, sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t),     \
                  (size_t[]){__VA_ARGS__})

static bool check_lengths(const struct kiln__layer *layer)
{
    const struct kiln__node *node =
        kiln__batch_node(layer->batch, layer->given->lengths, layer->name, "lengths");
    if (!node)
        return false;
    if (kiln__node_is_floating(node))
        kiln__fail(&layer->batch->error, KILN_TYPE_MISMATCH,
                   "%s: lengths are %s, and only integers are taken", layer->name,
                   kiln_type_name(node->type));
    else if (node->shape.rank != 1 || node->shape.dims[0] != layer->sequences)
        kiln__fail(&layer->batch->error, KILN_SHAPE_MISMATCH,
                   "%s: lengths of shape %s are not one of each of %zu sequences", layer->name,
                   kiln__shape_text(&node->shape).text, layer->sequences);
    return !layer->batch->error.status;
}

/* The sizes, from the shapes of x and r. */
static bool read_sizes(struct kiln__layer *layer)
{
    const kiln_recurrent *given = layer->given;
    const struct kiln__node *x = kiln__batch_floating(layer->batch, given->x, layer->name, "x");
    const struct kiln__node *r =
        x ? kiln__batch_floating(layer->batch, given->r, layer->name, "r") : NULL;
    if (!r)
        return false;
    if (x->shape.rank != 3 || r->shape.rank != 3)
        kiln__fail(&layer->batch->error, KILN_SHAPE_MISMATCH,
                   "%s: x of shape %s and r of shape %s must have 3 dimensions", layer->name,
                   kiln__shape_text(&x->shape).text, kiln__shape_text(&r->shape).text);
    else if (x->shape.dims[0] > MOST_STEPS)
        kiln__fail(&layer->batch->error, KILN_TOO_LARGE, "%s: %zu steps, and %d are the most",
                   layer->name, x->shape.dims[0], MOST_STEPS);
    layer->steps = x->shape.dims[0];
    layer->sequences = x->shape.dims[1];
    layer->inputs = x->shape.dims[2];
    layer->hidden = r->shape.dims[2];
    layer->directions = given->direction == KILN_BIDIRECTIONAL ? 2 : 1;
    return !layer->batch->error.status;
}

static bool read_layer(struct kiln__layer *own)
{
    const kiln_recurrent *layer = own->given;
    struct kiln__error *error = &own->batch->error;
    if (!layer)
        kiln__fail(error, KILN_INVALID_ARGUMENT, "%s: layer is NULL", own->name);
    else if (!KILN__STRUCTURE_READ(error, own->name, layer, "KILN_RECURRENT_INIT", &own->own))
        own->given = &own->own;
    return !error->status;
}

static bool check_options(struct kiln__layer *layer)
{
    const kiln_recurrent *given = layer->given;
    if ((unsigned)given->direction > KILN_BIDIRECTIONAL ||
        (unsigned)given->gates > KILN_GATES_PYTORCH)
        kiln__fail(&layer->batch->error, KILN_INVALID_ARGUMENT,
                   "%s: no direction %d with gates in order %d", layer->name, (int)given->direction,
                   (int)given->gates);
    else if (!(given->clip >= 0))
        kiln__fail(&layer->batch->error, KILN_INVALID_ARGUMENT,
                   "%s: clip is %.9g, and must not be negative", layer->name, given->clip);
    return !layer->batch->error.status;
}

static bool check_layer(struct kiln__layer *layer)
{
    if (!kiln__batch_is_open(layer->batch, layer->name) || !read_layer(layer) ||
        !check_options(layer) || !read_sizes(layer))
        return false;
    const kiln_recurrent *given = layer->given;
    const size_t d = layer->directions, b = layer->sequences, h = layer->hidden;
    const size_t rows = layer->gates * h;
    bool lstm = layer->step == step_lstm;
    return CHECK(w, d, rows, layer->inputs) && CHECK(r, d, rows, h) &&
           (!given->bias.id || CHECK(bias, d, 2 * rows)) && (!given->h.id || CHECK(h, d, b, h)) &&
           (!lstm || !given->c.id || CHECK(c, d, b, h)) &&
           (!lstm || !given->peephole.id || CHECK(peephole, d, 3 * h)) &&
           (!given->lengths.id || check_lengths(layer));
}

/* ---- the calls ---- */

/* [D,B,H] of both directions' states. */
static kiln_tensor recurrent_collect(const struct kiln__layer *layer, const kiln_tensor *parts)
{
    const size_t dims[] = {1, layer->sequences, layer->hidden};
    kiln_tensor whole[2];
    for (size_t d = 0; d < layer->directions; d++)
        whole[d] = parts[d].id ? parts[d] : OP(fill, KILN_F32, 3, dims, 0);
    return OP(concat, layer->directions, whole, 0);
}

void kiln__layer_steps(struct kiln__layer *layer, struct kiln__layer_results *results)
{
    kiln_batch *batch = layer->batch;
    const size_t d = layer->directions;
    const size_t dims[] = {layer->steps, d, layer->sequences, layer->hidden};
    kiln_tensor *y = calloc(layer->steps * d + 1, sizeof *y), h[2] = {{0}}, c[2] = {{0}};
    if (!y)
        kiln__fail(&batch->error, KILN_OUT_OF_HOST_MEMORY, "%s: no memory to record", layer->name);
    for (size_t i = 0; i < d && !batch->error.status; i++) {
        struct kiln__layer_state state = recurrent_go(layer, i, y);
        h[i] = state.h;
        c[i] = state.c;
    }
    if (!batch->error.status)
        results->y = layer->steps ? OP(reshape, OP(concat, layer->steps * d, y, 0), 4, dims)
                                  : OP(fill, KILN_F32, 4, dims, 0);
    results->last = recurrent_collect(layer, h);
    if (layer->gates == 4)
        results->cells = recurrent_collect(layer, c);
    free(y);
}

static kiln_tensor recurrent_record(struct kiln__layer *layer, kiln_tensor *last,
                                    kiln_tensor *last_c)
{
    struct kiln__layer_results results = {none, none, none};
    if (check_layer(layer)) {
        if (layer->gates > 1)
            layer->order = layer->step == step_lstm ? orders_of_lstm[layer->given->gates]
                                                    : orders_of_gru[layer->given->gates];
        if (!kiln__layer_in_kernel(layer, &results))
            kiln__layer_steps(layer, &results);
    }
    if (layer->batch && layer->batch->error.status)
        results = (struct kiln__layer_results){none, none, none};
    if (last)
        *last = results.last;
    if (last_c)
        *last_c = results.cells;
    return results.y;
}

kiln_tensor kiln_rnn(kiln_batch *batch, const kiln_recurrent *layer, kiln_tensor *last)
{
    KILN__CALL(batch);
    struct kiln__layer own = {
        .batch = batch, .name = __func__, .given = layer, .step = step_rnn, .gates = 1};
    return recurrent_record(&own, last, NULL);
}

kiln_tensor kiln_gru(kiln_batch *batch, const kiln_recurrent *layer, kiln_tensor *last)
{
    KILN__CALL(batch);
    struct kiln__layer own = {
        .batch = batch, .name = __func__, .given = layer, .step = step_gru, .gates = 3};
    return recurrent_record(&own, last, NULL);
}

kiln_tensor kiln_lstm(kiln_batch *batch, const kiln_recurrent *layer, kiln_tensor *last,
                      kiln_tensor *last_c)
{
    KILN__CALL(batch);
    struct kiln__layer own = {
        .batch = batch, .name = __func__, .given = layer, .step = step_lstm, .gates = 4};
    return recurrent_record(&own, last, last_c);
}
