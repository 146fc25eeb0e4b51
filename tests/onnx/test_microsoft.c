/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of com.microsoft that optimisers and quantisers write, beside arithmetic by hand and
 * beside the operators that they stand for. `make check-onnx` has more of them beside ONNX Runtime.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/context.h"
#include "tests/onnx/models.h"

TestSuite(onnx_microsoft, .init = begin_models, .fini = end_models);

#define UINT8 ONNX__TENSOR_PROTO__DATA_TYPE__UINT8
#define INT8 ONNX__TENSOR_PROTO__DATA_TYPE__INT8

static Onnx__NodeProto *add(Onnx__ModelProto *proto, const char *op, const char *inputs,
                            const char *outputs)
{
    Onnx__NodeProto *node = add_node(proto, op, inputs, outputs);
    node->domain = (char *)"com.microsoft";
    return node;
}

static kiln_onnx_model *load(const Onnx__ModelProto *proto)
{
    kiln_onnx_model *model;
    expect_ok(load_model(context, proto, NULL, &model));
    return model;
}

static void add_float(Onnx__ModelProto *proto, const char *name, float number)
{
    add_floats(proto, name, "", &number);
}

static void add_byte(Onnx__ModelProto *proto, const char *name, int type, uint8_t byte)
{
    add_bytes(proto, name, type, "", 1, &byte);
}

/* One output, of these bytes or floats. */
static void expect(kiln_onnx_model *model, const kiln_array *in, size_t n, const uint8_t *bytes,
                   const float *floats, double tolerance)
{
    kiln_array out[4];
    expect_ok(kiln_model_run(model, in, out));
    for (size_t i = 0; i < n && bytes; i++)
        cr_expect_eq(((uint8_t *)out[0].data)[i], bytes[i], "element %zu is %u, not %u", i,
                     ((uint8_t *)out[0].data)[i], bytes[i]);
    for (size_t i = 0; i < n && floats; i++)
        cr_expect_float_eq(((float *)out[0].data)[i], floats[i], tolerance,
                           "element %zu is %g, not %g", i, (double)((float *)out[0].data)[i],
                           (double)floats[i]);
    for (size_t i = 0; i < kiln_model_outputs(model, NULL); i++)
        kiln_free(out[i].data);
    kiln_model_release(model);
}

/* ---- between two quantisations ---- */

/* (x - 10) * 0.5 + (y - 20) * 0.25, in steps of 0.5 from 30 on; the ends of u8 are the ends. */
Test(onnx_microsoft, sums_are_quantised)
{
    Onnx__ModelProto *proto = new_model(17);
    uint8_t x[] = {10, 12, 255, 0}, y[] = {20, 28, 255, 0};
    add_input(proto, "x", UINT8, "4");
    add_input(proto, "y", UINT8, "4");
    add_output(proto, "z", UINT8, NULL);
    add_float(proto, "half", 0.5F);
    add_float(proto, "quarter", 0.25F);
    add_byte(proto, "ten", UINT8, 10);
    add_byte(proto, "twenty", UINT8, 20);
    add_byte(proto, "thirty", UINT8, 30);
    add(proto, "QLinearAdd", "x half ten y quarter twenty half thirty", "z");
    expect(load(proto), (const kiln_array[]){{KILN_U8, 1, {4}, x}, {KILN_U8, 1, {4}, y}}, 4,
           (const uint8_t[]){30, 36, 255, 10}, NULL, 0);
}

/* Rows' means of (x - 10) * 0.5, in steps of 0.25 from 3 on. */
Test(onnx_microsoft, means_are_quantised)
{
    static const uint8_t wanted[] = {9, 25, 3};
    uint8_t x[] = {10, 12, 14, 16, 20, 20, 20, 24, 0, 5, 10, 25};
    for (int64_t keeps = 0; keeps < 2; keeps++) {
        Onnx__ModelProto *proto = new_model(17);
        add_input(proto, "x", UINT8, "3 4");
        add_output(proto, "z", UINT8, NULL);
        add_float(proto, "half", 0.5F);
        add_float(proto, "quarter", 0.25F);
        add_byte(proto, "ten", UINT8, 10);
        add_byte(proto, "three", UINT8, 3);
        Onnx__NodeProto *node = add(proto, "QLinearReduceMean", "x half ten quarter three", "z");
        set_ints(node, "axes", 1, (const int64_t[]){-1});
        set_int(node, "keepdims", keeps);
        expect(load(proto), (const kiln_array[]){{KILN_U8, 2, {3, 4}, x}}, 3, wanted, NULL, 0);
    }
}

