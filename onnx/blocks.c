/* SPDX-License-Identifier: Apache-2.0 */
/* Quantised weights from the file to rows of blocks: q4_0 and q8_0 where these say the same,
 * else q4_z and q8_z, which have scales and zero points of 32 bits. */
#include "onnx/blocks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/kiln.h>

#include "onnx/record.h"
#include "onnx/tensor.h"

/* Elements of a block of kiln's. */
enum { BLOCK = 32, LARGEST = 1 << 16 };

bool kiln__onnx_read_quantised(struct kiln__onnx_call *call, struct kiln__onnx_quantised *weights)
{
    const int64_t n = kiln__onnx_int(call, "N", 0), k = kiln__onnx_int(call, "K", 0);
    const int64_t block = kiln__onnx_int(call, "block_size", 0);
    const int64_t bits = kiln__onnx_int(call, "bits", 4);
    if (bits != 4 && bits != 8)
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "weights of %" PRId64 " bits, and not 4 or 8",
                          bits);
    else if (n < 1 || k < 1 || n > INT32_MAX || k > INT32_MAX)
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "K is %" PRId64 " and N %" PRId64, k, n);
    else if (block < 16 || block > LARGEST || (block & (block - 1)))
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT,
                          "block_size is %" PRId64 ", and no power of two from 16 to %d", block,
                          LARGEST);
    else {
        const size_t blocks = ((size_t)k + (size_t)block - 1) / (size_t)block;
        *weights = (struct kiln__onnx_quantised){.n = (size_t)n,
                                                 .k = (size_t)k,
                                                 .block = (size_t)block,
                                                 .blocks = blocks,
                                                 .zero_bytes = (blocks * (size_t)bits + 7) / 8,
                                                 .bits = (unsigned)bits};
    }
    return !call->recorder->status;
}

/* ---- one node's content ---- */

static uint8_t byte_of(const struct kiln__onnx_elements *elements, size_t i)
{
    return elements->unpacked ? (uint8_t)((const int32_t *)elements->bytes)[i]
                              : ((const uint8_t *)elements->bytes)[i];
}

static bool are_bytes(const struct kiln__onnx_elements *elements, size_t count)
{
    return elements->type == ONNX__TENSOR_PROTO__DATA_TYPE__UINT8 && elements->count == count;
}

/* Whether the operands are as many as the attributes say; if not, recording will say so. */
static bool is_whole(const struct kiln__onnx_packed *content)
{
    const struct kiln__onnx_quantised *as = &content->as;
    const size_t all = as->n * as->blocks;
    return as->block % BLOCK == 0 &&
           are_bytes(&content->weights, all * (as->block * as->bits / 8)) &&
           kiln__onnx_type_floats(content->scale.type) && content->scale.count == all &&
           (!content->zero.type || are_bytes(&content->zero, as->n * as->zero_bytes) ||
            (kiln__onnx_type_floats(content->zero.type) && content->zero.count == all));
}

static float zero_of(const struct kiln__onnx_packed *content, size_t n, size_t block)
{
    const struct kiln__onnx_quantised *as = &content->as;
    if (!content->zero.type)
        return as->bits == 4 ? 8 : 128;
    if (kiln__onnx_type_floats(content->zero.type))
        return (float)kiln__onnx_element(&content->zero, n * as->blocks + block).f;
    if (as->bits == 8)
        return byte_of(&content->zero, n * as->zero_bytes + block);
    return (float)(byte_of(&content->zero, n * as->zero_bytes + block / 2) >> block % 2 * 4 & 15);
}

static bool spread(struct kiln__onnx_packed *content)
{
    const struct kiln__onnx_quantised *as = &content->as;
    const size_t all = as->n * as->blocks, bytes = content->weights.count;
    content->scales = malloc(all * sizeof *content->scales);
    content->zeros = malloc(all * sizeof *content->zeros);
    content->bytes = content->weights.unpacked ? malloc(bytes) : NULL;
    if (!content->scales || !content->zeros || (content->weights.unpacked && !content->bytes))
        return false;
    for (size_t i = 0; content->bytes && i < bytes; i++)
        content->bytes[i] = byte_of(&content->weights, i);
    for (size_t i = 0; i < all; i++) {
        content->scales[i] = (float)kiln__onnx_element(&content->scale, i).f;
        content->zeros[i] = zero_of(content, i / as->blocks, i % as->blocks);
    }
    return true;
}

