/* SPDX-License-Identifier: Apache-2.0 */
/* The recording walk: each node by its operator's row, subgraphs, constants, uploads, and named
 * errors. */
#include "onnx/record.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "onnx/error.h"
#include "onnx/patterns.h"
#include "onnx/values.h"
#include "onnx/weights.h"

/* ---- values on the device ---- */

/* A constant that fills a shape with one number takes no memory; anything else lies in a buffer,
 * which the batch holds. */
static kiln_tensor make_tensor(struct kiln__onnx_recorder *recorder,
                               const struct kiln__onnx_value *value)
{
    const struct kiln__onnx_host *host = value->host;
    kiln_type type = kiln__onnx_type(value->type)->computed;
    double number;
    if (kiln__onnx_host_uniform(host, &number))
        return kiln_fill(recorder->batch, type, value->rank, value->dims, number);
    kiln_buffer *buffer = NULL;
    kiln_status status =
        kiln__onnx_buffer_of(recorder->model->context, host, value->rank, value->dims, &buffer);
    if (status) {
        recorder->status = recorder->status ? recorder->status : status;
        return (kiln_tensor){0};
    }
    kiln_tensor tensor = kiln_import(recorder->batch, buffer);
    kiln_buffer_release(buffer);
    return tensor;
}

kiln_tensor kiln__onnx_on_device(struct kiln__onnx_recorder *recorder,
                                 struct kiln__onnx_value *value)
{
    if (!value->tensor.id && value->host)
        value->tensor = make_tensor(recorder, value);
    return value->tensor;
}

/* ---- nodes ---- */

/* Loops in loops may have more turns than anybody waits for. */
enum { MOST_NODES = 1 << 20 };

static void fail_in(struct kiln__onnx_recorder *recorder, const struct kiln__onnx_node *node)
{
    if (!recorder->status)
        recorder->status = kiln__onnx_fail(kiln_batch_status(recorder->batch), "node '%s' (%s): %s",
                                           kiln__onnx_node_name(node), node->proto->op_type,
                                           kiln_batch_error(recorder->batch));
}

/* The operands' values: all that are named have been given one by earlier nodes. */
static bool find_operands(struct kiln__onnx_call *call, struct kiln__onnx_value **in)
{
    const struct kiln__onnx_node *node = call->node;
    size_t n = node->n_inputs;
    while (n && node->inputs[n - 1] == KILN__ONNX_NONE)
        n--;
    call->n_inputs = n;
    call->in = in;
    for (size_t i = 0; i < n; i++) {
        in[i] = NULL;
        if (node->inputs[i] == KILN__ONNX_NONE)
            continue;
        in[i] = &call->recorder->values[node->inputs[i]];
        if (!in[i]->type) {
            kiln__onnx_refuse(call, KILN_UNSUPPORTED,
                              "operand %zu, '%s', is a result that libkiln-onnx does not compute",
                              i, call->recorder->model->graphs.names[node->inputs[i]]);
            return false;
        }
    }
    return true;
}

/* What is recorded from now on is called `name`. Answers what it was called before. */
static const char *call(struct kiln__onnx_recorder *recorder, const char *name)
{
    const char *before = recorder->name;
    recorder->name = name;
    kiln_name_calls(recorder->batch, name);
    return before;
}

/* A file of a hundred bytes can ask for any number of elements. */
#define MOST_ELEMENTS (UINT64_C(1) << 32)

static void check_size(struct kiln__onnx_call *call, const struct kiln__onnx_value *value,
                       uint32_t name)
{
    size_t rank, dims[KILN_MAX_RANK];
    uint64_t most = call->recorder->model->options.most_elements, count = 1;
    if (!value->tensor.id || kiln_tensor_shape(call->batch, value->tensor, NULL, &rank, dims))
        return;
    for (size_t i = 0; i < rank; i++)
        count *= dims[i]; /* the batch has seen that they can be counted */
    most = most ? most : MOST_ELEMENTS;
    if (count > most)
        kiln__onnx_refuse(call, KILN_TOO_LARGE,
                          "its result '%s' has %" PRIu64 " elements, and %" PRIu64
                          " are the most (kiln_model_options::most_elements)",
                          call->recorder->model->graphs.names[name], count, most);
}

