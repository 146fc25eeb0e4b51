/* SPDX-License-Identifier: Apache-2.0 */
/* Quantised operators of com.microsoft. Those named QLinear are ONNX's own between DequantizeLinear
 * and QuantizeLinear; products are exact sums of integers, scaled afterwards. */
#include <string.h>

#include "onnx/call.h"

#define TYPE(name) ONNX__TENSOR_PROTO__DATA_TYPE__##name

/* Each operand that is quantised is three: numbers, their scale, their zero point. */
enum { PARTS = 3, MOST = 64 };

/* ---- by an operator of ONNX's ---- */

struct plain {
    const char *name; /* ONNX's */
    int version;      /* of the set in which it means that; 0: attribute "opset" says which */
    size_t before;    /* operands that are not quantised, in front */
    size_t first,
        n;         /* where quantised operands begin, and how many there are; 0: all further ones */
    size_t result; /* where the result's scale and zero point are */
};

static struct kiln__onnx_value dequantized(struct kiln__onnx_call *call, size_t i)
{
    struct kiln__onnx_value value = {0}, *const parts[] = {kiln__onnx_operand(call, i),
                                                           kiln__onnx_operand(call, i + 1),
                                                           kiln__onnx_operand(call, i + 2)};
    if (kiln__onnx_need(call, i) && kiln__onnx_need(call, i + 1))
        kiln__onnx_apply(call, "DequantizeLinear", 13, parts[2] ? 3 : 2, parts, 1, &value);
    return value;
}

/* Without a zero point it is 0, of the type of operand `like`. */
static void give_quantized(struct kiln__onnx_call *call, struct kiln__onnx_value *y, size_t scale,
                           size_t like)
{
    struct kiln__onnx_value none = {.type = kiln__onnx_operand(call, like)->type}, result = {0};
    struct kiln__onnx_value *zero = kiln__onnx_operand(call, scale + 1);
    if (!kiln__onnx_need(call, scale) || !y->tensor.id)
        return;
    if (!zero) {
        none.tensor = kiln_constant(call->batch, kiln__onnx_type(none.type)->computed, 0);
        zero = &none;
    }
    struct kiln__onnx_value *const parts[] = {y, kiln__onnx_operand(call, scale), zero};
    kiln__onnx_apply(call, "QuantizeLinear", 13, 3, parts, 1, &result);
    kiln__onnx_give_value(call, 0, &result);
}

static void by_plain(struct kiln__onnx_call *call)
{
    const struct plain *plain = call->row->data;
    struct kiln__onnx_value values[MOST] = {{0}}, *in[MOST], y = {0};
    const size_t more = call->n_inputs > plain->first ? call->n_inputs - plain->first : 0;
    const size_t n = plain->n ? plain->n : more / PARTS;
    const int version = plain->version ? plain->version : (int)kiln__onnx_int(call, "opset", 13);
    if (!more || n >= MOST || kiln__onnx_int(call, "channels_last", 0)) {
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "%zu operands, or channels behind the image", n);
        return;
    }
    for (size_t i = 0; i < plain->before; i++)
        in[i] = kiln__onnx_operand(call, i);
    for (size_t i = 0; i < n && !kiln__onnx_failed(call); i++) {
        values[i] = dequantized(call, plain->first + PARTS * i);
        in[plain->before + i] = &values[i];
    }
    if (kiln__onnx_failed(call))
        return;
    kiln__onnx_apply(call, plain->name, version, plain->before + n, in, 1, &y);
    if (!kiln__onnx_failed(call))
        give_quantized(call, &y, plain->result, plain->first);
}

static const struct plain add = {"Add", 13, 0, 0, 2, 6}, mul = {"Mul", 13, 0, 0, 2, 6},
                          sigmoid = {"Sigmoid", 13, 0, 0, 1, 3},
                          leaky = {"LeakyRelu", 6, 0, 0, 1, 3},
                          softmax = {"Softmax", 0, 0, 0, 1, 3},
                          pool = {"AveragePool", 11, 0, 0, 1, 3},
                          global = {"GlobalAveragePool", 1, 0, 0, 1, 3},
                          mean = {"ReduceMean", 13, 0, 0, 1, 3},
                          concat = {"Concat", 13, 0, 2, 0, 0}, where = {"Where", 9, 1, 1, 2, 7};

/* ---- products ---- */

/* A scale or bias as f32, of one element without dimensions. */
static kiln_tensor spread(struct kiln__onnx_call *call, size_t i)
{
    const struct kiln__onnx_value *value = kiln__onnx_operand(call, i);
    kiln_tensor x = kiln_cast(call->batch, kiln__onnx_tensor(call, i), KILN_F32);
    return value->rank == 1 && value->dims[0] == 1 ? kiln_reshape(call->batch, x, 0, NULL) : x;
}

