/* SPDX-License-Identifier: Apache-2.0 */
/* kiln_model_options::weights as q8_0 or q4_0: matrices of products are rows of blocks. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/context.h"
#include "tests/onnx/models.h"

TestSuite(onnx_narrow_weights, .init = begin_models, .fini = end_models);

enum { MOST = 1 << 15, BLOCK = 32 };

static float w[MOST], x[MOST];

static void fill_operands(void)
{
    for (size_t i = 0; i < MOST; i++) {
        w[i] = (float)((int)(i * 7919 % 1009) - 504) * (i / 400 % 2 ? 0.003F : 2.0F);
        x[i] = (float)((int)(i * 29 % 64) - 31) / 32;
    }
}

static kiln_onnx_model *load(const Onnx__ModelProto *proto, kiln_type type)
{
    kiln_model_options options = KILN_MODEL_OPTIONS_INIT;
    kiln_onnx_model *model;
    options.weights = type;
    expect_ok(load_model(context, proto, &options, &model));
    return model;
}

/* A matrix of `k` times `n`, in the file the other way round where it is turned. */
struct matrix {
    const char *op;
    bool turned;
    size_t k, n;
};

static double element(const struct matrix *m, size_t k, size_t n)
{
    return w[m->turned ? n * m->k + k : k * m->n + n];
}

static Onnx__ModelProto *make(const struct matrix *m, const char *shape)
{
    Onnx__ModelProto *proto = new_model(21);
    char dims[80];
    snprintf(dims, sizeof dims, "%zu %zu", m->turned ? m->n : m->k, m->turned ? m->k : m->n);
    add_input(proto, "x", FLOAT, shape);
    add_output(proto, "y", FLOAT, NULL);
    add_floats(proto, "w", dims, w);
    Onnx__NodeProto *node = add_node(proto, m->op, "x w", "y");
    if (m->turned)
        set_int(node, "transB", 1);
    if (!strcmp(m->op, "Gemm"))
        set_float(node, "alpha", 2);
    return proto;
}

/* The largest element of k's block in column n. */
static double peak_of(const struct matrix *m, size_t k, size_t n)
{
    double most = 0;
    const size_t first = k / BLOCK * BLOCK;
    for (size_t i = first; i < m->k && i < first + BLOCK; i++)
        most = fmax(most, fabs(element(m, i, n)));
    return most;
}

/* Off by no more than half a step of each weight, and off: it is not computed from f32. A step is
 * the block's largest number over 127, or over 8, and that in 11 bits. */
static void check_product(const struct matrix *m, kiln_type type, size_t rows)
{
    const double part = type == KILN_Q8_0 ? 0.5 / 127 + 0x1p-11 : 1.0 / 8 + 0x1p-11;
    const double alpha = strcmp(m->op, "Gemm") ? 1 : 2;
    kiln_onnx_model *model = load(make(m, "rows k"), type);
    kiln_array y;
    double most_off = 0;
    expect_ok(kiln_model_run(model, &(kiln_array){KILN_F32, 2, {rows, m->k}, x}, &y));
    cr_assert(y.rank == 2 && y.dims[0] == rows && y.dims[1] == m->n);
    for (size_t i = 0; i < rows * m->n; i++) {
        double sum = 0, all = 0, steps = 0;
        for (size_t k = 0; k < m->k; k++) {
            const double factor = alpha * (double)x[i / m->n * m->k + k];
            sum += factor * element(m, k, i % m->n);
            all += fabs(factor * element(m, k, i % m->n));
            steps += fabs(factor) * peak_of(m, k, i % m->n) * part;
        }
        const double off = fabs((double)((float *)y.data)[i] - sum);
        cr_assert(off <= steps + 1e-6 * all, "%s %zu x %zu: y[%zu] is off by %g, allowed %g", m->op,
                  m->k, m->n, i, off, steps);
        most_off = fmax(most_off, off - 1e-6 * all);
    }
    cr_expect(most_off > 0, "%s %zu x %zu: nothing is rounded", m->op, m->k, m->n);
    kiln_free(y.data);
    kiln_model_release(model);
}

Test(onnx_narrow_weights, products_are_off_by_less_than_a_step)
{
    static const struct matrix matrices[] = {{"MatMul", false, 64, 70}, {"MatMul", false, 97, 33},
                                             {"Gemm", false, 33, 131},  {"Gemm", true, 256, 9},
                                             {"Gemm", true, 65, 64},    {"MatMul", false, 10, 300}};
    fill_operands();
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) {
        check_product(&matrices[i], KILN_Q8_0, 1 + i % 3);
        check_product(&matrices[i], KILN_Q4_0, 2);
    }
}

