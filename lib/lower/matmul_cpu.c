/* SPDX-License-Identifier: Apache-2.0 */
/* Products on chunked devices in panels: sums of tiles, while b, or a part of it, lies in the order
 * in which it is used. Each file's head, of kernels/matmul_cpu_*.cl, has the recipe. */
#include <stdio.h>
#include <string.h>

#include "lower/matmul_cpu.h"

/* ---- packed: both operands copied into the order in which they are used ---- */

#define NEAR_PANELS 4 /* of which a block stays in the second cache */

static void matmul_cpu_pack(struct kiln__plan *plan, uint32_t group,
                            const struct kiln__product *product, const char *options,
                            const struct kiln__matrix *packed, int64_t panels)
{
    struct kiln__launch launch = kiln__product_launch(group, "matmul_cpu_packed", "matmul_pack_b");
    struct kiln__extras extras = {.b = &product->b,
                                  .vector = kiln__cpu_tiles(product->device)->vector};
    if (product->k == 0)
        return;
    snprintf(launch.options, sizeof launch.options, "%s", options);
    kiln__product_range(&launch, panels,
                        kiln__div_up(product->k, kiln__cpu_depth_block(product->device)),
                        product->b.batch ? product->batch : 1);
    kiln__launch_memory(&launch, product->b.slot);
    kiln__launch_memory(&launch, packed->slot);
    kiln__launch_offset(&launch, packed->slot, 0, packed->item);
    KILN__LAUNCH_INDICES(&launch, product->n, product->k);
    kiln__cpu_add_matrix(&launch, &product->b);
    kiln__plan_add_product_launch(plan, &extras, &launch);
    if (product->m < KILN__MANY_ROWS || product->copies != KILN__NO_GROUP)
        kiln__plan_prepack(plan, packed->slot, product->b.operand);
}

/* Apart from the other options, which are those of panels as well. */
static void set_lines(struct kiln__launch *launch, int64_t lines)
{
    size_t length = strlen(launch->options);
    if (lines)
        snprintf(launch->options + length, sizeof launch->options - length, " -DLINES=%d",
                 (int)lines);
}

/* Launch 1: packed b. Its options are among those of launch 2, too. */
static struct kiln__matrix pack_panels(struct kiln__plan *plan, uint32_t group,
                                       const struct kiln__product *product,
                                       struct kiln__launch *launch)
{
    const struct kiln__cpu_tiles *tiles = kiln__cpu_panels(product->device, product->n);
    int64_t columns = tiles->packed_vectors * tiles->vector;
    int64_t panels = kiln__div_up(product->n, columns), size = panels * product->k * columns;
    struct kiln__matrix packed =
        kiln__cpu_scratch(plan, size * (product->b.batch ? product->batch : 1) + 1);
    packed.batch = product->b.batch ? size : 0;
    snprintf(launch->options, sizeof launch->options,
             "-DVECTOR=%d -DTILE_ROWS=%d -DTILE_VECTORS=%d -DBLOCK_DEPTH=%d -DPACK_DEPTH=%d",
             (int)tiles->vector, (int)tiles->packed_rows, (int)tiles->packed_vectors,
             (int)kiln__cpu_depth_block(product->device),
             (int)kiln__cpu_depth_block(product->device));
    matmul_cpu_pack(plan, group, product, launch->options, &packed, panels);
    set_lines(launch, kiln__cpu_copied_rows(product, tiles->packed_rows));
    return packed;
}

/* Of a as most kernels take it, of packed b and of c. */
static void add_packed(struct kiln__launch *launch, const struct kiln__product *product,
                       const struct kiln__matrix *packed)
{
    kiln__cpu_add_memory(launch, product->a.slot, packed->slot, product->c.slot);
    KILN__LAUNCH_INDICES(launch, product->m, product->n, product->k);
    kiln__cpu_add_matrix(launch, &product->a);
    kiln__launch_offset(launch, packed->slot, 0, packed->item);
    KILN__LAUNCH_INDICES(launch, packed->batch);
    kiln__cpu_add_strides(launch, &product->c, product->c.row, product->c.batch);
}

