/* SPDX-License-Identifier: Apache-2.0 */
/* Quantising by what it promises, and products of i8 against integer sums on the host: the same
 * bits with every implementation, also where sums in f32 would not be exact. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../support/check.h"
#include "../support/graph.h"
#include "session/context.h"

static const kiln_tensor none;

/* ---- kiln_quantize ---- */

/* Of [2,5,7]: the slice that element i belongs to. */
static size_t slice_of(size_t i, uint32_t reduced)
{
    size_t at[] = {i / 35, i / 7 % 5, i % 7}, dims[] = {2, 5, 7}, slice = 0;
    for (unsigned d = 0; d < 3; d++)
        if (!(reduced >> d & 1))
            slice = slice * dims[d] + at[d];
    return slice;
}

static void expect_quantised(const float *x, const int8_t *q, const float *scale, uint32_t reduced)
{
    float largest[70] = {0};
    for (size_t i = 0; i < 70; i++)
        largest[slice_of(i, reduced)] = fmaxf(largest[slice_of(i, reduced)], fabsf(x[i]));
    for (size_t i = 0; i < 70; i++) {
        size_t slice = slice_of(i, reduced);
        double wanted = (double)largest[slice] / 127, exact = (double)x[i] / (double)scale[slice];
        cr_expect(fabs((double)scale[slice] - wanted) <= 3e-7 * wanted, "scale %zu", slice);
        cr_expect(fabs(exact - q[i]) <= 0.5001, "element %zu: %g became %d", i, exact, q[i]);
        cr_expect(abs(q[i]) == (fabsf(x[i]) == largest[slice] ? 127 : abs(q[i])));
    }
}

Test(quantised, elements_of_rows_columns_and_all)
{
    static const int axes[][3] = {{2}, {1}, {0, -1}, {0, 1, 2}};
    static const size_t counts[] = {1, 1, 2, 3};
    static const uint32_t reduced[] = {4, 2, 5, 7};
    float x[70];
    for (size_t i = 0; i < 70; i++)
        x[i] = ((float)check_random(2001) - 1000) * (i < 35 ? 1e-3f : 7e20f);
    for (size_t i = 0; i < 4; i++) {
        kiln_batch *batch = check_begin();
        kiln_tensor scale, from = check_given(batch, KILN_F32, DIMS(2, 5, 7), x);
        kiln_tensor q = kiln_quantize(batch, from, counts[i], axes[i], &scale);
        const int8_t *found = check_read(batch, q);
        const float *scales = check_read(batch, scale);
        check_run(batch);
        expect_quantised(x, found, scales, reduced[i]);
        check_end(batch);
    }
    check_close();
}

#define COUNT 8

static void expect_row(const float *x, float scale, const int8_t *wanted)
{
    kiln_batch *batch = check_begin();
    kiln_tensor scales, from = check_given(batch, KILN_F32, DIMS(COUNT), x);
    const int8_t *q = check_read(batch, kiln_quantize(batch, from, 0, NULL, &scales));
    const float *found = check_read(batch, scales);
    run_batch(batch);
    cr_expect(isnan(scale) ? isnan(*found) : *found == scale, "scale %g", (double)*found);
    for (size_t i = 0; i < COUNT; i++)
        cr_expect_eq(q[i], wanted[i], "%g became %d", (double)x[i], q[i]);
    check_end(batch);
}

Test(quantised, ties_zeros_and_what_is_no_number)
{
    expect_row((float[COUNT]){127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -126.5f, 126.5f}, 1,
               (int8_t[COUNT]){127, 0, 2, 2, 0, -2, -126, 126});
    expect_row((float[COUNT]){0, -0.0f}, 1, (int8_t[COUNT]){0});
    expect_row((float[COUNT]){1e-36f, -1e-36f, 1e-40f}, 1, (int8_t[COUNT]){0});
    expect_row((float[COUNT]){INFINITY, 5, -7}, INFINITY, (int8_t[COUNT]){0});
    expect_row((float[COUNT]){NAN}, NAN, (int8_t[COUNT]){0});
    check_close();
}

