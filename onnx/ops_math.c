/* SPDX-License-Identifier: Apache-2.0 */
/* Trigonometric and hyperbolic functions, remainders, bits, further activations, and Einstein's
 * sums. */
#include <math.h>

#include "onnx/elementwise.h"
#include "onnx/onnx.pb-c.h"
#include "onnx/values.h"

#define HOW(...) (&(const struct kiln__onnx_elementwise){__VA_ARGS__})

static void give(struct kiln__onnx_call *call, struct kiln__onnx_value value)
{
    kiln__onnx_give_value(call, 0, &value);
}

/* ---- remainders ---- */

static double fmod_floats(double a, double b)
{
    return fmod(a, b);
}

static double mod_floats(double a, double b)
{
    double rest = fmod(a, b);
    return rest == 0 ? copysign(0, b) : (rest < 0) != (b < 0) ? rest + b : rest;
}

static int64_t fmod_integers(int64_t a, int64_t b)
{
    return b == 0 || b == -1 ? 0 : a % b;
}

static int64_t mod_integers(int64_t a, int64_t b)
{
    int64_t rest = fmod_integers(a, b);
    return rest && (rest < 0) != (b < 0) ? rest + b : rest;
}

static void mod(struct kiln__onnx_call *call)
{
    static const struct kiln__onnx_elementwise as_c = {.two = kiln_fmod,
                                                       .floats = fmod_floats,
                                                       .integers = fmod_integers},
                                               as_python = {.two = kiln_mod,
                                                            .floats = mod_floats,
                                                            .integers = mod_integers};
    if (kiln__onnx_need(call, 0) && kiln__onnx_need(call, 1))
        give(call, kiln__onnx_combine(call, kiln__onnx_int(call, "fmod", 0) ? &as_c : &as_python,
                                      kiln__onnx_operand(call, 0), kiln__onnx_operand(call, 1)));
}

/* ---- bits ---- */

static int64_t and_integers(int64_t a, int64_t b)
{
    return a & b;
}

static int64_t or_integers(int64_t a, int64_t b)
{
    return a | b;
}

static int64_t xor_integers(int64_t a, int64_t b)
{
    return a ^ b;
}

static void bit_not(struct kiln__onnx_call *call)
{
    if (kiln__onnx_need(call, 0))
        kiln__onnx_give(call, 0, kiln_bit_not(call->batch, kiln__onnx_tensor(call, 0)),
                        kiln__onnx_operand(call, 0)->type);
}

/* Of uint64, which is computed as i64: the sign's copies at the top are taken away. */
static kiln_tensor shift_right(struct kiln__onnx_call *call, kiln_tensor x, kiln_tensor by)
{
    kiln_batch *batch = call->batch;
    kiln_tensor y = kiln_shift_right(batch, x, by);
    if (kiln__onnx_operand(call, 0)->type != ONNX__TENSOR_PROTO__DATA_TYPE__UINT64)
        return y;
    kiln_tensor kept = kiln_sub(batch, kiln_constant(batch, KILN_I64, 64), by);
    kiln_tensor top = kiln_shift_left(batch, kiln_constant(batch, KILN_I64, -1), kept);
    return kiln_bit_and(batch, y, kiln_bit_not(batch, top));
}

static void bit_shift(struct kiln__onnx_call *call)
{
    if (!kiln__onnx_need(call, 0) || !kiln__onnx_need(call, 1))
        return;
    const char way = kiln__onnx_string(call, "direction", "")[0];
    kiln_tensor x = kiln__onnx_tensor(call, 0), by = kiln__onnx_tensor(call, 1);
    if (way != 'L' && way != 'R')
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT,
                          "a direction that is neither LEFT nor RIGHT");
    else
        kiln__onnx_give(call, 0,
                        way == 'L' ? kiln_shift_left(call->batch, x, by) : shift_right(call, x, by),
                        kiln__onnx_operand(call, 0)->type);
}

/* ---- activations and tests with attributes ---- */

static void celu(struct kiln__onnx_call *call)
{
    kiln_batch *batch = call->batch;
    const double alpha = kiln__onnx_float(call, "alpha", 1);
    if (!kiln__onnx_need(call, 0))
        return;
    kiln_tensor x = kiln__onnx_tensor(call, 0), zero = kiln_constant(batch, KILN_F32, 0);
    kiln_tensor below = kiln_expm1(batch, kiln_scale(batch, x, 1 / alpha));
    kiln__onnx_give(call, 0,
                    kiln_add(batch, kiln_maximum(batch, x, zero),
                             kiln_minimum(batch, kiln_scale(batch, below, alpha), zero)),
                    kiln__onnx_operand(call, 0)->type);
}

