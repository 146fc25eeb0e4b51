/* SPDX-License-Identifier: Apache-2.0 */
/* Scaled dot-product attention as a node: its sizes, and which keys a row sees.
 *
 *     result[i] = sum_j w_ij v_j / sum_j w_ij,   w_ij = exp(scale q_i.k_j + mask_ij)
 *
 * over the keys j that row i sees (Vaswani et al. 2017); 0 if it sees none. Inputs are q [.., m,
 * d], k [.., n, d], v [.., n, e], perhaps a mask [.., m, n], and perhaps lengths [.., 1, 1] of i32,
 * all with the node's leading dimensions. Where there are lengths, only the first so many keys of a
 * matrix are there, 0 to n of them, and row i of a causal node sees keys 0 to length - m + i +
 * diagonal: the queries are the last ones. Of a window of w, a row does not see what is w or more
 * keys before the last of these; where it is not causal, before the last key that is there.
 */
#pragma once

#include "graph/graph.h"

enum kiln__attention_input { KILN__QUERY, KILN__KEY, KILN__VALUE, KILN__MASK };

struct kiln__attention_size {
    size_t m, n, d, e;
    size_t batches; /* product of the leading dimensions */
};

struct kiln__attention_size kiln__attention_size(const struct kiln__graph *graph,
                                                 const struct kiln__node *node);

/* Whether it has a mask, which is input KILN__MASK. */
bool kiln__attention_is_masked(const struct kiln__node *node);

/* The input that has lengths; 0: there are none. */
unsigned kiln__attention_lengths(const struct kiln__node *node);

/* The node's diagonal within the range that matters, so that sums with numbers of rows and keys do
 * not overflow: row i of m sees keys 0 to i + this, and i + the length + this if there are lengths.
 * What is not causal sees all keys. */
int64_t kiln__attention_diagonal(const struct kiln__node *node,
                                 const struct kiln__attention_size *size);

/* Of a window, within the range that matters: row i of a causal node sees keys from i + this on,
 * any row of others keys from this on; and so many more on as there are keys if there are lengths.
 */
int64_t kiln__attention_earliest(const struct kiln__node *node,
                                 const struct kiln__attention_size *size);

/* What is wrong with the node, or NULL. */
const char *kiln__attention_check(const struct kiln__graph *graph, const struct kiln__node *node);

/* Keys that a chunked device's kernel takes at a time. */
#define KILN__ATTENTION_KEYS 64

/* Room for `columns` in steps that few kernels serve. */
size_t kiln__attention_padded_columns(size_t columns);

/* Bytes of local memory that every device needs for these columns of q and v, or UINT64_MAX: that
 * of the narrowest form of kernels/attention_cpu.cl, which is there where no other fits. */
uint64_t kiln__attention_local(size_t d, size_t e);
