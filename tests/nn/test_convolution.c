/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions and pools: answers from the examples of ONNX' operators Conv, MaxPool and
 * AveragePool, then shapes and options of all kinds against the sums written out, in whole numbers
 * so that they are exact. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/gradient.h>

#include "../support/check.h"
#include "../support/gradient.h"
#include "record/batch.h"

/* ---- known answers ---- */

/* One image of one channel, counted from `first` on. */
static kiln_tensor counted(kiln_batch *b, size_t h, size_t w, float first)
{
    float data[64];
    for (size_t i = 0; i < h * w; i++)
        data[i] = first + (float)i;
    return check_given(b, KILN_F32, DIMS(1, h, w, 1), data);
}

static kiln_tensor ones(kiln_batch *b)
{
    float data[] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    return check_given(b, KILN_F32, DIMS(3, 3, 1, 1), data);
}

static void expect_image(kiln_batch *b, kiln_tensor y, size_t h, size_t w, const float *wanted)
{
    size_t rank, dims[KILN_MAX_RANK];
    expect_ok(kiln_tensor_shape(b, y, NULL, &rank, dims));
    cr_assert(rank == 4 && dims[0] == 1 && dims[1] == h && dims[2] == w && dims[3] == 1);
    float *found = check_read(b, y);
    check_run(b);
    for (size_t i = 0; i < h * w; i++)
        cr_expect_float_eq(found[i], wanted[i], 1e-6 * wanted[i], "element %zu is %g, not %g", i,
                           (double)found[i], (double)wanted[i]);
    check_end(b);
}

static kiln_window_options padded(size_t before_h, size_t before_w, size_t after_h, size_t after_w,
                                  size_t stride)
{
    kiln_window_options options = KILN_WINDOW_OPTIONS_INIT;
    options.before[0] = before_h;
    options.before[1] = before_w;
    options.after[0] = after_h;
    options.after[1] = after_w;
    options.stride[0] = options.stride[1] = stride;
    return options;
}

Test(convolution, known_answers)
{
    kiln_batch *b = check_begin();
    expect_image(b, kiln_conv2d(b, counted(b, 5, 5, 0), ones(b), NULL), 3, 3,
                 (float[]){54, 63, 72, 99, 108, 117, 144, 153, 162});
    kiln_window_options options = padded(1, 1, 1, 1, 0);
    b = check_begin();
    expect_image(b, kiln_conv2d(b, counted(b, 5, 5, 0), ones(b), &options), 5, 5,
                 (float[]){12,  21, 27, 33,  24,  33,  54,  63, 72,  51,  63,  99, 108,
                           117, 81, 93, 144, 153, 162, 111, 72, 111, 117, 123, 84});
    options = padded(1, 1, 1, 1, 2);
    b = check_begin();
    expect_image(b, kiln_conv2d(b, counted(b, 7, 5, 0), ones(b), &options), 4, 3,
                 (float[]){12, 27, 24, 63, 108, 81, 123, 198, 141, 112, 177, 124});
    options = padded(0, 0, 0, 0, 2);
    b = check_begin();
    expect_image(b, kiln_conv2d(b, counted(b, 7, 5, 0), ones(b), &options), 3, 2,
                 (float[]){54, 72, 144, 162, 234, 252});
    options = padded(1, 0, 1, 0, 2);
    b = check_begin();
    expect_image(b, kiln_conv2d(b, counted(b, 7, 5, 0), ones(b), &options), 4, 2,
                 (float[]){21, 33, 99, 117, 189, 207, 171, 183});
    check_close();
}

