/* SPDX-License-Identifier: Apache-2.0 */
/* How kernels/matmul_cpu_*.cl are launched on chunked devices. Each file's head has the recipe. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plan/matmul.h"

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t round_up(int64_t a, int64_t b)
{
    return divide_up(a, b) * b;
}

static const struct kiln__traits *traits_of(const struct kiln__plan *plan)
{
    return plan->options.device->traits;
}

/* Sums that fit the registers of a vector width. */
struct tiles {
    int64_t vector, packed_rows, packed_vectors, small_rows, small_vectors;
    int64_t narrow_rows; /* small, one vector wide */
    double pace;         /* of packed ones: what a column takes */
};

/* For each width the usual ones first, then others that may be chosen by number. */
static const struct tiles tile_table[] = {{16, 6, 4, 8, 2, 12, 1.00},   {16, 8, 3, 8, 3, 8, 1.02},
                                          {16, 12, 2, 12, 2, 14, 1.30}, {16, 4, 4, 4, 4, 4, 1.30},
                                          {8, 6, 2, 6, 2, 8, 1.00},     {8, 4, 3, 4, 3, 6, 1.02},
                                          {8, 4, 2, 4, 2, 4, 1.30},     {4, 4, 2, 4, 2, 8, 1.00}};
#define TILES_END (tile_table + sizeof tile_table / sizeof *tile_table)

static const struct tiles *tiles_of(const struct kiln__plan *plan)
{
    const struct tiles *tiles = tile_table;
    while (tiles->vector > traits_of(plan)->vector && tiles->vector > 4)
        tiles++;
    const struct tiles *other = tiles + (traits_of(plan)->tile ? traits_of(plan)->tile - 1 : 0);
    return other < TILES_END && other->vector == tiles->vector ? other : tiles;
}

/* Those of panels for a result of `n` columns, of which the last panel may have few: it depends on
 * nothing else, since panels are kept for products of any number of rows. */
static const struct tiles *panels_of(const struct kiln__plan *plan, int64_t n)
{
    const struct tiles *tiles = tiles_of(plan), *best = tiles;
    double least_cost = INFINITY;
    for (; !traits_of(plan)->tile && tiles < TILES_END && tiles->vector == best->vector; tiles++) {
        double cost = (double)round_up(n, tiles->packed_vectors * tiles->vector) * tiles->pace;
        if (cost >= least_cost)
            continue;
        least_cost = cost;
        best = tiles;
    }
    return best;
}

/* Lines of k that are added up before others: for all products, whatever else is chosen for them,
 * so that this decides the order in which they add up. */
static int64_t block_depth(const struct kiln__plan *plan)
{
    return traits_of(plan)->depth ? traits_of(plan)->depth : 256;
}

/* Floats from a copied row of a to the next one. */
static int64_t line_of(const struct kiln__plan *plan)
{
    return block_depth(plan) + 16;
}

/* Work-items for each unit. */
static int64_t share_of(const struct kiln__plan *plan, int64_t usual)
{
    return traits_of(plan)->share ? traits_of(plan)->share : usual;
}

static int64_t units_of(const struct kiln__plan *plan)
{
    return most(1, plan->options.device->info.compute_units);
}

static void add_memory(struct kiln__launch *launch, uint32_t x, uint32_t y, uint32_t z)
{
    kiln__launch_memory(launch, x);
    kiln__launch_memory(launch, y);
    kiln__launch_memory(launch, z);
}

/* Offset and all strides, as most kernels take an operand. */
static void add_matrix(struct kiln__launch *launch, const struct kiln__matrix *x)
{
    kiln__launch_offset(launch, x->slot, x->offset, x->item);
    KILN__LAUNCH_INDICES(launch, x->row, x->column, x->batch);
}

/* Offset, and the two strides that a kernel takes. */
static void add_strides(struct kiln__launch *launch, const struct kiln__matrix *x, int64_t first,
                        int64_t second)
{
    kiln__launch_offset(launch, x->slot, x->offset, x->item);
    KILN__LAUNCH_INDICES(launch, first, second);
}

