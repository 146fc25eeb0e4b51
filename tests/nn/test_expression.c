/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions of elements: their values beside C's own, types, gradients, fusion, and what is said
 * of a text that is wrong. All but one need no device: they are evaluated on the host. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/gradient.h"
#include "../support/graph.h"

/* ---- values: x [2,3] and y [3] of f32, i [2,3] of i32, u [2,3] of u8, m [2,3] of bool ---- */

static const float xs[6] = {-2.5f, -1, 0, 0.75f, 1, 3}, ys[3] = {2, -0.5f, 4};
static const int32_t is[6] = {-7, -1, 0, 1, 5, 12};
static const uint8_t us[6] = {0, 1, 2, 7, 200, 255}, ms[6] = {1, 0, 1, 1, 0, 0};

static double floor_mod(double a, double b)
{
    return a - b * floor(a / b);
}

/* CASE(text, the same in C, its type). */
#define CASES                                                                                      \
    CASE("x * y + 1", x *y + 1, F32)                                                               \
    CASE("x - y - 1", x - y - 1, F32)                                                              \
    CASE("x / (1 + exp(-y * x))", x / (1 + exp(-y * x)), F32)                                      \
    CASE("-x ** 2", -(x * x), F32)                                                                 \
    CASE("2 ** -y", pow(2, -y), F32)                                                               \
    CASE("2 ** 3 ** 2 * x", 512 * x, F32)                                                          \
    CASE("x ** 5 + x**1 + y ** -1", pow(x, 5) + x + 1 / y, F32)                                    \
    CASE("abs(x) ** 0.5", sqrt(fabs(x)), F32)                                                      \
    CASE("abs(x) ** 1.5", pow(fabs(x), 1.5), F32)                                                  \
    CASE("x if x > y else -x", x > y ? x : -x, F32)                                                \
    CASE("x > y ? x : x < 0 ? 0 : 1", x > y ? x : x < 0 ? 0 : 1, F32)                              \
    CASE("1 if x > 1 else 2 if x > 0 else 3.5", x > 1 ? 1 : x > 0 ? 2 : 3.5, F32)                  \
    CASE("x >= y", x >= y, BOOL)                                                                   \
    CASE("x != 1 && !(y == 2) || m", (x != 1 && !(y == 2)) || m, BOOL)                             \
    CASE("(x <= y) | m", x <= y || m, BOOL)                                                        \
    CASE("(x < y) & m", x < y && m, BOOL)                                                          \
    CASE("(x < y) ^ ~m", (x < y) != !m, BOOL)                                                      \
    CASE("x // y", floor(x / y), F32)                                                              \
    CASE("x // 0.5", floor(x / 0.5), F32)                                                          \
    CASE("x % y", floor_mod(x, y), F32)                                                            \
    CASE("i // 5", floor(i / 5), I32)                                                              \
    CASE("i // -5 + i % 5", floor(i / -5) + floor_mod(i, 5), I32)                                  \
    CASE("i / 4", i / 4, F32)                                                                      \
    CASE("i + 1", i + 1, I32)                                                                      \
    CASE("i64(i) * 4294967296 + m * 7", i * 4294967296.0 + m * 7, I64)                             \
    CASE("i + x", i + x, F32)                                                                      \
    CASE("i + 0.5", i + 0.5, F32)                                                                  \
    CASE("u + 1 + (u < 300)", fmod(u + 2, 256), U8)                                                \
    CASE("u // u", u ? 1 : 0, U8)                                                                  \
    CASE("i & 5 | 2", ((int)i & 5) | 2, I32)                                                       \
    CASE("i ^ 3 == 3", ((int)i ^ 3) == 3, BOOL)                                                    \
    CASE("~i << 2", (double)(int)(~(unsigned)(int)i << 2), I32)                                    \
    CASE("u >> 1", ((int)u >> 1), U8)                                                              \
    CASE("+-+x", -x, F32)                                                                          \
    CASE("clamp(x, -1, 2) + leaky_relu(y, 0.25)", fmin(fmax(x, -1), 2) + (y > 0 ? y : y / 4), F32) \
    CASE("clamp(i, -1, 2)", fmin(fmax(i, -1), 2), I32)                                             \
    CASE("maximum(x, 0) + minimum(i, 1)", fmax(x, 0) + fmin(i, 1), F32)                            \
    CASE("fma(x, y, 2)", x *y + 2, F32)                                                            \
    CASE("where(m, i, 2.5)", m != 0 ? i : 2.5, F32)                                                \
    CASE("where(m, m, x > 0)", m != 0 ? 1 : x > 0, BOOL)                                           \
    CASE("i32(x) + i64(i)", trunc(x) + i, I64)                                                     \
    CASE("sqrt(i * i) + floor(i)", fabs(i) + i, F32)                                               \
    CASE("x + 1e-2 + .5 + 2.f + 7 // 2 + -7 % 4 + 1 / 4", x + 6.76, F32)                           \
    CASE("1 + 2", 3, I32)                                                                          \
    CASE("  ( x)\t*( \n2.5 ) ", x * 2.5, F32)

