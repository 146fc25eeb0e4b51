/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products. */
#include <string.h>

#include "onnx/blocks.h"
#include "onnx/record.h"
#include "onnx/values.h"

/* ---- of integers: exact sums of 64 bits, which no product of floating numbers has ---- */

/* A matrix's last two dimensions exchanged. */
static kiln_tensor turned(struct kiln__onnx_call *call, kiln_tensor x, size_t rank)
{
    size_t axes[KILN_MAX_RANK];
    for (size_t d = 0; d < rank; d++)
        axes[d] = d;
    axes[rank - 2] = rank - 1;
    axes[rank - 1] = rank - 2;
    return kiln_transpose(call->batch, x, axes);
}

/* With a new dimension of 1 before dimension `at`. */
static kiln_tensor widened(struct kiln__onnx_call *call, kiln_tensor x, size_t at)
{
    size_t rank, dims[KILN_MAX_RANK + 1];
    if (kiln_tensor_shape(call->batch, x, NULL, &rank, dims))
        return x;
    memmove(dims + at + 1, dims + at, (rank - at) * sizeof *dims);
    dims[at] = 1;
    return kiln_reshape(call->batch, x, rank + 1, dims);
}

/* [..., i, k, 1] times [..., 1, k, j], summed over k; beside a vector there is no i, or no j. */
static kiln_tensor sum_of_products(struct kiln__onnx_call *call, kiln_tensor a, kiln_tensor b)
{
    const struct kiln__onnx_value *left = kiln__onnx_operand(call, 0);
    const struct kiln__onnx_value *right = kiln__onnx_operand(call, 1);
    int axis = -2;
    if (!left->rank || !right->rank || left->rank == KILN_MAX_RANK ||
        right->rank == KILN_MAX_RANK) {
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "a product of integers of %zu and %zu dimensions",
                          left->rank, right->rank);
        return (kiln_tensor){0};
    }
    a = widened(call, a, left->rank);
    if (right->rank == 1)
        b = widened(call, b, 1);
    else if (left->rank > 1)
        b = widened(call, b, right->rank - 2);
    kiln_tensor y = kiln_mul(call->batch, a, b);
    y = kiln_sum(call->batch, y, 1, &axis, false);
    if (right->rank == 1) {
        int last = -1;
        y = kiln_sum(call->batch, y, 1, &last, false);
    }
    return kiln__onnx_settle(call, y, left->type);
}

/* ---- of all types ---- */

/* Operands of matrix products; refuses others. */
static bool need_factors(struct kiln__onnx_call *call)
{
    if (!kiln__onnx_need(call, 0) || !kiln__onnx_need(call, 1))
        return false;
    int a = kiln__onnx_operand(call, 0)->type, b = kiln__onnx_operand(call, 1)->type;
    if (kiln__onnx_type_floats(a) != kiln__onnx_type_floats(b)) {
        kiln__onnx_refuse(call, KILN_TYPE_MISMATCH, "a product of %s and %s",
                          kiln__onnx_type_name(a), kiln__onnx_type_name(b));
        return false;
    }
    return true;
}

/* a' b' */
static kiln_tensor product(struct kiln__onnx_call *call, bool turn_a, bool turn_b)
{
    const struct kiln__onnx_value *left = kiln__onnx_operand(call, 0);
    const struct kiln__onnx_value *right = kiln__onnx_operand(call, 1);
    kiln_buffer *blocks = kiln__onnx_blocks_of(call->recorder->model, call->node);
    if (blocks)
        return kiln__onnx_matmul_blocks(call, right->dims[turn_b], right->dims[!turn_b], blocks);
    kiln_tensor a = kiln__onnx_tensor(call, 0), b = kiln__onnx_tensor(call, 1);
    if (kiln__onnx_type_floats(left->type))
        return turn_a || turn_b ? kiln_matmul_transposed(call->batch, a, turn_a, b, turn_b)
                                : kiln_matmul(call->batch, a, b);
    return sum_of_products(call, turn_a && left->rank > 1 ? turned(call, a, left->rank) : a,
                           turn_b && right->rank > 1 ? turned(call, b, right->rank) : b);
}

static void matmul(struct kiln__onnx_call *call)
{
    if (need_factors(call))
        kiln__onnx_give_like(call, product(call, false, false));
}

static kiln_tensor times(kiln_batch *batch, kiln_tensor x, double factor)
{
    return factor == 1 ? x : kiln_scale(batch, x, factor);
}

/* alpha a' b' + beta c */
static void gemm(struct kiln__onnx_call *call)
{
    if (!need_factors(call))
        return;
    bool turn_a = kiln__onnx_int(call, "transA", 0) != 0;
    bool turn_b = kiln__onnx_int(call, "transB", 0) != 0;
    kiln_tensor y = product(call, turn_a, turn_b);
    y = times(call->batch, y, kiln__onnx_float(call, "alpha", 1));
    double beta = kiln__onnx_float(call, "beta", 1);
    if (kiln__onnx_operand(call, 2) && beta != 0)
        y = kiln_add(call->batch, y, times(call->batch, kiln__onnx_tensor(call, 2), beta));
    kiln__onnx_give_like(call, y);
}

/* com.microsoft: alpha a' b' of more dimensions, and a vector's product as of MatMul. */
static void fused_matmul(struct kiln__onnx_call *call)
{
    if (!need_factors(call))
        return;
    if (kiln__onnx_int(call, "transBatchA", 0) || kiln__onnx_int(call, "transBatchB", 0)) {
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "operands with their batches last");
        return;
    }
    bool turn_a = kiln__onnx_int(call, "transA", 0) && kiln__onnx_operand(call, 0)->rank > 1;
    bool turn_b = kiln__onnx_int(call, "transB", 0) && kiln__onnx_operand(call, 1)->rank > 1;
    kiln_tensor y = product(call, turn_a, turn_b);
    kiln__onnx_give_like(call, times(call->batch, y, kiln__onnx_float(call, "alpha", 1)));
}

const struct kiln__onnx_row kiln__onnx_product_rows[] = {
    KILN__ONNX_ROW("MatMul", 1, matmul),
    KILN__ONNX_ROW("Gemm", 7, gemm),
    KILN__ONNX_ROW("FusedMatMul", 1, fused_matmul, .domain = KILN__ONNX_MICROSOFT),
    {0},
};
