/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that read one tensor twice or more, also through different views. */
#include "random_pool.h"

static const kiln_tensor none = {0};

enum { LONGEST = 64 }; /* of a dimension that products of x with itself go along */

static bool is_matrix(const struct operand *x)
{
    return x->type == KILN_F32 && x->rank >= 2 && x->rank <= 4 && is_small(x) &&
           x->dims[x->rank - 1] <= LONGEST && x->dims[x->rank - 2] <= LONGEST;
}

static kiln_tensor own_product(struct pool *pool)
{
    struct operand x = any_operand(pool);
    if (!is_matrix(&x))
        return none;
    kiln_tensor from = chance(2) ? tamed(pool, &x) : x.tensor;
    bool square = x.dims[x.rank - 1] == x.dims[x.rank - 2];
    int turned = (int)choose(2);
    if (square && chance(2))
        return kiln_matmul(pool->batch, from, from);
    return kiln_matmul_transposed(pool->batch, from, turned, from, !turned);
}

static kiln_tensor own_attention(struct pool *pool)
{
    struct operand x = any_operand(pool);
    return is_matrix(&x) ? kiln_attention(pool->batch, x.tensor, x.tensor, x.tensor, none, NULL)
                         : none;
}

/* Of each row the largest, at the position that a reduction found. */
static kiln_tensor gather_largest(struct pool *pool)
{
    struct operand x = any_operand(pool);
    if (x.rank == 0 || x.rank > 3 || count_of(&x) == 0 || count_of(&x) > 256)
        return none;
    const int last = -1;
    kiln_tensor where = kiln_argmax(pool->batch, x.tensor, 1, &last, 0);
    return kiln_gather(pool->batch, x.tensor, where, (int)choose((uint32_t)x.rank));
}

static kiln_tensor scatter_itself(struct pool *pool)
{
    struct operand x = any_operand(pool);
    if (x.rank == 0 || x.rank > 4 || x.dims[0] > 256 || !is_small(&x))
        return none;
    kiln_tensor rows = kiln_arange(pool->batch, KILN_I32, (double)x.dims[0], 0, -1);
    kiln_tensor on = chance(2) ? x.tensor : turned_around(pool, &x);
    return kiln_scatter_add(pool->batch, on, rows, x.tensor, 0);
}

/* A part of x over another part of it. */
static kiln_tensor place_itself(struct pool *pool)
{
    struct operand x = any_operand(pool);
    int64_t zero[KILN_MAX_RANK] = {0}, stop[KILN_MAX_RANK], one[KILN_MAX_RANK];
    if (x.rank == 0 || x.rank > 4 || x.dims[0] < 2)
        return none;
    for (size_t d = 0; d < x.rank; d++) {
        stop[d] = (int64_t)x.dims[d];
        one[d] = 1;
    }
    stop[0] = stop[0] / 2;
    kiln_tensor part = kiln_slice(pool->batch, x.tensor, zero, stop, one);
    zero[0] = (int64_t)x.dims[0] - stop[0];
    return kiln_insert_slice(pool->batch, x.tensor, part, zero, one);
}

static kiln_tensor centred(struct pool *pool)
{
    struct operand x = any_operand(pool);
    const int axis = chance(2) ? -1 : 0;
    if (x.type != KILN_F32 || x.rank == 0 || count_of(&x) == 0)
        return none;
    return kiln_sub(pool->batch, x.tensor, kiln_mean(pool->batch, x.tensor, 1, &axis, 1));
}

/* The least of what is negated, as an integer too. */
static kiln_tensor least_of_negated(struct pool *pool)
{
    struct operand x = any_operand(pool);
    const int axis = chance(2) ? -1 : 0;
    if (x.rank == 0 || count_of(&x) == 0)
        return none;
    kiln_tensor from = chance(2) ? kiln_cast(pool->batch, x.tensor, KILN_I32) : x.tensor;
    kiln_tensor minus = kiln_neg(pool->batch, from);
    switch (choose(4)) {
    case 0: return kiln_min(pool->batch, minus, 1, &axis, (int)choose(2));
    case 1: return kiln_argmin(pool->batch, minus, 1, &axis, 0);
    case 2: return kiln_minimum(pool->batch, minus, from);
    default: {
        struct operand other = describe(pool, from);
        return kiln_less(pool->batch, minus, kiln_neg(pool->batch, turned_around(pool, &other)));
    }
    }
}

kiln_tensor random_again(struct pool *pool)
{
    static kiln_tensor (*const actions[])(struct pool *) = {
        own_product,    own_product,  own_attention, gather_largest,
        scatter_itself, place_itself, centred,       least_of_negated,
    };
    return actions[choose(sizeof actions / sizeof *actions)](pool);
}
