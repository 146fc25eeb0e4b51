/* SPDX-License-Identifier: Apache-2.0 */
/* Models that are loaded, recorded, kept and run. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/context.h"
#include "support/layer.h"
#include "tests/onnx/models.h"

TestSuite(model, .init = begin_models, .fini = end_models);

/* relu(x w + b) */
static Onnx__ModelProto *layer(void)
{
    Onnx__ModelProto *model = new_model(17);
    add_input(model, "x", FLOAT, "batch 2");
    add_output(model, "y", FLOAT, "batch 3");
    add_floats(model, "w", "2 3", (const float[]){1, 2, 3, 4, 5, 6});
    add_floats(model, "b", "3", (const float[]){-10, 0, 1});
    add_node(model, "MatMul", "x w", "p");
    add_node(model, "Add", "p b", "s");
    add_node(model, "Relu", "s", "y");
    return model;
}

/* A program with other headers than the library's: its structures are shorter or longer. */
Test(model, tells_of_values_in_the_callers_form)
{
    enum { LONGER = sizeof(kiln_model_value) + 24, SHORTER = sizeof(kiln_model_value) - 8 };
    kiln_onnx_model *model = loaded(layer());
    const kiln_model_value *value, *again;
    for (unsigned outputs = 0; outputs < 2; outputs++)
        for (size_t size = SHORTER; size <= LONGER; size += LONGER - SHORTER) {
            size_t count = outputs ? (kiln_model_outputs)(model, &value, size)
                                   : (kiln_model_inputs)(model, &value, size);
            cr_assert_eq(count, 1u);
            cr_expect_str_eq(value->name, outputs ? "y" : "x");
            for (size_t i = sizeof *value; i < size; i++)
                cr_expect_eq(((const char *)value)[i], 0);
            (void)(outputs ? (kiln_model_outputs)(model, &again, size)
                           : (kiln_model_inputs)(model, &again, size));
            cr_expect_eq(value, again);
        }
    kiln_model_release(model);
}

Test(model, structures_may_be_shorter_or_longer)
{
    union {
        kiln_model_options options;
        unsigned char bytes[sizeof(kiln_model_options) + 16];
    } given = {.options = KILN_MODEL_OPTIONS_INIT};
    unsigned char op[sizeof(kiln_model_operator) + 16];
    kiln_onnx_model *model;
    size_t bytes;
    uint8_t *packed = pack_model(layer(), &bytes);
    given.options.size = sizeof given;
    expect_ok(kiln_model_load_memory(context, packed, bytes, &given.options, &model));
    kiln_model_release(model);
    given.bytes[sizeof given - 1] = 1;
    expect_error(kiln_model_load_memory(context, packed, bytes, &given.options, &model),
                 KILN_UNSUPPORTED,
                 "kiln_model_load: options has fields that this version of kiln has not, and they "
                 "are not 0");
    given.options.size = offsetof(kiln_model_options, folder);
    given.options.plain = 1; /* is not looked at */
    expect_ok(kiln_model_load_memory(context, packed, bytes, &given.options, &model));
    kiln_model_release(model);
    for (size_t size = 8; size <= sizeof op; size += 8) {
        memset(op, 0xA5, sizeof op);
        expect_ok((kiln_model_get_operator)(0, (kiln_model_operator *)(void *)op, size));
        for (size_t i = sizeof(kiln_model_operator); i < sizeof op; i++)
            cr_expect_eq(op[i], i < size ? 0 : 0xA5);
        cr_expect(size > sizeof(kiln_model_operator) || op[size] == 0xA5);
        memset(&given, 0xA5, sizeof given);
        (kiln_model_options_init)(&given.options, size);
        cr_expect_eq(given.options.size, size);
        for (size_t i = size; i < sizeof given; i++)
            cr_expect_eq(given.bytes[i], 0xA5);
    }
}

