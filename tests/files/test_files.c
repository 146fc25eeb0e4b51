/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays in numpy's files, good ones and others. No device. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../support/context.h"
#include "../support/file.h"

static char path[512];

static void choose_path(void)
{
    temporary_path(path, "array");
}

static void remove_path(void)
{
    unlink(path);
}

TestSuite(files, .init = choose_path, .fini = remove_path);

/* A file of format 1.0 with this dictionary, and what follows it. */
static void put_npy(const char *words, const void *data, size_t bytes)
{
    char whole[4096];
    size_t length = strlen(words);
    memcpy(whole, "\x93NUMPY\x01\0", 8);
    whole[8] = (char)(length & 255);
    whole[9] = (char)(length >> 8);
    memcpy(whole + 10, words, length);
    if (bytes)
        memcpy(whole + 10 + length, data, bytes);
    put_file(path, whole, 10 + length + bytes);
}

/* One that is read as these elements. */
static void expect_array(kiln_type type, size_t rank, const size_t *dims, const void *data,
                         size_t bytes)
{
    kiln_array array;
    expect_ok(kiln_npy_read(path, &array));
    cr_expect_eq(array.type, type);
    cr_expect_eq(array.rank, rank);
    cr_expect(!rank || !memcmp(array.dims, dims, rank * sizeof *dims));
    cr_expect(!memcmp(array.data, data, bytes));
    kiln_free(array.data);
}

static void expect_refused(kiln_status wanted, const char *part)
{
    kiln_array array;
    memset(&array, 1, sizeof array);
    expect_error_part(kiln_npy_read(path, &array), wanted, "kiln_npy_read: ");
    cr_expect(strstr(kiln_last_error(), part), "%s", kiln_last_error());
    cr_expect(strstr(kiln_last_error(), path), "%s", kiln_last_error());
    cr_expect_null(array.data);
}

/* ---- reading ---- */

Test(files, of_numpy_are_read_as_they_are)
{
    const float values[6] = {1, 2, 3, 4, 5, 6};
    put_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }          \n", values, 24);
    expect_array(KILN_F32, 2, (size_t[]){2, 3}, values, 24);
    put_npy("{\"shape\" :(6L,),'fortran_order':False,\"descr\":'<f4'}", values, 24);
    expect_array(KILN_F32, 1, (size_t[]){6}, values, 24);
    put_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (), }\n", values, 24);
    expect_array(KILN_F32, 0, NULL, values, 4); /* what follows is another's */
    put_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 0), }\n", NULL, 0);
    expect_array(KILN_F32, 2, (size_t[]){3, 0}, values, 0);
}

Test(files, of_later_formats_are_read)
{
    static const char words[] = "{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }\n";
    char whole[128] = "\x93NUMPY\x02";
    for (char version = 2; version <= 3; version++) {
        whole[6] = version;
        whole[8] = (char)strlen(words);
        memcpy(whole + 12, words, strlen(words));
        memcpy(whole + 12 + strlen(words), "\x07\xff", 2);
        put_file(path, whole, 12 + strlen(words) + 2);
        expect_array(KILN_U8, 1, (size_t[]){2}, "\x07\xff", 2);
    }
}

Test(files, in_fortrans_order_become_row_major)
{
    const int32_t columns[6] = {1, 4, 2, 5, 3, 6}, rows[6] = {1, 2, 3, 4, 5, 6};
    put_npy("{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3), }\n", columns, 24);
    expect_array(KILN_I32, 2, (size_t[]){2, 3}, rows, 24);
    int8_t last_first[24], first_first[24];
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 4; k++) {
                last_first[i * 12 + j * 4 + k] = (int8_t)(100 * i + 10 * j + k);
                first_first[i + j * 2 + k * 6] = (int8_t)(100 * i + 10 * j + k);
            }
    put_npy("{'descr': '|i1', 'fortran_order': True, 'shape': (2, 3, 4), }\n", first_first, 24);
    expect_array(KILN_I8, 3, (size_t[]){2, 3, 4}, last_first, 24);
}

Test(files, of_types_that_kiln_has_not_are_converted)
{
    put_npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }\n",
            (const double[]){0.1, 1e300}, 16);
    expect_array(KILN_F32, 1, (size_t[]){2}, (const float[]){0.1f, INFINITY}, 8);
    put_npy("{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }\n",
            (const int16_t[]){-3, 30000}, 4);
    expect_array(KILN_I32, 1, (size_t[]){2}, (const int32_t[]){-3, 30000}, 8);
    put_npy("{'descr': '<u2', 'fortran_order': False, 'shape': (1,), }\n",
            (const uint16_t[]){65535}, 2);
    expect_array(KILN_I32, 1, (size_t[]){1}, (const int32_t[]){65535}, 4);
    put_npy("{'descr': '<u4', 'fortran_order': False, 'shape': (1,), }\n",
            (const uint32_t[]){UINT32_MAX}, 4);
    expect_array(KILN_I64, 1, (size_t[]){1}, (const int64_t[]){UINT32_MAX}, 8);
    put_npy("{'descr': '<u8', 'fortran_order': False, 'shape': (1,), }\n",
            (const uint64_t[]){INT64_MAX}, 8);
    expect_array(KILN_I64, 1, (size_t[]){1}, (const int64_t[]){INT64_MAX}, 8);
    put_npy("{'descr': '<u8', 'fortran_order': False, 'shape': (1,), }\n",
            (const uint64_t[]){UINT64_MAX}, 8);
    expect_refused(KILN_TOO_LARGE, "it has a uint64 that an i64 cannot be");
}

