/* SPDX-License-Identifier: Apache-2.0 */
/* The data type table as an array: sizes, ulps, ranges, and conversion of host values to and from
 * double. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops/ops.h"
#include "util/format.h"

/* What kernels compute in: the type, the one that sums and products have (they outgrow integers of
 * 32 bits), its name, the one that wraps around, a vector's masks, the least and greatest value. */
#define COMPUTED_F32 KILN_F32, KILN_F32, "float", "float", "int", "-INFINITY", "INFINITY"
#define COMPUTED_I64 KILN_I64, KILN_I64, "long", "ulong", "long", "LONG_MIN", "LONG_MAX"
#define COMPUTED_I32 KILN_I32, KILN_I64, "int", "uint", "int", "INT_MIN", "INT_MAX"
#define COMPUTED_I8 KILN_I8, KILN_I64, "char", "uchar", "char", "CHAR_MIN", "CHAR_MAX"
#define COMPUTED_U8 KILN_U8, KILN_I64, "uchar", "uchar", "char", "0", "UCHAR_MAX"

static const struct kiln__type_row rows[] = {
#define KILN_TYPE(NAME, value, bytes, ctype, name, stored, computed, digits, least, lowest,        \
                  highest)                                                                         \
    [KILN_##NAME] = {#name,                                                                        \
                     bytes,                                                                        \
                     1,                                                                            \
                     1,                                                                            \
                     false,                                                                        \
                     (digits) > 0,                                                                 \
                     digits,                                                                       \
                     least,                                                                        \
                     (double)(lowest),                                                             \
                     (double)(highest),                                                            \
                     (int64_t)((digits) > 0 ? 0 : (lowest)),                                       \
                     (int64_t)((digits) > 0 ? 0 : (highest)),                                      \
                     #stored,                                                                      \
                     COMPUTED_##computed},
#define KILN_BLOCK_TYPE(NAME, value, bytes, elements, name, shared, low)                           \
    [KILN_##NAME] = {#name, bytes,    elements, shared, low, true,    24,                          \
                     -126,  -FLT_MAX, FLT_MAX,  0,      0,   "uchar", COMPUTED_F32},
#include "ops/types.def"
#undef KILN_TYPE
#undef KILN_BLOCK_TYPE
};

const struct kiln__type_row *kiln__type_row(kiln_type type)
{
    size_t index = (size_t)type;
    return index < sizeof rows / sizeof *rows && rows[index].name ? &rows[index] : NULL;
}

size_t kiln_type_size(kiln_type type)
{
    const struct kiln__type_row *row = kiln__type_row(type);
    return row ? row->bytes : 0;
}

size_t kiln_type_block(kiln_type type)
{
    const struct kiln__type_row *row = kiln__type_row(type);
    return row ? row->block : 0;
}

bool kiln__type_is_block(kiln_type type)
{
    return kiln_type_block(type) > 1;
}

size_t kiln__type_bytes(kiln_type type, size_t count)
{
    return count / rows[type].block * rows[type].bytes;
}

/* Scales of blocks have 16 bits. */
size_t kiln__type_alignment(kiln_type type)
{
    return kiln__type_is_block(type) ? sizeof(uint16_t) : rows[type].bytes;
}

const char *kiln_type_name(kiln_type type)
{
    const struct kiln__type_row *row = kiln__type_row(type);
    return row ? row->name : "unknown";
}

static const struct {
    bool only_floating, mask_first, makes_mask, only_integers, only_words;
} rules[] = {
    [KILN__NUMERIC] = {0},
    [KILN__FLOATING] = {.only_floating = true},
    [KILN__TEST] = {.makes_mask = true},
    [KILN__FLOATING_TEST] = {.only_floating = true, .makes_mask = true},
    [KILN__SELECTION] = {.mask_first = true},
    [KILN__INTEGER] = {.only_integers = true},
    [KILN__WORDS] = {.only_words = true},
};

bool kiln__types_accept(enum kiln__types types, kiln_type type)
{
    const struct kiln__type_row *row = kiln__type_row(type);
    return row && row->computed == type && (row->floating || !rules[types].only_floating) &&
           (!row->floating || !rules[types].only_integers) &&
           (type == KILN_I32 || !rules[types].only_words);
}

kiln_type kiln__types_operand(enum kiln__types types, unsigned k, kiln_type type)
{
    return k == 0 && rules[types].mask_first ? KILN_U8 : type;
}

kiln_type kiln__types_result(enum kiln__types types, kiln_type type)
{
    return rules[types].makes_mask ? KILN_U8 : type;
}