/* ---- blocks ---- */

/* The type that has these scales and zero points with the fewest bytes. */
static kiln_type type_for(const struct kiln__onnx_packed *content)
{
    const struct kiln__onnx_quantised *as = &content->as;
    bool narrow = true;
    for (size_t i = 0; narrow && i < as->n * as->blocks; i++)
        narrow = content->zeros[i] == (as->bits == 4 ? 8 : 128) &&
                 (float)kiln__onnx_from_half(kiln__onnx_half((double)content->scales[i])) ==
                     content->scales[i];
    return as->bits == 4 ? (narrow ? KILN_Q4_0 : KILN_Q4_Z) : narrow ? KILN_Q8_0 : KILN_Q8_Z;
}

static void store_float(float number, uint8_t *to)
{
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(bits >> 8 * i);
}

/* A block's scale and zero point; gives how many bytes they take. */
static size_t store_scale(kiln_type type, float scale, float zero, uint8_t *block)
{
    if (type == KILN_Q4_Z || type == KILN_Q8_Z) {
        store_float(scale, block);
        store_float(zero, block + 4);
        return 8;
    }
    const uint16_t half = kiln__onnx_half((double)scale);
    block[0] = (uint8_t)half;
    block[1] = (uint8_t)(half >> 8);
    return 2;
}

/* 32 elements; ONNX has neighbours in a byte, kiln those that are 16 apart. */
static void store_elements(kiln_type type, const uint8_t *from, uint8_t *to)
{
    if (type == KILN_Q4_0 || type == KILN_Q4_Z)
        for (unsigned i = 0; i < BLOCK / 2; i++) {
            const unsigned shift = i % 2 * 4;
            to[i] = (uint8_t)((from[i / 2] >> shift & 15) | (from[8 + i / 2] >> shift & 15) << 4);
        }
    else
        for (unsigned i = 0; i < BLOCK; i++)
            to[i] = from[i] ^ (type == KILN_Q8_0 ? 128 : 0);
}

static void store_row(const struct kiln__onnx_packed *content, kiln_type type, size_t n,
                      uint8_t *to)
{
    const struct kiln__onnx_quantised *as = &content->as;
    const size_t line = as->blocks * as->block * as->bits / 8, step = BLOCK * as->bits / 8;
    const uint8_t *bytes = content->bytes ? content->bytes : content->weights.bytes;
    for (size_t k = 0; k < as->k; k += BLOCK, to += kiln_type_size(type)) {
        const size_t block = n * as->blocks + k / as->block;
        uint8_t *at = to + store_scale(type, content->scales[block], content->zeros[block], to);
        store_elements(type, bytes + n * line + k / BLOCK * step, at);
    }
}

enum { PIECE = 1 << 20 };

static kiln_status make_buffer(kiln_onnx_model *model, const struct kiln__onnx_packed *content,
                               kiln_buffer **buffer)
{
    const struct kiln__onnx_quantised *as = &content->as;
    const kiln_type type = type_for(content);
    const size_t blocks = (as->k + BLOCK - 1) / BLOCK, row = blocks * kiln_type_size(type);
    const size_t rows = row < PIECE ? PIECE / row : 1;
    uint8_t *piece = malloc((rows < as->n ? rows : as->n) * row);
    if (!piece)
        return kiln__onnx_fail(KILN_OUT_OF_HOST_MEMORY, "kiln_model_load: no memory");
    kiln_status status =
        kiln_buffer_create(model->context, type, 2, (size_t[]){as->n, blocks * BLOCK}, buffer);
    for (size_t first = 0; first < as->n && !status; first += rows) {
        const size_t count = as->n - first < rows ? as->n - first : rows;
        for (size_t i = 0; i < count; i++)
            store_row(content, type, first + i, piece + i * row);
        status = kiln_buffer_write(*buffer, first * row, piece, count * row);
    }
    free(piece);
    return status;
}

