/* SPDX-License-Identifier: Apache-2.0 */
/* Products in tiles of local memory (kernels/matmul_gpu.cl), right on every device. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fuse/limits.h"
#include "lower/matmul.h"

/* ---- tiled ---- */

/* A work-group's part of the result and the depth of its tiles, a work-item's part, and the
 * multiply-adds that a compute unit does in a cycle with one work-group, and with many. Where four
 * elements do not always load as one, few items hide less of the longer wait for them: `ragged` is
 * how much longer they take. */
struct tile {
    int m, n, k, item_m, item_n;
    int resident; /* how many work-groups a unit has at once */
    double alone, full, ragged;
};

static const struct tile tile_table[] = {
    {128, 128, 8, 16, 8, 2, 84, 92, 1.13}, {128, 64, 16, 8, 8, 2, 70, 85, 1.1},
    {64, 64, 16, 8, 4, 4, 45, 80, 1},      {128, 32, 16, 8, 4, 4, 53, 75, 1},
    {128, 16, 32, 4, 4, 4, 33, 44, 1},     {32, 32, 16, 4, 4, 8, 14, 56, 1},
    {128, 128, 16, 8, 8, 2, 90, 90, 1.13}};
#define TILES (sizeof tile_table / sizeof *tile_table)
#define SMALLEST 5 /* for every device, and few sums */

static int64_t items_of(const struct tile *tile)
{
    return (int64_t)(tile->m / tile->item_m) * (tile->n / tile->item_n);
}

static bool tile_fits(const struct kiln__device *device, const struct tile *tile)
{
    const struct kiln_device_info *info = &device->info;
    uint64_t bytes = 2 * (uint64_t)(tile->m + tile->n + 8) * (uint64_t)tile->k * sizeof(float);
    return (uint64_t)items_of(tile) <= info->max_work_group && bytes <= info->local_memory;
}

/* How the kernel is to do a product. */
struct way {
    const struct tile *tile;
    int64_t splits, depth; /* of k */
    bool aligned;          /* of all four elements that load as one */
    bool reduces_last;     /* the last work-group of a tile adds its splits up */
};

/* In cycles of a compute unit: what a launch costs, what a tile does before and after its loop, and
 * for each sum of an item where not all four elements are stored as one, and how many bytes of
 * memory a unit has in each. */
#define LAUNCH 5500
#define TILE_ENDS 1900
#define RAGGED_ENDS 60
#define BYTES 16

/* Split-K, reduced by a tile's last work-group: cycles that its counter takes, and bytes of partial
 * sums that it reads in a cycle. */
#define COUNTING 3000
#define TILE_BYTES 32
#define MOST_SUMS 32 /* of an item: with more it has no registers to read into */

/* Throughput of a core with `beside` resident work-groups: each hides a share of the latency that
 * the others leave. */
static double speed_of(const struct tile *tile, int64_t beside)
{
    double left = 1;
    for (int64_t i = 0; i < beside && i < tile->resident; i++)
        left *= 1 - tile->alone / tile->full;
    return tile->full * (1 - left);
}

static int64_t count_tiles(const struct kiln__product *product, const struct tile *tile)
{
    return kiln__div_up(product->m, tile->m) * kiln__div_up(product->n, tile->n) * product->batch;
}

/* A unit does so many work-groups as the busiest one has; where k is split, the last work-group of
 * each tile reads and adds what the others wrote, or another launch does. */
static double matmul_gpu_cost(const struct kiln__product *product, const struct way *way)
{
    const struct tile *tile = way->tile;
    int64_t units = kiln__most(1, product->device->info.compute_units);
    int64_t groups = count_tiles(product, tile) * way->splits;
    int64_t each = kiln__div_up(groups, units), depth = kiln__div_up(way->depth, tile->k) * tile->k;
    double ends = TILE_ENDS + (way->aligned ? 0 : RAGGED_ENDS * tile->item_m * tile->item_n);
    double time = (double)each * tile->m * tile->n * (double)depth / speed_of(tile, each) *
                      (way->aligned ? 1 : tile->ragged) +
                  (double)kiln__div_up(each, tile->resident) * ends;
    if (way->reduces_last) {
        double bytes = (double)(tile->m * tile->n) * sizeof(float);
        time += COUNTING + (double)(way->splits + 2 * each - 1) * bytes / TILE_BYTES;
    } else if (way->splits > 1) {
        double sums = (double)product->m * (double)product->n * (double)product->batch;
        double bytes = sums * (double)(2 * way->splits + 1) * sizeof(float);
        time += LAUNCH + bytes / BYTES / (double)units;
    }
    return time;
}