Test(convolution, known_answers_of_pools)
{
    kiln_window_options options = padded(2, 2, 2, 2, 1), dilated = KILN_WINDOW_OPTIONS_INIT;
    kiln_batch *b = check_begin();
    expect_image(b, kiln_max_pool2d(b, counted(b, 5, 5, 1), (size_t[]){5, 5}, &options), 5, 5,
                 (float[]){13, 14, 15, 15, 15, 18, 19, 20, 20, 20, 23, 24, 25,
                           25, 25, 23, 24, 25, 25, 25, 23, 24, 25, 25, 25});
    b = check_begin();
    expect_image(b, kiln_max_pool2d(b, counted(b, 5, 5, 1), (size_t[]){2, 2}, NULL), 2, 2,
                 (float[]){7, 9, 17, 19});
    dilated.dilation[0] = dilated.dilation[1] = 2;
    dilated.stride[0] = dilated.stride[1] = 1;
    b = check_begin();
    expect_image(b, kiln_max_pool2d(b, counted(b, 4, 4, 1), (size_t[]){2, 2}, &dilated), 2, 2,
                 (float[]){11, 12, 15, 16});
    b = check_begin();
    expect_image(b, kiln_avg_pool2d(b, counted(b, 5, 5, 1), (size_t[]){2, 2}, NULL), 2, 2,
                 (float[]){4, 6, 14, 16});
    b = check_begin();
    expect_image(b, kiln_avg_pool2d(b, counted(b, 5, 5, 1), (size_t[]){5, 5}, &options), 5, 5,
                 (float[]){2.52f,  3.6f,  4.8f,  4.08f, 3.24f, 4.56f, 6.4f,  8.4f, 7.04f,
                           5.52f,  7.2f,  10.0f, 13.0f, 10.8f, 8.4f,  6.96f, 9.6f, 12.4f,
                           10.24f, 7.92f, 6.12f, 8.4f,  10.8f, 8.88f, 6.84f});
    check_close();
}

/* ---- every option ---- */

static const struct layer {
    size_t x[4], kh, kw, out;
    kiln_window_options options;
} layers[] = {
    /* clang-format off */
    {{2, 8, 7, 3}, 3, 3, 5, {0, {1, 1}, {1, 1}, {0, 0}, {0, 0}, 1}},
    {{2, 8, 7, 3}, 3, 3, 5, {0, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 1}},
    {{2, 9, 11, 3}, 3, 2, 4, {0, {2, 3}, {1, 1}, {1, 0}, {0, 2}, 1}},
    {{1, 12, 13, 2}, 3, 3, 4, {0, {1, 2}, {3, 2}, {2, 1}, {1, 2}, 1}},
    {{3, 5, 4, 6}, 1, 1, 7, {0, {1, 1}, {1, 1}, {0, 0}, {0, 0}, 1}},
    {{3, 5, 4, 6}, 1, 1, 7, {0, {2, 2}, {1, 1}, {0, 0}, {0, 0}, 1}},
    {{2, 5, 4, 3}, 5, 4, 2, {0, {1, 1}, {1, 1}, {0, 0}, {0, 0}, 1}},
    {{2, 1, 9, 1}, 1, 5, 1, {0, {1, 1}, {1, 1}, {0, 2}, {0, 2}, 1}},
    {{2, 6, 5, 4}, 3, 3, 6, {0, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 2}},
    {{2, 6, 5, 4}, 3, 3, 4, {0, {2, 1}, {1, 1}, {1, 1}, {1, 1}, 4}},
    {{2, 6, 5, 4}, 3, 3, 8, {0, {1, 1}, {1, 1}, {0, 0}, {0, 0}, 4}},
    {{0, 6, 5, 4}, 3, 3, 8, {0, {1, 1}, {1, 1}, {0, 0}, {0, 0}, 1}},
    {{2, 6, 5, 0}, 3, 3, 8, {0, {1, 1}, {1, 1}, {0, 0}, {0, 0}, 1}},
    {{1, 30, 30, 16}, 3, 3, 32, {0, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 1}},
    {{1, 6, 7, 24}, 5, 5, 70, {0, {1, 1}, {1, 1}, {1, 0}, {0, 0}, 1}}, /* deeper than a block */
    {{2, 7, 8, 40}, 3, 3, 33, {0, {1, 2}, {2, 1}, {1, 1}, {1, 1}, 1}},
    /* clang-format on */
};

/* Where element `u` of window `i` is, or -1 in the padding. */
static int64_t position(const struct layer *l, int d, size_t i, size_t u)
{
    int64_t at = (int64_t)(i * l->options.stride[d] + u * l->options.dilation[d]) -
                 (int64_t)l->options.before[d];
    return at < 0 || at >= (int64_t)l->x[1 + d] ? -1 : at;
}

static double convolved(const struct layer *l, const float *x, const float *w, size_t n, size_t i,
                        size_t j, size_t o)
{
    size_t in = l->x[3] / l->options.groups, group = o / (l->out / l->options.groups);
    double sum = 0;
    for (size_t u = 0; u < l->kh; u++) {
        for (size_t v = 0; v < l->kw; v++) {
            int64_t row = position(l, 0, i, u), column = position(l, 1, j, v);
            if (row < 0 || column < 0)
                continue;
            size_t place = (n * l->x[1] + (size_t)row) * l->x[2] + (size_t)column;
            for (size_t c = 0; c < in; c++)
                sum += (double)x[place * l->x[3] + group * in + c] *
                       (double)w[((u * l->kw + v) * in + c) * l->out + o];
        }
    }
    return sum;
}