/* The scratch of a launch as a matrix at its start. */
static struct kiln__matrix scratch_of(struct kiln__plan *plan, int64_t floats)
{
    return (struct kiln__matrix){.slot = kiln__plan_scratch(plan, (size_t)floats * sizeof(float)),
                                 .item = sizeof(float)};
}

/* ---- packed: both operands copied into the order in which they are used ---- */

#define NEAR_PANELS 4    /* of which a block stays in the second cache */
#define BLOCK_TILES 48   /* of an item, whose part of c stays in the second cache */
#define ITEMS_PER_UNIT 2 /* so that a late unit leaves less behind */

/* How an item walks its part: `panels` of b at once, `lines` of a copied at once. */
struct walk {
    int64_t tile, vectors, panels, lines;
    bool packs; /* b itself */
};

/* Which shares leave the least to the unit with the most of them, in cycles of a line of k: of a
 * tile's product, of packing a line of a panel and of copying one of a tile. */
static void share_tiles(const struct kiln__plan *plan, const struct kiln__product *product,
                        int64_t panels, const struct walk *walk, int64_t *rows,
                        int64_t *item_panels)
{
    const int64_t units = units_of(plan), tiles = most(1, divide_up(product->m, walk->tile));
    const int64_t fewest = divide_up(tiles, BLOCK_TILES);
    int64_t least_cost = INT64_MAX;
    *rows = tiles * walk->tile;
    *item_panels = panels;
    for (int64_t blocks = fewest; blocks <= least(tiles, fewest + units * 2); blocks++) {
        for (int64_t items = 1; items <= share_of(plan, ITEMS_PER_UNIT); items++) {
            int64_t wanted = divide_up(units * items, blocks * product->batch);
            int64_t share = divide_up(panels, least(panels, wanted));
            int64_t high = divide_up(tiles, blocks);
            int64_t all = divide_up(panels, share) * divide_up(tiles, high) * product->batch;
            int64_t cost = share * (high * 12 + (walk->packs ? 8 : 0));
            cost += walk->lines ? divide_up(share, walk->panels) * high * 4 : 0;
            cost *= divide_up(all, units);
            if (cost >= least_cost)
                continue;
            least_cost = cost;
            *rows = high * walk->tile;
            *item_panels = share;
        }
    }
}

/* Rows of a that are copied at once: none if they are contiguous; of contiguous columns as many as
 * make whole vectors and, nearly, whole tiles; at least a tile of what has to be made. */
#define WHOLE_LINES 48
static int64_t lines_of(const struct kiln__plan *plan, const struct kiln__product *product,
                        int64_t tile)
{
    const struct kiln__matrix *a = &product->a;
    int64_t room = (int64_t)plan->options.device->info.local_memory / 4 / 4 / line_of(plan);
    if (a->computed)
        return tile;
    return a->row == 1 && a->column != 1 ? most(tile, least(WHOLE_LINES, room) / tile * tile) : 0;
}

