/* SPDX-License-Identifier: Apache-2.0 */
/* Builder of ONNX models in memory: nodes, attributes, initialisers, subgraphs. */
#include "tests/onnx/models.h"

#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "support/context.h"

/* Everything is small and lives until free_model(). */
static void **blocks;
static size_t n_blocks;

static void *keep(size_t bytes)
{
    blocks = realloc(blocks, (n_blocks + 1) * sizeof *blocks);
    return blocks[n_blocks++] = calloc(1, bytes ? bytes : 1);
}

static char *copy(const char *text)
{
    return strcpy(keep(strlen(text) + 1), text);
}

/* One more element of a repeated field. */
static void append(void *field, size_t *n, void *element)
{
    void **array, **grown = keep((*n + 1) * sizeof *grown);
    memcpy(&array, field, sizeof array); /* of pointers to whatever it is */
    if (*n)
        memcpy(grown, array, *n * sizeof *grown);
    grown[(*n)++] = element;
    memcpy(field, &grown, sizeof grown);
}

static void append_words(const char *words, char ***array, size_t *n)
{
    char *rest = copy(words);
    for (char *word = strtok(rest, " "); word; word = strtok(NULL, " "))
        append(array, n, copy(strcmp(word, "-") ? word : ""));
}

#define NEW(type, init)                                                                            \
    ({                                                                                             \
        type *made = keep(sizeof *made);                                                           \
        *made = (type)init;                                                                        \
        made;                                                                                      \
    })

static void import(Onnx__OperatorSetIdProto ***list, size_t *n, const char *domain, int version)
{
    Onnx__OperatorSetIdProto *set =
        NEW(Onnx__OperatorSetIdProto, ONNX__OPERATOR_SET_ID_PROTO__INIT);
    set->domain = copy(domain);
    set->has_version = 1;
    set->version = version;
    append(list, n, set);
}

Onnx__ModelProto *new_model(int version)
{
    Onnx__ModelProto *model = NEW(Onnx__ModelProto, ONNX__MODEL_PROTO__INIT);
    import(&model->opset_import, &model->n_opset_import, "", version);
    import(&model->opset_import, &model->n_opset_import, "local", 1);
    model->graph = new_graph();
    return model;
}

void free_model(Onnx__ModelProto *model)
{
    (void)model;
    while (n_blocks)
        free(blocks[--n_blocks]);
    free(blocks);
    blocks = NULL;
}

static Onnx__ValueInfoProto *new_value(const char *name, int type, const char *shape)
{
    Onnx__ValueInfoProto *value = NEW(Onnx__ValueInfoProto, ONNX__VALUE_INFO_PROTO__INIT);
    value->name = copy(name);
    value->type = NEW(Onnx__TypeProto, ONNX__TYPE_PROTO__INIT);
    value->type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    Onnx__TypeProto__Tensor *tensor = NEW(Onnx__TypeProto__Tensor, ONNX__TYPE_PROTO__TENSOR__INIT);
    value->type->tensor_type = tensor;
    tensor->has_elem_type = 1;
    tensor->elem_type = type;
    if (!shape)
        return value;
    tensor->shape = NEW(Onnx__TensorShapeProto, ONNX__TENSOR_SHAPE_PROTO__INIT);
    char *rest = copy(shape);
    for (char *word = strtok(rest, " "); word; word = strtok(NULL, " ")) {
        Onnx__TensorShapeProto__Dimension *dim =
            NEW(Onnx__TensorShapeProto__Dimension, ONNX__TENSOR_SHAPE_PROTO__DIMENSION__INIT);
        bool number = strspn(word, "-0123456789") == strlen(word);
        dim->value_case = number ? ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE
                                 : ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
        if (number)
            dim->dim_value = strtoll(word, NULL, 10);
        else
            dim->dim_param = copy(word);
        append(&tensor->shape->dim, &tensor->shape->n_dim, dim);
    }
    return value;
}

void add_input(Onnx__ModelProto *model, const char *name, int type, const char *shape)
{
    append(&model->graph->input, &model->graph->n_input, new_value(name, type, shape));
}

void add_output(Onnx__ModelProto *model, const char *name, int type, const char *shape)
{
    append(&model->graph->output, &model->graph->n_output, new_value(name, type, shape));
}