Test(files, of_the_other_order_of_bytes_are_swapped)
{
    put_npy("{'descr': '>i4', 'fortran_order': False, 'shape': (1,), }\n", "\0\0\1\2", 4);
    expect_array(KILN_I32, 1, (size_t[]){1}, (const int32_t[]){258}, 4);
    put_npy("{'descr': '>u2', 'fortran_order': False, 'shape': (1,), }\n", "\1\2", 2);
    expect_array(KILN_I32, 1, (size_t[]){1}, (const int32_t[]){258}, 4);
}

Test(files, that_are_no_arrays_are_refused)
{
    static const struct {
        kiln_status status;
        const char *words, *part;
    } cases[] = {
        {KILN_UNSUPPORTED, "{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }",
         "kiln has nothing for its type \"<c8\""},
        {KILN_UNSUPPORTED, "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", "\"|O\""},
        {KILN_UNSUPPORTED, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}",
         "structures"},
        {KILN_UNSUPPORTED, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}",
         "more than 8 dimensions"},
        {KILN_TOO_LARGE,
         "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296,4294967296)}",
         "too many elements"},
        {KILN_IO_ERROR,
         "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
         "no dimension at \"9,)}\""},
        {KILN_IO_ERROR, "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
         "no dimension at \"-1,)}\""},
        {KILN_IO_ERROR, "{'descr': '<f4', 'fortran_order': False, 'shape': (1 2)}",
         "no end of a shape at"},
        {KILN_IO_ERROR, "{'descr': '<f4', 'fortran_order': maybe, 'shape': (1,)}",
         "no True or False at"},
        {KILN_IO_ERROR, "{'descr': '<f4', 'descr': '<f4'}", "a key twice"},
        {KILN_IO_ERROR, "{'colour': '<f4'}", "a key that is none"},
        {KILN_IO_ERROR, "{'descr': '<f4', 'shape': (1,)}", "too few entries"},
        {KILN_IO_ERROR, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} more",
         "more at \"more\""},
        {KILN_IO_ERROR, "{'descr': '<f4\x1b[2J", "no type at \"'<f4?[2J\""},
        {KILN_IO_ERROR, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}",
         "it ends too early"},
        {KILN_IO_ERROR, "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}",
         "it ends too early"},
        {KILN_IO_ERROR, "", "no dictionary"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_npy(cases[i].words, "12345678", 8);
        expect_refused(cases[i].status, cases[i].part);
    }
    put_file(path, "\x93NUMPY\x04\0\0\0", 10);
    expect_refused(KILN_IO_ERROR, "it does not begin as an .npy file does");
    put_file(path, "\x93NUMPY\x02\0\x10\0\0\0", 12);
    expect_refused(KILN_IO_ERROR, "it ends too early");
    put_file(path, "\x93NUMPY\x02\0\1\0\1\0", 12);
    expect_refused(KILN_IO_ERROR, "its header is longer than 65,536 bytes");
    unlink(path);
    expect_refused(KILN_IO_ERROR, "No such file");
}

/* Each byte of a good file as another one, and each of its beginnings: an array or a sentence. */
Test(files, that_were_damaged_are_arrays_or_errors)
{
    char whole[128];
    const float values[4] = {1, 2, 3, 4};
    kiln_array array = {KILN_F32, 2, {2, 2}, (void *)values};
    expect_ok(kiln_npy_write(path, &array));
    FILE *file = fopen(path, "rb");
    size_t length = fread(whole, 1, sizeof whole, file);
    fclose(file);
    for (size_t i = 0; i < length; i++)
        for (int way = 0; way < 4; way++) {
            char old = whole[i];
            whole[i] = (char)(old ^ (way == 0 ? 1 : way == 1 ? 0x80 : way == 2 ? 0x1f : 0xff));
            put_file(path, whole, way == 3 ? i : length);
            whole[i] = old;
            kiln_status status = kiln_npy_read(path, &array);
            cr_expect(!status || (!array.data && *kiln_last_error()));
            kiln_free(array.data);
        }
}

/* ---- writing ---- */

