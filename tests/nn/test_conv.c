/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions of one to three dimensions, and transposed ones, in both layouts: PyTorch's answers
 * in whole numbers, as shapes and weighted sums; derivatives; what is refused. Most of it is
 * computed by the reference, without a device. */
#include <criterion/criterion.h>
#include <kiln/convolution.h>
#include <kiln/movement.h>
#include <stdlib.h>
#include <string.h>

#include "../support/gradient.h"

static const struct known {
    uint32_t n;
    size_t x[5], window[3], out, groups;
    size_t stride[3], dilation[3], before[3], after[3], more[3];
    size_t y[5];
    double sum; /* of element i times i * 3 % 17 + 1 */
} convolutions[] =
    {
        /* clang-format off */
    {1, {2, 3, 9}, {3}, 4, 1, {1}, {1}, {1}, {1}, {0}, {2, 4, 9}, 1845},
    {1, {2, 4, 11}, {4}, 6, 2, {3}, {2}, {2}, {0}, {0}, {2, 6, 3}, -560},
    {2, {1, 3, 7, 6}, {3, 3}, 5, 1, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {0}, {1, 5, 7, 6}, 1231},
    {2, {2, 4, 6, 5}, {3, 2}, 8, 4, {2, 1}, {1, 2}, {1, 0}, {1, 1}, {0}, {2, 8, 3, 4}, -2097},
    {2, {1, 6, 5, 7}, {3, 3}, 6, 6, {1, 2}, {1, 1}, {1, 1}, {1, 1}, {0}, {1, 6, 5, 4}, -152},
    {2, {2, 6, 5, 7}, {1, 1}, 4, 1, {2, 1}, {1, 1}, {0, 0}, {0, 0}, {0}, {2, 4, 3, 7}, -1920},
    {3, {1, 2, 4, 5, 6}, {2, 3, 3}, 3, 1, {1, 2, 1}, {1, 1, 2}, {0, 1, 1}, {1, 1, 2}, {0}, {1, 3, 4, 3, 5}, 907},
    {3, {1, 4, 4, 3, 5}, {2, 2, 3}, 6, 2, {1, 1, 2}, {1, 1, 1}, {1, 0, 1}, {0, 0, 1}, {0}, {1, 6, 4, 2, 3}, 2796},
    {3, {2, 3, 3, 4, 4}, {2, 2, 2}, 3, 3, {1, 1, 1}, {1, 1, 1}, {0, 1, 0}, {0, 1, 0}, {0}, {2, 3, 2, 5, 3}, -799},
        /* clang-format on */
},
  transposed[] = {
      /* clang-format off */
    {1, {2, 3, 5}, {4}, 4, 1, {2}, {1}, {1}, {1}, {0}, {2, 4, 10}, 336},
    {1, {1, 4, 5}, {3}, 6, 2, {3}, {2}, {1}, {1}, {1}, {1, 6, 16}, 571},
    {2, {1, 3, 4, 5}, {2, 2}, 5, 1, {2, 2}, {1, 1}, {0, 0}, {0, 0}, {0, 0}, {1, 5, 8, 10}, -677},
    {2, {2, 4, 4, 3}, {3, 4}, 6, 2, {2, 3}, {1, 1}, {1, 0}, {1, 0}, {1, 2}, {2, 6, 8, 12}, 2909},
    {2, {1, 3, 3, 4}, {3, 3}, 3, 3, {2, 1}, {1, 1}, {1, 2}, {1, 2}, {1, 0}, {1, 3, 6, 2}, 645},
    {2, {1, 3, 3, 4}, {3, 2}, 6, 3, {1, 2}, {2, 3}, {1, 1}, {1, 1}, {1, 2}, {1, 6, 6, 10}, 8},
    {2, {1, 3, 6, 7}, {3, 3}, 4, 1, {1, 1}, {1, 1}, {3, 1}, {3, 1}, {0, 0}, {1, 4, 2, 7}, 362},
    {3, {1, 2, 3, 2, 3}, {2, 3, 2}, 3, 1, {2, 1, 2}, {1, 1, 1}, {0, 1, 0}, {0, 1, 0}, {1, 0, 0}, {1, 3, 7, 2, 6}, 114},
    {3, {1, 4, 2, 2, 3}, {2, 2, 3}, 4, 2, {1, 2, 2}, {1, 1, 1}, {0, 0, 1}, {0, 0, 1}, {0, 1, 1}, {1, 4, 3, 5, 6}, 203},
    {2, {1, 2, 2, 2}, {1, 1}, 2, 1, {3, 2}, {1, 1}, {0, 0}, {0, 0}, {2, 1}, {1, 2, 6, 4}, 9},
      /* clang-format on */
};
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* (i * factor + first) % period, around 0. */
static kiln_tensor generated(kiln_batch *b, size_t rank, const size_t *dims, unsigned factor,
                             unsigned first, unsigned period)
{
    size_t count = 1;
    for (size_t d = 0; d < rank; d++)
        count *= dims[d];
    float *data = malloc((count + 1) * sizeof *data);
    cr_assert(data);
    for (size_t i = 0; i < count; i++)
        data[i] = (float)((i * factor + first) % period) - (float)(period / 2);
    kiln_tensor x = check_given(b, KILN_F32, rank, dims, data);
    free(data);
    return x;
}

