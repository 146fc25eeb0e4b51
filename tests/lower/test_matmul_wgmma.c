/* SPDX-License-Identifier: Apache-2.0 */
/* Which products go to tensor cores, on a device that exists only here, and with which launches. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/opencl.h>

#include "../support/context.h"
#include "../support/graph.h"
#include "codegen/codegen.h"
#include "session/compile.h"
#include "session/context.h"
#include "util/kernel_texts.h"

/* ---- the device, and who believes in it ---- */

#define HANDS_OVER 1      /* a tile of 256 columns, which is finished by other warps */
static unsigned believed; /* tiles of so many columns, as a sum */

static bool believes(struct kiln__self_tester *self_tester, const struct kiln__self_test *self_test)
{
    (void)self_tester;
    return (believed & (self_test->form ? HANDS_OVER : self_test->tile)) != 0;
}

static struct kiln__self_tester self_tester = {believes};

/* ---- products ---- */

struct product {
    kiln_type type;
    size_t batch, m, n, k;
    int transpose_a, transpose_b;
    kiln_tensor (*after)(kiln_batch *batch, kiln_tensor product, size_t n);
    kiln_precision precision;
    bool batch_invariant;
};

static const char nothing[16];
static size_t arena; /* bytes of the last plan's */
static const char *wanted = "wgmma";

static kiln_tensor operand(kiln_batch *batch, kiln_type type, size_t count, size_t rows,
                           size_t columns, int turned)
{
    const size_t dims[] = {count, turned ? columns : rows, turned ? rows : columns};
    return count > 1 ? kiln_upload(batch, type, 3, dims, nothing)
                     : kiln_upload(batch, type, 2, dims + 1, nothing);
}

/* The plan's text of the first launch, if it is this kernel's; "" if another one's. */
static const char *planned(const struct kiln__device *device, const struct product *product)
{
    static char words[512];
    struct kiln__plan_options options = {.device = device, .self_tester = &self_tester};
    struct kiln__plan plan;
    char wrong[KILN__WRONG] = "";
    kiln_batch *batch = kiln_batch_create(imagined_gpu());
    cr_expect_eq(kiln_batch_set_precision(batch, product->precision), KILN_OK);
    if (product->batch_invariant)
        cr_expect_eq(kiln_batch_set_batch_invariant(batch), KILN_OK);
    kiln_tensor a =
        operand(batch, product->type, product->batch, product->m, product->k, product->transpose_a);
    kiln_tensor b =
        operand(batch, product->type, product->batch, product->k, product->n, product->transpose_b);
    const kiln_tensor none = {0};
    kiln_tensor y =
        product->type == KILN_I8
            ? kiln_matmul_quantized(batch, a, none, b, product->transpose_b, none)
            : kiln_matmul_transposed(batch, a, product->transpose_a, b, product->transpose_b);
    ask(batch, product->after ? product->after(batch, y, product->n) : y);
    cr_assert_eq(kiln_batch_status(batch), KILN_OK, "%s", kiln_batch_error(batch));
    cr_assert_eq(kiln__compile_plan(&batch->graph, &options, NULL, &plan, NULL), KILN_OK, "%s",
                 kiln_last_error());
    cr_expect_eq(kiln__launches_verify(&plan, wrong), KILN_OK, "%s", wrong);
    const struct kiln__launch *launch = &plan.launches.items[0];
    bool same = launch->choice.taken && !strcmp(launch->choice.taken->name, wanted);
    snprintf(words, sizeof words, "%s", same ? launch->options : "");
    if (same)
        snprintf(words + strlen(words), sizeof words - strlen(words), " %zu%s",
                 launch->global[0] / launch->local[0], plan.launches.count > 1 ? ", " : "");
    for (size_t i = 1; same && i < plan.launches.count; i++)
        sprintf(words + strlen(words), "%s%s", plan.launches.items[i].kernel,
                i + 1 < plan.launches.count ? ", " : "");
    arena = plan.arena_bytes;
    kiln__plan_free(&plan);
    kiln_batch_release(batch);
    return words;
}

static void expect_words(const struct product *product, const char *words)
{
    struct kiln__device device = imagined_hopper();
    believed = 64 + 128 + 256 + HANDS_OVER;
    cr_expect_str_eq(planned(&device, product), words);
}

static void expect_other(const struct product *product)
{
    expect_words(product, "");
}

/* Tiles of 256, of 128 and of 64 columns. */
#define WIDE " -DPARTS=1 -DTILE_N=256 -DSTAGES=4 -DHANDS_OVER=0 -DMARKS=44 -DLOCAL=229888"
#define HANDED " -DPARTS=1 -DTILE_N=256 -DSTAGES=4 -DHANDS_OVER=1 -DMARKS=42 -DLOCAL=229888"
#define NARROW " -DPARTS=1 -DTILE_N=128 -DSTAGES=5 -DHANDS_OVER=0 -DMARKS=44 -DLOCAL=197120"
#define SLIM " -DPARTS=1 -DTILE_N=64 -DSTAGES=7 -DHANDS_OVER=0 -DMARKS=44 -DLOCAL=205312"

