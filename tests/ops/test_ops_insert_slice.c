/* SPDX-License-Identifier: Apache-2.0 */
/* Place, pad, concat, stack, split and windows: answers of numpy written down here, and the
 * reference for many shapes. */
#include <criterion/criterion.h>

#include "../support/movement.h"

static void expect_tensor(kiln_batch *batch, kiln_tensor tensor, size_t rank, const size_t *dims,
                          const int32_t *wanted)
{
    size_t count = 1;
    for (size_t d = 0; d < rank; d++)
        count *= dims[d];
    expect_shape(batch, tensor, rank, dims);
    expect_elements(batch, tensor, count, wanted);
}

/* ---- known answers ---- */

Test(ops_place, placed)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = counted(b, DIMS(3, 4)), part = counted_from(b, 50, DIMS(2, 2));
    expect_tensor(b, kiln_insert_slice(b, x, part, (int64_t[]){1, 0}, NULL), DIMS(3, 4),
                  NUMBERS(0, 1, 2, 3, 50, 51, 6, 7, 52, 53, 10, 11));

    b = check_begin();
    x = counted(b, DIMS(3, 4)), part = counted_from(b, 50, DIMS(2, 2));
    expect_tensor(b, kiln_insert_slice(b, x, part, (int64_t[]){2, 3}, (int64_t[]){-2, -2}),
                  DIMS(3, 4), NUMBERS(0, 53, 2, 52, 4, 5, 6, 7, 8, 51, 10, 50));

    b = check_begin();
    x = counted(b, DIMS(4)), part = counted_from(b, 50, DIMS(0));
    expect_tensor(b, kiln_insert_slice(b, x, part, (int64_t[]){9}, NULL), DIMS(4),
                  NUMBERS(0, 1, 2, 3));

    b = check_begin();
    x = counted(b, SCALAR), part = counted_from(b, 50, SCALAR);
    expect_tensor(b, kiln_insert_slice(b, x, part, NULL, NULL), SCALAR, NUMBERS(50));

    b = check_begin();
    x = counted(b, DIMS(3, 2)), part = counted_from(b, 50, DIMS(1, 2));
    expect_tensor(b, kiln_insert_slice(b, x, part, (int64_t[]){1, 0}, (int64_t[]){0, 1}),
                  DIMS(3, 2), NUMBERS(0, 1, 50, 51, 4, 5));
    check_close();
}

Test(ops_place, padded)
{
    kiln_batch *b = check_begin();
    kiln_tensor y =
        kiln_pad(b, counted_from(b, 1, DIMS(2, 3)), (size_t[]){1, 0}, (size_t[]){0, 2}, -7);
    expect_tensor(b, y, DIMS(3, 5), NUMBERS(-7, -7, -7, -7, -7, 1, 2, 3, -7, -7, 4, 5, 6, -7, -7));

    b = check_begin();
    y = kiln_pad(b, counted_from(b, 1, DIMS(2)), (size_t[]){0}, (size_t[]){0}, -7);
    expect_tensor(b, y, DIMS(2), NUMBERS(1, 2));

    b = check_begin();
    y = kiln_pad(b, counted_from(b, 1, DIMS(0, 2)), (size_t[]){1, 1}, (size_t[]){1, 0}, 4);
    expect_tensor(b, y, DIMS(2, 3), NUMBERS(4, 4, 4, 4, 4, 4));

    b = check_begin();
    expect_tensor(b, kiln_pad(b, counted_from(b, 1, SCALAR), NULL, NULL, 4), SCALAR, NUMBERS(1));
    check_close();
}

Test(ops_place, concatenated)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = counted(b, DIMS(2, 2)), y = counted_from(b, 10, DIMS(2, 3));
    expect_tensor(b, kiln_concat(b, 2, (kiln_tensor[]){x, y}, -1), DIMS(2, 5),
                  NUMBERS(0, 1, 10, 11, 12, 2, 3, 13, 14, 15));

    b = check_begin();
    x = counted(b, DIMS(2, 2)), y = counted_from(b, 10, DIMS(1, 2));
    kiln_tensor z = counted(b, DIMS(0, 2));
    expect_tensor(b, kiln_concat(b, 4, (kiln_tensor[]){z, x, y, z}, 0), DIMS(3, 2),
                  NUMBERS(0, 1, 2, 3, 10, 11));

    b = check_begin();
    x = counted(b, DIMS(3));
    expect_tensor(b, kiln_concat(b, 3, (kiln_tensor[]){x, x, x}, 0), DIMS(9),
                  NUMBERS(0, 1, 2, 0, 1, 2, 0, 1, 2));

    b = check_begin();
    expect_tensor(b, kiln_concat(b, 1, (kiln_tensor[]){counted_from(b, 5, DIMS(3))}, 0), DIMS(3),
                  NUMBERS(5, 6, 7));
    check_close();
}

