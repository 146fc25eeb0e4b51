/* SPDX-License-Identifier: Apache-2.0 */
/* Products with weights of int4 and uint4 that DequantizeLinear widens: one product that reads rows
 * of blocks. `make check-onnx` has more of them beside ONNX Runtime. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/context.h"
#include "tests/onnx/models.h"

TestSuite(onnx_linear, .init = begin_models, .fini = end_models);

enum { UINT4 = 21, INT4 = 22, MOST = 1 << 16 };
enum scales { SINGLE, CHANNELS, BLOCKS };

/* A matrix of `k` times `n`, in the file the other way round where it is turned. */
struct linear {
    int type;
    bool turned, zeros;
    size_t k, n;
    enum scales scales;
    size_t block;
    bool narrow; /* scales that f16 has */
};

static size_t blocks_of(const struct linear *l)
{
    return l->scales == BLOCKS ? (l->k + l->block - 1) / l->block : 1;
}

/* ---- the content, by rules ---- */

static unsigned nibble(size_t i)
{
    return (unsigned)(i * 37 + i / 11 + 5) & 15;
}

static int number(const struct linear *l, unsigned bits)
{
    return l->type == INT4 && bits > 7 ? (int)bits - 16 : (int)bits;
}

static float scale_number(const struct linear *l, size_t i)
{
    return l->narrow ? (float)(i % 7 + 1) / 64 : (float)(i % 7 + 1) / 60;
}

static float x_number(size_t i)
{
    return (float)((int)(i * 29 % 64) - 31) / 32;
}

/* Where the scale of an element is among all of them. */
static size_t scale_of(const struct linear *l, size_t k, size_t n)
{
    if (l->scales != BLOCKS)
        return l->scales == SINGLE ? 0 : n;
    return l->turned ? n * blocks_of(l) + k / l->block : k / l->block * l->n + n;
}

static double weight(const struct linear *l, size_t k, size_t n)
{
    const size_t at = scale_of(l, k, n);
    const int q = number(l, nibble(l->turned ? n * l->k + k : k * l->n + n));
    const int zero = l->zeros ? number(l, nibble(at + 3)) : 0;
    return (double)((float)(q - zero) * scale_number(l, at));
}

/* ---- the file ---- */

static size_t pack(size_t count, size_t from, uint8_t *bytes)
{
    memset(bytes, 0, (count + 1) / 2);
    for (size_t i = 0; i < count; i++)
        bytes[i / 2] |= (uint8_t)(nibble(i + from) << i % 2 * 4);
    return (count + 1) / 2;
}

static Onnx__ModelProto *make(const struct linear *l, const char *x)
{
    static uint8_t bytes[MOST];
    static float scales[MOST];
    Onnx__ModelProto *proto = new_model(21);
    const size_t count = l->scales == BLOCKS ? blocks_of(l) * l->n : l->scales == SINGLE ? 1 : l->n;
    char shape[80];
    add_input(proto, "x", FLOAT, x);
    add_output(proto, "y", FLOAT, NULL);
    snprintf(shape, sizeof shape, "%zu %zu", l->turned ? l->n : l->k, l->turned ? l->k : l->n);
    add_bytes(proto, "w", l->type, shape, pack(l->k * l->n, 0, bytes), bytes);
    snprintf(shape, sizeof shape, "%zu", l->n);
    if (l->scales == SINGLE)
        *shape = 0;
    else if (l->scales == BLOCKS)
        snprintf(shape, sizeof shape, "%zu %zu", l->turned ? l->n : blocks_of(l),
                 l->turned ? blocks_of(l) : l->n);
    for (size_t i = 0; i < count; i++)
        scales[i] = scale_number(l, i);
    add_floats(proto, "scale", shape, scales);
    if (l->zeros)
        add_bytes(proto, "zero", l->type, shape, pack(count, 3, bytes), bytes);
    Onnx__NodeProto *node =
        add_node(proto, "DequantizeLinear", l->zeros ? "w scale zero" : "w scale", "wide");
    set_int(node, "axis", l->turned == (l->scales == BLOCKS) ? 1 : 0);
    if (l->scales == CHANNELS)
        node->attribute[0]->i = l->turned ? -2 : -1;
    if (l->scales == BLOCKS)
        set_int(node, "block_size", (int64_t)l->block);
    if (l->turned)
        add_node(proto, "Transpose", "wide", "right");
    add_node(proto, "MatMul", l->turned ? "x right" : "x wide", "y");
    return proto;
}

