/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of com.microsoft on weights of 4 and 8 bits with a scale, and perhaps a zero point, for
 * each block of neighbours: w = (q - zero point) * scale. */
#include <inttypes.h>

#include "onnx/blocks.h"
#include "onnx/record.h"
#include "onnx/values.h"

enum { UINT8 = ONNX__TENSOR_PROTO__DATA_TYPE__UINT8 };

/* ---- bytes of two elements ---- */

/* Along the last dimension each byte as its lower and its upper half; `bits` of 8: as it is. */
static kiln_tensor unpack(struct kiln__onnx_call *call, kiln_tensor bytes, unsigned bits)
{
    kiln_batch *b = call->batch;
    size_t rank, dims[KILN_MAX_RANK + 1];
    if (bits == 8 || kiln_tensor_shape(b, bytes, NULL, &rank, dims))
        return bytes;
    if (rank == KILN_MAX_RANK) {
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "packed elements of %d dimensions",
                          KILN_MAX_RANK);
        return (kiln_tensor){0};
    }
    dims[rank] = 1;
    kiln_tensor low = kiln_bit_and(b, bytes, kiln_constant(b, KILN_U8, 15));
    kiln_tensor high = kiln_shift_right(b, bytes, kiln_constant(b, KILN_U8, 4));
    kiln_tensor halves[] = {kiln_reshape(b, low, rank + 1, dims),
                            kiln_reshape(b, high, rank + 1, dims)};
    kiln_tensor both = kiln_concat(b, 2, halves, (int)rank);
    dims[rank - 1] *= 2;
    return kiln_reshape(b, both, rank, dims);
}

/* The first `extent` elements along a dimension. */
static kiln_tensor first_of(struct kiln__onnx_call *call, kiln_tensor x, size_t axis, size_t extent)
{
    size_t rank, dims[KILN_MAX_RANK];
    int64_t start[KILN_MAX_RANK] = {0}, stop[KILN_MAX_RANK];
    if (kiln_tensor_shape(call->batch, x, NULL, &rank, dims))
        return (kiln_tensor){0};
    for (size_t d = 0; d < rank; d++)
        stop[d] = (int64_t)(d == axis ? extent : dims[d]);
    return dims[axis] == extent ? x : kiln_slice(call->batch, x, start, stop, NULL);
}

/* (q - zero) * scale, all with shapes that broadcast. */
static kiln_tensor scaled(struct kiln__onnx_call *call, kiln_tensor q, kiln_tensor scale,
                          kiln_tensor zero)
{
    kiln_batch *b = call->batch;
    q = kiln_sub(b, kiln_cast(b, q, KILN_F32), kiln_cast(b, zero, KILN_F32));
    return kiln_mul(b, q, kiln_cast(b, scale, KILN_F32));
}

/* ---- MatMulNBits ---- */

static size_t count_of(const struct kiln__onnx_value *value)
{
    size_t count = 1;
    for (size_t i = 0; i < value->rank; i++)
        count *= value->dims[i];
    return count;
}

static bool is_right(struct kiln__onnx_call *call, size_t i, bool right, const char *wanted)
{
    if (!right)
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH,
                          "operand %zu does not have %s of K, N, bits and block_size", i, wanted);
    return right;
}

static bool check_operands(struct kiln__onnx_call *call, const struct kiln__onnx_quantised *as)
{
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, 0),
                                  *w = kiln__onnx_operand(call, 1);
    const struct kiln__onnx_value *scale = kiln__onnx_operand(call, 2);
    const struct kiln__onnx_value *zero = kiln__onnx_operand(call, 3);
    const size_t all = as->n * as->blocks;
    if (kiln__onnx_operand(call, 4)) {
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "groups in another order (g_idx)");
        return false;
    }
    return is_right(call, 0, x->rank && x->dims[x->rank - 1] == as->k, "the last dimension") &&
           is_right(call, 1, w->type == UINT8 && count_of(w) == all * (as->block * as->bits / 8),
                    "the bytes") &&
           is_right(call, 2, kiln__onnx_type_floats(scale->type) && count_of(scale) == all,
                    "the scales") &&
           (!zero || is_right(call, 3,
                              zero->type == UINT8
                                  ? count_of(zero) == as->n * as->zero_bytes
                                  : kiln__onnx_type_floats(zero->type) && count_of(zero) == all,
                              "the zero points"));
}

