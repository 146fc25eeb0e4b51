/* SPDX-License-Identifier: Apache-2.0 */
/* Running sums: answers from numpy.cumsum, then shapes of all kinds against the reference. */
#include <criterion/criterion.h>
#include <math.h>

#include <kiln/gradient.h>

#include "support/check.h"
#include "support/graph.h"

static void expect_floats(size_t n, const float *found, const float *wanted)
{
    for (size_t i = 0; i < n; i++)
        cr_expect(found[i] == wanted[i] || (isnan(found[i]) && isnan(wanted[i])),
                  "element %zu is %.9g, not %.9g", i, found[i], wanted[i]);
}

Test(cumsum, known_answers)
{
    static const float x[] = {1, 2, 3, 4, 5, 6}, odd[] = {1, INFINITY, -INFINITY, 2, NAN, 3};
    static const uint8_t bytes[] = {255, 255, 1};
    static const int32_t large[] = {INT32_MAX, 1, -5};
    static const float along_1[] = {1, 3, 6, 4, 9, 15}, along_0[] = {1, 2, 3, 5, 7, 9};
    static const float back_1[] = {6, 5, 3, 15, 11, 6}, back_0[] = {5, 7, 9, 4, 5, 6};
    static const float of_odd[] = {1, INFINITY, NAN, NAN, NAN, NAN};
    float y[5][6];
    int32_t sums[3], wrapped[3];
    kiln_batch *batch = check_begin();
    kiln_tensor a = check_given(batch, KILN_F32, DIMS(2, 3), x);
    kiln_tensor b = check_given(batch, KILN_F32, DIMS(6), odd);
    kiln_tensor c = check_given(batch, KILN_U8, DIMS(3), bytes);
    kiln_tensor d = check_given(batch, KILN_I32, DIMS(3), large);
    expect_ok(kiln_read(batch, kiln_cumsum(batch, a, 1, 0), y[0], 24));
    expect_ok(kiln_read(batch, kiln_cumsum(batch, a, 0, 0), y[1], 24));
    expect_ok(kiln_read(batch, kiln_cumsum(batch, a, -1, 1), y[2], 24));
    expect_ok(kiln_read(batch, kiln_cumsum(batch, a, -2, 1), y[3], 24));
    expect_ok(kiln_read(batch, kiln_cumsum(batch, b, 0, 0), y[4], 24));
    expect_ok(kiln_read(batch, kiln_cumsum(batch, c, 0, 0), sums, 12));
    expect_ok(kiln_read(batch, kiln_cumsum(batch, d, 0, 0), wrapped, 12));
    run_batch(batch);
    expect_floats(6, y[0], along_1);
    expect_floats(6, y[1], along_0);
    expect_floats(6, y[2], back_1);
    expect_floats(6, y[3], back_0);
    expect_floats(6, y[4], of_odd);
    cr_expect(sums[0] == 255 && sums[1] == 510 && sums[2] == 511);
    cr_expect(wrapped[1] == INT32_MIN && wrapped[2] == INT32_MAX - 4);
    check_end(batch);
    check_close();
}

static void check_shape(kiln_type type, size_t rank, const size_t *dims)
{
    kiln_batch *batch = check_begin();
    kiln_tensor x = check_input(batch, type, rank, dims, CHECK_PLAIN);
    for (int axis = 0; axis < (int)rank; axis++)
        for (int reverse = 0; reverse < 2; reverse++)
            check_read(batch, kiln_cumsum(batch, x, axis, reverse));
    check_run(batch);
    check_end(batch);
}

Test(cumsum, every_axis_of_every_type)
{
    for (unsigned type = KILN_F32; type <= KILN_U8; type++) {
        check_shape((kiln_type)type, DIMS(5, 6, 19));
        check_shape((kiln_type)type, DIMS(3, 1031));
    }
    check_close();
}

/* Shorter and longer than what a work-group takes at once, and nothing at all. */
Test(cumsum, lengths)
{
    static const size_t lengths[] = {1, 2, 63, 255, 256, 257, 1024, 1025, 5003};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        check_shape(KILN_F32, DIMS(3, lengths[i]));
    check_shape(KILN_F32, DIMS(100003));
    check_shape(KILN_F32, DIMS(0, 5));
    check_shape(KILN_F32, DIMS(5, 0));
    check_close();
}

/* What it reads is computed, turned or repeated; what follows uses it. */
Test(cumsum, among_other_operations)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_input(b, KILN_F32, DIMS(40, 33), CHECK_PLAIN);
    kiln_tensor v = check_input(b, KILN_F32, DIMS(33), CHECK_PLAIN);
    check_read(b, kiln_cumsum(b, kiln_transpose(b, x, NULL), 1, 0));
    check_read(b, kiln_relu(b, kiln_cumsum(b, kiln_mul(b, x, v), 0, 1)));
    check_read(b, kiln_cumsum(b, kiln_broadcast(b, v, DIMS(4, 33)), 0, 0));
    int64_t from[] = {2, 0}, to[] = {30, 33};
    check_read(b, kiln_cumsum(b, kiln_slice(b, x, from, to, NULL), 1, 0));
    kiln_tensor one = kiln_broadcast(b, kiln_constant(b, KILN_I32, 1), DIMS(70));
    check_read(b, kiln_cumsum(b, one, 0, 1));
    check_read(b, kiln_cumsum(b, kiln_iota(b, DIMS(70), 0), 0, 0));
    check_run(b);
    check_end(b);
    check_close();
}

/* Of sum(w * cumsum(x)): what x adds to is weighted by w from there on. */
Test(cumsum, derivative)
{
    static const float x[] = {1, 2, 3}, w[] = {5, 7, 11};
    static const float forward[] = {23, 18, 11}, backward[] = {5, 12, 23};
    for (int reverse = 0; reverse < 2; reverse++) {
        float found[3];
        kiln_batch *b = check_begin();
        kiln_tensor a = check_given(b, KILN_F32, DIMS(3), x), gradient;
        kiln_tensor weight = check_given(b, KILN_F32, DIMS(3), w);
        kiln_tensor sums = kiln_cumsum(b, a, 0, reverse);
        kiln_tensor loss = kiln_sum(b, kiln_mul(b, weight, sums), 0, NULL, 0);
        expect_ok(kiln_grad(b, loss, &a, 1, &gradient));
        expect_ok(kiln_read(b, gradient, found, sizeof found));
        run_batch(b);
        expect_floats(3, found, reverse ? backward : forward);
        check_end(b);
    }
    check_close();
}

Test(cumsum, refuses_an_axis_that_is_not_there)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 4, 8);
    cr_expect_eq(kiln_cumsum(batch, x, 2, 0).id, 0);
    cr_expect_str_eq(kiln_batch_error(batch),
                     "kiln_cumsum: axis 2 is not one of the dimensions of shape [4,8]");
    kiln_batch_release(batch);
    batch = imagined_batch();
    cr_expect_eq(kiln_cumsum(batch, kiln_constant(batch, KILN_F32, 1), 0, 0).id, 0);
    cr_expect_eq(kiln_batch_status(batch), KILN_INVALID_ARGUMENT);
    kiln_batch_release(batch);
    batch = imagined_batch();
    cr_expect_eq(kiln_cumsum(batch, (kiln_tensor){0}, 0, 0).id, 0);
    cr_expect_eq(kiln_batch_status(batch), KILN_INVALID_HANDLE);
    kiln_batch_release(batch);
}
