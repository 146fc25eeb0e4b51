/* SPDX-License-Identifier: Apache-2.0 */
/* Every row of elementwise.def with every type: answers from outside (mpmath, 15 digits). */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "api/batch.h"
#include "graph/bounds.h"
#include "ops/ops.h"
#include "support/check.h"

struct known {
    unsigned op;
    double a, b, answer, c;
};

#define KNOWN3(name, a, b, c, answer)                                                              \
    {                                                                                              \
        KILN__OP_##name, a, b, answer, c                                                           \
    }
#define KNOWN(name, a, b, answer) KNOWN3(name, a, b, 0, answer)

static const struct known floats[] = {
    KNOWN(add, 1, 0x1p-24, 1),
    KNOWN(add, 0x1.000002p0, 0x1p-24, 0x1.000004p0),
    KNOWN(add, 3, -5.5, -2.5),
    KNOWN(add, FLT_MAX, FLT_MAX, INFINITY),
    KNOWN(add, INFINITY, -INFINITY, NAN),
    KNOWN(add, -0.0, -0.0, -0.0),
    KNOWN(add, -0.0, 0, 0),
    KNOWN(sub, 1, 0x1p-25, 1),
    KNOWN(sub, 16777216, -1, 16777216),
    KNOWN(sub, 2, 5, -3),
    KNOWN(sub, INFINITY, INFINITY, NAN),
    KNOWN(sub, NAN, 1, NAN),
    KNOWN(mul, 0x1.000002p0, 0x1.000002p0, 0x1.000004p0),
    KNOWN(mul, -3, 7, -21),
    KNOWN(mul, 1e30f, 1e30f, INFINITY),
    KNOWN(mul, INFINITY, 0, NAN),
    KNOWN(mul, -0.0, 1, -0.0),
    KNOWN(mul, 0x1p-100, -0x1p-26, -0x1p-126),
    KNOWN(mul, INFINITY, -2, -INFINITY),
    KNOWN(div, 1, 3, 0.333333333333333),
    KNOWN(div, -10, 7, -1.42857142857143),
    KNOWN(div, 1, 0, INFINITY),
    KNOWN(div, -1, 0, -INFINITY),
    KNOWN(div, 0, 0, NAN),
    KNOWN(div, 5, INFINITY, 0),
    KNOWN(div, 0x1p100, 0x1p-100, INFINITY),
    KNOWN(div, INFINITY, INFINITY, NAN),
    KNOWN(div, -6, -2, 3),
    KNOWN(maximum, 1, 2, 2),
    KNOWN(maximum, -1, -2, -1),
    KNOWN(maximum, NAN, 1, NAN),
    KNOWN(maximum, 1, NAN, NAN),
    KNOWN(maximum, -INFINITY, -FLT_MAX, -FLT_MAX),
    KNOWN(maximum, NAN, INFINITY, NAN),
    KNOWN(maximum, INFINITY, NAN, NAN),
    KNOWN(minimum, 1, 2, 1),
    KNOWN(minimum, -1, -2, -2),
    KNOWN(minimum, NAN, 1, NAN),
    KNOWN(minimum, 1, NAN, NAN),
    KNOWN(minimum, INFINITY, FLT_MAX, FLT_MAX),
    KNOWN(minimum, NAN, -INFINITY, NAN),
    KNOWN(minimum, -INFINITY, NAN, NAN),
    KNOWN(neg, 1.5, 0, -1.5),
    KNOWN(neg, 0, 0, -0.0),
    KNOWN(neg, -0.0, 0, 0),
    KNOWN(neg, INFINITY, 0, -INFINITY),
    KNOWN(neg, NAN, 0, NAN),
    KNOWN(abs, -1.5, 0, 1.5),
    KNOWN(abs, -0.0, 0, 0),
    KNOWN(abs, -INFINITY, 0, INFINITY),
    KNOWN(abs, NAN, 0, NAN),
    KNOWN(abs, 3, 0, 3),
    KNOWN(square, -3, 0, 9),
    KNOWN(square, 0x1.000002p0, 0, 0x1.000004p0),
    KNOWN(square, 1e20f, 0, INFINITY),
    KNOWN(square, -INFINITY, 0, INFINITY),
    KNOWN(square, NAN, 0, NAN),
    KNOWN(relu, 2, 0, 2),
    KNOWN(relu, -2, 0, 0),
    KNOWN(relu, NAN, 0, NAN),
    KNOWN(relu, -INFINITY, 0, 0),
    KNOWN(relu, INFINITY, 0, INFINITY),
    KNOWN(relu, 0, 0, 0),
    KNOWN(exp, -100, 0, 3.72007597602084e-44),
    KNOWN(exp, -87, 0, 1.64581143108227e-38),
    KNOWN(exp, -10, 0, 4.53999297624849e-5),
    KNOWN(exp, -1, 0, 0.367879441171442),
    KNOWN(exp, -0.0625, 0, 0.939413062813476),
    KNOWN(exp, 0.5, 0, 1.64872127070013),
    KNOWN(exp, 1, 0, 2.71828182845905),
    KNOWN(exp, 2.75, 0, 15.6426318841882),
    KNOWN(exp, 20, 0, 485165195.40979),
    KNOWN(exp, 88.5, 0, 2.72308782506811e38),
    KNOWN(exp, 0, 0, 1),
    KNOWN(exp, 89, 0, INFINITY),
    KNOWN(exp, -104, 0, 0),
    KNOWN(exp, INFINITY, 0, INFINITY),
    KNOWN(exp, -INFINITY, 0, 0),
    KNOWN(exp, NAN, 0, NAN),
    KNOWN(log, 0x1p-100, 0, -69.3147180559945),
    KNOWN(log, 0.0078125, 0, -4.85203026391962),
    KNOWN(log, 0.5, 0, -0.693147180559945),
    KNOWN(log, 0.9375, 0, -0.0645385211375712),
    KNOWN(log, 1.0625, 0, 0.0606246218164348),
    KNOWN(log, 2, 0, 0.693147180559945),
    KNOWN(log, 10, 0, 2.30258509299405),
    KNOWN(log, 1000000, 0, 13.8155105579643),
    KNOWN(log, 3e38f, 0, 88.5968458242744),
    KNOWN(log, 1, 0, 0),
    KNOWN(log, 0, 0, -INFINITY),
    KNOWN(log, -0.0, 0, -INFINITY),
    KNOWN(log, -1, 0, NAN),
    KNOWN(log, -INFINITY, 0, NAN),
    KNOWN(log, INFINITY, 0, INFINITY),
    KNOWN(log, NAN, 0, NAN),
    KNOWN(sqrt, 0.0078125, 0, 0.0883883476483184),
    KNOWN(sqrt, 0.5, 0, 0.707106781186548),
    KNOWN(sqrt, 2, 0, 1.4142135623731),
    KNOWN(sqrt, 3, 0, 1.73205080756888),
    KNOWN(sqrt, 10, 0, 3.16227766016838),
    KNOWN(sqrt, 12345, 0, 111.108055513541),
    KNOWN(sqrt, 3e38f, 0, 1.73205080915594e19),
    KNOWN(sqrt, 0, 0, 0),
    KNOWN(sqrt, -0.0, 0, -0.0),
    KNOWN(sqrt, -1, 0, NAN),
    KNOWN(sqrt, INFINITY, 0, INFINITY),
    KNOWN(sqrt, -INFINITY, 0, NAN),
    KNOWN(rsqrt, 0x1p-120, 0, 1.15292150460685e18),
    KNOWN(rsqrt, 0.0078125, 0, 11.3137084989848),
    KNOWN(rsqrt, 0.5, 0, 1.4142135623731),
    KNOWN(rsqrt, 2, 0, 0.707106781186548),
    KNOWN(rsqrt, 3, 0, 0.577350269189626),
    KNOWN(rsqrt, 12345, 0, 0.00900024751020984),
    KNOWN(rsqrt, 1e38f, 0, 1.00000001598572e-19),
    KNOWN(rsqrt, 0, 0, INFINITY),
    KNOWN(rsqrt, -1, 0, NAN),
    KNOWN(rsqrt, INFINITY, 0, 0),
    KNOWN(rsqrt, NAN, 0, NAN),
    KNOWN(sigmoid, -87, 0, 1.64581143108227e-38),
    KNOWN(sigmoid, -20, 0, 2.0611536181902e-9),
    KNOWN(sigmoid, -100, 0, 3.72007597602084e-44),
    KNOWN(sigmoid, -5.5, 0, 0.00407013771589613),
    KNOWN(sigmoid, -1, 0, 0.268941421369995),
    KNOWN(sigmoid, -0.0078125, 0, 0.498046884934047),
    KNOWN(sigmoid, 0.25, 0, 0.562176500885798),
    KNOWN(sigmoid, 1, 0, 0.731058578630005),
    KNOWN(sigmoid, 4, 0, 0.982013790037908),
    KNOWN(sigmoid, 16.5, 0, 0.999999931743971),
    KNOWN(sigmoid, 0, 0, 0.5),
    KNOWN(sigmoid, 90, 0, 1),
    KNOWN(sigmoid, INFINITY, 0, 1),
    KNOWN(sigmoid, -INFINITY, 0, 0),
    KNOWN(sigmoid, NAN, 0, NAN),
    KNOWN(tanh, -20, 0, -1),
    KNOWN(tanh, -5.5, 0, -0.999966597156304),
    KNOWN(tanh, -1, 0, -0.761594155955765),
    KNOWN(tanh, -0.5, 0, -0.46211715726001),
    KNOWN(tanh, -0.0009765625, 0, -9.7656218955926e-4),
    KNOWN(tanh, 0.125, 0, 0.124353001771596),
    KNOWN(tanh, 0.625, 0, 0.554599722349382),
    KNOWN(tanh, 1.25, 0, 0.848283639957513),
    KNOWN(tanh, 3, 0, 0.99505475368673),
    KNOWN(tanh, 8.5, 0, 0.999999917201249),
    KNOWN(tanh, 0x1p-100, 0, 0x1p-100),
    KNOWN(tanh, 0, 0, 0),
    KNOWN(tanh, -0.0, 0, -0.0),
    KNOWN(tanh, INFINITY, 0, 1),
    KNOWN(tanh, -INFINITY, 0, -1),
    KNOWN(tanh, NAN, 0, NAN),
    KNOWN(swish, -87, 0, -1.43185594504158e-36),
    KNOWN(swish, -20, 0, -4.12230723638041e-8),
    KNOWN(swish, -5.5, 0, -0.0223857574374287),
    KNOWN(swish, -1, 0, -0.268941421369995),
    KNOWN(swish, -0.0078125, 0, -0.00389099128854724),
    KNOWN(swish, 0.25, 0, 0.14054412522145),
    KNOWN(swish, 1, 0, 0.731058578630005),
    KNOWN(swish, 4, 0, 3.92805516015163),
    KNOWN(swish, 16.5, 0, 16.4999988737755),
    KNOWN(swish, 90, 0, 90),
    KNOWN(swish, -INFINITY, 0, -0.0),
    KNOWN(swish, INFINITY, 0, INFINITY),
    KNOWN(swish, NAN, 0, NAN),
    KNOWN(gelu, -10, 0, -7.61985302416053e-23),
    KNOWN(gelu, -5.5, 0, -1.04442593562382e-7),
    KNOWN(gelu, -3, 0, -0.00404969409489028),
    KNOWN(gelu, -1, 0, -0.158655253931457),
    KNOWN(gelu, -0.0078125, 0, -0.00388190074327467),
    KNOWN(gelu, 0x1p-20, 0, 4.76837521039015e-7),
    KNOWN(gelu, 0.25, 0, 0.149676581420731),
    KNOWN(gelu, 1, 0, 0.841344746068543),
    KNOWN(gelu, 2.5, 0, 2.48447583668556),
    KNOWN(gelu, 6, 0, 5.99999999408047),
    KNOWN(gelu, -INFINITY, 0, -0.0),
    KNOWN(gelu, 100, 0, 100),
    KNOWN(gelu, INFINITY, 0, INFINITY),
    KNOWN(gelu, NAN, 0, NAN),
    KNOWN(equal, 1, 1, 1),
    KNOWN(equal, 1, 0x1.000002p0, 0),
    KNOWN(equal, -0.0, 0, 1),
    KNOWN(equal, NAN, NAN, 0),
    KNOWN(equal, INFINITY, INFINITY, 1),
    KNOWN(equal, INFINITY, -INFINITY, 0),
    KNOWN(not_equal, 1, 1, 0),
    KNOWN(not_equal, -0.0, 0, 0),
    KNOWN(not_equal, NAN, NAN, 1),
    KNOWN(not_equal, 1, NAN, 1),
    KNOWN(less, 1, 0x1.000002p0, 1),
    KNOWN(less, 1, 1, 0),
    KNOWN(less, -0.0, 0, 0),
    KNOWN(less, NAN, 1, 0),
    KNOWN(less, 1, NAN, 0),
    KNOWN(less, -INFINITY, -FLT_MAX, 1),
    KNOWN(less_equal, 1, 1, 1),
    KNOWN(less_equal, 2, 1, 0),
    KNOWN(less_equal, 0, -0.0, 1),
    KNOWN(less_equal, NAN, NAN, 0),
    KNOWN(greater, 0x1.000002p0, 1, 1),
    KNOWN(greater, 1, 1, 0),
    KNOWN(greater, NAN, -INFINITY, 0),
    KNOWN(greater, INFINITY, FLT_MAX, 1),
    KNOWN(greater_equal, 1, 1, 1),
    KNOWN(greater_equal, 1, 2, 0),
    KNOWN(greater_equal, NAN, NAN, 0),
    KNOWN(logical_and, 1, 0.5, 1),
    KNOWN(logical_and, 1, -0.0, 0),
    KNOWN(logical_and, NAN, -1, 1),
    KNOWN(logical_or, 0, -0.0, 0),
    KNOWN(logical_or, 0, NAN, 1),
    KNOWN(logical_or, -2, 0, 1),
    KNOWN(logical_xor, 0, 5, 1),
    KNOWN(logical_xor, 3, 5, 0),
    KNOWN(logical_xor, 0, -0.0, 0),
    KNOWN(logical_xor, NAN, 0, 1),
    KNOWN(logical_not, 0, 0, 1),
    KNOWN(logical_not, -0.0, 0, 1),
    KNOWN(logical_not, 0.25, 0, 0),
    KNOWN(logical_not, NAN, 0, 0),
    KNOWN(isnan, NAN, 0, 1),
    KNOWN(isnan, INFINITY, 0, 0),
    KNOWN(isnan, 1, 0, 0),
    KNOWN(isinf, -INFINITY, 0, 1),
    KNOWN(isinf, INFINITY, 0, 1),
    KNOWN(isinf, NAN, 0, 0),
    KNOWN(isinf, FLT_MAX, 0, 0),
    KNOWN(isfinite, FLT_MAX, 0, 1),
    KNOWN(isfinite, -INFINITY, 0, 0),
    KNOWN(isfinite, NAN, 0, 0),
    KNOWN3(where, 1, 2.5, -3, 2.5),
    KNOWN3(where, 0, 2.5, -3, -3),
    KNOWN3(where, 255, -0.0, NAN, -0.0),
    KNOWN3(where, 128, 7, 8, 7),
    KNOWN3(where, 0, NAN, 4, 4),
    KNOWN3(where, 2, NAN, 4, NAN),
    KNOWN(leaky_relu, 3, 0.01, 3),
    KNOWN(leaky_relu, -4, 0.5, -2),
    KNOWN(leaky_relu, -4, -0.25, 1),
    KNOWN(leaky_relu, -0.0, 0.5, -0.0),
    KNOWN(leaky_relu, NAN, 0.5, NAN),
    KNOWN(leaky_relu, -INFINITY, 0.5, -INFINITY),
    KNOWN3(clamp, 0.5, -1, 1, 0.5),
    KNOWN3(clamp, -7, -1, 1, -1),
    KNOWN3(clamp, 7, -1, 1, 1),
    KNOWN3(clamp, 7, 3, 2, 2),
    KNOWN3(clamp, 2.5, 3, 2, 2),
    KNOWN3(clamp, 0, 3, 2, 2),
    KNOWN3(clamp, NAN, -1, 1, NAN),
    KNOWN3(clamp, INFINITY, -1, 1, 1),
    KNOWN3(clamp, -9, -INFINITY, 1, -9),
};

