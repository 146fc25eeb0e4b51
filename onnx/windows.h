/* SPDX-License-Identifier: Apache-2.0 */
/* The attributes that convolutions and pools share. */
#pragma once

#include "onnx/call.h"

/* Whether results have as many elements as their operand, divided by strides. */
enum kiln__onnx_same { KILN__ONNX_NOT_SAME, KILN__ONNX_SAME_UPPER, KILN__ONNX_SAME_LOWER };

struct kiln__onnx_windows {
    size_t n; /* spatial dimensions, 1 to 3 */
    size_t in[3], window[3], stride[3], dilation[3], before[3], after[3];
    enum kiln__onnx_same same;
};

/* Read a list of `count` sizes, not below `least`; `usual` where there is none. The node is refused
 * where another number of them is, or what is no size. */
void kiln__onnx_sizes(struct kiln__onnx_call *call, const char *name, size_t count, int64_t least,
                      size_t usual, size_t *sizes);

/* Read kernel_shape, strides, dilations, pads and auto_pad of operand 0, [N, C, spatial ...]. Sizes
 * of windows that are 0 come from kernel_shape. False after refusing the node. */
bool kiln__onnx_windows(struct kiln__onnx_call *call, size_t n, const size_t *window,
                        struct kiln__onnx_windows *windows);
