/* SPDX-License-Identifier: Apache-2.0 */
/* Quantising to i8, and products of what is quantised: rows and products that are there anyway, so
 * that they fuse as those do. Sums of products of i8 are exact in f32 as long as they stay within
 * its 24 bits; longer ones are products of whole numbers, of which the device, or a rewrite, makes
 * sums that are exact as well. */
#include <kiln/elementwise.h>
#include <kiln/gradient.h>
#include <kiln/movement.h>
#include <kiln/operations.h>
#include <kiln/product.h>

#include <float.h>

#include "record/call.h"
#include "record/operations.h"

/* -128 * -128 is 2^14: as many products have a sum of less than 2^31. */
#define EXACT_IN_I32 131071

/* ---- kiln_quantize ---- */

/* Below FLT_MIN devices may flush a scale to 0. A NaN is not below it. */
static kiln_tensor scale_of(kiln_batch *batch, kiln_tensor x, size_t n_axes, const int *axes)
{
    kiln_tensor largest = kiln__record_reduction(batch, KILN__REDUCE_max, "kiln_quantize",
                                                 kiln_abs(batch, x), n_axes, axes, 1);
    kiln_tensor scale = kiln_div(batch, largest, kiln_constant(batch, KILN_F32, 127));
    kiln_tensor small = kiln_less(batch, scale, kiln_constant(batch, KILN_F32, FLT_MIN));
    return kiln_where(batch, small, kiln_constant(batch, KILN_F32, 1), scale);
}

/* x's shape without what the axes reduce. */
static kiln_tensor ones(kiln_batch *batch, struct kiln__shape shape, uint64_t mask)
{
    for (uint32_t d = 0; d < shape.rank; d++)
        if (mask >> d & 1)
            shape.dims[d] = 1;
    return kiln_fill(batch, KILN_F32, shape.rank, shape.dims, 1);
}

kiln_tensor kiln_quantize(kiln_batch *batch, kiln_tensor x, size_t n_axes, const int *axes,
                          kiln_tensor *scale)
{
    KILN__CALL(batch);
    uint64_t mask;
    if (scale)
        *scale = kiln__none;
    const struct kiln__node *node = kiln__batch_floating(batch, x, __func__, "x");
    if (!node || !kiln__read_axes(batch, __func__, &node->shape, n_axes, axes, &mask))
        return kiln__none;
    if (!scale) {
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: scale is NULL", __func__);
        return kiln__none;
    }
    const struct kiln__shape shape = node->shape;
    x = kiln_detach(batch, x);
    kiln_tensor factor =
        kiln__shape_count(&shape) ? scale_of(batch, x, n_axes, axes) : ones(batch, shape, mask);
    kiln_tensor q = kiln_cast(batch, kiln_round(batch, kiln_div(batch, x, factor)), KILN_I8);
    if (batch->error.status)
        return kiln__none;
    *scale = factor;
    return q;
}

/* ---- kiln_matmul_quantized ---- */

#define CALL "kiln_matmul_quantized"

/* An operand, its scale, and which of its dimensions the product adds up over, from the end. */
struct side {
    const char *name, *scale_name;
    kiln_tensor tensor, scale;
    bool transposed, integer;
    uint32_t depth;
    struct kiln__shape shape;
};

/* Casts come before movements: products read movements of casts as they lie in memory. */
static bool quantize_prepare(kiln_batch *batch, struct side *side)
{
    const struct kiln__node *node = kiln__batch_node(batch, side->tensor, CALL, side->name);
    if (!node)
        return false;
    side->integer = node->type == KILN_I8;
    if (!side->integer && !kiln__node_is_floating(node))
        kiln__fail(&batch->error, KILN_TYPE_MISMATCH,
                   "%s: operand %s is %s, and only i8 and floating types are taken; cast it", CALL,
                   side->name, kiln_type_name(node->type));
    else if (node->shape.rank < 2)
        kiln__fail(&batch->error, KILN_SHAPE_MISMATCH,
                   "%s: operand %s of shape %s has too few dimensions", CALL, side->name,
                   kiln__shape_text(&node->shape).text);
    if (batch->error.status)
        return false;
    side->tensor = kiln_cast(batch, side->tensor, KILN_F32);
    if (side->transposed)
        side->tensor = kiln_transpose(batch, side->tensor, NULL);
    if (batch->error.status)
        return false;
    side->shape = kiln__tensor_node(batch, side->tensor)->shape;
    return true;
}

static kiln_tensor quantize_multiply(kiln_batch *batch, const struct side *a, const struct side *b)
{
    size_t k = a->shape.dims[a->shape.rank - 1];
    bool exact = a->integer && b->integer && k == b->shape.dims[b->shape.rank - 2];
    if (!exact || k <= EXACT_IN_I32) {
        const uint8_t usual = batch->product;
        if (a->integer && b->integer)
            batch->product =
                k <= KILN__INTEGERS_IN_F32 ? KILN__PRODUCT_EXACT : KILN__PRODUCT_EXACT_INTEGER;
        kiln_tensor product = kiln__record_matmul(batch, CALL, a->tensor, false, b->tensor, false);
        batch->product = usual;
        return product;
    }
    kiln__fail(&batch->error, KILN_TOO_LARGE,
               "%s: sums of %zu products of i8 do not fit in i32; at most %d do", CALL, k,
               EXACT_IN_I32);
    return kiln__none;
}

/* The product times a side's scale, which must not enlarge it nor vary along k. */
static kiln_tensor quantize_scaled(kiln_batch *batch, kiln_tensor product, const struct side *side)
{
    if (batch->error.status || side->scale.id == 0)
        return product;
    const struct kiln__node *node =
        kiln__batch_floating(batch, side->scale, CALL, side->scale_name);
    if (!node)
        return kiln__none;
    kiln_tensor scale = side->scale;
    if (side->transposed && node->shape.rank >= 2)
        scale = kiln_transpose(batch, scale, NULL);
    if (batch->error.status)
        return kiln__none;
    struct kiln__shape shape = kiln__tensor_node(batch, scale)->shape,
                       whole = kiln__tensor_node(batch, product)->shape, both;
    bool constant = shape.rank < side->depth || shape.dims[shape.rank - side->depth] == 1;
    if (!constant || !kiln__shape_broadcast(&whole, &shape, &both) ||
        !kiln__shape_equal(&whole, &both)) {
        kiln__fail(&batch->error, KILN_SHAPE_MISMATCH,
                   "%s: %s of shape %s is not one scale for each %s of a product of shape %s", CALL,
                   side->scale_name, kiln__shape_text(&shape).text,
                   side->depth == 1 ? "row" : "column", kiln__shape_text(&whole).text);
        return kiln__none;
    }
    return kiln_mul(batch, product, scale);
}

kiln_tensor kiln_matmul_quantized(kiln_batch *batch, kiln_tensor a, kiln_tensor a_scale,
                                  kiln_tensor b, int transpose_b, kiln_tensor b_scale)
{
    KILN__CALL(batch);
    struct side left = {"a", "a_scale", a, a_scale, .depth = 1};
    struct side right = {"b", "b_scale", b, b_scale, .transposed = transpose_b, .depth = 2};
    if (!quantize_prepare(batch, &left) || !quantize_prepare(batch, &right))
        return kiln__none;
    kiln_tensor product = quantize_multiply(batch, &left, &right);
    return quantize_scaled(batch, quantize_scaled(batch, product, &left), &right);
}
