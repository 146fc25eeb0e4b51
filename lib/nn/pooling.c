/* SPDX-License-Identifier: Apache-2.0 */
/* Pools as reductions of windows. */
#include <kiln/elementwise.h>
#include <kiln/movement.h>
#include <kiln/operations.h>
#include <kiln/reductions.h>

#include <math.h>
#include <string.h>

#include "nn/sliding_windows.h"
#include "record/call.h"
#include "util/structure.h"

/* One call. */
struct pool {
    struct kiln__sliding sliding;
    size_t counted[KILN__SPATIAL]; /* elements behind x's last that an average counts */
    bool counts_padding;
    int axes[KILN__SPATIAL]; /* within windows */
};

/* ---- options ---- */

/* What the last window leaves gets one more, if that begins within x or in the padding before. */
static void round_up(struct kiln__sliding *call, uint32_t i)
{
    size_t extent = call->image.dims[1 + i] + call->before[i], stride = call->stride[i];
    size_t whole = extent + call->after[i], reach = (call->window[i] - 1) * call->dilation[i];
    size_t begin = kiln__sliding_count(call, i) * stride;
    if ((whole - 1 - reach) % stride && begin < extent)
        call->after[i] += begin + reach + 1 - whole;
}

static bool read_pool(struct pool *pool, const kiln_pool_options *options, uint32_t n,
                      const size_t *window, kiln_tensor *x)
{
    kiln_pool_options own = KILN_POOL_OPTIONS_INIT;
    struct kiln__sliding *call = &pool->sliding;
    if (!kiln__batch_node(call->batch, *x, call->name, "x"))
        return false;
    struct kiln__error *error = &call->batch->error;
    if (options && KILN__STRUCTURE_READ(error, call->name, options, "KILN_POOL_OPTIONS_INIT", &own))
        return false;
    if (!window)
        kiln__fail(error, KILN_INVALID_ARGUMENT, "%s: window is NULL", call->name);
    call->layout = own.layout;
    call->groups = 1;
    if (!window || !kiln__sliding_begin(call, x, n))
        return false;
    const struct kiln__sliding_given given = {own.stride, own.dilation, own.before, own.after};
    memcpy(call->window, window, call->n * sizeof *window);
    kiln__sliding_read(call, &given, window);
    if (!kiln__sliding_check(call))
        return false;
    for (uint32_t i = 0; i < call->n; i++) {
        pool->counted[i] = own.count_padding ? call->after[i] : 0;
        pool->axes[i] = (int)(1 + call->n + i);
        if (own.ceil)
            round_up(call, i);
    }
    pool->counts_padding = own.count_padding;
    return true;
}

/* ---- largest ---- */

/* What loses against every element. */
static double lowest_of(const struct kiln__sliding *call, kiln_tensor x)
{
    const struct kiln__node *node = kiln__tensor_node(call->batch, x);
    return kiln__node_is_floating(node) ? -INFINITY : kiln__type_row(node->type)->lowest;
}

static kiln_tensor pooling_integer(const struct kiln__sliding *call, double value)
{
    return kiln__batch_number(call->batch, KILN_I32, value, call->name);
}

/* The number of each window along dimension i, for the dimensions from there on. */
static kiln_tensor window_numbers(const struct kiln__sliding *call, uint32_t i)
{
    size_t dims[KILN_MAX_RANK] = {kiln__sliding_count(call, i), 1, 1, 1};
    return kiln_iota(call->batch, call->n - i + 1, dims, 0);
}

#define ROW(name, ...) kiln_##name(call->batch, __VA_ARGS__)

/* Where the chosen of each window is: its number among the elements of one channel. `chosen` is its
 * number within the window. A window of padding alone names what is nearest. */
static kiln_tensor pooling_positions(const struct kiln__sliding *call, kiln_tensor chosen)
{
    kiln_tensor place = kiln__none;
    size_t stride = 1;
    for (uint32_t i = call->n; i-- > 0 && !call->batch->error.status;) {
        double size = (double)call->window[i], last = (double)call->image.dims[1 + i] - 1;
        kiln_tensor above = ROW(div, chosen, pooling_integer(call, size));
        kiln_tensor within = ROW(sub, chosen, ROW(mul, above, pooling_integer(call, size)));
        kiln_tensor begin =
            ROW(mul, window_numbers(call, i), pooling_integer(call, (double)call->stride[i]));
        kiln_tensor at = ROW(mul, within, pooling_integer(call, (double)call->dilation[i]));
        at = ROW(sub, ROW(add, at, begin), pooling_integer(call, (double)call->before[i]));
        if (call->batch->error.status)
            return kiln__none;
        at = ROW(mul, kiln_clamp(call->batch, at, 0, last), pooling_integer(call, (double)stride));
        place = place.id ? ROW(add, place, at) : at;
        stride *= call->image.dims[1 + i];
        chosen = above;
    }
    return place;
}

