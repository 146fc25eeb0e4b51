/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel size, strides, dilations and padding (auto_pad too) of convolution and pooling nodes. */
#include "onnx/windows.h"

#include <inttypes.h>
#include <string.h>

/* Beyond it sums and products of sizes would not be exact. */
#define MOST (INT64_C(1) << 28)

void kiln__onnx_sizes(struct kiln__onnx_call *call, const char *name, size_t count, int64_t least,
                      size_t usual, size_t *sizes)
{
    size_t n;
    const int64_t *list = kiln__onnx_ints(call, name, &n);
    if (list && n != count)
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "attribute '%s' has %zu numbers, not %zu",
                          name, n, count);
    for (size_t i = 0; i < count && !kiln__onnx_failed(call); i++) {
        if (list && (list[i] < least || list[i] > MOST))
            kiln__onnx_refuse(call, list[i] < 0 ? KILN_UNSUPPORTED : KILN_INVALID_ARGUMENT,
                              "attribute '%s' has %" PRId64, name, list[i]);
        sizes[i] = list ? (size_t)list[i] : usual;
    }
}

static void read_padding(struct kiln__onnx_call *call, struct kiln__onnx_windows *windows)
{
    size_t pads[6] = {0};
    const char *how = kiln__onnx_string(call, "auto_pad", "NOTSET");
    windows->same = !strcmp(how, "SAME_UPPER")   ? KILN__ONNX_SAME_UPPER
                    : !strcmp(how, "SAME_LOWER") ? KILN__ONNX_SAME_LOWER
                                                 : KILN__ONNX_NOT_SAME;
    if (windows->same == KILN__ONNX_NOT_SAME && strcmp(how, "NOTSET") && strcmp(how, "VALID"))
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "attribute 'auto_pad' is '%s'", how);
    if (!strcmp(how, "NOTSET"))
        kiln__onnx_sizes(call, "pads", 2 * windows->n, 0, 0, pads);
    memcpy(windows->before, pads, windows->n * sizeof *pads);
    memcpy(windows->after, pads + windows->n, windows->n * sizeof *pads);
}

/* As many results as there are elements divided by the stride, rounded up. */
static void pad_same(struct kiln__onnx_windows *windows, size_t i)
{
    size_t stride = windows->stride[i], out = (windows->in[i] + stride - 1) / stride;
    size_t reach = (windows->window[i] - 1) * windows->dilation[i] + 1;
    size_t wanted = out ? (out - 1) * stride + reach : 0;
    size_t total = wanted > windows->in[i] ? wanted - windows->in[i] : 0;
    bool upper = windows->same == KILN__ONNX_SAME_UPPER;
    windows->before[i] = upper ? total / 2 : total - total / 2;
    windows->after[i] = total - windows->before[i];
}

bool kiln__onnx_windows(struct kiln__onnx_call *call, size_t n, const size_t *window,
                        struct kiln__onnx_windows *windows)
{
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    *windows = (struct kiln__onnx_windows){.n = n};
    if (n < 1 || n > 3 || x->rank != n + 2)
        kiln__onnx_refuse(call, KILN_UNSUPPORTED,
                          "windows of %zu dimensions over %zu; 1 to 3 are taken", n, x->rank);
    if (kiln__onnx_failed(call))
        return false;
    for (size_t i = 0; i < n; i++)
        if (x->dims[2 + i] > (size_t)MOST)
            kiln__onnx_refuse(call, KILN_TOO_LARGE, "%zu elements in dimension %zu", x->dims[2 + i],
                              2 + i);
    memcpy(windows->in, x->dims + 2, n * sizeof *windows->in);
    kiln__onnx_sizes(call, "kernel_shape", n, 1, 0, windows->window);
    kiln__onnx_sizes(call, "strides", n, 1, 1, windows->stride);
    kiln__onnx_sizes(call, "dilations", n, 1, 1, windows->dilation);
    read_padding(call, windows);
    for (size_t i = 0; i < n && !kiln__onnx_failed(call); i++) {
        if (window[i] && windows->window[i] && windows->window[i] != window[i])
            kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH,
                              "attribute 'kernel_shape' has %zu where the weights have %zu",
                              windows->window[i], window[i]);
        windows->window[i] = window[i] ? window[i] : windows->window[i];
        if (windows->window[i] == 0 || windows->window[i] > (size_t)MOST)
            kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "a window of %zu elements",
                              windows->window[i]);
        else if (windows->same != KILN__ONNX_NOT_SAME)
            pad_same(windows, i);
    }
    return !kiln__onnx_failed(call);
}
