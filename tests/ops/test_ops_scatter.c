/* SPDX-License-Identifier: Apache-2.0 */
/* Scatters: what numpy's add.at() is defined to give, the reference for many shapes, equal
 * bits in every run, and gradients of them and of gathers. */
#include <criterion/criterion.h>

#include "../support/gradient.h"
#include "../support/graph.h"
#include "../support/movement.h"
#include "session/context.h"

/* ---- known answers ---- */

Test(ops_scatter, added)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = numbers(b, DIMS(4), NUMBERS(10, 20, 30, 40));
    kiln_tensor at = numbers(b, DIMS(5), NUMBERS(3, 0, 3, -1, 4));
    kiln_tensor v = numbers(b, DIMS(5), NUMBERS(1, 2, 3, 4, 5));
    EXPECT_ELEMENTS(b, kiln_scatter_add(b, x, at, v, 0), 12, 20, 30, 44);

    b = check_begin();
    x = kiln_fill(b, KILN_I32, DIMS(2, 3), 100);
    at = numbers(b, DIMS(2, 2), NUMBERS(1, 1, 0, 1));
    v = kiln_reshape(b, kiln_arange(b, KILN_I32, 0, 8, 1), DIMS(2, 2, 2));
    EXPECT_ELEMENTS(b, kiln_scatter_add(b, x, at, v, 1), 102, 104, 100, 106, 116, 100);

    b = check_begin();
    x = kiln_fill(b, KILN_I32, DIMS(3, 2), 0);
    at = numbers(b, DIMS(3), NUMBERS(2, 0, 2));
    v = kiln_reshape(b, kiln_arange(b, KILN_I32, 1, 7, 1), DIMS(3, 2));
    EXPECT_ELEMENTS(b, kiln_scatter_add(b, x, at, v, -2), 3, 4, 0, 0, 6, 8);

    b = check_begin();
    x = kiln_fill(b, KILN_I32, DIMS(3), 5);
    v = kiln_constant(b, KILN_I32, 7);
    EXPECT_ELEMENTS(b, kiln_scatter_add(b, x, kiln_constant(b, KILN_I32, 1), v, 0), 5, 12, 5);
    check_close();
}

/* What happens to nothing. */
Test(ops_scatter, empty)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_input(b, KILN_F32, DIMS(3, 2), CHECK_PLAIN);
    kiln_tensor none = kiln_fill(b, KILN_I32, DIMS(0), 0);
    check_read(b, kiln_scatter_add(b, x, none, kiln_fill(b, KILN_F32, DIMS(0, 2), 0), 0));
    kiln_tensor at = numbers(b, DIMS(2), NUMBERS(0, 1));
    kiln_tensor y = kiln_fill(b, KILN_F32, DIMS(0, 2), 1);
    check_read(b, kiln_scatter_add(b, y, at, kiln_fill(b, KILN_F32, DIMS(2, 2), 0), 0));
    check_run(b);
    check_end(b);
    check_close();
}

/* ---- against the reference ---- */

Test(ops_scatter, slow_every_axis_and_type)
{
    static const kiln_type types[] = {KILN_F32, KILN_I32, KILN_U8, KILN_I64, KILN_I8};
    for (size_t i = 0; i < 15; i++) {
        kiln_batch *b = check_begin();
        size_t axis = i % 3, dims[] = {5, 17, 300}, picked[] = {5, 17, 300};
        picked[axis] = 71;
        kiln_tensor x = check_input(b, types[i / 3], 3, dims, CHECK_PLAIN);
        kiln_tensor v = check_input(b, types[i / 3], 3, picked, CHECK_PLAIN);
        kiln_tensor at = random_indices(b,
                                        i % 2   ? KILN_U8
                                        : i % 4 ? KILN_I64
                                                : KILN_I32,
                                        DIMS(71), (uint32_t)dims[axis]);
        check_read(b, kiln_scatter_add(b, x, at, v, (int)axis));
        check_read(b,
                   kiln_neg(b, kiln_scatter_add(b, kiln_abs(b, x), at, kiln_neg(b, v), (int)axis)));
        check_run(b);
        check_end(b);
    }
    check_close();
}

