/* SPDX-License-Identifier: Apache-2.0 */
/* A recurrent layer as one kernel that takes all steps (kernels/recurrent_cpu.cl): operands are
 * brought into its form, which of weights in buffers is done once, and the call is recorded. */
#include <kiln/elementwise.h>
#include <kiln/movement.h>
#include <kiln/operations.h>
#include <kiln/product.h>

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "nn/recurrent.h"
#include "ops/ops.h"
#include "record/operations.h"
#include "record/replayed.h"
#include "util/text.h"

/* Weights of the state, of one direction: more do not stay in a core's cache, and steps that take
 * so long gain more from all cores than they lose to launches. */
#define MOST_WEIGHTS ((size_t)1 << 19)

/* What sums of an item may take of a CPU's registers, in vectors: of 32 with AVX-512, else 16. */
#define SUMS(vector) ((vector) == 16 ? (size_t)16 : 8)

#define OP(name, ...) kiln_##name(layer->batch, __VA_ARGS__)

struct call {
    struct kiln__layer *layer;
    struct kiln__custom custom;
    struct kiln__node node;
    struct kiln__custom_argument arguments[KILN_CUSTOM_INPUTS + KILN_CUSTOM_OUTPUTS + 6];
    struct kiln__text text, parameters; /* parameters: of inputs behind r */
    size_t vector, width, at_once;      /* width: hidden up to a multiple of vector */
};

static bool failed(const struct kiln__layer *layer)
{
    return layer->batch->error.status;
}

/* ---- what it is made for ---- */

/* A function's row, and how the kernel calls it. */
static const struct function {
    kiln_tensor (*record)(kiln_batch *batch, kiln_tensor x);
    enum kiln__elementwise op;
    const char *name;
} functions[] = {
    {kiln_sigmoid, KILN__OP_sigmoid, "FN(sigmoid)"},
    {kiln_tanh, KILN__OP_tanh, "FN(tanh)"},
    {kiln_relu, KILN__OP_relu, "RELU"},
};

static const struct function *function_of(const struct kiln__layer *layer, unsigned which)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (layer->activation[which] == functions[i].record)
            return &functions[i];
    return NULL;
}

/* The same in both directions, and all known. */
static bool knows_functions(struct kiln__layer *layer)
{
    const unsigned used = layer->gates == 4 ? 3 : layer->gates == 3 ? 2 : 1;
    for (unsigned i = 0; i < used; i++) {
        kiln__layer_functions(layer, layer->directions - 1);
        const struct function *last = function_of(layer, i);
        kiln__layer_functions(layer, 0);
        if (!last || function_of(layer, i) != last)
            return false;
    }
    return true;
}

static bool fits_kernel(struct kiln__layer *layer)
{
    const struct kiln__record_limits *limits = &layer->batch->limits;
    const size_t state = layer->hidden * layer->hidden;
    return limits->vector && layer->batch->product == KILN__PRODUCT_EXACT && layer->steps &&
           layer->sequences && layer->hidden && layer->inputs && layer->hidden <= MOST_WEIGHTS &&
           state <= MOST_WEIGHTS / layer->gates && knows_functions(layer);
}

/* Sequences of an item: all cores have items, and weights that are read serve some. */
static size_t choose_sequences(const struct kiln__layer *layer)
{
    const struct kiln__record_limits *limits = &layer->batch->limits;
    size_t at_once = 1;
    while (2 * at_once * layer->gates <= SUMS(limits->vector) && at_once < 4 &&
           2 * at_once * limits->cores <= layer->directions * layer->sequences)
        at_once *= 2;
    return at_once;
}

/* ---- operands in the kernel's form ---- */

/* Dimension `axis` up to `width`. */
static kiln_tensor pad_axis(const struct call *call, kiln_tensor x, size_t rank, size_t axis)
{
    const struct kiln__layer *layer = call->layer;
    size_t low[KILN_MAX_RANK] = {0}, high[KILN_MAX_RANK] = {0};
    (void)rank;
    high[axis] = call->width - layer->hidden;
    return high[axis] ? OP(pad, x, low, high, 0) : x;
}

