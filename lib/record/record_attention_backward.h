/* SPDX-License-Identifier: Apache-2.0 */
/* Attention backward as an operation of a batch: gradients record it; there is no public call. */
#pragma once

#include "graph/attention_backward.h"
#include "record/batch.h"

/* how->form of these inputs (graph/attention_backward.h), all with the same leading dimensions;
 * narrow: the node's op. Errors are the batch's. */
kiln_tensor kiln__record_attention_backward(kiln_batch *batch, const struct kiln__attention *how,
                                            uint8_t narrow, unsigned count,
                                            const kiln_tensor *inputs);