static void pack(struct kiln__plan *plan, uint32_t group, const struct kiln__product *product,
                 const char *options, const struct kiln__matrix *packed, int64_t panels)
{
    struct kiln__launch launch =
        kiln__product_launch(group, "matmul_cpu_packed", "matmul_pack_b", product);
    struct kiln__extras extras = {.b = &product->b, .vector = tiles_of(plan)->vector};
    if (product->k == 0)
        return;
    snprintf(launch.options, sizeof launch.options, "%s", options);
    kiln__product_range(&launch, panels, divide_up(product->k, block_depth(plan)),
                        product->b.batch ? product->batch : 1);
    kiln__launch_memory(&launch, product->b.slot);
    kiln__launch_memory(&launch, packed->slot);
    kiln__launch_offset(&launch, packed->slot, 0, packed->item);
    KILN__LAUNCH_INDICES(&launch, product->n, product->k);
    add_matrix(&launch, &product->b);
    kiln__plan_product(plan, &extras, &launch);
    if (product->m < KILN__MANY_ROWS || product->copies != KILN__NO_GROUP)
        kiln__plan_keep(plan, packed->slot, product->b.operand);
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
    const struct tiles *tiles = panels_of(plan, product->n);
    int64_t columns = tiles->packed_vectors * tiles->vector;
    int64_t panels = divide_up(product->n, columns), size = panels * product->k * columns;
    struct kiln__matrix packed =
        scratch_of(plan, size * (product->b.batch ? product->batch : 1) + 1);
    packed.batch = product->b.batch ? size : 0;
    snprintf(launch->options, sizeof launch->options,
             "-DVECTOR=%d -DTILE_ROWS=%d -DTILE_VECTORS=%d -DBLOCK_DEPTH=%d -DPACK_DEPTH=%d",
             (int)tiles->vector, (int)tiles->packed_rows, (int)tiles->packed_vectors,
             (int)block_depth(plan), (int)block_depth(plan));
    pack(plan, group, product, launch->options, &packed, panels);
    set_lines(launch, lines_of(plan, product, tiles->packed_rows));
    return packed;
}

/* Of a as most kernels take it, of packed b and of c. */
static void add_packed(struct kiln__launch *launch, const struct kiln__product *product,
                       const struct kiln__matrix *packed)
{
    add_memory(launch, product->a.slot, packed->slot, product->c.slot);
    KILN__LAUNCH_INDICES(launch, product->m, product->n, product->k);
    add_matrix(launch, &product->a);
    kiln__launch_offset(launch, packed->slot, 0, packed->item);
    KILN__LAUNCH_INDICES(launch, packed->batch);
    add_strides(launch, &product->c, product->c.row, product->c.batch);
}

static void lower_packed(struct kiln__plan *plan, uint32_t group,
                         const struct kiln__product *product)
{
    const struct tiles *tiles = panels_of(plan, product->n);
    struct walk walk = {tiles->packed_rows, tiles->packed_vectors, NEAR_PANELS,
                        lines_of(plan, product, tiles->packed_rows), false};
    int64_t panels = divide_up(product->n, walk.vectors * tiles->vector), rows, item_panels;
    struct kiln__launch launch =
        kiln__product_launch(group, "matmul_cpu_packed", "matmul_packed", product);
    struct kiln__matrix packed = pack_panels(plan, group, product, &launch);
    struct kiln__extras extras = {.a = &product->a, .product = product, .vector = tiles->vector};
    share_tiles(plan, product, panels, &walk, &rows, &item_panels);
    kiln__product_range(&launch, divide_up(panels, item_panels), divide_up(product->m, rows),
                        product->batch);
    add_packed(&launch, product, &packed);
    KILN__LAUNCH_INDICES(&launch, rows, item_panels);
    kiln__plan_product(plan, &extras, &launch);
}

const struct kiln__matmul_row kiln__matmul_packed = {"packed", .chunked = true, .takes_steps = true,
                                                     .alike = true, .lower = lower_packed};

/* ---- few: few rows, panels of b that are there already ---- */

#define FEW_TILES 2         /* of VECTOR rows */
#define FEW_BYTES (1 << 16) /* of b, at which it pays to keep panels */
#define FEW_ITEMS 2         /* per unit: the second one starts later */

static bool few_fits(const struct kiln__plan *plan, const struct kiln__product *product)
{
    int64_t lines = FEW_TILES * tiles_of(plan)->vector;
    return product->m <= lines &&
           (uint64_t)(lines * block_depth(plan)) * 4 <= plan->options.device->info.local_memory;
}

/* Whether panels are packed once, and are worth it. */
static bool has_panels(const struct kiln__plan *plan, const struct kiln__product *product)
{
    return product->b.lasting && product->n > 2 * tiles_of(plan)->vector &&
           product->n * product->k * (int64_t)sizeof(float) >= FEW_BYTES;
}

