/* SPDX-License-Identifier: Apache-2.0 */
/* This reader shares nothing with the library's own, so that a fault of one is seen. */
#include "tensors.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Types of which protobuf-c's description has not the numbers. */
enum { UINT4 = 21, INT4 = 22 };

/* Of ONNX's types, by number: its name, the bits of an element, and as what a model has it:
 * the type of kiln of the same values, or one that is near. */
static const struct {
    const char *name;
    size_t bits;
    kiln_type type;
    bool same;
} types[] = {
    {"undefined", 0, 0, false},
    {"float", 32, KILN_F32, true},
    {"uint8", 8, KILN_U8, true},
    {"int8", 8, KILN_I8, true},
    {"uint16", 16, KILN_I32, false},
    {"int16", 16, KILN_I32, false},
    {"int32", 32, KILN_I32, true},
    {"int64", 64, KILN_I64, true},
    {"string", 0, 0, false},
    {"bool", 8, KILN_BOOL, true},
    {"float16", 16, KILN_F16, true},
    {"double", 64, KILN_F32, false},
    {"uint32", 32, KILN_I64, false},
    {"uint64", 64, KILN_I64, false},
    {"complex64", 0, 0, false},
    {"complex128", 0, 0, false},
    {"bfloat16", 16, KILN_BF16, true},
    {"float8e4m3fn", 0, 0, false},
    {"float8e4m3fnuz", 0, 0, false},
    {"float8e5m2", 0, 0, false},
    {"float8e5m2fnuz", 0, 0, false},
    {"uint4", 4, KILN_U8, false},
    {"int4", 4, KILN_I8, false},
    {"float4e2m1", 0, 0, false},
    {"float8e8m0", 0, 0, false},
    {"uint2", 0, 0, false},
    {"int2", 0, 0, false},
};

static bool is_type(int32_t type)
{
    return type >= 0 && (size_t)type < sizeof types / sizeof *types;
}

kiln_type type_of_onnx(int32_t type)
{
    return is_type(type) ? types[type].type : (kiln_type)0;
}

bool is_same_type(int32_t type)
{
    return is_type(type) && types[type].same;
}

const char *name_of_onnx(int32_t type)
{
    return is_type(type) ? types[type].name : "a type unknown here";
}

uint8_t *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    long end = file && !fseek(file, 0, SEEK_END) ? ftell(file) : -1;
    uint8_t *bytes = end >= 0 && !fseek(file, 0, SEEK_SET) ? malloc((size_t)end + 1) : NULL;
    *size = (size_t)end;
    if (bytes && fread(bytes, 1, *size, file) != *size) {
        free(bytes);
        bytes = NULL;
    }
    if (file)
        fclose(file);
    return bytes;
}

Onnx__TensorProto *read_tensor(const char *path, char *reason)
{
    size_t size;
    uint8_t *bytes = read_file(path, &size);
    Onnx__TensorProto *tensor = bytes ? onnx__tensor_proto__unpack(NULL, size, bytes) : NULL;
    free(bytes);
    if (!tensor)
        snprintf(reason, REASON, "%s is no tensor", path);
    return tensor;
}

/* Elements that stand in a field of their own, one a number of which each has the low bytes. */
static bool gather_elements(const Onnx__TensorProto *tensor, size_t count, char *raw)
{
    const struct {
        size_t count, bytes;
        const void *data;
    } fields[] = {
        {tensor->n_float_data, sizeof(float), tensor->float_data},
        {tensor->n_double_data, sizeof(double), tensor->double_data},
        {tensor->n_int64_data, sizeof(int64_t), tensor->int64_data},
        {tensor->n_uint64_data, sizeof(uint64_t), tensor->uint64_data},
        {tensor->n_int32_data, sizeof(int32_t), tensor->int32_data},
    };
    size_t bytes = (types[tensor->data_type].bits + 7) / 8;
    for (size_t f = 0; f < sizeof fields / sizeof *fields; f++)
        for (size_t i = 0; fields[f].count == count && bytes <= fields[f].bytes && i < count; i++)
            memcpy(raw + i * bytes, (const char *)fields[f].data + i * fields[f].bytes, bytes);
    return !count || tensor->n_float_data == count || tensor->n_double_data == count ||
           tensor->n_int64_data == count || tensor->n_uint64_data == count ||
           tensor->n_int32_data == count;
}

