/* SPDX-License-Identifier: Apache-2.0 */
/* Transpose, slice, reshape, broadcast: by answers written down here (the reference reads what the
 * same calls recorded), then all of them in all orders against the reference. */
#include <criterion/criterion.h>
#include <string.h>

#include "../support/movement.h"

/* ---- known answers ---- */

Test(ops_movement, transposed)
{
    kiln_batch *b = check_begin();
    kiln_tensor y = kiln_transpose(b, counted(b, DIMS(2, 3)), NULL);
    expect_shape(b, y, DIMS(3, 2));
    EXPECT_ELEMENTS(b, y, 0, 3, 1, 4, 2, 5);

    b = check_begin();
    y = kiln_transpose(b, counted(b, DIMS(2, 3, 4)), (size_t[]){1, 2, 0});
    expect_shape(b, y, DIMS(3, 4, 2));
    EXPECT_ELEMENTS(b, y, 0, 12, 1, 13, 2, 14, 3, 15, 4, 16, 5, 17, 6, 18, 7, 19, 8, 20, 9, 21, 10,
                    22, 11, 23);

    b = check_begin();
    y = kiln_transpose(b, counted(b, DIMS(2, 2, 3)), NULL); /* the last two */
    expect_shape(b, y, DIMS(2, 3, 2));
    EXPECT_ELEMENTS(b, y, 0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11);
    check_close();
}

Test(ops_movement, sliced)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = counted(b, DIMS(4, 5));
    kiln_tensor y = kiln_slice(b, x, (int64_t[]){1, 0}, (int64_t[]){4, 5}, (int64_t[]){2, 3});
    expect_shape(b, y, DIMS(2, 2));
    EXPECT_ELEMENTS(b, y, 5, 8, 15, 18);

    b = check_begin();
    x = counted(b, DIMS(4, 5));
    y = kiln_slice(b, x, (int64_t[]){3, 4}, (int64_t[]){-1, -1}, (int64_t[]){-2, -1});
    expect_shape(b, y, DIMS(2, 5));
    EXPECT_ELEMENTS(b, y, 19, 18, 17, 16, 15, 9, 8, 7, 6, 5);

    b = check_begin();
    x = counted(b, DIMS(4, 5));
    y = kiln_slice(b, x, (int64_t[]){2, 4}, (int64_t[]){3, 1}, (int64_t[]){1, -2});
    expect_shape(b, y, DIMS(1, 2));
    EXPECT_ELEMENTS(b, y, 14, 12);

    b = check_begin();
    y = kiln_slice(b, counted(b, DIMS(10)), (int64_t[]){8}, (int64_t[]){1}, (int64_t[]){-3});
    expect_shape(b, y, DIMS(3));
    EXPECT_ELEMENTS(b, y, 8, 5, 2);
    check_close();
}

/* As x[start:stop:step] of 0 to 9 there. */
Test(ops_movement, sliced_as_numpy_does)
{
    static const struct {
        int64_t start, stop, step;
        size_t count;
    } cases[] = {
        {-3, INT64_MAX, 1, 3},
        {INT64_MIN, 2, 1, 2},
        {8, 100, 1, 2},
        {INT64_MAX, INT64_MIN, -4, 3},
        {-1, -4, -1, 3},
        {4, -100, -2, 3},
        {5, 5, 1, 0},
        {7, 3, 1, 0},
        {-20, -15, 1, 0},
        {3, 7, -1, 0},
        {-20, INT64_MIN, -1, 0},
        {100, INT64_MAX, 1, 0},
        {0, 10, INT64_MAX, 1},
        {9, INT64_MIN, INT64_MIN, 1},
    };
    enum { CASES = sizeof cases / sizeof *cases };
    kiln_tensor parts[CASES];
    kiln_batch *b = check_begin();
    kiln_tensor x = counted(b, DIMS(10));
    for (size_t i = 0; i < CASES; i++) {
        parts[i] = kiln_slice_clipped(b, x, &cases[i].start, &cases[i].stop, &cases[i].step);
        expect_shape(b, parts[i], DIMS(cases[i].count));
    }
    EXPECT_ELEMENTS(b, kiln_concat(b, CASES, parts, 0), 7, 8, 9, 0, 1, 8, 9, 9, 5, 1, 9, 8, 7, 4, 2,
                    0, 0, 9);

    b = check_begin();
    x = counted(b, DIMS(10));
    kiln_slice_clipped(b, x, (int64_t[]){0}, (int64_t[]){5}, (int64_t[]){0});
    cr_expect_str_eq(without_call(kiln_batch_error(b)),
                     "kiln_slice_clipped: the step of dimension 0 is 0");
    kiln_batch_release(b);
    check_close();
}

