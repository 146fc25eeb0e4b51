/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a model, in memory until the next file. */
#pragma once

#include "onnx_choices.h"

#include "onnx/onnx.pb-c.h"

Onnx__TensorProto *onnx_make_tensor(struct onnx_maker *maker);

/* An input or output of that name: type and shape. */
Onnx__ValueInfoProto *onnx_make_value(struct onnx_maker *maker, const char *name);

Onnx__AttributeProto *onnx_make_attribute(struct onnx_maker *maker);
Onnx__GraphProto *onnx_make_graph(struct onnx_maker *maker);
