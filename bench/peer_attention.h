/* SPDX-License-Identifier: Apache-2.0 */
/* Attention as one would write it: in blocks with a running softmax, and by whole products. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* [heads, m, d], [heads, n, d] and [heads, n, d] give [heads, m, d], with a scale of 1 / sqrt(d).
 * d is a multiple of 64; so are m and n. */
struct peer_attention {
    size_t heads, m, n, d;
    bool causal;
};

void peer_attention_blocked(const struct peer_attention *attention, const float *q, const float *k,
                            const float *v, float *out);

/* Two products of OpenBLAS and a softmax for each head; `scores` has room for m by n. */
bool peer_has_attention_products(void);
void peer_attention_products(const struct peer_attention *attention, const float *q, const float *k,
                             const float *v, float *scores, float *out);
