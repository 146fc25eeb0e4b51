/* SPDX-License-Identifier: Apache-2.0 */
/* Models that nobody can record: a sentence each, never a crash. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

#include "tests/onnx/refusals.h"

TestSuite(onnx_refused, .init = make_folder, .fini = remove_folder);

/* It loads, and cannot be recorded for x of [2,3]. */
static void refuse_recording(kiln_status status, const char *sentence)
{
    kiln_onnx_model *loaded;
    expect_ok(load_model(context, model, NULL, &loaded));
    float x[6] = {0}; /* where it decides about shapes */
    kiln_array in = {KILN_F32, 2, {2, 3}, x};
    kiln_model_lease *lease;
    expect_error(kiln_model_batch(loaded, &in, &lease), status, sentence);
    cr_assert_null(lease);
    kiln_model_release(loaded);
}

Test(onnx_refused, what_is_missing_is_named_at_once)
{
    begin(17);
    add_node(model, "Frobnicate", "x", "a");
    add_node(model, "Frobnicate", "a", "b");
    add_node(model, "Grind", "b", "y")->domain = (char *)"com.mill";
    add_node(model, "Unused", "b", "nobody");
    refuse(KILN_UNSUPPORTED,
           "kiln_model_load: 2 operators that libkiln-onnx does not have: Frobnicate of version 17 "
           "(2 times), com.mill.Grind of version 1 (1 time)");
}

Test(onnx_refused, names_have_to_be_made_before_they_are_read)
{
    begin(17);
    add_node(model, "Relu", "z", "y");
    refuse(KILN_INVALID_ARGUMENT,
           "kiln_model_load: node 'y' (Relu): input 0 is 'z', which nothing makes");
    begin(17);
    add_node(model, "Add", "x b", "a")->name = (char *)"first";
    add_node(model, "Relu", "a", "b");
    add_node(model, "Relu", "a", "y");
    refuse(KILN_INVALID_ARGUMENT,
           "kiln_model_load: node 'first' (Add): input 1 is 'b', which this node or a later one "
           "makes: a cycle, or nodes out of order");
    begin(17);
    add_node(model, "Relu", "x", "x");
    refuse(KILN_INVALID_ARGUMENT, "kiln_model_load: the value 'x' is made twice");
    begin(17);
    refuse(KILN_INVALID_ARGUMENT, "kiln_model_load: nothing makes the output 'y'");
    begin(17);
    model->graph = NULL;
    refuse(KILN_INVALID_ARGUMENT, "kiln_model_load: the model has no graph");
}

Test(onnx_refused, weights_have_as_many_elements_as_their_shape_says)
{
    float values[6] = {0};
    begin(17);
    add_node(model, "Add", "x w", "y");
    Onnx__TensorProto *w = add_floats(model, "w", "2 3", values);
    w->raw_data.len = 20;
    refuse(KILN_INVALID_ARGUMENT,
           "kiln_model_load: tensor 'w' has 20 bytes, and its shape wants 24");
    w->dims[0] = INT64_MAX;
    refuse(KILN_TOO_LARGE, "kiln_model_load: tensor 'w' has more elements than can be counted");
    w->dims[0] = -1;
    refuse(KILN_INVALID_ARGUMENT, "kiln_model_load: tensor 'w': dimension 0 is -1");
    w->data_type = 8;
    refuse(KILN_UNSUPPORTED, "kiln_model_load: tensor 'w' is of type string");
    w->data_type = 77;
    refuse(KILN_UNSUPPORTED, "kiln_model_load: tensor 'w' is of type an unknown type");
}

