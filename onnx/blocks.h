/* SPDX-License-Identifier: Apache-2.0 */
/* Quantised weights that the file has, of MatMulNBits, or of DequantizeLinear before a MatMul, and
 * floats where the model's options say so: at load they become rows of a type of blocks of kiln's,
 * which products read as they lie in memory. */
#pragma once

#include "onnx/call.h"
#include "onnx/model.h"
#include "onnx/tensor.h"

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

/* What a node's weights are read from, all on the host. */
struct kiln__onnx_packed {
    struct kiln__onnx_quantised as;
    struct kiln__onnx_elements weights, scale, zero; /* zero.type is 0: there are none */
    uint8_t *bytes;        /* MatMulNBits' of `weights`; NULL: those that lie there */
    float *scales, *zeros; /* of each block */
};

/* Bytes, scales and zero points of nodes that patterns.c has joined to kiln__onnx_linear_row; not
 * *whole: their weights are no rows of blocks. Errors: OUT_OF_HOST_MEMORY. */
kiln_status kiln__onnx_spread_linear(const struct kiln__onnx_node *node,
                                     struct kiln__onnx_packed *packed, bool *whole);

/* Whether a product's operand 1 is to become blocks, as the model's options say, and whether its
 * elements of a sum lie along its last dimension. */
bool kiln__onnx_is_quantised(const kiln_onnx_model *model, const struct kiln__onnx_node *node,
                             bool *turned);

/* A buffer of blocks of a matrix of floats; NULL: blocks of that type cannot hold them. Errors:
 * OUT_OF_HOST_MEMORY, and those of kiln_buffer_create() and kiln_buffer_write(). */
kiln_status kiln__onnx_quantise(const kiln_onnx_model *model,
                                const struct kiln__onnx_elements *weights, bool turned,
                                kiln_buffer **buffer);

/* Operand 0 times the rows of a buffer of blocks, of which there are N, of K elements; refuses
 * other shapes and types. */
kiln_tensor kiln__onnx_matmul_blocks(struct kiln__onnx_call *call, size_t k, size_t n,
                                     kiln_buffer *blocks);

/* x, of this rank and K last, times the rows of a buffer of blocks. */
kiln_tensor kiln__onnx_times_blocks(struct kiln__onnx_call *call, kiln_tensor x, size_t rank,
                                    size_t k, kiln_buffer *blocks);

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