static kiln_conv_options options_of(const struct known *k, kiln_layout layout)
{
    kiln_conv_options options = KILN_CONV_OPTIONS_INIT;
    options.layout = layout;
    options.groups = k->groups;
    memcpy(options.stride, k->stride, sizeof k->stride);
    memcpy(options.dilation, k->dilation, sizeof k->dilation);
    memcpy(options.before, k->before, sizeof k->before);
    memcpy(options.after, k->after, sizeof k->after);
    memcpy(options.output_padding, k->more, sizeof k->more);
    return options;
}

static void weights_dims(const struct known *k, bool is_transposed, size_t *dims)
{
    dims[0] = is_transposed ? k->x[1] : k->out;
    dims[1] = is_transposed ? k->out / k->groups : k->x[1] / k->groups;
    memcpy(dims + 2, k->window, sizeof k->window);
}

/* x or weights with channels first to channels last, and a result back. */
static kiln_tensor to_last(kiln_batch *b, kiln_tensor x, uint32_t n, bool weights)
{
    size_t order[5] = {0};
    for (uint32_t i = 0; i < n; i++)
        order[!weights + i] = 2 + i;
    if (weights)
        order[n] = 1;
    order[n + 1] = !weights;
    return kiln_transpose(b, x, order);
}

static kiln_tensor to_first(kiln_batch *b, kiln_tensor y, uint32_t n)
{
    size_t order[5] = {0, n + 1, 1, 2, 3};
    return kiln_transpose(b, y, order);
}

/* The result with channels first, computed in either layout. */
static kiln_tensor record(kiln_batch *b, const struct known *k, bool is_transposed,
                          kiln_layout layout, kiln_tensor *inputs)
{
    size_t dims[5];
    bool last = layout == KILN_CHANNELS_LAST;
    kiln_conv_options options = options_of(k, layout);
    weights_dims(k, is_transposed, dims);
    inputs[0] = generated(b, k->n + 2, k->x, 7, 3, 11);
    inputs[1] = generated(b, k->n + 2, dims, 5, 1, 7);
    kiln_tensor x = last ? to_last(b, inputs[0], k->n, false) : inputs[0];
    kiln_tensor w = last ? to_last(b, inputs[1], k->n, true) : inputs[1];
    kiln_tensor y =
        is_transposed ? kiln_conv_transposed(b, x, w, &options) : kiln_conv(b, x, w, &options);
    return last ? to_first(b, y, k->n) : y;
}

static void expect_known(const struct known *k, bool is_transposed, kiln_layout layout)
{
    size_t rank, dims[KILN_MAX_RANK];
    kiln_tensor inputs[2];
    kiln_batch *b = check_begin();
    kiln_tensor y = record(b, k, is_transposed, layout, inputs);
    cr_assert(!kiln_batch_status(b), "%s", kiln_batch_error(b));
    expect_ok(kiln_tensor_shape(b, y, NULL, &rank, dims));
    cr_assert_eq(rank, k->n + 2);
    for (size_t d = 0; d < rank; d++)
        cr_assert_eq(dims[d], k->y[d], "dimension %zu is %zu, not %zu", d, dims[d], k->y[d]);
    double sum = check_sum(b, y);
    cr_expect_eq(sum, k->sum, "the sum is %g, not %g", sum, k->sum);
    check_end(b);
}

Test(conv, of_every_kind)
{
    for (size_t i = 0; i < COUNT(convolutions); i++) {
        expect_known(&convolutions[i], false, KILN_CHANNELS_FIRST);
        expect_known(&convolutions[i], false, KILN_CHANNELS_LAST);
    }
    check_close();
}

Test(conv, transposed_of_every_kind)
{
    for (size_t i = 0; i < COUNT(transposed); i++) {
        expect_known(&transposed[i], true, KILN_CHANNELS_FIRST);
        expect_known(&transposed[i], true, KILN_CHANNELS_LAST);
    }
    check_close();
}

/* ---- on the device ---- */

static void expect_alike(const struct known *k, bool is_transposed)
{
    kiln_tensor inputs[2];
    kiln_batch *b = check_begin();
    check_read(b, record(b, k, is_transposed, KILN_CHANNELS_FIRST, inputs));
    check_run(b);
    check_end(b);
}

Test(conv, runs)
{
    expect_alike(&convolutions[1], false);
    expect_alike(&convolutions[3], false);
    expect_alike(&convolutions[6], false);
    check_close();
}

Test(conv, transposed_runs)
{
    expect_alike(&transposed[2], true);
    expect_alike(&transposed[4], true);
    check_close();
}

/* ---- what it costs ---- */

