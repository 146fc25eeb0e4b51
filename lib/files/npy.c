/* SPDX-License-Identifier: Apache-2.0 */
/* The elements of .npy files; npy_header.c has what stands before them. */
#include "files/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <kiln/files.h>

#include "ops/ops.h"
#include "store/store_file.h"
#include "util/error.h"
#include "util/open_file.h"

/* Longer ones describe structures, which are refused anyway. */
#define LONGEST_HEADER 65536u

/* Elements are converted so many bytes at a time. */
enum { PIECE = 1 << 16 };

/* ---- reading ---- */

static kiln_status npy_refuse(const char *path, kiln_status status, const char *why)
{
    return kiln__fail(NULL, status, "kiln_npy_read: %s: %s", path, why);
}

/* Exactly so many bytes. */
static kiln_status read_bytes(const char *path, FILE *file, void *bytes, size_t count)
{
    if (fread(bytes, 1, count, file) == count)
        return KILN_OK;
    return npy_refuse(path, KILN_IO_ERROR, ferror(file) ? strerror(errno) : "it ends too early");
}

static size_t little_endian(const unsigned char *bytes, int count)
{
    size_t number = 0;
    while (count-- > 0)
        number = number << 8 | bytes[count];
    return number;
}

/* The dictionary's length, whose own length follows from the version. */
static kiln_status read_length(const char *path, FILE *file, size_t *length)
{
    unsigned char start[KILN__NPY_MAGIC_BYTES + 2], bytes[4];
    kiln_status status = read_bytes(path, file, start, sizeof start);
    if (status)
        return status;
    unsigned version = start[KILN__NPY_MAGIC_BYTES];
    if (memcmp(start, KILN__NPY_MAGIC, KILN__NPY_MAGIC_BYTES) || version < 1 || version > 3)
        return npy_refuse(path, KILN_IO_ERROR, "it does not begin as an .npy file does");
    int count = version == 1 ? 2 : 4;
    status = read_bytes(path, file, bytes, (size_t)count);
    *length = status ? 0 : little_endian(bytes, count);
    if (!status && *length > LONGEST_HEADER)
        return npy_refuse(path, KILN_IO_ERROR, "its header is longer than 65,536 bytes");
    return status;
}

static kiln_status read_header(const char *path, FILE *file, struct kiln__npy *npy)
{
    struct kiln__phrase why;
    size_t length = 0;
    kiln_status status = read_length(path, file, &length);
    if (status)
        return status;
    char *text = calloc(length + 1, 1);
    if (!text)
        return npy_refuse(path, KILN_OUT_OF_HOST_MEMORY, "no memory");
    status = read_bytes(path, file, text, length);
    if (!status) {
        status = kiln__npy_parse(text, npy, &why);
        if (status)
            npy_refuse(path, status, why.text);
    }
    free(text);
    return status;
}

/* Where the file tells its length, what it cannot have is refused before memory is asked for. */
static kiln_status check_length(const char *path, FILE *file, const struct kiln__npy *npy)
{
    struct stat facts;
    off_t place = ftello(file);
    size_t bytes = kiln__shape_count(&npy->shape) * npy->type->bytes;
    if (place < 0 || fstat(fileno(file), &facts) || !S_ISREG(facts.st_mode) ||
        (facts.st_size >= place && (uint64_t)(facts.st_size - place) >= bytes))
        return KILN_OK;
    return npy_refuse(path, KILN_IO_ERROR, "it ends too early");
}

static void swap(unsigned char *bytes, size_t count, size_t size)
{
    for (; count; count--, bytes += size)
        for (size_t i = 0; i < size / 2; i++) {
            unsigned char byte = bytes[i];
            bytes[i] = bytes[size - 1 - i];
            bytes[size - 1 - i] = byte;
        }
}

/* All elements in the file's order, as kiln's. */
static kiln_status read_elements(const char *path, FILE *file, const struct kiln__npy *npy,
                                 char *data)
{
    const struct kiln__file_type *type = npy->type;
    size_t left = kiln__shape_count(&npy->shape), size = kiln_type_size(type->type);
    union {
        double alignment;
        char bytes[PIECE];
    } piece;
    while (left) {
        size_t count = left < PIECE / type->bytes ? left : PIECE / type->bytes;
        void *from = type->convert ? piece.bytes : data;
        kiln_status status = read_bytes(path, file, from, count * type->bytes);
        if (status)
            return status;
        if (npy->swapped)
            swap(from, count, type->bytes);
        if (type->convert && !type->convert(from, count, data))
            return npy_refuse(path, KILN_TOO_LARGE, "it has a uint64 that an i64 cannot be");
        data += count * size;
        left -= count;
    }
    return KILN_OK;
}

