/* SPDX-License-Identifier: Apache-2.0 */
/* Resizing against ONNX' reference (PyTorch agrees where it has the mode), as weighted sums; pixels
 * from channels against PyTorch and ONNX; derivatives; what is refused. Most of it is computed by
 * the reference, without a device. */
#include <criterion/criterion.h>
#include <kiln/resize.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../support/gradient.h"
#include "../support/movement.h"

static const struct known {
    size_t x[4], y[4];
    kiln_resize_method method;
    kiln_coordinates coordinates;
    kiln_nearest nearest;
    double cubic;
    int exclude_outside, antialias;
    double scales[4], start[4], end[4], extrapolation;
    double sum; /* of element i times i * 3 % 17 + 1 */
} resized[] = {
    /* clang-format off */
    {{1, 2, 4, 5}, {1, 2, 8, 15}, KILN_RESIZE_NEAREST, KILN_ASYMMETRIC, KILN_NEAREST_FLOOR, -0.75, 0, 0, {0}, {0}, {0}, 0.0, 256},
    {{1, 2, 4, 5}, {1, 2, 8, 10}, KILN_RESIZE_NEAREST, KILN_HALF_PIXEL, KILN_NEAREST_PREFER_FLOOR, -0.75, 0, 0, {0}, {0}, {0}, 0.0, 64},
    {{1, 2, 4, 5}, {1, 2, 7, 3}, KILN_RESIZE_NEAREST, KILN_HALF_PIXEL, KILN_NEAREST_PREFER_CEIL, -0.75, 0, 0, {0}, {0}, {0}, 0.0, -3},
    {{1, 2, 4, 5}, {1, 2, 7, 8}, KILN_RESIZE_NEAREST, KILN_ALIGN_CORNERS, KILN_NEAREST_PREFER_FLOOR, -0.75, 0, 0, {0}, {0}, {0}, 0.0, 270},
    {{1, 2, 4, 5}, {1, 2, 2, 8}, KILN_RESIZE_NEAREST, KILN_ASYMMETRIC, KILN_NEAREST_CEIL, -0.75, 0, 0, {0}, {0}, {0}, 0.0, 206},
    {{1, 2, 4, 5}, {1, 2, 6, 3}, KILN_RESIZE_NEAREST, KILN_HALF_PIXEL, KILN_NEAREST_PREFER_FLOOR, -0.75, 0, 0, {1, 1, 1.7000000476837158, 0.6000000238418579}, {0}, {0}, 0.0, 108},
    {{1, 2, 4, 5}, {1, 2, 8, 10}, KILN_RESIZE_LINEAR, KILN_HALF_PIXEL, KILN_NEAREST_FLOOR, -0.75, 0, 0, {0}, {0}, {0}, 0.0, 41.75},
    {{1, 2, 4, 5}, {1, 2, 3, 9}, KILN_RESIZE_LINEAR, KILN_ALIGN_CORNERS, KILN_NEAREST_FLOOR, -0.75, 0, 0, {0}, {0}, {0}, 0.0, 41.5},
    {{1, 2, 4, 5}, {1, 2, 1, 7}, KILN_RESIZE_LINEAR, KILN_PYTORCH_HALF_PIXEL, KILN_NEAREST_FLOOR, -0.75, 0, 0, {0}, {0}, {0}, 0.0, 42.1428587},
    {{1, 2, 4, 5}, {1, 2, 2, 7}, KILN_RESIZE_LINEAR, KILN_HALF_PIXEL, KILN_NEAREST_FLOOR, -0.75, 0, 0, {1, 1, 0.6000000238418579, 1.5}, {0}, {0}, 0.0, 83.9444289},
    {{1, 2, 4, 5}, {1, 2, 2, 7}, KILN_RESIZE_LINEAR, KILN_HALF_PIXEL_SYMMETRIC, KILN_NEAREST_FLOOR, -0.75, 0, 0, {1, 1, 0.6000000238418579, 1.5}, {0}, {0}, 0.0, 50.6666726},
    {{1, 2, 4, 5}, {1, 2, 2, 3}, KILN_RESIZE_LINEAR, KILN_HALF_PIXEL, KILN_NEAREST_FLOOR, -0.75, 0, 1, {0}, {0}, {0}, 0.0, 2.70312499},
    {{1, 2, 4, 5}, {1, 2, 7, 9}, KILN_RESIZE_CUBIC, KILN_HALF_PIXEL, KILN_NEAREST_FLOOR, -0.75, 0, 0, {0}, {0}, {0}, 0.0, 120.549535},
    {{1, 2, 4, 5}, {1, 2, 7, 3}, KILN_RESIZE_CUBIC, KILN_ASYMMETRIC, KILN_NEAREST_FLOOR, -0.5, 1, 0, {0}, {0}, {0}, 0.0, -53.450664},
    {{1, 2, 4, 5}, {1, 2, 2, 2}, KILN_RESIZE_CUBIC, KILN_HALF_PIXEL, KILN_NEAREST_FLOOR, -0.75, 0, 1, {0}, {0}, {0}, 0.0, 8.27820443},
    {{1, 2, 4, 5}, {1, 2, 3, 4}, KILN_RESIZE_LINEAR, KILN_CROP_AND_RESIZE, KILN_NEAREST_FLOOR, -0.75, 0, 0, {0}, {0, 0, 0.4000000059604645, 0.6000000238418579}, {1, 1, 1.2000000476837158, 1.7000000476837158}, 10.0, 1479.39999},
    {{2, 9}, {2, 4}, KILN_RESIZE_LINEAR, KILN_HALF_PIXEL, KILN_NEAREST_FLOOR, -0.75, 1, 1, {0}, {0}, {0}, 0.0, 11.4557501},
    /* clang-format on */
};
#define COUNT(array) (sizeof(array) / sizeof *(array))