#define MIN INT32_MIN
#define MAX INT32_MAX
static const struct known integers[] = {
    KNOWN(add, 2, -5, -3),
    KNOWN(add, MAX, 1, MIN),
    KNOWN(add, MIN, MIN, 0),
    KNOWN(add, 16777217, 1, 16777218),
    KNOWN(sub, 2, -5, 7),
    KNOWN(sub, MIN, 1, MAX),
    KNOWN(sub, 0, MIN, MIN),
    KNOWN(mul, -3, 7, -21),
    KNOWN(mul, 46341, 46341, -2147479015.0),
    KNOWN(mul, MIN, -1, MIN),
    KNOWN(mul, MAX, MAX, 1),
    KNOWN(mul, 123456789, 987654321, -67153019),
    KNOWN(div, 7, 2, 3),
    KNOWN(div, -7, 2, -3),
    KNOWN(div, 7, -2, -3),
    KNOWN(div, -7, -2, 3),
    KNOWN(div, 5, 0, 0),
    KNOWN(div, MIN, 0, 0),
    KNOWN(div, 0, 0, 0),
    KNOWN(div, MIN, -1, MIN),
    KNOWN(div, MIN, 1, MIN),
    KNOWN(div, MAX, -1, -MAX),
    KNOWN(div, MAX, 2, 1073741823),
    KNOWN(div, 2147483646, MAX, 0),
    KNOWN(div, MIN, MAX, -1),
    KNOWN(maximum, 3, -4, 3),
    KNOWN(maximum, MIN, MAX, MAX),
    KNOWN(maximum, 16777217, 16777216, 16777217),
    KNOWN(minimum, 3, -4, -4),
    KNOWN(minimum, MIN, MAX, MIN),
    KNOWN(minimum, 16777217, 16777216, 16777216),
    KNOWN(neg, 7, 0, -7),
    KNOWN(neg, MIN, 0, MIN),
    KNOWN(neg, MAX, 0, -MAX),
    KNOWN(abs, -7, 0, 7),
    KNOWN(abs, 7, 0, 7),
    KNOWN(abs, MIN, 0, MIN),
    KNOWN(abs, -MAX, 0, MAX),
    KNOWN(square, -9, 0, 81),
    KNOWN(square, 46341, 0, -2147479015.0),
    KNOWN(square, 65536, 0, 0),
    KNOWN(relu, -7, 0, 0),
    KNOWN(relu, 7, 0, 7),
    KNOWN(relu, MIN, 0, 0),
    KNOWN(relu, MAX, 0, MAX),
    KNOWN(equal, 16777217, 16777216, 0),
    KNOWN(equal, MIN, MIN, 1),
    KNOWN(not_equal, 16777217, 16777216, 1),
    KNOWN(not_equal, MIN, MIN, 0),
    KNOWN(less, MIN, MAX, 1),
    KNOWN(less, MAX, MIN, 0),
    KNOWN(less, 16777216, 16777217, 1),
    KNOWN(less_equal, MAX, MAX, 1),
    KNOWN(less_equal, -1, -2, 0),
    KNOWN(greater, -1, -2, 1),
    KNOWN(greater, MIN, MAX, 0),
    KNOWN(greater_equal, MIN, MIN, 1),
    KNOWN(greater_equal, MIN, MAX, 0),
    KNOWN(logical_and, MIN, 256, 1),
    KNOWN(logical_and, MIN, 0, 0),
    KNOWN(logical_or, 0, 65536, 1),
    KNOWN(logical_or, 0, 0, 0),
    KNOWN(logical_xor, 256, -256, 0),
    KNOWN(logical_xor, 0, MIN, 1),
    KNOWN(logical_not, 256, 0, 0),
    KNOWN(logical_not, 0, 0, 1),
    KNOWN3(where, 1, MIN, MAX, MIN),
    KNOWN3(where, 0, MIN, MAX, MAX),
    KNOWN3(where, 254, 16777217, 0, 16777217),
    KNOWN3(clamp, MIN, -5, 5, -5),
    KNOWN3(clamp, 16777217, MIN, MAX, 16777217),
    KNOWN3(clamp, 9, -5, 5, 5),
};

