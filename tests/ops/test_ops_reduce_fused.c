/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions with what comes before and after them in the same kernel. */
#include <criterion/criterion.h>

#include "../support/check.h"

#define LAST 1, ((int[]){-1})
#define FIRST 1, ((int[]){0})

/* Lengths for which each graph is run: one structure, so compiled once. */
static const size_t shapes[][2] = {{5, 7}, {33, 64}, {1, 1}, {3, 1009}, {1009, 16}, {0, 4}};
#define SHAPES (sizeof shapes / sizeof *shapes)

struct graph {
    kiln_batch *batch;
    size_t rows, columns;
    kiln_tensor x, y; /* [rows, columns] */
};

static kiln_tensor vector(const struct graph *g, size_t n)
{
    return check_input(g->batch, KILN_F32, DIMS(n), CHECK_PLAIN);
}

static void each_shape(void (*record)(const struct graph *g))
{
    for (size_t i = 0; i < SHAPES; i++) {
        struct graph g = {check_begin(), shapes[i][0], shapes[i][1], {0}, {0}};
        g.x = check_input(g.batch, KILN_F32, DIMS(g.rows, g.columns), CHECK_PLAIN);
        g.y = check_input(g.batch, KILN_F32, DIMS(g.rows, g.columns), CHECK_POSITIVE);
        record(&g);
        check_run(g.batch);
        check_end(g.batch);
    }
    check_close();
}

static void distances(const struct graph *g)
{
    kiln_batch *b = g->batch;
    kiln_tensor difference = kiln_sub(b, g->x, g->y);
    kiln_tensor squares = kiln_sum(b, kiln_square(b, difference), LAST, 0);
    check_read(b, kiln_sqrt(b, squares));
    check_read(b, squares);
}
Test(ops_reduce_fused, distances)
{
    each_shape(distances);
}

static void variance(const struct graph *g)
{
    kiln_batch *b = g->batch;
    kiln_tensor mean = kiln_mean(b, g->x, LAST, 1);
    kiln_tensor centred = kiln_sub(b, g->x, mean);
    kiln_tensor variance = kiln_mean(b, kiln_square(b, centred), LAST, 1);
    kiln_tensor scale = kiln_rsqrt(b, kiln_add(b, variance, kiln_constant(b, KILN_F32, 1e-3)));
    check_read(b, kiln_mul(b, centred, scale));
    check_read(b, kiln_sub(b, mean, g->x));
}
Test(ops_reduce_fused, layer_normalisation)
{
    each_shape(variance);
}

static void softmax(const struct graph *g)
{
    kiln_batch *b = g->batch;
    kiln_tensor shifted = kiln_sub(b, g->x, kiln_max(b, g->x, LAST, 1));
    kiln_tensor powers = kiln_exp(b, shifted);
    kiln_tensor total = kiln_sum(b, powers, LAST, 1);
    check_read(b, kiln_div(b, powers, total));
    check_read(b, kiln_sub(b, shifted, kiln_log(b, total)));
}
Test(ops_reduce_fused, softmax)
{
    each_shape(softmax);
}

static void columns(const struct graph *g)
{
    kiln_batch *b = g->batch;
    kiln_tensor sum = kiln_sum(b, kiln_mul(b, g->x, g->y), FIRST, 0);
    kiln_tensor biased = kiln_add(b, sum, vector(g, g->columns));
    check_read(b, kiln_relu(b, biased));
    check_read(b, kiln_sub(b, g->x, kiln_mean(b, g->x, FIRST, 1)));
}
Test(ops_reduce_fused, slow_columns)
{
    each_shape(columns);
}

/* What the epilogue loads has a stride of its own. */
static void epilogue_operands(const struct graph *g)
{
    kiln_batch *b = g->batch;
    kiln_tensor sum = kiln_sum(b, g->x, LAST, 0);
    kiln_tensor forward = vector(g, g->rows), wide = vector(g, g->rows * 2 + 1);
    int64_t start = (int64_t)g->rows * 2, step = -2, stop = start - 2 * (int64_t)g->rows;
    kiln_tensor backward = kiln_slice(b, wide, &start, g->rows ? &stop : &start, &step);
    check_read(b, kiln_mul(b, kiln_add(b, sum, forward), backward));
    check_read(b, kiln_cast(b, sum, KILN_I32));
}
Test(ops_reduce_fused, epilogue_operands)
{
    each_shape(epilogue_operands);
}