Test(model, runs_for_inputs_of_any_batch)
{
    kiln_onnx_model *model = loaded(layer());
    const kiln_model_value *value;
    cr_assert_eq(kiln_model_inputs(model, &value), 1u);
    cr_assert_str_eq(value->name, "x");
    cr_assert(value->rank == 2 && value->dims[0] == 0 && value->dims[1] == 2 && !value->content);
    cr_assert_str_eq(value->symbols[0], "batch");
    cr_assert_eq(kiln_model_outputs(model, &value), 1u);
    cr_assert_str_eq(value->name, "y");
    cr_assert_str_eq(kiln_model_notes(model), "");
    expect_floats(model, DIMS(1, 2), (const float[]){1, 2}, DIMS(1, 3), (const float[]){0, 12, 16});
    expect_floats(model, DIMS(2, 2), (const float[]){1, 2, 3, 3}, DIMS(2, 3),
                  (const float[]){0, 12, 16, 5, 21, 28});
    kiln_model_release(model);
}

static kiln_model_lease *lease_rows(kiln_onnx_model *model, size_t rows)
{
    kiln_array in = {KILN_F32, 2, {rows, 2}, NULL};
    kiln_model_lease *lease;
    expect_ok(kiln_model_batch(model, &in, &lease));
    return lease;
}

Test(model, keeps_as_many_batches_as_it_may)
{
    kiln_model_options options;
    kiln_model_options_init(&options);
    options.batches = 2;
    kiln_onnx_model *model;
    expect_ok(load_model(context, layer(), &options, &model));
    kiln_model_lease *one = lease_rows(model, 1), *two = lease_rows(model, 2);
    kiln_model_lease *again = lease_rows(model, 1);
    cr_assert_neq(one, again, "one batch for two at once");
    kiln_model_batch_return(again);
    kiln_model_batch_return(one);
    kiln_model_batch_return(two); /* `again` is the one too many */
    cr_assert_eq(lease_rows(model, 1), one);
    cr_assert_eq(lease_rows(model, 2), two);
    kiln_model_batch_return(one);
    kiln_model_batch_return(two);
    kiln_model_batch_return(NULL);
    kiln_model_release(model);
}

/* What a lease has rebound is its own again for the next. */
Test(model, gives_a_lease_its_memory_back)
{
    kiln_onnx_model *model = loaded(layer());
    kiln_model_lease *lease = lease_rows(model, 1);
    float mine[2] = {1, 2}, result[3];
    cr_assert_eq(lease->size, sizeof *lease);
    expect_ok(kiln_rebind_upload(lease->batch, lease->input_tensors[0], mine));
    expect_ok(kiln_rebind_read(lease->batch, 0, result, sizeof result));
    expect_ok(kiln_batch_execute(lease->batch));
    cr_assert_float_eq(result[2], 16, 1e-5);
    kiln_model_batch_return(lease);
    expect_floats(model, DIMS(1, 2), (const float[]){3, 3}, DIMS(1, 3), (const float[]){5, 21, 28});
    cr_assert_float_eq(result[2], 16, 1e-5);
    kiln_model_release(model);
}

#define MANY 20000 /* more than is copied */

static void expect_many(const float *x, const float *y)
{
    for (size_t i = 0; i < MANY; i++) {
        const float a = x[2 * i], b = x[2 * i + 1];
        cr_assert_float_eq(y[3 * i + 1], 2 * a + 5 * b, 1e-3, "row %zu", i);
        cr_assert_float_eq(y[3 * i + 2], 3 * a + 6 * b + 1, 1e-3, "row %zu", i);
    }
}

static float *run_many(kiln_onnx_model *model, void *x)
{
    kiln_array in = {KILN_F32, 2, {MANY, 2}, x}, out;
    expect_ok(kiln_model_run(model, &in, &out));
    cr_assert(out.rank == 2 && out.dims[0] == MANY && out.dims[1] == 3);
    return out.data;
}

/* They are bound for one run; a lease of the same batch has memory of its own, and later runs are
 * as before. Neither an array's address nor how it is aligned makes a difference. */