static size_t rank_of(const struct known *k)
{
    return k->x[2] ? 4 : 2;
}

static kiln_tensor record(kiln_batch *b, const struct known *k, kiln_tensor *x)
{
    kiln_resize_options options = KILN_RESIZE_OPTIONS_INIT;
    float data[64];
    for (int i = 0; i < 64; i++)
        data[i] = (float)((i * 7 + 3) % 11 - 5);
    options.method = k->method;
    options.coordinates = k->coordinates;
    options.nearest = k->nearest;
    options.cubic = k->cubic;
    options.exclude_outside = k->exclude_outside;
    options.antialias = k->antialias;
    options.scales = k->scales[0] > 0 ? k->scales : NULL;
    options.start = k->start;
    options.end = k->end;
    options.extrapolation = k->extrapolation;
    *x = check_given(b, KILN_F32, rank_of(k), k->x, data);
    return kiln_resize(b, *x, k->y, &options);
}

static void expect_known(const struct known *k)
{
    size_t rank, dims[KILN_MAX_RANK];
    kiln_batch *b = check_begin();
    kiln_tensor x, y = record(b, k, &x);
    cr_assert(!kiln_batch_status(b), "%s", kiln_batch_error(b));
    expect_ok(kiln_tensor_shape(b, y, NULL, &rank, dims));
    for (size_t d = 0; d < rank_of(k); d++)
        cr_assert_eq(dims[d], k->y[d]);
    double sum = check_sum(b, y);
    cr_expect_float_eq(sum, k->sum, 1e-3, "%zu: %.9g, not %.9g", (size_t)(k - resized), sum,
                       k->sum);
    check_end(b);
}

Test(resize, of_every_kind)
{
    for (size_t i = 0; i < COUNT(resized); i++)
        expect_known(&resized[i]);
    check_close();
}

Test(resize, runs)
{
    static const size_t some[] = {1, 5, 12, 15};
    kiln_tensor x;
    kiln_batch *b = check_begin();
    for (size_t i = 0; i < COUNT(some); i++)
        check_read(b, record(b, &resized[some[i]], &x));
    check_run(b);
    check_end(b);
    check_close();
}

Test(resize, has_derivatives)
{
    static const size_t some[] = {1, 5, 7, 13};
    for (size_t i = 0; i < COUNT(some); i++) {
        kiln_batch *b = check_begin();
        kiln_tensor x, y = record(b, &resized[some[i]], &x);
        expect_gradient(b, y, 1, &x);
    }
    check_close();
}

/* Tables outlive the call, and end with the batch. */
Test(resize, by_nothing_and_to_nothing)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = counted(b, DIMS(2, 3)), none = counted(b, DIMS(0, 3));
    cr_expect_eq(kiln_resize(b, x, (size_t[]){2, 3}, NULL).id, x.id);
    expect_shape(b, kiln_resize(b, x, (size_t[]){0, 3}, NULL), DIMS(0, 3));
    expect_shape(b, kiln_resize(b, none, (size_t[]){0, 7}, NULL), DIMS(0, 7));
    check_end(b);
    check_close();
}

/* ---- blocks ---- */

/* As numpy reshapes and transposes; PyTorch's pixel_shuffle() is the second. */
static const int32_t shuffled[2][48] = {
    {0, 12, 1, 13, 2, 14, 24, 36, 25, 37, 26, 38, 3, 15, 4,  16, 5,  17, 27, 39, 28, 40, 29, 41,
     6, 18, 7, 19, 8, 20, 30, 42, 31, 43, 32, 44, 9, 21, 10, 22, 11, 23, 33, 45, 34, 46, 35, 47},
    {0,  6,  1,  7,  2,  8,  12, 18, 13, 19, 14, 20, 3,  9,  4,  10,
     5,  11, 15, 21, 16, 22, 17, 23, 24, 30, 25, 31, 26, 32, 36, 42,
     37, 43, 38, 44, 27, 33, 28, 34, 29, 35, 39, 45, 40, 46, 41, 47},
};