Test(quantised, nothing)
{
    kiln_batch *batch = check_begin();
    kiln_tensor scale, x = check_plain(batch, DIMS(3, 0));
    check_read(batch, kiln_quantize(batch, x, 1, (int[]){1}, &scale));
    const float *ones = check_read(batch, scale);
    check_run(batch);
    for (size_t i = 0; i < 3; i++)
        cr_expect_eq(ones[i], 1);
    check_end(batch);
    check_close();
}

/* ---- products of two i8 ---- */

struct product {
    size_t batch, m, n, k;
    bool transposed, scaled;
};

/* Mostly of one sign, large and odd: sums in f32 round early. */
static int8_t *bytes(size_t count)
{
    int8_t *bytes = malloc(count + 1);
    cr_assert(bytes);
    for (size_t i = 0; i < count; i++)
        bytes[i] = (int8_t)(check_random(16) ? 127 - 2 * (int)check_random(3)
                                             : -128 + (int)check_random(256));
    return bytes;
}

/* Of b [k,n] or [n,k], shared by all matrices of a. */
static float sum_of(const struct product *p, const int8_t *a, const int8_t *b, size_t row,
                    size_t column)
{
    int64_t sum = 0;
    for (size_t i = 0; i < p->k; i++)
        sum += a[row * p->k + i] * b[p->transposed ? column * p->k + i : i * p->n + column];
    return (float)sum;
}

static void expect_exact(const struct product *p, const int8_t *a, const int8_t *b,
                         const float *scales, const float *found)
{
    size_t wrong = 0;
    for (size_t row = 0; row < p->batch * p->m; row++)
        for (size_t column = 0; column < p->n; column++) {
            float wanted = sum_of(p, a, b, row, column);
            if (p->scaled)
                wanted = wanted * scales[row % p->m] * scales[column];
            wrong += found[row * p->n + column] != wanted;
        }
    cr_expect_eq(wrong, 0, "%zu elements of %zux%zux%zu are not exact", wrong, p->m, p->n, p->k);
}

static kiln_tensor multiply(kiln_batch *batch, const struct product *p, const int8_t *a,
                            const int8_t *b, const float *scales)
{
    size_t rows = p->transposed ? p->n : p->k, columns = p->transposed ? p->k : p->n;
    kiln_tensor x = check_given(batch, KILN_I8, DIMS(p->batch, p->m, p->k), a), r = none, c = none;
    kiln_tensor y = check_given(batch, KILN_I8, DIMS(rows, columns), b);
    if (p->scaled) {
        r = check_given(batch, KILN_F32, DIMS(p->m, 1), scales);
        c = check_given(batch, KILN_F32, DIMS(p->transposed ? p->n : 1, p->transposed ? 1 : p->n),
                        scales);
    }
    return kiln_matmul_quantized(batch, x, r, y, p->transposed, c);
}

/* A kernel for each part: operands are not copied, nor are sums converted by one. */
static void expect_kernels(kiln_batch *batch, const struct product *p, const char *name)
{
    size_t parts = (p->k + 1023) / 1024;
    struct kiln__fusion fusion = fusion_of(batch);
    cr_expect_eq(fusion.groups.count, parts, "%zu groups of %zu", fusion.groups.count, parts);
    kiln__fusion_free(&fusion);
    expect_product_by(batch, name);
}

static void check_product(const struct product *p, const char *name)
{
    float scales[80];
    int8_t *a = bytes(p->batch * p->m * p->k), *b = bytes(p->k * p->n);
    for (size_t i = 0; i < 80; i++)
        scales[i] = (float)(i + 1) / 64;
    kiln_batch *batch = check_begin();
    const float *found = check_read(batch, multiply(batch, p, a, b, scales));
    expect_kernels(batch, p, name);
    check_run(batch);
    expect_exact(p, a, b, scales, found);
    check_end(batch);
    free(a);
    free(b);
}

static void check_all(const char *name, bool of_cpus, size_t count, const struct product *products)
{
    check_prefer(name, of_cpus);
    for (size_t i = 0; i < count; i++)
        check_product(&products[i], name);
    check_close();
}
#define CHECK_ALL(name, of_cpus, ...)                                                              \
    check_all(name, of_cpus, sizeof((struct product[]){__VA_ARGS__}) / sizeof(struct product),     \
              (struct product[]){__VA_ARGS__})