static void of_views(const struct graph *g)
{
    kiln_batch *b = g->batch;
    kiln_tensor turned = kiln_transpose(b, g->x, NULL);
    check_read(b, kiln_sum(b, turned, LAST, 0));
    check_read(b, kiln_sum(b, kiln_add(b, turned, kiln_transpose(b, g->y, NULL)), FIRST, 0));
    kiln_tensor repeated = kiln_broadcast(b, g->x, DIMS(3, g->rows, g->columns));
    check_read(b, kiln_sum(b, repeated, FIRST, 0));
    check_read(b, kiln_mean(b, kiln_mul(b, repeated, g->y), 2, (int[]){0, 2}, 1));
    check_read(b, kiln_sum(b, kiln_constant(b, KILN_F32, 0.5), 0, NULL, 0));
}
Test(ops_reduce_fused, of_views)
{
    each_shape(of_views);
}

/* Positions: whole numbers, so that the device computes exactly what the reference does. */
Test(ops_reduce_fused, position_of_an_expression)
{
    for (size_t i = 0; i + 1 < SHAPES; i++) {
        kiln_batch *b = check_begin();
        kiln_tensor x = check_input(b, KILN_F32, DIMS(shapes[i][0], shapes[i][1]), CHECK_FEW);
        kiln_tensor w = check_input(b, KILN_F32, DIMS(shapes[i][1]), CHECK_FEW);
        kiln_tensor score = kiln_mul(b, kiln_add(b, x, x), w);
        check_read(b, kiln_argmax(b, score, LAST, 0));
        check_read(b, kiln_argmin(b, score, FIRST, 1));
        kiln_tensor best = kiln_argmax(b, score, 0, NULL, 0);
        check_read(b, best);
        check_read(b, kiln_scale(b, kiln_cast(b, best, KILN_F32), 0.5));
        check_run(b);
        check_end(b);
    }
    check_close();
}

/* ---- several over the same rows, in one kernel ---- */

/* A costly value that two results and two sums need, and results of rows and of elements. */
static void entropy(const struct graph *g)
{
    kiln_batch *b = g->batch;
    kiln_tensor p = kiln_softmax(b, g->x, LAST);
    kiln_tensor logs = kiln_log_softmax(b, g->x, LAST);
    check_read(b, p);
    check_read(b, logs);
    check_read(b, kiln_neg(b, kiln_sum(b, kiln_mul(b, p, logs), LAST, 0)));
    check_read(b, kiln_max(b, g->x, LAST, 1));
}
Test(ops_reduce_fused, entropy)
{
    each_shape(entropy);
}

/* The derivative of softmax, from its result and an incoming gradient. */
static void softmax_backwards(const struct graph *g)
{
    kiln_batch *b = g->batch;
    kiln_tensor inner = kiln_sum(b, kiln_mul(b, g->x, g->y), LAST, 1);
    check_read(b, kiln_mul(b, g->y, kiln_sub(b, g->x, inner)));
}
Test(ops_reduce_fused, softmax_backwards)
{
    each_shape(softmax_backwards);
}

/* A map that is asked for goes on with its reductions. */
static void reduced_map(const struct graph *g)
{
    kiln_batch *b = g->batch;
    kiln_tensor sum = kiln_add(b, g->x, kiln_tanh(b, g->y));
    check_read(b, sum);
    check_read(b,
               kiln_layer_norm(b, sum, vector(g, g->columns), vector(g, g->columns), LAST, 1e-3));
    check_read(b, kiln_min(b, kiln_sub(b, sum, g->y), LAST, 0));
}
Test(ops_reduce_fused, reduced_map)
{
    each_shape(reduced_map);
}

/* Several reduced dimensions that are no single run, with operands that repeat along one of them or
 * along all, and several kept ones. */
