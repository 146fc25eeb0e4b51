/* SPDX-License-Identifier: Apache-2.0 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "ops/ops.h"

static const struct kiln__type_row rows[] = {
    [KILN_F32] = {"f32", "float", "float", 4, true, -FLT_MAX, FLT_MAX},
    [KILN_I32] = {"i32", "int", "uint", 4, false, INT32_MIN, INT32_MAX},
    [KILN_U8] = {"u8", "uchar", "uchar", 1, false, 0, UINT8_MAX},
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
    bool only_floating, mask_first, makes_mask, only_words;
} rules[] = {
    [KILN__NUMERIC] = {0},
    [KILN__FLOATING] = {.only_floating = true},
    [KILN__TEST] = {.makes_mask = true},
    [KILN__FLOATING_TEST] = {.only_floating = true, .makes_mask = true},
    [KILN__SELECTION] = {.mask_first = true},
    [KILN__WORDS] = {.only_words = true},
};

bool kiln__types_accept(enum kiln__types types, kiln_type type)
{
    const struct kiln__type_row *row = kiln__type_row(type);
    return row && (row->floating || !rules[types].only_floating) &&
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

/* Towards zero, saturated, NaN as 0: what convert_int_sat() and its like do. */
static double to_integer(double value, const struct kiln__type_row *row)
{
    if (isnan(value))
        return 0;
    return fmin(fmax(trunc(value), row->lowest), row->highest);
}

void kiln__type_store(kiln_type type, double value, void *place)
{
    switch (type) {
    case KILN_F32: memcpy(place, &(float){(float)value}, sizeof(float)); break;
    case KILN_I32:
        memcpy(place, &(int32_t){(int32_t)to_integer(value, &rows[type])}, sizeof(int32_t));
        break;
    case KILN_U8: *(uint8_t *)place = (uint8_t)to_integer(value, &rows[type]); break;
    }
}

double kiln__type_load(kiln_type type, const void *place)
{
    float f;
    int32_t i;
    switch (type) {
    case KILN_F32: memcpy(&f, place, sizeof f); return f;
    case KILN_I32: memcpy(&i, place, sizeof i); return i;
    case KILN_U8: return *(const uint8_t *)place;
    }
    return 0;
}

double kiln__type_round(kiln_type type, double value)
{
    double place = 0;
    kiln__type_store(type, value, &place);
    return kiln__type_load(type, &place);
}
