/* SPDX-License-Identifier: Apache-2.0 */
/* What this machine's cores and memory do at best, in plain C with OpenMP. */
#pragma once

#include <stddef.h>

#define PEER_LIMIT_STEPS 171
#define PEER_LIMIT_FLOPS (2.0 * 16 * 12 * PEER_LIMIT_STEPS) /* of one item of peer_limit_adds() */

void peer_limit_read(size_t n, const float *x);
void peer_limit_copy(size_t n, const float *x,
                     float *y); /* past the caches where that can be had */
void peer_limit_adds(size_t items);