Test(model, runs_on_large_arrays_where_they_are)
{
    kiln_onnx_model *model = loaded(layer());
    float *x = malloc((2 * MANY + 1) * sizeof *x);
    char *odd = (char *)x + 1;
    for (size_t i = 0; i < 2 * (size_t)MANY; i++)
        x[i] = (float)(i % 7);
    float *first = run_many(model, x);
    expect_many(x, first);
    kiln_model_lease *lease = lease_rows(model, MANY);
    cr_assert(lease->inputs[0].data && lease->outputs[0].data);
    cr_assert(lease->inputs[0].data != x && lease->outputs[0].data != first);
    memcpy(lease->inputs[0].data, x, 2 * MANY * sizeof *x);
    expect_ok(kiln_batch_execute(lease->batch));
    expect_many(x, lease->outputs[0].data);
    kiln_model_batch_return(lease);
    memmove(odd, x, 2 * MANY * sizeof *x);
    float *second = run_many(model, odd);
    memmove(x, odd, 2 * MANY * sizeof *x);
    expect_many(x, second);
    expect_many(x, first);
    kiln_free(first);
    kiln_free(second);
    free(x);
    kiln_model_release(model);
}

Test(model, shares_its_weights_among_batches)
{
    Onnx__ModelProto *proto = new_model(17);
    static float weights[20 * 30];
    add_input(proto, "x", FLOAT, "n 20");
    add_output(proto, "y", FLOAT, NULL);
    add_floats(proto, "w", "20 30", weights);
    add_node(proto, "MatMul", "x w", "y");
    kiln_onnx_model *model = loaded(proto);
    uint64_t bytes = stats_of(context).buffer_bytes;
    kiln_model_lease *lease[3];
    for (size_t i = 0; i < 3; i++) {
        kiln_array in = {KILN_F32, 2, {i + 1, 20}, NULL};
        expect_ok(kiln_model_batch(model, &in, &lease[i]));
    }
    cr_assert_eq(bytes, sizeof weights);
    cr_assert_eq(stats_of(context).buffer_bytes, bytes);
    for (size_t i = 0; i < 3; i++)
        kiln_model_batch_return(lease[i]);
    kiln_model_release(model);
}

/* x as [batch, 2, n / 2], whatever its shape: what depends on shapes is no part of the batch. */
Test(model, computes_shapes_on_the_host)
{
    Onnx__ModelProto *proto = new_model(13);
    add_input(proto, "x", FLOAT, "batch n");
    add_output(proto, "y", FLOAT, NULL);
    add_integers(proto, "zero", "", (const int64_t[]){0});
    add_integers(proto, "axes", "1", (const int64_t[]){0});
    add_integers(proto, "one", "1", (const int64_t[]){1});
    add_integers(proto, "two", "1", (const int64_t[]){2});
    add_node(proto, "Shape", "x", "shape");
    add_node(proto, "Gather", "shape zero", "batch");
    add_node(proto, "Unsqueeze", "batch axes", "rows");
    add_node(proto, "Slice", "shape one two", "columns");
    add_node(proto, "Div", "columns two", "half");
    set_int(add_node(proto, "Concat", "rows two half", "wanted"), "axis", 0);
    add_node(proto, "Reshape", "x wanted", "y");
    kiln_onnx_model *model = loaded(proto);
    kiln_array in = {KILN_F32, 2, {3, 8}, NULL};
    kiln_model_lease *lease;
    expect_ok(kiln_model_batch(model, &in, &lease));
    cr_assert_eq(lease->outputs[0].rank, 3u);
    cr_assert(lease->outputs[0].dims[0] == 3 && lease->outputs[0].dims[1] == 2 &&
              lease->outputs[0].dims[2] == 4);
    cr_assert_eq(kiln_batch_operation_count(lease->batch), 1u);
    kiln_model_batch_return(lease);
    kiln_model_release(model);
}

