/* SPDX-License-Identifier: Apache-2.0 */
/* Adjoints of elementwise rows, reductions and casts: the derivative columns of the tables. */
#include <kiln/movement.h>
#include <kiln/normalization.h>

#include "grad/gradient.h"
#include "record/operations.h"

/* The words of the columns. */
#define OP(name, ...)                                                                              \
    kiln__record_elementwise(batch, KILN__OP_##name, "kiln_grad", (kiln_tensor[3]){__VA_ARGS__})
#define K(value) kiln_constant(batch, KILN_F32, value)
#define NONE kiln__none
#define LARGEST 0x1.fffffep127
#define WITHIN(a, most) OP(maximum, OP(minimum, a, K(most)), K(-(most)))
/* Twice what gelu_tanh takes the tangent of. */
#define GELU_TANH_ANGLE(a)                                                                         \
    OP(mul, WITHIN(a, 20),                                                                         \
       OP(add, K(1.5957691216057308),                                                              \
          OP(mul, K(0.071354816272600255), OP(square, WITHIN(a, 20)))))

/* ---- elementwise ---- */

/* As many columns as the row has operands; numbers need none. */
#define BY_1(by_a) by_a
#define BY_2(by_a, by_b) k == 0 ? (by_a) : (by_b)
#define BY_3(by_a, by_b, by_c) k == 0 ? (by_a) : k == 1 ? (by_b) : (by_c)
#define COUNTED(by_a, by_b, by_c, count, ...) count
#define BY(...) COUNTED(__VA_ARGS__, BY_3, BY_2, BY_1, )(__VA_ARGS__)

/* What flows to operand k: only that operand's expression is recorded. */
static kiln_tensor derivative(kiln_batch *batch, enum kiln__elementwise op, unsigned k,
                              const kiln_tensor *operands, kiln_tensor y, kiln_tensor g)
{
    const kiln_tensor a = operands[0], b = operands[1], c = operands[2];
    (void)c;
    switch (op) {
#define KILN_OP(name, arity, text, types, cost, ulp, device, host, ...)                            \
    case KILN__OP_##name:                                                                          \
        return BY(__VA_ARGS__);
#define KILN_OP_INTERNAL KILN_OP
#include "ops/elementwise.def"
#undef KILN_OP_INTERNAL
#undef KILN_OP
    case KILN__OP_COUNT: break;
    }
    return kiln__none;
}

/* Where operand k of a where() is chosen, of what `chosen` leaves. */
static kiln_tensor choice(kiln_batch *batch, unsigned k, kiln_tensor mask, kiln_tensor chosen)
{
    kiln_tensor own = k == 1 ? mask : OP(logical_not, mask);
    return chosen.id ? OP(logical_and, chosen, own) : own;
}

/* Derivatives at what a where() further on does not choose have no effect, though they be infinite
 * or NaN: 0 times them is 0. */
void kiln__adjoint_elementwise(struct kiln__gradient *walk, const struct kiln__node *node,
                               kiln_tensor y, kiln_tensor g)
{
    const enum kiln__elementwise op = (enum kiln__elementwise)node->op;
    const kiln_tensor chosen = walk->flows[kiln__tensor_index(y)].chosen;
    kiln_batch *batch = walk->batch;
    kiln_tensor operands[3] = {0};
    for (unsigned k = 0; k < node->n_inputs; k++)
        operands[k] = kiln__gradient_operand(walk, node, k);
    for (unsigned k = 0; k < node->n_inputs; k++) {
        if (!kiln__gradient_wants(walk, node->input[k]))
            continue;
        kiln_tensor part = derivative(batch, op, k, operands, y, g), where = chosen;
        if (op == KILN__OP_where)
            where = choice(batch, k, operands[0], chosen);
        else if (chosen.id && part.id != g.id)
            part = OP(where, chosen, part, K(0));
        kiln__gradient_accumulate_where(walk, node->input[k], part, where);
    }
}

/* Integers carry no gradient, so this is f32 to f32. */
void kiln__adjoint_cast(struct kiln__gradient *walk, const struct kiln__node *node, kiln_tensor y,
                        kiln_tensor g)
{
    kiln__gradient_accumulate_where(walk, node->input[0], g,
                                    walk->flows[kiln__tensor_index(y)].chosen);
}

/* ---- reductions ---- */

static size_t read_mask(uint64_t mask, int axes[KILN_MAX_RANK])
{
    size_t count = 0;
    for (int d = 0; d < KILN_MAX_RANK; d++)
        if (mask >> d & 1)
            axes[count++] = d;
    return count;
}

/* A reduction over the axes of a mask, which stay as 1. A mask without axes reduces nothing. */
static kiln_tensor grad_rows_reduce(kiln_batch *batch, enum kiln__reduction op, kiln_tensor x,
                                    uint64_t mask)
{
    int axes[KILN_MAX_RANK];
    size_t count = read_mask(mask, axes);
    return count ? kiln__record_reduction(batch, op, "kiln_grad", x, count, axes, 1) : x;
}

#define REDUCE(name, value) grad_rows_reduce(batch, KILN__REDUCE_##name, value, mask)
#define N kiln_constant(batch, KILN_F32, count)
#define ONE_IF_0(x) OP(where, OP(equal, x, K(0)), K(1), K(0))
#define CHOSEN(x, y) OP(logical_or, OP(equal, x, y), OP(isnan, x))
#define ONE_FOR_0(x) OP(where, OP(equal, x, K(0)), K(1), x)

static kiln_tensor reduce_derivative(kiln_batch *batch, enum kiln__reduction op, uint64_t mask,
                                     double count, kiln_tensor x, kiln_tensor y, kiln_tensor g)
{

    switch (op) {
#define KILN_REDUCE(name, text, kind, types, empty, identity, combine, finish, host, host_end,     \
                    by_x)                                                                          \
    case KILN__REDUCE_##name:                                                                      \
        return by_x;
#include "ops/reduce.def"
#undef KILN_REDUCE
    case KILN__REDUCE_COUNT: break;
    }
    return kiln__none;
}

void kiln__adjoint_reduce(struct kiln__gradient *walk, const struct kiln__node *node, kiln_tensor y,
                          kiln_tensor g)
{
    kiln_tensor x = kiln__gradient_operand(walk, node, 0);
    struct kiln__shape kept = kiln__gradient_shape(walk, x);
    size_t reduced = 1;
    for (uint32_t d = 0; d < kept.rank; d++) {
        if (!(node->axes >> d & 1))
            continue;
        reduced *= kept.dims[d];
        kept.dims[d] = 1;
    }
    y = kiln_reshape(walk->batch, y, kept.rank, kept.dims);
    g = kiln_reshape(walk->batch, g, kept.rank, kept.dims);
    kiln__gradient_accumulate(walk, node->input[0],
                              reduce_derivative(walk->batch, (enum kiln__reduction)node->op,
                                                node->axes, (double)reduced, x, y, g));
}

/* An element is part of every sum from its own on: the sums of g from the other end. */
void kiln__adjoint_scan(struct kiln__gradient *walk, const struct kiln__node *node, kiln_tensor y,
                        kiln_tensor g)
{
    (void)y;
    int axis = (int)kiln__scan_axis(node), forward = node->op == KILN__SCAN_FORWARD;
    kiln__gradient_accumulate(walk, node->input[0], kiln_cumsum(walk->batch, g, axis, forward));
}
