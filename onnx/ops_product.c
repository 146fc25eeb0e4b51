/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products. */
#include <string.h>

#include "onnx/values.h"

static void give_like(struct kiln__onnx_call *call, kiln_tensor y)
{
    kiln__onnx_give(call, 0, y, kiln__onnx_operand(call, 0)->type);
}

/* A product is of floating numbers: integers are multiplied as such where they are small enough to
 * be exact, which nobody can know here. */
static bool need_floats(struct kiln__onnx_call *call)
{
    for (size_t i = 0; i < 2; i++) {
        if (!kiln__onnx_need(call, i))
            return false;
        int type = kiln__onnx_operand(call, i)->type;
        if (!kiln__onnx_type_floats(type)) {
            kiln__onnx_refuse(call, KILN_UNSUPPORTED, "a product of %s",
                              kiln__onnx_type_name(type));
            return false;
        }
    }
    return true;
}

static void matmul(struct kiln__onnx_call *call)
{
    if (need_floats(call))
        give_like(call,
                  kiln_matmul(call->batch, kiln__onnx_tensor(call, 0), kiln__onnx_tensor(call, 1)));
}

static kiln_tensor times(kiln_batch *batch, kiln_tensor x, double factor)
{
    return factor == 1 ? x : kiln_scale(batch, x, factor);
}

/* alpha a' b' + beta c */
static void gemm(struct kiln__onnx_call *call)
{
    if (!need_floats(call))
        return;
    bool turn_a = kiln__onnx_int(call, "transA", 0) != 0;
    bool turn_b = kiln__onnx_int(call, "transB", 0) != 0;
    kiln_tensor y = kiln_matmul_transposed(call->batch, kiln__onnx_tensor(call, 0), turn_a,
                                           kiln__onnx_tensor(call, 1), turn_b);
    y = times(call->batch, y, kiln__onnx_float(call, "alpha", 1));
    double beta = kiln__onnx_float(call, "beta", 1);
    if (kiln__onnx_operand(call, 2) && beta != 0)
        y = kiln_add(call->batch, y, times(call->batch, kiln__onnx_tensor(call, 2), beta));
    give_like(call, y);
}

/* com.microsoft: alpha a' b' of more dimensions, and a vector's product as of MatMul. */
static void fused_matmul(struct kiln__onnx_call *call)
{
    if (!need_floats(call))
        return;
    if (kiln__onnx_int(call, "transBatchA", 0) || kiln__onnx_int(call, "transBatchB", 0)) {
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "operands with their batches last");
        return;
    }
    bool turn_a = kiln__onnx_int(call, "transA", 0) && kiln__onnx_operand(call, 0)->rank > 1;
    bool turn_b = kiln__onnx_int(call, "transB", 0) && kiln__onnx_operand(call, 1)->rank > 1;
    kiln_tensor y = kiln_matmul_transposed(call->batch, kiln__onnx_tensor(call, 0), turn_a,
                                           kiln__onnx_tensor(call, 1), turn_b);
    give_like(call, times(call->batch, y, kiln__onnx_float(call, "alpha", 1)));
}

#define ROW(name, since, function, domain)                                                         \
    {                                                                                              \
        name, since, KILN__ONNX_NEWEST, function, 0, NULL, domain                                  \
    }

const struct kiln__onnx_row kiln__onnx_product_rows[] = {
    ROW("MatMul", 1, matmul, NULL),
    ROW("Gemm", 7, gemm, NULL),
    ROW("FusedMatMul", 1, fused_matmul, "com.microsoft"),
    {0},
};
