/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the work: batches, buffers, contexts, events, questions. */
#pragma once

#include "opencl_work.h"

/* Make the operands, and write the weights, which parts expect in the trial's first buffer. */
void basic_fill(void);
kiln_status basic_write_weights(kiln_buffer *buffer);

void basic_act_map(struct trial *trial);
void basic_act_mixed(struct trial *trial);
void basic_act_tuned(struct trial *trial);
void basic_prepare_again(struct trial *trial);
void basic_act_again(struct trial *trial);
void basic_act_detached(struct trial *trial);
void basic_act_empty(struct trial *trial);
void basic_act_buffers(struct trial *trial);
void basic_act_create(struct trial *trial);
void basic_act_interop(struct trial *trial);
void basic_act_events(struct trial *trial);
void basic_act_ask(struct trial *trial);
void basic_act_devices(struct trial *trial);
void basic_prepare_release(struct trial *trial);
void basic_prepare_store(struct trial *trial);
