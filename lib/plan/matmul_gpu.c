/* SPDX-License-Identifier: Apache-2.0 */
/* Products in tiles of local memory (kernels/matmul_gpu.cl), right on every device, and CLBlast. */
#include <stdio.h>

#include "fuse/limits.h"
#include "plan/matmul.h"

static int64_t tiles(int64_t size, int64_t tile)
{
    return (size + tile - 1) / tile;
}

/* ---- tiled ---- */

struct tile {
    int64_t size, item; /* elements of the result per work-group and per work-item, each way */
};
#define DEPTH 16

static bool tiled_fits(const struct kiln__plan *plan, const struct kiln__product *product)
{
    (void)product;
    return plan->options.device->info.max_work_group >= 64;
}

/* Large tiles read less, small ones keep more cores busy. */
static struct tile choose_tile(const struct kiln_device_info *device,
                               const struct kiln__product *product)
{
    int64_t large = tiles(product->m, 128) * tiles(product->n, 128) * product->batch;
    if (device->max_work_group < 256)
        return (struct tile){32, 4};
    if (large < (int64_t)device->compute_units || device->local_memory < 32768)
        return (struct tile){64, 4};
    return (struct tile){128, 8};
}

static bool by_fours(const struct kiln__matrix *matrix)
{
    return matrix->offset % 4 == 0 && kiln__matrix_lead(matrix) % 4 == 0 && matrix->batch % 4 == 0;
}

static void add_matrix(struct kiln__launch *launch, const struct kiln__matrix *matrix)
{
    kiln__launch_offset(launch, matrix->slot, matrix->offset, matrix->item);
    KILN__LAUNCH_INDICES(launch, kiln__matrix_lead(matrix), matrix->batch);
}

static void lower_tiled(struct kiln__plan *plan, uint32_t group,
                        const struct kiln__product *product)
{
    struct tile tile = choose_tile(&plan->options.device->info, product);
    int64_t items = tile.size / tile.item * (tile.size / tile.item);
    bool aligned = !plan->options.shared && by_fours(&product->a) && by_fours(&product->b) &&
                   by_fours(&product->c);
    struct kiln__launch launch = kiln__product_launch(group, "matmul_gpu", "matmul_gpu", product);
    snprintf(launch.options, sizeof launch.options,
             "-DTILE_M=%d -DTILE_N=%d -DTILE_K=%d -DITEM_M=%d -DITEM_N=%d -DTRANSPOSE_A=%d "
             "-DTRANSPOSE_B=%d -DALIGNED=%d",
             (int)tile.size, (int)tile.size, DEPTH, (int)tile.item, (int)tile.item,
             product->a.column != 1, product->b.column != 1, aligned);
    kiln__product_range(&launch, tiles(product->n, tile.size) * items, tiles(product->m, tile.size),
                        product->batch);
    launch.local[0] = (size_t)items;
    struct kiln__extras extras = {&product->a, &product->b, product, 4, aligned};
    kiln__launch_memory(&launch, product->a.slot);
    kiln__launch_memory(&launch, product->b.slot);
    kiln__launch_memory(&launch, product->c.slot);
    KILN__LAUNCH_INDICES(&launch, product->m, product->n, product->k);
    add_matrix(&launch, &product->a);
    add_matrix(&launch, &product->b);
    add_matrix(&launch, &product->c);
    kiln__plan_product(plan, &extras, &launch);
}

const struct kiln__matmul_row kiln__matmul_tiled = {"tiled", .takes_steps = true, .alike = true,
                                                    .fits = tiled_fits, .lower = lower_tiled};

/* ---- CLBlast ---- */

static bool clblast_fits(const struct kiln__plan *plan, const struct kiln__product *product)
{
#ifdef HAVE_CLBLAST
    return product->k > 0 && !plan->options.no_clblast;
#else
    (void)plan, (void)product;
    return false;
#endif
}

/* It compiles its programs anew in every process, which only large products on a GPU repay. */
static bool clblast_suits(const struct kiln__plan *plan, const struct kiln__product *product)
{
    return plan->options.device->info.type == KILN_DEVICE_GPU &&
           plan->options.device->traits->clblast && product->m >= KILN__LIBRARY_EDGE &&
           product->n >= KILN__LIBRARY_EDGE && product->k >= KILN__LIBRARY_DEPTH;
}

static void lower_clblast(struct kiln__plan *plan, uint32_t group,
                          const struct kiln__product *product)
{
    const struct kiln__matrix *matrices[3] = {&product->a, &product->b, &product->c};
    struct kiln__launch launch = kiln__product_launch(group, "", "CLBlastSgemm", product);
    launch.source = KILN__SOURCE_CLBLAST;
    for (int i = 0; i < 3; i++) {
        kiln__launch_memory(&launch, matrices[i]->slot);
        kiln__launch_offset(&launch, matrices[i]->slot, matrices[i]->offset, sizeof(float));
    }
    KILN__LAUNCH_INDICES(&launch, product->m, product->n, product->k, product->batch,
                         kiln__matrix_lead(&product->a), kiln__matrix_lead(&product->b),
                         product->c.row, product->a.column != 1, product->b.column != 1,
                         product->a.batch, product->b.batch, product->c.batch);
    kiln__plan_launch(plan, &launch);
}

const struct kiln__matmul_row kiln__matmul_clblast = {
    "clblast", .fits = clblast_fits, .suits = clblast_suits, .lower = lower_clblast};
