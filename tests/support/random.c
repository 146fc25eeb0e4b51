/* SPDX-License-Identifier: Apache-2.0 */
#include "random.h"

#include <criterion/criterion.h>
#include <string.h>

#include "check.h"
#include "graph/shape.h"
#include "ops/ops.h"

#define MOST_ELEMENTS 20000
#define MOST_TENSORS 64

/* Everything recorded so far that can be an operand. */
struct pool {
    kiln_batch *batch;
    kiln_tensor tensors[MOST_TENSORS];
    size_t count;
};

/* A tensor with what it is. */
struct operand {
    kiln_tensor tensor;
    kiln_type type;
    size_t rank, dims[KILN_MAX_RANK];
};

static bool chance(uint32_t one_in)
{
    return check_random(one_in) == 0;
}

static size_t pick(const size_t *from, size_t count)
{
    return from[check_random((uint32_t)count)];
}
#define PICK(...) pick((size_t[]){__VA_ARGS__}, sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t))

static size_t count_of(const struct operand *x)
{
    size_t count = 1;
    for (size_t d = 0; d < x->rank; d++)
        count *= x->dims[d];
    return count;
}

static struct operand describe(const struct pool *pool, kiln_tensor tensor)
{
    struct operand operand = {.tensor = tensor};
    expect_ok(kiln_tensor_shape(pool->batch, tensor, &operand.type, &operand.rank, operand.dims));
    return operand;
}

/* Recent ones more often: graphs grow deep, not only wide. */
static struct operand any_operand(const struct pool *pool)
{
    size_t reach = chance(3) || pool->count < 4 ? pool->count : 3;
    return describe(pool, pool->tensors[pool->count - 1 - check_random((uint32_t)reach)]);
}

static kiln_tensor fresh(const struct pool *pool, kiln_type type, size_t rank, const size_t *dims)
{
    static const enum check_values kinds[] = {CHECK_PLAIN, CHECK_PLAIN, CHECK_FEW, CHECK_FEW,
                                              CHECK_POSITIVE};
    enum check_values kind = kinds[check_random(5)];
    return check_input(pool->batch, type, rank, dims, chance(25) ? CHECK_SPECIAL : kind);
}

static kiln_type any_type(void)
{
    static const kiln_type types[] = {KILN_F32, KILN_F32, KILN_F32, KILN_I32, KILN_U8};
    return types[check_random(5)];
}

/* ---- actions: each records an operation, or answers the empty tensor if it cannot ---- */

static const kiln_tensor none = {0};

static kiln_tensor upload(struct pool *pool)
{
    size_t dims[4], rank = PICK(0, 1, 2, 2, 2, 3, 3, 3, 4), count = 1;
    for (size_t d = 0; d < rank; d++) {
        dims[d] = chance(60) ? 0 : PICK(1, 2, 3, 4, 5, 7, 8, 16, 17, 33, 64);
        if (count * dims[d] > MOST_ELEMENTS / 4)
            dims[d] = 1;
        count *= dims[d];
    }
    return fresh(pool, any_type(), rank, dims);
}

/* One that broadcasts against x: leading dimensions dropped, others 1. */
static kiln_tensor smaller(const struct pool *pool, const struct operand *x)
{
    size_t dims[KILN_MAX_RANK], drop = x->rank ? check_random((uint32_t)x->rank + 1) : 0;
    for (size_t d = drop; d < x->rank; d++)
        dims[d - drop] = chance(3) ? 1 : x->dims[d];
    return fresh(pool, x->type, x->rank - drop, dims);
}

static bool fit_together(const struct operand *x, const struct operand *y)
{
    struct kiln__shape a, b, both;
    return x->type == y->type && kiln__shape_make(x->rank, x->dims, &a) &&
           kiln__shape_make(y->rank, y->dims, &b) && kiln__shape_broadcast(&a, &b, &both) &&
           kiln__shape_count(&both) <= MOST_ELEMENTS;
}

static kiln_tensor partner(struct pool *pool, const struct operand *x)
{
    for (int tries = 0; tries < 6; tries++) {
        struct operand other = any_operand(pool);
        if (fit_together(x, &other))
            return other.tensor;
    }
    if (chance(3))
        return kiln_constant(pool->batch, x->type, 1 + check_random(3));
    return smaller(pool, x);
}