/* What C reads as an expression of doubles, a function for each line. */
#define CASE(text, expression, type)                                                               \
    case __COUNTER__: return (expression);
static double wanted(int row, double x, double y, double i, double u, double m)
{
    enum { BASE = __COUNTER__ + 1 };
    switch (row + BASE) {
        CASES
    }
    return NAN;
}
#undef CASE

static const struct {
    const char *text;
    kiln_type type;
} cases[] = {
#define CASE(text, expression, type) {text, KILN_##type},
    CASES
#undef CASE
};

/* It is the whole sentence, behind the call. */
static void expect_refused(kiln_batch *b, kiln_status status, const char *words)
{
    char sentence[256];
    snprintf(sentence, sizeof sentence, "kiln_elementwise: %s", words);
    check_refusal(b, status, sentence);
}

static kiln_tensor record(kiln_batch *b, const char *text)
{
    const size_t dims[] = {2, 3};
    return kiln_elementwise(b, text, "x y  i u m", 5,
                            (kiln_tensor[]){kiln_upload(b, KILN_F32, 2, dims, xs),
                                            kiln_upload(b, KILN_F32, 1, dims + 1, ys),
                                            kiln_upload(b, KILN_I32, 2, dims, is),
                                            kiln_upload(b, KILN_U8, 2, dims, us),
                                            kiln_upload(b, KILN_BOOL, 2, dims, ms)});
}

Test(expression, values)
{
    for (int row = 0; row < (int)(sizeof cases / sizeof *cases); row++) {
        kiln_batch *b = imagined_batch();
        kiln_tensor y = record(b, cases[row].text);
        kiln_type type = (kiln_type)0;
        cr_assert_eq(kiln_batch_status(b), KILN_OK, "%s: %s", cases[row].text, kiln_batch_error(b));
        expect_ok(kiln_tensor_shape(b, y, &type, NULL, NULL));
        cr_expect_eq(type, cases[row].type, "%s is %s", cases[row].text, kiln_type_name(type));
        const size_t count = kiln__node_count(kiln__batch_node(b, y, "test", "y"));
        double *found = check_values(b, kiln_cast(b, y, KILN_F32));
        for (size_t k = 0; k < count; k++) {
            const double value = wanted(row, (double)xs[k], (double)ys[k % 3], is[k], us[k], ms[k]);
            cr_expect_float_eq(found[k], value, 1e-6 * fmax(1, fabs(value)),
                               "%s at %zu: %.9g, not %.9g", cases[row].text, k, found[k], value);
        }
        free(found);
        check_end(b);
    }
}

/* One operation by an operator is what its function records: not a node more. */
Test(expression, records_rows)
{
    kiln_batch *b = imagined_batch();
    const size_t dims[] = {4};
    static const float data[4];
    kiln_tensor x = kiln_upload(b, KILN_F32, 1, dims, data);
    const size_t before = b->graph.nodes.count;
    kiln_elementwise(b, "x * x + exp(x)", NULL, 1, &x);
    cr_expect_eq(b->graph.nodes.count, before + 3);
    check_end(b);
}

Test(expression, edges)
{
    static const size_t shapes[][2] = {{0, 3}, {1, 1}, {7, 1}};
    for (size_t k = 0; k < 3; k++) {
        kiln_batch *b = imagined_batch();
        static const float data[7] = {INFINITY, NAN, -0.0f, 1, 2, 3, 4};
        kiln_tensor x = kiln_upload(b, KILN_F32, 2, shapes[k], data);
        kiln_tensor y =
            kiln_elementwise(b, "y + (x if x == x else 5)", "x y", 2, (kiln_tensor[]){x, x});
        size_t rank = 0, dims[KILN_MAX_RANK];
        expect_ok(kiln_tensor_shape(b, y, NULL, &rank, dims));
        cr_expect(rank == 2 && dims[0] == shapes[k][0] && dims[1] == shapes[k][1]);
        if (k == 2) {
            double *found = check_values(b, y);
            cr_expect(isinf(found[0]) && isnan(found[1]) && found[6] == 8);
            free(found);
        }
        check_end(b);
    }
}

