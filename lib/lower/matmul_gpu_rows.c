/* SPDX-License-Identifier: Apache-2.0 */
/* Products of few rows or few columns on GPUs (kernels/matmul_gpu_rows.cl), and of 16 bits on
 * NVIDIA's tensor cores (kernels/matmul_mma_rows.cl). */
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
    bool aligned = !plan->options.shared && kiln__matrix_by(&product->a, 4) &&
                   kiln__matrix_by(&product->b, 4) && product->k % 4 == 0 &&
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

/* ---- on tensor cores ---- */

/* What an instruction multiplies: lines of the larger operand, and of the smaller one, of which an
 * item also reads as many elements at once. 16 warps that read 64 of k each are as many reads as an
 * H200's memory has on its way: 8 rows by 4096 x 4096 13.8 us (21.3 by matmul_gpu_rows), by 128,256
 * x 2048 130 (247). */
#define LINES 16
#define EIGHT 8
#define WARPS 16
#define MMA_ITEMS 512 /* of all warps */
#define MOST_EIGHTS 4

static bool lies_by_eights(const struct kiln__matrix *side, kiln_type type)
{
    return runs_along(side) && kiln__matrix_copies(side, type, EIGHT);
}

/* Weights across k are brought along it, once. */
static bool is_packed(const struct sides *sides)
{
    const struct kiln__matrix *many = &sides->many;
    return !runs_along(many) && many->stored == sides->few.stored && many->plain_load &&
           many->frozen;
}

static bool are_narrow(const struct sides *sides)
{
    const kiln_type type = sides->few.stored;
    return (type == KILN_F16 || type == KILN_BF16) && lies_by_eights(&sides->few, type) &&
           (lies_by_eights(&sides->many, type) || is_packed(sides));
}

static bool is_proven(const struct kiln__plan *plan, kiln_type type, int64_t eights)
{
    const struct kiln__self_test self_test = {
        .kernel = kiln__kernel_of(KILN__KERNEL_PRODUCT, KILN__BY_mma_rows - 1u),
        .type = type,
        .transpose_b = true,
        .parts = 1,
        .tile = (uint16_t)(EIGHT * eights)};
    return plan->options.self_tester->passes(plan->options.self_tester, &self_test);
}

static bool mma_rows_fits(const struct kiln__plan *plan, const void *work)
{
    const struct kiln__product *product = work;
    const struct sides sides = sides_of(product);
    const int64_t eights = kiln__div_up(sides.few_count, EIGHT);
    return eights <= MOST_EIGHTS && product->k > 0 && product->k % EIGHT == 0 &&
           are_narrow(&sides) && !plan->options.shared &&
           product->device->info.max_work_group >= MMA_ITEMS &&
           is_proven(plan, sides.few.stored, eights);
}

/* Of fewer lines others share k among work-groups; more rows than an instruction has twice are read
 * again and again beside many weights. H200, us, beside wgmma: 16 rows by 16384 x 2048 24 and 35,
 * 32 rows 38 and 33, by 768 x 3072 8.5 and 18. */
#define LEAST_LINES 384
#define FEW_ROWS 16
#define MOST_WEIGHTS ((int64_t)4096 * 4096)

static bool mma_rows_suits(const struct kiln__plan *plan, const void *work)
{
    const struct kiln__product *product = work;
    const struct sides sides = sides_of(product);
    (void)plan;
    return sides.many_count * product->batch >= LEAST_LINES && product->k >= LEAST_MANY &&
           (sides.few_count <= FEW_ROWS ||
            sides.many_count * product->batch <= MOST_WEIGHTS / product->k);
}

static void lower_mma_rows(struct kiln__plan *plan, uint32_t group, const void *work)
{
    struct kiln__product product = *(const struct kiln__product *)work;
    struct sides sides = sides_of(&product);
    const struct kiln__matrix *c = &product.c;
    if (is_packed(&sides)) {
        struct kiln__matrix *weights = sides.few_are_columns ? &product.a : &product.b;
        *weights = kiln__product_pack(plan, group, &product, weights, 2, 1);
        sides = sides_of(&product);
    }
    struct kiln__launch launch = kiln__product_launch(group, "matmul_mma_rows", "matmul_mma_rows");
    snprintf(launch.options, sizeof launch.options, "-DTYPE=%s -DEIGHTS=%d -DWARPS=%d",
             kiln_type_name(sides.few.stored), (int)kiln__div_up(sides.few_count, EIGHT), WARPS);
    kiln__product_range(&launch, kiln__div_up(sides.many_count, LINES) * MMA_ITEMS, 1,
                        product.batch);
    launch.local[0] = MMA_ITEMS;
    launch.self_tested = true;
    kiln__launch_memory(&launch, sides.few.slot);
    kiln__launch_memory(&launch, sides.many.slot);
    kiln__launch_memory(&launch, c->slot);
    KILN__LAUNCH_INDICES(&launch, sides.few_count, sides.many_count, product.k);
    kiln__launch_matrix(&launch, &sides.few);
    kiln__launch_matrix(&launch, &sides.many);
    kiln__launch_offset(&launch, c->slot, c->offset, c->item);
    KILN__LAUNCH_INDICES(&launch, sides.few_are_columns ? 1 : c->row,
                         sides.few_are_columns ? c->row : 1, c->batch, sides.few_are_columns);
    const struct kiln__extras extras = {.product = &product, .vector = 4};
    kiln__plan_add_product_launch(plan, &extras, &launch);
}

const struct kiln__lowering kiln__matmul_mma_rows = {
    .fits = mma_rows_fits, .suits = mma_rows_suits, .lower = lower_mma_rows};
