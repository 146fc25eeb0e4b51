/* SPDX-License-Identifier: Apache-2.0 */
/* The part of test_model about operators, by numbers that are known by hand. */
#include <criterion/criterion.h>

#include "support/context.h"
#include "tests/onnx/models.h"

/* Those rows of x whose place in its shape has more than two elements. */
Test(model, picks_what_shapes_say)
{
    Onnx__ModelProto *proto = new_model(13);
    add_input(proto, "x", FLOAT, "m n");
    add_output(proto, "y", FLOAT, NULL);
    add_integers(proto, "two", "", (const int64_t[]){2});
    add_node(proto, "Shape", "x", "shape");
    add_node(proto, "Greater", "shape two", "more");
    set_int(add_node(proto, "Compress", "x more", "rows"), "axis", 0);
    add_node(proto, "NonZero", "more", "where");
    set_int(add_node(proto, "Cast", "where", "number"), "to", FLOAT);
    add_node(proto, "Add", "rows number", "y");
    kiln_onnx_model *model = loaded(proto);
    expect_floats(model, DIMS(2, 3), (const float[]){1, 2, 3, 4, 5, 6}, DIMS(1, 3),
                  (const float[]){5, 6, 7});
    expect_floats(model, DIMS(3, 1), (const float[]){7, 8, 9}, DIMS(1, 1), (const float[]){7});
    kiln_model_release(model);
}

/* The best of two boxes that overlap by half, whose sides come in any order, and one apart; a score
 * that is too low. */
Test(model, suppresses_boxes_that_overlap_better_ones)
{
    Onnx__ModelProto *proto = new_model(13);
    add_input(proto, "x", FLOAT, "1 1 4");
    add_output(proto, "y", FLOAT, NULL);
    add_floats(proto, "boxes", "1 4 4",
               (const float[]){0, 0, 2, 2, 2, 3, 0, 1, 5, 5, 6, 6, 7, 7, 8, 8});
    add_integers(proto, "most", "1", (const int64_t[]){4});
    add_floats(proto, "overlap", "1", (const float[]){0.3f});
    add_floats(proto, "least", "1", (const float[]){0.1f});
    add_node(proto, "NonMaxSuppression", "boxes x most overlap least", "chosen");
    set_int(add_node(proto, "Cast", "chosen", "y"), "to", FLOAT);
    kiln_onnx_model *model = loaded(proto);
    expect_floats(model, DIMS(1, 1, 4), (const float[]){0.5f, 0.6f, 0.7f, 0.1f}, DIMS(2, 3),
                  (const float[]){0, 0, 2, 0, 0, 1});
    expect_floats(model, DIMS(1, 1, 4), (const float[]){0.7f, 0.6f, 0, 0.2f}, DIMS(2, 3),
                  (const float[]){0, 0, 0, 0, 0, 3});
    kiln_model_release(model);
}

/* A whole picture, and a region beside it. */
Test(model, aligns_regions)
{
    Onnx__ModelProto *proto = new_model(16);
    add_input(proto, "x", FLOAT, "1 1 2 2");
    add_output(proto, "y", FLOAT, NULL);
    add_floats(proto, "rois", "2 4", (const float[]){0, 0, 2, 2, 4, 4, 6, 6});
    add_integers(proto, "image", "2", (const int64_t[]){0, 0});
    set_int(add_node(proto, "RoiAlign", "x rois image", "y"), "sampling_ratio", 2);
    kiln_onnx_model *model = loaded(proto);
    expect_floats(model, DIMS(1, 1, 2, 2), (const float[]){1, 2, 3, 4}, DIMS(2, 1, 1, 1),
                  (const float[]){2.5f, 0});
    kiln_model_release(model);
}

/* A state that is halved between two steps, and takes half of what it does not say yet. */
Test(model, attends_linearly)
{
    Onnx__ModelProto *proto = new_model(27);
    add_input(proto, "x", FLOAT, "1 2 1");
    add_output(proto, "y", FLOAT, NULL);
    add_floats(proto, "decay", "1 2 1", (const float[]){0, -0.6931472f});
    add_floats(proto, "beta", "1 2 1", (const float[]){1, 0.5f});
    Onnx__NodeProto *node = add_node(proto, "LinearAttention", "x x x - decay beta", "y state");
    set_int(node, "q_num_heads", 1);
    set_int(node, "kv_num_heads", 1);
    kiln_onnx_model *model = loaded(proto);
    expect_floats(model, DIMS(1, 2, 1), (const float[]){2, 3}, DIMS(1, 2, 1),
                  (const float[]){8, -7.5f});
    kiln_model_release(model);
}

