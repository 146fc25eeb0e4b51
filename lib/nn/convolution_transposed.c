/* SPDX-License-Identifier: Apache-2.0 */
/* Transposed convolutions. Element i*stride + p of the result is a sum over the few x[i - j] whose
 * windows reach it, by weights of its phase p alone. So all phases are output channels of one
 * convolution with stride 1, whose result is sorted by a view: no product is with zeros put between
 * x's elements, and nothing is added up in memory. */
#include <kiln/batch.h>
#include <kiln/movement.h>

#include <stdlib.h>

#include "nn/convolution.h"
#include "record/call.h"

/* Beyond it sums of extents are not exact in a double. */
#define MOST 0x1p52

struct transposed {
    struct kiln__sliding *call;
    size_t out[KILN__SPATIAL];                       /* extents of the result */
    size_t phases[KILN__SPATIAL];                    /* the stride, where phases are channels */
    size_t reach[KILN__SPATIAL];                     /* windows that an element is in */
    int64_t low[KILN__SPATIAL], high[KILN__SPATIAL]; /* what x gets beside it, or loses */
    size_t skip[KILN__SPATIAL];                      /* elements before the result's first */
};

/* ---- sizes ---- */

static void transposed_refuse(const struct transposed *t, kiln_status status, uint32_t i,
                              const char *why)
{
    const struct kiln__sliding *call = t->call;
    kiln__fail(&call->batch->error, status,
               "%s: spatial dimension %u of %s with a window of %zu, stride %zu, dilation %zu, "
               "padding %zu "
               "and %zu: %s",
               call->name, i, kiln__sliding_image_text(call).text, call->window[i], call->stride[i],
               call->dilation[i], call->before[i], call->after[i], why);
}

static bool find_extent(struct transposed *t, uint32_t i, size_t more)
{
    const struct kiln__sliding *call = t->call;
    size_t in = call->image.dims[1 + i], window = call->window[i];
    size_t stride = call->stride[i], dilation = call->dilation[i];
    double whole = ((double)in - 1) * (double)stride + ((double)window - 1) * (double)dilation + 1 +
                   (double)more;
    double out = whole - (double)call->before[i] - (double)call->after[i];
    if (in == 0 || window == 0)
        transposed_refuse(t, KILN_INVALID_ARGUMENT, i, "there are no windows");
    else if (more >= stride && more >= dilation)
        transposed_refuse(t, KILN_INVALID_ARGUMENT, i,
                          "the output padding must be below the stride or the dilation");
    else if (whole > MOST || (double)stride > MOST || (double)dilation > MOST)
        transposed_refuse(t, KILN_TOO_LARGE, i, "the result has too many elements");
    else if (out < 1)
        transposed_refuse(t, KILN_INVALID_ARGUMENT, i, "nothing is left of the result");
    if (call->batch->error.status)
        return false;
    t->out[i] = (size_t)out;
    return true;
}

/* Where elements of a window are apart themselves, phases mix: x is stretched instead. */
static bool is_stretched(const struct kiln__sliding *call, uint32_t i)
{
    return call->dilation[i] > 1 && call->stride[i] > 1;
}

static void find_phases(struct transposed *t, uint32_t i)
{
    const struct kiln__sliding *call = t->call;
    size_t in = call->image.dims[1 + i], phases = call->stride[i];
    if (is_stretched(call, i)) {
        in = (in - 1) * phases + 1;
        phases = 1;
    }
    size_t first = call->before[i] / phases;
    size_t end = (call->before[i] + t->out[i] + phases - 1) / phases;
    t->phases[i] = phases;
    t->reach[i] = (call->window[i] + phases - 1) / phases;
    t->low[i] = (int64_t)((t->reach[i] - 1) * call->dilation[i]) - (int64_t)first;
    t->high[i] = (int64_t)end - (int64_t)in;
    t->skip[i] = call->before[i] - first * phases;
}

/* ---- x ---- */