Test(wgmma, has_a_program_for_each_type_and_layout)
{
    expect_words(&(struct product){KILN_BF16, 1, 4096, 4096, 4096, 0, 0, .after = NULL},
                 "-DTYPE=bf16 -DBYTES=2 -DTRANSPOSE_A=0 -DTRANSPOSE_B=0 "
                 "-DRESULT=1 -DALIGNED=1" WIDE " 132");
    expect_words(&(struct product){KILN_F16, 1, 4096, 4096, 4096, 1, 0, .after = NULL},
                 "-DTYPE=f16 -DBYTES=2 -DTRANSPOSE_A=1 -DTRANSPOSE_B=0 "
                 "-DRESULT=1 -DALIGNED=1" WIDE " 132");
    expect_words(&(struct product){KILN_F16, 3, 640, 640, 64, 1, 1, .after = NULL},
                 "-DTYPE=f16 -DBYTES=2 -DTRANSPOSE_A=1 -DTRANSPOSE_B=1 "
                 "-DRESULT=1 -DALIGNED=1" NARROW " 75");
}

Test(wgmma, takes_narrow_tiles_where_wide_ones_leave_cores_idle)
{
    expect_words(&(struct product){KILN_BF16, 1, 1024, 1024, 1024, 0, 1, .after = NULL},
                 "-DTYPE=bf16 -DBYTES=2 -DTRANSPOSE_A=0 -DTRANSPOSE_B=1 "
                 "-DRESULT=1 -DALIGNED=1" SLIM " 128");
    expect_words(&(struct product){KILN_BF16, 1, 1536, 1024, 1024, 0, 1, .after = NULL},
                 "-DTYPE=bf16 -DBYTES=2 -DTRANSPOSE_A=0 -DTRANSPOSE_B=1 "
                 "-DRESULT=1 -DALIGNED=1" NARROW " 96");
}

/* What this device was tuned to. */
static const char *tuned(unsigned tile, unsigned splits, const struct product *product)
{
    struct kiln__device device = imagined_hopper();
    struct kiln__traits traits = *device.traits;
    traits.tile = tile;
    traits.splits = splits;
    device.traits = &traits;
    return planned(&device, product);
}

Test(wgmma, takes_the_tiles_and_the_splits_that_were_tuned)
{
    const struct product wide = {KILN_BF16, 1, 4096, 4096, 4096, 0, 0, .after = NULL};
    const struct product deep = {KILN_BF16, 1, 256, 256, 4096, 0, 0, .after = NULL};
    believed = 64 + 128 + 256;
    cr_expect(strstr(tuned(1, 0, &wide), SLIM));
    cr_expect(strstr(tuned(2, 0, &wide), NARROW));
    cr_expect(strstr(tuned(3, 0, &wide), WIDE));
    cr_expect(strstr(tuned(4, 0, &wide), WIDE), "not proved");
    believed |= HANDS_OVER;
    cr_expect(strstr(tuned(4, 0, &wide), HANDED));
    cr_expect(strstr(tuned(5, 0, &wide), WIDE), "it has but four");
    cr_expect_not(strstr(tuned(0, 1, &deep), ", "), "one launch");
    cr_expect(strstr(tuned(0, 4, &deep), ", "), "another one adds up");
    believed = 256;
    cr_expect(strstr(tuned(1, 0, &wide), WIDE), "what is not proven is not taken");
}

static kiln_tensor as_layer(kiln_batch *batch, kiln_tensor product, size_t n)
{
    return kiln_gelu(batch, kiln_add(batch, product, imagine_vector(batch, n)));
}

static kiln_tensor as_narrow_layer(kiln_batch *batch, kiln_tensor product, size_t n)
{
    return kiln_cast(batch, as_layer(batch, product, n), KILN_BF16);
}

Test(wgmma, does_what_follows_in_its_kernel_without_memory_for_sums)
{
    expect_words(&(struct product){KILN_BF16, 1, 4096, 4096, 1024, 0, 0, .after = as_layer},
                 "-DTYPE=bf16 -DBYTES=2 -DTRANSPOSE_A=0 -DTRANSPOSE_B=0 "
                 "-DRESULT=1 -DALIGNED=1" WIDE " 132");
    expect_words(&(struct product){KILN_BF16, 1, 4096, 4096, 1024, 0, 0, .after = as_narrow_layer},
                 "-DTYPE=bf16 -DBYTES=2 -DTRANSPOSE_A=0 -DTRANSPOSE_B=0 "
                 "-DRESULT=0 -DALIGNED=1" WIDE " 132");
    cr_expect_lt(arena, (2 * 1024 + 4096) * 4096 * sizeof(uint16_t) + 65536);
}