static kiln_onnx_model *load(Onnx__ModelProto *proto, bool plain)
{
    kiln_model_options options = KILN_MODEL_OPTIONS_INIT;
    kiln_onnx_model *model;
    options.plain = plain;
    expect_ok(load_model(context, proto, &options, &model));
    return model;
}

/* ---- results ---- */

/* The largest difference from a sum in double, of what can be. */
static void check_product(const struct linear *l, size_t rows, bool plain)
{
    static float x[MOST];
    kiln_onnx_model *model = load(make(l, "rows k"), plain);
    kiln_array y;
    for (size_t i = 0; i < rows * l->k; i++)
        x[i] = x_number(i);
    expect_ok(kiln_model_run(model, &(kiln_array){KILN_F32, 2, {rows, l->k}, x}, &y));
    cr_assert(y.rank == 2 && y.dims[0] == rows && y.dims[1] == l->n);
    for (size_t i = 0; i < rows * l->n; i++) {
        double sum = 0, all = 0;
        for (size_t k = 0; k < l->k; k++) {
            const double part = (double)x[i / l->n * l->k + k] * weight(l, k, i % l->n);
            sum += part;
            all += fabs(part);
        }
        const double off = fabs((double)((float *)y.data)[i] - sum);
        cr_assert(off <= 1e-6 * all + 1e-30,
                  "type %d, turned %d, zeros %d, [%zu,%zu], scales %d of %zu: y[%zu] is off by %g",
                  l->type, l->turned, l->zeros, l->k, l->n, (int)l->scales, l->block, i, off);
    }
    kiln_free(y.data);
    kiln_model_release(model);
}

Test(onnx_linear, products_are_sums_in_double)
{
    static const struct {
        size_t k, n, block;
        enum scales scales;
    } sizes[] = {{64, 5, 32, BLOCKS},
                 {70, 3, 32, BLOCKS},
                 {1, 1, 64, BLOCKS},
                 {160, 7, 64, BLOCKS},
                 {33, 2, (size_t)1 << 30, BLOCKS},
                 {97, 5, 0, CHANNELS},
                 {64, 4, 0, CHANNELS},
                 {33, 3, 0, SINGLE},
                 {64, 1, 0, CHANNELS}};
    for (size_t i = 0; i < 8 * (sizeof sizes / sizeof *sizes); i++) {
        const struct linear l = {i & 1 ? INT4 : UINT4, i & 2,          i & 4,
                                 sizes[i / 8].k,       sizes[i / 8].n, sizes[i / 8].scales,
                                 sizes[i / 8].block,   false};
        check_product(&l, 1 + i % 3, false);
        if (i % 8 == 7)
            check_product(&l, 2, true);
    }
}

/* What is no row of blocks stays what it is: blocks of 16, or along the other dimension. */
Test(onnx_linear, others_are_dequantised)
{
    const struct linear sixteen = {INT4, false, true, 48, 4, BLOCKS, 16, false};
    check_product(&sixteen, 3, false);
    const struct linear along = {UINT4, false, false, 4, 6, CHANNELS, 0, false};
    Onnx__ModelProto *proto = make(&along, "1 4");
    Onnx__NodeProto *node = proto->graph->node[0];
    node->attribute[0]->i = 0; /* a scale for each k: of which there are 4, not 6 */
    proto->graph->initializer[1]->dims[0] = 4;
    proto->graph->initializer[1]->raw_data.len = 16;
    kiln_onnx_model *model = load(proto, false);
    kiln_array y;
    float x[] = {1, 0.5F, -1, 2};
    expect_ok(kiln_model_run(model, &(kiln_array){KILN_F32, 2, {1, 4}, x}, &y));
    for (size_t n = 0; n < 6; n++) {
        double sum = 0;
        for (size_t k = 0; k < 4; k++)
            sum += (double)x[k] * nibble(k * 6 + n) * (double)scale_number(&along, k);
        cr_expect_float_eq(((float *)y.data)[n], sum, 1e-5);
    }
    kiln_free(y.data);
    kiln_model_release(model);
}