/* The exact i32 product of a and b less their zero points, which may be NULL, in f32. */
static kiln_tensor multiply(struct kiln__onnx_call *call, struct kiln__onnx_value *a,
                            struct kiln__onnx_value *a_zero, struct kiln__onnx_value *b,
                            struct kiln__onnx_value *b_zero)
{
    struct kiln__onnx_value product = {0}, *const parts[] = {a, b, a_zero, b_zero};
    kiln__onnx_apply(call, "MatMulInteger", 10, 4, parts, 1, &product);
    return product.tensor;
}

static void give_scaled(struct kiln__onnx_call *call, kiln_tensor product, kiln_tensor scale,
                        size_t bias, int type)
{
    if (kiln__onnx_failed(call))
        return;
    kiln_tensor y = kiln_mul(call->batch, kiln_cast(call->batch, product, KILN_F32), scale);
    if (kiln__onnx_operand(call, bias))
        y = kiln_add(call->batch, y, spread(call, bias));
    kiln__onnx_give(call, 0, y, type);
}

/* Operands: a, b, their scales, their zero points, a bias. */
static void to_float(struct kiln__onnx_call *call)
{
    for (size_t i = 0; i < 4; i++)
        if (!kiln__onnx_need(call, i))
            return;
    kiln_tensor product = multiply(call, kiln__onnx_operand(call, 0), kiln__onnx_operand(call, 4),
                                   kiln__onnx_operand(call, 1), kiln__onnx_operand(call, 5));
    give_scaled(call, product, kiln_mul(call->batch, spread(call, 2), spread(call, 3)), 6,
                kiln__onnx_operand(call, 2)->type);
}

/* Operands: a, which is quantised here, b, its scale, its zero point, a bias. */
static void dynamic(struct kiln__onnx_call *call)
{
    struct kiln__onnx_value q[PARTS] = {{0}};
    for (size_t i = 0; i < 3; i++)
        if (!kiln__onnx_need(call, i))
            return;
    struct kiln__onnx_value *const a[] = {kiln__onnx_operand(call, 0)};
    kiln__onnx_apply(call, "DynamicQuantizeLinear", 11, 1, a, PARTS, q);
    if (kiln__onnx_failed(call))
        return;
    kiln_tensor product =
        multiply(call, &q[0], &q[2], kiln__onnx_operand(call, 1), kiln__onnx_operand(call, 3));
    give_scaled(call, product, kiln_mul(call->batch, q[1].tensor, spread(call, 2)), 4,
                kiln__onnx_operand(call, 0)->type);
}

/* Operand i, a matrix, turned if the attribute says so. */
static struct kiln__onnx_value turned(struct kiln__onnx_call *call, size_t i, const char *attribute)
{
    struct kiln__onnx_value value = *kiln__onnx_operand(call, i);
    if (value.rank == 2 && kiln__onnx_int(call, attribute, 0)) {
        value.tensor = kiln_transpose(call->batch, kiln__onnx_tensor(call, i), NULL);
        value.host = NULL;
        value.dims[0] = kiln__onnx_operand(call, i)->dims[1];
        value.dims[1] = kiln__onnx_operand(call, i)->dims[0];
    }
    return value;
}

/* Operands: a, its scale and zero point, b, its scale and zero point, integers to add, the scale
 * and zero point of a result that is quantised. */
static void gemm(struct kiln__onnx_call *call)
{
    static const size_t needed[] = {0, 1, 3, 4};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!kiln__onnx_need(call, needed[i]))
            return;
    struct kiln__onnx_value a = turned(call, 0, "transA"), b = turned(call, 3, "transB"), y = {0};
    kiln_tensor product =
        multiply(call, &a, kiln__onnx_operand(call, 2), &b, kiln__onnx_operand(call, 5));
    if (kiln__onnx_failed(call))
        return;
    if (kiln__onnx_operand(call, 6))
        product = kiln_add(call->batch, product, kiln__onnx_tensor(call, 6));
    kiln_tensor scale = kiln_mul(call->batch, spread(call, 1), spread(call, 4));
    scale = kiln_scale(call->batch, scale, kiln__onnx_float(call, "alpha", 1));
    y.type = TYPE(FLOAT);
    y.tensor = kiln_mul(call->batch, kiln_cast(call->batch, product, KILN_F32), scale);
    if (kiln_tensor_shape(call->batch, y.tensor, NULL, &y.rank, y.dims))
        return;
    if (kiln__onnx_operand(call, 7))
        give_quantized(call, &y, 7, 0);
    else
        kiln__onnx_give_value(call, 0, &y);
}

