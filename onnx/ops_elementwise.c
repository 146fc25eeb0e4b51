/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that compute element by element. */
#include <math.h>

#include "onnx/elementwise.h"
#include "onnx/onnx.pb-c.h"
#include "onnx/values.h"

/* ---- what computes elements that are known ---- */

#define FLOATS(name, expression)                                                                   \
    static double name##_floats(double a, double b)                                                \
    {                                                                                              \
        (void)b;                                                                                   \
        return expression;                                                                         \
    }
#define INTEGERS(name, expression)                                                                 \
    static int64_t name##_integers(int64_t a, int64_t b)                                           \
    {                                                                                              \
        (void)b;                                                                                   \
        return (int64_t)(expression);                                                              \
    }
#define TESTS(name, expression)                                                                    \
    static bool name##_test(double a, double b)                                                    \
    {                                                                                              \
        return expression;                                                                         \
    }                                                                                              \
    static bool name##_test_integers(int64_t a, int64_t b)                                         \
    {                                                                                              \
        return expression;                                                                         \
    }

FLOATS(add, a + b)
FLOATS(sub, a - b)
FLOATS(mul, a *b)
FLOATS(div, a / b)
FLOATS(power, pow(a, b))
FLOATS(max, isnan(a) || a > b ? a : b)
FLOATS(min, isnan(a) || a < b ? a : b)
FLOATS(neg, -a)
FLOATS(abs, fabs(a))
FLOATS(sqrt, sqrt(a))
FLOATS(exp, exp(a))
FLOATS(log, log(a))
FLOATS(reciprocal, 1 / a)
FLOATS(floor, floor(a))
FLOATS(ceil, ceil(a))
FLOATS(round, nearbyint(a))
FLOATS(sign, a > 0 ? 1 : a < 0 ? -1 : a)
FLOATS(relu, a < 0 ? 0 : a)

/* By a negative exponent: as 1 / a^-b, rounded towards zero. */
static int64_t power_integers(int64_t a, int64_t b)
{
    uint64_t y = 1, factor = (uint64_t)a;
    if (b < 0)
        return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
    for (uint64_t rest = (uint64_t)b; rest; rest >>= 1, factor *= factor)
        if (rest & 1)
            y *= factor;
    return (int64_t)y;
}

INTEGERS(add, (uint64_t)a + (uint64_t)b)
INTEGERS(sub, (uint64_t)a - (uint64_t)b)
INTEGERS(mul, (uint64_t)a *(uint64_t)b)
INTEGERS(div, b == 0 ? 0 : b == -1 ? 0 - (uint64_t)a : (uint64_t)(a / b))
INTEGERS(max, a > b ? a : b)
INTEGERS(min, a < b ? a : b)
INTEGERS(neg, 0 - (uint64_t)a)
INTEGERS(abs, a < 0 ? 0 - (uint64_t)a : (uint64_t)a)
INTEGERS(sign, (a > 0) - (a < 0))
INTEGERS(relu, a < 0 ? 0 : a)

TESTS(equal, a == b)
TESTS(less, a < b)
TESTS(less_equal, a <= b)
TESTS(greater, a > b)
TESTS(greater_equal, a >= b)
TESTS(and, a &&b)
TESTS(or, a || b)
TESTS(xor, !a != !b)
TESTS(not, !a && !b)

static bool nan_test(double a, double b)
{
    (void)b;
    return isnan(a);
}

/* ---- operators that are one call of kiln ---- */

static kiln_tensor softsign(kiln_batch *batch, kiln_tensor x)
{
    kiln_tensor one = kiln_constant(batch, KILN_F32, 1);
    return kiln_div(batch, x, kiln_add(batch, one, kiln_abs(batch, x)));
}

static kiln_tensor mish(kiln_batch *batch, kiln_tensor x)
{
    return kiln_mul(batch, x, kiln_tanh(batch, kiln_softplus(batch, x)));
}

#define HOW(...) (&(const struct kiln__onnx_elementwise){__VA_ARGS__})
#define ONE(name, since, call)                                                                     \
    KILN__ONNX_ROW(name, since, kiln__onnx_unary, .data = HOW(.one = (call)))
