/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays that are known while a model is recorded: shapes, axes, scalars. Integers of all types and
 * truth values lie as int64_t, floating numbers as doubles that are rounded to their type. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kiln/status.h>
#include <kiln/types.h>

/* One element. Movement copies it without looking. */
union kiln__onnx_cell {
    int64_t i;
    double f;
};

struct kiln__onnx_host {
    struct kiln__onnx_host *next; /* in the list of who owns it */
    int type;                     /* as TensorProto.DataType */
    bool floats;                  /* which of a cell's fields counts */
    size_t rank;
    size_t dims[KILN_MAX_RANK];
    size_t count;
    union kiln__onnx_cell cells[];
};

/* An array with room for its elements, which are 0; it joins the list. NULL without memory, or if
 * the elements cannot be counted. */
struct kiln__onnx_host *kiln__onnx_host_new(struct kiln__onnx_host **list, int type, size_t rank,
                                            const size_t *dims);

/* Bytes that it takes. */
size_t kiln__onnx_host_bytes(const struct kiln__onnx_host *host);

/* Free a list. */
void kiln__onnx_host_free(struct kiln__onnx_host *list);

/* dims multiplied; false if that passes what can be counted and addressed, eight bytes each. */
bool kiln__onnx_count(size_t rank, const size_t *dims, size_t *count);

/* A number as the type holds it: rounded, or wrapped around. */
union kiln__onnx_cell kiln__onnx_host_round(int type, union kiln__onnx_cell cell);

/* Whether all elements are equal, and which number that is. */
bool kiln__onnx_host_uniform(const struct kiln__onnx_host *host, double *number);

/* The elements as kiln stores this type, to `bytes` bytes. INVALID_ARGUMENT, without a sentence,
 * where an integer does not fit. */
kiln_status kiln__onnx_host_store(const struct kiln__onnx_host *host, kiln_type type, void *bytes);

/* The other way: elements of `type` as cells. */
void kiln__onnx_host_load(struct kiln__onnx_host *host, kiln_type type, const void *bytes);

/* IEEE binary16 of a number and back; rounded to nearest, of two as near to the even one. */
uint16_t kiln__onnx_half(double number);
double kiln__onnx_from_half(uint16_t bits);

/* The upper half of the nearest float. */
uint16_t kiln__onnx_bfloat(double number);

/* n floats, wherever they begin, as f16 or bf16: what the two above make of each, faster. */
void kiln__onnx_narrow_floats(const void *floats, kiln_type type, size_t n, uint16_t *narrow);

/* A number as an integer: towards zero, at the ends of the range where it is beyond, NaN 0. */
int64_t kiln__onnx_integer(double number);
