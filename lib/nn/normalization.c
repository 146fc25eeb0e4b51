/* SPDX-License-Identifier: Apache-2.0 */
/* Normalisations as the operations that they are made of. Fusion makes one kernel of them. */
#include <kiln/elementwise.h>
#include <kiln/gradient.h>
#include <kiln/movement.h>
#include <kiln/normalization.h>
#include <kiln/operations.h>

#include <float.h>
#include <math.h>
#include <string.h>

#include "graph/row_limits.h"
#include "record/call.h"
#include "record/operations.h"

/* One call: what it normalises, and over what. */
struct call {
    kiln_batch *batch;
    const char *name;
    size_t n_axes;
    const int *axes;
    struct kiln__shape shape; /* of x */
    uint64_t mask;            /* its dimensions that are reduced */
    size_t count;             /* elements that belong together */
};

static kiln_tensor normalization_apply(const struct call *call, enum kiln__elementwise op,
                                       kiln_tensor a, kiln_tensor b)
{
    return kiln__record_elementwise(call->batch, op, call->name, (kiln_tensor[]){a, b});
}

#define APPLY(row, a) normalization_apply(call, KILN__OP_##row, a, kiln__none)
#define APPLY_2(row, a, b) normalization_apply(call, KILN__OP_##row, a, b)

/* The reduced dimensions stay as 1. */
#define REDUCE(row, x)                                                                             \
    kiln__record_reduction(call->batch, KILN__REDUCE_##row, call->name, x, call->n_axes,           \
                           call->axes, 1)

static kiln_tensor normalization_number(const struct call *call, double value)
{
    return call->batch->error.status ? kiln__none : kiln_constant(call->batch, KILN_F32, value);
}

static bool normalization_begin(struct call *call, kiln_tensor x)
{
    const struct kiln__node *node = kiln__batch_floating(call->batch, x, call->name, "x");
    if (!node)
        return false;
    call->shape = node->shape;
    if (!kiln__read_axes(call->batch, call->name, &call->shape, call->n_axes, call->axes,
                         &call->mask))
        return false;
    call->count = 1;
    for (uint32_t d = 0; d < call->shape.rank; d++)
        if (call->mask >> d & 1)
            call->count *= call->shape.dims[d];
    return true;
}

/* An operand that may be left out and must not enlarge x. */
static bool check_operand(const struct call *call, const char *name, kiln_tensor operand)
{
    if (operand.id == 0)
        return true;
    const struct kiln__node *node = kiln__batch_floating(call->batch, operand, call->name, name);
    struct kiln__shape both;
    if (!node)
        return false;
    if (!kiln__shape_broadcast(&call->shape, &node->shape, &both) ||
        !kiln__shape_equal(&both, &call->shape))
        kiln__fail(&call->batch->error, KILN_SHAPE_MISMATCH,
                   "%s: operand %s of shape %s does not broadcast to x of shape %s", call->name,
                   name, kiln__shape_text(&node->shape).text, kiln__shape_text(&call->shape).text);
    return !call->batch->error.status;
}

/* Drop the dimensions of 1 that reductions left, unless they are to be kept. */
static kiln_tensor normalization_finish(const struct call *call, kiln_tensor result, int keep_dims)
{
    struct kiln__shape dropped = {0};
    if (keep_dims || call->batch->error.status)
        return result;
    for (uint32_t d = 0; d < call->shape.rank; d++)
        if (!(call->mask >> d & 1))
            dropped.dims[dropped.rank++] = call->shape.dims[d];
    return kiln_reshape(call->batch, result, dropped.rank, dropped.dims);
}

/* ---- softmax and its logarithm ---- */

/* The largest element only shifts; the result, and so its gradient, does not depend on it. */
static kiln_tensor normalization_largest(const struct call *call, kiln_tensor x)
{
    return kiln_detach(call->batch, REDUCE(max, x));
}

kiln_tensor kiln_softmax(kiln_batch *batch, kiln_tensor x, size_t n_axes, const int *axes)
{
    KILN__CALL(batch);
    struct call it = {batch, __func__, n_axes, axes, .count = 0}, *call = &it;
    if (!normalization_begin(call, x))
        return kiln__none;
    if (call->count == 0)
        return kiln_cast(batch, x, KILN_F32); /* no elements: nothing to compute, no largest one */
    kiln_tensor powers = APPLY(exp, APPLY_2(sub, x, normalization_largest(call, x)));
    const kiln_tensor sum = REDUCE(sum, powers);
    return APPLY_2(mul, powers, APPLY_2(div, normalization_number(call, 1), sum));
}

