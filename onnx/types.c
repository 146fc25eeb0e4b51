/* SPDX-License-Identifier: Apache-2.0 */
/* The table of ONNX data types: their kiln type, size and name. */
#include "onnx/types.h"

#include "onnx/onnx.pb-c.h"

#define NUMBER(name) ONNX__TENSOR_PROTO__DATA_TYPE__##name

static const struct kiln__onnx_type types[] = {
    {NUMBER(FLOAT), "float", 32, KILN__ONNX_IEEE, KILN_F32, KILN_F32, NULL},
    {NUMBER(UINT8), "uint8", 8, KILN__ONNX_UNSIGNED, KILN_U8, KILN_U8, NULL},
    {NUMBER(INT8), "int8", 8, KILN__ONNX_SIGNED, KILN_I8, KILN_I8, NULL},
    {NUMBER(UINT16), "uint16", 16, KILN__ONNX_UNSIGNED, KILN_I32, KILN_I32, NULL},
    {NUMBER(INT16), "int16", 16, KILN__ONNX_SIGNED, KILN_I32, KILN_I32, NULL},
    {NUMBER(INT32), "int32", 32, KILN__ONNX_SIGNED, KILN_I32, KILN_I32, NULL},
    {NUMBER(INT64), "int64", 64, KILN__ONNX_SIGNED, KILN_I64, KILN_I64, NULL},
    {NUMBER(BOOL), "bool", 8, KILN__ONNX_UNSIGNED, KILN_BOOL, KILN_U8, NULL},
    {NUMBER(FLOAT16), "float16", 16, KILN__ONNX_IEEE, KILN_F16, KILN_F32, NULL},
    {NUMBER(DOUBLE), "double", 64, KILN__ONNX_IEEE, KILN_F32, KILN_F32, "computed as f32"},
    {NUMBER(UINT32), "uint32", 32, KILN__ONNX_UNSIGNED, KILN_I64, KILN_I64, NULL},
    {NUMBER(UINT64), "uint64", 64, KILN__ONNX_UNSIGNED, KILN_I64, KILN_I64, "computed as i64"},
    {NUMBER(BFLOAT16), "bfloat16", 16, KILN__ONNX_BFLOAT, KILN_BF16, KILN_F32, NULL},
    {KILN__ONNX_UINT4, "uint4", 4, KILN__ONNX_UNSIGNED, KILN_U8, KILN_U8, NULL},
    {KILN__ONNX_INT4, "int4", 4, KILN__ONNX_SIGNED, KILN_I8, KILN_I8, NULL},
};

/* Types of which kiln only knows the names, by number. */
static const char *const others[] = {
    [NUMBER(STRING)] = "string",
    [NUMBER(COMPLEX64)] = "complex64",
    [NUMBER(COMPLEX128)] = "complex128",
    [17] = "float8e4m3fn",
    [18] = "float8e4m3fnuz",
    [19] = "float8e5m2",
    [20] = "float8e5m2fnuz",
    [23] = "float4e2m1",
};

const struct kiln__onnx_type *kiln__onnx_type(int number)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].number == number)
            return &types[i];
    return NULL;
}

kiln_type kiln__onnx_computed(kiln_type type)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].type == type)
            return types[i].computed;
    return type;
}

bool kiln__onnx_type_floats(int number)
{
    const struct kiln__onnx_type *type = kiln__onnx_type(number);
    return type && (type->storage == KILN__ONNX_IEEE || type->storage == KILN__ONNX_BFLOAT);
}

const char *kiln__onnx_type_name(int number)
{
    const struct kiln__onnx_type *type = kiln__onnx_type(number);
    if (type)
        return type->name;
    if (number >= 0 && (size_t)number < sizeof others / sizeof *others && others[number])
        return others[number];
    return "an unknown type";
}
