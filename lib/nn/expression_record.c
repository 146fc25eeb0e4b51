/* SPDX-License-Identifier: Apache-2.0 */
/* What operators and functions of an expression record, and the types in which their operands meet:
 * those of numpy. A number has the type of what it meets, if that can hold it. */
#include "nn/expression.h"

#include <kiln/elementwise.h>
#include <kiln/operations.h>

#include <math.h>
#include <string.h>

#include "record/operations.h"
#include "util/text.h"

typedef struct kiln__expression expression;
typedef struct kiln__value value;

static value of_number(double number, bool whole)
{
    return (value){.is_number = true, .is_whole = whole, .number = number};
}

/* Of rows that are recorded: "column 3, add". */
static struct kiln__phrase place_of(const expression *e, const char *what)
{
    return kiln__phrase("column %zu, %.32s", (size_t)(e->where - e->text) + 1, what);
}

/* ---- types ---- */

static kiln_type stored(const expression *e, value a)
{
    return kiln__tensor_node(e->batch, a.tensor)->type;
}

/* What a value is computed in; a number by itself: what numpy makes of it. */
static kiln_type computed(const expression *e, value a)
{
    if (a.is_number)
        return !a.is_whole                                      ? KILN_F32
               : a.number >= INT32_MIN && a.number <= INT32_MAX ? KILN_I32
                                                                : KILN_I64;
    return kiln__type_row(stored(e, a))->computed;
}

static bool is_truth(const expression *e, value a)
{
    return !a.is_number && stored(e, a) == KILN_BOOL;
}

static bool is_integer(const expression *e, value a)
{
    return computed(e, a) != KILN_F32;
}

static unsigned place_in_order(kiln_type type)
{
    static const kiln_type order[] = {KILN_U8, KILN_I8, KILN_I32, KILN_I64};
    unsigned place = 0;
    while (place < sizeof order / sizeof *order && order[place] != type)
        place++;
    return place;
}

/* The narrower of two types does not count; u8 and i8 meet in i32. */
static kiln_type wider(kiln_type a, kiln_type b)
{
    if ((a == KILN_U8 && b == KILN_I8) || (a == KILN_I8 && b == KILN_U8))
        return KILN_I32;
    return place_in_order(a) < place_in_order(b) ? b : a;
}

/* Whole numbers go with tensors but bools, a test's only where that holds them; others are f32. */
static kiln_type common_type(const expression *e, enum kiln__types types, unsigned count,
                             const value *operands)
{
    kiln_type tensors = (kiln_type)0, type;
    bool truths = true;
    for (unsigned i = 0; i < count; i++) {
        if (operands[i].is_number)
            continue;
        tensors = tensors ? wider(tensors, computed(e, operands[i])) : computed(e, operands[i]);
        truths = truths && is_truth(e, operands[i]);
    }
    type = tensors;
    for (unsigned i = 0; i < count; i++) {
        if (!operands[i].is_number)
            continue;
        const struct kiln__type_row *row = tensors ? kiln__type_row(tensors) : NULL;
        const bool goes = tensors && !truths && operands[i].is_whole &&
                          (types != KILN__TEST || (row->lowest <= operands[i].number &&
                                                   row->highest >= operands[i].number));
        const kiln_type own = goes ? tensors : computed(e, operands[i]);
        type = type ? wider(type, own) : own;
    }
    return type;
}

/* Its tensor in this type; {0} with the error recorded. */
static kiln_tensor convert_to(expression *e, value a, kiln_type type)
{
    const struct kiln__phrase place = place_of(e, kiln_type_name(type));
    if (a.is_number)
        return kiln__batch_number(e->batch, type, a.number, place.text);
    return computed(e, a) == type ? a.tensor : kiln_cast(e->batch, a.tensor, type);
}

/* A mask in a bool, which as an index picks elements and joins others by and, or, not. */
static bool as_truth(expression *e, kiln_tensor mask, value *result)
{
    if (!e->batch->error.status)
        *result = (value){.tensor = kiln_cast(e->batch, mask, KILN_BOOL)};
    return !e->batch->error.status;
}

kiln_tensor kiln__value_tensor(expression *e, value a)
{
    return a.is_number ? convert_to(e, a, computed(e, a)) : a.tensor;
}

/* ---- rows ---- */

/* Where operands of a row meet, but for the mask of a selection; numbers that a row takes as such
 * come along. */