/* Weights [N, K] of operands that are not in the file, or in blocks of 16, in f32. */
static kiln_tensor make_weights(struct kiln__onnx_call *call, const struct kiln__onnx_quantised *as)
{
    kiln_batch *b = call->batch;
    const struct kiln__onnx_value *packed = kiln__onnx_operand(call, 3);
    const size_t each[] = {as->n, as->blocks, 1};
    kiln_tensor zero = kiln_constant(b, KILN_F32, as->bits == 4 ? 8 : 128);
    if (packed && packed->type == UINT8) {
        zero = kiln_reshape(b, kiln__onnx_tensor(call, 3), 2, (size_t[]){as->n, as->zero_bytes});
        zero = first_of(call, unpack(call, zero, as->bits), 1, as->blocks);
    } else if (packed) {
        zero = kiln__onnx_tensor(call, 3);
    }
    if (packed)
        zero = kiln_reshape(b, zero, 3, each);
    kiln_tensor q = kiln_reshape(b, kiln__onnx_tensor(call, 1), 3,
                                 (size_t[]){as->n, as->blocks, as->block * as->bits / 8});
    kiln_tensor scale = kiln_reshape(b, kiln__onnx_tensor(call, 2), 3, each);
    kiln_tensor w = scaled(call, unpack(call, q, as->bits), scale, zero);
    w = kiln_reshape(b, w, 2, (size_t[]){as->n, as->blocks * as->block});
    return first_of(call, w, 1, as->k);
}

/* Rows of blocks are of whole ones: x gets zeros beside what is behind K. */
kiln_tensor kiln__onnx_times_blocks(struct kiln__onnx_call *call, kiln_tensor x, size_t rank,
                                    size_t k, kiln_buffer *blocks)
{
    size_t before[KILN_MAX_RANK] = {0}, after[KILN_MAX_RANK] = {0};
    after[rank - 1] = (32 - k % 32) % 32;
    if (after[rank - 1])
        x = kiln_pad(call->batch, x, before, after, 0);
    return kiln_matmul_transposed(call->batch, x, 0, kiln_import(call->batch, blocks), 1);
}

kiln_tensor kiln__onnx_matmul_blocks(struct kiln__onnx_call *call, size_t k, size_t n,
                                     kiln_buffer *blocks)
{
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    if (!x->rank || x->dims[x->rank - 1] != k || !kiln__onnx_type_floats(x->type)) {
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH,
                          "a product of %s with a last dimension of %zu and of weights [%zu,%zu]",
                          kiln__onnx_type_name(x->type), x->rank ? x->dims[x->rank - 1] : 1, k, n);
        return (kiln_tensor){0};
    }
    kiln_tensor y = kiln__onnx_tensor(call, 0);
    if (x->rank == 1)
        y = kiln_reshape(call->batch, y, 2, (size_t[]){1, k});
    y = kiln__onnx_times_blocks(call, y, x->rank == 1 ? 2 : x->rank, k, blocks);
    return x->rank == 1 ? kiln_reshape(call->batch, y, 1, &n) : y;
}

static void record_matmul(struct kiln__onnx_call *call)
{
    struct kiln__onnx_quantised as;
    for (size_t i = 0; i < 3; i++)
        if (!kiln__onnx_need(call, i))
            return;
    if (!kiln__onnx_read_quantised(call, &as) || !check_operands(call, &as))
        return;
    kiln_tensor x = kiln__onnx_tensor(call, 0);
    kiln_buffer *blocks = kiln__onnx_blocks_of(call->recorder->model, call->node);
    kiln_tensor y =
        blocks ? kiln__onnx_times_blocks(call, x, kiln__onnx_operand(call, 0)->rank, as.k, blocks)
               : kiln_matmul_transposed(call->batch, x, 0, make_weights(call, &as), 1);
    if (kiln__onnx_operand(call, 5))
        y = kiln_add(call->batch, y, kiln__onnx_tensor(call, 5));
    kiln__onnx_give_like(call, y);
}

/* ---- GatherBlockQuantized ---- */

kiln_tensor kiln__onnx_repeat(struct kiln__onnx_call *call, kiln_tensor x, size_t axis,
                              size_t block, size_t extent)
{
    size_t rank, dims[KILN_MAX_RANK + 1], wide[KILN_MAX_RANK + 1];
    if (kiln_tensor_shape(call->batch, x, NULL, &rank, dims))
        return (kiln_tensor){0};
    if (rank == KILN_MAX_RANK || block > PTRDIFF_MAX / 2 / (dims[axis] + 1) ||
        dims[axis] * block < extent) {
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH, "its blocks do not cover the axis");
        return (kiln_tensor){0};
    }
    for (size_t d = rank; d > axis; d--)
        dims[d] = dims[d - 1];
    dims[axis + 1] = 1;
    for (size_t d = 0; d <= rank; d++)
        wide[d] = d == axis + 1 ? block : dims[d];
    x = kiln_broadcast(call->batch, kiln_reshape(call->batch, x, rank + 1, dims), rank + 1, wide);
    wide[axis] *= block;
    for (size_t d = axis + 1; d < rank; d++)
        wide[d] = wide[d + 1];
    return first_of(call, kiln_reshape(call->batch, x, rank, wide), axis, extent);
}

