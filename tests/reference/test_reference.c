/* SPDX-License-Identifier: Apache-2.0 */
/* What devices are checked against: the reference by answers from outside, and the bounds. No
 * device. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "../support/check.h"
#include "../support/graph.h"
#include "reference/bounds.h"

struct evaluated {
    struct kiln__graph graph;
    struct kiln__reference reference;
    struct kiln__bounds bounds;
};

static struct evaluated evaluate(kiln_batch *batch)
{
    struct evaluated result;
    const void *inputs[16];
    cr_assert_eq(kiln_batch_status(batch), KILN_OK, "%s", kiln_batch_error(batch));
    for (size_t i = 0; i < batch->bindings.inputs.count; i++)
        inputs[i] = batch->bindings.inputs.items[i].host;
    result.graph = graph_of(batch);
    cr_assert(kiln__reference_run(&result.graph, inputs, &result.reference));
    cr_assert(kiln__bounds_make(&result.graph, &result.reference, 0, &result.bounds));
    return result;
}

static void release(kiln_batch *batch, struct evaluated *evaluated)
{
    kiln__bounds_free(&evaluated->bounds);
    kiln__reference_free(&evaluated->reference);
    kiln__graph_free(&evaluated->graph);
    kiln_batch_release(batch);
}

/* The elements of one tensor, to 13 digits. */
static void expect_values(kiln_batch *batch, kiln_tensor tensor, size_t count, const double *wanted)
{
    ask(batch, tensor);
    struct evaluated evaluated = evaluate(batch);
    uint32_t node = evaluated.graph.requests.items[0].node;
    cr_assert_eq(kiln__node_count(&evaluated.graph.nodes.items[node]), count);
    for (size_t i = 0; i < count; i++) {
        kiln_type type = evaluated.graph.nodes.items[node].type;
        double found = kiln__value_number(type, evaluated.reference.values[node][i]);
        bool same = found == wanted[i] || (isnan(found) && isnan(wanted[i]));
        cr_expect(same || fabs(found - wanted[i]) <= 1e-13 * fabs(wanted[i]),
                  "element %zu is %.17g, not %.15g", i, found, wanted[i]);
    }
    release(batch, &evaluated);
}
#define EXPECT_VALUES(batch, tensor, ...)                                                          \
    expect_values(batch, tensor, sizeof((double[]){__VA_ARGS__}) / sizeof(double),                 \
                  (double[]){__VA_ARGS__})

/* ---- values ---- */