Test(ops_place, stacked)
{
    static const int32_t wanted[3][6] = {
        {0, 1, 2, 10, 11, 12}, {0, 10, 1, 11, 2, 12}, {0, 10, 1, 11, 2, 12}};
    for (int axis = 0; axis < 2; axis++) {
        kiln_batch *b = check_begin();
        kiln_tensor parts[] = {counted(b, DIMS(3)), counted_from(b, 10, DIMS(3))};
        size_t dims[] = {axis ? 3 : 2, axis ? 2 : 3};
        expect_tensor(b, kiln_stack(b, 2, parts, axis), 2, dims, wanted[axis]);
    }
    kiln_batch *b = check_begin();
    kiln_tensor parts[] = {counted(b, DIMS(3)), counted_from(b, 10, DIMS(3))};
    expect_tensor(b, kiln_stack(b, 2, parts, -1), DIMS(3, 2), wanted[2]);
    b = check_begin();
    kiln_tensor scalars[] = {counted_from(b, 4, SCALAR), counted_from(b, 2, SCALAR)};
    expect_tensor(b, kiln_stack(b, 2, scalars, 0), DIMS(2), NUMBERS(4, 2));
    check_close();
}

Test(ops_place, split)
{
    kiln_tensor parts[3];
    kiln_batch *b = check_begin();
    expect_ok(kiln_split(b, counted(b, DIMS(2, 4)), 1, 2, NULL, parts));
    expect_tensor(b, parts[1], DIMS(2, 2), NUMBERS(2, 3, 6, 7));

    b = check_begin();
    expect_ok(kiln_split(b, counted(b, DIMS(6)), -1, 3, (size_t[]){1, 0, 5}, parts));
    expect_tensor(b, parts[2], DIMS(5), NUMBERS(1, 2, 3, 4, 5));
    check_close();
}

Test(ops_place, windows)
{
    kiln_batch *b = check_begin();
    kiln_tensor y = kiln_windows(b, counted(b, DIMS(5)), 0, 1, (size_t[]){3}, NULL, NULL);
    expect_tensor(b, y, DIMS(3, 3), NUMBERS(0, 1, 2, 1, 2, 3, 2, 3, 4));

    b = check_begin();
    y = kiln_windows(b, counted(b, DIMS(8)), 0, 1, (size_t[]){2}, (size_t[]){3}, (size_t[]){4});
    expect_tensor(b, y, DIMS(2, 2), NUMBERS(0, 4, 3, 7));

    b = check_begin(); /* [N,H,W,C]: [1,2,2,2,2,1] */
    y = kiln_windows(b, counted(b, DIMS(1, 3, 3, 1)), 1, 2, (size_t[]){2, 2}, NULL, NULL);
    expect_tensor(b, y, DIMS(1, 2, 2, 2, 2, 1),
                  NUMBERS(0, 1, 3, 4, 1, 2, 4, 5, 3, 4, 6, 7, 4, 5, 7, 8));

    b = check_begin();
    y = kiln_windows(b, counted(b, DIMS(2, 4)), 1, 1, (size_t[]){2}, (size_t[]){2}, NULL);
    y = kiln_sum(b, kiln_mul(b, y, counted_from(b, 1, DIMS(2))), 1, (int[]){-1}, 0);
    y = kiln_cast(b, y, KILN_I32);
    expect_tensor(b, y, DIMS(2, 2), NUMBERS(2, 8, 14, 20));
    check_close();
}

Test(ops_place, filled)
{
    kiln_batch *b = check_begin();
    expect_tensor(b, kiln_fill(b, KILN_I32, DIMS(2, 2), 9), DIMS(2, 2), NUMBERS(9, 9, 9, 9));
    b = check_begin();
    kiln_tensor big = kiln_fill(b, KILN_I32, DIMS(2), INT32_MAX); /* wraps around, is not folded */
    expect_tensor(b, kiln_reshape(b, kiln_add(b, big, big), DIMS(2, 1)), DIMS(2, 1),
                  NUMBERS(-2, -2));
    check_close();
}

/* ---- bits ---- */