/* Values, indices and bases that are computed, turned, repeated, the same. */
Test(ops_scatter, operands_of_all_kinds)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_input(b, KILN_F32, DIMS(40, 40), CHECK_PLAIN);
    kiln_tensor at = random_indices(b, KILN_I32, DIMS(40), 40);
    kiln_tensor product = kiln_matmul(b, x, x);
    check_read(b, kiln_scatter_add(b, product, at, product, 0));
    check_read(b,
               kiln_scatter_add(b, kiln_transpose(b, x, NULL), at, kiln_transpose(b, x, NULL), 1));
    check_read(b, kiln_scatter_add(b, kiln_fill(b, KILN_F32, DIMS(40, 40), 0),
                                   kiln_iota(b, DIMS(40), 0), x, 0));
    check_read(b, kiln_scatter_add(b, x, kiln_iota(b, DIMS(5, 8), 1),
                                   kiln_fill(b, KILN_F32, DIMS(5, 8, 40), 2), 0));
    kiln_tensor ones = kiln_fill(b, KILN_I32, DIMS(40), 1);
    check_read(b, kiln_scatter_add(b, kiln_fill(b, KILN_I32, DIMS(40), 0), at, ones, 0));
    check_run(b);
    check_end(b);
    check_close();
}

/* An embedding's gradient: many indices, wide rows; and a histogram. */
Test(ops_scatter, embeddings_and_histograms)
{
    kiln_batch *b = check_begin();
    kiln_tensor v = check_input(b, KILN_F32, DIMS(3000, 256), CHECK_PLAIN);
    kiln_tensor at = random_indices(b, KILN_I32, DIMS(3000), 500);
    check_read(b, kiln_scatter_add(b, kiln_fill(b, KILN_F32, DIMS(500, 256), 0), at, v, 0));
    kiln_tensor many = random_indices(b, KILN_I32, DIMS(70001), 37);
    kiln_tensor ones = kiln_fill(b, KILN_I32, DIMS(70001), 1);
    check_read(b, kiln_scatter_add(b, kiln_fill(b, KILN_I32, DIMS(37), 0), many, ones, 0));
    check_run(b);
    check_end(b);
    check_close();
}

/* Counts and sums of integers in few rows, which parts of the indices have to themselves; below and
 * beyond the rows are some, a base is there, sums wrap around. */
Test(ops_scatter, few_rows_of_integers)
{
    static const kiln_type types[] = {KILN_I32, KILN_I64, KILN_U8, KILN_I8};
    static const kiln_type indices[] = {KILN_I32, KILN_I64, KILN_U8, KILN_I32};
    static const size_t counts[] = {8, 104, 999, 5000}, rows[] = {1, 13, 67, 129};
    for (size_t i = 0; i < 4; i++) {
        kiln_batch *b = check_begin();
        kiln_tensor base = check_input(b, types[i], DIMS(rows[i]), CHECK_PLAIN);
        kiln_tensor values = check_input(b, types[i], DIMS(counts[i]), CHECK_PLAIN);
        kiln_tensor at = random_indices(b, KILN_I32, DIMS(counts[i]), (int)rows[i] + 3);
        at = kiln_cast(b, kiln_sub(b, at, kiln_constant(b, KILN_I32, 1)), indices[i]);
        kiln_tensor made = kiln_scatter_add(b, base, at, values, 0);
        check_read(b, made);
        if (check_context()->runtime.device.traits->chunked)
            cr_expect_eq(cost_of(b).launches, 4u, "%zu", i);
        check_run(b);
        check_end(b);
    }
    check_close();
}

/* More than a work-group's local memory has sums for, and few; negative values and sums beyond 32
 * bits; the smallest and the largest. */
Test(ops_scatter, many_rows_of_integers)
{
    static const kiln_type types[] = {KILN_I32, KILN_I64};
    for (size_t i = 0; i < 2; i++) {
        kiln_batch *b = check_begin();
        kiln_tensor base = check_input(b, types[i], DIMS(4099), CHECK_PLAIN);
        kiln_tensor values = check_input(b, types[i], DIMS(6000), CHECK_PLAIN);
        values = kiln_mul(b, values, kiln_constant(b, types[i], i ? 3e9 : 77));
        kiln_tensor at = random_indices(b, KILN_I32, DIMS(6000), 4102);
        at = kiln_sub(b, at, kiln_constant(b, KILN_I32, 1));
        check_read(b, kiln_scatter_add(b, base, at, values, 0));
        check_read(b, kiln_scatter(b, base, at, values, 0, KILN_SCATTER_MIN));
        at = kiln_fmod(b, at, kiln_constant(b, KILN_I32, 3)); /* the same few again and again */
        check_read(b, kiln_scatter_add(b, base, at, values, 0));
        kiln_tensor few = check_input(b, types[i], DIMS(5), CHECK_PLAIN);
        kiln_tensor above = kiln_add(b, kiln_abs(b, values), kiln_constant(b, types[i], 1000));
        kiln_tensor large = kiln_fill(b, types[i], DIMS(5), 1 << 30);
        check_read(b, kiln_scatter(b, few, at, values, 0, KILN_SCATTER_MIN));
        check_read(b, kiln_scatter(b, large, at, above, 0, KILN_SCATTER_MIN));
        check_read(
            b, kiln_scatter(b, kiln_neg(b, large), at, kiln_neg(b, above), 0, KILN_SCATTER_MAX));
        check_run(b);
        check_end(b);
    }
    check_close();
}

