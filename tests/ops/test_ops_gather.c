/* SPDX-License-Identifier: Apache-2.0 */
/* Gather, iota, arange and one-hot: what numpy's take() and arange() are defined to give, the
 * reference for many shapes, positions beyond the data, and proof that nothing is stored on the
 * way. */
#include <criterion/criterion.h>
#include <math.h>

#include "../support/movement.h"
#include "record/batch.h"
#include "session/context.h"

static kiln_tensor ranged(kiln_batch *batch, size_t rank, const size_t *dims)
{
    size_t count = 1;
    for (size_t d = 0; d < rank; d++)
        count *= dims[d];
    return kiln_reshape(batch, kiln_arange(batch, KILN_I32, 0, (double)count, 1), rank, dims);
}

/* ---- known answers ---- */

Test(ops_gather, picked)
{
    kiln_batch *b = check_begin();
    kiln_tensor i = numbers(b, DIMS(3), NUMBERS(2, 0, 2));
    EXPECT_ELEMENTS(b, kiln_gather(b, ranged(b, DIMS(3, 2)), i, 0), 4, 5, 0, 1, 4, 5);

    b = check_begin();
    i = numbers(b, DIMS(2, 2), NUMBERS(1, 0, 2, 1));
    EXPECT_ELEMENTS(b, kiln_gather(b, ranged(b, DIMS(2, 3)), i, -1), 1, 0, 2, 1, 4, 3, 5, 4);

    b = check_begin();
    i = numbers(b, SCALAR, NUMBERS(1));
    EXPECT_ELEMENTS(b, kiln_gather(b, ranged(b, DIMS(2, 3, 2)), i, 1), 2, 3, 8, 9);

    b = check_begin(); /* a gather of a gather, of data that is turned */
    i = numbers(b, DIMS(2), NUMBERS(2, 1));
    kiln_tensor x = kiln_transpose(b, ranged(b, DIMS(3, 4)), NULL);
    EXPECT_ELEMENTS(b, kiln_gather(b, kiln_gather(b, x, i, 0), i, 1), 10, 6, 9, 5);
    check_close();
}

Test(ops_gather, numbered)
{
    kiln_batch *b = check_begin();
    EXPECT_ELEMENTS(b, kiln_iota(b, DIMS(2, 3), 1), 0, 1, 2, 0, 1, 2);
    b = check_begin();
    EXPECT_ELEMENTS(b, kiln_iota(b, DIMS(2, 3), -2), 0, 0, 0, 1, 1, 1);
    b = check_begin();
    EXPECT_ELEMENTS(b, kiln_iota(b, DIMS(4), 0), 0, 1, 2, 3);
    b = check_begin();
    EXPECT_ELEMENTS(b, kiln_arange(b, KILN_I32, 5, -6, -4), 5, 1, -3);
    b = check_begin();
    EXPECT_ELEMENTS(b, kiln_arange(b, KILN_I32, -2147483648.0, 2147483647, 2147483647), INT32_MIN,
                    -1, 2147483646);
    b = check_begin();
    kiln_tensor i = numbers(b, DIMS(4), NUMBERS(1, -1, 3, 0));
    EXPECT_ELEMENTS(b, kiln_one_hot(b, i, 3, KILN_I32), 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0);
    check_close();
}

Test(ops_gather, ranges_of_floats)
{
    static const float wanted[] = {1, 0.75f, 0.5f, 0.25f};
    kiln_batch *b = check_begin();
    float *found = check_read(b, kiln_arange(b, KILN_F32, 1, 0.1, -0.25));
    uint8_t *bytes = check_read(b, kiln_arange(b, KILN_U8, 250, 256, 2));
    check_read(b, kiln_arange(b, KILN_F32, 1, 1, 1));
    check_read(b, kiln_arange(b, KILN_F32, 1, -INFINITY, 1));
    check_read(b, kiln_arange(b, KILN_F32, -3, 70000, 0.5));
    check_run(b);
    cr_expect_arr_eq(found, wanted, sizeof wanted);
    cr_expect_arr_eq(bytes, ((uint8_t[]){250, 252, 254}), 3);
    check_end(b);
    check_close();
}

