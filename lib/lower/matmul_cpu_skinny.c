/* SPDX-License-Identifier: Apache-2.0 */
/* Products on chunked devices of few rows or columns: one pass over the large operand, read where
 * it is (kernels/matmul_cpu_skinny.cl, matmul_cpu_blocks.cl). */
#include <stdio.h>
#include <string.h>

#include "lower/matmul_cpu.h"

/* The rows of a tile of registers that has so many. */
static int few_rows(int64_t m)
{
    return m <= 1 ? 1 : m <= 2 ? 2 : m <= 4 ? 4 : 8;
}

/* ---- skinny: few rows, b read once where it is ---- */

/* The longest strip of sums in local memory: the longer the better, half of the memory at most. */
static int strip_of(const struct kiln__device *device, int rows)
{
    int strip = 4096;
    while (strip > 256 && (uint64_t)rows * (uint64_t)strip * 4 > device->info.local_memory / 2)
        strip /= 2;
    return strip;
}

static void skinny_options(const struct kiln__device *device, int rows, struct kiln__launch *launch)
{
    snprintf(launch->options, sizeof launch->options, "-DVECTOR=%d -DROWS=%d -DSTRIP=%d",
             (int)kiln__cpu_tiles(device)->vector, rows, strip_of(device, rows));
}

static bool is_skinny(const struct kiln__product *product)
{
    return product->m <= 8 && product->b.column == 1 &&
           product->n >= kiln__cpu_tiles(product->device)->vector;
}

/* One column from a transposed matrix is one row the other way round. */
static bool is_skinny_swapped(const struct kiln__product *product)
{
    return product->n == 1 && product->a.row == 1 && product->c.row == 1 &&
           product->m >= kiln__cpu_tiles(product->device)->vector;
}

static bool skinny_fits(const struct kiln__plan *plan, const void *work)
{
    const struct kiln__product *product = work;
    (void)plan;
    return is_skinny(product) || is_skinny_swapped(product);
}

static bool skinny_suits(const struct kiln__plan *plan, const void *work)
{
    const struct kiln__product *product = work;
    (void)plan;
    return kiln__most(product->m, product->n) * product->k >= 16384;
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
    int64_t vector = kiln__cpu_tiles(product->device)->vector;
    int64_t share = kiln__div_up(
        product->n, kiln__most(1, kiln__cpu_compute_units(product->device) / product->m));
    int64_t columns = kiln__most(256, kiln__round_up(share, vector));
    struct kiln__launch launch =
        kiln__product_launch(group, "matmul_cpu_skinny", "matmul_skinny_sum");
    skinny_options(product->device, few_rows(product->m), &launch);
    kiln__product_range(&launch, kiln__div_up(product->n, columns), product->m, product->batch);
    struct kiln__extras extras = {.product = given, .vector = vector};
    kiln__launch_memory(&launch, sums);
    kiln__launch_memory(&launch, product->c.slot);
    KILN__LAUNCH_INDICES(&launch, product->m, product->n, splits);
    kiln__launch_offset(&launch, sums, 0, sizeof(float));
    kiln__cpu_add_strides(&launch, &product->c, product->c.row, product->c.batch);
    KILN__LAUNCH_INDICES(&launch, columns, !is_skinny(given));
    kiln__plan_add_product_launch(plan, &extras, &launch);
}

/* Enough items for all units, none with less than 64 lines of b; or as the others' blocks are. */
static int64_t choose_depth(const struct kiln__plan *plan, const struct kiln__product *product,
                            int64_t strips)
{
    int64_t splits =
        kiln__div_up(kiln__cpu_compute_units(product->device) * 4, strips * product->batch);
    int64_t tuned = product->device->traits->splits;
    splits = tuned ? tuned : kiln__most(1, kiln__least(splits, product->k / 64));
    return plan->fusion.graph.batch_invariant ? kiln__cpu_depth_block(product->device)
                                              : kiln__most(1, kiln__div_up(product->k, splits));
}