Test(ops_place, moves_nans_as_they_are)
{
    uint32_t bits[] = {0x7fc00001, 0xffc12345, 0x7f800000, 0x80000000, 0x7fabcdef, 1};
    kiln_batch *b = check_begin();
    kiln_tensor x = check_given(b, KILN_F32, DIMS(6), bits);
    uint32_t *both = check_read(b, kiln_concat(b, 2, (kiln_tensor[]){x, x}, 0));
    uint32_t *turned = check_read(b, kiln_stack(b, 2, (kiln_tensor[]){x, x}, 1));
    run_batch(b);
    for (size_t i = 0; i < 6; i++) {
        cr_expect_eq(both[i], bits[i]);
        cr_expect_eq(both[6 + i], bits[i]);
        cr_expect_eq(turned[2 * i], bits[i]);
        cr_expect_eq(turned[2 * i + 1], bits[i]);
    }
    check_end(b);
    check_close();
}

/* ---- against the reference ---- */

Test(ops_place, slow_every_axis_and_type)
{
    static const kiln_type types[] = {KILN_F32, KILN_I32, KILN_U8, KILN_I64, KILN_I8};
    for (size_t i = 0; i < 15; i++) {
        kiln_batch *b = check_begin();
        size_t dims[] = {3, 17, 33}, axis = i % 3;
        kiln_tensor parts[3];
        for (size_t k = 0; k < 3; k++) {
            dims[axis] = 1 + 20 * k;
            parts[k] = check_input(b, types[i / 3], 3, dims, CHECK_WIDE);
        }
        kiln_tensor whole = kiln_concat(b, 3, parts, (int)axis);
        check_read(b, whole);
        check_read(b, kiln_transpose(b, kiln_neg(b, whole), NULL));
        check_run(b);
        check_end(b);
    }
    check_close();
}

/* Parts that are computed, turned, reversed, reduced, multiplied, themselves placed. */
Test(ops_place, parts_of_all_kinds)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_plain(b, DIMS(40, 24)), y = check_plain(b, DIMS(24, 40));
    kiln_tensor parts[] = {
        kiln_transpose(b, kiln_exp(b, y), NULL),
        kiln_slice(b, x, (int64_t[]){39, 0}, (int64_t[]){-1, 24}, (int64_t[]){-1, 1}),
        kiln_transpose(b, y, NULL),
        kiln_matmul(b, x, kiln_matmul(b, y, x)),
        kiln_broadcast(b, kiln_sum(b, x, 1, (int[]){1}, 1), DIMS(40, 24)),
        kiln_concat(b, 2, (kiln_tensor[]){x, x}, 1),
        kiln_fill(b, KILN_F32, DIMS(40, 7), 3),
    };
    kiln_tensor whole = kiln_concat(b, 7, parts, 1);
    check_read(b, whole);
    check_read(b, kiln_max(b, whole, 1, (int[]){0}, 0));
    check_read(b, kiln_reshape(b, kiln_transpose(b, whole, NULL), DIMS(25, 7, 40)));
    check_run(b);
    check_end(b);
    check_close();
}

/* Stores that are contiguous, strided, backwards; bases that are read before, beside and after. */
Test(ops_place, bases_of_all_kinds)
{
    static const int64_t starts[][2] = {{0, 0}, {3, 5}, {36, 40}, {1, 2}};
    static const int64_t steps[][2] = {{1, 1}, {2, 1}, {-2, -3}, {1, 3}};
    for (size_t i = 0; i < 4; i++) {
        kiln_batch *b = check_begin();
        kiln_tensor x = check_plain(b, DIMS(37, 41)), p = check_plain(b, DIMS(17, 13));
        kiln_tensor product = kiln_matmul(b, x, kiln_transpose(b, x, NULL));
        check_read(b, kiln_insert_slice(b, x, p, starts[i], steps[i]));
        check_read(b, kiln_insert_slice(b, kiln_exp(b, x), kiln_neg(b, p), starts[i], steps[i]));
        check_read(b, kiln_tanh(b, kiln_insert_slice(b, kiln_matmul(b, product, x), p, starts[i],
                                                     steps[i])));
        check_run(b);
        check_end(b);
    }
    check_close();
}

/* The part reads the base: at the very elements, or at others, which forbids doing it in place. */
Test(ops_place, parts_made_of_their_base)
{
    for (int shifted = 0; shifted < 2; shifted++) {
        kiln_batch *b = check_begin();
        kiln_tensor x = check_plain(b, DIMS(50, 30));
        kiln_tensor base = kiln_matmul(b, x, kiln_matmul(b, kiln_transpose(b, x, NULL), x));
        int64_t from[] = {10, 4};
        kiln_tensor old =
            kiln_slice(b, base, (int64_t[]){10 + shifted, 4}, (int64_t[]){30 + shifted, 24}, NULL);
        check_read(b, kiln_insert_slice(b, base, kiln_add(b, old, kiln_exp(b, old)), from, NULL));
        check_run(b);
        cr_expect_eq(cost_of(b).launches, shifted ? 4u : 3u);
        check_end(b);
    }
    check_close();
}

