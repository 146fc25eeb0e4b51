/* SPDX-License-Identifier: Apache-2.0 */
/* A model's functions: which of them a node calls, and the attributes that they have by themselves.
 * The schema that kiln was built with may be older than what it reads here. */
#include "onnx/functions.h"

#include <string.h>

#include "onnx/wire.h"

static kiln_status out_of_memory(void)
{
    return kiln__onnx_fail(KILN_OUT_OF_HOST_MEMORY, "kiln_model_load: no memory for the graph");
}

static const char *text_of(const char *text)
{
    return text ? text : "";
}

/* A text of a message, without an end: of a field by this name, or one that the schema has not. */
static const char *late_text(const ProtobufCMessage *message, const char *name, unsigned number,
                             size_t *length)
{
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field_by_name(message->descriptor, name);
    const char *text = NULL;
    size_t next = 0;
    const uint8_t *content;
    *length = 0;
    if (field && field->type == PROTOBUF_C_TYPE_STRING) {
        memcpy(&text, (const char *)message + field->offset, sizeof text);
        *length = strlen(text_of(text));
        return text_of(text);
    }
    return kiln__onnx_unknown(message, number, &next, &content, length) ? (const char *)content
                                                                        : "";
}

static bool same_overload(const Onnx__FunctionProto *function, const Onnx__NodeProto *node)
{
    size_t length, other;
    const char *a = late_text(&function->base, "overload", KILN__ONNX_FUNCTION_OVERLOAD, &length);
    const char *b = late_text(&node->base, "overload", KILN__ONNX_NODE_OVERLOAD, &other);
    return length == other && !memcmp(a, b, length);
}

static void *allocate(void *graphs, size_t bytes)
{
    return kiln__onnx_graphs_alloc(graphs, bytes, 1);
}

static void leave(void *graphs, void *pointer)
{
    (void)graphs; /* everything is freed together */
    (void)pointer;
}

static kiln_status read_unknown_defaults(struct kiln__onnx_graphs *graphs,
                                         const Onnx__FunctionProto *function,
                                         struct kiln__onnx_defaults *defaults)
{
    ProtobufCAllocator allocator = {allocate, leave, graphs};
    size_t next = 0, length;
    const uint8_t *content;
    defaults->list =
        kiln__onnx_graphs_alloc(graphs, function->base.n_unknown_fields, sizeof *defaults->list);
    if (!defaults->list)
        return out_of_memory();
    while (kiln__onnx_unknown(&function->base, KILN__ONNX_FUNCTION_DEFAULTS, &next, &content,
                              &length)) {
        Onnx__AttributeProto *attribute =
            onnx__attribute_proto__unpack(&allocator, length, content);
        if (!attribute)
            return kiln__onnx_fail(KILN_INVALID_ARGUMENT,
                                   "kiln_model_load: function '%s' has a damaged attribute",
                                   text_of(function->name));
        defaults->list[defaults->n++] = attribute;
    }
    return KILN_OK;
}

kiln_status kiln__onnx_function_defaults(const Onnx__ModelProto *model,
                                         struct kiln__onnx_graphs *graphs,
                                         struct kiln__onnx_defaults **defaults)
{
    const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field(
        &onnx__function_proto__descriptor, KILN__ONNX_FUNCTION_DEFAULTS);
    *defaults = kiln__onnx_graphs_alloc(graphs, model->n_functions, sizeof **defaults);
    if (!*defaults)
        return out_of_memory();
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < model->n_functions && !status; i++) {
        const char *function = (const char *)model->functions[i];
        struct kiln__onnx_defaults *own = &(*defaults)[i];
        if (field) {
            memcpy(&own->n, function + field->quantifier_offset, sizeof own->n);
            memcpy(&own->list, function + field->offset, sizeof own->list);
        } else
            status = read_unknown_defaults(graphs, model->functions[i], own);
    }
    return status;
}

size_t kiln__onnx_function_of(const Onnx__ModelProto *model, const Onnx__NodeProto *node)
{
    for (size_t i = 0; i < model->n_functions; i++) {
        const Onnx__FunctionProto *function = model->functions[i];
        if (!strcmp(text_of(function->name), text_of(node->op_type)) &&
            !strcmp(kiln__onnx_domain(function->domain), kiln__onnx_domain(node->domain)) &&
            same_overload(function, node))
            return i;
    }
    return KILN__ONNX_NONE;
}
