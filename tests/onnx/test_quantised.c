/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of 4 and 8 bits in ONNX files: products and gathers of com.microsoft, tensors of int4 and
 * uint4. `make check-onnx` has more of them beside ONNX Runtime. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/context.h"
#include "tests/onnx/models.h"

TestSuite(onnx_quantised, .init = begin_models, .fini = end_models);

#define UINT8 ONNX__TENSOR_PROTO__DATA_TYPE__UINT8
enum { UINT4 = 21, INT4 = 22, MOST = 1 << 14 };

enum zeros { NONE, PACKED, WHOLE };

/* What a MatMulNBits has. */
struct product {
    unsigned bits;
    int64_t k, n, block;
    enum zeros zeros;
};

static size_t blocks_of(const struct product *p)
{
    return (size_t)((p->k + p->block - 1) / p->block);
}

/* The content, by rules that are easily written down in other languages as well. */
static uint8_t weight_byte(size_t i)
{
    return (uint8_t)(i * 37 + 11);
}

static uint8_t zero_byte(size_t i)
{
    return (uint8_t)(i * 53 + 201);
}

static float scale_number(size_t i)
{
    return (float)(i % 7 + 1) / 60;
}

static float zero_number(size_t i)
{
    return (float)(i % 5) * 1.25F + 6;
}

static float x_number(size_t i)
{
    return (float)((int)(i * 29 % 64) - 31) / 32;
}

/* The definition: (q - zero point) * scale, of which a byte has the lower half first. */
static float weight(const struct product *p, size_t n, size_t k)
{
    const size_t blocks = blocks_of(p), block = k / (size_t)p->block, b = n * blocks + block;
    const size_t line = blocks * (size_t)p->block * p->bits / 8;
    const size_t zero_line = (blocks * p->bits + 7) / 8;
    float q = weight_byte(n * line + k), zero = 128;
    if (p->bits == 4) {
        q = (float)(weight_byte(n * line + k / 2) >> k % 2 * 4 & 15);
        zero = 8;
    }
    if (p->zeros == WHOLE)
        zero = zero_number(b);
    else if (p->zeros == PACKED && p->bits == 8)
        zero = zero_byte(n * zero_line + block);
    else if (p->zeros == PACKED)
        zero = (float)(zero_byte(n * zero_line + block / 2) >> block % 2 * 4 & 15);
    return (q - zero) * scale_number(b);
}

static Onnx__NodeProto *product_node(Onnx__ModelProto *proto, const struct product *p,
                                     const char *operands)
{
    Onnx__NodeProto *node = add_node(proto, "MatMulNBits", operands, "y");
    node->domain = (char *)"com.microsoft";
    set_int(node, "K", p->k);
    set_int(node, "N", p->n);
    set_int(node, "bits", p->bits);
    set_int(node, "block_size", p->block);
    return node;
}

static void add_weights(Onnx__ModelProto *proto, const struct product *p)
{
    static uint8_t bytes[MOST];
    static float numbers[MOST];
    const size_t n = (size_t)p->n, all = n * blocks_of(p),
                 zeros = n * ((blocks_of(p) * p->bits + 7) / 8);
    const size_t each = (size_t)p->block * p->bits / 8;
    char shape[80];
    for (size_t i = 0; i < all * each; i++)
        bytes[i] = weight_byte(i);
    snprintf(shape, sizeof shape, "%zu %zu %zu", n, blocks_of(p), each);
    add_bytes(proto, "w", UINT8, shape, all * each, bytes);
    for (size_t i = 0; i < all; i++)
        numbers[i] = scale_number(i);
    snprintf(shape, sizeof shape, "%zu %zu", n, blocks_of(p));
    add_floats(proto, "scale", shape, numbers);
    for (size_t i = 0; i < all; i++)
        numbers[i] = zero_number(i);
    for (size_t i = 0; i < zeros; i++)
        bytes[i] = zero_byte(i);
    if (p->zeros == WHOLE)
        add_floats(proto, "zero", shape, numbers);
    snprintf(shape, sizeof shape, "%zu", zeros);
    if (p->zeros == PACKED)
        add_bytes(proto, "zero", UINT8, shape, zeros, bytes);
}

/* `apart`: the operator's operands are results of nodes, which nothing is made of beforehand. */
static kiln_onnx_model *load_product(const struct product *p, bool apart)
{
    kiln_onnx_model *model;
    Onnx__ModelProto *proto = new_model(21);
    add_input(proto, "x", FLOAT, "rows k");
    add_output(proto, "y", FLOAT, NULL);
    add_weights(proto, p);
    if (apart)
        add_node(proto, "Identity", "w", "apart");
    product_node(proto, p,
                 apart      ? p->zeros ? "x apart scale zero" : "x apart scale"
                 : p->zeros ? "x w scale zero"
                            : "x w scale");
    expect_ok(load_model(context, proto, NULL, &model));
    return model;
}

