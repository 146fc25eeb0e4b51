/* SPDX-License-Identifier: Apache-2.0 */
/* A model's bytes to messages. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kiln/status.h>

#include "onnx/onnx.pb-c.h"

/* Unpack a model, after a look at how deep its messages lie in each other: unpacking goes as deep
 * on the stack. `name` is what the sentence calls it. Owner: the caller, until
 * onnx__model_proto__free_unpacked(). */
kiln_status kiln__onnx_unpack(const char *name, const uint8_t *bytes, size_t length,
                              Onnx__ModelProto **model);

/* Where among the bytes that `model` was unpacked from the initializers of its graph have their raw
 * data, `places[i]` bytes from the beginning; 0: initializer i has none, or it lies elsewhere.
 * False if they cannot be told apart. */
bool kiln__onnx_find_raw(const uint8_t *bytes, size_t length, const Onnx__ModelProto *model,
                         uint64_t *places);

/* Numbers of fields that the schema may be too old for. */
enum {
    KILN__ONNX_NODE_OVERLOAD = 8,
    KILN__ONNX_FUNCTION_DEFAULTS = 11, /* repeated AttributeProto */
    KILN__ONNX_FUNCTION_OVERLOAD = 13
};

/* The content of the next field of that number which the schema has not, from field `*next` on;
 * false after the last. */
bool kiln__onnx_unknown(const ProtobufCMessage *message, unsigned number, size_t *next,
                        const uint8_t **content, size_t *length);