Test(files, come_back_as_they_were_written)
{
    static const kiln_type types[] = {KILN_F32, KILN_I32,  KILN_U8, KILN_F16,
                                      KILN_I64, KILN_BOOL, KILN_I8};
    unsigned char bytes[48];
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        for (size_t k = 0; k < sizeof bytes; k++)
            bytes[k] = (unsigned char)(k * 5 + i);
        kiln_array array = {types[i], 3, {1, 3, 2}, bytes};
        expect_ok(kiln_npy_write(path, &array));
        expect_array(types[i], 3, array.dims, bytes, 6 * kiln_type_size(types[i]));
    }
    expect_ok(kiln_npy_write(path, &(kiln_array){.type = KILN_F32, .data = bytes}));
    expect_array(KILN_F32, 0, NULL, bytes, 4);
    expect_ok(kiln_npy_write(path, &(kiln_array){.type = KILN_F32, .rank = 1}));
    expect_array(KILN_F32, 1, (size_t[]){0}, bytes, 0);
    expect_ok(kiln_npy_write(path, &(kiln_array){KILN_BF16, 1, {2}, (uint16_t[]){0x3f80, 0xc000}}));
    expect_array(KILN_F32, 1, (size_t[]){2}, (const float[]){1, -2}, 8);
}

Test(files, are_written_as_numpy_writes_them)
{
    static const char wanted[] =
        "\x93NUMPY\x01\0v\0{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"
        "                                                            \n\0\0\x80?\0\0\0@";
    char found[256];
    float values[2] = {1, 2};
    expect_ok(kiln_npy_write(path, &(kiln_array){KILN_F32, 1, {2}, values}));
    FILE *file = fopen(path, "rb");
    size_t length = fread(found, 1, sizeof found, file);
    fclose(file);
    cr_assert_eq(length, 136u);
    cr_expect(!memcmp(found, wanted, length), "%.128s", found);
}

/* A pipe is not waited for: without a writer there is nothing to read, with one there is. */
Test(files, that_are_pipes)
{
    kiln_array array;
    cr_assert_eq(mkfifo(path, 0600), 0);
    expect_error_part(kiln_npy_read(path, &array), KILN_IO_ERROR, "kiln_npy_read: ");
    cr_expect(strstr(kiln_last_error(), "nobody writes to this pipe"), "%s", kiln_last_error());
    char bytes[256];
    const float three = 3;
    unlink(path);
    expect_ok(kiln_npy_write(path, &(kiln_array){KILN_F32, 0, {0}, (void *)&three}));
    FILE *file = fopen(path, "rb");
    size_t count = file ? fread(bytes, 1, sizeof bytes, file) : 0;
    cr_assert(file && !fclose(file) && !unlink(path) && !mkfifo(path, 0600));
    int keeps = open(path, O_RDWR);
    cr_assert(keeps >= 0 && count > 0 && write(keeps, bytes, count) == (ssize_t)count);
    expect_ok(kiln_npy_read(path, &array));
    cr_expect(array.rank == 0 && *(float *)array.data == 3);
    kiln_free(array.data);
    close(keeps);
}

Test(files, that_cannot_be_written)
{
    float one = 1;
    kiln_array array = {KILN_F32, 1, {1}, &one};
    expect_error(kiln_npy_write(NULL, &array), KILN_INVALID_ARGUMENT,
                 "kiln_npy_write: path is NULL");
    expect_error(kiln_npy_write(path, NULL), KILN_INVALID_ARGUMENT,
                 "kiln_npy_write: array is NULL");
    expect_error(kiln_npy_read(path, NULL), KILN_INVALID_ARGUMENT, "kiln_npy_read: array is NULL");
    expect_error(kiln_npy_write("/dev/null", &array), KILN_IO_ERROR,
                 "kiln_npy_write: /dev/null is not written: it is no regular file");
    expect_error_part(kiln_npy_write("/dev/null/x", &array), KILN_IO_ERROR,
                      "kiln_npy_write: /dev/null/x could not be written: ");
    unsigned char block[34] = {0};
    expect_error(kiln_npy_write(path, &(kiln_array){KILN_Q8_0, 1, {32}, block}), KILN_UNSUPPORTED,
                 "kiln_npy_write: numpy has no q8_0");
    array.rank = 9;
    expect_error(kiln_npy_write(path, &array), KILN_INVALID_ARGUMENT,
                 "kiln_npy_write: 9 dimensions, and 8 are the most");
    array.rank = 1;
    array.data = NULL;
    expect_error(kiln_npy_write(path, &array), KILN_INVALID_ARGUMENT,
                 "kiln_npy_write: array->data is NULL");
    array.type = (kiln_type)99;
    expect_error(kiln_npy_write(path, &array), KILN_INVALID_ARGUMENT,
                 "kiln_npy_write: 99 is no data type");
    array = (kiln_array){KILN_F32, 2, {SIZE_MAX, 2}, &one};
    expect_error(kiln_npy_write(path, &array), KILN_TOO_LARGE,
                 "kiln_npy_write: the shape has too many elements");
    cr_expect(access(path, F_OK), "something was written");
}