static void lower_few(struct kiln__plan *plan, uint32_t group, const struct kiln__product *product)
{
    int64_t vector = tiles_of(plan)->vector, vectors = divide_up(product->n, vector);
    int64_t parts =
        least(vectors, most(1, units_of(plan) * share_of(plan, FEW_ITEMS) / product->batch));
    int64_t item_vectors = divide_up(vectors, parts);
    struct kiln__launch launch =
        kiln__product_launch(group, "matmul_cpu_packed", "matmul_few", product);
    struct kiln__matrix packed = pack_panels(plan, group, product, &launch);
    struct kiln__extras extras = {.a = &product->a, .product = product, .vector = vector};
    kiln__product_range(&launch, divide_up(vectors, item_vectors), 1, product->batch);
    add_packed(&launch, product, &packed);
    KILN__LAUNCH_INDICES(&launch, item_vectors);
    kiln__plan_product(plan, &extras, &launch);
}

const struct kiln__matmul_row kiln__matmul_few = {"few",
                                                  .chunked = true,
                                                  .takes_steps = true,
                                                  .alike = true,
                                                  .fits = few_fits,
                                                  .suits = has_panels,
                                                  .lower = lower_few};

/* ---- patches: rows of an image, copied tile by tile ---- */

/* Blocks as deep as the others' where that decides in which order they add up. */
#define PATCH_DEPTH 512

#define POINTED_ROWS 8        /* of a tile: registers hold where they are */
#define PATCH_BYTES (1 << 18) /* of c for an item: it is still near when the epilogue comes */

static bool patches_fit(const struct kiln__plan *plan, const struct kiln__product *product)
{
    const struct tiles *tiles = tiles_of(plan);
    uint64_t lines = (uint64_t)most(tiles->packed_rows, tiles->narrow_rows) * (PATCH_DEPTH + 16);
    return product->copies != KILN__NO_GROUP && product->a.column == 1 &&
           lines * sizeof(float) <= plan->options.device->info.local_memory;
}

static void add_levels(struct kiln__launch *launch, const struct kiln__patches *patches)
{
    const struct kiln__patch_level *rows = patches->rows, *depth = patches->depth;
    KILN__LAUNCH_INDICES(launch, rows[1].count, rows[2].count, rows[0].stride, rows[1].stride,
                         rows[2].stride);
    KILN__LAUNCH_INDICES(launch, depth[1].count, depth[2].count, depth[0].stride, depth[1].stride);
}

static void lower_patches(struct kiln__plan *plan, uint32_t group,
                          const struct kiln__product *product)
{
    const struct tiles *tiles = tiles_of(plan);
    bool wide = product->n > tiles->small_vectors * tiles->vector;
    tiles = wide ? panels_of(plan, product->n) : tiles;
    bool narrow = product->n <= tiles->vector;
    int64_t vectors = wide ? tiles->packed_vectors : narrow ? 1 : tiles->small_vectors;
    int64_t tile = wide ? tiles->packed_rows : narrow ? tiles->narrow_rows : tiles->small_rows;
    int64_t columns = vectors * tiles->vector, panels = divide_up(product->n, columns);
    bool deep = product->k > block_depth(plan) && !plan->fusion.graph.alike;
    struct kiln__patches patches;
    struct kiln__launch launch =
        kiln__product_launch(group, "matmul_cpu_patches", "matmul_patches", product);
    kiln__plan_patches(plan, product, product->copies, &patches);
    struct kiln__matrix packed = scratch_of(plan, panels * product->k * columns + 1);
    snprintf(launch.options, sizeof launch.options,
             "-DVECTOR=%d -DTILE_ROWS=%d -DTILE_VECTORS=%d -DBLOCK_DEPTH=%d -DPACK_DEPTH=%d",
             (int)tiles->vector, (int)tile, (int)vectors,
             (int)(deep ? PATCH_DEPTH : block_depth(plan)), (int)block_depth(plan));
    pack(plan, group, product, launch.options, &packed, panels);
    set_lines(&launch, tile > POINTED_ROWS ? tile : 0);
    int64_t rows =
        round_up(divide_up(product->m, units_of(plan) * share_of(plan, ITEMS_PER_UNIT)), tile);
    rows = least(rows, most(1, PATCH_BYTES / 4 / product->n / tile) * tile);
    struct kiln__extras extras = {.product = product, .vector = tiles->vector};
    kiln__product_range(&launch, 1, divide_up(product->m, rows), 1);
    add_memory(&launch, patches.slot, packed.slot, product->c.slot);
    KILN__LAUNCH_INDICES(&launch, product->m, product->n, product->k);
    kiln__launch_offset(&launch, patches.slot, patches.offset, sizeof(float));
    add_levels(&launch, &patches);
    kiln__launch_offset(&launch, packed.slot, 0, packed.item);
    kiln__launch_offset(&launch, product->c.slot, product->c.offset, product->c.item);
    KILN__LAUNCH_INDICES(&launch, product->c.row, rows, panels);
    kiln__plan_product(plan, &extras, &launch);
}