/* Starts and steps of one view are counted in those of the view below. */
Test(ops_movement, views_of_views)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = counted(b, DIMS(20));
    kiln_tensor y = kiln_slice(b, x, (int64_t[]){18}, (int64_t[]){1}, (int64_t[]){-3});
    y = kiln_slice(b, y, (int64_t[]){1}, (int64_t[]){6}, (int64_t[]){2}); /* of 18 15 12 9 6 3 */
    EXPECT_ELEMENTS(b, y, 15, 9, 3);

    b = check_begin();
    x = counted(b, DIMS(4, 6));
    y = kiln_slice(b, x, (int64_t[]){3, 1}, (int64_t[]){-1, 6}, (int64_t[]){-1, 2});
    y = kiln_slice(b, kiln_transpose(b, y, NULL), (int64_t[]){2, 1}, (int64_t[]){0, 4},
                   (int64_t[]){-1, 2});
    expect_shape(b, y, DIMS(2, 2));
    EXPECT_ELEMENTS(b, y, 17, 5, 15, 3);

    b = check_begin();
    x = counted(b, DIMS(3, 1));
    y = kiln_slice(b, kiln_broadcast(b, x, DIMS(3, 5)), (int64_t[]){2, 3}, (int64_t[]){-1, 5},
                   (int64_t[]){-2, 1});
    EXPECT_ELEMENTS(b, y, 2, 2, 0, 0);
    check_close();
}

Test(ops_movement, sliced_to_nothing)
{
    static const int64_t cuts[][3] = {{2, 2, 1}, {3, 1, 1}, {1, 3, -1}, {5, 5, 1}, {0, 0, -1}};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        kiln_batch *b = check_begin();
        kiln_tensor x = counted(b, DIMS(5));
        kiln_tensor y = kiln_slice(b, x, &cuts[i][0], &cuts[i][1], &cuts[i][2]);
        expect_shape(b, y, DIMS(0));
        check_read(b, kiln_sum(b, y, 0, NULL, 0));
        check_tensor(b, y);
    }
    check_close();
}

Test(ops_movement, reshaped)
{
    kiln_batch *b = check_begin();
    kiln_tensor y = kiln_reshape(b, counted(b, DIMS(2, 3)), DIMS(3, 1, 2));
    expect_shape(b, y, DIMS(3, 1, 2));
    EXPECT_ELEMENTS(b, y, 0, 1, 2, 3, 4, 5);

    b = check_begin();
    kiln_tensor turned = kiln_transpose(b, counted(b, DIMS(2, 3)), NULL);
    y = kiln_transpose(b, kiln_reshape(b, turned, DIMS(2, 3)), NULL);
    EXPECT_ELEMENTS(b, y, 0, 4, 3, 2, 1, 5);

    b = check_begin();
    kiln_tensor back =
        kiln_slice(b, counted(b, DIMS(6)), (int64_t[]){5}, (int64_t[]){-1}, (int64_t[]){-1});
    y = kiln_reshape(b, back, DIMS(2, 3));
    EXPECT_ELEMENTS(b, y, 5, 4, 3, 2, 1, 0);

    b = check_begin();
    EXPECT_ELEMENTS(b, kiln_reshape(b, counted(b, SCALAR), DIMS(1, 1)), 0);
    check_close();
}