/* ---- nodes ---- */

/* The constant that is a node's operand, or NULL. */
static const struct kiln__onnx_constant *constant_of(const kiln_onnx_model *model,
                                                     const struct kiln__onnx_node *node, size_t i)
{
    for (size_t c = 0; i < node->n_inputs && c < model->graphs.n_constants; c++)
        if (model->graphs.constants[c].value == node->inputs[i])
            return &model->graphs.constants[c];
    return NULL;
}

static bool has_operand(const struct kiln__onnx_node *node, size_t i)
{
    return i < node->n_inputs && node->inputs[i] != KILN__ONNX_NONE;
}

/* The node's content if all of it is in the file; else *whole is false. */
static kiln_status read_content(const kiln_onnx_model *model, const struct kiln__onnx_node *node,
                                const char *folder, struct kiln__onnx_packed *content, bool *whole)
{
    struct kiln__onnx_elements *const parts[] = {&content->weights, &content->scale,
                                                 &content->zero};
    struct kiln__onnx_recorder recorder = {0};
    struct kiln__onnx_call call = {.recorder = &recorder, .node = node};
    kiln_status status = KILN_OK;
    const bool is_linear = node->row == &kiln__onnx_linear_row;
    *whole = is_linear || kiln__onnx_read_quantised(&call, &content->as);
    for (size_t i = 0; i < 3 && *whole && !status; i++) {
        const struct kiln__onnx_constant *constant = constant_of(model, node, i + 1);
        if (constant)
            status = kiln__onnx_elements(constant->proto, folder, parts[i]);
        else
            *whole = i == 2 && !has_operand(node, 3);
    }
    if (*whole && !status && is_linear)
        return kiln__onnx_spread_linear(node, content, whole);
    *whole = *whole && !status && is_whole(content);
    if (*whole && !spread(content))
        status = kiln__onnx_fail(KILN_OUT_OF_HOST_MEMORY, "kiln_model_load: no memory");
    return status;
}

/* The node has them from now on; of NULL there is nothing to keep. */
static kiln_status keep(kiln_onnx_model *model, const struct kiln__onnx_node *node,
                        kiln_buffer *buffer)
{
    if (!buffer)
        return KILN_OK;
    struct kiln__onnx_blocks *more =
        realloc(model->blocks, (model->n_blocks + 1) * sizeof *model->blocks);
    if (!more) {
        kiln_buffer_release(buffer);
        return kiln__onnx_fail(KILN_OUT_OF_HOST_MEMORY, "kiln_model_load: no memory");
    }
    model->blocks = more;
    model->blocks[model->n_blocks++] = (struct kiln__onnx_blocks){node, buffer};
    return KILN_OK;
}

static kiln_status read_node(kiln_onnx_model *model, const struct kiln__onnx_node *node,
                             const char *folder)
{
    struct kiln__onnx_packed content = {0};
    bool whole;
    kiln_buffer *buffer = NULL;
    kiln_status status = read_content(model, node, folder, &content, &whole);
    if (whole && !status)
        status = make_buffer(model, &content, &buffer);
    kiln__onnx_elements_free(&content.weights);
    kiln__onnx_elements_free(&content.scale);
    kiln__onnx_elements_free(&content.zero);
    free(content.bytes);
    free(content.scales);
    free(content.zeros);
    return status ? status : keep(model, node, buffer);
}

/* Another node's, of the same matrix read the same way. */
static kiln_buffer *find_quantised(const kiln_onnx_model *model, uint32_t value, bool turned)
{
    for (size_t i = 0; i < model->n_blocks; i++) {
        bool way;
        if (kiln__onnx_is_quantised(model, model->blocks[i].node, &way) && way == turned &&
            model->blocks[i].node->inputs[1] == value)
            return model->blocks[i].buffer;
    }
    return NULL;
}