static const struct known bytes[] = {
    KNOWN(add, 2, 5, 7),
    KNOWN(add, 255, 1, 0),
    KNOWN(add, 200, 100, 44),
    KNOWN(sub, 5, 2, 3),
    KNOWN(sub, 2, 5, 253),
    KNOWN(sub, 0, 255, 1),
    KNOWN(mul, 3, 7, 21),
    KNOWN(mul, 16, 16, 0),
    KNOWN(mul, 255, 255, 1),
    KNOWN(div, 255, 2, 127),
    KNOWN(div, 1, 255, 0),
    KNOWN(div, 9, 0, 0),
    KNOWN(div, 255, 255, 1),
    KNOWN(maximum, 128, 127, 128),
    KNOWN(maximum, 0, 255, 255),
    KNOWN(minimum, 128, 127, 127),
    KNOWN(minimum, 0, 255, 0),
    KNOWN(neg, 1, 0, 255),
    KNOWN(neg, 0, 0, 0),
    KNOWN(neg, 128, 0, 128),
    KNOWN(abs, 255, 0, 255),
    KNOWN(abs, 128, 0, 128),
    KNOWN(square, 15, 0, 225),
    KNOWN(square, 16, 0, 0),
    KNOWN(square, 255, 0, 1),
    KNOWN(relu, 255, 0, 255),
    KNOWN(relu, 0, 0, 0),
    KNOWN(relu, 128, 0, 128),
    KNOWN(equal, 200, 200, 1),
    KNOWN(equal, 200, 201, 0),
    KNOWN(not_equal, 0, 128, 1),
    KNOWN(not_equal, 9, 9, 0),
    KNOWN(less, 127, 128, 1),
    KNOWN(less, 255, 0, 0),
    KNOWN(less_equal, 255, 255, 1),
    KNOWN(less_equal, 255, 127, 0),
    KNOWN(greater, 255, 127, 1),
    KNOWN(greater, 0, 0, 0),
    KNOWN(greater_equal, 128, 1, 1),
    KNOWN(greater_equal, 1, 128, 0),
    KNOWN(logical_and, 128, 2, 1),
    KNOWN(logical_and, 0, 255, 0),
    KNOWN(logical_or, 0, 0, 0),
    KNOWN(logical_or, 0, 128, 1),
    KNOWN(logical_xor, 128, 1, 0),
    KNOWN(logical_xor, 128, 0, 1),
    KNOWN(logical_not, 128, 0, 0),
    KNOWN(logical_not, 0, 0, 1),
    KNOWN3(where, 128, 1, 2, 1),
    KNOWN3(where, 0, 1, 255, 255),
    KNOWN3(clamp, 200, 3, 129, 129),
    KNOWN3(clamp, 2, 3, 129, 3),
    KNOWN3(clamp, 128, 3, 129, 128),
};

