/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of one kiln call each, element by element: their rows name the call, and what computes
 * elements that are known. */
#pragma once

#include "onnx/call.h"

/* One or two operands; kiln__onnx_row::data of kiln__onnx_unary() and so on. A host function that
 * is NULL: not computed there. */
struct kiln__onnx_elementwise {
    kiln_tensor (*one)(kiln_batch *batch, kiln_tensor a);
    kiln_tensor (*two)(kiln_batch *batch, kiln_tensor a, kiln_tensor b);
    double (*floats)(double a, double b);      /* b is 0 for one operand */
    int64_t (*integers)(int64_t a, int64_t b); /* wraps around */
    bool (*test)(double a, double b);          /* the result is a truth value */
    bool (*test_integers)(int64_t a, int64_t b);
};

void kiln__onnx_unary(struct kiln__onnx_call *call);

/* Operands broadcast; more than two are taken from left to right, as by Max and Sum. */
void kiln__onnx_binary(struct kiln__onnx_call *call);

/* Two values and an operation on them, as kiln__onnx_binary() does it. */
struct kiln__onnx_value kiln__onnx_combine(struct kiln__onnx_call *call,
                                           const struct kiln__onnx_elementwise *how,
                                           struct kiln__onnx_value *a, struct kiln__onnx_value *b);