static void lower_packed(struct kiln__plan *plan, uint32_t group, const void *work)
{
    const struct kiln__product *product = work;
    const struct kiln__cpu_tiles *tiles = kiln__cpu_panels(product->device, product->n);
    struct kiln__cpu_order walk = {tiles->packed_rows, tiles->packed_vectors, NEAR_PANELS,
                                   kiln__cpu_copied_rows(product, tiles->packed_rows), false};
    int64_t panels = kiln__div_up(product->n, walk.vectors * tiles->vector), rows, item_panels;
    struct kiln__launch launch = kiln__product_launch(group, "matmul_cpu_packed", "matmul_packed");
    struct kiln__matrix packed = pack_panels(plan, group, product, &launch);
    struct kiln__extras extras = {.a = &product->a, .product = product, .vector = tiles->vector};
    kiln__cpu_share_tiles(product, panels, &walk, &rows, &item_panels);
    kiln__product_range(&launch, kiln__div_up(panels, item_panels), kiln__div_up(product->m, rows),
                        product->batch);
    add_packed(&launch, product, &packed);
    KILN__LAUNCH_INDICES(&launch, rows, item_panels);
    kiln__plan_add_product_launch(plan, &extras, &launch);
}

const struct kiln__lowering kiln__matmul_packed = {.lower = lower_packed};

/* ---- few: few rows, panels of b that are there already ---- */

#define FEW_TILES 2         /* of VECTOR rows */
#define FEW_BYTES (1 << 16) /* of b, at which it pays to keep panels */
#define FEW_ITEMS 2         /* per unit: the second one starts later */

static bool few_fits(const struct kiln__plan *plan, const void *work)
{
    const struct kiln__product *product = work;
    (void)plan;
    int64_t lines = FEW_TILES * kiln__cpu_tiles(product->device)->vector;
    return product->m <= lines && (uint64_t)(lines * kiln__cpu_depth_block(product->device)) * 4 <=
                                      product->device->info.local_memory;
}

/* Whether panels are packed once, and are worth it. */
static bool has_panels(const struct kiln__plan *plan, const void *work)
{
    const struct kiln__product *product = work;
    (void)plan;
    return product->b.frozen && product->n > 2 * kiln__cpu_tiles(product->device)->vector &&
           product->n * product->k * (int64_t)sizeof(float) >= FEW_BYTES;
}

static void lower_few(struct kiln__plan *plan, uint32_t group, const void *work)
{
    const struct kiln__product *product = work;
    int64_t vector = kiln__cpu_tiles(product->device)->vector,
            vectors = kiln__div_up(product->n, vector);
    int64_t items = kiln__cpu_compute_units(product->device) *
                    kiln__cpu_items_per_unit(product->device, FEW_ITEMS) / product->batch;
    int64_t item_vectors = kiln__div_up(vectors, kiln__least(vectors, kiln__most(1, items)));
    struct kiln__launch launch = kiln__product_launch(group, "matmul_cpu_packed", "matmul_few");
    struct kiln__matrix packed = pack_panels(plan, group, product, &launch);
    struct kiln__extras extras = {.a = &product->a, .product = product, .vector = vector};
    kiln__product_range(&launch, kiln__div_up(vectors, item_vectors), 1, product->batch);
    add_packed(&launch, product, &packed);
    KILN__LAUNCH_INDICES(&launch, item_vectors);
    kiln__plan_add_product_launch(plan, &extras, &launch);
}

const struct kiln__lowering kiln__matmul_few = {
    .fits = few_fits, .suits = has_panels, .lower = lower_few};

/* ---- patches: rows of an image, copied tile by tile ---- */

/* Blocks as deep as the others' where that decides in which order they add up. */
#define PATCH_DEPTH 512

#define POINTED_ROWS 8        /* of a tile: registers hold where they are */
#define PATCH_BYTES (1 << 18) /* of c for an item: it is still near when the epilogue comes */

static bool im2col_fit(const struct kiln__plan *plan, const void *work)
{
    const struct kiln__product *product = work;
    (void)plan;
    const struct kiln__cpu_tiles *tiles = kiln__cpu_tiles(product->device);
    uint64_t lines =
        (uint64_t)kiln__most(tiles->packed_rows, tiles->narrow_rows) * (PATCH_DEPTH + 16);
    return product->copies != KILN__NO_GROUP && product->a.column == 1 &&
           lines * sizeof(float) <= product->device->info.local_memory;
}

static void add_levels(struct kiln__launch *launch, const struct kiln__im2col *im2col)
{
    const struct kiln__im2col_level *rows = im2col->rows, *depth = im2col->depth;
    KILN__LAUNCH_INDICES(launch, rows[1].count, rows[2].count, rows[0].stride, rows[1].stride,
                         rows[2].stride);
    KILN__LAUNCH_INDICES(launch, depth[1].count, depth[2].count, depth[0].stride, depth[1].stride);
}