/* Many rows written, of which the last of several indices writes each: more rows than indices and
 * fewer, neighbours that lead to one row, wide rows, and parts of a result. */
Test(ops_scatter, rows_written_by_many_indices)
{
    static const kiln_type types[] = {KILN_F32, KILN_U8, KILN_I64, KILN_I32, KILN_F16};
    static const size_t dims[][3] = {
        {1, 5003, 1}, {1, 40, 1}, {2, 700, 3}, {1, 33, 70}, {3, 9001, 1}};
    static const kiln_type indices[] = {KILN_I32, KILN_U8, KILN_I64, KILN_I32, KILN_I32};
    for (size_t i = 0; i < 5; i++) {
        const size_t count = 2500 + 100 * i, values[] = {dims[i][0], count, dims[i][2]};
        kiln_batch *b = check_begin();
        kiln_tensor x = check_input(b, types[i], 3, dims[i], CHECK_PLAIN);
        kiln_tensor v = check_input(b, types[i], 3, values, CHECK_PLAIN);
        kiln_tensor at = random_indices(b, indices[i], DIMS(count), (uint32_t)dims[i][1]);
        check_read(b, kiln_scatter(b, x, at, v, 1, KILN_SCATTER_SET));
        kiln_tensor rising = kiln_cast(b, kiln_iota(b, DIMS(count), 0), KILN_I32);
        rising = kiln_div(b, rising, kiln_constant(b, KILN_I32, 7));
        check_read(b, kiln_scatter(b, x, rising, kiln_neg(b, v), 1, KILN_SCATTER_SET));
        check_run(b);
        check_end(b);
    }
    check_close();
}

/* Sums of many floats add up in the order of the indices, whatever kernel does it: rows of one
 * value and of thousands, rows that nothing leads to, indices that lead nowhere, a digit and two of
 * rows. */
Test(ops_scatter, many_floats_in_order)
{
    static const size_t counts[] = {7000, 12000, 20000, 9000}, rows[] = {150, 3000, 3, 256};
    static const size_t columns[] = {1, 40, 1, 3};
    for (size_t i = 0; i < 4; i++) {
        const size_t count = counts[i], inner = columns[i];
        float *values = malloc(count * inner * sizeof *values);
        float *sums = malloc(rows[i] * inner * sizeof *sums), *made = malloc(rows[i] * inner * 4);
        int32_t *at = malloc(count * sizeof *at);
        cr_assert(values && sums && made && at);
        for (size_t e = 0; e < count * inner; e++)
            values[e] = (float)check_random(1 << 20) / 1e3f - 500;
        for (size_t j = 0; j < count; j++) /* half of them in one row */
            at[j] = j % 2 ? (int32_t)rows[i] / 2 : (int32_t)check_random((uint32_t)rows[i] + 2) - 1;
        for (size_t e = 0; e < rows[i] * inner; e++)
            sums[e] = 1;
        kiln_batch *b = check_begin();
        kiln_tensor v = kiln_upload(b, KILN_F32, DIMS(count, inner), values);
        kiln_tensor x = kiln_fill(b, KILN_F32, DIMS(rows[i], inner), 1);
        kiln_tensor to = kiln_upload(b, KILN_I32, DIMS(count), at);
        kiln_read(b, kiln_scatter_add(b, x, to, v, 0), made, rows[i] * inner * 4);
        cr_assert_eq(kiln_batch_execute(b), KILN_OK);
        for (size_t j = 0; j < count; j++)
            for (size_t c = 0; at[j] >= 0 && at[j] < (int32_t)rows[i] && c < inner; c++)
                sums[(size_t)at[j] * inner + c] += values[j * inner + c];
        for (size_t e = 0; e < rows[i] * inner; e++)
            cr_assert_eq(made[e], sums[e], "%zu: %zu: %.9g, not %.9g", i, e, made[e], sums[e]);
        check_end(b);
        free(values), free(sums), free(made), free(at);
    }
    check_close();
}

