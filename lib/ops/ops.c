/* SPDX-License-Identifier: Apache-2.0 */
/* The operation tables as arrays, made from the .def files, and the host functions that rows call.
 * */
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

static double kiln__host_pow_whole(double a, double b)
{
    return trunc(b < 0 && a == 0 ? 0 : pow(a, b));
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

/* ---- of integers ---- */

#define PLUS(a, b) (int64_t)((uint64_t)(a) + (uint64_t)(b))
#define MINUS(a, b) (int64_t)((uint64_t)(a) - (uint64_t)(b))
#define TIMES(a, b) (int64_t)((uint64_t)(a) * (uint64_t)(b))
#define BITS (8 * (int64_t)kiln_type_size(type))

static int64_t modulo(int64_t a, int64_t b)
{
    int64_t rest = b == 0 || b == -1 ? 0 : a % b;
    return rest && (rest < 0) != (b < 0) ? rest + b : rest;
}

/* By squares; bits beyond 64 do not come back. */
static int64_t power(int64_t a, int64_t b)
{
    int64_t result = 1;
    if (b < 0)
        return a == 1 || (a == -1 && b % 2 == 0) ? 1 : a == -1 ? -1 : 0;
    for (; b; b /= 2, a = TIMES(a, a))
        result = b % 2 ? TIMES(result, a) : result;
    return result;
}

/* Integers that hold an i32, whose bits are the words. */
static int64_t random_word(int64_t counter, int64_t first, int64_t second, unsigned word)
{
    const uint32_t key[2] = {(uint32_t)first, (uint32_t)second};
    uint32_t words[4];
    kiln__philox((const uint32_t[4]){(uint32_t)counter}, key, words);
    return (int32_t)words[word];
}

#define KILN_WHOLE(name, expression)                                                               \
    static int64_t whole_##name(int64_t a, int64_t b, int64_t c, kiln_type type)                   \
    {                                                                                              \
        (void)b, (void)c, (void)type;                                                              \
        return expression;                                                                         \
    }
#define KILN_WHOLE_REDUCE(name, expression)                                                        \
    static int64_t whole_combine_##name(int64_t a, int64_t b)                                      \
    {                                                                                              \
        return expression;                                                                         \
    }
#include "ops/integers.def"
#undef KILN_WHOLE
#undef KILN_WHOLE_REDUCE

/* By the types that a row takes. A row of integers.def that is missing, or one too many, does not
 * compile. */
#define EXACT_FLOATING(function) NULL
#define EXACT_FLOATING_TEST(function) NULL
#define EXACT_NUMERIC(function) function
#define EXACT_TEST(function) function
#define EXACT_SELECTION(function) function
#define EXACT_INTEGER(function) function
#define EXACT_WORDS(function) function

static int64_t (*const wholes[KILN__OP_COUNT])(int64_t, int64_t, int64_t, kiln_type) = {
#define KILN_OP(name, arity, text, types, ...) [KILN__OP_##name] = EXACT_##types(whole_##name),
#define KILN_OP_INTERNAL KILN_OP
#include "ops/elementwise.def"
#undef KILN_OP_INTERNAL
#undef KILN_OP
};

static int64_t (*const whole_combines[KILN__REDUCE_COUNT])(int64_t, int64_t) = {
#define KILN_REDUCE(name, text, kind, types, ...)                                                  \
    [KILN__REDUCE_##name] = EXACT_##types(whole_combine_##name),
#include "ops/reduce.def"
#undef KILN_REDUCE
};

/* ---- their rows ---- */

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

double kiln__elementwise_value(enum kiln__elementwise op, kiln_type type, const double operands[3])
{
    const struct kiln__elementwise_row *row = &kiln__elementwise_rows[op];
    int64_t whole[3] = {0};
    if (kiln__type_row(type)->floating)
        return row->host(operands[0], operands[1], operands[2], false);
    for (unsigned k = 0; k < row->arity; k++)
        whole[k] = kiln__value_integer(kiln__types_operand(row->types, k, type), operands[k]);
    return kiln__value_of_integer(kiln__types_result(row->types, type),
                                  wholes[op](whole[0], whole[1], whole[2], type));
}

/* Integers are whole as they are. */
enum kiln__elementwise kiln__elementwise_of(enum kiln__elementwise op, kiln_type type)
{
    if (kiln__type_row(type)->floating)
        return op;
    switch (op) {
    case KILN__OP_floor:
    case KILN__OP_ceil:
    case KILN__OP_round:
    case KILN__OP_trunc: return KILN__OP_COUNT;
    case KILN__OP_pow: return KILN__OP_pow_whole;
    default: return op;
    }
}

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

const struct kiln__reduce_row kiln__reduce_rows[KILN__REDUCE_COUNT] = {
#define KILN_REDUCE(name, text, kind, types, empty, identity, combine, finish, host, host_end,     \
                    ...)                                                                           \
    {#name,                                                                                        \
     KILN__REDUCES_##kind,                                                                         \
     KILN__REDUCES_##kind == KILN__REDUCES_INDEXED,                                                \
     KILN__REDUCES_##kind <= KILN__REDUCES_MEAN,                                                   \
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

kiln_type kiln__reduce_accumulator(const struct kiln__reduce_row *row, kiln_type type)
{
    bool outgrows = row->adds || row->kind == KILN__REDUCES_PRODUCT;
    return outgrows ? kiln__type_row(type)->accumulator : kiln__type_row(type)->computed;
}

kiln_type kiln__reduce_result(const struct kiln__reduce_row *row, kiln_type type)
{
    return row->indexed ? KILN_I32 : kiln__reduce_accumulator(row, type);
}

double kiln__identity_value(enum kiln__identity identity, kiln_type type)
{
    const struct kiln__type_row *row = kiln__type_row(type);
    const double ends[] = {0, 1, -INFINITY, INFINITY};
    const int64_t whole_ends[] = {0, 1, row->least_whole, row->most_whole};
    return row->floating ? ends[identity] : kiln__value_of_integer(type, whole_ends[identity]);
}

double kiln__reduce_combine(enum kiln__reduction op, kiln_type type, double a, double b)
{
    const struct kiln__reduce_row *row = &kiln__reduce_rows[op];
    if (kiln__type_row(type)->floating)
        return row->host_combine(a, b);
    kiln_type sums = kiln__reduce_accumulator(row, type);
    int64_t whole = whole_combines[op](kiln__value_integer(row->indexed ? type : sums, a),
                                       kiln__value_integer(type, b));
    return row->indexed ? (double)whole : kiln__value_of_integer(sums, whole);
}

double kiln__reduce_finish(enum kiln__reduction op, kiln_type type, double a, double n)
{
    return kiln__type_row(type)->floating ? kiln__reduce_rows[op].host_finish(a, n) : a;
}