/* Bring elements whose first index runs fastest into row-major order. */
static void npy_reorder(const struct kiln__shape *shape, size_t size, const char *from, char *to)
{
    size_t index[KILN_MAX_RANK] = {0}, strides[KILN_MAX_RANK] = {0}, stride = size;
    for (uint32_t i = 0; i < shape->rank; i++) {
        strides[i] = stride;
        stride *= shape->dims[i];
    }
    for (size_t left = kiln__shape_count(shape); left; left--, to += size) {
        memcpy(to, from, size);
        for (uint32_t axis = shape->rank; axis-- > 0;) {
            from += strides[axis];
            if (++index[axis] < shape->dims[axis])
                break;
            from -= strides[axis] * index[axis];
            index[axis] = 0;
        }
    }
}

static kiln_status read_array(const char *path, FILE *file, const struct kiln__npy *npy,
                              kiln_array *array)
{
    const struct kiln__shape *shape = &npy->shape;
    size_t size = kiln_type_size(npy->type->type), bytes = kiln__shape_count(shape) * size;
    bool reorders = npy->fortran && shape->rank > 1;
    char *data = malloc(bytes ? bytes : 1), *ordered = reorders ? malloc(bytes ? bytes : 1) : NULL;
    kiln_status status = data && (ordered || !reorders) ? read_elements(path, file, npy, data)
                                                        : npy_refuse(path, KILN_OUT_OF_HOST_MEMORY,
                                                                     "no memory for its elements");
    if (!status && data && ordered)
        npy_reorder(shape, size, data, ordered);
    if (status || reorders)
        free(data);
    if (status) {
        free(ordered);
        return status;
    }
    *array = (kiln_array){.type = npy->type->type, .rank = shape->rank};
    memcpy(array->dims, shape->dims, sizeof array->dims);
    array->data = reorders ? ordered : data;
    return KILN_OK;
}

kiln_status kiln_npy_read(const char *path, kiln_array *array)
{
    struct kiln__npy npy;
    if (array)
        *array = (kiln_array){0};
    KILN__RETURN_IF_NULL(NULL, __func__, path, array);
    const char *why;
    FILE *file = kiln__open_to_read(path, &why);
    if (!file)
        return npy_refuse(path, KILN_IO_ERROR, why);
    kiln_status status = read_header(path, file, &npy);
    if (!status)
        status = check_length(path, file, &npy);
    if (!status)
        status = read_array(path, file, &npy, array);
    fclose(file);
    return status;
}

/* ---- writing ---- */

static void write_bf16(struct kiln__writer *writer, const char *data, size_t count)
{
    float piece[PIECE / sizeof(float)];
    while (count) {
        size_t n = 0;
        for (; n < count && n < sizeof piece / sizeof *piece; n++, data += 2)
            piece[n] = (float)kiln__type_load(KILN_BF16, data);
        kiln__writer_add(writer, piece, n * sizeof *piece);
        count -= n;
    }
}

static kiln_status write_array(const char *path, const kiln_array *array,
                               const struct kiln__shape *shape)
{
    struct kiln__text header = {0};
    struct kiln__writer writer;
    size_t count = kiln__shape_count(shape);
    kiln__npy_print(array->type, shape, &header);
    if (header.failed)
        return kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "kiln_npy_write: no memory");
    kiln__writer_begin(&writer, AT_FDCWD, path, 0666);
    kiln__writer_add(&writer, header.data, header.length);
    if (array->type == KILN_BF16)
        write_bf16(&writer, array->data, count);
    else
        kiln__writer_add(&writer, array->data, count * kiln_type_size(array->type));
    kiln__text_free(&header);
    if (kiln__writer_commit(&writer))
        return KILN_OK;
    return kiln__fail(NULL, KILN_IO_ERROR, "kiln_npy_write: %s could not be written: %s", path,
                      strerror(writer.error));
}

kiln_status kiln_npy_write(const char *path, const kiln_array *array)
{
    struct kiln__shape shape;
    KILN__RETURN_IF_NULL(NULL, __func__, path, array);
    if (!kiln__type_row(array->type))
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "kiln_npy_write: %d is no data type",
                          (int)array->type);
    if (!kiln__file_type_of(array->type))
        return kiln__fail(NULL, KILN_UNSUPPORTED, "kiln_npy_write: numpy has no %s",
                          kiln_type_name(array->type));
    if (array->rank > KILN_MAX_RANK)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                          "kiln_npy_write: %zu dimensions, and %d are the most", array->rank,
                          KILN_MAX_RANK);
    if (!kiln__shape_make(array->rank, array->dims, &shape))
        return kiln__fail(NULL, KILN_TOO_LARGE, "kiln_npy_write: the shape has too many elements");
    if (!array->data && kiln__shape_count(&shape))
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "kiln_npy_write: array->data is NULL");
    if (!kiln__file_replaceable(path))
        return kiln__fail(NULL, KILN_IO_ERROR,
                          "kiln_npy_write: %s is not written: it is no "
                          "regular file",
                          path);
    return write_array(path, array, &shape);
}
