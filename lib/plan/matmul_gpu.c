/* SPDX-License-Identifier: Apache-2.0 */
/* Products in tiles of local memory (kernels/matmul_gpu.cl), right on every device, and CLBlast. */
#include <stdio.h>

#include "fuse/limits.h"
#include "plan/matmul.h"

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- tiled ---- */

/* A work-group's part of the result and the depth of its tiles, a work-item's part, and how many
 * slices of items share the depth. What a compute unit then does, of its multiply-adds in a cycle:
 * alone, with so many work-groups beside it. */
struct tile {
    int m, n, k, item_m, item_n, slices;
    double alone, full;
    int resident;
};

static const struct tile tile_table[] = {
    {256, 128, 8, 16, 8, 1, 88, 88, 1}, {128, 128, 8, 8, 8, 1, 72, 80, 2},
    {128, 64, 16, 8, 8, 1, 56, 74, 3},  {64, 64, 16, 8, 8, 4, 60, 70, 2},
    {64, 64, 16, 8, 4, 1, 40, 72, 4},   {128, 32, 16, 8, 4, 1, 36, 64, 4},
    {128, 16, 32, 4, 4, 1, 28, 48, 4},  {32, 32, 16, 4, 4, 1, 16, 56, 8}};
#define TILES (sizeof tile_table / sizeof *tile_table)

static int64_t items_of(const struct tile *tile)
{
    return (int64_t)(tile->m / tile->item_m) * (tile->n / tile->item_n) * tile->slices;
}

/* Two tiles of each operand; and while slices add up, four rows of all others. */
static uint64_t local_memory_of(const struct tile *tile)
{
    int64_t stages = 2 * (int64_t)(tile->m + tile->n + 8) * tile->k;
    int64_t shared = items_of(tile) / tile->slices * (tile->slices - 1) * tile->item_n * 4;
    return sizeof(float) * (uint64_t)(stages > shared ? stages : shared);
}

static bool tile_fits(const struct kiln__plan *plan, const struct tile *tile)
{
    const struct kiln_device_info *info = &plan->options.device->info;
    return (uint64_t)items_of(tile) <= info->max_work_group &&
           local_memory_of(tile) <= info->local_memory;
}

/* How the kernel is to do a product. */
struct way {
    const struct tile *tile;
    int64_t splits, depth; /* of k */
};

/* In cycles of a compute unit: what a launch costs, what a tile does before and after its loop, and
 * how many bytes of memory a unit has in each. */
#define LAUNCH 5000
#define TILE_ENDS 1500
#define BYTES 16

static double cost(const struct kiln__plan *plan, const struct kiln__product *product,
                   const struct way *way)
{
    const struct tile *tile = way->tile;
    int64_t units = plan->options.device->info.compute_units;
    int64_t groups = divide_up(product->m, tile->m) * divide_up(product->n, tile->n) *
                     product->batch * way->splits;
    int64_t each = divide_up(groups, units > 0 ? units : 1);
    double beside =
        (double)(least(each, tile->resident) - 1) / (tile->resident + (tile->resident == 1) - 1);
    double speed = tile->alone + (tile->full - tile->alone) * beside;
    double steps = (double)divide_up(way->depth, tile->k) * tile->k;
    double time = (double)each * tile->m * tile->n * steps / speed +
                  (double)divide_up(each, tile->resident) * TILE_ENDS;
    if (way->splits > 1) {
        double sums = (double)product->m * (double)product->n * (double)product->batch;
        time +=
            LAUNCH + sums * (double)(2 * way->splits + 1) * sizeof(float) / BYTES / (double)units;
    }
    return time;
}

#define MOST_SPLITS 128
#define LEAST_DEPTH 64 /* of a split */

/* The way that costs least. Large tiles read less, small ones keep more units busy, and so do
 * splits of k. Where sums have to be alike k is added up in one go. */
static struct way choose_way(const struct kiln__plan *plan, const struct kiln__product *product)
{
    bool alike = plan->fusion.graph.alike;
    int64_t most = alike ? 1 : least(MOST_SPLITS, product->k / LEAST_DEPTH);
    struct way best = {&tile_table[TILES - 1], 1, product->k};
    double least_cost = cost(plan, product, &best);
    for (size_t i = 0; i < TILES - 1; i++) {
        const struct tile *tile = &tile_table[i];
        if (!tile_fits(plan, tile) || (alike && tile->slices > 1))
            continue;
        for (int64_t splits = 1; splits == 1 || splits <= most; splits++) {
            int64_t depth = splits == 1
                                ? product->k
                                : divide_up(divide_up(product->k, splits), tile->k) * tile->k;
            struct way way = {tile, splits, depth};
            if (splits > 1 && divide_up(product->k, depth) != splits)
                continue;
            double found = cost(plan, product, &way);
            if (found < least_cost) {
                least_cost = found;
                best = way;
            }
        }
    }
    return best;
}