static float *whole_numbers(size_t count)
{
    float *data = malloc((count + 1) * sizeof *data);
    cr_assert(data);
    for (size_t i = 0; i < count; i++)
        data[i] = (float)check_random(7) - 3;
    return data;
}

static void expect_layer(const struct layer *l)
{
    kiln_window_options options = l->options;
    options.size = sizeof options;
    size_t in = l->x[3] / options.groups, w_dims[] = {l->kh, l->kw, in, l->out}, rank, y[8];
    float *x = whole_numbers(l->x[0] * l->x[1] * l->x[2] * l->x[3]);
    float *w = whole_numbers(l->kh * l->kw * in * l->out);
    kiln_batch *b = check_begin();
    kiln_tensor result = kiln_conv2d(b, check_given(b, KILN_F32, 4, l->x, x),
                                     check_given(b, KILN_F32, 4, w_dims, w), &options);
    expect_ok(kiln_tensor_shape(b, result, NULL, &rank, y));
    const float *found = check_read(b, result);
    check_run(b);
    for (size_t n = 0; n < y[0]; n++)
        for (size_t i = 0; i < y[1]; i++)
            for (size_t j = 0; j < y[2]; j++)
                for (size_t o = 0; o < y[3]; o++)
                    cr_assert_eq((double)*found++, convolved(l, x, w, n, i, j, o),
                                 "layer %zu at %zu,%zu,%zu,%zu", (size_t)(l - layers), n, i, j, o);
    check_end(b);
    free(x);
    free(w);
}

Test(convolution, of_every_shape)
{
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        expect_layer(&layers[i]);
    check_close();
}

/* ---- pools ---- */

static void expect_pools(const struct layer *l)
{
    kiln_window_options options = l->options;
    options.size = sizeof options;
    size_t rank, y[8], window[2] = {l->kh, l->kw}, channels = l->x[3];
    float *x = whole_numbers(l->x[0] * l->x[1] * l->x[2] * channels);
    kiln_batch *b = check_begin();
    kiln_tensor image = check_given(b, KILN_F32, 4, l->x, x);
    kiln_tensor largest = kiln_max_pool2d(b, image, window, &options);
    expect_ok(kiln_tensor_shape(b, largest, NULL, &rank, y));
    const float *max = check_read(b, largest);
    const float *mean = check_read(b, kiln_avg_pool2d(b, image, window, &options));
    check_run(b);
    for (size_t e = 0; e < y[0] * y[1] * y[2] * y[3]; e++) {
        size_t c = e % y[3], j = e / y[3] % y[2], i = e / y[3] / y[2] % y[1];
        size_t n = e / y[3] / y[2] / y[1];
        double wanted = -INFINITY, sum = 0;
        for (size_t u = 0; u < l->kh * l->kw; u++) {
            int64_t row = position(l, 0, i, u / l->kw), column = position(l, 1, j, u % l->kw);
            if (row < 0 || column < 0)
                continue;
            size_t place = (n * l->x[1] + (size_t)row) * l->x[2] + (size_t)column;
            wanted = fmax(wanted, (double)x[place * channels + c]);
            sum += (double)x[place * channels + c];
        }
        cr_assert_eq((double)max[e], wanted, "max %zu", e);
        cr_assert_float_eq((double)mean[e], sum / (double)(l->kh * l->kw), 1e-6, "mean %zu", e);
    }
    check_end(b);
    free(x);
}

Test(convolution, slow_pools_of_every_shape)
{
    for (size_t i = 0; i < 8; i++)
        expect_pools(&layers[i]);
    check_close();
}

Test(convolution, a_pool_shows_nan)
{
    float x[16] = {1, 2, 3, 4, 5, NAN, 7, 8, 9, 10, 11, 12, 13, 14, 15, INFINITY};
    kiln_batch *b = check_begin();
    const float *y = check_read(b, kiln_max_pool2d(b, check_given(b, KILN_F32, DIMS(1, 4, 4, 1), x),
                                                   (size_t[]){2, 2}, NULL));
    check_run(b);
    cr_expect(isnan(y[0]) && y[1] == 8 && y[2] == 14 && isinf(y[3]));
    check_end(b);
    check_close();
}

/* ---- one kernel ---- */

