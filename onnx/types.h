/* SPDX-License-Identifier: Apache-2.0 */
/* The types of ONNX's tensors, by their numbers in TensorProto.DataType. */
#ifndef KILN_ONNX_TYPES_H
#define KILN_ONNX_TYPES_H

#include <stdbool.h>
#include <stddef.h>

#include <kiln/types.h>

/* How elements lie in a file. */
enum kiln__onnx_storage {
    KILN__ONNX_SIGNED,
    KILN__ONNX_UNSIGNED,
    KILN__ONNX_IEEE,  /* half, float, double */
    KILN__ONNX_BFLOAT /* the upper half of a float */
};

/* Numbers that the system's schema may be too old for. */
enum { KILN__ONNX_UINT4 = 21, KILN__ONNX_INT4 = 22 };

struct kiln__onnx_type {
    int number;
    const char *name;
    unsigned bits; /* in raw_data; of 4, the first of two is the lower half of a byte */
    enum kiln__onnx_storage storage;
    kiln_type type;     /* of uploads, weights and results */
    kiln_type computed; /* what kiln's operations give where ONNX has this type */
    const char *note;   /* what is lost, or NULL */
};

/* NULL for a type that kiln has nothing for, such as strings. */
const struct kiln__onnx_type *kiln__onnx_type(int number);

/* What kiln computes a type of its own as. */
kiln_type kiln__onnx_computed(kiln_type type);

/* Of a type that kiln__onnx_type() knows. */
bool kiln__onnx_type_floats(int number);

/* Its name in lower case, also of types that are only known by name; "type 99" is "an unknown
 * type". */
const char *kiln__onnx_type_name(int number);

#endif