#define MOST_SPLITS 512
#define LEAST_DEPTH 64 /* of a split */

static struct way split_way(const struct kiln__product *product, const struct tile *tile,
                            int64_t splits, bool aligned)
{
    int64_t share = kiln__div_up(kiln__div_up(product->k, splits), tile->k) * tile->k;
    return (struct way){tile, splits, splits == 1 ? product->k : share, aligned, false};
}

static bool can_reduce_last(const struct kiln__product *product, const struct way *way)
{
    return product->device->traits->fence != KILN__FENCE_NONE && way->splits > 1 &&
           way->tile->item_m * way->tile->item_n <= MOST_SUMS &&
           count_tiles(product, way->tile) <= KILN__COUNTERS;
}

/* The way that costs least, of all or of those that are tuned. Large tiles read less, small ones
 * keep more units busy, and so do splits of k. Where sums have to be alike k is added up in one go.
 */
static struct way choose_way(const struct kiln__plan *plan, const struct kiln__product *product,
                             bool aligned)
{
    const struct kiln__traits *traits = product->device->traits;
    bool batch_invariant = plan->fusion.graph.batch_invariant;
    int64_t splits =
        batch_invariant ? 1 : kiln__most(1, kiln__least(MOST_SPLITS, product->k / LEAST_DEPTH));
    struct way best = split_way(product, &tile_table[SMALLEST], 1, aligned);
    double least_cost = traits->tile || traits->splits ? INFINITY : matmul_gpu_cost(product, &best);
    for (size_t i = 0; i < TILES; i++) {
        for (int64_t s = 1; s <= splits && tile_fits(product->device, &tile_table[i]); s++) {
            struct way way = split_way(product, &tile_table[i], s, aligned);
            if ((traits->tile && traits->tile <= TILES && traits->tile != i + 1) ||
                (traits->splits && !batch_invariant && traits->splits != s) ||
                (s > 1 && kiln__div_up(product->k, way.depth) != s))
                continue;
            const int most = can_reduce_last(product, &way) ? 1 : 0;
            for (int reduces_last = 0; reduces_last <= most; reduces_last++) {
                way.reduces_last = reduces_last;
                double found = matmul_gpu_cost(product, &way);
                if (found >= least_cost)
                    continue;
                least_cost = found;
                best = way;
            }
        }
    }
    return best;
}

static bool tiled_fits(const struct kiln__plan *plan, const void *work)
{
    const struct kiln__product *product = work;
    (void)plan;
    return tile_fits(product->device, &tile_table[SMALLEST]);
}

