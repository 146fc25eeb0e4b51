/* SPDX-License-Identifier: Apache-2.0 */
/* Actions of random batches: elementwise operations, reductions, casts, movements, insertions,
 * gathers. */
#include <math.h>

#include "random_pool.h"

#include "graph/shape.h"
#include "ops/ops.h"

static const kiln_tensor none = {0};

static bool fit_together(const struct operand *x, const struct operand *y)
{
    struct kiln__shape a, b, both;
    return x->type == y->type && kiln__shape_make(x->rank, x->dims, &a) &&
           kiln__shape_make(y->rank, y->dims, &b) && kiln__shape_broadcast(&a, &b, &both) &&
           kiln__shape_count(&both) <= MOST_ELEMENTS;
}

/* Each of three fits x, but perhaps not the others. */
static bool all_fit(struct pool *pool, const kiln_tensor *operands, size_t count)
{
    struct kiln__shape all = {0}, shape;
    for (size_t k = 0; k < count; k++) {
        struct operand x = describe(pool, operands[k]);
        struct kiln__shape before = all;
        if (!kiln__shape_make(x.rank, x.dims, &shape) ||
            !kiln__shape_broadcast(&before, &shape, &all))
            return false;
    }
    return kiln__shape_count(&all) <= MOST_ELEMENTS;
}