/* Without a zero point it is 0, of the operand's type. */
Test(onnx_microsoft, products_are_quantised)
{
    Onnx__ModelProto *proto = new_model(17);
    int8_t x[] = {10, -12, 127, 0}, y[] = {20, 28, 127, -5};
    add_input(proto, "x", INT8, "4");
    add_input(proto, "y", INT8, "4");
    add_output(proto, "z", INT8, NULL);
    add_float(proto, "half", 0.5F);
    add(proto, "QLinearMul", "x half - y half - half", "z");
    expect(load(proto), (const kiln_array[]){{KILN_I8, 1, {4}, x}, {KILN_I8, 1, {4}, y}}, 4,
           (const uint8_t[]){100, (uint8_t)-128, 127, 0}, NULL, 0);
}

/* Of parts with scales of their own. */
Test(onnx_microsoft, parts_are_quantised_alike)
{
    Onnx__ModelProto *proto = new_model(17);
    uint8_t x[] = {1, 2}, y[] = {3};
    add_input(proto, "x", UINT8, "1 2");
    add_input(proto, "y", UINT8, "1 1");
    add_output(proto, "z", UINT8, NULL);
    add_float(proto, "one", 1);
    add_float(proto, "four", 4);
    add_byte(proto, "zero", UINT8, 0);
    add_byte(proto, "seven", UINT8, 7);
    set_int(add(proto, "QLinearConcat", "one seven x one zero y four zero", "z"), "axis", 1);
    expect(load(proto), (const kiln_array[]){{KILN_U8, 2, {1, 2}, x}, {KILN_U8, 2, {1, 1}, y}}, 3,
           (const uint8_t[]){8, 9, 19}, NULL, 0);
}

/* ---- products ---- */

enum { LONG = 300 };

/* A sum of 300 products of 255 and 255 is beyond what f32 counts in ones. */
static void add_long(Onnx__ModelProto *proto)
{
    static uint8_t weights[LONG];
    memset(weights, 255, sizeof weights);
    add_bytes(proto, "w", UINT8, "300 1", LONG, weights);
    add_floats(proto, "scale", "1", (const float[]){0.5F});
    add_floats(proto, "bias", "1", (const float[]){-9753750});
    add_output(proto, "y", FLOAT, NULL);
}

Test(onnx_microsoft, long_products_are_exact)
{
    Onnx__ModelProto *proto = new_model(17);
    uint8_t x[LONG];
    memset(x, 255, sizeof x);
    x[7] = 254;
    add_long(proto);
    add_input(proto, "x", UINT8, "1 300");
    add_float(proto, "one", 1);
    add(proto, "MatMulIntegerToFloat", "x w one scale - - bias", "y");
    /* (300 * 255 - 1) * 255 / 2 - 9753750 */
    expect(load(proto), &(kiln_array){KILN_U8, 2, {1, LONG}, x}, 1, NULL, (const float[]){-127.5F},
           0.5);
}

/* x from -1 to 1 has 128 for its zero, and steps of 2 / 255. */
Test(onnx_microsoft, operands_are_quantised_when_they_come)
{
    Onnx__ModelProto *proto = new_model(17);
    float x[] = {-1, 1, 0.2F}, step = 2.0F / 255;
    add_input(proto, "x", FLOAT, "1 3");
    add_output(proto, "y", FLOAT, NULL);
    add_bytes(proto, "w", INT8, "3 2", 6, (const int8_t[]){1, 2, 3, 4, -5, 6});
    add_floats(proto, "scale", "2", (const float[]){1, 0.5F});
    add(proto, "DynamicQuantizeMatMul", "x w scale", "y");
    const float q[] = {-128, 127, 26}; /* rounded: 127.5 is even at 128; 25.5 at 26 */
    const float wanted[] = {step * (q[0] + 3 * q[1] - 5 * q[2]),
                            step / 2 * (2 * q[0] + 4 * q[1] + 6 * q[2])};
    expect(load(proto), &(kiln_array){KILN_F32, 2, {1, 3}, x}, 2, NULL, wanted, 0.05);
}