static kiln_tensor mask_for(struct pool *pool, const struct operand *x)
{
    struct operand mask = *x;
    mask.type = KILN_U8;
    return chance(2) ? smaller(pool, &mask) : kiln_less(pool->batch, x->tensor, partner(pool, x));
}

/* Repeated squares and powers leave what f32 can hold. */
static kiln_tensor tamed(struct pool *pool, const struct operand *x)
{
    if (x->type != KILN_F32)
        return kiln_minimum(pool->batch, x->tensor, kiln_constant(pool->batch, x->type, 100));
    return chance(2) ? kiln_tanh(pool->batch, x->tensor)
                     : kiln_minimum(pool->batch,
                                    kiln_maximum(pool->batch, x->tensor,
                                                 kiln_constant(pool->batch, KILN_F32, -4)),
                                    kiln_constant(pool->batch, KILN_F32, 4));
}

static bool grows(unsigned op)
{
    static const bool rows[KILN__OP_COUNT] = {
        [KILN__OP_exp] = true,    [KILN__OP_exp2] = true, [KILN__OP_expm1] = true,
        [KILN__OP_square] = true, [KILN__OP_mul] = true,  [KILN__OP_pow] = true,
        [KILN__OP_fma] = true};
    return rows[op];
}

static kiln_tensor elementwise(struct pool *pool)
{
    struct operand x = any_operand(pool);
    unsigned op = check_random(KILN__OP_COUNT);
    const struct kiln__elementwise_row *row = &kiln__elementwise_rows[op];
    if (!kiln__types_accept((enum kiln__types)row->types, x.type))
        return none;
    kiln_tensor operands[3] = {grows(op) ? tamed(pool, &x) : x.tensor};
    if (row->types == KILN__SELECTION)
        operands[0] = mask_for(pool, &x);
    for (unsigned k = 1; k < row->tensors; k++)
        operands[k] = k == 2 ? x.tensor : partner(pool, &x);
    if (row->tensors == 2 && chance(2)) {
        kiln_tensor first = operands[0];
        operands[0] = operands[1];
        operands[1] = first;
    }
    return check_elementwise(pool->batch, op, operands);
}

static kiln_tensor cast(struct pool *pool)
{
    return kiln_cast(pool->batch, any_operand(pool).tensor, any_type());
}

static kiln_tensor reduce(struct pool *pool)
{
    struct operand x = any_operand(pool);
    unsigned op = check_random(KILN__REDUCE_COUNT);
    int axes[KILN_MAX_RANK];
    size_t count = 0, reduced = 1;
    for (size_t d = 0; d < x.rank; d++)
        if (chance(2))
            axes[count++] = (int)d;
    for (size_t d = 0; d < x.rank; d++)
        reduced *= x.dims[d];
    const struct kiln__reduce_row *row = &kiln__reduce_rows[op];
    if (!kiln__types_accept((enum kiln__types)row->types, x.type) || (reduced == 0 && !row->empty))
        return none;
    return check_reduction(pool->batch, op, x.tensor, count, axes, (int)check_random(2));
}

static kiln_tensor transpose(struct pool *pool)
{
    struct operand x = any_operand(pool);
    size_t axes[KILN_MAX_RANK];
    for (size_t d = 0; d < x.rank; d++)
        axes[d] = d;
    for (size_t d = x.rank; d > 1; d--) {
        size_t other = check_random((uint32_t)d), kept = axes[d - 1];
        axes[d - 1] = axes[other];
        axes[other] = kept;
    }
    return x.rank ? kiln_transpose(pool->batch, x.tensor, axes) : none;
}

static kiln_tensor slice(struct pool *pool)
{
    struct operand x = any_operand(pool);
    int64_t start[KILN_MAX_RANK], stop[KILN_MAX_RANK], step[KILN_MAX_RANK];
    for (size_t d = 0; d < x.rank; d++) {
        uint32_t extent = (uint32_t)x.dims[d];
        step[d] = (int64_t)PICK(1, 1, 2, 3);
        start[d] = extent ? check_random(extent) / 2 : 0;
        stop[d] = extent ? start[d] + 1 + check_random(extent - (uint32_t)start[d]) : 0;
        if (extent && chance(3)) { /* the same part the other way round */
            int64_t first = start[d];
            start[d] = stop[d] - 1;
            stop[d] = first - 1;
            step[d] = -step[d];
        }
    }
    return kiln_slice(pool->batch, x.tensor, start, stop, step);
}