static void lower_im2col(struct kiln__plan *plan, uint32_t group, const void *work)
{
    const struct kiln__product *product = work;
    const struct kiln__cpu_tiles *tiles = kiln__cpu_tiles(product->device);
    bool wide = product->n > tiles->small_vectors * tiles->vector;
    tiles = wide ? kiln__cpu_panels(product->device, product->n) : tiles;
    bool narrow = product->n <= tiles->vector;
    int64_t vectors = wide ? tiles->packed_vectors : narrow ? 1 : tiles->small_vectors;
    int64_t tile = wide ? tiles->packed_rows : narrow ? tiles->narrow_rows : tiles->small_rows;
    int64_t columns = vectors * tiles->vector, panels = kiln__div_up(product->n, columns);
    bool deep =
        product->k > kiln__cpu_depth_block(product->device) && !plan->fusion.graph.batch_invariant;
    struct kiln__im2col im2col;
    struct kiln__launch launch = kiln__product_launch(group, "matmul_cpu_im2col", "matmul_im2col");
    kiln__plan_im2col(plan, product, product->copies, &im2col);
    struct kiln__matrix packed = kiln__cpu_scratch(plan, panels * product->k * columns + 1);
    snprintf(launch.options, sizeof launch.options,
             "-DVECTOR=%d -DTILE_ROWS=%d -DTILE_VECTORS=%d -DBLOCK_DEPTH=%d -DPACK_DEPTH=%d",
             (int)tiles->vector, (int)tile, (int)vectors,
             (int)(deep ? PATCH_DEPTH : kiln__cpu_depth_block(product->device)),
             (int)kiln__cpu_depth_block(product->device));
    matmul_cpu_pack(plan, group, product, launch.options, &packed, panels);
    set_lines(&launch, tile > POINTED_ROWS ? tile : 0);
    int64_t items = kiln__cpu_compute_units(product->device) *
                    kiln__cpu_items_per_unit(product->device, KILN__CPU_ITEMS);
    int64_t rows = kiln__round_up(kiln__div_up(product->m, items), tile);
    rows = kiln__least(rows, kiln__most(1, PATCH_BYTES / 4 / product->n / tile) * tile);
    struct kiln__extras extras = {.product = product, .vector = tiles->vector};
    kiln__product_range(&launch, 1, kiln__div_up(product->m, rows), 1);
    kiln__cpu_add_memory(&launch, im2col.slot, packed.slot, product->c.slot);
    KILN__LAUNCH_INDICES(&launch, product->m, product->n, product->k);
    kiln__launch_offset(&launch, im2col.slot, im2col.offset, sizeof(float));
    add_levels(&launch, &im2col);
    kiln__launch_offset(&launch, packed.slot, 0, packed.item);
    kiln__launch_offset(&launch, product->c.slot, product->c.offset, product->c.item);
    KILN__LAUNCH_INDICES(&launch, product->c.row, rows, panels);
    kiln__plan_add_product_launch(plan, &extras, &launch);
}

const struct kiln__lowering kiln__matmul_im2col = {.fits = im2col_fit, .lower = lower_im2col};

/* ---- small: one launch ---- */

static bool small_suits(const struct kiln__plan *plan, const void *work)
{
    const struct kiln__product *product = work;
    (void)plan;
    double operations = (double)product->m * (double)product->n * (double)product->k;
    return product->n <= 2 * kiln__cpu_tiles(product->device)->vector ||
           (operations <= 1 << 24 && !has_panels(plan, product));
}

/* Panels first, since an item packs its own; rows where panels do not give even shares. */
static void share_small(const struct kiln__product *product, int64_t panels, int64_t tile,
                        int64_t wanted, int64_t *rows, int64_t *item_panels)
{
    int64_t parts = kiln__least(panels, kiln__most(1, wanted / product->batch));
    *item_panels = kiln__div_up(panels, parts);
    parts = kiln__div_up(panels, *item_panels);
    if (panels % parts) {
        *item_panels = panels;
        parts = 1;
    }
    int64_t blocks = kiln__least(kiln__div_up(product->m, tile),
                                 kiln__most(1, kiln__div_up(wanted, parts * product->batch)));
    blocks = kiln__most(blocks, kiln__div_up(product->m, 512));
    *rows = kiln__round_up(kiln__most(1, kiln__div_up(product->m, blocks)), tile);
}

/* Whether local memory has room for a panel, and for lines of a if something is made of it. Blocks
 * are as deep for all products: that decides in which order they add up. */
static bool has_room(const struct kiln__product *product, int64_t columns, int64_t rows)
{
    int64_t depth = kiln__cpu_depth_block(product->device), lines = product->a.computed ? rows : 0;
    return (uint64_t)(columns * depth + lines * kiln__cpu_row_stride(product->device)) *
               sizeof(float) <=
           product->device->info.local_memory;
}

