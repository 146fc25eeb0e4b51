/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are damaged, hostile or change, and weights that are read from them again. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/onnx/refusals.h"

TestSuite(onnx_files, .init = make_folder, .fini = remove_folder);

static void write_file(const char *name, const void *bytes, size_t count)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    cr_assert(file && fwrite(bytes, 1, count, file) == count && !fclose(file));
}

/* w lies in a file of its own. */
static Onnx__TensorProto *outside(const char *location, const char *offset)
{
    static Onnx__StringStringEntryProto entries[2], *list[2] = {&entries[0], &entries[1]};
    float values[6] = {0};
    begin(17);
    add_node(model, "Add", "x w", "y");
    Onnx__TensorProto *w = add_floats(model, "w", "2 3", values);
    entries[0] = entries[1] = (Onnx__StringStringEntryProto)ONNX__STRING_STRING_ENTRY_PROTO__INIT;
    entries[0].key = (char *)"location";
    entries[0].value = (char *)location;
    entries[1].key = (char *)"offset";
    entries[1].value = (char *)offset;
    w->has_raw_data = 0;
    w->has_data_location = 1;
    w->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    w->external_data = list;
    w->n_external_data = 2;
    return w;
}

/* Load it from the folder. */
static kiln_status load_outside(const char *location, const char *offset, kiln_onnx_model **loaded)
{
    char path[600];
    size_t bytes;
    outside(location, offset);
    const uint8_t *packed = pack_model(model, &bytes);
    write_file("m.onnx", packed, bytes);
    snprintf(path, sizeof path, "%s/m.onnx", folder);
    return kiln_model_load(context, path, NULL, loaded);
}

Test(onnx_files, external_data_stays_inside_the_folder)
{
    float values[8] = {7, 7, 1, 2, 3, 4, 5, 6};
    char path[600], words[700];
    kiln_onnx_model *loaded;
    write_file("weights", values, sizeof values);
    expect_ok(load_outside("weights", "8", &loaded));
    float x[6] = {0};
    kiln_array in = {KILN_F32, 2, {2, 3}, x}, out;
    expect_ok(kiln_model_run(loaded, &in, &out));
    cr_assert(!memcmp(out.data, values + 2, sizeof x));
    kiln_free(out.data);
    kiln_model_release(loaded);
    expect_error(
        load_outside("weights", "12", &loaded), KILN_IO_ERROR,
        "kiln_model_load: tensor 'w': its file 'weights' has 32 bytes, fewer than 24 at 12");
    expect_error_part(load_outside("../weights", "0", &loaded), KILN_IO_ERROR,
                      "is outside of the model's folder");
    expect_error_part(load_outside("/etc/passwd", "0", &loaded), KILN_IO_ERROR,
                      "is outside of the model's folder");
    snprintf(path, sizeof path, "%s/link", folder);
    cr_assert_eq(symlink("/etc/passwd", path), 0);
    expect_error_part(load_outside("link", "0", &loaded), KILN_IO_ERROR,
                      "is outside of the model's folder");
    expect_error_part(load_outside("nowhere", "0", &loaded), KILN_IO_ERROR, "No such file");
    expect_error(load_outside("weights", "-1", &loaded), KILN_INVALID_ARGUMENT,
                 "kiln_model_load: tensor 'w': its external data has no place");
    outside("weights", "0");
    refuse(KILN_INVALID_ARGUMENT,
           "kiln_model_load: tensor 'w' lies in the file 'weights', and there "
           "is no folder to look in");
    snprintf(path, sizeof path, "%s/none.onnx", folder);
    snprintf(words, sizeof words, "kiln_model_load: %s: No such file or directory", path);
    expect_error(kiln_model_load(context, path, NULL, &loaded), KILN_IO_ERROR, words);
}

/* Two bytes are an initialiser of none, which takes two hundred in memory. */
Test(onnx_files, files_that_grow_in_memory_are_refused)
{
    enum { BYTES = 4 << 20 };
    const uint8_t head[] = {7 << 3 | 2, 0x80, 0x80, 0x80, 2}; /* a graph of BYTES bytes */
    uint8_t *bytes = malloc(sizeof head + BYTES);
    cr_assert(bytes);
    memcpy(bytes, head, sizeof head);
    for (size_t i = 0; i < BYTES; i += 2) {
        bytes[sizeof head + i] = 5 << 3 | 2;
        bytes[sizeof head + i + 1] = 0;
    }
    kiln_onnx_model *loaded;
    expect_error(kiln_model_load_memory(context, bytes, sizeof head + BYTES, NULL, &loaded),
                 KILN_TOO_LARGE,
                 "kiln_model_load: the memory has so many parts that reading its 4194309 bytes "
                 "takes more than 134217808 bytes of memory");
    free(bytes);
}