/* Beyond the data: NaN and 0; the largest and smallest indices too. */
Test(ops_gather, beyond_the_data)
{
    const int32_t at[] = {-1, 0, 3, 2, INT32_MIN, INT32_MAX, 1};
    const float given[] = {5, 6, 7};
    kiln_batch *b = check_begin();
    kiln_tensor i = numbers(b, DIMS(7), at), x = check_given(b, KILN_F32, DIMS(3), given);
    kiln_tensor rows = kiln_broadcast(b, kiln_reshape(b, x, DIMS(3, 1)), DIMS(3, 40));
    float *found = check_read(b, kiln_gather(b, x, i, 0));
    int32_t *whole = check_read(b, kiln_gather(b, kiln_cast(b, x, KILN_I32), i, 0));
    check_read(b, kiln_gather(b, kiln_exp(b, rows), i, 0));
    check_read(b, kiln_gather(b, kiln_transpose(b, rows, NULL), i, 1));
    check_read(b, kiln_gather(b, kiln_fill(b, KILN_F32, DIMS(0, 3), 1), i, 0));
    check_run(b);
    for (size_t k = 0; k < 7; k++) {
        bool inside = at[k] >= 0 && at[k] < 3;
        cr_expect_eq(whole[k], inside ? (int32_t)given[at[k]] : 0);
        cr_expect(inside ? found[k] == given[at[k]] : isnan(found[k]));
    }
    check_end(b);
    check_close();
}

Test(ops_gather, moves_nans_as_they_are)
{
    const uint32_t bits[] = {0x7fc00001, 0xffc12345, 0x7f800000, 0x80000000};
    kiln_batch *b = check_begin();
    kiln_tensor x = check_given(b, KILN_F32, DIMS(4), bits);
    uint32_t *found = check_read(b, kiln_gather(b, x, numbers(b, DIMS(4), NUMBERS(3, 2, 1, 0)), 0));
    run_batch(b);
    for (size_t i = 0; i < 4; i++)
        cr_expect_eq(found[i], bits[3 - i]);
    check_end(b);
    check_close();
}

/* Of a table that is computed, as weights of 8 bits are, the rows that are gathered are: beyond it
 * NaN, and 0 where nothing hands NaN on. */
Test(ops_gather, of_computed_tables)
{
    const int32_t at[] = {7, -1, 0, 31, 32, 31};
    for (int axis = 0; axis < 2; axis++) {
        kiln_batch *b = check_begin();
        kiln_tensor i = numbers(b, DIMS(3, 2), at);
        kiln_tensor q = check_input(b, KILN_U8, DIMS(32, 33), CHECK_WIDE);
        kiln_tensor scale = check_input(b, KILN_F32, DIMS(32, 1), CHECK_PLAIN);
        kiln_tensor zero = check_input(b, KILN_F32, DIMS(33), CHECK_PLAIN);
        kiln_tensor y = kiln_sub(b, kiln_cast(b, q, KILN_F32), zero);
        check_read(b, kiln_gather(b, kiln_mul(b, y, scale), i, axis));
        check_read(b, kiln_gather(b, kiln_mul(b, scale, kiln_scale(b, y, 2)), i, axis));
        check_read(b, kiln_gather(b, kiln_scale(b, kiln_cast(b, q, KILN_F32), 2), i, axis));
        check_read(b, kiln_gather(b, kiln_mul(b, kiln_tanh(b, y), kiln_relu(b, y)), i, axis));
        check_run(b);
        check_end(b);
    }
    check_close();
}

/* An operand that is the same for all along the axis hands no NaN on: nothing is gathered from it.
 */
Test(ops_gather, of_integers_by_what_is_the_same_along_the_axis)
{
    const int32_t at[] = {7, -80, 0};
    const size_t same[2][2] = {{1, 33}, {32, 1}};
    for (int axis = 0; axis < 2; axis++) {
        kiln_batch *b = check_begin();
        kiln_tensor i = numbers(b, DIMS(3), at);
        kiln_tensor q = check_input(b, KILN_I32, DIMS(32, 33), CHECK_PLAIN);
        kiln_tensor x = check_input(b, KILN_F32, 2, same[axis], CHECK_PLAIN);
        kiln_tensor y = kiln_cast(b, kiln_add(b, q, q), KILN_F32);
        check_read(b, kiln_gather(b, kiln_mul(b, y, x), i, axis));
        check_read(b, kiln_gather(b, kiln_add(b, kiln_cast(b, x, KILN_F32), y), i, axis));
        check_run(b);
        check_end(b);
    }
    check_close();
}

/* A gradient of what does not matter is a constant that has a shape, here the only operand with
 * those rows. */