/* Several nodes as one; false, with nothing recorded, where they have to be recorded one by one. */
static bool record_as_one(struct kiln__onnx_recorder *recorder, const struct kiln__onnx_node *node)
{
    struct kiln__onnx_value *in[KILN__ONNX_MOST_PARTS * 2] = {NULL}, out = {0};
    struct kiln__onnx_call now = {.recorder = recorder,
                                  .batch = recorder->batch,
                                  .node = node,
                                  .row = node->row,
                                  .version = node->version,
                                  .n_outputs = 1,
                                  .out = &out,
                                  .wanted = (const bool[]){true}};
    if (!find_operands(&now, in))
        return true;
    const char *before = call(recorder, kiln__onnx_node_name(node));
    node->row->record(&now);
    call(recorder, before);
    check_size(&now, &out, node->outputs[0]);
    if (kiln_batch_status(recorder->batch))
        fail_in(recorder, node);
    if (!out.type)
        return recorder->status != KILN_OK;
    recorder->values[node->outputs[0]] = out;
    return true;
}

static void record_node(struct kiln__onnx_recorder *recorder, const struct kiln__onnx_node *node)
{
    if (node->n_parts && record_as_one(recorder, node))
        return;
    for (size_t i = 0; i < node->n_parts && !recorder->status; i++)
        record_node(recorder, &node->parts[i]);
    if (node->n_parts)
        return;
    const bool *needed = recorder->model->graphs.needed;
    size_t n = node->n_inputs + node->n_outputs + 1;
    struct kiln__onnx_value **in = calloc(node->n_inputs + 1, sizeof *in);
    struct kiln__onnx_value *out = calloc(n, sizeof *out);
    bool *wanted = calloc(n, sizeof *wanted);
    struct kiln__onnx_call now = {.recorder = recorder,
                                  .batch = recorder->batch,
                                  .node = node,
                                  .row = node->row,
                                  .version = node->version,
                                  .n_outputs = node->n_outputs,
                                  .out = out,
                                  .wanted = wanted};
    if (!in || !out || !wanted)
        kiln__onnx_refuse(&now, KILN_OUT_OF_HOST_MEMORY, "no memory");
    else if (recorder->recorded++ == MOST_NODES)
        kiln__onnx_refuse(&now, KILN_TOO_LARGE, "loops come to more than %d nodes", MOST_NODES);
    else if (find_operands(&now, in)) {
        for (size_t i = 0; i < node->n_outputs; i++)
            wanted[i] = needed[node->outputs[i]];
        const char *before = call(recorder, kiln__onnx_node_name(node));
        node->row->record(&now);
        call(recorder, before);
        if (kiln_batch_status(recorder->batch))
            fail_in(recorder, node);
        for (size_t i = 0; i < node->n_outputs && !recorder->status; i++)
            check_size(&now, &out[i], node->outputs[i]);
        for (size_t i = 0; i < node->n_outputs; i++)
            recorder->values[node->outputs[i]] = out[i];
    }
    free(in);
    free(out);
    free(wanted);
}

/* Looking for what is unused goes through all nodes, so it waits for so many new bytes. */
enum { MANY_BYTES = 16 << 20 };

kiln_status kiln__onnx_record_graph(struct kiln__onnx_recorder *recorder,
                                    const struct kiln__onnx_graph *graph, size_t n_held,
                                    const struct kiln__onnx_value *kept)
{
    struct kiln__onnx_frame frame = {
        .outer = recorder->frame, .graph = graph, .n_held = n_held, .kept = kept};
    recorder->frame = &frame;
    for (; frame.node < graph->n_nodes && !recorder->status; frame.node++) {
        if (!graph->nodes[frame.node].live)
            continue;
        if (recorder->held - recorder->used > MANY_BYTES)
            kiln__onnx_free_unused(recorder);
        record_node(recorder, &graph->nodes[frame.node]);
    }
    recorder->frame = frame.outer;
    return recorder->status;
}

/* ---- a whole model ---- */

/* Whether a value is a cache, whose first dimension may be larger than that of others. */
static bool is_roomy(const struct kiln__onnx_graph *graph, uint32_t value)
{
    for (size_t i = 0; i < graph->n_nodes; i++)
        for (size_t k = 0; k < graph->nodes[i].n_inputs && graph->nodes[i].row; k++)
            if (k < 32 && graph->nodes[i].inputs[k] == value &&
                graph->nodes[i].row->roomy & KILN__ONNX_BIT(k))
                return true;
    return false;
}