Test(expression, gradients)
{
    static const char *const texts[] = {"x / (1 + exp(-y * x))", "x * y if x > y else y ** 3",
                                        "fma(x, y, x) // 1 * 0 + tanh(x) * y ** 2"};
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
        kiln_batch *b = imagined_batch();
        kiln_tensor given[] = {check_plain(b, DIMS(2, 3)), check_plain(b, DIMS(3))};
        expect_gradient(b, kiln_elementwise(b, texts[k], "x y", 2, given), 2, given);
    }
}

/* On the device, in one kernel with its neighbours. */
Test(expression, fuses)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_plain(b, DIMS(5, 7)), z = check_plain(b, DIMS(7));
    kiln_tensor y = kiln_elementwise(b, "x / (1 + exp(-z * x)) if x != 3 else z", NULL, 2,
                                     (kiln_tensor[]){kiln_relu(b, x), z});
    check_read(b, kiln_tanh(b, y));
    kiln_batch_cost cost;
    expect_ok(kiln_batch_get_cost(b, &cost));
    cr_expect_eq(cost.launches, 1);
    check_run(b);
    check_end(b);
    check_close();
}

/* ---- what is wrong ---- */

Test(expression, refused)
{
    static const struct {
        const char *text, *names, *words;
    } rows[] = {
        {"x +", "x", "column 4 of \"x +\": a name, a number or a \"(\" is missing before the end"},
        {"x * * y", "x y",
         "column 5 of \"x * * y\": a name, a number or a \"(\" is missing before \"*\""},
        {"x y", "x y", "column 3 of \"x y\": an operator is missing before \"y\""},
        {"x = 1", "x", "column 3 of \"x = 1\": an operator is missing before \"=\""},
        {"(x + 1", "x", "column 7 of \"(x + 1\": a \")\" is missing before the end"},
        {"exp(x", "x", "column 6 of \"exp(x\": a \")\" is missing before the end"},
        {"x)", "x", "column 2 of \"x)\": an operator is missing before \")\""},
        {"", "x", "column 1 of \"\": a name, a number or a \"(\" is missing before the end"},
        {"x + w", "x y", "column 5 of \"x + w\": w is none of the names \"x y\""},
        {"frob(x)", "x",
         "column 1 of \"frob(x)\": frob() is no function of elements that kiln has"},
        {"1 + philox(x, x, x)", "x",
         "column 5 of \"1 + philox(x, x, x)\": philox() is no function of elements that kiln has"},
        {"q4_0(x)", "x",
         "column 1 of \"q4_0(x)\": q4_0() is no function of elements that kiln has"},
        {"exp(x, x)", "x", "column 1 of \"exp(x, x)\": exp() takes 1 argument, not 2"},
        {"add()", "x", "column 1 of \"add()\": add() takes 2 arguments, not 0"},
        {"fma(x, x, x, x)", "x",
         "column 13 of \"fma(x, x, x, x)\": fma() takes no further argument"},
        {"clamp(x, x, 1)", "x",
         "column 1 of \"clamp(x, x, 1)\": clamp() takes a number as argument 2"},
        {"1 < x < 2", "x",
         "column 7 of \"1 < x < 2\": a comparison of a comparison: put one in parentheses"},
        {"x ? 1", "x", "column 6 of \"x ? 1\": the \":\" of the \"?\" is missing before the end"},
        {"x if x", "x",
         "column 7 of \"x if x\": the \"else\" of the \"if\" is missing before the end"},
        {"x + 1x", "x", "column 5 of \"x + 1x\": this is no number"},
        {"x + 1.2.3", "x", "column 5 of \"x + 1.2.3\": this is no number"},
        {"x + 0x10", "x", "column 5 of \"x + 0x10\": this is no number"},
        {"x + 9007199254740993", "x",
         "column 5 of \"x + 9007199254740993\": a whole number beyond 2^53"},
        {"x + 9 ** 20", "x", "column 7 of \"x + 9 ** 20\": a whole number beyond 2^53"},
        {"x + 1 // 0", "x", "column 7 of \"x + 1 // 0\": a whole number is divided by 0"},
        {"x\001", "x", "column 2 of \"x?\": an operator is missing before \"?\""},
        {"x", "x y", "\"x\" is of 2 operands (x y), not of 1"},
        {"1", "", "\"1\" is of 0 operands (), not of 1"},
        {NULL, "x", "text is NULL"},
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        kiln_batch *b = imagined_batch();
        kiln_tensor x[] = {check_plain(b, DIMS(3)), check_plain(b, DIMS(3))};
        const size_t n = rows[k].names[0] && rows[k].names[1] && k != 26 ? 2 : 1;
        cr_expect_eq(kiln_elementwise(b, rows[k].text, rows[k].names, n, x).id, 0u);
        expect_refused(b, KILN_INVALID_ARGUMENT, rows[k].words);
    }
}

