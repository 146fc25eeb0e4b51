/* SPDX-License-Identifier: Apache-2.0 */
/* Which tiles a product has on a chunked device, and which share of them a work-item. */
#include "lower/matmul_cpu.h"

#include <math.h>

/* ---- tiles ---- */

/* For each width the usual ones first, then others that may be chosen by number. */
static const struct kiln__cpu_tiles tile_table[] = {
    {16, 6, 4, 8, 2, 12, 1.00}, {16, 8, 3, 8, 3, 8, 1.02}, {16, 12, 2, 12, 2, 14, 1.30},
    {16, 4, 4, 4, 4, 4, 1.30},  {8, 6, 2, 6, 2, 8, 1.00},  {8, 4, 3, 4, 3, 6, 1.02},
    {8, 4, 2, 4, 2, 4, 1.30},   {4, 4, 2, 4, 2, 8, 1.00}};
#define TILES_END (tile_table + sizeof tile_table / sizeof *tile_table)

const struct kiln__cpu_tiles *kiln__cpu_tiles(const struct kiln__device *device)
{
    const struct kiln__cpu_tiles *tiles = tile_table;
    while (tiles->vector > device->traits->vector && tiles->vector > 4)
        tiles++;
    const struct kiln__cpu_tiles *other =
        tiles + (device->traits->tile ? device->traits->tile - 1 : 0);
    return other < TILES_END && other->vector == tiles->vector ? other : tiles;
}

const struct kiln__cpu_tiles *kiln__cpu_panels(const struct kiln__device *device, int64_t n)
{
    const struct kiln__cpu_tiles *tiles = kiln__cpu_tiles(device), *best = tiles;
    double least_cost = INFINITY;
    for (; !device->traits->tile && tiles < TILES_END && tiles->vector == best->vector; tiles++) {
        double cost =
            (double)kiln__round_up(n, tiles->packed_vectors * tiles->vector) * tiles->pace;
        if (cost >= least_cost)
            continue;
        least_cost = cost;
        best = tiles;
    }
    return best;
}

int64_t kiln__cpu_depth_block(const struct kiln__device *device)
{
    return device->traits->depth ? device->traits->depth : 256;
}

int64_t kiln__cpu_row_stride(const struct kiln__device *device)
{
    return kiln__cpu_depth_block(device) + 16;
}

int64_t kiln__cpu_items_per_unit(const struct kiln__device *device, int64_t usual)
{
    return device->traits->share ? device->traits->share : usual;
}

int64_t kiln__cpu_compute_units(const struct kiln__device *device)
{
    return kiln__most(1, device->info.compute_units);
}

/* ---- shares ---- */

#define BLOCK_TILES 48 /* of an item, whose part of c stays in the second cache */

/* Which shares leave the least to the unit with the most of them, in cycles of a line of k: of a
 * tile's product, of packing a line of a panel and of copying one of a tile. */
void kiln__cpu_share_tiles(const struct kiln__product *product, int64_t panels,
                           const struct kiln__cpu_order *walk, int64_t *rows, int64_t *item_panels)
{
    const int64_t units = kiln__cpu_compute_units(product->device),
                  tiles = kiln__most(1, kiln__div_up(product->m, walk->tile));
    const int64_t fewest = kiln__div_up(tiles, BLOCK_TILES);
    int64_t least_cost = INT64_MAX;
    *rows = tiles * walk->tile;
    *item_panels = panels;
    for (int64_t blocks = fewest; blocks <= kiln__least(tiles, fewest + units * 2); blocks++) {
        for (int64_t items = 1; items <= kiln__cpu_items_per_unit(product->device, KILN__CPU_ITEMS);
             items++) {
            int64_t wanted = kiln__div_up(units * items, blocks * product->batch);
            int64_t share = kiln__div_up(panels, kiln__least(panels, wanted));
            int64_t high = kiln__div_up(tiles, blocks);
            int64_t all = kiln__div_up(panels, share) * kiln__div_up(tiles, high) * product->batch;
            int64_t cost = share * (high * 12 + (walk->packs ? 8 : 0));
            cost += walk->lines ? kiln__div_up(share, walk->panels) * high * 4 : 0;
            cost *= kiln__div_up(all, units);
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
int64_t kiln__cpu_copied_rows(const struct kiln__product *product, int64_t tile)
{
    const struct kiln__matrix *a = &product->a;
    int64_t room =
        (int64_t)product->device->info.local_memory / 4 / 4 / kiln__cpu_row_stride(product->device);
    if (a->computed)
        return tile;
    return a->row == 1 && a->column != 1
               ? kiln__most(tile, kiln__least(WHOLE_LINES, room) / tile * tile)
               : 0;
}

/* ---- arguments ---- */

void kiln__cpu_add_memory(struct kiln__launch *launch, uint32_t x, uint32_t y, uint32_t z)
{
    kiln__launch_memory(launch, x);
    kiln__launch_memory(launch, y);
    kiln__launch_memory(launch, z);
}

void kiln__cpu_add_matrix(struct kiln__launch *launch, const struct kiln__matrix *x)
{
    kiln__launch_offset(launch, x->slot, x->offset, x->item);
    KILN__LAUNCH_INDICES(launch, x->row, x->column, x->batch);
}

void kiln__cpu_add_strides(struct kiln__launch *launch, const struct kiln__matrix *x, int64_t first,
                           int64_t second)
{
    kiln__launch_offset(launch, x->slot, x->offset, x->item);
    KILN__LAUNCH_INDICES(launch, first, second);
}

struct kiln__matrix kiln__cpu_scratch(struct kiln__plan *plan, int64_t floats)
{
    return (struct kiln__matrix){.slot = kiln__plan_scratch(plan, (size_t)floats * sizeof(float)),
                                 .item = sizeof(float)};
}