/* Dimensions of one name have to be equal, but for texts that caches have room for. */
static kiln_status check_symbols(const kiln_onnx_model *model,
                                 const struct kiln__onnx_value *values)
{
    const struct kiln__onnx_graph *graph = model->graphs.main;
    for (size_t i = 0; i < graph->n_inputs; i++)
        for (size_t d = 0; d < values[graph->inputs[i]].rank; d++)
            for (size_t k = 0; k <= i && model->inputs[i].symbols[d]; k++)
                for (size_t e = 0; e < (k < i ? values[graph->inputs[k]].rank : d); e++) {
                    const char *symbol = model->inputs[k].symbols[e];
                    size_t a = values[graph->inputs[i]].dims[d];
                    size_t b = values[graph->inputs[k]].dims[e];
                    if (symbol && a != b && !strcmp(symbol, model->inputs[i].symbols[d]) &&
                        !(d == 0 && is_roomy(graph, graph->inputs[i])) &&
                        !(e == 0 && is_roomy(graph, graph->inputs[k])))
                        return kiln__onnx_fail(KILN_SHAPE_MISMATCH,
                                               "kiln_model_record: dimension '%s' is %zu in input "
                                               "'%s' and %zu in input '%s'",
                                               symbol, b, model->inputs[k].name, a,
                                               model->inputs[i].name);
                }
    return KILN_OK;
}

/* Of positions and counts programs have any of these. */
static bool is_signed_integer(kiln_type type)
{
    return type == KILN_I32 || type == KILN_I64 || type == KILN_I8;
}

/* Whether an input fits what the file says of it. */
static kiln_status check_input(const kiln_model_value *input, kiln_type given, size_t rank,
                               const size_t *dims)
{
    char words[KILN__ONNX_SHAPE];
    if (kiln__onnx_computed(given) != kiln__onnx_computed(input->type) &&
        !(is_signed_integer(given) && is_signed_integer(input->type)))
        return kiln__onnx_fail(KILN_TYPE_MISMATCH,
                               "kiln_model_record: input '%s' is %s, and the model wants %s",
                               input->name, kiln_type_name(given), kiln_type_name(input->type));
    bool fits = input->rank == KILN_MODEL_ANY_RANK || input->rank == rank;
    for (size_t i = 0; fits && i < rank && input->rank != KILN_MODEL_ANY_RANK; i++)
        fits = !input->dims[i] || input->dims[i] == dims[i];
    if (fits)
        return KILN_OK;
    struct kiln__onnx_text wanted = {0};
    for (size_t i = 0; i < input->rank && input->rank != KILN_MODEL_ANY_RANK; i++) {
        if (input->dims[i])
            kiln__onnx_say(&wanted, "%s%zu", i ? "," : "", input->dims[i]);
        else
            kiln__onnx_say(&wanted, "%s%s", i ? "," : "",
                           input->symbols[i] ? input->symbols[i] : "?");
    }
    kiln_status status = kiln__onnx_fail(
        KILN_SHAPE_MISMATCH,
        "kiln_model_record: input '%s' has the shape %s, and the model wants [%s]", input->name,
        kiln__onnx_shape(words, rank, dims), wanted.text ? wanted.text : "");
    free(wanted.text);
    return status;
}

static kiln_status take_content(struct kiln__onnx_recorder *recorder, int type,
                                const kiln_array *content, struct kiln__onnx_value *value)
{
    struct kiln__onnx_host *host =
        kiln__onnx_host_new(&recorder->inputs, type, content->rank, content->dims);
    if (!host)
        return kiln__onnx_fail(KILN_OUT_OF_HOST_MEMORY, "kiln_model_record: no memory");
    kiln__onnx_host_load(host, content->type, content->data);
    value->host = host;
    value->rank = host->rank;
    memcpy(value->dims, host->dims, sizeof value->dims);
    return KILN_OK;
}

/* Whether it has no elements, by a dimension of 0: then it needs no data. */
static bool is_empty(const kiln_array *content)
{
    for (size_t i = 0; i < content->rank && i < KILN_MAX_RANK; i++)
        if (content->dims[i] == 0)
            return content->rank <= KILN_MAX_RANK;
    return false;
}