/* [T,B,D*G*W]: the inputs' products, and all biases but one that a reset gate multiplies. */
static kiln_tensor products(const struct call *call)
{
    const struct kiln__layer *layer = call->layer;
    const kiln_recurrent *given = layer->given;
    const size_t d = layer->directions, g = layer->gates, rows = d * g * call->width;
    const size_t split[] = {d, g, layer->hidden, layer->inputs}, joined[] = {rows, layer->inputs};
    kiln_tensor w = pad_axis(call, OP(reshape, given->w, 4, split), 4, 2);
    kiln_tensor x = OP(matmul_transposed, given->x, 0, OP(reshape, w, 2, joined), 1);
    if (!given->bias.id)
        return x;
    const size_t biases[] = {d, 2, g, layer->hidden}, one[] = {d, 1, g, layer->hidden};
    kiln_tensor both = OP(reshape, given->bias, 4, biases);
    kiln_tensor of_x = kiln__record_part(layer->batch, both, 1, 0, 1);
    kiln_tensor of_h = kiln__record_part(layer->batch, both, 1, 1, 1);
    if (g == 3 && given->linear_before_reset) {
        const size_t gates[] = {3, 1};
        kiln_tensor number = OP(iota, 2, gates, 0);
        of_h = OP(where, OP(less, number, OP(constant, KILN_I32, KILN__GRU_HIDDEN)), of_h,
                  OP(constant, KILN_F32, 0));
    }
    kiln_tensor bias = pad_axis(call, OP(reshape, OP(add, of_x, of_h), 4, one), 4, 3);
    return OP(add, x, OP(reshape, bias, 1, &rows));
}

/* [D,W/L,H,G,L]. */
static kiln_tensor packed(const struct call *call)
{
    const struct kiln__layer *layer = call->layer;
    const size_t d = layer->directions, g = layer->gates, h = layer->hidden;
    const size_t split[] = {d, g, h, h}, tiles = call->width / call->vector;
    const size_t tiled[] = {d, g, tiles, call->vector, h};
    kiln_tensor r = pad_axis(call, OP(reshape, layer->given->r, 4, split), 4, 2);
    return OP(transpose, OP(reshape, r, 5, tiled), (const size_t[]){0, 2, 4, 1, 3});
}

/* [D,W], the bias that a GRU's reset gate multiplies. */
static kiln_tensor late_bias(const struct call *call)
{
    const struct kiln__layer *layer = call->layer;
    const size_t from = (3 + KILN__GRU_HIDDEN) * layer->hidden;
    return pad_axis(
        call, kiln__record_part(layer->batch, layer->given->bias, 1, from, layer->hidden), 2, 1);
}

/* [D,3,W]. */
static kiln_tensor peepholes(const struct call *call)
{
    const struct kiln__layer *layer = call->layer;
    const size_t split[] = {layer->directions, 3, layer->hidden};
    return pad_axis(call, OP(reshape, layer->given->peephole, 3, split), 3, 2);
}

static kiln_tensor lengths(const struct kiln__layer *layer)
{
    return OP(cast, kiln__record_indices(layer->batch, layer->given->lengths, "lengths"), KILN_I32);
}

/* ---- the call ---- */

static void add_argument(struct call *call, uint8_t kind, uint8_t number, int64_t integer,
                         float real)
{
    call->arguments[call->custom.call.n_arguments++] = (struct kiln__custom_argument){
        .kind = kind, .number = number, .integer = integer, .real = real};
}

static void add_input(struct call *call, enum kiln__layer_operand what, const char *name,
                      kiln_tensor x)
{
    struct kiln__custom_call *made = &call->custom.call;
    if (failed(call->layer))
        return;
    const uint32_t index = kiln__tensor_index(x), k = made->n_inputs++;
    call->node.input[k] = index;
    made->inputs[k] = call->layer->batch->graph.nodes.items[index].type;
    made->scalars[KILN__LAYER_HAS] += 1 << what;
    made->weights |= (uint32_t)(what == KILN__LAYER_R) << k;
    add_argument(call, KILN__CUSTOM_INPUT, (uint8_t)k, 0, 0);
    if (!name)
        return;
    kiln__text_add(&call->text, "#define ");
    for (const char *c = name; *c; c++)
        kiln__text_add(&call->text, "%c", toupper((unsigned char)*c));
    kiln__text_add(&call->text, "\n");
    kiln__text_add(&call->parameters, ", __global const %s *%s, const long %s_offset",
                   what == KILN__LAYER_LENGTHS ? "int" : "float", name, name);
}

static void add_inputs(struct call *call)
{
    const struct kiln__layer *layer = call->layer;
    const kiln_recurrent *given = layer->given;
    add_input(call, KILN__LAYER_X, NULL, products(call));
    add_input(call, KILN__LAYER_R, NULL, packed(call));
    if (given->h.id)
        add_input(call, KILN__LAYER_BEFORE, "before", pad_axis(call, given->h, 3, 2));
    if (given->c.id && layer->gates == 4)
        add_input(call, KILN__LAYER_CELLS, "cells", pad_axis(call, given->c, 3, 2));
    if (given->bias.id && layer->gates == 3 && given->linear_before_reset)
        add_input(call, KILN__LAYER_BIAS, "bias", late_bias(call));
    if (given->peephole.id && layer->gates == 4)
        add_input(call, KILN__LAYER_PEEPHOLE, "peephole", peepholes(call));
    if (given->lengths.id)
        add_input(call, KILN__LAYER_LENGTHS, "lengths", lengths(layer));
}