/* A convolution, the constants of a batch norm, which become a factor and a shift beside it, and a
 * pool. Both extents are called "?", and differ. */
Test(model, runs_a_small_picture_network)
{
    static const float x[] = {1, 2, 3, 4, 5, 6, 7, 8};
    Onnx__ModelProto *model = new_model(17);
    add_input(model, "x", FLOAT, "1 1 ? ?");
    add_output(model, "y", FLOAT, "1 2 ? ?");
    add_floats(model, "w", "2 1 1 2", (const float[]){1, 1, 1, -1});
    add_floats(model, "scale", "2", (const float[]){2, 3});
    add_floats(model, "shift", "2", (const float[]){0.5f, -1});
    add_floats(model, "mean", "2", (const float[]){1, 2});
    add_floats(model, "variance", "2", (const float[]){4, 9});
    add_node(model, "Conv", "x w", "c");
    set_float(add_node(model, "BatchNormalization", "c scale shift mean variance", "n"), "epsilon",
              0);
    add_node(model, "Relu", "n", "r");
    set_ints(add_node(model, "MaxPool", "r", "y"), "kernel_shape", 2, (const int64_t[]){2, 1});
    kiln_onnx_model *network = loaded(model);
    expect_floats(network, DIMS(1, 1, 2, 4), x, DIMS(1, 2, 1, 3),
                  (const float[]){10.5f, 12.5f, 14.5f, 0, 0, 0});
    expect_floats(network, DIMS(1, 1, 4, 2), x, DIMS(1, 2, 3, 1),
                  (const float[]){6.5f, 10.5f, 14.5f, 0, 0, 0});
    kiln_model_release(network);
}

/* Blocks that overlap, in an image whose outermost elements are padding; then its elements where a
 * pool picked them, with one more behind. */
Test(model, puts_images_together_from_windows)
{
    Onnx__ModelProto *proto = new_model(18);
    add_input(proto, "x", FLOAT, "1 2 4");
    add_output(proto, "y", FLOAT, NULL);
    add_integers(proto, "image", "1", (const int64_t[]){3});
    add_integers(proto, "block", "1", (const int64_t[]){2});
    add_integers(proto, "places", "1 1 3", (const int64_t[]){5, 0, 3});
    add_integers(proto, "sizes", "3", (const int64_t[]){1, 1, 7});
    set_ints(add_node(proto, "Col2Im", "x image block", "i"), "pads", 2, (const int64_t[]){1, 1});
    Onnx__NodeProto *node = add_node(proto, "MaxUnpool", "i places sizes", "y");
    set_ints(node, "kernel_shape", 1, (const int64_t[]){2});
    set_ints(node, "strides", 1, (const int64_t[]){2});
    kiln_onnx_model *model = loaded(proto);
    expect_floats(model, DIMS(1, 2, 4), (const float[]){1, 2, 3, 4, 5, 6, 7, 8}, DIMS(1, 1, 7),
                  (const float[]){9, 0, 0, 11, 0, 7, 0});
    kiln_model_release(model);
}

/* Keys that are all alike: each row is the mean of those that the mask leaves. */
Test(model, attends_as_optimised_encoders_do)
{
    Onnx__ModelProto *proto = new_model(17);
    add_input(proto, "x", FLOAT, "1 3 2");
    add_output(proto, "y", FLOAT, NULL);
    add_floats(proto, "keys", "1 3 2", (const float[6]){0});
    add_integers(proto, "seen", "1 3", (const int64_t[]){1, 1, 0});
    Onnx__NodeProto *node = add_node(proto, "MultiHeadAttention", "x keys x - seen", "y");
    node->domain = (char *)"com.microsoft";
    set_int(node, "num_heads", 2);
    kiln_onnx_model *model = loaded(proto);
    expect_floats(model, DIMS(1, 3, 2), (const float[]){1, 2, 3, 6, 50, 50}, DIMS(1, 3, 2),
                  (const float[]){2, 4, 2, 4, 2, 4});
    kiln_model_release(model);
}