Test(ops_movement, broadcast)
{
    kiln_batch *b = check_begin();
    kiln_tensor y = kiln_broadcast(b, counted(b, DIMS(3, 1)), DIMS(2, 3, 2));
    expect_shape(b, y, DIMS(2, 3, 2));
    EXPECT_ELEMENTS(b, y, 0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2);

    b = check_begin();
    y = kiln_broadcast(b, counted(b, DIMS(2)), DIMS(3, 2));
    EXPECT_ELEMENTS(b, y, 0, 1, 0, 1, 0, 1);

    b = check_begin();
    EXPECT_ELEMENTS(b, kiln_broadcast(b, counted(b, SCALAR), DIMS(3)), 0, 0, 0);

    b = check_begin();
    y = kiln_broadcast(b, counted(b, DIMS(2, 1)), DIMS(2, 0));
    expect_shape(b, y, DIMS(2, 0));
    check_tensor(b, y);
    check_close();
}

/* ---- against the reference ---- */

/* The order that stands at place `number` of all orders of `rank` dimensions. */
static void order_of(size_t rank, size_t number, size_t *order)
{
    size_t left[KILN_MAX_RANK];
    for (size_t d = 0; d < rank; d++)
        left[d] = d;
    for (size_t d = 0; d < rank; d++) {
        size_t at = number % (rank - d);
        number /= rank - d;
        order[d] = left[at];
        memmove(&left[at], &left[at + 1], (rank - d - at - 1) * sizeof *left);
    }
}

static void turn(kiln_type type, size_t rank, const size_t *dims, size_t number)
{
    size_t order[KILN_MAX_RANK];
    order_of(rank, number, order);
    kiln_batch *b = check_begin();
    kiln_tensor x = check_input(b, type, rank, dims, CHECK_PLAIN);
    kiln_tensor y = kiln_transpose(b, x, order);
    check_read(b, y);
    check_read(b, kiln_transpose(b, kiln_neg(b, x), order));
    check_run(b);
    check_end(b);
}

Test(ops_movement, slow_every_order)
{
    for (size_t i = 0; i < 6; i++) {
        turn(KILN_F32, DIMS(5, 17, 33), i);
        turn(KILN_U8, DIMS(5, 17, 33), i);
    }
    for (size_t i = 0; i < 24; i++)
        turn(KILN_F32, DIMS(2, 3, 16, 7), i);
    turn(KILN_F32, DIMS(1009, 257), 1);
    turn(KILN_F32, DIMS(70001, 2), 1);
    for (size_t i = 1; i < 24; i += 5) /* tiles that end before dimensions do, beside others */
        turn(KILN_I64, DIMS(2, 35, 3, 70), i);
    turn(KILN_I32, DIMS(3, 1, 4), 3);
    turn(KILN_F32, DIMS(3, 0, 4), 5);
    turn(KILN_U8, DIMS(2, 3, 2, 1, 2, 3, 1, 2), 20000);
    check_close();
}

/* Reshapes of views: some are views again, others need a copy. */
Test(ops_movement, reshapes_of_views)
{
    static const size_t shapes[][4] = {{2, 3, 4, 5},  {6, 20, 1, 1}, {24, 5, 1, 1}, {120, 1, 1, 1},
                                       {1, 2, 60, 1}, {5, 4, 3, 2},  {10, 12, 1, 1}};
    for (size_t order = 0; order < 24; order += 5) {
        size_t axes[4];
        order_of(4, order, axes);
        kiln_batch *b = check_begin();
        kiln_tensor x = check_input(b, KILN_F32, DIMS(2, 3, 4, 5), CHECK_PLAIN);
        kiln_tensor turned = kiln_transpose(b, x, axes);
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            kiln_tensor y = kiln_reshape(b, turned, 4, shapes[i]);
            check_read(b, y);
            check_read(b, kiln_abs(b, kiln_transpose(b, y, (size_t[]){1, 0, 3, 2})));
        }
        check_run(b);
        check_end(b);
    }
    check_close();
}

Test(ops_movement, reshapes_of_slices)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_input(b, KILN_U8, DIMS(8, 9, 10), CHECK_PLAIN);
    kiln_tensor part =
        kiln_slice(b, x, (int64_t[]){7, 1, 0}, (int64_t[]){-1, 9, 10}, (int64_t[]){-2, 1, 1});
    kiln_tensor wide = kiln_broadcast(b, kiln_reshape(b, part, DIMS(4, 1, 80)), DIMS(4, 3, 80));
    check_read(b, kiln_reshape(b, part, DIMS(4, 80)));
    check_read(b, kiln_reshape(b, part, DIMS(32, 10)));
    check_read(b, kiln_reshape(b, wide, DIMS(12, 80)));
    check_read(b, kiln_reshape(b, wide, DIMS(2, 480)));
    check_read(b, kiln_square(b, kiln_reshape(b, part, DIMS(320))));
    check_run(b);
    check_end(b);
    check_close();
}

