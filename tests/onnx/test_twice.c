/* SPDX-License-Identifier: Apache-2.0 */
/* Outputs of a model that are one tensor, or an input: each is moved by itself. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "support/context.h"
#include "tests/onnx/models.h"

enum { N = 3, OUTPUTS = 3 };

TestSuite(onnx_twice, .init = begin_models, .fini = end_models);

/* A model of x with the outputs "a b c", and whether each is exp(x) or x. */
struct twin {
    const char *nodes[3][3]; /* operator, operands, results */
    const char *outputs[OUTPUTS];
    bool exponential[OUTPUTS];
};

static const struct twin twins[] = {
    {{{"Identity", "x", "a"}, {"Identity", "x", "b"}, {"Identity", "a", "c"}},
     {"a", "b", "c"},
     {0, 0, 0}},
    {{{"Exp", "x", "a"}, {"Identity", "a", "b"}, {"Identity", "b", "c"}},
     {"a", "b", "c"},
     {1, 1, 1}},
    {{{"Exp", "x", "e"}, {"Identity", "e", "a"}, {"Identity", "e", "b"}},
     {"b", "e", "a"},
     {1, 1, 1}},
    {{{"Exp", "x", "a"}, {"Dropout", "a", "b"}, {"Exp", "x", "c"}}, {"a", "b", "c"}, {1, 1, 1}},
    {{{"Exp", "x", "a"}, {"Shape", "x", "s"}, {"Reshape", "a s", "b"}}, {"a", "b", "x"}, {1, 1, 0}},
    {{{"Exp", "x", "a"}, {"Add", "a zero", "b"}, {"Identity", "x", "c"}},
     {"a", "b", "c"},
     {1, 1, 0}},
    {{{"Exp", "x", "a"}, {"Unsqueeze", "a zeros", "b"}, {"Identity", "x", "c"}},
     {"c", "x", "b"},
     {0, 0, 1}},
    {{{"Exp", "x", "a"}, {"Identity", "x", "b"}, {"Identity", "a", "c"}},
     {"x", "b", "c"},
     {0, 0, 1}},
};

static kiln_onnx_model *load(const struct twin *twin)
{
    Onnx__ModelProto *proto = new_model(18);
    kiln_onnx_model *model;
    add_input(proto, "x", FLOAT, "n");
    add_floats(proto, "zero", "", (const float[]){0});
    add_integers(proto, "zeros", "1", (const int64_t[]){0});
    for (size_t i = 0; i < OUTPUTS; i++) {
        add_node(proto, twin->nodes[i][0], twin->nodes[i][1], twin->nodes[i][2]);
        add_output(proto, twin->outputs[i], FLOAT, NULL);
    }
    expect_ok(load_model(context, proto, NULL, &model));
    return model;
}

static void expect_output(size_t twin, size_t output, const float *found, const float *x)
{
    for (size_t i = 0; i < N; i++) {
        float wanted = twins[twin].exponential[output] ? expf(x[i]) : x[i];
        cr_assert_float_eq(found[i], wanted, 1e-5, "model %zu, output %zu: %g, not %g", twin,
                           output, (double)found[i], (double)wanted);
    }
}

/* Every choice of outputs is moved, the others stay in the lease's memory. */
static void check(size_t twin, kiln_onnx_model *model, unsigned moved)
{
    const float x[N] = {-1, (float)moved, 2};
    float elsewhere[OUTPUTS][N] = {0};
    kiln_array in = {KILN_F32, 1, {N}, NULL};
    kiln_model_lease *lease;
    expect_ok(kiln_model_batch(model, &in, &lease));
    memcpy(lease->inputs[0].data, x, sizeof x);
    cr_assert_eq(kiln_batch_read_count(lease->batch), OUTPUTS);
    for (size_t i = 0; i < OUTPUTS; i++) {
        memset(lease->outputs[i].data, 0, sizeof x);
        if (moved >> i & 1)
            expect_ok(kiln_rebind_read(lease->batch, i, elsewhere[i], sizeof x));
    }
    expect_ok(kiln_batch_execute(lease->batch));
    for (size_t i = 0; i < OUTPUTS; i++)
        expect_output(twin, i, moved >> i & 1 ? elsewhere[i] : lease->outputs[i].data, x);
    kiln_model_batch_return(lease);
}

Test(onnx_twice, each_output_is_moved_by_itself)
{
    for (size_t twin = 0; twin < sizeof twins / sizeof *twins; twin++) {
        kiln_onnx_model *model = load(&twins[twin]);
        for (unsigned moved = 0; moved < 1 << OUTPUTS; moved++)
            check(twin, model, moved);
        kiln_model_release(model);
    }
}

Test(onnx_twice, each_output_has_memory_of_its_own)
{
    const float x[N] = {-1, 0, 2};
    for (size_t twin = 0; twin < sizeof twins / sizeof *twins; twin++) {
        kiln_onnx_model *model = load(&twins[twin]);
        kiln_array in = {KILN_F32, 1, {N}, (void *)(uintptr_t)x}, out[OUTPUTS];
        expect_ok(kiln_model_run(model, &in, out));
        for (size_t i = 0; i < OUTPUTS; i++) {
            expect_output(twin, i, out[i].data, x);
            memset(out[i].data, 0, sizeof x);
        }
        for (size_t i = 0; i < OUTPUTS; i++)
            kiln_free(out[i].data);
        kiln_model_release(model);
    }
}

/* A batch whose holder made a mistake is not lent again. */
Test(onnx_twice, a_failed_lease_is_nobody_elses)
{
    kiln_onnx_model *model = load(&twins[0]);
    kiln_array in = {KILN_F32, 1, {N}, NULL};
    kiln_model_lease *lease;
    float small[1];
    expect_ok(kiln_model_batch(model, &in, &lease));
    expect_error(kiln_rebind_read(lease->batch, 0, small, sizeof small), KILN_INVALID_ARGUMENT,
                 "kiln_rebind_read: read 0 has 12 bytes, and room for 4 was given");
    kiln_model_batch_return(lease);
    check(0, model, 1);
    kiln_model_release(model);
}
