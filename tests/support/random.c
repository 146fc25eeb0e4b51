/* SPDX-License-Identifier: Apache-2.0 */
#include "random.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include <kiln/gradient.h>

#include "api/batch.h"
#include "check.h"
#include "graph/shape.h"
#include "ops/ops.h"
#include "reproduce.h"

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

/* Which operations there are and on what; sizes and content are check_random()'s. Batches of one
 * structure and other sizes share most kernels, which saves compiling them. */
static uint64_t structure;

static uint32_t choose(uint32_t below)
{
    structure = structure * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((structure >> 33) * below >> 31);
}

static bool chance(uint32_t one_in)
{
    return choose(one_in) == 0;
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
    return describe(pool, pool->tensors[pool->count - 1 - choose((uint32_t)reach)]);
}

static kiln_tensor fresh(const struct pool *pool, kiln_type type, size_t rank, const size_t *dims)
{
    static const enum check_values kinds[] = {CHECK_PLAIN, CHECK_PLAIN, CHECK_FEW, CHECK_FEW,
                                              CHECK_POSITIVE};
    enum check_values kind = kinds[check_random(5)];
    bool special = check_random(25) == 0;
    return check_input(pool->batch, type, rank, dims, special ? CHECK_SPECIAL : kind);
}

static kiln_type any_type(void)
{
    static const kiln_type types[] = {KILN_F32, KILN_F32, KILN_F32, KILN_I32, KILN_U8};
    return types[choose(5)];
}

/* ---- actions: each records an operation, or answers the empty tensor if it cannot ---- */

static const kiln_tensor none = {0};

static kiln_tensor upload(struct pool *pool)
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