static kiln_type operand_type(const expression *e, enum kiln__elementwise op, const value *operands)
{
    const enum kiln__types types = kiln__elementwise_rows[op].types;
    const unsigned count = kiln__elementwise_rows[op].tensors;
    const bool exact = op == KILN__OP_floor || op == KILN__OP_ceil || op == KILN__OP_round ||
                       op == KILN__OP_trunc || op == KILN__OP_pow; /* of integers, too */
    if (!exact && (types == KILN__FLOATING || types == KILN__FLOATING_TEST))
        return KILN_F32;
    return types == KILN__SELECTION ? common_type(e, types, count - 1, operands + 1)
                                    : common_type(e, types, count, operands);
}

static bool apply(expression *e, enum kiln__elementwise op, const value *operands, value *result)
{
    const struct kiln__elementwise_row *row = &kiln__elementwise_rows[op];
    const struct kiln__phrase place = place_of(e, row->name);
    kiln_tensor tensors[3];
    *result = (value){.tensor = kiln__none};
    if (!e->batch)
        return true;
    const kiln_type type = operand_type(e, op, operands);
    bool truths = row->types == KILN__TEST || row->types == KILN__FLOATING_TEST;
    if (row->types == KILN__SELECTION)
        truths = is_truth(e, operands[1]) && is_truth(e, operands[2]);
    for (unsigned i = 0; i < row->arity; i++) {
        const bool mask = row->types == KILN__SELECTION && !i;
        if (!mask)
            tensors[i] = convert_to(e, operands[i], type);
        else if (operands[0].is_number)
            tensors[i] = kiln__batch_number(e->batch, KILN_U8, operands[0].number != 0, place.text);
        else
            tensors[i] = computed(e, operands[0]) == KILN_U8
                             ? operands[0].tensor
                             : kiln_cast(e->batch, operands[0].tensor, KILN_BOOL);
    }
    if (e->batch->error.status)
        return false;
    const kiln_tensor made = kiln__record_elementwise(e->batch, op, place.text, tensors);
    if (truths)
        return as_truth(e, made, result);
    result->tensor = made;
    return !e->batch->error.status;
}

static bool apply_1(expression *e, enum kiln__elementwise op, value a, value *result)
{
    return apply(e, op, &a, result);
}

static bool apply_2(expression *e, enum kiln__elementwise op, value a, value b, value *result)
{
    return apply(e, op, (value[]){a, b}, result);
}

/* ---- operators ---- */

/* Both are numbers: so is the result. */
static bool fold(expression *e, enum kiln__operator op, value a, value b, value *result)
{
    const bool whole = a.is_whole && b.is_whole;
    double number;
    if (whole && b.number == 0 && (op == KILN__DIVIDED_DOWN || op == KILN__REMAINDER))
        return kiln__expression_fail(e, e->where, "a whole number is divided by 0");
    switch (op) {
    case KILN__PLUS: number = a.number + b.number; break;
    case KILN__MINUS: number = a.number - b.number; break;
    case KILN__TIMES: number = a.number * b.number; break;
    case KILN__POWER: number = pow(a.number, b.number); break;
    case KILN__DIVIDED_DOWN: number = floor(a.number / b.number); break;
    case KILN__REMAINDER:
        number = fmod(a.number, b.number);
        number += number != 0 && (number < 0) != (b.number < 0) ? b.number : 0;
        break;
    default: number = a.number / b.number;
    }
    *result = of_number(number, whole && op != KILN__DIVIDED && number == trunc(number));
    if (result->is_whole && fabs(number) >= KILN__MOST_WHOLE)
        return kiln__expression_fail(e, e->where, "a whole number beyond 2^53");
    return true;
}

/* A tensor to a whole power, by squares. */
static bool product(expression *e, value a, unsigned exponent, value *result)
{
    bool begun = false;
    for (;; exponent /= 2) {
        if (exponent % 2 && !begun)
            *result = a;
        else if (exponent % 2 && !apply_2(e, KILN__OP_mul, *result, a, result))
            return false;
        begun |= exponent % 2;
        if (exponent < 2)
            return true;
        if (!apply_1(e, KILN__OP_square, a, &a))
            return false;
    }
}