/* The elements as a file has them, two of 4 bits a byte; NULL without them. */
static void *raw_elements(const Onnx__TensorProto *tensor, size_t count)
{
    size_t bits = types[tensor->data_type].bits, bytes = (count * bits + 7) / 8;
    char *raw = malloc(bytes + 1);
    bool whole =
        raw && (tensor->has_raw_data ? tensor->raw_data.len == bytes
                                     : gather_elements(tensor, bits < 8 ? bytes : count, raw));
    if (whole && tensor->has_raw_data)
        memcpy(raw, tensor->raw_data.data, bytes);
    if (!whole) {
        free(raw);
        raw = NULL;
    }
    return raw;
}

#define CONVERT(from, to)                                                                          \
    do {                                                                                           \
        for (size_t i = 0; i < count; i++)                                                         \
            ((to *)data)[i] = (to)((const from *)raw)[i];                                          \
    } while (0)

/* Elements of 4 bits, the first of two in the low ones. */
static void convert_halves(bool is_signed, size_t count, const uint8_t *raw, int8_t *data)
{
    for (size_t i = 0; i < count; i++) {
        int value = raw[i / 2] >> i % 2 * 4 & 15;
        data[i] = (int8_t)(is_signed && value > 7 ? value - 16 : value);
    }
}

/* Elements of a type that kiln has not, as the one of the table. */
static void convert(int32_t type, size_t count, const void *raw, void *data)
{
    switch (type) {
    case ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE: CONVERT(double, float); break;
    case ONNX__TENSOR_PROTO__DATA_TYPE__INT16: CONVERT(int16_t, int32_t); break;
    case ONNX__TENSOR_PROTO__DATA_TYPE__UINT16: CONVERT(uint16_t, int32_t); break;
    case ONNX__TENSOR_PROTO__DATA_TYPE__UINT32: CONVERT(uint32_t, int64_t); break;
    case UINT4: convert_halves(false, count, raw, data); break;
    case INT4: convert_halves(true, count, raw, data); break;
    default: memcpy(data, raw, count * types[type].bits / 8);
    }
}

bool array_of_tensor(const Onnx__TensorProto *tensor, kiln_array *array, char *reason)
{
    size_t count = 1;
    void *raw;
    *array = (kiln_array){.type = type_of_onnx(tensor->data_type), .rank = tensor->n_dims};
    if (!array->type || array->rank > KILN_MAX_RANK) {
        snprintf(reason, REASON, "a tensor of %s with %zu dimensions",
                 name_of_onnx(tensor->data_type), tensor->n_dims);
        return false;
    }
    for (size_t i = 0; i < array->rank; i++)
        count *= array->dims[i] = (size_t)tensor->dims[i];
    raw = raw_elements(tensor, count);
    array->data = calloc(count + 1, kiln_type_size(array->type));
    if (raw && array->data)
        convert(tensor->data_type, count, raw, array->data);
    else
        snprintf(reason, REASON, "a tensor without its elements");
    bool whole = raw && array->data;
    free(raw);
    return whole;
}

/* ---- comparing ---- */

/* The value of an IEEE number of 16 bits: its sign, its exponent of `exponents` bits, the rest. */
static double short_float(uint16_t bits, int exponents)
{
    int digits = 15 - exponents, bias = (1 << (exponents - 1)) - 1;
    int exponent = bits >> digits & ((1 << exponents) - 1);
    int mantissa = bits & ((1 << digits) - 1);
    double value =
        ldexp(mantissa + (exponent ? 1 << digits : 0), (exponent ? exponent : 1) - bias - digits);
    if (exponent == (1 << exponents) - 1)
        value = mantissa ? NAN : INFINITY;
    return bits >> 15 ? -value : value;
}

