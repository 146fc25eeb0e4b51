/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that move elements, and matrix products, which are movements around one node. */
#include <kiln/elementwise.h>
#include <kiln/operations.h>
#include <kiln/reductions.h>

#include "api/batch.h"

static const kiln_tensor none = {0};

/* A node over one input, of its type, with the shape left to fill in. */
static bool start(kiln_batch *batch, kiln_tensor x, const char *call, enum kiln__kind kind,
                  unsigned op, struct kiln__node *node)
{
    const struct kiln__node *input = kiln__batch_node(batch, x, call, "x");
    if (!input)
        return false;
    *node = (struct kiln__node){
        .kind = (uint8_t)kind, .op = (uint8_t)op, .type = input->type, .n_inputs = 1};
    node->input[0] = kiln__tensor_index(x);
    node->shape = input->shape;
    return true;
}

static bool check_dims(kiln_batch *batch, const char *call, size_t rank, const size_t *dims,
                       struct kiln__shape *shape)
{
    if (rank && !dims)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: dims is NULL", call);
    else if (rank > KILN_MAX_RANK)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: %zu dimensions, and 8 are the most",
                   call, rank);
    else if (!kiln__shape_make(rank, dims, shape))
        kiln__fail(&batch->error, KILN_TOO_LARGE, "%s: shape %s has too many elements", call,
                   kiln__shape_text(shape).text);
    return !batch->error.status;
}

kiln_tensor kiln_reshape(kiln_batch *batch, kiln_tensor x, size_t rank, const size_t *dims)
{
    struct kiln__node node;
    struct kiln__shape shape;
    if (!start(batch, x, __func__, KILN__RESHAPE, 0, &node) ||
        !check_dims(batch, __func__, rank, dims, &shape))
        return none;
    if (kiln__shape_count(&shape) != kiln__shape_count(&node.shape)) {
        kiln__fail(&batch->error, KILN_SHAPE_MISMATCH,
                   "%s: shape %s has %zu elements and shape %s has %zu", __func__,
                   kiln__shape_text(&node.shape).text, kiln__shape_count(&node.shape),
                   kiln__shape_text(&shape).text, kiln__shape_count(&shape));
        return none;
    }
    node.shape = shape;
    return kiln__batch_record(batch, &node, __func__);
}

/* The default order: the last two dimensions swapped. */
static bool read_order(kiln_batch *batch, const struct kiln__shape *shape, const size_t *axes,
                       size_t order[KILN_MAX_RANK])
{
    uint32_t seen = 0;
    if (!axes && shape->rank < 2)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                   "kiln_transpose: shape %s has no two dimensions to swap",
                   kiln__shape_text(shape).text);
    for (uint32_t d = 0; d < shape->rank && !batch->error.status; d++) {
        order[d] = axes ? axes[d] : d + 2 < shape->rank ? d : 2 * shape->rank - 3 - d;
        if (order[d] >= shape->rank || seen >> order[d] & 1)
            kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                       "kiln_transpose: axes are no order of the %u dimensions of shape %s",
                       shape->rank, kiln__shape_text(shape).text);
        else
            seen |= 1u << order[d];
    }
    return !batch->error.status;
}

kiln_tensor kiln_transpose(kiln_batch *batch, kiln_tensor x, const size_t *axes)
{
    struct kiln__node node;
    size_t order[KILN_MAX_RANK];
    if (!start(batch, x, __func__, KILN__VIEW, KILN__TRANSPOSE, &node))
        return none;
    struct kiln__shape from = node.shape;
    if (!read_order(batch, &from, axes, order))
        return none;
    for (uint32_t d = 0; d < from.rank; d++) {
        node.shape.dims[d] = from.dims[order[d]];
        node.view.source[d] = (int8_t)order[d];
        node.view.step[d] = 1;
    }
    return kiln__batch_record(batch, &node, __func__);
}

/* How many elements start, start + step, ... before stop there are; -1 if one is out of range. The
 * bounds come first: beyond them differences overflow. */
static int64_t count_slice(int64_t start_at, int64_t stop, int64_t step, size_t extent)
{
    if (step == 0)
        return -1;
    if (start_at < 0 || start_at > (int64_t)extent || stop < -1 || stop > (int64_t)extent)
        return -1;
    int64_t span = step > 0 ? stop - start_at : start_at - stop;
    if (span <= 0)
        return 0;
    if (start_at == (int64_t)extent)
        return -1;
    uint64_t size = step > 0 ? (uint64_t)step : -(uint64_t)step;
    return (int64_t)(((uint64_t)span - 1) / size) + 1;
}