static bool power(expression *e, value a, value b, value *result)
{
    if (!b.is_number)
        return apply_2(e, KILN__OP_pow, a, b, result);
    if (b.number == 0.5)
        return apply_1(e, KILN__OP_sqrt, a, result);
    if (b.number == -1)
        return apply_1(e, KILN__OP_reciprocal, a, result);
    if (b.number >= 1 && b.number <= 16 && b.number == trunc(b.number)) {
        if (!b.is_whole && is_integer(e, a))
            a = (value){.tensor = convert_to(e, a, KILN_F32)};
        return !e->batch->error.status && product(e, a, (unsigned)b.number, result);
    }
    return apply_2(e, KILN__OP_pow, a, b, result);
}

/* As floats also of integers. */
static bool divide(expression *e, value a, value b, value *result)
{
    if (is_integer(e, a) && is_integer(e, b)) {
        a = (value){.tensor = convert_to(e, a, KILN_F32)};
        if (e->batch->error.status)
            return false;
    }
    return apply_2(e, KILN__OP_div, a, b, result);
}

/* Towards minus infinity, and so that (a // b) * b + a % b is a. By 0 integers are 0, and floats
 * what a / b is. */
static bool divide_down(expression *e, value a, value b, value *result)
{
    const value zero = of_number(0, true);
    const bool whole = is_integer(e, a) && is_integer(e, b);
    value rest, below, negative = of_number(b.number < 0, true), quotient, by_zero;
    if (!apply_2(e, KILN__OP_fmod, a, b, &rest) ||
        (!b.is_number && !apply_2(e, KILN__OP_less, b, zero, &negative)) ||
        !apply_2(e, KILN__OP_less, rest, zero, &below) ||
        !apply_2(e, KILN__OP_not_equal, below, negative, &below) ||
        !apply_2(e, KILN__OP_not_equal, rest, zero, &quotient) ||
        !apply_2(e, KILN__OP_logical_and, quotient, below, &below))
        return false;
    if (whole) {
        if (!apply_2(e, KILN__OP_div, a, b, result) || computed(e, *result) == KILN_U8)
            return !e->batch->error.status;
        below = (value){.tensor = convert_to(e, below, computed(e, *result))};
        return !e->batch->error.status && apply_2(e, KILN__OP_sub, *result, below, result);
    }
    /* Not a / b, which may be rounded up to a whole number that a does not reach. */
    if (!apply_2(e, KILN__OP_sub, a, rest, &quotient) ||
        !apply_2(e, KILN__OP_div, quotient, b, &quotient) ||
        !apply_1(e, KILN__OP_round, quotient, &quotient) ||
        !apply_2(e, KILN__OP_sub, quotient, below, result))
        return false;
    if (b.is_number && b.number != 0)
        return true;
    value is_zero;
    return apply_2(e, KILN__OP_equal, b, zero, &is_zero) &&
           apply_2(e, KILN__OP_div, a, b, &by_zero) &&
           apply_1(e, KILN__OP_floor, by_zero, &by_zero) &&
           apply(e, KILN__OP_where, (value[]){is_zero, by_zero, *result}, result);
}

/* Of masks the logical ones. */
static bool bits(expression *e, enum kiln__elementwise of_bits, enum kiln__elementwise of_masks,
                 value a, value b, value *result)
{
    const bool masks = is_truth(e, a) && is_truth(e, b);
    return apply_2(e, masks ? of_masks : of_bits, a, b, result);
}

bool kiln__value_binary(expression *e, enum kiln__operator op, const value operands[2],
                        value *result)
{
    const value a = operands[0], b = operands[1];
    const bool arithmetic = op >= KILN__PLUS && op <= KILN__POWER;
    if (arithmetic && a.is_number && b.is_number)
        return fold(e, op, a, b, result);
    *result = (value){.tensor = kiln__none};
    if (!e->batch)
        return true;
    switch (op) {
    case KILN__EITHER: return apply_2(e, KILN__OP_logical_or, a, b, result);
    case KILN__BOTH: return apply_2(e, KILN__OP_logical_and, a, b, result);
    case KILN__LESS: return apply_2(e, KILN__OP_less, a, b, result);
    case KILN__LESS_EQUAL: return apply_2(e, KILN__OP_less_equal, a, b, result);
    case KILN__GREATER: return apply_2(e, KILN__OP_greater, a, b, result);
    case KILN__GREATER_EQUAL: return apply_2(e, KILN__OP_greater_equal, a, b, result);
    case KILN__EQUAL: return apply_2(e, KILN__OP_equal, a, b, result);
    case KILN__NOT_EQUAL: return apply_2(e, KILN__OP_not_equal, a, b, result);
    case KILN__BIT_OR: return bits(e, KILN__OP_bit_or, KILN__OP_logical_or, a, b, result);
    case KILN__BIT_XOR: return bits(e, KILN__OP_bit_xor, KILN__OP_logical_xor, a, b, result);
    case KILN__BIT_AND: return bits(e, KILN__OP_bit_and, KILN__OP_logical_and, a, b, result);
    case KILN__SHIFT_LEFT: return apply_2(e, KILN__OP_shift_left, a, b, result);
    case KILN__SHIFT_RIGHT: return apply_2(e, KILN__OP_shift_right, a, b, result);
    case KILN__PLUS: return apply_2(e, KILN__OP_add, a, b, result);
    case KILN__MINUS: return apply_2(e, KILN__OP_sub, a, b, result);
    case KILN__TIMES: return apply_2(e, KILN__OP_mul, a, b, result);
    case KILN__DIVIDED: return divide(e, a, b, result);
    case KILN__DIVIDED_DOWN: return divide_down(e, a, b, result);
    case KILN__REMAINDER: return apply_2(e, KILN__OP_mod, a, b, result);
    default: return power(e, a, b, result);
    }
}

