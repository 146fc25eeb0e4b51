/* SPDX-License-Identifier: Apache-2.0 */
/* Actions of random batches: products, attention, convolutions, norms, quantised weights. */
#include "random_pool.h"

#include <math.h>

static const kiln_tensor none = {0};

/* ---- products ---- */

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

/* Batched, either operand transposed, and a bias with an activation behind it. */
static kiln_tensor batched_product(struct pool *pool)
{
    size_t parts = PICK(1, 2, 3), m = PICK(1, 3, 17), k = PICK(1, 4, 16, 33), n = PICK(1, 7, 16);
    int swap_a = (int)choose(2), swap_b = (int)choose(2);
    kiln_tensor a = swap_a ? numbers(pool, DIMS(parts, k, m)) : numbers(pool, DIMS(parts, m, k));
    kiln_tensor b = swap_b ? numbers(pool, DIMS(n, k)) : numbers(pool, DIMS(k, n));
    kiln_tensor y = kiln_matmul_transposed(pool->batch, a, swap_a, b, swap_b);
    y = chance(2) ? kiln_add(pool->batch, y, numbers(pool, DIMS(n))) : y;
    switch (choose(5)) {
    case 0: return kiln_relu(pool->batch, y);
    case 1: return kiln_tanh(pool->batch, y);
    case 2: return kiln_mul(pool->batch, y, numbers(pool, DIMS(m, 1)));
    case 3: return kiln_add(pool->batch, numbers(pool, DIMS(parts, m, n)), y);
    default: return y;
    }
}

/* Of i8 by i8, some in more than one part, or of floats by i8. Long ones are swapped: each of their
 * parts is one launch, and interpret.c lets any launch read all that its group reads. */
static kiln_tensor quantised_product(struct pool *pool)
{
    int swap = (int)choose(2);
    size_t m = PICK(1, 3, 17), k = swap ? PICK(1, 33, 1030) : PICK(1, 16, 33), n = PICK(1, 7, 16);
    kiln_tensor w =
        swap ? fresh_stored(pool, KILN_I8, DIMS(n, k)) : fresh_stored(pool, KILN_I8, DIMS(k, n));
    kiln_tensor scale = swap ? numbers(pool, DIMS(n, 1)) : numbers(pool, DIMS(1, n));
    if (chance(2))
        return kiln_matmul_quantized(pool->batch, numbers(pool, DIMS(2, m, k)), none, w, swap,
                                     scale);
    kiln_tensor x = fresh_stored(pool, KILN_I8, DIMS(m, k));
    return kiln_matmul_quantized(pool->batch, x, chance(2) ? none : numbers(pool, DIMS(m, 1)), w,
                                 swap, chance(2) ? none : scale);
}

static kiln_tensor inner_product(struct pool *pool)
{
    struct operand x = any_operand(pool);
    return x.rank == 1 ? kiln_dot(pool->batch, tamed(pool, &x), fresh(pool, x.type, 1, x.dims))
                       : none;
}

/* ---- rows ---- */

static kiln_tensor normalize(struct pool *pool)
{
    struct operand x = any_operand(pool);
    int axes[] = {-1, 0};
    size_t n = x.rank > 1 && chance(3) ? 2 : 1;
    if (x.type != KILN_F32 || x.rank == 0 || count_of(&x) == 0)
        return none;
    kiln_tensor from = tamed(pool, &x);
    switch (choose(7)) {
    case 0: return kiln_softmax(pool->batch, from, n, axes);
    case 1: return kiln_log_softmax(pool->batch, from, n, axes);
    case 2: return kiln_logsumexp(pool->batch, from, n, axes, 1);
    case 3: return kiln_variance(pool->batch, from, n, axes, choose(2), (int)choose(2));
    case 4: return kiln_norm(pool->batch, from, n, axes, (int)choose(2));
    case 5:
        return kiln_layer_norm(pool->batch, from, smaller(pool, &x),
                               chance(2) ? none : smaller(pool, &x), n, axes, 0.5);
    default: return kiln_rms_norm(pool->batch, from, none, n, axes, 0.5);
    }
}

static kiln_tensor interpolate(struct pool *pool)
{
    struct operand x = any_operand(pool);
    if (x.type != KILN_F32 || x.rank == 0)
        return none;
    kiln_tensor weight = check_input(pool->batch, KILN_F32, SCALAR, CHECK_POSITIVE);
    kiln_tensor from = tamed(pool, &x), to = numbers(pool, x.rank, x.dims);
    return chance(2) ? kiln_slerp(pool->batch, from, to, weight)
                     : kiln_lerp(pool->batch, from, to, weight);
}

/* ---- attention ---- */

/* Where keys are taken away: by bytes or by -infinity, broadcast over the heads. */
static kiln_tensor mask_of(struct pool *pool, size_t m, size_t n)
{
    static const float rows[] = {0, -1, 2, 0};
    kiln_tensor keep = check_input(pool->batch, KILN_U8, DIMS(m, n), CHECK_FEW);
    kiln_tensor bias = check_given(pool->batch, KILN_F32, SCALAR, &rows[check_random(4)]);
    switch (choose(4)) {
    case 0: return keep;
    case 1: return check_input(pool->batch, KILN_U8, DIMS(n), CHECK_FEW);
    case 2:
        return kiln_where(pool->batch, keep, bias, kiln_constant(pool->batch, KILN_F32, -INFINITY));
    default: return none;
    }
}

