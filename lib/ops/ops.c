/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/ops.h"

#include <math.h>

#include "ops/philox.h"

/* ---- elementwise operations ---- */

/* exp() of a large negative number of the right sign keeps the tail accurate. */
static double kiln__host_sigmoid(double a)
{
    return a >= 0 ? 1 / (1 + exp(-a)) : exp(a) / (1 + exp(a));
}

/* The limit at -inf, where the product is NaN; gelu too. */
static double kiln__host_swish(double a)
{
    return a == -INFINITY ? -0.0 : a * kiln__host_sigmoid(a);
}

static double kiln__host_gelu_tanh(double a)
{
    double u = 0.79788456080286536 * a * (1 + 0.044715 * a * a);
    return a == -INFINITY ? -0.0 : a / (1 + exp(-2 * u));
}

static double kiln__host_softplus(double a)
{
    return (a > 0 ? a : 0) + log1p(exp(-fabs(a)));
}

static double kiln__host_gelu(double a)
{
    return a == -INFINITY ? -0.0 : 0.5 * a * erfc(-a / sqrt(2));
}

static double kiln__host_fmod(double a, double b, bool integer)
{
    return integer && b == 0 ? 0 : fmod(a, b);
}

/* A rest of 0 has b's sign as well. */
static double kiln__host_mod(double a, double b, bool integer)
{
    double rest = kiln__host_fmod(a, b, integer);
    if (rest == 0)
        return integer ? 0 : copysign(0, b);
    return (rest < 0) != (b < 0) ? rest + b : rest;
}

/* Of a number that holds an i32 or, as bounds move it, comes next to one. */
static int32_t kiln__host_bits(double a)
{
    return (int32_t)(int64_t)a;
}

static double kiln__host_shift_left(double a, double b)
{
    return b < 0 || b > 31 ? 0 : (int32_t)((uint32_t)kiln__host_bits(a) << kiln__host_bits(b));
}

static double kiln__host_shift_right(double a, double b)
{
    return b < 0 || b > 31 ? (a < 0 ? -1 : 0) : kiln__host_bits(a) >> kiln__host_bits(b);
}

/* Numbers that hold an i32, whose bits are the words. */
static double kiln__host_philox(double counter, double first, double second, unsigned word)
{
    const uint32_t key[2] = {(uint32_t)(int32_t)first, (uint32_t)(int32_t)second};
    uint32_t words[4];
    kiln__philox((const uint32_t[4]){(uint32_t)(int32_t)counter}, key, words);
    return (int32_t)words[word];
}

static double kiln__host_high_bits(double word)
{
    return (uint32_t)(int32_t)word >> 8;
}

#define KILN_OP(name, arity, text, types, cost, ulp, device, expression, ...)                      \
    static double host_##name(double a, double b, double c, bool integer)                          \
    {                                                                                              \
        (void)b, (void)c, (void)integer;                                                           \
        return expression;                                                                         \
    }
#define KILN_OP_INTERNAL KILN_OP
#include "ops/elementwise.def"
#undef KILN_OP_INTERNAL
#undef KILN_OP

/* Operands, and tensors among them, by a row's arity. */
#define ARITY_1 1, 1
#define ARITY_2 2, 2
#define ARITY_3 3, 3
#define ARITY_1N(number) 2, 1
#define ARITY_1NN(first, second) 3, 1

const struct kiln__elementwise_row kiln__elementwise_rows[KILN__OP_COUNT] = {
#define KILN_OP(name, arity, text, types, cost, ulp, device, expression, ...)                      \
    {#name, ARITY_##arity, KILN__##types, cost, ulp, #device, host_##name},
#define KILN_OP_INTERNAL KILN_OP
#include "ops/elementwise.def"
#undef KILN_OP_INTERNAL
#undef KILN_OP
};

/* ---- reductions ---- */

#define KILN_REDUCE(name, text, kind, types, empty, identity, combine, finish, host, host_end,     \
                    ...)                                                                           \
    static double host_combine_##name(double a, double b)                                          \
    {                                                                                              \
        return host;                                                                               \
    }                                                                                              \
    static double host_finish_##name(double a, double n)                                           \
    {                                                                                              \
        (void)n;                                                                                   \
        return host_end;                                                                           \
    }
#include "ops/reduce.def"
#undef KILN_REDUCE

#define PLAIN false
#define INDEXED true
const struct kiln__reduce_row kiln__reduce_rows[KILN__REDUCE_COUNT] = {
#define KILN_REDUCE(name, text, kind, types, empty, identity, combine, finish, host, host_end,     \
                    ...)                                                                           \
    {#name,                                                                                        \
     kind,                                                                                         \
     empty,                                                                                        \
     KILN__IDENTITY_##identity,                                                                    \
     KILN__##types,                                                                                \
     #combine,                                                                                     \
     #finish,                                                                                      \
     host_combine_##name,                                                                          \
     host_finish_##name},
#include "ops/reduce.def"
#undef KILN_REDUCE
};
#undef PLAIN
#undef INDEXED

kiln_type kiln__reduce_accumulator(const struct kiln__reduce_row *row, kiln_type type)
{
    bool outgrows = row->identity <= KILN__IDENTITY_1;
    return outgrows ? kiln__type_row(type)->accumulator : kiln__type_row(type)->computed;
}

kiln_type kiln__reduce_result(const struct kiln__reduce_row *row, kiln_type type)
{
    return row->indexed ? KILN_I32 : kiln__reduce_accumulator(row, type);
}

double kiln__identity_value(enum kiln__identity identity, kiln_type type)
{
    const struct kiln__type_row *row = kiln__type_row(type);
    switch (identity) {
    case KILN__IDENTITY_0: return 0;
    case KILN__IDENTITY_1: return 1;
    case KILN__IDENTITY_LOWEST: return row->floating ? -INFINITY : row->lowest;
    case KILN__IDENTITY_HIGHEST: return row->floating ? INFINITY : row->highest;
    }
    return 0;
}
