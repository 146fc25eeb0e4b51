/* SPDX-License-Identifier: Apache-2.0 */
/* Elements and parts by positions in several dimensions: gathers and scatters along the one
 * dimension of the same data in row-major order. And triangles. */
#include <kiln/batch.h>
#include <kiln/elementwise.h>
#include <kiln/movement.h>
#include <kiln/operations.h>

#include "record/call.h"
#include "record/operations.h"

/* One call: the data, and the positions of elements or parts of it. */
struct call {
    kiln_batch *batch;
    const char *name;
    struct kiln__shape x, indices;
    kiln_tensor numbers; /* sums of what has come in so far, and whether all was in range */
    kiln_tensor inside;
};

static bool elements_begin(struct call *call, kiln_tensor x, kiln_tensor indices)
{
    const struct kiln__node *data = kiln__batch_node(call->batch, x, call->name, "x");
    const struct kiln__node *where =
        data ? kiln__batch_node(call->batch, indices, call->name, "indices") : NULL;
    if (!where || !kiln__check_indices(call->batch, call->name, where))
        return false;
    call->x = data->shape;
    call->indices = where->shape;
    if (kiln__shape_count(&data->shape) > INT32_MAX)
        kiln__fail(&call->batch->error, KILN_TOO_LARGE,
                   "%s: elements of shape %s cannot be numbered by an i32", call->name,
                   kiln__shape_text(&data->shape).text);
    return !call->batch->error.status;
}

static kiln_tensor elements_integer(const struct call *call, size_t value)
{
    return kiln_constant(call->batch, KILN_I32, (double)value);
}

/* Positions along a dimension add to the numbers what elements of it are apart. */
static void add_positions(struct call *call, kiln_tensor positions, size_t stride)
{
    kiln_tensor by =
        stride == 1 ? positions : kiln_mul(call->batch, positions, elements_integer(call, stride));
    call->numbers = call->numbers.id ? kiln_add(call->batch, call->numbers, by) : by;
}

/* Positions as i32, to compute with. */
static kiln_tensor whole(const struct call *call, kiln_tensor indices)
{
    return kiln_cast(call->batch, kiln__record_indices(call->batch, indices, call->name), KILN_I32);
}

/* The same of positions that may be anywhere. */
static void add_indices(struct call *call, kiln_tensor indices, size_t extent, size_t stride)
{
    kiln_batch *batch = call->batch;
    kiln_tensor inside =
        kiln_logical_and(batch, kiln_greater_equal(batch, indices, elements_integer(call, 0)),
                         kiln_less(batch, indices, elements_integer(call, extent)));
    call->inside = call->inside.id ? kiln_logical_and(batch, call->inside, inside) : inside;
    add_positions(call, indices, stride);
}

/* -1 is nowhere. */
static kiln_tensor numbers_of(const struct call *call)
{
    return kiln_where(call->batch, call->inside, call->numbers,
                      kiln_constant(call->batch, KILN_I32, -1));
}

/* x with its dimensions before `to` as one. */
static kiln_tensor flatten(const struct call *call, kiln_tensor x, uint32_t to)
{
    struct kiln__shape flat = {.rank = 1, .dims = {1}};
    for (uint32_t d = 0; d < call->x.rank; d++)
        if (d < to)
            flat.dims[0] *= call->x.dims[d];
        else
            flat.dims[flat.rank++] = call->x.dims[d];
    return call->x.rank == flat.rank ? x : kiln_reshape(call->batch, x, flat.rank, flat.dims);
}

/* How far neighbours along a dimension of x are apart, in parts of the dimensions from `to` on. */
static size_t stride_of(const struct call *call, uint32_t dimension, uint32_t to)
{
    size_t stride = 1;
    for (uint32_t d = dimension + 1; d < to; d++)
        stride *= call->x.dims[d];
    return stride;
}

/* ---- single elements ---- */

static bool check_elements(const struct call *call, uint32_t axis)
{
    bool fits = call->indices.rank == call->x.rank;
    for (uint32_t d = 0; fits && d < call->x.rank; d++)
        fits = d == axis || call->indices.dims[d] <= call->x.dims[d];
    if (!fits && !call->batch->error.status)
        kiln__fail(&call->batch->error, KILN_SHAPE_MISMATCH,
                   "%s: indices of shape %s name no elements of shape %s along axis %u", call->name,
                   kiln__shape_text(&call->indices).text, kiln__shape_text(&call->x).text, axis);
    return fits;
}