/* Bias and activation run in the product's kernel, after the one that makes its rows. */
Test(convolution, takes_what_follows)
{
    kiln_window_options options = padded(1, 1, 1, 1, 1);
    kiln_batch *b = check_begin();
    kiln_tensor x = check_input(b, KILN_F32, DIMS(2, 8, 8, 4), CHECK_PLAIN);
    kiln_tensor w = check_input(b, KILN_F32, DIMS(3, 3, 4, 8), CHECK_PLAIN);
    kiln_tensor bias = check_input(b, KILN_F32, DIMS(8), CHECK_PLAIN);
    check_read(b, kiln_relu(b, kiln_add(b, kiln_conv2d(b, x, w, &options), bias)));
    check_run(b);
    char *text;
    expect_ok(kiln_batch_explain(b, &text));
    cr_expect(strstr(text, " = relu v"));
    cr_expect(!strstr(text, "a matrix product"), "the product is in memory");
    kiln_free(text);
    check_end(b);
    check_close();
}

/* ---- errors ---- */

static void expect_refusal(kiln_batch *b, kiln_status status, const char *part)
{
    cr_expect_eq(kiln_batch_status(b), status);
    cr_expect(strstr(without_call(kiln_batch_error(b)), part), "%s", kiln_batch_error(b));
    check_end(b);
}

Test(convolution, operands_are_checked)
{
    kiln_window_options none = {0}, groups = KILN_WINDOW_OPTIONS_INIT, huge = groups, most = groups;
    groups.groups = 2;
    huge.before[1] = SIZE_MAX;
    most.before[1] = SIZE_MAX / 4;
    const size_t window[] = {2, 2}, large[] = {3, 9}, zero[] = {2, 0};
#define IMAGE(...) check_input(b, KILN_F32, DIMS(__VA_ARGS__), CHECK_FEW)
#define EXPECT(call, status, part)                                                                 \
    do {                                                                                           \
        kiln_batch *b = check_begin();                                                             \
        kiln_tensor y = call;                                                                      \
        cr_expect_eq(y.id, 0u);                                                                    \
        expect_refusal(b, status, part);                                                           \
    } while (0)
    EXPECT(kiln_conv2d(b, IMAGE(5, 5, 2), IMAGE(3, 3, 2, 4), NULL), KILN_SHAPE_MISMATCH,
           "kiln_conv2d: operand x of shape [5,5,2] has not 4 dimensions");
    EXPECT(kiln_conv2d(b, IMAGE(1, 5, 5, 2), IMAGE(3, 2, 4), NULL), KILN_SHAPE_MISMATCH,
           "operand w");
    EXPECT(kiln_conv2d(b, IMAGE(1, 5, 5, 2), IMAGE(3, 3, 3, 4), NULL), KILN_SHAPE_MISMATCH,
           "do not fit");
    EXPECT(kiln_conv2d(b, IMAGE(1, 5, 5, 2), IMAGE(3, 3, 1, 3), &groups), KILN_SHAPE_MISMATCH,
           "in 2 groups");
    EXPECT(kiln_conv2d(b, IMAGE(1, 5, 5, 2), IMAGE(6, 3, 2, 4), NULL), KILN_INVALID_ARGUMENT,
           "no window of 6 by 3");
    EXPECT(kiln_conv2d(b, IMAGE(1, 5, 5, 2), IMAGE(3, 3, 2, 4), &none), KILN_INVALID_ARGUMENT,
           "KILN_WINDOW_OPTIONS_INIT");
    EXPECT(kiln_conv2d(b, IMAGE(1, 5, 5, 2), IMAGE(3, 3, 2, 4), &huge), KILN_TOO_LARGE,
           "kiln_conv2d: shape [1,5,5,2] is padded to too many elements");
    EXPECT(kiln_conv2d(b, IMAGE(1, 5, 5, 2), IMAGE(3, 3, 2, 4), &most), KILN_TOO_LARGE,
           "kiln_conv2d: kiln_pad: shape [1,5,5,2] is padded to too many elements");
    EXPECT(kiln_avg_pool2d(b, IMAGE(1, 5, 5, 2), window, &most), KILN_TOO_LARGE,
           "kiln_avg_pool2d: kiln_pad: shape [1,5,5,2] is padded to too many elements");
    EXPECT(kiln_conv2d(b, check_input(b, KILN_I32, DIMS(1, 5, 5, 2), CHECK_FEW), IMAGE(3, 3, 2, 4),
                       NULL),
           KILN_TYPE_MISMATCH, "operand x is i32");
    EXPECT(kiln_max_pool2d(b, IMAGE(1, 5, 5, 2), NULL, NULL), KILN_INVALID_ARGUMENT,
           "kiln_max_pool2d: window is NULL");
    EXPECT(kiln_max_pool2d(b, IMAGE(1, 5, 5, 2), large, NULL), KILN_INVALID_ARGUMENT,
           "no window of 3 by 9");
    EXPECT(kiln_avg_pool2d(b, IMAGE(1, 5, 5, 2), zero, NULL), KILN_INVALID_ARGUMENT,
           "kiln_avg_pool2d: no window of 2 by 0");
    EXPECT(kiln_avg_pool2d(b, IMAGE(1, 5, 5, 2), window, &groups), KILN_INVALID_ARGUMENT,
           "2 groups");
    check_close();
}