static kiln_status quantise_node(kiln_onnx_model *model, const struct kiln__onnx_node *node,
                                 bool turned, const char *folder)
{
    const struct kiln__onnx_constant *constant = constant_of(model, node, 1);
    kiln_buffer *buffer = constant ? find_quantised(model, node->inputs[1], turned) : NULL;
    if (!constant)
        return KILN_OK;
    if (buffer) {
        kiln_buffer_retain(buffer);
        return keep(model, node, buffer);
    }
    struct kiln__onnx_elements elements;
    kiln_status status = kiln__onnx_elements(constant->proto, folder, &elements);
    if (status)
        return status;
    status = kiln__onnx_quantise(model, &elements, turned, &buffer);
    kiln__onnx_elements_free(&elements);
    return status ? status : keep(model, node, buffer);
}

/* ---- all of them ---- */

kiln_buffer *kiln__onnx_blocks_of(const kiln_onnx_model *model, const struct kiln__onnx_node *node)
{
    for (size_t i = 0; i < model->n_blocks; i++)
        if (model->blocks[i].node == node)
            return model->blocks[i].buffer;
    return NULL;
}

/* What `visit` does to each live node, those in nodes too. */
struct walk {
    kiln_onnx_model *model;
    const char *folder;
    bool *read; /* of each value: somebody reads its content as it is in the file */
    kiln_status (*visit)(struct walk *walk, const struct kiln__onnx_node *node);
};

static kiln_status read_weights(struct walk *walk, const struct kiln__onnx_node *node)
{
    bool turned;
    if (!node->row)
        return KILN_OK;
    if (node->row == &kiln__onnx_linear_row || !strcmp(node->row->name, "MatMulNBits"))
        return read_node(walk->model, node, walk->folder);
    return kiln__onnx_is_quantised(walk->model, node, &turned)
               ? quantise_node(walk->model, node, turned, walk->folder)
               : KILN_OK;
}

static kiln_status mark_operands(struct walk *walk, const struct kiln__onnx_node *node)
{
    bool turned;
    const size_t last = !kiln__onnx_blocks_of(walk->model, node)              ? 0
                        : kiln__onnx_is_quantised(walk->model, node, &turned) ? 1
                                                                              : 3;
    for (size_t i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] != KILN__ONNX_NONE && (i < 1 || i > last))
            walk->read[node->inputs[i]] = true;
    return KILN_OK;
}

static kiln_status walk_nodes(struct walk *walk, const struct kiln__onnx_node *nodes, size_t n,
                              bool parts);

static kiln_status walk_graph(struct walk *walk, const struct kiln__onnx_graph *graph)
{
    for (size_t i = 0; i < graph->n_outputs; i++)
        walk->read[graph->outputs[i]] = true;
    return walk_nodes(walk, graph->nodes, graph->n_nodes, false);
}

static kiln_status walk_nodes(struct walk *walk, const struct kiln__onnx_node *nodes, size_t n,
                              bool parts)
{
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < n && !status; i++) {
        if (!nodes[i].live && !parts)
            continue;
        status = walk->visit(walk, &nodes[i]);
        if (!status && !kiln__onnx_blocks_of(walk->model, &nodes[i]))
            status = walk_nodes(walk, nodes[i].parts, nodes[i].n_parts, true);
        for (size_t g = 0; g < nodes[i].n_graphs && !status; g++)
            if (nodes[i].graphs[g])
                status = walk_graph(walk, nodes[i].graphs[g]);
    }
    return status;
}

kiln_status kiln__onnx_read_blocks(kiln_onnx_model *model, const char *folder)
{
    struct walk walk = {.model = model, .folder = folder, .visit = read_weights};
    walk.read = calloc((size_t)model->graphs.n_values + 1, sizeof *walk.read);
    if (!walk.read)
        return kiln__onnx_fail(KILN_OUT_OF_HOST_MEMORY, "kiln_model_load: no memory");
    kiln_status status = walk_graph(&walk, model->graphs.main);
    walk.visit = mark_operands;
    if (!status)
        status = walk_graph(&walk, model->graphs.main);
    for (size_t i = 0; i < model->graphs.n_constants && !status; i++)
        model->weights[i].apart = !walk.read[model->graphs.constants[i].value];
    free(walk.read);
    return status;
}

void kiln__onnx_free_blocks(kiln_onnx_model *model)
{
    for (size_t i = 0; i < model->n_blocks; i++)
        kiln_buffer_release(model->blocks[i].buffer);
    free(model->blocks);
}
