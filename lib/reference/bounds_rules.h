/* SPDX-License-Identifier: Apache-2.0 */
/* How errors go through each kind of node: what the files of bounds share. */
#pragma once

#include "reference/bounds.h"

/* Of what is computed, by its row: half the distance of numbers at 1, from where on one rounds to
 * infinity, the largest one, the smallest one with all digits, the smallest one, and up to where
 * whole numbers are exact. */
#define KILN__UNIT (kiln__type_ulp(KILN_F32, 1) / 2)
#define KILN__OVERFLOW kiln__type_overflow(KILN_F32)
#define KILN__LARGEST kiln__type_row(KILN_F32)->highest
#define KILN__SMALLEST kiln__type_smallest(KILN_F32)
#define KILN__DENORMAL kiln__type_ulp(KILN_F32, 0)
#define KILN__WHOLE (1 / KILN__UNIT)

/* gamma_n (Higham 2002, section 3.1): the relative error of n roundings, of sums in any order. */
double kiln__bound_gamma(double n);

/* A walk over a graph: the errors of nodes before this one are there. */
struct kiln__bounding {
    const struct kiln__graph *graph;
    const struct kiln__reference *reference;
    double **errors;        /* per node */
    double *const *numbers; /* per node: its values as numbers */
    double denormal;        /* what flushing denormals adds to each rounding */
    bool *failed;           /* without memory */
};

/* An operand: its node, values as numbers, and errors. */
struct kiln__bounded {
    const struct kiln__node *node;
    const double *values, *errors;
};
struct kiln__bounded kiln__bounded_operand(const struct kiln__bounding *walk,
                                           const struct kiln__node *node, unsigned i);

/* `result` gets the errors of the node's elements. */
typedef void kiln__bound(const struct kiln__bounding *walk, const struct kiln__node *node,
                         double *result);

kiln__bound kiln__bound_elementwise; /* bounds_elementwise.c */
kiln__bound kiln__bound_cast;

kiln__bound kiln__bound_reduce; /* bounds_sums.c */
kiln__bound kiln__bound_scan;
kiln__bound kiln__bound_scatter, kiln__bound_sort;
kiln__bound kiln__bound_matmul;

kiln__bound kiln__bound_view; /* bounds_movement.c */
kiln__bound kiln__bound_insert_slice;
kiln__bound kiln__bound_gather;
kiln__bound kiln__bound_reshape;