/* Other modes and types of many indices: parts of a result, computed values, none that hits. */
Test(ops_scatter, every_mode_of_many)
{
    static const kiln_type types[] = {KILN_F32, KILN_U8, KILN_I64, KILN_I32, KILN_F16, KILN_I8};
    static const size_t extents[] = {70, 300, 5000, 1, 255, 256};
    for (size_t i = 0; i < 30; i++) {
        const size_t type = i % 6, rows = extents[(i + i / 6) % 6], count = 13000 + i;
        const kiln_scatter_mode mode = (kiln_scatter_mode)(i / 6);
        const size_t into[] = {2, rows, i % 3 + 1}, given[] = {2, count, i % 3 + 1};
        kiln_batch *b = check_begin();
        kiln_tensor x = check_input(b, types[type], 3, into, CHECK_PLAIN);
        kiln_tensor v = check_input(b, types[type], 3, given, CHECK_PLAIN);
        kiln_tensor at = random_indices(b, KILN_I32, DIMS(count), (uint32_t)rows);
        if (mode == KILN_SCATTER_MUL && type % 4 == 0) /* so that products of floats stay finite */
            v = kiln_sign(b, v);
        check_read(b, kiln_scatter(b, x, at, v, 1, mode));
        if (type == 0 && mode != KILN_SCATTER_MUL)
            check_read(b, kiln_scatter(b, x, kiln_neg(b, at), kiln_neg(b, v), 1, mode));
        check_run(b);
        check_end(b);
    }
    check_close();
}

/* ---- what it costs ---- */

/* The base of another scatter is not copied. */
Test(ops_scatter, chains_run_in_place)
{
    kiln_batch *b = check_begin();
    kiln_tensor v = check_input(b, KILN_F32, DIMS(30, 64), CHECK_PLAIN);
    kiln_tensor at = random_indices(b, KILN_I32, DIMS(30), 10);
    kiln_tensor sum = kiln_fill(b, KILN_F32, DIMS(10, 64), 0);
    for (int i = 0; i < 4; i++)
        sum = kiln_scatter_add(b, sum, at, v, 0);
    check_read(b, sum);
    cr_expect_eq(cost_of(b).launches, 5u);
    check_run(b);
    check_end(b);
    check_close();
}

/* ---- gradients ---- */

Test(ops_scatter, gradients)
{
    kiln_batch *b = imagined_batch();
    kiln_tensor inputs[] = {check_input(b, KILN_F32, DIMS(4, 5), CHECK_PLAIN),
                            check_input(b, KILN_F32, DIMS(4, 2, 3), CHECK_PLAIN)};
    kiln_tensor at = numbers(b, DIMS(2, 3), NUMBERS(0, 4, 0, -1, 5, 2));
    kiln_tensor sum = kiln_scatter_add(b, inputs[0], at, inputs[1], 1);
    check_gradient(b, kiln_square(b, sum), 2, inputs, 1e-6, NULL);
    kiln_tensor rows = numbers(b, DIMS(3), NUMBERS(3, 1, 3));
    check_gradient(b, kiln_square(b, kiln_gather(b, inputs[0], rows, 0)), 1, inputs, 1e-6, NULL);
    kiln_tensor columns = numbers(b, DIMS(2, 2), NUMBERS(0, 1, 2, 2));
    check_gradient(b, kiln_exp(b, kiln_gather(b, inputs[1], columns, 2)), 1, inputs + 1, 1e-6,
                   NULL);
    check_end(b);
}

/* ---- errors ---- */

Test(ops_scatter, errors)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = kiln_fill(b, KILN_F32, DIMS(3, 4), 0), at = kiln_fill(b, KILN_I32, DIMS(2), 0);
    kiln_scatter_add(b, x, at, kiln_fill(b, KILN_F32, DIMS(2, 3), 0), 0);
    check_refusal(b, KILN_SHAPE_MISMATCH,
                  "kiln_scatter_add: values of shape [2,3] are not what indices of shape [2] pick "
                  "along axis 0 of shape [3,4]");
    b = check_begin();
    x = kiln_fill(b, KILN_F32, DIMS(3, 4), 0), at = kiln_fill(b, KILN_I32, DIMS(2), 0);
    kiln_scatter_add(b, x, at, kiln_fill(b, KILN_U8, DIMS(2, 4), 0), 0);
    expect_error(kiln_batch_status(b), KILN_TYPE_MISMATCH,
                 "kiln_scatter_add: x is f32 and values are u8; cast one of them");
    check_end(b);
    b = check_begin();
    x = kiln_fill(b, KILN_F32, DIMS(3, 4), 0);
    kiln_scatter_add(b, x, x, x, 0);
    check_refusal(b, KILN_TYPE_MISMATCH,
                  "kiln_scatter_add: indices are f32, and only integers are taken");
    check_close();
}
