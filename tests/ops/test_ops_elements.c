/* SPDX-License-Identifier: Apache-2.0 */
/* Gathers and scatters of single elements and of parts, ways to scatter, triangles, sums without
 * the element itself: what numpy 2.4 and the reference implementation of ONNX 1.23 answer, the
 * reference on the device, gradients, errors. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "../support/gradient.h"
#include "../support/graph.h"
#include "../support/movement.h"

static kiln_tensor tens(kiln_batch *b)
{
    return kiln_mul(b, counted(b, DIMS(3, 4)), kiln_constant(b, KILN_I32, 10));
}

/* ---- known answers ---- */

Test(ops_elements, gathered_along_an_axis)
{
    kiln_batch *b = check_begin();
    kiln_tensor at = numbers(b, DIMS(2, 4), NUMBERS(2, 0, 1, 1, 0, 0, 2, 1));
    EXPECT_ELEMENTS(b, kiln_gather_elements(b, counted(b, DIMS(3, 4)), at, 0), 8, 1, 6, 7, 0, 1, 10,
                    7);
    b = check_begin();
    at = numbers(b, DIMS(3, 2), NUMBERS(3, 0, 1, 1, 2, 3));
    EXPECT_ELEMENTS(b, kiln_gather_elements(b, counted(b, DIMS(3, 4)), at, -1), 3, 0, 5, 5, 10, 11);
    b = check_begin(); /* beyond x there is 0 */
    at = numbers(b, DIMS(2, 2), NUMBERS(-1, 4, 3, 0));
    EXPECT_ELEMENTS(b, kiln_gather_elements(b, counted_from(b, 1, DIMS(3, 4)), at, 1), 0, 0, 8, 5);
    check_close();
}

Test(ops_elements, scattered_in_every_way)
{
    static const int32_t answers[][12] = {
        [KILN_SCATTER_SET] = {0, 10, 7, 30, 3, 5, 60, 70, -4, 90, 100, 110},
        [KILN_SCATTER_ADD] = {0, 10, 27, 30, 43, 105, 120, 70, 76, 90, 100, 110},
        [KILN_SCATTER_MUL] = {0, 10, 140, 30, 120, 12500, 3600, 70, -320, 90, 100, 110},
        [KILN_SCATTER_MIN] = {0, 10, 7, 30, 3, 5, 60, 70, -4, 90, 100, 110},
        [KILN_SCATTER_MAX] = {0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110}};
    static const int32_t twice[][3] = {[KILN_SCATTER_SET] = {50, 20, 7},
                                       [KILN_SCATTER_ADD] = {63, 20, 37},
                                       [KILN_SCATTER_MUL] = {1500, 20, 210},
                                       [KILN_SCATTER_MIN] = {3, 20, 7},
                                       [KILN_SCATTER_MAX] = {50, 20, 30}};
    for (int mode = KILN_SCATTER_SET; mode <= KILN_SCATTER_MAX; mode++) {
        kiln_batch *b = check_begin();
        kiln_tensor at = numbers(b, DIMS(2, 3), NUMBERS(1, 1, 0, 2, 1, 1));
        kiln_tensor v = numbers(b, DIMS(2, 3), NUMBERS(3, 50, 7, -4, 5, 60));
        expect_elements(b, kiln_scatter_elements(b, tens(b), at, v, 0, (kiln_scatter_mode)mode), 12,
                        answers[mode]);
        b = check_begin();
        at = numbers(b, DIMS(1, 5), NUMBERS(1, 1, 3, -1, 4));
        v = numbers(b, DIMS(1, 5), NUMBERS(3, 50, 7, 1000, -1000));
        kiln_tensor made = kiln_scatter_elements(b, tens(b), at, v, 1, (kiln_scatter_mode)mode);
        made = kiln_slice(b, made, (int64_t[]){0, 1}, (int64_t[]){1, 4}, NULL);
        expect_elements(b, made, 3, twice[mode]);
    }
    check_close();
}