/* Of more dimensions, and of one. */
Test(onnx_linear, shapes_of_x)
{
    static const struct linear l = {INT4, true, true, 40, 3, BLOCKS, 32, false};
    static const struct {
        const char *words;
        kiln_array x;
        size_t rank;
    } shapes[] = {{"40", {KILN_F32, 1, {40}, NULL}, 1},
                  {"2 1 40", {KILN_F32, 3, {2, 1, 40}, NULL}, 3},
                  {"0 40", {KILN_F32, 2, {0, 40}, NULL}, 2}};
    float x[80];
    for (size_t i = 0; i < 80; i++)
        x[i] = x_number(i);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        kiln_onnx_model *model = load(make(&l, shapes[i].words), false);
        kiln_array in = shapes[i].x, y;
        in.data = x;
        expect_ok(kiln_model_run(model, &in, &y));
        cr_assert(y.rank == shapes[i].rank && y.dims[y.rank - 1] == 3);
        for (size_t n = 0; n < 3 && i < 2; n++) {
            double sum = 0;
            for (size_t k = 0; k < 40; k++)
                sum += (double)x[k] * weight(&l, k, n);
            cr_expect_float_eq(((float *)y.data)[n], sum, 1e-5);
        }
        kiln_free(y.data);
        kiln_model_release(model);
    }
    Onnx__ModelProto *proto = make(&l, "rows k");
    kiln_onnx_model *model = load(proto, false);
    kiln_array y;
    cr_expect_eq(kiln_model_run(model, &(kiln_array){KILN_F32, 2, {2, 39}, x}, &y),
                 KILN_SHAPE_MISMATCH);
    cr_expect(strstr(kiln_last_error(), "a last dimension of 39 and of weights [40,3]"), "%s",
              kiln_last_error());
    kiln_model_release(model);
}

/* ---- memory ---- */

static uint64_t bytes_of(const struct linear *l, bool plain, const char *type)
{
    const uint64_t before = stats_of(context).buffer_bytes;
    kiln_onnx_model *model = load(make(l, "1 256"), plain);
    kiln_model_lease *lease;
    char *text;
    kiln_array y;
    static float x[256];
    expect_ok(kiln_model_run(model, &(kiln_array){KILN_F32, 2, {1, 256}, x}, &y));
    kiln_free(y.data);
    const uint64_t bytes = stats_of(context).buffer_bytes - before;
    expect_ok(kiln_model_batch(model, &(kiln_array){KILN_F32, 2, {1, 256}, NULL}, &lease));
    expect_ok(kiln_batch_explain(lease->batch, &text));
    cr_expect_eq(strstr(text, type) != NULL, !plain, "%s in:\n%s", type, text);
    kiln_free(text);
    kiln_model_batch_return(lease);
    kiln_model_release(model);
    return bytes;
}

/* Nothing is left of the weights but their rows of blocks: 18 or 24 bytes for 32 of them. */
Test(onnx_linear, products_read_blocks)
{
    struct linear l = {INT4, false, false, 256, 128, BLOCKS, 64, true};
    cr_expect_eq(bytes_of(&l, false, "q4_0"), (uint64_t)256 * 128 / 32 * 18);
    cr_expect_geq(bytes_of(&l, true, "q4_0"), (uint64_t)256 * 128);
    l.zeros = true;
    cr_expect_eq(bytes_of(&l, false, "q4_z"), (uint64_t)256 * 128 / 32 * 24);
    cr_expect_geq(bytes_of(&l, true, "q4_z"), (uint64_t)256 * 128);
}