Test(ops_reduce_fused, rows_of_several_dimensions)
{
    static const size_t sizes[][4] = {{2, 3, 6, 20}, {3, 1, 5, 17}, {1, 4, 3, 70}, {2, 2, 40, 3}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t *n = sizes[i];
        kiln_batch *b = check_begin();
        kiln_tensor x = check_input(b, KILN_F32, DIMS(n[0], n[1], n[2], n[3]), CHECK_PLAIN);
        kiln_tensor w = check_input(b, KILN_F32, DIMS(n[2], 1), CHECK_POSITIVE);
        kiln_tensor v = check_input(b, KILN_F32, DIMS(n[3]), CHECK_POSITIVE);
        kiln_tensor r = check_input(b, KILN_F32, DIMS(n[0], n[1], 1, 1), CHECK_POSITIVE);
        kiln_tensor scaled = kiln_mul(b, kiln_mul(b, x, w), r);
        check_read(b, kiln_layer_norm(b, scaled, v, w, 2, (int[]){2, 3}, 1e-3));
        check_read(b, kiln_variance(b, scaled, 2, (int[]){3, 2}, 1, 0));
        check_run(b);
        check_end(b);
    }
    check_close();
}

/* Cross entropy: the target is where a number that no memory holds equals the row's own. */
static void cross_entropy(const struct graph *g)
{
    kiln_batch *b = g->batch;
    kiln_tensor target = check_input(b, KILN_U8, DIMS(g->rows), CHECK_FEW);
    kiln_tensor hot = kiln_one_hot(b, target, g->columns, KILN_F32);
    kiln_tensor logs = kiln_log_softmax(b, g->x, LAST);
    check_read(b, kiln_neg(b, kiln_sum(b, kiln_mul(b, hot, logs), LAST, 0)));
    check_read(b, kiln_sub(b, kiln_softmax(b, g->x, LAST), hot));
}
Test(ops_reduce_fused, cross_entropy)
{
    each_shape(cross_entropy);
}

/* The row's values have types of their own. */
Test(ops_reduce_fused, rows_of_other_types)
{
    for (size_t i = 0; i + 1 < SHAPES; i++) {
        kiln_batch *b = check_begin();
        kiln_tensor x = check_input(b, KILN_U8, DIMS(shapes[i][0], shapes[i][1]), CHECK_PLAIN);
        kiln_tensor most = kiln_max(b, x, LAST, 1);
        check_read(b, kiln_sum(b, x, LAST, 0));
        check_read(b, most);
        check_read(b, kiln_sub(b, most, x));
        check_read(b, kiln_sum(b, kiln_cast(b, kiln_sub(b, most, x), KILN_I32), LAST, 1));
        check_read(b, kiln_mean(b, kiln_cast(b, x, KILN_F32), LAST, 1));
        check_run(b);
        check_end(b);
    }
    check_close();
}

/* Values of other types on the way in: u8 pixels to f32, f32 to i32. */
Test(ops_reduce_fused, slow_of_casts)
{
    for (size_t i = 0; i < SHAPES; i++) {
        kiln_batch *b = check_begin();
        kiln_tensor x = check_input(b, KILN_U8, DIMS(shapes[i][0], shapes[i][1]), CHECK_PLAIN);
        kiln_tensor f = kiln_cast(b, x, KILN_F32);
        check_read(b, kiln_mean(b, f, LAST, 0));
        check_read(b, kiln_sum(b, kiln_cast(b, kiln_scale(b, f, 0.5), KILN_I32), LAST, 0));
        check_read(b, kiln_sum(b, kiln_add(b, x, x), FIRST, 0)); /* wraps around, then adds up */
        check_run(b);
        check_end(b);
    }
    check_close();
}

/* Long enough for segments: the epilogue runs after the second kernel, once. */
Test(ops_reduce_fused, segments)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_input(b, KILN_F32, DIMS(2, 100003), CHECK_PLAIN);
    kiln_tensor bias = check_input(b, KILN_F32, DIMS(2), CHECK_POSITIVE);
    kiln_tensor norm = kiln_sqrt(b, kiln_sum(b, kiln_square(b, x), LAST, 0));
    check_read(b, kiln_div(b, norm, bias));
    check_read(b, kiln_add(b, kiln_sum(b, x, 0, NULL, 0), kiln_constant(b, KILN_F32, 3)));
    check_read(b, kiln_mean(b, kiln_transpose(b, x, NULL), FIRST, 1));
    check_run(b);
    check_end(b);
    check_close();
}
