/* SPDX-License-Identifier: Apache-2.0 */
/* Positions as values, and values as positions. */
#include <math.h>

#include <kiln/elementwise.h>
#include <kiln/movement.h>

#include "record/call.h"
#include "record/operations.h"

/* ---- gather ---- */

bool kiln__check_indices(kiln_batch *batch, const char *call, const struct kiln__node *indices)
{
    if (kiln__node_is_floating(indices))
        kiln__fail(&batch->error, KILN_TYPE_MISMATCH,
                   "%s: indices are %s, and only integers are taken", call,
                   kiln_type_name(indices->type));
    return !batch->error.status;
}

/* As integers of 32 bits; what is beyond their range stays none of a tensor's positions. */
kiln_tensor kiln__record_indices(kiln_batch *batch, kiln_tensor indices, const char *call)
{
    const struct kiln__node *given = kiln__batch_node(batch, indices, call, "indices");
    if (!given || given->type == KILN_I32 || given->type == KILN_U8)
        return given ? indices : kiln__none;
    struct kiln__node node = {.kind = KILN__CAST, .type = KILN_I32, .n_inputs = 1};
    node.op = given->type == KILN_I64 ? KILN__CAST_SATURATED : KILN__CAST_PLAIN;
    node.shape = given->shape;
    node.input[0] = kiln__tensor_index(indices);
    return kiln__batch_record(batch, &node, call);
}

kiln_tensor kiln_gather(kiln_batch *batch, kiln_tensor x, kiln_tensor indices, int axis)
{
    KILN__CALL(batch);
    const struct kiln__node *data = kiln__batch_node(batch, x, __func__, "x");
    const struct kiln__node *where =
        data ? kiln__batch_node(batch, indices, __func__, "indices") : NULL;
    struct kiln__node node = {.kind = KILN__GATHER, .n_inputs = 2};
    uint32_t at;
    if (!where || !kiln__check_indices(batch, __func__, where) ||
        !kiln__find_axis(batch, __func__, axis, data->shape.rank, &at))
        return kiln__none;
    node.type = data->type;
    node.axis = at;
    node.input[0] = kiln__tensor_index(x);
    if (data->shape.rank - 1 + where->shape.rank > KILN_MAX_RANK)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                   "%s: indices of shape %s in shape %s make %u dimensions, and 8 are the most",
                   __func__, kiln__shape_text(&where->shape).text,
                   kiln__shape_text(&data->shape).text, data->shape.rank - 1 + where->shape.rank);
    else if (!kiln__shape_gathered(&data->shape, &where->shape, at, &node.shape))
        kiln__fail(&batch->error, KILN_TOO_LARGE,
                   "%s: indices of shape %s pick too many elements of shape %s", __func__,
                   kiln__shape_text(&where->shape).text, kiln__shape_text(&data->shape).text);
    indices = kiln__record_indices(batch, indices, __func__);
    node.input[1] = kiln__tensor_index(indices);
    return batch->error.status ? kiln__none : kiln__batch_record(batch, &node, __func__);
}

/* ---- scatter ---- */

/* Values that are put as they are stored are of x's own type. */
static bool same_type(const struct kiln__node *data, const struct kiln__node *values, uint8_t op)
{
    return op == KILN__SCATTER_DISTINCT ? values->type == data->type
                                        : kiln__node_computed(values) == kiln__node_computed(data);
}

static bool check_values(kiln_batch *batch, const char *call, const struct kiln__node *data,
                         const struct kiln__node *indices, const struct kiln__node *values,
                         const struct kiln__node *node)
{
    const uint32_t axis = (uint32_t)node->axis;
    struct kiln__shape shape;
    if (!same_type(data, values, node->op))
        kiln__fail(&batch->error, KILN_TYPE_MISMATCH,
                   "%s: x is %s and values are %s; cast one of them", call,
                   kiln_type_name(data->type), kiln_type_name(values->type));
    else if (!kiln__shape_gathered(&data->shape, &indices->shape, axis, &shape) ||
             !kiln__shape_equal(&shape, &values->shape))
        kiln__fail(&batch->error, KILN_SHAPE_MISMATCH,
                   "%s: values of shape %s are not what indices of shape %s pick "
                   "along axis %u of shape %s",
                   call, kiln__shape_text(&values->shape).text,
                   kiln__shape_text(&indices->shape).text, axis,
                   kiln__shape_text(&data->shape).text);
    return !batch->error.status;
}

