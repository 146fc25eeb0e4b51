/* SPDX-License-Identifier: Apache-2.0 */
/* What a file has the content of: small arrays known on the host, all others in buffers. */
#pragma once

#include "onnx/model.h"

struct kiln__onnx_recorder;

/* Read all that is needed of the model's constants; frees their bytes in the messages. `folder` is
 * where external data lies, or NULL. */
kiln_status kiln__onnx_read_weights(kiln_onnx_model *model, const char *folder,
                                    struct kiln__onnx_text *notes);
void kiln__onnx_free_weights(kiln_onnx_model *model);

/* Enter them into a recorder's values. */
kiln_status kiln__onnx_take_weights(struct kiln__onnx_recorder *recorder);

/* A new buffer with the content of an array, of this shape. */
kiln_status kiln__onnx_buffer_of(kiln_context *context, const struct kiln__onnx_host *host,
                                 size_t rank, const size_t *dims, kiln_buffer **buffer);
