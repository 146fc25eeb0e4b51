/* SPDX-License-Identifier: Apache-2.0 */
/* Products of narrow operands on the tensor cores of NVIDIA's Hopper (kernels/matmul_wgmma.cl). */
#include <stdio.h>

#include "plan/matmul.h"

#define TILE_M 128
#define ITEMS 384
#define LEVEL 90 /* the instruction is that generation's alone */

/* Ways to cut the result, the best last: a stage of local memory has 64 of k. `pace` is what a
 * column of a tile takes: narrow ones read more for each product. */
static const struct cut {
    int64_t columns;
    int stages;
    double pace;
} cuts[] = {{128, 5, 1.15}, {256, 4, 1.0}};
enum { CUTS = sizeof cuts / sizeof *cuts };

static int64_t tiles_of(const struct kiln__product *product, const struct cut *cut)
{
    return (product->m + TILE_M - 1) / TILE_M * ((product->n + cut->columns - 1) / cut->columns) *
           product->batch;
}

/* The time of all tiles, each core taking one after the other. */
static double cost(const struct kiln__plan *plan, const struct kiln__product *product,
                   const struct cut *cut)
{
    int64_t cores = plan->options.device->info.compute_units;
    return (double)((tiles_of(product, cut) + cores - 1) / cores) * (double)cut->columns *
           cut->pace;
}

/* Transposed: not by rows, as A and B are in a product of plain matrices. */
static bool is_transposed(const struct kiln__matrix *matrix)
{
    return matrix->column != 1;
}

static bool is_proven(const struct kiln__plan *plan, const struct kiln__product *product,
                      const struct cut *cut)
{
    const struct kiln__proof proof = {kiln__matmul_wgmma.name, product->a.stored,
                                      is_transposed(&product->a), is_transposed(&product->b),
                                      (uint16_t)cut->columns};
    struct kiln__prover *prover = plan->options.prover;
    return prover && prover->proves(prover, &proof);
}

/* The cheapest cut that is proven; NULL: none is. */
static const struct cut *choose_cut(const struct kiln__plan *plan,
                                    const struct kiln__product *product)
{
    size_t best =
        cost(plan, product, &cuts[0]) < cost(plan, product, &cuts[CUTS - 1]) ? 0 : CUTS - 1;
    for (size_t i = 0; i < CUTS; i++) {
        const struct cut *cut = &cuts[(best + i) % CUTS];
        if (is_proven(plan, product, cut))
            return cut;
    }
    return NULL;
}

/* ---- what it takes ---- */

/* Rows that start at multiples of the 16 bytes that are copied at once. */
static bool is_operand(const struct kiln__matrix *matrix)
{
    return (matrix->stored == KILN_F16 || matrix->stored == KILN_BF16) && matrix->bare &&
           matrix->offset % 8 == 0 && kiln__matrix_lead(matrix) % 8 == 0 &&
           matrix->batch % 8 == 0 && kiln__matrix_lead(matrix) > 0;
}

/* Rows, columns and numbers of tiles are counted in 32 bits. */
static bool is_countable(const struct kiln__product *product)
{
    const int64_t most = INT32_MAX / 2;
    return product->k > 0 && product->k < most && product->m < most && product->n < most &&
           product->batch < most && tiles_of(product, &cuts[0]) < most;
}

static bool wgmma_fits(const struct kiln__plan *plan, const struct kiln__product *product)
{
    const struct kiln__device *device = plan->options.device;
    return device->info.has_inline_ptx && device->ptx_level == LEVEL &&
           device->info.max_work_group >= ITEMS && !plan->options.shared &&
           product->a.stored == product->b.stored && is_operand(&product->a) &&
           is_operand(&product->b) && is_countable(product) && choose_cut(plan, product);
}

/* A tile that is mostly empty takes as long as a full one. */
static bool wgmma_suits(const struct kiln__plan *plan, const struct kiln__product *product)
{
    (void)plan;
    return product->m >= 32 && product->n >= 32 && product->k >= 32;
}

/* ---- launching ---- */

static bool is_aligned(const struct kiln__matrix *matrix)
{
    return matrix->offset % 4 == 0 && matrix->row % 4 == 0 && matrix->batch % 4 == 0;
}

static void add_matrix(struct kiln__launch *launch, const struct kiln__matrix *matrix)
{
    kiln__launch_offset(launch, matrix->slot, matrix->offset, matrix->item);
    KILN__LAUNCH_INDICES(launch, kiln__matrix_lead(matrix), matrix->batch);
}

static void lower_wgmma(struct kiln__plan *plan, uint32_t group,
                        const struct kiln__product *product)
{
    const struct cut *cut = choose_cut(plan, product);
    if (!cut) /* proven a moment ago */
        cut = &cuts[0];
    bool aligned = is_aligned(&product->c), sums = product->c.slot != KILN__NO_SLOT;
    struct kiln__launch launch =
        kiln__product_launch(group, "matmul_wgmma", "matmul_wgmma", product);
    snprintf(launch.options, sizeof launch.options,
             "-DTYPE=%s -DTRANSPOSE_A=%d -DTRANSPOSE_B=%d -DTILE_N=%d -DSTAGES=%d -DLOCAL=%d "
             "-DRESULT=%d -DALIGNED=%d",
             kiln_type_name(product->a.stored), is_transposed(&product->a),
             is_transposed(&product->b), (int)cut->columns, cut->stages,
             cut->stages * (TILE_M + (int)cut->columns) * 128 + 33280, sums, aligned);
    int64_t tiles = tiles_of(product, cut), cores = plan->options.device->info.compute_units;
    kiln__product_range(&launch, (tiles < cores ? tiles : cores) * ITEMS, 1, 1);
    launch.local[0] = ITEMS;
    launch.edited = true;
    struct kiln__extras extras = {NULL, NULL, product, 4, aligned};
    kiln__launch_memory(&launch, product->a.slot);
    kiln__launch_memory(&launch, product->b.slot);
    KILN__LAUNCH_INDICES(&launch, product->m, product->n, product->k, product->batch);
    add_matrix(&launch, &product->a);
    add_matrix(&launch, &product->b);
    if (sums) {
        kiln__launch_memory(&launch, product->c.slot);
        add_matrix(&launch, &product->c);
    }
    kiln__plan_product(plan, &extras, &launch);
}

const struct kiln__matmul_row kiln__matmul_wgmma = {"wgmma",
                                                    .takes_steps = true,
                                                    .frugal = true,
                                                    .fits = wgmma_fits,
                                                    .suits = wgmma_suits,
                                                    .lower = lower_wgmma};
