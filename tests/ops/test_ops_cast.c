/* SPDX-License-Identifier: Apache-2.0 */
/* Casts between all types: of floats towards zero, saturated, NaN as 0; integers wrap around. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>

#include "../support/check.h"
#include "ops/ops.h"

struct known {
    kiln_type from, to;
    double value, answer;
};

#define F KILN_F32
#define I KILN_I32
#define B KILN_U8
static const struct known knowns[] = {{F, I, 1.9f, 1},
                                      {F, I, -1.9f, -1},
                                      {F, I, 0.5, 0},
                                      {F, I, -0.0, 0},
                                      {F, I, 2147483520.0, 2147483520.0},
                                      {F, I, 2147483648.0, INT32_MAX},
                                      {F, I, 3e9f, INT32_MAX},
                                      {F, I, -2147483648.0, INT32_MIN},
                                      {F, I, -3e9f, INT32_MIN},
                                      {F, I, NAN, 0},
                                      {F, I, INFINITY, INT32_MAX},
                                      {F, I, -INFINITY, INT32_MIN},
                                      {F, I, FLT_MAX, INT32_MAX},
                                      {F, I, 0x1p-149f, 0},
                                      {F, I, 16777215, 16777215},
                                      {F, B, 255.9f, 255},
                                      {F, B, 256, 255},
                                      {F, B, 1e10f, 255},
                                      {F, B, -0.9f, 0},
                                      {F, B, -1, 0},
                                      {F, B, -1e10f, 0},
                                      {F, B, NAN, 0},
                                      {F, B, INFINITY, 255},
                                      {F, B, -INFINITY, 0},
                                      {F, B, 127.99f, 127},
                                      {F, B, 254.9999f, 254},
                                      {F, F, 1.25, 1.25},
                                      {F, F, NAN, NAN},
                                      {F, F, INFINITY, INFINITY},
                                      {I, F, 16777216, 16777216},
                                      {I, F, 16777217, 16777216},
                                      {I, F, 16777219, 16777220},
                                      {I, F, INT32_MAX, 2147483648.0},
                                      {I, F, INT32_MIN, -2147483648.0},
                                      {I, F, -7, -7},
                                      {I, F, 0, 0},
                                      {I, B, 300, 44},
                                      {I, B, 256, 0},
                                      {I, B, 255, 255},
                                      {I, B, -1, 255},
                                      {I, B, INT32_MIN, 0},
                                      {I, B, INT32_MAX, 255},
                                      {I, B, 128, 128},
                                      {I, I, -5, -5},
                                      {I, I, INT32_MIN, INT32_MIN},
                                      {B, F, 255, 255},
                                      {B, F, 0, 0},
                                      {B, F, 128, 128},
                                      {B, I, 255, 255},
                                      {B, I, 128, 128},
                                      {B, I, 0, 0},
                                      {B, B, 200, 200},
                                      {B, B, 0, 0},
                                      {F, KILN_I8, 127.9f, 127},
                                      {F, KILN_I8, 128, 127},
                                      {F, KILN_I8, -128.9f, -128},
                                      {F, KILN_I8, -1e10f, -128},
                                      {F, KILN_I8, -1.9f, -1},
                                      {F, KILN_I8, NAN, 0},
                                      {I, KILN_I8, 300, 44},
                                      {I, KILN_I8, INT32_MIN, 0},
                                      {I, KILN_I8, -77, -77},
                                      {KILN_I8, F, -128, -128},
                                      {KILN_I8, F, 127, 127},
                                      {KILN_I8, B, -1, 255},
                                      {KILN_I8, B, 127, 127},
                                      {F, KILN_I64, 3e9f, 3e9},
                                      {F, KILN_I64, -1.5f, -1},
                                      {F, KILN_I64, -INFINITY, -0x1p63},
                                      {KILN_I64, F, INT32_MIN, -2147483648.0},
                                      {KILN_I64, F, 16777217, 16777216},
                                      {KILN_I64, KILN_I8, 1000, -24},
                                      {KILN_I64, I, 0x1p31, INT32_MIN},
                                      {KILN_I64, I, 0x1p40 + 7, 7},
                                      {B, KILN_I8, 200, -56},
                                      {I, KILN_I64, INT32_MIN, INT32_MIN},
                                      {KILN_I64, KILN_I8, -3, -3},
                                      {F, KILN_BOOL, 0.25f, 1},
                                      {F, KILN_BOOL, -0.0f, 0},
                                      {F, KILN_BOOL, NAN, 1},
                                      {F, KILN_BOOL, -7, 1},
                                      {I, KILN_BOOL, -1, 1},
                                      {I, KILN_BOOL, 0, 0},
                                      {I, KILN_BOOL, 256, 1},
                                      {KILN_BOOL, I, 1, 1},
                                      {KILN_BOOL, I, 0, 0}};

#define LANES 53 /* whole vectors and a rest of every width */