const struct kiln__matmul_row kiln__matmul_patches = {
    "patches",     .chunked = true,     .takes_steps = true,   .fetches = true,
    .alike = true, .fits = patches_fit, .lower = lower_patches};

/* ---- small: one launch ---- */

static bool small_suits(const struct kiln__plan *plan, const struct kiln__product *product)
{
    double work = (double)product->m * (double)product->n * (double)product->k;
    return product->n <= 2 * tiles_of(plan)->vector ||
           (work <= 1 << 24 && !has_panels(plan, product));
}

/* Panels first, since an item packs its own; rows where panels do not give even shares. */
static void share_small(const struct kiln__product *product, int64_t panels, int64_t tile,
                        int64_t wanted, int64_t *rows, int64_t *item_panels)
{
    int64_t parts = least(panels, most(1, wanted / product->batch));
    *item_panels = divide_up(panels, parts);
    parts = divide_up(panels, *item_panels);
    if (panels % parts) {
        *item_panels = panels;
        parts = 1;
    }
    int64_t blocks =
        least(divide_up(product->m, tile), most(1, divide_up(wanted, parts * product->batch)));
    blocks = most(blocks, divide_up(product->m, 512));
    *rows = round_up(most(1, divide_up(product->m, blocks)), tile);
}

/* Whether local memory has room for a panel, and for lines of a if something is made of it. Blocks
 * are as deep for all products: that decides in which order they add up. */
static bool has_room(const struct kiln__plan *plan, const struct kiln__product *product,
                     int64_t columns, int64_t rows)
{
    int64_t depth = block_depth(plan), lines = product->a.computed ? rows : 0;
    return (uint64_t)(columns * depth + lines * line_of(plan)) * sizeof(float) <=
           plan->options.device->info.local_memory;
}

static void add_small(struct kiln__plan *plan, uint32_t group, const struct kiln__product *product,
                      const struct walk *walk, int64_t rows, int64_t item_panels)
{
    int64_t vector = tiles_of(plan)->vector;
    int64_t panels = divide_up(product->n, walk->vectors * vector);
    struct kiln__launch launch =
        kiln__product_launch(group, "matmul_cpu_small", "matmul_small", product);
    snprintf(launch.options, sizeof launch.options,
             "-DVECTOR=%d -DTILE_ROWS=%d -DTILE_VECTORS=%d -DBLOCK_DEPTH=%d -DPANELS=%d -DLINES=%d",
             (int)vector, (int)walk->tile, (int)walk->vectors, (int)block_depth(plan),
             (int)walk->panels, (int)walk->lines);
    struct kiln__extras extras = {
        .a = &product->a, .b = &product->b, .product = product, .vector = vector};
    kiln__product_range(&launch, divide_up(panels, item_panels), divide_up(product->m, rows),
                        product->batch);
    add_memory(&launch, product->a.slot, product->b.slot, product->c.slot);
    KILN__LAUNCH_INDICES(&launch, product->m, product->n, product->k);
    add_matrix(&launch, &product->a);
    add_matrix(&launch, &product->b);
    add_strides(&launch, &product->c, product->c.row, product->c.batch);
    KILN__LAUNCH_INDICES(&launch, rows, item_panels);
    kiln__plan_product(plan, &extras, &launch);
}