static kiln_tensor as_activation(kiln_batch *batch, kiln_tensor product, size_t n)
{
    kiln_tensor sum = kiln_add(batch, product, imagine_vector(batch, n));
    return kiln_cast(batch, kiln_relu(batch, sum), KILN_BF16);
}

/* With an operand that has an element for each of the product's. */
static kiln_tensor as_residual_layer(kiln_batch *batch, kiln_tensor product, size_t n)
{
    kiln_tensor other = kiln_upload(batch, KILN_BF16, kiln_shape(8192, n), nothing);
    return kiln_cast(batch, kiln_add(batch, as_layer(batch, product, n), other), KILN_BF16);
}

/* The kernel that each of these takes was the faster one, or as fast, when both were timed on an
 * H200 (bench/results/2026-11-25-h200-handing-over.md; without anything that follows, and with one
 * tile for a core, h200-local-memory.md). */
Test(wgmma, hands_a_tile_over_where_that_was_faster)
{
    static const struct {
        kiln_tensor (*after)(kiln_batch *, kiln_tensor, size_t);
        size_t m, n, k;
        bool handed;
    } rows[] = {
        {NULL, 8192, 8192, 4096, false},
        {as_activation, 8192, 8192, 64, false},
        {as_activation, 8192, 8192, 256, false},
        {as_activation, 8192, 8192, 1024, false},
        {as_activation, 4096, 4096, 512, false},
        {as_narrow_layer, 8192, 8192, 64, false},
        {as_narrow_layer, 8192, 8192, 512, false},
        {as_narrow_layer, 8192, 8192, 1024, false},
        {as_narrow_layer, 8192, 8192, 2048, false},
        {as_narrow_layer, 8192, 8192, 3072, false},
        {as_narrow_layer, 8192, 8192, 4096, true},
        {as_narrow_layer, 8192, 8192, 8192, true},
        {as_narrow_layer, 4096, 4096, 1024, false},
        {as_narrow_layer, 4096, 4096, 4096, false},
        {as_narrow_layer, 2048, 2048, 4096, false}, /* a tile for a core */
        {as_residual_layer, 8192, 8192, 1024, false},
        {as_residual_layer, 8192, 8192, 4096, false},
        {as_residual_layer, 8192, 8192, 8192, true},
    };
    struct kiln__device device = imagined_hopper();
    believed = 64 + 128 + 256 + HANDS_OVER;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct product product = {.type = KILN_BF16,
                                        .batch = 1,
                                        .m = rows[i].m,
                                        .n = rows[i].n,
                                        .k = rows[i].k,
                                        .after = rows[i].after};
        const char *words = planned(&device, &product);
        cr_expect_eq(strstr(words, HANDED) != NULL, rows[i].handed, "row %zu: %s", i, words);
    }
}

/* Adam's step of a gradient, with three operands of its size. */
static kiln_tensor as_update(kiln_batch *batch, kiln_tensor g, size_t n)
{
    kiln_tensor old[3];
    for (int i = 0; i < 3; i++)
        old[i] = kiln_upload(batch, KILN_F32, kiln_shape(8192, n), nothing);
    kiln_tensor mean = kiln_add(batch, kiln_scale(batch, old[1], 0.9), kiln_scale(batch, g, 0.1));
    kiln_tensor square = kiln_add(batch, kiln_scale(batch, old[2], 0.99),
                                  kiln_scale(batch, kiln_square(batch, g), 0.01));
    kiln_tensor root = kiln_sqrt(batch, kiln_scale(batch, square, 1 / 0.01));
    kiln_tensor by = kiln_add(batch, root, kiln_constant(batch, KILN_F32, 1e-8));
    kiln_tensor step = kiln_scale(batch, kiln_div(batch, mean, by), 1e-3);
    return kiln_sub(batch, old[0], step);
}

/* Another launch would read these operands, too. */
Test(wgmma, splits_nothing_for_the_operands_of_what_follows)
{
    static const size_t depths[] = {1024, 2048, 4096};
    struct kiln__device device = imagined_hopper();
    believed = 64 + 128 + 256 + HANDS_OVER;
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) {
        const struct product gradient = {.type = KILN_BF16,
                                         .batch = 1,
                                         .m = 8192,
                                         .n = 8192,
                                         .k = depths[i],
                                         .after = as_update};
        const char *words = planned(&device, &gradient);
        cr_expect(strstr(words, WIDE), "%zu: %s", depths[i], words);
        cr_expect_not(strstr(words, ", "), "%zu: %s", depths[i], words);
    }
}