Test(model, computes_integers_of_64_bits_exactly)
{
    Onnx__ModelProto *proto = new_model(13);
    add_output(proto, "y", INT64, "2");
    add_integers(proto, "a", "2", (const int64_t[]){4611686018427387905, -9007199254740993});
    add_integers(proto, "b", "1", (const int64_t[]){4611686018427387904});
    add_integers(proto, "c", "1", (const int64_t[]){1000000000});
    add_node(proto, "Sub", "a b", "difference");
    add_node(proto, "Div", "difference c", "quotient");
    add_node(proto, "Max", "quotient minimum", "bounded");
    add_integers(proto, "minimum", "", (const int64_t[]){-2000000000});
    add_node(proto, "Identity", "bounded", "y");
    kiln_onnx_model *model = loaded(proto);
    kiln_array out;
    expect_ok(kiln_model_run(model, NULL, &out));
    cr_assert_eq(out.type, KILN_I64);
    cr_assert_eq(((int64_t *)out.data)[0], 0);
    cr_assert_eq(((int64_t *)out.data)[1], -2000000000);
    kiln_free(out.data);
    kiln_model_release(model);
}

/* The second input says what shape the first one gets. */
Test(model, takes_the_content_of_inputs_that_decide_about_shapes)
{
    Onnx__ModelProto *proto = new_model(14);
    add_input(proto, "x", FLOAT, "n");
    add_input(proto, "shape", INT64, "2");
    add_output(proto, "y", FLOAT, "a b");
    add_node(proto, "Reshape", "x shape", "y");
    kiln_onnx_model *model = loaded(proto);
    const kiln_model_value *values;
    kiln_model_inputs(model, &values);
    cr_assert(!values[0].content && values[1].content);
    float x[6] = {1, 2, 3, 4, 5, 6};
    int64_t shapes[2][2] = {{2, 3}, {3, -1}};
    for (size_t i = 0; i < 2; i++) {
        kiln_array in[2] = {{KILN_F32, 1, {6}, x}, {KILN_I64, 1, {2}, shapes[i]}}, out;
        expect_ok(kiln_model_run(model, in, &out));
        cr_assert(out.rank == 2 && out.dims[0] == 2 + i && out.dims[1] == 3 - i);
        kiln_free(out.data);
    }
    int8_t narrow[2] = {1, 6}; /* another type that is computed as the same */
    kiln_array narrower[2] = {{KILN_F32, 1, {6}, x}, {KILN_I8, 1, {2}, narrow}}, result;
    expect_ok(kiln_model_run(model, narrower, &result));
    cr_assert(result.dims[0] == 1 && result.dims[1] == 6);
    kiln_free(result.data);
    kiln_array in[2] = {{KILN_F32, 1, {6}, x}, {KILN_I64, 1, {2}, NULL}};
    kiln_model_lease *lease;
    expect_error(kiln_model_batch(model, in, &lease), KILN_INVALID_ARGUMENT,
                 "kiln_model_batch: input 'shape' decides about shapes, and its data is NULL");
    kiln_model_release(model);
}

/* As a decoder's cache makes them: past those that are kept, a length asks for no further kernels.
 */
Test(model, takes_ever_new_lengths)
{
    enum { KNOWN = 300, LENGTHS = 600 };
    static float past[LENGTHS * 4];
    float x[4] = {-1, 0, 1, 2};
    Onnx__ModelProto *proto = new_model(14);
    add_input(proto, "x", FLOAT, "1 4");
    add_input(proto, "past", FLOAT, "n 4");
    add_output(proto, "y", FLOAT, "1 4");
    add_node(proto, "ReduceSum", "past", "s");
    add_node(proto, "Softmax", "x", "t");
    add_node(proto, "Sub", "t t", "z");
    add_node(proto, "Add", "x z", "w");
    add_node(proto, "Add", "w s", "y");
    kiln_onnx_model *model = loaded(proto);
    for (size_t i = 0; i < LENGTHS * 4; i++)
        past[i] = 1;
    for (size_t n = 1; n <= LENGTHS; n++) {
        kiln_array in[2] = {{KILN_F32, 2, {1, 4}, x}, {KILN_F32, 2, {n, 4}, past}}, out;
        expect_ok(kiln_model_run(model, in, &out));
        for (size_t i = 0; i < 4; i++)
            cr_assert_eq(((float *)out.data)[i], x[i] + (float)(4 * n));
        kiln_free(out.data);
        if (n == KNOWN)
            layer_reset();
    }
    kiln_device_info info;
    expect_ok(kiln_context_device(context, &info));
    if (layer_available() && info.shares_host_memory) { /* else longer rows have other kernels */
        cr_expect_eq(layer_count("clCreateKernel"), 0u);
        cr_expect_eq(layer_count("clReleaseKernel"), 0u);
        cr_expect_eq(layer_count("clBuildProgram"), 0u);
    }
    kiln_model_release(model);
}