/* x + bias below -lambd, x - bias above lambd, 0 between. */
static void shrink(struct kiln__onnx_call *call)
{
    kiln_batch *batch = call->batch;
    if (!kiln__onnx_need(call, 0))
        return;
    const int type = kiln__onnx_operand(call, 0)->type;
    const double bias = kiln__onnx_float(call, "bias", 0);
    const double edge = kiln__onnx_float(call, "lambd", 0.5);
    kiln_tensor x = kiln_cast(batch, kiln__onnx_tensor(call, 0), KILN_F32);
    kiln_tensor by = kiln_constant(batch, KILN_F32, bias), zero = kiln_constant(batch, KILN_F32, 0);
    kiln_tensor low = kiln_less(batch, x, kiln_constant(batch, KILN_F32, -edge));
    kiln_tensor high = kiln_greater(batch, x, kiln_constant(batch, KILN_F32, edge));
    kiln_tensor y = kiln_where(batch, high, kiln_sub(batch, x, by), zero);
    y = kiln_where(batch, low, kiln_add(batch, x, by), y);
    if (!kiln__onnx_failed(call))
        kiln__onnx_give(call, 0, kiln_cast(batch, y, kiln__onnx_type(type)->computed), type);
}

static void is_infinite(struct kiln__onnx_call *call)
{
    kiln_batch *batch = call->batch;
    const bool low = kiln__onnx_int(call, "detect_negative", 1) != 0;
    const bool high = kiln__onnx_int(call, "detect_positive", 1) != 0;
    if (!kiln__onnx_need(call, 0))
        return;
    kiln_tensor x = kiln__onnx_tensor(call, 0), zero = kiln_constant(batch, KILN_F32, 0);
    kiln_tensor y = kiln_isinf(batch, x);
    if (!low)
        y = kiln_logical_and(batch, y, kiln_greater_equal(batch, x, zero));
    if (!high)
        y = kiln_logical_and(batch, y, kiln_less(batch, x, zero));
    kiln__onnx_give(call, 0, y, ONNX__TENSOR_PROTO__DATA_TYPE__BOOL);
}

/* ---- Einstein's sums ---- */

static void einsum(struct kiln__onnx_call *call)
{
    enum { MOST = 16 };
    kiln_tensor operands[MOST];
    if (call->n_inputs > MOST)
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "%zu operands, and %d are the most",
                          call->n_inputs, MOST);
    if (!kiln__onnx_need(call, 0))
        return;
    for (size_t i = 0; i < call->n_inputs && !kiln__onnx_failed(call); i++) {
        if (!kiln__onnx_need(call, i))
            return;
        operands[i] = kiln__onnx_tensor(call, i);
    }
    if (!kiln__onnx_failed(call))
        kiln__onnx_give(call, 0,
                        kiln_einsum(call->batch, kiln__onnx_string(call, "equation", NULL),
                                    call->n_inputs, operands),
                        kiln__onnx_operand(call, 0)->type);
}

#define ONE(name, since, call)                                                                     \
    KILN__ONNX_ROW(name, since, kiln__onnx_unary, .data = HOW(.one = (call)))
#define BITS(name, call, host)                                                                     \
    KILN__ONNX_ROW(name, 18, kiln__onnx_binary,                                                    \
                   .data = HOW(.two = (call), .integers = host##_integers))

const struct kiln__onnx_row kiln__onnx_math_rows[] = {
    ONE("Asin", 7, kiln_asin),
    ONE("Atan", 7, kiln_atan),
    ONE("Tan", 7, kiln_tan),
    ONE("Sinh", 9, kiln_sinh),
    ONE("Cosh", 9, kiln_cosh),
    ONE("Asinh", 9, kiln_asinh),
    ONE("Acosh", 9, kiln_acosh),
    ONE("Atanh", 9, kiln_atanh),
    KILN__ONNX_ROW("Mod", 10, mod),
    BITS("BitwiseAnd", kiln_bit_and, and),
    BITS("BitwiseOr", kiln_bit_or, or),
    BITS("BitwiseXor", kiln_bit_xor, xor),
    KILN__ONNX_ROW("BitwiseNot", 18, bit_not),
    KILN__ONNX_ROW("BitShift", 11, bit_shift),
    KILN__ONNX_ROW("Celu", 12, celu),
    KILN__ONNX_ROW("Shrink", 9, shrink),
    KILN__ONNX_ROW("IsInf", 10, is_infinite),
    KILN__ONNX_ROW("Einsum", 12, einsum),
    {0},
};
