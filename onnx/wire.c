/* SPDX-License-Identifier: Apache-2.0 */
#include "onnx/wire.h"

#include <stdbool.h>

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

/* message = (tag (varint | 8 bytes | length bytes | 4 bytes))* */
static bool walk(const ProtobufCMessageDescriptor *message, struct bytes bytes, unsigned depth)
{
    if (depth > DEEPEST)
        return false;
    while (bytes.at < bytes.end) {
        uint64_t tag, length;
        if (!read_varint(&bytes, &tag))
            return false;
        const ProtobufCFieldDescriptor *field =
            tag >> 3 > UINT32_MAX
                ? NULL
                : protobuf_c_message_descriptor_get_field(message, (unsigned)(tag >> 3));
        bool fits = true;
        switch (tag & 7) {
        case 0: fits = read_varint(&bytes, &length); break;
        case 1: fits = skip(&bytes, 8); break;
        case 2: {
            fits = read_varint(&bytes, &length);
            const uint8_t *content = bytes.at;
            fits = fits && skip(&bytes, length);
            if (fits && field && field->type == PROTOBUF_C_TYPE_MESSAGE)
                fits =
                    walk(field->descriptor, (struct bytes){content, content + length}, depth + 1);
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
    *model = NULL;
    if (walk(&onnx__model_proto__descriptor, (struct bytes){bytes, bytes + length}, 0))
        *model = onnx__model_proto__unpack(NULL, length, bytes);
    if (!*model)
        return kiln__onnx_fail(KILN_INVALID_ARGUMENT,
                               "kiln_model_load: %s is no ONNX model, or is damaged", name);
    return KILN_OK;
}
