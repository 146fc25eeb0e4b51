/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions of elements: the text is read from the left (expression.c), and each operator and
 * function records rows of the table as soon as its operands are there (expression_record.c). */
#pragma once

#include "record/batch.h"

/* A tensor, or a number that has the type of what it meets. */
struct kiln__value {
    kiln_tensor tensor;
    bool is_number, is_whole; /* of a number: no fraction was written */
    double number;
};

struct kiln__expression {
    const char *call; /* for sentences */
    const char *text;
    const char *where; /* in the text: what is being recorded, for sentences */
    kiln_batch *batch; /* NULL: the text is looked at, and nothing recorded */
    struct kiln__error *error;
};

/* Records that the text is wrong at a place; false. */
bool kiln__expression_fail(struct kiln__expression *e, const char *place, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The operators, by how tightly they bind: of `a if m else b` there is none. */
enum kiln__operator {
    KILN__NO_OPERATOR,
    KILN__EITHER,
    KILN__BOTH,
    KILN__LESS,
    KILN__LESS_EQUAL,
    KILN__GREATER,
    KILN__GREATER_EQUAL,
    KILN__EQUAL,
    KILN__NOT_EQUAL,
    KILN__BIT_OR,
    KILN__BIT_XOR,
    KILN__BIT_AND,
    KILN__SHIFT_LEFT,
    KILN__SHIFT_RIGHT,
    KILN__PLUS,
    KILN__MINUS,
    KILN__TIMES,
    KILN__DIVIDED,
    KILN__DIVIDED_DOWN,
    KILN__REMAINDER,
    KILN__POWER,
    KILN__NEGATIVE,
    KILN__BIT_NOT,
    KILN__NOT
};

/* 2^53: a double holds all whole numbers below it. */
#define KILN__MOST_WHOLE 9007199254740992.0

/* Record what the operator or function at e->where makes of its operands, and put it into *result.
 * false with the error recorded. While nothing is recorded, numbers are computed all the same. */
bool kiln__value_binary(struct kiln__expression *e, enum kiln__operator op,
                        const struct kiln__value operands[2], struct kiln__value *result);
bool kiln__value_unary(struct kiln__expression *e, enum kiln__operator op, struct kiln__value a,
                       struct kiln__value *result);
bool kiln__value_choose(struct kiln__expression *e, const struct kiln__value operands[3],
                        struct kiln__value *result);

/* A function of this name with so many arguments, or a type. */
#define KILN__MOST_ARGUMENTS 3
bool kiln__value_call(struct kiln__expression *e, const char *name, size_t length, unsigned count,
                      const struct kiln__value *arguments, struct kiln__value *result);

/* The tensor of a value. */
kiln_tensor kiln__value_tensor(struct kiln__expression *e, struct kiln__value a);
