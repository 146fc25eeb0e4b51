/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of 4 bits that DequantizeLinear widens for a MatMul alone, as MatMulNBits has them: what
 * patterns.c joins is one product with rows of blocks. */
#include <stdlib.h>
#include <string.h>

#include <kiln/kiln.h>

#include "onnx/blocks.h"
#include "onnx/patterns.h"
#include "onnx/record.h"
#include "onnx/values.h"

enum { BLOCK = 32 };

/* ---- which scale an element has ---- */

/* How a matrix is quantised: elements of a sum lie along dimension `sum`. */
struct layout {
    size_t sum;
    size_t block; /* elements along it of one scale, or more than there are */
    bool single;  /* one scale for all */
    bool blocked; /* scales are a matrix, too */
};

/* Whether DequantizeLinear's operands are such that each row has scales for blocks of neighbours;
 * what is wrong in itself is left to recording. */
static bool find_layout(struct kiln__onnx_call *call, const struct kiln__onnx_packed *packed,
                        struct layout *layout)
{
    const struct kiln__onnx_elements *w = &packed->weights, *scale = &packed->scale;
    const int64_t block = kiln__onnx_int(call, "block_size", 0);
    int64_t axis = kiln__onnx_int(call, "axis", 1);
    axis += axis < 0 ? 2 : 0;
    layout->single = scale->count == 1 && scale->rank < 2;
    layout->blocked = block > 0 && scale->rank == 2;
    layout->block = layout->blocked ? (size_t)block : w->dims[layout->sum];
    if (axis < 0 || axis > 1 || block < 0 || block > INT32_MAX - BLOCK)
        return false;
    if (layout->single)
        return true;
    if (!layout->blocked)
        return !block && scale->rank == 1 && (size_t)axis != layout->sum &&
               scale->count == w->dims[axis];
    return (size_t)axis == layout->sum && block % BLOCK == 0 &&
           scale->dims[axis] == (w->dims[axis] + layout->block - 1) / layout->block &&
           scale->dims[1 - axis] == w->dims[1 - axis];
}

static size_t place_of(const struct layout *layout, const struct kiln__onnx_quantised *as, size_t n,
                       size_t block)
{
    if (layout->single)
        return 0;
    if (!layout->blocked)
        return n;
    return layout->sum ? n * as->blocks + block : block * as->n + n;
}

/* ---- the content ---- */

static bool are_operands(const struct kiln__onnx_packed *packed)
{
    const int type = packed->weights.type, zero = packed->zero.type;
    return (type == KILN__ONNX_INT4 || type == KILN__ONNX_UINT4) && packed->weights.rank == 2 &&
           packed->weights.count && packed->weights.dims[0] <= INT32_MAX &&
           packed->weights.dims[1] <= INT32_MAX && kiln__onnx_type_floats(packed->scale.type) &&
           (!zero || (zero == type && packed->zero.rank == packed->scale.rank &&
                      packed->zero.count == packed->scale.count));
}

/* As MatMulNBits has bytes, and numbers of 0 to 15. */
static void fill(struct kiln__onnx_packed *packed, const struct layout *layout)
{
    const struct kiln__onnx_quantised *as = &packed->as;
    const int64_t middle = packed->weights.type == KILN__ONNX_INT4 ? 8 : 0;
    const size_t line = as->blocks * as->block / 2;
    for (size_t n = 0; n < as->n; n++) {
        for (size_t k = 0; k < as->k; k++) {
            const size_t i = layout->sum ? n * as->k + k : k * as->n + n;
            const int64_t q = kiln__onnx_element(&packed->weights, i).i + middle;
            packed->bytes[n * line + k / 2] |= (uint8_t)((q & 15) << k % 2 * 4);
        }
        for (size_t block = 0; block < as->blocks; block++) {
            const size_t at = place_of(layout, as, n, block), to = n * as->blocks + block;
            packed->scales[to] = (float)kiln__onnx_element(&packed->scale, at).f;
            packed->zeros[to] = (float)middle;
            if (packed->zero.type)
                packed->zeros[to] += (float)kiln__onnx_element(&packed->zero, at).i;
        }
    }
}

/* Whether a Transpose between exchanges the two dimensions. */
static bool is_turned(struct kiln__onnx_recorder *recorder, const struct kiln__onnx_node *node)
{
    struct kiln__onnx_call call = {.recorder = recorder, .node = &node->parts[1]};
    size_t n = 0;
    const int64_t *axes = node->n_parts == 3 ? kiln__onnx_ints(&call, "perm", &n) : NULL;
    return node->n_parts == 3 && (!n || axes[0] == 1);
}

kiln_status kiln__onnx_spread_linear(const struct kiln__onnx_node *node,
                                     struct kiln__onnx_packed *packed, bool *whole)
{
    struct kiln__onnx_recorder recorder = {0};
    struct kiln__onnx_call call = {.recorder = &recorder, .node = &node->parts[0]};
    struct kiln__onnx_quantised *as = &packed->as;
    struct layout layout = {.sum = is_turned(&recorder, node)};
    *whole = are_operands(packed) && find_layout(&call, packed, &layout) && !recorder.status;
    if (!*whole)
        return KILN_OK;
    as->bits = 4;
    as->k = packed->weights.dims[layout.sum];
    as->n = packed->weights.dims[1 - layout.sum];
    const size_t most = (as->k + BLOCK - 1) / BLOCK * BLOCK; /* whatever the file says */
    as->block = layout.blocked && layout.block < most ? layout.block : most;
    as->blocks = (as->k + as->block - 1) / as->block;
    const size_t all = as->n * as->blocks;
    packed->bytes = calloc(all, as->block / 2);
    packed->scales = malloc(all * sizeof *packed->scales);
    packed->zeros = malloc(all * sizeof *packed->zeros);
    if (!packed->bytes || !packed->scales || !packed->zeros)
        return kiln__onnx_fail(KILN_OUT_OF_HOST_MEMORY, "kiln_model_load: no memory");
    fill(packed, &layout);
    return KILN_OK;
}

/* ---- at recording ---- */

/* Without blocks nothing is recorded, and the nodes are one by one. */
static void product_of_nodes(struct kiln__onnx_call *call)
{
    const struct kiln__onnx_value *x = call->in[0], *w = call->in[1];
    kiln_buffer *blocks = kiln__onnx_blocks_of(call->recorder->model, call->node);
    if (!blocks || !x || !w)
        return;
    const bool turned = is_turned(call->recorder, call->node);
    const size_t k = w->dims[turned], n = w->dims[!turned];
    kiln_tensor y = kiln__onnx_matmul_blocks(call, k, n, blocks);
    kiln__onnx_give(call, 0, y, x->type);
}

const struct kiln__onnx_row kiln__onnx_linear_row = {.name = "linear",
                                                     .first = 1,
                                                     .last = KILN__ONNX_NEWEST,
                                                     .record = product_of_nodes,
                                                     .domain = ""};
