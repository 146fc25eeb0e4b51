/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products: movements around one node. */
#include <kiln/elementwise.h>
#include <kiln/movement.h>
#include <kiln/product.h>
#include <kiln/reductions.h>

#include "record/call.h"
#include "record/operations.h"

struct operand {
    kiln_tensor tensor;
    struct kiln__shape shape;
};

/* Bring an operand to two dimensions or more: a vector is a row on the left, a column on the
 * right. */
static bool product_prepare(kiln_batch *batch, const char *call, const char *name, bool left,
                            bool transposed, struct operand *operand)
{
    const struct kiln__node *node = kiln__batch_floating(batch, operand->tensor, call, name);
    if (!node)
        return false;
    if (node->shape.rank == 0 || (transposed && node->shape.rank < 2))
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
    operand->shape = kiln__tensor_node(batch, operand->tensor)->shape;
    return true;
}

/* Broadcast the leading dimensions of an operand to those of the result. */
static bool broadcast_leading(kiln_batch *batch, const struct kiln__shape *result,
                              struct operand *operand)
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
    struct kiln__node node = {
        .kind = KILN__MATMUL, .op = batch->product, .type = KILN_F32, .n_inputs = 2};
    kiln_status status = product_shape(&a->shape, &b->shape, &node.shape);
    if (status) {
        kiln__fail(&batch->error, status, "%s: shapes %s and %s %s", call,
                   kiln__shape_text(&a->shape).text, kiln__shape_text(&b->shape).text,
                   status == KILN_TOO_LARGE
                       ? "have a product with too many elements"
                       : "do not fit: a's last dimension must be b's last but one, and leading "
                         "dimensions must broadcast");
        return kiln__none;
    }
    if (!broadcast_leading(batch, &node.shape, a) || !broadcast_leading(batch, &node.shape, b))
        return kiln__none;
    /* With nothing to add up there is nothing to save: angles of positions are such products. */
    if (kiln__product_narrow(node.op) && a->shape.dims[a->shape.rank - 1] == 1)
        node.op = KILN__PRODUCT_EXACT;
    node.input[0] = kiln__tensor_index(a->tensor);
    node.input[1] = kiln__tensor_index(b->tensor);
    return kiln__batch_record(batch, &node, call);
}

/* A vector's dimension of 1 goes again. */
static kiln_tensor drop_vectors(kiln_batch *batch, kiln_tensor c, bool row, bool column)
{
    if (batch->error.status || !(row || column))
        return c;
    struct kiln__shape shape = kiln__tensor_node(batch, c)->shape;
    uint32_t m = shape.rank - 2;
    if (column)
        shape.rank--;
    if (row) {
        shape.dims[m] = shape.dims[m + 1];
        shape.rank--;
    }
    return kiln_reshape(batch, c, shape.rank, shape.dims);
}

kiln_tensor kiln__record_matmul(kiln_batch *batch, const char *call, kiln_tensor a,
                                bool transpose_a, kiln_tensor b, bool transpose_b)
{
    struct operand left = {.tensor = a}, right = {.tensor = b};
    const struct kiln__node *x = kiln__batch_node(batch, a, call, "a");
    bool row = x && x->shape.rank == 1;
    const struct kiln__node *y = x ? kiln__batch_node(batch, b, call, "b") : NULL;
    bool column = y && y->shape.rank == 1;
    if (!y || !product_prepare(batch, call, "a", true, transpose_a, &left) ||
        !product_prepare(batch, call, "b", false, transpose_b, &right))
        return kiln__none;
    return drop_vectors(batch, record_product(batch, call, &left, &right), row, column);
}

kiln_tensor kiln_matmul(kiln_batch *batch, kiln_tensor a, kiln_tensor b)
{
    KILN__CALL(batch);
    return kiln__record_matmul(batch, __func__, a, false, b, false);
}

kiln_tensor kiln_matmul_transposed(kiln_batch *batch, kiln_tensor a, int transpose_a, kiln_tensor b,
                                   int transpose_b)
{
    KILN__CALL(batch);
    return kiln__record_matmul(batch, __func__, a, transpose_a, b, transpose_b);
}

kiln_tensor kiln_dot(kiln_batch *batch, kiln_tensor a, kiln_tensor b)
{
    KILN__CALL(batch);
    const struct kiln__node *x = kiln__batch_node(batch, a, __func__, "a");
    const struct kiln__node *y = x ? kiln__batch_node(batch, b, __func__, "b") : NULL;
    if (!y)
        return kiln__none;
    if (x->shape.rank != 1 || !kiln__shape_equal(&x->shape, &y->shape)) {
        kiln__fail(&batch->error, KILN_SHAPE_MISMATCH,
                   "%s: shapes %s and %s are not two vectors of one length", __func__,
                   kiln__shape_text(&x->shape).text, kiln__shape_text(&y->shape).text);
        return kiln__none;
    }
    if (kiln__node_computed(x) != kiln__node_computed(y)) {
        kiln__fail(&batch->error, KILN_TYPE_MISMATCH,
                   "%s: operands are %s and %s; cast one of them", __func__,
                   kiln_type_name(x->type), kiln_type_name(y->type));
        return kiln__none;
    }
    return kiln_sum(batch, kiln_mul(batch, a, b), 0, NULL, 0);
}
