/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of floats that products alone read as rows of blocks, where a model's options ask for it:
 * quantised once, at load. */
#include <stdlib.h>
#include <string.h>

#include <kiln/kiln.h>

#include "onnx/blocks.h"
#include "onnx/record.h"
#include "onnx/values.h"

enum { BLOCK = 32, ROWS = 64 };

bool kiln__onnx_is_quantised(const kiln_onnx_model *model, const struct kiln__onnx_node *node,
                             bool *turned)
{
    struct kiln__onnx_recorder recorder = {0};
    struct kiln__onnx_call call = {.recorder = &recorder, .node = node};
    const char *name = node->row ? node->row->name : "";
    const bool gemm = !strcmp(name, "Gemm");
    *turned = gemm && kiln__onnx_int(&call, "transB", 0);
    return (model->options.weights == KILN_Q8_0 || model->options.weights == KILN_Q4_0) &&
           (gemm || !strcmp(name, "MatMul")) && node->n_inputs > 1 &&
           !kiln__onnx_int(&call, "transA", 0) && !recorder.status;
}

/* Rows first to first + count, of k elements and zeros up to whole blocks. */
static void read_rows(const struct kiln__onnx_elements *weights, bool turned, size_t first,
                      size_t count, float *rows)
{
    const size_t k = weights->dims[turned], n = weights->dims[!turned];
    const size_t width = (k + BLOCK - 1) / BLOCK * BLOCK;
    for (size_t row = 0; row < count; row++)
        for (size_t i = k; i < width; i++)
            rows[row * width + i] = 0;
    for (size_t i = 0; i < k; i++)
        for (size_t row = 0; row < count; row++) {
            const size_t at = turned ? (first + row) * k + i : i * n + first + row;
            rows[row * width + i] = (float)kiln__onnx_element(weights, at).f;
        }
}

/* What is too large for blocks, or not finite, leaves *fits false. */
static kiln_status write_rows(const struct kiln__onnx_elements *weights, bool turned,
                              kiln_type type, kiln_buffer *buffer, bool *fits)
{
    const size_t n = weights->dims[!turned];
    const size_t blocks = (weights->dims[turned] + BLOCK - 1) / BLOCK;
    const size_t bytes = blocks * kiln_type_size(type), most = n < ROWS ? n : ROWS;
    float *rows = malloc(most * blocks * BLOCK * sizeof *rows);
    void *piece = malloc(most * bytes);
    kiln_status status =
        rows && piece ? KILN_OK
                      : kiln__onnx_fail(KILN_OUT_OF_HOST_MEMORY, "kiln_model_load: no memory");
    for (size_t first = 0; first < n && !status && *fits; first += most) {
        const size_t count = n - first < most ? n - first : most;
        read_rows(weights, turned, first, count, rows);
        *fits = !kiln_quantize_blocks(type, count * blocks * BLOCK, rows, piece, count * bytes);
        if (*fits)
            status = kiln_buffer_write(buffer, first * bytes, piece, count * bytes);
    }
    free(rows);
    free(piece);
    return status;
}

kiln_status kiln__onnx_quantise(const kiln_onnx_model *model,
                                const struct kiln__onnx_elements *weights, bool turned,
                                kiln_buffer **buffer)
{
    const kiln_type type = model->options.weights;
    *buffer = NULL;
    if (weights->rank != 2 || !kiln__onnx_type_floats(weights->type) ||
        kiln__onnx_is_small(weights->type, weights->count))
        return KILN_OK;
    const size_t blocks = (weights->dims[turned] + BLOCK - 1) / BLOCK;
    if (blocks * kiln_type_size(type) >= weights->dims[turned] * sizeof(float))
        return KILN_OK;
    kiln_buffer *made;
    bool fits = true;
    kiln_status status = kiln_buffer_create(
        model->context, type, 2, (size_t[]){weights->dims[!turned], blocks * BLOCK}, &made);
    if (!status)
        status = write_rows(weights, turned, type, made, &fits);
    if (status || !fits)
        kiln_buffer_release(made);
    else
        *buffer = made;
    return status;
}