struct kiln__matrix kiln__product_split_k(struct kiln__plan *plan,
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
#define SUM_LANES 8 /* that share splits, of which there are some, where sums are few */
#define SUM_ITEMS 512
#define SHARED_SPLITS 16

void kiln__plan_product_sums(struct kiln__plan *plan, uint32_t group,
                             const struct kiln__product *product, const struct kiln__matrix *sums,
                             int64_t splits)
{
    const struct kiln__matrix *c = &product->c;
    bool aligned = !plan->options.shared && product->n % 4 == 0 && kiln__matrix_by(c, 4);
    const int64_t wide = kiln__div_up(kiln__div_up(product->n, 4), SUM_X);
    const int64_t high = kiln__div_up(product->m, SUM_Y);
    const struct kiln_device_info *info = &product->device->info;
    const bool shared = splits >= SHARED_SPLITS &&
                        wide * high * product->batch <= (int64_t)info->compute_units &&
                        info->max_work_group >= SUM_ITEMS;
    const int lanes = shared ? SUM_LANES : 1;
    struct kiln__launch launch = kiln__product_launch(group, "matmul_gpu_sum", "matmul_gpu_sum");
    snprintf(launch.options, sizeof launch.options,
             "-DGROUP_X=%d -DGROUP_Y=%d -DLANES=%d -DALIGNED=%d", SUM_X, SUM_Y, lanes, aligned);
    kiln__product_range(&launch, wide * SUM_X, high * SUM_Y, product->batch * lanes);
    launch.local[0] = SUM_X;
    launch.local[1] = SUM_Y;
    launch.local[2] = (size_t)lanes;
    struct kiln__extras extras = {.product = product, .vector = 4, .aligned = aligned};
    kiln__launch_memory(&launch, sums->slot);
    kiln__launch_memory(&launch, c->slot);
    KILN__LAUNCH_INDICES(&launch, product->m, product->n, splits);
    kiln__launch_offset(&launch, sums->slot, sums->offset, sums->item);
    kiln__launch_matrix(&launch, c);
    kiln__plan_add_product_launch(plan, &extras, &launch);
}

/* ---- patches ---- */

static bool has_runs_of_four(const struct kiln__im2col *im2col)
{
    return im2col->depth[KILN__IM2COL_LEVELS - 1].count % 4 == 0;
}

static const char *im2col_option(const struct kiln__im2col *im2col)
{
    return !im2col ? "" : has_runs_of_four(im2col) ? " -DPATCHES=1" : " -DPATCHES=2";
}

/* Runs of fours that all start at multiples of four. */
static bool im2col_by_fours(const struct kiln__im2col *im2col)
{
    bool aligned = has_runs_of_four(im2col) && im2col->offset % 4 == 0;
    for (uint32_t i = 0; i < KILN__IM2COL_LEVELS; i++)
        aligned = aligned && im2col->rows[i].stride % 4 == 0 &&
                  (i + 1 == KILN__IM2COL_LEVELS || im2col->depth[i].stride % 4 == 0);
    return aligned;
}

/* The furthest place from a patch's first one. */
static int64_t reach_of(const struct kiln__im2col_level *levels)
{
    int64_t reach = 0;
    for (uint32_t i = 0; i < KILN__IM2COL_LEVELS; i++)
        reach +=
            (levels[i].count - 1) * (levels[i].stride < 0 ? -levels[i].stride : levels[i].stride);
    return reach;
}

/* A number, and what divides numbers below 2^31 by it: (2 x * inverse >> 32) >> shift. */
static void add_divisor(struct kiln__launch *launch, int64_t by)
{
    int64_t shift = 0;
    while ((INT64_C(1) << shift) < by)
        shift++;
    KILN__LAUNCH_INDICES(launch, by, kiln__div_up(INT64_C(1) << (31 + shift), by), shift);
}

static void add_levels(struct kiln__launch *launch, const struct kiln__im2col_level *levels)
{
    add_divisor(launch, levels[1].count);
    add_divisor(launch, levels[2].count);
    KILN__LAUNCH_INDICES(launch, levels[0].stride, levels[1].stride);
}

/* ---- launching ---- */

/* Whether four elements that a kernel reads or writes at once always lie at a multiple of four, and
 * are all there. */
static bool is_aligned(const struct kiln__plan *plan, const struct kiln__product *product,
                       const struct kiln__im2col *im2col, const struct kiln__matrix *c)
{
    bool along = product->a.column == 1 || product->b.column != 1;
    return !plan->options.shared &&
           (im2col ? im2col_by_fours(im2col) : kiln__matrix_by(&product->a, 4)) &&
           kiln__matrix_by(&product->b, 4) && kiln__matrix_by(c, 4) && product->n % 4 == 0 &&
           (product->a.column == 1 || product->m % 4 == 0) && (!along || product->k % 4 == 0);
}

static bool ends_costly(const struct kiln__plan *plan, uint32_t index)
{
    const struct kiln__group *group = &plan->fusion.groups.items[index];
    for (size_t i = group->reduced_step; i < group->steps.count; i++) {
        const struct kiln__step *step = &group->steps.items[i];
        if (step->kind == KILN__STEP_APPLY && kiln__elementwise_rows[step->op].cost >= KILN__COSTLY)
            return true;
    }
    return false;
}

static void add_option(struct kiln__launch *launch, const char *name, int value)
{
    size_t length = strlen(launch->options);
    snprintf(launch->options + length, sizeof launch->options - length, " -D%s=%d", name, value);
}

/* What the last work-group of each tile adds up. */
static void add_parts(struct kiln__plan *plan, const struct kiln__product *product,
                      const struct way *way, struct kiln__launch *launch)
{
    int64_t floats = count_tiles(product, way->tile) * way->splits * way->tile->m * way->tile->n;
    uint32_t parts = kiln__plan_scratch(plan, (size_t)floats * sizeof(float));
    add_option(launch, "TOGETHER", product->device->traits->fence);
    kiln__launch_memory(launch, parts);
    kiln__launch_offset(launch, parts, 0, sizeof(float));
    kiln__launch_memory(launch, kiln__plan_counters(plan));
}

static void lower_by_tiles(struct kiln__plan *plan, uint32_t group,
                           const struct kiln__product *product, const struct kiln__im2col *im2col)
{
    struct way way = choose_way(plan, product, is_aligned(plan, product, im2col, &product->c));
    const struct tile *tile = way.tile;
    bool sums = way.splits > 1 && !way.reduces_last; /* by another launch */
    struct kiln__matrix c = sums ? kiln__product_split_k(plan, product, way.splits) : product->c;
    bool aligned = is_aligned(plan, product, im2col, &c);
    struct kiln__launch launch = kiln__product_launch(group, "matmul_gpu", "matmul_gpu");
    snprintf(launch.options, sizeof launch.options,
             "-DTILE_M=%d -DTILE_N=%d -DTILE_K=%d -DITEM_M=%d -DITEM_N=%d "
             "-DTRANSPOSE_A=%d -DTRANSPOSE_B=%d -DALIGNED=%d%s",
             tile->m, tile->n, tile->k, tile->item_m, tile->item_n, product->a.column != 1,
             product->b.column != 1, aligned, im2col_option(im2col));
    kiln__product_range(&launch, kiln__div_up(product->n, tile->n) * items_of(tile),
                        kiln__div_up(product->m, tile->m), product->batch * way.splits);
    launch.local[0] = (size_t)items_of(tile);
    struct kiln__extras extras = {
        .a = &product->a, .b = &product->b, .vector = 4, .aligned = aligned};
    extras.product = sums ? NULL : product;
    struct kiln__matrix a = product->a;
    if (im2col) {
        a.slot = im2col->slot;
        a.offset = im2col->offset;
    }
    kiln__launch_memory(&launch, a.slot);
    kiln__launch_memory(&launch, product->b.slot);
    kiln__launch_memory(&launch, c.slot);
    KILN__LAUNCH_INDICES(&launch, product->m, product->n, product->k);
    kiln__launch_matrix(&launch, &a);
    kiln__launch_matrix(&launch, &product->b);
    kiln__launch_matrix(&launch, &c);
    KILN__LAUNCH_INDICES(&launch, way.depth, way.splits, product->m * product->n);
    if (im2col) {
        add_levels(&launch, im2col->rows);
        KILN__LAUNCH_INDICES(&launch, im2col->rows[2].stride);
        add_levels(&launch, im2col->depth);
    }
    if (way.reduces_last)
        add_parts(plan, product, &way, &launch);
    if (!sums && ends_costly(plan, group))
        add_option(&launch, "COSTLY", 1);
    kiln__plan_add_product_launch(plan, &extras, &launch);
    if (sums)
        kiln__plan_product_sums(plan, group, product, &c, way.splits);
}

static void lower_tiled(struct kiln__plan *plan, uint32_t group, const void *work)
{
    const struct kiln__product *product = work;
    lower_by_tiles(plan, group, product, NULL);
}

const struct kiln__lowering kiln__matmul_tiled = {.fits = tiled_fits, .lower = lower_tiled};

/* ---- tiled patches: of an image, as tiles of them are read ---- */

static bool tiled_im2col_fits(const struct kiln__plan *plan, const void *work)
{
    const struct kiln__product *product = work;
    const int64_t most = INT32_MAX - 1024;
    struct kiln__im2col im2col;
    return tiled_fits(plan, product) &&
           kiln__plan_im2col(plan, product, product->copies, &im2col) &&
           product->m * product->batch <= most && product->k <= most &&
           reach_of(im2col.rows) + reach_of(im2col.depth) <= most;
}

/* Where a product may round, tensor cores are faster by more than the copy that they need takes. A
 * batch of high matrices fills tiles as it is. */
static bool tiled_im2col_suits(const struct kiln__plan *plan, const void *work)
{
    const struct kiln__product *product = work;
    bool rounds = product->sums != KILN__PRODUCT_EXACT && !plan->fusion.graph.batch_invariant &&
                  kiln__matmul_wgmma.fits(plan, product);
    bool fills = product->copies == KILN__NO_GROUP && product->m >= tile_table[0].m;
    return !product->device->traits->chunked && !rounds && !fills;
}

static void lower_tiled_patches(struct kiln__plan *plan, uint32_t group, const void *work)
{
    const struct kiln__product *product = work;
    struct kiln__product whole = *product;
    struct kiln__im2col im2col;
    kiln__plan_im2col(plan, product, product->copies, &im2col);
    whole.m *= whole.batch;
    whole.batch = 1;
    lower_by_tiles(plan, group, &whole, &im2col);
}

const struct kiln__lowering kiln__matmul_tiled_im2col = {
    .fits = tiled_im2col_fits, .suits = tiled_im2col_suits, .lower = lower_tiled_patches};
