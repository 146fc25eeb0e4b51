/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of floats of every size, from 1e-38 to 3e38, at zeros, infinities and NaN: on the
 * device, relative to derivatives that tests/known/slopes.def and this file have by hand in double.
 * Finite differences (test_grad_operations) see the middle alone, and the reference, which has the
 * range of a double, does not see what leaves that of f32. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/check.h"
#include "../support/context.h"
#include "ops/ops.h"

#define MOST 20000

/* What was compared, and what was not right. */
static struct {
    size_t compared, wrong;
} tally;

/* Below the smallest normal number a device may flush, also on its way. */
#define TINY (2 * (double)FLT_MIN)

static bool is_right(double found, double wanted, double tolerance, double size)
{
    if (isnan(wanted))
        return isnan(found);
    if (fabs(wanted) > 0.999999 * FLT_MAX) /* rounds to the largest number or to infinity */
        return fabs(found) >= 0.99999 * FLT_MAX && signbit(found) == signbit(wanted);
    return fabs(found - wanted) <= tolerance * fmax(size, fabs(wanted)) + TINY;
}

static void end_tally(const char *what)
{
    printf("# gradients of %s: %zu compared, %zu wrong\n", what, tally.compared, tally.wrong);
    fflush(stdout);
    cr_expect_eq(tally.wrong, 0, "%zu of %zu are wrong", tally.wrong, tally.compared);
}

/* ---- derivatives by hand ---- */

static double logistic(double x)
{
    return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}

/* Its derivative. */
static double bell(double x)
{
    double e = exp(-fabs(x));
    return e / ((1 + e) * (1 + e));
}

static double normal(double x)
{
    return 0.5 * erfc(-x * M_SQRT1_2);
}

static double density(double x)
{
    return exp(-0.5 * x * x) * 0.39894228040143268;
}

/* gelu_tanh is a * logistic(bent(a)). */
static double bent(double x)
{
    return 1.5957691216057308 * (x + 0.044715 * x * x * x);
}

static double unbent(double x)
{
    return 1.5957691216057308 * (1 + 3 * 0.044715 * x * x);
}

/* Of what goes from 0 to 1: its limits far out. */
static double within(double x, double inside)
{
    return x > 200 ? 1 : x < -200 ? 0 : inside;
}

struct slope {
    unsigned op;
    double tolerance;
    bool (*exists)(double a, double b, double c);
    double (*by[3])(double a, double b, double c);
    double (*size)(double a, double b, double c);
};

#define FUNCTION(type, name, value)                                                                \
    static type name(double a, double b, double c)                                                 \
    {                                                                                              \
        (void)a, (void)b, (void)c;                                                                 \
        return value;                                                                              \
    }