/* What a row refuses, with the place. */
Test(expression, refused_operands)
{
    static const struct {
        const char *text, *words;
        kiln_status status;
    } rows[] = {
        {"1 + x * y", "column 7, mul: shapes [2] and [3] do not broadcast", KILN_SHAPE_MISMATCH},
        {"x | 1", "column 3, bit_or: operands are f32, and only integers are taken",
         KILN_TYPE_MISMATCH},
        {"(x > 0 ? 1.5 : 2) + ~x",
         "column 21, bit_not: operands are f32, and only integers are taken", KILN_TYPE_MISMATCH},
        {"exp(clamp(i, 0.5, 2))", "column 5, i32: i32 cannot hold 0.5", KILN_INVALID_ARGUMENT},
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        kiln_batch *b = imagined_batch();
        kiln_tensor x[] = {check_plain(b, DIMS(2)), check_plain(b, DIMS(3)),
                           kiln_iota(b, DIMS(2), 0)};
        cr_expect_eq(kiln_elementwise(b, rows[k].text, "x y i", 3, x).id, 0u);
        expect_refused(b, rows[k].status, rows[k].words);
    }
    kiln_batch *b = imagined_batch();
    cr_expect_eq(
        kiln_elementwise(b, "x * first", NULL, 2, (kiln_tensor[]){check_plain(b, SCALAR), {0}}).id,
        0u);
    expect_refused(b, KILN_INVALID_HANDLE, "operand first is the empty tensor");
    cr_expect_eq(kiln_elementwise(NULL, "x", NULL, 0, NULL).id, 0u);
}

Test(expression, depth)
{
    char text[4096] = "";
    for (size_t k = 0; k < 4000; k++)
        text[k] = k < 2000 ? '(' : ')';
    char *names = text;
    cr_expect_eq(kiln_elementwise_names(text, &names), KILN_INVALID_ARGUMENT);
    cr_expect(strstr(kiln_last_error(), "inside of each other"), "%s", kiln_last_error());
    cr_expect_null(names);
    memset(text, '-', 4000);
    cr_expect_eq(kiln_elementwise_names(text, &names), KILN_INVALID_ARGUMENT);
    for (size_t k = 0; k < 4000; k++)
        text[k] = "x?1:"[k % 4];
    cr_expect_eq(kiln_elementwise_names(text, &names), KILN_INVALID_ARGUMENT);
    /* A long sum is none: it is read from the left. */
    for (size_t k = 0; k < 3999; k++)
        text[k] = "x+"[k % 2];
    text[3999] = 0;
    expect_ok(kiln_elementwise_names(text, &names));
    kiln_free(names);
}

Test(expression, names)
{
    static const char *const rows[][2] = {{"b - a * exp(b) + _c1", "b a _c1"},
                                          {"1 + 2", ""},
                                          {"x if iffy else elsewhere", "x iffy elsewhere"},
                                          {"f32(exp) + f32", "exp f32"}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        char *names = NULL;
        expect_ok(kiln_elementwise_names(rows[k][0], &names));
        cr_expect_str_eq(names, rows[k][1]);
        kiln_free(names);
    }
    char *names;
    cr_expect_eq(kiln_elementwise_names(NULL, &names), KILN_INVALID_ARGUMENT);
    cr_expect_eq(kiln_elementwise_names("x", NULL), KILN_INVALID_ARGUMENT);
    cr_expect_eq(kiln_elementwise_names("x + ", &names), KILN_INVALID_ARGUMENT);
    cr_expect_str_eq(kiln_last_error(),
                     "kiln_elementwise_names: column 5 of \"x + \": a name, a number or a "
                     "\"(\" is missing before the end");
}
