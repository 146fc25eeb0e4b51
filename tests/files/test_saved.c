/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers in safetensors files, good ones and others. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../support/context.h"
#include "../support/failing_memory.h"
#include "../support/file.h"

enum { N_VALUES = 1000 };

static char path[512];

static void choose_path(void)
{
    temporary_path(path, "saved");
}

static void remove_path(void)
{
    unlink(path);
}

TestSuite(saved, .init = choose_path, .fini = remove_path);

/* A file with this header, and what follows it. */
static size_t put_saved(const char *header, const void *data, size_t bytes)
{
    static char whole[4096];
    size_t length = strlen(header);
    memset(whole, 0, 8);
    whole[0] = (char)(length & 255);
    whole[1] = (char)(length >> 8);
    memcpy(whole + 8, header, length);
    if (bytes)
        memcpy(whole + 8 + length, data, bytes);
    put_file(path, whole, 8 + length + bytes);
    return 8 + length + bytes;
}

/* Whether the file is in this process's memory. */
static bool is_mapped(void)
{
    char line[1024];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    if (!maps)
        cr_skip("no /proc here");
    while (fgets(line, sizeof line, maps))
        found = found || strstr(line, path);
    fclose(maps);
    return found;
}

static void expect_content(kiln_buffer *buffer, const void *wanted, size_t bytes)
{
    char found[256];
    cr_assert_eq(kiln_buffer_bytes(buffer), bytes);
    expect_ok(kiln_buffer_read(buffer, 0, found, bytes));
    cr_expect(!memcmp(found, wanted, bytes));
}

/* ---- good files ---- */

static const char *const names[] = {"f32", "i32",  "u8", "f16",  "bf16",
                                    "i64", "bool", "i8", "none", "layer/0.\"\xc3\xa9\""};
enum { COUNT = sizeof names / sizeof *names };

static void make_all(kiln_context *context, kiln_buffer **buffers)
{
    static const kiln_type types[COUNT] = {KILN_F32, KILN_I32,  KILN_U8, KILN_F16, KILN_BF16,
                                           KILN_I64, KILN_BOOL, KILN_I8, KILN_F32, KILN_F32};
    const size_t dims[COUNT][3] = {{2, 3}, {5}, {7}, {3}, {3}, {2}, {3}, {5}, {3, 0}, {0}};
    const size_t ranks[COUNT] = {2, 1, 1, 1, 1, 1, 1, 1, 2, 0};
    for (size_t i = 0; i < COUNT; i++) {
        char content[64];
        expect_ok(kiln_buffer_create(context, types[i], ranks[i], dims[i], &buffers[i]));
        memset(content, 0, sizeof content);
        for (size_t k = 0; k < kiln_buffer_bytes(buffers[i]); k += kiln_type_size(types[i]))
            content[k] = (char)(10 * i + k);
        expect_ok(kiln_buffer_write(buffers[i], 0, content, kiln_buffer_bytes(buffers[i])));
    }
}

static void release_all(kiln_buffer **buffers)
{
    for (size_t i = 0; i < COUNT; i++)
        kiln_buffer_release(buffers[i]);
}

static void expect_same(const kiln_buffer *a, kiln_buffer *b)
{
    char content[64];
    kiln_type types[2];
    size_t ranks[2], dims[2][KILN_MAX_RANK];
    expect_ok(kiln_buffer_shape(a, &types[0], &ranks[0], dims[0]));
    expect_ok(kiln_buffer_shape(b, &types[1], &ranks[1], dims[1]));
    cr_expect_eq(types[0], types[1]);
    cr_expect_eq(ranks[0], ranks[1]);
    cr_expect(!memcmp(dims[0], dims[1], sizeof dims[0]));
    expect_ok(kiln_buffer_read((kiln_buffer *)a, 0, content, kiln_buffer_bytes(a)));
    expect_content(b, content, kiln_buffer_bytes(a));
}