/* Not in memory themselves: each batch reads through both, or makes a copy where strides cannot. */
Test(ops_movement, reshapes_read_in_place)
{
    static const size_t shapes[][3] = {{7, 2, 20}, {56, 5, 1}, {7, 4, 10}, {280, 1, 1}, {7, 8, 5}};
    for (size_t i = 0; i < 2 * sizeof shapes / sizeof *shapes; i++) {
        kiln_batch *b = check_begin();
        kiln_tensor x = check_input(b, KILN_F32, DIMS(8, 9, 10), CHECK_PLAIN);
        kiln_tensor cut = i % 2 ? kiln_slice(b, x, (int64_t[]){1, 0, 2}, (int64_t[]){8, 8, 7}, NULL)
                                : kiln_slice(b, x, (int64_t[]){7, 8, 4}, (int64_t[]){0, 0, -1},
                                             (int64_t[]){-1, -1, -1});
        check_tensor(b, kiln_neg(b, kiln_reshape(b, cut, 3, shapes[i / 2])));
    }
    check_close();
}

/* ---- errors ---- */

Test(ops_movement, bounds_are_checked)
{
    static const int64_t cuts[][3] = {
        {0, 6, 1}, {-1, 3, 1},        {0, 3, 0},          {5, 0, -1},        {4, -2, -1},
        {6, 6, 1}, {0, INT64_MAX, 1}, {0, INT64_MIN, -1}, {INT64_MIN, 3, 1}, {INT64_MAX, 0, -1}};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        kiln_batch *b = check_begin();
        kiln_slice(b, counted(b, DIMS(5)), &cuts[i][0], &cuts[i][1], &cuts[i][2]);
        cr_expect_eq(kiln_batch_status(b), KILN_INVALID_ARGUMENT, "cut %zu", i);
        check_end(b);
    }
    check_close();
}

Test(ops_movement, largest_steps)
{
    static const int64_t cuts[][4] = {
        {0, 5, INT64_MAX, 0}, {4, -1, INT64_MIN, 4}, {3, 5, INT64_MAX, 3}};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        kiln_batch *b = check_begin();
        kiln_tensor y = kiln_slice(b, counted(b, DIMS(5)), &cuts[i][0], &cuts[i][1], &cuts[i][2]);
        expect_shape(b, y, DIMS(1));
        expect_elements(b, y, 1, (int32_t[]){(int32_t)cuts[i][3]});
    }
    check_close();
}

Test(ops_movement, shapes_are_checked)
{
    kiln_batch *b = check_begin();
    kiln_transpose(b, counted(b, DIMS(2, 3)), (size_t[]){0, 0});
    cr_expect_eq(kiln_batch_status(b), KILN_INVALID_ARGUMENT);
    check_end(b);
    b = check_begin();
    kiln_transpose(b, counted(b, DIMS(3)), NULL);
    cr_expect_eq(kiln_batch_status(b), KILN_INVALID_ARGUMENT);
    check_end(b);
    b = check_begin();
    kiln_reshape(b, counted(b, DIMS(2, 3)), DIMS(7));
    cr_expect_eq(kiln_batch_status(b), KILN_SHAPE_MISMATCH);
    check_end(b);
    b = check_begin();
    kiln_broadcast(b, counted(b, DIMS(2, 3)), DIMS(3, 3));
    cr_expect_eq(kiln_batch_status(b), KILN_SHAPE_MISMATCH);
    check_end(b);
    b = check_begin();
    kiln_broadcast(b, counted(b, DIMS(2, 3)), DIMS(3)); /* never smaller */
    cr_expect_eq(kiln_batch_status(b), KILN_SHAPE_MISMATCH);
    check_end(b);
    check_close();
}
