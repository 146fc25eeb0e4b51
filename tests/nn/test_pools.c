/* SPDX-License-Identifier: Apache-2.0 */
/* Pools of one to three dimensions: PyTorch's answers, as shapes and weighted sums; other types,
 * derivatives. Most of it is computed by the reference, without a device. */
#include <criterion/criterion.h>
#include <kiln/convolution.h>
#include <kiln/movement.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../support/gradient.h"

static const struct known {
    uint32_t n;
    size_t x[5], window[3], stride[3], dilation[3], padding[3];
    int ceil;
    size_t y[5];
    double max, indices;  /* sums of element i times i * 3 % 17 + 1 */
    double left, counted; /* of averages, padding left out and counted; 0: PyTorch has none */
} pools[] = {
    /* clang-format off */
    {1, {2, 3, 9}, {3}, {2}, {1}, {1}, 0, {2, 3, 5}, 2656, 970, 210.5, 172.333333},
    {1, {2, 3, 10}, {3}, {2}, {1}, {0}, 1, {2, 3, 5}, 2985, 1244, 304, 304},
    {2, {1, 2, 7, 6}, {3, 2}, {2, 2}, {1, 1}, {1, 0}, 1, {1, 2, 4, 3}, 2703, 4554, 202.25, 181},
    {2, {1, 2, 7, 8}, {2, 3}, {2, 3}, {1, 1}, {1, 1}, 1, {1, 2, 4, 3}, 2525, 5962, 78.25, 80.1666667},
    {2, {2, 2, 5, 7}, {3, 3}, {1, 2}, {1, 1}, {1, 1}, 0, {2, 2, 5, 4}, 10249, 12289, 842.75, 634.333333},
    {2, {1, 2, 9, 8}, {2, 3}, {2, 1}, {2, 2}, {1, 1}, 0, {1, 2, 5, 6}, 6662, 18980, 0, 0},
    {3, {1, 2, 5, 5, 6}, {2, 3, 3}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}, 1, {1, 2, 3, 3, 4}, 9003, 42027, 1372.125, 519.222222},
    /* clang-format on */
};
#define COUNT(array) (sizeof(array) / sizeof *(array))

static kiln_tensor generated(kiln_batch *b, const struct known *k)
{
    size_t count = 1;
    for (size_t d = 0; d < k->n + 2; d++)
        count *= k->x[d];
    float *data = malloc(count * sizeof *data);
    cr_assert(data);
    for (size_t i = 0; i < count; i++)
        data[i] = ((float)((i * 7 + 3) % 11) - 5) * 3 + (float)(i % 3);
    kiln_tensor x = check_given(b, KILN_F32, k->n + 2, k->x, data);
    free(data);
    return x;
}

static kiln_pool_options options_of(const struct known *k)
{
    kiln_pool_options options = KILN_POOL_OPTIONS_INIT;
    options.layout = KILN_CHANNELS_FIRST;
    options.ceil = k->ceil;
    memcpy(options.stride, k->stride, sizeof k->stride);
    memcpy(options.dilation, k->dilation, sizeof k->dilation);
    memcpy(options.before, k->padding, sizeof k->padding);
    memcpy(options.after, k->padding, sizeof k->padding);
    return options;
}

static void expect_sum(kiln_batch *b, kiln_tensor y, const struct known *k, double wanted,
                       const char *what)
{
    size_t rank, dims[KILN_MAX_RANK], number = (size_t)(k - pools);
    cr_assert(!kiln_batch_status(b), "%s", kiln_batch_error(b));
    expect_ok(kiln_tensor_shape(b, y, NULL, &rank, dims));
    cr_assert_eq(rank, k->n + 2);
    for (size_t d = 0; d < rank; d++)
        cr_assert_eq(dims[d], k->y[d], "pool %zu: dimension %zu is %zu", number, d, dims[d]);
    double sum = check_sum(b, y);
    cr_expect_float_eq(sum, wanted, 1e-5 * fabs(wanted), "pool %zu: %s is %.9g, not %.9g", number,
                       what, sum, wanted);
}

Test(pools, of_every_kind)
{
    for (const struct known *k = pools; k < pools + COUNT(pools); k++) {
        kiln_pool_options options = options_of(k);
        kiln_batch *b = check_begin();
        kiln_tensor x = generated(b, k), indices;
        expect_sum(b, kiln_max_pool(b, x, k->window, &options, &indices), k, k->max, "max");
        expect_sum(b, indices, k, k->indices, "indices");
        if (k->left != 0) {
            expect_sum(b, kiln_avg_pool(b, x, k->window, &options), k, k->left, "left out");
            options.count_padding = 1;
            expect_sum(b, kiln_avg_pool(b, x, k->window, &options), k, k->counted, "counted");
        }
        check_end(b);
    }
    check_close();
}

Test(pools, run)
{
    const struct known *k = &pools[3];
    kiln_pool_options options = options_of(k);
    kiln_batch *b = check_begin();
    kiln_tensor x = generated(b, k), indices;
    check_read(b, kiln_max_pool(b, x, k->window, &options, &indices));
    check_read(b, indices);
    check_read(b, kiln_avg_pool(b, x, k->window, &options));
    check_run(b);
    check_end(b);
    check_close();
}