static void run(kiln_onnx_model *model, size_t rows, size_t k, const float *x, kiln_array *y)
{
    expect_ok(
        kiln_model_run(model, &(kiln_array){KILN_F32, 2, {rows, k}, (void *)(uintptr_t)x}, y));
}

/* ---- products ---- */

/* What ONNX Runtime 1.32 gives for two rows of x with weights of this rule, K of 40 and N of 2. */
static const struct {
    unsigned bits;
    enum zeros zeros;
    float y[4];
} known[] = {
    {4, NONE, {-0.159375F, -0.915625F, 0.05312499F, -0.3197917F}},
    {4, PACKED, {-0.384375F, -1.823959F, -0.1385417F, -0.6281252F}},
    {4, WHOLE, {-0.1020833F, -1.117708F, 0.04375003F, -0.471875F}},
    {8, NONE, {2.0625F, -1.833335F, -4.470833F, 2.266667F}},
    {8, PACKED, {-5.370833F, 2.691667F, -9.470835F, -0.9083344F}},
};

Test(onnx_quantised, products_are_those_of_onnx_runtime)
{
    float x[80];
    for (size_t i = 0; i < 80; i++)
        x[i] = x_number(i);
    for (size_t i = 0; i < 2 * sizeof known / sizeof *known; i++) {
        const struct product p = {known[i / 2].bits, 40, 2, 32, known[i / 2].zeros};
        kiln_onnx_model *model = load_product(&p, i % 2);
        kiln_array y;
        run(model, 2, 40, x, &y);
        for (size_t k = 0; k < 4; k++)
            cr_expect_float_eq(((float *)y.data)[k], known[i / 2].y[k], 1e-5,
                               "%u bits, zeros %d: %g, not %g", p.bits, p.zeros,
                               (double)((float *)y.data)[k], (double)known[i / 2].y[k]);
        kiln_free(y.data);
        kiln_model_release(model);
    }
}

/* With rows of ones and zeros for x the result is the weights. */
static void expect_weights(const struct product *p, bool apart)
{
    static float x[MOST];
    const size_t k = (size_t)p->k, n = (size_t)p->n;
    kiln_onnx_model *model = load_product(p, apart);
    kiln_array y;
    for (size_t i = 0; i < k * k; i++)
        x[i] = i % (k + 1) == 0;
    run(model, k, k, x, &y);
    for (size_t i = 0; i < k * n; i++) {
        const float found = ((float *)y.data)[i], wanted = weight(p, i % n, i / n);
        if (found != wanted) {
            cr_expect(
                false,
                "%u bits, K %" PRId64 ", block %" PRId64 ", zeros %d: w[%zu,%zu] is %a, not %a",
                p->bits, p->k, p->block, p->zeros, i % n, i / n, (double)found, (double)wanted);
            break;
        }
    }
    kiln_free(y.data);
    kiln_model_release(model);
}

Test(onnx_quantised, weights_are_those_of_the_definition)
{
    for (unsigned bits = 4; bits <= 8; bits += 4)
        for (int zeros = NONE; zeros <= WHOLE; zeros++) {
            expect_weights(&(struct product){bits, 70, 3, 32, (enum zeros)zeros}, false);
            expect_weights(&(struct product){bits, 97, 5, 16, (enum zeros)zeros}, false);
            expect_weights(&(struct product){bits, 1, 1, 256, (enum zeros)zeros}, false);
            expect_weights(&(struct product){bits, 96, 2, 32, (enum zeros)zeros}, true);
        }
}

/* Scales that are f16 and zero points in the middle need no wider blocks; no product reads others.
 */
Test(onnx_quantised, products_read_blocks)
{
    static const char *const words[][2] = {{"q4_0", "q4_z"}, {"q8_0", "q8_z"}};
    for (unsigned i = 0; i < 4; i++) {
        const struct product p = {i / 2 ? 8 : 4, 64, 64, 32, i % 2 ? PACKED : NONE};
        Onnx__ModelProto *proto = new_model(21);
        static float scales[128];
        kiln_onnx_model *model;
        kiln_model_lease *lease;
        char *text;
        add_input(proto, "x", FLOAT, "1 64");
        add_output(proto, "y", FLOAT, NULL);
        add_weights(proto, &p);
        for (size_t k = 0; k < 128; k++)
            scales[k] = (float)(k + 1) / 64;
        memcpy(proto->graph->initializer[1]->raw_data.data, scales, sizeof scales);
        product_node(proto, &p, i % 2 ? "x w scale zero" : "x w scale");
        expect_ok(load_model(context, proto, NULL, &model));
        expect_ok(kiln_model_batch(model, &(kiln_array){KILN_F32, 2, {1, 64}, NULL}, &lease));
        expect_ok(kiln_batch_explain(lease->batch, &text));
        cr_expect(strstr(text, words[i / 2][i % 2]), "no %s in:\n%s", words[i / 2][i % 2], text);
        kiln_free(text);
        kiln_model_batch_return(lease);
        kiln_model_release(model);
    }
}