static void refuse_slice(kiln_batch *batch, const struct kiln__shape *shape, uint32_t d,
                         int64_t start_at, int64_t stop, int64_t step)
{
    if (step == 0)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                   "kiln_slice: the step of dimension %u is 0", d);
    else
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                   "kiln_slice: %lld to %lld by %lld is not within dimension %u, which has %zu",
                   (long long)start_at, (long long)stop, (long long)step, d, shape->dims[d]);
}

kiln_tensor kiln_slice(kiln_batch *batch, kiln_tensor x, const int64_t *from, const int64_t *stop,
                       const int64_t *step)
{
    struct kiln__node node;
    if (!start(batch, x, __func__, KILN__VIEW, KILN__SLICE, &node))
        return none;
    if (node.shape.rank && (!from || !stop)) {
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: %s is NULL", __func__,
                   from ? "stop" : "start");
        return none;
    }
    for (uint32_t d = 0; d < node.shape.rank; d++) {
        int64_t by = step ? step[d] : 1;
        int64_t count = count_slice(from[d], stop[d], by, node.shape.dims[d]);
        if (count < 0) {
            refuse_slice(batch, &node.shape, d, from[d], stop[d], by);
            return none;
        }
        node.view.source[d] = (int8_t)d;
        node.view.start[d] = count ? from[d] : 0;
        node.view.step[d] = count > 1 ? by : 1; /* products with strides stay in range */
        node.shape.dims[d] = (size_t)count;
    }
    return kiln__batch_record(batch, &node, __func__);
}

kiln_tensor kiln_broadcast(kiln_batch *batch, kiln_tensor x, size_t rank, const size_t *dims)
{
    struct kiln__node node;
    struct kiln__shape shape, both;
    if (!start(batch, x, __func__, KILN__VIEW, KILN__BROADCAST, &node) ||
        !check_dims(batch, __func__, rank, dims, &shape))
        return none;
    struct kiln__shape from = node.shape;
    if (!kiln__shape_broadcast(&from, &shape, &both) || !kiln__shape_equal(&both, &shape)) {
        kiln__fail(&batch->error, KILN_SHAPE_MISMATCH, "%s: shape %s does not broadcast to %s",
                   __func__, kiln__shape_text(&from).text, kiln__shape_text(&shape).text);
        return none;
    }
    node.shape = shape;
    for (uint32_t d = 0; d < shape.rank; d++) {
        int source = (int)d - (int)(shape.rank - from.rank);
        bool repeats = source < 0 || from.dims[source] != shape.dims[d];
        node.view.source[d] = (int8_t)(repeats ? -1 : source);
        node.view.step[d] = !repeats;
    }
    return kiln__batch_record(batch, &node, __func__);
}

/* ---- products ---- */

struct operand {
    kiln_tensor tensor;
    struct kiln__shape shape;
};

/* Bring an operand to two dimensions or more: a vector is a row on the left, a column on the
 * right. */
static bool prepare(kiln_batch *batch, const char *call, const char *name, bool left,
                    bool transposed, struct operand *operand)
{
    const struct kiln__node *node = kiln__batch_node(batch, operand->tensor, call, name);
    if (!node)
        return false;
    if (node->type != KILN_F32)
        kiln__fail(&batch->error, KILN_TYPE_MISMATCH, "%s: operand %s is %s, and only f32 is taken",
                   call, name, kiln_type_name((kiln_type)node->type));
    else if (node->shape.rank == 0 || (transposed && node->shape.rank < 2))
        kiln__fail(&batch->error, KILN_SHAPE_MISMATCH,
                   "%s: operand %s of shape %s has too few "
                   "dimensions",
                   call, name, kiln__shape_text(&node->shape).text);
    if (batch->error.status)
        return false;
    operand->shape = node->shape;
    if (operand->shape.rank == 1) {
        size_t k = operand->shape.dims[0];
        operand->tensor =
            kiln_reshape(batch, operand->tensor, 2, left ? (size_t[]){1, k} : (size_t[]){k, 1});
    } else if (transposed) {
        operand->tensor = kiln_transpose(batch, operand->tensor, NULL);
    }
    if (batch->error.status)
        return false;
    operand->shape = batch->graph.nodes.items[kiln__tensor_index(operand->tensor)].shape;
    return true;
}

/* Broadcast the leading dimensions of an operand to those of the result. */
static bool lead(kiln_batch *batch, const struct kiln__shape *result, struct operand *operand)
{
    struct kiln__shape shape = *result;
    for (uint32_t i = 1; i <= 2; i++)
        shape.dims[shape.rank - i] = operand->shape.dims[operand->shape.rank - i];
    if (!kiln__shape_equal(&shape, &operand->shape))
        operand->tensor = kiln_broadcast(batch, operand->tensor, shape.rank, shape.dims);
    return !batch->error.status;
}

