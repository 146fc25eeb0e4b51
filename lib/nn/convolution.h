/* SPDX-License-Identifier: Apache-2.0 */
/* What convolutions and transposed ones share. */
#pragma once

#include "nn/sliding_windows.h"

/* What the caller says, NULL perhaps, as own options; false after an error. */
bool kiln__convolution_options(struct kiln__sliding *call, const kiln_conv_options *options,
                               kiln_conv_options *own);

/* Take own options and both operands, which are left with channels last. `n` spatial dimensions, 0:
 * as many as x has. Of a transposed one w has x's channels last. */
bool kiln__convolution_begin(struct kiln__sliding *call, const kiln_conv_options *options,
                             uint32_t n, bool transposed, kiln_tensor *x, kiln_tensor *w);

/* x [N, spatial ..., C] by w [window ..., C/groups, O], both checked; channels last. */
kiln_tensor kiln__convolve(const struct kiln__sliding *call, kiln_tensor x, kiln_tensor w);