/* The shape of a scalar has no elements, and needs no memory. */
Test(model, takes_content_of_no_elements_without_data)
{
    Onnx__ModelProto *proto = new_model(14);
    add_input(proto, "x", FLOAT, "1");
    add_input(proto, "shape", INT64, "0");
    add_output(proto, "y", FLOAT, "");
    add_node(proto, "Reshape", "x shape", "y");
    kiln_onnx_model *model = loaded(proto);
    float x = 3;
    kiln_array in[2] = {{KILN_F32, 1, {1}, &x}, {KILN_I64, 1, {0}, NULL}}, out;
    expect_ok(kiln_model_run(model, in, &out));
    cr_assert(out.rank == 0 && *(float *)out.data == 3);
    kiln_free(out.data);
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor tensors[2] = {kiln_upload(batch, KILN_F32, 1, in[0].dims, &x)}, y;
    expect_ok(kiln_model_record(model, batch, tensors, in, &y));
    kiln_batch_release(batch);
    kiln_model_release(model);
}

Test(model, is_recorded_among_other_operations)
{
    kiln_onnx_model *model = loaded(layer());
    kiln_batch *batch = kiln_batch_create(context);
    float x[2] = {0.5f, 1}, y[3];
    kiln_tensor in = kiln_upload(batch, KILN_F32, 2, (const size_t[]){1, 2}, x), out;
    in = kiln_add(batch, in, in);
    expect_ok(kiln_model_record(model, batch, &in, NULL, &out));
    out = kiln_neg(batch, out);
    expect_ok(kiln_read(batch, out, y, sizeof y));
    kiln_model_release(model); /* the batch has what it needs */
    run_batch(batch);
    cr_assert_float_eq(y[1], -12, 1e-5);
    cr_assert_float_eq(y[2], -16, 1e-5);
    kiln_batch_release(batch);
}

/* Twice(x) = x + x; Both(x) = Twice(x) + factor Twice(x), with an attribute of its caller. */
Test(model, writes_functions_out)
{
    Onnx__ModelProto *proto = new_model(17);
    add_input(proto, "x", FLOAT, "n");
    add_output(proto, "y", FLOAT, NULL);
    Onnx__FunctionProto *twice = add_function(proto, "Twice", "x", "sum");
    function_node(twice, new_node("Add", "x x", "sum"));
    Onnx__FunctionProto *both = add_function(proto, "Both", "x", "z");
    Onnx__NodeProto *inner = new_node("Twice", "x", "y");
    inner->domain = twice->domain;
    function_node(both, inner);
    Onnx__NodeProto *constant = new_node("Constant", "", "factor");
    set_int(constant, "value_int", 0)->ref_attr_name = (char *)"factor";
    function_node(both, constant);
    Onnx__NodeProto *cast = new_node("Cast", "factor", "number");
    set_int(cast, "to", FLOAT);
    function_node(both, cast);
    function_node(both, new_node("Mul", "y number", "scaled"));
    function_node(both, new_node("Add", "y scaled", "z"));
    Onnx__NodeProto *call = add_node(proto, "Both", "x", "y");
    call->domain = twice->domain;
    set_int(call, "factor", 3);
    kiln_onnx_model *model = loaded(proto);
    expect_floats(model, DIMS(2), (const float[]){1, -2}, DIMS(2), (const float[]){8, -16});
    kiln_model_release(model);
}