static kiln_tensor pooling_largest(struct pool *pool, kiln_tensor x, kiln_tensor *indices)
{
    struct kiln__sliding *call = &pool->sliding;
    kiln_tensor windows = kiln__sliding_windows(call, x, lowest_of(call, x));
    if (indices && !call->batch->error.status) {
        kiln_tensor chosen = kiln_argmax(call->batch, windows, call->n, pool->axes, 0);
        *indices = kiln__sliding_result(call, pooling_positions(call, chosen));
    }
    if (!call->batch->error.status)
        windows = kiln_max(call->batch, windows, call->n, pool->axes, 0);
    windows = kiln__sliding_result(call, windows);
    if (indices && call->batch->error.status)
        *indices = kiln__none;
    return windows;
}

/* ---- averages ---- */

/* Whether all windows have as many elements that count; the first and the last one have fewest. */
static bool are_whole(const struct pool *pool, uint32_t i)
{
    const struct kiln__sliding *call = &pool->sliding;
    size_t last = (kiln__sliding_count(call, i) - 1) * call->stride[i];
    size_t end = last + (call->window[i] - 1) * call->dilation[i];
    return (pool->counts_padding || call->before[i] == 0) &&
           end < call->before[i] + call->image.dims[1 + i] + pool->counted[i];
}

/* How many elements from place `from` on begin before `end`, of those that are `dilation` apart. */
static kiln_tensor elements_before(const struct kiln__sliding *call, uint32_t i, kiln_tensor from,
                                   size_t end)
{
    double by = (double)call->dilation[i];
    kiln_tensor room = ROW(sub, pooling_integer(call, (double)end + by - 1), from);
    room = ROW(div, room, pooling_integer(call, by));
    return call->batch->error.status ? kiln__none
                                     : kiln_clamp(call->batch, room, 0, (double)call->window[i]);
}

/* How many elements of each window along dimension i count. */
static kiln_tensor element_counts(const struct pool *pool, uint32_t i)
{
    const struct kiln__sliding *call = &pool->sliding;
    size_t first = pool->counts_padding ? 0 : call->before[i];
    size_t end = call->before[i] + call->image.dims[1 + i] + pool->counted[i];
    kiln_tensor from = window_numbers(call, i);
    from = ROW(mul, from, pooling_integer(call, (double)call->stride[i]));
    kiln_tensor count = elements_before(call, i, from, end);
    if (first)
        count = ROW(sub, count, elements_before(call, i, from, first));
    return call->batch->error.status ? kiln__none : kiln_cast(call->batch, count, KILN_F32);
}

/* Sums of windows divided by how many elements count. */
static kiln_tensor pooling_divide(const struct pool *pool, kiln_tensor sums)
{
    const struct kiln__sliding *call = &pool->sliding;
    double whole = 1;
    kiln_tensor counts = kiln__none;
    for (uint32_t i = 0; i < call->n && !call->batch->error.status; i++) {
        if (are_whole(pool, i)) {
            whole *= (double)call->window[i];
            continue;
        }
        kiln_tensor more = element_counts(pool, i);
        counts = counts.id ? ROW(mul, counts, more) : more;
    }
    if (call->batch->error.status)
        return kiln__none;
    if (!counts.id)
        return ROW(div, sums, kiln_constant(call->batch, KILN_F32, whole));
    return ROW(div, sums, whole == 1 ? counts : kiln_scale(call->batch, counts, whole));
}

static kiln_tensor pooling_average(struct pool *pool, kiln_tensor x)
{
    struct kiln__sliding *call = &pool->sliding;
    kiln_tensor windows = kiln__sliding_windows(call, x, 0);
    if (!call->batch->error.status)
        windows = kiln_sum(call->batch, windows, call->n, pool->axes, 0);
    return kiln__sliding_result(call, pooling_divide(pool, windows));
}

/* ---- the calls ---- */

kiln_tensor kiln_max_pool(kiln_batch *batch, kiln_tensor x, const size_t *window,
                          const kiln_pool_options *options, kiln_tensor *indices)
{
    KILN__CALL(batch);
    struct pool pool = {.sliding = {.batch = batch, .name = __func__}};
    if (indices)
        *indices = kiln__none;
    return read_pool(&pool, options, 0, window, &x) ? pooling_largest(&pool, x, indices)
                                                    : kiln__none;
}

