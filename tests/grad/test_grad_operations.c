/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of every row and every kind of node by finite differences; no device. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "../support/check.h"
#include "../support/context.h"
#include "../support/gradient.h"
#include "../support/graph.h"

/* ---- elementwise ---- */

static bool gives_floats(const struct kiln__elementwise_row *row)
{
    enum kiln__types rule = (enum kiln__types)row->types;
    return kiln__types_accept(rule, KILN_F32) && kiln__types_result(rule, KILN_F32) == KILN_F32;
}

/* Where a row and its derivatives are defined and smooth; elsewhere from -4 to 4. */
static void domain_of(unsigned op, double *low, double *high)
{
    static const struct {
        unsigned op;
        double low, high;
    } narrow[] = {
        {KILN__OP_log, 0.25, 4},   {KILN__OP_log2, 0.25, 4},        {KILN__OP_sqrt, 0.25, 4},
        {KILN__OP_rsqrt, 0.25, 4}, {KILN__OP_log1p, -0.75, 4},      {KILN__OP_acos, -0.875, 0.875},
        {KILN__OP_pow, 0.25, 4},   {KILN__OP_asin, -0.875, 0.875},  {KILN__OP_tan, -1.25, 1.25},
        {KILN__OP_acosh, 1.25, 4}, {KILN__OP_atanh, -0.875, 0.875}, {KILN__OP_fmod, 1, 4},
        {KILN__OP_mod, 1, 4},      {KILN__OP_atan2, 0.5, 4},
    };
    *low = -4, *high = 4;
    for (size_t i = 0; i < sizeof narrow / sizeof *narrow; i++)
        if (narrow[i].op == op)
            *low = narrow[i].low, *high = narrow[i].high;
}

#define ELEMENTS 11

static kiln_tensor operand(kiln_batch *batch, kiln_type type, double low, double high)
{
    float floats[ELEMENTS];
    uint8_t masks[ELEMENTS];
    for (size_t i = 0; i < ELEMENTS; i++) {
        floats[i] = (float)(low + (high - low) * (check_random(1000) / 1000.0));
        masks[i] = (uint8_t)check_random(3);
    }
    return check_given(batch, type, DIMS(ELEMENTS), type == KILN_F32 ? (void *)floats : masks);
}

/* First derivatives by each f32 operand, and differences of first derivatives for second ones. */
static void check_row(unsigned op)
{
    const struct kiln__elementwise_row *row = &kiln__elementwise_rows[op];
    kiln_batch *batch = imagined_batch();
    kiln_tensor operands[3], inputs[3], first[3];
    size_t count = 0;
    double low, high;
    domain_of(op, &low, &high);
    for (unsigned k = 0; k < row->tensors; k++) {
        kiln_type type = kiln__types_operand((enum kiln__types)row->types, k, KILN_F32);
        operands[k] = operand(batch, type, low, high);
        if (type == KILN_F32)
            inputs[count++] = operands[k];
    }
    kiln_tensor y = check_elementwise(batch, op, operands);
    cr_log_info("%s", row->name);
    check_gradient(batch, y, count, inputs, GRADIENT_TOLERANCE, first);
    for (size_t k = 0; k < count; k++)
        check_gradient(batch, first[k], count, inputs, GRADIENT_TOLERANCE, NULL);
    check_end(batch);
}

Test(grad_operations, every_row_and_its_second_derivative)
{
    for (unsigned op = 0; op < KILN__OP_COUNT; op++)
        if (gives_floats(&kiln__elementwise_rows[op]))
            check_row(op);
}

/* The reference's value of one gradient, element by element. */
static void expect_elements(kiln_batch *batch, kiln_tensor tensor, size_t count,
                            const double *wanted)
{
    double *found = check_values(batch, tensor);
    for (size_t i = 0; i < count; i++)
        cr_expect(fabs(found[i] - wanted[i]) <= 1e-6 * (1 + fabs(wanted[i])),
                  "element %zu is %.9g, not %.9g", i, found[i], wanted[i]);
    free(found);
}