/* Often x itself, or a view of it. */
static kiln_tensor partner(struct pool *pool, const struct operand *x)
{
    if (chance(6))
        return x->tensor;
    if (chance(6) && x->rank)
        return turned_around(pool, x);
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

static bool grows(unsigned op)
{
    static const bool rows[KILN__OP_COUNT] = {
        [KILN__OP_exp] = true,    [KILN__OP_exp2] = true, [KILN__OP_expm1] = true,
        [KILN__OP_square] = true, [KILN__OP_mul] = true,  [KILN__OP_pow] = true,
        [KILN__OP_fma] = true,    [KILN__OP_sinh] = true, [KILN__OP_cosh] = true};
    return rows[op];
}

static kiln_tensor elementwise(struct pool *pool)
{
    struct operand x = any_operand(pool);
    unsigned op = choose(KILN__OP_COUNT);
    const struct kiln__elementwise_row *row = &kiln__elementwise_rows[op];
    bool internal = row->types == KILN__WORDS; /* a program could not call it */
    if (internal || !kiln__types_accept((enum kiln__types)row->types, x.type))
        return none;
    kiln_tensor operands[3] = {grows(op) ? tamed(pool, &x) : x.tensor};
    if (row->types == KILN__SELECTION)
        operands[0] = mask_for(pool, &x);
    for (unsigned k = 1; k < row->tensors; k++)
        operands[k] = k == 2 ? x.tensor : partner(pool, &x);
    if (!all_fit(pool, operands, row->tensors))
        return none;
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
    unsigned op = choose(KILN__REDUCE_COUNT);
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
    return check_reduction(pool->batch, op, x.tensor, count, axes, (int)choose(2));
}

/* Mostly with something before or behind it, which its kernel computes too. */
static kiln_tensor cumsum(struct pool *pool)
{
    struct operand x = any_operand(pool);
    if (x.rank == 0)
        return none;
    int axis = (int)choose((uint32_t)x.rank);
    kiln_tensor before = chance(2) ? kiln_add(pool->batch, x.tensor, x.tensor) : x.tensor;
    kiln_tensor sums = kiln_cumsum(pool->batch, before, axis, (int)choose(2));
    return chance(2) ? kiln_neg(pool->batch, sums) : sums;
}

/* That the type holds. */
static double small_number(const struct operand *x)
{
    return fmin(check_random(3), kiln__type_row(x->stored)->highest);
}

static kiln_tensor repeat(struct pool *pool)
{
    struct operand x = any_operand(pool);
    return kiln_fill(pool->batch, x.stored, x.rank, x.dims, small_number(&x));
}

static kiln_tensor detach(struct pool *pool)
{
    return kiln_detach(pool->batch, any_operand(pool).tensor);
}

/* ---- movements ---- */

static kiln_tensor transpose(struct pool *pool)
{
    struct operand x = any_operand(pool);
    size_t axes[KILN_MAX_RANK];
    for (size_t d = 0; d < x.rank; d++)
        axes[d] = d;
    for (size_t d = x.rank; d > 1; d--) {
        size_t other = choose((uint32_t)d), kept = axes[d - 1];
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
    size_t dims[KILN_MAX_RANK + 1], at = x.rank ? choose((uint32_t)x.rank) : 0, rank = 0;
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

static kiln_tensor windows(struct pool *pool)
{
    struct operand x = any_operand(pool);
    size_t axis = x.rank ? choose((uint32_t)x.rank) : 0;
    size_t size = PICK(1, 2, 3), step = PICK(1, 1, 2), dilation = PICK(1, 1, 2);
    if (x.rank == 0 || x.rank > 4 || x.dims[axis] < (size - 1) * dilation + 1 || !is_small(&x))
        return none;
    return kiln_windows(pool->batch, x.tensor, axis, 1, &size, &step, &dilation);
}

/* A view of a view of a view. */
static kiln_tensor views(struct pool *pool)
{
    static kiln_tensor (*const kinds[])(struct pool *) = {transpose, slice, broadcast, windows,
                                                          reshape};
    kiln_tensor made = none;
    for (int i = 0; i < 3 && pool->count < MOST_TENSORS - 3; i++) {
        kiln_tensor next = kinds[choose(5)](pool);
        if (next.id)
            pool->tensors[pool->count++] = made = next;
    }
    return made;
}

/* ---- parts put together ---- */

static kiln_tensor pad(struct pool *pool)
{
    struct operand x = any_operand(pool);
    size_t low[KILN_MAX_RANK] = {0}, high[KILN_MAX_RANK] = {0}, count = 1;
    for (size_t d = 0; d < x.rank; d++) {
        low[d] = PICK(0, 0, 1, 3);
        high[d] = PICK(0, 0, 1, 2);
        count *= x.dims[d] + low[d] + high[d];
    }
    return count <= MOST_ELEMENTS ? kiln_pad(pool->batch, x.tensor, low, high, small_number(&x))
                                  : none;
}

/* With another of the same shape, which may be the same. */
static kiln_tensor join(struct pool *pool)
{
    struct operand x = any_operand(pool);
    kiln_tensor parts[3] = {x.tensor, x.tensor, x.tensor};
    if (!is_small(&x) || x.rank > 4)
        return none;
    parts[choose(3)] = fresh_stored(pool, x.stored, x.rank, x.dims);
    if (x.rank == 0 || chance(3))
        return kiln_stack(pool->batch, 1 + choose(3), parts, (int)choose((uint32_t)x.rank + 1));
    return kiln_concat(pool->batch, 1 + choose(3), parts, (int)choose((uint32_t)x.rank));
}

/* Every other element, from the first or from the last on. */
static kiln_tensor place(struct pool *pool)
{
    struct operand x = any_operand(pool);
    int64_t start[KILN_MAX_RANK], step[KILN_MAX_RANK];
    size_t dims[KILN_MAX_RANK];
    for (size_t d = 0; d < x.rank; d++) {
        bool backwards = chance(3);
        dims[d] = (x.dims[d] + 1) / 2;
        step[d] = backwards ? -2 : 2;
        start[d] = backwards && x.dims[d] ? (int64_t)x.dims[d] - 1 : 0;
    }
    kiln_tensor part = fresh_stored(pool, x.stored, x.rank, dims);
    return x.rank ? kiln_insert_slice(pool->batch, x.tensor, part, start, step) : none;
}

static kiln_tensor split(struct pool *pool)
{
    struct operand x = any_operand(pool);
    kiln_tensor parts[2];
    size_t axis = x.rank ? choose((uint32_t)x.rank) : 0;
    if (x.rank == 0)
        return none;
    size_t first = x.dims[axis] / 3;
    kiln_split(pool->batch, x.tensor, (int)axis, 2, (size_t[]){first, x.dims[axis] - first}, parts);
    return parts[choose(2)];
}

/* Some of the positions are beyond the axis. */
static kiln_tensor indices_of(struct pool *pool, size_t rank, const size_t *dims)
{
    if (rank == 1 && chance(2))
        return kiln_arange(pool->batch, KILN_I32, (double)*dims, 0, -1);
    return fresh(pool, (kiln_type)PICK(KILN_I32, KILN_U8, KILN_I64, KILN_I8), rank, dims);
}

static kiln_tensor gather(struct pool *pool)
{
    struct operand x = any_operand(pool);
    size_t axis = x.rank ? choose((uint32_t)x.rank) : 0, rank = choose(4) ? 1 : choose(3);
    size_t dims[2] = {PICK(0, 1, 3, 8), PICK(1, 2)};
    if (x.rank == 0 || x.rank > 4 || count_of(&x) > MOST_ELEMENTS / 16)
        return none;
    return kiln_gather(pool->batch, x.tensor, indices_of(pool, rank, dims), (int)axis);
}

/* As many values as indices, of which several are the same. */
static kiln_tensor scatter(struct pool *pool)
{
    struct operand x = any_operand(pool);
    size_t axis = x.rank ? choose((uint32_t)x.rank) : 0, picks = PICK(0, 1, 3, 8);
    size_t dims[KILN_MAX_RANK];
    if (x.rank == 0 || x.rank > 4 || !is_small(&x))
        return none;
    for (size_t d = 0; d < x.rank; d++)
        dims[d] = d == axis ? picks : x.dims[d];
    kiln_tensor indices = indices_of(pool, 1, &picks);
    return kiln_scatter(pool->batch, x.tensor, indices, fresh(pool, x.type, x.rank, dims),
                        (int)axis, (kiln_scatter_mode)choose(KILN_SCATTER_MAX + 1));
}

/* One position for all of x, or one for each element of the dimensions before the axis, or of those
 * but the last. */
static kiln_tensor at_position(struct pool *pool)
{
    struct operand x = any_operand(pool);
    size_t axis = x.rank ? choose((uint32_t)x.rank) : 0, count = PICK(0, 1, 1, 2, 3);
    size_t dims[KILN_MAX_RANK], one = 1, rank = chance(2) ? axis : 0;
    if (x.rank == 0 || x.rank > 4 || !is_small(&x))
        return none;
    for (size_t d = 0; d < x.rank; d++)
        dims[d] = x.dims[d];
    if (rank && chance(2))
        dims[rank - 1] = 1;
    kiln_tensor start = indices_of(pool, rank ? rank : 1, rank ? dims : &one);
    if (chance(3))
        return kiln_slice_at(pool->batch, x.tensor, start, count, (int)axis);
    for (size_t d = 0; d < x.rank; d++)
        dims[d] = d == axis ? count : x.dims[d];
    kiln_tensor part = fresh_stored(pool, x.stored, x.rank, dims);
    return kiln_update_slice(pool->batch, x.tensor, part, start, (int)axis);
}

static kiln_tensor one_hot(struct pool *pool)
{
    struct operand x = any_operand(pool);
    if (x.type == KILN_F32 || x.rank > 4 || count_of(&x) > MOST_ELEMENTS / 16)
        return none;
    return kiln_one_hot(pool->batch, x.tensor, PICK(1, 3, 8), any_type());
}

static kiln_tensor number(struct pool *pool)
{
    struct operand x = any_operand(pool);
    kiln_type type = any_type();
    if (chance(3) && kiln__type_row(type)->highest > 33)
        return kiln_arange(pool->batch, type, 0, (double)PICK(1, 7, 33), 1);
    return x.rank ? kiln_iota(pool->batch, x.rank, x.dims, (int)choose((uint32_t)x.rank)) : none;
}

static kiln_tensor sort(struct pool *pool)
{
    struct operand x = any_operand(pool);
    if (x.rank == 0 || !is_small(&x))
        return none;
    const int axis = (int)choose((uint32_t)x.rank), descending = (int)choose(2);
    if (chance(2))
        return kiln_argsort(pool->batch, x.tensor, axis, descending);
    const size_t k = (size_t)choose((uint32_t)x.dims[axis] + 1);
    return kiln_topk(pool->batch, x.tensor, k, axis, descending, NULL);
}

kiln_tensor random_basic(struct pool *pool)
{
    static kiln_tensor (*const actions[])(struct pool *) = {
        elementwise, elementwise, elementwise, elementwise,   elementwise, elementwise,
        elementwise, cast,        reduce,      reduce,        cumsum,      repeat,
        detach,      transpose,   slice,       reshape,       broadcast,   windows,
        views,       pad,         join,        place,         split,       gather,
        scatter,     one_hot,     number,      random_upload, sort,        at_position,
    };
    return actions[choose(sizeof actions / sizeof *actions)](pool);
}