/* x + 1 + 1, of a function that has the 1. */
Test(model, calls_a_function_with_a_constant_twice)
{
    Onnx__ModelProto *proto = new_model(17);
    add_input(proto, "x", FLOAT, "n");
    add_output(proto, "y", FLOAT, NULL);
    Onnx__FunctionProto *more = add_function(proto, "More", "x", "z");
    Onnx__NodeProto *constant = new_node("Constant", "", "one");
    Onnx__AttributeProto *value = set_int(constant, "value", 0);
    value->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR;
    value->has_i = 0;
    value->t = add_floats(proto, "one", "", (const float[]){1});
    proto->graph->n_initializer--; /* the function's alone */
    function_node(more, constant);
    function_node(more, new_node("Add", "x one", "z"));
    add_node(proto, "More", "x", "between")->domain = more->domain;
    add_node(proto, "More", "between", "y")->domain = more->domain;
    kiln_onnx_model *model = loaded(proto);
    expect_floats(model, DIMS(2), (const float[]){1, -2}, DIMS(2), (const float[]){3, 0});
    kiln_model_release(model);
}

/* Move(x) = x + n with n = 5 where the caller says nothing, and another function of that name. */
Test(model, knows_defaults_and_overloads_of_functions)
{
    Onnx__ModelProto *proto = new_model(17);
    add_input(proto, "x", FLOAT, "n");
    add_output(proto, "y", FLOAT, NULL);
    Onnx__FunctionProto *other = add_function(proto, "Move", "x", "z");
    function_node(other, new_node("Neg", "x", "z"));
    late_field(&other->base, 13, 4, "sign");
    Onnx__FunctionProto *move = add_function(proto, "Move", "x", "z");
    Onnx__NodeProto *constant = new_node("Constant", "", "n"), *unused = new_node("-", "", "");
    set_float(constant, "value_float", 0);
    constant->attribute[0]->ref_attr_name = (char *)"by";
    function_node(move, constant);
    function_node(move, new_node("Add", "x n", "z"));
    set_float(unused, "by", 5);
    uint8_t packed[64];
    cr_assert_lt(onnx__attribute_proto__get_packed_size(unused->attribute[0]), sizeof packed);
    late_field(&move->base, 11, onnx__attribute_proto__pack(unused->attribute[0], packed), packed);
    add_node(proto, "Move", "x", "a")->domain = move->domain;
    Onnx__NodeProto *by_two = add_node(proto, "Move", "a", "b");
    by_two->domain = move->domain;
    set_float(by_two, "by", 2);
    Onnx__NodeProto *negative = add_node(proto, "Move", "b", "y");
    negative->domain = move->domain;
    late_field(&negative->base, 8, 4, "sign");
    kiln_onnx_model *model = loaded(proto);
    expect_floats(model, DIMS(2), (const float[]){1, -2}, DIMS(2), (const float[]){-8, -5});
    kiln_model_release(model);
}

/* Where no axis is reduced each norm is of one number. */
Test(model, takes_the_norm_of_single_numbers)
{
    Onnx__ModelProto *proto = new_model(18);
    add_input(proto, "x", FLOAT, "n");
    add_output(proto, "y", FLOAT, NULL);
    set_int(add_node(proto, "ReduceL2", "x", "y"), "noop_with_empty_axes", 1);
    kiln_onnx_model *model = loaded(proto);
    expect_floats(model, DIMS(2), (const float[]){1, -2}, DIMS(2), (const float[]){1, 2});
    kiln_model_release(model);
}

/* A second row for one version would never be found. */
Test(model, has_one_row_for_each_version_of_an_operator)
{
    kiln_model_operator one = {0}, other;
    for (size_t i = 0; !i || one.name; i++) {
        expect_ok(kiln_model_get_operator(i, &one));
        other = one;
        for (size_t k = i + 1; one.name && other.name; k++) {
            expect_ok(kiln_model_get_operator(k, &other));
            bool same =
                other.name && !strcmp(one.name, other.name) && !strcmp(one.domain, other.domain);
            cr_expect(!same || one.last < other.first || other.last < one.first,
                      "two rows for %s.%s", one.domain, one.name);
        }
    }
}

