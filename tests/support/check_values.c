/* SPDX-License-Identifier: Apache-2.0 */
/* What the inputs of checked batches hold. */
#include <float.h>
#include <math.h>

#include "check.h"
#include "session/context.h"

static uint64_t numbers = 1;

void check_seed(uint64_t seed)
{
    numbers = seed * 2 + 1;
}

uint32_t check_random(uint32_t below)
{
    numbers = numbers * 6364136223846793005u + 1442695040888963407u;
    uint64_t number = (numbers >> 33) * below >> 31;
    return (uint32_t)number;
}

/* Without a device there are denormals. */
static bool flushes_denormals(void)
{
    cl_device_fp_config config = CL_FP_DENORM;
    if (!check_is_open())
        return false;
    clGetDeviceInfo(check_context()->runtime.device.id, CL_DEVICE_SINGLE_FP_CONFIG, sizeof config,
                    &config, NULL);
    return !(config & CL_FP_DENORM);
}

double check_denormal(void)
{
    return flushes_denormals() ? FLT_MIN : 0;
}

static double special_value(kiln_type type)
{
    static const float floats[] = {0.0f,
                                   -0.0f,
                                   1.0f,
                                   -1.0f,
                                   INFINITY,
                                   -INFINITY,
                                   NAN,
                                   FLT_MAX,
                                   -FLT_MAX,
                                   FLT_MIN,
                                   -FLT_MIN,
                                   0.5f,
                                   -2.0f,
                                   88.7f,
                                   -87.3f,
                                   1e-10f,
                                   0x1p-126f,
                                   16777216.0f,
                                   0x1.fffffep-2f,
                                   -0x1p23f,
                                   3.14159265f,
                                   0x1p-149f,
                                   -0x1p-149f,
                                   0x1.fffffcp-127f,
                                   -103.5f,
                                   0x1p-140f};
    static const double integers[] = {
        0,     1,      -1,   2, -7, 100, INT32_MAX, INT32_MIN, INT32_MAX - 1, INT32_MIN + 1,
        65536, -65536, 46341};
    static const int64_t wholes[] = {0,
                                     1,
                                     -1,
                                     2,
                                     -7,
                                     INT64_MAX,
                                     INT64_MIN,
                                     INT64_MAX - 1,
                                     INT64_MIN + 1,
                                     INT64_C(1) << 53,
                                     (INT64_C(1) << 53) + 1,
                                     INT32_MAX,
                                     INT32_MIN,
                                     INT64_C(1) << 31,
                                     -(INT64_C(1) << 32),
                                     3037000500};
    static const double bytes[] = {0, 1, 2, 127, 128, 254, 255, 16};
    static const double chars[] = {0, 1, -1, 2, -7, 127, -128, 126, -127, 16};
    uint32_t n = sizeof floats / sizeof *floats - (flushes_denormals() ? 5 : 0);
    switch (kiln__type_row(type)->computed) {
    case KILN_F32: return floats[check_random(n)];
    case KILN_I32: return integers[check_random(sizeof integers / sizeof *integers)];
    case KILN_I64:
        return kiln__value_of_integer(KILN_I64,
                                      wholes[check_random(sizeof wholes / sizeof *wholes)]);
    case KILN_I8: return chars[check_random(sizeof chars / sizeof *chars)];
    default: return bytes[check_random(sizeof bytes / sizeof *bytes)];
    }
}

static double wide_value(kiln_type type)
{
    double sign = check_random(2) ? 1 : -1;
    const struct kiln__type_row *row = kiln__type_row(type);
    if (row->floating)
        return sign * ldexp(1 + check_random(1 << 23) * 0x1p-23,
                            (int)check_random((uint32_t)(2 - 2 * row->least)) + row->least);
    int64_t whole = (int64_t)((uint64_t)check_random(INT32_MAX) << 33 ^
                              (uint64_t)check_random(INT32_MAX) << 2 ^ check_random(4));
    return type == KILN_U8    ? check_random(256)
           : type == KILN_I32 ? sign * check_random(INT32_MAX)
                              : kiln__value_of_integer(type, whole);
}

static double number_of(kiln_type type, enum check_values values)
{
    bool floating = kiln__type_row(type)->floating;
    double unit = check_random(1 << 24) * 0x1p-24;
    if (values == CHECK_POSITIVE)
        return floating ? 0.25 + unit * 3.75 : 1 + check_random(100);
    if (values == CHECK_FEW)
        return type == KILN_U8 ? check_random(5) : (double)check_random(5) - 2;
    return floating ? unit * 8 - 4 : check_random(256) - (type == KILN_U8 ? 0 : 128.0);
}

double check_value(kiln_type type, enum check_values values)
{
    if (values == CHECK_SPECIAL && check_random(4))
        return special_value(type);
    if (values == CHECK_WIDE)
        return wide_value(type);
    double number = number_of(type, values);
    return kiln__type_row(type)->floating ? number : kiln__value_of_number(type, number);
}