Test(saved, buffers_come_back_as_they_were)
{
    static const kiln_host_memory modes[] = {KILN_HOST_MEMORY_SHARED, KILN_HOST_MEMORY_SEPARATE};
    for (size_t mode = 0; mode < 2; mode++) {
        kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
        options.host_memory = modes[mode];
        kiln_context *context = open_context_with(&options);
        kiln_buffer *buffers[COUNT], *loaded[COUNT], *some[2];
        make_all(context, buffers);
        expect_ok(kiln_save(path, COUNT, names, buffers));
        expect_ok(kiln_load(context, path, COUNT, names, loaded));
        for (size_t i = 0; i < COUNT; i++)
            expect_same(buffers[i], loaded[i]);
        expect_ok(kiln_load(context, path, 2, (const char *[]){names[3], names[3]}, some));
        expect_same(buffers[3], some[1]);
        kiln_buffer_release(some[0]);
        kiln_buffer_release(some[1]);
        release_all(loaded);
        release_all(buffers);
        close_context(context);
    }
}

Test(saved, buffers_are_mapped_where_memory_is_shared)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.host_memory = KILN_HOST_MEMORY_SHARED;
    kiln_context *context = open_context_with(&options);
    float values[N_VALUES], sum = 0, more[N_VALUES];
    fill(values, N_VALUES, 1);
    for (size_t i = 0; i < N_VALUES; i++)
        more[i] = -values[i];
    kiln_buffer *buffer = make_buffer(context, N_VALUES, values), *loaded, *again;
    const char *const name = "x";
    expect_ok(kiln_save(path, 1, &name, &buffer));
    uint64_t uploads = stats_of(context).uploads;
    expect_ok(kiln_load(context, path, 1, &name, &loaded));
    cr_expect(is_mapped());
    cr_expect_eq(stats_of(context).uploads, uploads, "something was copied");

    /* It is a buffer like others: read and written by batches, in place too. */
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor x = kiln_import(batch, loaded);
    kiln_read(batch, kiln_sum(batch, x, 0, NULL, 0), &sum, sizeof sum);
    kiln_export(batch, kiln_neg(batch, x), loaded);
    run_batch(batch);
    expect_buffer(loaded, N_VALUES, more);
    for (size_t i = 0; i < N_VALUES; i++)
        sum -= values[i];
    cr_expect_eq(sum, 0);

    /* What is written stays here; the file may go. */
    expect_ok(kiln_load(context, path, 1, &name, &again));
    expect_buffer(again, N_VALUES, values);
    expect_ok(kiln_save(path, 1, &name, &loaded));
    expect_buffer(again, N_VALUES, values);
    unlink(path);
    expect_buffer(again, N_VALUES, values);
    kiln_batch_release(batch);
    kiln_buffer_release(loaded);
    kiln_buffer_release(again);
    kiln_buffer_release(buffer);
    close_context(context); /* some drivers' kernels hold what they last worked on */
    cr_expect(!is_mapped());
}

Test(saved, buffers_are_copied_where_the_file_has_them_between_addresses)
{
    kiln_context *context = open_context();
    const char *const name = "x";
    const float one = 1;
    kiln_buffer *buffer;
    put_saved("{\"x\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}  ", &one, 4);
    expect_ok(kiln_load(context, path, 1, &name, &buffer));
    expect_content(buffer, &one, 4);
    cr_expect(!is_mapped());
    kiln_buffer_release(buffer);
    close_context(context);
}

Test(saved, types_that_kiln_has_not_are_converted)
{
    kiln_context *context = open_context();
    const char *const some[] = {"d", "i", "l", "u"};
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"d\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[0,16]},"
        "\"i\":{\"dtype\":\"I16\",\"shape\":[1],\"data_offsets\":[16,18]},"
        "\"l\":{\"dtype\":\"U32\",\"shape\":[1],\"data_offsets\":[18,22]},"
        "\"u\":{\"dtype\":\"U16\",\"shape\":[1],\"data_offsets\":[22,24]}}";
    kiln_buffer *buffers[4];
    char data[24];
    memcpy(data, (const double[]){0.1, -2}, 16);
    memcpy(data + 16, "\xff\xff\x05\0\0\0\xff\xff", 8);
    put_saved(header, data, sizeof data);
    expect_ok(kiln_load(context, path, 4, some, buffers));
    expect_content(buffers[0], (const float[]){0.1f, -2}, 8);
    expect_content(buffers[1], (const int32_t[]){-1}, 4);
    expect_content(buffers[2], (const int64_t[]){5}, 8);
    expect_content(buffers[3], (const int32_t[]){65535}, 4);
    expect_ok(kiln_load_into(path, 4, some, buffers));
    for (size_t i = 0; i < 4; i++)
        kiln_buffer_release(buffers[i]);
    close_context(context);
}