/* Messages in messages, without an end for a parser that goes down with them. */
Test(onnx_files, deep_messages_are_refused)
{
    enum { DEPTH = 20000 };
    uint8_t *bytes = malloc(DEPTH * 16);
    size_t start = DEPTH * 16, length = 0;
    /* graph.node.attribute.g, around and around: 7, 1, 5, 6 are the numbers of these fields. */
    static const uint8_t tags[] = {1 << 3 | 2, 6 << 3 | 2, 5 << 3 | 2};
    for (size_t i = 0; i < DEPTH; i++) {
        uint8_t head[6];
        size_t n = 0, rest = length;
        head[n++] = i + 1 == DEPTH ? 7 << 3 | 2 : tags[i % 3];
        for (; rest > 127; rest >>= 7)
            head[n++] = (uint8_t)(rest | 128);
        head[n++] = (uint8_t)rest;
        start -= n;
        length += n;
        memcpy(bytes + start, head, n);
    }
    kiln_onnx_model *loaded;
    expect_error(kiln_model_load_memory(context, bytes + start, length, NULL, &loaded),
                 KILN_INVALID_ARGUMENT,
                 "kiln_model_load: the memory is no ONNX model, or is damaged");
    free(bytes);
}

/* A model with a bit of everything. */
static uint8_t *small_model(size_t *bytes)
{
    static const float values[6] = {1, 2, 3, 4, 5, 6};
    begin(17);
    add_floats(model, "w", "2 3", values);
    add_integers(model, "shape", "2", (const int64_t[]){3, -1});
    add_node(model, "Add", "x w", "a");
    set_ints(add_node(model, "Transpose", "a", "b"), "perm", 2, (const int64_t[]){1, 0});
    add_node(model, "Reshape", "b shape", "c");
    set_float(add_node(model, "Elu", "c", "y"), "alpha", 0.5f);
    return pack_model(model, bytes);
}

/* Whatever is changed in it, it loads or says why not; and what loads records or says why not. */
Test(onnx_files, damaged_ones_are_refused_or_work)
{
    size_t bytes, loads = 0;
    uint8_t *packed = small_model(&bytes);
    uint32_t random = 1;
    for (size_t i = 0; i < 3000; i++) {
        size_t length = i < bytes ? i : bytes;
        random = random * 1664525u + 1013904223u;
        size_t at = (random >> 8) % bytes;
        uint8_t was = packed[at];
        if (i >= bytes)
            packed[at] = i % 2 ? (uint8_t)(random >> 24) : (uint8_t)(was ^ 1u << i % 8);
        kiln_onnx_model *loaded;
        kiln_status status = kiln_model_load_memory(context, packed, length, NULL, &loaded);
        cr_assert_eq(status == KILN_OK, loaded != NULL);
        cr_assert(!status || *kiln_last_error());
        if (loaded && kiln_model_inputs(loaded, NULL) == 1) {
            kiln_array in = {KILN_F32, 2, {2, 3}, NULL};
            kiln_model_lease *lease;
            loads += !kiln_model_batch(loaded, &in, &lease);
            kiln_model_batch_return(lease);
        }
        kiln_model_release(loaded);
        packed[at] = was;
    }
    cr_assert_gt(loads, 10u);
}

Test(onnx_files, arguments_are_looked_at)
{
    kiln_onnx_model *loaded;
    kiln_model_options options = KILN_MODEL_OPTIONS_INIT;
    options.size = 3;
    expect_error(kiln_model_load(NULL, "x", NULL, &loaded), KILN_INVALID_ARGUMENT,
                 "kiln_model_load: context is NULL");
    expect_error(kiln_model_load(context, NULL, NULL, &loaded), KILN_INVALID_ARGUMENT,
                 "kiln_model_load: path is NULL");
    expect_error(kiln_model_load(context, "x", &options, &loaded), KILN_INVALID_ARGUMENT,
                 "kiln_model_load: options->size is 3; start from KILN_MODEL_OPTIONS_INIT");
    expect_error(kiln_model_load(context, "x", NULL, NULL), KILN_INVALID_ARGUMENT,
                 "kiln_model_load: model is NULL");
    expect_error(kiln_model_load_memory(context, NULL, 0, NULL, &loaded), KILN_INVALID_ARGUMENT,
                 "kiln_model_load_memory: data is NULL");
    expect_error(kiln_model_record(NULL, NULL, NULL, NULL, NULL), KILN_INVALID_ARGUMENT,
                 "kiln_model_record: model is NULL");
    cr_assert_eq(kiln_model_inputs(NULL, NULL), 0u);
    cr_assert_str_eq(kiln_model_notes(NULL), "");
    kiln_model_release(NULL);
    kiln_model_operator op;
    expect_ok(kiln_model_get_operator(0, &op));
    cr_assert_not_null(op.name);
    expect_ok(kiln_model_get_operator(100000, &op));
    cr_assert_null(op.name);
}

