/* SPDX-License-Identifier: Apache-2.0 */
/* Attention that is recognised from nodes gives what the nodes give, rows too whose keys are all
 * hidden, in all the ways in which exporters hide them. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "support/context.h"
#include "tests/onnx/models.h"

enum { BATCH = 2, ROWS = 5, KEYS = 70, WIDTH = 8, BLIND = 2 };

TestSuite(patterns, .init = begin_models, .fini = end_models);

/* ---- the model ---- */

/* How keys are hidden between the scores and their softmax, with `number` in a hidden one's place,
 * or added to it. */
enum way { ADDED, ADDED_TWICE, CHOSEN, CHOSEN_THEN_ADDED, ADDED_THEN_CHOSEN, WAYS };

static const char *const names[] = {"added", "added twice", "chosen", "chosen, then added",
                                    "added, then chosen"};

struct kind {
    enum way way;
    float number;
    bool or_zero;    /* where(isnan(weights), 0, weights) follows */
    bool recognised; /* as one call */
};

static void add_scores(Onnx__ModelProto *proto, const struct kind *kind)
{
    set_ints(add_node(proto, "Transpose", "k", "keys"), "perm", 3, (const int64_t[]){0, 2, 1});
    add_node(proto, "MatMul", "q keys", "products");
    add_node(proto, "Mul", "products factor", "scores");
    switch (kind->way) {
    case ADDED: add_node(proto, "Add", "scores bias", "masked"); break;
    case ADDED_TWICE:
        add_node(proto, "Add", "scores bias", "once");
        add_node(proto, "Add", "bias once", "masked");
        break;
    case CHOSEN: add_node(proto, "Where", "seen scores number", "masked"); break;
    case CHOSEN_THEN_ADDED:
        add_node(proto, "Where", "seen scores number", "once");
        add_node(proto, "Add", "once bias", "masked");
        break;
    case ADDED_THEN_CHOSEN:
        add_node(proto, "Add", "scores bias", "once");
        add_node(proto, "Where", "seen once number", "masked");
        break;
    case WAYS: break;
    }
}

static Onnx__ModelProto *attention(const struct kind *kind)
{
    Onnx__ModelProto *proto = new_model(17);
    add_input(proto, "q", FLOAT, "b m d");
    add_input(proto, "k", FLOAT, "b n d");
    add_input(proto, "seen", BOOLEAN, "b m n");
    add_input(proto, "bias", FLOAT, "b m n");
    add_output(proto, "y", FLOAT, NULL);
    add_floats(proto, "number", "", &kind->number);
    add_floats(proto, "factor", "", (const float[]){0.375f});
    add_floats(proto, "zero", "", (const float[]){0});
    add_scores(proto, kind);
    set_int(add_node(proto, "Softmax", "masked", "weights"), "axis", -1);
    if (kind->or_zero) {
        add_node(proto, "IsNaN", "weights", "none");
        add_node(proto, "Where", "none zero weights", "kept");
    }
    add_node(proto, "MatMul", kind->or_zero ? "kept k" : "weights k", "y");
    return proto;
}

/* ---- running ---- */

struct scene {
    float q[BATCH * ROWS * WIDTH], k[BATCH * KEYS * WIDTH], bias[BATCH * ROWS * KEYS];
    uint8_t seen[BATCH * ROWS * KEYS];
};

/* Row BLIND sees no key, the others about half of them. */
static void set_scene(struct scene *scene, float number)
{
    fill(scene->q, BATCH * ROWS * WIDTH, 1);
    fill(scene->k, BATCH * KEYS * WIDTH, 2);
    for (size_t i = 0; i < BATCH * KEYS * WIDTH; i++)
        scene->k[i] /= 16;
    for (size_t i = 0; i < BATCH * ROWS * KEYS; i++) {
        scene->seen[i] = i / KEYS % ROWS != BLIND && i * 7 % 11 < 6;
        scene->bias[i] = scene->seen[i] ? 0 : number;
    }
}