/* Between convolutions with channels first nothing is turned. */
Test(conv, chains_keep_their_layout)
{
    size_t count[2];
    for (int last = 0; last < 2; last++) {
        kiln_conv_options options = KILN_CONV_OPTIONS_INIT;
        kiln_batch *b = check_begin();
        kiln_tensor x = check_plain(b, DIMS(1, 8, 8, 8));
        options.layout = last ? KILN_CHANNELS_LAST : KILN_CHANNELS_FIRST;
        for (int i = 0; i < 3; i++) {
            kiln_tensor w =
                last ? check_plain(b, DIMS(3, 3, 8, 8)) : check_plain(b, DIMS(8, 8, 3, 3));
            x = kiln_relu(b, kiln_conv(b, x, w, &options));
        }
        check_read(b, x);
        count[last] = cost_of(b).launches;
        check_end(b);
    }
    /* x, the result, and each of the weights once */
    cr_expect_gt(count[1], 0);
    cr_expect_leq(count[0], count[1] + 5, "%zu launches, and %zu with channels last", count[0],
                  count[1]);
    check_close();
}

/* ---- derivatives ---- */

static void expect_derivatives(const struct known *k, bool is_transposed)
{
    kiln_tensor inputs[2];
    kiln_batch *b = check_begin();
    kiln_tensor y = record(b, k, is_transposed, KILN_CHANNELS_FIRST, inputs);
    expect_gradient(b, y, 2, inputs);
}

Test(conv, has_derivatives)
{
    expect_derivatives(&convolutions[1], false);
    expect_derivatives(&convolutions[3], false);
    check_close();
}

Test(conv, transposed_has_derivatives)
{
    expect_derivatives(&transposed[1], true);
    expect_derivatives(&transposed[2], true);
    expect_derivatives(&transposed[4], true);
    check_close();
}

/* ---- errors ---- */

#define X(...) check_input(b, KILN_F32, DIMS(__VA_ARGS__), CHECK_FEW)

Test(conv, operands_are_checked)
{
    kiln_conv_options none = {0}, first = KILN_CONV_OPTIONS_INIT, layout = first, more, huge, cut,
                      wide;
    first.layout = KILN_CHANNELS_FIRST;
    layout.layout = (kiln_layout)2;
    more = huge = cut = wide = first;
    wide.before[0] = SIZE_MAX / 2;
    more.output_padding[0] = 1;
    huge.stride[1] = SIZE_MAX / 2;
    cut.before[0] = cut.after[0] = 3;
    CHECK_REFUSED(kiln_conv(b, X(5, 5), X(3, 3), NULL), KILN_SHAPE_MISMATCH,
                  "kiln_conv: operand x of shape [5,5] has not 3 to 5 dimensions");
    CHECK_REFUSED(kiln_conv(b, X(1, 5, 2), X(3, 2), NULL), KILN_SHAPE_MISMATCH,
                  "operand w of shape [3,2] has not 3 dimensions");
    CHECK_REFUSED(kiln_conv(b, X(1, 5, 2), X(3, 2, 2), &none), KILN_INVALID_ARGUMENT,
                  "KILN_CONV_OPTIONS_INIT");
    CHECK_REFUSED(kiln_conv(b, X(1, 5, 2), X(3, 2, 2), &layout), KILN_INVALID_ARGUMENT,
                  "2 is no layout");
    CHECK_REFUSED(kiln_conv(b, X(1, 2, 5), X(3, 3, 3), &first), KILN_SHAPE_MISMATCH,
                  "x with 2 channels and w, which takes 3 and gives 3, do not fit in 1 groups");
    CHECK_REFUSED(kiln_conv(b, X(1, 2, 5), X(3, 2, 6), &first), KILN_INVALID_ARGUMENT,
                  "no window of 6, its elements 1 apart, fits [1,2,5] padded by 0 before");
    CHECK_REFUSED(kiln_conv(b, X(1, 3, 8, 5), X(2, 3, 3, 7), &first), KILN_INVALID_ARGUMENT,
                  "no window of 3 by 7, its elements 1 by 1 apart, fits [1,3,8,5] padded by");
    CHECK_REFUSED(kiln_conv(b, X(1, 2, 5), X(3, 2, 3), &wide), KILN_TOO_LARGE,
                  "shape [1,2,5] is padded to too many elements");
    CHECK_REFUSED(kiln_conv_transposed(b, X(1, 2, 5), X(3, 2, 3), &first), KILN_SHAPE_MISMATCH,
                  "kiln_conv_transposed: x with 2 channels and w, which takes 3 and gives 2");
    CHECK_REFUSED(kiln_conv_transposed(b, X(1, 2, 5), X(2, 2, 3), &more), KILN_INVALID_ARGUMENT,
                  "the output padding must be below");
    CHECK_REFUSED(kiln_conv_transposed(b, X(1, 2, 5, 5), X(2, 2, 3, 3), &huge), KILN_TOO_LARGE,
                  "too many elements");
    CHECK_REFUSED(
        kiln_conv_transposed(b, X(1, 2, 3), X(2, 2, 3), &cut), KILN_INVALID_ARGUMENT,
        "spatial dimension 0 of [1,2,3] with a window of 3, stride 1, dilation 1, padding "
        "3 and 3: nothing is left");
    CHECK_REFUSED(kiln_conv_transposed(b, X(1, 2, 0), X(2, 2, 3), &first), KILN_INVALID_ARGUMENT,
                  "there are no windows");
    check_close();
}
