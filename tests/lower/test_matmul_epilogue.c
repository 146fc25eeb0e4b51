/* SPDX-License-Identifier: Apache-2.0 */
/* What follows a matrix product runs in the product's kernel: with every implementation it is one
 * kernel less, right by the reference, and has the bits that it has in a kernel of its own. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../support/check.h"
#include "../support/graph.h"
#include "session/context.h"

/* Which operation follows, on a product of [batch..., m, n]. */
struct shape {
    size_t rank, dims[4];
};
enum { MOST = 3 };

static kiln_tensor random_of(kiln_batch *b, size_t rank, const size_t *dims)
{
    return check_input(b, KILN_F32, rank, dims, CHECK_PLAIN);
}

/* A layer of a network. */
static size_t bias_gelu(kiln_batch *b, kiln_tensor p, const struct shape *shape, kiln_tensor *y)
{
    kiln_tensor bias = random_of(b, 1, &shape->dims[shape->rank - 1]);
    y[0] = kiln_gelu(b, kiln_add(b, p, bias));
    return 1;
}

/* What is added lies along the other way in memory, one element for each of the product. */
static size_t residual(kiln_batch *b, kiln_tensor p, const struct shape *shape, kiln_tensor *y)
{
    size_t dims[4];
    memcpy(dims, shape->dims, sizeof dims);
    dims[shape->rank - 1] = shape->dims[shape->rank - 2];
    dims[shape->rank - 2] = shape->dims[shape->rank - 1];
    kiln_tensor other = kiln_transpose(b, random_of(b, shape->rank, dims), NULL);
    kiln_tensor same = random_of(b, shape->rank, shape->dims);
    y[0] = kiln_relu(b, kiln_sub(b, kiln_add(b, kiln_scale(b, p, 0.5), other), same));
    return 1;
}

/* The product itself is asked for, and two results of it, of which one has integers. */
static size_t several(kiln_batch *b, kiln_tensor p, const struct shape *shape, kiln_tensor *y)
{
    kiln_tensor rows = random_of(b, 2, (size_t[]){shape->dims[shape->rank - 2], 1});
    kiln_tensor sum = kiln_add(b, p, rows);
    y[0] = p;
    y[1] = kiln_exp(b, kiln_minimum(b, kiln_neg(b, kiln_abs(b, sum)), rows));
    y[2] = kiln_cast(b, kiln_scale(b, sum, 10), KILN_I32);
    return 3;
}

/* No result can hold sums. */
static size_t bytes(kiln_batch *b, kiln_tensor p, const struct shape *shape, kiln_tensor *y)
{
    (void)shape;
    y[0] = kiln_cast(b, kiln_relu(b, p), KILN_U8);
    return 1;
}

/* Each operand repeats along other dimensions. */
static size_t spread(kiln_batch *b, kiln_tensor p, const struct shape *shape, kiln_tensor *y)
{
    size_t each[4] = {1, 1, 1, 1}, r = shape->rank;
    kiln_tensor sum = p;
    for (size_t d = 0; d < r; d++) {
        each[d] = shape->dims[d];
        sum = kiln_add(b, sum, random_of(b, r, each));
        each[d] = 1;
    }
    y[0] = kiln_div(b, sum, kiln_constant(b, KILN_F32, 3));
    return 1;
}

typedef size_t follow(kiln_batch *b, kiln_tensor p, const struct shape *shape, kiln_tensor *y);

/* ---- fused and not ---- */

struct product {
    size_t rank, lead[2], m, n, k; /* rank with two leading dimensions at most */
    int transposes;                /* 1: of a, 2: of b */
    int shared;                    /* one b for all of the batch */
};

static void dims_of(const struct product *p, bool b, size_t rows, size_t columns, int transposed,
                    struct shape *shape)
{
    shape->rank = b && p->shared ? 2 : p->rank;
    for (size_t d = 0; d + 2 < shape->rank; d++)
        shape->dims[d] = p->lead[d];
    shape->dims[shape->rank - 2] = transposed ? columns : rows;
    shape->dims[shape->rank - 1] = transposed ? rows : columns;
}

static kiln_tensor multiply(kiln_batch *batch, const struct product *p, enum check_values values)
{
    struct shape a, b;
    dims_of(p, false, p->m, p->k, p->transposes & 1, &a);
    dims_of(p, true, p->k, p->n, p->transposes & 2, &b);
    kiln_tensor x = check_input(batch, KILN_F32, a.rank, a.dims, values);
    kiln_tensor y = check_input(batch, KILN_F32, b.rank, b.dims, values);
    return kiln_matmul_transposed(batch, x, p->transposes & 1, y, p->transposes >> 1);
}