Test(ops_gather, of_tables_of_a_constant_and_a_row)
{
    const int32_t at[] = {7, 31};
    kiln_batch *b = check_begin();
    kiln_tensor i = numbers(b, DIMS(2), at), zeros;
    kiln_tensor x = check_input(b, KILN_F32, DIMS(5, 33), CHECK_PLAIN);
    kiln_tensor row = check_input(b, KILN_F32, DIMS(1, 33), CHECK_PLAIN);
    kiln_grad(b, kiln_sum(b, row, 2, (int[]){0, 1}, 0), &x, 1, &zeros);
    check_read(b, kiln_gather(b, kiln_sub(b, zeros, row), i, 1));
    check_run(b);
    check_end(b);
    check_close();
}

/* ---- against the reference ---- */

/* Of f32 along each axis, of other types along one. */
Test(ops_gather, slow_every_axis_and_type)
{
    static const kiln_type types[] = {KILN_F32, KILN_I32, KILN_U8, KILN_I64, KILN_I8};
    for (size_t i = 0; i < 15; i++) {
        int axis = (int)(i % 3);
        if (types[i / 3] != KILN_F32 && axis != (int)(i / 3 % 3))
            continue;
        kiln_batch *b = check_begin();
        size_t dims[] = {5, 17, 33};
        kiln_tensor x = check_input(b, types[i / 3], 3, dims, CHECK_WIDE);
        kiln_tensor at = random_indices(b,
                                        i % 2   ? KILN_U8
                                        : i % 4 ? KILN_I64
                                                : KILN_I32,
                                        DIMS(3, 7), (uint32_t)dims[axis]);
        kiln_tensor y = kiln_gather(b, x, at, axis);
        check_read(b, y);
        check_read(b, kiln_max(b, kiln_gather(b, kiln_transpose(b, x, NULL), at, axis == 0), 1,
                               (int[]){-1}, 0));
        check_run(b);
        check_end(b);
    }
    check_close();
}

/* Indices that are computed, repeated, turned; users that compute, reduce, broadcast. */
Test(ops_gather, fused)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_input(b, KILN_F32, DIMS(50, 64), CHECK_PLAIN);
    kiln_tensor bias = check_input(b, KILN_F32, DIMS(64), CHECK_PLAIN);
    kiln_tensor at = random_indices(b, KILN_I32, DIMS(12, 9), 50);
    kiln_tensor turned = kiln_transpose(b, at, NULL);
    kiln_tensor half = kiln_div(b, at, kiln_constant(b, KILN_I32, 2));
    check_read(b, kiln_tanh(b, kiln_add(b, kiln_gather(b, x, at, 0), bias)));
    check_read(b, kiln_sum(b, kiln_gather(b, x, turned, 0), 1, (int[]){0}, 0));
    check_read(b, kiln_sum(b, kiln_gather(b, x, half, 0), 1, (int[]){2}, 0));
    check_read(b, kiln_sum(b, kiln_gather(b, x, turned, 1), 2, (int[]){0, 1}, 0));
    check_read(b, kiln_neg(b, kiln_gather(b, x, kiln_iota(b, DIMS(20, 3), 0), 0)));
    check_read(b, kiln_mul(b, kiln_gather(b, x, at, 1),
                           kiln_cast(b, kiln_iota(b, DIMS(50, 12, 9), 2), KILN_F32)));
    check_run(b);
    check_end(b);
    check_close();
}

/* One value used at a gather's positions and at its own. */
Test(ops_gather, indices_that_are_used_beside)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_input(b, KILN_F32, DIMS(9, 9), CHECK_PLAIN);
    kiln_tensor at = random_indices(b, KILN_I32, DIMS(9), 9);
    kiln_tensor next = kiln_add(b, at, kiln_constant(b, KILN_I32, 1));
    kiln_tensor rows = kiln_gather(b, x, next, 0); /* [9 of next, 9] */
    kiln_tensor beside = kiln_cast(b, next, KILN_F32);
    check_read(b, kiln_add(b, rows, beside)); /* next along the other dimension */
    kiln_tensor row = kiln_gather(b, kiln_sum(b, x, 1, (int[]){1}, 0), next, 0);
    check_read(b, kiln_add(b, row, beside));
    check_read(b, next);
    check_run(b);
    check_end(b);
    check_close();
}