Test(reference, elementary_functions)
{
    static const float x[] = {-20, -5.5f, 0.25f, 4};
    static const struct {
        kiln_tensor (*record)(kiln_batch *, kiln_tensor);
        double answers[4];
    } rows[] = {
        {kiln_exp, {2.06115362243856e-9, 0.00408677143846407, 1.28402541668774, 54.5981500331442}},
        {kiln_sigmoid,
         {2.0611536181902e-9, 0.00407013771589613, 0.562176500885798, 0.982013790037908}},
        {kiln_swish,
         {-4.12230723638041e-8, -0.0223857574374287, 0.14054412522145, 3.92805516015163}},
        {kiln_tanh, {-1, -0.999966597156304, 0.244918662403709, 0.999329299739067}},
        {kiln_gelu,
         {-5.50724823721247e-88, -1.04442593562382e-7, 0.149676581420731, 3.99987331503267}},
        {kiln_log, {NAN, NAN, -1.38629436111989, 1.38629436111989}},
        {kiln_sqrt, {NAN, NAN, 0.5, 2}},
        {kiln_rsqrt, {NAN, NAN, 2, 0.5}},
        {kiln_relu, {0, 0, 0.25, 4}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kiln_batch *b = imagined_batch();
        kiln_tensor y = rows[i].record(b, kiln_upload(b, KILN_F32, DIMS(4), x));
        expect_values(b, y, 4, rows[i].answers);
    }
}

Test(reference, broadcasting)
{
    static const float x[] = {1, 2, 3}, y[] = {10, 20};
    kiln_batch *b = imagined_batch();
    kiln_tensor column = kiln_upload(b, KILN_F32, DIMS(2, 1), y);
    EXPECT_VALUES(b, kiln_sub(b, column, kiln_upload(b, KILN_F32, DIMS(3), x)), 9, 8, 7, 19, 18,
                  17);
}

Test(reference, integers_wrap_around)
{
    static const uint8_t bytes[] = {200, 3, 16};
    static const int32_t integers[] = {INT32_MAX, INT32_MIN, -7};
    kiln_batch *b = imagined_batch();
    kiln_tensor x = kiln_upload(b, KILN_U8, DIMS(3), bytes);
    EXPECT_VALUES(b, kiln_add(b, x, x), 144, 6, 32);
    b = imagined_batch();
    EXPECT_VALUES(b, kiln_neg(b, kiln_upload(b, KILN_U8, DIMS(3), bytes)), 56, 253, 240);
    b = imagined_batch();
    x = kiln_upload(b, KILN_I32, DIMS(3), integers);
    EXPECT_VALUES(b, kiln_add(b, x, kiln_constant(b, KILN_I32, 1)), INT32_MIN, -2147483647.0, -6);
    b = imagined_batch();
    EXPECT_VALUES(b, kiln_abs(b, kiln_upload(b, KILN_I32, DIMS(3), integers)), INT32_MAX, INT32_MIN,
                  7);
    b = imagined_batch();
    x = kiln_upload(b, KILN_I32, DIMS(3), integers);
    EXPECT_VALUES(b, kiln_div(b, x, kiln_constant(b, KILN_I32, -1)), -2147483647.0, INT32_MIN, 7);
    b = imagined_batch();
    x = kiln_upload(b, KILN_I32, DIMS(3), integers);
    EXPECT_VALUES(b, kiln_div(b, x, kiln_constant(b, KILN_I32, 0)), 0, 0, 0);
    b = imagined_batch();
    x = kiln_upload(b, KILN_I32, DIMS(1), integers);
    EXPECT_VALUES(b, kiln_sum(b, kiln_broadcast(b, x, DIMS(3)), 0, NULL, 0), 6442450941.0);
}

Test(reference, reductions)
{
    static const float x[] = {1, 5, 5, -2, NAN, 0};
    kiln_batch *b = imagined_batch();
    EXPECT_VALUES(b, kiln_sum(b, kiln_upload(b, KILN_F32, DIMS(2, 3), x), 1, (int[]){1}, 0), 11,
                  NAN);
    b = imagined_batch();
    EXPECT_VALUES(b, kiln_mean(b, kiln_upload(b, KILN_F32, DIMS(2, 2), x), 1, (int[]){0}, 1), 3,
                  1.5);
    b = imagined_batch();
    EXPECT_VALUES(b, kiln_argmax(b, kiln_upload(b, KILN_F32, DIMS(2, 3), x), 1, (int[]){1}, 0), 1,
                  1);
    b = imagined_batch();
    EXPECT_VALUES(b, kiln_argmin(b, kiln_upload(b, KILN_F32, DIMS(2, 2), x), 0, NULL, 0), 3);
    b = imagined_batch();
    EXPECT_VALUES(b, kiln_max(b, kiln_upload(b, KILN_F32, DIMS(3, 2), x), 1, (int[]){0}, 0), NAN,
                  5);
    b = imagined_batch();
    EXPECT_VALUES(b, kiln_sum(b, kiln_upload(b, KILN_F32, DIMS(3, 0), x), 1, (int[]){1}, 0), 0, 0,
                  0);
    b = imagined_batch();
    EXPECT_VALUES(b, kiln_mean(b, kiln_upload(b, KILN_F32, DIMS(1, 0), x), 1, (int[]){1}, 0), NAN);
}

Test(reference, movement_and_products)
{
    static const float x[] = {1, 2, 3, 4, 5, 6};
    kiln_batch *b = imagined_batch();
    kiln_tensor m = kiln_upload(b, KILN_F32, DIMS(2, 3), x);
    EXPECT_VALUES(b, kiln_matmul(b, m, kiln_transpose(b, m, NULL)), 14, 32, 32, 77);
    b = imagined_batch();
    m = kiln_upload(b, KILN_F32, DIMS(2, 3), x);
    kiln_tensor part =
        kiln_slice(b, m, (int64_t[]){1, 2}, (int64_t[]){-1, -1}, (int64_t[]){-1, -2});
    EXPECT_VALUES(b, kiln_reshape(b, kiln_transpose(b, part, NULL), DIMS(4)), 6, 3, 4, 1);
    b = imagined_batch();
    m = kiln_upload(b, KILN_F32, DIMS(3, 2, 1), x);
    kiln_tensor n = kiln_upload(b, KILN_F32, DIMS(1, 2), x);
    EXPECT_VALUES(b, kiln_matmul(b, m, n), 1, 2, 2, 4, 3, 6, 4, 8, 5, 10, 6, 12);
}

Test(reference, casts)
{
    static const float x[] = {-1.5f, 300.7f, NAN, 3e9f};
    kiln_batch *b = imagined_batch();
    EXPECT_VALUES(b, kiln_cast(b, kiln_upload(b, KILN_F32, DIMS(4), x), KILN_U8), 0, 255, 0, 255);
    b = imagined_batch();
    EXPECT_VALUES(b, kiln_cast(b, kiln_upload(b, KILN_F32, DIMS(4), x), KILN_I32), -1, 300, 0,
                  INT32_MAX);
}

Test(reference, only_what_is_needed)
{
    static const float x[] = {1};
    kiln_batch *b = imagined_batch();
    kiln_tensor input = kiln_upload(b, KILN_F32, DIMS(1), x);
    kiln_exp(b, input);
    ask(b, kiln_neg(b, input));
    struct evaluated evaluated = evaluate(b);
    cr_expect_not_null(evaluated.reference.values[0]);
    cr_expect_null(evaluated.reference.values[1]);
    cr_expect_not_null(evaluated.reference.values[2]);
    release(b, &evaluated);
}

/* ---- bounds ---- */

Test(bounds, distance_of_floats)
{
    cr_expect_eq(kiln__type_ulp(KILN_F32, 1), 0x1p-23);
    cr_expect_eq(kiln__type_ulp(KILN_F32, -1.999), 0x1p-23);
    cr_expect_eq(kiln__type_ulp(KILN_F32, 2), 0x1p-22);
    cr_expect_eq(kiln__type_ulp(KILN_F32, FLT_MAX), 0x1p104);
    cr_expect_eq(kiln__type_ulp(KILN_F32, 1e300), 0x1p104);
    cr_expect_eq(kiln__type_ulp(KILN_F32, 0), 0x1p-149);
    cr_expect_eq(kiln__type_ulp(KILN_F32, 1e-45), 0x1p-149);
    cr_expect_eq(kiln__type_ulp(KILN_F32, FLT_MIN), 0x1p-149);
}

Test(bounds, what_is_within)
{
    cr_expect(kiln__bounds_allow(KILN_F32, 1, 0.5, 1.5));
    cr_expect_not(kiln__bounds_allow(KILN_F32, 1, 0.5, 1.51));
    cr_expect_not(kiln__bounds_allow(KILN_F32, 1, 0, NAN));
    cr_expect_not(kiln__bounds_allow(KILN_F32, NAN, 0, 1));
    cr_expect(kiln__bounds_allow(KILN_F32, NAN, 0, NAN));
    cr_expect(kiln__bounds_allow(KILN_F32, 1, INFINITY, NAN));
    cr_expect_not(kiln__bounds_allow(KILN_F32, INFINITY, 0, -INFINITY));
    cr_expect_not(kiln__bounds_allow(KILN_F32, INFINITY, 0, FLT_MAX));
    cr_expect_not(kiln__bounds_allow(KILN_F32, FLT_MAX, 0, INFINITY));
    cr_expect(kiln__bounds_allow(KILN_F32, 1e39, 0, INFINITY));
    cr_expect_not(kiln__bounds_allow(KILN_F32, 1e39, 0, -INFINITY));
    cr_expect_not(kiln__bounds_allow(KILN_F32, 1e39, 0x1p103, FLT_MAX));
    cr_expect(kiln__bounds_allow(KILN_F32, (double)FLT_MAX + 0x1p102, 0x1p103, FLT_MAX));
}

/* The bound of the first element of what is asked for. */
static double bound_of(kiln_batch *batch, kiln_tensor tensor)
{
    ask(batch, tensor);
    struct evaluated evaluated = evaluate(batch);
    double bound = evaluated.bounds.errors[evaluated.graph.requests.items[0].node][0];
    release(batch, &evaluated);
    return bound;
}

static void expect_near(double found, double wanted)
{
    cr_expect(fabs(found - wanted) <= 0.01 * wanted, "%g is not about %g", found, wanted);
}

/* What is picked or added to by an uncertain position. */
Test(bounds, say_nothing_where_a_position_is_uncertain)
{
    static const float third[] = {1 / 3.0f, 1 / 3.0f, 1 / 3.0f, 1 / 3.0f}, data[] = {1, 2, 3, 4};
    for (int scatters = 0; scatters < 2; scatters++) {
        kiln_batch *b = imagined_batch();
        kiln_tensor x = kiln_upload(b, KILN_F32, DIMS(4), data);
        kiln_tensor near = kiln_exp(b, kiln_upload(b, KILN_F32, DIMS(4), third));
        kiln_tensor at = kiln_argmax(b, near, 0, NULL, 1);
        cr_expect_eq(
            bound_of(b, scatters ? kiln_scatter_add(b, x, at, kiln_fill(b, KILN_F32, DIMS(1), 2), 0)
                                 : kiln_gather(b, x, at, 0)),
            INFINITY);
    }
}

/* tanh(9) is 1 to within its error, and only a whole power of -2 is a number. */
Test(bounds, say_nothing_of_powers_that_may_be_whole)
{
    static const float bases[] = {-2, -0.0f, 2}, nine = 9;
    for (int i = 0; i < 3; i++) {
        kiln_batch *b = imagined_batch();
        kiln_tensor power = kiln_tanh(b, kiln_upload(b, KILN_F32, 0, NULL, &nine));
        double bound =
            bound_of(b, kiln_pow(b, kiln_upload(b, KILN_F32, 0, NULL, &bases[i]), power));
        cr_expect(i < 2 ? isinf(bound) : bound < 1e-4, "of %g: %g", bases[i], bound);
    }
}

/* tanh(9) is 1 to within its error, and 1 to the power of NaN is 1; so is NaN to that of 0. */
Test(bounds, say_nothing_of_powers_of_nan_that_may_be_1)
{
    static const float nine = 9, nan = NAN;
    for (int i = 0; i < 2; i++) {
        kiln_batch *b = imagined_batch();
        kiln_tensor near = kiln_tanh(b, kiln_upload(b, KILN_F32, 0, NULL, &nine));
        const kiln_tensor none = kiln_upload(b, KILN_F32, 0, NULL, &nan);
        if (i)
            near = kiln_sub(b, near, kiln_constant(b, KILN_F32, 1));
        cr_expect(isinf(bound_of(b, i ? kiln_pow(b, none, near) : kiln_pow(b, near, none))));
    }
}

/* A query too small for f16 becomes 0, which an infinite key makes NaN; else its score is -inf, and
 * the key is not seen. */
Test(bounds, say_nothing_of_infinities_times_what_may_be_nothing)
{
    static const float query[] = {-1.2e-38F, 1}, value[] = {2, 3};
    static const float key[] = {INFINITY, 1, 0.5F, 1};
    for (int narrow = 0; narrow < 2; narrow++) {
        kiln_batch *b = imagined_batch();
        cr_assert_eq(
            kiln_batch_set_precision(b, narrow ? KILN_PRECISION_F16 : KILN_PRECISION_EXACT),
            KILN_OK);
        kiln_tensor q = kiln_upload(b, KILN_F32, DIMS(1, 2), query);
        kiln_tensor k = kiln_upload(b, KILN_F32, DIMS(2, 2), key);
        kiln_tensor v = kiln_upload(b, KILN_F32, DIMS(2, 1), value);
        kiln_tensor a = kiln_attention(b, q, k, v, (kiln_tensor){0}, NULL);
        double bound = bound_of(b, a);
        cr_expect(narrow ? isinf(bound) : bound < 1e-5, "%g", bound);
    }
}

Test(bounds, grow_with_what_is_computed)
{
    static const float third[] = {1 / 3.0f, 1 / 3.0f, 1 / 3.0f, 1 / 3.0f};
    static const float whole[] = {3, -1, 4, 1};
    kiln_batch *b = imagined_batch();
    kiln_tensor x = kiln_upload(b, KILN_F32, DIMS(4), third);
    expect_near(bound_of(b, kiln_square(b, x)), 0.5 * 0x1p-27);
    b = imagined_batch();
    x = kiln_upload(b, KILN_F32, DIMS(4), third);
    expect_near(bound_of(b, kiln_scale(b, kiln_exp(b, x), 8)), 8 * 3 * 0x1p-23 + 0.5 * 0x1p-20);
    b = imagined_batch();
    x = kiln_upload(b, KILN_F32, DIMS(4), third);
    expect_near(bound_of(b, kiln_sum(b, x, 0, NULL, 0)), 4 * 0x1p-24 * 4 / 3);
    b = imagined_batch();
    x = kiln_upload(b, KILN_F32, DIMS(4), third);
    expect_near(bound_of(b, kiln_dot(b, x, x)), 4 * 0x1p-24 * 4 / 9 + 4 * 0x1p-28);
    b = imagined_batch();
    x = kiln_upload(b, KILN_F32, DIMS(2, 2), third);
    expect_near(bound_of(b, kiln_matmul(b, x, x)), 2 * 0x1p-24 * 2 / 9);
    b = imagined_batch();
    x = kiln_upload(b, KILN_F32, DIMS(2, 2), whole);
    cr_expect_eq(bound_of(b, kiln_sum(b, kiln_matmul(b, x, x), 0, NULL, 0)), 0);
    b = imagined_batch();
    x = kiln_exp(b, kiln_upload(b, KILN_F32, DIMS(4), third)); /* all equal, none certain */
    cr_expect_eq(bound_of(b, kiln_argmax(b, x, 0, NULL, 0)), INFINITY);
    b = imagined_batch();
    x = kiln_exp(b, kiln_upload(b, KILN_F32, DIMS(4), whole)); /* far apart */
    cr_expect_eq(bound_of(b, kiln_argmax(b, x, 0, NULL, 0)), 0);
    b = imagined_batch();
    x = kiln_scale(b, kiln_upload(b, KILN_F32, DIMS(4), third), 3); /* 1, or a little less */
    cr_expect_eq(bound_of(b, kiln_cast(b, x, KILN_I32)), 1);
}
