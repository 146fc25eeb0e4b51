/* SPDX-License-Identifier: Apache-2.0 */
/* Slices whose place along an axis is a tensor: gathers and scatters at neighbouring positions. */
#include <kiln/elementwise.h>
#include <kiln/movement.h>

#include "record/call.h"
#include "record/operations.h"

/* One call: along which axis of x, and how many elements from where `start` says. */
struct call {
    kiln_batch *batch;
    const char *name;
    struct kiln__shape x;
    uint32_t axis;
    size_t count;
    bool shared; /* one start for all of x */
};

static kiln_tensor integer(const struct call *call, size_t value)
{
    return kiln_constant(call->batch, KILN_I32, (double)value);
}

/* Whether there is one start for all of x, or by broadcasting one for each part that lies along the
 * axis. */
static bool check_start(struct call *call, const struct kiln__node *start)
{
    struct kiln__shape before = call->x, both;
    before.rank = call->axis;
    call->shared = kiln__shape_count(&start->shape) == 1;
    if (!kiln__check_indices(call->batch, call->name, start))
        return false;
    if (!call->shared && (!kiln__shape_broadcast(&start->shape, &before, &both) ||
                          !kiln__shape_equal(&both, &before)))
        kiln__fail(&call->batch->error, KILN_SHAPE_MISMATCH,
                   "%s: start of shape %s is neither one position nor one for each of %s, the "
                   "dimensions of x before axis %u",
                   call->name, kiln__shape_text(&start->shape).text, kiln__shape_text(&before).text,
                   call->axis);
    else if (kiln__shape_count(&call->x) > INT32_MAX && !call->shared)
        kiln__fail(&call->batch->error, KILN_TOO_LARGE,
                   "%s: elements of shape %s cannot be numbered by an i32", call->name,
                   kiln__shape_text(&call->x).text);
    return !call->batch->error.status;
}

static bool begin(struct call *call, kiln_tensor x, kiln_tensor start, int axis)
{
    const struct kiln__node *data = kiln__batch_node(call->batch, x, call->name, "x");
    const struct kiln__node *from =
        data ? kiln__batch_node(call->batch, start, call->name, "start") : NULL;
    if (!from || !kiln__find_axis(call->batch, call->name, axis, data->shape.rank, &call->axis))
        return false;
    call->x = data->shape;
    return check_start(call, from);
}

/* `start` with a last dimension of 1 more; of a shared one that is all. */
static kiln_tensor column(const struct call *call, kiln_tensor start)
{
    const struct kiln__node *from = kiln__batch_node(call->batch, start, call->name, "start");
    struct kiln__shape shape = {.rank = 0};
    if (from && !call->shared)
        shape = from->shape;
    shape.dims[shape.rank++] = 1;
    start = kiln_reshape(call->batch, start, shape.rank, shape.dims);
    return kiln_cast(call->batch, kiln__record_indices(call->batch, start, call->name), KILN_I32);
}

/* The positions along the axis: of shape [count], or with x's dimensions before the axis first. */
static kiln_tensor positions(const struct call *call, kiln_tensor start)
{
    start = column(call, start);
    return call->count == 1 && call->shared
               ? start
               : kiln_add(call->batch, start, kiln_iota(call->batch, 1, &call->count, 0));
}

/* The numbers of these positions in x with the axis and all dimensions before it as one; -1 for
 * what is beyond the axis. */
static kiln_tensor numbers(const struct call *call, kiln_tensor at)
{
    kiln_batch *batch = call->batch;
    struct kiln__shape parts = call->x;
    parts.rank = call->axis + 1;
    parts.dims[call->axis] = 1;
    size_t apart = call->x.dims[call->axis];
    const kiln_tensor inside =
        kiln_logical_and(batch, kiln_greater_equal(batch, at, integer(call, 0)),
                         kiln_less(batch, at, integer(call, apart)));
    for (uint32_t d = call->axis; d-- > 0; apart *= call->x.dims[d])
        if (call->x.dims[d] != 1)
            at = kiln_add(batch, at,
                          kiln_mul(batch, kiln_iota(batch, parts.rank, parts.dims, (int)d),
                                   integer(call, apart)));
    return kiln_where(batch, inside, at, kiln_constant(batch, KILN_I32, -1));
}

/* x with the axis and all dimensions before it as one. */
static kiln_tensor flatten(const struct call *call, kiln_tensor x)
{
    struct kiln__shape flat = {.rank = 1, .dims = {1}};
    for (uint32_t d = 0; d < call->x.rank; d++)
        if (d <= call->axis)
            flat.dims[0] *= call->x.dims[d];
        else
            flat.dims[flat.rank++] = call->x.dims[d];
    return kiln_reshape(call->batch, x, flat.rank, flat.dims);
}

kiln_tensor kiln_slice_at(kiln_batch *batch, kiln_tensor x, kiln_tensor start, size_t count,
                          int axis)
{
    KILN__CALL(batch);
    struct call call = {.batch = batch, .name = __func__, .count = count};
    struct kiln__shape shape;
    if (!begin(&call, x, start, axis))
        return kiln__none;
    shape = call.x;
    shape.dims[call.axis] = count;
    if (!kiln__check_dims(batch, __func__, shape.rank, shape.dims, &shape))
        return kiln__none;
    const kiln_tensor at = positions(&call, start);
    return call.shared ? kiln_gather(batch, x, at, (int)call.axis)
                       : kiln_gather(batch, flatten(&call, x), numbers(&call, at), 0);
}

static bool check_part(struct call *call, kiln_tensor x, kiln_tensor part)
{
    const struct kiln__node *data = kiln__batch_node(call->batch, x, call->name, "x");
    const struct kiln__node *top =
        data ? kiln__batch_node(call->batch, part, call->name, "part") : NULL;
    if (!top)
        return false;
    struct kiln__shape wanted = call->x;
    if (top->shape.rank == wanted.rank)
        wanted.dims[call->axis] = call->count = top->shape.dims[call->axis];
    if (top->type != data->type)
        kiln__fail(&call->batch->error, KILN_TYPE_MISMATCH,
                   "%s: x is %s and part is %s; cast one of them", call->name,
                   kiln_type_name(data->type), kiln_type_name(top->type));
    else if (!kiln__shape_equal(&top->shape, &wanted))
        kiln__fail(&call->batch->error, KILN_SHAPE_MISMATCH,
                   "%s: part of shape %s and x of shape %s differ beside axis %u", call->name,
                   kiln__shape_text(&top->shape).text, kiln__shape_text(&call->x).text, call->axis);
    return !call->batch->error.status;
}

kiln_tensor kiln_update_slice(kiln_batch *batch, kiln_tensor x, kiln_tensor part, kiln_tensor start,
                              int axis)
{
    KILN__CALL(batch);
    struct call call = {.batch = batch, .name = __func__};
    if (!begin(&call, x, start, axis) || !check_part(&call, x, part))
        return kiln__none;
    kiln_tensor at = positions(&call, start);
    if (call.shared || batch->error.status)
        return kiln__record_scatter_distinct(batch, __func__, x, at, part, (int)call.axis);
    at = numbers(&call, at);
    kiln_tensor flat =
        kiln__record_scatter_distinct(batch, __func__, flatten(&call, x), at, part, 0);
    return kiln_reshape(batch, flat, call.x.rank, call.x.dims);
}
