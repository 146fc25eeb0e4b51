/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrent layers. */
#include <string.h>

#include "onnx/call.h"

/* ---- activations ---- */

/* With the parameters that ONNX has for them by default. */
static kiln_tensor hard_sigmoid(kiln_batch *batch, kiln_tensor x)
{
    x = kiln_add(batch, kiln_scale(batch, x, 0.2), kiln_constant(batch, KILN_F32, 0.5));
    return kiln_clamp(batch, x, 0, 1);
}

static kiln_tensor leaky_relu(kiln_batch *batch, kiln_tensor x)
{
    return kiln_leaky_relu(batch, x, 0.01);
}

static kiln_tensor elu(kiln_batch *batch, kiln_tensor x)
{
    return kiln_elu(batch, x, 1);
}

static kiln_tensor softsign(kiln_batch *batch, kiln_tensor x)
{
    kiln_tensor one = kiln_constant(batch, KILN_F32, 1);
    return kiln_div(batch, x, kiln_add(batch, kiln_abs(batch, x), one));
}

static const struct {
    const char *name;
    kiln_tensor (*apply)(kiln_batch *batch, kiln_tensor x);
    bool has_parameters;
} functions[] = {
    {"Sigmoid", kiln_sigmoid, false}, {"Tanh", kiln_tanh, false},
    {"Relu", kiln_relu, false},       {"Softplus", kiln_softplus, false},
    {"Softsign", softsign, false},    {"HardSigmoid", hard_sigmoid, true},
    {"LeakyRelu", leaky_relu, true},  {"Elu", elu, true},
};

static kiln_tensor (*find_function(struct kiln__onnx_call *call, const char *name,
                                   size_t length))(kiln_batch *, kiln_tensor)
{
    bool parameters = kiln__onnx_has_attribute(call, "activation_alpha") ||
                      kiln__onnx_has_attribute(call, "activation_beta");
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strlen(functions[i].name) == length && !memcmp(functions[i].name, name, length) &&
            !(functions[i].has_parameters && parameters))
            return functions[i].apply;
    kiln__onnx_refuse(call, KILN_UNSUPPORTED, "activation %.*s%s", (int)(length < 40 ? length : 40),
                      name, parameters ? " with parameters" : "");
    return NULL;
}

/* As many a direction as the layer has. */
static void read_activations(struct kiln__onnx_call *call, size_t each, kiln_recurrent *layer)
{
    const Onnx__AttributeProto *list =
        kiln__onnx_attribute(call, "activations", ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS);
    size_t directions = layer->direction == KILN_BIDIRECTIONAL ? 2 : 1;
    if (!list)
        return;
    if (list->n_strings != each * directions) {
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "%zu activations where there must be %zu",
                          list->n_strings, each * directions);
        return;
    }
    for (size_t i = 0; i < list->n_strings && !kiln__onnx_failed(call); i++)
        layer->activation[i / each][i % each] =
            find_function(call, (const char *)list->strings[i].data, list->strings[i].len);
}

/* ---- operands ---- */

static kiln_direction read_direction(struct kiln__onnx_call *call)
{
    const char *way = kiln__onnx_string(call, "direction", "forward");
    if (strcmp(way, "forward") && strcmp(way, "reverse") && strcmp(way, "bidirectional"))
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "attribute 'direction' is '%s'", way);
    return !strcmp(way, "reverse")         ? KILN_REVERSE
           : !strcmp(way, "bidirectional") ? KILN_BIDIRECTIONAL
                                           : KILN_FORWARD;
}

/* With layout 1 sequences come first: [B,T,I] and [B,D,H]. */
static kiln_tensor steps_first(struct kiln__onnx_call *call, size_t i)
{
    kiln_tensor x = kiln__onnx_tensor(call, i);
    bool turned = kiln__onnx_int(call, "layout", 0) != 0 && x.id;
    return turned ? kiln_transpose(call->batch, x, (size_t[]){1, 0, 2}) : x;
}

static bool read_layer(struct kiln__onnx_call *call, size_t activations, bool has_cells,
                       kiln_recurrent *layer)
{
    if (!kiln__onnx_need(call, 0) || !kiln__onnx_need(call, 1) || !kiln__onnx_need(call, 2))
        return false;
    if (kiln__onnx_int(call, "layout", 0) && kiln__onnx_operand(call, 0)->rank != 3)
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH, "operand 0 has %zu dimensions, not 3",
                          kiln__onnx_operand(call, 0)->rank);
    for (size_t i = 5; i < 7; i++)
        if (kiln__onnx_operand(call, i) && kiln__onnx_operand(call, i)->rank != 3)
            kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH, "operand %zu has %zu dimensions, not 3", i,
                              kiln__onnx_operand(call, i)->rank);
    if (kiln__onnx_failed(call))
        return false;
    *layer = (kiln_recurrent)KILN_RECURRENT_INIT;
    layer->x = steps_first(call, 0);
    layer->w = kiln__onnx_tensor(call, 1);
    layer->r = kiln__onnx_tensor(call, 2);
    layer->bias = kiln__onnx_tensor(call, 3);
    layer->lengths = kiln__onnx_tensor(call, 4);
    layer->h = steps_first(call, 5);
    if (has_cells) {
        layer->c = steps_first(call, 6);
        layer->peephole = kiln__onnx_tensor(call, 7);
    }
    layer->direction = read_direction(call);
    layer->clip = kiln__onnx_float(call, "clip", 0);
    layer->linear_before_reset = kiln__onnx_int(call, "linear_before_reset", 0) != 0;
    layer->input_forget = kiln__onnx_int(call, "input_forget", 0) != 0;
    read_activations(call, activations, layer);
    return !kiln__onnx_failed(call);
}

/* ---- results ---- */

/* [T,D,B,H] and [D,B,H], or with layout 1 [B,T,D,H] and [B,D,H]. */
static void give(struct kiln__onnx_call *call, size_t k, kiln_tensor y)
{
    if (k >= call->n_outputs || !call->wanted[k])
        return;
    if (kiln__onnx_int(call, "layout", 0))
        y = kiln_transpose(call->batch, y, k ? (size_t[]){1, 0, 2} : (size_t[]){2, 0, 1, 3});
    kiln__onnx_give(call, k, y, kiln__onnx_operand(call, 0)->type);
}

static void rnn(struct kiln__onnx_call *call)
{
    kiln_recurrent layer;
    kiln_tensor last;
    if (!read_layer(call, 1, false, &layer))
        return;
    give(call, 0, kiln_rnn(call->batch, &layer, &last));
    give(call, 1, last);
}

static void gru(struct kiln__onnx_call *call)
{
    kiln_recurrent layer;
    kiln_tensor last;
    if (!read_layer(call, 2, false, &layer))
        return;
    give(call, 0, kiln_gru(call->batch, &layer, &last));
    give(call, 1, last);
}

static void lstm(struct kiln__onnx_call *call)
{
    kiln_recurrent layer;
    kiln_tensor last, cells;
    if (!read_layer(call, 3, true, &layer))
        return;
    give(call, 0, kiln_lstm(call->batch, &layer, &last, &cells));
    give(call, 1, last);
    give(call, 2, cells);
}

const struct kiln__onnx_row kiln__onnx_rnn_rows[] = {
    KILN__ONNX_ROW("RNN", 7, rnn),
    KILN__ONNX_ROW("GRU", 7, gru),
    KILN__ONNX_ROW("LSTM", 7, lstm),
    {0},
};
