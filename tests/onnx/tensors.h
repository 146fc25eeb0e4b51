/* SPDX-License-Identifier: Apache-2.0 */
/* TensorProto messages as arrays, and what was computed beside what was expected. */
#pragma once

#include <stdbool.h>

#include <kiln/onnx.h>

#include "onnx/onnx.pb-c.h"

enum { REASON = 320 };

/* How far from what is expected a floating result may be. */
struct tolerance {
    double relative, absolute;
};

/* The type that a model has for one of ONNX's, 0 without one; whether it has the same values, as
 * f32 has not those of f64; and the name among ONNX's. */
kiln_type type_of_onnx(int32_t type);
bool is_same_type(int32_t type);
const char *name_of_onnx(int32_t type);

/* A file's content, which the caller frees; NULL without it. */
uint8_t *read_file(const char *path, size_t *size);

/* The message of a file; NULL and a reason if it is none. */
Onnx__TensorProto *read_tensor(const char *path, char *reason);

/* Its elements, which the caller frees; false and a reason where kiln has no such type, or
 * where the message is not whole. */
bool array_of_tensor(const Onnx__TensorProto *tensor, kiln_array *array, char *reason);

/* Whether the result is what the message says: type, shape, elements; else a reason. */
bool array_is(const kiln_array *array, const Onnx__TensorProto *wanted, struct tolerance tolerance,
              char *reason);
