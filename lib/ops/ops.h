/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of operations and types. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <kiln/types.h>

/* ---- types ---- */

/* A row of types.def. What it is computed in is what elements become where they are loaded. */
struct kiln__type_row {
    const char *name; /* "f32" */
    uint8_t bytes;    /* of an element, or of a block */
    uint16_t block;   /* elements of a block; 1: they lie apart */
    uint8_t shared;   /* of these, so many neighbours have one scale, */
    bool low;         /* and one number that is added to them */
    bool floating;
    int digits, least;      /* of a floating one: bits of the mantissa, 2^least is normal */
    double lowest, highest; /* finite range */
    int64_t least_whole, most_whole; /* of an integer the same, exactly */
    const char *stored;              /* OpenCL C scalar type in memory, "float" */
    kiln_type computed;              /* itself, or the wider type that operations take it for */
    kiln_type accumulator;           /* of sums and products */
    const char *device;              /* what it is computed in; vectors append their width */
    const char *sums; /* the one to add, subtract and multiply in, which wraps around */
    const char *mask; /* what a comparison of vectors gives */
    const char *least_text, *most_text; /* its least and greatest value in OpenCL C */
};

/* NULL for a value that is no type. */
const struct kiln__type_row *kiln__type_row(kiln_type type);

/* Whether elements lie in blocks; what so many of a type take; at multiples of what they start. */
bool kiln__type_is_block(kiln_type type);
size_t kiln__type_bytes(kiln_type type, size_t count);
size_t kiln__type_alignment(kiln_type type);

/* Elements of the largest block. */
#define KILN__MOST_BLOCK 256

/* What is loaded of a block: as many floats as it has elements. */
void kiln__block_load(kiln_type type, const void *block, float *values);

/* The operands' types that a row accepts, and its result's. A mask is a u8 of 0 and 1. */
enum kiln__types {
    KILN__NUMERIC,       /* any type; the result has it too */
    KILN__FLOATING,      /* f32; the result has it too */
    KILN__TEST,          /* any type; the result is a mask */
    KILN__FLOATING_TEST, /* f32; the result is a mask */
    KILN__SELECTION,     /* a mask first, then any type, which the result has too */
    KILN__INTEGER,       /* any integer; the result has it too */
    KILN__WORDS          /* i32; the result has it too */
};

/* Whether operands (a mask apart) may be of `type`; false for a value that is no type. */
bool kiln__types_accept(enum kiln__types types, kiln_type type);

/* Where operands, and so the last one, are of `type`: the type of operand `k`, and the result's. */
kiln_type kiln__types_operand(enum kiln__types types, unsigned k, kiln_type type);
kiln_type kiln__types_result(enum kiln__types types, kiln_type type);

/* Store a number as an element of `type` at `place`, rounded or saturated as kiln_cast() says, and
 * the reverse, to the nearest double. */
void kiln__type_store(kiln_type type, double value, void *place);
double kiln__type_load(kiln_type type, const void *place);

/* What storing and loading again makes of a number. */
double kiln__type_round(kiln_type type, double value);

/* Of a floating type: the distance of its numbers at `value`, its smallest normal number, and from
 * where on a number rounds to infinity. */
double kiln__type_ulp(kiln_type type, double value);
double kiln__type_smallest(kiln_type type);
double kiln__type_overflow(kiln_type type);

/* ---- values on the host ---- */

/* A value of any type takes a double's place, exactly: a number, but of i64, of which a double does
 * not hold all, its bits. Values are moved as they are; who computes takes the number of a floating
 * one, and of an integer the whole number. */
double kiln__value_load(kiln_type type, const void *place);
/* Element `i` of those that lie one behind the other, also in blocks; and all of them. */
double kiln__value_at(kiln_type type, const void *data, size_t i);
void kiln__values_load(kiln_type type, const void *data, size_t count, double *values);
void kiln__value_store(kiln_type type, double value, void *place);

/* Of an integer type. What `whole` has beyond the type's bits is dropped. */
int64_t kiln__value_integer(kiln_type type, double value);
double kiln__value_of_integer(kiln_type type, int64_t whole);