Test(wgmma, hands_no_tile_over_that_takes_long_anyway_or_unproved)
{
    const struct product layer = {KILN_BF16, 1, 8192, 8192, 4096, 0, 0, .after = as_narrow_layer};
    struct product other = layer;
    struct kiln__device device = imagined_hopper();
    believed = 64 + 128 + 256 + HANDS_OVER;
    other.k = 65536;
    cr_expect(strstr(planned(&device, &other), WIDE), "what follows is a small part of the work");
    believed = 64 + 128 + 256;
    cr_expect(strstr(planned(&device, &layer), WIDE), "not proved");
}

Test(wgmma, splits_what_has_few_tiles_and_many_steps)
{
    expect_words(&(struct product){KILN_BF16, 1, 256, 256, 16384, 0, 0, .after = as_layer},
                 "-DTYPE=bf16 -DBYTES=2 -DTRANSPOSE_A=0 -DTRANSPOSE_B=0 "
                 "-DRESULT=1 -DALIGNED=1" SLIM " 128, matmul_gpu_sum");
    expect_words(&(struct product){KILN_BF16, 1, 256, 256, 16384, 0, 0, .after = as_narrow_layer},
                 "-DTYPE=bf16 -DBYTES=2 -DTRANSPOSE_A=0 -DTRANSPOSE_B=0 "
                 "-DRESULT=1 -DALIGNED=1" SLIM " 128, matmul_gpu_sum");
}

Test(wgmma, takes_any_size_whose_rows_are_of_16_bytes)
{
    expect_words(&(struct product){KILN_BF16, 1, 333, 512, 72, 0, 0, .after = NULL},
                 "-DTYPE=bf16 -DBYTES=2 -DTRANSPOSE_A=0 -DTRANSPOSE_B=0 "
                 "-DRESULT=1 -DALIGNED=1" SLIM " 24");
    expect_words(&(struct product){KILN_BF16, 1, 512, 333, 72, 0, 1, .after = NULL},
                 "-DTYPE=bf16 -DBYTES=2 -DTRANSPOSE_A=0 -DTRANSPOSE_B=1 "
                 "-DRESULT=1 -DALIGNED=0" SLIM " 24");
    expect_other(&(struct product){KILN_BF16, 1, 512, 512, 333, 0, 0, .after = NULL});
    expect_other(&(struct product){KILN_BF16, 1, 512, 333, 512, 0, 0, .after = NULL});
}

Test(wgmma, leaves_other_products_to_others)
{
    expect_other(&(struct product){KILN_F32, 1, 4096, 4096, 4096, 0, 0, .after = NULL});

    expect_other(&(struct product){KILN_BF16, 1, 8, 4096, 4096, 0, 0, .after = NULL});
}

/* ---- whole numbers ---- */

#define WHOLE "-DTYPE=s8 -DBYTES=1 -DTRANSPOSE_A=0 -DTRANSPOSE_B=1 "

Test(wgmma, adds_up_products_of_i8_however_deep)
{
    expect_words(&(struct product){KILN_I8, 1, 4096, 4096, 4096, 0, 1, .after = NULL},
                 WHOLE "-DRESULT=1 -DALIGNED=1" WIDE " 132");
    expect_words(&(struct product){KILN_I8, 1, 512, 512, 4096, 0, 1, .after = as_layer},
                 WHOLE "-DRESULT=1 -DALIGNED=1" SLIM " 32");
    expect_words(&(struct product){KILN_I8, 1, 512, 512, 64, 0, 1, .after = NULL},
                 WHOLE "-DRESULT=1 -DALIGNED=1" SLIM " 32");
}

/* What does not lie along k, or not at multiples of 16 bytes. */
Test(wgmma, packs_what_does_not_lie_as_it_reads_it)
{
    expect_words(&(struct product){KILN_I8, 1, 256, 512, 4096, 0, 0, .after = NULL},
                 "-DBYTES=1 -DPARTS=1 -DALIGNED=1 64, matmul_wgmma");
    expect_words(&(struct product){KILN_I8, 3, 256, 512, 4100, 0, 1, .after = NULL},
                 "-DBYTES=1 -DPARTS=1 -DALIGNED=1 65, matmul_gpu_pack, matmul_wgmma");
}

/* It reads weights of 16 bits as fast for a few rows as for many; fewer are for
 * kernels/matmul_gpu_rows.
 */
Test(wgmma, takes_a_few_rows_by_narrow_weights)
{
    struct kiln__device device = imagined_hopper();
    struct product product = {KILN_BF16, 1, 9, 768, 768, 0, 1, .after = NULL};
    believed = 64 + 128 + 256 + HANDS_OVER;
    cr_expect(strstr(planned(&device, &product), "-DTYPE=bf16 "));
    product.m = 8;
    expect_other(&product);
    product.m = 16;
    product.k = 256;
    expect_other(&product);
    expect_other(&(struct product){KILN_BF16, 4, 16, 768, 768, 0, 1, .after = NULL});
}