Test(ops_elements, parts)
{
    kiln_batch *b = check_begin();
    kiln_tensor at = numbers(b, DIMS(3, 2), NUMBERS(1, 2, 0, 0, 1, 0));
    EXPECT_ELEMENTS(b, kiln_gather_nd(b, counted(b, DIMS(2, 3, 4)), at, 0), 20, 21, 22, 23, 0, 1, 2,
                    3, 12, 13, 14, 15);
    b = check_begin();
    at = numbers(b, DIMS(2, 2, 1), NUMBERS(1, 2, 0, 2));
    EXPECT_ELEMENTS(b, kiln_gather_nd(b, counted(b, DIMS(2, 3, 4)), at, 1), 4, 5, 6, 7, 8, 9, 10,
                    11, 12, 13, 14, 15, 20, 21, 22, 23);
    b = check_begin(); /* and a position beyond */
    at = numbers(b, DIMS(3, 3), NUMBERS(1, 2, 3, 0, 0, 1, 0, 3, 0));
    EXPECT_ELEMENTS(b, kiln_gather_nd(b, counted(b, DIMS(2, 3, 4)), at, 0), 23, 1, 0);
    static const int32_t answers[][6] = {[KILN_SCATTER_SET] = {3, 4, 100, 100, 5, 6},
                                         [KILN_SCATTER_ADD] = {103, 104, 100, 100, 106, 108},
                                         [KILN_SCATTER_MUL] = {300, 400, 100, 100, 500, 1200},
                                         [KILN_SCATTER_MIN] = {3, 4, 100, 100, 1, 2},
                                         [KILN_SCATTER_MAX] = {100, 100, 100, 100, 100, 100}};
    for (int mode = KILN_SCATTER_SET; mode <= KILN_SCATTER_MAX; mode++) {
        b = check_begin();
        at = numbers(b, DIMS(3, 1), NUMBERS(2, 0, 2));
        kiln_tensor x = kiln_fill(b, KILN_I32, DIMS(3, 2), 100);
        kiln_tensor v = numbers(b, DIMS(3, 2), NUMBERS(1, 2, 3, 4, 5, 6));
        expect_elements(b, kiln_scatter_nd(b, x, at, v, (kiln_scatter_mode)mode), 6, answers[mode]);
    }
    check_close();
}

Test(ops_elements, triangles)
{
    static const struct {
        int upper;
        int64_t diagonal;
        int32_t answer[15];
    } rows[] = {
        {1, 0, {1, 2, 3, 4, 5, 0, 7, 8, 9, 10, 0, 0, 13, 14, 15}},
        {0, 0, {1, 0, 0, 0, 0, 6, 7, 0, 0, 0, 11, 12, 13, 0, 0}},
        {1, 1, {0, 2, 3, 4, 5, 0, 0, 8, 9, 10, 0, 0, 0, 14, 15}},
        {0, 1, {1, 2, 0, 0, 0, 6, 7, 8, 0, 0, 11, 12, 13, 14, 0}},
        {1, -1, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 12, 13, 14, 15}},
        {0, -1, {0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 11, 12, 0, 0, 0}},
        {1, INT64_MAX, {0}},
        {0, INT64_MIN, {0}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kiln_batch *b = check_begin();
        kiln_tensor x = counted_from(b, 1, DIMS(3, 5));
        expect_elements(b, kiln_triangle(b, x, rows[i].upper, rows[i].diagonal), 15,
                        rows[i].answer);
    }
    check_close();
}

static kiln_tensor summed(kiln_batch *b, kiln_tensor x, int axis, int reverse)
{
    return kiln_cast(b, kiln_cumsum_exclusive(b, x, axis, reverse), KILN_I32);
}

Test(ops_elements, sums_without_the_element_itself)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = counted_from(b, 1, DIMS(2, 3));
    EXPECT_ELEMENTS(b, summed(b, x, 1, 0), 0, 1, 3, 0, 4, 9);
    b = check_begin();
    x = counted_from(b, 1, DIMS(2, 3));
    EXPECT_ELEMENTS(b, summed(b, x, -1, 1), 5, 3, 0, 11, 6, 0);
    b = check_begin();
    x = counted_from(b, 1, DIMS(2, 3));
    EXPECT_ELEMENTS(b, summed(b, x, 0, 0), 0, 0, 0, 1, 2, 3);
    check_close();
}

/* ---- against the reference ---- */

static kiln_tensor nan_among(kiln_batch *b, kiln_tensor x)
{
    return kiln_where(b, kiln_greater(b, x, kiln_constant(b, KILN_F32, 3.5)),
                      kiln_constant(b, KILN_F32, NAN), x);
}