Test(saved, tensors_are_listed_by_name)
{
    kiln_saved *list;
    size_t count;
    put_saved("{\"b\":{\"dtype\":\"F64\",\"shape\":[1,2],\"data_offsets\":[0,16]},"
              "\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[3],\"data_offsets\":[16,19]}}",
              "0123456789012345678", 19);
    expect_ok(kiln_saved_list(path, &list, &count));
    cr_assert_eq(count, 2u);
    cr_expect_str_eq(list[0].name, "a");
    cr_expect_str_eq(list[0].stored, "F8_E4M3");
    cr_expect_eq(list[0].type, 0);
    cr_expect_str_eq(list[1].name, "b");
    cr_expect_str_eq(list[1].stored, "F64");
    cr_expect_eq(list[1].type, KILN_F32);
    cr_expect_eq(list[1].rank, 2u);
    cr_expect_eq(list[1].dims[1], 2u);
    kiln_free(list);
}

Test(saved, tensors_are_written_into_buffers_that_fit)
{
    kiln_context *context = open_context();
    const char *const both[] = {"x", "y"};
    const float values[2] = {1, 2}, zeros[2] = {0, 0};
    kiln_buffer *buffers[2] = {make_buffer(context, 2, values), make_buffer(context, 2, values)};
    kiln_buffer *wide = make_buffer(context, 3, NULL), *whole;
    expect_ok(kiln_save(path, 2, both, buffers));
    expect_ok(kiln_buffer_write(buffers[0], 0, zeros, 8));
    expect_error_part(kiln_load_into(path, 2, both, (kiln_buffer *[]){buffers[0], wide}),
                      KILN_SHAPE_MISMATCH,
                      ": tensor \"y\": its shape is [2], and the buffer's [3]");
    expect_buffer(buffers[0], 2, zeros); /* nothing was written */
    expect_ok(kiln_buffer_create(context, KILN_I32, 1, (size_t[]){2}, &whole));
    expect_error_part(kiln_load_into(path, 1, both, &whole), KILN_TYPE_MISMATCH,
                      ": tensor \"x\": it is read as f32, and the buffer is i32");
    expect_ok(kiln_load_into(path, 2, both, buffers));
    expect_buffer(buffers[0], 2, values);
    kiln_buffer_release(wide);
    kiln_buffer_release(whole);
    kiln_buffer_release(buffers[0]);
    kiln_buffer_release(buffers[1]);
    close_context(context);
}

/* ---- calls that fail ---- */

Test(saved, what_cannot_be_loaded_is_told_in_words)
{
    kiln_context *context = open_context();
    const char *name = "y";
    kiln_buffer *buffers[2];
    put_saved("{\"l\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},"
              "\"x\":{\"dtype\":\"F8_E4M3\",\"shape\":[1],\"data_offsets\":[8,9]},"
              "\"z\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[9,10]}}",
              "\xff\xff\xff\xff\xff\xff\xff\x7f\x01\x02", 10);
    expect_error_part(kiln_load(context, path, 1, &name, buffers), KILN_INVALID_ARGUMENT,
                      ": tensor \"y\": the file has none of that name");
    name = "x";
    expect_error_part(kiln_load(context, path, 1, &name, buffers), KILN_UNSUPPORTED,
                      ": tensor \"x\": kiln has nothing for its type \"F8_E4M3\"");
    expect_error_part(kiln_load(context, path, 2, (const char *[]){"z", "x"}, buffers),
                      KILN_UNSUPPORTED, ": tensor \"x\": kiln has nothing");
    cr_expect_null(buffers[0]);
    cr_expect_null(buffers[1]);
    expect_error(kiln_load(context, NULL, 1, &name, buffers), KILN_INVALID_ARGUMENT,
                 "kiln_load: path is NULL");
    expect_error(kiln_load(NULL, path, 1, &name, buffers), KILN_INVALID_ARGUMENT,
                 "kiln_load: context is NULL");
    name = NULL;
    expect_error(kiln_load(context, path, 1, &name, buffers), KILN_INVALID_ARGUMENT,
                 "kiln_load: names[0] is NULL");
    close_context(context);
}

