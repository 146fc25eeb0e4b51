/* SPDX-License-Identifier: Apache-2.0 */
/* What a kernel computes in its self-test, and whether that came out right. */
#pragma once

#include "graph/graph.h"
#include "plan/plan.h"

enum { MATRICES = 2, M = 1104, N = 2296, K = 328, QUERIES = 200, KEYS = 392 };
#define SCALE 2.0          /* of scores: some keys weigh much, most little */
#define SLOPES_SCALE 0.125 /* whose weights are not divided by their sum: f16 holds them */

bool kiln__self_test_is_attention(const struct kiln__self_test *self_test);
bool kiln__self_test_is_backward(const struct kiln__self_test *self_test);

/* Whether it is a product of floats on tensor cores, which takes them in tf32. */
bool kiln__self_test_is_of_floats(const struct kiln__self_test *self_test);

/* What there is of the operands and results in memory: [MATRICES][rows][columns]; of a second
 * result nothing, mostly. */
struct kiln__self_test_shapes {
    size_t a[2], b[2], y[2], second[2];
};
struct kiln__self_test_shapes kiln__self_test_shapes(const struct kiln__self_test *self_test);
size_t kiln__self_test_count(const size_t shape[2]);

/* Element i of the operands, which is even as k is; what the mask adds to a score, of which each
 * row sees some; a query's statistic, such that weights are of all sizes, to some dozens. */
float kiln__self_test_value(const struct kiln__self_test *self_test, size_t i);
float kiln__self_test_mask(kiln_type type, size_t row, size_t key);
double kiln__self_test_stat(size_t query, size_t column);

/* The backward node of a result. Of what is streamed there are KEYS rows, whether they are keys or
 * queries. */
struct kiln__node kiln__self_test_node(const struct kiln__self_test *self_test, bool second);

/* As those shapes say. */
struct kiln__self_test_values {
    float *a, *b, *y, *second;
};
bool kiln__self_test_is_right(const struct kiln__self_test *self_test,
                              const struct kiln__self_test_values *values);