static void lower_small(struct kiln__plan *plan, uint32_t group,
                        const struct kiln__product *product)
{
    const struct tiles *tiles = tiles_of(plan);
    bool narrow = product->n <= tiles->vector ||
                  !has_room(plan, product, tiles->small_vectors * tiles->vector, tiles->small_rows);
    int64_t vectors = narrow ? 1 : tiles->small_vectors;
    int64_t tile = narrow ? tiles->narrow_rows : tiles->small_rows;
    while (tile > 1 && !has_room(plan, product, vectors * tiles->vector, tile))
        tile /= 2;
    int64_t panels = divide_up(product->n, vectors * tiles->vector), rows, item_panels;
    share_small(product, panels, tile, units_of(plan) * share_of(plan, 1), &rows, &item_panels);
    struct walk walk = {tile, vectors, 1, product->a.computed ? tile : 0, true};
    add_small(plan, group, product, &walk, rows, item_panels);
}

const struct kiln__matmul_row kiln__matmul_small = {
    "small",       .chunked = true,      .takes_steps = true,
    .alike = true, .suits = small_suits, .lower = lower_small};

/* ---- single: one launch, whose items pack panels of their own ---- */

/* Panels that half of the local memory holds. */
static int64_t single_panels(const struct kiln__plan *plan, const struct tiles *tiles)
{
    int64_t room = (int64_t)plan->options.device->info.local_memory / 2 / 4;
    return least(NEAR_PANELS, room / (tiles->packed_vectors * tiles->vector * block_depth(plan)));
}

static bool single_fits(const struct kiln__plan *plan, const struct kiln__product *product)
{
    return single_panels(plan, panels_of(plan, product->n)) > 0;
}

/* Up to where the launch that is saved takes longer than panels that several items pack; what may
 * be kept is packed apart. */
static bool single_suits(const struct kiln__plan *plan, const struct kiln__product *product)
{
    double work = (double)product->m * (double)product->n * (double)product->k;
    (void)plan;
    return !product->b.lasting && work <= 1 << 28;
}

static void lower_single(struct kiln__plan *plan, uint32_t group,
                         const struct kiln__product *product)
{
    const struct tiles *tiles = panels_of(plan, product->n);
    struct walk walk = {tiles->packed_rows, tiles->packed_vectors, single_panels(plan, tiles),
                        lines_of(plan, product, tiles->packed_rows), true};
    int64_t panels = divide_up(product->n, walk.vectors * tiles->vector), rows, item_panels;
    share_tiles(plan, product, panels, &walk, &rows, &item_panels);
    add_small(plan, group, product, &walk, rows, item_panels);
}

const struct kiln__matmul_row kiln__matmul_single = {"single",
                                                     .chunked = true,
                                                     .takes_steps = true,
                                                     .alike = true,
                                                     .fits = single_fits,
                                                     .suits = single_suits,
                                                     .lower = lower_single};

/* ---- skinny: few rows, b read once where it is ---- */

static int few_rows(int64_t m)
{
    return m <= 1 ? 1 : m <= 2 ? 2 : m <= 4 ? 4 : 8;
}