/* Heads that share keys, operands that lie transposed, keys that are not there yet. */
static kiln_tensor attention(struct pool *pool)
{
    kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
    kiln_batch *batch = pool->batch;
    size_t m = PICK(1, 3, 16, 33), n = PICK(1, 4, 17, 32), d = PICK(1, 4, 8), e = PICK(1, 4, 9);
    size_t heads = PICK(1, 2), shared = chance(2) ? heads : 1;
    kiln_tensor q = numbers(pool, DIMS(heads, m, d)), v = numbers(pool, DIMS(shared, n, e));
    kiln_tensor k = numbers(pool, DIMS(shared, n, d));
    if (chance(3))
        k = kiln_transpose(batch, numbers(pool, DIMS(shared, d, n)), (size_t[]){0, 2, 1});
    if (chance(3))
        q = kiln_transpose(batch, numbers(pool, DIMS(m, heads, d)), (size_t[]){1, 0, 2});
    options.causal = chance(3);
    options.diagonal = options.causal && chance(2) ? (int64_t)n - (int64_t)m : 0;
    options.window = chance(3) ? 1 + choose((uint32_t)n) : 0;
    options.scale = chance(3) ? 0.5 : 0;
    kiln_tensor mask = mask_of(pool, m, n);
    if (!chance(3))
        return kiln_attention(batch, q, k, v, mask, &options);
    kiln_tensor lengths = chance(2) ? kiln_constant(batch, KILN_I32, 3)
                                    : check_input(batch, KILN_I32, DIMS(heads), CHECK_FEW);
    return kiln_attention_with_lengths(batch, q, k, v, mask, lengths, &options);
}

/* ---- images ---- */

static kiln_window_options any_windows(void)
{
    kiln_window_options options = KILN_WINDOW_OPTIONS_INIT;
    for (int i = 0; i < 2; i++) {
        options.stride[i] = 1 + choose(2);
        options.dilation[i] = 1 + chance(4);
        options.before[i] = choose(2);
        options.after[i] = choose(2);
    }
    return options;
}

static kiln_tensor convolve(struct pool *pool)
{
    kiln_window_options options = any_windows();
    size_t n = PICK(1, 2), h = PICK(5, 6, 9), w = PICK(5, 8), u = 1 + choose(3), v = 1 + choose(3);
    size_t groups = 1 + choose(2), c = groups * PICK(1, 3), o = groups * PICK(1, 2, 5);
    options.groups = groups;
    kiln_tensor y = kiln_conv2d(pool->batch, numbers(pool, DIMS(n, h, w, c)),
                                numbers(pool, DIMS(u, v, c / groups, o)), &options);
    return chance(2) ? kiln_relu(pool->batch, kiln_add(pool->batch, y, numbers(pool, DIMS(o)))) : y;
}

static kiln_tensor pool_image(struct pool *pool)
{
    kiln_window_options options = any_windows();
    size_t window[] = {1 + choose(3), 1 + choose(3)};
    kiln_tensor x = fresh(pool, KILN_F32, DIMS(PICK(1, 2), PICK(5, 6, 9), PICK(5, 8), PICK(1, 3)));
    return chance(2) ? kiln_max_pool2d(pool->batch, x, window, &options)
                     : kiln_avg_pool2d(pool->batch, x, window, &options);
}

/* ---- losses ---- */

static kiln_tensor label_rows(struct pool *pool, const struct operand *x)
{
    kiln_tensor labels = check_input(pool->batch, KILN_U8, x->rank - 1, x->dims,
                                     check_random(8) ? CHECK_FEW : CHECK_PLAIN);
    return kiln_cross_entropy(pool->batch, tamed(pool, x), labels);
}

static kiln_tensor lose(struct pool *pool)
{
    struct operand x = any_operand(pool);
    if (x.type != KILN_F32)
        return none;
    switch (choose(3)) {
    case 0:
        return kiln_mean_squared_error(pool->batch, tamed(pool, &x), numbers(pool, x.rank, x.dims));
    case 1:
        return kiln_binary_cross_entropy(pool->batch, tamed(pool, &x),
                                         kiln_sigmoid(pool->batch, numbers(pool, x.rank, x.dims)));
    default: return x.rank ? label_rows(pool, &x) : none;
    }
}

/* ---- random numbers ---- */

static kiln_tensor draw(struct pool *pool)
{
    kiln_batch *batch = pool->batch;
    struct operand x = any_operand(pool);
    kiln_tensor key = kiln_random_key(batch, (uint64_t)check_random(1u << 30) << 20);
    if (chance(2))
        key = kiln_random_split(batch, key, check_random(1000));
    if (chance(4))
        key = check_input(batch, KILN_I32, DIMS(2), CHECK_PLAIN);
    switch (choose(3)) {
    case 0: return kiln_random_uniform(batch, x.rank, x.dims, key);
    case 1: return kiln_random_normal(batch, x.rank, x.dims, key);
    default: return x.type == KILN_F32 ? kiln_dropout(batch, x.tensor, 0.25, key) : none;
    }
}

kiln_tensor random_network(struct pool *pool)
{
    static kiln_tensor (*const actions[])(struct pool *) = {
        product,       product,   batched_product, quantised_product,
        inner_product, normalize, normalize,       interpolate,
        convolve,      lose,      pool_image,      attention,
        draw,
    };
    return actions[choose(sizeof actions / sizeof *actions)](pool);
}