Test(saved, what_cannot_be_saved_leaves_the_file_as_it_was)
{
    kiln_context *context = open_context();
    const float one = 1;
    kiln_buffer *buffers[2] = {make_buffer(context, 1, &one), make_buffer(context, 1, &one)};
    const char *name = "x";
    kiln_saved *list;
    size_t count;
    void *data;
    expect_ok(kiln_save(path, 1, &name, buffers));
    expect_error(kiln_save(path, 2, (const char *[]){"a", "a"}, buffers), KILN_INVALID_ARGUMENT,
                 "kiln_save: the name \"a\" is there twice, or the format's own");
    expect_error(kiln_save(path, 1, (const char *[]){"__metadata__"}, buffers),
                 KILN_INVALID_ARGUMENT,
                 "kiln_save: the name \"__metadata__\" is there twice, or the format's own");
    expect_error(kiln_save(path, 1, (const char *[]){"\xff\x1b"}, buffers), KILN_INVALID_ARGUMENT,
                 "kiln_save: the name \"\xff?\" is no UTF-8");
    expect_error(kiln_save(path, 1, (const char *[]){NULL}, buffers), KILN_INVALID_ARGUMENT,
                 "kiln_save: names[0] is NULL");
    expect_error(kiln_save("/dev/null", 1, &name, buffers), KILN_IO_ERROR,
                 "kiln_save: /dev/null is not written: it is no regular file");
    expect_error_part(kiln_save("/dev/null/x", 1, &name, buffers), KILN_IO_ERROR,
                      "kiln_save: /dev/null/x could not be written: ");
    kiln_buffer *blocks;
    expect_ok(kiln_buffer_create(context, KILN_Q8_0, 1, (size_t[]){32}, &blocks));
    expect_error(
        kiln_save(path, 2, (const char *[]){"a", "b"}, (kiln_buffer *[]){buffers[0], blocks}),
        KILN_UNSUPPORTED, "kiln_save: tensor \"b\" is q8_0, which safetensors has no word for");
    kiln_buffer_release(blocks);
    expect_ok(kiln_buffer_map(buffers[1], &data));
    expect_error_part(kiln_save(path, 2, (const char *[]){"a", "b"}, buffers),
                      KILN_INVALID_ARGUMENT,
                      ": tensor \"b\": kiln_buffer_read: the buffer is mapped");
    expect_ok(kiln_buffer_unmap(buffers[1]));
    expect_ok(kiln_saved_list(path, &list, &count));
    cr_expect_eq(count, 1u);
    kiln_free(list);
    kiln_buffer_release(buffers[0]);
    kiln_buffer_release(buffers[1]);
    close_context(context);
}

/* ---- memory that runs out ---- */

/* All calls of the header, with so many allocations each. */
static kiln_status call(kiln_context *context, int which, kiln_buffer **buffers)
{
    kiln_buffer *loaded[2] = {NULL, NULL};
    kiln_saved *list = NULL;
    size_t count;
    float element = 1;
    kiln_array array = {KILN_F32, 1, {1}, &element}, read = {0};
    kiln_status status = which == 0   ? kiln_save(path, 2, names, buffers)
                         : which == 1 ? kiln_load(context, path, 2, names, loaded)
                         : which == 2 ? kiln_load_into(path, 2, names, buffers)
                         : which == 3 ? kiln_saved_list(path, &list, &count)
                         : which == 4 ? kiln_npy_write(path, &array)
                                      : kiln_npy_read(path, &read);
    kiln_buffer_release(loaded[0]);
    kiln_buffer_release(loaded[1]);
    kiln_free(list);
    kiln_free(read.data);
    return status;
}