/* The base is asked for, or read later: the place must not change it. */
Test(ops_place, bases_that_are_needed_again)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_plain(b, DIMS(9, 9)), p = check_plain(b, DIMS(3, 3));
    kiln_tensor base = kiln_matmul(b, x, x);
    kiln_tensor first = kiln_insert_slice(b, base, p, (int64_t[]){0, 0}, NULL);
    kiln_tensor second = kiln_insert_slice(b, first, p, (int64_t[]){4, 4}, NULL);
    kiln_tensor third = kiln_insert_slice(b, first, p, (int64_t[]){6, 0}, NULL);
    check_read(b, base);
    check_read(b, second);
    check_read(b, third);
    check_read(b, kiln_sum(b, kiln_exp(b, first), 1, (int[]){0}, 0));
    check_run(b);
    check_end(b);
    check_close();
}

Test(ops_place, slow_dimensions)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_input(b, KILN_U8, DIMS(70001), CHECK_PLAIN);
    kiln_tensor y = check_input(b, KILN_U8, DIMS(65537), CHECK_PLAIN);
    check_read(b, kiln_concat(b, 3, (kiln_tensor[]){x, y, x}, 0));
    check_read(b, kiln_pad(b, kiln_reshape(b, y, DIMS(65537, 1)), (size_t[]){3, 1},
                           (size_t[]){0, 1}, 200));
    check_read(b, kiln_stack(b, 2, (kiln_tensor[]){x, x}, 1));
    check_run(b);
    check_end(b);
    check_close();
}

Test(ops_place, eight_dimensions)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_plain(b, DIMS(2, 3, 2, 1, 2, 3, 1, 2));
    size_t order[] = {7, 1, 5, 3, 0, 2, 6, 4};
    kiln_tensor y = kiln_transpose(b, x, order);
    check_read(b, kiln_pad(b, y, (size_t[]){1, 0, 1, 0, 1, 0, 1, 0},
                           (size_t[]){0, 1, 0, 1, 0, 1, 0, 1}, 7));
    check_run(b);
    check_end(b);
    check_close();
}

Test(ops_place, windows_of_all_kinds)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_plain(b, DIMS(2, 13, 11, 3));
    size_t size[] = {3, 2}, step[] = {2, 3}, dilation[] = {2, 1};
    kiln_tensor w = kiln_windows(b, x, 1, 2, size, step, dilation);
    check_read(b, w);
    check_read(b, kiln_reshape(b, w, DIMS(2 * 5 * 4, 18)));
    check_read(b, kiln_max(b, w, 2, (int[]){3, 4}, 0));
    check_read(b, kiln_windows(b, kiln_exp(b, w), 3, 1, (size_t[]){2}, NULL, NULL));
    check_read(
        b,
        kiln_mean(b, kiln_windows(b, kiln_transpose(b, x, NULL), 3, 1, (size_t[]){3}, NULL, NULL),
                  1, (int[]){-1}, 0));
    check_run(b);
    check_end(b);
    check_close();
}

/* ---- errors ---- */

Test(ops_place, places_are_checked)
{
    kiln_batch *b = check_begin();
    kiln_insert_slice(b, counted(b, DIMS(4)), check_plain(b, DIMS(2)), (int64_t[]){0}, NULL);
    check_refusal(b, KILN_TYPE_MISMATCH,
                  "kiln_insert_slice: x is i32 and part is f32; cast one of them");
    b = check_begin();
    kiln_insert_slice(b, counted(b, DIMS(4)), counted(b, DIMS(2, 1)), (int64_t[]){0}, NULL);
    check_refusal(b, KILN_SHAPE_MISMATCH,
                  "kiln_insert_slice: x of shape [4] and part of shape [2,1] differ in rank");
    b = check_begin();
    kiln_insert_slice(b, counted(b, DIMS(4)), counted(b, DIMS(2)), NULL, NULL);
    check_refusal(b, KILN_INVALID_ARGUMENT, "kiln_insert_slice: start is NULL");
    static const int64_t cuts[][2] = {{3, 1},         {-1, 1},        {0, 0},         {4, -1},
                                      {0, INT64_MAX}, {3, INT64_MIN}, {INT64_MAX, 1}, {0, -1}};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        b = check_begin();
        kiln_insert_slice(b, counted(b, DIMS(4)), counted(b, DIMS(2)), &cuts[i][0], &cuts[i][1]);
        cr_expect_eq(kiln_batch_status(b), KILN_INVALID_ARGUMENT, "cut %zu", i);
        check_end(b);
    }
    check_close();
}

