/* SPDX-License-Identifier: Apache-2.0 */
/* Decoder of fuzz bytes into arguments: the bytes, what arguments share, and numbers. */
#include "fuzz/take.h"

#include <limits.h>
#include <math.h>
#include <string.h>

/* ---- bytes ---- */

static const uint8_t *at, *end;

void bytes_begin(const uint8_t *bytes, size_t size)
{
    at = bytes;
    end = bytes + size;
}

bool bytes_left(void)
{
    return at < end;
}

uint8_t byte(void)
{
    return at < end ? *at++ : 0;
}

bool one_in(unsigned n)
{
    return byte() % n == n - 1;
}

/* ---- what arguments of one call share ---- */

struct taken now;

void values_begin(void)
{
    memset(&now, 0, sizeof now);
}

bool array_allowed(unsigned *turn)
{
    if (now.n > SHORTEST || one_in(24))
        return false;
    now.array = true;
    *turn = now.arrays++ % 4;
    return true;
}

/* ---- numbers ---- */

size_t take_size(void)
{
    static const size_t small[] = {1, 2, 3, 4, 4, 4, 8, 5};
    static const size_t large[] = {
        0,       7,        65,       1000,     65537,        SIZE_MAX / 8 + 1, SIZE_MAX / 4,
        1 << 20, SIZE_MAX, SIZE_MAX, SIZE_MAX, INT32_MAX,    UINT32_MAX,       SIZE_MAX / 2 + 1,
        0,       0,        1,        1,        SIZE_MAX - 1, (size_t)1 << 40,  (size_t)1 << 62};
    return one_in(8) ? ONE_OF(large) : ONE_OF(small);
}

int64_t take_position(size_t extent)
{
    static const int64_t far[] = {INT64_MIN, INT64_MIN + 1, INT64_MAX, INT64_MAX - 1, -2, 1000};
    const int64_t near[] = {0, 1, -1, 2, (int64_t)extent, (int64_t)extent - 1, (int64_t)extent + 1};
    return one_in(8) ? ONE_OF(far) : ONE_OF(near);
}

double take_number(void)
{
    static const double odd[] = {NAN,
                                 INFINITY,
                                 -INFINITY,
                                 1e300,
                                 -1e300,
                                 5e-324,
                                 -0.0,
                                 2147483647.0,
                                 2147483648.,
                                 -2147483649.,
                                 4294967296,
                                 3.4028235e38,
                                 255,
                                 256,
                                 -1,
                                 1e-300,
                                 18446744073709551616.0};
    static const double usual[] = {0, 1, 0.5, 2, 3, 0.1, 1e-5, 0.9};
    return one_in(4) ? ONE_OF(odd) : ONE_OF(usual);
}

size_t take_index(void)
{
    return one_in(4) ? take_size() : byte() % 4;
}

int take_flag(void)
{
    static const int flags[] = {0, 1, -1, 2, INT_MIN};
    return ONE_OF(flags);
}

uint32_t take_word(void)
{
    static const uint32_t words[] = {0, 1, 2, (1u << 30) - 2, (1u << 30) - 1, 1u << 31, UINT32_MAX};
    return ONE_OF(words);
}

uint64_t take_wide(void)
{
    static const uint64_t numbers[] = {0, 1, UINT32_MAX, (uint64_t)1 << 63, UINT64_MAX};
    return ONE_OF(numbers);
}

kiln_status take_status(void)
{
    static const int numbers[] = {0, 1, 2, -1, -9, -15, -16, INT_MAX, INT_MIN};
    return (kiln_status)ONE_OF(numbers);
}

kiln_padding take_padding(void)
{
    static const int numbers[] = {0, 1, 2, 3, 4, -1, INT_MAX, INT_MIN};
    return (kiln_padding)ONE_OF(numbers);
}

kiln_device_type take_device_type(void)
{
    static const int numbers[] = {0, 1, 2, 3, 4, 5, -1, INT_MAX, INT_MIN};
    return (kiln_device_type)ONE_OF(numbers);
}

kiln_optimizer_method take_optimizer_method(void)
{
    static const int methods[] = {1, 2, 3, 0, 4, -1, INT_MAX};
    return (kiln_optimizer_method)ONE_OF(methods);
}

/* ---- all ---- */

union value value_of(enum kind kind)
{
    union value value;
    memset(&value, 0, sizeof value);
    switch (kind) {
    case KIND_END: break;
#define KIND(name, type)                                                                           \
    case KIND_##name:                                                                              \
        value.name = take_##name();                                                                \
        break;
#include "fuzz/values.def"
#undef KIND
    }
    return value;
}