static void run(const struct kind *kind, bool plain, const struct scene *scene, float *result)
{
    kiln_model_options options = KILN_MODEL_OPTIONS_INIT;
    options.plain = plain;
    kiln_onnx_model *model;
    expect_ok(load_model(context, attention(kind), &options, &model));
    const kiln_array in[] = {{KILN_F32, 3, {BATCH, ROWS, WIDTH}, NULL},
                             {KILN_F32, 3, {BATCH, KEYS, WIDTH}, NULL},
                             {KILN_BOOL, 3, {BATCH, ROWS, KEYS}, NULL},
                             {KILN_F32, 3, {BATCH, ROWS, KEYS}, NULL}};
    kiln_model_lease *lease;
    expect_ok(kiln_model_batch(model, in, &lease));
    memcpy(lease->inputs[0].data, scene->q, sizeof scene->q);
    memcpy(lease->inputs[1].data, scene->k, sizeof scene->k);
    if (lease->inputs[2].data)
        memcpy(lease->inputs[2].data, scene->seen, sizeof scene->seen);
    if (lease->inputs[3].data)
        memcpy(lease->inputs[3].data, scene->bias, sizeof scene->bias);
    bool one_call = explains(lease->batch, "attention");
    cr_expect_eq(one_call, !plain && kind->recognised, "%s, %g: %s", names[kind->way],
                 (double)kind->number, one_call ? "one call" : "by nodes");
    expect_ok(kiln_batch_execute(lease->batch));
    memcpy(result, lease->outputs[0].data, sizeof scene->q);
    kiln_model_batch_return(lease);
    kiln_model_release(model);
}

/* Beside a number of this size scores are rounded so far. */
static double rounding(const struct kind *kind)
{
    double size = fabs((double)kind->number);
    return size < 1e6 ? 1e-5 + size * 8 * FLT_EPSILON : 1e-5;
}

static void check(const struct kind *kind)
{
    struct scene scene;
    float results[2][BATCH * ROWS * WIDTH];
    set_scene(&scene, kind->number);
    run(kind, false, &scene, results[0]);
    run(kind, true, &scene, results[1]);
    for (size_t i = 0; i < BATCH * ROWS * WIDTH; i++) {
        bool blind = i / WIDTH % ROWS == BLIND;
        double found = (double)results[0][i], wanted = (double)results[1][i];
        double most = blind ? rounding(kind) : 1e-5;
        cr_expect((isnan(found) && isnan(wanted)) || fabs(found - wanted) <= most,
                  "%s, %g%s: row %zu, %s, is %g, by nodes %g", names[kind->way],
                  (double)kind->number, kind->or_zero ? ", NaN is 0" : "", i / WIDTH,
                  blind ? "that sees no key" : "that sees some", found, wanted);
    }
}