kiln_tensor kiln_log_softmax(kiln_batch *batch, kiln_tensor x, size_t n_axes, const int *axes)
{
    KILN__CALL(batch);
    struct call it = {batch, __func__, n_axes, axes, .count = 0}, *call = &it;
    if (!normalization_begin(call, x))
        return kiln__none;
    if (call->count == 0)
        return kiln_cast(batch, x, KILN_F32);
    kiln_tensor shifted = APPLY_2(sub, x, normalization_largest(call, x));
    return APPLY_2(sub, shifted, APPLY(log, REDUCE(sum, APPLY(exp, shifted))));
}

/* An infinite largest element is taken for the largest finite number: the sum is 0 or inf then, and
 * its logarithm what it should be, where inf - inf would be NaN. That of 0 has no derivative: it is
 * taken of 1 there, so that the gradient is 0. */
kiln_tensor kiln_logsumexp(kiln_batch *batch, kiln_tensor x, size_t n_axes, const int *axes,
                           int keep_dims)
{
    KILN__CALL(batch);
    struct call it = {batch, __func__, n_axes, axes, .count = 0}, *call = &it;
    if (!normalization_begin(call, x))
        return kiln__none;
    if (call->count == 0)
        return normalization_finish(call, APPLY(log, REDUCE(sum, x)), keep_dims);
    kiln_tensor top =
        APPLY_2(minimum, normalization_largest(call, x), normalization_number(call, FLT_MAX));
    top = APPLY_2(maximum, top, normalization_number(call, -FLT_MAX));
    kiln_tensor total = REDUCE(sum, APPLY(exp, APPLY_2(sub, x, top)));
    kiln_tensor is_zero = APPLY_2(equal, total, normalization_number(call, 0));
    kiln_tensor logarithm =
        APPLY(log, kiln_where(batch, is_zero, normalization_number(call, 1), total));
    logarithm = kiln_where(batch, is_zero, normalization_number(call, -INFINITY), logarithm);
    return normalization_finish(call, APPLY_2(add, logarithm, top), keep_dims);
}

/* ---- statistics ---- */

/* The first of the elements that belong together, which only shifts them. */
static kiln_tensor first_of(const struct call *call, kiln_tensor x)
{
    int64_t start[KILN_MAX_RANK] = {0}, stop[KILN_MAX_RANK];
    for (uint32_t d = 0; d < call->shape.rank; d++)
        stop[d] = call->mask >> d & 1 ? 1 : (int64_t)call->shape.dims[d];
    return kiln_detach(call->batch, kiln_slice(call->batch, x, start, stop, NULL));
}

/* x less its mean, and the mean unless that is NULL. It is the mean of differences from the first
 * element: of equal elements exactly that, and a large one that all share is gone before anything
 * is rounded. */
static kiln_tensor centre(const struct call *call, kiln_tensor x, kiln_tensor *mean)
{
    kiln_tensor first = kiln__none;
    if (call->count > 1) {
        first = first_of(call, x);
        x = APPLY_2(sub, x, first);
    }
    kiln_tensor within = REDUCE(mean, x);
    if (mean)
        *mean = first.id ? APPLY_2(add, first, within) : within;
    return APPLY_2(sub, x, within);
}

kiln_tensor kiln__record_mean(kiln_batch *batch, const char *name, kiln_tensor x, size_t n_axes,
                              const int *axes)
{
    struct call it = {batch, name, n_axes, axes, .count = 0}, *call = &it;
    kiln_tensor mean;
    if (!normalization_begin(call, x))
        return kiln__none;
    centre(call, x, &mean);
    return normalization_finish(call, mean, 0);
}

kiln_tensor kiln_variance(kiln_batch *batch, kiln_tensor x, size_t n_axes, const int *axes,
                          double correction, int keep_dims)
{
    KILN__CALL(batch);
    struct call it = {batch, __func__, n_axes, axes, .count = 0}, *call = &it;
    if (!normalization_begin(call, x) ||
        !kiln__check_number(batch, __func__, "the correction", correction))
        return kiln__none;
    double freedom = fmax((double)call->count - correction, 0);
    kiln_tensor squares = APPLY(square, centre(call, x, NULL));
    kiln_tensor variance =
        correction == 0 ? REDUCE(mean, squares)
                        : APPLY_2(div, REDUCE(sum, squares), normalization_number(call, freedom));
    return normalization_finish(call, variance, keep_dims);
}

/* ---- norms ---- */

/* Squares of what is between these are in f32, and so is what gradients divide by them. */
#define SQUARED_LEAST 0x1p-48
#define SQUARED_MOST 0x1p48
#define SQUARED_SCALE 0x1p80