#define ONE_FLOATS(name, since, call, host)                                                        \
    KILN__ONNX_ROW(name, since, kiln__onnx_unary,                                                  \
                   .data = HOW(.one = (call), .floats = host##_floats))
#define ONE_NUMBERS(name, since, call, host)                                                       \
    KILN__ONNX_ROW(name, since, kiln__onnx_unary,                                                  \
                   .data =                                                                         \
                       HOW(.one = (call), .floats = host##_floats, .integers = host##_integers))
#define TWO_NUMBERS(name, since, call, host)                                                       \
    KILN__ONNX_ROW(name, since, kiln__onnx_binary,                                                 \
                   .data =                                                                         \
                       HOW(.two = (call), .floats = host##_floats, .integers = host##_integers))
#define TWO_TESTS(name, since, call, host)                                                         \
    KILN__ONNX_ROW(                                                                                \
        name, since, kiln__onnx_binary,                                                            \
        .data = HOW(.two = (call), .test = host##_test, .test_integers = host##_test_integers))

/* ---- those with attributes or more operands ---- */

enum { BOOLEAN = ONNX__TENSOR_PROTO__DATA_TYPE__BOOL };

static void identity(struct kiln__onnx_call *call)
{
    if (kiln__onnx_need(call, 0))
        kiln__onnx_give_value(call, 0, kiln__onnx_operand(call, 0));
}

static void leaky_relu(struct kiln__onnx_call *call)
{
    kiln__onnx_give_like(call, kiln_leaky_relu(call->batch, kiln__onnx_tensor(call, 0),
                                               kiln__onnx_float(call, "alpha", 0.01)));
}

static void elu(struct kiln__onnx_call *call)
{
    kiln__onnx_give_like(call, kiln_elu(call->batch, kiln__onnx_tensor(call, 0),
                                        kiln__onnx_float(call, "alpha", 1)));
}

static void gelu(struct kiln__onnx_call *call)
{
    bool smooth = kiln__onnx_string(call, "approximate", "none")[0] == 't';
    kiln_tensor x = kiln__onnx_tensor(call, 0);
    kiln__onnx_give_like(call, smooth ? kiln_gelu_tanh(call->batch, x) : kiln_gelu(call->batch, x));
}

static void hard_sigmoid(struct kiln__onnx_call *call)
{
    kiln_tensor x =
        kiln_scale(call->batch, kiln__onnx_tensor(call, 0), kiln__onnx_float(call, "alpha", 0.2));
    kiln_tensor beta = kiln_constant(call->batch, KILN_F32, kiln__onnx_float(call, "beta", 0.5));
    kiln__onnx_give_like(call, kiln_clamp(call->batch, kiln_add(call->batch, x, beta), 0, 1));
}

/* The type that a base and its exponent are computed in. */
static int power_type(int base, int exponent)
{
    if (kiln__onnx_type_floats(base))
        return base;
    return kiln__onnx_type_floats(exponent) ? ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT
                                            : ONNX__TENSOR_PROTO__DATA_TYPE__INT64;
}

/* The exponent may be of another type than the base, whose type the result has. */
static void power(struct kiln__onnx_call *call)
{
    static const struct kiln__onnx_elementwise how = {
        .two = kiln_pow, .floats = power_floats, .integers = power_integers};
    if (!kiln__onnx_need(call, 0) || !kiln__onnx_need(call, 1))
        return;
    struct kiln__onnx_value *base = kiln__onnx_operand(call, 0);
    int type = power_type(base->type, kiln__onnx_operand(call, 1)->type);
    double exponent;
    if (kiln__onnx_scalar(call, 1, &exponent) && exponent == 2 &&
        kiln__onnx_operand(call, 1)->rank <= base->rank && !base->host) {
        kiln__onnx_give_like(call, kiln_square(call->batch, kiln__onnx_tensor(call, 0)));
        return;
    }
    struct kiln__onnx_value a = kiln__onnx_cast(call, base, type);
    struct kiln__onnx_value b = kiln__onnx_cast(call, kiln__onnx_operand(call, 1), type);
    if (kiln__onnx_failed(call))
        return;
    struct kiln__onnx_value y = kiln__onnx_combine(call, &how, &a, &b);
    if (y.type)
        y = kiln__onnx_cast(call, &y, base->type);
    kiln__onnx_give_value(call, 0, &y);
}

static void mean(struct kiln__onnx_call *call)
{
    static const struct kiln__onnx_elementwise how = {.two = kiln_add, .floats = add_floats};
    if (!kiln__onnx_need(call, 0))
        return;
    struct kiln__onnx_value sum = *kiln__onnx_operand(call, 0);
    for (size_t i = 1; i < call->n_inputs && kiln__onnx_need(call, i); i++)
        sum = kiln__onnx_combine(call, &how, &sum, kiln__onnx_operand(call, i));
    if (kiln__onnx_failed(call))
        return;
    kiln__onnx_give_like(call, kiln_scale(call->batch, kiln__onnx_tensor_of(call, &sum),
                                          1 / (double)call->n_inputs));
}

static void clip(struct kiln__onnx_call *call)
{
    bool attributes = call->version < 11;
    double low = -INFINITY, high = INFINITY;
    bool low_known = true, high_known = true;
    if (!kiln__onnx_need(call, 0))
        return;
    if (attributes) {
        low = kiln__onnx_float(call, "min", low);
        high = kiln__onnx_float(call, "max", high);
    } else {
        low_known = !kiln__onnx_operand(call, 1) || kiln__onnx_scalar(call, 1, &low);
        high_known = !kiln__onnx_operand(call, 2) || kiln__onnx_scalar(call, 2, &high);
    }
    kiln_tensor x = kiln__onnx_tensor(call, 0);
    bool floats = kiln__onnx_type_floats(kiln__onnx_operand(call, 0)->type);
    if (low_known && high_known && floats) {
        kiln__onnx_give_like(
            call, low == -INFINITY && high == INFINITY ? x : kiln_clamp(call->batch, x, low, high));
        return;
    }
    if (kiln__onnx_operand(call, 1))
        x = kiln_maximum(call->batch, x, kiln__onnx_tensor(call, 1));
    if (kiln__onnx_operand(call, 2))
        x = kiln_minimum(call->batch, x, kiln__onnx_tensor(call, 2));
    kiln__onnx_give_like(call, x);
}

static void where_host(struct kiln__onnx_call *call, size_t rank, const size_t *dims)
{
    struct kiln__onnx_value side[3];
    for (size_t i = 0; i < 3; i++) {
        side[i] = kiln__onnx_broadcast(call, kiln__onnx_operand(call, i), rank, dims);
        if (!side[i].host)
            return;
    }
    struct kiln__onnx_host *y = kiln__onnx_give_host(call, 0, side[1].type, rank, dims);
    for (size_t i = 0; y && i < y->count; i++)
        y->cells[i] = side[side[0].host->cells[i].i ? 1 : 2].host->cells[i];
}

static void where(struct kiln__onnx_call *call)
{
    size_t rank = 0, dims[KILN_MAX_RANK];
    bool known = true;
    for (size_t i = 0; i < 3; i++) {
        struct kiln__onnx_value *value = kiln__onnx_operand(call, i);
        if (!kiln__onnx_need(call, i) ||
            !kiln__onnx_join_shapes(call, &rank, dims, value->rank, value->dims))
            return;
        known = known && value->host;
    }
    struct kiln__onnx_value *yes = kiln__onnx_operand(call, 1), *no = kiln__onnx_operand(call, 2);
    if (kiln__onnx_operand(call, 0)->type != BOOLEAN || yes->type != no->type)
        kiln__onnx_refuse(call, KILN_TYPE_MISMATCH, "operands of %s, %s and %s",
                          kiln__onnx_type_name(kiln__onnx_operand(call, 0)->type),
                          kiln__onnx_type_name(yes->type), kiln__onnx_type_name(no->type));
    else if (known && kiln__onnx_fits_host(yes->type, rank, dims))
        where_host(call, rank, dims);
    else
        kiln__onnx_give(call, 0,
                        kiln_where(call->batch, kiln__onnx_tensor(call, 0),
                                   kiln__onnx_tensor(call, 1), kiln__onnx_tensor(call, 2)),
                        yes->type);
}

static void cast(struct kiln__onnx_call *call)
{
    int64_t type = kiln__onnx_int(call, "to", 0);
    if (!kiln__onnx_need(call, 0))
        return;
    struct kiln__onnx_value y =
        kiln__onnx_cast(call, kiln__onnx_operand(call, 0), type < 0 || type > 99 ? 0 : (int)type);
    kiln__onnx_give_value(call, 0, &y);
}

static void cast_like(struct kiln__onnx_call *call)
{
    if (!kiln__onnx_need(call, 0) || !kiln__onnx_need(call, 1))
        return;
    struct kiln__onnx_value y =
        kiln__onnx_cast(call, kiln__onnx_operand(call, 0), kiln__onnx_operand(call, 1)->type);
    kiln__onnx_give_value(call, 0, &y);
}

static void prelu(struct kiln__onnx_call *call)
{
    if (!kiln__onnx_need(call, 0) || !kiln__onnx_need(call, 1))
        return;
    kiln_tensor x = kiln__onnx_tensor(call, 0);
    kiln_type type = kiln__onnx_type(kiln__onnx_operand(call, 0)->type)->computed;
    kiln_tensor zero = kiln_constant(call->batch, type, 0);
    kiln__onnx_give_like(call, kiln_where(call->batch, kiln_less(call->batch, x, zero),
                                          kiln_mul(call->batch, x, kiln__onnx_tensor(call, 1)), x));
}

/* y = gamma (x where it is positive, else alpha (exp(x) - 1)) */
static void selu(struct kiln__onnx_call *call)
{
    kiln_tensor y = kiln_elu(call->batch, kiln__onnx_tensor(call, 0),
                             kiln__onnx_float(call, "alpha", 1.6732632423543772));
    kiln__onnx_give_like(
        call, kiln_scale(call->batch, y, kiln__onnx_float(call, "gamma", 1.0507009873554805)));
}

const struct kiln__onnx_row kiln__onnx_elementwise_rows[] = {
    TWO_NUMBERS("Add", 7, kiln_add, add),
    TWO_NUMBERS("Sub", 7, kiln_sub, sub),
    TWO_NUMBERS("Mul", 7, kiln_mul, mul),
    TWO_NUMBERS("Div", 7, kiln_div, div),
    TWO_NUMBERS("Max", 6, kiln_maximum, max),
    TWO_NUMBERS("Min", 6, kiln_minimum, min),
    TWO_NUMBERS("Sum", 6, kiln_add, add),
    TWO_TESTS("Equal", 7, kiln_equal, equal),
    TWO_TESTS("Less", 7, kiln_less, less),
    TWO_TESTS("LessOrEqual", 12, kiln_less_equal, less_equal),
    TWO_TESTS("Greater", 7, kiln_greater, greater),
    TWO_TESTS("GreaterOrEqual", 12, kiln_greater_equal, greater_equal),
    TWO_TESTS("And", 7, kiln_logical_and, and),
    TWO_TESTS("Or", 7, kiln_logical_or, or),
    TWO_TESTS("Xor", 7, kiln_logical_xor, xor),
    KILN__ONNX_ROW(
        "Not", 1, kiln__onnx_unary,
        .data = HOW(.one = kiln_logical_not, .test = not_test, .test_integers = not_test_integers)),
    ONE_NUMBERS("Neg", 6, kiln_neg, neg),
    ONE_NUMBERS("Abs", 6, kiln_abs, abs),
    ONE_NUMBERS("Sign", 9, kiln_sign, sign),
    ONE_NUMBERS("Relu", 6, kiln_relu, relu),
    ONE_FLOATS("Sqrt", 6, kiln_sqrt, sqrt),
    ONE_FLOATS("Exp", 6, kiln_exp, exp),
    ONE_FLOATS("Log", 6, kiln_log, log),
    ONE_FLOATS("Reciprocal", 6, kiln_reciprocal, reciprocal),
    ONE_FLOATS("Floor", 6, kiln_floor, floor),
    ONE_FLOATS("Ceil", 6, kiln_ceil, ceil),
    ONE_FLOATS("Round", 11, kiln_round, round),
    ONE("Erf", 9, kiln_erf),
    ONE("Sigmoid", 6, kiln_sigmoid),
    ONE("Tanh", 6, kiln_tanh),
    ONE("Sin", 7, kiln_sin),
    ONE("Cos", 7, kiln_cos),
    ONE("Acos", 7, kiln_acos),
    ONE("Softplus", 1, kiln_softplus),
    ONE("Softsign", 1, softsign),
    ONE("HardSwish", 14, kiln_hard_swish),
    ONE("Mish", 18, mish),
    KILN__ONNX_ROW("IsNaN", 9, kiln__onnx_unary, .data = HOW(.one = kiln_isnan, .test = nan_test)),
    KILN__ONNX_ROW("Pow", 7, power),
    KILN__ONNX_ROW("Mean", 6, mean),
    KILN__ONNX_ROW("Clip", 6, clip),
    KILN__ONNX_ROW("Where", 9, where),
    KILN__ONNX_ROW("Cast", 6, cast),
    KILN__ONNX_ROW("CastLike", 15, cast_like),
    KILN__ONNX_ROW("LeakyRelu", 6, leaky_relu),
    KILN__ONNX_ROW("PRelu", 7, prelu),
    KILN__ONNX_ROW("Elu", 6, elu),
    KILN__ONNX_ROW("Selu", 6, selu),
    KILN__ONNX_ROW("HardSigmoid", 6, hard_sigmoid),
    KILN__ONNX_ROW("Gelu", 20, gelu),
    KILN__ONNX_ROW("Gelu", 1, gelu, .domain = KILN__ONNX_MICROSOFT),
    KILN__ONNX_ROW("Identity", 1, identity),
    {0},
};
