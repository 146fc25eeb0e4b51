/* SPDX-License-Identifier: Apache-2.0 */
/* The content of tensors in a file. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kiln/status.h>
#include <kiln/types.h>

#include "onnx/error.h"
#include "onnx/host.h"
#include "onnx/onnx.pb-c.h"

/* A tensor's elements where they lie: in the message, or in memory of their own. */
struct kiln__onnx_elements {
    int type; /* as TensorProto.DataType, one that kiln__onnx_type() knows */
    size_t rank;
    size_t dims[KILN_MAX_RANK];
    size_t count;
    const void *bytes; /* as the type lies in raw_data, or, if `unpacked`, in that type's field */
    bool unpacked;
    void *owned; /* to free, or NULL */
};

/* Check a tensor against itself and find its elements. `folder` is where external data lies, NULL
 * if there may be none. */
kiln_status kiln__onnx_elements(const Onnx__TensorProto *proto, const char *folder,
                                struct kiln__onnx_elements *elements);
void kiln__onnx_elements_free(struct kiln__onnx_elements *elements);

/* Whether that many bytes could be read from a file. */
bool kiln__onnx_read_at(int file, void *bytes, uint64_t length, uint64_t offset);

/* Element i as a cell. */
union kiln__onnx_cell kiln__onnx_element(const struct kiln__onnx_elements *elements, size_t i);
