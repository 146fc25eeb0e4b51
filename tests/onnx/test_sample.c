/* SPDX-License-Identifier: Apache-2.0 */
/* GridSample in each mode, cubic with each padding, beside what ONNX Runtime gives. */
#include <criterion/criterion.h>
#include <math.h>

#include "support/context.h"
#include "tests/onnx/models.h"

enum { HEIGHT = 4, WIDTH = 5, PLACES = 8 };

TestSuite(sample, .init = begin_models, .fini = end_models);

/* Of an image whose element i is ((3 i^2 + 7 i + 1) % 23 - 11) / 8. */
static const struct {
    const char *mode, *padding;
    int corners;
    float wanted[PLACES];
} rows[] = {
    {"nearest", "border", 0, {0, -1.25f, 1.25f, -0.5f, -0.375f, 1.375f, -0.375f, 1.25f}},
    {"linear",
     "border",
     0,
     {0.125f, -1.25f, 1.25f, -0.28125f, -0.2249999f, 1.375f, -0.375f, 1.25f}},
    {"cubic",
     "zeros",
     0,
     {0.1132812f, -0.4941406f, 0.3183594f, -0.3920807f, 0.02666709f, 0, 0.01887516f, 0}},
    {"cubic",
     "zeros",
     1,
     {0.1132812f, -1.25f, 1.25f, -0.3551623f, -0.1060798f, -0.1446461f, -0.1867847f, 0}},
    {"cubic",
     "border",
     0,
     {0.1132812f, -1.595703f, 1.279297f, -0.4288064f, -0.2528435f, 1.432f, -0.3063355f, 1.25f}},
    {"cubic",
     "border",
     1,
     {0.1132812f, -1.25f, 1.25f, -0.3330296f, -0.1758475f, 1.615719f, -0.4393268f, 1.25f}},
    {"cubic",
     "reflection",
     0,
     {0.1132812f, -1.976562f, 1.273438f, -0.4266875f, 0.03574336f, -0.2483009f, -0.465244f,
      -0.7269238f}},
    {"cubic",
     "reflection",
     1,
     {0.1132812f, -1.25f, 1.25f, -0.2936393f, 0.399648f, -0.05600146f, -0.5149217f, -0.1198826f}},
};

/* The middle, the outermost corners, one inside, and four beyond the image's edges. */
static const float places[2 * PLACES] = {0,    0,     -1,    -1,    1,     1,     -0.35f, 0.8f,
                                         1.3f, -0.2f, -1.7f, 1.15f, 0.95f, -1.4f, 2.6f,   3.1f};

static void check(size_t row)
{
    float image[HEIGHT * WIDTH];
    for (int i = 0; i < HEIGHT * WIDTH; i++)
        image[i] = (float)((3 * i * i + 7 * i + 1) % 23 - 11) / 8;
    Onnx__ModelProto *proto = new_model(20);
    add_input(proto, "x", FLOAT, "1 1 4 5");
    add_input(proto, "grid", FLOAT, "1 2 4 2");
    add_output(proto, "y", FLOAT, NULL);
    Onnx__NodeProto *node = add_node(proto, "GridSample", "x grid", "y");
    set_text(node, "mode", rows[row].mode);
    set_text(node, "padding_mode", rows[row].padding);
    set_int(node, "align_corners", rows[row].corners);
    kiln_onnx_model *model;
    expect_ok(load_model(context, proto, NULL, &model));
    const kiln_array in[] = {{KILN_F32, 4, {1, 1, HEIGHT, WIDTH}, image},
                             {KILN_F32, 4, {1, 2, 4, 2}, (void *)(uintptr_t)places}};
    kiln_array out;
    expect_ok(kiln_model_run(model, in, &out));
    for (size_t i = 0; i < PLACES; i++) {
        double found = (double)((const float *)out.data)[i], wanted = (double)rows[row].wanted[i];
        cr_expect(fabs(found - wanted) < 3e-6, "%s, %s, align_corners %d, place %zu: %g, not %g",
                  rows[row].mode, rows[row].padding, rows[row].corners, i, found, wanted);
    }
    kiln_free(out.data);
    kiln_model_release(model);
}

Test(sample, takes_places_within_and_beyond_the_image)
{
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++)
        check(row);
}
