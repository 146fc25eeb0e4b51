/* SPDX-License-Identifier: Apache-2.0 */
/* Quantised weights of MatMulNBits that the file has: at load they become rows of a type of blocks
 * of kiln's, which products read as they lie in memory. */
#pragma once

#include "onnx/call.h"
#include "onnx/model.h"

/* The weights of one node as a buffer [N, K up to a multiple of 32]. */
struct kiln__onnx_blocks {
    const struct kiln__onnx_node *node;
    kiln_buffer *buffer;
};

/* What MatMulNBits has of its weights; operand 1 has them, 2 the scales, 3 the zero points. */
struct kiln__onnx_quantised {
    size_t n, k;       /* results, and elements of the sum of each */
    size_t block;      /* so many of these have one scale: a power of two */
    size_t blocks;     /* of a sum */
    size_t zero_bytes; /* of a result's zero points where they are packed */
    unsigned bits;     /* of an element: 4 or 8 */
};

/* A node's attributes; false after refusing the node. */
bool kiln__onnx_read_quantised(struct kiln__onnx_call *call, struct kiln__onnx_quantised *weights);

/* Make the buffers of all nodes whose weights are in the file and in blocks of multiples of 32.
 * Constants that nobody else reads are `apart` then: they have a shape, and no content
 * elsewhere. */
kiln_status kiln__onnx_read_blocks(kiln_onnx_model *model, const char *folder);
void kiln__onnx_free_blocks(kiln_onnx_model *model);

/* A node's; NULL: it has none. */
kiln_buffer *kiln__onnx_blocks_of(const kiln_onnx_model *model, const struct kiln__onnx_node *node);

/* Scales or zero points, one for each block along an axis, as one for each of `extent` elements;
 * refuses the node where they do not cover these. */
kiln_tensor kiln__onnx_repeat(struct kiln__onnx_call *call, kiln_tensor x, size_t axis,
                              size_t block, size_t extent);