/* The nearest double, and the value that kiln_cast() makes of a number. */
double kiln__value_number(kiln_type type, double value);
double kiln__value_of_number(kiln_type type, double number);

/* As text: an i64 in full, others to 9 digits. */
struct kiln__value_text {
    char text[32];
};
struct kiln__value_text kiln__value_text(kiln_type type, double value);

/* What kiln_cast() makes of a value; where it `saturates`, integers beyond the range do, too. To
 * f32 it does not round. */
double kiln__value_cast(kiln_type from, kiln_type to, double value, bool saturates);

/* ---- elementwise operations ---- */

enum kiln__elementwise {
#define KILN_OP(name, ...) KILN__OP_##name,
#define KILN_OP_INTERNAL KILN_OP
#include "ops/elementwise.def"
#undef KILN_OP_INTERNAL
#undef KILN_OP
    KILN__OP_COUNT
};

struct kiln__elementwise_row {
    const char *name;
    uint8_t arity;   /* operands, numbers among them */
    uint8_t tensors; /* the first ones, which are tensors; numbers follow */
    enum kiln__types types;
    uint8_t cost;
    float max_ulp;
    const char *device;
    double (*host)(double a, double b, double c, bool integer);
};

extern const struct kiln__elementwise_row kiln__elementwise_rows[KILN__OP_COUNT];

/* What a row makes of values, the last one of `type`: as doubles, or of integers exactly. */
double kiln__elementwise_value(enum kiln__elementwise op, kiln_type type, const double operands[3]);

/* The row by which an operation is recorded whose last operand is computed in `type`: itself, or of
 * integers an exact one; KILN__OP_COUNT: the operand is the result. */
enum kiln__elementwise kiln__elementwise_of(enum kiln__elementwise op, kiln_type type);

/* ---- reductions ---- */

enum kiln__reduction {
#define KILN_REDUCE(name, ...) KILN__REDUCE_##name,
#include "ops/reduce.def"
#undef KILN_REDUCE
    KILN__REDUCE_COUNT
};

enum kiln__identity {
    KILN__IDENTITY_0,
    KILN__IDENTITY_1,
    KILN__IDENTITY_LOWEST,
    KILN__IDENTITY_HIGHEST
};

/* What a reduction does with its values: how partial results merge, and which error bound holds. */
enum kiln__reduce_kind {
    KILN__REDUCES_SUM,
    KILN__REDUCES_MEAN,
    KILN__REDUCES_PRODUCT,
    KILN__REDUCES_LARGEST,
    KILN__REDUCES_SMALLEST,
    KILN__REDUCES_INDEXED
};

struct kiln__reduce_row {
    const char *name;
    enum kiln__reduce_kind kind;
    bool indexed;     /* of that kind */
    bool adds;        /* a sum or a mean */
    bool empty;       /* no elements at all have a result */
    uint8_t identity; /* enum kiln__identity */
    enum kiln__types types;
    const char *combine;
    const char *finish;
    double (*host_combine)(double a, double b);
    double (*host_finish)(double a, double n);
};

extern const struct kiln__reduce_row kiln__reduce_rows[KILN__REDUCE_COUNT];

/* The type of a reduction's result, and of its accumulator, for values of `type`. */
kiln_type kiln__reduce_result(const struct kiln__reduce_row *row, kiln_type type);
kiln_type kiln__reduce_accumulator(const struct kiln__reduce_row *row, kiln_type type);

/* The accumulator's start as a value: 0, -inf, the type's lowest, ... */
double kiln__identity_value(enum kiln__identity identity, kiln_type type);

/* What a value `b` of `type` makes of the accumulator `a`, a value of the accumulator's type; of an
 * indexed reduction, whether b is better than a, both values of `type`: 0 or 1. */
double kiln__reduce_combine(enum kiln__reduction op, kiln_type type, double a, double b);

/* The result, of the accumulator and `n` elements of `type`. */
double kiln__reduce_finish(enum kiln__reduction op, kiln_type type, double a, double n);