static void add_output(struct call *call, size_t rank, const size_t *dims)
{
    struct kiln__custom_call *made = &call->custom.call;
    struct kiln__custom_output *output = &made->outputs[made->n_outputs];
    output->type = KILN_F32;
    if (kiln__check_dims(call->layer->batch, call->layer->name, rank, dims, &output->shape))
        add_argument(call, KILN__CUSTOM_OUTPUT, (uint8_t)made->n_outputs++, 0, 0);
}

static void add_outputs(struct call *call)
{
    const struct kiln__layer *layer = call->layer;
    const size_t y[] = {layer->steps, layer->directions, layer->sequences, call->width};
    add_output(call, 4, y);
    add_output(call, 3, y + 1);
    if (layer->gates == 4 || (layer->gates == 3 && !layer->given->linear_before_reset))
        add_output(call, 3, y + 1);
}

static void add_numbers(struct call *call)
{
    const struct kiln__layer *layer = call->layer;
    const kiln_direction way = layer->given->direction;
    const int backwards = way == KILN_BIDIRECTIONAL ? 2 : way == KILN_REVERSE;
    double *scalars = call->custom.call.scalars;
    add_argument(call, KILN__CUSTOM_I64, 0, (int64_t)layer->steps, 0);
    add_argument(call, KILN__CUSTOM_I64, 0, (int64_t)layer->sequences, 0);
    add_argument(call, KILN__CUSTOM_I64, 0, (int64_t)layer->hidden, 0);
    add_argument(call, KILN__CUSTOM_I64, 0, (int64_t)call->width, 0);
    add_argument(call, KILN__CUSTOM_I32, 0, backwards, 0);
    add_argument(call, KILN__CUSTOM_F32, 0, 0, (float)layer->given->clip);
    scalars[KILN__LAYER_GATES] = (double)layer->gates;
    scalars[KILN__LAYER_VECTOR] = (double)call->vector;
    scalars[KILN__LAYER_HIDDEN] = (double)layer->hidden;
    scalars[KILN__LAYER_BACKWARDS] = backwards;
    scalars[KILN__LAYER_CLIP] = layer->given->clip;
    scalars[KILN__LAYER_LINEAR] = layer->given->linear_before_reset != 0;
    scalars[KILN__LAYER_COUPLED] = layer->given->input_forget != 0;
}

static void write_macros(struct call *call)
{
    const struct kiln__layer *layer = call->layer;
    const kiln_recurrent *given = layer->given;
    double *scalars = call->custom.call.scalars;
    kiln__text_add(&call->text, "#define VECTOR %zu\n#define GATES %zu\n#define SEQUENCES %zu\n",
                   call->vector, layer->gates, call->at_once);
    for (unsigned i = 0; i < layer->gates && layer->gates > 1; i++) {
        scalars[KILN__LAYER_ORDER] += layer->order[i] << 4 * i;
        kiln__text_add(&call->text, "#define AT_%u %u\n", i, layer->order[i]);
    }
    for (unsigned i = 0; i < 3; i++) {
        const struct function *function = function_of(layer, i);
        if (!function)
            continue;
        scalars[KILN__LAYER_FUNCTIONS] += (int)function->op << 8 * i;
        kiln__text_add(&call->text, "#define ACT_%c %s\n", "FGH"[i], function -> name);
    }
    if (given->clip > 0)
        kiln__text_add(&call->text, "#define CLIP\n");
    if (layer->gates == 3 && given->linear_before_reset)
        kiln__text_add(&call->text, "#define LINEAR\n");
    if (layer->gates == 4 && given->input_forget)
        kiln__text_add(&call->text, "#define COUPLED\n");
}

static void describe(struct call *call)
{
    const struct kiln__layer *layer = call->layer;
    struct kiln__custom_call *made = &call->custom.call;
    write_macros(call);
    add_inputs(call);
    add_outputs(call);
    kiln__text_add(&call->text, "#define READ_PARAMETERS %s\n#define KEPT_PARAMETERS %s\n",
                   call->parameters.length ? call->parameters.data : "",
                   made->n_outputs > 2 ? ", __global float *kept, const long kept_offset" : "");
    add_numbers(call);
    made->global[0] = (layer->sequences + call->at_once - 1) / call->at_once;
    made->global[1] = layer->directions;
    made->global[2] = made->local[0] = made->local[1] = made->local[2] = 1;
    made->host = kiln__layer_host;
    made->rounded = kiln__layer_host_rounded;
    made->tolerance = 1e-6;
    call->custom.arguments = call->arguments;
    call->custom.kernel = KILN__CUSTOM_PREFIX "recurrent";
    call->custom.file = "recurrent_cpu";
}