Test(patterns, rows_that_see_no_key_are_what_the_nodes_make_of_them)
{
    static const struct kind kinds[] = {
        {ADDED, -1e4f, 0, 1},
        {ADDED, -65504, 0, 1},
        {ADDED, -1e9f, 0, 1},
        {ADDED, -FLT_MAX, 0, 1},
        {ADDED, -FLT_MAX, 1, 1},
        {ADDED, -INFINITY, 0, 1},
        {ADDED, -INFINITY, 1, 1},
        {ADDED_TWICE, -1e9f, 0, 1},
        {ADDED_TWICE, -FLT_MAX, 0, 1},
        {ADDED_TWICE, -FLT_MAX, 1, 1},
        {CHOSEN, -1, 0, 0},
        {CHOSEN, -1e4f, 0, 1},
        {CHOSEN, -65504, 1, 1},
        {CHOSEN, -1e9f, 0, 1},
        {CHOSEN, -FLT_MAX, 0, 1},
        {CHOSEN, -INFINITY, 0, 1},
        {CHOSEN, -INFINITY, 1, 1},
        {CHOSEN_THEN_ADDED, -1e4f, 0, 0},
        {CHOSEN_THEN_ADDED, -FLT_MAX, 0, 1},
        {CHOSEN_THEN_ADDED, -INFINITY, 1, 1},
        {ADDED_THEN_CHOSEN, -1e9f, 0, 0},
        {ADDED_THEN_CHOSEN, -FLT_MAX, 0, 1},
        {ADDED_THEN_CHOSEN, -INFINITY, 0, 1},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        check(&kinds[i]);
}

/* What mends such rows is computed once for all layers that have the mask. */
Test(patterns, layers_share_what_is_made_of_a_mask)
{
    size_t launches[2];
    for (size_t layers = 1; layers <= 2; layers++) {
        Onnx__ModelProto *proto = new_model(17);
        add_input(proto, "x", FLOAT, "b n d");
        add_input(proto, "bias", FLOAT, "b 1 n");
        add_output(proto, "y", FLOAT, NULL);
        for (size_t i = 0; i < layers; i++) {
            set_ints(add_node(proto, "Transpose", i ? "z" : "x", i ? "kk" : "k"), "perm", 3,
                     (const int64_t[]){0, 2, 1});
            add_node(proto, "MatMul", i ? "z kk" : "x k", i ? "ss" : "s");
            add_node(proto, "Add", i ? "ss bias" : "s bias", i ? "mm" : "m");
            set_int(add_node(proto, "Softmax", i ? "mm" : "m", i ? "pp" : "p"), "axis", -1);
            add_node(proto, "MatMul", i ? "pp z" : "p x", i + 1 < layers ? "z" : "y");
        }
        kiln_onnx_model *model;
        expect_ok(load_model(context, proto, NULL, &model));
        const kiln_array in[] = {{KILN_F32, 3, {2, 6, 8}, NULL}, {KILN_F32, 3, {2, 1, 6}, NULL}};
        kiln_model_lease *lease;
        expect_ok(kiln_model_batch(model, in, &lease));
        launches[layers - 1] = cost_of(lease->batch).launches;
        kiln_model_batch_return(lease);
        kiln_model_release(model);
    }
    cr_expect_leq(launches[0], 2u);
    cr_expect_eq(launches[1], launches[0] + 1);
}

/* ---- by hand ---- */

/* softmax(q k' / 2 + mask) v, and x / 2 (1 + erf(x / sqrt(2))), as exporters write them. */
static Onnx__ModelProto *encoder(void)
{
    Onnx__ModelProto *proto = new_model(13);
    static const float mask[] = {0, 0, -1e9f};
    add_input(proto, "x", FLOAT, "3 4");
    add_output(proto, "y", FLOAT, "3 4");
    add_floats(proto, "mask", "1 3", mask);
    add_floats(proto, "two", "", (const float[]){2});
    add_floats(proto, "root", "", (const float[]){1.41421356f});
    add_floats(proto, "one", "", (const float[]){1});
    add_floats(proto, "half", "1", (const float[]){0.5f});
    add_node(proto, "Transpose", "x", "keys");
    add_node(proto, "MatMul", "x keys", "scores");
    add_node(proto, "Div", "scores two", "scaled");
    add_node(proto, "Add", "scaled mask", "masked");
    set_int(add_node(proto, "Softmax", "masked", "weights"), "axis", -1);
    add_node(proto, "MatMul", "weights x", "seen");
    add_node(proto, "Div", "seen root", "d");
    add_node(proto, "Erf", "d", "e");
    add_node(proto, "Add", "e one", "f");
    add_node(proto, "Mul", "seen f", "g");
    add_node(proto, "Mul", "g half", "y");
    return proto;
}

Test(patterns, recognises_attention_and_gelu)
{
    float x[12], result[2][12];
    size_t operations[2];
    for (size_t i = 0; i < 12; i++)
        x[i] = (float)(i * 7 % 5) / 4 - 0.5f;
    for (int plain = 0; plain < 2; plain++) {
        kiln_model_options options = KILN_MODEL_OPTIONS_INIT;
        options.plain = plain;
        kiln_onnx_model *model;
        expect_ok(load_model(context, encoder(), &options, &model));
        kiln_array in = {KILN_F32, 2, {3, 4}, x};
        kiln_model_lease *lease;
        expect_ok(kiln_model_batch(model, &in, &lease));
        operations[plain] = kiln_batch_operation_count(lease->batch);
        memcpy(lease->inputs[0].data, x, sizeof x);
        expect_ok(kiln_batch_execute(lease->batch));
        memcpy(result[plain], lease->outputs[0].data, sizeof x);
        kiln_model_batch_return(lease);
        kiln_model_release(model);
    }
    cr_assert_lt(operations[0], operations[1]);
    for (size_t i = 0; i < 12; i++)
        cr_assert_float_eq(result[0][i], result[1][i], 1e-5);
}

/* A mask that chooses a number instead of adding one: one call if the number hides its key. */
Test(patterns, recognises_masks_that_hide_keys)
{
    size_t operations[2];
    for (size_t i = 0; i < 2; i++) {
        Onnx__ModelProto *proto = new_model(13);
        add_input(proto, "x", FLOAT, "3 4");
        add_input(proto, "seen", BOOLEAN, "3 3");
        add_output(proto, "y", FLOAT, "3 4");
        add_floats(proto, "away", "", i ? (const float[]){-1} : (const float[]){-1e30f});
        add_node(proto, "Transpose", "x", "keys");
        add_node(proto, "MatMul", "x keys", "scores");
        add_node(proto, "Where", "seen scores away", "masked");
        add_node(proto, "Softmax", "masked", "weights");
        add_node(proto, "MatMul", "weights x", "y");
        kiln_onnx_model *model = loaded(proto);
        kiln_array in[] = {{KILN_F32, 2, {3, 4}, NULL}, {KILN_BOOL, 2, {3, 3}, NULL}};
        kiln_model_lease *lease;
        expect_ok(kiln_model_batch(model, in, &lease));
        operations[i] = kiln_batch_operation_count(lease->batch);
        kiln_model_batch_return(lease);
        kiln_model_release(model);
    }
    cr_assert_lt(operations[0], operations[1]);
}

/* As PyTorch writes it: both operands are scaled, and rows that see no key are 0, not NaN. One call
 * too, as good as the nodes. */
Test(patterns, recognises_rows_that_see_no_key)
{
    const float x[12] = {1, -1, 2, 0, 3, 1, -2, 1, 0, 1, 1, -1};
    const uint8_t seen[9] = {1, 0, 1, 0, 0, 0, 1, 1, 1};
    float result[2][12];
    size_t operations[2];
    for (int plain = 0; plain < 2; plain++) {
        kiln_model_options options = KILN_MODEL_OPTIONS_INIT;
        options.plain = plain;
        Onnx__ModelProto *proto = new_model(13);
        add_input(proto, "x", FLOAT, "3 4");
        add_input(proto, "seen", BOOLEAN, "3 3");
        add_output(proto, "y", FLOAT, "3 4");
        add_floats(proto, "away", "", (const float[]){-INFINITY});
        add_floats(proto, "zero", "", (const float[]){0});
        add_floats(proto, "root", "1", (const float[]){0.75f});
        add_node(proto, "Transpose", "x", "turned");
        add_node(proto, "Mul", "turned root", "keys");
        add_node(proto, "Mul", "root x", "queries");
        add_node(proto, "MatMul", "queries keys", "scores");
        add_node(proto, "Where", "seen scores away", "masked");
        add_node(proto, "Softmax", "masked", "weights");
        add_node(proto, "IsNaN", "weights", "none");
        add_node(proto, "Where", "none zero weights", "chosen");
        add_node(proto, "MatMul", "chosen x", "y");
        kiln_onnx_model *model;
        expect_ok(load_model(context, proto, &options, &model));
        kiln_array in[] = {{KILN_F32, 2, {3, 4}, NULL}, {KILN_BOOL, 2, {3, 3}, NULL}};
        kiln_model_lease *lease;
        expect_ok(kiln_model_batch(model, in, &lease));
        operations[plain] = kiln_batch_operation_count(lease->batch);
        memcpy(lease->inputs[0].data, x, sizeof x);
        memcpy(lease->inputs[1].data, seen, sizeof seen);
        expect_ok(kiln_batch_execute(lease->batch));
        memcpy(result[plain], lease->outputs[0].data, sizeof x);
        kiln_model_batch_return(lease);
        kiln_model_release(model);
    }
    cr_assert_leq(operations[0] + 5, operations[1]);
    for (size_t i = 0; i < 12; i++)
        cr_assert_float_eq(result[0][i], result[1][i], 1e-5);
    for (size_t i = 4; i < 8; i++)
        cr_assert_eq(result[0][i], 0);
}

Test(patterns, says_what_reading_changed)
{
    Onnx__ModelProto *proto = new_model(13);
    add_input(proto, "x", DOUBLE, "2");
    add_output(proto, "y", DOUBLE, "2");
    Onnx__TensorProto *w = add_integers(proto, "w", "2", (const int64_t[]){0, 0});
    double values[2] = {0.5, 0.1};
    w->data_type = DOUBLE;
    w->n_double_data = w->n_int64_data;
    w->double_data = values;
    w->n_int64_data = 0;
    add_node(proto, "Add", "x w", "y");
    kiln_onnx_model *model = loaded(proto);
    cr_assert_str_eq(kiln_model_notes(model),
                     "'x' is of type double, computed as f32\n"
                     "'y' is of type double, computed as f32\n"
                     "'w': 1 of 2 numbers rounded from double, the first 0.10000000000000001\n");
    kiln_model_release(model);
}

/* The softmax is over the queries here: no attention. */
Test(patterns, records_the_nodes_where_a_pattern_does_not_hold)
{
    Onnx__ModelProto *proto = encoder();
    proto->graph->node[4]->attribute[0]->i = 0;
    kiln_onnx_model *model;
    expect_ok(load_model(context, proto, NULL, &model));
    kiln_array in = {KILN_F32, 2, {3, 4}, NULL};
    kiln_model_lease *lease;
    expect_ok(kiln_model_batch(model, &in, &lease));
    size_t operations = kiln_batch_operation_count(lease->batch);
    kiln_model_batch_return(lease);
    kiln_model_release(model);
    expect_ok(load_model(context, encoder(), NULL, &model));
    expect_ok(kiln_model_batch(model, &in, &lease));
    cr_assert_gt(operations, kiln_batch_operation_count(lease->batch));
    kiln_model_batch_return(lease);
    kiln_model_release(model);
}
