/* SPDX-License-Identifier: Apache-2.0 */
/* Products of narrow operands on the tensor cores of NVIDIA's Hopper (kernels/matmul_wgmma.cl). */
#include <stdio.h>

#include "plan/matmul.h"

#define TILE_M 128
#define ITEMS 384
#define LEVEL 90 /* the instruction is that generation's alone */

#define TILE_K 64 /* of a stage */
#define MAPS 256  /* bytes in which a work-group describes its operands to the copy engine */

/* Ways to cut the result, the best last. `pace`: what a column of a tile takes, since narrow ones
 * read more for each product. */
static const struct cut {
    int64_t columns;
    int stages;
    double pace;
} cuts[] = {{128, 5, 1.15}, {256, 4, 1.0}};
enum { CUTS = sizeof cuts / sizeof *cuts };

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t tiles_of(const struct kiln__product *product, const struct cut *cut)
{
    return divide_up(product->m, TILE_M) * divide_up(product->n, cut->columns) * product->batch;
}

/* ---- how a product is done ---- */

struct way {
    const struct cut *cut; /* NULL: not at all */
    int64_t splits;        /* of k */
};

/* In what a column of a tile takes for a stage: what a tile's end takes, what a launch does, and
 * how many sums of a split all cores together write and read again meanwhile. */
#define ENDS 2.5
#define LAUNCH 2000
#define SUMS 2500
#define MOST_SPLITS 32
#define LEAST_ROUNDS 8 /* of a split */

/* Each core takes one tile after the other. */
static double cost(const struct kiln__plan *plan, const struct kiln__product *product,
                   const struct way *way)
{
    int64_t cores = plan->options.device->info.compute_units;
    int64_t rounds = divide_up(divide_up(product->k, TILE_K), way->splits);
    int64_t turns = divide_up(tiles_of(product, way->cut) * way->splits, cores);
    double sums = (double)product->m * (double)product->n * (double)product->batch;
    double added = way->splits > 1 ? LAUNCH + sums * (double)(2 * way->splits + 1) / SUMS : 0;
    return (double)turns * (double)way->cut->columns * ((double)rounds + ENDS) * way->cut->pace +
           added;
}

/* Transposed: not by rows, as A and B are in a product of plain matrices. */
static bool is_transposed(const struct kiln__matrix *matrix)
{
    return matrix->column != 1;
}

static bool is_proven(const struct kiln__plan *plan, const struct kiln__product *product,
                      const struct cut *cut)
{
    const struct kiln__proof proof = {kiln__matmul_wgmma.name,    "matmul_wgmma",
                                      product->a.stored,          is_transposed(&product->a),
                                      is_transposed(&product->b), (uint16_t)cut->columns};
    struct kiln__prover *prover = plan->options.prover;
    return prover && prover->proves(prover, &proof);
}

/* The cheapest way with this cut. */
static struct way choose_splits(const struct kiln__plan *plan, const struct kiln__product *product,
                                const struct cut *cut)
{
    int64_t rounds = divide_up(product->k, TILE_K);
    struct way best = {cut, 1};
    for (int64_t splits = 2; splits <= MOST_SPLITS && splits * LEAST_ROUNDS <= rounds; splits++) {
        const struct way way = {cut, splits};
        bool none_empty = divide_up(rounds, divide_up(rounds, splits)) == splits;
        if (none_empty && cost(plan, product, &way) < cost(plan, product, &best))
            best = way;
    }
    return best;
}

/* The cheapest way whose kernel is proven. */
static struct way choose_way(const struct kiln__plan *plan, const struct kiln__product *product)
{
    struct way ways[CUTS];
    size_t best = 0;
    for (size_t i = 0; i < CUTS; i++) {
        ways[i] = choose_splits(plan, product, &cuts[i]);
        if (cost(plan, product, &ways[i]) <= cost(plan, product, &ways[best]))
            best = i;
    }
    for (size_t i = 0; i < CUTS; i++) {
        struct way way = ways[(best + i) % CUTS];
        if (is_proven(plan, product, way.cut))
            return way;
    }
    return (struct way){NULL, 1};
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
           product->batch < most && tiles_of(product, &cuts[0]) < most / MOST_SPLITS;
}

