/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that a model has, which its nodes call. */
#pragma once

#include "onnx/graph.h"

/* The attributes that a function has where its caller has none. */
struct kiln__onnx_defaults {
    size_t n;
    Onnx__AttributeProto **list;
};

/* Those of each of the model's functions, freed with the graphs. Errors: OUT_OF_HOST_MEMORY,
 * INVALID_ARGUMENT. */
kiln_status kiln__onnx_function_defaults(const Onnx__ModelProto *model,
                                         struct kiln__onnx_graphs *graphs,
                                         struct kiln__onnx_defaults **defaults);

/* The number of the model's function that a node calls; KILN__ONNX_NONE where it calls none. */
size_t kiln__onnx_function_of(const Onnx__ModelProto *model, const Onnx__NodeProto *node);