/* (x - 1)' (w - 2)' + c, times 2 * 3 * 0.5, then in steps of 6 from 5 on. */
Test(onnx_microsoft, general_products)
{
    for (int quantised = 0; quantised < 2; quantised++) {
        Onnx__ModelProto *proto = new_model(17);
        uint8_t x[] = {2, 3, 4, 1, 0, 2}; /* [3,2], turned */
        add_input(proto, "x", UINT8, "3 2");
        add_output(proto, "y", quantised ? UINT8 : FLOAT, NULL);
        add_bytes(proto, "w", UINT8, "1 3", 3, (const uint8_t[]){3, 4, 1});
        add_float(proto, "two", 2);
        add_float(proto, "three", 3);
        add_float(proto, "six", 6);
        add_byte(proto, "one", UINT8, 1);
        add_byte(proto, "byte", UINT8, 2);
        add_byte(proto, "five", UINT8, 5);
        add_bytes(proto, "c", ONNX__TENSOR_PROTO__DATA_TYPE__INT32, "1", 4, (const int32_t[]){10});
        Onnx__NodeProto *node =
            add(proto, "QGemm",
                quantised ? "x two one w three byte c six five" : "x two one w three byte c", "y");
        set_int(node, "transA", 1);
        set_int(node, "transB", 1);
        set_float(node, "alpha", 0.5F);
        /* 1 * 1 + 3 * 2 - 1 * -1 + 10 = 18; 2 * 1 + 0 * 2 + 1 * -1 + 10 = 11 */
        expect(load(proto), &(kiln_array){KILN_U8, 2, {3, 2}, x}, 2,
               quantised ? (const uint8_t[]){14, 11} : NULL,
               quantised ? NULL : (const float[]){54, 33}, 1e-5);
    }
}

/* ---- a recurrent layer beside LSTM with the same weights ---- */

enum { STEPS = 3, WIDTH = 2, HIDDEN = 2, GATES = 4 * HIDDEN };

static void run_layer(bool quantised, float *y)
{
    Onnx__ModelProto *proto = new_model(17);
    int8_t w[WIDTH * GATES], r[HIDDEN * GATES];
    float wide[WIDTH * GATES], recurrent[HIDDEN * GATES], x[STEPS * WIDTH];
    kiln_array out;
    for (int i = 0; i < WIDTH * GATES; i++) {
        w[i] = (int8_t)(i * 37 % 101 - 50);
        r[i] = (int8_t)(i * 53 % 97 - 48);
        /* [I,4H] to [4H,I] */
        wide[i % GATES * WIDTH + i / GATES] =
            (float)(w[i] - 3) * (0.02F + (float)(i % GATES) / 1000);
        recurrent[i % GATES * HIDDEN + i / GATES] = (float)(r[i] + 4) * 0.01F;
    }
    for (int i = 0; i < STEPS * WIDTH; i++)
        x[i] = (float)(i * 5 % 7) / 3 - 1;
    add_input(proto, "x", FLOAT, "3 1 2");
    add_output(proto, "y", FLOAT, NULL);
    if (quantised) {
        float scales[GATES];
        int8_t zeros[GATES];
        for (int i = 0; i < GATES; i++) {
            scales[i] = 0.02F + (float)i / 1000;
            zeros[i] = 3;
        }
        add_bytes(proto, "w", INT8, "1 2 8", sizeof w, w);
        add_bytes(proto, "r", INT8, "1 2 8", sizeof r, r);
        add_floats(proto, "ws", "1 8", scales);
        add_bytes(proto, "wz", INT8, "1 8", sizeof zeros, zeros);
        add_floats(proto, "rs", "1", (const float[]){0.01F});
        add_bytes(proto, "rz", INT8, "1", 1, (const int8_t[]){-4});
    } else {
        add_floats(proto, "w", "1 8 2", wide);
        add_floats(proto, "r", "1 8 2", recurrent);
    }
    Onnx__NodeProto *node =
        quantised ? add(proto, "DynamicQuantizeLSTM", "x w r - - - - - ws wz rs rz", "y")
                  : add_node(proto, "LSTM", "x w r", "y");
    set_int(node, "hidden_size", HIDDEN);
    kiln_onnx_model *model = load(proto);
    expect_ok(kiln_model_run(model, &(kiln_array){KILN_F32, 3, {STEPS, 1, WIDTH}, x}, &out));
    memcpy(y, out.data, STEPS * HIDDEN * sizeof *y);
    kiln_free(out.data);
    kiln_model_release(model);
}

Test(onnx_microsoft, recurrent_layers_are_those_of_wider_weights)
{
    float wanted[STEPS * HIDDEN], found[STEPS * HIDDEN];
    run_layer(false, wanted);
    run_layer(true, found);
    for (size_t i = 0; i < STEPS * HIDDEN; i++)
        cr_expect_float_eq(found[i], wanted[i], 1e-5, "element %zu is %g, not %g", i,
                           (double)found[i], (double)wanted[i]);
}

/* ---- attention whose cache comes and goes ---- */