static void *copy_of(const void *data, size_t size)
{
    void *copy = malloc(size + 1);
    cr_assert(copy);
    memcpy(copy, data, size);
    return copy;
}

/* Ask for all results of `follow_up`, after the product if it is given; what the first has is then
 * copied, with its size. */
static void run(kiln_batch *batch, kiln_tensor p, follow *follow_up, const struct shape *shape,
                void *copies[MOST], size_t sizes[MOST])
{
    kiln_tensor y[MOST];
    void *found[MOST];
    check_seed(7);
    size_t count = follow_up(batch, p, shape, y);
    for (size_t i = 0; i < count; i++) {
        kiln_type type;
        size_t rank, dims[KILN_MAX_RANK];
        expect_ok(kiln_tensor_shape(batch, y[i], &type, &rank, dims));
        sizes[i] = kiln_type_size(type);
        for (size_t d = 0; d < rank; d++)
            sizes[i] *= dims[d];
        found[i] = check_read(batch, y[i]);
    }
    check_run(batch);
    for (size_t i = 0; i < MOST; i++)
        copies[i] = i < count ? copy_of(found[i], sizes[i]) : NULL;
}

static void *product_alone(const struct product *p, enum check_values values, size_t size)
{
    check_seed(3);
    kiln_batch *batch = check_begin();
    void *data = check_read(batch, multiply(batch, p, values));
    run_batch(batch);
    void *copy = copy_of(data, size);
    check_end(batch);
    return copy;
}

/* Which NaN comes out is the compiler's choice. Results of other types have no bits of one. */
static bool same_bits(const float *a, const float *b, size_t bytes)
{
    size_t count = bytes / sizeof *a;
    for (size_t i = 0; i < count; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i])))
            return false;
    return !memcmp(a + count, b + count, bytes % sizeof *a);
}

/* The implementation that has to do the products, if one is asked for. */
static const char *wanted = "";

static void compare(const struct product *p, follow *follow_up, enum check_values values)
{
    struct shape shape;
    dims_of(p, false, p->m, p->n, 0, &shape);
    size_t size = sizeof(float), sizes[MOST];
    for (size_t d = 0; d < shape.rank; d++)
        size *= shape.dims[d];
    void *fused[MOST], *apart[MOST], *alone = product_alone(p, values, size);

    check_seed(3);
    kiln_batch *batch = check_begin();
    run(batch, multiply(batch, p, values), follow_up, &shape, fused, sizes);
    if (p->k)
        expect_product_by(batch, wanted);
    check_end(batch);
    batch = check_begin();
    run(batch, check_given(batch, KILN_F32, shape.rank, shape.dims, alone), follow_up, &shape,
        apart, sizes);
    check_end(batch);
    for (size_t i = 0; i < MOST && fused[i]; i++) {
        cr_expect(same_bits(fused[i], apart[i], sizes[i]),
                  "result %zu of %zux%zux%zu has other bits in a kernel of its own", i, p->m, p->n,
                  p->k);
        free(fused[i]);
        free(apart[i]);
    }
    free(alone);
}

/* ---- every implementation ---- */

static void prefer(const char *name, bool of_cpus)
{
    wanted = name;
    check_prefer(name, of_cpus);
}

/* A product that the implementation takes, and one more for it in batches. */
static void everything_with(const char *name, bool of_cpus, const struct product *p,
                            const struct product *batched)
{
    prefer(name, of_cpus);
    compare(p, several, CHECK_FEW);
    compare(p, bias_gelu, CHECK_SPECIAL);
    compare(batched, bias_gelu, CHECK_PLAIN);
    compare(batched, spread, CHECK_PLAIN);
    struct product empty = *batched;
    empty.k = 0;
    compare(&empty, bias_gelu, CHECK_FEW);
    check_close();
}

Test(epilogue, of_dots)
{
    everything_with("dots", true, &(struct product){2, {0}, 3, 41, 70, 2, 0},
                    &(struct product){4, {2, 3}, 19, 3, 20, 2, 0});
}

Test(epilogue, of_skinny_products)
{
    everything_with("skinny", true, &(struct product){2, {0}, 3, 75, 40, 0, 0},
                    &(struct product){4, {2, 3}, 3, 21, 300, 0, 0});
}

