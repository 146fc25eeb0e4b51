/* SPDX-License-Identifier: Apache-2.0 */
/* Adjoints of gathers and scatters: each is the other's. */
#include <kiln/batch.h>
#include <kiln/elementwise.h>
#include <kiln/movement.h>
#include <kiln/operations.h>

#include "grad/gradient.h"
#include "record/operations.h"

/* Elements that were picked several times get the sum. */
void kiln__adjoint_gather(struct kiln__gradient *walk, const struct kiln__node *node, kiln_tensor y,
                          kiln_tensor g)
{
    kiln_tensor indices = kiln__gradient_operand(walk, node, 1);
    struct kiln__shape shape = kiln__gradient_shape(walk, kiln__gradient_operand(walk, node, 0));
    (void)y;
    if (!kiln__gradient_wants(walk, node->input[0]))
        return;
    kiln_tensor zeros = kiln_fill(walk->batch, KILN_F32, shape.rank, shape.dims, 0);
    kiln__gradient_accumulate(walk, node->input[0],
                              kiln_scatter_add(walk->batch, zeros, indices, g, (int)node->axis));
}

/* `indices` with dimensions of 1 for those of the values that stand around them. */
static kiln_tensor add_outer_axes(struct kiln__gradient *walk, kiln_tensor indices, uint32_t before,
                                  uint32_t rank)
{
    struct kiln__shape shape = kiln__gradient_shape(walk, indices);
    size_t dims[KILN_MAX_RANK];
    for (uint32_t d = 0; d < rank; d++)
        dims[d] = d >= before && d - before < shape.rank ? shape.dims[d - before] : 1;
    return kiln_reshape(walk->batch, indices, rank, dims);
}

/* A scatter's derivatives, all over the same few tensors. */
struct scatter {
    kiln_batch *batch;
    kiln_tensor base, indices, values, y, g;
    int axis;
};

static kiln_tensor grad_gather_number(const struct scatter *s, double value)
{
    return kiln_constant(s->batch, KILN_F32, value);
}

static kiln_tensor as_numbers(const struct scatter *s, kiln_tensor mask)
{
    return kiln_where(s->batch, mask, grad_gather_number(s, 1), grad_gather_number(s, 0));
}

static kiln_tensor is_zero(const struct scatter *s, kiln_tensor x)
{
    return as_numbers(s, kiln_equal(s->batch, x, grad_gather_number(s, 0)));
}

/* x with 1 for its zeros. */
static kiln_tensor without_zeros(const struct scatter *s, kiln_tensor x)
{
    return kiln_where(s->batch, kiln_equal(s->batch, x, grad_gather_number(s, 0)),
                      grad_gather_number(s, 1), x);
}

static kiln_tensor picked(const struct scatter *s, kiln_tensor x)
{
    return kiln_gather(s->batch, x, s->indices, s->axis);
}

static kiln_tensor grad_gather_scattered(const struct scatter *s, kiln_tensor base,
                                         kiln_tensor values, kiln_scatter_mode mode)
{
    return kiln_scatter(s->batch, base, s->indices, values, s->axis, mode);
}

struct derivatives {
    kiln_tensor base, values;
};

static struct derivatives of_sum(struct kiln__gradient *walk, const struct scatter *s)
{
    (void)walk;
    return (struct derivatives){s->g, picked(s, s->g)};
}

/* Of values that come to the same elements the last one's number stays; -1 where none came. */
static struct derivatives of_set(struct kiln__gradient *walk, const struct scatter *s)
{
    struct kiln__shape data = kiln__gradient_shape(walk, s->base);
    struct kiln__shape given = kiln__gradient_shape(walk, s->values);
    struct kiln__shape indices = kiln__gradient_shape(walk, s->indices);
    const size_t extent = data.dims[s->axis], count = kiln__shape_count(&indices);
    size_t along[KILN_MAX_RANK];
    kiln_tensor numbers =
        kiln_reshape(s->batch, kiln_iota(s->batch, 1, &count, 0), indices.rank, indices.dims);
    kiln_tensor last = kiln_scatter(s->batch, kiln_fill(s->batch, KILN_I32, 1, &extent, -1),
                                    s->indices, numbers, 0, KILN_SCATTER_SET);
    kiln_tensor stayed = kiln_equal(s->batch, kiln_gather(s->batch, last, s->indices, 0), numbers);
    for (uint32_t d = 0; d < data.rank; d++)
        along[d] = (int)d == s->axis ? extent : 1;
    kiln_tensor bare = kiln_less(s->batch, kiln_reshape(s->batch, last, data.rank, along),
                                 kiln_constant(s->batch, KILN_I32, 0));
    stayed = add_outer_axes(walk, stayed, (uint32_t)s->axis, given.rank);
    return (struct derivatives){
        kiln_where(s->batch, bare, s->g, grad_gather_number(s, 0)),
        kiln_where(s->batch, stayed, picked(s, s->g), grad_gather_number(s, 0))};
}

