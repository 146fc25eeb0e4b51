/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients as training takes them. */
#pragma once

#include "record/batch.h"

/* The node of gradients[i]; NULL, with the error recorded, if it is not of a floating type. */
const struct kiln__node *kiln__training_gradient(kiln_batch *batch, const kiln_tensor *gradients,
                                                 size_t i, const char *call);
