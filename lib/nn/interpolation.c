/* SPDX-License-Identifier: Apache-2.0 */
/* Interpolations as the operations that they are made of. */
#include <kiln/interpolation.h>

#include "record/call.h"
#include "record/operations.h"

/* A cosine beyond this, or below its negative, has no angle that f32 can tell from a straight one;
 * the chord differs from such an arc by 1.3e-7 of its vectors. */
#define STRAIGHT (1 - 1e-6)

/* Rows and numbers on behalf of the call `call`. */
#define OP(row, ...)                                                                               \
    kiln__record_elementwise(batch, KILN__OP_##row, call, (kiln_tensor[3]){__VA_ARGS__})
#define K(value) kiln__batch_number(batch, KILN_F32, value, call)

/* The nodes of the operands: of this batch, and f32. */
static bool check_operands(kiln_batch *batch, const char *call, const kiln_tensor operands[3],
                           const struct kiln__node *nodes[3])
{
    static const char *const names[3] = {"a", "b", "weight"};
    for (unsigned i = 0; i < 3; i++) {
        nodes[i] = kiln__batch_floating(batch, operands[i], call, names[i]);
        if (!nodes[i])
            return false;
    }
    return true;
}

/* From the nearer end, so that both are met exactly. */
kiln_tensor kiln_lerp(kiln_batch *batch, kiln_tensor a, kiln_tensor b, kiln_tensor weight)
{
    KILN__CALL(batch);
    const char *call = __func__;
    const struct kiln__node *nodes[3];
    if (!check_operands(batch, call, (kiln_tensor[3]){a, b, weight}, nodes))
        return kiln__none;
    kiln_tensor way = OP(sub, b, a);
    kiln_tensor from_a = OP(fma, weight, way, a);
    kiln_tensor from_b = OP(fma, OP(sub, weight, K(1)), way, b);
    return OP(where, OP(less, weight, K(0.5)), from_a, from_b);
}

/* ---- along an arc ---- */

static kiln_tensor sum(kiln_batch *batch, const char *call, kiln_tensor x)
{
    return kiln__record_reduction(batch, KILN__REDUCE_sum, call, x, 1, (int[]){-1}, 1);
}

/* The angle between a and b, and a mask of where there is one; elsewhere the angle is a right one,
 * which no later operation, nor a derivative, makes infinite. */
static kiln_tensor angle_between(kiln_batch *batch, const char *call, kiln_tensor a, kiln_tensor b,
                                 kiln_tensor *is_arc)
{
    kiln_tensor aa = sum(batch, call, OP(square, a)), bb = sum(batch, call, OP(square, b));
    kiln_tensor have_length = OP(logical_and, OP(greater, aa, K(0)), OP(greater, bb, K(0)));
    kiln_tensor length_a = OP(sqrt, OP(where, have_length, aa, K(1)));
    kiln_tensor length_b = OP(sqrt, OP(where, have_length, bb, K(1)));
    kiln_tensor product = sum(batch, call, OP(mul, a, b));
    kiln_tensor cosine = OP(div, OP(div, product, length_a), length_b);
    *is_arc = OP(logical_and, have_length, OP(less, OP(abs, cosine), K(STRAIGHT)));
    return OP(acos, OP(where, *is_arc, cosine, K(0)));
}

/* sin(t * angle) / sin(angle), or t where there is no arc. */
static kiln_tensor slerp_weight(kiln_batch *batch, const char *call, kiln_tensor t,
                                kiln_tensor angle, kiln_tensor is_arc)
{
    kiln_tensor part = OP(div, OP(sin, OP(mul, t, angle)), OP(sin, angle));
    return OP(where, is_arc, part, t);
}

kiln_tensor kiln_slerp(kiln_batch *batch, kiln_tensor a, kiln_tensor b, kiln_tensor weight)
{
    KILN__CALL(batch);
    const char *call = __func__;
    const struct kiln__node *nodes[3];
    if (!check_operands(batch, call, (kiln_tensor[3]){a, b, weight}, nodes))
        return kiln__none;
    const struct kiln__shape *shape = &nodes[0]->shape, *other = &nodes[1]->shape;
    if (!kiln__shape_equal(shape, other))
        kiln__fail(&batch->error, KILN_SHAPE_MISMATCH,
                   "%s: a is %s and b is %s; they must be equal", call,
                   kiln__shape_text(shape).text, kiln__shape_text(other).text);
    else if (shape->rank == 0)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: a and b are scalars, not vectors",
                   call);
    if (batch->error.status)
        return kiln__none;
    kiln_tensor is_arc, angle = angle_between(batch, call, a, b, &is_arc);
    kiln_tensor of_a = slerp_weight(batch, call, OP(sub, K(1), weight), angle, is_arc);
    kiln_tensor of_b = slerp_weight(batch, call, weight, angle, is_arc);
    return OP(fma, of_a, a, OP(mul, of_b, b));
}
