/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs and outputs as the file describes them, and which inputs decide about shapes. */
#include <stdlib.h>
#include <string.h>

#include "onnx/model.h"
#include "onnx/operators.h"
#include "onnx/types.h"

static const char *text_of(const char *text)
{
    return text ? text : "";
}

static kiln_status describe_shape(const Onnx__TensorShapeProto *shape, kiln_model_value *value)
{
    if (!shape) {
        value->rank = KILN_MODEL_ANY_RANK;
        return KILN_OK;
    }
    if (shape->n_dim > KILN_MAX_RANK)
        return kiln__onnx_fail(KILN_UNSUPPORTED,
                               "kiln_model_load: '%s' has %zu dimensions, and %d are the most",
                               value->name, shape->n_dim, KILN_MAX_RANK);
    value->rank = shape->n_dim;
    for (size_t i = 0; i < shape->n_dim; i++) {
        const Onnx__TensorShapeProto__Dimension *dim = shape->dim[i];
        if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE &&
            dim->dim_value > 0) {
            if ((uint64_t)dim->dim_value > PTRDIFF_MAX)
                return kiln__onnx_fail(KILN_TOO_LARGE,
                                       "kiln_model_load: '%s': dimension %zu is too large",
                                       value->name, i);
            value->dims[i] = (size_t)dim->dim_value;
        }
        /* "?" is how some exporters say that they know nothing, of several dimensions at once. */
        if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM &&
            *text_of(dim->dim_param) && strcmp(dim->dim_param, "?"))
            value->symbols[i] = dim->dim_param;
    }
    return KILN_OK;
}

static kiln_status describe(const Onnx__ValueInfoProto *proto, bool input, kiln_model_value *value,
                            int *number, struct kiln__onnx_text *notes)
{
    value->name = text_of(proto->name);
    const Onnx__TypeProto *type = proto->type;
    const Onnx__TypeProto__Tensor *tensor =
        type && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ? type->tensor_type : NULL;
    if (!tensor && (input || (type && type->value_case)))
        return kiln__onnx_fail(KILN_UNSUPPORTED, "kiln_model_load: '%s' is no tensor", value->name);
    value->rank = KILN_MODEL_ANY_RANK;
    value->type = KILN_F32;
    *number = 0;
    if (!tensor)
        return KILN_OK;
    *number = tensor->elem_type;
    const struct kiln__onnx_type *known = kiln__onnx_type(*number);
    if (!known && !input && *number == 0)
        return describe_shape(tensor->shape, value);
    if (!known)
        return kiln__onnx_fail(KILN_UNSUPPORTED, "kiln_model_load: '%s' is of type %s", value->name,
                               kiln__onnx_type_name(*number));
    value->type = known->type;
    if (known->note)
        kiln__onnx_say(notes, "'%s' is of type %s, %s\n", value->name, known->name, known->note);
    return describe_shape(tensor->shape, value);
}

/* ---- which inputs decide about shapes ---- */

/* Whether a node's results depend on no content, only on shapes. */
static bool reads_shapes_only(const struct kiln__onnx_node *node)
{
    const char *name = text_of(node->proto->op_type);
    return !*kiln__onnx_domain(node->proto->domain) &&
           (!strcmp(name, "Shape") || !strcmp(name, "Size"));
}

/* From what has to be known back to what that is made of, for the nodes of one graph. */
static void trace_back(const struct kiln__onnx_graph *graph, bool *known)
{
    for (size_t n = graph->n_nodes; n-- > 0;) {
        const struct kiln__onnx_node *node = &graph->nodes[n];
        bool made = false;
        for (size_t i = 0; i < node->n_outputs; i++)
            made = made || known[node->outputs[i]];
        if (!node->live)
            continue;
        for (size_t i = 0; i < node->n_inputs; i++) {
            bool decides = node->row && i < 32 && node->row->known & KILN__ONNX_BIT(i);
            if (node->inputs[i] != KILN__ONNX_NONE &&
                (decides || (made && !reads_shapes_only(node))))
                known[node->inputs[i]] = true;
        }
        for (size_t i = 0; i < node->n_graphs; i++) {
            const struct kiln__onnx_graph *inner = node->graphs[i];
            for (size_t k = 0; inner && made && k < inner->n_outputs; k++)
                known[inner->outputs[k]] = true;
            if (inner)
                trace_back(inner, known);
        }
    }
}

kiln_status kiln__onnx_describe(kiln_onnx_model *model, struct kiln__onnx_text *notes)
{
    const struct kiln__onnx_graph *graph = model->graphs.main;
    const Onnx__GraphProto *proto = model->proto->graph;
    size_t ins = graph->n_inputs, outs = graph->n_outputs;
    model->inputs = calloc(ins + 1, sizeof *model->inputs);
    model->outputs = calloc(outs + 1, sizeof *model->outputs);
    int *input_types = calloc(ins + outs + 1, sizeof *input_types);
    bool *known = calloc(model->graphs.n_values + 1, sizeof *known);
    model->input_types = input_types;
    kiln_status status = KILN_OK;
    if (!model->inputs || !model->outputs || !input_types || !known)
        status = kiln__onnx_fail(KILN_OUT_OF_HOST_MEMORY, "kiln_model_load: no memory");
    else
        model->output_types = input_types + ins;
    for (size_t i = 0; i < ins && !status; i++)
        status = describe(graph->input_protos[i], true, &model->inputs[i], &input_types[i], notes);
    for (size_t i = 0; i < outs && !status; i++)
        status =
            describe(proto->output[i], false, &model->outputs[i], &input_types[ins + i], notes);
    if (!status) {
        trace_back(graph, known);
        for (size_t i = 0; i < ins; i++)
            model->inputs[i].content = known[graph->inputs[i]];
    }
    free(known);
    return status;
}