/* Two dimensions become one, or one becomes two. */
static kiln_tensor reshape(struct pool *pool)
{
    struct operand x = any_operand(pool);
    size_t dims[KILN_MAX_RANK + 1], at = x.rank ? check_random((uint32_t)x.rank) : 0, rank = 0;
    size_t part = PICK(1, 2, 3, 16);
    bool split = x.rank < 5 && (x.rank == 0 || (x.dims[at] % part == 0 && chance(2)));
    for (size_t d = 0; d < x.rank; d++) {
        if (split && d == at) {
            dims[rank++] = part;
            dims[rank++] = x.dims[d] / part;
        } else if (!split && d == at && d + 1 < x.rank) {
            dims[rank++] = x.dims[d] * x.dims[d + 1];
            d++;
        } else {
            dims[rank++] = x.dims[d];
        }
    }
    if (x.rank == 0)
        dims[rank++] = 1;
    return kiln_reshape(pool->batch, x.tensor, rank, dims);
}

static kiln_tensor broadcast(struct pool *pool)
{
    struct operand x = any_operand(pool);
    size_t dims[KILN_MAX_RANK + 1], more = chance(2) && x.rank < 5, count = 1;
    if (more)
        dims[0] = PICK(1, 2, 5);
    for (size_t d = 0; d < x.rank; d++)
        dims[d + more] = x.dims[d] == 1 ? PICK(1, 3, 17) : x.dims[d];
    for (size_t d = 0; d < x.rank + more; d++)
        count *= dims[d];
    return count <= MOST_ELEMENTS ? kiln_broadcast(pool->batch, x.tensor, x.rank + more, dims)
                                  : none;
}

static kiln_tensor product(struct pool *pool)
{
    struct operand x = any_operand(pool);
    if (x.type != KILN_F32 || x.rank == 0)
        return none;
    size_t n = PICK(1, 2, 7, 16, 33), k = x.dims[x.rank - 1];
    kiln_tensor y = fresh(pool, KILN_F32, DIMS(k, n));
    if (chance(2) && k * n <= MOST_ELEMENTS)
        y = kiln_transpose(pool->batch, fresh(pool, KILN_F32, DIMS(n, k)), NULL);
    bool fits = !k || count_of(&x) / k * n <= MOST_ELEMENTS;
    return fits ? kiln_matmul(pool->batch, tamed(pool, &x), y) : none;
}

/* ---- a whole batch ---- */

static kiln_tensor act(struct pool *pool)
{
    static kiln_tensor (*const actions[])(struct pool *) = {
        elementwise, elementwise, elementwise, elementwise, elementwise, cast,   reduce,
        reduce,      transpose,   slice,       reshape,     broadcast,   upload, product,
    };
    return actions[check_random(sizeof actions / sizeof *actions)](pool);
}

void random_record(kiln_batch *batch, uint64_t seed, size_t operations)
{
    struct pool pool = {.batch = batch};
    check_seed(seed);
    pool.tensors[pool.count++] = upload(&pool);
    while (pool.count < operations + 1 && pool.count < MOST_TENSORS) {
        kiln_tensor made = act(&pool);
        cr_assert_eq(kiln_batch_status(batch), KILN_OK, "seed %llu: %s", (unsigned long long)seed,
                     kiln_batch_error(batch));
        if (made.id)
            pool.tensors[pool.count++] = made;
    }
    check_read(batch, pool.tensors[pool.count - 1]);
    for (size_t more = check_random(3); more > 0; more--)
        check_read(batch, any_operand(&pool).tensor);
}

void random_check(uint64_t first, uint64_t count, size_t operations)
{
    size_t failures = 0;
    for (uint64_t seed = first; seed < first + count && failures < 3; seed++) {
        kiln_batch *batch = check_begin();
        random_record(batch, seed, operations);
        bool good = check_run(batch);
        check_end(batch);
        failures += !good;
        cr_expect(good, "this was seed %llu of %zu operations", (unsigned long long)seed,
                  operations);
    }
}