enum { ROWS = 4, SIZE = 2, SIDE = 3 * 2 * SIZE };

static kiln_onnx_model *load_attention(bool quantised)
{
    Onnx__ModelProto *proto = new_model(17);
    float wide[3 * SIDE], bias[SIDE];
    int8_t w[3 * SIDE];
    for (int i = 0; i < 3 * SIDE; i++) {
        w[i] = (int8_t)(i * 37 % 101 - 50);
        wide[i] = (float)w[i] / 20;
    }
    for (int i = 0; i < SIDE; i++)
        bias[i] = (float)(i % 5) / 4;
    add_input(proto, "x", quantised ? UINT8 : FLOAT, "1 rows 3");
    add_input(proto, "past", FLOAT, "2 1 2 past 2");
    add_output(proto, "y", FLOAT, NULL);
    add_output(proto, "present", FLOAT, NULL);
    add_floats(proto, "bias", "12", bias);
    add_float(proto, "scale", 0.05F);
    add_float(proto, "step", 0.01F);
    if (quantised)
        add_bytes(proto, "w", INT8, "3 12", sizeof w, w);
    else
        add_floats(proto, "w", "3 12", wide);
    Onnx__NodeProto *node =
        quantised ? add(proto, "QAttention", "x w bias step scale - - - past", "y present")
                  : add(proto, "Attention", "x w bias - past", "y present");
    set_int(node, "num_heads", 2);
    set_int(node, "unidirectional", 1);
    return load(proto);
}

static void attend(kiln_onnx_model *model, bool quantised, size_t first, size_t rows,
                   const kiln_array *past, kiln_array *out)
{
    uint8_t bytes[ROWS * 3];
    float x[ROWS * 3];
    for (size_t i = 0; i < 3 * rows; i++) {
        bytes[i] = (uint8_t)((3 * first + i) * 71);
        x[i] = (float)bytes[i] * 0.01F;
    }
    kiln_array in[] = {
        {quantised ? KILN_U8 : KILN_F32, 3, {1, rows, 3}, quantised ? (void *)bytes : x}, *past};
    expect_ok(kiln_model_run(model, in, out));
}

/* Rows one after the other are the rows together, and integers are what they stand for. */
Test(onnx_microsoft, attention_goes_on_from_its_cache)
{
    float wanted[ROWS * 4];
    for (int quantised = 0; quantised < 2; quantised++) {
        kiln_onnx_model *model = load_attention(quantised);
        float nothing[1] = {0};
        kiln_array none = {KILN_F32, 5, {2, 1, 2, 0, 2}, nothing}, out[2], next[2];
        attend(model, quantised, 0, ROWS, &none, out);
        if (!quantised)
            memcpy(wanted, out[0].data, sizeof wanted);
        for (size_t i = 0; i < ROWS * 4; i++)
            cr_expect_float_eq(((float *)out[0].data)[i], wanted[i], 1e-5, "element %zu", i);
        kiln_free(out[0].data);
        kiln_free(out[1].data);
        attend(model, quantised, 0, ROWS - 1, &none, out);
        attend(model, quantised, ROWS - 1, 1, &out[1], next);
        cr_expect_eq(next[1].dims[3], ROWS);
        for (size_t i = 0; i < 4; i++)
            cr_expect_float_eq(((float *)next[0].data)[i], wanted[(ROWS - 1) * 4 + i], 1e-5,
                               "last %zu", i);
        for (size_t i = 0; i < 2; i++) {
            kiln_free(out[i].data);
            kiln_free(next[i].data);
        }
        kiln_model_release(model);
    }
}

/* ---- what is fused ---- */

static const struct {
    const char *name;
    float alpha, beta, wanted[4];
} activations[] = {
    {"Relu", 0, 0, {0, 1, 0, 2}},
    {"LeakyRelu", 0.5F, 0, {-0.5F, 1, 0, 2}},
    {"HardSigmoid", 0.25F, 0.5F, {0.25F, 0.75F, 0.5F, 1}},
    {"Tanh", 0, 0, {-0.7615942F, 0.7615942F, 0, 0.9640276F}},
    {"Sigmoid", 0, 0, {0.2689414F, 0.7310586F, 0.5F, 0.8807971F}},
    {"Clip", -0.5F, 1.5F, {-0.5F, 1, 0, 1.5F}},
};