kiln_tensor kiln__record_square_scale(kiln_batch *batch, const char *name, kiln_tensor top,
                                      kiln_tensor *back)
{
    struct call it = {batch, name, .count = 0}, *call = &it;
    kiln_tensor up = normalization_number(call, SQUARED_SCALE),
                down = normalization_number(call, 1 / SQUARED_SCALE);
    kiln_tensor large = APPLY_2(greater, top, normalization_number(call, SQUARED_MOST));
    kiln_tensor small = APPLY_2(less, top, normalization_number(call, SQUARED_LEAST)),
                one = normalization_number(call, 1);
    *back = kiln_where(batch, large, up, kiln_where(batch, small, down, one));
    return kiln_where(batch, large, down, kiln_where(batch, small, up, one));
}

/* The reduced dimensions stay as 1. At 0 the root has no derivative: it is taken of 1 there, so
 * that the gradient is 0 and not NaN. */
static kiln_tensor norm_at_once(const struct call *call, kiln_tensor x)
{
    kiln_batch *batch = call->batch;
    kiln_tensor back = kiln__none;
    if (call->count > 0) {
        kiln_tensor scale = kiln__record_square_scale(
            batch, call->name, normalization_largest(call, APPLY(abs, x)), &back);
        x = APPLY_2(mul, x, scale);
    }
    kiln_tensor total = REDUCE(sum, APPLY(square, x));
    kiln_tensor is_zero = APPLY_2(equal, total, normalization_number(call, 0));
    kiln_tensor root =
        APPLY(sqrt, kiln_where(batch, is_zero, normalization_number(call, 1), total));
    root = kiln_where(batch, is_zero, normalization_number(call, 0), root);
    return back.id ? APPLY_2(mul, root, back) : root;
}

/* Shorter parts are not worth a loop of their own, and so many numbers of parts are tried. */
enum { SHORTEST_PART = 4096, MOST_TRIES = 16 };

/* Into how many parts of equal length to cut a reduced dimension so that one kernel goes over a
 * part: about as many as a part has elements, or more. 1 where there is hardly a divisor. */
static size_t count_parts(const struct call *call, size_t dim, size_t longest)
{
    const size_t square = (size_t)sqrt((double)call->count);
    size_t length = square > SHORTEST_PART ? square : SHORTEST_PART;
    length = length < longest ? length : longest;
    const size_t least = (call->count - 1) / length + 1;
    for (size_t parts = least; parts <= dim && parts < least * MOST_TRIES; parts++)
        if (dim % parts == 0)
            return parts;
    return 1;
}

/* The dimension to cut: the largest that is reduced. Where the last ones are, they count as one. */
static uint32_t find_dimension(const struct call *call, struct kiln__shape *shape)
{
    uint32_t at = 0;
    *shape = call->shape;
    while (kiln__axes_are_innermost(shape, call->mask) && !(call->mask >> at & 1))
        at++;
    if (kiln__axes_are_innermost(shape, call->mask)) {
        shape->rank = at + 1;
        shape->dims[at] = call->count;
        return at;
    }
    for (uint32_t d = 0; d < shape->rank; d++)
        if (call->mask >> d & 1 && (!(call->mask >> at & 1) || shape->dims[d] > shape->dims[at]))
            at = d;
    return at;
}

/* Of more elements than one kernel goes over it is the norm of the norms of parts: each part is
 * read once, while its largest element and its sum would be two kernels for all of them. */
static kiln_tensor norm_of(kiln_batch *batch, const char *name, kiln_tensor x, size_t n_axes,
                           const int *axes)
{
    struct call it = {batch, name, n_axes, axes, .count = 0}, *call = &it;
    struct kiln__shape shape;
    if (!normalization_begin(call, x))
        return kiln__none;
    const size_t longest = kiln__longest_row(&call->shape, call->mask);
    if (call->count <= longest)
        return norm_at_once(call, x);
    const uint32_t at = find_dimension(call, &shape);
    const size_t parts = count_parts(call, shape.dims[at], longest);
    if (parts == 1 || shape.rank == KILN_MAX_RANK)
        return norm_at_once(call, x);
    int inner[KILN_MAX_RANK], outer = (int)at;
    size_t n_inner = 0;
    for (uint32_t d = 0; d < shape.rank; d++)
        if (call->mask >> d & 1)
            inner[n_inner++] = (int)(d + (d >= at));
    memmove(shape.dims + at + 1, shape.dims + at, (shape.rank++ - at) * sizeof *shape.dims);
    shape.dims[at] = parts;
    shape.dims[at + 1] /= parts;
    x = kiln_reshape(batch, x, shape.rank, shape.dims);
    x = norm_of(batch, name, norm_of(batch, name, x, n_inner, inner), 1, &outer);
    for (uint32_t d = 0; d < call->shape.rank; d++)
        shape.dims[d] = call->mask >> d & 1 ? 1 : call->shape.dims[d];
    return kiln_reshape(batch, x, call->shape.rank, shape.dims);
}