/* ---- weights that are read again ---- */

enum { ROWS = 8, DEEP = 64, WIDE = 512, WIDE_BYTES = DEEP * WIDE * 4 };

/* y = x w, in a file. */
static kiln_onnx_model *load_product(kiln_type weights)
{
    static float values[DEEP * WIDE];
    kiln_model_options options = KILN_MODEL_OPTIONS_INIT;
    kiln_onnx_model *loaded;
    char path[600];
    size_t bytes;
    options.weights = weights;
    fill(values, DEEP * WIDE, 3);
    model = new_model(17);
    add_input(model, "x", FLOAT, "8 64");
    add_output(model, "y", FLOAT, NULL);
    add_floats(model, "other", "8 512", values);
    add_floats(model, "w", "64 512", values);
    add_node(model, "MatMul", "x w", "product");
    add_node(model, "Add", "product other", "y");
    const uint8_t *packed = pack_model(model, &bytes);
    write_file("m.onnx", packed, bytes);
    snprintf(path, sizeof path, "%s/m.onnx", folder);
    expect_ok(kiln_model_load(context, path, &options, &loaded));
    return loaded;
}

static kiln_status run_product(kiln_onnx_model *loaded, float *y)
{
    static float x[ROWS * DEEP];
    fill(x, ROWS * DEEP, 4);
    kiln_array in = {KILN_F32, 2, {ROWS, DEEP}, x}, out;
    kiln_status status = kiln_model_run(loaded, &in, &out);
    if (!status)
        memcpy(y, out.data, ROWS * WIDE * sizeof *y);
    kiln_free(out.data);
    return status;
}

/* Bytes that are given up once runs go without them. */
static uint64_t settle(kiln_onnx_model *loaded, const float *wanted)
{
    float y[ROWS * WIDE];
    for (int i = 0; i < 6; i++) {
        expect_ok(run_product(loaded, y));
        cr_assert_arr_eq(y, wanted, sizeof y);
    }
    return stats_of(context).evicted_bytes;
}

Test(onnx_files, weights_that_are_given_up_are_read_again)
{
    const kiln_type types[] = {KILN_F32, KILN_F16};
    for (int t = 0; t < 2; t++) {
        static float wanted[ROWS * WIDE];
        kiln_onnx_model *loaded = load_product(types[t]);
        expect_ok(run_product(loaded, wanted));
        for (int i = 0; i < 3; i++) {
            uint64_t uploaded = stats_of(context).upload_bytes, given_up = settle(loaded, wanted);
            cr_expect(!given_up || given_up == (uint64_t)WIDE_BYTES / (1 + t));
            expect_ok(kiln_context_trim(context));
            expect_ok(run_product(loaded, wanted));
            cr_expect_eq(stats_of(context).evicted_bytes, 0u);
            cr_expect_geq(stats_of(context).upload_bytes, uploaded + given_up);
        }
        kiln_model_release(loaded);
        cr_expect_eq(stats_of(context).buffers_live, 0u);
    }
}

Test(onnx_files, weights_are_not_read_again_from_a_file_that_has_changed)
{
    static float wanted[ROWS * WIDE], y[ROWS * WIDE];
    kiln_onnx_model *loaded = load_product(KILN_F32);
    char path[600];
    snprintf(path, sizeof path, "%s/m.onnx", folder);
    expect_ok(run_product(loaded, wanted));
    if (!settle(loaded, wanted))
        cr_skip("this device's products keep nothing");
    cr_assert_eq(truncate(path, 1000), 0);
    settle(loaded, wanted); /* which needs nothing of it */
    expect_ok(kiln_context_trim(context));
    expect_error_part(run_product(loaded, y), KILN_IO_ERROR,
                      "a buffer of 131072 bytes cannot be read again from its source, at byte 0: ");
    kiln_model_release(loaded);
    loaded = load_product(KILN_F32);
    settle(loaded, wanted);
    cr_assert_eq(unlink(path), 0); /* whoever has it open has it still */
    expect_ok(kiln_context_trim(context));
    settle(loaded, wanted);
    kiln_model_release(loaded);
}