/* One column from a transposed matrix. */
Test(epilogue, of_skinny_products_the_other_way_round)
{
    everything_with("skinny", true, &(struct product){2, {0}, 75, 1, 40, 1, 0},
                    &(struct product){4, {2, 3}, 35, 1, 300, 1, 0});
}

Test(epilogue, of_products_of_few_rows)
{
    everything_with("few", true, &(struct product){2, {0}, 21, 143, 300, 2, 0},
                    &(struct product){4, {2, 3}, 5, 35, 20, 0, 1});
}

Test(epilogue, of_small_products)
{
    everything_with("small", true, &(struct product){2, {0}, 37, 53, 300, 0, 0},
                    &(struct product){4, {2, 3}, 9, 35, 20, 1, 0});
}

Test(epilogue, of_single_products)
{
    everything_with("single", true, &(struct product){2, {0}, 37, 143, 600, 2, 0},
                    &(struct product){4, {2, 3}, 9, 35, 20, 1, 0});
}

Test(epilogue, of_packed_products)
{
    everything_with("packed", true, &(struct product){2, {0}, 37, 143, 600, 2, 0},
                    &(struct product){4, {2, 3}, 9, 35, 20, 0, 1});
}

/* A CPU takes a while to compile them and never chooses them: one is enough there. */
Test(epilogue, of_tiled_products)
{
    prefer("tiled", false);
    if (check_context()->runtime.device.traits->chunked) {
        compare(&(struct product){2, {0}, 37, 53, 70, 3, 0}, bias_gelu, CHECK_FEW);
        check_close();
        return;
    }
    everything_with("tiled", false, &(struct product){2, {0}, 37, 53, 70, 3, 0},
                    &(struct product){4, {2, 3}, 9, 36, 20, 3, 1});
}

/* Chosen by size, with vectors that are aligned where the device has memory of its own. */
Test(epilogue, of_what_the_heuristic_takes)
{
    everything_with("", false, &(struct product){2, {0}, 64, 64, 64, 0, 0},
                    &(struct product){4, {2, 3}, 16, 32, 16, 0, 1});
    prefer("", false);
    compare(&(struct product){2, {0}, 64, 64, 64, 0, 0}, residual, CHECK_FEW);
    compare(&(struct product){2, {0}, 64, 64, 64, 0, 0}, bytes, CHECK_FEW);
    compare(&(struct product){2, {0}, 67, 83, 300, 0, 0}, bytes, CHECK_FEW);
    check_close();
}

/* CLBlast takes none: another implementation does. */
Test(epilogue, is_not_lost_with_clblast)
{
    prefer("clblast", false);
    kiln_batch *batch = check_begin();
    kiln_tensor x = random_of(batch, DIMS(9, 7)), w = random_of(batch, DIMS(7, 8));
    check_tensor(batch, kiln_relu(batch, kiln_matmul(batch, x, w)));
    check_close();
}

/* ---- one kernel ---- */

Test(epilogue, saves_a_launch)
{
    kiln_batch *batch = check_begin();
    kiln_tensor x = random_of(batch, DIMS(32, 32)), w = random_of(batch, DIMS(32, 32));
    kiln_tensor y = kiln_add(batch, kiln_matmul(batch, x, w), random_of(batch, DIMS(32)));
    check_read(batch, kiln_tanh(batch, y));
    run_batch(batch);
    cr_expect_eq(stats_of(check_context()).launches, 1u);
    check_end(batch);
    check_close();
}

/* One layer's output is the next one's input, and a value of the kernel before. */
Test(epilogue, chains)
{
    kiln_batch *batch = check_begin();
    kiln_tensor x = random_of(batch, DIMS(20, 30)), w = random_of(batch, DIMS(30, 30));
    kiln_tensor y = x;
    for (int i = 0; i < 3; i++) {
        kiln_tensor bias = random_of(batch, DIMS(30));
        y = kiln_add(batch, y, kiln_tanh(batch, kiln_add(batch, kiln_matmul(batch, y, w), bias)));
    }
    check_read(batch, y);
    check_run(batch);
    cr_expect_eq(stats_of(check_context()).launches, 2 * 3u);
    check_end(batch);
    check_close();
}

/* x x' + x, where what is added is an operand as well. */
Test(epilogue, loads_an_operand_again)
{
    kiln_batch *batch = check_begin();
    kiln_tensor x = random_of(batch, DIMS(19, 19));
    kiln_tensor y = kiln_matmul_transposed(batch, x, 0, x, 1);
    check_read(batch, kiln_mul(batch, kiln_add(batch, y, x), x));
    check_tensor(batch, kiln_add(batch, y, kiln_transpose(batch, y, NULL)));
    check_close();
}