static kiln_tensor turned(kiln_batch *b, kiln_tensor x, bool to_last)
{
    return kiln_transpose(b, x, to_last ? (size_t[]){0, 2, 3, 1} : (size_t[]){0, 3, 1, 2});
}

Test(resize, pixels_from_channels)
{
    static const kiln_block_order orders[] = {KILN_BLOCK_FIRST, KILN_CHANNEL_FIRST};
    for (int i = 0; i < 2; i++) {
        kiln_batch *b = check_begin();
        kiln_tensor x = counted(b, DIMS(1, 8, 2, 3));
        kiln_tensor y = kiln_depth_to_space(b, x, 2, orders[i], KILN_CHANNELS_FIRST);
        kiln_tensor z =
            kiln_depth_to_space(b, turned(b, x, true), 2, orders[i], KILN_CHANNELS_LAST);
        kiln_tensor back = kiln_space_to_depth(b, z, 2, orders[i], KILN_CHANNELS_LAST);
        back = kiln_sub(b, turned(b, back, false), x);
        back = kiln_sum(b, kiln_abs(b, back), 0, NULL, 0);
        kiln_tensor other = kiln_space_to_depth(b, y, 2, orders[i], KILN_CHANNELS_FIRST);
        kiln_tensor differ = kiln_sub(b, turned(b, z, false), y);
        expect_shape(b, y, DIMS(1, 2, 4, 6));
        double *found[] = {check_values(b, y), check_values(b, differ), check_values(b, back),
                           check_values(b, kiln_sub(b, other, x))};
        for (int e = 0; e < 48; e++) {
            cr_expect_eq(found[0][e], shuffled[i][e], "%d: element %d is %g", i, e, found[0][e]);
            cr_expect(found[1][e] == 0 && found[2][0] == 0 && found[3][e] == 0);
        }
        for (int k = 0; k < 4; k++)
            free(found[k]);
        check_end(b);
    }
    check_close();
}

/* ---- errors ---- */

Test(resize, operands_are_checked)
{
    kiln_resize_options none = {0}, linear = KILN_RESIZE_OPTIONS_INIT, crop = linear, bad = linear;
    const double scales[] = {0, 1};
    const size_t dims[] = {2, 2, 6, 6}, huge[] = {(size_t)1 << 40};
    linear.method = KILN_RESIZE_LINEAR;
    crop.coordinates = KILN_CROP_AND_RESIZE;
    bad.scales = scales;
    CHECK_REFUSED(kiln_resize(b, counted(b, DIMS(2)), dims, &none), KILN_INVALID_ARGUMENT,
                  "KILN_RESIZE_OPTIONS_INIT");
    CHECK_REFUSED(kiln_resize(b, counted(b, DIMS(2)), dims, &linear), KILN_TYPE_MISMATCH,
                  "operand x is i32");
    CHECK_REFUSED(kiln_resize(b, counted(b, DIMS(2)), dims, &crop), KILN_INVALID_ARGUMENT,
                  "start is NULL");
    CHECK_REFUSED(kiln_resize(b, counted(b, DIMS(2)), NULL, NULL), KILN_INVALID_ARGUMENT,
                  "dims is NULL");
    CHECK_REFUSED(kiln_resize(b, counted(b, DIMS(2, 3)), dims, &bad), KILN_INVALID_ARGUMENT,
                  "cannot become 2 elements by a scale of 0");
    CHECK_REFUSED(kiln_resize(b, counted(b, DIMS(0)), dims, NULL), KILN_INVALID_ARGUMENT,
                  "cannot become");
    CHECK_REFUSED(kiln_resize(b, counted(b, DIMS(3)), huge, NULL), KILN_TOO_LARGE, "cannot become");
    CHECK_REFUSED(kiln_depth_to_space(b, counted(b, DIMS(1, 6, 2, 2)), 2, KILN_BLOCK_FIRST,
                                      KILN_CHANNELS_FIRST),
                  KILN_SHAPE_MISMATCH, "shape [1,6,2,2] has no blocks of 2 by 2");
    CHECK_REFUSED(kiln_space_to_depth(b, counted(b, DIMS(1, 6, 2, 3)), 2, KILN_BLOCK_FIRST,
                                      KILN_CHANNELS_FIRST),
                  KILN_SHAPE_MISMATCH, "has no blocks");
    CHECK_REFUSED(
        kiln_space_to_depth(b, counted(b, DIMS(6, 2, 2)), 2, KILN_BLOCK_FIRST, KILN_CHANNELS_FIRST),
        KILN_SHAPE_MISMATCH, "has not 4 dimensions");
    check_close();
}