static double floating(const kiln_array *array, size_t i)
{
    switch (array->type) {
    case KILN_F32: return ((const float *)array->data)[i];
    case KILN_F16: return short_float(((const uint16_t *)array->data)[i], 5);
    case KILN_BF16: return short_float(((const uint16_t *)array->data)[i], 8);
    default: return NAN;
    }
}

static int64_t integer(const kiln_array *array, size_t i)
{
    switch (array->type) {
    case KILN_I32: return ((const int32_t *)array->data)[i];
    case KILN_I64: return ((const int64_t *)array->data)[i];
    case KILN_I8: return ((const int8_t *)array->data)[i];
    default: return ((const uint8_t *)array->data)[i];
    }
}

static bool is_floating(kiln_type type)
{
    return type == KILN_F32 || type == KILN_F16 || type == KILN_BF16;
}

/* As numpy's assert_allclose(). */
static bool is_near(double is, double wanted, struct tolerance tolerance)
{
    if (isnan(is) || isnan(wanted))
        return isnan(is) && isnan(wanted);
    return is == wanted ||
           fabs(is - wanted) <= tolerance.absolute + tolerance.relative * fabs(wanted);
}

/* Whole numbers are exact. */
static bool same_element(const kiln_array *is, const kiln_array *wanted, size_t i,
                         struct tolerance tolerance)
{
    return is_floating(is->type) ? is_near(floating(is, i), floating(wanted, i), tolerance)
                                 : integer(is, i) == integer(wanted, i);
}

static void write_element(char *text, size_t room, const kiln_array *array, size_t i)
{
    if (is_floating(array->type))
        snprintf(text, room, "%.9g", floating(array, i));
    else
        snprintf(text, room, "%" PRId64, integer(array, i));
}

static bool same_shape(const kiln_array *a, const kiln_array *b)
{
    bool same = a->rank == b->rank;
    for (size_t i = 0; same && i < a->rank; i++)
        same = a->dims[i] == b->dims[i];
    return same;
}

static int write_shape(char *text, size_t room, const kiln_array *array)
{
    int length = snprintf(text, room, "%s [", kiln_type_name(array->type));
    for (size_t i = 0; i < array->rank; i++)
        length +=
            snprintf(text + length, room - (size_t)length, "%s%zu", i ? "," : "", array->dims[i]);
    return length + snprintf(text + length, room - (size_t)length, "]");
}

static bool compare_elements(const kiln_array *is, const kiln_array *wanted,
                             struct tolerance tolerance, char *reason)
{
    size_t count = 1, wrong = 0, first = 0;
    char texts[2][40];
    for (size_t i = 0; i < is->rank; i++)
        count *= is->dims[i];
    if (is->type == KILN_BF16)
        tolerance.relative = fmax(tolerance.relative, 0x1p-6);
    for (size_t i = count; i-- > 0;)
        if (!same_element(is, wanted, i, tolerance)) {
            wrong++;
            first = i;
        }
    if (!wrong)
        return true;
    write_element(texts[0], sizeof texts[0], is, first);
    write_element(texts[1], sizeof texts[1], wanted, first);
    snprintf(reason, REASON, "%zu of %zu elements are wrong: number %zu is %s, not %s", wrong,
             count, first, texts[0], texts[1]);
    return false;
}

bool array_is(const kiln_array *array, const Onnx__TensorProto *wanted, struct tolerance tolerance,
              char *reason)
{
    kiln_array expected;
    char shapes[2][150];
    if (!array_of_tensor(wanted, &expected, reason))
        return false;
    bool right = array->type == expected.type && same_shape(array, &expected);
    if (right) {
        right = compare_elements(array, &expected, tolerance, reason);
    } else {
        write_shape(shapes[0], sizeof shapes[0], array);
        write_shape(shapes[1], sizeof shapes[1], &expected);
        snprintf(reason, REASON, "%s, not %s", shapes[0], shapes[1]);
    }
    free(expected.data);
    return right;
}
