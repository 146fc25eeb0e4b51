/* SPDX-License-Identifier: Apache-2.0 */
/* The eager way against plain C. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/context.h"

enum { N = 1009 };

static float x[N], y[N], z[N];

static double plain_relu(double a)
{
    return a > 0 ? a : 0;
}
static double plain_sigmoid(double a)
{
    return 1 / (1 + exp(-a));
}
static double plain_swish(double a)
{
    return a / (1 + exp(-a));
}
static double plain_gelu(double a)
{
    return a * 0.5 * erfc(-a / sqrt(2));
}
static double plain_add(double a, double b)
{
    return a + b;
}
static double plain_sub(double a, double b)
{
    return a - b;
}
static double plain_mul(double a, double b)
{
    return a * b;
}
static double plain_div(double a, double b)
{
    return a / b;
}

/* Right to 16 units in the last place, infinities and NaN included. */
static void expect_near(const char *name, int i, float found, double wanted)
{
    if (isnan(wanted) || isinf(wanted)) {
        cr_assert(isnan(wanted) ? isnan(found) : found == wanted, "%s of element %d: %g, not %g",
                  name, i, found, wanted);
        return;
    }
    double bound = fmax(fabs(wanted), (double)FLT_MIN) * 16 / 8388608;
    cr_assert_leq(fabs(found - wanted), bound, "%s of element %d: %.9g, not %.9g", name, i, found,
                  wanted);
}

static void fill_both(void)
{
    fill(x, N, 1);
    fill(y, N, 2);
    for (int i = 0; i < N; i++)
        x[i] *= 0.37f;
}

typedef kiln_status unary(kiln_context *context, size_t n, const float *a, float *result);
typedef kiln_status binary(kiln_context *context, size_t n, const float *a, const float *b,
                           float *result);

static const struct {
    const char *name;
    unary *now;
    double (*plain)(double);
} unaries[] = {
    {"relu", kiln_now_relu, plain_relu},          {"tanh", kiln_now_tanh, tanh},
    {"sigmoid", kiln_now_sigmoid, plain_sigmoid}, {"swish", kiln_now_swish, plain_swish},
    {"gelu", kiln_now_gelu, plain_gelu},
};

static const struct {
    const char *name;
    binary *now;
    double (*plain)(double, double);
} binaries[] = {
    {"add", kiln_now_add, plain_add},
    {"sub", kiln_now_sub, plain_sub},
    {"mul", kiln_now_mul, plain_mul},
    {"div", kiln_now_div, plain_div},
};

Test(now, computes_functions_of_one_array)
{
    kiln_context *context = open_context();
    fill_both();
    for (size_t k = 0; k < sizeof unaries / sizeof *unaries; k++) {
        expect_ok(unaries[k].now(context, N, x, z));
        for (int i = 0; i < N; i++)
            expect_near(unaries[k].name, i, z[i], unaries[k].plain(x[i]));
        memcpy(z, x, sizeof z);
        expect_ok(unaries[k].now(context, N, z, z)); /* the same array */
        for (int i = 0; i < N; i++)
            expect_near(unaries[k].name, i, z[i], unaries[k].plain(x[i]));
    }
    close_context(context);
}

Test(now, computes_functions_of_two_arrays)
{
    kiln_context *context = open_context();
    fill_both();
    for (size_t k = 0; k < sizeof binaries / sizeof *binaries; k++) {
        expect_ok(binaries[k].now(context, N, x, y, z));
        for (int i = 0; i < N; i++)
            expect_near(binaries[k].name, i, z[i], binaries[k].plain(x[i], y[i]));
        memcpy(z, y, sizeof z);
        expect_ok(binaries[k].now(context, N, x, z, z));
        for (int i = 0; i < N; i++)
            expect_near(binaries[k].name, i, z[i], binaries[k].plain(x[i], y[i]));
    }
    close_context(context);
}

Test(now, scales)
{
    kiln_context *context = open_context();
    fill_both();
    expect_ok(kiln_now_scale(context, N, x, -2.5, z));
    for (int i = 0; i < N; i++)
        cr_assert_eq(z[i], x[i] * -2.5f);
    close_context(context);
}

Test(now, computes_inner_products)
{
    kiln_context *context = open_context();
    float dot = 5;
    double wanted = 0;
    fill(x, N, 3);
    fill(y, N, 4);
    for (int i = 0; i < N; i++)
        wanted += x[i] * y[i];
    expect_ok(kiln_now_dot(context, N, x, y, &dot));
    cr_expect_eq(dot, wanted);
    expect_ok(kiln_now_dot(context, 0, NULL, NULL, &dot));
    cr_expect_eq(dot, 0);
    close_context(context);
}

