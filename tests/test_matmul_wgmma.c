/* SPDX-License-Identifier: Apache-2.0 */
/* Which products go to tensor cores, on a device that exists only here, and with which launches. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/codegen.h"
#include "session/compile.h"
#include "session/context.h"
#include "support/context.h"
#include "support/graph.h"

/* ---- the device, and who believes in it ---- */

static struct kiln__device hopper(void)
{
    struct kiln__device device = imagined_gpu()->runtime.device;
    device.info.has_inline_ptx = 1;
    device.info.max_work_group = 1024;
    device.info.compute_units = 132;
    device.ptx_level = 90;
    return device;
}

static unsigned believed; /* tiles of so many columns, as a sum */

static bool believes(struct kiln__prover *prover, const struct kiln__proof *proof)
{
    (void)prover;
    return (believed & proof->tile) != 0;
}

static struct kiln__prover prover = {believes};

/* ---- products ---- */

struct product {
    kiln_type type;
    size_t batch, m, n, k;
    int transpose_a, transpose_b;
    kiln_tensor (*after)(kiln_batch *batch, kiln_tensor product, size_t n);
};

static const char nothing[16];
static size_t arena; /* bytes of the last plan's */

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
    struct kiln__plan_options options = {.device = device, .prover = &prover};
    struct kiln__plan plan;
    char wrong[KILN__WRONG] = "";
    kiln_batch *batch = kiln_batch_create(imagined_gpu());
    kiln_tensor a =
        operand(batch, product->type, product->batch, product->m, product->k, product->transpose_a);
    kiln_tensor b =
        operand(batch, product->type, product->batch, product->k, product->n, product->transpose_b);
    kiln_tensor y = kiln_matmul_transposed(batch, a, product->transpose_a, b, product->transpose_b);
    ask(batch, product->after ? product->after(batch, y, product->n) : y);
    cr_assert_eq(kiln_batch_status(batch), KILN_OK, "%s", kiln_batch_error(batch));
    cr_assert_eq(kiln__compile_plan(&batch->graph, &options, NULL, &plan, NULL), KILN_OK, "%s",
                 kiln_last_error());
    cr_expect_eq(kiln__launches_verify(&plan, wrong), KILN_OK, "%s", wrong);
    const struct kiln__launch *launch = &plan.launches.items[0];
    bool same = launch->matmul && !strcmp(launch->matmul, "wgmma");
    snprintf(words, sizeof words, "%s", same ? launch->options : "");
    if (same)
        snprintf(words + strlen(words), sizeof words - strlen(words), " %zu%s",
                 launch->global[0] / launch->local[0], plan.launches.count > 1 ? ", " : "");
    for (size_t i = 1; same && i < plan.launches.count; i++)
        strcat(words, plan.launches.items[i].kernel);
    arena = plan.arena_bytes;
    kiln__plan_free(&plan);
    kiln_batch_release(batch);
    return words;
}

static void expect_words(const struct product *product, const char *words)
{
    struct kiln__device device = hopper();
    believed = 128 + 256;
    cr_expect_str_eq(planned(&device, product), words);
}

static void expect_other(const struct product *product)
{
    expect_words(product, "");
}

Test(wgmma, has_a_program_for_each_type_and_layout)
{
    expect_words(&(struct product){KILN_BF16, 1, 4096, 4096, 4096, 0, 0, NULL},
                 "-DTYPE=bf16 -DTRANSPOSE_A=0 -DTRANSPOSE_B=0 -DTILE_N=256 -DSTAGES=4 "
                 "-DLOCAL=229888 -DRESULT=1 -DALIGNED=1 132");
    expect_words(&(struct product){KILN_F16, 1, 4096, 4096, 4096, 1, 0, NULL},
                 "-DTYPE=f16 -DTRANSPOSE_A=1 -DTRANSPOSE_B=0 -DTILE_N=256 -DSTAGES=4 "
                 "-DLOCAL=229888 -DRESULT=1 -DALIGNED=1 132");
    expect_words(&(struct product){KILN_F16, 3, 640, 640, 64, 1, 1, NULL},
                 "-DTYPE=f16 -DTRANSPOSE_A=1 -DTRANSPOSE_B=1 -DTILE_N=128 -DSTAGES=5 "
                 "-DLOCAL=197120 -DRESULT=1 -DALIGNED=1 75");
}