/* Each value is alone where it is. */
static struct derivatives of_distinct(struct kiln__gradient *walk, const struct scatter *s)
{
    const struct kiln__shape values = kiln__gradient_shape(walk, s->values);
    kiln_tensor zeros = kiln_fill(s->batch, KILN_F32, values.rank, values.dims, 0);
    return (struct derivatives){
        kiln__record_scatter_distinct(s->batch, "kiln_grad", s->g, s->indices, zeros, s->axis),
        picked(s, s->g)};
}

/* As the product's row of reduce.def: beside zeros of others there is none. */
static struct derivatives of_product(struct kiln__gradient *walk, const struct scatter *s)
{
    (void)walk;
    kiln_tensor base_zero = is_zero(s, s->base), value_zero = is_zero(s, s->values);
    kiln_tensor base = without_zeros(s, s->base), values = without_zeros(s, s->values);
    kiln_tensor zeros = grad_gather_scattered(s, base_zero, value_zero, KILN_SCATTER_ADD);
    kiln_tensor rest =
        kiln_mul(s->batch, s->g, grad_gather_scattered(s, base, values, KILN_SCATTER_MUL));
    return (struct derivatives){
        kiln_where(s->batch, kiln_equal(s->batch, zeros, base_zero), kiln_div(s->batch, rest, base),
                   grad_gather_number(s, 0)),
        kiln_where(s->batch, kiln_equal(s->batch, picked(s, zeros), value_zero),
                   kiln_div(s->batch, picked(s, rest), values), grad_gather_number(s, 0))};
}

/* Those that are equal to the chosen one share evenly. */
static struct derivatives of_choice(struct kiln__gradient *walk, const struct scatter *s)
{
    (void)walk;
    kiln_tensor base = kiln_equal(s->batch, s->base, s->y);
    kiln_tensor values = kiln_equal(s->batch, s->values, picked(s, s->y));
    kiln_tensor sharers =
        grad_gather_scattered(s, as_numbers(s, base), as_numbers(s, values), KILN_SCATTER_ADD);
    kiln_tensor share = kiln_div(s->batch, s->g, sharers);
    return (struct derivatives){
        kiln_where(s->batch, base, share, grad_gather_number(s, 0)),
        kiln_where(s->batch, values, picked(s, share), grad_gather_number(s, 0))};
}

/* A value that was left out gets 0, where gathers say NaN. */
void kiln__adjoint_scatter(struct kiln__gradient *walk, const struct kiln__node *node,
                           kiln_tensor y, kiln_tensor g)
{
    static struct derivatives (*const modes[])(struct kiln__gradient *, const struct scatter *) = {
        [KILN_SCATTER_SET] = of_set,     [KILN_SCATTER_ADD] = of_sum,
        [KILN_SCATTER_MUL] = of_product, [KILN_SCATTER_MIN] = of_choice,
        [KILN_SCATTER_MAX] = of_choice,  [KILN__SCATTER_DISTINCT] = of_distinct,
    };
    kiln_batch *batch = walk->batch;
    struct scatter s = {batch,
                        kiln__gradient_operand(walk, node, KILN__SCATTER_BASE),
                        kiln__gradient_operand(walk, node, KILN__SCATTER_INDICES),
                        kiln__gradient_operand(walk, node, KILN__SCATTER_VALUES),
                        y,
                        g,
                        (int)node->axis};
    const uint32_t base = node->input[KILN__SCATTER_BASE];
    const uint32_t values = node->input[KILN__SCATTER_VALUES];
    const double extent = (double)node->shape.dims[node->axis];
    struct derivatives made = modes[node->op](walk, &s);
    kiln__gradient_accumulate(walk, base, made.base);
    if (!kiln__gradient_wants(walk, values))
        return;
    uint32_t rank = kiln__gradient_shape(walk, s.values).rank;
    kiln_tensor at =
        kiln_cast(batch, add_outer_axes(walk, s.indices, (uint32_t)s.axis, rank), KILN_I32);
    kiln_tensor inside =
        kiln_logical_and(batch, kiln_greater_equal(batch, at, kiln_constant(batch, KILN_I32, 0)),
                         kiln_less(batch, at, kiln_constant(batch, KILN_I32, extent)));
    kiln__gradient_accumulate(walk, values,
                              kiln_where(batch, inside, made.values, grad_gather_number(&s, 0)));
}