Test(onnx_refused, nodes_are_named_where_they_do_not_fit)
{
    begin(17);
    add_node(model, "MatMul", "x x", "y")->name = (char *)"layer/product";
    refuse_recording(
        KILN_SHAPE_MISMATCH,
        "node 'layer/product' (MatMul): kiln_matmul: shapes [2,3] and [2,3] do not fit: a's last "
        "dimension must be b's last but one, and leading dimensions must broadcast");
    begin(17);
    set_int(add_node(model, "Transpose", "x", "y"), "perm", 1);
    refuse_recording(KILN_TYPE_MISMATCH,
                     "node 'y' (Transpose): attribute 'perm' is an integer, and "
                     "should be integers");
    begin(17);
    set_int(add_node(model, "Concat", "x x", "y"), "axis", 2);
    refuse_recording(KILN_INVALID_ARGUMENT, "node 'y' (Concat): axis 2 of 2 dimensions");
    begin(17);
    add_node(model, "Reshape", "x shape", "y");
    add_integers(model, "shape", "2", (const int64_t[]){4, -1});
    refuse_recording(KILN_SHAPE_MISMATCH, "node 'y' (Reshape): [2,3] has 6 elements, and the shape "
                                          "that is wanted has 4");
    begin(17);
    add_node(model, "Add", "x", "y");
    add_node(model, "Where", "x x x", "z");
    model->graph->output[0]->name = (char *)"z";
    refuse_recording(KILN_TYPE_MISMATCH, "node 'z' (Where): operands of float, float and float");
}

Test(onnx_refused, inputs_have_to_fit)
{
    begin(17);
    add_input(model, "other", FLOAT, "n n");
    add_node(model, "Add", "x other", "y");
    kiln_onnx_model *loaded;
    kiln_model_lease *lease;
    expect_ok(load_model(context, model, NULL, &loaded));
    kiln_array in[2] = {{KILN_F32, 2, {2, 4}, NULL}, {KILN_F32, 2, {2, 3}, NULL}};
    expect_error(kiln_model_batch(loaded, in, &lease), KILN_SHAPE_MISMATCH,
                 "kiln_model_record: input 'x' has the shape [2,4], and the model wants [2,3]");
    in[0].dims[1] = 3;
    expect_error(kiln_model_batch(loaded, in, &lease), KILN_SHAPE_MISMATCH,
                 "kiln_model_record: dimension 'n' is 2 in input 'other' and 3 in input 'other'");
    in[0].type = KILN_I32;
    expect_error(kiln_model_batch(loaded, in, &lease), KILN_TYPE_MISMATCH,
                 "kiln_model_record: input 'x' is i32, and the model wants f32");
    in[0].rank = 9;
    expect_error(kiln_model_batch(loaded, in, &lease), KILN_INVALID_ARGUMENT,
                 "kiln_model_batch: input 'x' has no type, or more than 8 dimensions");
    kiln_model_release(loaded);
}

/* Functions that call themselves, and doubles on purpose: 2^32 nodes if nobody counts. */
Test(onnx_refused, functions_without_an_end_are_refused)
{
    begin(17);
    Onnx__FunctionProto *f = add_function(model, "F", "x", "y");
    Onnx__NodeProto *inner = new_node("F", "x", "y");
    inner->domain = f->domain;
    function_node(f, inner);
    add_node(model, "F", "x", "y")->domain = f->domain;
    refuse(KILN_INVALID_ARGUMENT,
           "kiln_model_load: node 'y' (F): functions call each other more than 32 deep");
}

/* Each calls the next one twice, and the last is no node: nothing but calls. */
Test(onnx_refused, functions_that_double_are_refused)
{
    char name[8], next[8];
    begin(17);
    for (int i = 0; i < 22; i++) {
        snprintf(name, sizeof name, "F%d", i);
        snprintf(next, sizeof next, "F%d", i + 1);
        Onnx__FunctionProto *f = add_function(model, name, "x", i < 21 ? "z" : "x");
        if (i < 21) {
            Onnx__NodeProto *calls[] = {new_node(next, "x", "y"), new_node(next, "y", "z")};
            for (size_t k = 0; k < 2; k++) {
                calls[k]->domain = f->domain;
                function_node(f, calls[k]);
            }
        }
    }
    add_node(model, "F0", "x", "y")->domain = (char *)"local";
    refuse(KILN_TOO_LARGE, "kiln_model_load: more than 1048576 nodes");
}