Onnx__NodeProto *new_node(const char *op, const char *inputs, const char *outputs)
{
    Onnx__NodeProto *node = NEW(Onnx__NodeProto, ONNX__NODE_PROTO__INIT);
    node->op_type = copy(op);
    append_words(inputs, &node->input, &node->n_input);
    append_words(outputs, &node->output, &node->n_output);
    return node;
}

Onnx__NodeProto *add_node(Onnx__ModelProto *model, const char *op, const char *inputs,
                          const char *outputs)
{
    Onnx__NodeProto *node = new_node(op, inputs, outputs);
    graph_node(model->graph, node);
    return node;
}

static Onnx__AttributeProto *set(Onnx__NodeProto *node, const char *name,
                                 Onnx__AttributeProto__AttributeType type)
{
    Onnx__AttributeProto *attribute = NEW(Onnx__AttributeProto, ONNX__ATTRIBUTE_PROTO__INIT);
    attribute->name = copy(name);
    attribute->has_type = 1;
    attribute->type = type;
    append(&node->attribute, &node->n_attribute, attribute);
    return attribute;
}

Onnx__AttributeProto *set_int(Onnx__NodeProto *node, const char *name, int64_t value)
{
    Onnx__AttributeProto *attribute = set(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
    attribute->has_i = 1;
    attribute->i = value;
    return attribute;
}

void set_float(Onnx__NodeProto *node, const char *name, float value)
{
    Onnx__AttributeProto *attribute = set(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);
    attribute->has_f = 1;
    attribute->f = value;
}

void set_text(Onnx__NodeProto *node, const char *name, const char *value)
{
    Onnx__AttributeProto *attribute =
        set(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
    attribute->has_s = 1;
    attribute->s.len = strlen(value);
    attribute->s.data = keep(attribute->s.len + 1);
    memcpy(attribute->s.data, value, attribute->s.len);
}

void set_ints(Onnx__NodeProto *node, const char *name, size_t n, const int64_t *values)
{
    Onnx__AttributeProto *attribute = set(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);
    attribute->n_ints = n;
    attribute->ints = keep(n * sizeof *values);
    memcpy(attribute->ints, values, n * sizeof *values);
}

void set_graph(Onnx__NodeProto *node, const char *name, Onnx__GraphProto *graph)
{
    set(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH)->g = graph;
}

/* A shape's dimensions, and how many elements it has. */
static size_t set_shape(Onnx__TensorProto *tensor, const char *shape)
{
    size_t count = 1;
    char *rest = copy(shape);
    for (char *word = strtok(rest, " "); word; word = strtok(NULL, " ")) {
        int64_t *grown = keep((tensor->n_dims + 1) * sizeof *grown);
        if (tensor->n_dims)
            memcpy(grown, tensor->dims, tensor->n_dims * sizeof *grown);
        grown[tensor->n_dims++] = strtoll(word, NULL, 10);
        tensor->dims = grown;
        count *= (size_t)grown[tensor->n_dims - 1];
    }
    return count;
}

static Onnx__TensorProto *add_tensor(Onnx__ModelProto *model, const char *name, int type)
{
    Onnx__TensorProto *tensor = NEW(Onnx__TensorProto, ONNX__TENSOR_PROTO__INIT);
    tensor->name = copy(name);
    tensor->has_data_type = 1;
    tensor->data_type = type;
    append(&model->graph->initializer, &model->graph->n_initializer, tensor);
    return tensor;
}

static Onnx__TensorProto *put(Onnx__TensorProto *tensor, size_t bytes, const void *content)
{
    tensor->has_raw_data = 1;
    tensor->raw_data.len = bytes;
    tensor->raw_data.data = keep(bytes);
    memcpy(tensor->raw_data.data, content, bytes);
    return tensor;
}

Onnx__TensorProto *add_bytes(Onnx__ModelProto *model, const char *name, int type, const char *shape,
                             size_t bytes, const void *content)
{
    Onnx__TensorProto *tensor = add_tensor(model, name, type);
    set_shape(tensor, shape);
    return put(tensor, bytes, content);
}

Onnx__TensorProto *add_floats(Onnx__ModelProto *model, const char *name, const char *shape,
                              const float *values)
{
    Onnx__TensorProto *tensor = add_tensor(model, name, FLOAT);
    return put(tensor, set_shape(tensor, shape) * sizeof *values, values);
}

Onnx__TensorProto *add_integers(Onnx__ModelProto *model, const char *name, const char *shape,
                                const int64_t *values)
{
    Onnx__TensorProto *tensor = add_tensor(model, name, INT64);
    tensor->n_int64_data = set_shape(tensor, shape);
    tensor->int64_data = keep(tensor->n_int64_data * sizeof *values);
    memcpy(tensor->int64_data, values, tensor->n_int64_data * sizeof *values);
    return tensor;
}

Onnx__GraphProto *new_graph(void)
{
    return NEW(Onnx__GraphProto, ONNX__GRAPH_PROTO__INIT);
}

void graph_node(Onnx__GraphProto *graph, Onnx__NodeProto *node)
{
    append(&graph->node, &graph->n_node, node);
}

void graph_input(Onnx__GraphProto *graph, const char *name)
{
    append(&graph->input, &graph->n_input, new_value(name, FLOAT, NULL));
}

void graph_output(Onnx__GraphProto *graph, const char *name)
{
    append(&graph->output, &graph->n_output, new_value(name, FLOAT, NULL));
}

Onnx__FunctionProto *add_function(Onnx__ModelProto *model, const char *name, const char *inputs,
                                  const char *outputs)
{
    Onnx__FunctionProto *function = NEW(Onnx__FunctionProto, ONNX__FUNCTION_PROTO__INIT);
    function->name = copy(name);
    function->domain = copy("local");
    append_words(inputs, &function->input, &function->n_input);
    append_words(outputs, &function->output, &function->n_output);
    import(&function->opset_import, &function->n_opset_import, "", 17);
    import(&function->opset_import, &function->n_opset_import, "local", 1);
    append(&model->functions, &model->n_functions, function);
    return function;
}

void function_node(Onnx__FunctionProto *function, Onnx__NodeProto *node)
{
    append(&function->node, &function->n_node, node);
}

void late_field(ProtobufCMessage *message, unsigned number, size_t length, const void *content)
{
    size_t n = message->n_unknown_fields++;
    ProtobufCMessageUnknownField *grown = keep((n + 1) * sizeof *grown);
    if (n)
        memcpy(grown, message->unknown_fields, n * sizeof *grown);
    message->unknown_fields = grown;
    grown[n] = (ProtobufCMessageUnknownField){.tag = number,
                                              .wire_type = PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED,
                                              .len = length + 1,
                                              .data = keep(length + 1)};
    grown[n].data[0] = (uint8_t)length; /* below 128 */
    memcpy(grown[n].data + 1, content, length);
}

uint8_t *pack_model(const Onnx__ModelProto *model, size_t *bytes)
{
    *bytes = onnx__model_proto__get_packed_size(model);
    uint8_t *packed = keep(*bytes);
    onnx__model_proto__pack(model, packed);
    return packed;
}

kiln_context *context;

void begin_models(void)
{
    context = open_context();
}

void end_models(void)
{
    free_model(NULL);
    close_context(context);
}

kiln_status load_model(kiln_context *in, const Onnx__ModelProto *model,
                       const kiln_model_options *options, kiln_onnx_model **loaded)
{
    size_t bytes;
    uint8_t *packed = pack_model(model, &bytes);
    return kiln_model_load_memory(in, packed, bytes, options, loaded);
}

kiln_onnx_model *loaded(const Onnx__ModelProto *model)
{
    kiln_onnx_model *made;
    expect_ok(load_model(context, model, NULL, &made));
    return made;
}

void expect_floats(kiln_onnx_model *model, size_t rank, const size_t *dims, const float *input,
                   size_t wanted_rank, const size_t *wanted_dims, const float *wanted)
{
    kiln_array in = {KILN_F32, rank, {0}, (void *)input}, out;
    memcpy(in.dims, dims, rank * sizeof *dims);
    expect_ok(kiln_model_run(model, &in, &out));
    cr_assert_eq(out.type, KILN_F32);
    cr_assert_eq(out.rank, wanted_rank);
    size_t count = 1;
    for (size_t i = 0; i < wanted_rank; i++) {
        cr_assert_eq(out.dims[i], wanted_dims[i]);
        count *= wanted_dims[i];
    }
    for (size_t i = 0; i < count; i++)
        cr_assert_float_eq(((float *)out.data)[i], wanted[i], 1e-5, "element %zu: %g, not %g", i,
                           (double)((float *)out.data)[i], (double)wanted[i]);
    kiln_free(out.data);
}