Test(ops_elements, as_the_reference)
{
    static const kiln_type types[] = {KILN_F32, KILN_I32, KILN_U8, KILN_I64, KILN_I8};
    for (int mode = KILN_SCATTER_SET; mode <= KILN_SCATTER_MAX; mode++) {
        kiln_batch *b = check_begin();
        kiln_type type = types[mode];
        kiln_tensor x = check_input(b, KILN_F32, DIMS(31, 17), CHECK_PLAIN);
        kiln_tensor v = check_input(b, KILN_F32, DIMS(71, 17), CHECK_PLAIN);
        kiln_tensor at = random_indices(b, KILN_I32, DIMS(71), 31);
        kiln_scatter_mode way = (kiln_scatter_mode)mode;
        check_read(b, kiln_scatter(b, x, at, v, 0, way));
        check_read(b, kiln_scatter(b, x, at, nan_among(b, v), 0, way));
        kiln_tensor whole = check_input(b, type, DIMS(5, 31), CHECK_PLAIN);
        kiln_tensor given = check_input(b, type, DIMS(3, 50), CHECK_PLAIN);
        kiln_tensor near = random_indices(b, KILN_I32, DIMS(3, 50), 31);
        check_read(b, kiln_scatter_elements(b, whole, near, given, 1, way));
        check_read(b, kiln_gather_elements(b, whole, near, 1));
        check_run(b);
        check_end(b);
    }
    check_close();
}

Test(ops_elements, of_nothing_and_of_one)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_input(b, KILN_F32, DIMS(3, 2), CHECK_PLAIN);
    kiln_tensor none = kiln_fill(b, KILN_I32, DIMS(0, 2), 0);
    check_read(b, kiln_gather_elements(b, x, none, 0));
    check_read(b, kiln_scatter_elements(b, x, none, kiln_fill(b, KILN_F32, DIMS(0, 2), 1), 0,
                                        KILN_SCATTER_SET));
    check_read(b, kiln_gather_nd(b, x, none, 0));
    check_read(b,
               kiln_scatter_nd(b, x, none, kiln_fill(b, KILN_F32, DIMS(0), 1), KILN_SCATTER_MAX));
    kiln_tensor empty = kiln_fill(b, KILN_F32, DIMS(0, 2), 1);
    check_read(b, kiln_gather_elements(b, empty, none, 0));
    check_read(b, kiln_triangle(b, empty, 1, 0));
    check_read(b, kiln_cumsum_exclusive(b, empty, 0, 0));
    kiln_tensor one = check_input(b, KILN_F32, DIMS(1, 1), CHECK_PLAIN);
    check_read(b, kiln_gather_elements(b, one, kiln_fill(b, KILN_I32, DIMS(1, 1), 0), 0));
    check_read(b, kiln_cumsum_exclusive(b, one, 0, 1));
    check_read(b, kiln_triangle(b, one, 1, 1));
    check_run(b);
    check_end(b);
    check_close();
}

/* ---- gradients ---- */

Test(ops_elements, gradients)
{
    for (int mode = KILN_SCATTER_SET; mode <= KILN_SCATTER_MAX; mode++) {
        kiln_batch *b = imagined_batch();
        kiln_tensor inputs[] = {check_input(b, KILN_F32, DIMS(4, 5), CHECK_PLAIN),
                                check_input(b, KILN_F32, DIMS(4, 2, 3), CHECK_PLAIN)};
        kiln_tensor at = numbers(b, DIMS(2, 3), NUMBERS(0, 4, 0, -1, 5, 2));
        kiln_scatter_mode way = (kiln_scatter_mode)mode;
        kiln_tensor y = kiln_scatter(b, inputs[0], at, inputs[1], 1, way);
        check_gradient(b, kiln_square(b, y), 2, inputs, 1e-6, NULL);
        kiln_tensor near = numbers(b, DIMS(2, 3), NUMBERS(0, 1, 1, 0, 3, -1));
        kiln_tensor part = kiln_reshape(
            b, kiln_slice(b, inputs[1], (int64_t[]){1, 0, 0}, (int64_t[]){2, 2, 3}, NULL),
            DIMS(2, 3));
        y = kiln_scatter_elements(b, inputs[0], near, part, 0, way);
        check_gradient(b, kiln_square(b, y), 2, inputs, 1e-6, NULL);
        check_end(b);
    }
    kiln_batch *b = imagined_batch();
    kiln_tensor x = check_input(b, KILN_F32, DIMS(4, 5), CHECK_PLAIN);
    kiln_tensor near = numbers(b, DIMS(2, 3), NUMBERS(0, 1, 1, 0, 3, 2));
    check_gradient(b, kiln_square(b, kiln_gather_elements(b, x, near, 0)), 1, &x, 1e-6, NULL);
    check_gradient(b, kiln_square(b, kiln_triangle(b, x, 0, 1)), 1, &x, 1e-6, NULL);
    check_gradient(b, kiln_square(b, kiln_cumsum_exclusive(b, x, 1, 1)), 1, &x, 1e-6, NULL);
    check_end(b);
}