/* The number of rows of such results is the kernels' to say. */
Test(onnx_refused, shapes_by_what_is_computed_are_refused)
{
    begin(13);
    add_floats(model, "w", "3 2", (const float[]){1, 2, 3, 4, 5, 6});
    add_node(model, "MatMul", "x w", "p");
    add_node(model, "NonZero", "p", "y");
    refuse_recording(KILN_UNSUPPORTED, "node 'y' (NonZero): the shape of its result depends on "
                                       "operand 0, whose content is not known when the model is "
                                       "recorded");
}

Test(onnx_refused, regions_with_as_many_samples_as_they_are_wide_are_refused)
{
    begin(16);
    add_floats(model, "picture", "1 1 1 2", (const float[]){1, 2});
    add_floats(model, "rois", "1 4", (const float[]){0, 0, 1, 2});
    add_integers(model, "image", "1", (const int64_t[]){0});
    add_node(model, "RoiAlign", "picture rois image", "y");
    refuse_recording(KILN_UNSUPPORTED,
                     "node 'y' (RoiAlign): its sampling_ratio is 0, as many as content says");
}

/* Of what only the device knows, too. */
Test(onnx_refused, indices_out_of_range_are_refused_where_they_are_known)
{
    begin(17);
    add_integers(model, "rows", "3", (const int64_t[]){1, -2, 2});
    add_node(model, "Gather", "x rows", "y");
    refuse_recording(KILN_INVALID_ARGUMENT,
                     "node 'y' (Gather): index 2 of 2 elements along axis 0");
    begin(17);
    add_integers(model, "column", "", (const int64_t[]){-4});
    set_int(add_node(model, "Gather", "x column", "y"), "axis", 1);
    refuse_recording(KILN_INVALID_ARGUMENT,
                     "node 'y' (Gather): index -4 of 3 elements along axis 1");
}

/* A file of a hundred bytes asks for a sum of 2^40 numbers. */
Test(onnx_refused, results_of_more_elements_than_anybody_waits_for_are_refused)
{
    begin(17);
    add_integers(model, "shape", "2", (const int64_t[]){1 << 20, 1 << 20});
    add_node(model, "ConstantOfShape", "shape", "zeros");
    set_int(add_node(model, "ReduceSum", "zeros", "zero"), "keepdims", 0);
    add_node(model, "Add", "x zero", "y");
    refuse_recording(KILN_TOO_LARGE,
                     "node 'zeros' (ConstantOfShape): its result 'zeros' has 1099511627776 "
                     "elements, and 4294967296 are the most (kiln_model_options::most_elements)");
    kiln_model_options options = KILN_MODEL_OPTIONS_INIT;
    kiln_onnx_model *loaded;
    kiln_array in = {KILN_F32, 2, {2, 3}, NULL};
    kiln_model_lease *lease;
    options.most_elements = UINT64_C(1) << 40;
    expect_ok(load_model(context, model, &options, &loaded));
    expect_ok(kiln_model_batch(loaded, &in, &lease));
    kiln_model_batch_return(lease);
    kiln_model_release(loaded);
    begin(17);
    add_node(model, "Relu", "x", "y");
    options.most_elements = 5;
    expect_ok(load_model(context, model, &options, &loaded));
    expect_error(kiln_model_batch(loaded, &in, &lease), KILN_TOO_LARGE,
                 "node 'y' (Relu): its result 'y' has 6 elements, and 5 are the most "
                 "(kiln_model_options::most_elements)");
    kiln_model_release(loaded);
}