/* What a loss needs: the logit of the label, minus the largest one, in one kernel each. */
Test(ops_gather, labels)
{
    kiln_batch *b = check_begin();
    size_t n = 33, classes = 10;
    kiln_tensor x = check_input(b, KILN_F32, DIMS(n, classes), CHECK_PLAIN);
    kiln_tensor label = random_indices(b, KILN_U8, DIMS(n), 9);
    kiln_tensor chosen = kiln_mul(b, kiln_one_hot(b, label, classes, KILN_F32), x);
    check_read(
        b, kiln_sub(b, kiln_sum(b, chosen, 1, (int[]){1}, 0), kiln_max(b, x, 1, (int[]){1}, 0)));
    kiln_tensor flat = kiln_add(
        b, kiln_mul(b, kiln_iota(b, DIMS(n), 0), kiln_constant(b, KILN_I32, (double)classes)),
        kiln_cast(b, label, KILN_I32));
    check_read(b, kiln_gather(b, kiln_reshape(b, x, DIMS(n * classes)), flat, 0));
    check_run(b);
    check_end(b);
    check_close();
}

Test(ops_gather, masks_from_positions)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_input(b, KILN_F32, DIMS(3, 37, 41), CHECK_PLAIN);
    kiln_tensor row = kiln_iota(b, DIMS(37, 41), 0), column = kiln_iota(b, DIMS(37, 41), 1);
    kiln_tensor causal =
        kiln_where(b, kiln_greater_equal(b, row, column), x, kiln_constant(b, KILN_F32, -1));
    check_read(b, causal);
    check_read(b, kiln_sum(b, causal, 1, (int[]){2}, 0));
    check_read(b, kiln_sum(b, causal, 1, (int[]){1}, 0));
    check_read(b, kiln_transpose(b, kiln_cast(b, kiln_sub(b, row, column), KILN_F32), NULL));
    check_run(b);
    cr_expect_leq(cost_of(b).launches, 4u);
    check_end(b);
    check_close();
}

/* In the kernel of a matrix product. */
Test(ops_gather, after_products)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_input(b, KILN_F32, DIMS(37, 20), CHECK_PLAIN);
    kiln_tensor y = check_input(b, KILN_F32, DIMS(20, 50), CHECK_PLAIN);
    kiln_tensor table = check_input(b, KILN_F32, DIMS(9, 50), CHECK_PLAIN);
    kiln_tensor rows = random_indices(b, KILN_I32, DIMS(37), 9);
    kiln_tensor columns = random_indices(b, KILN_U8, DIMS(50), 50);
    kiln_tensor mask =
        kiln_less_equal(b, kiln_iota(b, DIMS(37, 50), 1), kiln_iota(b, DIMS(37, 1), 0));
    check_read(b, kiln_add(b, kiln_matmul(b, x, y), kiln_gather(b, table, rows, 0)));
    check_read(
        b, kiln_where(b, mask, kiln_matmul(b, kiln_neg(b, x), y), kiln_constant(b, KILN_F32, -9)));
    check_read(b, kiln_add(b, kiln_matmul(b, x, kiln_neg(b, y)),
                           kiln_gather(b, kiln_gather(b, table, rows, 0), columns, 1)));
    check_run(b);
    check_end(b);
    check_close();
}

Test(ops_gather, slow_dimensions)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_input(b, KILN_U8, DIMS(70001), CHECK_PLAIN);
    kiln_tensor at = random_indices(b, KILN_I32, DIMS(66000), 70001);
    check_read(b, kiln_gather(b, x, at, 0));
    check_read(b, kiln_gather(b, kiln_arange(b, KILN_I32, 7, 70008, 1), at, 0));
    check_read(b, kiln_sum(b, kiln_iota(b, DIMS(70001, 3), 0), 0, NULL, 0));
    check_run(b);
    check_end(b);
    check_close();
}

/* So many that an item of a device without chunks has two vectors, and no whole number of them. */
Test(ops_gather, more_than_keep_all_units_busy)
{
    enum { COLUMNS = 773 };
    kiln_batch *b = check_begin();
    size_t units = b->context->runtime.device.info.compute_units;
    size_t rows = units * 2048 * 8 / COLUMNS + 3 + units % 2;
    kiln_tensor x = check_input(b, KILN_F32, DIMS(30, COLUMNS), CHECK_PLAIN);
    kiln_tensor at = random_indices(b, KILN_I32, DIMS(rows), 31);
    check_read(b, kiln_gather(b, x, at, 0));
    check_read(b, kiln_neg(b, kiln_gather(b, x, at, 0)));
    check_run(b);
    check_end(b);
    check_close();
}