/* The number in x of the element that each index names. */
static bool number_elements(struct call *call, kiln_tensor x, kiln_tensor indices, int axis,
                            kiln_tensor *numbers)
{
    uint32_t at;
    if (!elements_begin(call, x, indices) ||
        !kiln__find_axis(call->batch, call->name, axis, call->x.rank, &at) ||
        !check_elements(call, at))
        return false;
    for (uint32_t d = 0; d < call->x.rank; d++) {
        size_t stride = stride_of(call, d, call->x.rank);
        if (d == at)
            add_indices(call, whole(call, indices), call->x.dims[d], stride);
        else if (call->indices.dims[d] > 1)
            add_positions(call,
                          kiln_iota(call->batch, call->indices.rank, call->indices.dims, (int)d),
                          stride);
    }
    *numbers = numbers_of(call);
    return !call->batch->error.status;
}

kiln_tensor kiln_gather_elements(kiln_batch *batch, kiln_tensor x, kiln_tensor indices, int axis)
{
    KILN__CALL(batch);
    struct call call = {.batch = batch, .name = __func__};
    kiln_tensor numbers;
    if (!number_elements(&call, x, indices, axis, &numbers))
        return kiln__none;
    return kiln_gather(batch, flatten(&call, x, call.x.rank), numbers, 0);
}

/* Operands that a scatter takes as they are. */
static bool check_values(const struct call *call, kiln_tensor x, kiln_tensor values,
                         const struct kiln__shape *shape)
{
    const struct kiln__node *data = kiln__batch_node(call->batch, x, call->name, "x");
    const struct kiln__node *given = kiln__batch_node(call->batch, values, call->name, "values");
    if (!data || !given)
        return false;
    if (kiln__node_computed(data) != kiln__node_computed(given))
        kiln__fail(&call->batch->error, KILN_TYPE_MISMATCH,
                   "%s: x is %s and values are %s; cast one of them", call->name,
                   kiln_type_name(data->type), kiln_type_name(given->type));
    else if (!kiln__shape_equal(&given->shape, shape))
        kiln__fail(&call->batch->error, KILN_SHAPE_MISMATCH,
                   "%s: values of shape %s are not what indices of shape %s pick from shape %s, %s",
                   call->name, kiln__shape_text(&given->shape).text,
                   kiln__shape_text(&call->indices).text, kiln__shape_text(&call->x).text,
                   kiln__shape_text(shape).text);
    return !call->batch->error.status;
}

kiln_tensor kiln_scatter_elements(kiln_batch *batch, kiln_tensor x, kiln_tensor indices,
                                  kiln_tensor values, int axis, kiln_scatter_mode mode)
{
    KILN__CALL(batch);
    struct call call = {.batch = batch, .name = __func__};
    kiln_tensor numbers;
    if (!kiln__batch_is_open(batch, __func__) || !kiln__check_scatter_mode(batch, __func__, mode) ||
        !number_elements(&call, x, indices, axis, &numbers) ||
        !check_values(&call, x, values, &call.indices))
        return kiln__none;
    kiln_tensor flat = kiln__record_scatter(batch, __func__, flatten(&call, x, call.x.rank),
                                            numbers, values, 0, mode);
    return call.x.rank == 1 ? flat : kiln_reshape(batch, flat, call.x.rank, call.x.dims);
}

/* ---- parts ---- */

static bool check_parts(const struct call *call, size_t batch_dims, uint32_t *depth)
{
    uint32_t last = call->indices.rank ? call->indices.rank - 1 : 0;
    bool fits = call->indices.rank > batch_dims && call->x.rank >= batch_dims;
    for (size_t d = 0; fits && d < batch_dims; d++)
        fits = call->indices.dims[d] == call->x.dims[d];
    fits = fits && call->indices.dims[last] >= 1 &&
           call->indices.dims[last] <= call->x.rank - batch_dims;
    if (!fits)
        kiln__fail(&call->batch->error, KILN_SHAPE_MISMATCH,
                   "%s: the last dimension of indices of shape %s names no dimensions of shape %s "
                   "behind the first %zu, which must be the same of both",
                   call->name, kiln__shape_text(&call->indices).text,
                   kiln__shape_text(&call->x).text, batch_dims);
    else
        *depth = (uint32_t)call->indices.dims[last];
    return fits;
}

/* Positions in dimension number k of those that the last one of indices is for. */
static kiln_tensor column(const struct call *call, kiln_tensor indices, uint32_t k)
{
    int64_t start[KILN_MAX_RANK] = {0}, stop[KILN_MAX_RANK];
    for (uint32_t d = 0; d < call->indices.rank; d++)
        stop[d] = (int64_t)call->indices.dims[d];
    start[call->indices.rank - 1] = k;
    stop[call->indices.rank - 1] = (int64_t)k + 1;
    return kiln_reshape(call->batch, kiln_slice(call->batch, indices, start, stop, NULL),
                        call->indices.rank - 1, call->indices.dims);
}