Test(now, multiplies_matrices)
{
    static const size_t sizes[][3] = {{1, 1, 1}, {3, 5, 7}, {20, 30, 40}};
    kiln_context *context = open_context();
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        const size_t *s = sizes[k]; /* m, n, k */
        float a[2000], b[2000], c[2000];
        fill(a, s[0] * s[2], 5);
        fill(b, s[2] * s[1], 6);
        expect_ok(kiln_now_matmul(context, s[0], s[1], s[2], a, b, c));
        for (size_t i = 0; i < s[0]; i++)
            for (size_t j = 0; j < s[1]; j++) {
                float wanted = 0;
                for (size_t q = 0; q < s[2]; q++)
                    wanted += a[i * s[2] + q] * b[q * s[1] + j];
                cr_assert_eq(c[i * s[1] + j], wanted, "%zu x %zu x %zu at %zu, %zu", s[0], s[1],
                             s[2], i, j);
            }
    }
    float c[6] = {1, 1, 1, 1, 1, 1};
    expect_ok(kiln_now_matmul(context, 2, 3, 0, NULL, NULL, c));
    cr_expect_arr_eq(c, ((float[6]){0}), sizeof c);
    expect_ok(kiln_now_matmul(context, 0, 3, 2, NULL, c, NULL));
    close_context(context);
}

Test(now, does_nothing_for_no_elements)
{
    kiln_context *context = open_context();
    for (size_t k = 0; k < sizeof unaries / sizeof *unaries; k++)
        expect_ok(unaries[k].now(context, 0, NULL, NULL));
    for (size_t k = 0; k < sizeof binaries / sizeof *binaries; k++)
        expect_ok(binaries[k].now(context, 0, NULL, NULL, NULL));
    expect_ok(kiln_now_scale(context, 0, NULL, 2, NULL));
    close_context(context);
}

static void expect_now_error(kiln_status status, const char *name, const char *rest)
{
    char sentence[100];
    snprintf(sentence, sizeof sentence, "kiln_now_%s: %s", name, rest);
    expect_error(status, KILN_INVALID_ARGUMENT, sentence);
}

Test(now, refuses_null)
{
    kiln_context *context = open_context();
    for (size_t k = 0; k < sizeof unaries / sizeof *unaries; k++) {
        unary *now = unaries[k].now;
        expect_now_error(now(NULL, N, x, z), unaries[k].name, "context is NULL");
        expect_now_error(now(context, N, NULL, z), unaries[k].name, "an array is NULL");
        expect_now_error(now(context, N, x, NULL), unaries[k].name, "an array is NULL");
    }
    for (size_t k = 0; k < sizeof binaries / sizeof *binaries; k++) {
        binary *now = binaries[k].now;
        expect_now_error(now(NULL, N, x, y, z), binaries[k].name, "context is NULL");
        expect_now_error(now(context, N, NULL, y, z), binaries[k].name, "an array is NULL");
        expect_now_error(now(context, N, x, NULL, z), binaries[k].name, "an array is NULL");
        expect_now_error(now(context, N, x, y, NULL), binaries[k].name, "an array is NULL");
    }
    expect_now_error(kiln_now_scale(NULL, N, x, 2, z), "scale", "context is NULL");
    expect_now_error(kiln_now_scale(context, N, x, 2, NULL), "scale", "an array is NULL");
    expect_now_error(kiln_now_dot(context, N, x, y, NULL), "dot", "an array is NULL");
    expect_now_error(kiln_now_matmul(context, 1, 1, 1, x, NULL, z), "matmul", "an array is NULL");
    expect_now_error(kiln_now_matmul(NULL, 1, 1, 1, x, y, z), "matmul", "context is NULL");
    close_context(context);
}

Test(now, says_what_is_too_large)
{
    kiln_context *context = open_context();
    kiln_status status = kiln_now_relu(context, SIZE_MAX / 8, x, z);
    expect_error_part(status, KILN_TOO_LARGE, "kiln_now_relu: kiln_upload: shape [");
    status = kiln_now_matmul(context, (size_t)1 << 33, (size_t)1 << 33, (size_t)1 << 33, x, y, z);
    expect_error_part(status, KILN_TOO_LARGE, "kiln_now_matmul: kiln_upload: shape [");
    close_context(context);
}