Test(ops_place, pads_are_checked)
{
    kiln_batch *b = check_begin();
    kiln_pad(b, counted(b, DIMS(4)), (size_t[]){1}, NULL, 0);
    check_refusal(b, KILN_INVALID_ARGUMENT, "kiln_pad: high is NULL");
    b = check_begin();
    kiln_pad(b, counted(b, DIMS(4)), (size_t[]){1}, (size_t[]){0}, 0.5);
    check_refusal(b, KILN_INVALID_ARGUMENT, "kiln_pad: i32 cannot hold 0.5");
    b = check_begin();
    kiln_pad(b, counted(b, DIMS(4)), (size_t[]){SIZE_MAX}, (size_t[]){SIZE_MAX}, 0);
    check_refusal(b, KILN_TOO_LARGE, "kiln_pad: shape [4] is padded to too many elements");
    check_close();
}

Test(ops_place, parts_are_checked)
{
    kiln_batch *b = check_begin();
    kiln_concat(b, 0, NULL, 0);
    check_refusal(b, KILN_INVALID_ARGUMENT, "kiln_concat: there are no parts");
    b = check_begin();
    kiln_stack(b, 1, NULL, 0);
    check_refusal(b, KILN_INVALID_ARGUMENT, "kiln_stack: parts is NULL");
    b = check_begin();
    kiln_concat(b, 2, (kiln_tensor[]){counted(b, DIMS(2, 3)), counted(b, DIMS(3, 2))}, 0);
    check_refusal(b, KILN_SHAPE_MISMATCH,
                  "kiln_concat: parts[0] of shape [2,3] and parts[1] of shape [3,2] differ beside "
                  "axis 0");
    b = check_begin();
    kiln_concat(b, 2, (kiln_tensor[]){counted(b, DIMS(2)), check_plain(b, DIMS(2))}, 0);
    check_refusal(b, KILN_TYPE_MISMATCH,
                  "kiln_concat: parts[0] is i32 and parts[1] is f32; cast one of them");
    b = check_begin();
    kiln_concat(b, 1, (kiln_tensor[]){counted(b, SCALAR)}, 0);
    check_refusal(b, KILN_INVALID_ARGUMENT, "kiln_concat: there is no axis 0 in 0 dimensions");
    b = check_begin();
    kiln_stack(b, 2, (kiln_tensor[]){counted(b, DIMS(2)), counted(b, DIMS(3))}, -2);
    check_refusal(b, KILN_SHAPE_MISMATCH,
                  "kiln_stack: parts[0] of shape [2] and parts[1] of shape [3] differ");
    b = check_begin();
    kiln_concat(b, 2, (kiln_tensor[]){counted(b, DIMS(2)), {0}}, 0);
    cr_expect_eq(kiln_batch_status(b), KILN_INVALID_HANDLE);
    check_end(b);
    check_close();
}

Test(ops_place, splits_and_windows_are_checked)
{
    kiln_tensor parts[2];
    kiln_batch *b = check_begin();
    kiln_split(b, counted(b, DIMS(5)), 0, 2, NULL, parts);
    check_refusal(b, KILN_INVALID_ARGUMENT, "kiln_split: there are no 2 equal parts of 5 elements");
    b = check_begin();
    kiln_split(b, counted(b, DIMS(5)), 0, 2, (size_t[]){1, 3}, parts);
    check_refusal(b, KILN_INVALID_ARGUMENT,
                  "kiln_split: the sizes of 2 parts do not add up to the 5 elements");
    cr_expect_eq(parts[1].id, 0u);
    b = check_begin();
    kiln_windows(b, counted(b, DIMS(5)), 0, 1, (size_t[]){3}, NULL, (size_t[]){3});
    check_refusal(b, KILN_INVALID_ARGUMENT,
                  "kiln_windows: no window of 3 elements 3 apart, 1 from one to the next, fits "
                  "dimension 0, which has 5");
    b = check_begin();
    kiln_windows(b, counted(b, DIMS(5)), 1, 1, (size_t[]){3}, NULL, NULL);
    check_refusal(b, KILN_INVALID_ARGUMENT,
                  "kiln_windows: shape [5] has no 1 dimensions from number 1 on");
    b = check_begin();
    kiln_windows(b, counted(b, DIMS(5)), 0, 1, NULL, NULL, NULL);
    check_refusal(b, KILN_INVALID_ARGUMENT, "kiln_windows: size is NULL");
    check_close();
}