Test(ops_gather, places_of_gathers)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_input(b, KILN_F32, DIMS(20, 8), CHECK_PLAIN);
    kiln_tensor at = random_indices(b, KILN_I32, DIMS(20), 20);
    kiln_tensor base = kiln_matmul(b, x, kiln_matmul(b, kiln_transpose(b, x, NULL), x));
    check_read(b, kiln_insert_slice(b, base, kiln_gather(b, base, at, 0), (int64_t[]){0, 0}, NULL));
    check_read(b, kiln_concat(b, 2, (kiln_tensor[]){kiln_gather(b, x, at, 0), x}, 1));
    check_run(b);
    check_end(b);
    check_close();
}

/* ---- what it costs ---- */

/* Embedding, scale, bias and sum: one kernel, nothing stored between. */
Test(ops_gather, an_embedding_is_one_launch)
{
    kiln_batch *b = check_begin();
    kiln_tensor table = check_input(b, KILN_F32, DIMS(100, 64), CHECK_PLAIN);
    kiln_tensor at = random_indices(b, KILN_I32, DIMS(4, 16), 99);
    kiln_tensor place = check_input(b, KILN_F32, DIMS(16, 64), CHECK_PLAIN);
    check_read(b, kiln_add(b, kiln_scale(b, kiln_gather(b, table, at, 0), 8), place));
    cr_expect_eq(cost_of(b).launches, 1u);
    check_run(b);
    check_end(b);
    check_close();
}

Test(ops_gather, a_range_takes_no_memory)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_input(b, KILN_F32, DIMS(64, 100), CHECK_PLAIN);
    kiln_tensor weights = kiln_arange(b, KILN_F32, 0, 1, 0.01);
    check_read(b, kiln_sum(b, kiln_mul(b, x, weights), 1, (int[]){1}, 0));
    cr_expect_eq(cost_of(b).launches, 1u);
    check_run(b);
    check_end(b);
    check_close();
}

/* ---- errors ---- */

Test(ops_gather, errors)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_input(b, KILN_F32, DIMS(3, 4), CHECK_PLAIN);
    kiln_gather(b, x, x, 0);
    check_refusal(b, KILN_TYPE_MISMATCH,
                  "kiln_gather: indices are f32, and only integers are taken");
    b = check_begin();
    x = ranged(b, DIMS(3, 4));
    kiln_gather(b, x, x, 2);
    check_refusal(b, KILN_INVALID_ARGUMENT, "kiln_gather: there is no axis 2 in 2 dimensions");
    b = check_begin();
    x = ranged(b, DIMS(1, 1, 1, 1, 1));
    kiln_gather(b, x, x, 0);
    expect_error(
        kiln_batch_status(b), KILN_INVALID_ARGUMENT,
        "kiln_gather: indices of shape [1,1,1,1,1] in shape [1,1,1,1,1] make 9 dimensions, "
        "and 8 are the most");
    check_end(b);
    static const double ranges[][3] = {{0, 1, 0}, {0, NAN, 1}, {0, 1, NAN}, {INFINITY, 1, -1}};
    for (size_t i = 0; i < 4; i++) {
        b = check_begin();
        kiln_arange(b, KILN_F32, ranges[i][0], ranges[i][1], ranges[i][2]);
        cr_expect_eq(kiln_batch_status(b), KILN_INVALID_ARGUMENT, "range %zu", i);
        check_end(b);
    }
    b = check_begin();
    kiln_arange(b, KILN_U8, 0, 300, 1);
    check_refusal(b, KILN_INVALID_ARGUMENT, "kiln_arange: u8 cannot hold steps of 1 from 0 to 299");
    b = check_begin();
    kiln_arange(b, KILN_F32, 0, INFINITY, 1);
    cr_expect_eq(kiln_batch_status(b), KILN_TOO_LARGE);
    check_end(b);
    b = check_begin();
    kiln_iota(b, DIMS((size_t)1 << 32, 0), 0);
    check_refusal(b, KILN_TOO_LARGE, "kiln_iota: 4294967296 elements cannot be numbered by an i32");
    b = check_begin();
    kiln_one_hot(b, ranged(b, DIMS(2)), 3, (kiln_type)99);
    check_refusal(b, KILN_INVALID_ARGUMENT, "kiln_one_hot: 99 is no data type");
    check_close();
}