static void add_small(struct kiln__plan *plan, uint32_t group, const struct kiln__product *product,
                      const struct kiln__cpu_order *walk, int64_t rows, int64_t item_panels)
{
    int64_t vector = kiln__cpu_tiles(product->device)->vector;
    int64_t panels = kiln__div_up(product->n, walk->vectors * vector);
    struct kiln__launch launch = kiln__product_launch(group, "matmul_cpu_small", "matmul_small");
    snprintf(launch.options, sizeof launch.options,
             "-DVECTOR=%d -DTILE_ROWS=%d -DTILE_VECTORS=%d -DBLOCK_DEPTH=%d -DPANELS=%d -DLINES=%d",
             (int)vector, (int)walk->tile, (int)walk->vectors,
             (int)kiln__cpu_depth_block(product->device), (int)walk->panels, (int)walk->lines);
    struct kiln__extras extras = {
        .a = &product->a, .b = &product->b, .product = product, .vector = vector};
    kiln__product_range(&launch, kiln__div_up(panels, item_panels), kiln__div_up(product->m, rows),
                        product->batch);
    kiln__cpu_add_memory(&launch, product->a.slot, product->b.slot, product->c.slot);
    KILN__LAUNCH_INDICES(&launch, product->m, product->n, product->k);
    kiln__cpu_add_matrix(&launch, &product->a);
    kiln__cpu_add_matrix(&launch, &product->b);
    kiln__cpu_add_strides(&launch, &product->c, product->c.row, product->c.batch);
    KILN__LAUNCH_INDICES(&launch, rows, item_panels);
    kiln__plan_add_product_launch(plan, &extras, &launch);
}

static void lower_small(struct kiln__plan *plan, uint32_t group, const void *work)
{
    const struct kiln__product *product = work;
    const struct kiln__cpu_tiles *tiles = kiln__cpu_tiles(product->device);
    bool narrow = product->n <= tiles->vector ||
                  !has_room(product, tiles->small_vectors * tiles->vector, tiles->small_rows);
    int64_t vectors = narrow ? 1 : tiles->small_vectors;
    int64_t tile = narrow ? tiles->narrow_rows : tiles->small_rows;
    while (tile > 1 && !has_room(product, vectors * tiles->vector, tile))
        tile /= 2;
    int64_t panels = kiln__div_up(product->n, vectors * tiles->vector), rows, item_panels;
    share_small(product, panels, tile,
                kiln__cpu_compute_units(product->device) *
                    kiln__cpu_items_per_unit(product->device, 1),
                &rows, &item_panels);
    struct kiln__cpu_order walk = {tile, vectors, 1, product->a.computed ? tile : 0, true};
    add_small(plan, group, product, &walk, rows, item_panels);
}

const struct kiln__lowering kiln__matmul_small = {.suits = small_suits, .lower = lower_small};

/* ---- single: one launch, whose items pack panels of their own ---- */

/* Panels that half of the local memory holds. */
static int64_t single_panels(const struct kiln__device *device, const struct kiln__cpu_tiles *tiles)
{
    int64_t room = (int64_t)device->info.local_memory / 2 / 4;
    return kiln__least(NEAR_PANELS, room / (tiles->packed_vectors * tiles->vector *
                                            kiln__cpu_depth_block(device)));
}

static bool single_fits(const struct kiln__plan *plan, const void *work)
{
    const struct kiln__product *product = work;
    (void)plan;
    return single_panels(product->device, kiln__cpu_panels(product->device, product->n)) > 0;
}

/* Up to where the launch that is saved takes longer than panels that several items pack; what may
 * be kept is packed apart. */
static bool single_suits(const struct kiln__plan *plan, const void *work)
{
    const struct kiln__product *product = work;
    double operations = (double)product->m * (double)product->n * (double)product->k;
    (void)plan;
    return !product->b.frozen && operations <= 1 << 28;
}

static void lower_single(struct kiln__plan *plan, uint32_t group, const void *work)
{
    const struct kiln__product *product = work;
    const struct kiln__cpu_tiles *tiles = kiln__cpu_panels(product->device, product->n);
    struct kiln__cpu_order walk = {tiles->packed_rows, tiles->packed_vectors,
                                   single_panels(product->device, tiles),
                                   kiln__cpu_copied_rows(product, tiles->packed_rows), true};
    int64_t panels = kiln__div_up(product->n, walk.vectors * tiles->vector), rows, item_panels;
    kiln__cpu_share_tiles(product, panels, &walk, &rows, &item_panels);
    add_small(plan, group, product, &walk, rows, item_panels);
}

const struct kiln__lowering kiln__matmul_single = {
    .fits = single_fits, .suits = single_suits, .lower = lower_single};