/* ---- derivatives ---- */

Test(convolution, has_derivatives)
{
    for (size_t i = 0; i < 11; i++) {
        const struct layer *l = &layers[i];
        kiln_window_options options = l->options;
        options.size = sizeof options;
        size_t w_dims[] = {l->kh, l->kw, l->x[3] / options.groups, l->out};
        kiln_batch *b = check_begin();
        kiln_tensor inputs[] = {check_input(b, KILN_F32, 4, l->x, CHECK_PLAIN),
                                check_input(b, KILN_F32, 4, w_dims, CHECK_PLAIN)};
        kiln_tensor y = kiln_conv2d(b, inputs[0], inputs[1], &options);
        check_gradient(b, y, 2, inputs, 1e-6, NULL);
        check_end(b);
    }
    check_close();
}

/* ---- by tiles of patches ---- */

/* A result and the gradients by the weights and, if asked for, by the image: their products read
 * the image as it lies. */
static void expect_all_by_tiles(const struct layer *l, bool by_image)
{
    kiln_window_options options = l->options;
    options.size = sizeof options;
    const size_t w_dims[] = {l->kh, l->kw, l->x[3], l->out};
    kiln_batch *b = check_begin();
    kiln_tensor x = check_input(b, KILN_F32, 4, l->x, CHECK_PLAIN);
    kiln_tensor inputs[] = {check_input(b, KILN_F32, 4, w_dims, CHECK_PLAIN), x}, gradients[2];
    kiln_tensor y = kiln_conv2d(b, x, inputs[0], &options);
    kiln_tensor loss = kiln_sum(b, kiln_mul(b, y, y), 0, NULL, 0);
    expect_ok(kiln_grad(b, loss, inputs, 1 + by_image, gradients));
    check_read(b, kiln_relu(b, y));
    check_read(b, gradients[0]);
    if (by_image)
        check_read(b, gradients[1]);
    check_run(b);
    cr_expect_eq(kiln_batch_status(b), KILN_OK);
    check_end(b);
}

/* In fours that are aligned, in fours that are not, and one by one; along the windows and across.
 */
Test(convolution, slow_by_tiles_of_patches)
{
    static const struct layer shapes[] = {
        {{2, 9, 9, 8}, 3, 3, 8, {0, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 1}},
        {{2, 7, 8, 12}, 3, 3, 33, {0, {1, 2}, {2, 1}, {1, 1}, {1, 1}, 1}},
        {{2, 11, 9, 3}, 5, 5, 10, {0, {2, 2}, {1, 1}, {2, 2}, {2, 2}, 1}},
        {{2, 9, 9, 8}, 1, 1, 8, {0, {2, 2}, {1, 1}, {0, 0}, {0, 0}, 1}},
    };
    setenv("POCL_EXTRA_BUILD_FLAGS", "-cl-opt-disable", 0);
    check_prefer("tiled_im2col", false);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        expect_all_by_tiles(&shapes[i], i % 3 == 0);
    check_close();
}

Test(convolution, pools_have_derivatives)
{
    for (size_t i = 0; i < 5; i++) {
        kiln_window_options options = layers[i].options;
        options.size = sizeof options;
        kiln_batch *b = check_begin();
        kiln_tensor x = check_input(b, KILN_F32, 4, layers[i].x, CHECK_PLAIN);
        size_t window[] = {layers[i].kh, layers[i].kw};
        kiln_tensor max = kiln_max_pool2d(b, x, window, &options);
        kiln_tensor mean = kiln_avg_pool2d(b, x, window, &options);
        check_gradient(b, kiln_add(b, max, mean), 1, &x, 1e-6, NULL);
        check_end(b);
    }
    check_close();
}
