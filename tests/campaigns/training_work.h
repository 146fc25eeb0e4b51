/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the work that train: gradients, optimisers, and every operation that networks add.
 *
 * Two parameters are in the trial's buffers. A run that succeeds has to leave what the first one of
 * the process left, to the bit; one that fails, in each parameter that or the old content. */
#pragma once

#include "opencl_work.h"

/* A layer, dropout, cross entropy, clipping, momentum. */
void training_prepare_layer(struct trial *trial);
void training_act_layer(struct trial *trial);

/* Convolution, pool, attention, normalisation, tables that are gathered, AdamW. */
void training_prepare_network(struct trial *trial);
void training_act_network(struct trial *trial);

/* What moves elements: scatters, running sums, paddings, random numbers. */
void training_prepare_moves(struct trial *trial);
void training_act_moves(struct trial *trial);

/* Look at the parameters, then leave in them what other parts start from. */
void training_inspect(struct trial *trial);