static void lower_skinny(struct kiln__plan *plan, uint32_t group, const void *work)
{
    const struct kiln__product *given = work;
    const bool is_swapped = !is_skinny(given);
    const struct kiln__product product = is_swapped ? swapped(given) : *given;
    int64_t vector = kiln__cpu_tiles(product.device)->vector, m = product.m, n = product.n;
    int64_t strips = kiln__div_up(n, strip_of(product.device, few_rows(m)));
    int64_t columns = kiln__round_up(kiln__div_up(n, strips), vector);
    strips = kiln__div_up(n, columns);
    int64_t depth = choose_depth(plan, &product, strips);
    int64_t splits = kiln__most(1, kiln__div_up(product.k, depth));
    struct kiln__launch launch = kiln__product_launch(group, "matmul_cpu_skinny", "matmul_skinny");
    skinny_options(product.device, few_rows(m), &launch);
    struct kiln__matrix out = product.c;
    if (splits > 1) {
        out = kiln__cpu_scratch(plan, product.batch * splits * m * n);
        out.row = n;
        out.batch = splits * m * n;
    }
    kiln__product_range(&launch, strips, splits, product.batch);
    kiln__cpu_add_memory(&launch, product.a.slot, product.b.slot, out.slot);
    KILN__LAUNCH_INDICES(&launch, m, n, product.k);
    kiln__cpu_add_matrix(&launch, &product.a);
    kiln__cpu_add_strides(&launch, &product.b, product.b.row, product.b.batch);
    kiln__cpu_add_strides(&launch, &out, out.row, splits > 1 ? m * n : 0);
    KILN__LAUNCH_INDICES(&launch, out.batch, columns, depth, is_swapped);
    struct kiln__extras extras = {.a = &product.a, .b = &product.b, .vector = vector};
    extras.product = splits == 1 ? given : NULL;
    kiln__plan_add_product_launch(plan, &extras, &launch);
    if (splits > 1)
        sum_splits(plan, group, &product, given, out.slot, splits);
}

const struct kiln__lowering kiln__matmul_skinny = {
    .fits = skinny_fits, .suits = skinny_suits, .lower = lower_skinny};

/* ---- dots: both operands contiguous along k ---- */

static bool dots_fits(const struct kiln__plan *plan, const void *work)
{
    const struct kiln__product *product = work;
    (void)plan;
    return (product->a.column == 1 || product->k <= 1) &&
           (product->b.row == 1 || product->k <= 1) && (product->m <= 8 || product->n <= 8);
}

/* Lines for an item: about 4 items per unit, of 16 lines and more. */
static int64_t share_lines(const struct kiln__product *product, int64_t many, int64_t others)
{
    const int64_t items =
        kiln__cpu_compute_units(product->device) * kiln__cpu_items_per_unit(product->device, 4);
    return kiln__most(16, kiln__round_up(kiln__div_up(many * product->batch * others, items), 8));
}

static void lower_dots(struct kiln__plan *plan, uint32_t group, const void *work)
{
    const struct kiln__product *product = work;
    bool columns = product->m > 8 || (product->n <= 8 && product->n < product->m);
    int64_t few = columns ? product->n : product->m, many = columns ? product->m : product->n;
    struct kiln__matrix f = columns ? product->b : product->a;
    struct kiln__matrix g = columns ? product->a : product->b;
    f.across = g.across = false;
    struct kiln__extras extras = {
        .a = &f, .b = &g, .product = product, .vector = kiln__cpu_tiles(product->device)->vector};
    const int64_t item = share_lines(product, many, 1);
    struct kiln__launch launch = kiln__product_launch(group, "matmul_cpu_skinny", "matmul_dots");
    skinny_options(product->device, few_rows(few), &launch);
    kiln__product_range(&launch, kiln__div_up(many, item), product->batch, 1);
    const int64_t few_stride = columns ? f.column : f.row, stride = columns ? g.row : g.column;
    kiln__cpu_add_memory(&launch, f.slot, g.slot, product->c.slot);
    KILN__LAUNCH_INDICES(&launch, few, many, product->k);
    kiln__cpu_add_strides(&launch, &f, few_stride, f.batch);
    kiln__cpu_add_strides(&launch, &g, stride, g.batch);
    kiln__cpu_add_strides(&launch, &product->c, columns ? 1 : product->c.row,
                          columns ? product->c.row : 1);
    KILN__LAUNCH_INDICES(&launch, product->c.batch, item, columns);
    kiln__plan_add_product_launch(plan, &extras, &launch);
}