bool kiln__check_scatter_mode(kiln_batch *batch, const char *call, kiln_scatter_mode mode)
{
    if ((unsigned)mode > KILN_SCATTER_MAX && !batch->error.status)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: %d is no way to scatter", call,
                   (int)mode);
    return !batch->error.status;
}

/* `op`: a kiln_scatter_mode, or KILN__SCATTER_DISTINCT. */
static kiln_tensor record_scatter(kiln_batch *batch, const char *call, kiln_tensor x,
                                  kiln_tensor indices, kiln_tensor values, int axis, uint8_t op)
{
    const struct kiln__node *data = kiln__batch_node(batch, x, call, "x");
    const struct kiln__node *where =
        data ? kiln__batch_node(batch, indices, call, "indices") : NULL;
    const struct kiln__node *given = where ? kiln__batch_node(batch, values, call, "values") : NULL;
    struct kiln__node node = {.kind = KILN__SCATTER, .op = op, .n_inputs = 3};
    uint32_t at;
    if (!given || !kiln__check_indices(batch, call, where) ||
        !kiln__find_axis(batch, call, axis, data->shape.rank, &at))
        return kiln__none;
    node.axis = at;
    if (!check_values(batch, call, data, where, given, &node))
        return kiln__none;
    node.type = op == KILN__SCATTER_DISTINCT ? data->type : kiln__node_computed(data);
    node.shape = data->shape;
    node.input[KILN__SCATTER_VALUES] = kiln__tensor_index(values);
    node.input[KILN__SCATTER_BASE] = kiln__tensor_index(x);
    indices = kiln__record_indices(batch, indices, call);
    node.input[KILN__SCATTER_INDICES] = kiln__tensor_index(indices);
    return kiln__batch_record(batch, &node, call);
}

kiln_tensor kiln__record_scatter(kiln_batch *batch, const char *call, kiln_tensor x,
                                 kiln_tensor indices, kiln_tensor values, int axis,
                                 kiln_scatter_mode mode)
{
    return kiln__batch_is_open(batch, call) && kiln__check_scatter_mode(batch, call, mode)
               ? record_scatter(batch, call, x, indices, values, axis, (uint8_t)mode)
               : kiln__none;
}

kiln_tensor kiln__record_scatter_distinct(kiln_batch *batch, const char *call, kiln_tensor x,
                                          kiln_tensor indices, kiln_tensor values, int axis)
{
    return record_scatter(batch, call, x, indices, values, axis, KILN__SCATTER_DISTINCT);
}

kiln_tensor kiln_scatter(kiln_batch *batch, kiln_tensor x, kiln_tensor indices, kiln_tensor values,
                         int axis, kiln_scatter_mode mode)
{
    KILN__CALL(batch);
    return kiln__record_scatter(batch, __func__, x, indices, values, axis, mode);
}

kiln_tensor kiln_scatter_add(kiln_batch *batch, kiln_tensor x, kiln_tensor indices,
                             kiln_tensor values, int axis)
{
    KILN__CALL(batch);
    return kiln__record_scatter(batch, __func__, x, indices, values, axis, KILN_SCATTER_ADD);
}

/* ---- iota, arange ---- */

/* 0, 1, ... n - 1 as i32. */
static kiln_tensor record_numbers(kiln_batch *batch, const char *call, size_t n)
{
    struct kiln__node node = {.kind = KILN__IOTA, .type = KILN_I32};
    if (n > INT32_MAX) {
        kiln__fail(&batch->error, KILN_TOO_LARGE, "%s: %zu elements cannot be numbered by an i32",
                   call, n);
        return kiln__none;
    }
    kiln__shape_make(1, &n, &node.shape);
    return kiln__batch_record(batch, &node, call);
}

