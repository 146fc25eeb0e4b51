/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels/attention_backward*.cl have in common: what attention's gradient is made of. With
 *
 *     weight_ij = exp2(scale q_i.k_j - l_i)         of those keys j that query i sees
 *     slope_ij = weight_ij (s_i.v_j - t_i)
 *
 * where q, k, v are attention's operands and s is what flows to its result, FORM says what there is
 * to find, a row for each row of a:
 *
 *     SCALES   log2 of the sum over j of exp2(scale a_i.b_j), INFINITY if there is no j  a q, b k
 *     VALUES   sum over i of weight_ij g_i                                         a k, b q, c v, g
 * s KEYS     sum over i of slope_ij b_i                                          a k, b q, c v, g s
 *     QUERIES  sum over j of slope_ij b_j                                          a q, b k, c s, g
 * v BOTH     what KEYS finds, and in `other` what VALUES does
 *
 * a has m rows and b n; c goes with a, g with b. Of a query, stats are l, t, and what KEYS and
 * QUERIES, and what VALUES are multiplied by, which is the same for all queries of a matrix. */
#define SCALES 0
#define VALUES 1
#define KEYS 2
#define QUERIES 3
#define BOTH 4

#define SLOPES (FORM >= KEYS)
/* Whether what is walked are queries. */
#define BY_COLUMN (FORM == VALUES || FORM == KEYS || FORM == BOTH)
#define STATS 4
#define SLOPE_FACTOR 2
#define VALUE_FACTOR 3

#include "runs.h"