/* Zeros have a scale by which they can be multiplied back; ONNX Runtime's too. */
Test(model, quantizes_zeros)
{
    Onnx__ModelProto *proto = new_model(17);
    add_input(proto, "x", FLOAT, "3");
    add_output(proto, "scale", FLOAT, NULL);
    add_node(proto, "DynamicQuantizeLinear", "x", "q scale zero");
    kiln_onnx_model *model = loaded(proto);
    expect_floats(model, DIMS(3), (const float[]){0, 0, 0}, 0, NULL, (const float[]){1});
    expect_floats(model, DIMS(3), (const float[]){-1, 0, 254}, 0, NULL, (const float[]){1});
    kiln_model_release(model);
}

/* A list of doc/onnx.md, in words between two fences: " Abs Acos ... ". */
static void read_list(const char *fence, char *list, size_t room)
{
    char path[600], word[64];
    snprintf(path, sizeof path, "%s/doc/onnx.md", getenv("srcdir") ? getenv("srcdir") : ".");
    FILE *file = fopen(path, "r");
    cr_assert(file, "%s", path);
    bool inside = false;
    size_t length = (size_t)snprintf(list, room, " ");
    while (fscanf(file, "%63s", word) == 1) {
        if (!strncmp(word, "```", 3))
            inside = !inside && !strcmp(word + 3, fence);
        else if (inside)
            length += (size_t)snprintf(list + length, room - length, "%s ", word);
        cr_assert_lt(length + sizeof word, room);
    }
    fclose(file);
}

static bool lists(const char *list, const char *name)
{
    char word[80];
    snprintf(word, sizeof word, " %s ", name);
    return strstr(list, word);
}

/* The manual lists every operator, and no others. */
Test(model, knows_the_operators_of_the_manual)
{
    char known[2][8192];
    size_t listed = 0, rows = 0;
    read_list("operators", known[0], sizeof *known);
    read_list("microsoft", known[1], sizeof *known);
    char seen[2][8192] = {" ", " "};
    for (size_t i = 0; i < 2; i++)
        for (const char *at = known[i] + 1; *at; at++)
            listed += *at == ' ';
    kiln_model_operator op = {0};
    for (size_t i = 0; !i || op.name; i++) {
        expect_ok(kiln_model_get_operator(i, &op));
        bool own = op.name && (!*op.domain || !strcmp(op.domain, "com.microsoft"));
        size_t which = own && *op.domain ? 1 : 0;
        if (!own || lists(seen[which], op.name))
            continue;
        cr_expect(lists(known[which], op.name), "doc/onnx.md lacks %s", op.name);
        strcat(strcat(seen[which], op.name), " ");
        rows++;
    }
    cr_expect_eq(listed, rows, "doc/onnx.md lists %zu operators, and there are %zu", listed, rows);
}

Test(model, stores_weights_narrower_if_asked)
{
    static float weights[16 * 32];
    for (size_t i = 0; i < 16 * 32; i++)
        weights[i] = 1 + (float)i / 65536;
    Onnx__ModelProto *proto = new_model(17);
    add_input(proto, "x", FLOAT, "1 16");
    add_output(proto, "y", FLOAT, NULL);
    add_floats(proto, "w", "16 32", weights);
    add_node(proto, "MatMul", "x w", "y");
    kiln_model_options options = KILN_MODEL_OPTIONS_INIT;
    options.weights = KILN_F16;
    kiln_onnx_model *model;
    expect_ok(load_model(context, proto, &options, &model));
    cr_assert_eq(stats_of(context).buffer_bytes, sizeof weights / 2);
    kiln_model_release(model);
    options.weights = KILN_I8;
    expect_error(
        load_model(context, proto, &options, &model), KILN_INVALID_ARGUMENT,
        "kiln_model_load: options->weights is i8, and can be f32, f16, bf16, q8_0 or q4_0");
}