/* The elements of a gradient by the reference, against PyTorch 2.15's scatter_reduce(), whose
 * minima and maxima share, too. */
static void expect_shares(kiln_scatter_mode mode, const float *base, const float *given,
                          const double *by_base, const double *by_values)
{
    kiln_batch *b = imagined_batch();
    kiln_tensor x[] = {check_given(b, KILN_F32, DIMS(2), base),
                       check_given(b, KILN_F32, DIMS(3), given)};
    kiln_tensor at = numbers(b, DIMS(3), NUMBERS(0, 0, 1)), g[2];
    kiln_tensor y = kiln_scatter(b, x[0], at, x[1], 0, mode);
    expect_ok(kiln_grad(b, kiln_sum(b, y, 0, NULL, 0), x, 2, g));
    double *found[] = {check_values(b, g[0]), check_values(b, g[1])};
    for (size_t i = 0; i < 2; i++)
        cr_expect_float_eq(found[0][i], by_base[i], 1e-9);
    for (size_t i = 0; i < 3; i++)
        cr_expect_float_eq(found[1][i], by_values[i], 1e-9);
    free(found[0]);
    free(found[1]);
    check_end(b);
}

Test(ops_elements, gradients_where_several_are_equal_or_zero)
{
    expect_shares(KILN_SCATTER_MAX, (float[]){2, 5}, (float[]){2, 1, 7}, (double[]){0.5, 0},
                  (double[]){0.5, 0, 1});
    expect_shares(KILN_SCATTER_MUL, (float[]){0, 5}, (float[]){2, 3, 0}, (double[]){6, 0},
                  (double[]){0, 0, 5});
    expect_shares(KILN_SCATTER_SET, (float[]){0, 5}, (float[]){2, 3, 0}, (double[]){0, 0},
                  (double[]){0, 1, 1});
}

/* ---- errors ---- */

Test(ops_elements, errors)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = kiln_fill(b, KILN_F32, DIMS(3, 4), 0);
    kiln_gather_elements(b, x, kiln_fill(b, KILN_I32, DIMS(4, 5), 0), 0);
    check_refusal(b, KILN_SHAPE_MISMATCH,
                  "kiln_gather_elements: indices of shape [4,5] name no elements of shape [3,4] "
                  "along axis 0");
    b = check_begin();
    x = kiln_fill(b, KILN_F32, DIMS(3, 4), 0);
    kiln_scatter_elements(b, x, kiln_fill(b, KILN_I32, DIMS(2, 2), 0), x, 0, KILN_SCATTER_SET);
    check_refusal(b, KILN_SHAPE_MISMATCH,
                  "kiln_scatter_elements: values of shape [3,4] are not what indices of shape "
                  "[2,2] pick from shape [3,4], [2,2]");
    b = check_begin();
    x = kiln_fill(b, KILN_F32, DIMS(3, 4), 0);
    kiln_gather_nd(b, x, kiln_fill(b, KILN_I32, DIMS(2, 3), 0), 0);
    check_refusal(b, KILN_SHAPE_MISMATCH,
                  "kiln_gather_nd: the last dimension of indices of shape [2,3] names no "
                  "dimensions of shape [3,4] behind the first 0, which must be the same of both");
    b = check_begin();
    x = kiln_fill(b, KILN_F32, DIMS(3, 4), 0);
    kiln_scatter_nd(b, x, kiln_fill(b, KILN_I32, DIMS(2, 1), 0),
                    kiln_fill(b, KILN_I32, DIMS(2, 4), 0), KILN_SCATTER_SET);
    check_refusal(b, KILN_TYPE_MISMATCH,
                  "kiln_scatter_nd: x is f32 and values are i32; cast one of them");
    b = check_begin();
    x = kiln_fill(b, KILN_F32, DIMS(3), 0);
    kiln_scatter(b, x, kiln_fill(b, KILN_I32, DIMS(3), 0), x, 0, (kiln_scatter_mode)5);
    check_refusal(b, KILN_INVALID_ARGUMENT, "kiln_scatter: 5 is no way to scatter");
    b = check_begin();
    kiln_triangle(b, kiln_fill(b, KILN_F32, DIMS(3), 0), 1, 0);
    check_refusal(b, KILN_SHAPE_MISMATCH, "kiln_triangle: x of shape [3] has no rows and columns");
    b = check_begin();
    kiln_cumsum_exclusive(b, kiln_fill(b, KILN_F32, DIMS(3), 0), 1, 0);
    cr_expect_eq(kiln_batch_status(b), KILN_INVALID_ARGUMENT);
    check_end(b);
    check_close();
}