/* ---- values ---- */

double kiln__type_smallest(kiln_type type)
{
    return ldexp(1, rows[type].least);
}

double kiln__type_ulp(kiln_type type, double value)
{
    const struct kiln__type_row *row = &rows[type];
    int exponent = row->least + 1;
    if (isfinite(value) && fabs(value) > kiln__type_smallest(type))
        frexp(fmin(fabs(value), row->highest), &exponent);
    return ldexp(1, exponent - row->digits);
}

double kiln__type_overflow(kiln_type type)
{
    return rows[type].highest + kiln__type_ulp(type, rows[type].highest) / 2;
}

/* To nearest, of two as near to the one with an even last bit: nearbyint() does, by default. */
static double to_floating(kiln_type type, double value)
{
    if (!isfinite(value))
        return value;
    double ulp = kiln__type_ulp(type, value), rounded = nearbyint(value / ulp) * ulp;
    return fabs(rounded) > rows[type].highest ? copysign(INFINITY, value)
                                              : copysign(rounded, value);
}

/* Towards zero, saturated, NaN as 0: what convert_int_sat() and its like do. */
static int64_t to_integer(kiln_type type, double value)
{
    return isnan(value)                  ? 0
           : value <= rows[type].lowest  ? rows[type].least_whole
           : value >= rows[type].highest ? rows[type].most_whole
                                         : (int64_t)value;
}

double kiln__type_round(kiln_type type, double value)
{
    return type == KILN_F32      ? (double)(float)value
           : rows[type].floating ? to_floating(type, value)
                                 : (double)to_integer(type, value);
}

int64_t kiln__value_integer(kiln_type type, double value)
{
    int64_t whole;
    _Static_assert(sizeof whole == sizeof value, "the bits of one are those of the other");
    if (type != KILN_I64)
        return to_integer(type, value);
    memcpy(&whole, &value, sizeof whole);
    return whole;
}

/* Of integers with fewer bits than `whole` the lower ones, as signed or unsigned ones; a truth is
 * none of them. */
double kiln__value_of_integer(kiln_type type, int64_t whole)
{
    const struct kiln__type_row *row = &rows[type];
    double value;
    if (type == KILN_BOOL)
        return whole != 0;
    if (row->bytes < sizeof whole) {
        const int64_t above = INT64_C(1) << (8 * row->bytes);
        whole &= above - 1;
        return (double)(whole > row->most_whole ? whole - above : whole);
    }
    memcpy(&value, &whole, sizeof value);
    return value;
}

struct kiln__value_text kiln__value_text(kiln_type type, double value)
{
    struct kiln__value_text text = {0};
    if (type == KILN_I64)
        snprintf(text.text, sizeof text.text, "%" PRId64, kiln__value_integer(type, value));
    else
        kiln__format(text.text, sizeof text.text, "%.9g", value);
    return text;
}

double kiln__value_number(kiln_type type, double value)
{
    return type == KILN_I64 ? (double)kiln__value_integer(type, value) : value;
}

double kiln__value_of_number(kiln_type type, double number)
{
    double rounded = kiln__type_round(type, number);
    return rows[type].floating ? rounded : kiln__value_of_integer(type, to_integer(type, number));
}

/* The same, but odd in its last place where a double does not hold all: rounded once more, to fewer
 * digits, it is rounded right. */
static double odd_number(kiln_type type, double value)
{
    const int64_t below = 1023;
    int64_t whole = type == KILN_I64 ? kiln__value_integer(type, value) : 0;
    if (whole > -(INT64_C(1) << 53) && whole < INT64_C(1) << 53)
        return kiln__value_number(type, value);
    return (double)(whole & below ? (whole & ~below) | (below + 1) : whole);
}

double kiln__value_cast(kiln_type from, kiln_type to, double value, bool saturates)
{
    if (rows[to].floating || rows[from].floating)
        return to == KILN_F32 ? kiln__value_number(from, value)
                              : kiln__value_of_number(to, odd_number(from, value));
    int64_t whole = kiln__value_integer(from, value);
    if (saturates)
        whole = whole < rows[to].least_whole  ? rows[to].least_whole
                : whole > rows[to].most_whole ? rows[to].most_whole
                                              : whole;
    return kiln__value_of_integer(to, whole);
}

/* ---- bits ---- */

