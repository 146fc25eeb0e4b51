/* SPDX-License-Identifier: Apache-2.0 */
/* Windows over images: options read and checked, layouts, padding. */
#include "nn/sliding_windows.h"

#include <kiln/movement.h>

#include <stdio.h>

/* "3 by 4" */
static struct kiln__shape_text text_of_sizes(const struct kiln__sliding *call, const size_t *sizes)
{
    struct kiln__shape_text text = {{0}};
    size_t length = 0;
    for (uint32_t i = 0; i < call->n && length < sizeof text.text; i++)
        length += (size_t)snprintf(text.text + length, sizeof text.text - length, "%s%zu",
                                   i ? " by " : "", sizes[i]);
    return text;
}

struct kiln__shape_text kiln__sliding_image_text(const struct kiln__sliding *call)
{
    struct kiln__shape given = call->image;
    if (call->layout == KILN_CHANNELS_FIRST) {
        given.dims[1] = call->image.dims[call->n + 1];
        for (uint32_t i = 0; i < call->n; i++)
            given.dims[2 + i] = call->image.dims[1 + i];
    }
    return kiln__shape_text(&given);
}

struct kiln__shape kiln__sliding_shape(const struct kiln__sliding *call, kiln_tensor x)
{
    return kiln__tensor_node(call->batch, x)->shape;
}

/* ---- layouts ---- */

/* A chain of such calls turns a tensor there and back in between, which rewriting drops. */
static kiln_tensor sliding_windows_turn(const struct kiln__sliding *call, kiln_tensor x,
                                        bool to_last)
{
    size_t order[KILN_MAX_RANK] = {0};
    if (call->layout == KILN_CHANNELS_LAST || call->batch->error.status)
        return call->batch->error.status ? kiln__none : x;
    for (uint32_t i = 0; i < call->n; i++)
        order[to_last ? i + 1 : i + 2] = to_last ? i + 2 : i + 1;
    order[to_last ? call->n + 1 : 1] = to_last ? 1 : call->n + 1;
    return kiln_transpose(call->batch, x, order);
}

kiln_tensor kiln__sliding_result(const struct kiln__sliding *call, kiln_tensor y)
{
    return sliding_windows_turn(call, y, false);
}

/* ---- options ---- */

bool kiln__sliding_begin(struct kiln__sliding *call, kiln_tensor *x, uint32_t n)
{
    const struct kiln__node *node = kiln__batch_node(call->batch, *x, call->name, "x");
    if (!node)
        return false;
    const struct kiln__shape *shape = &node->shape;
    call->n = n ? n : shape->rank - 2;
    if (n && shape->rank != n + 2)
        kiln__fail(&call->batch->error, KILN_SHAPE_MISMATCH,
                   "%s: operand x of shape %s has not %u dimensions", call->name,
                   kiln__shape_text(shape).text, n + 2);
    else if (shape->rank < 3 || shape->rank > KILN__SPATIAL + 2)
        kiln__fail(&call->batch->error, KILN_SHAPE_MISMATCH,
                   "%s: operand x of shape %s has not 3 to %d dimensions", call->name,
                   kiln__shape_text(shape).text, KILN__SPATIAL + 2);
    else if (call->layout != KILN_CHANNELS_LAST && call->layout != KILN_CHANNELS_FIRST)
        kiln__fail(&call->batch->error, KILN_INVALID_ARGUMENT, "%s: %d is no layout", call->name,
                   (int)call->layout);
    if (call->batch->error.status)
        return false;
    *x = sliding_windows_turn(call, *x, true);
    if (!call->batch->error.status)
        call->image = kiln__sliding_shape(call, *x);
    return !call->batch->error.status;
}

static size_t or_else(size_t given, size_t otherwise)
{
    return given ? given : otherwise;
}

void kiln__sliding_read(struct kiln__sliding *call, const struct kiln__sliding_given *given,
                        const size_t *stride)
{
    for (uint32_t i = 0; i < call->n; i++) {
        call->stride[i] = or_else(given->stride ? given->stride[i] : 0, stride ? stride[i] : 1);
        call->dilation[i] = or_else(given->dilation ? given->dilation[i] : 0, 1);
        call->before[i] = given->before ? given->before[i] : 0;
        call->after[i] = given->after ? given->after[i] : 0;
    }
}

static bool check_padding(struct kiln__sliding *call)
{
    for (uint32_t i = 0; i < call->n; i++) {
        size_t before = call->before[i], after = call->after[i];
        if (before <= SIZE_MAX / 4 && after <= SIZE_MAX / 4 &&
            call->image.dims[1 + i] <= SIZE_MAX / 4)
            continue;
        kiln__fail(&call->batch->error, KILN_TOO_LARGE,
                   "%s: shape %s is padded to too many elements, by %zu before and %zu after",
                   call->name, kiln__sliding_image_text(call).text, before, after);
        return false;
    }
    return true;
}

bool kiln__sliding_check(struct kiln__sliding *call)
{
    if (!check_padding(call))
        return false;
    for (uint32_t i = 0; i < call->n; i++) {
        size_t extent = call->image.dims[1 + i] + call->before[i] + call->after[i];
        if (call->window[i] && extent && call->window[i] - 1 <= (extent - 1) / call->dilation[i])
            continue;
        kiln__fail(&call->batch->error, KILN_INVALID_ARGUMENT,
                   "%s: no window of %s, its elements %s apart, fits %s padded by %s before and %s "
                   "after",
                   call->name, text_of_sizes(call, call->window).text,
                   text_of_sizes(call, call->dilation).text, kiln__sliding_image_text(call).text,
                   text_of_sizes(call, call->before).text, text_of_sizes(call, call->after).text);
        return false;
    }
    return true;
}

/* ---- windows ---- */

size_t kiln__sliding_count(const struct kiln__sliding *call, uint32_t i)
{
    size_t extent = call->image.dims[1 + i] + call->before[i] + call->after[i];
    return (extent - 1 - (call->window[i] - 1) * call->dilation[i]) / call->stride[i] + 1;
}

kiln_tensor kiln__sliding_windows(const struct kiln__sliding *call, kiln_tensor x, double padding)
{
    size_t low[KILN__SPATIAL + 2] = {0}, high[KILN__SPATIAL + 2] = {0}, any = 0;
    for (uint32_t i = 0; i < call->n; i++) {
        low[1 + i] = call->before[i];
        high[1 + i] = call->after[i];
        any |= low[1 + i] | high[1 + i];
    }
    if (any)
        x = kiln_pad(call->batch, x, low, high, padding);
    x = kiln_windows(call->batch, x, 1, call->n, call->window, call->stride, call->dilation);
    return call->batch->error.status ? kiln__none : x;
}