kiln_tensor kiln_norm(kiln_batch *batch, kiln_tensor x, size_t n_axes, const int *axes,
                      int keep_dims)
{
    KILN__CALL(batch);
    struct call it = {batch, __func__, n_axes, axes, .count = 0}, *call = &it;
    if (!normalization_begin(call, x))
        return kiln__none;
    return normalization_finish(call, norm_of(batch, __func__, x, n_axes, axes), keep_dims);
}

/* ---- normalisation ---- */

/* x times 1 / sqrt(mean(x^2) + epsilon). */
static kiln_tensor normalize(const struct call *call, kiln_tensor x, double epsilon)
{
    kiln_tensor square = REDUCE(mean, APPLY(square, x));
    return APPLY_2(mul, x, APPLY(rsqrt, APPLY_2(add, square, normalization_number(call, epsilon))));
}

kiln_tensor kiln_layer_norm(kiln_batch *batch, kiln_tensor x, kiln_tensor scale, kiln_tensor shift,
                            size_t n_axes, const int *axes, double epsilon)
{
    KILN__CALL(batch);
    struct call it = {batch, __func__, n_axes, axes, .count = 0}, *call = &it;
    if (!normalization_begin(call, x) || !check_operand(call, "scale", scale) ||
        !check_operand(call, "shift", shift) ||
        !kiln__check_number(batch, __func__, "epsilon", epsilon))
        return kiln__none;
    kiln_tensor y = normalize(call, centre(call, x, NULL), epsilon);
    y = scale.id ? APPLY_2(mul, y, scale) : y;
    return shift.id ? APPLY_2(add, y, shift) : y;
}

kiln_tensor kiln_rms_norm(kiln_batch *batch, kiln_tensor x, kiln_tensor scale, size_t n_axes,
                          const int *axes, double epsilon)
{
    KILN__CALL(batch);
    struct call it = {batch, __func__, n_axes, axes, .count = 0}, *call = &it;
    if (!normalization_begin(call, x) || !check_operand(call, "scale", scale) ||
        !kiln__check_number(batch, __func__, "epsilon", epsilon))
        return kiln__none;
    kiln_tensor y = normalize(call, x, epsilon);
    return scale.id ? APPLY_2(mul, y, scale) : y;
}

/* ---- running sums ---- */

kiln_tensor kiln_cumsum(kiln_batch *batch, kiln_tensor x, int axis, int reverse)
{
    KILN__CALL(batch);
    const struct kiln__node *input = kiln__batch_node(batch, x, __func__, "x");
    struct kiln__node node = {.kind = KILN__SCAN, .n_inputs = 1};
    uint64_t mask;
    if (!input || !kiln__read_axes(batch, __func__, &input->shape, 1, &axis, &mask))
        return kiln__none;
    node.op = reverse ? KILN__SCAN_BACKWARD : KILN__SCAN_FORWARD;
    node.type =
        kiln__reduce_result(&kiln__reduce_rows[KILN__REDUCE_sum], kiln__node_computed(input));
    node.shape = input->shape;
    node.axes = mask;
    node.input[0] = kiln__tensor_index(x);
    return kiln__batch_record(batch, &node, __func__);
}

/* Those without the last element, moved by one. */
kiln_tensor kiln_cumsum_exclusive(kiln_batch *batch, kiln_tensor x, int axis, int reverse)
{
    KILN__CALL(batch);
    const struct kiln__node *input = kiln__batch_node(batch, x, __func__, "x");
    int64_t start[KILN_MAX_RANK] = {0}, stop[KILN_MAX_RANK];
    size_t low[KILN_MAX_RANK] = {0}, high[KILN_MAX_RANK] = {0};
    uint32_t at;
    if (!input || !kiln__find_axis(batch, __func__, axis, input->shape.rank, &at))
        return kiln__none;
    struct kiln__shape shape = input->shape;
    if (shape.dims[at] == 0)
        return kiln_cumsum(batch, x, axis, reverse);
    for (uint32_t d = 0; d < shape.rank; d++)
        stop[d] = (int64_t)shape.dims[d];
    *(reverse ? &start[at] : &stop[at]) += reverse ? 1 : -1;
    *(reverse ? &high[at] : &low[at]) = 1;
    kiln_tensor others = kiln_slice(batch, x, start, stop, NULL);
    return kiln_pad(batch, kiln_cumsum(batch, others, axis, reverse), low, high, 0);
}