/* ---- what is wrong is refused ---- */

static const struct {
    struct product p;
    const char *attribute; /* that gets `value` */
    int64_t value;
    const char *operands, *words;
} wrong[] = {
    {{4, 40, 2, 32, NONE}, "bits", 3, "x w scale", "weights of 3 bits, and not 4 or 8"},
    {{4, 40, 2, 32, NONE}, "block_size", 0, "x w scale", "block_size is 0, and no power of two"},
    {{4, 40, 2, 32, NONE}, "block_size", 7, "x w scale", "block_size is 7"},
    {{4, 40, 2, 32, NONE}, "block_size", -32, "x w scale", "block_size is -32"},
    {{4, 40, 2, 32, NONE}, "block_size", INT64_C(1) << 62, "x w scale", "no power of two from 16"},
    {{4, 40, 2, 32, NONE}, "K", -40, "x w scale", "K is -40 and N 2"},
    {{4, 40, 2, 32, NONE}, "N", INT64_MAX, "x w scale", "K is 40 and N 9223372036854775807"},
    {{4, 40, 2, 32, NONE}, "N", 3, "x w scale", "operand 1 does not have the bytes of K, N, bits"},
    {{4, 40, 2, 32, NONE}, "K", 41, "x w scale", "operand 0 does not have the last dimension"},
    {{4, 40, 2, 32, NONE}, "bits", 8, "x w scale", "operand 1 does not have the bytes"},
    {{4, 40, 2, 32, NONE}, NULL, 0, "x w w", "operand 2 does not have the scales"},
    {{4, 40, 2, 32, NONE}, NULL, 0, "x w scale w", "operand 3 does not have the zero points"},
    {{4, 40, 2, 32, NONE}, NULL, 0, "x scale scale", "operand 1 does not have the bytes"},
    {{4, 40, 2, 32, NONE}, NULL, 0, "x w - scale", "operand 2 is missing"},
    {{4, 40, 2, 32, NONE}, NULL, 0, "x w scale - scale", "groups in another order (g_idx)"},
};

Test(onnx_quantised, wrong_products_are_refused)
{
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        kiln_onnx_model *model;
        Onnx__ModelProto *proto = new_model(21);
        add_input(proto, "x", FLOAT, "2 40");
        add_output(proto, "y", FLOAT, NULL);
        add_weights(proto, &wrong[i].p);
        Onnx__NodeProto *node = product_node(proto, &wrong[i].p, wrong[i].operands);
        for (size_t k = 0; k < node->n_attribute && wrong[i].attribute; k++)
            if (!strcmp(node->attribute[k]->name, wrong[i].attribute))
                node->attribute[k]->i = wrong[i].value;
        expect_ok(load_model(context, proto, NULL, &model));
        kiln_array y;
        float x[80] = {0};
        cr_expect(kiln_model_run(model, &(kiln_array){KILN_F32, 2, {2, 40}, x}, &y) != KILN_OK);
        cr_expect(strstr(kiln_last_error(), wrong[i].words), "'%s' is not in '%s'", wrong[i].words,
                  kiln_last_error());
        kiln_model_release(model);
    }
}

/* ---- gathers ---- */

/* What ONNX Runtime 1.32 gives for row 2 of 3. */
static const float gathered[] = {3,   2,   -8,  5,   -3, 7,   2,   -7,  7,   -5, -4,
                                 -2,  1,   0,   6,   2,  -27, 3,   -12, 9,   3,  -33,
                                 -30, -24, -15, -18, 0,  -12, -33, -3,  -18, 3};

static kiln_onnx_model *load_gather(int type, int64_t gather_axis, int64_t axis, int64_t block)
{
    uint8_t bytes[48];
    kiln_onnx_model *model;
    Onnx__ModelProto *proto = new_model(21);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = weight_byte(i);
    add_input(proto, "i", INT64, "n");
    add_output(proto, "y", FLOAT, NULL);
    add_bytes(proto, "w", type, type == UINT8 ? "3 16" : "3 32", sizeof bytes, bytes);
    add_floats(proto, "scale", "3 2", (const float[]){.5F, -.25F, 2, .125F, 1, 3});
    add_bytes(proto, "zero", type, type == UINT8 ? "3 1" : "3 2", 3,
              (const uint8_t[]){0x4a, 0x1f, 0xc8});
    Onnx__NodeProto *node = add_node(proto, "GatherBlockQuantized", "w i scale zero", "y");
    node->domain = (char *)"com.microsoft";
    set_int(node, "gather_axis", gather_axis);
    set_int(node, "quantize_axis", axis);
    set_int(node, "block_size", block);
    expect_ok(load_model(context, proto, NULL, &model));
    return model;
}