/* Where two candidates are equal, and at kinks: PyTorch 2.1's answers. */
Test(grad_operations, kinks)
{
    static const float at[] = {-1, -0.0f, 0, 2}, other[] = {-1, 1, 0, 1};
    static const struct {
        unsigned op;
        double by_a[4], by_b[4];
    } rows[] = {
        {KILN__OP_abs, {-1, 0, 0, 1}, {0}},
        {KILN__OP_relu, {0, 0, 0, 1}, {0}},
        {KILN__OP_maximum, {0.5, 0, 0.5, 1}, {0.5, 1, 0.5, 0}},
        {KILN__OP_minimum, {0.5, 1, 0.5, 0}, {0.5, 0, 0.5, 1}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kiln_batch *batch = imagined_batch();
        kiln_tensor x[2] = {check_given(batch, KILN_F32, DIMS(4), at),
                            check_given(batch, KILN_F32, DIMS(4), other)};
        kiln_tensor y = check_elementwise(batch, rows[i].op, x), g[2];
        expect_ok(kiln_grad(batch, kiln_sum(batch, y, 0, NULL, 0), x, 2, g));
        expect_elements(batch, g[0], 4, rows[i].by_a);
        expect_elements(batch, g[1], 4, rows[i].by_b);
        check_end(batch);
    }
}

/* Operands that were repeated get the sum. */
Test(grad_operations, broadcast_operands)
{
    static const struct {
        size_t rank, dims[3];
    } shapes[] = {{0, {0}},       {1, {1}},       {1, {3}},       {2, {2, 3}},
                  {2, {2, 1}},    {2, {1, 3}},    {3, {5, 2, 3}}, {3, {5, 1, 3}},
                  {3, {1, 1, 1}}, {3, {5, 2, 1}}, {3, {1, 2, 3}}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t j = 0; j < sizeof shapes / sizeof *shapes; j++) {
            kiln_batch *batch = imagined_batch();
            kiln_tensor x[2] = {check_plain(batch, shapes[i].rank, shapes[i].dims),
                                check_positive(batch, shapes[j].rank, shapes[j].dims)};
            expect_gradient(batch, kiln_div(batch, x[0], x[1]), 2, x);
        }
}

/* ---- reductions ---- */

Test(grad_operations, every_reduction)
{
    static const struct {
        size_t count;
        int axes[3];
    } cases[] = {{0, {0}}, {1, {0}}, {1, {1}}, {1, {2}}, {2, {0, 2}}, {2, {1, 2}}, {3, {0, 1, 2}}};
    for (unsigned op = 0; op < KILN__REDUCE_COUNT; op++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            if (kiln__reduce_rows[op].indexed)
                continue;
            kiln_batch *batch = imagined_batch();
            kiln_tensor x = check_positive(batch, DIMS(2, 3, 4));
            kiln_tensor y = check_reduction(batch, op, kiln_square(batch, x), cases[i].count,
                                            cases[i].count ? cases[i].axes : NULL, (int)i & 1);
            cr_log_info("%s, case %zu", kiln__reduce_rows[op].name, i);
            expect_gradient(batch, y, 1, &x);
        }
}

/* Equal candidates share evenly, as PyTorch's amax and amin; a product goes on past its zeros. */
Test(grad_operations, reductions_of_special_values)
{
    static const float x[] = {1, 3, 3, 3, 2, 0, 5, 0, 4, 2, 0, 3};
    static const struct {
        unsigned op;
        double wanted[12];
    } rows[] = {
        {KILN__REDUCE_max, {0, 1. / 3, 1. / 3, 1. / 3, 0, 0, 1, 0, 1, 0, 0, 0}},
        {KILN__REDUCE_min, {1, 0, 0, 0, 0, 0.5, 0, 0.5, 0, 0, 1, 0}},
        {KILN__REDUCE_product, {27, 9, 9, 9, 0, 0, 0, 0, 0, 0, 24, 0}},
        {KILN__REDUCE_mean, {.25, .25, .25, .25, .25, .25, .25, .25, .25, .25, .25, .25}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kiln_batch *batch = imagined_batch();
        kiln_tensor a = check_given(batch, KILN_F32, DIMS(3, 4), x), g;
        kiln_tensor y = check_reduction(batch, rows[i].op, a, 1, (int[]){1}, 0);
        expect_ok(kiln_grad(batch, kiln_sum(batch, y, 0, NULL, 0), &a, 1, &g));
        expect_elements(batch, g, 12, rows[i].wanted);
        check_end(batch);
    }
}

/* ---- movement ---- */

Test(grad_operations, reshape_transpose_broadcast)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = check_plain(batch, DIMS(2, 3, 4));
    kiln_tensor y = kiln_reshape(batch, kiln_square(batch, x), DIMS(4, 6));
    expect_gradient(batch, y, 1, &x);

    static const size_t orders[][3] = {{0, 2, 1}, {2, 0, 1}, {1, 2, 0}, {2, 1, 0}, {1, 0, 2}};
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        batch = imagined_batch();
        x = check_plain(batch, DIMS(2, 3, 4));
        y = kiln_transpose(batch, kiln_square(batch, x), orders[i]);
        expect_gradient(batch, y, 1, &x);
    }

    batch = imagined_batch();
    x = check_plain(batch, DIMS(3, 1));
    y = kiln_broadcast(batch, kiln_square(batch, x), DIMS(2, 3, 4));
    expect_gradient(batch, kiln_transpose(batch, y, NULL), 1, &x);
}