static const struct {
    kiln_type type;
    const struct known *rows;
    size_t count;
} tables[] = {
    {KILN_F32, floats, sizeof floats / sizeof *floats},
    {KILN_I32, integers, sizeof integers / sizeof *integers},
    {KILN_U8, bytes, sizeof bytes / sizeof *bytes},
};

/* Right to what the row allows; the sign of a zero too. */
static bool is_right(const struct known *known, kiln_type type, double found)
{
    double ulp = kiln__elementwise_rows[known->op].max_ulp;
    double error = type == KILN_F32 ? ulp * kiln__float_ulp(known->answer) + check_denormal() : 0;
    error += type == KILN_F32 && isfinite(known->answer) ? 1e-14 * fabs(known->answer) : 0;
    if (known->answer == 0 && found == 0)
        return type != KILN_F32 || signbit(found) == signbit(known->answer);
    return kiln__bounds_allow(known->answer, error, found);
}

/* A row over tensors alone: numbers are operands like others. */
static kiln_tensor record_row(kiln_batch *batch, unsigned op, const kiln_tensor *operands)
{
    const struct kiln__elementwise_row *row = &kiln__elementwise_rows[op];
    struct kiln__node node = {.kind = KILN__ELEMENTWISE, .op = (uint8_t)op, .n_inputs = row->arity};
    if (row->tensors == row->arity)
        return check_elementwise(batch, op, operands);
    for (unsigned k = 0; k < row->arity; k++)
        node.input[k] = kiln__tensor_index(operands[k]);
    const struct kiln__node *first = kiln__batch_node(batch, operands[0], "record_row", "a");
    node.shape = first->shape;
    node.type = (uint8_t)kiln__types_result((enum kiln__types)row->types, (kiln_type)first->type);
    return kiln__batch_record(batch, &node, "record_row");
}

