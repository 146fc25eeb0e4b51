/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds-checked walk over the protobuf wire format, limited in depth and memory, before the
 * messages are unpacked. */
#include "onnx/wire.h"

#include <inttypes.h>
#include <string.h>

#include "onnx/error.h"

/* Models have graphs in attributes of nodes of graphs: four messages for each such level. */
enum { DEEPEST = 100 };

struct bytes {
    const uint8_t *at, *end;
};

static bool read_varint(struct bytes *bytes, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0; shift < 64 && bytes->at < bytes->end; shift += 7) {
        uint8_t byte = *bytes->at++;
        *value |= (uint64_t)(byte & 127) << shift;
        if (!(byte & 128))
            return true;
    }
    return false;
}

static bool skip(struct bytes *bytes, uint64_t length)
{
    if (length > (size_t)(bytes->end - bytes->at))
        return false;
    bytes->at += length;
    return true;
}

/* What a message in a field is; NULL where it is none. A schema that is older than version 1.14 of
 * ONNX does not have the defaults of a function's attributes. */
static const ProtobufCMessageDescriptor *inner_of(const ProtobufCMessageDescriptor *message,
                                                  uint64_t number)
{
    if (number > UINT32_MAX)
        return NULL;
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field(message, (unsigned)number);
    if (field)
        return field->type == PROTOBUF_C_TYPE_MESSAGE ? field->descriptor : NULL;
    return message == &onnx__function_proto__descriptor && number == KILN__ONNX_FUNCTION_DEFAULTS
               ? &onnx__attribute_proto__descriptor
               : NULL;
}

/* What unpacking takes beside the file: a text of one letter or an empty tensor is two or three
 * bytes there, and hundreds of bytes in memory. Models of many layers come to ten times their size
 * without weights. */
struct memory {
    uint64_t taken, most;
};

enum { LEAST_ROOM = 64 << 20, ROOM_PER_BYTE = 16, OVERHEAD = 32 };

static bool take(struct memory *memory, const ProtobufCMessageDescriptor *inner)
{
    memory->taken += OVERHEAD + (inner ? inner->sizeof_message : 0);
    return memory->taken <= memory->most;
}

/* message = (tag (varint | 8 bytes | length bytes | 4 bytes))* */
static bool walk(const ProtobufCMessageDescriptor *message, struct bytes bytes, unsigned depth,
                 struct memory *memory)
{
    if (depth > DEEPEST)
        return false;
    while (bytes.at < bytes.end) {
        uint64_t tag, length;
        if (!read_varint(&bytes, &tag))
            return false;
        const ProtobufCMessageDescriptor *inner = inner_of(message, tag >> 3);
        bool fits = true;
        switch (tag & 7) {
        case 0: fits = read_varint(&bytes, &length); break;
        case 1: fits = skip(&bytes, 8); break;
        case 2: {
            fits = read_varint(&bytes, &length);
            const uint8_t *content = bytes.at;
            fits = fits && skip(&bytes, length) && take(memory, inner);
            if (fits && inner)
                fits = walk(inner, (struct bytes){content, content + length}, depth + 1, memory);
            break;
        }
        case 5: fits = skip(&bytes, 4); break;
        default: fits = false;
        }
        if (!fits)
            return false;
    }
    return true;
}

kiln_status kiln__onnx_unpack(const char *name, const uint8_t *bytes, size_t length,
                              Onnx__ModelProto **model)
{
    struct memory memory = {.most = LEAST_ROOM + (uint64_t)ROOM_PER_BYTE * length};
    *model = NULL;
    if (walk(&onnx__model_proto__descriptor, (struct bytes){bytes, bytes + length}, 0, &memory))
        *model = onnx__model_proto__unpack(NULL, length, bytes);
    else if (memory.taken > memory.most)
        return kiln__onnx_fail(KILN_TOO_LARGE,
                               "kiln_model_load: %s has so many parts that reading its %zu bytes "
                               "takes more than %" PRIu64 " bytes of memory",
                               name, length, memory.most);
    if (!*model)
        return kiln__onnx_fail(KILN_INVALID_ARGUMENT,
                               "kiln_model_load: %s is no ONNX model, or is damaged", name);
    return KILN_OK;
}

/* ---- where content lies ---- */

enum { MODEL_GRAPH = 7, GRAPH_INITIALIZER = 5, TENSOR_RAW_DATA = 9 };

/* The content of the next field of that number, in a message that has been walked. */
static bool next_field(struct bytes *message, unsigned number, struct bytes *content)
{
    uint64_t tag, length = 0;
    while (message->at < message->end && read_varint(message, &tag)) {
        bool fits = true;
        switch (tag & 7) {
        case 0: fits = read_varint(message, &length); break;
        case 1: fits = skip(message, 8); break;
        case 5: fits = skip(message, 4); break;
        default: fits = read_varint(message, &length);
        }
        content->at = message->at;
        if ((tag & 7) == 2)
            fits = fits && skip(message, length);
        content->end = message->at;
        if (!fits)
            return false;
        if (tag >> 3 == number && (tag & 7) == 2)
            return true;
    }
    return false;
}

bool kiln__onnx_find_raw(const uint8_t *bytes, size_t length, const Onnx__ModelProto *model,
                         uint64_t *places)
{
    struct bytes whole = {bytes, bytes + length}, graph, initializer, raw;
    size_t i = 0, count = model->graph ? model->graph->n_initializer : 0;
    while (next_field(&whole, MODEL_GRAPH, &graph))
        for (; next_field(&graph, GRAPH_INITIALIZER, &initializer); i++) {
            if (i >= count)
                return false;
            const ProtobufCBinaryData *data = &model->graph->initializer[i]->raw_data;
            while (next_field(&initializer, TENSOR_RAW_DATA, &raw))
                if ((size_t)(raw.end - raw.at) == data->len && data->len &&
                    !memcmp(raw.at, data->data, data->len))
                    places[i] = (uint64_t)(raw.at - bytes);
        }
    return i == count;
}

bool kiln__onnx_unknown(const ProtobufCMessage *message, unsigned number, size_t *next,
                        const uint8_t **content, size_t *length)
{
    while (*next < message->n_unknown_fields) {
        const ProtobufCMessageUnknownField *field = &message->unknown_fields[(*next)++];
        struct bytes bytes = {field->data, field->data + field->len};
        uint64_t size;
        if (field->tag != number || field->wire_type != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED ||
            !read_varint(&bytes, &size) || size != (size_t)(bytes.end - bytes.at))
            continue;
        *content = bytes.at;
        *length = (size_t)size;
        return true;
    }
    return false;
}
