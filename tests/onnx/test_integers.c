/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of integers where sums, products and powers leave the range of a type; `make
 * check-onnx` has them all beside onnx's reference evaluator. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <string.h>

#include "support/context.h"
#include "tests/onnx/models.h"

#define INT16 ONNX__TENSOR_PROTO__DATA_TYPE__INT16
#define UINT16 ONNX__TENSOR_PROTO__DATA_TYPE__UINT16
#define INT32 ONNX__TENSOR_PROTO__DATA_TYPE__INT32
#define UINT32 ONNX__TENSOR_PROTO__DATA_TYPE__UINT32
#define UINT64 ONNX__TENSOR_PROTO__DATA_TYPE__UINT64

TestSuite(onnx_integers, .init = begin_models, .fini = end_models);

enum { MOST = 4 };

struct row {
    const char *operator_name;
    int type;
    size_t n, n_wanted;
    int64_t a[MOST], b[MOST], wanted[MOST];
};

static const struct row rows[] = {
    {"Add", INT16, 2, 2, {32767, -32768}, {1, -1}, {-32768, 32767}},
    {"Sub", UINT16, 2, 2, {0, 7}, {1, 3}, {65535, 4}},
    {"Mul", INT16, 2, 2, {256, 181}, {256, 181}, {0, 32761}},
    {"Mul", UINT32, 2, 2, {65536, 65535}, {65536, 65537}, {0, 4294967295}},
    {"Div", INT16, 2, 2, {-32768, -7}, {-1, 2}, {-32768, -3}},
    {"Pow", INT32, 2, 2, {46341, -2147483647}, {2, 1}, {-2147479015, -2147483647}},
    {"Pow",
     INT64,
     3,
     3,
     {3, 9007199254740993, -1},
     {39, 1, -3},
     {4052555153018976267, 9007199254740993, -1}},
    {"PRelu", INT32, 2, 2, {-2147483647, 5}, {1, 7}, {-2147483647, 5}},
    {"MatMul", INT32, 2, 1, {65536, 3}, {65537, 5}, {65551}},
    {"MatMul", INT64, 2, 1, {4611686018427387905, 1}, {1, 2}, {4611686018427387907}},
    {"ReduceMean", INT32, 2, 1, {2147483647, 2147483645}, {0}, {2147483646}},
    {"ReduceMean", UINT32, 2, 1, {4294967295, 4294967293}, {0}, {4294967294}},
};

/* The type of kiln that has ONNX's numbers. */
static kiln_type type_of(int type)
{
    return type == INT64 || type == UINT32 || type == UINT64 ? KILN_I64 : KILN_I32;
}

static kiln_array array_of(int type, size_t n, const int64_t *values, int64_t *room)
{
    kiln_array array = {type_of(type), 1, {n}, room};
    for (size_t i = 0; i < n; i++)
        if (array.type == KILN_I64)
            room[i] = values[i];
        else
            ((int32_t *)(void *)room)[i] = (int32_t)values[i];
    return array;
}

static int64_t element(const kiln_array *array, size_t i)
{
    return array->type == KILN_I64 ? ((const int64_t *)array->data)[i]
                                   : ((const int32_t *)array->data)[i];
}

static kiln_onnx_model *load(const Onnx__ModelProto *proto)
{
    kiln_onnx_model *model;
    expect_ok(load_model(context, proto, NULL, &model));
    return model;
}

static void expect_row(const struct row *row)
{
    const bool two = strncmp(row->operator_name, "Reduce", 6) != 0;
    Onnx__ModelProto *proto = new_model(18);
    add_input(proto, "a", row->type, "n");
    add_output(proto, "y", row->type, NULL);
    if (two)
        add_input(proto, "b", row->type, "n");
    add_node(proto, row->operator_name, two ? "a b" : "a", "y");
    kiln_onnx_model *model = load(proto);
    int64_t a[MOST], b[MOST];
    kiln_array in[2] = {array_of(row->type, row->n, row->a, a),
                        array_of(row->type, row->n, row->b, b)};
    kiln_array out;
    expect_ok(kiln_model_run(model, in, &out));
    cr_assert_eq(out.type, type_of(row->type));
    for (size_t i = 0; i < row->n_wanted; i++)
        cr_expect_eq(element(&out, i), row->wanted[i],
                     "%s of type %d, element %zu: %" PRId64 ", not %" PRId64, row->operator_name,
                     row->type, i, element(&out, i), row->wanted[i]);
    kiln_free(out.data);
    kiln_model_release(model);
}

Test(onnx_integers, wrap_around_in_their_own_bits)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_row(&rows[i]);
}