/* The smallest matrices, those with what f16 has no scale for, and what is read otherwise. */
Test(onnx_narrow_weights, others_stay_as_they_are)
{
    const size_t one[] = {1, 2}, two[] = {1, 40};
    float wanted[40], input[] = {1, -2};
    fill_operands();
    kiln_onnx_model *small = load(make(&(struct matrix){"MatMul", false, 2, 40}, "1 2"), KILN_Q8_0);
    for (size_t i = 0; i < 40; i++)
        wanted[i] = w[i] - 2 * w[40 + i];
    expect_floats(small, 2, one, input, 2, two, wanted);
    kiln_model_release(small);

    for (size_t i = 0; i < 2; i++) {
        const float row[32] = {1};
        kiln_array y;
        w[3] = i ? INFINITY : 1e30F;
        kiln_onnx_model *large =
            load(make(&(struct matrix){"MatMul", false, 32, 32}, "1 32"), KILN_Q8_0);
        expect_ok(kiln_model_run(large, &(kiln_array){KILN_F32, 2, {1, 32}, (void *)row}, &y));
        cr_expect_arr_eq(y.data, w, sizeof row);
        kiln_free(y.data);
        kiln_model_release(large);
    }
}

/* One matrix for a table and two products, as embeddings are that words are read from and back. */
Test(onnx_narrow_weights, a_matrix_may_have_other_readers)
{
    fill_operands();
    Onnx__ModelProto *proto = new_model(21);
    const int64_t which = 5;
    add_input(proto, "x", FLOAT, "1 64");
    add_output(proto, "y", FLOAT, NULL);
    add_floats(proto, "w", "64 64", w);
    add_integers(proto, "which", "1", &which);
    add_node(proto, "Gather", "w which", "row");
    add_node(proto, "MatMul", "x w", "first");
    add_node(proto, "MatMul", "x w", "second");
    add_node(proto, "Sub", "first second", "nothing");
    add_node(proto, "Add", "nothing row", "y");
    kiln_onnx_model *model = load(proto, KILN_Q8_0);
    const size_t dims[] = {1, 64};
    expect_floats(model, 2, dims, x, 2, dims, w + 5 * 64);
    kiln_model_release(model);
}

/* A bias is no part of the blocks, whether it is small or not. */
Test(onnx_narrow_weights, a_bias_is_added)
{
    static const size_t sizes[] = {40, 400};
    for (size_t i = 0; i < 2; i++) {
        const size_t n = sizes[i];
        char weights[20], bias[20];
        float y[2][400];
        fill_operands();
        snprintf(weights, sizeof weights, "64 %zu", n);
        snprintf(bias, sizeof bias, "%zu", n);
        for (int with = 0; with < 2; with++) {
            Onnx__ModelProto *proto = new_model(21);
            add_input(proto, "x", FLOAT, "1 64");
            add_output(proto, "y", FLOAT, NULL);
            add_floats(proto, "w", weights, w);
            add_floats(proto, "b", bias, w + 100);
            add_node(proto, "Gemm", with ? "x w b" : "x w", "y");
            kiln_onnx_model *model = load(proto, KILN_Q8_0);
            kiln_array found;
            expect_ok(kiln_model_run(model, &(kiln_array){KILN_F32, 2, {1, 64}, x}, &found));
            memcpy(y[with], found.data, n * sizeof(float));
            kiln_free(found.data);
            kiln_model_release(model);
        }
        for (size_t k = 0; k < n; k++)
            cr_expect_float_eq(y[1][k], y[0][k] + w[100 + k], 1e-6f * fabsf(y[0][k]) + 1e-3f);
    }
}

Test(onnx_narrow_weights, ranks_of_x)
{
    const struct matrix m = {"MatMul", false, 48, 40};
    fill_operands();
    static const char *const shapes[] = {"48", "2 3 48"};
    for (size_t i = 0; i < 2; i++) {
        kiln_onnx_model *model = load(make(&m, shapes[i]), KILN_Q8_0);
        kiln_array y, in = {KILN_F32, i ? 3 : 1, {48}, x};
        if (i)
            in.dims[0] = 2, in.dims[1] = 3, in.dims[2] = 48;
        expect_ok(kiln_model_run(model, &in, &y));
        cr_expect_eq(y.rank, in.rank);
        cr_expect_eq(y.dims[y.rank - 1], 40);
        cr_expect_eq(y.dims[0], i ? 2 : 40);
        kiln_free(y.data);
        kiln_model_release(model);
    }
}

Test(onnx_narrow_weights, is_refused)
{
    kiln_model_options options = KILN_MODEL_OPTIONS_INIT;
    kiln_onnx_model *model;
    kiln_array y;
    fill_operands();
    options.weights = KILN_Q4_K;
    cr_expect_eq(load_model(context, make(&(struct matrix){"MatMul", false, 32, 32}, "1 32"),
                            &options, &model),
                 KILN_INVALID_ARGUMENT);
    cr_expect(strstr(kiln_last_error(), "options->weights is q4_k"), "%s", kiln_last_error());
    model = load(make(&(struct matrix){"MatMul", false, 33, 32}, "rows k"), KILN_Q8_0);
    cr_expect_eq(kiln_model_run(model, &(kiln_array){KILN_F32, 2, {2, 40}, x}, &y),
                 KILN_SHAPE_MISMATCH);
    cr_expect(strstr(kiln_last_error(), "a last dimension of 40 and of weights [33,32]"), "%s",
              kiln_last_error());
    kiln_model_release(model);
}