Test(saved, memory_that_runs_out_is_an_error)
{
    kiln_context *context = open_context();
    kiln_buffer *buffers[COUNT];
    make_all(context, buffers);
    for (int which = 0; which < 6; which++) {
        memory.ran_out = true;
        for (long k = 0; memory.ran_out; k++) {
            memory.ran_out = false;
            memory.left = k;
            kiln_status status = call(context, which, buffers);
            memory.left = -1;
            cr_expect(memory.ran_out || !status, "call %d: %s", which, kiln_last_error());
            cr_expect(!status || status == KILN_OUT_OF_HOST_MEMORY || status == KILN_IO_ERROR,
                      "call %d, %ld allocations: %s", which, k, kiln_last_error());
        }
    }
    release_all(buffers);
    close_context(context);
}

/* ---- files that are no good: no device ---- */

static void expect_refused(kiln_status wanted, const char *part)
{
    kiln_saved *list = (kiln_saved *)path;
    size_t count = 1;
    expect_error_part(kiln_saved_list(path, &list, &count), wanted, "kiln_saved_list: ");
    cr_expect(strstr(kiln_last_error(), part), "%s instead of %s", kiln_last_error(), part);
    cr_expect(strstr(kiln_last_error(), path), "%s", kiln_last_error());
    cr_expect_null(list);
    cr_expect_eq(count, 0u);
}

#define ENTRY(dtype, shape, offsets)                                                               \
    "{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define F32_AT(offsets) ENTRY("\"F32\"", "[1]", offsets)