/* Slices with steps, in either direction, and views of views. */
Test(grad_operations, slices)
{
    static const struct {
        int64_t start[2], stop[2], step[2];
    } cases[] = {
        {{1, 0}, {4, 7}, {1, 1}},   {{0, 1}, {5, 6}, {2, 3}}, {{4, 6}, {-1, -1}, {-1, -1}},
        {{3, 5}, {0, 0}, {-2, -3}}, {{2, 3}, {3, 4}, {1, 1}}, {{0, 6}, {5, -1}, {1, -2}},
        {{4, 6}, {5, 7}, {7, 9}},   {{0, 0}, {5, 7}, {1, 1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kiln_batch *batch = imagined_batch();
        kiln_tensor x = check_plain(batch, DIMS(5, 7)), first;
        kiln_tensor y =
            kiln_slice(batch, kiln_square(batch, x), cases[i].start, cases[i].stop, cases[i].step);
        check_gradient(batch, kiln_transpose(batch, kiln_square(batch, y), NULL), 1, &x,
                       GRADIENT_TOLERANCE, &first);
        check_gradient(batch, first, 1, &x, GRADIENT_TOLERANCE, NULL);
        check_end(batch);
    }
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = check_plain(batch, DIMS(4, 3)), g;
    kiln_tensor nothing = kiln_slice(batch, x, (int64_t[]){2, 0}, (int64_t[]){2, 3}, NULL);
    expect_ok(kiln_grad(batch, kiln_sum(batch, nothing, 0, NULL, 0), &x, 1, &g));
    expect_zeros(batch, g, 12);
    check_end(batch);
}

/* Overlapping windows: shared elements get the sum. */
Test(grad_operations, windows)
{
    static const struct {
        size_t size[2], step[2], dilation[2];
    } cases[] = {
        {{3, 2}, {1, 1}, {1, 1}}, {{2, 3}, {2, 1}, {1, 1}}, {{3, 2}, {1, 2}, {2, 3}},
        {{1, 1}, {1, 1}, {1, 1}}, {{2, 1}, {3, 2}, {1, 1}}, {{6, 7}, {1, 1}, {1, 1}},
        {{2, 6}, {1, 1}, {4, 1}}, {{3, 3}, {3, 2}, {1, 2}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kiln_batch *batch = imagined_batch();
        kiln_tensor x = check_plain(batch, DIMS(2, 6, 7, 1)), first;
        kiln_tensor y = kiln_windows(batch, kiln_square(batch, x), 1, 2, cases[i].size,
                                     cases[i].step, cases[i].dilation);
        check_gradient(batch, kiln_square(batch, y), 1, &x, GRADIENT_TOLERANCE, &first);
        if (i < 3)
            check_gradient(batch, first, 1, &x, GRADIENT_TOLERANCE, NULL);
        check_end(batch);
    }
}

/* Windows that run backwards, and elements at strange positions, which no public call makes. */
Test(grad_operations, any_affine_view)
{
    static const struct {
        struct kiln__view view;
        struct kiln__shape shape;
    } cases[] = {
        {{{0, 0}, {1, -1}, {3}}, {2, {4, 4}}},
        {{{0, 0}, {-2, 1}, {6}}, {2, {4, 2}}},
        {{{0, 0, 0}, {1, 2, 3}, {0}}, {3, {2, 2, 2}}},
        {{{0, -1, 0}, {-1, 0, -2}, {8}}, {3, {3, 2, 3}}},
        {{{0, 0}, {3, 0}, {1}}, {2, {3, 2}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kiln_batch *batch = imagined_batch();
        kiln_tensor x = check_plain(batch, DIMS(9)), square = kiln_square(batch, x);
        struct kiln__node node = {.kind = KILN__VIEW, .type = KILN_F32, .n_inputs = 1};
        node.op = KILN__VIEW_COMPOSED;
        node.input[0] = kiln__tensor_index(square);
        node.shape = cases[i].shape;
        node.view = cases[i].view;
        expect_gradient(batch, kiln__batch_record(batch, &node, "test"), 1, &x);
    }
}

/* Nothing comes to what is replaced, nor to a part that is beyond x. */
Test(grad_operations, slices_at_positions)
{
    static const int32_t positions[] = {1, 3, -1, 9};
    for (size_t i = 0; i < 4; i++) {
        kiln_batch *batch = imagined_batch();
        kiln_tensor x[2] = {check_plain(batch, DIMS(4, 3)), check_plain(batch, DIMS(2, 3))};
        kiln_tensor start = check_given(batch, KILN_I32, DIMS(1), &positions[i]);
        kiln_tensor y =
            kiln_update_slice(batch, kiln_square(batch, x[0]), kiln_exp(batch, x[1]), start, 0);
        expect_gradient(batch, kiln_square(batch, y), 2, x);
    }
    kiln_batch *batch = imagined_batch();
    kiln_tensor x[2] = {check_plain(batch, DIMS(2, 2, 4)), check_plain(batch, DIMS(2, 2, 2))};
    kiln_tensor start = check_given(batch, KILN_I32, DIMS(2, 1), ((int32_t[]){2, 3}));
    kiln_tensor y = kiln_update_slice(batch, x[0], kiln_exp(batch, x[1]), start, 2);
    expect_gradient(batch, kiln_square(batch, y), 2, x);

    batch = imagined_batch();
    kiln_tensor z = check_plain(batch, DIMS(3, 4));
    start = check_given(batch, KILN_I32, DIMS(3), ((int32_t[]){2, 0, 1}));
    expect_gradient(batch, kiln_exp(batch, kiln_slice_at(batch, z, start, 2, 1)), 1, &z);
}

Test(grad_operations, places)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x[2] = {check_plain(batch, DIMS(4, 5)), check_plain(batch, DIMS(2, 3))};
    kiln_tensor y = kiln_insert_slice(batch, kiln_square(batch, x[0]), kiln_exp(batch, x[1]),
                                      (int64_t[]){3, 0}, (int64_t[]){-2, 2});
    kiln_tensor first[2];
    check_gradient(batch, y, 2, x, GRADIENT_TOLERANCE, first);
    check_gradient(batch, first[0], 2, x, GRADIENT_TOLERANCE, NULL);
    check_end(batch);

    batch = imagined_batch();
    kiln_tensor p[3] = {check_plain(batch, DIMS(2, 3)), check_plain(batch, DIMS(2, 1)),
                        check_plain(batch, DIMS(2, 2))};
    kiln_tensor joined = kiln_concat(batch, 3, p, 1);
    y = kiln_pad(batch, kiln_square(batch, joined), (size_t[]){1, 0}, (size_t[]){0, 2}, 3);
    expect_gradient(batch, kiln_square(batch, y), 3, p);

    batch = imagined_batch();
    kiln_tensor s[2] = {check_plain(batch, DIMS(2, 3)), check_plain(batch, DIMS(2, 3))}, half[2];
    kiln_tensor stacked = kiln_square(batch, kiln_stack(batch, 2, s, 1));
    expect_ok(kiln_split(batch, stacked, 0, 2, NULL, half));
    expect_gradient(batch, kiln_mul(batch, half[0], half[1]), 2, s);
}

/* ---- products ---- */

Test(grad_operations, matmul)
{
    static const struct {
        size_t a_rank, a[4], b_rank, b[4];
        int transpose_a, transpose_b;
    } cases[] = {
        {2, {3, 4}, 2, {4, 5}, 0, 0},       {2, {4, 3}, 2, {4, 5}, 1, 0},
        {2, {3, 4}, 2, {5, 4}, 0, 1},       {2, {4, 3}, 2, {5, 4}, 1, 1},
        {3, {2, 3, 4}, 2, {4, 5}, 0, 0},    {2, {3, 4}, 3, {2, 4, 5}, 0, 0},
        {3, {2, 3, 4}, 3, {2, 5, 4}, 0, 1}, {4, {2, 1, 3, 4}, 3, {3, 4, 2}, 0, 0},
        {3, {1, 3, 4}, 3, {2, 4, 1}, 0, 0}, {2, {1, 1}, 2, {1, 1}, 0, 0},
        {4, {2, 3, 1, 4}, 2, {1, 4}, 0, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kiln_batch *batch = imagined_batch();
        kiln_tensor x[2] = {check_plain(batch, cases[i].a_rank, cases[i].a),
                            check_plain(batch, cases[i].b_rank, cases[i].b)};
        kiln_tensor y =
            kiln_matmul_transposed(batch, x[0], cases[i].transpose_a, x[1], cases[i].transpose_b);
        kiln_tensor first[2];
        check_gradient(batch, y, 2, x, GRADIENT_TOLERANCE, first);
        check_gradient(batch, first[0], 2, x, GRADIENT_TOLERANCE, NULL);
        check_gradient(batch, first[1], 2, x, GRADIENT_TOLERANCE, NULL);
        check_end(batch);
    }
}

Test(grad_operations, vectors_in_products)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x[2] = {check_plain(batch, DIMS(4)), check_plain(batch, DIMS(4, 3))};
    expect_gradient(batch, kiln_matmul(batch, x[0], x[1]), 2, x);
    batch = imagined_batch();
    kiln_tensor v[2] = {check_plain(batch, DIMS(5)), check_plain(batch, DIMS(5))};
    expect_gradient(batch, kiln_dot(batch, v[0], v[1]), 2, v);
}

/* ---- normalisations ---- */

/* Normalisations, whose largest element is detached. */
Test(grad_operations, normalisations)
{
    for (int i = 0; i < 8; i++) {
        kiln_batch *batch = imagined_batch();
        kiln_tensor x[3] = {check_plain(batch, DIMS(3, 5)), check_plain(batch, DIMS(5)),
                            check_plain(batch, DIMS(5))};
        const int last[1] = {-1};
        kiln_tensor results[8] = {kiln_softmax(batch, x[0], 1, last),
                                  kiln_log_softmax(batch, x[0], 1, last),
                                  kiln_logsumexp(batch, x[0], 1, last, 1),
                                  kiln_variance(batch, x[0], 1, last, 1, 0),
                                  kiln_norm(batch, x[0], 0, NULL, 0),
                                  kiln_layer_norm(batch, x[0], x[1], x[2], 1, last, 1e-5),
                                  kiln_rms_norm(batch, x[0], x[1], 1, last, 1e-5),
                                  kiln_softmax(batch, x[0], 0, NULL)};
        kiln_tensor first[3];
        check_gradient(batch, results[i], 3, x, GRADIENT_TOLERANCE, first);
        check_gradient(batch, first[0], 3, x, GRADIENT_TOLERANCE, NULL);
        check_end(batch);
    }
}

/* The norm of nothing but zeros has a kink there, and 0 is within its derivatives. */
Test(grad_operations, norm_at_zero)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = kiln_fill(batch, KILN_F32, 2, (size_t[]){2, 3}, 0), g;
    kiln_tensor norm = kiln_norm(batch, x, 1, (int[]){1}, 0);
    expect_ok(kiln_grad(batch, kiln_sum(batch, norm, 0, NULL, 0), &x, 1, &g));
    expect_zeros(batch, g, 6);
    check_end(batch);
}