const struct kiln__lowering kiln__matmul_dots = {.fits = dots_fits, .lower = lower_dots};

/* ---- blocks: lines along k of blocks, times any number of others ---- */

/* Whether lines along k, of blocks that nothing is made of but f32, are of whole ones. */
static bool has_whole_blocks(const struct kiln__matrix *lines, int64_t along, int64_t stride,
                             int64_t k)
{
    const int64_t block = (int64_t)kiln_type_block(lines->stored);
    return lines->blocks && lines->plain_load && along == 1 && k > 0 && k % block == 0 &&
           lines->offset % block == 0 && stride % block == 0 && lines->batch % block == 0;
}

static bool has_columns_of_blocks(const struct kiln__product *product)
{
    return has_whole_blocks(&product->b, product->b.row, product->b.column, product->k);
}

static bool blocks_fits(const struct kiln__plan *plan, const void *work)
{
    const struct kiln__product *product = work;
    (void)plan;
    return has_columns_of_blocks(product) ||
           has_whole_blocks(&product->a, product->a.column, product->a.row, product->k);
}

/* From more lines on it pays to make the weights once, as panels; but they add up in another order.
 */
static bool blocks_suits(const struct kiln__plan *plan, const void *work)
{
    const struct kiln__product *product = work;
    return plan->fusion.graph.batch_invariant ||
           (has_columns_of_blocks(product) ? product->m : product->n) <= 12;
}

static void lower_blocks(struct kiln__plan *plan, uint32_t group, const void *work)
{
    const struct kiln__product *product = work;
    const bool rows = !has_columns_of_blocks(product); /* of blocks */
    const int64_t few = rows ? product->n : product->m, many = rows ? product->m : product->n;
    struct kiln__matrix f = rows ? product->b : product->a, g = rows ? product->a : product->b;
    const int64_t few_stride = rows ? f.column : f.row, few_column = rows ? f.row : f.column;
    f.across = g.across = false;
    struct kiln__extras extras = {
        .a = &f, .b = &g, .product = product, .vector = kiln__cpu_tiles(product->device)->vector};
    struct kiln__launch launch = kiln__product_launch(group, "matmul_cpu_blocks", "matmul_blocks");
    snprintf(launch.options, sizeof launch.options, "-DVECTOR=%d -DROWS=%d -DSTRIDED=%d",
             (int)extras.vector, few_rows(few), few_column != 1);
    const int64_t tiles = kiln__div_up(few, few_rows(few)),
                  item = share_lines(product, many, tiles);
    kiln__product_range(&launch, kiln__div_up(many, item), product->batch, tiles);
    kiln__cpu_add_memory(&launch, f.slot, g.slot, product->c.slot);
    KILN__LAUNCH_INDICES(&launch, few, many, product->k);
    kiln__cpu_add_strides(&launch, &f, few_stride, few_column);
    KILN__LAUNCH_INDICES(&launch, f.batch);
    kiln__cpu_add_strides(&launch, &product->c, rows ? 1 : product->c.row,
                          rows ? product->c.row : 1);
    KILN__LAUNCH_INDICES(&launch, product->c.batch, item, rows);
    kiln__plan_add_product_launch(plan, &extras, &launch);
}

const struct kiln__lowering kiln__matmul_blocks = {
    .fits = blocks_fits, .suits = blocks_suits, .lower = lower_blocks};