Test(saved, files_that_were_made_to_do_harm_are_refused)
{
    static const struct {
        kiln_status status;
        const char *header, *part;
    } cases[] = {
        {KILN_IO_ERROR, "", "its header: "},
        {KILN_IO_ERROR, "[]", "its header is no object"},
        {KILN_IO_ERROR, "{\"x\":1}", "tensor \"x\": it has no dtype"},
        {KILN_IO_ERROR, "{\"x\":{\"dtype\":4}}", "tensor \"x\": it has no dtype"},
        {KILN_IO_ERROR, "{\"x\":{\"dtype\":\"F32\",\"shape\":4}}", "it has no shape"},
        {KILN_IO_ERROR, "{\"x\":{\"dtype\":\"F32\",\"shape\":[]}}", "it has no data_offsets"},
        {KILN_IO_ERROR, "{\"x\":" ENTRY("\"F32\"", "[-1]", "[0,4]") "}", "a dimension is no size"},
        {KILN_IO_ERROR, "{\"x\":" ENTRY("\"F32\"", "[1.0]", "[0,4]") "}", "a dimension is no size"},
        {KILN_UNSUPPORTED, "{\"x\":" ENTRY("\"F32\"", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}",
         "it has more than 8 dimensions"},
        {KILN_TOO_LARGE, "{\"x\":" ENTRY("\"F32\"", "[4294967296,4294967296]", "[0,4]") "}",
         "too many elements"},
        {KILN_IO_ERROR, "{\"x\":" ENTRY("\"F32\"", "[2]", "[0,4]") "}",
         "its data_offsets are not those of its shape and dtype"},
        {KILN_IO_ERROR, "{\"x\":" F32_AT("[4,0]") "}", "it has no data_offsets"},
        {KILN_IO_ERROR, "{\"x\":" F32_AT("[-4,0]") "}", "it has no data_offsets"},
        {KILN_IO_ERROR, "{\"x\":" F32_AT("[4,8]") "}",
         "its data_offsets do not follow the tensor before it"},
        {KILN_IO_ERROR, "{\"x\":" F32_AT("[0,4]") ",\"y\":" F32_AT("[0,4]") "}",
         "tensor \"y\": its data_offsets do not follow the tensor before it"},
        {KILN_IO_ERROR, "{\"x\":" F32_AT("[0,4]") ",\"y\":" F32_AT("[2,6]") "}",
         "tensor \"y\": its data_offsets do not follow the tensor before it"},
        {KILN_IO_ERROR, "{\"x\":" ENTRY("\"U8\"", "[9]", "[0,9]") "}",
         "its elements go beyond the end of the file"},
        {KILN_IO_ERROR, "{\"x\":" F32_AT("[0,4]") "}", "there is something behind the last tensor"},
        {KILN_IO_ERROR, "{\"x\":" F32_AT("[0,4]") ",\"x\":" F32_AT("[4,8]") "}", "its header: "},
        {KILN_IO_ERROR, "{\"\x1b[2J\":1}", "its header: "},
        {KILN_IO_ERROR, "{\"\\u001b[2J\":1}", "tensor \"?[2J\": it has no dtype"},
        {KILN_IO_ERROR, "{\"\\u0000\":1}", "its header: "},
        {KILN_IO_ERROR, "{\"x\":" F32_AT("[0,99999999999999999999]") "}", "its header: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_saved(cases[i].header, "12345678", 8);
        expect_refused(cases[i].status, cases[i].part);
    }
    put_file(path, "1234567", 7);
    expect_refused(KILN_IO_ERROR, "it ends before its header does");
    put_file(path, "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
    expect_refused(KILN_IO_ERROR, "it ends before its header does");
    put_file(path, "", 0);
    expect_refused(KILN_IO_ERROR, "it ends before its header does");
    FILE *file = fopen(path, "wb"); /* 200 MB, of which the disk has nothing */
    cr_assert(file && fwrite("\0\xc2\xeb\x0b\0\0\0\0", 1, 8, file) == 8 && !fclose(file) &&
              !truncate(path, 200000008));
    expect_refused(KILN_IO_ERROR, "its header is longer than 100,000,000 bytes");
    unlink(path);
    expect_refused(KILN_IO_ERROR, "No such file");
    cr_assert_eq(mkfifo(path, 0600), 0);
    expect_refused(KILN_IO_ERROR, "it is no regular file");
    unlink(path);
    strcpy(path, "/dev/zero");
    expect_refused(KILN_IO_ERROR, "it is no regular file");
    choose_path();
}

Test(saved, a_header_nested_deeply_is_refused)
{
    enum { DEPTH = 4000000 };
    char *whole = malloc(8 + DEPTH);
    memcpy(whole, "\0\x09\x3d\0\0\0\0\0", 8);
    memset(whole + 8, '[', DEPTH);
    put_file(path, whole, 8 + DEPTH);
    expect_refused(KILN_IO_ERROR, "its header: ");
    free(whole);
}

/* Each byte as another one, each beginning, and pieces doubled or left out: tensors that lie in the
 * file, or a sentence. */
Test(saved, files_that_were_damaged_are_tensors_or_errors)
{
    static const char header[] = "{\"__metadata__\":{\"a\":\"b\"},\"x\":" F32_AT(
        "[0,4]") ",\"y\":" ENTRY("\"I8\"", "[2,2]", "[4,8]") "}";
    static const char words[] = "{}[]\":,-0129eE.\\\0\xff F";
    char whole[512], changed[1024];
    size_t length = put_saved(header, "12345678", 8);
    unsigned seed = 1;
    FILE *file = fopen(path, "rb");
    cr_assert(file && fread(whole, 1, sizeof whole, file) == length && !fclose(file));
    for (unsigned i = 0; i < 3000; i++) {
        size_t changed_length = length;
        memcpy(changed, whole, length);
        for (unsigned changes = 1 + i % 3; changes; changes--) {
            seed = seed * 1664525 + 1013904223;
            size_t at = (seed >> 8) % changed_length, size = (seed >> 4) % 12;
            char *place = changed + at;
            size = size > changed_length - at ? changed_length - at : size;
            switch (seed >> 30) {
            case 0: *place = words[(seed >> 2) % (sizeof words - 1)]; break;
            case 1: *place = (char)(*place ^ 1 << (seed & 7)); break;
            case 2:
                memmove(place, place + size, changed_length - at - size);
                changed_length -= size;
                break;
            default: memmove(place + size, place, changed_length - at); changed_length += size;
            }
            changed_length = changed_length ? changed_length : 1;
        }
        put_file(path, changed, i < length ? i : changed_length);
        kiln_saved *list;
        size_t count;
        kiln_status status = kiln_saved_list(path, &list, &count);
        cr_expect(status ? !list && *kiln_last_error() : list != NULL);
        kiln_free(list);
    }
}