static void add_range(const char *bounds)
{
    begin(17);
    add_integers(model, "zero", "", (const int64_t[]){0});
    add_integers(model, "one", "", (const int64_t[]){1});
    add_integers(model, "minus", "", (const int64_t[]){-1});
    add_integers(model, "least", "", (const int64_t[]){INT64_MIN});
    add_integers(model, "beyond", "", (const int64_t[]){(int64_t)1 << 31});
    add_floats(model, "start", "", (const float[]){0});
    add_floats(model, "half", "", (const float[]){0.5f});
    add_floats(model, "end", "", (const float[]){(float)(1 << 30)});
    add_floats(model, "endless", "", (const float[]){INFINITY});
    add_node(model, "Range", bounds, "y");
}

Test(onnx_refused, ranges_of_too_many_elements_say_so)
{
    add_range("zero beyond one");
    refuse_recording(KILN_TOO_LARGE,
                     "node 'y' (Range): a range from 0 to 2.14748e+09 in steps of 1 "
                     "has more than 2147483647 elements");
    add_range("zero least minus");
    refuse_recording(KILN_TOO_LARGE, "node 'y' (Range): a range from 0 to -9.22337e+18 in steps of "
                                     "-1 has more than 2147483647 elements");
    add_range("start end half");
    refuse_recording(KILN_TOO_LARGE, "node 'y' (Range): a range from 0 to 1.07374e+09 in steps of "
                                     "0.5 has more than 2147483647 elements");
    add_range("start endless half");
    refuse_recording(KILN_TOO_LARGE, "node 'y' (Range): a range from 0 to inf in steps of 0.5 has "
                                     "more than 2147483647 elements");
    add_range("zero beyond zero");
    refuse_recording(KILN_INVALID_ARGUMENT,
                     "node 'y' (Range): a range from 0 to 2.14748e+09 in steps of 0");
    add_range("endless endless half");
    refuse_recording(KILN_INVALID_ARGUMENT,
                     "node 'y' (Range): a range from inf to inf in steps of 0.5");
}

/* v0 to vN-1 of as many elements as are known on the host: an addition makes another array. */
static void add_known_values(size_t n)
{
    char from[32], to[32];
    begin(17);
    add_integers(model, "zero", "", (const int64_t[]){0});
    add_integers(model, "end", "", (const int64_t[]){65536});
    add_integers(model, "one", "", (const int64_t[]){1});
    add_node(model, "Range", "zero end one", "v0");
    for (size_t i = 1; i < n; i++) {
        snprintf(from, sizeof from, "v%zu one", i - 1);
        snprintf(to, sizeof to, "v%zu", i);
        add_node(model, "Add", from, to);
    }
}

Test(onnx_refused, known_values_that_take_much_memory_together_are_refused)
{
    enum { N = 520 };
    char all[N * 5 + 1] = "";
    add_known_values(N);
    for (size_t i = 0, at = 0; i < N; i++)
        at += (size_t)snprintf(all + at, sizeof all - at, "%sv%zu", i ? " " : "", i);
    add_node(model, "Sum", all, "sum");
    add_node(model, "Gather", "x sum", "y");
    refuse_recording(KILN_TOO_LARGE,
                     "node 'v496' (Add): values that are known when the model is recorded, and "
                     "that other nodes read later, take more than 268435456 bytes");
}

/* A chain, of which two are in use at a time. */
Test(onnx_refused, known_values_are_freed_after_their_last_use)
{
    enum { N = 600 };
    add_known_values(N);
    add_integers(model, "most", "", (const int64_t[]){N - 1});
    add_node(model, "Sub", "v599 most", "again");
    add_integers(model, "from", "1", (const int64_t[]){0});
    add_integers(model, "to", "1", (const int64_t[]){2});
    add_node(model, "Slice", "again from to", "rows");
    add_node(model, "Gather", "x rows", "y");
    kiln_onnx_model *loaded;
    expect_ok(load_model(context, model, NULL, &loaded));
    const float x[6] = {1, 2, 3, 4, 5, 6};
    kiln_array in = {KILN_F32, 2, {2, 3}, (void *)x}, out;
    expect_ok(kiln_model_run(loaded, &in, &out));
    cr_assert_eq(out.dims[0], 2u);
    cr_expect_arr_eq(out.data, x, sizeof x);
    kiln_free(out.data);
    kiln_model_release(loaded);
}