kiln_tensor kiln_iota(kiln_batch *batch, size_t rank, const size_t *dims, int axis)
{
    KILN__CALL(batch);
    uint32_t at;
    struct kiln__node view = {.kind = KILN__VIEW, .op = KILN__BROADCAST, .type = KILN_I32};
    if (!kiln__batch_is_open(batch, __func__) ||
        !kiln__check_shape(batch, __func__, KILN_I32, rank, dims, &view.shape) ||
        !kiln__find_axis(batch, __func__, axis, (uint32_t)rank, &at))
        return kiln__none;
    kiln_tensor numbers = record_numbers(batch, __func__, dims[at]);
    if (batch->error.status || rank == 1)
        return numbers;
    view.n_inputs = 1;
    view.input[0] = kiln__tensor_index(numbers);
    for (uint32_t d = 0; d < rank; d++) {
        view.view.source[d] = (int8_t)(d == at ? 0 : -1);
        view.view.step[d] = d == at;
    }
    return kiln__batch_record(batch, &view, __func__);
}

/* How many elements there are; false, with the error recorded, if that makes no sense. */
static bool count_range(kiln_batch *batch, kiln_type type, double start, double stop, double step,
                        size_t *count)
{
    const struct kiln__type_row *row = kiln__type_row(type);
    double n = ceil((stop - start) / step);
    if (!row)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "kiln_arange: %d is no data type",
                   (int)type);
    else if (!(step < 0 || step > 0) || !isfinite(start) || !isfinite(step) || isnan(stop))
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                   "kiln_arange: there are no steps of %g from %g to %g", step, start, stop);
    else if (n > INT32_MAX)
        kiln__fail(&batch->error, KILN_TOO_LARGE,
                   "kiln_arange: %g elements cannot be numbered by an i32", n);
    if (batch->error.status)
        return false;
    *count = n > 0 ? (size_t)n : 0;
    double last = start + step * (n > 1 ? n - 1 : 0);
    bool whole = trunc(start) == start && trunc(step) == step;
    if (!row->floating &&
        (!whole || fmin(start, last) < row->lowest || fmax(start, last) > row->highest ||
         fabs(step) > 0x1p53 || fmax(fabs(start), fabs(last)) > 0x1p53))
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                   "kiln_arange: %s cannot hold steps of %g from %g to %g", row->name, step, start,
                   last);
    return !batch->error.status;
}

kiln_tensor kiln_arange(kiln_batch *batch, kiln_type type, double start, double stop, double step)
{
    KILN__CALL(batch);
    size_t count;
    if (!kiln__batch_is_open(batch, __func__) ||
        !count_range(batch, type, start, stop, step, &count))
        return kiln__none;
    kiln_type through = kiln__type_row(type)->floating ? KILN_F32
                        : type == KILN_I64             ? KILN_I64
                                                       : KILN_I32; /* others wrap around */
    kiln_tensor x = record_numbers(batch, __func__, count);
    if (through != KILN_I32)
        x = kiln_cast(batch, x, through);
    if (step != 1)
        x = kiln_mul(batch, x, kiln__batch_number(batch, through, step, __func__));
    if (start != 0)
        x = kiln_add(batch, x, kiln__batch_number(batch, through, start, __func__));
    return type == through ? x : kiln_cast(batch, x, type);
}

/* ---- one-hot ---- */

kiln_tensor kiln_one_hot(kiln_batch *batch, kiln_tensor indices, size_t depth, kiln_type type)
{
    KILN__CALL(batch);
    const struct kiln__node *where = kiln__batch_node(batch, indices, __func__, "indices");
    if (!where || !kiln__check_indices(batch, __func__, where))
        return kiln__none;
    struct kiln__shape shape = where->shape;
    if (shape.rank == KILN_MAX_RANK)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                   "%s: indices of shape %s leave no room for one more dimension", __func__,
                   kiln__shape_text(&shape).text);
    else if (!kiln__type_row(type))
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: %d is no data type", __func__,
                   (int)type);
    if (batch->error.status)
        return kiln__none;
    indices = kiln_cast(batch, kiln__record_indices(batch, indices, __func__), KILN_I32);
    shape.dims[shape.rank++] = 1;
    kiln_tensor column = kiln_reshape(batch, indices, shape.rank, shape.dims);
    kiln_tensor number = record_numbers(batch, __func__, depth);
    return kiln_cast(batch, kiln_equal(batch, column, number), type);
}
