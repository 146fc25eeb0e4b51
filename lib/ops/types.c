/* SPDX-License-Identifier: Apache-2.0 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "ops/ops.h"

/* What kernels compute in: the type, the one that sums and products have (they outgrow u8), its
 * name, the one that wraps around, a vector's masks, the least and greatest value. */
#define COMPUTED_F32 KILN_F32, KILN_F32, "float", "float", "int", "-INFINITY", "INFINITY"
#define COMPUTED_I32 KILN_I32, KILN_I32, "int", "uint", "int", "INT_MIN", "INT_MAX"
#define COMPUTED_U8 KILN_U8, KILN_I32, "uchar", "uchar", "char", "0", "UCHAR_MAX"

static const struct kiln__type_row rows[] = {
#define KILN_TYPE(NAME, value, bytes, ctype, name, stored, computed, digits, least, lowest,        \
                  highest)                                                                         \
    [KILN_##NAME] = {#name,   bytes,   (digits) > 0,       digits, least, lowest,                  \
                     highest, #stored, COMPUTED_##computed},
#include "ops/types.def"
#undef KILN_TYPE
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
static double to_integer(kiln_type type, double value)
{
    return isnan(value) ? 0 : fmin(fmax(trunc(value), rows[type].lowest), rows[type].highest);
}

double kiln__type_round(kiln_type type, double value)
{
    return type == KILN_F32      ? (double)(float)value
           : rows[type].floating ? to_floating(type, value)
                                 : to_integer(type, value);
}

/* ---- bits ---- */

static int64_t read_bits(const struct kiln__type_row *row, const void *place)
{
    switch (row->bytes) {
    case 1: return row->lowest < 0 ? *(const int8_t *)place : *(const uint8_t *)place;
    case 2: return *(const uint16_t *)memcpy(&(uint16_t){0}, place, 2);
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

bool kiln__type_is_checked(kiln_type type)
{
    return rows[type].bytes > rows[rows[type].computed].bytes;
}

bool kiln__type_refuses(kiln_type type, const void *data, size_t count, size_t *place,
                        int64_t *value)
{
    const struct kiln__type_row *row = &rows[type];
    for (*place = 0; kiln__type_is_checked(type) && *place < count; ++*place) {
        *value = read_bits(row, (const char *)data + *place * row->bytes);
        if ((double)*value < row->lowest || (double)*value > row->highest)
            return true;
    }
    return false;
}

void kiln__type_store(kiln_type type, double value, void *place)
{
    const struct kiln__type_row *row = &rows[type];
    if (type == KILN_F32)
        memcpy(place, &(float){(float)value}, sizeof(float));
    else
        write_bits(row,
                   row->floating ? encode(row, to_floating(type, value))
                                 : (int64_t)to_integer(type, value),
                   place);
}

double kiln__type_load(kiln_type type, const void *place)
{
    const struct kiln__type_row *row = &rows[type];
    if (type == KILN_F32)
        return *(const float *)memcpy(&(float){0}, place, sizeof(float));
    int64_t bits = read_bits(row, place);
    return row->floating ? decode(row, bits) : to_integer(type, (double)bits);
}