bool kiln__value_unary(expression *e, enum kiln__operator op, value a, value *result)
{
    if (op == KILN__NEGATIVE && a.is_number) {
        *result = of_number(a.is_whole ? 0 - a.number : -a.number, a.is_whole);
        return true;
    }
    *result = (value){.tensor = kiln__none};
    if (!e->batch)
        return true;
    if (op == KILN__NEGATIVE)
        return apply_1(e, KILN__OP_neg, a, result);
    return apply_1(e, op == KILN__NOT || is_truth(e, a) ? KILN__OP_logical_not : KILN__OP_bit_not,
                   a, result);
}

bool kiln__value_choose(expression *e, const value operands[3], value *result)
{
    return apply(e, KILN__OP_where, operands, result);
}

/* ---- functions ---- */

/* A row that is public, by its name; KILN__OP_COUNT: there is none. */
static enum kiln__elementwise find_row(const char *name, size_t length)
{
    static const bool is_public[KILN__OP_COUNT] = {
#define KILN_OP(name, ...) [KILN__OP_##name] = true,
#define KILN_OP_INTERNAL(name, ...)
#include "ops/elementwise.def"
#undef KILN_OP_INTERNAL
#undef KILN_OP
    };
    unsigned op = 0;
    while (op < KILN__OP_COUNT &&
           (!is_public[op] || strlen(kiln__elementwise_rows[op].name) != length ||
            strncmp(kiln__elementwise_rows[op].name, name, length) != 0))
        op++;
    return (enum kiln__elementwise)op;
}

/* A type that operations can give, by its name; 0: there is none. */
static kiln_type find_type(const char *name, size_t length)
{
    for (int type = 1; kiln__type_row((kiln_type)type); type++)
        if (strlen(kiln_type_name((kiln_type)type)) == length &&
            !kiln__type_is_block((kiln_type)type) &&
            !strncmp(kiln_type_name((kiln_type)type), name, length))
            return (kiln_type)type;
    return (kiln_type)0;
}

bool kiln__value_call(expression *e, const char *name, size_t length, unsigned count,
                      const value *arguments, value *result)
{
    const enum kiln__elementwise op = find_row(name, length);
    const kiln_type type = find_type(name, length);
    const int shown = length < 64 ? (int)length : 64;
    if (op == KILN__OP_COUNT && !type)
        return kiln__expression_fail(e, name, "%.*s() is no function of elements that kiln has",
                                     shown, name);
    const struct kiln__elementwise_row *row_of = type ? NULL : &kiln__elementwise_rows[op];
    const unsigned wanted = type ? 1 : row_of->arity;
    if (count != wanted)
        return kiln__expression_fail(e, name, "%.*s() takes %u argument%s, not %u", shown, name,
                                     wanted, wanted == 1 ? "" : "s", count);
    for (unsigned i = type ? count : row_of->tensors; i < count; i++)
        if (!arguments[i].is_number)
            return kiln__expression_fail(e, name, "%.*s() takes a number as argument %u", shown,
                                         name, i + 1);
    *result = (value){.tensor = kiln__none};
    if (!e->batch)
        return true;
    if (!type)
        return apply(e, op, arguments, result);
    const kiln_tensor given = kiln__value_tensor(e, arguments[0]);
    if (!e->batch->error.status)
        result->tensor = kiln_cast(e->batch, given, type);
    return !e->batch->error.status;
}