/* Whoever reads the dequantised matrix, too, gets it. */
Test(onnx_linear, a_matrix_that_others_read)
{
    const struct linear l = {UINT4, false, false, 64, 4, BLOCKS, 32, false};
    Onnx__ModelProto *proto = make(&l, "1 64");
    add_output(proto, "wide", FLOAT, NULL);
    kiln_onnx_model *model = load(proto, false);
    kiln_array y[2];
    float x[64] = {0};
    expect_ok(kiln_model_run(model, &(kiln_array){KILN_F32, 2, {1, 64}, x}, y));
    for (size_t i = 0; i < 256; i++)
        cr_expect_eq((double)((float *)y[1].data)[i], weight(&l, i / 4, i % 4));
    kiln_free(y[0].data);
    kiln_free(y[1].data);
    kiln_model_release(model);
}

/* ---- what does not fit ---- */

Test(onnx_linear, operands_that_do_not_fit)
{
    static const struct {
        const char *attribute;
        int64_t value;
    } rows[] = {{"block_size", -1}, {"block_size", INT64_MAX}, {"block_size", 16},
                {"axis", 2},        {"axis", INT64_MIN},       {"axis", -3}};
    const struct linear l = {INT4, false, true, 64, 4, BLOCKS, 32, false};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Onnx__ModelProto *proto = make(&l, "1 64");
        Onnx__NodeProto *node = proto->graph->node[0];
        kiln_onnx_model *model;
        kiln_array y;
        float x[64] = {0};
        for (size_t k = 0; k < node->n_attribute; k++)
            if (!strcmp(node->attribute[k]->name, rows[i].attribute))
                node->attribute[k]->i = rows[i].value;
        expect_ok(load_model(context, proto, NULL, &model));
        const kiln_status status =
            kiln_model_run(model, &(kiln_array){KILN_F32, 2, {1, 64}, x}, &y);
        cr_expect(status && *kiln_last_error(), "%s %lld", rows[i].attribute,
                  (long long)rows[i].value);
        kiln_model_release(model);
    }
}

/* Whatever a file says of its operands, it is read and recorded, or refused in words. */
Test(onnx_linear, mutations)
{
    static const int64_t wild[] = {-1, 0,  1,  2,       3,         16,       31,
                                   32, 64, 96, 1 << 30, INT32_MAX, INT64_MIN};
    static const int types[] = {UINT4, INT4, FLOAT, 2, 3, 10, 99};
    uint32_t state = 1;
    size_t fine = 0;
    for (int i = 0; i < 600; i++) {
        const struct linear l = {i & 1 ? INT4 : UINT4, i & 2, true, 64, 4,
                                 (enum scales)(i % 3), 32,    false};
        Onnx__ModelProto *proto = make(&l, "1 64");
        for (int k = 0; k < 1 + i % 2; k++) {
            state = state * 1664525 + 1013904223;
            const uint32_t number = state >> 12;
            Onnx__TensorProto *tensor = proto->graph->initializer[number % 3];
            Onnx__NodeProto *node = proto->graph->node[0];
            const int64_t value = wild[number / 16 % (sizeof wild / sizeof *wild)];
            if (state >> 30 == 0 && tensor->n_dims)
                tensor->dims[number / 8 % tensor->n_dims] = value;
            else if (state >> 30 == 1)
                tensor->data_type = types[number / 8 % (sizeof types / sizeof *types)];
            else if (state >> 30 == 2)
                tensor->raw_data.len -= tensor->raw_data.len ? number % tensor->raw_data.len : 0;
            else
                node->attribute[number % node->n_attribute]->i = value;
        }
        kiln_onnx_model *model;
        kiln_model_lease *lease;
        if (load_model(context, proto, NULL, &model)) {
            cr_expect_neq(*kiln_last_error(), 0);
            continue;
        }
        if (kiln_model_batch(model, &(kiln_array){KILN_F32, 2, {1, 64}, NULL}, &lease)) {
            cr_expect_neq(*kiln_last_error(), 0);
        } else {
            fine++;
            kiln_model_batch_return(lease);
        }
        kiln_model_release(model);
    }
    cr_expect_gt(fine, 20);
}