/* What each becomes as f16 and as bf16; between two as near, the even one. */
static const struct narrowed {
    float given, f16, bf16;
} narrowed[] = {
    {1, 1, 1},
    {-0x1.006p0F, -0x1.008p0F, -1},     /* a tie of f16, upwards to even */
    {0x1.002p0F, 1, 1},                 /* and downwards */
    {0x1.002002p0F, 0x1.004p0F, 1},     /* just above it */
    {0x1.01p0F, 0x1.01p0F, 1},          /* a tie of bf16 */
    {0x1.03p0F, 0x1.03p0F, 0x1.04p0F},  /* and upwards */
    {65519, 65504, 65536},              /* the largest of f16 */
    {-65520, -INFINITY, -65536},        /* rounds beyond it */
    {0x1p-14F, 0x1p-14F, 0x1p-14F},     /* its smallest normal number */
    {0x1.ffep-15F, 0x1p-14F, 0x1p-14F}, /* rounds up to that */
    {0x1p-24F, 0x1p-24F, 0x1p-24F},     /* its smallest one */
    {-0x1p-25F, 0, -0x1p-25F},          /* half of it */
    {0x1.8p-24F, 0x1p-23F, 0x1.8p-24F}, /* one and a half */
    {FLT_MAX, INFINITY, INFINITY},
    {INFINITY, INFINITY, INFINITY},
    {NAN, NAN, NAN},
};

Test(model, rounds_narrow_weights_to_nearest)
{
    enum { ROWS = 32, COLUMNS = sizeof narrowed / sizeof *narrowed };
    static float weights[ROWS * COLUMNS];
    for (size_t i = 0; i < ROWS * COLUMNS; i++)
        weights[i] = narrowed[i % COLUMNS].given;
    for (int half = 0; half < 2; half++) {
        Onnx__ModelProto *proto = new_model(17);
        add_input(proto, "x", FLOAT, "1");
        add_output(proto, "y", FLOAT, NULL);
        add_floats(proto, "w", "32 16", weights);
        add_node(proto, "Add", "w x", "y");
        kiln_model_options options = KILN_MODEL_OPTIONS_INIT;
        options.weights = half ? KILN_F16 : KILN_BF16;
        kiln_onnx_model *model;
        expect_ok(load_model(context, proto, &options, &model));
        static const float zero[] = {0};
        kiln_array in = {KILN_F32, 1, {1}, (void *)zero}, out;
        expect_ok(kiln_model_run(model, &in, &out));
        const float *y = out.data;
        for (size_t i = 0; i < ROWS * COLUMNS; i++) {
            const struct narrowed *n = &narrowed[i % COLUMNS];
            float expected = half ? n->f16 : n->bf16;
            cr_expect(y[i] == expected || (isnan(y[i]) && isnan(expected)),
                      "%a as %s is %a, not %a", n->given, half ? "f16" : "bf16", y[i], expected);
        }
        kiln_model_release(model);
    }
}

static void *run_rows(void *data)
{
    kiln_onnx_model *model = data;
    static const float x[] = {1, 2, 3, 3};
    for (size_t i = 0; i < 20; i++) {
        kiln_array in = {KILN_F32, 2, {1 + i % 2, 2}, (void *)x}, out;
        if (kiln_model_run(model, &in, &out))
            return (void *)"a run failed";
        float first = ((float *)out.data)[1];
        kiln_free(out.data);
        if (first < 11.99f || first > 12.01f)
            return (void *)"a wrong number";
    }
    return NULL;
}

Test(model, runs_in_many_threads_at_once)
{
    kiln_onnx_model *model = loaded(layer());
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++)
        cr_assert(!pthread_create(&threads[i], NULL, run_rows, model));
    for (size_t i = 0; i < 4; i++) {
        void *complaint;
        pthread_join(threads[i], &complaint);
        cr_assert(!complaint, "%s", (char *)complaint);
    }
    kiln_model_release(model);
}
