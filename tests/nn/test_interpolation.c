/* SPDX-License-Identifier: Apache-2.0 */
/* lerp and slerp: answers from outside (mpmath, 30 digits), ends that are met exactly, and where
 * there is no arc. */
#include <criterion/criterion.h>
#include <kiln/interpolation.h>
#include <math.h>

#include "../support/check.h"

static void expect_near(float found, double wanted, double error, size_t i)
{
    bool same = isnan(wanted) ? isnan(found) : fabs((double)found - wanted) <= error;
    cr_expect(same, "element %zu is %.9g, not %.9g", i, (double)found, wanted);
}

static const float *interpolate(kiln_batch *batch, const float *a, const float *b, float weight)
{
    kiln_tensor t = kiln_constant(batch, KILN_F32, (double)weight);
    return check_read(batch, kiln_slerp(batch, check_given(batch, KILN_F32, DIMS(4), a),
                                        check_given(batch, KILN_F32, DIMS(4), b), t));
}

struct arc {
    float a[4], b[4], weight;
    double y[4];
};

static void expect_known(size_t count, const struct arc *known, double tolerance)
{
    const float *y[16];
    cr_assert_leq(count, sizeof y / sizeof *y);
    kiln_batch *batch = check_begin();
    for (size_t i = 0; i < count; i++)
        y[i] = interpolate(batch, known[i].a, known[i].b, known[i].weight);
    run_batch(batch);
    for (size_t i = 0; i < count; i++)
        for (size_t d = 0; d < 4; d++)
            expect_near(y[i][d], known[i].y[d], tolerance, i * 4 + d);
    check_end(batch);
}

Test(interpolation, along_known_arcs)
{
    static const struct arc known[] = {
        {{1, 0, 0, 0}, {0, 1, 0, 0}, 0.5f, {0.707106781187, 0.707106781187, 0, 0}},
        {{1, 0, 0, 0}, {0.6f, 0.8f, 0, 0}, 0.25f, {0.973248994261, 0.229752923125, 0, 0}},
        {{0.5f, 0.5f, 0.5f, 0.5f},
         {0.5f, -0.5f, 0.5f, 0.5f},
         0.75f,
         {0.557677535825, -0.258819045103, 0.557677535825, 0.557677535825}},
        {{1, 2, 3, 4},
         {-2, 0.5f, 1, 3},
         0.3125f,
         {0.0370733773326, 1.63692796586, 2.54221312719, 3.96842535892}},
        {{1, 0, 0, 0}, {-0.6f, 0.8f, 0, 0}, 1.5f, {-0.983869903702, -0.178885460058, 0, 0}},
        {{0.8f, 0.6f, 0, 0},
         {0.8f, 0.6f, 0.0078125f, 0},
         0.5f,
         {0.800006115227, 0.600004601321, 0.0039062798013, 0}},
        {{1, 0, 0, 0}, {0, 0, 0, 3}, -0.5f, {0.707106781187, 0, 0, -2.12132034356}},
    };
    expect_known(sizeof known / sizeof *known, known, 1e-6);
    check_close();
}

/* The chord instead: equal and opposite vectors, zero vectors. NaN stays NaN. */
Test(interpolation, without_an_arc)
{
    static const struct arc known[] = {
        {{0.6f, 0, 0.8f, 0}, {0.6f, 0, 0.8f, 0}, 0.3f, {0.6, 0, 0.8, 0}},
        {{1, 2, 0, 0}, {2, 4, 0, 0}, 0.5f, {1.5, 3, 0, 0}},
        {{1, 0, 0, 0}, {-1, 0, 0, 0}, 0.25f, {0.5, 0, 0, 0}},
        {{0, 0, 0, 0}, {0, 4, 0, 0}, 0.25f, {0, 1, 0, 0}},
        {{4, 0, 0, 0}, {0, 0, 0, 0}, 0.25f, {3, 0, 0, 0}},
        {{0, 0, 0, 0}, {0, 0, 0, 0}, 0.5f, {0, 0, 0, 0}},
        {{NAN, 0, 0, 1}, {0, 1, 0, 0}, 0.5f, {NAN, 0.5, 0, 0.5}},
    };
    expect_known(sizeof known / sizeof *known, known, 1e-7);
    check_close();
}

