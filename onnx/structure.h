/* SPDX-License-Identifier: Apache-2.0 */
/* Structures of kiln/onnx.h in the form that a caller was built with: lib/util/structure.h for this
 * library, which has only what is public. */
#pragma once

#include "onnx/model.h"

/* What a caller says, NULL perhaps. Errors: INVALID_ARGUMENT, UNSUPPORTED. */
kiln_status kiln__onnx_read_options(const char *call, const kiln_model_options *options,
                                    kiln_model_options *own);

/* Fill the caller's form of ours: what ours lacks is 0. */
void kiln__onnx_structure_fill(void *to, size_t size, const void *own, size_t own_size);

/* Inputs or outputs of a model in a form of `size` bytes each, which the model keeps; NULL without
 * memory. */
const kiln_model_value *kiln__onnx_values(const kiln_onnx_model *model, bool outputs, size_t size);

/* Of a model's end. */
void kiln__onnx_free_forms(kiln_onnx_model *model);