kiln_tensor kiln_avg_pool(kiln_batch *batch, kiln_tensor x, const size_t *window,
                          const kiln_pool_options *options)
{
    KILN__CALL(batch);
    struct pool pool = {.sliding = {.batch = batch, .name = __func__}};
    if (!kiln__batch_floating(batch, x, __func__, "x") || !read_pool(&pool, options, 0, window, &x))
        return kiln__none;
    return pooling_average(&pool, x);
}

/* To a power. At 0 one below 1 has no derivative: it is taken of 1 there, so that the gradient is 0
 * and not NaN. */
static kiln_tensor raised(const struct kiln__sliding *call, kiln_tensor y, double power)
{
    kiln_tensor number = kiln_constant(call->batch, KILN_F32, power);
    kiln_tensor zero = kiln_constant(call->batch, KILN_F32, 0), is_zero = ROW(equal, y, zero);
    if (power >= 1)
        return power == 1 ? y : power == 2 ? ROW(square, y) : ROW(pow, y, number);
    y = ROW(where, is_zero, kiln_constant(call->batch, KILN_F32, 1), y);
    return ROW(where, is_zero, zero, power == 0.5 ? ROW(sqrt, y) : ROW(pow, y, number));
}

kiln_tensor kiln_lp_pool(kiln_batch *batch, kiln_tensor x, const size_t *window, double p,
                         const kiln_pool_options *options)
{
    KILN__CALL(batch);
    struct pool pool = {.sliding = {.batch = batch, .name = __func__}};
    struct kiln__sliding *call = &pool.sliding;
    if (!kiln__batch_floating(batch, x, __func__, "x"))
        return kiln__none;
    if (!(p > 0) || !isfinite(p))
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: p is %.9g, and must be above 0",
                   __func__, p);
    if (batch->error.status || !read_pool(&pool, options, 0, window, &x))
        return kiln__none;
    kiln_tensor y = kiln__sliding_windows(call, x, 0);
    if (batch->error.status)
        return kiln__none;
    y = raised(call, p == 2 ? y : ROW(abs, y), p);
    y = batch->error.status ? kiln__none : kiln_sum(batch, y, call->n, pool.axes, 0);
    return kiln__sliding_result(call, batch->error.status ? kiln__none : raised(call, y, 1 / p));
}

/* ---- of two dimensions ---- */

static bool read_pool2d(struct pool *pool, const kiln_window_options *options, const size_t *window,
                        kiln_tensor *x)
{
    kiln_pool_options general = KILN_POOL_OPTIONS_INIT;
    kiln_window_options own = KILN_WINDOW_OPTIONS_INIT;
    struct kiln__sliding *call = &pool->sliding;
    if (!kiln__batch_floating(call->batch, *x, call->name, "x"))
        return false;
    struct kiln__error *error = &call->batch->error;
    if (options &&
        KILN__STRUCTURE_READ(error, call->name, options, "KILN_WINDOW_OPTIONS_INIT", &own))
        return false;
    if (own.groups > 1) {
        kiln__fail(error, KILN_INVALID_ARGUMENT, "%s: %zu groups; a pool has none", call->name,
                   own.groups);
        return false;
    }
    memcpy(general.stride, own.stride, sizeof own.stride);
    memcpy(general.dilation, own.dilation, sizeof own.dilation);
    memcpy(general.before, own.before, sizeof own.before);
    memcpy(general.after, own.after, sizeof own.after);
    general.count_padding = 1;
    return read_pool(pool, &general, 2, window, x);
}

kiln_tensor kiln_max_pool2d(kiln_batch *batch, kiln_tensor x, const size_t window[2],
                            const kiln_window_options *options)
{
    KILN__CALL(batch);
    struct pool pool = {.sliding = {.batch = batch, .name = __func__}};
    return read_pool2d(&pool, options, window, &x) ? pooling_largest(&pool, x, NULL) : kiln__none;
}

kiln_tensor kiln_avg_pool2d(kiln_batch *batch, kiln_tensor x, const size_t window[2],
                            const kiln_window_options *options)
{
    KILN__CALL(batch);
    struct pool pool = {.sliding = {.batch = batch, .name = __func__}};
    return read_pool2d(&pool, options, window, &x) ? pooling_average(&pool, x) : kiln__none;
}