/* Without an input everything is known when the model is recorded. */
Test(onnx_integers, are_the_same_where_they_are_known)
{
    Onnx__ModelProto *proto = new_model(18);
    const int64_t first = INT64_MAX - 10, wanted[] = {first, first + 4, first + 8};
    add_output(proto, "y", INT64, NULL);
    add_output(proto, "z", INT64, NULL);
    add_integers(proto, "first", "", &first);
    add_integers(proto, "limit", "", (const int64_t[]){INT64_MAX});
    add_integers(proto, "step", "", (const int64_t[]){4});
    add_integers(proto, "three", "", (const int64_t[]){3});
    add_integers(proto, "exponent", "", (const int64_t[]){39});
    add_node(proto, "Range", "first limit step", "y");
    add_node(proto, "Pow", "three exponent", "z");
    kiln_onnx_model *model = load(proto);
    kiln_array out[2];
    expect_ok(kiln_model_run(model, NULL, out));
    cr_assert_eq(out[0].dims[0], 3u);
    for (size_t i = 0; i < 3; i++)
        cr_expect_eq(element(&out[0], i), wanted[i]);
    cr_expect_eq(element(&out[1], 0), 4052555153018976267);
    kiln_free(out[0].data);
    kiln_free(out[1].data);
    kiln_model_release(model);
}

/* A matrix beside vectors, and matrices of which one is turned. */
Test(onnx_integers, are_multiplied_as_matrices)
{
    Onnx__ModelProto *proto = new_model(18);
    const int64_t a[] = {1, 2, 3, 4, 5, 6}, v[] = {1, 10}, w[] = {1, 10, 100};
    const int64_t products[] = {41, 52, 63, 321, 654, 14, 32, 32, 77};
    add_integers(proto, "a", "2 3", a);
    add_input(proto, "v", INT64, "2");
    add_input(proto, "w", INT64, "3");
    const char *const outputs[] = {"va", "aw", "aa"};
    for (size_t i = 0; i < 3; i++)
        add_output(proto, outputs[i], INT64, NULL);
    add_node(proto, "MatMul", "v a", "va");
    add_node(proto, "MatMul", "a w", "aw");
    set_int(add_node(proto, "Gemm", "a a", "aa"), "transB", 1);
    kiln_onnx_model *model = load(proto);
    kiln_array in[] = {{KILN_I64, 1, {2}, (void *)v}, {KILN_I64, 1, {3}, (void *)w}}, out[3];
    expect_ok(kiln_model_run(model, in, out));
    const int64_t *wanted = products;
    for (size_t k = 0; k < 3; k++) {
        cr_assert_eq(out[k].rank, k == 2 ? 2u : 1u);
        size_t count = out[k].dims[0] * (k == 2 ? out[k].dims[1] : 1);
        for (size_t i = 0; i < count; i++, wanted++)
            cr_expect_eq(element(&out[k], i), *wanted, "%s, element %zu: %" PRId64, outputs[k], i,
                         element(&out[k], i));
        kiln_free(out[k].data);
    }
    cr_assert_eq(wanted - products, 9);
    kiln_model_release(model);
}

/* What the library computes of uint64 are the bits of int64. */
Test(onnx_integers, of_uint64_shift_as_such)
{
    Onnx__ModelProto *proto = new_model(18);
    add_input(proto, "x", UINT64, "2");
    add_input(proto, "by", UINT64, "2");
    add_output(proto, "y", UINT64, NULL);
    set_text(add_node(proto, "BitShift", "x by", "left"), "direction", "LEFT");
    set_text(add_node(proto, "BitShift", "left by", "y"), "direction", "RIGHT");
    kiln_onnx_model *model = load(proto);
    kiln_array in[] = {{KILN_I64, 1, {2}, (int64_t[]){5, INT64_MAX}},
                       {KILN_I64, 1, {2}, (int64_t[]){61, 1}}},
               out;
    expect_ok(kiln_model_run(model, in, &out));
    cr_expect_eq(element(&out, 0), 5);
    cr_expect_eq(element(&out, 1), INT64_MAX);
    kiln_free(out.data);
    kiln_model_release(model);
}

Test(onnx_integers, of_uint64_from_2_to_the_63_are_refused)
{
    Onnx__ModelProto *proto = new_model(18);
    add_output(proto, "y", FLOAT, NULL);
    Onnx__TensorProto *w = add_integers(proto, "w", "2", (const int64_t[]){7, -1});
    w->data_type = UINT64;
    w->n_uint64_data = w->n_int64_data;
    w->uint64_data = (uint64_t *)w->int64_data;
    w->n_int64_data = 0;
    set_int(add_node(proto, "Cast", "w", "y"), "to", FLOAT);
    kiln_onnx_model *model;
    expect_error(load_model(context, proto, NULL, &model), KILN_UNSUPPORTED,
                 "kiln_model_load: tensor 'w': element 1 is 18446744073709551615, and uint64 is "
                 "computed as i64");

    proto = new_model(18);
    add_input(proto, "x", UINT64, "2");
    add_output(proto, "y", FLOAT, NULL);
    set_int(add_node(proto, "Cast", "x", "y"), "to", FLOAT);
    model = load(proto);
    kiln_array in = {KILN_I64, 1, {2}, (int64_t[]){7, -1}}, out;
    expect_error(kiln_model_run(model, &in, &out), KILN_INVALID_ARGUMENT,
                 "kiln_model_run: input 'x' is uint64, and element 1 is -1");
    kiln_model_release(model);
}