static int64_t read_bits(const struct kiln__type_row *row, const void *place)
{
    switch (row->bytes) {
    case 1: return row->lowest < 0 ? *(const int8_t *)place : *(const uint8_t *)place;
    case 2:
        return *(const int16_t *)memcpy(&(int16_t){0}, place, 2) &
               (row->lowest < 0 ? -1 : UINT16_MAX);
    case 4: return *(const int32_t *)memcpy(&(int32_t){0}, place, 4);
    default: return *(const int64_t *)memcpy(&(int64_t){0}, place, 8);
    }
}

static void write_bits(const struct kiln__type_row *row, int64_t bits, void *place)
{
    switch (row->bytes) {
    case 1: memcpy(place, &(uint8_t){(uint8_t)bits}, 1); break;
    case 2: memcpy(place, &(uint16_t){(uint16_t)bits}, 2); break;
    case 4: memcpy(place, &(uint32_t){(uint32_t)bits}, 4); break;
    default: memcpy(place, &bits, 8); break;
    }
}

/* Sign, exponent and mantissa as IEEE 754 has them: exponents of all ones are infinity and NaN. */
static double decode(const struct kiln__type_row *row, int64_t bits)
{
    int64_t one = INT64_C(1) << (row->digits - 1), sign = INT64_C(1) << (8 * row->bytes - 1);
    int64_t mantissa = bits & (one - 1), exponent = (bits & (sign - 1)) >> (row->digits - 1);
    int64_t most = (sign - 1) >> (row->digits - 1);
    double value = exponent == most ? (mantissa ? NAN : INFINITY)
                   : exponent       ? (double)(mantissa + one)
                                    : (double)mantissa;
    int shift = row->least - row->digits + (exponent ? (int)exponent : 1);
    value = exponent == most ? value : ldexp(value, shift);
    return bits & sign ? -value : value;
}

static int64_t encode(const struct kiln__type_row *row, double value)
{
    int64_t one = INT64_C(1) << (row->digits - 1), sign = INT64_C(1) << (8 * row->bytes - 1);
    int64_t most = (sign - one) & (sign - 1), bits;
    int exponent = row->least + 1;
    if (isnan(value))
        bits = most + one / 2;
    else if (isinf(value))
        bits = most;
    else {
        if (fabs(value) >= ldexp(1, row->least))
            frexp(value, &exponent);
        bits = (int64_t)ldexp(fabs(value), row->digits - exponent);
        bits += (exponent - row->least - 1) * one;
    }
    return signbit(value) ? bits | sign : bits;
}

void kiln__type_store(kiln_type type, double value, void *place)
{
    const struct kiln__type_row *row = &rows[type];
    if (type == KILN_F32)
        memcpy(place, &(float){(float)value}, sizeof(float));
    else
        write_bits(row,
                   row->floating ? encode(row, to_floating(type, value)) : to_integer(type, value),
                   place);
}

double kiln__type_load(kiln_type type, const void *place)
{
    const struct kiln__type_row *row = &rows[type];
    if (type == KILN_F32)
        return *(const float *)memcpy(&(float){0}, place, sizeof(float));
    int64_t bits = read_bits(row, place);
    return row->floating ? decode(row, bits) : (double)to_integer(type, (double)bits);
}

/* What lies in a byte of bool besides 0 and 1 is 1. */
double kiln__value_load(kiln_type type, const void *place)
{
    return rows[type].floating ? kiln__type_load(type, place)
                               : kiln__value_of_integer(type, read_bits(&rows[type], place));
}

double kiln__value_at(kiln_type type, const void *data, size_t i)
{
    const size_t block = rows[type].block;
    const char *place = (const char *)data + i / block * rows[type].bytes;
    float values[KILN__MOST_BLOCK];
    if (block == 1)
        return kiln__value_load(type, place);
    kiln__block_load(type, place, values);
    return (double)values[i % block];
}

void kiln__values_load(kiln_type type, const void *data, size_t count, double *values)
{
    const struct kiln__type_row *row = &rows[type];
    const char *from = data;
    float block[KILN__MOST_BLOCK];
    for (size_t i = 0; i < count; i++) {
        if (row->block > 1 && i % row->block == 0)
            kiln__block_load(type, from + i / row->block * row->bytes, block);
        values[i] = row->block > 1 ? (double)block[i % row->block]
                                   : kiln__value_load(type, from + i * row->bytes);
    }
}

void kiln__value_store(kiln_type type, double value, void *place)
{
    if (rows[type].floating)
        kiln__type_store(type, value, place);
    else
        write_bits(&rows[type], kiln__value_integer(type, value), place);
}
