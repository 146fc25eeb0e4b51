/* SPDX-License-Identifier: Apache-2.0 */
/* What the gradient of attention is made of, as a node: results of which no matrix of scores has to
 * be in memory (Dao et al. 2022, appendix B.2). With q [.., m, d], k [.., n, d], v [.., n, e] those
 * of an attention, s [.., m, e] what flows to its result, and over the keys j that query i sees:
 *
 *     weight_ij = exp(scale q_i.k_j - ln 2 l_i),   slope_ij = weight_ij (s_i.v_j - t_i)
 *
 *     form         result                                            inputs
 *     LOG_SUM_EXP  l_i = log2 sum_j exp(scale q_i.k_j) [.., m, 1]    q, k
 *     VALUES       u_i sum_i weight_ij s_i [.., n, e]                k, q, v, s, stats
 *     KEYS         w_i sum_i slope_ij q_i [.., n, d]                 k, q, v, s, stats
 *     QUERIES      w_i sum_j slope_ij k_j [.., m, d]                 q, k, s, v, stats
 *
 * l_i is INFINITY if query i sees no key: all its weights are 0. stats [.., m, 4] has l_i, t_i, w
 * and u of each query; w and u are the same for all queries of a matrix. The node's op is the
 * narrow type that weights and gradients are rounded to before they meet the last factor, or 0.
 * Attention's gradients are recorded like this for devices whose kernels never store scores
 * (grad/grad_attention.c).
 */
#pragma once

#include "graph/attention.h"

enum kiln__attention_backward_input {
    KILN__ROW_OPERAND,
    KILN__STREAMED_OPERAND,
    KILN__OTHER_ROW_OPERAND,
    KILN__OTHER_STREAMED_OPERAND,
    KILN__STATS
};

#define KILN__STATS_COLUMNS 4

/* m: rows of the result, n: rows that each of them is made from; d and e: columns of the first two
 * inputs, and of the other two (as many, if there are none). */
struct kiln__attention_size kiln__attention_backward_size(const struct kiln__graph *graph,
                                                          const struct kiln__node *node);

/* Whether the result's rows are keys, and what it is made from are queries. */
bool kiln__attention_backward_by_key(const struct kiln__node *node);

/* What is wrong with the node, or NULL. */
const char *kiln__attention_backward_check(const struct kiln__graph *graph,
                                           const struct kiln__node *node);