/* One that broadcasts against x: leading dimensions dropped, others 1. */
static kiln_tensor smaller(const struct pool *pool, const struct operand *x)
{
    size_t dims[KILN_MAX_RANK], drop = x->rank ? choose((uint32_t)x->rank + 1) : 0;
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

/* ---- parts put together ---- */

static bool is_small(const struct operand *x)
{
    return count_of(x) <= MOST_ELEMENTS / 4;
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

static kiln_tensor pad(struct pool *pool)
{
    struct operand x = any_operand(pool);
    size_t low[KILN_MAX_RANK] = {0}, high[KILN_MAX_RANK] = {0}, count = 1;
    for (size_t d = 0; d < x.rank; d++) {
        low[d] = PICK(0, 0, 1, 3);
        high[d] = PICK(0, 0, 1, 2);
        count *= x.dims[d] + low[d] + high[d];
    }
    return count <= MOST_ELEMENTS ? kiln_pad(pool->batch, x.tensor, low, high, check_random(3))
                                  : none;
}

/* With another of the same shape, which may be the same. */
static kiln_tensor join(struct pool *pool)
{
    struct operand x = any_operand(pool);
    kiln_tensor parts[3] = {x.tensor, x.tensor, x.tensor};
    if (!is_small(&x) || x.rank > 4)
        return none;
    parts[choose(3)] = fresh(pool, x.type, x.rank, x.dims);
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
    kiln_tensor part = fresh(pool, x.type, x.rank, dims);
    return x.rank ? kiln_place(pool->batch, x.tensor, part, start, step) : none;
}

/* Some of the positions are beyond the axis. */
static kiln_tensor gather(struct pool *pool)
{
    struct operand x = any_operand(pool);
    size_t axis = x.rank ? choose((uint32_t)x.rank) : 0, picks = PICK(0, 1, 3, 8);
    if (x.rank == 0 || x.rank > 4 || !is_small(&x))
        return none;
    kiln_tensor indices = fresh(pool, chance(2) ? KILN_I32 : KILN_U8, DIMS(picks));
    if (chance(2))
        indices = kiln_arange(pool->batch, KILN_I32, (double)picks, 0, -1);
    return kiln_gather(pool->batch, x.tensor, indices, (int)axis);
}

static kiln_tensor number(struct pool *pool)
{
    struct operand x = any_operand(pool);
    return x.rank ? kiln_iota(pool->batch, x.rank, x.dims, (int)choose((uint32_t)x.rank)) : none;
}

/* ---- rows ---- */

static kiln_tensor normalize(struct pool *pool)
{
    struct operand x = any_operand(pool);
    int axis = -1;
    if (x.type != KILN_F32 || x.rank == 0 || count_of(&x) == 0)
        return none;
    kiln_tensor from = tamed(pool, &x);
    switch (choose(7)) {
    case 0: return kiln_softmax(pool->batch, from, 1, &axis);
    case 1: return kiln_log_softmax(pool->batch, from, 1, &axis);
    case 2: return kiln_logsumexp(pool->batch, from, 1, &axis, 1);
    case 3: return kiln_variance(pool->batch, from, 1, &axis, 0, 0);
    case 4: return kiln_norm(pool->batch, from, 1, &axis, 0);
    case 5: return kiln_layer_norm(pool->batch, from, smaller(pool, &x), none, 1, &axis, 0.5);
    default: return kiln_rms_norm(pool->batch, from, none, 1, &axis, 0.5);
    }
}

static kiln_tensor attention(struct pool *pool)
{
    kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
    size_t m = PICK(1, 3, 16, 33), n = PICK(1, 4, 17, 32), d = PICK(1, 4, 8), heads = PICK(1, 2);
    options.causal = chance(3);
    return kiln_attention(pool->batch, fresh(pool, KILN_F32, DIMS(heads, m, d)),
                          fresh(pool, KILN_F32, DIMS(heads, n, d)),
                          fresh(pool, KILN_F32, DIMS(heads, n, d)), none, &options);
}

/* ---- a whole batch ---- */

static kiln_tensor act(struct pool *pool)
{
    static kiln_tensor (*const actions[])(struct pool *) = {
        elementwise, elementwise, elementwise, elementwise, elementwise, elementwise,
        elementwise, cast,        reduce,      reduce,      transpose,   slice,
        reshape,     broadcast,   upload,      product,     normalize,   join,
        place,       gather,      number,      pad,         windows,
    };
    if (chance(60))
        return attention(pool);
    return actions[choose(sizeof actions / sizeof *actions)](pool);
}

static void expect_recorded(const struct pool *pool)
{
    cr_assert_eq(kiln_batch_status(pool->batch), KILN_OK, "%s", kiln_batch_error(pool->batch));
}

static struct pool record(kiln_batch *batch, uint64_t seed, uint64_t sizes, size_t operations)
{
    struct pool pool = {.batch = batch};
    structure = seed * 2 + 1;
    check_seed(seed * 1000 + sizes);
    pool.tensors[pool.count++] = upload(&pool);
    for (size_t tries = 0; pool.count < operations + 1 && tries < 20 * operations; tries++) {
        kiln_tensor made = act(&pool);
        expect_recorded(&pool);
        if (made.id && pool.count < MOST_TENSORS)
            pool.tensors[pool.count++] = made;
    }
    check_read(batch, pool.tensors[pool.count - 1]);
    for (size_t more = choose(3); more > 0; more--)
        check_read(batch, any_operand(&pool).tensor);
    return pool;
}

void random_record(kiln_batch *batch, uint64_t seed, uint64_t sizes, size_t operations)
{
    record(batch, seed, sizes, operations);
}

/* ---- what only validation can follow ---- */

/* Of the sum of a result by an input; nothing where an operation has no derivative. */
static void differentiate(struct pool *pool)
{
    struct operand y = any_operand(pool), x = any_operand(pool);
    if (y.type != KILN_F32 || x.type != KILN_F32)
        return;
    kiln_tensor gradient, loss = kiln_sum(pool->batch, y.tensor, 0, NULL, 0);
    kiln_status status = kiln_grad(pool->batch, loss, &x.tensor, 1, &gradient);
    if (status == KILN_UNSUPPORTED)
        pool->batch->error = (struct kiln__error){0};
    else
        check_read(pool->batch, gradient);
    expect_recorded(pool);
}

/* A buffer that is imported and overwritten. */
static void update(struct pool *pool)
{
    struct operand x = any_operand(pool);
    kiln_buffer *buffer;
    static char zeros[4 * 4 * MOST_ELEMENTS];
    size_t bytes = count_of(&x) * kiln_type_size(x.type);
    if (bytes > sizeof zeros)
        return;
    expect_ok(kiln_buffer_create(pool->batch->context, x.type, x.rank, x.dims, &buffer));
    if (bytes)
        expect_ok(kiln_buffer_write(buffer, 0, zeros, bytes));
    kiln_tensor old = kiln_import(pool->batch, buffer);
    kiln_tensor made = kiln_add(pool->batch, old, x.tensor);
    kiln_export(pool->batch, made, buffer);
    if (chance(2) && x.rank > 1)
        check_read(pool->batch, kiln_transpose(pool->batch, old, NULL));
    expect_recorded(pool);
    kiln_buffer_release(buffer);
}

static kiln_context *open_validating(void)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.validate = 1;
    return open_context_with(&options);
}

/* ---- running ---- */

/* As a program, after making it smaller. */
static void show(const kiln_batch *batch)
{
    struct kiln__text text = {0};
    kiln_context *context = open_validating();
    kiln_batch *small = reproduce_shrink(batch, context, reproduce_validates);
    reproduce_print(small ? small : batch, &text);
    fprintf(stderr, "/* ---- %s ---- */\n%s", small ? "made smaller" : "fails only as a whole",
            text.data);
    kiln__text_free(&text);
    if (small)
        reproduce_release(small);
    close_context(context);
}

static bool run_validated(kiln_context *context, uint64_t seed, uint64_t sizes, size_t operations)
{
    kiln_batch *batch = kiln_batch_create(context);
    cr_assert(batch);
    struct pool pool = record(batch, seed, sizes, operations);
    differentiate(&pool);
    update(&pool);
    kiln_status status = kiln_batch_execute(batch);
    if (!status)
        status = kiln_batch_execute(batch);
    cr_expect_eq(status, KILN_OK, "%s", kiln_last_error());
    if (status)
        show(batch);
    check_end(batch);
    return !status;
}

static bool run_compared(uint64_t seed, uint64_t sizes, size_t operations)
{
    kiln_batch *batch = check_begin();
    record(batch, seed, sizes, operations);
    bool good = check_run(batch);
    if (!good)
        show(batch);
    check_end(batch);
    return good;
}

bool random_check(const struct random_range *range)
{
    size_t failures = 0;
    kiln_context *context = range->validate_each ? open_validating() : NULL;
    for (uint64_t i = 0; i < range->count && failures < 3; i++)
        for (uint64_t sizes = 0; sizes < range->variants; sizes++) {
            uint64_t seed = range->first + i;
            bool validates = range->validate_each && i % range->validate_each == 0 && sizes == 0;
            bool good = validates ? run_validated(context, seed, sizes, range->operations)
                                  : run_compared(seed, sizes, range->operations);
            failures += !good;
            cr_expect(good, "this was KILN_RANDOM_SEED=%llu, sizes %llu, %zu operations",
                      (unsigned long long)seed, (unsigned long long)sizes, range->operations);
        }
    if (context)
        close_context(context);
    return failures == 0;
}