Test(onnx_microsoft, products_have_activations_behind_them)
{
    float x[] = {-2, 2, 0, 4};
    for (size_t i = 0; i < sizeof activations / sizeof *activations; i++)
        for (int conv = 0; conv < 2; conv++) {
            Onnx__ModelProto *proto = new_model(17);
            add_input(proto, "x", FLOAT, conv ? "1 1 4" : "4 1");
            add_output(proto, "y", FLOAT, NULL);
            add_floats(proto, "w", conv ? "1 1 1" : "1 1", (const float[]){0.25F});
            add_floats(proto, "sum", conv ? "1 1 4" : "1", (const float[]){-0.5F, 0.5F, 0, 1});
            Onnx__NodeProto *node = conv ? add(proto, "FusedConv", "x w - sum", "y")
                                         : add(proto, "FusedGemm", "x w", "y");
            if (!conv)
                set_float(node, "alpha", 2);
            set_text(node, "activation", activations[i].name);
            set_float(node, "activation_alpha", activations[i].alpha);
            set_float(node, "activation_beta", activations[i].beta);
            expect(load(proto), &(kiln_array){KILN_F32, conv ? 3 : 2, {conv ? 1 : 4, 1, 4}, x}, 4,
                   NULL, activations[i].wanted, 1e-6);
        }
}

/* Two groups of two channels, which lie last: each is -1 and 1, then x sigmoid(x). */
Test(onnx_microsoft, groups_are_normalised)
{
    for (int swish = 0; swish < 2; swish++) {
        Onnx__ModelProto *proto = new_model(17);
        float x[] = {1, 3, 10, 30}, wanted[] = {-1, 1, -2, 3};
        add_input(proto, "x", FLOAT, "1 1 1 4");
        add_output(proto, "y", FLOAT, NULL);
        add_floats(proto, "gamma", "4", (const float[]){1, 1, 2, 2});
        add_floats(proto, "beta", "4", (const float[]){0, 0, 0, 1});
        Onnx__NodeProto *node = add(proto, "GroupNorm", "x gamma beta", "y");
        set_int(node, "groups", 2);
        set_int(node, "activation", swish);
        for (int i = 0; i < 4 && swish; i++)
            wanted[i] /= 1 + expf(-wanted[i]);
        expect(load(proto), &(kiln_array){KILN_F32, 4, {1, 1, 1, 4}, x}, 4, NULL, wanted, 1e-4);
    }
}

/* ---- what is refused ---- */

static const struct {
    const char *op, *operands, *attribute;
    int64_t value;
    const char *words;
} wrong[] = {
    {"QLinearSigmoid", "x one - one", "channels_last", 1, "channels behind the image"},
    {"QLinearSoftmax", "x one - one", "opset", -3, "Softmax of version -3"},
    {"QLinearAdd", "x one -", NULL, 0, "operand 3 is missing"},
    {"QLinearConcat", "one", NULL, 0, "0 operands, or channels behind the image"},
    {"GroupNorm", "x v v", "groups", -1, "-1 groups and activation 0"},
    {"GroupNorm", "x v v", "groups", 3, "channels"},
    {"FusedGemm", "x w", "activation", 1, "attribute 'activation' is an integer"},
    {"DynamicQuantizeLSTM", "x x x - - - - - one v one v", NULL, 0, "without a scale for each"},
    {"Attention", "x v - - x", "num_heads", 0, "attention"},
    {"QGemm", "x one - x one -", NULL, 0, "QGemm"},
};

Test(onnx_microsoft, wrong_nodes_are_refused)
{
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const bool bytes = strchr(wrong[i].op, 'Q') == wrong[i].op;
        Onnx__ModelProto *proto = new_model(17);
        uint8_t x[32] = {0};
        kiln_array y[2];
        add_input(proto, "x", bytes ? UINT8 : FLOAT, "2 4");
        add_output(proto, "y", 0, NULL);
        add_float(proto, "one", 1);
        add_floats(proto, "v", "4", (const float[]){1, 2, 3, 4});
        add_floats(proto, "w", "4 1", (const float[]){1, 2, 3, 4});
        Onnx__NodeProto *node = add(proto, wrong[i].op, wrong[i].operands, "y");
        if (wrong[i].attribute)
            set_int(node, wrong[i].attribute, wrong[i].value);
        kiln_onnx_model *model;
        kiln_status status = load_model(context, proto, NULL, &model);
        if (!status)
            status =
                kiln_model_run(model, &(kiln_array){bytes ? KILN_U8 : KILN_F32, 2, {2, 4}, x}, y);
        cr_expect(status != KILN_OK, "%s", wrong[i].op);
        cr_expect(strstr(kiln_last_error(), wrong[i].words), "'%s' is not in '%s'", wrong[i].words,
                  kiln_last_error());
        kiln_model_release(model);
    }
}