/* ---- a recurrent layer ---- */

/* Weights [D,I,4H] with a scale and a zero point for each direction, and perhaps each column, as
 * [D,4H,I] in f32. */
static struct kiln__onnx_value widened(struct kiln__onnx_call *call, size_t i, size_t scale)
{
    kiln_batch *b = call->batch;
    struct kiln__onnx_value w = *kiln__onnx_operand(call, i);
    kiln_tensor parts[2];
    for (size_t k = 0; k < 2; k++) {
        const struct kiln__onnx_value *part = kiln__onnx_operand(call, scale + k);
        const size_t dims[] = {w.dims[0], 1, part->rank == 2 ? w.dims[2] : 1};
        if (w.rank != 3 || part->rank < 1 || part->rank > 2 || part->dims[0] != w.dims[0] ||
            (part->rank == 2 && part->dims[1] != w.dims[2])) {
            kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH,
                              "weights without a scale for each direction, or each column");
            return w;
        }
        parts[k] =
            kiln_reshape(b, kiln_cast(b, kiln__onnx_tensor(call, scale + k), KILN_F32), 3, dims);
    }
    kiln_tensor wide = kiln_sub(b, kiln_cast(b, kiln__onnx_tensor(call, i), KILN_F32), parts[1]);
    wide = kiln_mul(b, wide, parts[0]);
    const size_t rows = w.dims[1];
    w.dims[1] = w.dims[2];
    w.dims[2] = rows;
    w.type = TYPE(FLOAT);
    w.host = NULL;
    w.tensor = kiln_transpose(b, wide, (const size_t[]){0, 2, 1});
    return w;
}

/* Operands: LSTM's, then scale and zero point of both weights. Only these are quantised. */
static void lstm(struct kiln__onnx_call *call)
{
    static const size_t needed[] = {0, 1, 2, 8, 9, 10, 11};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!kiln__onnx_need(call, needed[i]))
            return;
    struct kiln__onnx_value w = widened(call, 1, 8), *in[8];
    struct kiln__onnx_value r = kiln__onnx_failed(call) ? w : widened(call, 2, 10);
    for (size_t i = 0; i < 8; i++)
        in[i] = kiln__onnx_operand(call, i);
    in[1] = &w;
    in[2] = &r;
    if (!kiln__onnx_failed(call))
        kiln__onnx_apply(call, "LSTM", 14, 8, in, call->n_outputs, call->out);
}

const struct kiln__onnx_row kiln__onnx_qlinear_rows[] = {
    KILN__ONNX_ROW("DynamicQuantizeLSTM", 1, lstm, .domain = KILN__ONNX_MICROSOFT),
    KILN__ONNX_ROW("DynamicQuantizeMatMul", 1, dynamic, .domain = KILN__ONNX_MICROSOFT),
    KILN__ONNX_ROW("MatMulIntegerToFloat", 1, to_float, .domain = KILN__ONNX_MICROSOFT),
    KILN__ONNX_ROW("QGemm", 1, gemm, .domain = KILN__ONNX_MICROSOFT),
    KILN__ONNX_ROW("QLinearAdd", 1, by_plain, .data = &add, .domain = KILN__ONNX_MICROSOFT),
    KILN__ONNX_ROW("QLinearAveragePool", 1, by_plain, .data = &pool,
                   .domain = KILN__ONNX_MICROSOFT),
    KILN__ONNX_ROW("QLinearConcat", 1, by_plain, .data = &concat, .domain = KILN__ONNX_MICROSOFT),
    KILN__ONNX_ROW("QLinearGlobalAveragePool", 1, by_plain, .data = &global,
                   .domain = KILN__ONNX_MICROSOFT),
    KILN__ONNX_ROW("QLinearLeakyRelu", 1, by_plain, .data = &leaky, .domain = KILN__ONNX_MICROSOFT),
    KILN__ONNX_ROW("QLinearMul", 1, by_plain, .data = &mul, .domain = KILN__ONNX_MICROSOFT),
    KILN__ONNX_ROW("QLinearReduceMean", 1, by_plain, .data = &mean, .domain = KILN__ONNX_MICROSOFT),
    KILN__ONNX_ROW("QLinearSigmoid", 1, by_plain, .data = &sigmoid, .domain = KILN__ONNX_MICROSOFT),
    KILN__ONNX_ROW("QLinearSoftmax", 1, by_plain, .data = &softmax, .domain = KILN__ONNX_MICROSOFT),
    KILN__ONNX_ROW("QLinearWhere", 1, by_plain, .data = &where, .domain = KILN__ONNX_MICROSOFT),
    {0},
};