#define KNOWN_SLOPE(op, tolerance, exists, by_a, by_b, by_c, size)                                 \
    FUNCTION(bool, exists_##op, exists)                                                            \
    FUNCTION(double, a_##op, by_a)                                                                 \
    FUNCTION(double, b_##op, by_b)                                                                 \
    FUNCTION(double, c_##op, by_c)                                                                 \
    FUNCTION(double, size_##op, size)
#include "../known/slopes.def"
#undef KNOWN_SLOPE

#define EXACT 1e-6
#define FEW 4e-6
#define TAIL 2e-5

static const struct slope slopes[] = {
#define KNOWN_SLOPE(op, tolerance, exists, by_a, by_b, by_c, size)                                 \
    {KILN__OP_##op, tolerance, exists_##op, {a_##op, b_##op, c_##op}, size_##op},
#include "../known/slopes.def"
#undef KNOWN_SLOPE
};

static const struct slope *slope_of(unsigned op)
{
    for (size_t i = 0; i < sizeof slopes / sizeof *slopes; i++)
        if (slopes[i].op == op)
            return &slopes[i];
    return NULL;
}

/* ---- points ---- */

struct points {
    size_t count;
    float *of[3];
};

static const float special[] = {
    0.0F,       -0.0F,        INFINITY, -INFINITY, NAN,     1,        -1,      0.99999994F,
    1.0000001F, -0.99999994F, 3,        -3,        FLT_MAX, -FLT_MAX, FLT_MIN, -FLT_MIN,
    0x1p24F,    1e7F,         2e7F,     88,        -88,     -10,      -16,     -20,
    16.5F,      20,           -80,      9,         -9,      1.85e19F, 1e20F,   -1e20F};

#define N_SPECIAL (sizeof special / sizeof *special)

/* Numbers with every exponent that `step` leaves, both signs, and the special ones. */
static size_t line(float *into, int step, size_t mantissas)
{
    static const double mantissa[] = {1.37, 1, 1.81};
    size_t n = 0;
    for (int e = -126; e <= 127; e += step)
        for (size_t m = 0; m < mantissas; m++)
            for (int sign = -1; sign <= 1; sign += 2)
                into[n++] = (float)(sign * ldexp(mantissa[m], e));
    for (size_t i = 0; i < N_SPECIAL; i++)
        into[n++] = special[i];
    return n;
}

/* All pairs of fewer where there are two operands; the third goes round. */
static struct points make_points(unsigned operands)
{
    float one[2048];
    size_t n = operands == 1 ? line(one, 1, 3) : line(one, 11, 1);
    struct points points = {.count = operands == 1 ? n : n * n};
    cr_assert_leq(points.count, MOST);
    for (unsigned k = 0; k < 3; k++)
        points.of[k] = malloc(points.count * sizeof(float));
    for (size_t i = 0; i < points.count; i++) {
        points.of[0][i] = operands == 1 ? one[i] : one[i / n];
        points.of[1][i] = one[i % n];
        points.of[2][i] = one[i * 7 % n];
    }
    return points;
}

static void free_points(struct points *points)
{
    for (unsigned k = 0; k < 3; k++)
        free(points->of[k]);
}

/* ---- rows ---- */

static bool carries(const struct kiln__elementwise_row *row)
{
    enum kiln__types rule = (enum kiln__types)row->types;
    return kiln__types_accept(rule, KILN_F32) && kiln__types_result(rule, KILN_F32) == KILN_F32;
}

struct row {
    const struct kiln__elementwise_row *row;
    kiln_type type[3];
    uint8_t *mask;
    float *found[3], *y;
};

/* Ask for the row's result and its sum's gradient by each operand. */
static void record(kiln_batch *batch, unsigned op, const struct points *points, struct row *it)
{
    const size_t n = points->count;
    kiln_tensor x[3] = {0}, inputs[3], g[3];
    unsigned n_inputs = 0, at[3];
    for (unsigned k = 0; k < it->row->tensors; k++) {
        it->type[k] = kiln__types_operand((enum kiln__types)it->row->types, k, KILN_F32);
        for (size_t i = 0; i < n && it->type[k] == KILN_U8; i++)
            it->mask[i] = points->of[k][i] > 0;
        x[k] = kiln_upload(batch, it->type[k], 1, &n,
                           it->type[k] == KILN_U8 ? (void *)it->mask : points->of[k]);
        if (it->type[k] == KILN_F32)
            at[n_inputs] = k, inputs[n_inputs++] = x[k];
    }
    kiln_tensor y = check_elementwise(batch, op, x);
    expect_ok(kiln_grad(batch, kiln_sum(batch, y, 0, NULL, 0), inputs, n_inputs, g));
    expect_ok(kiln_read(batch, y, it->y, n * sizeof(float)));
    for (unsigned i = 0; i < n_inputs; i++)
        expect_ok(kiln_read(batch, g[i], it->found[at[i]], n * sizeof(float)));
}

static double operand(const struct row *it, const struct points *points, unsigned k, size_t i)
{
    if (k >= it->row->tensors)
        return k >= it->row->arity ? 0 : check_number(KILN_F32, k - 1);
    return it->type[k] == KILN_U8 ? it->mask[i] : points->of[k][i];
}

/* A row without a derivative has zeros. */
static void compare_point(const struct row *it, const struct slope *slope,
                          const struct points *points, unsigned k, size_t i)
{
    double x[3];
    bool has_nan = false;
    for (unsigned j = 0; j < 3; j++) {
        x[j] = operand(it, points, j, i);
        has_nan = has_nan || isnan(x[j]);
    }
    if (slope && (!slope->exists(x[0], x[1], x[2]) || (isnan(it->y[i]) && !has_nan)))
        return;
    double wanted = slope ? slope->by[k](x[0], x[1], x[2]) : 0;
    double size = slope ? slope->size(x[0], x[1], x[2]) : 0;
    tally.compared++;
    if (is_right(it->found[k][i], wanted, slope ? slope->tolerance : 0, size))
        return;
    if (tally.wrong++ % 8 == 0)
        cr_expect(false, "%s of %.9g, %.9g, %.9g by operand %u: %.9g, not %.9g", it->row->name,
                  x[0], x[1], x[2], k, (double)it->found[k][i], wanted);
}

static void check_row(unsigned op, const struct points *points, struct row *it)
{
    kiln_batch *batch = check_begin();
    record(batch, op, points, it);
    run_batch(batch);
    check_end(batch);
    for (unsigned k = 0; k < it->row->tensors; k++)
        for (size_t i = 0; i < points->count && it->type[k] == KILN_F32; i++)
            compare_point(it, slope_of(op), points, k, i);
}

Test(grad_range, every_row)
{
    check_cheaply();
    struct points points[] = {make_points(1), make_points(2)};
    struct row it = {.mask = malloc(MOST), .y = malloc(MOST * sizeof(float))};
    for (unsigned k = 0; k < 3; k++)
        it.found[k] = malloc(MOST * sizeof(float));
    for (unsigned op = 0; op < KILN__OP_COUNT; op++) {
        it.row = &kiln__elementwise_rows[op];
        if (carries(it.row))
            check_row(op, &points[it.row->tensors > 1], &it);
    }
    for (unsigned k = 0; k < 3; k++)
        free(it.found[k]);
    free(it.mask);
    free(it.y);
    free_points(&points[0]);
    free_points(&points[1]);
    end_tally("elementwise rows");
    check_close();
}

/* ---- what is not chosen ---- */

static void expect_slopes(kiln_batch *batch, kiln_tensor y, kiln_tensor x, const double *wanted)
{
    float found[6];
    kiln_tensor g;
    expect_ok(kiln_grad(batch, kiln_sum(batch, y, 0, NULL, 0), &x, 1, &g));
    expect_ok(kiln_read(batch, g, found, sizeof found));
    run_batch(batch);
    check_end(batch);
    for (int i = 0; i < 6; i++)
        cr_expect(fabs(found[i] - wanted[i]) < 1e-6, "%d: %g, not %g", i, (double)found[i],
                  wanted[i]);
}

/* What a where() does not choose has infinite and NaN derivatives on its way. */
Test(grad_range, what_is_not_chosen_has_no_effect)
{
    static const float at[] = {-1, 4, 0, INFINITY, NAN, 9};
    static const uint8_t mask[] = {0, 1, 0, 1, 0, 1};
    static const double root[] = {1, 0.25, 1, 0, 1, 1. / 6};
    const double logarithms[] = {0, 2 / (4 * log(4)), 0, 0, 0, 2 / (9 * log(9))};
    kiln_batch *b = check_begin();
    kiln_tensor x = kiln_upload(b, KILN_F32, DIMS(6), at);
    kiln_tensor chosen = kiln_upload(b, KILN_U8, DIMS(6), mask);
    expect_slopes(b, kiln_where(b, chosen, kiln_sqrt(b, x), x), x, root);

    /* One behind another: log(log(x)^2), where x is also finite. */
    b = check_begin();
    x = kiln_upload(b, KILN_F32, DIMS(6), at);
    chosen = kiln_upload(b, KILN_U8, DIMS(6), mask);
    kiln_tensor one = kiln_constant(b, KILN_F32, 1), y = kiln_where(b, chosen, kiln_log(b, x), one);
    y = kiln_where(b, chosen, kiln_log(b, kiln_square(b, y)), kiln_reciprocal(b, x));
    y = kiln_where(b, kiln_logical_and(b, chosen, kiln_isfinite(b, x)), y, one);
    expect_slopes(b, y, x, logarithms);
    check_close();
}

/* ---- composites: rows of four ---- */

#define ROW 4

/* What a gradient is of: sum(y * weights), of y [n, ROW], or sum(y), of y [n]. */
static const double weights[ROW] = {1, 0.5, -0.25, 2};

typedef kiln_tensor record_rows(kiln_batch *batch, kiln_tensor x);
typedef void known_rows(const double *x, double *g);

struct composite {
    const char *name;
    record_rows *record;
    known_rows *known;
    double low, high; /* sizes of x for which it holds; 0: of all */
    double tolerance; /* relative to the largest of the row's gradient, */
    double size;      /* or to this, of what it is a difference of */
};

static double sum_of(const double *x)
{
    return x[0] + x[1] + x[2] + x[3];
}

static double dot(const double *x, const double *y)
{
    return x[0] * y[0] + x[1] * y[1] + x[2] * y[2] + x[3] * y[3];
}

static double top_of(const double *x)
{
    return fmax(fmax(x[0], x[1]), fmax(x[2], x[3]));
}

static void shares(const double *x, double *p)
{
    for (int i = 0; i < ROW; i++)
        p[i] = x[i] == -INFINITY ? 0 : exp(x[i] - top_of(x));
    double total = sum_of(p);
    for (int i = 0; i < ROW; i++)
        p[i] = total > 0 ? p[i] / total : 0;
}

static void known_softmax(const double *x, double *g)
{
    double p[ROW];
    shares(x, p);
    for (int i = 0; i < ROW; i++)
        g[i] = p[i] * (weights[i] - dot(p, weights));
}

static void known_log_softmax(const double *x, double *g)
{
    double p[ROW];
    shares(x, p);
    for (int i = 0; i < ROW; i++)
        g[i] = weights[i] - p[i] * sum_of(weights);
}

static void known_norm(const double *x, double *g)
{
    double norm = sqrt(dot(x, x));
    for (int i = 0; i < ROW; i++)
        g[i] = norm > 0 ? x[i] / norm : 0;
}

static void known_variance(const double *x, double *g)
{
    for (int i = 0; i < ROW; i++)
        g[i] = 2 * (x[i] - sum_of(x) / ROW) / ROW;
}

static void known_rms_norm(const double *x, double *g)
{
    double by = 1 / sqrt(dot(x, x) / ROW + 1e-5), y[ROW];
    for (int i = 0; i < ROW; i++)
        y[i] = x[i] * by;
    for (int i = 0; i < ROW; i++)
        g[i] = by * (weights[i] - y[i] * dot(weights, y) / ROW);
}

static void known_layer_norm(const double *x, double *g)
{
    double d[ROW], y[ROW], mean = sum_of(x) / ROW;
    for (int i = 0; i < ROW; i++)
        d[i] = x[i] - mean;
    double by = 1 / sqrt(dot(d, d) / ROW + 1e-5);
    for (int i = 0; i < ROW; i++)
        y[i] = d[i] * by;
    for (int i = 0; i < ROW; i++)
        g[i] = by * (weights[i] - sum_of(weights) / ROW - y[i] * dot(weights, y) / ROW);
}

/* Of the p-norm. */
static void known_power_norm(const double *x, double *g, double p)
{
    double top = fmax(fmax(fabs(x[0]), fabs(x[1])), fmax(fabs(x[2]), fabs(x[3]))), total = 0;
    for (int i = 0; i < ROW; i++)
        total += pow(fabs(x[i]) / top, p);
    for (int i = 0; i < ROW; i++)
        g[i] = x[i] == 0 ? 0 : copysign(pow(fabs(x[i]) / top, p - 1) * pow(total, 1 / p - 1), x[i]);
}

static void known_max(const double *x, double *g)
{
    int nans = 0, tops = 0;
    for (int i = 0; i < ROW; i++)
        nans += isnan(x[i]), tops += x[i] == top_of(x);
    for (int i = 0; i < ROW; i++)
        g[i] = nans ? isnan(x[i]) / (double)nans : (x[i] == top_of(x)) / (double)tops;
}

static void known_min(const double *x, double *g)
{
    double turned[ROW] = {-x[0], -x[1], -x[2], -x[3]};
    known_max(turned, g);
}

static void known_mean(const double *x, double *g)
{
    (void)x;
    for (int i = 0; i < ROW; i++)
        g[i] = 1. / ROW;
}

enum { LABEL = 2 }; /* of every row */
static const double targets[ROW] = {0, 1, 0.25, 0.75};

static void known_cross_entropy(const double *x, double *g)
{
    shares(x, g);
    g[LABEL] -= 1;
}

static void known_binary_cross_entropy(const double *x, double *g)
{
    for (int i = 0; i < ROW; i++)
        g[i] = logistic(x[i]) - targets[i];
}

static void known_squared_error(const double *x, double *g)
{
    for (int i = 0; i < ROW; i++)
        g[i] = 2 * (x[i] - targets[i]);
}

static void known_product(const double *x, double *g)
{
    for (int i = 0; i < ROW; i++) {
        g[i] = 1;
        for (int j = 0; j < ROW; j++)
            g[i] *= j == i ? 1 : x[j];
    }
}

/* Over windows of 3, of x / (1 + 0.5 / 3 * s)^0.75. */
static void known_response_norm(const double *x, double *g)
{
    double s[ROW];
    for (int i = 0; i < ROW; i++) {
        s[i] = 1;
        for (int j = 0; j < ROW; j++)
            s[i] += abs(i - j) <= 1 ? 0.5 / 3 * x[j] * x[j] : 0;
    }
    for (int k = 0; k < ROW; k++) {
        g[k] = weights[k] * pow(s[k], -0.75);
        for (int i = 0; i < ROW; i++)
            g[k] -= abs(i - k) <= 1
                        ? weights[i] * x[i] * 0.75 * pow(s[i], -1.75) * 2 * 0.5 / 3 * x[k]
                        : 0;
    }
}

/* Infinite powers, and differences of squares, have no place in rows with them. */
static bool is_finite(const double *x)
{
    return isfinite(x[0]) && isfinite(x[1]) && isfinite(x[2]) && isfinite(x[3]);
}

static const int last[] = {-1};
static const kiln_tensor none;

static kiln_tensor pooled(kiln_batch *b, kiln_tensor x, double p)
{
    kiln_pool_options options = KILN_POOL_OPTIONS_INIT;
    size_t rank, dims[KILN_MAX_RANK];
    expect_ok(kiln_tensor_shape(b, x, NULL, &rank, dims));
    kiln_tensor image = kiln_reshape(b, x, DIMS(dims[0], ROW, 1)); /* [images, length, channels] */
    kiln_tensor y = p > 0 ? kiln_lp_pool(b, image, (size_t[]){ROW}, p, &options)
                          : kiln_max_pool(b, image, (size_t[]){ROW}, &options, NULL);
    return kiln_reshape(b, y, 1, dims);
}

#define COMPOSITE(name, value)                                                                     \
    static kiln_tensor record_##name(kiln_batch *b, kiln_tensor x)                                 \
    {                                                                                              \
        return value;                                                                              \
    }
COMPOSITE(softmax, kiln_softmax(b, x, 1, last))
COMPOSITE(log_softmax, kiln_log_softmax(b, x, 1, last))
COMPOSITE(logsumexp, kiln_logsumexp(b, x, 1, last, 0))
COMPOSITE(norm, kiln_norm(b, x, 1, last, 0))
COMPOSITE(variance, kiln_variance(b, x, 1, last, 0, 0))
COMPOSITE(rms_norm, kiln_rms_norm(b, x, none, 1, last, 1e-5))
COMPOSITE(layer_norm, kiln_layer_norm(b, x, none, none, 1, last, 1e-5))
COMPOSITE(max, kiln_max(b, x, 1, last, 0))
COMPOSITE(min, kiln_min(b, x, 1, last, 0))
COMPOSITE(mean, kiln_mean(b, x, 1, last, 0))
COMPOSITE(max_pool, pooled(b, x, 0))
COMPOSITE(product, kiln_product(b, x, 1, last, 0))
COMPOSITE(response_norm, kiln_local_response_norm(b, x, 1, 3, 0.5, 0.75, 1))

/* `size` times a mean over all rows, which is a sum of theirs. */
static kiln_tensor of_all(kiln_batch *b, kiln_tensor mean, kiln_tensor x, size_t size)
{
    size_t rank, dims[KILN_MAX_RANK];
    expect_ok(kiln_tensor_shape(b, x, NULL, &rank, dims));
    return kiln_scale(b, mean, (double)(dims[0] * size));
}

static kiln_tensor labels_of(kiln_batch *b, kiln_tensor x)
{
    size_t rank, dims[KILN_MAX_RANK];
    expect_ok(kiln_tensor_shape(b, x, NULL, &rank, dims));
    return kiln_broadcast(b, kiln_constant(b, KILN_I32, LABEL), 1, dims);
}

static kiln_tensor targets_of(kiln_batch *b, kiln_tensor x)
{
    size_t rank, dims[KILN_MAX_RANK];
    const float row[ROW] = {0, 1, 0.25F, 0.75F};
    expect_ok(kiln_tensor_shape(b, x, NULL, &rank, dims));
    return kiln_broadcast(b, check_given(b, KILN_F32, DIMS(ROW), row), rank, dims);
}

static kiln_tensor cross_entropy_of_rows(kiln_batch *b, kiln_tensor x)
{
    kiln_cross_entropy_options options = KILN_CROSS_ENTROPY_INIT;
    options.reduction = KILN_REDUCTION_NONE;
    return kiln_cross_entropy_with(b, x, labels_of(b, x), &options);
}

COMPOSITE(cross_entropy, of_all(b, kiln_cross_entropy(b, x, labels_of(b, x)), x, 1))
COMPOSITE(cross_entropy_of_rows, cross_entropy_of_rows(b, x))
COMPOSITE(binary_cross_entropy,
          of_all(b, kiln_binary_cross_entropy(b, x, targets_of(b, x)), x, ROW))
COMPOSITE(squared_error, of_all(b, kiln_mean_squared_error(b, x, targets_of(b, x)), x, ROW))

#define POWER(name, p)                                                                             \
    COMPOSITE(name, pooled(b, x, p))                                                               \
    static void known_##name(const double *x, double *g)                                           \
    {                                                                                              \
        known_power_norm(x, g, p);                                                                 \
    }
POWER(pool_half, 0.5)
POWER(pool_1, 1)
POWER(pool_more, 1.5)
POWER(pool_2, 2)
POWER(pool_3, 3)

/* Squares and other powers have to be in f32, as the product of all: sizes of x are. */
static const struct composite composites[] = {
    {"softmax", record_softmax, known_softmax, 0, INFINITY, 1e-5, 1},
    {"log_softmax", record_log_softmax, known_log_softmax, 0, INFINITY, 1e-5, 0},
    {"logsumexp", record_logsumexp, shares, 0, INFINITY, 1e-5, 0},
    {"norm", record_norm, known_norm, 0, INFINITY, 1e-5, 0},
    {"variance", record_variance, known_variance, 0, 1e37, 1e-5, 0},
    {"rms_norm", record_rms_norm, known_rms_norm, 0, 1e18, 1e-5, 0},
    {"layer_norm", record_layer_norm, known_layer_norm, 0, 1e18, 1e-5, 0},
    {"max", record_max, known_max, 0, INFINITY, 1e-6, 0},
    {"min", record_min, known_min, 0, INFINITY, 1e-6, 0},
    {"mean", record_mean, known_mean, 0, INFINITY, 1e-6, 0},
    {"max_pool", record_max_pool, known_max, 0, INFINITY, 1e-6, 0},
    {"product", record_product, known_product, 1e-9, 3e9, 1e-6, 0},
    {"local_response_norm", record_response_norm, known_response_norm, 0, 1e10, 1e-4, 0},
    {"cross_entropy", record_cross_entropy, known_cross_entropy, 0, INFINITY, 1e-5, 1},
    {"cross_entropy of rows", record_cross_entropy_of_rows, known_cross_entropy, 0, INFINITY, 1e-5,
     1},
    {"binary_cross_entropy", record_binary_cross_entropy, known_binary_cross_entropy, 0, INFINITY,
     1e-5, 1},
    {"mean_squared_error", record_squared_error, known_squared_error, 0, INFINITY, 1e-5, 1},
    {"lp_pool of 1/2", record_pool_half, known_pool_half, 1e-37, 1e37, 1e-4, 0},
    {"lp_pool of 1", record_pool_1, known_pool_1, 0, INFINITY, 1e-5, 0},
    {"lp_pool of 1.5", record_pool_more, known_pool_more, 1e-24, 1e24, 1e-4, 0},
    {"lp_pool of 2", record_pool_2, known_pool_2, 1e-17, 1e18, 1e-5, 0},
    {"lp_pool of 3", record_pool_3, known_pool_3, 1e-12, 1e12, 1e-4, 0},
};

/* Rows of all sizes, and some with zeros, infinities, NaN and equal elements. */
static size_t make_rows(float *rows)
{
    static const double shape[][ROW] = {
        {1.25, -0.75, 0.5, 1.75}, {-1.5, -1.25, 1.5, 0}, {1, 1, 1, 1}, {-1, 0.5, -1, 0.5}};
    static const float others[][ROW] = {{0, 0, 0, 0},
                                        {1, NAN, 2, 3},
                                        {NAN, 1, NAN, 2},
                                        {INFINITY, 1, 2, 3},
                                        {-INFINITY, 1, 2, -INFINITY},
                                        {-INFINITY, -INFINITY, -INFINITY, -INFINITY},
                                        {3, 3, 1, 3},
                                        {0, 0, 3, 4},
                                        {FLT_MAX, -FLT_MAX, 0, 1},
                                        {87, 88, 89, 120},
                                        {1000.5F, 1001, 998, 1000},
                                        {-1e9F, 1e9F, 1, 2}};
    size_t n = 0;
    for (size_t s = 0; s < sizeof shape / sizeof *shape; s++)
        for (int e = -126; e <= 126; e++, n++)
            for (int i = 0; i < ROW; i++)
                rows[n * ROW + i] = (float)ldexp(shape[s][i], e);
    memcpy(&rows[n * ROW], others, sizeof others);
    return n + sizeof others / sizeof *others;
}

/* A row is compared where its elements are of the sizes for which it holds; where it has an
 * infinity or NaN, of max and min, and of what takes -infinity for nothing. */
static bool holds(const struct composite *it, const double *x)
{
    bool ordered = it->known == known_max || it->known == known_min || it->known == known_mean;
    if (!is_finite(x))
        return ordered || (it->known == shares && top_of(x) < INFINITY && !isnan(sum_of(x)));
    for (int i = 0; i < ROW; i++)
        if (x[i] != 0 && (fabs(x[i]) < it->low || fabs(x[i]) > it->high))
            return false;
    return it->known != shares || top_of(x) < 1e38;
}

static void compare_rows(const struct composite *it, const float *rows, const float *found,
                         size_t n)
{
    for (size_t r = 0; r < n; r++) {
        double x[ROW], wanted[ROW], size = it->size;
        for (int i = 0; i < ROW; i++)
            x[i] = rows[r * ROW + i];
        if (!holds(it, x))
            continue;
        it->known(x, wanted);
        for (int i = 0; i < ROW; i++)
            size = fmax(size, fabs(wanted[i]));
        for (int i = 0; i < ROW; i++, tally.compared++)
            if (!is_right(found[r * ROW + i], wanted[i], it->tolerance, size) &&
                tally.wrong++ % 8 == 0)
                cr_expect(false, "%s of %g, %g, %g, %g, element %d: %.9g, not %.9g", it->name, x[0],
                          x[1], x[2], x[3], i, (double)found[r * ROW + i], wanted[i]);
    }
}

static void check_composite(const struct composite *it, const float *rows, size_t n, float *found)
{
    kiln_batch *batch = check_begin();
    kiln_tensor x = kiln_upload(batch, KILN_F32, DIMS(n, ROW), rows), g;
    kiln_tensor y = it->record(batch, x);
    const float w[ROW] = {1, 0.5F, -0.25F, 2};
    size_t rank, dims[KILN_MAX_RANK];
    expect_ok(kiln_tensor_shape(batch, y, NULL, &rank, dims));
    if (rank == 2)
        y = kiln_mul(batch, y, check_given(batch, KILN_F32, DIMS(ROW), w));
    expect_ok(kiln_grad(batch, kiln_sum(batch, y, 0, NULL, 0), &x, 1, &g));
    expect_ok(kiln_read(batch, g, found, n * ROW * sizeof(float)));
    run_batch(batch);
    check_end(batch);
    compare_rows(it, rows, found, n);
}

Test(grad_range, composites)
{
    check_cheaply();
    float *rows = malloc(MOST * sizeof *rows), *found = malloc(MOST * sizeof *found);
    size_t n = make_rows(rows);
    cr_assert_leq(n * ROW, MOST);
    for (size_t i = 0; i < sizeof composites / sizeof *composites; i++)
        check_composite(&composites[i], rows, n, found);
    free(rows);
    free(found);
    end_tally("composites");
    check_close();
}