/* Few rows, or few columns, have a kernel of their own, where that is proved. */
Test(wgmma, leaves_few_rows_to_a_kernel_for_them)
{
    struct kiln__device device = imagined_hopper();
    struct product product = {KILN_BF16, 1, 8, 4096, 768, 0, 1, .after = NULL};
    wanted = "mma_rows";
    believed = 64 + 128 + 256 + 8;
    cr_expect_str_eq(planned(&device, &product), "-DTYPE=bf16 -DEIGHTS=1 -DWARPS=16 256");
    product.m = 16;
    cr_expect_str_eq(planned(&device, &product), "");
    believed += 16;
    cr_expect_str_eq(planned(&device, &product), "-DTYPE=bf16 -DEIGHTS=2 -DWARPS=16 256");
    product = (struct product){KILN_F16, 3, 4097, 16, 64, 0, 1, .after = NULL};
    cr_expect_str_eq(planned(&device, &product), "-DTYPE=f16 -DEIGHTS=2 -DWARPS=16 257");
    believed = 64 + 128 + 256 + 32;
    product = (struct product){KILN_BF16, 1, 32, 768, 3072, 0, 1, .after = NULL};
    cr_expect_str_eq(planned(&device, &product), "-DTYPE=bf16 -DEIGHTS=4 -DWARPS=16 48");
    believed += 8 + 16;
    static const struct product others[] = {
        {KILN_BF16, 1, 33, 4096, 768, 0, 1, .after = NULL},   /* rows */
        {KILN_BF16, 1, 32, 16384, 2048, 0, 1, .after = NULL}, /* rows by many weights */
        {KILN_BF16, 1, 8, 4096, 764, 0, 1, .after = NULL},    /* k */
        {KILN_BF16, 1, 8, 4096, 768, 0, 0, .after = NULL},    /* columns apart */
        {KILN_BF16, 1, 8, 256, 4096, 0, 1, .after = NULL},    /* few lines */
        {KILN_F32, 1, 8, 4096, 768, 0, 1, .after = NULL},
        {KILN_BF16, 1, 8, 4096, 768, 0, 1, .batch_invariant = true},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        cr_expect_str_eq(planned(&device, &others[i]), "", "%zu", i);
}

Test(wgmma, leaves_i8_to_parts_where_it_is_not_for_them)
{
    struct kiln__device device = imagined_hopper();
    const struct product deep = {KILN_I8, 1, 512, 512, 4096, 0, 1, .after = NULL};
    expect_other(&(struct product){KILN_I8, 1, 16, 512, 4096, 0, 1, .after = NULL});
    expect_other(&(struct product){KILN_I8, 1, 512, 512, 4096, 0, 1, .batch_invariant = true});
    believed = 0;
    cr_expect_str_eq(planned(&device, &deep), "");
}

/* ---- f32 ---- */

#define ROUNDED "-DTYPE=tf32 -DBYTES=4 -DTRANSPOSE_A=0 -DTRANSPOSE_B=1 "

Test(wgmma, multiplies_f32_where_that_is_asked_for)
{
    struct product product = {KILN_F32, 1, 4096, 4096,
                              4096,     0, 1,    .precision = KILN_PRECISION_TF32};
    expect_words(&product, ROUNDED "-DRESULT=1 -DALIGNED=1" WIDE " 132");
    product.transpose_a = 1;
    expect_words(&product, "-DBYTES=4 -DPARTS=1 -DALIGNED=1 64, matmul_wgmma");
    product.precision = KILN_PRECISION_F32X3;
    expect_words(&product, "-DBYTES=4 -DPARTS=2 -DALIGNED=1 64, matmul_gpu_pack, matmul_wgmma");
    product.precision = KILN_PRECISION_EXACT;
    expect_other(&product);
    product.precision = KILN_PRECISION_DEFAULT;
    expect_other(&product);
}

Test(wgmma, leaves_small_products_of_f32_and_what_adds_up_alike)
{
    struct product product = {KILN_F32, 1, 64, 4096, 4096, 0, 0, .precision = KILN_PRECISION_TF32};
    expect_other(&product);
    product.m = 256;
    product.batch_invariant = true;
    expect_other(&product);
}

/* Operands that are narrow are exact as they are. */
Test(wgmma, keeps_narrow_operands_whatever_the_precision)
{
    expect_words(
        &(struct product){KILN_BF16, 1, 4096, 4096, 4096, 0, 0, .precision = KILN_PRECISION_F32X3},
        "-DTYPE=bf16 -DBYTES=2 -DTRANSPOSE_A=0 -DTRANSPOSE_B=0 "
        "-DRESULT=1 -DALIGNED=1" WIDE " 132");
}

Test(wgmma, is_as_precise_in_a_gradient)
{
    const size_t dims[] = {64, 64};
    struct kiln__text text = {0};
    kiln_tensor gradient;
    kiln_batch *batch = kiln_batch_create(imagined_gpu());
    kiln_tensor x = kiln_upload(batch, KILN_F32, 2, dims, nothing);
    cr_expect_eq(kiln_batch_set_precision(batch, KILN_PRECISION_TF32), KILN_OK);
    kiln_tensor y = kiln_sum(batch, kiln_matmul(batch, x, x), 0, NULL, 0);
    cr_expect_eq(kiln_batch_set_precision(batch, KILN_PRECISION_DEFAULT), KILN_OK);
    kiln_grad(batch, y, &x, 1, &gradient);
    cr_assert_eq(kiln_batch_status(batch), KILN_OK, "%s", kiln_batch_error(batch));
    kiln__graph_dump(&batch->graph, &text);
    unsigned products = 0;
    for (const char *at = text.data; (at = strstr(at, " = matmul")); at++) {
        products++;
        cr_expect_eq(strcspn(strstr(at, "tf32"), "\n"), strlen("tf32"));
    }
    cr_expect_eq(products, 3);
    kiln__text_free(&text);
    kiln_batch_release(batch);
}

Test(wgmma, refuses_a_precision_that_nobody_knows)
{
    kiln_batch *batch = kiln_batch_create(imagined_gpu());
    cr_expect_eq(kiln_batch_set_precision(batch, (kiln_precision)9), KILN_INVALID_ARGUMENT);
    cr_expect(strstr(kiln_last_error(),
                     "kiln_batch_set_precision: precision is 9, none of "
                     "KILN_PRECISION_DEFAULT, _EXACT, _TF32, _F32X3, _BF16, _F16"));
    cr_expect_eq(kiln_batch_set_precision(NULL, KILN_PRECISION_TF32), KILN_INVALID_ARGUMENT);
    kiln_batch_release(batch);
}

/* ---- who believes in it ---- */

Test(wgmma, is_for_the_device_that_has_it_and_has_proved_it)
{
    struct kiln__device device = imagined_hopper();
    const struct product product = {KILN_BF16, 1, 4096, 4096, 4096, 0, 0, .after = NULL};
    believed = 0;
    cr_expect_str_eq(planned(&device, &product), "");
    believed = 128;
    cr_expect(strstr(planned(&device, &product), "-DTILE_N=128"));
    believed = 64 + 128 + 256;
    device.ptx_level = 100;
    cr_expect_str_eq(planned(&device, &product), "");
    device = imagined_gpu()->runtime.device;
    cr_expect_str_eq(planned(&device, &product), "");
}

/* ---- elsewhere ---- */

/* What has no wgmma has mma, from Ampere on; and so has Hopper where wgmma has not proved right. */
Test(wgmma, is_mma_on_other_generations)
{
    struct kiln__device device = imagined_hopper();
    struct product product = {KILN_BF16, 3, 512, 1024, 512, 1, 0, .after = as_narrow_layer};
    wanted = "mma";
    believed = 128;
    device.ptx_level = 86;
    cr_expect_str_eq(planned(&device, &product), "-DTYPE=bf16 -DBYTES=2 -DTRANSPOSE_A=1 "
                                                 "-DTRANSPOSE_B=0 -DRESULT=0 -DALIGNED=1 96");
    product = (struct product){KILN_I8, 1, 512, 512, 4096, 0, 1, .after = NULL};
    cr_expect_str_eq(planned(&device, &product), WHOLE "-DRESULT=1 -DALIGNED=1 16");
    product = (struct product){KILN_F32, 1, 512, 512, 512, 0, 1, .precision = KILN_PRECISION_TF32};
    cr_expect_str_neq(planned(&device, &product), "");
    product.precision = KILN_PRECISION_F32X3;
    cr_expect_str_eq(planned(&device, &product), "", "in plain f32");
    device.ptx_level = 75;
    product.precision = KILN_PRECISION_TF32;
    cr_expect_str_eq(planned(&device, &product), "");
    device.ptx_level = 90;
    believed = 256;
    product = (struct product){KILN_BF16, 1, 512, 512, 512, 0, 1, .after = NULL};
    wanted = "wgmma";
    cr_expect_str_neq(planned(&device, &product), "");
}

/* The kernels of 16 rows times weights, as batches have them with `kiln_cast()` or by a policy. */
static const char *kernels_of_rows(bool in_buffer)
{
    static char words[512];
    struct kiln__device device = imagined_hopper();
    struct kiln__plan_options options = {.device = &device, .self_tester = &self_tester};
    struct kiln__plan plan;
    char wrong[KILN__WRONG] = "";
    kiln_batch *batch = kiln_batch_create(imagined_gpu());
    kiln_tensor a = operand(batch, KILN_BF16, 1, 16, 768, false);
    kiln_tensor b = in_buffer ? kiln_cast(batch, imagine_weights(batch, 768, 3072), KILN_BF16)
                              : operand(batch, KILN_BF16, 1, 768, 3072, false);
    ask(batch, kiln_matmul(batch, a, b));
    cr_assert_eq(kiln__compile_plan(&batch->graph, &options, NULL, &plan, NULL), KILN_OK);
    cr_expect_eq(kiln__launches_verify(&plan, wrong), KILN_OK, "%s", wrong);
    words[0] = 0;
    for (size_t i = 0; i < plan.launches.count; i++)
        sprintf(words + strlen(words), "%s%s ", plan.launches.items[i].kernel,
                plan.launches.items[i].prepacks ? "once" : "");
    kiln__plan_free(&plan);
    kiln_batch_release(batch);
    return words;
}

Test(wgmma, leaves_few_rows_by_weights_of_either_direction_to_a_kernel_for_them)
{
    believed = 64 + 128 + 256 + 16;
    cr_expect_str_eq(kernels_of_rows(true), "kiln_maponce matmul_gpu_packonce matmul_mma_rows ");
    cr_expect_str_eq(kernels_of_rows(false), "matmul_wgmma ", "what is not there to stay");
}

/* ---- what the driver says ---- */

#define ROWS 72
#define DEPTH 100
#define LEAD 112

/* Element k of a row, in 11 bits of precision and what is left of it. */
static float split(float value, bool rest)
{
    float near = ldexpf(nearbyintf(ldexpf(value, 11)), -11); /* of 1/2 to 1 */
    return rest ? value - near : near;
}

static cl_kernel pack_kernel(cl_context cl, cl_device_id device, const char *options)
{
    cl_int code;
    const char *text = kiln__kernel_text("matmul_gpu_pack");
    cl_program program = clCreateProgramWithSource(cl, 1, &text, NULL, &code);
    cr_assert_eq(clBuildProgram(program, 1, &device, options, NULL, NULL), CL_SUCCESS);
    cl_kernel kernel = clCreateKernel(program, "matmul_gpu_pack", &code);
    cr_assert_eq(code, CL_SUCCESS);
    clReleaseProgram(program);
    return kernel;
}

static void pack(kiln_context *context, const char *options, bool across, const void *from,
                 size_t from_bytes, void *packed, size_t bytes)
{
    cl_context cl;
    cl_device_id device;
    cl_command_queue queue;
    cl_int code;
    cr_assert_eq(kiln_context_cl(context, &cl, &device, &queue), KILN_OK);
    cl_kernel kernel = pack_kernel(cl, device, options);
    cl_mem memory[2] = {clCreateBuffer(cl, CL_MEM_COPY_HOST_PTR, from_bytes, (void *)from, &code),
                        clCreateBuffer(cl, CL_MEM_COPY_HOST_PTR, bytes, packed, &code)};
    const cl_long integers[] = {0, ROWS, DEPTH, LEAD, 0, across ? 1 : DEPTH, across ? ROWS : 1, 0};
    for (cl_uint i = 0; i < 2; i++)
        clSetKernelArg(kernel, i, sizeof(cl_mem), &memory[i]);
    for (cl_uint i = 0; i < 8; i++)
        cr_assert_eq(clSetKernelArg(kernel, 2 + i, sizeof(cl_long), &integers[i]), CL_SUCCESS);
    const size_t global[] = {512, 2, 1}, local[] = {256, 1, 1};
    cr_assert_eq(clEnqueueNDRangeKernel(queue, kernel, 3, NULL, global, local, 0, NULL, NULL),
                 CL_SUCCESS);
    cr_assert_eq(clEnqueueReadBuffer(queue, memory[1], CL_TRUE, 0, bytes, packed, 0, NULL, NULL),
                 CL_SUCCESS);
    clReleaseMemObject(memory[0]);
    clReleaseMemObject(memory[1]);
    clReleaseKernel(kernel);
}

Test(wgmma, packs_lines_of_either_direction)
{
    static float from[ROWS * DEPTH], both[2 * ROWS * LEAD];
    static int8_t whole[ROWS * LEAD];
    kiln_context *context = open_context_with(NULL);
    for (int across = 0; across < 2; across++) {
        for (size_t i = 0; i < ROWS * DEPTH; i++)
            from[i] = 0.5f + (float)(i * 2654435761u >> 8 & 0x7fffff) * 0x1p-24f;
        pack(context, "-cl-std=CL1.2 -cl-opt-disable -DBYTES=4 -DPARTS=2", across, from,
             sizeof from, both, sizeof both);
        for (size_t i = 0; i < ROWS * DEPTH; i++) {
            size_t row = across ? i % ROWS : i / DEPTH, k = across ? i / ROWS : i % DEPTH;
            float main = both[row * LEAD + k], rest = both[(ROWS + row) * LEAD + k];
            cr_assert_eq(main, split(from[i], false));
            cr_assert(fabsf(rest - split(from[i], true)) <= 0x1p-24f, "%a is not %a", (double)rest,
                      (double)split(from[i], true));
        }
        for (size_t i = 0; i < ROWS * DEPTH; i++)
            from[i] = (float)((int)((uint32_t)i * 2654435761u >> 24) - 128);
        pack(context, "-cl-std=CL1.2 -cl-opt-disable -DBYTES=1 -DALIGNED=1", across, from,
             sizeof from, whole, sizeof whole);
        for (size_t i = 0; i < ROWS * DEPTH; i++)
            cr_assert_eq(
                (float)whole[across ? i % ROWS * LEAD + i / ROWS : i / DEPTH * LEAD + i % DEPTH],
                from[i]);
    }
    close_context(context);
}

/* Whatever they are: no number is made of them. */
Test(wgmma, packs_elements_of_16_bits_as_they_are)
{
    static uint16_t from[ROWS * DEPTH], packed[ROWS * LEAD];
    kiln_context *context = open_context_with(NULL);
    for (int way = 0; way < 4; way++) {
        const bool across = way & 1;
        char options[96];
        snprintf(options, sizeof options, "-cl-std=CL1.2 -cl-opt-disable -DBYTES=2 -DALIGNED=%d",
                 way / 2);
        for (size_t i = 0; i < ROWS * DEPTH; i++)
            from[i] = (uint16_t)((i + (size_t)way) * 40503u);
        pack(context, options, across, from, sizeof from, packed, sizeof packed);
        for (size_t i = 0; i < ROWS * DEPTH; i++)
            cr_assert_eq(packed[across ? i % ROWS * LEAD + i / ROWS : i / DEPTH * LEAD + i % DEPTH],
                         from[i], "element %zu, way %d", i, way);
    }
    close_context(context);
}

/* Where there are no tensor cores all are plain f32, but plans of their own. */
Test(wgmma, makes_a_plan_for_each_precision)
{
    static const kiln_precision precisions[] = {KILN_PRECISION_EXACT, KILN_PRECISION_TF32,
                                                KILN_PRECISION_F32X3, KILN_PRECISION_DEFAULT};
    enum { SIDE = 16 };
    static float x[SIDE * SIDE], y[4][SIDE * SIDE];
    const size_t dims[] = {SIDE, SIDE};
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.precision = KILN_PRECISION_TF32;
    kiln_context *context = open_context_with(&options);
    for (size_t i = 0; i < SIDE * SIDE; i++)
        x[i] = 1.0f / (float)(i + 1);
    for (int i = 0; i < 4; i++) {
        kiln_batch *batch = kiln_batch_create(context);
        cr_expect_eq(kiln_batch_set_precision(batch, precisions[i]), KILN_OK);
        kiln_tensor a = kiln_upload(batch, KILN_F32, 2, dims, x);
        cr_expect_eq(kiln_read(batch, kiln_matmul(batch, a, a), y[i], sizeof y[i]), KILN_OK);
        cr_expect_eq(kiln_batch_execute(batch), KILN_OK, "%s", kiln_batch_error(batch));
        cr_expect_arr_eq(y[i], y[0], sizeof y[i]);
        kiln_batch_release(batch);
    }
    cr_expect_eq(stats_of(context).plans_made, 3u, "the context's own way is one of them");
    close_context(context);
}

/* A driver that takes none of it is one such, and a plan is made again without. */
Test(wgmma, is_done_without_where_it_does_not_build)
{
    enum { SIDE = 64 };
    static uint16_t ones[SIDE * SIDE];
    static float y[SIDE * SIDE];
    const size_t dims[] = {SIDE, SIDE};
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.host_memory = KILN_HOST_MEMORY_SEPARATE;
    options.matmul = "wgmma";
    kiln_context *context = open_context_with(&options);
    if (context->runtime.device.info.has_inline_ptx)
        cr_skip("a device that may build it");
    context->runtime.device.info.has_inline_ptx = 1;
    context->runtime.device.info.max_work_group = 1024;
    context->runtime.device.ptx_level = 90;
    kiln__plan_cache_use_self_tester(context->plan_cache, &self_tester);
    believed = 64 + 128 + 256;
    for (size_t i = 0; i < SIDE * SIDE; i++)
        ones[i] = 0x3f80;
    for (int i = 0; i < 2; i++) {
        kiln_batch *batch = kiln_batch_create(context);
        kiln_tensor x = kiln_upload(batch, KILN_BF16, 2, dims, ones);
        memset(y, 0, sizeof y);
        cr_expect_eq(kiln_read(batch, kiln_matmul(batch, x, x), y, sizeof y), KILN_OK);
        cr_expect_eq(kiln_batch_execute(batch), KILN_OK, "%s", kiln_batch_error(batch));
        for (size_t k = 0; k < SIDE * SIDE; k++)
            cr_assert_eq(y[k], SIDE);
        kiln_batch_release(batch);
    }
    kiln_context_stats stats = stats_of(context);
    cr_expect_eq(stats.plans_made, 2u, "the one that failed, and another one");
    cr_expect_eq(stats.plans_reused, 1u);
    close_context(context);
}