struct table {
    size_t gathered, quantised;   /* axes */
    size_t block, blocks, extent; /* along the latter */
    unsigned bits;                /* of what is packed; else 8 */
};

/* Whether operand i is as the rows are, with one element for each `each` along the axis. */
static bool fits(struct kiln__onnx_call *call, size_t i, const struct table *table, size_t wanted)
{
    const struct kiln__onnx_value *rows = kiln__onnx_operand(call, 0);
    const struct kiln__onnx_value *value = kiln__onnx_operand(call, i);
    bool right = value->rank == rows->rank;
    for (size_t d = 0; right && d < rows->rank; d++)
        right = value->dims[d] == (d == table->quantised ? wanted : rows->dims[d]);
    if (!right)
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH,
                          "operand %zu does not have one element for each block of %zu", i,
                          table->block);
    return right;
}

static bool find_table(struct kiln__onnx_call *call, struct table *table)
{
    const struct kiln__onnx_value *rows = kiln__onnx_operand(call, 0);
    const int64_t block = kiln__onnx_int(call, "block_size", 128);
    const int64_t bits = kiln__onnx_int(call, "bits", 4);
    const bool bytes = rows->type == UINT8;
    table->gathered = kiln__onnx_axis(call, kiln__onnx_int(call, "gather_axis", 0), rows->rank);
    table->quantised = kiln__onnx_axis(call, kiln__onnx_int(call, "quantize_axis", 1), rows->rank);
    if (kiln__onnx_failed(call))
        return false;
    if (block < 16 || block > INT32_MAX || (block & (block - 1)) || (bits != 4 && bits != 8))
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT,
                          "blocks of %" PRId64 " elements of %" PRId64 " bits", block, bits);
    else if (!bytes && rows->type != KILN__ONNX_INT4 && rows->type != KILN__ONNX_UINT4)
        kiln__onnx_refuse(call, KILN_TYPE_MISMATCH, "it gathers %s",
                          kiln__onnx_type_name(rows->type));
    else if (table->gathered == table->quantised || (bytes && table->quantised != rows->rank - 1))
        kiln__onnx_refuse(call, KILN_UNSUPPORTED,
                          "gathered along the axis of blocks, or bytes whose "
                          "blocks are not along the last one");
    if (kiln__onnx_failed(call))
        return false;
    table->bits = bytes ? (unsigned)bits : 8;
    table->block = (size_t)block;
    table->extent = rows->dims[table->quantised] * (8 / table->bits);
    table->blocks = (table->extent + table->block - 1) / table->block;
    return fits(call, 2, table, table->blocks) &&
           (!kiln__onnx_operand(call, 3) ||
            fits(call, 3, table, (table->blocks * table->bits + 7) / 8));
}

static kiln_tensor gather(struct kiln__onnx_call *call, size_t i, const struct table *table)
{
    struct kiln__onnx_value found = kiln__onnx_gather(call, kiln__onnx_operand(call, i),
                                                      kiln__onnx_operand(call, 1), table->gathered);
    return kiln__onnx_failed(call) ? (kiln_tensor){0} : kiln__onnx_tensor_of(call, &found);
}

/* Rows, scales and zero points are gathered as they are: of the rest nothing is made. */
static void record_gather(struct kiln__onnx_call *call)
{
    struct table table;
    for (size_t i = 0; i < 3; i++)
        if (!kiln__onnx_need(call, i))
            return;
    if (!find_table(call, &table))
        return;
    const size_t more = kiln__onnx_operand(call, 1)->rank;
    const size_t axis = table.quantised + (table.quantised > table.gathered ? more : 1) - 1;
    const bool bytes = kiln__onnx_operand(call, 0)->type == UINT8;
    kiln_tensor q = unpack(call, gather(call, 0, &table), table.bits);
    kiln_tensor scale = gather(call, 2, &table);
    kiln_tensor zero = kiln_constant(call->batch, KILN_F32, !bytes ? 0 : table.bits == 4 ? 8 : 128);
    if (kiln__onnx_operand(call, 3)) {
        zero =
            first_of(call, unpack(call, gather(call, 3, &table), table.bits), axis, table.blocks);
        zero = kiln__onnx_repeat(call, zero, axis, table.block, table.extent);
    }
    scale = kiln__onnx_repeat(call, scale, axis, table.block, table.extent);
    if (!kiln__onnx_failed(call))
        kiln__onnx_give(call, 0, scaled(call, q, scale, zero), kiln__onnx_operand(call, 2)->type);
}

const struct kiln__onnx_row kiln__onnx_blocks_rows[] = {
    KILN__ONNX_ROW("GatherBlockQuantized", 1, record_gather, .domain = KILN__ONNX_MICROSOFT),
    KILN__ONNX_ROW("MatMulNBits", 1, record_matmul, .domain = KILN__ONNX_MICROSOFT),
    {0},
};