/* Rows of vectors, a weight for each, and several weights for all of them. */
Test(interpolation, of_many_vectors)
{
    kiln_batch *batch = check_begin();
    kiln_tensor a = check_input(batch, KILN_F32, DIMS(37, 5), CHECK_PLAIN);
    kiln_tensor b = check_input(batch, KILN_F32, DIMS(37, 5), CHECK_POSITIVE);
    kiln_tensor each = check_input(batch, KILN_F32, DIMS(37, 1), CHECK_POSITIVE);
    kiln_tensor some = check_input(batch, KILN_F32, DIMS(3, 1, 1), CHECK_POSITIVE);
    check_read(batch, kiln_slerp(batch, a, b, each));
    check_read(batch, kiln_slerp(batch, a, b, some));
    check_run(batch);
    check_end(batch);
    batch = check_begin();
    a = check_input(batch, KILN_F32, DIMS(3, 0), CHECK_PLAIN);
    check_read(batch, kiln_slerp(batch, a, a, kiln_constant(batch, KILN_F32, 0.5)));
    check_run(batch);
    check_end(batch);
    check_close();
}

Test(interpolation, ends_are_exact)
{
    kiln_batch *batch = check_begin();
    static const size_t n = 61;
    kiln_tensor a = check_input(batch, KILN_F32, DIMS(n), CHECK_WIDE);
    kiln_tensor b = check_input(batch, KILN_F32, DIMS(n), CHECK_PLAIN);
    kiln_tensor zero = kiln_constant(batch, KILN_F32, 0), one = kiln_constant(batch, KILN_F32, 1);
    const float *from = check_read(batch, kiln_neg(batch, kiln_neg(batch, a)));
    const float *to = check_read(batch, kiln_neg(batch, kiln_neg(batch, b)));
    const float *first = check_read(batch, kiln_lerp(batch, a, b, zero));
    const float *last = check_read(batch, kiln_lerp(batch, a, b, one));
    kiln_tensor c = check_input(batch, KILN_F32, DIMS(n), CHECK_PLAIN);
    const float *other = check_read(batch, kiln_neg(batch, kiln_neg(batch, c)));
    const float *start = check_read(batch, kiln_slerp(batch, c, b, zero));
    const float *stop = check_read(batch, kiln_slerp(batch, c, b, one));
    run_batch(batch);
    for (size_t i = 0; i < n; i++) {
        expect_near(first[i], (double)from[i], 0, i);
        expect_near(last[i], (double)to[i], 0, i);
        expect_near(start[i], (double)other[i], 0, i);
        expect_near(stop[i], (double)to[i], 0, i);
    }
    check_end(batch);
    check_close();
}

Test(interpolation, of_numbers)
{
    kiln_batch *batch = check_begin();
    kiln_tensor a = check_input(batch, KILN_F32, DIMS(17, 1), CHECK_PLAIN);
    kiln_tensor b = check_input(batch, KILN_F32, DIMS(23), CHECK_PLAIN);
    kiln_tensor weight = check_input(batch, KILN_F32, DIMS(17, 23), CHECK_PLAIN);
    check_read(batch, kiln_lerp(batch, a, b, weight));
    check_run(batch);
    check_end(batch);
    check_close();
}

Test(interpolation, refusals)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_input(b, KILN_F32, DIMS(3), CHECK_PLAIN);
    kiln_slerp(b, x, check_input(b, KILN_F32, DIMS(1, 3), CHECK_PLAIN), x);
    check_refusal(b, KILN_SHAPE_MISMATCH,
                  "kiln_slerp: a is [3] and b is [1,3]; they must be equal");
    b = check_begin();
    x = kiln_constant(b, KILN_F32, 1);
    kiln_slerp(b, x, x, x);
    check_refusal(b, KILN_INVALID_ARGUMENT, "kiln_slerp: a and b are scalars, not vectors");
    b = check_begin();
    x = check_input(b, KILN_F32, DIMS(3), CHECK_PLAIN);
    kiln_slerp(b, x, x, check_input(b, KILN_F32, DIMS(2), CHECK_PLAIN));
    cr_expect_eq(kiln_batch_status(b), KILN_SHAPE_MISMATCH);
    check_end(b);
    b = check_begin();
    x = check_input(b, KILN_F32, DIMS(3), CHECK_PLAIN);
    kiln_lerp(b, x, x, kiln_constant(b, KILN_I32, 1));
    check_refusal(b, KILN_TYPE_MISMATCH,
                  "kiln_lerp: operand weight is i32, and only floating types are taken; cast it");
    check_close();
}