/* Where the second copy of `count` answers begins: an odd number of lanes on,
 * so that each answer stands in another lane of a vector. */
static size_t second(size_t count)
{
    return count | 1;
}

static kiln_tensor give(kiln_batch *batch, kiln_type type, const struct known *known, size_t count,
                        unsigned k)
{
    size_t size = kiln_type_size(type), n = second(count) + count;
    char *lanes = calloc(n, size);
    cr_assert(lanes);
    for (size_t i = 0; i < count; i++) {
        double value = k == 0 ? known[i].a : k == 1 ? known[i].b : known[i].c;
        kiln__type_store(type, value, lanes + i * size);
        kiln__type_store(type, value, lanes + (second(count) + i) * size);
    }
    kiln_tensor tensor = check_given(batch, type, DIMS(n), lanes);
    free(lanes);
    return tensor;
}

static void expect_known(const struct known *known, kiln_type type, const char *answers, size_t at)
{
    const struct kiln__elementwise_row *row = &kiln__elementwise_rows[known->op];
    kiln_type result = kiln__types_result((enum kiln__types)row->types, type);
    double found = kiln__type_load(result, answers + at * kiln_type_size(result));
    cr_expect(is_right(known, result, found),
              "%s %s of %.10g, %.10g and %.10g is %.10g, not %.15g (lane %zu)",
              kiln_type_name(type), row->name, known->a, known->b, known->c, found, known->answer,
              at);
}