/* PyTorch's lp_pool1d(). */
Test(pools, by_powers)
{
    static const double two[] = {5.385164807134504,  3.1622776601683795, 4.0, 5.0,
                                 5.0990195135927845, 2.8284271247461903};
    static const double three[] = {5.117229946912048, 4.514357435474001, 4.514357435474001,
                                   5.117229946912048};
    float data[12];
    for (int i = 0; i < 12; i++)
        data[i] = (float)((i * 7 + 3) % 11 - 5);
    kiln_batch *b = check_begin();
    kiln_tensor x = check_given(b, KILN_F32, DIMS(1, 2, 6), data);
    kiln_pool_options options = KILN_POOL_OPTIONS_INIT;
    options.layout = KILN_CHANNELS_FIRST;
    double *y = check_values(b, kiln_lp_pool(b, x, (size_t[]){2}, 2, &options));
    for (int i = 0; i < 6; i++)
        cr_expect_float_eq(y[i], two[i], 1e-6, "%d", i);
    free(y);
    options.stride[0] = 2;
    y = check_values(b, kiln_lp_pool(b, x, (size_t[]){3}, 3, &options));
    for (int i = 0; i < 4; i++)
        cr_expect_float_eq(y[i], three[i], 1e-6, "%d", i);
    free(y);
    check_end(b);
    check_close();
}

/* Padding of integers is the least of their type. */
Test(pools, of_integers)
{
    static const int8_t data[] = {-100, -128, -90, -3};
    static const double wanted[] = {-100, -90, -3};
    kiln_pool_options options = KILN_POOL_OPTIONS_INIT;
    options.stride[0] = 2;
    options.before[0] = options.after[0] = 1;
    kiln_batch *b = check_begin();
    kiln_tensor x = check_given(b, KILN_I8, DIMS(1, 4, 1), data);
    kiln_tensor y = kiln_max_pool(b, x, (size_t[]){2}, &options, NULL);
    kiln_type type;
    expect_ok(kiln_tensor_shape(b, y, &type, NULL, NULL));
    cr_expect_eq(type, KILN_I8);
    double *found = check_values(b, y);
    for (int i = 0; i < 3; i++)
        cr_expect_eq(found[i], wanted[i], "%d is %g", i, found[i]);
    free(found);
    check_end(b);
    check_close();
}

Test(pools, have_derivatives)
{
    const struct known *k = &pools[2];
    kiln_pool_options options = options_of(k);
    kiln_batch *b = check_begin();
    kiln_tensor x = check_plain(b, k->n + 2, k->x), y = kiln_avg_pool(b, x, k->window, &options);
    y = kiln_add(b, y, kiln_max_pool(b, x, k->window, &options, NULL));
    y = kiln_add(b, y, kiln_lp_pool(b, x, k->window, 2, &options));
    expect_gradient(b, y, 1, &x);
    check_close();
}

/* Windows that touch but do not overlap: their gradients are moved, and nothing is added up. Of the
 * last two each second or third number belongs to a window, and rows and windows change places. */
Test(pools, side_by_side_have_derivatives)
{
    static const struct {
        size_t dims[4], window[2], stride, dilation;
    } cases[] = {{{2, 4, 6, 3}, {2, 2}, 2, 1},
                 {{1, 7, 9, 2}, {3, 3}, 3, 1},
                 {{2, 12, 1, 3}, {2, 1}, 6, 3},
                 {{1, 8, 6, 2}, {2, 2}, 1, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kiln_pool_options options = KILN_POOL_OPTIONS_INIT;
        for (int d = 0; d < 2; d++) {
            options.stride[d] = cases[i].stride;
            options.dilation[d] = cases[i].window[d] > 1 ? cases[i].dilation : 1;
        }
        kiln_batch *b = check_begin();
        kiln_tensor x = check_plain(b, 4, cases[i].dims);
        kiln_tensor y = kiln_max_pool(b, kiln_relu(b, x), cases[i].window, &options, NULL);
        y = kiln_add(b, y, kiln_avg_pool(b, x, cases[i].window, &options));
        expect_gradient(b, y, 1, &x);
    }
    check_close();
}

Test(pools, side_by_side_take_few_launches)
{
    kiln_pool_options options = KILN_POOL_OPTIONS_INIT;
    options.stride[0] = options.stride[1] = 2;
    kiln_batch *b = check_begin();
    kiln_tensor x = check_plain(b, DIMS(4, 8, 8, 16)), g;
    kiln_tensor y = kiln_max_pool(b, kiln_relu(b, x), (size_t[]){2, 2}, &options, NULL);
    kiln_tensor loss = kiln_sum(b, kiln_mul(b, y, y), 0, NULL, 0);
    expect_ok(kiln_grad(b, loss, &x, 1, &g));
    check_read(b, g);
    cr_expect_leq(cost_of(b).launches, 3, "%zu", (size_t)cost_of(b).launches);
    check_end(b);
    check_close();
}

#define X(...) check_input(b, KILN_F32, DIMS(__VA_ARGS__), CHECK_FEW)

Test(pools, operands_are_checked)
{
    kiln_pool_options none = {0};
    const size_t window[] = {3, 3, 3};
    CHECK_REFUSED(kiln_max_pool(b, X(1, 5, 1), window, &none, NULL), KILN_INVALID_ARGUMENT,
                  "kiln_max_pool: options->size is 0; start from KILN_POOL_OPTIONS_INIT");
    CHECK_REFUSED(kiln_max_pool(b, X(1, 5, 1), NULL, NULL, NULL), KILN_INVALID_ARGUMENT,
                  "window is NULL");
    CHECK_REFUSED(kiln_avg_pool(b, X(1, 2, 1), window, NULL), KILN_INVALID_ARGUMENT,
                  "no window of 3,");
    CHECK_REFUSED(
        kiln_avg_pool(b, check_input(b, KILN_I32, DIMS(1, 5, 1), CHECK_FEW), window, NULL),
        KILN_TYPE_MISMATCH, "operand x is i32");
    CHECK_REFUSED(kiln_lp_pool(b, X(1, 5, 1), window, 0, NULL), KILN_INVALID_ARGUMENT, "p is 0");
    check_close();
}