/* Output `k`; [..., W]. */
static kiln_tensor record_output(struct call *call, const struct kiln__custom *found, unsigned k)
{
    struct kiln__node *node = &call->node;
    node->kind = KILN__CUSTOM;
    node->n_inputs = (uint8_t)found->call.n_inputs;
    node->type = KILN_F32;
    node->shape = found->call.outputs[k].shape;
    node->custom = (struct kiln__custom_node){.call = found, .output = k};
    return kiln__batch_record(call->layer->batch, node, call->layer->name);
}

/* ---- step by step after all ---- */

struct stepwise {
    struct kiln__stepwise base; /* operands: those of `own`, in the order of take_operands() */
    struct kiln__layer layer;
    size_t width;
};

static void list_operands(kiln_recurrent *own, kiln_tensor *list[8])
{
    kiln_tensor *const all[] = {&own->x, &own->w, &own->r,        &own->bias,
                                &own->h, &own->c, &own->peephole, &own->lengths};
    memcpy(list, all, sizeof all);
}

/* Outputs have the kernel's width. */
static kiln_tensor as_wide(const struct stepwise *kernel, kiln_batch *batch, kiln_tensor x,
                           size_t axis)
{
    size_t low[4] = {0}, high[4] = {0};
    high[axis] = kernel->width - kernel->layer.hidden;
    return high[axis] ? kiln_pad(batch, x, low, high, 0) : x;
}

static void record_steps(kiln_batch *batch, const struct kiln__stepwise *base, kiln_tensor *results)
{
    const struct stepwise *kernel = (const struct stepwise *)base;
    struct kiln__layer layer = kernel->layer;
    struct kiln__layer_results made = {{0}, {0}, {0}};
    kiln_tensor *list[8];
    layer.given = &layer.own;
    list_operands(&layer.own, list);
    for (size_t k = 0; k < base->n_operands; k++)
        *list[k] = base->operands[k];
    kiln__layer_steps(&layer, &made);
    results[0] = as_wide(kernel, batch, made.y, 3);
    results[1] = as_wide(kernel, batch, made.last, 2);
    if (layer.gates == 4)
        results[2] = as_wide(kernel, batch, made.cells, 2);
}

static bool keep_steps(const struct call *call, uint32_t first)
{
    struct stepwise *kernel = calloc(1, sizeof *kernel);
    kiln_tensor *list[8];
    if (!kernel)
        return false;
    kernel->layer = *call->layer;
    kernel->width = call->width;
    kernel->base = (struct kiln__stepwise){.first = first,
                                           .end = first + call->custom.call.n_outputs,
                                           .record = record_steps,
                                           .n_operands = 8,
                                           .size = sizeof *kernel};
    list_operands(&kernel->layer.own, list);
    for (size_t k = 0; k < kernel->base.n_operands; k++)
        kernel->base.operands[k] = *list[k];
    return kiln__stepwise_keep(call->layer->batch, &kernel->base);
}

/* ---- the whole ---- */

static kiln_tensor narrowed(const struct call *call, kiln_tensor x)
{
    return call->width == call->layer->hidden
               ? x
               : kiln__record_part(call->layer->batch, x, -1, 0, call->layer->hidden);
}

static void record_call(struct call *call, struct kiln__layer_results *results)
{
    kiln_batch *batch = call->layer->batch;
    kiln_tensor outputs[3] = {{0}};
    call->custom.text = call->text.data;
    const struct kiln__custom *found =
        call->text.failed || call->parameters.failed ? NULL : kiln__custom_find(&call->custom);
    for (unsigned k = 0; found && k < found->call.n_outputs; k++)
        outputs[k] = record_output(call, found, k);
    if (!found || (!batch->error.status && !keep_steps(call, kiln__tensor_index(outputs[0]))))
        kiln__fail(&batch->error, KILN_OUT_OF_HOST_MEMORY, "%s: no memory to record",
                   call->layer->name);
    if (found)
        kiln__custom_release(found);
    if (batch->error.status)
        return;
    results->y = narrowed(call, outputs[0]);
    results->last = narrowed(call, outputs[1]);
    if (call->layer->gates == 4)
        results->cells = narrowed(call, outputs[2]);
}

bool kiln__layer_in_kernel(struct kiln__layer *layer, struct kiln__layer_results *results)
{
    struct call call;
    if (!fits_kernel(layer))
        return false;
    memset(&call, 0, sizeof call); /* calls are compared as bytes */
    call.layer = layer;
    call.vector = layer->batch->limits.vector;
    call.width = (layer->hidden + call.vector - 1) / call.vector * call.vector;
    call.at_once = choose_sequences(layer);
    describe(&call);
    if (!failed(layer))
        record_call(&call, results);
    kiln__text_free(&call.text);
    kiln__text_free(&call.parameters);
    return true;
}
