/* SPDX-License-Identifier: Apache-2.0 */
/* Weights that are read from their file again when a buffer has given up its memory
 * (kiln_buffer_set_source()). The file stays open, and has to be what it was. */
#pragma once

#include "onnx/tensor.h"

/* An open file, and where in it initializers have their elements. */
struct kiln__onnx_file;

/* Of a file and its content, which is `model` unpacked; takes `descriptor` over. NULL without
 * memory, or where nothing would be found: weights then have no source. */
struct kiln__onnx_file *kiln__onnx_file_open(int descriptor, const uint8_t *bytes, size_t length,
                                             const Onnx__ModelProto *model);

/* NULL does nothing. Buffers that have it for a source hold their own reference. */
void kiln__onnx_file_release(struct kiln__onnx_file *file);

/* Bytes to elements of a buffer, from element `start` of what is in the file on. */
typedef void kiln__onnx_converter(const struct kiln__onnx_elements *elements, kiln_type type,
                                  size_t n, void *to);

/* Make the file the source of a buffer with a tensor's elements, where it has them as raw data;
 * `convert`: NULL, or how they become the buffer's. */
kiln_status kiln__onnx_file_serve(struct kiln__onnx_file *file, const Onnx__TensorProto *proto,
                                  const struct kiln__onnx_elements *elements, kiln_type type,
                                  kiln__onnx_converter *convert, kiln_buffer *buffer);