/* The number of the part that each position names; the parts are x's dimensions from *to on. */
static bool number_parts(struct call *call, kiln_tensor x, kiln_tensor indices, size_t batch_dims,
                         uint32_t *to, kiln_tensor *numbers)
{
    uint32_t depth;
    if (!elements_begin(call, x, indices) || !check_parts(call, batch_dims, &depth))
        return false;
    *to = (uint32_t)batch_dims + depth;
    indices = whole(call, indices);
    for (uint32_t d = 0; d < *to; d++) {
        size_t stride = stride_of(call, d, *to);
        if (d < batch_dims)
            add_positions(
                call, kiln_iota(call->batch, call->indices.rank - 1, call->indices.dims, (int)d),
                stride);
        else
            add_indices(call, column(call, indices, d - (uint32_t)batch_dims), call->x.dims[d],
                        stride);
    }
    *numbers = numbers_of(call);
    return !call->batch->error.status;
}

kiln_tensor kiln_gather_nd(kiln_batch *batch, kiln_tensor x, kiln_tensor indices, size_t batch_dims)
{
    KILN__CALL(batch);
    struct call call = {.batch = batch, .name = __func__};
    kiln_tensor numbers;
    uint32_t to;
    if (!number_parts(&call, x, indices, batch_dims, &to, &numbers))
        return kiln__none;
    uint32_t rank = call.indices.rank - 1 + call.x.rank - to;
    if (rank > KILN_MAX_RANK) {
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                   "%s: indices of shape %s in shape %s make %u dimensions, and 8 are the most",
                   __func__, kiln__shape_text(&call.indices).text, kiln__shape_text(&call.x).text,
                   rank);
        return kiln__none;
    }
    return kiln_gather(batch, flatten(&call, x, to), numbers, 0);
}

kiln_tensor kiln_scatter_nd(kiln_batch *batch, kiln_tensor x, kiln_tensor indices,
                            kiln_tensor values, kiln_scatter_mode mode)
{
    KILN__CALL(batch);
    struct call call = {.batch = batch, .name = __func__};
    struct kiln__shape shape = {0};
    kiln_tensor numbers;
    uint32_t to;
    if (!kiln__batch_is_open(batch, __func__) || !kiln__check_scatter_mode(batch, __func__, mode) ||
        !number_parts(&call, x, indices, 0, &to, &numbers))
        return kiln__none;
    for (uint32_t d = 0; d + 1 < call.indices.rank; d++)
        shape.dims[shape.rank++] = call.indices.dims[d];
    for (uint32_t d = to; d < call.x.rank && shape.rank < KILN_MAX_RANK; d++)
        shape.dims[shape.rank++] = call.x.dims[d];
    if (!check_values(&call, x, values, &shape))
        return kiln__none;
    kiln_tensor flat =
        kiln__record_scatter(batch, __func__, flatten(&call, x, to), numbers, values, 0, mode);
    return to == 1 ? flat : kiln_reshape(batch, flat, call.x.rank, call.x.dims);
}

/* ---- triangles ---- */

kiln_tensor kiln_triangle(kiln_batch *batch, kiln_tensor x, int upper, int64_t diagonal)
{
    KILN__CALL(batch);
    const struct kiln__node *input = kiln__batch_node(batch, x, __func__, "x");
    if (!input)
        return kiln__none;
    const struct kiln__shape shape = input->shape;
    const kiln_type type = kiln__node_computed(input);
    if (shape.rank < 2) {
        kiln__fail(&batch->error, KILN_SHAPE_MISMATCH, "%s: x of shape %s has no rows and columns",
                   __func__, kiln__shape_text(&shape).text);
        return kiln__none;
    }
    const size_t *last = shape.dims + shape.rank - 2;
    const int64_t rows = (int64_t)last[0], columns = (int64_t)last[1];
    diagonal = diagonal < -rows ? -rows : diagonal > columns ? columns : diagonal;
    kiln_tensor edge = kiln_add(batch, kiln_iota(batch, 2, last, 0),
                                kiln_constant(batch, KILN_I32, (double)diagonal));
    kiln_tensor column = kiln_iota(batch, 2, last, 1);
    kiln_tensor kept =
        upper ? kiln_greater_equal(batch, column, edge) : kiln_less_equal(batch, column, edge);
    return kiln_where(batch, kept, x, kiln_constant(batch, type, 0));
}