/* The longest strip of sums in local memory: the longer the better, half of the memory at most. */
static int strip_of(const struct kiln__plan *plan, int rows)
{
    int strip = 4096;
    while (strip > 256 &&
           (uint64_t)rows * (uint64_t)strip * 4 > plan->options.device->info.local_memory / 2)
        strip /= 2;
    return strip;
}

static void skinny_options(const struct kiln__plan *plan, int rows, struct kiln__launch *launch)
{
    snprintf(launch->options, sizeof launch->options, "-DVECTOR=%d -DROWS=%d -DSTRIP=%d",
             (int)tiles_of(plan)->vector, rows, strip_of(plan, rows));
}

static bool is_skinny(const struct kiln__plan *plan, const struct kiln__product *product)
{
    return product->m <= 8 && product->b.column == 1 && product->n >= tiles_of(plan)->vector;
}

/* One column from a transposed matrix is one row the other way round. */
static bool is_skinny_swapped(const struct kiln__plan *plan, const struct kiln__product *product)
{
    return product->n == 1 && product->a.row == 1 && product->c.row == 1 &&
           product->m >= tiles_of(plan)->vector;
}

static bool skinny_fits(const struct kiln__plan *plan, const struct kiln__product *product)
{
    return is_skinny(plan, product) || is_skinny_swapped(plan, product);
}

static bool skinny_suits(const struct kiln__plan *plan, const struct kiln__product *product)
{
    (void)plan;
    return most(product->m, product->n) * product->k >= 16384;
}

static struct kiln__matrix transposed(const struct kiln__matrix *matrix)
{
    struct kiln__matrix other = *matrix;
    other.row = matrix->column;
    other.column = matrix->row;
    return other;
}

static struct kiln__product swapped(const struct kiln__product *product)
{
    struct kiln__product other = *product;
    other.m = product->n;
    other.n = product->m;
    other.a = transposed(&product->b);
    other.b = transposed(&product->a);
    other.b.across = true;
    other.c.row = product->m;
    return other;
}

/* `given` is the product as it was before it was swapped. */
static void sum_splits(struct kiln__plan *plan, uint32_t group, const struct kiln__product *product,
                       const struct kiln__product *given, uint32_t sums, int64_t splits)
{
    int64_t vector = tiles_of(plan)->vector;
    int64_t share = divide_up(product->n, most(1, units_of(plan) / product->m));
    int64_t columns = most(256, round_up(share, vector));
    struct kiln__launch launch =
        kiln__product_launch(group, "matmul_cpu_skinny", "matmul_skinny_sum", product);
    skinny_options(plan, few_rows(product->m), &launch);
    kiln__product_range(&launch, divide_up(product->n, columns), product->m, product->batch);
    struct kiln__extras extras = {.product = given, .vector = vector};
    kiln__launch_memory(&launch, sums);
    kiln__launch_memory(&launch, product->c.slot);
    KILN__LAUNCH_INDICES(&launch, product->m, product->n, splits);
    kiln__launch_offset(&launch, sums, 0, sizeof(float));
    add_strides(&launch, &product->c, product->c.row, product->c.batch);
    KILN__LAUNCH_INDICES(&launch, columns, !is_skinny(plan, given));
    kiln__plan_product(plan, &extras, &launch);
}

/* Enough items for all units, none with less than 64 lines of b; or as the others' blocks are. */
static int64_t choose_depth(const struct kiln__plan *plan, const struct kiln__product *product,
                            int64_t strips)
{
    int64_t splits = divide_up(units_of(plan) * 4, strips * product->batch);
    splits = most(1, least(splits, product->k / 64));
    splits = traits_of(plan)->splits ? traits_of(plan)->splits : splits;
    return plan->fusion.graph.alike ? block_depth(plan) : most(1, divide_up(product->k, splits));
}