static void expect_all_known(const struct known *known, size_t count, kiln_type type)
{
    const char *answers[KILN__OP_COUNT] = {NULL};
    size_t rows[KILN__OP_COUNT] = {0};
    kiln_batch *batch = check_begin();
    kiln_tensor operands[3], masked[3];
    for (unsigned k = 0; k < 3; k++)
        masked[k] = operands[k] = give(batch, type, known, count, k);
    masked[0] = give(batch, KILN_U8, known, count, 0);
    for (unsigned op = 0; op < KILN__OP_COUNT; op++) {
        enum kiln__types rule = (enum kiln__types)kiln__elementwise_rows[op].types;
        if (kiln__types_accept(rule, type))
            answers[op] = check_read(
                batch, record_row(batch, op, rule == KILN__SELECTION ? masked : operands));
    }
    run_batch(batch);
    for (size_t i = 0; i < count; i++) {
        rows[known[i].op]++;
        cr_assert(answers[known[i].op]);
        expect_known(&known[i], type, answers[known[i].op], i);
        expect_known(&known[i], type, answers[known[i].op], second(count) + i);
    }
    for (unsigned op = 0; op < KILN__OP_COUNT; op++)
        cr_expect(!answers[op] || rows[op] >= 2, "%s %s has no known answers", kiln_type_name(type),
                  kiln__elementwise_rows[op].name);
    check_end(batch);
}

Test(ops, known_answers)
{
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        expect_all_known(tables[t].rows, tables[t].count, tables[t].type);
    check_close();
}