static bool wgmma_fits(const struct kiln__plan *plan, const struct kiln__product *product)
{
    const struct kiln__device *device = plan->options.device;
    return device->info.has_inline_ptx && device->ptx_level == LEVEL &&
           device->info.max_work_group >= ITEMS && !plan->options.shared &&
           product->a.stored == product->b.stored && is_operand(&product->a) &&
           is_operand(&product->b) && is_countable(product) && choose_way(plan, product).cut;
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

/* The product, or each split's sums. */
static void add_product(struct kiln__plan *plan, uint32_t group,
                        const struct kiln__product *product, struct way way,
                        const struct kiln__matrix *c)
{
    const struct cut *cut = way.cut;
    bool aligned = is_aligned(c), sums = c->slot != KILN__NO_SLOT;
    int64_t tiles = tiles_of(product, cut) * way.splits;
    int64_t cores = plan->options.device->info.compute_units;
    int64_t groups = tiles < cores ? tiles : cores;
    uint32_t maps = kiln__plan_scratch(plan, (size_t)groups * MAPS);
    struct kiln__launch launch =
        kiln__product_launch(group, "matmul_wgmma", "matmul_wgmma", product);
    snprintf(launch.options, sizeof launch.options,
             "-DTYPE=%s -DTRANSPOSE_A=%d -DTRANSPOSE_B=%d -DTILE_N=%d -DSTAGES=%d -DLOCAL=%d "
             "-DRESULT=%d -DALIGNED=%d",
             kiln_type_name(product->a.stored), is_transposed(&product->a),
             is_transposed(&product->b), (int)cut->columns, cut->stages,
             cut->stages * (TILE_M + (int)cut->columns) * 128 + 33280, sums, aligned);
    kiln__product_range(&launch, groups * ITEMS, 1, 1);
    launch.local[0] = ITEMS;
    launch.edited = true;
    kiln__launch_memory(&launch, product->a.slot);
    kiln__launch_memory(&launch, product->b.slot);
    kiln__launch_memory(&launch, maps);
    kiln__launch_offset(&launch, maps, 0, 16);
    KILN__LAUNCH_INDICES(&launch, product->m, product->n, product->k, product->batch, way.splits);
    add_matrix(&launch, &product->a);
    add_matrix(&launch, &product->b);
    if (sums) {
        kiln__launch_memory(&launch, c->slot);
        add_matrix(&launch, c);
    }
    struct kiln__extras extras = {NULL, NULL, way.splits > 1 ? NULL : product, 4, aligned};
    kiln__plan_product(plan, &extras, &launch);
}

static void lower_wgmma(struct kiln__plan *plan, uint32_t group,
                        const struct kiln__product *product)
{
    struct way way = choose_way(plan, product);
    if (!way.cut) /* proven a moment ago */
        way.cut = &cuts[0];
    if (way.splits == 1) {
        add_product(plan, group, product, way, &product->c);
        return;
    }
    struct kiln__product added = *product;
    if (added.c.slot == KILN__NO_SLOT)
        added.c.slot = kiln__plan_scratch(plan, (size_t)(product->batch * product->m * product->n) *
                                                    sizeof(float));
    struct kiln__matrix sums = kiln__product_partial(plan, product, way.splits);
    sums.batch = product->m * product->n; /* from split to split */
    add_product(plan, group, product, way, &sums);
    sums.batch *= way.splits;
    kiln__plan_product_sums(plan, group, &added, &sums, way.splits);
}

const struct kiln__matmul_row kiln__matmul_wgmma = {"wgmma",
                                                    .takes_steps = true,
                                                    .frugal = true,
                                                    .fits = wgmma_fits,
                                                    .suits = wgmma_suits,
                                                    .lower = lower_wgmma};