static kiln_status take_input(struct kiln__onnx_recorder *recorder, size_t i, kiln_tensor tensor,
                              const kiln_array *content)
{
    const kiln_model_value *input = &recorder->model->inputs[i];
    int number = recorder->model->input_types[i];
    struct kiln__onnx_value *value = &recorder->values[recorder->model->graphs.main->inputs[i]];
    kiln_status status = KILN_OK;
    value->type = number;
    value->tensor = tensor;
    if (content && content->data && content->rank > KILN_MAX_RANK)
        return kiln__onnx_fail(KILN_INVALID_ARGUMENT,
                               "kiln_model_record: the content of input '%s' has %zu dimensions",
                               input->name, content->rank);
    if (content && !content->data && !is_empty(content))
        content = NULL;
    if (content)
        status = check_input(input, content->type, content->rank, content->dims);
    if (content && !status)
        status = take_content(recorder, number, content, value);
    if (status || (content && !tensor.id))
        return status;
    if (!content && !tensor.id)
        return kiln__onnx_fail(KILN_INVALID_ARGUMENT,
                               "kiln_model_record: input '%s' is neither a tensor nor content",
                               input->name);
    kiln_type type;
    size_t rank, dims[KILN_MAX_RANK];
    status = kiln_tensor_shape(recorder->batch, tensor, &type, &rank, dims);
    if (!status && content && !kiln__onnx_has_shape(value, rank, dims))
        status = kiln__onnx_fail(KILN_SHAPE_MISMATCH,
                                 "kiln_model_record: input '%s' and its content differ in shape",
                                 input->name);
    if (status)
        return status;
    value->rank = rank;
    memcpy(value->dims, dims, sizeof value->dims);
    status = check_input(input, type, rank, dims);
    if (!status && kiln__onnx_computed(type) != kiln__onnx_type(number)->computed)
        value->tensor = kiln_cast(recorder->batch, tensor, kiln__onnx_type(number)->computed);
    return status;
}

/* What the graph gives, in the type that the file says. */
static kiln_status give_output(struct kiln__onnx_recorder *recorder, size_t i, kiln_tensor *output)
{
    struct kiln__onnx_value *value = &recorder->values[recorder->model->graphs.main->outputs[i]];
    const char *name = recorder->model->outputs[i].name;
    if (!value->type)
        return kiln__onnx_fail(KILN_UNSUPPORTED,
                               "kiln_model_record: output '%s' is a result that libkiln-onnx does "
                               "not compute",
                               name);
    kiln_tensor tensor = kiln__onnx_on_device(recorder, value);
    int declared = recorder->model->output_types[i];
    kiln_type wanted = kiln__onnx_type(declared ? declared : value->type)->type, type;
    if (recorder->status)
        return recorder->status;
    kiln_status status = kiln_batch_status(recorder->batch);
    if (!status)
        status = kiln_tensor_shape(recorder->batch, tensor, &type, NULL, NULL);
    if (status)
        return status;
    *output = type == wanted ? tensor : kiln_cast(recorder->batch, tensor, wanted);
    return kiln_batch_status(recorder->batch);
}

static kiln_status record(struct kiln__onnx_recorder *recorder, const kiln_tensor *inputs,
                          const kiln_array *contents, kiln_tensor *outputs)
{
    const struct kiln__onnx_graph *graph = recorder->model->graphs.main;
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < graph->n_inputs && !status; i++)
        status = take_input(recorder, i, inputs ? inputs[i] : (kiln_tensor){0},
                            contents ? &contents[i] : NULL);
    if (!status)
        status = check_symbols(recorder->model, recorder->values);
    if (!status)
        status = kiln__onnx_take_weights(recorder);
    if (!status)
        status = kiln__onnx_record_graph(recorder, graph, 0, NULL);
    for (size_t i = 0; i < graph->n_outputs && !status; i++)
        status = give_output(recorder, i, &outputs[i]);
    if (status)
        memset(outputs, 0, graph->n_outputs * sizeof *outputs);
    return status;
}

kiln_status kiln_model_record(kiln_onnx_model *model, kiln_batch *batch, const kiln_tensor *inputs,
                              const kiln_array *contents, kiln_tensor *outputs)
{
    if (!model || !batch || !outputs)
        return kiln__onnx_fail(KILN_INVALID_ARGUMENT, "kiln_model_record: %s is NULL",
                               !model   ? "model"
                               : !batch ? "batch"
                                        : "outputs");
    memset(outputs, 0, model->graphs.main->n_outputs * sizeof *outputs);
    if (kiln_batch_status(batch))
        return kiln__onnx_fail(kiln_batch_status(batch), "%s", kiln_batch_error(batch));
    struct kiln__onnx_recorder recorder = {.model = model, .batch = batch};
    recorder.values = calloc((size_t)model->graphs.n_values + 1, sizeof *recorder.values);
    if (!recorder.values)
        return kiln__onnx_fail(KILN_OUT_OF_HOST_MEMORY, "kiln_model_record: no memory");
    kiln_status status = record(&recorder, inputs, contents, outputs);
    free(recorder.values);
    kiln__onnx_host_free(recorder.inputs);
    kiln__onnx_host_free(recorder.hosts);
    return status;
}
