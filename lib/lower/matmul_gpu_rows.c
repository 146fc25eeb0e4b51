/* SPDX-License-Identifier: Apache-2.0 */
/* Products of few rows or few columns on GPUs (kernels/matmul_gpu_rows.cl). */
#include <stdio.h>

#include "lower/matmul.h"

#define MOST_FEW 8
#define LEAST_MANY 64 /* of the lines of the larger operand, and of k */
#define WIDE 64       /* lines of the larger operand that a work-group has across them, at most */

/* The smaller operand's lines and the larger one's, whichever of them is which. */
struct sides {
    bool few_are_columns;
    struct kiln__matrix few, many; /* row: from line to line, column: along k */
    int64_t few_count, many_count;
};

static struct sides sides_of(const struct kiln__product *product)
{
    bool columns = product->n < product->m;
    struct kiln__matrix turned = product->b;
    turned.row = product->b.column;
    turned.column = product->b.row;
    return columns ? (struct sides){true, turned, product->a, product->n, product->m}
                   : (struct sides){false, product->a, turned, product->m, product->n};
}

static bool runs_along(const struct kiln__matrix *side)
{
    return side->column == 1;
}

static bool rows_fits(const struct kiln__plan *plan, const void *work)
{
    const struct kiln__product *product = work;
    (void)plan;
    struct sides sides = sides_of(product);
    const struct kiln_device_info *info = &product->device->info;
    return sides.few_count <= MOST_FEW && sides.many_count >= 4 && product->k > 0 &&
           runs_along(&sides.few) && info->max_work_group >= 256 && info->local_memory >= 40000;
}

static bool rows_suits(const struct kiln__plan *plan, const void *work)
{
    const struct kiln__product *product = work;
    (void)plan;
    struct sides sides = sides_of(product);
    return !product->device->traits->chunked && sides.many_count >= LEAST_MANY &&
           product->k >= LEAST_MANY;
}

/* Work-items of a work-group, and of them those that share k, or lines. */
struct shape {
    int few, items, lanes, lines;
    int rounds; /* whose reads are on their way at once */
    int beside; /* work-groups that a unit has at once */
};

static uint64_t across_bytes(const struct shape *shape)
{
    int slices = shape->items / shape->lanes;
    return 16 * (uint64_t)(shape->items + 2 * shape->rounds * slices * shape->few);
}

/* Along k an item has a few lines at once: with 8 of them four rows by 4096 x 4096 took an H200
 * 19.6 us, with 4 24.5, eight rows 27.6 and 25.5. Across lines a unit has 512 items, as many as its
 * registers allow with two rounds at once: as two work-groups of twice as many lines, where there
 * are enough of them for most units. */
static struct shape shape_of(const struct kiln__device *device, const struct sides *sides)
{
    const struct kiln_device_info *info = &device->info;
    int few = 1;
    while (few < sides->few_count)
        few *= 2;
    if (runs_along(&sides->many))
        return (struct shape){few, 128, 8, few == 4 ? 8 : few == 1 ? 2 : 4, 1, few < 4 ? 8 : 4};
    const int64_t wide = kiln__div_up(sides->many_count, WIDE);
    bool two = few > 4 && 2 * wide >= 3 * (int64_t)info->compute_units;
    struct shape shape = {few, two ? 256 : 512, two ? WIDE / 4 : 8, 4, 2, two ? 2 : 1};
    while ((uint64_t)shape.items > info->max_work_group ||
           across_bytes(&shape) > info->local_memory) {
        shape.items /= 2;
        shape.beside *= 2;
    }
    return shape;
}

/* Enough for all units, but none with less than 16 of k. */
static int64_t splits_of(const struct kiln__product *product, const struct shape *shape,
                         int64_t groups, int64_t slices)
{
    int64_t units = kiln__most(1, product->device->info.compute_units);
    int64_t tuned = product->device->traits->splits;
    int64_t wanted = tuned ? tuned : units * shape->beside / (groups * product->batch);
    return kiln__most(1, kiln__least(wanted, product->k / (slices * 16)));
}

static void lower_rows(struct kiln__plan *plan, uint32_t group, const void *work)
{
    const struct kiln__product *product = work;
    struct sides sides = sides_of(product);
    struct shape shape = shape_of(product->device, &sides);
    bool along = runs_along(&sides.many);
    int64_t groups = kiln__div_up(sides.many_count, along ? shape.lines : shape.lanes * 4);
    int64_t slices = along ? shape.items : shape.items / shape.lanes;
    int64_t splits = splits_of(product, &shape, groups, slices);
    int64_t depth =
        splits == 1 ? product->k : kiln__div_up(kiln__div_up(product->k, splits), 4) * 4;
    splits = kiln__div_up(product->k, depth);
    struct kiln__matrix c = splits > 1 ? kiln__product_split_k(plan, product, splits) : product->c;
    bool aligned = !plan->options.shared && kiln__matrix_by_fours(&product->a) &&
                   kiln__matrix_by_fours(&product->b) && product->k % 4 == 0 &&
                   (along || sides.many_count % 4 == 0);
    struct kiln__launch launch = kiln__product_launch(
        group, "matmul_gpu_rows", along ? "matmul_gpu_along" : "matmul_gpu_across");
    snprintf(
        launch.options, sizeof launch.options,
        "-DALONG=%d -DFEW=%d -DITEMS=%d -DLANES=%d -DLINES=%d -DALIGNED=%d -DROUNDS=%d -DWARPS=%d",
        along, shape.few, shape.items, shape.lanes, shape.lines, aligned, shape.rounds,
        product->device->traits->shuffles);
    kiln__product_range(&launch, groups * shape.items, splits, product->batch);
    launch.local[0] = (size_t)shape.items;
    sides.few.across = false;
    sides.many.across = !along;
    struct kiln__extras extras = {
        .a = &sides.few, .b = &sides.many, .vector = 4, .aligned = aligned};
    extras.product = splits > 1 ? NULL : product;
    kiln__launch_memory(&launch, sides.few.slot);
    kiln__launch_memory(&launch, sides.many.slot);
    kiln__launch_memory(&launch, c.slot);
    KILN__LAUNCH_INDICES(&launch, sides.few_count, sides.many_count, product->k);
    kiln__launch_matrix(&launch, &sides.few);
    kiln__launch_matrix(&launch, &sides.many);
    kiln__launch_offset(&launch, c.slot, c.offset, c.item);
    KILN__LAUNCH_INDICES(&launch, sides.few_are_columns ? 1 : c.row,
                         sides.few_are_columns ? c.row : 1, c.batch, depth, splits,
                         product->m * product->n, sides.few_are_columns);
    kiln__plan_add_product_launch(plan, &extras, &launch);
    if (splits > 1)
        kiln__plan_product_sums(plan, group, product, &c, splits);
}

const struct kiln__lowering kiln__matmul_rows = {
    .fits = rows_fits, .suits = rows_suits, .lower = lower_rows};
