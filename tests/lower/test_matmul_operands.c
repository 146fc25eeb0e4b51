/* SPDX-License-Identifier: Apache-2.0 */
/* What is cheap and made from inputs is computed where a product reads it: with every
 * implementation that is right by the reference, no kernel of its own but for what few rows are
 * made from, and has the bits that it has with one. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../support/check.h"
#include "../support/graph.h"
#include "fuse/limits.h"
#include "session/context.h"

struct product {
    size_t batch, m, n, k;
    int transposes; /* 1: of a, 2: of b */
};

typedef void record(kiln_batch *batch, const struct product *p, kiln_tensor *a, kiln_tensor *b);

static kiln_tensor input(kiln_batch *batch, kiln_type type, const struct product *p, size_t rows,
                         size_t columns)
{
    size_t dims[] = {p->batch, rows, columns};
    return check_input(batch, type, p->batch ? 3 : 2, dims + !p->batch, CHECK_PLAIN);
}

static kiln_tensor bytes(kiln_batch *batch, const struct product *p, size_t rows, size_t columns)
{
    return kiln_cast(batch, input(batch, KILN_U8, p, rows, columns), KILN_F32);
}

static kiln_tensor vector(kiln_batch *batch, size_t rows, size_t columns)
{
    return check_plain(batch, DIMS(rows, columns));
}

/* Images times weights. */
static void pixels(kiln_batch *batch, const struct product *p, kiln_tensor *a, kiln_tensor *b)
{
    bool ta = p->transposes & 1, tb = p->transposes & 2;
    *a = kiln_scale(batch, bytes(batch, p, ta ? p->k : p->m, ta ? p->m : p->k), 1 / 255.0);
    *b = input(batch, KILN_F32, p, tb ? p->n : p->k, tb ? p->k : p->n);
}

/* Types that are only stored, as they lie in memory. */
static void narrow(kiln_batch *batch, const struct product *p, kiln_tensor *a, kiln_tensor *b)
{
    bool ta = p->transposes & 1, tb = p->transposes & 2;
    *a = input(batch, KILN_F16, p, ta ? p->k : p->m, ta ? p->m : p->k);
    *b = input(batch, KILN_BF16, p, tb ? p->n : p->k, tb ? p->k : p->n);
}

/* Each operand has something along its lines and something across them. */
static void both(kiln_batch *batch, const struct product *p, kiln_tensor *a, kiln_tensor *b)
{
    bool ta = p->transposes & 1, tb = p->transposes & 2;
    kiln_tensor x = bytes(batch, p, ta ? p->k : p->m, ta ? p->m : p->k);
    kiln_tensor w = bytes(batch, p, tb ? p->n : p->k, tb ? p->k : p->n);
    x = kiln_sub(batch, x, ta ? vector(batch, p->k, 1) : vector(batch, 1, p->k));
    *a = kiln_mul(batch, x, ta ? vector(batch, 1, p->m) : vector(batch, p->m, 1));
    w = kiln_sub(batch, w, kiln_constant(batch, KILN_F32, 128));
    *b = kiln_mul(batch, w, tb ? vector(batch, p->n, 1) : vector(batch, 1, p->n));
}

static kiln_tensor multiply(kiln_batch *batch, const struct product *p, kiln_tensor a,
                            kiln_tensor b)
{
    return kiln_matmul_transposed(batch, a, p->transposes & 1, b, p->transposes >> 1);
}

/* The product with its operands in memory, by what is asked for. */
static float *product_of_stored(const struct product *p, record *operands, size_t size)
{
    kiln_tensor a, b;
    check_seed(5);
    kiln_batch *batch = check_begin();
    operands(batch, p, &a, &b);
    check_read(batch, kiln_cast(batch, a, KILN_F32));
    check_read(batch, kiln_cast(batch, b, KILN_F32));
    float *found = check_read(batch, kiln_relu(batch, multiply(batch, p, a, b)));
    check_run(batch);
    float *copy = malloc(size + 1);
    cr_assert(copy);
    memcpy(copy, found, size);
    check_end(batch);
    return copy;
}