Test(quantised, products_by_dots)
{
    CHECK_ALL("dots", true, {1, 3, 70, 5000, true, true});
}

Test(quantised, products_by_skinny)
{
    CHECK_ALL("skinny", true, {1, 3, 70, 1041, false, true});
}

Test(quantised, products_by_small)
{
    CHECK_ALL("small", true, {2, 9, 20, 5000, false, false});
}

Test(quantised, products_by_packed)
{
    CHECK_ALL("packed", true, {1, 19, 35, 1041, true, true});
}

Test(quantised, products_by_tiled)
{
    CHECK_ALL("tiled", false, {2, 9, 20, 5000, true, true});
}

Test(quantised, products_by_the_heuristic)
{
    CHECK_ALL("", false, {1, 5, 9, 1, false, true}, {2, 5, 9, 13, true, true},
              {1, 1, 80, 1024, false, true});
}

/* ---- floats by i8 ---- */

/* A layer: its weights are read as they lie, its scales and what follows are in its kernel. */
Test(quantised, weights_of_a_layer)
{
    check_prefer("", false);
    kiln_batch *batch = check_begin();
    kiln_tensor x = check_input(batch, KILN_BF16, DIMS(2, 7, 40), CHECK_PLAIN);
    kiln_tensor w = check_input(batch, KILN_I8, DIMS(24, 40), CHECK_PLAIN);
    kiln_tensor scale = check_positive(batch, DIMS(24, 1));
    check_read(batch, kiln_relu(batch, kiln_matmul_quantized(batch, x, none, w, 1, scale)));
    struct kiln__fusion fusion = fusion_of(batch);
    cr_expect_eq(fusion.groups.count, 1, "%zu groups", fusion.groups.count);
    kiln__fusion_free(&fusion);
    check_run(batch);
    check_end(batch);
    check_close();
}

/* All from floats: not far from the product of these. */
Test(quantised, operands_of_a_product)
{
    check_prefer("", false);
    kiln_batch *batch = check_begin();
    kiln_tensor r, c, x = check_plain(batch, DIMS(9, 50)), w = check_plain(batch, DIMS(50, 11));
    kiln_tensor p = kiln_quantize(batch, x, 1, (int[]){-1}, &r);
    kiln_tensor q = kiln_quantize(batch, w, 1, (int[]){0}, &c);
    const float *found = check_read(batch, kiln_matmul_quantized(batch, p, r, q, 0, c));
    const float *wanted = check_read(batch, kiln_matmul(batch, x, w));
    run_batch(batch);
    for (size_t i = 0; i < (size_t)9 * 11; i++) /* 50 products of at most 4 * 4, each 2/254 off */
        cr_expect(fabsf(found[i] - wanted[i]) < 50 * 16 * 2 / 254.0f);
    check_end(batch);
    check_close();
}

Test(quantised, weights_let_gradients_through_and_quantising_does_not)
{
    check_prefer("", false);
    kiln_batch *batch = check_begin();
    kiln_tensor s, c, x = check_plain(batch, DIMS(3, 5)), d[2];
    kiln_tensor w = check_input(batch, KILN_I8, DIMS(5, 4), CHECK_PLAIN);
    kiln_tensor y = kiln_matmul_quantized(batch, x, none, w, 0, check_positive(batch, DIMS(4)));
    kiln_tensor loss = kiln_sum(batch, kiln_square(batch, y), 0, NULL, 0);
    expect_ok(kiln_grad(batch, loss, &x, 1, d));
    check_read(batch, d[0]);
    kiln_tensor q = kiln_quantize(batch, x, 1, (int[]){1}, &s);
    c = kiln_add(batch,
                 kiln_sum(batch, kiln_mul(batch, kiln_cast(batch, q, KILN_F32), s), 0, NULL, 0),
                 kiln_sum(batch, x, 0, NULL, 0));
    expect_ok(kiln_grad(batch, c, &x, 1, d + 1));
    const float *ones = check_read(batch, d[1]);
    check_run(batch);
    for (size_t i = 0; i < 15; i++)
        cr_expect_eq(ones[i], 1);
    check_end(batch);
    check_close();
}
