/* SPDX-License-Identifier: Apache-2.0 */
/* Sorts on devices with work-groups: short lines in local memory (kernels/sort_gpu_blocks.cl), the
 * first few of long lines (kernels/sort_gpu_first.cl), long lines digit by digit
 * (kernels/sort_gpu_digits.cl). */
#include "lower/sort.h"

#include <stdio.h>

/* Keys that a work-group orders in local memory: 8 KiB, or 16 of integers of 64 bits. */
#define BLOCK 1024

/* ---- blocks ---- */

static bool blocks_fits(const struct kiln__plan *plan, const void *work)
{
    const struct kiln__sorting *sort = work;
    (void)plan;
    return sort->extent <= BLOCK;
}

static void lower_blocks(struct kiln__plan *plan, uint32_t group, const void *work)
{
    const struct kiln__sorting *sort = work;
    const size_t local = sort->traits->work_group;
    size_t segment = 2;
    char more[64];
    (void)group;
    while (segment < sort->extent)
        segment *= 2;
    snprintf(more, sizeof more, " -DWG=%zu -DBLOCK=%d", local, BLOCK);
    struct kiln__launch launch =
        kiln__sort_launch(plan, sort, "sort_gpu_blocks", "sort_blocks", local, more);
    launch.global[0] = kiln__divide_up(sort->lines, BLOCK / segment) * local;
    kiln__sort_add_values(sort, &launch);
    kiln__sort_add(sort->result, sizeof(int32_t), &launch);
    KILN__LAUNCH_INDICES(&launch, (int64_t)sort->lines, (int64_t)sort->extent, (int64_t)sort->kept,
                         (int64_t)segment);
    kiln__plan_launch(plan, &launch);
}

/* ---- first ---- */

/* Work-groups: two for each core of the largest. A part is worth one from so many elements on. */
#define GROUPS 256
#define LEAST 16384

static bool first_fits(const struct kiln__plan *plan, const void *work)
{
    const struct kiln__sorting *sort = work;
    (void)plan;
    return sort->kept <= BLOCK && sort->kept < sort->extent;
}

static void lower_few(struct kiln__plan *plan, const struct kiln__sorting *sort,
                      const struct kiln__sort_few *few)
{
    const struct kiln__traits *traits = sort->traits;
    const size_t local = traits->long_work_group ? traits->long_work_group : traits->work_group;
    char more[64];
    snprintf(more, sizeof more, " -DWG=%zu -DBLOCK=%d", local, BLOCK);
    struct kiln__launch launch =
        kiln__sort_launch(plan, sort, "sort_gpu_first", "sort_first", local, more);
    launch.dimensions = 2;
    launch.global[0] = few->parts * local;
    launch.global[1] = sort->lines;
    kiln__sort_add_values(sort, &launch);
    launch.bytes = few->bytes;
    kiln__sort_add(few->from, sizeof(int32_t), &launch);
    kiln__sort_add(few->to, sizeof(int32_t), &launch);
    KILN__LAUNCH_INDICES(&launch, (int64_t)sort->extent, (int64_t)sort->kept, (int64_t)few->parts,
                         (int64_t)few->listed);
    kiln__plan_launch(plan, &launch);
}

static void lower_first(struct kiln__plan *plan, uint32_t group, const void *work)
{
    const struct kiln__sorting *sort = work;
    (void)group;
    kiln__sort_by_runs(plan, sort, kiln__sort_runs(sort, GROUPS, LEAST + 4 * sort->kept),
                       lower_few);
}

/* ---- digits ---- */

/* Work-items of a work-group, and keys of each: a tile takes 30 KiB of local memory at most, or
 * 47, with which an H200 took 0.83 times as long. */
static size_t local_of(const struct kiln__sorting *sort)
{
    return sort->traits->work_group < 256 ? sort->traits->work_group : 256;
}

/* A work-item adds up the counts of as few. */
#define FEW_TILES 32

static size_t each_of(const struct kiln__plan *plan, const struct kiln__sorting *sort)
{
    const struct kiln__group *group = &plan->fusion.groups.items[sort->group];
    return (kiln__plan_device(plan, group)->info.local_memory < 48 << 10 ? 64 : 128) / sort->key;
}