static void expect_casts(const struct known *const *rows, size_t count)
{
    double from[LANES], to[LANES];
    kiln_type source = rows[0]->from, target = rows[0]->to;
    size_t size = kiln_type_size(source), size_to = kiln_type_size(target);
    for (size_t i = 0; i < LANES; i++)
        kiln__type_store(source, rows[i % count]->value, (char *)from + i * size);
    kiln_batch *batch = check_begin();
    kiln_tensor x = check_given(batch, source, DIMS(LANES), from);
    kiln_tensor y = kiln_cast(batch, x, target);
    expect_ok(kiln_read(batch, y, to, LANES * size_to));
    run_batch(batch);
    for (size_t i = 0; i < LANES; i++) {
        double found = kiln__type_load(target, (char *)to + i * size_to);
        double answer = rows[i % count]->answer;
        cr_expect(found == answer || (isnan(found) && isnan(answer)),
                  "%s %.9g as %s is %.9g, not %.9g", kiln_type_name(source), rows[i % count]->value,
                  kiln_type_name(target), found, answer);
    }
    check_end(batch);
}

static bool is_pair(const struct known *known, const struct known *first)
{
    return known->from == first->from && known->to == first->to;
}

Test(ops_cast, known_answers)
{
    const struct known *end = knowns + sizeof knowns / sizeof *knowns;
    for (const struct known *first = knowns; first < end; first++) {
        const struct known *rows[LANES];
        size_t count = 0;
        for (const struct known *known = knowns; known < end; known++)
            if (is_pair(known, first))
                rows[count++] = known;
        if (rows[0] == first)
            expect_casts(rows, count);
    }
    check_close();
}

/* In the middle of a kernel, lanes of one type become lanes of another. */
Test(ops_cast, fused)
{
    static const enum check_values kinds[] = {CHECK_PLAIN, CHECK_WIDE, CHECK_SPECIAL};
    for (size_t i = 0; i < 3; i++) {
        kiln_batch *batch = check_begin();
        kiln_tensor f = check_input(batch, F, DIMS(7, 1009), kinds[i]);
        kiln_tensor n = check_input(batch, I, DIMS(1009), kinds[i]);
        kiln_tensor b = check_input(batch, B, DIMS(7, 1), kinds[i]);
        kiln_tensor small = kiln_cast(batch, kiln_scale(batch, f, 100), B);
        kiln_tensor mixed = kiln_add(batch, kiln_cast(batch, n, B), kiln_maximum(batch, small, b));
        check_read(batch, small);
        check_read(batch, mixed);
        check_read(batch, kiln_mul(batch, kiln_cast(batch, mixed, F), f));
        check_read(batch, kiln_sub(batch, kiln_cast(batch, mixed, I), kiln_cast(batch, b, I)));
        check_run(batch);
        check_end(batch);
    }
    check_close();
}

Test(ops_cast, to_no_type)
{
    kiln_batch *batch = check_begin();
    kiln_cast(batch, check_input(batch, F, SCALAR, CHECK_PLAIN), (kiln_type)99);
    expect_error(kiln_batch_status(batch), KILN_INVALID_ARGUMENT, "kiln_cast: 99 is no data type");
    check_end(batch);
    check_close();
}