static bool has_epilogue(kiln_batch *batch)
{
    struct kiln__fusion fusion = fusion_of(batch);
    bool found = false;
    for (size_t i = 0; i < fusion.groups.count; i++)
        found = found || kiln__group_has_epilogue(&fusion.groups.items[i]);
    kiln__fusion_free(&fusion);
    kiln_batch_release(batch);
    return found;
}

/* What is made later than the product, or needs other elements of it, is no epilogue. */
Test(epilogue, is_not_what_needs_something_later)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 8, 8);
    kiln_tensor y = kiln_matmul(batch, x, x), sum = kiln_sum(batch, y, 1, (int[]){1}, 1);
    ask(batch, kiln_div(batch, y, sum));
    cr_expect(!has_epilogue(batch));

    batch = imagined_batch();
    x = imagine_matrix(batch, 8, 8);
    y = kiln_matmul(batch, x, x);
    ask(batch, kiln_add(batch, y, kiln_transpose(batch, y, NULL)));
    cr_expect(!has_epilogue(batch));
}

/* A kernel has so many arguments: the rest are kernels of their own. */
Test(epilogue, grows_only_so_large)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 8, 8), y = kiln_matmul(batch, x, x);
    for (int i = 0; i < 40; i++)
        y = kiln_add(batch, kiln_tanh(batch, y), imagine_matrix(batch, 8, 8));
    ask(batch, y);
    struct kiln__fusion fusion = fusion_of(batch);
    cr_expect_geq(fusion.groups.count, 2u);
    for (size_t i = 0; i < fusion.groups.count; i++)
        if (fusion.groups.items[i].kind == KILN__GROUP_MATMUL)
            cr_expect_leq(fusion.groups.items[i].accesses.count, 18u);
    kiln__fusion_free(&fusion);
    kiln_batch_release(batch);
}

/* ---- in place ---- */

enum { IN = 37, OUT = 45, MOST_ROWS = 600 };

/* W -= X' G / 8, all small whole numbers. */
static void expect_update(const float *x, const float *g, size_t rows, const float *before,
                          const float *after)
{
    for (size_t i = 0; i < IN * OUT; i++) {
        double sum = 0;
        for (size_t r = 0; r < rows; r++)
            sum += (double)x[r * IN + i / OUT] * (double)g[r * OUT + i % OUT];
        cr_assert_eq((double)after[i], (double)before[i] - sum / 8, "element %zu of %zu rows", i,
                     rows);
    }
}

/* A training step: the gradient of the weights is never in memory. */
static void update_weights(size_t rows)
{
    static float x[MOST_ROWS * IN], g[MOST_ROWS * OUT], before[IN * OUT], after[IN * OUT];
    kiln_buffer *weights;
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        x[i] = (float)check_random(5) - 2;
    for (size_t i = 0; i < sizeof g / sizeof *g; i++)
        g[i] = (float)check_random(5) - 2;
    for (size_t i = 0; i < IN * OUT; i++)
        before[i] = (float)check_random(9);
    expect_ok(kiln_buffer_create(check_context(), KILN_F32, 2, (size_t[]){IN, OUT}, &weights));
    expect_ok(kiln_buffer_write(weights, 0, before, sizeof before));

    kiln_batch *batch = check_begin();
    kiln_tensor w = kiln_import(batch, weights);
    kiln_tensor gradient =
        kiln_matmul_transposed(batch, check_given(batch, KILN_F32, DIMS(rows, IN), x), 1,
                               check_given(batch, KILN_F32, DIMS(rows, OUT), g), 0);
    kiln_tensor step = kiln_scale(batch, gradient, 0.125);
    expect_ok(kiln_export(batch, kiln_sub(batch, w, step), weights));
    char *text;
    expect_ok(kiln_batch_explain(batch, &text));
    cr_expect(strstr(text, " in place"), "with %zu rows", rows);
    kiln_free(text);
    for (int run = 0; run < 2; run++) {
        run_batch(batch);
        expect_ok(kiln_buffer_read(weights, 0, after, sizeof after));
        expect_update(x, g, rows, before, after);
        memcpy(before, after, sizeof before);
    }
    check_end(batch);
    kiln_buffer_release(weights);
}

Test(epilogue, updates_in_place)
{
    static const char *const names[] = {"", "packed", "single", "small"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        setenv("KILN_MATMUL", names[i], 1);
        update_weights(40);
        update_weights(MOST_ROWS); /* sums go to memory on the way */
        check_close();
    }
}