static void lower_pass(struct kiln__plan *plan, const struct kiln__sorting *sort,
                       const struct kiln__sort_pass *pass)
{
    static const char file[] = "sort_gpu_digits";
    const size_t local = local_of(sort);
    const int64_t extent = (int64_t)sort->extent, tiles = (int64_t)pass->parts;
    const bool alone = tiles <= FEW_TILES;
    char more[64];
    snprintf(more, sizeof more, " -DWG=%zu -DEACH=%zu", local, each_of(plan, sort));
    struct kiln__launch count = kiln__sort_launch(plan, sort, file, "sort_count", local, more);
    struct kiln__launch sum = kiln__sort_launch(plan, sort, file, "sort_sum", local, more);
    struct kiln__launch place = kiln__sort_launch(plan, sort, file, "sort_place", local, more);
    count.dimensions = sum.dimensions = place.dimensions = 2;
    count.global[0] = place.global[0] = pass->parts * local;
    sum.global[0] = alone ? 256 : 256 * local;
    count.global[1] = sum.global[1] = place.global[1] = sort->lines;
    count.bytes = pass->read;
    sum.bytes = 2 * sort->lines * 256 * pass->parts * sizeof(uint32_t);
    place.bytes = pass->read + pass->written;
    kiln__sort_add_values(sort, &count);
    kiln__sort_add(pass->from, sort->key, &count);
    kiln__sort_add(pass->counts, sizeof(uint32_t), &count);
    KILN__LAUNCH_INDICES(&count, extent, tiles, pass->shift, pass->first);
    kiln__sort_add(pass->counts, sizeof(uint32_t), &sum);
    KILN__LAUNCH_INDICES(&sum, tiles, alone);
    kiln__sort_add_values(sort, &place);
    kiln__sort_add(pass->from, sort->key, &place);
    kiln__sort_add(pass->to, sort->key, &place);
    kiln__sort_add(pass->counts, sizeof(uint32_t), &place);
    kiln__sort_add(sort->result, sizeof(int32_t), &place);
    KILN__LAUNCH_INDICES(&place, extent, (int64_t)sort->kept, tiles, pass->shift, pass->first,
                         pass->last);
    kiln__plan_launch(plan, &count);
    kiln__plan_launch(plan, &sum);
    kiln__plan_launch(plan, &place);
}

static void lower_digits(struct kiln__plan *plan, uint32_t group, const void *work)
{
    const struct kiln__sorting *sort = work;
    const size_t tiles = kiln__divide_up(sort->extent, local_of(sort) * each_of(plan, sort));
    (void)group;
    kiln__sort_by_digits(plan, sort, tiles, sort->lines * 256 * (tiles + 1), lower_pass);
}

uint32_t kiln__sort_keys(struct kiln__plan *plan, uint32_t group, uint32_t keys, size_t count,
                         size_t digits)
{
    const struct kiln__group *of = &plan->fusion.groups.items[group];
    const struct kiln__access *values = &of->accesses.items[0];
    const struct kiln__sorting sort = {.traits = kiln__plan_device(plan, of)->traits,
                                       .group = group,
                                       .values = plan->slot_of[values->node],
                                       .offset = values->offset,
                                       .type = plan->fusion.graph.nodes.items[values->node].type,
                                       .result = keys,
                                       .lines = 1,
                                       .extent = count,
                                       .kept = count,
                                       .key = sizeof(uint64_t),
                                       .digits = (unsigned)digits,
                                       .keyed = true};
    const size_t tiles = kiln__divide_up(count, local_of(&sort) * each_of(plan, &sort));
    const uint64_t bytes = count * sizeof(uint64_t);
    struct kiln__sort_pass pass = {.from = keys, .parts = tiles, .read = bytes, .written = bytes};
    pass.counts = kiln__plan_scratch(plan, 256 * (tiles + 1) * sizeof(uint32_t));
    pass.to = kiln__plan_scratch(plan, bytes);
    for (unsigned digit = 0; digit < digits; digit++) {
        const uint32_t from = pass.from;
        pass.shift = 8 * digit;
        lower_pass(plan, &sort, &pass);
        pass.from = pass.to;
        pass.to = from;
    }
    return pass.from;
}

/* ---- the rows ---- */

const struct kiln__lowering kiln__sort_blocks = {.fits = blocks_fits, .lower = lower_blocks};
const struct kiln__lowering kiln__sort_first = {.fits = first_fits, .lower = lower_first};
const struct kiln__lowering kiln__sort_tiles = {.lower = lower_digits};