/* Zeros between the elements. */
static kiln_tensor insert_zeros(const struct transposed *t, kiln_tensor x)
{
    const struct kiln__sliding *call = t->call;
    struct kiln__shape shape = kiln__sliding_shape(call, x);
    int64_t start[KILN_MAX_RANK] = {0}, step[KILN_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
    bool any = false;
    for (uint32_t i = 0; i < call->n; i++) {
        if (!is_stretched(call, i))
            continue;
        step[1 + i] = (int64_t)call->stride[i];
        shape.dims[1 + i] = (shape.dims[1 + i] - 1) * call->stride[i] + 1;
        any = true;
    }
    if (!any)
        return x;
    kiln_type type = kiln__tensor_node(call->batch, x)->type;
    kiln_tensor zeros = kiln_fill(call->batch, type, shape.rank, shape.dims, 0);
    return call->batch->error.status ? kiln__none
                                     : kiln_insert_slice(call->batch, zeros, x, start, step);
}

/* x without what no window of the result has, and as wide as they are. */
static kiln_tensor transposed_fit(const struct transposed *t, kiln_tensor x)
{
    struct kiln__sliding *call = t->call;
    const struct kiln__shape shape = kiln__sliding_shape(call, x);
    int64_t start[KILN_MAX_RANK] = {0}, stop[KILN_MAX_RANK] = {0};
    bool cuts = false;
    for (uint32_t d = 0; d < shape.rank; d++)
        stop[d] = (int64_t)shape.dims[d];
    for (uint32_t i = 0; i < call->n; i++) {
        int64_t extent = stop[1 + i];
        start[1 + i] = t->low[i] < 0 ? -t->low[i] : 0;
        stop[1 + i] += t->high[i] < 0 ? t->high[i] : 0;
        start[1 + i] = start[1 + i] < extent ? start[1 + i] : extent;
        stop[1 + i] = stop[1 + i] > start[1 + i] ? stop[1 + i] : start[1 + i];
        /* What is cut beyond the other end is missing there. */
        call->before[i] = (size_t)(t->low[i] > 0 ? t->low[i] : 0);
        call->after[i] = (size_t)(t->high[i] > 0 ? t->high[i] : 0);
        cuts |= start[1 + i] > 0 || stop[1 + i] < extent;
        call->image.dims[1 + i] = (size_t)(stop[1 + i] - start[1 + i]);
    }
    return cuts ? kiln_slice(call->batch, x, start, stop, NULL) : x;
}

/* ---- weights ---- */

/* Dimensions of a tensor, and an order of them, put together one by one. */
struct dims {
    size_t rank, at[KILN_MAX_RANK], ordered, order[KILN_MAX_RANK];
};

static uint32_t add_dim(struct dims *dims, size_t extent)
{
    dims->at[dims->rank] = extent;
    return (uint32_t)dims->rank++;
}

static void add_to_order(struct dims *dims, uint32_t d)
{
    dims->order[dims->ordered++] = d;
}

static kiln_tensor transposed_reorder(const struct kiln__sliding *call, kiln_tensor x,
                                      const struct dims *dims)
{
    x = call->batch->error.status ? kiln__none : kiln_reshape(call->batch, x, dims->rank, dims->at);
    return call->batch->error.status ? kiln__none : kiln_transpose(call->batch, x, dims->order);
}

/* w with zeros behind each window, so that it is whole strides long. */
static kiln_tensor pad_windows(const struct transposed *t, kiln_tensor w)
{
    size_t low[KILN_MAX_RANK] = {0}, high[KILN_MAX_RANK] = {0}, any = 0;
    for (uint32_t i = 0; i < t->call->n; i++) {
        high[i] = t->reach[i] * t->phases[i] - t->call->window[i];
        any |= high[i];
    }
    return any ? kiln_pad(t->call->batch, w, low, high, 0) : w;
}

/* The first n of every second dimension in reverse order. */
static kiln_tensor reverse_reaches(const struct transposed *t, kiln_tensor w)
{
    const struct kiln__shape shape = kiln__sliding_shape(t->call, w);
    int64_t start[KILN_MAX_RANK] = {0}, stop[KILN_MAX_RANK], step[KILN_MAX_RANK];
    for (uint32_t d = 0; d < shape.rank; d++) {
        stop[d] = (int64_t)shape.dims[d];
        step[d] = 1;
    }
    for (size_t i = 0; i < t->call->n; i++) {
        start[2 * i] = stop[2 * i] - 1;
        stop[2 * i] = step[2 * i] = -1;
    }
    return kiln_slice(t->call->batch, w, start, stop, step);
}

/* From w [window ..., O/groups, C] to [reach ..., C/groups, groups * phases * O/groups]. */
static kiln_tensor phase_weights(const struct transposed *t, kiln_tensor w, size_t each)
{
    struct kiln__sliding *call = t->call;
    const uint32_t n = call->n;
    size_t in = call->image.dims[n + 1] / call->groups, out = each * call->groups;
    struct dims dims = {0};
    struct kiln__shape whole = {.rank = n + 2};
    w = pad_windows(t, w);
    for (uint32_t i = 0; i < n; i++) {
        add_to_order(&dims, add_dim(&dims, t->reach[i]));
        add_dim(&dims, t->phases[i]);
        whole.dims[i] = t->reach[i];
        out *= t->phases[i];
    }
    whole.dims[n] = in;
    whole.dims[n + 1] = out;
    uint32_t of_out = add_dim(&dims, each);
    uint32_t of_group = call->groups > 1 ? add_dim(&dims, call->groups) : 0;
    add_to_order(&dims, add_dim(&dims, in));
    if (call->groups > 1)
        add_to_order(&dims, of_group);
    for (uint32_t i = 0; i < n; i++)
        add_to_order(&dims, 2 * i + 1);
    add_to_order(&dims, of_out);
    if (!call->batch->error.status)
        w = kiln_reshape(call->batch, w, dims.rank, dims.at);
    if (!call->batch->error.status)
        w = reverse_reaches(t, w);
    w = transposed_reorder(call, w, &dims);
    return call->batch->error.status ? kiln__none
                                     : kiln_reshape(call->batch, w, whole.rank, whole.dims);
}

/* ---- the result ---- */

/* From [N, windows ..., groups * phases * O/groups] to [N, out ..., O]. */
static kiln_tensor sort_phases(const struct transposed *t, kiln_tensor y, size_t each)
{
    const struct kiln__sliding *call = t->call;
    const uint32_t n = call->n;
    if (call->batch->error.status)
        return kiln__none;
    const struct kiln__shape shape = kiln__sliding_shape(call, y);
    struct dims dims = {0};
    struct kiln__shape whole = {.rank = n + 2};
    int64_t start[KILN_MAX_RANK] = {0}, stop[KILN_MAX_RANK];
    add_to_order(&dims, add_dim(&dims, shape.dims[0]));
    for (uint32_t i = 0; i < n; i++)
        add_dim(&dims, shape.dims[1 + i]);
    uint32_t of_group = call->groups > 1 ? add_dim(&dims, call->groups) : 0;
    whole.dims[0] = shape.dims[0];
    for (uint32_t i = 0; i < n; i++) {
        add_to_order(&dims, 1 + i);
        if (t->phases[i] > 1) /* else there is nothing to sort, nor to copy */
            add_to_order(&dims, add_dim(&dims, t->phases[i]));
        whole.dims[1 + i] = shape.dims[1 + i] * t->phases[i];
    }
    if (call->groups > 1)
        add_to_order(&dims, of_group);
    add_to_order(&dims, add_dim(&dims, each));
    whole.dims[n + 1] = each * call->groups;
    y = transposed_reorder(call, y, &dims);
    if (call->batch->error.status)
        return kiln__none;
    y = kiln_reshape(call->batch, y, whole.rank, whole.dims);
    for (uint32_t d = 0; d < whole.rank; d++)
        stop[d] = (int64_t)whole.dims[d];
    for (uint32_t i = 0; i < n; i++) {
        start[1 + i] = (int64_t)t->skip[i];
        stop[1 + i] = start[1 + i] + (int64_t)t->out[i];
    }
    return call->batch->error.status ? kiln__none : kiln_slice(call->batch, y, start, stop, NULL);
}

/* ---- the call ---- */

static kiln_tensor transpose_groups(const struct transposed *given, kiln_tensor x, kiln_tensor w)
{
    struct kiln__sliding call = *given->call;
    struct transposed t = *given;
    const uint32_t n = call.n;
    t.call = &call;
    if (call.batch->error.status)
        return kiln__none;
    size_t each = kiln__sliding_shape(&call, w).dims[n];
    x = insert_zeros(&t, x);
    if (!call.batch->error.status)
        x = transposed_fit(&t, x);
    w = call.batch->error.status ? kiln__none : phase_weights(&t, w, each);
    for (uint32_t i = 0; i < n; i++) {
        call.window[i] = t.reach[i];
        call.stride[i] = 1;
    }
    return sort_phases(&t, kiln__convolve(&call, x, w), each);
}

/* As many of three dimensions as a tensor cannot have: each group by itself. */
static kiln_tensor transpose_each_group(const struct transposed *t, kiln_tensor x, kiln_tensor w)
{
    struct kiln__sliding one = *t->call;
    struct transposed part = *t;
    kiln_batch *batch = one.batch;
    size_t groups = one.groups;
    kiln_tensor *parts = calloc(3 * groups, sizeof *parts);
    part.call = &one;
    one.groups = 1;
    one.image.dims[one.n + 1] /= groups;
    if (!parts)
        kiln__fail(&batch->error, KILN_OUT_OF_HOST_MEMORY, "%s: no memory to record", one.name);
    else if (!kiln_split(batch, x, -1, groups, NULL, parts + groups))
        kiln_split(batch, w, -1, groups, NULL, parts + 2 * groups);
    for (size_t g = 0; !batch->error.status && g < groups; g++)
        parts[g] = transpose_groups(&part, parts[groups + g], parts[2 * groups + g]);
    kiln_tensor y = batch->error.status ? kiln__none : kiln_concat(batch, groups, parts, -1);
    free(parts);
    return y;
}

kiln_tensor kiln_conv_transposed(kiln_batch *batch, kiln_tensor x, kiln_tensor w,
                                 const kiln_conv_options *options)
{
    KILN__CALL(batch);
    struct kiln__sliding call = {.batch = batch, .name = __func__};
    struct transposed t = {.call = &call};
    kiln_conv_options own;
    if (!kiln__convolution_options(&call, options, &own) ||
        !kiln__convolution_begin(&call, &own, 0, true, &x, &w))
        return kiln__none;
    for (uint32_t i = 0; i < call.n; i++) {
        if (!find_extent(&t, i, own.output_padding[i]))
            return kiln__none;
        find_phases(&t, i);
    }
    bool has_room = 2 * call.n + 3 <= KILN_MAX_RANK || call.groups == 1;
    return kiln__sliding_result(&call, has_room ? transpose_groups(&t, x, w)
                                                : transpose_each_group(&t, x, w));
}
