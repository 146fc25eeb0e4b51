/* SPDX-License-Identifier: Apache-2.0 */
/* The random generator, operand pool and choice helpers of random batches. */
#include "random_pool.h"

#include <criterion/criterion.h>

#include "ops/ops.h"

static uint64_t structure;

void random_structure(uint64_t seed)
{
    structure = seed * 2 + 1;
}

uint32_t choose(uint32_t below)
{
    structure = structure * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((structure >> 33) * below >> 31);
}

bool chance(uint32_t one_in)
{
    return choose(one_in) == 0;
}

size_t pick(const size_t *from, size_t count)
{
    return from[check_random((uint32_t)count)];
}

size_t count_of(const struct operand *x)
{
    size_t count = 1;
    for (size_t d = 0; d < x->rank; d++)
        count *= x->dims[d];
    return count;
}

bool is_small(const struct operand *x)
{
    return count_of(x) <= MOST_ELEMENTS / 4;
}

struct operand describe(const struct pool *pool, kiln_tensor tensor)
{
    struct operand operand = {.tensor = tensor};
    expect_ok(kiln_tensor_shape(pool->batch, tensor, &operand.stored, &operand.rank, operand.dims));
    operand.type = kiln__type_row(operand.stored)->computed;
    return operand;
}

/* One that many read; recent ones more often than others: graphs grow deep, not only wide. */
struct operand any_operand(const struct pool *pool)
{
    if (chance(4))
        return describe(pool, pool->focus);
    size_t reach = chance(3) || pool->count < 4 ? pool->count : 3;
    return describe(pool, pool->tensors[pool->count - 1 - choose((uint32_t)reach)]);
}

kiln_type any_type(void)
{
    static const kiln_type types[] = {KILN_F32, KILN_F32, KILN_F32, KILN_F32,
                                      KILN_I32, KILN_U8,  KILN_I64, KILN_I8};
    return stored_as(types[choose(8)]);
}

/* Sometimes a type that is only stored and read as this one. */
kiln_type stored_as(kiln_type type)
{
    static const kiln_type all[] = {
#define TYPE(name, value, bytes, ctype) KILN_##name,
        KILN_TYPE_MAP(TYPE)
#undef TYPE
    };
    kiln_type other = all[choose(sizeof all / sizeof *all)];
    return chance(2) && kiln__type_row(other)->computed == type ? other : type;
}

/* ---- inputs ---- */

kiln_tensor fresh(const struct pool *pool, kiln_type type, size_t rank, const size_t *dims)
{
    return fresh_stored(pool, stored_as(type), rank, dims);
}

kiln_tensor fresh_stored(const struct pool *pool, kiln_type type, size_t rank, const size_t *dims)
{
    static const enum check_values kinds[] = {CHECK_PLAIN, CHECK_PLAIN, CHECK_FEW, CHECK_FEW,
                                              CHECK_POSITIVE};
    enum check_values kind = kinds[check_random(5)];
    bool special = check_random(25) == 0;
    if (!kiln__type_row(type)->floating && check_random(6) == 0)
        kind = CHECK_WIDE;
    return check_input(pool->batch, type, rank, dims, special ? CHECK_SPECIAL : kind);
}

kiln_tensor numbers(const struct pool *pool, size_t rank, const size_t *dims)
{
    return check_input(pool->batch, KILN_F32, rank, dims,
                       check_random(3) ? CHECK_PLAIN : CHECK_FEW);
}

/* Leading dimensions are dropped, others 1. */
kiln_tensor smaller(const struct pool *pool, const struct operand *x)
{
    size_t dims[KILN_MAX_RANK], drop = x->rank ? choose((uint32_t)x->rank + 1) : 0;
    for (size_t d = drop; d < x->rank; d++)
        dims[d - drop] = chance(3) ? 1 : x->dims[d];
    return fresh(pool, x->type, x->rank - drop, dims);
}

kiln_tensor random_upload(struct pool *pool)
{
    static const uint8_t ranks[] = {0, 1, 2, 2, 2, 3, 3, 3, 4};
    size_t dims[4], rank = ranks[choose(sizeof ranks)], count = 1;
    for (size_t d = 0; d < rank; d++) {
        dims[d] = check_random(60) == 0 ? 0 : PICK(1, 2, 3, 4, 5, 7, 8, 16, 17, 33, 64);
        if (count * dims[d] > MOST_ELEMENTS / 4)
            dims[d] = 1;
        count *= dims[d];
    }
    return fresh(pool, any_type(), rank, dims);
}

kiln_tensor turned_around(const struct pool *pool, const struct operand *x)
{
    size_t axes[KILN_MAX_RANK], last = x->rank - 1;
    int64_t start[KILN_MAX_RANK], stop[KILN_MAX_RANK], step[KILN_MAX_RANK];
    for (size_t d = 0; d < x->rank; d++) {
        axes[d] = d;
        start[d] = (int64_t)x->dims[d] - 1;
        stop[d] = step[d] = -1;
    }
    axes[0] = last;
    axes[last] = 0;
    if (last && x->dims[0] == x->dims[last])
        return kiln_transpose(pool->batch, x->tensor, axes);
    return count_of(x) ? kiln_slice(pool->batch, x->tensor, start, stop, step) : x->tensor;
}

/* Repeated squares and powers leave what f32 can hold. */
kiln_tensor tamed(const struct pool *pool, const struct operand *x)
{
    if (x->type != KILN_F32)
        return kiln_minimum(pool->batch, x->tensor, kiln_constant(pool->batch, x->type, 100));
    return chance(2) ? kiln_tanh(pool->batch, x->tensor)
                     : kiln_minimum(pool->batch,
                                    kiln_maximum(pool->batch, x->tensor,
                                                 kiln_constant(pool->batch, KILN_F32, -4)),
                                    kiln_constant(pool->batch, KILN_F32, 4));
}
