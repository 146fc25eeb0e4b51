/* SPDX-License-Identifier: Apache-2.0 */
/* What flows from a product of windows to the image that they are over. By the adjoints of its
 * parts that is a product for each element of each window, all of them in memory, and sums of those
 * that overlap. It is also the transposed convolution with the same weights (V. Dumoulin and F.
 * Visin, "A guide to convolution arithmetic for deep learning", 2016), which has none of that. */
#include <kiln/convolution.h>
#include <kiln/movement.h>

#include "grad/gradient.h"

#define SPATIAL 3

/* A convolution as it was recorded: y = windows of an image, as rows, times weights. */
struct recorded {
    uint32_t n;     /* spatial dimensions */
    uint32_t image; /* what the windows are over, without its padding */
    struct kiln__shape window_dims;
    kiln_conv_options options;
};

/* [N, windows ..., within a window ..., C] of an image [N, spatial ..., C]. */
static bool shows_windows(const struct kiln__node *view, const struct kiln__shape *image)
{
    const uint32_t n = image->rank - 2, last = view->shape.rank - 1;
    if (image->rank < 3 || n > SPATIAL || last != 2 * n + 1)
        return false;
    for (uint32_t d = 0; d < image->rank; d++)
        if (view->view.start[d] != 0)
            return false;
    for (uint32_t k = 0; k <= last; k++) {
        bool whole = k == 0 || k == last;
        uint32_t source = k <= n ? k : k - n;
        if (view->view.source[k] != (int)source || view->view.step[k] < 1 ||
            (whole && (view->view.step[k] != 1 || view->shape.dims[k] != image->dims[source])))
            return false;
    }
    return true;
}

/* Each window as one row. */
static bool joins_windows(const struct kiln__shape *rows, const struct kiln__shape *windows,
                          uint32_t n)
{
    if (rows->rank != n + 2)
        return false;
    for (uint32_t d = 0; d <= n; d++)
        if (rows->dims[d] != windows->dims[d])
            return false;
    return true;
}

/* A place of the image among what no gradient flows to, with more beside its spatial dimensions
 * alone: padding, whatever it is. */
static bool is_padded(const struct kiln__gradient *walk, uint32_t index, uint32_t n)
{
    const struct kiln__node *node = kiln__gradient_at(walk, index);
    if (node->kind != KILN__INSERT_SLICE || node->n_inputs < 2 ||
        kiln__gradient_asked(walk, index) || kiln__gradient_wants(walk, node->input[1]) ||
        kiln__node_count(kiln__gradient_at(walk, node->input[0])) == 0)
        return false;
    const struct kiln__shape *part = &kiln__gradient_at(walk, node->input[0])->shape;
    if (part->rank != n + 2)
        return false;
    for (uint32_t d = 0; d < part->rank; d++) {
        bool inner = d > 0 && d <= n;
        if (node->view.source[d] != (int)d || (node->view.step[d] != 1 && part->dims[d] > 1) ||
            (!inner && part->dims[d] != node->shape.dims[d]))
            return false;
    }
    return true;
}

static void read_padding(const struct kiln__gradient *walk, struct recorded *conv)
{
    const struct kiln__node *node = kiln__gradient_at(walk, conv->image);
    const struct kiln__shape *part = &kiln__gradient_at(walk, node->input[0])->shape;
    for (uint32_t i = 0; i < conv->n; i++) {
        conv->options.before[i] = (size_t)node->view.start[1 + i];
        conv->options.after[i] =
            node->shape.dims[1 + i] - part->dims[1 + i] - conv->options.before[i];
    }
    conv->image = node->input[0];
}

/* Strides, and what the last window leaves of the image. False: more than a transposed convolution
 * can add, or work for nothing: it computes as many elements of windows as whole strides have. */
static bool read_windows(const struct kiln__node *view, const struct kiln__shape *image,
                         struct recorded *conv)
{
    size_t taps = 1, computed = 1;
    conv->window_dims.rank = conv->n + 2;
    for (uint32_t i = 0; i < conv->n; i++) {
        size_t count = view->shape.dims[1 + i], window = view->shape.dims[1 + conv->n + i];
        size_t stride = (size_t)view->view.step[1 + i];
        size_t dilation = (size_t)view->view.step[1 + conv->n + i];
        size_t reached = (count - 1) * stride + (window - 1) * dilation + 1;
        size_t more = image->dims[1 + i] - reached;
        if ((more >= stride && more >= dilation) || (stride > 1 && dilation > 1))
            return false;
        conv->window_dims.dims[i] = window;
        conv->options.stride[i] = stride;
        conv->options.dilation[i] = dilation;
        conv->options.output_padding[i] = more;
        taps *= window;
        computed *= (window + stride - 1) / stride * stride;
    }
    return computed <= 2 * taps;
}

static bool find_convolution(const struct kiln__gradient *walk, uint32_t operand,
                             struct recorded *conv)
{
    const struct kiln__node *rows = kiln__gradient_at(walk, operand);
    if (rows->kind != KILN__RESHAPE || kiln__gradient_asked(walk, operand) ||
        kiln__gradient_asked(walk, rows->input[0]))
        return false;
    const struct kiln__node *view = kiln__gradient_at(walk, rows->input[0]);
    if (view->kind != KILN__VIEW || kiln__node_count(view) == 0)
        return false;
    const struct kiln__shape *image = &kiln__gradient_at(walk, view->input[0])->shape;
    if (!shows_windows(view, image))
        return false;
    *conv = (struct recorded){.n = image->rank - 2, .image = view->input[0]};
    conv->options = (kiln_conv_options)KILN_CONV_OPTIONS_INIT;
    conv->options.layout = KILN_CHANNELS_LAST;
    conv->window_dims.dims[conv->n] = image->dims[conv->n + 1];
    if (!joins_windows(&rows->shape, &view->shape, conv->n) || !read_windows(view, image, conv))
        return false;
    if (is_padded(walk, conv->image, conv->n))
        read_padding(walk, conv);
    return true;
}

bool kiln__gradient_convolution(struct kiln__gradient *walk, uint32_t operand, kiln_tensor weights,
                                kiln_tensor g)
{
    struct recorded conv;
    const struct kiln__shape w = kiln__gradient_shape(walk, weights);
    if (w.rank != 2 || w.dims[1] == 0 || !find_convolution(walk, operand, &conv))
        return false;
    conv.window_dims.dims[conv.n + 1] = w.dims[1];
    weights = kiln_reshape(walk->batch, weights, conv.window_dims.rank, conv.window_dims.dims);
    kiln__gradient_accumulate(walk, conv.image,
                              kiln_conv_transposed(walk->batch, g, weights, &conv.options));
    return true;
}