/* Indices of elements are i32. */
static void add_large_pictures(void)
{
    begin(16);
    add_integers(model, "large", "4", (const int64_t[]){2, 1, 32768, 32769});
    set_int(add_node(model, "ReduceMax", "x", "largest"), "keepdims", 1);
    add_node(model, "Expand", "largest large", "pictures");
}

Test(onnx_refused, pictures_with_more_elements_than_indices_are_refused)
{
    add_large_pictures();
    add_floats(model, "rois", "1 4", (const float[]){0, 0, 1, 2});
    add_integers(model, "image", "1", (const int64_t[]){0});
    set_int(add_node(model, "RoiAlign", "pictures rois image", "y"), "sampling_ratio", 2);
    refuse_recording(KILN_TOO_LARGE, "node 'y' (RoiAlign): its pictures have more elements than "
                                     "i32 counts");
    add_large_pictures();
    add_floats(model, "grid", "2 1 1 2", (const float[]){0, 0, 1, 1});
    add_node(model, "GridSample", "pictures grid", "y");
    refuse_recording(KILN_TOO_LARGE, "node 'y' (GridSample): its pictures have more elements than "
                                     "i32 counts");
}

/* From [2,3] to eight dimensions, and one more for what is collected. */
Test(onnx_refused, loops_that_collect_ever_more_dimensions_are_refused)
{
    begin(13);
    add_integers(model, "turns", "", (const int64_t[]){7});
    add_integers(model, "front", "1", (const int64_t[]){0});
    Onnx__GraphProto *body = new_graph();
    graph_input(body, "turn");
    graph_input(body, "go_on");
    graph_input(body, "state");
    graph_node(body, new_node("Identity", "go_on", "still"));
    graph_node(body, new_node("Unsqueeze", "state front", "wider"));
    graph_node(body, new_node("Identity", "wider", "step"));
    graph_output(body, "still");
    graph_output(body, "wider");
    graph_output(body, "step");
    set_graph(add_node(model, "Loop", "turns - start", "last y"), "body", body);
    add_floats(model, "start", "1", (const float[]){1});
    refuse_recording(KILN_UNSUPPORTED,
                     "node 'last' (Loop): it collects what has too many dimensions");
}

Test(onnx_refused, types_that_nobody_knows_are_refused)
{
    begin(17);
    add_integers(model, "size", "", (const int64_t[]){8});
    set_int(add_node(model, "HannWindow", "size", "y"), "output_datatype", 99);
    refuse_recording(KILN_UNSUPPORTED,
                     "node 'y' (HannWindow): it makes a window of an unknown type");
    begin(17);
    add_integers(model, "size", "", (const int64_t[]){8});
    set_int(add_node(model, "HannWindow", "size", "y"), "output_datatype", INT64);
    refuse_recording(KILN_UNSUPPORTED, "node 'y' (HannWindow): it makes a window of int64");
    begin(17);
    add_integers(model, "size", "", (const int64_t[]){(int64_t)1 << 32});
    add_node(model, "HannWindow", "size", "y");
    refuse_recording(KILN_INVALID_ARGUMENT,
                     "node 'y' (HannWindow): its size is no number of elements");
    begin(21);
    add_floats(model, "scale", "", (const float[]){2});
    set_int(add_node(model, "DequantizeLinear", "x scale", "q"), "output_dtype", 99);
    add_node(model, "Sqrt", "q", "y");
    refuse_recording(KILN_UNSUPPORTED,
                     "node 'q' (DequantizeLinear): it gives numbers of an unknown type");
    begin(17);
    add_integers(model, "from", "", (const int64_t[]){0});
    add_floats(model, "step", "", (const float[]){0.5f});
    add_node(model, "Range", "from from step", "y");
    refuse_recording(KILN_TYPE_MISMATCH,
                     "node 'y' (Range): a range from int64, and operand 2 is float");
}