static bool tiled_fits(const struct kiln__plan *plan, const struct kiln__product *product)
{
    (void)product;
    return tile_fits(plan, &tile_table[TILES - 1]);
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

struct kiln__matrix kiln__product_partial(struct kiln__plan *plan,
                                          const struct kiln__product *product, int64_t splits)
{
    int64_t size = product->m * product->n;
    size_t bytes = (size_t)(product->batch * splits * size) * sizeof(float);
    return (struct kiln__matrix){.slot = kiln__plan_scratch(plan, bytes),
                                 .item = sizeof(float),
                                 .row = product->n,
                                 .column = 1,
                                 .batch = splits * size};
}

#define SUM_X 16
#define SUM_Y 4

void kiln__plan_product_sums(struct kiln__plan *plan, uint32_t group,
                             const struct kiln__product *product, const struct kiln__matrix *sums,
                             int64_t splits)
{
    const struct kiln__matrix *c = &product->c;
    bool aligned = !plan->options.shared && product->n % 4 == 0 && by_fours(c);
    struct kiln__launch launch =
        kiln__product_launch(group, "matmul_gpu_sum", "matmul_gpu_sum", product);
    snprintf(launch.options, sizeof launch.options, "-DGROUP_X=%d -DGROUP_Y=%d -DALIGNED=%d", SUM_X,
             SUM_Y, aligned);
    kiln__product_range(&launch, divide_up(divide_up(product->n, 4), SUM_X) * SUM_X,
                        divide_up(product->m, SUM_Y) * SUM_Y, product->batch);
    launch.local[0] = SUM_X;
    launch.local[1] = SUM_Y;
    struct kiln__extras extras = {.product = product, .vector = 4, .aligned = aligned};
    kiln__launch_memory(&launch, sums->slot);
    kiln__launch_memory(&launch, c->slot);
    KILN__LAUNCH_INDICES(&launch, product->m, product->n, splits);
    kiln__launch_offset(&launch, sums->slot, sums->offset, sums->item);
    add_matrix(&launch, c);
    kiln__plan_product(plan, &extras, &launch);
}

/* Whether four elements that a kernel reads or writes at once always lie at a multiple of four. */
static bool is_aligned(const struct kiln__plan *plan, const struct kiln__product *product,
                       const struct kiln__matrix *c)
{
    return !plan->options.shared && by_fours(&product->a) && by_fours(&product->b) && by_fours(c) &&
           (product->a.column == 1 || product->m % 4 == 0) &&
           (product->b.column != 1 || product->n % 4 == 0);
}

static void lower_tiled(struct kiln__plan *plan, uint32_t group,
                        const struct kiln__product *product)
{
    struct way way = choose_way(plan, product);
    const struct tile *tile = way.tile;
    struct kiln__matrix c =
        way.splits > 1 ? kiln__product_partial(plan, product, way.splits) : product->c;
    bool aligned = is_aligned(plan, product, &c);
    struct kiln__launch launch = kiln__product_launch(group, "matmul_gpu", "matmul_gpu", product);
    snprintf(launch.options, sizeof launch.options,
             "-DTILE_M=%d -DTILE_N=%d -DTILE_K=%d -DITEM_M=%d -DITEM_N=%d -DSLICES=%d "
             "-DTRANSPOSE_A=%d -DTRANSPOSE_B=%d -DALIGNED=%d",
             tile->m, tile->n, tile->k, tile->item_m, tile->item_n, tile->slices,
             product->a.column != 1, product->b.column != 1, aligned);
    kiln__product_range(&launch, divide_up(product->n, tile->n) * items_of(tile),
                        divide_up(product->m, tile->m), product->batch * way.splits);
    launch.local[0] = (size_t)items_of(tile);
    struct kiln__extras extras = {
        .a = &product->a, .b = &product->b, .vector = 4, .aligned = aligned};
    extras.product = way.splits > 1 ? NULL : product;
    kiln__launch_memory(&launch, product->a.slot);
    kiln__launch_memory(&launch, product->b.slot);
    kiln__launch_memory(&launch, c.slot);
    KILN__LAUNCH_INDICES(&launch, product->m, product->n, product->k);
    add_matrix(&launch, &product->a);
    add_matrix(&launch, &product->b);
    add_matrix(&launch, &c);
    KILN__LAUNCH_INDICES(&launch, way.depth, way.splits, product->m * product->n);
    kiln__plan_product(plan, &extras, &launch);
    if (way.splits > 1)
        kiln__plan_product_sums(plan, group, product, &c, way.splits);
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
