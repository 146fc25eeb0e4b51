/* SPDX-License-Identifier: Apache-2.0 */
/* Layers that exporters write as several nodes and kiln has one call for. The nodes stay where the
 * layer's row finds, with shapes known, that the call does not mean the same: they are recorded
 * one by one then. */
#pragma once

#include "onnx/graph.h"

/* Most nodes of a pattern; it has at most as many operands again. */
#define KILN__ONNX_MOST_PARTS 12

/* Between the scores and their softmax, in order; and behind it. */
enum kiln__onnx_step {
    KILN__ONNX_TIMES,    /* a number that is known */
    KILN__ONNX_DIVIDED,  /* by one */
    KILN__ONNX_PLUS,     /* a mask */
    KILN__ONNX_OR_ZERO,  /* where(isnan(softmax), 0, softmax): rows that see no key */
    KILN__ONNX_WHERE,    /* where(mask, scores, number) */
    KILN__ONNX_WHERE_NOT /* where(mask, number, scores) */
};

/* Of MatMul(q, k), where each may be a product with a number, a TIMES as well, steps, Softmax,
 * MatMul(., v): operands are q, k, v, then those of the steps: one of each, of WHERE the mask and
 * the number. kiln__onnx_node::steps. */
struct kiln__onnx_attention {
    size_t softmax; /* its number among the parts */
    size_t n;
    enum kiln__onnx_step steps[KILN__ONNX_MOST_PARTS];
};

/* Look for patterns in the main graph, and put one node in the place of each one's last. */
kiln_status kiln__onnx_find_patterns(struct kiln__onnx_graphs *graphs);