/* The shape of a product. Errors: SHAPE_MISMATCH, TOO_LARGE. */
static kiln_status product_shape(const struct kiln__shape *a, const struct kiln__shape *b,
                                 struct kiln__shape *result)
{
    struct kiln__shape x = *a, y = *b;
    x.dims[--x.rank] = 0;
    x.dims[--x.rank] = 0;
    y.dims[--y.rank] = 0;
    y.dims[--y.rank] = 0;
    if (a->dims[a->rank - 1] != b->dims[b->rank - 2] || !kiln__shape_matches(&x, &y))
        return KILN_SHAPE_MISMATCH;
    if (!kiln__shape_broadcast(&x, &y, result))
        return KILN_TOO_LARGE;
    result->dims[result->rank] = a->dims[a->rank - 2];
    result->dims[result->rank + 1] = b->dims[b->rank - 1];
    return kiln__shape_make(result->rank + 2, result->dims, result) ? KILN_OK : KILN_TOO_LARGE;
}

static kiln_tensor record_product(kiln_batch *batch, const char *call, struct operand *a,
                                  struct operand *b)
{
    struct kiln__node node = {.kind = KILN__MATMUL, .type = KILN_F32, .n_inputs = 2};
    kiln_status status = product_shape(&a->shape, &b->shape, &node.shape);
    if (status) {
        kiln__fail(&batch->error, status, "%s: shapes %s and %s %s", call,
                   kiln__shape_text(&a->shape).text, kiln__shape_text(&b->shape).text,
                   status == KILN_TOO_LARGE
                       ? "have a product with too many elements"
                       : "do not fit: a's last dimension must be b's last but one, and leading "
                         "dimensions must broadcast");
        return none;
    }
    if (!lead(batch, &node.shape, a) || !lead(batch, &node.shape, b))
        return none;
    node.input[0] = kiln__tensor_index(a->tensor);
    node.input[1] = kiln__tensor_index(b->tensor);
    return kiln__batch_record(batch, &node, call);
}

/* A vector's dimension of 1 goes again. */
static kiln_tensor drop_vectors(kiln_batch *batch, kiln_tensor c, bool row, bool column)
{
    if (batch->error.status || !(row || column))
        return c;
    struct kiln__shape shape = batch->graph.nodes.items[kiln__tensor_index(c)].shape;
    uint32_t m = shape.rank - 2;
    if (column)
        shape.rank--;
    if (row) {
        shape.dims[m] = shape.dims[m + 1];
        shape.rank--;
    }
    return kiln_reshape(batch, c, shape.rank, shape.dims);
}

static kiln_tensor multiply(kiln_batch *batch, const char *call, kiln_tensor a, bool transpose_a,
                            kiln_tensor b, bool transpose_b)
{
    struct operand left = {.tensor = a}, right = {.tensor = b};
    const struct kiln__node *x = kiln__batch_node(batch, a, call, "a");
    bool row = x && x->shape.rank == 1;
    const struct kiln__node *y = x ? kiln__batch_node(batch, b, call, "b") : NULL;
    bool column = y && y->shape.rank == 1;
    if (!y || !prepare(batch, call, "a", true, transpose_a, &left) ||
        !prepare(batch, call, "b", false, transpose_b, &right))
        return none;
    return drop_vectors(batch, record_product(batch, call, &left, &right), row, column);
}

kiln_tensor kiln_matmul(kiln_batch *batch, kiln_tensor a, kiln_tensor b)
{
    return multiply(batch, __func__, a, false, b, false);
}

kiln_tensor kiln_matmul_transposed(kiln_batch *batch, kiln_tensor a, int transpose_a, kiln_tensor b,
                                   int transpose_b)
{
    return multiply(batch, __func__, a, transpose_a, b, transpose_b);
}

kiln_tensor kiln_dot(kiln_batch *batch, kiln_tensor a, kiln_tensor b)
{
    const struct kiln__node *x = kiln__batch_node(batch, a, __func__, "a");
    const struct kiln__node *y = x ? kiln__batch_node(batch, b, __func__, "b") : NULL;
    if (!y)
        return none;
    if (x->shape.rank != 1 || !kiln__shape_equal(&x->shape, &y->shape)) {
        kiln__fail(&batch->error, KILN_SHAPE_MISMATCH,
                   "%s: shapes %s and %s are not two vectors of one length", __func__,
                   kiln__shape_text(&x->shape).text, kiln__shape_text(&y->shape).text);
        return none;
    }
    if (x->type != y->type) {
        kiln__fail(&batch->error, KILN_TYPE_MISMATCH,
                   "%s: operands are %s and %s; cast one of them", __func__,
                   kiln_type_name((kiln_type)x->type), kiln_type_name((kiln_type)y->type));
        return none;
    }
    return kiln_sum(batch, kiln_mul(batch, a, b), 0, NULL, 0);
}