Test(onnx_refused, operands_of_other_ranks_are_refused)
{
    begin(17);
    add_integers(model, "depth", "", (const int64_t[]){3});
    add_floats(model, "values", "2 1 1 1 1 1 1 1", (const float[]){0, 1});
    add_node(model, "OneHot", "x depth values", "y");
    refuse_recording(KILN_SHAPE_MISMATCH, "node 'y' (OneHot): its two values are no vector");
    begin(17);
    static const float zeros[18];
    add_floats(model, "q", "1 3 2", zeros);
    add_floats(model, "bias", "6 1 1", zeros);
    Onnx__NodeProto *node = add_node(model, "MultiHeadAttention", "q q q bias", "y");
    node->domain = (char *)"com.microsoft";
    set_int(node, "num_heads", 2);
    refuse_recording(KILN_SHAPE_MISMATCH, "node 'y' (MultiHeadAttention): biases of 3 dimensions");
    begin(17);
    static const int64_t axes[12] = {0};
    set_ints(add_node(model, "MeanVarianceNormalization", "x", "y"), "axes", 12, axes);
    refuse_recording(KILN_INVALID_ARGUMENT,
                     "node 'y' (MeanVarianceNormalization): 12 axes of 2 dimensions");
}

/* The nodes of an attention are recorded as one, whose operands are none of the last node's. */
Test(onnx_refused, what_is_not_computed_is_named_among_joined_nodes)
{
    begin(13);
    model->graph->input[0]->type->tensor_type->shape->dim[0]->dim_value = 3;
    model->graph->input[0]->type->tensor_type->shape->dim[1]->dim_value = 3;
    add_node(model, "Relu", "x", "v0 v");
    add_node(model, "MatMul", "x x", "s");
    set_int(add_node(model, "Softmax", "s", "p"), "axis", -1);
    add_node(model, "MatMul", "p v", "y");
    kiln_onnx_model *loaded;
    expect_ok(load_model(context, model, NULL, &loaded));
    kiln_array in = {KILN_F32, 2, {3, 3}, NULL};
    kiln_model_lease *lease;
    expect_error_part(kiln_model_batch(loaded, &in, &lease), KILN_UNSUPPORTED,
                      "'v', is a result that libkiln-onnx does not compute");
    kiln_model_release(loaded);
}

/* Six loops in each other, of sixteen turns each, which are unrolled. */
Test(onnx_refused, loops_without_an_end_are_refused)
{
    begin(17);
    add_integers(model, "turns", "", (const int64_t[]){16});
    Onnx__GraphProto *body = NULL;
    for (size_t depth = 0; depth < 6; depth++) {
        Onnx__NodeProto *node =
            depth ? new_node("Loop", "turns", "none") : new_node("Identity", "x", "none");
        if (depth)
            set_graph(node, "body", body);
        body = new_graph();
        graph_input(body, "turn");
        graph_input(body, "go_on");
        graph_node(body, node);
        graph_node(body, new_node("Identity", "go_on", "still"));
        graph_output(body, "still");
        graph_output(body, "none");
    }
    set_graph(add_node(model, "Loop", "turns", "y"), "body", body);
    kiln_onnx_model *loaded;
    expect_ok(load_model(context, model, NULL, &loaded));
    kiln_array in = {KILN_F32, 2, {2, 3}, NULL};
    kiln_model_lease *lease;
    expect_error_part(kiln_model_batch(loaded, &in, &lease), KILN_TOO_LARGE,
                      "loops come to more than 1048576 nodes");
    kiln_model_release(loaded);
}