static void lower_skinny(struct kiln__plan *plan, uint32_t group, const struct kiln__product *given)
{
    const bool is_swapped = !is_skinny(plan, given);
    const struct kiln__product product = is_swapped ? swapped(given) : *given;
    int64_t vector = tiles_of(plan)->vector, m = product.m, n = product.n;
    int64_t strips = divide_up(n, strip_of(plan, few_rows(m)));
    int64_t columns = round_up(divide_up(n, strips), vector);
    strips = divide_up(n, columns);
    int64_t depth = choose_depth(plan, &product, strips);
    int64_t splits = most(1, divide_up(product.k, depth));
    struct kiln__launch launch =
        kiln__product_launch(group, "matmul_cpu_skinny", "matmul_skinny", &product);
    skinny_options(plan, few_rows(m), &launch);
    struct kiln__matrix out = product.c;
    if (splits > 1) {
        out = scratch_of(plan, product.batch * splits * m * n);
        out.row = n;
        out.batch = splits * m * n;
    }
    kiln__product_range(&launch, strips, splits, product.batch);
    add_memory(&launch, product.a.slot, product.b.slot, out.slot);
    KILN__LAUNCH_INDICES(&launch, m, n, product.k);
    add_matrix(&launch, &product.a);
    add_strides(&launch, &product.b, product.b.row, product.b.batch);
    add_strides(&launch, &out, out.row, splits > 1 ? m * n : 0);
    KILN__LAUNCH_INDICES(&launch, out.batch, columns, depth, is_swapped);
    struct kiln__extras extras = {.a = &product.a, .b = &product.b, .vector = vector};
    extras.product = splits == 1 ? given : NULL;
    kiln__plan_product(plan, &extras, &launch);
    if (splits > 1)
        sum_splits(plan, group, &product, given, out.slot, splits);
}

const struct kiln__matmul_row kiln__matmul_skinny = {"skinny",
                                                     .chunked = true,
                                                     .takes_steps = true,
                                                     .alike = true,
                                                     .fits = skinny_fits,
                                                     .suits = skinny_suits,
                                                     .lower = lower_skinny};

/* ---- dots: both operands contiguous along k ---- */

static bool dots_fits(const struct kiln__plan *plan, const struct kiln__product *product)
{
    (void)plan;
    return (product->a.column == 1 || product->k <= 1) &&
           (product->b.row == 1 || product->k <= 1) && (product->m <= 8 || product->n <= 8);
}

static void lower_dots(struct kiln__plan *plan, uint32_t group, const struct kiln__product *product)
{
    bool columns = product->m > 8 || (product->n <= 8 && product->n < product->m);
    int64_t few = columns ? product->n : product->m, many = columns ? product->m : product->n;
    struct kiln__matrix f = columns ? product->b : product->a;
    struct kiln__matrix g = columns ? product->a : product->b;
    f.across = g.across = false;
    struct kiln__extras extras = {
        .a = &f, .b = &g, .product = product, .vector = tiles_of(plan)->vector};
    /* About 4 items per unit, of 16 rows and more. */
    int64_t item =
        most(16, round_up(divide_up(many * product->batch, units_of(plan) * share_of(plan, 4)), 8));
    struct kiln__launch launch =
        kiln__product_launch(group, "matmul_cpu_skinny", "matmul_dots", product);
    skinny_options(plan, few_rows(few), &launch);
    kiln__product_range(&launch, divide_up(many, item), product->batch, 1);
    add_memory(&launch, f.slot, g.slot, product->c.slot);
    KILN__LAUNCH_INDICES(&launch, few, many, product->k);
    add_strides(&launch, &f, columns ? f.column : f.row, f.batch);
    add_strides(&launch, &g, columns ? g.row : g.column, g.batch);
    add_strides(&launch, &product->c, columns ? 1 : product->c.row, columns ? product->c.row : 1);
    KILN__LAUNCH_INDICES(&launch, product->c.batch, item, columns);
    kiln__plan_product(plan, &extras, &launch);
}

const struct kiln__matmul_row kiln__matmul_dots = {"dots", .chunked = true, .takes_steps = true,
                                                   .fits = dots_fits, .lower = lower_dots};