Test(wgmma, takes_narrow_tiles_where_wide_ones_leave_cores_idle)
{
    expect_words(&(struct product){KILN_BF16, 1, 1024, 1024, 1024, 0, 1, NULL},
                 "-DTYPE=bf16 -DTRANSPOSE_A=0 -DTRANSPOSE_B=1 -DTILE_N=128 -DSTAGES=5 "
                 "-DLOCAL=197120 -DRESULT=1 -DALIGNED=1 64");
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
    expect_words(&(struct product){KILN_BF16, 1, 4096, 4096, 1024, 0, 0, as_layer},
                 "-DTYPE=bf16 -DTRANSPOSE_A=0 -DTRANSPOSE_B=0 -DTILE_N=256 -DSTAGES=4 "
                 "-DLOCAL=229888 -DRESULT=1 -DALIGNED=1 132");
    expect_words(&(struct product){KILN_BF16, 1, 4096, 4096, 1024, 0, 0, as_narrow_layer},
                 "-DTYPE=bf16 -DTRANSPOSE_A=0 -DTRANSPOSE_B=0 -DTILE_N=256 -DSTAGES=4 "
                 "-DLOCAL=229888 -DRESULT=0 -DALIGNED=1 132");
    cr_expect_lt(arena, (2 * 1024 + 4096) * 4096 * sizeof(uint16_t) + 65536);
}

Test(wgmma, splits_what_has_few_tiles_and_many_steps)
{
    expect_words(&(struct product){KILN_BF16, 1, 256, 256, 16384, 0, 0, as_layer},
                 "-DTYPE=bf16 -DTRANSPOSE_A=0 -DTRANSPOSE_B=0 -DTILE_N=128 -DSTAGES=5 "
                 "-DLOCAL=197120 -DRESULT=1 -DALIGNED=1 104, matmul_gpu_sum");
    expect_words(&(struct product){KILN_BF16, 1, 256, 256, 16384, 0, 0, as_narrow_layer},
                 "-DTYPE=bf16 -DTRANSPOSE_A=0 -DTRANSPOSE_B=0 -DTILE_N=128 -DSTAGES=5 "
                 "-DLOCAL=197120 -DRESULT=1 -DALIGNED=1 104, matmul_gpu_sum");
}

Test(wgmma, takes_any_size_whose_rows_are_of_16_bytes)
{
    expect_words(&(struct product){KILN_BF16, 1, 333, 512, 72, 0, 0, NULL},
                 "-DTYPE=bf16 -DTRANSPOSE_A=0 -DTRANSPOSE_B=0 -DTILE_N=128 -DSTAGES=5 "
                 "-DLOCAL=197120 -DRESULT=1 -DALIGNED=1 12");
    expect_words(&(struct product){KILN_BF16, 1, 512, 333, 72, 0, 1, NULL},
                 "-DTYPE=bf16 -DTRANSPOSE_A=0 -DTRANSPOSE_B=1 -DTILE_N=128 -DSTAGES=5 "
                 "-DLOCAL=197120 -DRESULT=1 -DALIGNED=0 12");
    expect_other(&(struct product){KILN_BF16, 1, 512, 512, 333, 0, 0, NULL});
    expect_other(&(struct product){KILN_BF16, 1, 512, 333, 512, 0, 0, NULL});
}

Test(wgmma, leaves_other_products_to_others)
{
    expect_other(&(struct product){KILN_F32, 1, 4096, 4096, 4096, 0, 0, NULL});

    expect_other(&(struct product){KILN_BF16, 1, 8, 4096, 4096, 0, 0, NULL});
}

Test(wgmma, is_for_the_device_that_has_it_and_has_proved_it)
{
    struct kiln__device device = hopper();
    const struct product product = {KILN_BF16, 1, 4096, 4096, 4096, 0, 0, NULL};
    believed = 0;
    cr_expect_str_eq(planned(&device, &product), "");
    believed = 128;
    cr_expect(strstr(planned(&device, &product), "-DTILE_N=128"));
    believed = 128 + 256;
    device.ptx_level = 89;
    cr_expect_str_eq(planned(&device, &product), "");
    device = imagined_gpu()->runtime.device;
    cr_expect_str_eq(planned(&device, &product), "");
}

/* ---- what the driver says ---- */

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
    kiln__plan_cache_use_prover(context->plan_cache, &prover);
    believed = 128 + 256;
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