static void check_product(const struct product *p, record *operands, const char *name)
{
    size_t size = (p->batch ? p->batch : 1) * p->m * p->n * sizeof(float);
    float *stored = product_of_stored(p, operands, size);
    kiln_tensor a, b;
    check_seed(5);
    kiln_batch *batch = check_begin();
    operands(batch, p, &a, &b);
    float *found = check_read(batch, kiln_relu(batch, multiply(batch, p, a, b)));
    struct kiln__fusion fusion = fusion_of(batch);
    bool few = (p->batch ? p->batch : 1) * p->m < KILN__FEWEST_ROWS && operands != narrow;
    size_t wanted = p->k                 ? 1 + few
                    : operands == narrow ? 1
                                         : 3; /* of nothing nothing is computed */
    cr_expect_eq(fusion.groups.count, wanted, "%zu groups", fusion.groups.count);
    kiln__fusion_free(&fusion);
    expect_product_by(batch, name);
    check_run(batch);
    cr_expect(!memcmp(found, stored, size), "other bits than with operands in memory: %zux%zux%zu",
              p->m, p->n, p->k);
    free(stored);
    check_end(batch);
}

/* Sizes and transposes that the implementation can do. */
static void check_all(const char *name, bool of_cpus, size_t count, const struct product *products)
{
    check_prefer(name, of_cpus);
    for (size_t i = 0; i < count; i++)
        check_product(&products[i], both, name);
    check_product(&products[count - 1], narrow, name);
    check_close();
}
#define CHECK_ALL(name, of_cpus, ...)                                                              \
    check_all(name, of_cpus, sizeof((struct product[]){__VA_ARGS__}) / sizeof(struct product),     \
              (struct product[]){__VA_ARGS__})

/* A kernel compiles for each way in which operands lie. */
Test(operands, dots)
{
    CHECK_ALL("dots", true, {0, 3, 70, 90, 2}, {2, 70, 5, 33, 2});
}

Test(operands, skinny)
{
    CHECK_ALL("skinny", true, {0, 3, 70, 300, 0}, {2, 4, 40, 9, 0}, {0, 70, 1, 64, 1});
}

Test(operands, few)
{
    CHECK_ALL("few", true, {0, 21, 70, 300, 0}, {2, 17, 20, 9, 0}, {0, 32, 77, 33, 3});
}

Test(operands, small)
{
    CHECK_ALL("small", true, {0, 37, 70, 300, 0}, {2, 17, 20, 9, 0}, {0, 50, 41, 33, 3});
}

Test(operands, single)
{
    CHECK_ALL("single", true, {0, 37, 70, 300, 0}, {2, 17, 20, 9, 0}, {0, 50, 77, 33, 3});
}

Test(operands, packed)
{
    CHECK_ALL("packed", true, {0, 37, 70, 300, 0}, {2, 17, 20, 9, 0}, {0, 50, 77, 33, 3});
}

Test(operands, tiled)
{
    CHECK_ALL("tiled", false, {0, 64, 68, 40, 0}, {0, 37, 70, 33, 0}, {2, 50, 9, 33, 3});
}

Test(operands, by_the_heuristic)
{
    CHECK_ALL("", false, {0, 200, 260, 300, 0}, {0, 5, 9, 0, 0});
}

/* CLBlast reads memory as it is: another implementation does. */
Test(operands, are_not_lost_with_clblast)
{
    struct product p = {0, 9, 8, 7, 0};
    check_prefer("clblast", false);
    check_product(&p, both, "");
    check_close();
}

/* A layer of a network and its gradients: the images are read as bytes by both products. */
Test(operands, are_read_by_several_products)
{
    struct product p = {0, 40, 16, 50, 0};
    kiln_tensor x, w;
    check_prefer("", false);
    kiln_batch *batch = check_begin();
    pixels(batch, &p, &x, &w);
    kiln_tensor y = kiln_matmul(batch, x, w);
    kiln_tensor loss = kiln_sum(batch, kiln_square(batch, y), 0, NULL, 0), gradient;
    expect_ok(kiln_grad(batch, loss, &w, 1, &gradient));
    check_read(batch, loss);
    check_read(batch, gradient);
    struct kiln__fusion fusion = fusion_of(batch);
    for (size_t i = 0; i < fusion.graph.nodes.count; i++)
        cr_expect(fusion.graph.nodes.items[i].kind != KILN__CAST || !fusion.stored[i]);
    kiln__fusion_free(&fusion);
    check_run(batch);
    check_end(batch);
    check_close();
}

/* One operand, twice: each has steps of its own. */
Test(operands, are_one_and_the_same)
{
    struct product p = {0, 19, 19, 19, 0};
    check_prefer("", false);
    for (int transposes = 1; transposes < 3; transposes++) {
        kiln_batch *batch = check_begin();
        kiln_tensor x = kiln_sub(batch, bytes(batch, &p, 19, 19), vector(batch, 1, 19));
        check_tensor(batch, kiln_matmul_transposed(batch, x, transposes & 1, x, transposes >> 1));
    }
    check_close();
}