Test(onnx_quantised, gathers_are_those_of_onnx_runtime)
{
    int64_t row = 2;
    for (int type = UINT8; type; type = type == UINT8 ? UINT4 : 0) {
        kiln_onnx_model *model = load_gather(type, 0, 1, 16);
        kiln_array y;
        expect_ok(kiln_model_run(model, &(kiln_array){KILN_I64, 1, {1}, &row}, &y));
        cr_assert_eq(y.rank, 2);
        cr_assert_eq(y.dims[1], 32);
        for (size_t k = 0; k < 32; k++)
            cr_expect_eq(((float *)y.data)[k], gathered[k], "element %zu", k);
        kiln_free(y.data);
        kiln_model_release(model);
    }
}

Test(onnx_quantised, wrong_gathers_are_refused)
{
    static const struct {
        int type;
        int64_t gather_axis, axis, block;
        const char *words;
    } gathers[] = {
        {UINT8, 1, 1, 16, "gathered along the axis of blocks"},
        {UINT8, 1, 0, 16, "bytes whose blocks are not along the last one"},
        {UINT8, 0, 2, 16, "axis 2 of 2 dimensions"},
        {UINT8, 0, 1, 0, "blocks of 0 elements of 4 bits"},
        {UINT8, 0, 1, 24, "blocks of 24 elements"},
        {UINT8, 0, 1, INT64_MIN, "blocks of -9223372036854775808 elements"},
        {UINT8, 0, 1, 32, "operand 2 does not have one element for each block of 32"},
        {INT4, 0, 1, 64, "operand 2 does not have one element for each block of 64"},
    };
    for (size_t i = 0; i < sizeof gathers / sizeof *gathers; i++) {
        int64_t row = 2;
        kiln_array y;
        kiln_onnx_model *model =
            load_gather(gathers[i].type, gathers[i].gather_axis, gathers[i].axis, gathers[i].block);
        cr_expect(kiln_model_run(model, &(kiln_array){KILN_I64, 1, {1}, &row}, &y) != KILN_OK);
        cr_expect(strstr(kiln_last_error(), gathers[i].words), "'%s' is not in '%s'",
                  gathers[i].words, kiln_last_error());
        kiln_model_release(model);
    }
}

/* ---- tensors of 4 bits ---- */

/* `field`: in int32_data, two to a number as well. */
static kiln_status load_fours(int type, bool field, size_t bytes, kiln_onnx_model **model)
{
    static const uint8_t content[] = {0xf8, 0x07, 0x09, 0};
    static int32_t numbers[4];
    Onnx__ModelProto *proto = new_model(21);
    add_input(proto, "x", FLOAT, "5");
    add_output(proto, "y", FLOAT, NULL);
    Onnx__TensorProto *w = add_bytes(proto, "w", type, "5", bytes, content);
    for (size_t i = 0; i < 4; i++)
        numbers[i] = content[i];
    if (field) {
        w->has_raw_data = 0;
        w->raw_data.len = 0;
        w->n_int32_data = bytes;
        w->int32_data = malloc(bytes * sizeof *w->int32_data);
        memcpy(w->int32_data, numbers, bytes * sizeof *w->int32_data);
    }
    add_floats(proto, "scale", "", (const float[]){0.5F});
    add_node(proto, "DequantizeLinear", "w scale", "d");
    add_node(proto, "Add", "d x", "y");
    kiln_status status = load_model(context, proto, NULL, model);
    if (field)
        free(w->int32_data);
    return status;
}

Test(onnx_quantised, four_bits_have_their_range)
{
    static const float wanted[2][5] = {{4, 7.5F, 3.5F, 0, 4.5F}, {-4, -0.5F, 3.5F, 0, -3.5F}};
    for (int i = 0; i < 4; i++) {
        kiln_onnx_model *model;
        float x[5] = {0};
        kiln_array y;
        expect_ok(load_fours(i / 2 ? INT4 : UINT4, i % 2, 3, &model));
        expect_ok(kiln_model_run(model, &(kiln_array){KILN_F32, 1, {5}, x}, &y));
        for (size_t k = 0; k < 5; k++)
            cr_expect_eq(((float *)y.data)[k], wanted[i / 2][k], "element %zu", k);
        kiln_free(y.data);
        kiln_model_release(model);
        cr_expect_eq(load_fours(INT4, i % 2, i / 2 ? 2 : 4, &model), KILN_INVALID_ARGUMENT);
    }
}
